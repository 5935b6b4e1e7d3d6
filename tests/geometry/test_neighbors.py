"""The walk on the neighbour graph: against its slow restatement, and on graphs that fall apart."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamembed.geometry import neighbors
from tests.oracles import oracle_pairs as oracle


def cloud(n: int, seed: int = 0) -> np.ndarray:
    """An oblong cloud, whose leading eigenvalues are apart."""
    return np.random.default_rng(seed).standard_normal((n, 3)) * [3.0, 1.0, 1.0]


def parts(sizes: list[int]) -> np.ndarray:
    """Clouds that no edge joins."""
    return np.concatenate([cloud(n, i) + 1e3 * i for i, n in enumerate(sizes)])


@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_slow_graph(seed: int) -> None:
    """Eigenvalues, and psi up to sign, are those of the dense generalised problem L v = mu D v."""
    psi, values = neighbors.embed_self_tuning(cloud(70, seed), 3)
    slow, wanted = oracle.neighbour_map(cloud(70, seed), 3)
    # two dense eigensolvers of a matrix of condition 1
    np.testing.assert_allclose(values, wanted, atol=1e-10)
    np.testing.assert_allclose(np.abs(psi), np.abs(slow), atol=1e-6)


@given(
    n=st.integers(1, 40), count=st.integers(0, 25), seed=st.integers(0, 10**6), grid=st.booleans()
)
@settings(max_examples=40, deadline=None)
def test_neighbours_are_the_nearest(n: int, count: int, seed: int, grid: bool) -> None:
    """Ascending, never oneself, ties by index, duplicates and few points included."""
    points = np.random.default_rng(seed).integers(0, 3 if grid else 10**6, (n, 2)).astype(float)
    d2, near = neighbors.find_nearest(points, count)
    whole = ((points[:, None] - points) ** 2).sum(axis=2)
    np.fill_diagonal(whole, np.inf)
    wanted = np.sort(whole, axis=1)[:, : min(count, n - 1)]
    assert near.shape == wanted.shape
    # by the expanded form, around the mean: 1e-6 absolute at the most, in units of 1e6 squared
    np.testing.assert_allclose(d2, wanted, rtol=1e-9, atol=1e-6 if grid else 1e3)
    assert not (near == np.arange(n)[:, None]).any()


def test_closer_is_heavier():
    """The sign of the heat kernel: the source prints a plus, which would join the farthest most."""
    points = np.arange(30.0)[:, None]
    graph = neighbors.build_self_tuning_graph(points).toarray()
    assert (graph == graph.T).all()
    assert graph.max() < 1.0
    for row in range(12, 18):
        assert (np.diff(graph[row, row + 1 : row + 8]) < 0).all()


def test_lanczos_and_the_dense_solver_agree():
    """Above 400 points the pairs are those of the whole spectrum."""
    graph = neighbors.build_self_tuning_graph(cloud(500))
    psi, values = neighbors.embed_walk(graph, 4)
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    full = graph.toarray() / np.sqrt(np.outer(degrees, degrees))
    wanted = np.linalg.eigvalsh(full)[::-1][1:5]
    # eigenvalues are right to the square of the tolerance 1e-8 and the rounding of both
    np.testing.assert_allclose(values, wanted, atol=1e-10)
    walked = graph @ psi / degrees[:, None]
    np.testing.assert_allclose(walked, psi * values, atol=1e-6 * np.abs(psi).max())
    again = neighbors.embed_walk(graph, 4)
    assert np.array_equal(psi, again[0])


def test_psi_is_normalised():
    """sum(pi psi^2) = 1, and orthogonal to the constant under pi."""
    graph = neighbors.build_self_tuning_graph(cloud(200))
    psi, _ = neighbors.embed_walk(graph, 5)
    stationary = np.asarray(graph.sum(axis=1)).ravel()
    stationary /= stationary.sum()
    np.testing.assert_allclose((psi * stationary[:, None]).T @ psi, np.eye(5), atol=1e-10)
    np.testing.assert_allclose(stationary @ psi, 0.0, atol=1e-10)


@pytest.mark.parametrize("sizes", [[60, 50, 40], [300, 200, 100]])
def test_a_graph_in_parts(sizes: list[int]) -> None:
    """c parts: the eigenvalue 1 comes c - 1 times more, with columns constant on every part."""
    psi, values = neighbors.embed_self_tuning(parts(sizes), 3)
    np.testing.assert_allclose(values[:2], 1.0, atol=1e-9)
    assert values[2] < 1 - 1e-4
    ends = np.cumsum([0, *sizes])
    for start, stop in pairwise(ends.tolist()):
        assert np.ptp(psi[start:stop, :2], axis=0).max() < 1e-5


def test_many_parts_do_not_stop_lanczos():
    """Twenty islands of thirty points: the eigenvalue 1 is found all nineteen times."""
    points = parts([30] * 20)
    psi, values = neighbors.embed_self_tuning(points, 25)
    assert np.isfinite(psi).all()
    np.testing.assert_allclose(values[:19], 1.0, atol=1e-9)
    assert values[19] < 1 - 1e-4


@pytest.mark.parametrize("value", [0.0, 7.0])
def test_all_points_equal(value: float) -> None:
    """A scale for every point all the same; everything is finite."""
    psi, values = neighbors.embed_self_tuning(np.full((40, 3), value), 3)
    assert np.isfinite(psi).all()
    assert np.isfinite(values).all()


def test_duplicates_stay_joined():
    """Points with more than seven duplicates still have other neighbours."""
    line = np.repeat(np.arange(10.0), 10)[:, None]
    psi, values = neighbors.embed_self_tuning(line, 2)
    assert values[0] < 1 - 1e-9
    assert np.ptp(psi[:, 0]) > 1.0


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_a_handful_of_points(n: int) -> None:
    """As many columns as there can be: n - 2."""
    psi, values = neighbors.embed_self_tuning(cloud(n), 5)
    assert psi.shape == (n, max(0, n - 2))
    assert len(values) == max(0, n - 2)
    assert np.isfinite(psi).all()


def test_an_outlier_is_alone_and_finite():
    """A point at 1e6 is joined to its neighbours by their scale, or to nothing: never NaN."""
    points = cloud(120)
    points[7] = 1e6
    psi, values = neighbors.embed_self_tuning(points, 4)
    assert np.isfinite(psi).all()
    assert (values <= 1 + 1e-9).all()


def test_inputs_untouched():
    """Points are only read."""
    points = cloud(50)
    points.flags.writeable = False
    neighbors.embed_self_tuning(points, 3)
