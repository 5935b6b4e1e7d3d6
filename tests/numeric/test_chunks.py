"""Where chunks end: multiples of the stream position, whatever the calls."""

from __future__ import annotations

import pickle

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamembed.metrics.examples import Examples
from streamembed.numeric.chunks import Chunks, PendingParts

sizes = st.integers(1, 12)


@given(size=sizes, first=sizes, calls=st.lists(st.integers(0, 40), max_size=6))
def test_calls_do_not_move_the_cuts(size: int, first: int, calls: list[int]) -> None:
    """Chunks end after ``first`` events and at multiples of ``size`` behind, and nowhere else."""
    chunks, learned, position = Chunks(size, first), 0, 0
    ends = []
    for count in calls:
        start = 0
        for part, whole in chunks.split(learned, position - learned, count):
            assert part.start == start < part.stop
            position += part.stop - part.start
            start = part.stop
            if whole:
                learned = position
                ends.append(position)
        assert start == count
    assert position == sum(calls)
    multiples = range(first // size * size + size, position + 1, size)
    assert ends == [cut for cut in (first, *multiples) if cut <= position]


def test_a_short_chunk_does_not_move_the_cuts_behind_it() -> None:
    """After a flush at 13 the chunk ends at 20; what waits counts for it."""
    found = list(Chunks(10, 10).split(learned=13, waiting=5, count=4))
    assert found == [(slice(0, 2), True), (slice(2, 4), False)]


def test_more_than_a_chunk_that_waits_is_whole_with_what_comes_next() -> None:
    """No call ever leaves as much; a file may, and must not hold the stream up for ever."""
    found = list(Chunks(10, 10).split(learned=10, waiting=25, count=7))
    assert found == [(slice(0, 0), True), (slice(0, 5), True), (slice(5, 7), False)]


def test_what_waits_is_pickled_without_the_calls() -> None:
    """The same events in one part or in three are the same bytes, and none are none."""

    def events(start: int, stop: int) -> Examples:
        points = np.arange(2.0 * start, 2.0 * stop).reshape(-1, 2)
        return Examples(points, -points, np.arange(start, stop), start, 0)

    one: PendingParts[Examples] = PendingParts()
    many: PendingParts[Examples] = PendingParts()
    assert pickle.loads(pickle.dumps(one)).count == 0
    one = one.followed_by(events(0, 6))
    for start, stop in ((0, 1), (1, 4), (4, 6)):
        many = many.followed_by(events(start, stop))
    assert one.count == many.count == 6
    assert pickle.dumps(one) == pickle.dumps(many)
    (whole,) = pickle.loads(pickle.dumps(many)).parts
    assert whole.codes.tolist() == list(range(6))
