"""Kept neighbour lists and edges: those of a rebuild, entry for entry, whatever is replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamembed.geometry import pairwise
from streamembed.geometry.lists import NeighborLists, RadiusEdges
from streamembed.geometry.pairwise import DistanceTable, Pairwise, PointDistances
from streamembed.numeric import codec


def plain(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.standard_normal((n, 4))


def grid(rng: np.random.Generator, n: int) -> np.ndarray:
    """Ties everywhere, and many duplicates."""
    return rng.integers(0, 4, (n, 3)).astype(float)


def far(rng: np.random.Generator, n: int) -> np.ndarray:
    """Integers far from the origin, where products of them have lost all digits."""
    return rng.integers(0, 40, (n, 3)) + np.array([3e8, -1e9, 0.0])


def outliers(rng: np.random.Generator, n: int) -> np.ndarray:
    """Some are 1e6 deviations away, some 1e150, and some so far that a distance overflows."""
    points = rng.standard_normal((n, 2))
    size = rng.choice([1.0, 1e6, 1e150, 1e160], (n, 1), p=[0.85, 0.08, 0.05, 0.02])
    return points * size


def copies(rng: np.random.Generator, n: int) -> np.ndarray:
    """Three places: nearly all are duplicates."""
    return rng.integers(0, 3, (n, 1)).astype(float)


KINDS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "plain": plain,
    "grid": grid,
    "far": far,
    "outliers": outliers,
    "copies": copies,
}


def whole(points: np.ndarray) -> np.ndarray:
    """All squared distances, by differences."""
    with np.errstate(over="ignore"):
        apart = points[:, None] - points
        return np.einsum("ijk,ijk->ij", apart, apart)


def slow(d2: np.ndarray, arrivals: np.ndarray, is_distinct: bool) -> list[list[int]]:
    """For every slot, all others that are neighbours, in the order of (d2, birth)."""
    result = []
    for i, row in enumerate(d2):
        near = (row < np.inf) & ((row > 0) | (not is_distinct))
        near[i] = False
        others = np.flatnonzero(near)
        result.append(others[np.lexsort((arrivals[others], row[others]))].tolist())
    return result


def check(kept: NeighborLists, d2: np.ndarray, arrivals: np.ndarray) -> None:
    """The kept lists are beginnings of the exact ones, and long enough."""
    for i, wanted in enumerate(slow(d2, arrivals, kept.is_distinct)):
        held = kept.near[i][kept.near[i] >= 0].tolist()
        assert held == wanted[: len(held)]
        assert len(held) >= min(kept.n_neighbors, len(wanted))
        assert (kept.d2[i, : len(held)] == d2[i, held]).all()
        assert (kept.near[i, len(held) :] == -1).all()
        assert (kept.d2[i, len(held) :] == np.inf).all()
        # nearer than the limit: all of them
        assert np.count_nonzero(d2[i, wanted] < kept.limits[i]) <= len(held)


class Stream:
    """Slots that are refilled at random, now and then more of them than before."""

    def __init__(self, kind: str, n: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.make = KINDS[kind]
        self.points = self.make(self.rng, n)
        self.births = np.arange(n)
        self.position = n

    def refill(self, most: int, grow: bool = False) -> np.ndarray:
        """The slots; some keep what they hold."""
        n = len(self.points)
        slots = self.rng.permutation(n)[: self.rng.integers(0 if grow else 1, min(most, n) + 1)]
        if grow:
            slots = np.append(slots, np.arange(n, n + self.rng.integers(1, 4)))
        more = max(n, slots.max() + 1) - n
        self.points = np.concatenate([self.points, np.zeros((more, self.points.shape[1]))])
        self.births = np.append(self.births, np.full(more, -1))
        news = slots[(self.rng.random(len(slots)) < 0.8) | (slots >= n)]
        self.points[news] = self.make(self.rng, len(news))
        self.births[slots] = self.position + np.arange(len(slots))
        self.position += len(slots)
        return slots


def table(d2: np.ndarray, slots: np.ndarray) -> DistanceTable:
    """The rows of ``slots`` at hand, others fetched."""

    def others(asked: np.ndarray) -> np.ndarray:
        assert not np.isin(asked, slots).any()
        return d2[asked]

    return DistanceTable(slots, d2[slots], others)


def same(left: NeighborLists, right: NeighborLists) -> bool:
    return all(
        np.array_equal(getattr(left, name), getattr(right, name))
        for name in ("near", "d2", "limits")
    )


# ---------------------------------------------------------------- lists


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    n=st.integers(0, 30),
    k=st.integers(1, 8),
    spare=st.integers(0, 5),
    looked_up=st.booleans(),
    is_distinct=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_kept_lists_are_the_slow_ones(
    kind: str, n: int, k: int, spare: int, looked_up: bool, is_distinct: bool, seed: int
) -> None:
    """Also of few points, in growth from none, without duplicates, and of distances looked up."""
    stream = Stream(kind, n, seed)
    points = PointDistances(stream.points)
    kept = NeighborLists.build(points, stream.births, k, spare, is_distinct)
    check(kept, whole(stream.points), stream.births)
    for step in range(6):
        slots = stream.refill(max(1, n // 9), grow=n == 0 or step % 3 == 0)
        d2 = whole(stream.points)
        geometry: Pairwise = table(d2, slots) if looked_up else PointDistances(stream.points)
        kept = kept.replace(slots, geometry, stream.births)
        check(kept, d2, stream.births)


@pytest.mark.parametrize("kind", ["plain", "grid"])
def test_never_trusted_beyond_the_end(kind: str) -> None:
    """One neighbourhood is drained, entry by entry, while far points arrive."""
    rng = np.random.default_rng(3)
    points, arrivals = KINDS[kind](rng, 80), np.arange(80)
    kept = NeighborLists.build(PointDistances(points), arrivals, 3, spare=2)
    for position in range(80, 240):
        nearest = kept.near[0, 0]
        points = points.copy()
        points[nearest] = 10.0 + rng.integers(0, 9, points.shape[1])
        arrivals[nearest] = position
        kept = kept.replace(np.array([nearest]), PointDistances(points), arrivals)
        if position % 5 == 0:
            check(kept, whole(points), arrivals)
    check(kept, whole(points), arrivals)


def test_what_ties_with_the_end_is_not_guessed() -> None:
    """The last entry leaves, and an arrival at just its distance is younger than one unlisted."""
    points = np.array([[0.0], [1.0], [2.0], [-2.0], *[[50.0 + i] for i in range(20)]])
    arrivals = np.arange(24)
    kept = NeighborLists.build(PointDistances(points), arrivals, 1, spare=1)
    assert kept.near[0].tolist() == [1, 2]
    points[2], arrivals[2] = [-2.0], 99
    kept = kept.replace(np.array([2]), PointDistances(points), arrivals)
    assert kept.near[0].tolist() == [1, -1]
    points[1], arrivals[1] = [60.0], 100
    kept = kept.replace(np.array([1]), PointDistances(points), arrivals)
    assert kept.near[0].tolist() == [3, 2]


def test_only_lists_that_ran_short_ask_for_a_row() -> None:
    """A table is asked for the rows of replaced slots, and for hardly any others."""
    stream = Stream("plain", 300, 5)
    asked = []

    def others(slots: np.ndarray) -> np.ndarray:
        asked.append(len(slots))
        return whole(stream.points)[slots]

    kept = NeighborLists.build(PointDistances(stream.points), stream.births, 5)
    for _ in range(40):
        slots = stream.refill(10)
        rows = whole(stream.points)[slots]
        kept = kept.replace(slots, DistanceTable(slots, rows, others), stream.births)
    assert sum(asked) < 40


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_the_points(kind: str) -> None:
    """Same lists, ends included, and same edges."""
    stream = Stream(kind, 90, 7)
    d2, every = whole(stream.points), np.arange(90)
    left = NeighborLists.build(PointDistances(stream.points), stream.births, 4)
    right = NeighborLists.build(table(d2, every), stream.births, 4)
    assert same(left, right)
    for _ in range(20):
        slots = stream.refill(9)
        looked_up = table(whole(stream.points), slots)
        previous, left = left, left.replace(slots, PointDistances(stream.points), stream.births)
        changed = left.find_changed(previous, slots)
        previous, right = right, right.replace(slots, looked_up, stream.births)
        others = right.find_changed(previous, slots)
        assert same(left, right)
        assert np.array_equal(changed, others)


def test_infinite_distances_are_no_neighbours() -> None:
    """A table in two parts: lists end where the part does, and fill again."""
    rng = np.random.default_rng(2)
    d2 = whole(rng.standard_normal((40, 2)))
    part = np.arange(40) < 4
    d2[np.ix_(part, ~part)] = d2[np.ix_(~part, part)] = np.inf
    arrivals = np.arange(40)
    kept = NeighborLists.build(table(d2, arrivals), arrivals, 5)
    check(kept, d2, arrivals)
    assert (kept.near[:4, 3] == -1).all()
    for step, slot in enumerate([20, 1, 1, 30, 2]):
        part[slot] = not part[slot]
        d2[slot] = d2[:, slot] = np.where(part == part[slot], rng.random(40), np.inf)
        arrivals[slot] = 40 + step
        kept = kept.replace(np.array([slot]), table(d2, np.array([slot])), arrivals)
        check(kept, d2, arrivals)


def test_memory_is_bounded_by_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """In tiles of one row, or of all: the same lists, whole and replaced."""
    stream = Stream("grid", 70, 6)
    wide = NeighborLists.build(PointDistances(stream.points), stream.births, 5)
    monkeypatch.setattr(pairwise, "CELLS", 70)
    assert same(wide, NeighborLists.build(PointDistances(stream.points), stream.births, 5))
    slots = stream.refill(8)
    kept = wide.replace(slots, PointDistances(stream.points), stream.births)
    check(kept, whole(stream.points), stream.births)


def test_bounds_hold() -> None:
    """Of every distance by differences, wherever there are bounds."""
    for kind in KINDS:
        points = KINDS[kind](np.random.default_rng(9), 120)
        block = PointDistances(points).rows(np.arange(120))
        exact = whole(points)
        assert not (block.lower > exact).any()
        assert not (block.lower + block.slack[:, None] + block.slack < exact).any()
        assert not np.isposinf(block.lower).any()
    # with 16 features of a normal cloud the bounds are worth having
    points = np.random.default_rng(0).standard_normal((200, 16)) + 1e6
    block = PointDistances(points).rows(np.arange(200))
    assert block.slack.max() < 1e-10


@pytest.mark.parametrize(("n_neighbors", "slot"), [(0, 1), (9, 1), (2, 3), (2, -2)])
def test_a_saved_state_is_checked(n_neighbors: int, slot: int) -> None:
    """It comes back bit for bit; lists that name slots which there are not are refused."""
    kept = NeighborLists.build(PointDistances(np.arange(3.0)[:, None]), np.arange(3), 2)
    arrays, numbers = codec.pack(kept)
    assert same(kept, codec.unpack(NeighborLists, arrays, numbers))
    near = kept.near.copy()
    near[0, 0] = slot
    with pytest.raises(ValueError, match=r"lists of|near must be"):
        codec.unpack(
            NeighborLists, {**arrays, "near": near}, {**numbers, "n_neighbors": n_neighbors}
        )


# ---------------------------------------------------------------- edges


def slow_edges(d2: np.ndarray, radius2: float) -> Iterator[tuple[int, int, float]]:
    for i in range(len(d2)):
        for j in range(i + 1, len(d2)):
            if d2[i, j] <= radius2 and d2[i, j] < np.inf:
                yield i, j, d2[i, j]


def listed(edges: RadiusEdges) -> list[Any]:
    return list(zip(edges.i.tolist(), edges.j.tolist(), edges.d2.tolist(), strict=True))


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    n=st.integers(0, 25),
    radius2=st.sampled_from([0.0, 1.0, 2.0, 1e13, np.inf]),
    looked_up=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_edges_are_the_slow_ones(
    kind: str, n: int, radius2: float, looked_up: bool, seed: int
) -> None:
    """Canonical order, every pair once, distances to the bit; the old value stays."""
    stream = Stream(kind, n, seed)
    edges = RadiusEdges.build(PointDistances(stream.points), radius2)
    for step in range(6):
        slots = stream.refill(max(1, n // 3), grow=n == 0 or step == 3)
        d2 = whole(stream.points)
        geometry: Pairwise = table(d2, slots) if looked_up else PointDistances(stream.points)
        old, before = listed(edges), edges
        edges = edges.replace(slots, geometry)
        assert listed(edges) == list(slow_edges(d2, radius2))
        assert listed(before) == old
