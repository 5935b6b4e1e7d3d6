"""Functions and images that are kept by changes of rank 2b, against products with W made anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from streamembed.spectral.trial_space import (
    NEGATIVE,
    OF_PROBES,
    OF_TRIAL,
    PROBES,
    ROUNDING,
    TrialSpace,
)

Kernel = Callable[[np.ndarray], np.ndarray]


def gaussian(points: np.ndarray) -> np.ndarray:
    return np.exp(-cdist(points, points, "sqeuclidean"))


def ball(points: np.ndarray) -> np.ndarray:
    """1 within a distance and 0 beyond: not positive, by far."""
    return (cdist(points, points) < 1.0).astype(np.float64)


def contents(space: TrialSpace) -> dict[str, object]:
    """Every field; of arrays, the bytes."""
    values = {field.name: getattr(space, field.name) for field in fields(space)}
    return {
        name: value.tobytes() if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }


class Stream:
    """A support that changes, its whole W in float64, and the space that follows it (alpha 0)."""

    def __init__(
        self, points: np.ndarray, kernel: Kernel = gaussian, most: int = 12, seed: int = 0
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.points, self.kernel = points.copy(), kernel
        self.masses = np.ones(len(points))
        self.weights = kernel(self.points)
        n, scaling = len(points), self.scaling
        functions = np.concatenate(
            [
                self.masses[None],
                self.rng.standard_normal((n // 2, n)) * scaling,
                self.rng.standard_normal((PROBES, n)) * scaling,
            ]
        )
        single = functions.astype(np.float32)
        images = (functions @ self.weights).astype(np.float32)
        self.space = TrialSpace.of(single, images, scaling, most)
        self.first = self.ritz(functions[1:-PROBES])

    @property
    def scaling(self) -> np.ndarray:
        return np.sqrt(self.masses / (self.weights @ self.masses))

    def fill(self, slots: np.ndarray, points: np.ndarray) -> None:
        before = self.weights
        n_before = len(before)
        n = max(n_before, int(slots.max()) + 1)
        following = np.zeros((n, points.shape[1]))
        following[:n_before] = self.points
        following[slots] = points
        self.points = following
        self.masses = np.append(self.masses, np.ones(n - n_before))
        self.weights = self.kernel(self.points)
        old = slots[slots < n_before]
        self.space = self.space.replace(
            slots,
            before[old].astype(np.float32),
            self.weights[slots].astype(np.float32),
            self.scaling[slots],
            self.masses[slots],
            self.rng.standard_normal((PROBES, len(slots))),
        )

    def roll(self, count: int, renews: bool = False) -> np.ndarray:
        n = self.space.functions.shape[1]
        slots = (self.space.cursor + np.arange(min(count, n))) % n
        rows = self.weights[slots].astype(np.float32)
        self.space = self.space.refresh_slots(
            slots, rows, self.scaling[slots], self.masses[slots], renews
        )
        return slots

    def check(self) -> None:
        """G = H W row by row, and the small matrices."""
        space = self.space
        functions = space.functions.astype(np.float64)
        exact = functions @ self.weights
        off = np.linalg.norm(space.images - exact, axis=1)
        # backward errors: the image of what has faded is smaller than what was summed up
        lengths = np.linalg.norm(functions, axis=1)
        unit = ROUNDING[np.dtype(np.float32)] * np.linalg.norm(self.weights, 2)
        most = 3e-5 * np.linalg.norm(exact, axis=1) + unit * lengths
        assert (off <= most).all()
        trial = functions[OF_TRIAL]
        # functions have had a length of 1: of those that have faded, the rounding stays
        most = np.outer(lengths[OF_TRIAL], most) + 2.0 * unit
        assert (np.abs(space.inner - trial @ exact.T) <= most).all()
        scaled = trial / space.drawn
        sizes = np.linalg.norm(scaled, axis=1)
        most = 3e-5 * np.outer(sizes, sizes) + 3e-6
        assert (np.abs(space.gram - scaled @ scaled.T) <= most).all()

    def ritz(self, functions: np.ndarray | None = None) -> np.ndarray:
        """Ritz values of S as it is now, descending, without the constant: of the space."""
        if functions is None:
            functions = self.space.functions[OF_TRIAL]
        s = self.weights * np.outer(self.scaling, self.scaling)
        constant = self.masses / self.scaling
        constant /= np.linalg.norm(constant)
        vectors = (functions / self.scaling).astype(np.float64).T
        basis = np.linalg.qr(vectors - np.outer(constant, constant @ vectors))[0]
        return np.linalg.eigvalsh(basis.T @ s @ basis)[::-1]


def drifting(rng: np.random.Generator, count: int, time: float) -> np.ndarray:
    """Two clusters of which one wanders away and comes back."""
    points = 0.7 * rng.standard_normal((count, 2))
    points[rng.random(count) < 0.5, 0] += 3.0 + 2.0 * np.sin(time / 40.0)
    return points


@pytest.mark.parametrize("memory", ["window", "landmarks"])
def test_images_stay_exact(memory: str) -> None:
    """300 chunks of 1 to 25, growing and full, with rolls and turns, and masses that change."""
    rng = np.random.default_rng(1)
    stream = Stream(drifting(rng, 60, 0.0))
    size, newest, filled = 160, 60, 0
    sampled = 0
    for chunk in range(300):
        b, n = int(rng.integers(1, 26)), len(stream.points)
        if memory == "landmarks":
            stream.masses *= 0.99
            stream.masses[rng.permutation(n)[:5]] += 1.0
        if n < size:  # new slots, and some that are filled again
            new = np.arange(n, min(n + b, size))
            slots = np.concatenate([new, rng.permutation(n)[: b // 3]])
        elif memory == "window":
            slots = (newest + np.arange(b)) % size
        else:
            slots = rng.permutation(n)[:b]
        newest = int(slots[-1] + 1) % size if n == size else 0
        before, kept = stream.space, contents(stream.space)
        stream.fill(slots, drifting(rng, len(slots), float(chunk)))
        filled += len(slots)
        assert stream.space.since_turn == filled
        assert contents(before) == kept
        before, kept = stream.space, contents(stream.space)
        rolled = stream.roll(5 * len(slots), renews=memory == "landmarks")
        np.testing.assert_array_equal(
            rolled, (before.cursor + np.arange(len(rolled))) % len(stream.points)
        )
        assert stream.space.cursor == (rolled[-1] + 1) % len(stream.points)
        assert contents(before) == kept
        if chunk % 6 == 0:
            stream.check()
            sampled += 1
        if stream.space.since_turn >= 0.2 * len(stream.points):
            before, kept = stream.space, contents(stream.space)
            stream.space, filled = before.reduce_to_ritz(12), 0
            assert stream.space.since_turn == 0
            assert stream.space.cursor == before.cursor
            assert contents(before) == kept
    assert sampled == 50
    assert len(stream.points) == size
    stream.check()
    # and the space is good: the leading eigenvalues of S are its own
    scaling = stream.scaling
    scaled = stream.weights * np.outer(scaling, scaling)
    truth = np.linalg.eigvalsh(scaled)[::-1][1:5]
    np.testing.assert_allclose(stream.ritz()[:4], truth, atol=0.02)


def test_a_turn_is_the_ritz_basis_of_the_same_space() -> None:
    """Orthonormal in M, A diagonal and descending, no constant, and the same span."""
    rng = np.random.default_rng(2)
    stream = Stream(drifting(rng, 120, 0.0))
    for start in range(0, 120, 10):
        stream.fill(np.arange(start, start + 10), drifting(rng, 10, 1.0))
    stream.roll(500)  # all of them, once: `drawn` is s now
    before, after = stream.space, stream.space.reduce_to_ritz(12)
    np.testing.assert_allclose(after.gram, np.eye(after.rank), atol=1e-4)
    a = after.inner[:, OF_TRIAL]
    np.testing.assert_allclose(a, np.diag(np.diag(a)), atol=1e-4)
    assert (np.diff(np.diag(a)) <= 1e-6).all()
    np.testing.assert_allclose(after.inner[:, 0], 0.0, atol=1e-3)
    wide = np.concatenate([before.functions[:1], before.functions[OF_TRIAL]]).astype(float)
    basis = np.linalg.qr(wide.T)[0]
    turned = after.functions[OF_TRIAL].astype(float).T
    assert np.linalg.norm(turned - basis @ (basis.T @ turned)) <= 1e-4 * np.linalg.norm(turned)
    stream.space = after
    stream.check()
    assert before.reduce_to_ritz(3).rank == 3


def test_probes_stay_what_was_drawn() -> None:
    """In old slots, divided by s of when they were filled, through rolls and turns."""
    stream = Stream(np.random.default_rng(4).standard_normal((60, 2)))

    def draws() -> np.ndarray:
        return stream.space.functions[OF_PROBES] / stream.space.drawn

    before = draws()
    stream.fill(np.arange(10), np.random.default_rng(5).standard_normal((10, 2)))
    np.testing.assert_allclose(draws()[:, 10:], before[:, 10:], rtol=1e-5)
    # new ones are standard normal: 160 numbers
    assert 0.8 < draws()[:, :10].std() < 1.2
    before = draws()
    stream.roll(60)
    stream.space = stream.space.reduce_to_ritz(12)
    np.testing.assert_allclose(draws(), before, rtol=1e-5)


@pytest.mark.parametrize("far", [100.0, 0.2])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_space_follows_its_cluster(far: float, seed: int) -> None:
    """Where it wanders, and where all points are replaced by others, without a weight to them."""
    rng = np.random.default_rng(seed)
    stream = Stream(rng.standard_normal((100, 2)))
    for step in range(20):
        points = rng.standard_normal((10, 2)) + far * (1.0 if far > 1.0 else step)
        stream.fill((10 * step + np.arange(10)) % 100, points)
        stream.roll(50)
        stream.check()
        if step % 2:
            stream.space = stream.space.reduce_to_ritz(12)
    true = stream.ritz(np.eye(100))[1:]  # the constant is the first
    # twice the points were filled, and ten times rolled: nothing but steps of subspace iteration
    np.testing.assert_allclose(stream.ritz()[:2], true[:2], rtol=0.02)


def test_a_kernel_with_negative_eigenvalues() -> None:
    """The damping exceeds the most negative Ritz value; images are exact, values bounded."""
    rng = np.random.default_rng(8)
    stream = Stream(2.0 * rng.standard_normal((100, 2)), ball, most=24)
    assert np.linalg.eigvalsh(stream.weights).min() < -1.0
    assert stream.first.min() < -0.1
    assert stream.space.damping >= -0.99 * NEGATIVE * stream.first.min()
    assert len(stream.ritz()) == 24
    for step in range(60):
        slots = (7 * step + np.arange(7)) % 100
        stream.fill(slots, 2.0 * rng.standard_normal((7, 2)))
        stream.roll(35)
        stream.check()
        if step % 3 == 2:
            stream.space = stream.space.reduce_to_ritz(24)
    lengths = np.linalg.norm(stream.space.functions[OF_TRIAL], axis=1)
    assert lengths.max() < 10 * np.sqrt(np.mean(stream.scaling**2))


def test_an_image_is_estimated_near_the_constant() -> None:
    """Of m a itself and of what the trial functions add to it, exactly."""
    stream = Stream(drifting(np.random.default_rng(9), 80, 0.0))
    space = stream.space
    x = space.functions[0].astype(float)
    np.testing.assert_allclose(space.estimate_image(x), stream.weights @ x, rtol=1e-5)
    x = x + 0.3 * space.functions[OF_TRIAL][:4].astype(float).sum(axis=0)
    exact = stream.weights @ x
    np.testing.assert_allclose(space.estimate_image(x), exact, atol=1e-4 * np.abs(exact).max())
