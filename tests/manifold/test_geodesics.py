"""Shortest paths, afresh, repaired and patched, against Floyd & Warshall and scipy's Dijkstra."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from sklearn.datasets import load_digits
from sklearn.manifold import Isomap

from streamembed.errors import ParameterError
from streamembed.geometry.lists import NeighborLists, RadiusEdges
from streamembed.geometry.pairwise import PointDistances
from streamembed.manifold import geodesics, geodesics_numba
from streamembed.manifold.geodesics import (
    Geodesics,
    build_graph,
    build_graph_of_edges,
    compute_rows,
    label_parts,
)
from streamembed.numeric import codec, compilation

# A path of some ten edges, summed in another order: a few eps.
ROUNDING = 1e-14

needs_numba = pytest.mark.skipif(not compilation.is_available(), reason="numba is not installed")


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


class Stream:
    """Slots that are refilled, their lists and their graph."""

    def __init__(self, kind: str, n: int, k: int, seed: int) -> None:
        self.kind, self.k, self.rng = kind, k, np.random.default_rng(seed)
        self.points, self.births = drawn(kind, self.rng, n), np.arange(n)
        self.lists = NeighborLists.build(PointDistances(self.points), self.births, k)

    @property
    def near(self) -> np.ndarray:
        return self.lists.near[:, : self.k]

    @property
    def graph(self) -> csr_array:
        return build_graph(self.near, self.lists.d2[:, : self.k])

    def refill(self, most: int, grow: int = 0) -> np.ndarray:
        """Some slots, or all near one place, and ``grow`` new ones."""
        n, rng = len(self.points), self.rng
        if rng.random() < 0.5:
            slots = rng.permutation(n)[: rng.integers(1, most + 1)]
        else:
            apart = np.linalg.norm(self.points - self.points[rng.integers(n)], axis=1)
            slots = np.argsort(apart)[:most]
        slots = np.concatenate([slots, np.arange(n, n + grow)])
        self.points = np.concatenate([self.points, np.zeros((grow, self.points.shape[1]))])
        self.points[slots] = drawn(self.kind, rng, len(slots))
        first = self.births.max() + 1
        self.births = np.append(self.births, np.zeros(grow, dtype=np.int64))
        self.births[slots] = first + np.arange(len(slots))
        self.lists, _ = self.lists.replace(slots, PointDistances(self.points), self.births)
        return slots


def check_parents(kept: Geodesics, graph: csr_array) -> None:
    """Every length is that of its parent and their edge, to the bit, and no parent is its child."""
    dense, (sources, targets) = graph.toarray(), np.nonzero(kept.parents >= 0)
    before = kept.parents[sources, targets]
    edges = dense[before, targets]
    assert (edges > 0).all()
    lengths = kept.lengths
    assert (lengths[sources, targets] == lengths[sources, before] + edges).all()
    assert np.array_equal(kept.parents >= 0, np.isfinite(lengths) & ~np.eye(len(dense), dtype=bool))
    at = kept.parents.copy()
    for _ in range(len(dense)):  # up all chains at once: they end
        at = np.where(at >= 0, np.take_along_axis(kept.parents, np.maximum(at, 0), axis=1), -1)
    assert (at == -1).all()


# ---------------------------------------------------------------- graphs and rows


@pytest.mark.parametrize("kind", ["islands", "grid", "chain", "scales"])
def test_rows_are_those_of_the_plain_loops(kind: str) -> None:
    """Duplicates are joined, by nothing; parts are infinitely far apart."""
    stream = Stream(kind, 90, 3, 1)
    wanted = floyd_warshall(stream.near, stream.lists.d2[:, :3])
    kept = Geodesics.build(stream.graph)
    assert np.array_equal(np.isfinite(kept.lengths), np.isfinite(wanted))
    assert np.allclose(kept.lengths, wanted, rtol=ROUNDING, atol=1e-290)
    check_parents(kept, stream.graph)
    some = np.array([4, 80, 4])
    lengths, parents = compute_rows(stream.graph, some)
    assert np.array_equal(lengths, kept.lengths[some])
    assert np.array_equal(parents, kept.parents[some])
    assert parents.dtype == np.int32
    assert compute_rows(stream.graph, np.zeros(0, dtype=np.int64))[0].shape == (0, 90)


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
    assert Geodesics.build(graph).lengths[1].tolist() == [1e-300, 0.0, 1.0, 5.0]
    alone = build_graph(np.full((2, 3), -1, dtype=np.int32), np.full((2, 3), np.inf))
    assert Geodesics.build(alone).lengths.tolist() == [[0.0, np.inf], [np.inf, 0.0]]


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


# ---------------------------------------------------------------- repair


@needs_numba
@pytest.mark.parametrize(("kind", "k"), [("islands", 3), ("grid", 4), ("chain", 2), ("scales", 5)])
def test_a_hundred_repairs_are_a_fresh_dijkstra(kind: str, k: int) -> None:
    """To the last bit after every chunk, where the graph is cut, joined again, and grows."""
    stream = Stream(kind, 110, k, 2)
    graph = stream.graph
    kept, several = geodesics_numba.build(graph), set()
    for step in range(100):
        slots = stream.refill(10, grow=3 if step % 9 == 0 else 0)
        after = stream.graph
        kept = geodesics_numba.repair(kept, graph, after, slots)
        assert np.array_equal(kept.lengths, dijkstra(after))
        if step % 10 == 0:
            check_parents(kept, after)
        several.add(int(label_parts(after).max()) + 1)
        graph = after
    if kind in ("islands", "chain"):
        assert len(several) > 2  # the graph was cut, and joined


@needs_numba
def test_only_the_graphs_say_what_changed() -> None:
    """Slots that were not named, and named ones that kept their edges: the same lengths."""
    stream = Stream("islands", 80, 4, 3)
    before = stream.graph
    kept = geodesics_numba.build(before)
    slots = stream.refill(9)
    wanted = dijkstra(stream.graph)
    none = np.zeros(0, dtype=np.int64)
    for named in (none, slots, slots[:3], np.arange(30)):
        repaired = geodesics_numba.repair(kept, before, stream.graph, named)
        assert np.array_equal(repaired.lengths, wanted)
        check_parents(repaired, stream.graph)


@needs_numba
def test_an_edge_that_is_cut_and_an_edge_that_comes_back() -> None:
    """A ring of eight: the way round, none at all, and the old bits again."""
    i = np.arange(8)
    full = np.random.default_rng(0).random(8)

    def ring(*without: int) -> csr_array:
        kept = ~np.isin(i, without)
        return build_graph_of_edges(i[kept], (i[kept] + 1) % 8, full[kept], 8)

    none = np.zeros(0, dtype=np.int64)
    graphs = [ring(), ring(2), ring(2, 5), ring(), ring(*range(8)), ring(7)]
    kept = geodesics_numba.build(graphs[0])
    for before, after in pairwise(graphs):
        kept = geodesics_numba.repair(kept, before, after, none)
        assert np.array_equal(kept.lengths, dijkstra(after))


@needs_numba
@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(["islands", "grid", "chain", "scales"]),
    n=st.integers(2, 25),
    k=st.integers(1, 6),
    grow=st.integers(0, 3),
    seed=st.integers(0, 10**6),
)
def test_repairs_of_small_graphs(kind: str, n: int, k: int, grow: int, seed: int) -> None:
    """Also where most is replaced, and where there are fewer points than neighbours."""
    stream = Stream(kind, n, k, seed)
    graph = stream.graph
    kept = geodesics_numba.build(graph)
    assert np.array_equal(kept.lengths, dijkstra(graph))
    for most in (1, 2, 1):
        slots = stream.refill(most, grow)
        after = stream.graph
        kept = geodesics_numba.repair(kept, graph, after, slots)
        assert np.array_equal(kept.lengths, dijkstra(after))
        check_parents(kept, after)
        graph = after


@needs_numba
def test_a_value_stays_what_it_was() -> None:
    """No input is written, and a patched value, which has no parents, is made afresh."""
    stream = Stream("islands", 60, 4, 5)
    before = stream.graph
    kept = geodesics_numba.build(before)
    lengths, parents = kept.lengths.copy(), kept.parents.copy()
    slots = stream.refill(5)
    after = stream.graph
    before.data.flags.writeable = before.indices.flags.writeable = False
    repaired = geodesics_numba.repair(kept, before, after, slots)
    assert np.array_equal(kept.lengths, lengths)
    assert np.array_equal(kept.parents, parents)
    with pytest.raises(ValueError, match="read-only"):
        repaired.lengths[0, 0] = 1.0
    patched = geodesics.patch(kept, after, slots)
    again = geodesics_numba.repair(patched, before, after, slots)
    assert np.array_equal(again.lengths, repaired.lengths)
    assert again.parents is not None


def test_without_numba_there_is_no_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, and what to use instead."""
    monkeypatch.setattr(compilation, "is_available", lambda: False)
    graph = Stream("grid", 20, 3, 0).graph
    kept = Geodesics.build(graph)
    with pytest.raises(ParameterError, match=r"geodesics\.patch"):
        geodesics_numba.repair(kept, graph, graph, np.arange(2))
    with pytest.raises(ParameterError, match="needs numba"):
        geodesics_numba.build(graph)


@needs_numba
def test_rows_of_some_sources_are_those_of_all() -> None:
    """Repaired while sources come, go and are refilled, and while the graph grows: to the bit."""
    stream = Stream("roll", 120, 5, 3)
    graph, sources = stream.graph, np.arange(0, 120, 4)
    kept = geodesics_numba.build(graph, sources)
    for step in range(20):
        slots = stream.refill(5, grow=step % 2)
        n = stream.graph.shape[0]
        sources = np.arange(0, n, 3 + step // 10)
        kept = geodesics_numba.repair(kept, graph, stream.graph, slots, sources)
        graph = stream.graph
        assert np.array_equal(kept.lengths, dijkstra(graph)[sources])
        assert np.array_equal(kept.lengths, Geodesics.build(graph, sources).lengths)


def test_a_saved_value_comes_back() -> None:
    """Without its parents: altered ones in a sealed file once led compiled loops astray."""
    graph = Stream("grid", 20, 3, 0).graph
    kept = Geodesics.build(graph)
    for value in (kept, geodesics.patch(kept, graph, np.arange(2))):
        back = codec.unpack(Geodesics, *codec.pack(value))
        assert np.array_equal(back.lengths, value.lengths)
        assert back.parents is None


# ---------------------------------------------------------------- without a compiler


def test_a_patch_is_right_for_new_points_and_old_for_others() -> None:
    """Rows and columns of refilled slots are fresh; nothing else changed."""
    stream = Stream("islands", 90, 5, 6)
    kept = Geodesics.build(stream.graph)
    slots = stream.refill(8, grow=4)
    patched = geodesics.patch(kept, stream.graph, slots)
    true = dijkstra(stream.graph)
    assert np.array_equal(patched.lengths[slots], true[slots])
    stays = np.setdiff1d(np.arange(94), slots)
    assert np.array_equal(patched.lengths[np.ix_(stays, slots)], true[np.ix_(slots, stays)].T)
    old = np.ix_(stays, stays)
    assert np.array_equal(patched.lengths[old], kept.lengths[old])
    assert geodesics.measure_staleness(patched, stream.graph, slots) < ROUNDING


def whole_staleness(kept: np.ndarray, true: np.ndarray) -> float:
    return float(np.abs(kept - true).mean() / true.mean())


def test_thirty_two_rows_tell_the_staleness_of_all() -> None:
    """Within a factor of two, at every twentieth of a turnover of digits; fresh rows are at 0."""
    pixels = load_digits().data[np.random.default_rng(0).permutation(1797)] / 16
    points, births = pixels[:400].copy(), np.arange(400)
    lists = NeighborLists.build(PointDistances(points), births, 10)
    kept = Geodesics.build(build_graph(lists.near[:, :10], lists.d2[:, :10]))
    grown = []
    for step in range(10):
        slots = np.arange(20) + 20 * step
        points[slots], births[slots] = pixels[400 + slots], 400 + slots
        lists, _ = lists.replace(slots, PointDistances(points), births)
        graph = build_graph(lists.near[:, :10], lists.d2[:, :10])
        kept = geodesics.patch(kept, graph, slots)
        sample = np.random.default_rng(step).permutation(400)[: geodesics.SAMPLE]
        found = geodesics.measure_staleness(kept, graph, sample)
        whole = whole_staleness(kept.lengths, dijkstra(graph))
        assert 0.5 * whole <= found <= 2.0 * whole
        assert geodesics.measure_staleness(kept, graph, np.arange(400)) == pytest.approx(
            whole, rel=1e-9
        )
        grown.append(whole)
    assert grown[-1] > 2 * grown[0] > 0
    fresh = Geodesics.build(graph)
    assert geodesics.measure_staleness(fresh, graph, np.arange(400)) == 0.0


def test_a_cut_is_stale_however_small() -> None:
    """A pair that has a path in one and not in the other counts as 1; also all duplicates do."""
    line = build_graph_of_edges(np.array([0, 1, 2]), np.array([1, 2, 3]), np.ones(3), 4)
    cut = build_graph_of_edges(np.array([0, 1]), np.array([1, 2]), np.ones(2), 4)
    every = np.arange(4)
    assert geodesics.measure_staleness(Geodesics.build(line), cut, every) >= 1.0
    assert geodesics.measure_staleness(Geodesics.build(cut), line, every) >= 1.0
    assert geodesics.measure_staleness(Geodesics.build(cut), cut, every) == 0.0
    same = build_graph_of_edges(np.array([0, 1, 2]), np.array([1, 2, 3]), np.zeros(3), 4)
    assert np.isfinite(geodesics.measure_staleness(Geodesics.build(line), same, every))
    nobody = csr_array((4, 4))
    assert geodesics.measure_staleness(Geodesics.build(nobody), nobody, every) == 0.0


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
    kept = Geodesics.build(graph)
    theirs = Isomap(n_neighbors=8).fit(points)
    assert np.allclose(theirs.dist_matrix_, kept.lengths, rtol=1e-12)
    d, near = theirs.nbrs_.kneighbors(new)
    found = geodesics.extend(d, near.astype(np.int32), kept.lengths)
    wanted = [np.min(d[i][:, None] + theirs.dist_matrix_[near[i]], axis=0) for i in range(20)]
    assert np.allclose(found, wanted, rtol=1e-12)
    known = near.astype(np.int32)
    known[:, 3:] = -1
    known[0] = -1
    some = geodesics.extend(d, known, kept.lengths)
    assert np.isinf(some[0]).all()
    assert np.array_equal(some[1:], geodesics.extend(d[1:, :3], known[1:, :3], kept.lengths))
