"""Forces of a picture: the derivative of its energy, and the same bits with and without numba."""

from __future__ import annotations

import numpy as np
import pytest

from streamembed.geometry.lists import NeighborLists
from streamembed.geometry.pairwise import PointDistances
from streamembed.layout import forces, relaxation
from streamembed.layout.forces import Links
from streamembed.numeric import compilation
from streamembed.numeric.arrays import Floats
from tests.oracles.oracle_layout import compute_energy, spread_slowly


def links_of(points: Floats, k: int = 15) -> Links:
    lists = NeighborLists.build(PointDistances(points), np.arange(len(points)), k)
    near, d2 = lists.nearest
    return Links.of(near, forces.compute_affinities(d2))


def dense(links: Links) -> Floats:
    """A, summed entry by entry."""
    n = len(links)
    a = np.zeros((n, n))
    for i in range(n):
        for e in range(links.starts[i], links.starts[i + 1]):
            a[i, links.slots[e]] += links.weights[e]
    return a


def test_links_are_the_symmetric_half_of_the_affinities() -> None:
    """A = (P + P^T) / 2 by brute force, with rows of P that sum to 1 and fall with the distance."""
    points = np.random.default_rng(0).standard_normal((60, 3))
    lists = NeighborLists.build(PointDistances(points), np.arange(60), 7)
    near, d2 = lists.nearest
    p = forces.compute_affinities(d2)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    assert (np.diff(p, axis=1) <= 0).all()
    d = np.sqrt(d2)
    beyond = d - d[:, :1]
    expected = np.exp(-beyond / beyond.mean(axis=1, keepdims=True))
    np.testing.assert_allclose(p, expected / expected.sum(axis=1, keepdims=True), rtol=1e-12)
    full = np.zeros((60, 60))
    np.put_along_axis(full, near.astype(np.int64), p, 1)
    np.testing.assert_allclose(dense(Links.of(near, p)), 0.5 * (full + full.T), rtol=1e-12)


def test_lists_that_end_early_have_no_links_behind_their_end() -> None:
    """Four points with seven neighbours each: three of them, and nothing else."""
    points = np.random.default_rng(0).standard_normal((4, 3))
    links = links_of(points, 7)
    a = dense(links)
    np.testing.assert_allclose(a.sum(axis=0), a.sum(axis=1), rtol=1e-12)
    assert a.sum() == pytest.approx(4.0)
    assert np.diag(a).max() == 0.0


def test_a_force_is_minus_half_the_derivative_of_the_energy() -> None:
    """By central differences, at fifty points, in both coordinates."""
    rng = np.random.default_rng(1)
    links = links_of(rng.standard_normal((200, 5)))
    places, rho, gamma, h = 4.0 * rng.standard_normal((200, 2)), 1.5, 0.04, 1e-4
    rows = rng.permutation(200)[:50]
    rows.sort()
    pulled, _ = forces.attract(links.take(rows), places, places[rows])
    force = rho * pulled + gamma * forces.repel(places, places[rows], np.float64)
    for row, found in zip(rows, force, strict=True):
        for axis in range(2):
            energies = []
            for step in (-h, h):
                moved = places.copy()
                moved[row, axis] += step
                energies.append(compute_energy(links, moved, rho, gamma))
            slope = (energies[1] - energies[0]) / (2.0 * h)
            assert found[axis] == pytest.approx(-0.5 * slope, abs=1e-6)


def test_single_precision_is_enough() -> None:
    """Repulsion in float32 is that of float64 to 3e-6 of the largest force."""
    rng = np.random.default_rng(3)
    places = 10.0 * rng.standard_normal((3000, 2))
    exact = forces.repel(places, places, np.float64)
    assert np.abs(forces.repel(places, places) - exact).max() < 5e-6 * np.abs(exact).max()
    sums = forces.sum_weights(places, places, np.float64)
    np.testing.assert_allclose(forces.sum_weights(places, places), sums, rtol=1e-5)


@pytest.mark.skipif(not compilation.is_available(), reason="numba is not installed")
@pytest.mark.parametrize(
    ("n", "m"), [(2, 0), (3, 1), (20, 20), (65, 64), (500, 1), (500, 2), (500, 33), (700, 700)]
)
def test_numba_and_numpy_give_the_same_bits(
    n: int, m: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a saved picture goes on the same wherever it is loaded."""
    rng = np.random.default_rng(n + m)
    links, places = links_of(rng.standard_normal((n, 4))), 9.0 * rng.standard_normal((n, 2))
    rows = np.sort(rng.permutation(n)[:m])
    found = []
    for available in (True, False):
        monkeypatch.setattr(compilation, "is_available", lambda answer=available: answer)
        parts = [*forces.attract(links.take(rows), places, places[rows])]
        parts += [kind(places, places[rows]) for kind in (forces.repel, forces.sum_weights)]
        found.append(b"".join(part.tobytes() for part in parts))
    assert found[0] == found[1]


def spread_by_parts(
    links: Links, places: Floats, parts: list[int]
) -> list[tuple[Floats, Floats, float]]:
    """Places, velocities and gamma after each of some parts of all steps."""
    left, gamma, result = relaxation.SPREADING_STEPS, 0.0, []
    velocity = np.zeros_like(places)
    for steps in parts:
        places, velocity, gamma = relaxation.spread(
            links, places, velocity, 1.5, gamma, left, steps
        )
        left -= steps
        result.append((places, velocity, gamma))
    return result


def test_spreading_a_few_steps_at_a_time_is_spreading_at_once() -> None:
    """To the last bit."""
    rng = np.random.default_rng(4)
    links, start = links_of(rng.standard_normal((120, 4))), rng.standard_normal((120, 2))
    cuts = np.sort(rng.integers(0, 250, 40))
    places, _, gamma = spread_by_parts(links, start, np.diff([0, *cuts, 250]).tolist())[-1]
    expected = relaxation.spread_out(links, start, 1.5)
    assert places.tobytes() == expected[0].tobytes()
    assert gamma == expected[1]


def test_spreading_is_that_of_the_oracle() -> None:
    """After every part of the steps, from where the last one ended: their rounding differs."""
    rng = np.random.default_rng(5)
    links, places = links_of(rng.standard_normal((60, 4))), rng.standard_normal((60, 2))
    a, velocity, gamma, left = dense(links), np.zeros_like(places), 0.0, 250
    for found in spread_by_parts(links, places, [7] * 35 + [5]):
        steps = min(7, left)
        slow = spread_slowly(a, places, velocity, 1.5, gamma, left, steps)
        np.testing.assert_allclose(found[0], slow[0], atol=1e-4)
        np.testing.assert_allclose(found[1], slow[1], atol=1e-4)
        assert found[2] == pytest.approx(slow[2], rel=1e-5)
        (places, velocity, gamma), left = found, left - steps
    assert left == 0


def test_z_of_many_points_is_that_of_some_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of them: to a hundredth or two, and the picture has the same size."""
    rng = np.random.default_rng(6)
    links, start = links_of(rng.standard_normal((600, 4))), rng.standard_normal((600, 2))
    places, gamma = relaxation.spread_out(links, start, 1.5)
    monkeypatch.setattr(relaxation, "ROWS_PER_STEP", 60)
    places_by_rows, gamma_by_rows = relaxation.spread_out(links, start, 1.5)
    assert gamma_by_rows == pytest.approx(gamma, rel=0.05)
    size = [np.sqrt((one.var(axis=0)).sum()) for one in (places, places_by_rows)]
    assert size[1] == pytest.approx(size[0], rel=0.05)
