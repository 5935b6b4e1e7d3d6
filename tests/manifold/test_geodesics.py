"""Shortest paths, parts and new points, against Floyd & Warshall and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.manifold import Isomap

from streamembed.geometry.lists import NeighborLists, RadiusEdges
from streamembed.geometry.pairwise import PointDistances
from streamembed.manifold import geodesics
from streamembed.manifold.geodesics import (
    build_graph,
    build_graph_of_edges,
    compute_lengths,
    label_parts,
)

# A path of some ten edges, summed in another order: a few eps.
ROUNDING = 1e-14


def floyd_warshall(near: np.ndarray, d2: np.ndarray) -> np.ndarray:
    """All lengths, from the lists, by the three loops (one of them an array)."""
    n = len(near)
    lengths = np.full((n, n), np.inf)
    np.fill_diagonal(lengths, 0.0)
    for i in range(n):
        for j, squared in zip(near[i], d2[i], strict=True):
            if j >= 0:
                lengths[i, j] = lengths[j, i] = np.sqrt(squared)
    for k in range(n):
        lengths = np.minimum(lengths, lengths[:, k, None] + lengths[k])
    return lengths


def drawn(kind: str, rng: np.random.Generator, count: int) -> np.ndarray:
    """Points in one to four parts, or with ties and duplicates, or of all sizes."""
    if kind == "islands":  # what a chunk takes away may be the only bridge
        centres = np.array([[0.0, 0.0], [4.0, 0.0], [8.0, 0.0], [8.0, 30.0]])
        weights = rng.dirichlet(np.ones(4))
        return centres[rng.choice(4, count, p=weights)] + rng.standard_normal((count, 2))
    if kind == "grid":
        return rng.integers(0, 5, (count, 3)).astype(float)
    if kind == "chain":
        return rng.random((count, 1)) * np.array([[100.0]])
    return rng.standard_normal((count, 3)) * 10.0 ** rng.uniform(-5, 3, (count, 1))


class Graph:
    """Points, their lists and their graph."""

    def __init__(self, kind: str, n: int, k: int, seed: int) -> None:
        self.k = k
        points = drawn(kind, np.random.default_rng(seed), n)
        self.lists = NeighborLists.build(PointDistances(points), np.arange(n), k)

    @property
    def near(self) -> np.ndarray:
        return self.lists.near[:, : self.k]

    @property
    def graph(self) -> csr_array:
        return build_graph(self.near, self.lists.d2[:, : self.k])


# ---------------------------------------------------------------- graphs and rows


@pytest.mark.parametrize("kind", ["islands", "grid", "chain", "scales"])
def test_rows_are_those_of_the_plain_loops(kind: str) -> None:
    """Duplicates are joined, by nothing; parts are infinitely far apart."""
    stream = Graph(kind, 90, 3, 1)
    wanted = floyd_warshall(stream.near, stream.lists.d2[:, :3])
    lengths = compute_lengths(stream.graph, np.arange(90))
    assert np.array_equal(np.isfinite(lengths), np.isfinite(wanted))
    assert np.allclose(lengths, wanted, rtol=ROUNDING, atol=1e-290)
    some = np.array([4, 80, 4])
    assert np.array_equal(compute_lengths(stream.graph, some), lengths[some])


def test_a_graph_is_symmetric_whoever_lists_whom() -> None:
    """No mutual edge is double, no list that ends early names anyone, no duplicate is lost."""
    points = np.array([[0.0], [0.0], [1.0], [5.0]])
    lists = NeighborLists.build(PointDistances(points), np.arange(4), 1)
    graph = build_graph(lists.near[:, :1], lists.d2[:, :1])
    assert graph.toarray().tolist() == [
        [0.0, 1e-300, 1.0, 0.0],
        [1e-300, 0.0, 0.0, 0.0],
        [1.0, 0.0, 0.0, 4.0],
        [0.0, 0.0, 4.0, 0.0],
    ]
    assert compute_lengths(graph, np.array([1]))[0].tolist() == [1e-300, 0.0, 1.0, 5.0]
    alone = build_graph(np.full((2, 3), -1, dtype=np.int32), np.full((2, 3), np.inf))
    assert compute_lengths(alone, np.arange(2)).tolist() == [[0.0, np.inf], [np.inf, 0.0]]


def test_edges_within_a_radius_are_a_graph() -> None:
    """That of all pairs so near, duplicates among them."""
    points = drawn("grid", np.random.default_rng(0), 60)
    edges = RadiusEdges.build(PointDistances(points), 2.0)
    graph = build_graph_of_edges(edges.i, edges.j, edges.d2, 60)
    apart = np.linalg.norm(points[:, None] - points, axis=2)
    joined = (apart**2 < 2.5) & ~np.eye(60, dtype=bool)
    assert np.array_equal(graph.toarray() > 0, joined)
    assert np.allclose(graph.toarray()[joined], apart[joined], rtol=ROUNDING, atol=1e-290)
    assert graph.has_sorted_indices


# ---------------------------------------------------------------- parts, new points


def test_the_largest_part_is_0_and_of_equal_ones_the_oldest() -> None:
    """Two pairs, three alone in one, and one alone."""
    graph = build_graph_of_edges(np.array([0, 2, 5, 6]), np.array([1, 3, 6, 7]), np.ones(4), 8)
    assert label_parts(graph).tolist() == [1, 1, 2, 2, 3, 0, 0, 0]
    births = np.array([10, 11, 12, 9, 1, 20, 21, 22])
    assert label_parts(graph, births).tolist() == [2, 2, 1, 1, 3, 0, 0, 0]
    assert label_parts(csr_array((0, 0))).shape == (0,)


def test_new_points_reach_all_by_their_nearest() -> None:
    """What scikit-learn's Isomap computes inside ``transform``; -1 is nobody."""
    rng = np.random.default_rng(4)
    points, new = rng.standard_normal((150, 3)), rng.standard_normal((20, 3))
    lists = NeighborLists.build(PointDistances(points), np.arange(150), 8)
    graph = build_graph(lists.near[:, :8], lists.d2[:, :8])
    lengths = compute_lengths(graph, np.arange(150))
    theirs = Isomap(n_neighbors=8).fit(points)
    assert np.allclose(theirs.dist_matrix_, lengths, rtol=1e-12)
    d, near = theirs.nbrs_.kneighbors(new)
    found = geodesics.extend(d, near.astype(np.int32), lengths)
    wanted = [np.min(d[i][:, None] + theirs.dist_matrix_[near[i]], axis=0) for i in range(20)]
    assert np.allclose(found, wanted, rtol=1e-12)
    known = near.astype(np.int32)
    known[:, 3:] = -1
    known[0] = -1
    some = geodesics.extend(d, known, lengths)
    assert np.isinf(some[0]).all()
    assert np.array_equal(some[1:], geodesics.extend(d[1:, :3], known[1:, :3], lengths))
