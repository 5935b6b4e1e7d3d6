"""Edges of neighbour lists."""

from __future__ import annotations

import numpy as np
import pytest

from streamembed.geometry.lists import NeighborLists
from streamembed.geometry.pairwise import PointDistances
from streamembed.spectral import adjacency
from streamembed.spectral.neighbor_walk import WEIGHTS

K = 7


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_graph_is_symmetric_to_the_bit(weights: str) -> None:
    """Also with ties, duplicates and a hub; every edge of a list is in it, and no other."""
    points = np.round(np.random.default_rng(0).standard_normal((200, 3)), 1)
    points[:100] = 0.05
    lists = NeighborLists.build(PointDistances(points), np.arange(200), K)
    graph = adjacency.join_lists(lists.nearest, weights, 0.5)
    assert abs(graph - graph.T).max() == 0.0
    joined = np.zeros((200, 200), dtype=bool)
    joined[np.arange(200)[:, None], lists.nearest[0]] = True
    np.testing.assert_array_equal(graph.toarray() > 0.0, joined | joined.T)


def test_edges_that_weigh_nothing_stay_edges_of_the_lists() -> None:
    """Heat that underflows is the least number there is."""
    points = np.array([[0.0], [1.0], [100.0], [101.0]])
    lists = NeighborLists.build(PointDistances(points), np.arange(4), 2)
    graph = adjacency.join_lists(lists.nearest, "heat", 1.0)
    assert graph.nnz == 10
    assert graph.toarray()[0, 2] == adjacency.VANISHED == graph.toarray()[2, 0]
