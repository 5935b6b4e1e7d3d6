"""A block that is followed on rows that changed, against float64 products of the whole graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamembed as se
from scenarios import streams
from scenarios.fuzz import certificate
from streamembed.geometry.lists import NeighborLists
from streamembed.geometry.pairwise import PointDistances
from streamembed.methods import neighbor_graph
from streamembed.spectral import adjacency, block, local_relaxation, neighbor_walk

N, COUNT, TOLERANCE = 900, 5, 3e-3


@pytest.fixture(autouse=True)
def _relax_small_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are followed locally from 100 points on, however many of their lists change."""
    monkeypatch.setattr(neighbor_graph, "LARGEST_WHOLE", 100)
    monkeypatch.setattr(neighbor_graph, "BOUND_EVENTS", (60, 1000))
    monkeypatch.setattr(adjacency, "MOST_CHANGED", 1.0)
    monkeypatch.setattr(adjacency, "MOST_WEIGHED", 1.0)


def engine_of(**changes: Any) -> se.Engine:
    fixed: dict[str, Any] = {"size": N, "n_components": 4, "scaling": None}
    return se.Engine("laplacian_eigenmaps", **(fixed | changes))


def map_of(engine: se.Engine) -> neighbor_graph.GraphMap:
    state = engine._state
    assert state is not None
    assert isinstance(state.map, neighbor_graph.GraphMap)
    return state.map


@pytest.mark.parametrize(
    "graph",
    [
        {"weights": "binary"},
        {"chunk_size": 2},
        {"weights": "heat", "radius": 0.65, "chunk_size": 2},
    ],
)
def test_what_is_kept_is_what_a_product_gives(graph: dict[str, Any]) -> None:
    """A third of a turnover: the image to the bit, Gram matrices to 1e-10, residuals as claimed."""
    points = streams.swiss_roll(2 * N, 0)
    engine = engine_of(**graph)
    engine.learn(points[:N])
    n_followed = 0
    for start in range(N, N + 300, 10):
        engine.learn(points[start : start + 10])
        kept, walk, parts = map_of(engine).block, map_of(engine).walk, map_of(engine).parts
        if kept.relaxed is None:
            continue
        n_followed += map_of(engine).rounded < engine.position
        image = walk.graph @ kept.psi
        np.testing.assert_array_equal(kept.relaxed.image, image)
        weighted = walk.degrees[:, None] * kept.psi
        expected = kept.psi.T @ weighted, kept.psi.T @ image, image.T @ (image.T / walk.degrees).T
        np.testing.assert_allclose(
            kept.relaxed.grams, np.stack(expected), atol=1e-10 * np.abs(expected).max()
        )
        pairs = block.select_pairs(kept, walk, parts, COUNT)
        np.testing.assert_allclose(pairs.vectors.T @ pairs.vectors, np.eye(COUNT), atol=1e-10)
        errors = walk.apply(pairs.vectors) - pairs.vectors * pairs.values
        claimed, squares = pairs.products.diagonal(), (errors**2).sum(axis=0)
        assert (claimed >= squares).all()
        np.testing.assert_allclose(claimed, squares, atol=2.0 * local_relaxation.ROUNDING)
        assert claimed[:4].max() <= TOLERANCE**2
    assert n_followed >= 10


def test_a_basis_whose_image_is_another_is_found_out() -> None:
    """One entry of psi without its image: the residual of a product is not the one that is kept."""
    engine = engine_of()
    engine.learn(streams.swiss_roll(N + 10, 0))
    kept, walk, parts = map_of(engine).block, map_of(engine).walk, map_of(engine).parts
    psi = kept.psi.copy()
    psi[7] += 1.0
    settled = local_relaxation.begin(replace(kept, psi=psi), walk, parts)
    assert settled.products[0, 0] > 100.0 * kept.products[0, 0]


def test_dependent_columns_need_a_whole_round() -> None:
    """No Ritz problem has their Gram matrix: the block stays what it is, or is none."""
    engine = engine_of()
    engine.learn(streams.swiss_roll(N + 10, 0))
    kept, walk, parts = map_of(engine).block, map_of(engine).walk, map_of(engine).parts
    copies = block.Block(
        np.repeat(kept.psi[:, :1], 3, axis=1), kept.values[:3], np.eye(3), kept.labels, kept.low
    )
    assert local_relaxation.begin(copies, walk, parts) is copies


@pytest.mark.parametrize("changes", [{}, {"weights": "binary", "radius": 0.65}, {"size": 400}])
def test_any_cut_and_any_save_give_the_same_bits(changes: dict[str, Any], tmp_path: Path) -> None:
    points = streams.swiss_roll(1300, 1)
    whole, parts = engine_of(**changes), engine_of(**changes)
    whole.learn(points)
    for start in range(0, 1300, 37):
        parts.learn(points[start : start + 37])
        if start in (370, 1110):
            parts.save(tmp_path / "engine")
            parts = se.Engine.load(tmp_path / "engine")
    ours, theirs = whole.snapshot(), parts.snapshot()
    for name in ("psi", "coordinates", "eigenvalues", "degrees"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    assert ours.certificate == theirs.certificate


def test_a_failed_chunk_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken off after the relaxation: the same bits before and, once repeated, afterwards."""
    points = streams.swiss_roll(N + 60, 2)
    engine, other = engine_of(), engine_of()
    for one in (engine, other):
        one.learn(points[: N + 30])
    before = engine.to_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(neighbor_graph.GraphMap, "_is_bounded", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            engine.learn(points[N + 30 : N + 40])
    assert engine.to_bytes() == before
    for one in (engine, other):
        one.learn(points[N + 30 :])
    assert engine.to_bytes() == other.to_bytes()


def test_certificates_of_relaxed_blocks_hold_against_dense_answers() -> None:
    """Streams of the fuzz, with graphs of 100 points and more followed locally."""
    result = certificate.run(streams=12, seed=640_000, most=2, kernel="graph")
    assert (result.wrong, result.unmet) == ([], [])


def test_parts_that_are_followed_are_those_of_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups that come, leave, join and separate, points that travel, in any order: every field."""
    rng, n = np.random.default_rng(0), 300
    centres = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 9.0], [25.0, 25.0]])
    points = centres[rng.integers(0, 3, n)] + rng.standard_normal((n, 2))
    births = np.arange(n)
    lists = NeighborLists.build(PointDistances(points), births, 5)
    walk = neighbor_walk.build_walk(adjacency.join_lists(lists.nearest, "binary", 1.0), None)
    parts = neighbor_walk.find_parts(walk)
    counts, searches = set(), []

    def search(one: neighbor_walk.Walk) -> neighbor_walk.Parts:
        searches.append(one)
        return find_parts(one)

    find_parts = neighbor_walk.find_parts
    monkeypatch.setattr(neighbor_walk, "find_parts", search)
    for chunk in range(600):
        slots = rng.choice(n, 4, replace=False)
        points, births = points.copy(), births.copy()
        group = rng.integers(0, 4 if chunk % 200 < 100 else 3)
        points[slots] = centres[group] + rng.standard_normal((4, 2)) * rng.choice([0.1, 1.0, 4.0])
        births[slots] = births.max() + 1 + np.arange(4)
        before, earlier = lists.nearest, walk
        previous, lists = lists, lists.replace(np.sort(slots), PointDistances(points), births)
        changed = lists.find_changed(previous, np.sort(slots))
        graph, touched = adjacency.replace_edges(
            walk.edges, before, lists.nearest, changed, "binary", 1.0
        )
        walk = neighbor_walk.build_walk(graph, None)
        expected = find_parts(walk)
        assert touched is not None
        parts = neighbor_walk.follow_parts(parts, earlier, walk, touched, slots)
        np.testing.assert_array_equal(parts.labels, expected.labels)
        np.testing.assert_array_equal(parts.basis.toarray(), expected.basis.toarray())
        assert (parts.count, parts.largest) == (expected.count, expected.largest)
        counts.add(parts.count)
    assert len(counts) > 2
    assert len(searches) < 300
