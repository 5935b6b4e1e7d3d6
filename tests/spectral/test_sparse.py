"""The walk on a sparse graph, its parts and their eigenvalue 1, against dense arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamembed.spectral import neighbor_walk
from tests.spectral import walks


def blobs(counts: list[int], d: int = 3, far: float = 100.0) -> np.ndarray:
    """Groups of points far from one another."""
    rng = np.random.default_rng(sum(counts))
    where = np.repeat(np.arange(len(counts)), counts)
    return far * where[:, None] * np.ones(d) + rng.normal(size=(sum(counts), d))


def naive(
    points: np.ndarray, count: int, weights: str, scale: float, masses: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """S and q by the definition, entry by entry."""
    n = len(points)
    d2 = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    order = [[j for j in np.argsort(d2[i], kind="stable") if j != i] for i in range(n)]
    s = np.sqrt([d2[i, order[i][min(7, count) - 1]] for i in range(n)])
    s = np.maximum(s, 0.1 * np.median(s))
    W = np.zeros((n, n))
    for i in range(n):
        for j in order[i][:count]:
            divisor = scale * s[i] * s[j] if weights == "self_tuning" else scale
            w = 1.0 if weights == "binary" else np.exp(-d2[i, j] / divisor)
            W[i, j] = W[j, i] = masses[i] * w * masses[j]
    q = W.sum(axis=1)
    return W / np.sqrt(np.outer(q, q)), q


@pytest.mark.parametrize("weights", neighbor_walk.WEIGHTS)
@pytest.mark.parametrize("uneven", [False, True])
def test_the_walk_is_that_of_the_definition(weights: str, uneven: bool) -> None:
    """Entry for entry to rounding, symmetric to the last bit, with and without masses."""
    rng = np.random.default_rng(3)
    points = rng.normal(size=(80, 3))
    masses = rng.uniform(0.1, 5.0, 80) if uneven else np.ones(80)
    d2, near = walks.find_nearest(points, 9)
    walk = walks.walk_on_lists(near, d2, weights, 0.7, masses if uneven else None)
    S, q = naive(points, 9, weights, 0.7, masses)
    np.testing.assert_allclose(walk.operator.toarray(), S, atol=1e-12)
    np.testing.assert_allclose(walk.degrees, q, rtol=1e-12)
    assert abs(walk.operator - walk.operator.T).max() == 0.0
    np.testing.assert_allclose(walk.operator @ walk.constant, walk.constant, atol=1e-14)


@pytest.mark.parametrize("weights", neighbor_walk.WEIGHTS)
@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_equal_points_and_few_of_them(weights: str, n: int) -> None:
    """No more points than neighbours, all in one place: no NaN, one part."""
    d2, near = walks.find_nearest(np.ones((n, 2)), 10)
    walk = walks.walk_on_lists(near, d2, weights)
    parts = neighbor_walk.find_parts(walk)
    assert np.isfinite(walk.operator.data).all()
    assert (parts.count, len(parts.isolated)) == ((0, 1) if n == 1 else (1, 0))


def test_weights_that_are_nothing_join_nothing() -> None:
    """Heat between two far groups underflows; a point with such edges alone is isolated."""
    points = np.concatenate([blobs([30, 30]), [[1e3, 0.0, 0.0]]])
    d2, near = walks.find_nearest(points, 35)  # more than a group has
    walk = walks.walk_on_lists(near, d2, "heat", 1.0)
    parts = neighbor_walk.find_parts(walk)
    assert (parts.count, parts.isolated.tolist(), parts.largest) == (2, [60], 30)
    assert walk.degrees[60] == 0.0
    assert walk.operator[[60]].nnz == 0


def test_weights_that_are_hardly_numbers_make_the_same_walk() -> None:
    """Heat at a bandwidth far too small: all weights are below 1e-312, and 1 / w overflowed."""
    rng = np.random.default_rng(0)
    points = rng.permutation(40)[:, None] + 0.01 * rng.random((40, 1))
    d2, near = walks.find_nearest(points, 3)
    small, usual = (walks.walk_on_lists(near, d2 + far, "heat", 1.0) for far in (720.0, 0.0))
    np.testing.assert_allclose(small.operator.toarray(), usual.operator.toarray(), atol=1e-6)
    unit = np.exp(-d2.min())
    np.testing.assert_allclose(small.degrees, usual.degrees / unit, rtol=1e-6)


def test_parts_come_by_weight_and_span_the_eigenvalue_one() -> None:
    """Their basis and contrasts are exact eigenvectors, orthonormal; the contrasts also to v_0."""
    points = np.concatenate([blobs([40, 90, 60]), [[1e4, 0, 0]]])
    d2, near = walks.find_nearest(points, 8)
    near[-1], d2[-1] = -1, np.inf
    masses = np.random.default_rng(0).uniform(0.5, 2.0, len(points))
    walk = walks.walk_on_lists(near, d2, masses=masses)
    parts = neighbor_walk.find_parts(walk)
    assert (parts.count, parts.largest, parts.isolated.tolist()) == (3, 90, [190])
    assert parts.labels[[0, 40, 130, 190]].tolist() == [2, 0, 1, -1]
    basis = parts.basis.toarray()
    split = neighbor_walk.build_contrasts(parts.labels, walk.degrees, 10)
    assert split.shape == (191, 2)
    for columns in (basis, split):
        np.testing.assert_allclose(columns.T @ columns, np.eye(columns.shape[1]), atol=1e-14)
        np.testing.assert_allclose(walk.operator @ columns, columns, atol=1e-14)
    np.testing.assert_allclose(walk.constant @ split, 0.0, atol=1e-14)
    np.testing.assert_allclose(parts.deflate(split), 0.0, atol=1e-14)
    np.testing.assert_allclose(
        neighbor_walk.build_contrasts(parts.labels, walk.degrees, 1), split[:, :1]
    )


def test_a_graph_without_edges_has_no_part() -> None:
    """All of it isolated, all of it zero."""
    none = np.zeros(0, dtype=np.int64)
    walk = walks.walk_on_edges(none, none, np.zeros(0), 5)
    parts = neighbor_walk.find_parts(walk)
    assert (parts.count, parts.largest, len(parts.isolated)) == (0, 0, 5)
    assert walk.constant.tolist() == [0.0] * 5
    assert neighbor_walk.build_contrasts(parts.labels, walk.degrees, 3).shape == (5, 0)


def test_parts_are_the_same_whatever_their_numbers() -> None:
    """Points that come and leave change weights, and so numbers; splits and merges are told."""
    points = blobs([60, 50, 40])
    d2, near = walks.find_nearest(points, 8)
    before = neighbor_walk.find_parts(walks.walk_on_lists(near, d2))
    renumbered = replace(before, labels=np.array([1, 0, 2])[before.labels])
    none = np.zeros(0, dtype=np.int64)
    assert neighbor_walk.are_same(before, renumbered, none)
    moved = before.labels.copy()
    moved[3] = before.labels[70]
    assert not neighbor_walk.are_same(before, replace(before, labels=moved), none)
    assert neighbor_walk.are_same(before, replace(before, labels=moved), np.array([3]))
    for other in (
        replace(before, count=2, labels=np.minimum(before.labels, 1)),
        replace(before, labels=np.where(before.labels == 2, -1, before.labels)),
        replace(before, labels=np.where(before.labels == 2, 1, before.labels)),
    ):
        assert not neighbor_walk.are_same(before, other, none)
    # all of a part is replaced elsewhere: it is another part, whatever its number
    gone = np.flatnonzero(before.labels == 2)
    assert not neighbor_walk.are_same(before, before, gone)
