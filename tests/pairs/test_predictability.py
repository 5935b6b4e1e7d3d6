"""Weights of features by how well the others predict them: what falls, and what must not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from streamembed.pairs import predictability
from streamembed.pairs.predictability import weigh_features

N, STRUCTURE, NOISE = 500, 5, 3


def draw_groups(seed: int, n: int = N, d: int = STRUCTURE, groups: int = 8) -> np.ndarray:
    """Groups far from each other, in ``d`` features."""
    rng = np.random.default_rng(seed)
    centres = 4.0 * rng.standard_normal((groups, d))
    return centres[rng.integers(0, groups, n)] + rng.standard_normal((n, d))


def standardise(points: np.ndarray) -> np.ndarray:
    return (points - points.mean(axis=0)) / points.std(axis=0)


def explain(points: np.ndarray, metric: np.ndarray, j: int) -> float:
    """R2 of feature j from its ten nearest neighbours in the others, from the definition."""
    others = np.delete(np.arange(points.shape[1]), j)
    root = np.linalg.cholesky(metric[np.ix_(others, others)])
    d = cdist(points[:, others] @ root, points[:, others] @ root)
    np.fill_diagonal(d, np.inf)
    near = np.argsort(d, axis=1)[:, :10]
    error = points[:, j] - points[near, j].mean(axis=1)
    return float(1.0 - 10.0 / 11.0 * np.mean(error**2) / points[:, j].var())


@pytest.mark.parametrize("seed", range(3))
def test_r2_is_that_of_its_definition(seed: int) -> None:
    points = standardise(draw_groups(seed, 200))
    weighed = weigh_features(points, (0,))
    wanted = [explain(points, np.eye(STRUCTURE), j) for j in range(STRUCTURE)]
    np.testing.assert_allclose(weighed.r2, wanted, atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_noise_falls_and_structure_stays(seed: int) -> None:
    """Wherever among the features it stands."""
    rng = np.random.default_rng(seed)
    points = np.column_stack([draw_groups(seed), rng.standard_normal((N, NOISE))])
    order = rng.permutation(points.shape[1])
    weighed = weigh_features(standardise(points)[:, order], (seed,))
    wanted = np.where(order < STRUCTURE, 1.0, predictability.FLOOR)
    np.testing.assert_allclose(weighed.weights, wanted, atol=1e-12)
    assert weighed.share == 1.0


def draw_independent(kind: str, rng: np.random.Generator) -> np.ndarray:
    if kind == "grid":
        grid = np.stack(np.meshgrid(*[np.arange(5.0)] * 4), axis=-1).reshape(-1, 4)
        return rng.permutation(grid)
    drawn = {
        "normal": rng.standard_normal((N, 6)),
        "uniform": rng.random((N, 6)),
        "coins": rng.integers(0, 2, (N, 8)).astype(float),
        "heavy": rng.standard_t(2, (N, 6)),
    }
    return drawn[kind]


@pytest.mark.parametrize("kind", ["grid", "normal", "uniform", "coins", "heavy"])
def test_independent_features_all_weigh_one(kind: str) -> None:
    """Nothing is predictable, so that nothing tells noise from what matters."""
    for seed in range(4):
        rng = np.random.default_rng((seed, 7))
        weighed = weigh_features(standardise(draw_independent(kind, rng)), (seed,))
        assert (weighed.weights == 1.0).all(), seed


def test_noise_that_is_correlated_with_itself_is_no_structure() -> None:
    """Four features with one factor beside a factorial: nothing falls that the labels may need."""
    for seed in range(6):
        rng = np.random.default_rng((seed, 11))
        factorial = rng.integers(1, 6, (N, 4)).astype(float)
        block = 2.0 * rng.standard_normal((N, 1)) + rng.standard_normal((N, 4))
        weighed = weigh_features(standardise(np.column_stack([factorial, block])), (seed,))
        assert (weighed.weights == 1.0).all(), seed


@pytest.mark.parametrize("copies", [1, 2])
def test_a_feature_that_is_written_twice_is_no_structure(copies: int) -> None:
    """One or two, in another unit each: they predict each other, and nothing else."""
    for seed in range(4):
        rng = np.random.default_rng((seed, 13))
        points = rng.integers(1, 6, (N, 5)).astype(float)
        points = np.column_stack([points, 1.8 * points[:, :copies] + 32.0])
        weighed = weigh_features(standardise(points), (seed,))
        assert (weighed.weights == 1.0).all(), seed


def test_orders_and_units_do_not_matter() -> None:
    """Features permuted, and in far units: the same weights."""
    rng = np.random.default_rng(0)
    points = standardise(np.column_stack([draw_groups(3), rng.standard_normal((N, NOISE))]))
    weighed = weigh_features(points, (0,))
    order = rng.permutation(points.shape[1])
    np.testing.assert_allclose(
        weigh_features(points[:, order], (0,)).weights, weighed.weights[order], atol=1e-12
    )
    np.testing.assert_allclose(weigh_features(-points, (0,)).r2, weighed.r2, atol=1e-12)


def test_few_points_or_features_constants_and_equal_points() -> None:
    """No weights without evidence, and no warnings."""
    rng = np.random.default_rng(0)
    for shape in ((0, 4), (5, 4), (29, 4), (100, 0), (100, 1), (100, 2), (100, 129)):
        weighed = weigh_features(rng.standard_normal(shape), (0,))
        assert (weighed.weights == 1.0).all()
        assert weighed.share == 0.0
    assert (weigh_features(np.full((100, 4), 0.1), (0,)).weights == 1.0).all()
    points = np.column_stack([draw_groups(0), rng.standard_normal((N, NOISE)), np.full(N, 0.3)])
    deviations = points.std(axis=0)
    weighed = weigh_features(
        (points - points[0]) / np.where(deviations > 1e-12, deviations, 1.0), (0,)
    )
    assert weighed.weights[-1] == 1.0
    assert weighed.r2[-1] == 0.0
    assert (weighed.weights[STRUCTURE:-1] < 0.5).all()
    repeated = np.repeat(standardise(draw_groups(1, 20)), 20, axis=0)
    assert np.isfinite(weigh_features(repeated, (0,)).weights).all()


def test_features_whose_squares_are_zero_do_not_vary() -> None:
    """Doubles near the smallest: their R2 was 0 / 0."""
    points = 1e-310 * np.random.default_rng(0).standard_normal((80, 3))
    assert (weigh_features(points, (0,)).weights == 1.0).all()
