"""The metric that is handed out, against distances computed pair by pair."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamembed as se
from streamembed.errors import FeatureError, InputError, ParameterError
from streamembed.metrics.mahalanobis import Mahalanobis
from tests.oracles import oracle_itml as oracle

# One eigenproblem of condition 1e3 and sums over 5 features: some hundred eps.
EXACT = 1e-12


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def matrix(d: int = 5, rank: int | None = None, seed: int = 0) -> np.ndarray:
    half = normal(d, rank or d, seed=seed)
    return half @ half.T


def test_distances():
    """d2 of all pairs is (x - y)^T A (x - y); d is its root."""
    A, X, Y = matrix(), normal(7, 5, seed=1), normal(4, 5, seed=2)
    metric = Mahalanobis.of(A)
    expected = oracle.squared_distances(A, X, Y)
    np.testing.assert_allclose(metric.squared_distances(X, Y), expected, rtol=EXACT)
    np.testing.assert_allclose(metric.distances(X, Y), np.sqrt(expected), rtol=EXACT)


def test_transform():
    """Euclidean distances of mapped points are the metric's, and A = L^T L."""
    A, X = matrix(), normal(6, 5, seed=1)
    metric = Mahalanobis.of(A)
    mapped = metric.transform(X)
    expected = oracle.squared_distances(A, X, X)
    np.testing.assert_allclose(
        oracle.squared_distances(np.eye(5), mapped, mapped), expected, rtol=EXACT, atol=1e-14
    )
    np.testing.assert_allclose(metric.factor.T @ metric.factor, A, atol=EXACT)
    assert metric.rank == metric.n_features == 5


def test_rank_deficient():
    """A singular metric has a factor of its own rank, and points may coincide in it."""
    A = matrix(rank=2)
    metric = Mahalanobis.of(A)
    assert metric.factor.shape == (2, 5)
    np.testing.assert_allclose(metric.factor.T @ metric.factor, A, atol=EXACT)
    zero = Mahalanobis.of(np.zeros((3, 3)))
    assert zero.rank == 0
    assert zero.transform(normal(4, 3)).shape == (4, 0)
    assert not zero.distances(normal(4, 3), normal(2, 3)).any()


def test_rank_asked_for():
    """The best matrix of that rank, by the eigenvalues; more than there is changes nothing."""
    A = matrix()
    metric = Mahalanobis.of(A, rank=2)
    values, vectors = np.linalg.eigh(A)
    best = vectors[:, -2:] @ np.diag(values[-2:]) @ vectors[:, -2:].T
    np.testing.assert_allclose(metric.matrix, best, atol=EXACT)
    assert metric.rank == 2
    assert Mahalanobis.of(A, rank=9) == Mahalanobis.of(A)


@settings(deadline=None, max_examples=50)
@given(
    st.integers(1, 9),
    st.integers(1, 40),
    st.floats(-1e6, 1e6),
    st.integers(0, 10**6),
)
def test_equal_points_have_distance_zero(d, n, offset, seed):
    """Exactly 0 wherever in the table, and however far from the origin, the point stands."""
    X = normal(n, d, seed=seed) + offset
    Y = np.concatenate([normal(3, d, seed=seed + 1), X[::-1]])
    d2 = Mahalanobis.of(matrix(d, seed=seed)).squared_distances(X, Y)
    assert not np.diag(d2[:, 3:][:, ::-1]).any()
    assert (d2 >= 0).all()


def test_near_pairs_among_far_ones():
    """Two points 1e-9 apart, a million from the first: their distance keeps its digits."""
    base = normal(1, 5, seed=4) * 1e6
    X = np.concatenate([np.zeros((1, 5)), base])
    Y = np.concatenate([np.zeros((1, 5)), base + 1e-8 * normal(1, 5, seed=5)])
    A = matrix()
    found = Mahalanobis.of(A).squared_distances(X, Y)
    np.testing.assert_allclose(found, oracle.squared_distances(A, X, Y), rtol=1e-10)


def test_unscaled():
    """The metric of points divided by a scale, moved to the points as they were."""
    scale = np.array([1e-5, 1e3, 1.0, 10.0, 2.0])
    learned = Mahalanobis.of(matrix(), certificate={"proof": 1})
    raw = learned.unscaled(scale)
    X, Y = normal(6, 5, seed=1) * scale, normal(3, 5, seed=2) * scale
    np.testing.assert_allclose(
        raw.squared_distances(X, Y), learned.squared_distances(X / scale, Y / scale), rtol=1e-10
    )
    np.testing.assert_allclose(
        raw.matrix, np.diag(1 / scale) @ learned.matrix @ np.diag(1 / scale), rtol=EXACT
    )
    assert raw.rank == learned.rank == 5  # 16 decades of eigenvalues, none cut
    assert raw.certificate["proof"] == 1
    assert Mahalanobis.of(np.eye(2)).unscaled(2.0).matrix[0, 0] == 0.25


def test_frozen():
    """Nothing can be assigned, written to, or changed through the matrix passed in."""
    A = matrix()
    metric = Mahalanobis.of(A)
    kept = metric.matrix.copy()
    A[0, 0] = 99
    assert np.array_equal(metric.matrix, kept)
    for array in (metric.matrix, metric.factor):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1
    with pytest.raises(AttributeError):
        metric.matrix = A


@pytest.mark.parametrize("copied", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy])
def test_pickle(copied):
    """Through pickle and copy it is equal, of one hash, and still read-only."""
    metric = Mahalanobis.of(matrix(), certificate={"gap": 0.1})
    again = copied(metric)
    assert again == metric
    assert hash(again) == hash(metric)
    assert not again.matrix.flags.writeable
    assert not again.factor.flags.writeable


def test_equality():
    """By matrix, factor and certificate; never equal to something else; -0 is 0."""
    metric = Mahalanobis.of(matrix())
    assert metric == Mahalanobis.of(matrix())
    assert metric != Mahalanobis.of(matrix(seed=1))
    assert metric != Mahalanobis.of(matrix(), certificate={"gap": 1})
    assert metric != Mahalanobis.of(matrix(), rank=3)
    assert metric != "metric"
    assert len({metric, Mahalanobis.of(matrix())}) == 1
    left, right = np.diag([1.0, 2.0]), np.diag([1.0, 2.0])
    right[0, 1] = right[1, 0] = -0.0
    assert hash(Mahalanobis.of(left)) == hash(Mahalanobis.of(right))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.ones(3), "shape"),
        (np.ones((2, 3)), "shape"),
        (np.zeros((0, 0)), "shape"),
        (np.diag([1.0, np.nan]), "NaN"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), "symmetric"),
        (np.diag([1.0, -0.1]), "positive semidefinite"),
        (-np.eye(2), "positive semidefinite"),
    ],
)
def test_no_metric(bad, message):
    """A matrix that is no metric is refused with the reason."""
    with pytest.raises(InputError, match=message):
        Mahalanobis.of(bad)


def test_bad_arguments():
    """Ranks, scales and points that do not fit name what they must be."""
    metric = Mahalanobis.of(np.eye(3))
    for rank in (0, -1, 1.5, True):
        with pytest.raises(ParameterError, match=f"rank={rank}"):
            Mahalanobis.of(np.eye(3), rank=rank)
    for scale in ([1.0, 2.0], [1.0, 0.0, 1.0], [1.0, np.nan, 1.0], -1.0):
        with pytest.raises(ParameterError, match="scale, of shape"):
            metric.unscaled(scale)
    with pytest.raises(FeatureError, match="X has 2 features; the metric was learned from 3"):
        metric.transform(np.ones((4, 2)))
    with pytest.raises(InputError, match=r"pass \[x\]"):
        metric.transform(np.ones(3))
    with pytest.raises(InputError, match="Y has NaN"):
        metric.distances(np.ones((1, 3)), np.full((1, 3), np.nan))


# ------------------------------------------------------------------ names of columns

NAMED = Mahalanobis.of([[4.0, 1.0], [1.0, 2.0]]).named(["a", "b"])
COLUMNS = {"b": [1.0, 2.0, 3.0], "a": [0.5, 0.0, -1.0]}  # not in the metric's order
KINDS = [pd.DataFrame, pl.DataFrame, pa.table, pa.RecordBatch.from_pydict]


@pytest.mark.parametrize("kind", KINDS)
def test_named_tables_are_taken_by_name(kind: Any) -> None:
    """A frame was taken by position: silently wrong numbers."""
    X, table = np.column_stack([COLUMNS["a"], COLUMNS["b"]]), kind(COLUMNS)
    np.testing.assert_array_equal(NAMED.transform(table), NAMED.transform(X))
    np.testing.assert_array_equal(NAMED.distances(table, X), NAMED.distances(X, X))
    np.testing.assert_array_equal(NAMED.squared_distances(X, table), NAMED.squared_distances(X, X))


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_other_names_are_refused(kind: Any) -> None:
    """With the order that they must have."""
    for columns, says in (
        ({"a": [1.0]}, r"Y lacks the features \['b'\]; it must have \['a', 'b'\]"),
        ({"a": [1.0], "c": [1.0]}, r"lacks the features \['b'\] and has the unknown .*\['c'\]"),
        (
            {**COLUMNS, "zz": ["x"] * 3},
            r"Y has the unknown features \['zz'\]; .*list\(feature_names",
        ),
    ):
        with pytest.raises(FeatureError, match=says):
            NAMED.distances(np.zeros((1, 2)), kind(columns))
    with pytest.raises(FeatureError, match="by position only: pass an array"):
        NAMED.named(None).transform(kind(COLUMNS))


def test_names_are_kept() -> None:
    """By `unscaled`, pickles and copies; metrics of other names are not equal."""
    assert NAMED.feature_names == ("a", "b")
    assert NAMED.named(None).feature_names is None
    assert NAMED.unscaled(2.0).feature_names == ("a", "b")
    assert pickle.loads(pickle.dumps(NAMED)) == NAMED
    assert pickle.loads(pickle.dumps(NAMED)).feature_names == ("a", "b")
    assert NAMED.named(None) != NAMED
    assert NAMED.named(["b", "a"]) != NAMED


def test_a_metric_that_has_learned_nothing_says_so() -> None:
    """In what is shown of it and of its certificate; one that has, says from what."""
    rng = np.random.default_rng(0)
    engine = se.Engine(metrics=("fenn",), size=100)
    engine.learn(rng.standard_normal((100, 3)))
    unfitted = engine.publish().metrics["fenn"]
    assert unfitted.certificate.fitted is False
    assert "nothing learned yet" in repr(unfitted)
    assert "nothing learned yet" in repr(unfitted.certificate)
    engine.learn(rng.standard_normal((100, 3)), y=np.arange(100) % 2)
    taught = engine.publish().metrics["fenn"]
    assert taught.certificate.fitted is True
    assert repr(taught) == "<Mahalanobis of 3 features, rank 3: from labels>"
    assert Mahalanobis.of(np.eye(1)).certificate.fitted is None
    assert repr(Mahalanobis.of(np.eye(1))) == "<Mahalanobis of 1 feature, rank 1: as given>"
