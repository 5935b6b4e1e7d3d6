"""Trial spaces of centred matrices: images, Ritz pairs and extension, against dense float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from streamembed.spectral.trial_space import OF_TRIAL, PROBES, TrialSpace

Kernel = Callable[[np.ndarray], np.ndarray]


def squares(points: np.ndarray) -> np.ndarray:
    """-d^2 / 2."""
    table: np.ndarray = -0.5 * cdist(points, points, "sqeuclidean")
    return table


def city_blocks(points: np.ndarray) -> np.ndarray:
    """-d^2 / 2 of distances that no Euclidean space has."""
    table: np.ndarray = -0.5 * cdist(points, points, "cityblock") ** 2
    return table


def cubes(points: np.ndarray) -> np.ndarray:
    """A polynomial kernel with a large mean."""
    table: np.ndarray = (points @ points.T / points.shape[1] + 1.0) ** 3
    return table


KERNELS: list[Kernel] = [squares, city_blocks, cubes]


class Stream:
    """A support that changes, its whole W, and the space that follows it."""

    def __init__(self, points: np.ndarray, kernel: Kernel, most: int) -> None:
        self.rng, self.kernel, self.most = np.random.default_rng(0), kernel, most
        self.points, self.masses = points.copy(), np.ones(len(points))
        self.weights = kernel(points)
        n = len(points)
        leading = np.linalg.eigh(self.dense())[1].T
        draws = self.rng.standard_normal((PROBES, n))
        functions = np.concatenate([self.masses[None], leading, draws])
        images = functions @ self.weights
        self.space = TrialSpace.of(functions, images, np.ones(n), most, is_centred=True)

    def fill(self, slots: np.ndarray, points: np.ndarray, masses: np.ndarray | float) -> None:
        before = self.weights
        n_before, n = len(before), max(len(before), int(slots.max()) + 1)
        following = np.zeros((n, points.shape[1]))
        following[:n_before], following[slots] = self.points, points
        self.points = following
        self.masses = np.append(self.masses, np.ones(n - n_before))
        self.masses[slots] = masses
        self.weights = self.kernel(self.points)
        self.space = self.space.replace(
            slots,
            before[slots[slots < n_before]],
            self.weights[slots],
            np.sqrt(self.masses[slots]),
            self.masses[slots],
            self.rng.standard_normal((PROBES, len(slots))),
        )

    def roll(self, count: int, renews: bool) -> None:
        n = self.space.functions.shape[1]
        slots = (self.space.cursor + np.arange(min(count, n))) % n
        masses = self.masses[slots]
        rows = self.weights[slots]
        self.space = self.space.refresh_slots(slots, rows, np.sqrt(masses), masses, renews)

    def check(self) -> None:
        """G = H W, and the small matrices."""
        space = self.space
        exact = space.functions @ self.weights
        size = np.linalg.norm(self.weights, 2) * np.linalg.norm(space.functions, axis=1)
        assert (np.abs(space.images - exact).max(axis=1) <= 1e-11 * size).all()
        trial = space.functions[OF_TRIAL]
        lengths = np.linalg.norm(trial, axis=1)
        most = 1e-10 * np.outer(lengths, size)
        assert (np.abs(space.inner - trial @ exact.T) <= most).all()
        scaled = trial / space.drawn
        np.testing.assert_allclose(space.gram, scaled @ scaled.T, atol=1e-9)

    def dense(self) -> np.ndarray:
        """S by its definition."""
        n, shares = len(self.masses), self.masses / self.masses.sum()
        center, root = np.eye(n) - shares, np.sqrt(self.masses)
        result: np.ndarray = root[:, None] * (center @ self.weights @ center.T) * root
        return result


@pytest.mark.parametrize("memory", ["window", "landmarks"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_images_stay_exact(kernel: Kernel, memory: str) -> None:
    """300 chunks of 1 to 25, growing and full, with rolls and turns; masses that change."""
    rng = np.random.default_rng(1)
    stream = Stream(rng.standard_normal((60, 4)), kernel, 16)
    size, newest = 130, 60
    for chunk in range(300):
        b, n = int(rng.integers(1, 26)), len(stream.points)
        slots = np.arange(n, min(n + b, size)) if n < size else (newest + np.arange(b)) % size
        newest = int(slots[-1] + 1) % size
        points = rng.standard_normal((len(slots), 4)) * (1.0 + np.sin(chunk / 30.0) ** 2)
        masses = 1.0 if memory == "window" else rng.uniform(0.5, 4.0, len(slots))
        stream.fill(slots, points, masses)
        stream.roll(5 * len(slots), memory == "landmarks")
        if chunk % 10 == 0:
            stream.check()
        if stream.space.since_turn > 20:
            stream.space = stream.space.reduce_to_ritz(16)
    stream.check()


@pytest.mark.parametrize("d", [1, 3, 8])
def test_functions_of_few_features_are_extended_exactly(d: int) -> None:
    """They are all there are, and stay so: no step of iteration is needed, three turnovers long."""
    rng = np.random.default_rng(2)
    stream = Stream(rng.standard_normal((90, d)) + 5.0, squares, 30)
    assert stream.space.rank == d
    stream.space = stream.space.mark_complete()
    for step in range(30):
        points = rng.standard_normal((9, d)) * np.linspace(1.0, 0.3, d) + 5.0
        stream.fill((9 * step + np.arange(9)) % 90, points, 1.0)
        stream.space = stream.space.reduce_to_ritz(stream.space.rank)
        values = np.diag(stream.space.inner[:, OF_TRIAL])
        truth = np.linalg.eigvalsh(stream.dense())[::-1]
        np.testing.assert_allclose(values, truth[:d], rtol=1e-9)
    assert stream.space.is_complete


def test_values_of_both_signs_are_kept_by_size() -> None:
    """The most negative one is among the first, and is no damping."""
    rng = np.random.default_rng(3)
    stream = Stream(rng.standard_normal((100, 6)), city_blocks, 24)
    assert not stream.space.is_complete
    for step in range(40):
        stream.fill((5 * step + np.arange(5)) % 100, rng.standard_normal((5, 6)), 1.0)
        stream.roll(50, False)
        stream.space = stream.space.reduce_to_ritz(24)
    values = np.diag(stream.space.inner[:, OF_TRIAL])
    assert (np.diff(np.abs(values)) <= 1e-9).all()
    truth = np.linalg.eigvalsh(stream.dense())
    np.testing.assert_allclose(np.sort(values)[::-1][:6], truth[::-1][:6], rtol=1e-2)
    np.testing.assert_allclose(values.min(), truth[0], rtol=2e-2)
