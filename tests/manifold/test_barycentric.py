"""Weights that rebuild, the bottom of their operator, and new points: against dense solves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import eigh, null_space
from sklearn.datasets import load_digits, make_swiss_roll
from sklearn.manifold import LocallyLinearEmbedding

from streamembed.geometry.lists import NeighborLists
from streamembed.geometry.pairwise import PointDistances
from streamembed.manifold import barycentric
from streamembed.manifold.barycentric import (
    build_alignment,
    compute_weights,
    extend,
    interpolate_refilled,
    solve,
)

K, COUNT = 12, 3
# Orthonormal and centred columns: some eps of a QR of 500 rows.
EXACT = 1e-12
# The ridge makes systems of condition 1 / reg; weights are off by so many eps.
SOLVED = 1e-9


def near_of(points: np.ndarray, k: int = K) -> np.ndarray:
    return NeighborLists.build(PointDistances(points), np.arange(len(points)), k).near[:, :k]


def operator_of(points: np.ndarray, k: int = K) -> tuple:
    near = near_of(points, k)
    return build_alignment(near, compute_weights(points, near))


def roll(n: int, seed: int = 0) -> np.ndarray:
    return make_swiss_roll(n, random_state=seed)[0]


def digits(n: int, seed: int = 0) -> np.ndarray:
    return load_digits().data[np.random.default_rng(seed).permutation(1797)[:n]] / 16


def rebuilding(x: np.ndarray, others: np.ndarray, reg: float) -> np.ndarray:
    """argmin ||x - w others||^2 + ridge ||w||^2, sum w = 1, by substitution of the constraint."""
    apart = others - x
    ridge = reg * (np.sum(apart**2) or 1.0)
    k = len(others)
    free = null_space(np.ones((1, k)))  # w = 1 / k + free u
    start = np.full(k, 1 / k)
    stacked = np.concatenate([apart.T, np.sqrt(ridge) * np.eye(k)])
    return start + free @ np.linalg.lstsq(stacked @ free, -stacked @ start, rcond=None)[0]


def dense(near: np.ndarray, weights: np.ndarray, masses: np.ndarray | None = None) -> tuple:
    """Values and vectors of (I - W)^T D (I - W) z = mu D z, whole."""
    n = len(near)
    apart = np.eye(n)
    for i in range(n):
        for j, w in zip(near[i], weights[i], strict=True):
            if j >= 0:
                apart[i, j] -= w
    D = np.diag(np.ones(n) if masses is None else masses)
    return eigh(apart.T @ D @ apart, D)


def sine(left: np.ndarray, right: np.ndarray) -> float:
    """Largest, of the angles from the columns of ``left`` to the space of ``right``."""
    return float(np.linalg.norm(left - right @ (right.T @ left), 2))


def widest_gap(values: np.ndarray, most: int = COUNT) -> int:
    """How many values are before the widest gap at or below ``most``; values without the 0."""
    return int(np.argmax(np.diff(values[: most + 1]))) + 1


# ---------------------------------------------------------------- weights


@pytest.mark.parametrize(("d", "k"), [(3, 2), (3, 3), (3, 8), (20, 6)])
def test_weights_are_the_least_squares_ones(d: int, k: int) -> None:
    """Of fewer, as many and more neighbours than features."""
    points = np.random.default_rng(d).standard_normal((40, d))
    near = near_of(points, k)
    weights = compute_weights(points, near)
    assert np.abs(weights.sum(axis=1) - 1).max() < EXACT
    for i in range(40):
        assert np.allclose(weights[i], rebuilding(points[i], points[near[i]], 1e-3), atol=SOLVED)


def test_weights_know_nothing_of_rotation_shift_and_scale() -> None:
    """Nor of scales whose squares have no floating-point number."""
    rng = np.random.default_rng(1)
    points = rng.standard_normal((60, 4))
    near = near_of(points, 7)
    weights = compute_weights(points, near)
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    for moved in (points @ turn, points + 100.0, 1e-3 * points, 1e-200 * points, 1e200 * points):
        assert np.allclose(compute_weights(moved, near), weights, atol=1e-8)


def test_duplicates_share_alike_and_short_lists_are_all_there_is() -> None:
    """All neighbours in one place: equal weights. -1: weight 0, as if it were not there."""
    points = np.ones((5, 3))
    assert np.allclose(compute_weights(points, near_of(points, 4)), 0.25, atol=EXACT)
    points = np.random.default_rng(2).standard_normal((30, 3))
    near = near_of(points, 4)
    short = np.column_stack([near[:, :2], np.full((30, 3), -1), near[:, 2:]]).astype(np.int32)
    weights = compute_weights(points, short)
    assert (weights[:, 2:5] == 0).all()
    assert np.allclose(weights[:, [0, 1, 5, 6]], compute_weights(points, near), atol=EXACT)
    nobody = np.full((30, 4), -1, dtype=np.int32)
    assert (compute_weights(points, nobody) == 0).all()
    assert compute_weights(points, nobody[:, :0]).shape == (30, 0)


# ---------------------------------------------------------------- the operator


@pytest.mark.parametrize("with_masses", [False, True])
def test_the_operator_is_that_of_the_definition(with_masses: bool) -> None:
    """B v_0 = 0, M symmetric to the bit, and the generalised problem's whole spectrum."""
    points = roll(120)
    near = near_of(points)
    weights = compute_weights(points, near)
    rng = np.random.default_rng(3)
    masses = rng.integers(1, 9, 120).astype(float) if with_masses else None
    B, M = build_alignment(near, weights, masses)
    assert (M != M.T).nnz == 0
    root = np.ones(120) if masses is None else np.sqrt(masses)
    assert np.abs(B @ root).max() < EXACT * root.max()
    values, _ = dense(near, weights, masses)
    assert np.allclose(np.linalg.eigvalsh(M.toarray()), values, atol=1e-12 * values[-1])


# ---------------------------------------------------------------- the bottom


@pytest.mark.parametrize("data", [roll, digits])
def test_the_bottom_is_that_of_a_dense_solve(data) -> None:
    """From random columns: values, vectors, residuals; orthonormal and centred to 1e-10."""
    points = data(400)
    near = near_of(points)
    weights = compute_weights(points, near)
    B, M = build_alignment(near, weights)
    bottom, report = solve(B, M, None, COUNT, np.random.default_rng(0))
    values, vectors = dense(near, weights)
    assert report.met
    Z = bottom.vectors
    assert Z.shape == (400, COUNT + barycentric.GUARDS)
    assert np.abs(Z.T @ Z - np.eye(Z.shape[1])).max() < 1e-10
    assert np.abs(Z.sum(axis=0)).max() < 1e-10
    assert np.allclose(bottom.values[:COUNT], values[1 : COUNT + 1], rtol=1e-4, atol=1e-13)
    c = widest_gap(values[1:])
    assert sine(vectors[:, 1 : c + 1], Z[:, :c]) < 2e-3
    errors = M.toarray() @ Z[:, :COUNT] - Z[:, :COUNT] * bottom.values[:COUNT]
    assert np.abs(report.errors - errors).max() < 1e-14
    relative = np.linalg.norm(errors, axis=0) / bottom.values[COUNT]
    assert np.allclose(report.relative, relative, rtol=1e-2, atol=1e-8)


def test_parts_that_arrive_whole_are_found() -> None:
    """Two at once: the contrast between them is in no old column, only in the random guard."""
    points = roll(300)
    B, M = operator_of(points)
    bottom, _ = solve(B, M, None, COUNT, np.random.default_rng(0))
    assert bottom.values[0] > 1e-9
    slots = np.arange(40)
    points[slots] = 500.0 + np.random.default_rng(1).standard_normal((40, 3))
    points[20:40] += 500.0
    near = near_of(points)
    weights = compute_weights(points, near)
    B, M = build_alignment(near, weights)
    start = interpolate_refilled(bottom.vectors, slots, near, weights)
    assert (start[slots] == 0).all()
    found, _ = solve(B, M, start, COUNT, np.random.default_rng(2))
    assert (found.values[:2] < 1e-14).all()
    assert found.values[2] > 1e-9
    one, two = np.repeat([[1.0, -1.0, 0.0], [7.0, 7.0, -1.0]], [20, 20, 260], axis=1)
    members = np.stack([one, two - two.mean()], axis=1)
    members /= np.linalg.norm(members, axis=0)
    assert sine(members, found.vectors[:, :2]) < 1e-5


@pytest.mark.parametrize("count_of_parts", [2, COUNT + 3])
def test_parts_leave_nothing_undefined(count_of_parts: int) -> None:
    """Their values are 0 up to rounding, their vectors constant on each; also with duplicates."""
    rng = np.random.default_rng(5)
    points = np.concatenate(
        [100.0 * p + rng.standard_normal((40, 3)) for p in range(count_of_parts)]
    )
    points[:3] = points[0]
    B, M = operator_of(points, 8)
    bottom, report = solve(B, M, None, COUNT, rng)
    more = min(COUNT, count_of_parts - 1)
    assert (bottom.values[:more] < 1e-14).all()
    assert np.isfinite(report.relative).all()
    parts = bottom.vectors[:, :more].reshape(count_of_parts, 40, more)
    assert np.ptp(parts, axis=1).max() < 1e-5
    again, report = solve(B, M, bottom.vectors, COUNT, rng)
    assert np.isfinite(again.vectors).all()
    assert np.isfinite(report.errors).all()


def test_points_that_nobody_joins_are_parts() -> None:
    """No row, no column, eigenvalue 0; also where nobody is joined at all."""
    points = roll(50)
    near = near_of(points, 6).copy()
    near[7] = -1
    near[near == 7] = -1
    B, M = build_alignment(near, compute_weights(points, near))
    assert np.abs(B @ np.ones(50)).max() < EXACT
    bottom, _ = solve(B, M, None, 2, np.random.default_rng(0))
    assert bottom.values[0] < 1e-14
    lone = np.where(np.arange(50) == 7, 49.0, -1.0) / np.sqrt(49 * 50)
    assert sine(lone[:, None], bottom.vectors[:, :1]) < 1e-5
    none = np.full((4, 2), -1, dtype=np.int32)
    bottom, report = solve(
        *build_alignment(none, np.zeros((4, 2))), None, 2, np.random.default_rng(0)
    )
    assert (bottom.values == 0).all()
    assert np.isfinite(report.relative).all()


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 18), k=st.integers(1, 14), seed=st.integers(0, 10**6), equal=st.booleans())
def test_few_points(n: int, k: int, seed: int, equal: bool) -> None:
    """n <= K + 1, one point alone, all equal: as many columns as there are, no NaN."""
    points = np.random.default_rng(seed).standard_normal((n, 3))
    if equal:
        points[:] = points[0]
    near = near_of(points, k)
    B, M = build_alignment(near, compute_weights(points, near))
    start = None
    for step in range(2):
        bottom, report = solve(B, M, start, COUNT, np.random.default_rng(step))
        width = min(COUNT + barycentric.GUARDS, n - 1)
        assert bottom.vectors.shape == (n, width)
        Z = bottom.vectors
        assert np.allclose(Z.T @ Z, np.eye(width), atol=1e-10)
        assert np.allclose(Z.sum(axis=0), 0, atol=1e-10)
        assert report.errors.shape == (n, min(COUNT, width))
        assert np.isfinite(report.relative).all()
        start = Z
    least = np.linalg.eigvalsh(M.toarray())[1 : 1 + width]
    assert np.allclose(bottom.values[:COUNT], np.maximum(least[:COUNT], 0), rtol=2e-2, atol=1e-9)


def test_a_start_of_another_shape_is_filled_up() -> None:
    """More points, and more wanted columns, than the last time."""
    points = roll(300)
    B, M = operator_of(points[:290])
    bottom, _ = solve(B, M, None, 2, np.random.default_rng(0))
    near = near_of(points)
    weights = compute_weights(points, near)
    start = interpolate_refilled(bottom.vectors, np.arange(290, 300), near, weights)
    assert start.shape == (300, 9)
    B, M = build_alignment(near, weights)
    values = np.linalg.eigvalsh(M.toarray())
    for count in (2, 6, 12):
        found, report = solve(B, M, start, count, np.random.default_rng(1))
        assert report.met
        assert found.vectors.shape == (300, count + barycentric.GUARDS)
        assert np.allclose(found.values[:count], values[1 : count + 1], rtol=1e-3)


# ---------------------------------------------------------------- new points


def test_new_points_are_those_of_scikit_learn() -> None:
    """To 1e-8, of points inside and outside; a support of fewer than K points is all taken."""
    points, new = digits(260)[:240], digits(260)[240:]
    theirs = LocallyLinearEmbedding(n_neighbors=K, n_components=COUNT, random_state=0).fit(points)
    found = extend(new, points, theirs.embedding_, K)
    assert np.abs(found - theirs.transform(new)).max() < 1e-8
    few = extend(new, points[:5], theirs.embedding_[:5], K)
    assert np.isfinite(few).all()
    assert extend(new[:0], points, theirs.embedding_, K).shape == (0, COUNT)


def test_the_embedding_is_that_of_scikit_learn() -> None:
    """The same subspace at its widest gap: the whole way from points to coordinates."""
    points = digits(300)
    theirs = LocallyLinearEmbedding(
        n_neighbors=K, n_components=COUNT, eigen_solver="dense", random_state=0
    ).fit_transform(points)
    B, M = operator_of(points)
    bottom, _ = solve(B, M, None, COUNT, np.random.default_rng(0), tolerance=1e-4)
    values = np.linalg.eigvalsh(M.toarray())
    c = widest_gap(values[1:])
    assert sine(theirs[:, :c], bottom.vectors[:, :c]) < 1e-3
