"""Edges of neighbour lists that are edited chunk by chunk, against edges made from scratch."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from streamembed.geometry.lists import NeighborLists
from streamembed.geometry.pairwise import PointDistances
from streamembed.spectral import adjacency
from streamembed.spectral.neighbor_walk import WEIGHTS

K = 7


def assert_same(left: csr_array, right: csr_array) -> None:
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))


def draw(rng: np.random.Generator, count: int, chunk: int) -> np.ndarray:
    """Lattice points with many ties, duplicates, hubs, and groups that come and go."""
    points = np.round(rng.standard_normal((count, 3)), 1)
    if chunk % 50 < 10:
        points[: count // 2] = 0.05 * chunk
    if chunk % 70 > 60:
        points *= 30.0
    return points


@pytest.mark.parametrize("weights", WEIGHTS)
def test_edited_edges_are_those_made_from_scratch(weights: str) -> None:
    """After each of 330 chunks, to the bit; rows that are not named have not changed."""
    rng, n = np.random.default_rng(0), 60
    points = draw(rng, n, 99)
    births = np.arange(n)
    lists = NeighborLists.build(PointDistances(points), births, K)
    graph = adjacency.join_lists(lists.nearest, weights, 0.5)
    for chunk in range(330):
        growing = n < 400
        slots = np.arange(n, n + 4) if growing else (5 * chunk + np.arange(5)) % n
        new = draw(rng, len(slots), chunk)
        if growing:
            points, births, n = np.append(points, new, axis=0), np.append(births, slots), n + 4
        points, births = points.copy(), births.copy()
        points[slots], births[slots] = new, births.max() + 1 + np.arange(len(slots))
        before = lists.nearest
        previous, lists = lists, lists.replace(slots, PointDistances(points), births)
        changed = lists.find_changed(previous, slots)
        earlier = graph
        graph, touched = adjacency.replace_edges(
            graph, before, lists.nearest, changed, weights, 0.5
        )
        assert_same(graph, adjacency.join_lists(lists.nearest, weights, 0.5))
        assert abs(graph - graph.T).max() == 0.0
        if touched is not None and not growing:
            others = np.setdiff1d(np.arange(n), touched)
            assert_same(graph[others], earlier[others])


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_row_may_be_a_hub(weights: str) -> None:
    """A point that 199 others list, and that leaves: one row of 199 entries comes and goes."""
    rng = np.random.default_rng(1)
    points = rng.standard_normal((200, 60))
    points /= np.linalg.norm(points, axis=1)[:, None]
    points[0] = 0.0
    births = np.arange(200)
    lists = NeighborLists.build(PointDistances(points), births, K)
    graph = adjacency.join_lists(lists.nearest, weights, 1.0)
    assert graph[[0]].nnz == 199
    for position, place in enumerate((5.0, 0.0)):
        points = points.copy()
        points[0] = place
        births = births.copy()
        births[0] = 200 + position
        before = lists.nearest
        previous, lists = lists, lists.replace(np.array([0]), PointDistances(points), births)
        changed = lists.find_changed(previous, np.array([0]))
        graph, _ = adjacency.replace_edges(graph, before, lists.nearest, changed, weights, 1.0)
        assert_same(graph, adjacency.join_lists(lists.nearest, weights, 1.0))


def test_edges_that_weigh_nothing_stay_edges_of_the_lists() -> None:
    """Heat that underflows is the least number there is: the edit finds the edge again."""
    points = np.array([[0.0], [1.0], [100.0], [101.0]])
    lists = NeighborLists.build(PointDistances(points), np.arange(4), 2)
    graph = adjacency.join_lists(lists.nearest, "heat", 1.0)
    assert graph.nnz == 10
    assert graph.toarray()[0, 2] == adjacency.VANISHED == graph.toarray()[2, 0]
