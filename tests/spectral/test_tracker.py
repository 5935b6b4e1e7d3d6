"""The tracked factor against the operator it stands for, after every step."""

from __future__ import annotations

import numpy as np
import pytest

from streamembed.geometry import kernel
from streamembed.spectral import tracker
from streamembed.spectral.tracker import Cut

FULL = Cut(10_000, 10_000, 0.0)


def operator(factor: tracker.Factor) -> np.ndarray:
    """U diag(lambda) U^T."""
    return (factor.vectors * factor.values) @ factor.vectors.T


def kernel_of(points: np.ndarray, bandwidth: float = 1.0) -> np.ndarray:
    weights = kernel.gaussian_rows(points, points, bandwidth)
    np.fill_diagonal(weights, 1.0)
    return weights


def replaced(
    points: np.ndarray, weights: np.ndarray, slots: np.ndarray, new: np.ndarray
) -> np.ndarray:
    """Put new points into slots; returns their kernel rows, symmetric, ones on the diagonal."""
    points[slots] = new
    rows = kernel.gaussian_rows(points[slots], points, 1.0)
    rows[:, slots] = 0.5 * (rows[:, slots] + rows[:, slots].T)
    rows[np.arange(len(slots)), slots] = 1.0
    weights[slots], weights[:, slots] = rows, rows.T
    return rows


@pytest.mark.parametrize("seed", [0, 1])
def test_the_border_is_exact_at_full_rank(seed: int) -> None:
    """60 random replacements of 1-29 slots, every third by one repeated point: equal to 1e-12."""
    rng = np.random.default_rng(seed)
    n = 150
    points = rng.standard_normal((n, 3))
    weights = kernel_of(points)
    factor = tracker.decompose(weights, rng.uniform(0.5, 2.0, n), FULL)
    for step in range(60):
        count = int(rng.integers(1, 30))
        slots = rng.choice(n, count, replace=False)
        new = rng.standard_normal((count, 3)) if step % 3 else rng.standard_normal(3)
        rows = replaced(points, weights, slots, new)
        factor = tracker.replace(factor, slots, rows, rng.uniform(0.5, 2.0, count), FULL)
        truth = weights * np.outer(factor.scaling, factor.scaling)
        # 2e-14 and 5e-15 were measured; the tracker with an unguarded inverse blows up by step 40
        assert np.abs(operator(factor) - truth).max() < 1e-12 * np.abs(truth).max()
        assert np.abs(factor.vectors.T @ factor.vectors - np.eye(factor.rank)).max() < 1e-12


def test_growing_slots_is_the_same_border() -> None:
    """A factor grown from 20 to 120 slots, seven at a time, equals the operator at every size."""
    rng = np.random.default_rng(2)
    points = rng.standard_normal((120, 2))
    weights = kernel_of(points)
    scaling = rng.uniform(0.5, 2.0, 120)
    factor = tracker.decompose(weights[:20, :20], scaling[:20], FULL)
    for start in range(20, 120, 7):
        slots = np.arange(start, min(start + 7, 120))
        stop = slots[-1] + 1
        factor = tracker.replace(factor, slots, weights[slots, :stop], scaling[slots], FULL)
        truth = (weights * np.outer(scaling, scaling))[:stop, :stop]
        assert np.abs(operator(factor) - truth).max() < 1e-12 * np.abs(truth).max()


def test_a_window_of_one_repeated_point_loses_its_rank_and_gets_it_back() -> None:
    """All slots equal: rank 1, nothing infinite; other points again: exact again."""
    rng = np.random.default_rng(3)
    n = 40
    points = rng.standard_normal((n, 2))
    weights = kernel_of(points)
    factor = tracker.decompose(weights, np.ones(n), FULL)
    for start in range(0, n, 10):
        slots = np.arange(start, start + 10)
        rows = replaced(points, weights, slots, np.zeros(2))
        factor = tracker.replace(factor, slots, rows, np.ones(10), FULL)
    assert factor.rank == 1
    assert np.isfinite(factor.vectors).all()
    for start in range(0, n, 10):
        slots = np.arange(start, start + 10)
        rows = replaced(points, weights, slots, rng.standard_normal((10, 2)))
        factor = tracker.replace(factor, slots, rows, np.ones(10), FULL)
    assert np.abs(operator(factor) - weights).max() < 1e-12 * n


def test_the_cut_keeps_what_its_level_says() -> None:
    """Between least and most, columns above the level of the second eigenvalue are kept."""
    values = np.array([10.0, 1.0, 0.5, 0.05, 0.01])
    weights = np.diag(values)
    for cut, rank in [
        (Cut(5, 1, 0.0), 5),
        (Cut(5, 1, 0.1), 3),
        (Cut(2, 1, 0.1), 2),
        (Cut(5, 4, 0.1), 4),
    ]:
        assert tracker.decompose(weights, np.ones(5), cut).rank == rank


def test_the_eviction_forgets() -> None:
    """Every slot replaced by another cloud at rank 60: refreshes approach the fresh answer."""
    rng = np.random.default_rng(4)
    n, cut = 300, Cut(60, 60, 0.0)
    points = rng.standard_normal((n, 4))
    weights = kernel_of(points)
    factor = tracker.decompose(weights, np.ones(n), cut)
    for start in range(0, n, 10):
        slots = np.arange(start, start + 10)
        rows = replaced(points, weights, slots, 0.7 * rng.standard_normal((10, 4)) + 3.0)
        factor = tracker.replace(factor, slots, rows, np.ones(10), cut)
    truth = np.linalg.eigvalsh(weights)[::-1][:20]
    errors = [np.abs(factor.values[:20] - truth).max()]
    for _ in range(2):
        factor = tracker.refresh(factor, np.ones(n), lambda block: weights @ block, cut, 1e-12)
        errors.append(np.abs(factor.values[:20] - truth).max())
    assert errors[0] < 0.05 * truth[0]
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < 1e-4 * truth[0]


def test_a_sketch_finds_the_leading_pairs() -> None:
    """Subspace iteration from a random block agrees with the dense answer."""
    rng = np.random.default_rng(5)
    weights = kernel_of(rng.standard_normal((400, 2)))
    cut = Cut(40, 40, 0.0)
    factor = tracker.sketch(
        np.ones(400), lambda block: weights @ block, cut, 1e-12, np.float64, seed=0
    )
    truth = np.linalg.eigvalsh(weights)[::-1][:10]
    np.testing.assert_allclose(factor.values[:10], truth, rtol=1e-9)


def test_an_extension_with_probes_sees_a_new_cluster() -> None:
    """A far cluster that arrives in one big chunk is in the factor after extension and refresh."""
    rng = np.random.default_rng(6)
    points = rng.standard_normal((300, 3))
    weights = kernel_of(points)
    cut = Cut(40, 40, 0.0)
    factor = tracker.decompose(weights, np.ones(300), cut)
    slots = np.arange(100)
    rows = replaced(points, weights, slots, 0.3 * rng.standard_normal((100, 3)) + 20.0)
    extended = tracker.extend(factor, slots, rows, np.ones(100))
    probes = np.zeros((300, 8))
    probes[slots] = rng.standard_normal((100, 8))
    truth = np.linalg.eigvalsh(weights)[-1]

    def refreshed(found: np.ndarray | None) -> float:
        product = lambda block: weights @ block  # noqa: E731
        return tracker.refresh(extended, np.ones(300), product, cut, 1e-12, found).values[0]

    # eight random directions and one product find it to 2 %; the next refresh does the rest
    assert refreshed(probes) > 0.95 * truth
    assert refreshed(None) < 0.9 * truth, "the probes are what finds it"
