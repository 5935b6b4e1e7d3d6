"""Pair sums and the three metrics in closed form that follow from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from streamembed.metrics import class_moments, contrast, geometric_mean, scatter
from tests.oracles import oracle_moments as oracle

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
SHIPPED = {"iris": load_iris, "wine": load_wine, "wdbc": load_breast_cancer}
SETS = [*SHIPPED, "glass", "ionosphere", "segment", "letter"]

# Sums and inverses in another order: a few hundred eps at most.
EXACT = 1e-12
# Two products of condition 1e2 after an eigenproblem of condition 1e4: measured 1.5e-13.
RICCATI = 1e-12


def standardised(name: str) -> tuple[np.ndarray, np.ndarray]:
    if name in SHIPPED:
        points, classes = SHIPPED[name](return_X_y=True)
    else:
        file = DATA / f"{name}.parquet"
        if not file.exists():
            pytest.skip(f"{file} is not here: the data lie beside the project, not in it")
        table = pq.read_table(file)
        names = [column for column in table.column_names if column != "label"]
        points = np.column_stack([table[column].to_numpy() for column in names]).astype(float)
        classes = table["label"].to_numpy()
    spread = points.std(axis=0)
    return (points - points.mean(axis=0)) / np.where(spread > 0, spread, 1.0), classes


def pairs(
    points: np.ndarray, classes: np.ndarray, n: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """n similar and n dissimilar pairs, as differences and booleans, in random order."""
    rng = np.random.default_rng(seed)
    left, right = rng.integers(0, len(points), (2, 60 * n))
    similar = classes[left] == classes[right]
    chosen = np.concatenate([np.flatnonzero(similar)[:n], np.flatnonzero(~similar)[:n]])
    chosen = rng.permutation(chosen)
    return points[left[chosen]] - points[right[chosen]], similar[chosen]


def sums_of(differences: np.ndarray, similar: np.ndarray) -> class_moments.PairSums:
    return class_moments.update_sums(
        class_moments.init_sums(differences.shape[1]), differences, similar
    )


def contrast_metric(
    sums: class_moments.PairSums, **options: Any
) -> tuple[np.ndarray, dict[str, Any]]:
    return contrast.contrast_metric(class_moments.average_pairs(sums), **options)


def geometric_mean_metric(
    sums: class_moments.PairSums, t: float = 0.25, **options: Any
) -> tuple[np.ndarray, dict[str, Any]]:
    return geometric_mean.geometric_mean_metric(class_moments.average_pairs(sums), t, **options)


def random_sums(seed: int, d: int = 5) -> class_moments.PairSums:
    """C and F that do not commute, of condition at most 100; 20 close pairs and 30 far ones."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((2, d, d)))[0]
    close, far = axes * 10.0 ** rng.uniform(-1, 1, (2, 1, d)) @ axes.swapaxes(1, 2)
    return class_moments.PairSums(10 * (close + close.T), 60 * (far + far.T), 20.0, 30.0)


def means(sums: class_moments.PairSums) -> tuple[np.ndarray, np.ndarray]:
    return sums.close / sums.n_close, sums.far / sums.n_far


def close_to(one: np.ndarray, other: np.ndarray, tolerance: float) -> bool:
    return bool(np.abs(one - other).max() <= tolerance * np.abs(other).max())


# ---------------------------------------------------------------- sums


def test_all_pairs_of_classes_without_a_pair():
    """The sums from class moments are those over all pairs, one by one."""
    rng = np.random.default_rng(2)
    points, classes = rng.standard_normal((50, 4)), rng.integers(0, 3, 50)
    of_classes = scatter.update(scatter.init(4), points, classes)
    found = class_moments.PairSums(*scatter.sum_all_pairs(of_classes))
    close, far, n_close, n_far = oracle.pair_sums(points, classes)
    assert close_to(found.close, close, EXACT)
    assert close_to(found.far, far, EXACT)
    assert (found.n_close, found.n_far) == (n_close, n_far)


# ---------------------------------------------------------------- the source's formula


@pytest.mark.parametrize("name", SETS)
def test_the_guard_makes_a_metric_where_the_formula_is_none(name: str) -> None:
    """alpha I + C - F is indefinite on all seven sets; what comes out is positive semidefinite."""
    sums = sums_of(*pairs(*standardised(name), 1000))
    C, F = means(sums)
    values = np.linalg.eigvalsh(oracle.contrast_matrix(C, F, 0.01))
    assert values[0] < 0 < values[-1]
    metric, info = contrast_metric(sums)
    assert info["status"] == "guarded"
    varies = np.diag(C + F) > 0
    m = np.count_nonzero(varies)
    floor = 0.01 * np.trace(C) / m
    assert info["floor"] == pytest.approx(floor)
    inside = np.linalg.eigvalsh(oracle.contrast_matrix(C, F, 0.01)[np.ix_(varies, varies)])
    assert info["n_clipped"] == np.count_nonzero(inside < floor)
    assert info["n_constant"] == len(C) - m
    found = np.linalg.eigvalsh(metric)
    assert found[0] > -1e-12 * found[-1]
    assert found[-1] <= (1 + EXACT) / floor


def test_without_the_guard_it_is_the_formula():
    """Where alpha I + C - F is well above the floor, the metric is its inverse."""
    sums = random_sums(4)
    C, F = means(sums)
    C, F = C + np.eye(5) * np.trace(C), 1e-3 * F
    metric, info = contrast_metric(class_moments.PairSums(C, F, 1.0, 1.0), alpha=0.3)
    assert (info["status"], info["n_clipped"]) == ("measured", 0)
    assert close_to(metric, np.linalg.inv(oracle.contrast_matrix(C, F, 0.3)), EXACT)


def test_the_guard_raises_small_eigenvalues():
    """Eigenvalues below the floor become the floor; those before it are told."""
    points, classes = standardised("wine")
    sums = sums_of(*pairs(points, classes, 1000))
    C, F = means(sums)
    values, vectors = np.linalg.eigh(oracle.contrast_matrix(C, F, 0.01))
    metric, info = contrast_metric(sums)
    assert info["n_clipped"] > 3
    np.testing.assert_allclose(info["values"], values, atol=1e-12)
    expected = vectors @ np.diag(1.0 / np.maximum(values, info["floor"])) @ vectors.T
    assert close_to(metric, expected, 1e-9)


# ---------------------------------------------------------------- geometric mean


@given(seed=st.integers(0, 2**20), t=st.floats(0.0, 1.0))
@settings(max_examples=40, deadline=None)
def test_geometric_mean_is_the_textbooks(seed: int, t: float) -> None:
    """Without a ridge it is the formula by matrix square roots; the ends are C^-1 and F."""
    sums = random_sums(seed)
    C, F = means(sums)
    metric, info = geometric_mean_metric(sums, t, ridge=0.0)
    assert info["status"] == "measured"
    # the oracle takes a square root, an inverse and a power of condition 1e2, 1e1 and 1e4
    assert close_to(metric, oracle.geometric_mean(C, F, t).real, 1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_riccati(seed: int) -> None:
    """At t = 1/2, A C A = F; and with C and F exchanged the metric is inverted."""
    sums = random_sums(seed)
    C, F = means(sums)
    A, _ = geometric_mean_metric(sums, 0.5, ridge=0.0)
    assert close_to(A @ C @ A, F, RICCATI)
    swapped = class_moments.PairSums(sums.far, sums.close, sums.n_far, sums.n_close)
    B, _ = geometric_mean_metric(swapped, 0.5, ridge=0.0)
    assert close_to(A @ B, np.eye(5), RICCATI)
    # elsewhere on the geodesic, the exchange turns t into 1 - t
    A, _ = geometric_mean_metric(sums, 0.3, ridge=0.0)
    B, _ = geometric_mean_metric(swapped, 0.7, ridge=0.0)
    assert close_to(A @ B, np.eye(5), RICCATI)


# ---------------------------------------------------------------- where something is missing


METRICS = [
    contrast_metric,
    geometric_mean_metric,
]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.__name__)
def test_missing_sides_are_named(metric) -> None:
    """No pairs, only one kind, or pairs of equal points: the identity, or the formula without F."""
    rng = np.random.default_rng(6)
    differences = rng.standard_normal((30, 3))
    similar = np.ones(30, dtype=bool)
    half = np.arange(30) < 15
    for sums, status in (
        (class_moments.init_sums(3), "no close pairs"),
        (sums_of(differences, ~similar), "no close pairs"),
        (sums_of(differences * ~half[:, None], half), "no close spread"),
    ):
        A, info = metric(sums)
        assert info["status"] == status
        np.testing.assert_array_equal(A, np.eye(3))

    for sums, status in (
        (sums_of(differences, similar), "no far pairs"),
        (sums_of(differences * half[:, None], half), "no far spread"),
    ):
        A, info = metric(sums)
        assert info["status"] == status
        if metric is contrast_metric:
            C, F = sums.close / sums.n_close, np.zeros((3, 3))
            assert close_to(A, np.linalg.inv(oracle.contrast_matrix(C, F, 0.01)), EXACT)
        else:
            np.testing.assert_array_equal(A, np.eye(3))


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.__name__)
def test_constant_features_are_ignored(metric) -> None:
    """The metric with a feature in which no pair differs is the metric without it, and 0 there."""
    rng = np.random.default_rng(7)
    differences, similar = rng.standard_normal((60, 4)), np.arange(60) % 2 == 0
    without, _ = metric(sums_of(differences, similar))
    A, info = metric(sums_of(np.insert(differences, 1, 0.0, axis=1), similar))
    assert info["n_constant"] == 1
    assert not A[1].any()
    np.testing.assert_allclose(np.delete(np.delete(A, 1, 0), 1, 1), without, rtol=1e-9, atol=1e-12)
