"""Counts of neighbours, against brute force after every chunk; and what they say has drifted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamembed.geometry.neighbor_counts import (
    DRIFTED,
    MOST_MEASURED,
    NeighborCounts,
    measure_reaches,
)
from streamembed.geometry.pairwise import (
    BoundedRows,
    DistanceTable,
    LeavingPoints,
    Pairwise,
    PointDistances,
)
from tests.geometry.test_lists import KINDS, Stream, whole

NONE = np.zeros(0, dtype=np.int64)


def kth(d2: np.ndarray, k: int) -> np.ndarray:
    """By sorting every row."""
    rows = [np.sort(row[(row > 0) & (row < np.inf)])[:k] for row in d2]
    return np.sqrt([row[-1] if len(row) else 0.0 for row in rows])


def check(counts: NeighborCounts, d2: np.ndarray) -> None:
    """Every count is that of all pairs."""
    is_other = (d2 > 0) & (d2 < np.inf)
    with np.errstate(over="ignore"):
        outer, inner = (DRIFTED * counts.bases) ** 2, (counts.bases / DRIFTED) ** 2
    np.testing.assert_array_equal(counts.within, ((d2 <= outer[:, None]) & is_other).sum(axis=1))
    np.testing.assert_array_equal(counts.inside, ((d2 < inner[:, None]) & is_other).sum(axis=1))
    np.testing.assert_array_equal(counts.others, is_other.sum(axis=1))


def table(d2: np.ndarray) -> Pairwise:
    """Distances that are looked up."""
    return DistanceTable(NONE, np.zeros((0, len(d2))), lambda slots: d2[slots])


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    n=st.integers(2, 60),
    k=st.integers(1, 16),
    looked_up=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_counts_are_those_of_all_pairs(
    kind: str, n: int, k: int, looked_up: bool, seed: int
) -> None:
    """After chunks of any size, ties and duplicates included, and other bases in between."""
    stream, rng = Stream(kind, n, seed), np.random.default_rng(seed)

    def geometry() -> Pairwise:
        points = stream.points.copy()
        return table(whole(points)) if looked_up else PointDistances(points)

    after = geometry()
    counts = NeighborCounts.build(after, measure_reaches(after, np.arange(n), k))
    check(counts, whole(stream.points))
    for _ in range(5):
        before, held = after, stream.points.copy()
        slots = stream.refill(int(rng.integers(1, n)))
        after = geometry()
        left: BoundedRows = before
        if isinstance(after, PointDistances) and rng.random() < 0.5:
            left = LeavingPoints(held, after)
        reaches = measure_reaches(after, slots, k)
        np.testing.assert_array_equal(reaches, kth(whole(stream.points), k)[slots])
        counts = counts.replace(slots, left, after, reaches)
        check(counts, whole(stream.points))
        some = rng.permutation(n)[:2]
        counts = counts.refill(some, after, 1.1 * measure_reaches(after, some, k))
        check(counts, whole(stream.points))


@pytest.mark.parametrize("kind", ["plain", "grid", "copies", "outliers"])
@pytest.mark.parametrize("k", [1, 5, 15])
def test_drifted_slots_are_those_of_the_definition(kind: str, k: int) -> None:
    """A reach, no less than the least width, 1.5 times its base, or its base 1.5 times it."""
    stream, least = Stream(kind, 90, 3), 0.05
    after: Pairwise = PointDistances(stream.points.copy())
    first = measure_reaches(after, np.arange(90), k)
    factors = np.random.default_rng(4).choice([0.7, 1.0, 1.4], 90)
    counts, n_drifted = NeighborCounts.build(after, factors * np.maximum(first, least)), 0
    for step in range(25):
        before = after
        slots = stream.refill(4)
        stream.points[slots] *= 1.0 + 0.5 * step
        after = PointDistances(stream.points.copy())
        bases = np.maximum(measure_reaches(after, slots, k), least)
        counts = counts.replace(slots, before, after, bases)
        now = np.maximum(kth(whole(stream.points), k), least)
        is_drifted = np.maximum(now / counts.bases, counts.bases / now) > DRIFTED
        is_drifted[slots] = False
        expected = np.flatnonzero(is_drifted & (counts.others > 0))
        drifted = counts.find_drifted(k, least, slots)
        assert set(expected) == set(drifted.tolist())
        n_drifted += len(drifted)
    assert n_drifted or kind == "copies"


def test_a_least_width_that_moved_is_a_drift() -> None:
    """Of slots in tight groups, whose reach does not matter."""
    points = np.concatenate([1e-6 * np.arange(5.0), np.arange(1.0, 30.0)])[:, None]
    geometry = PointDistances(points)
    reaches = measure_reaches(geometry, np.arange(len(points)), 2)
    counts = NeighborCounts.build(geometry, np.maximum(reaches, 0.1))
    assert counts.find_drifted(2, 0.1, NONE).tolist() == []
    assert counts.find_drifted(2, 0.16, NONE).tolist() == [0, 1, 2, 3, 4]
    assert counts.find_drifted(2, 0.16, np.array([0, 1])).tolist() == [2, 3, 4]


def test_when_all_have_drifted_only_some_are_measured() -> None:
    """The others come with the next chunks."""
    points = np.random.default_rng(0).standard_normal((300, 3))
    geometry = PointDistances(points)
    counts = NeighborCounts.build(geometry, 9.0 * measure_reaches(geometry, np.arange(300), 5))
    drifted = counts.find_drifted(5, 0.0, NONE)
    assert len(drifted) == MOST_MEASURED == len(set(drifted.tolist()))


def test_what_has_been_overwritten_is_not_asked_for() -> None:
    """Of distances, rows before the chunk are those of its slots alone."""
    rng = np.random.default_rng(1)
    points = rng.standard_normal((40, 2))
    d2 = whole(points)
    counts = NeighborCounts.build(table(d2), kth(d2, 3))
    slots: Any = np.array([3, 17])
    before = DistanceTable(slots, d2[slots], lambda rows: 1 / 0)
    points[slots] = rng.standard_normal((2, 2))
    after = whole(points)
    counts = counts.replace(slots, before, table(after), kth(after, 3)[slots])
    check(counts, after)
