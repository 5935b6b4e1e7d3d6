"""Rows of shortest paths repaired, compiled where numba is installed; it can be imported without.

What a chunk changes of a row is what it broke: every slot whose path from the source runs over an
edge that is gone. These are found along the parents, reset, and reached again from their
neighbours; arrived edges that shorten a path count from both their ends. What was shortened is
passed on until nothing is. Lengths are those of scipy to the last bit: see
`streamembed.manifold.geodesics` for why they are one number. Of equally long paths another may be
kept.

Symbols: g = a row of lengths, p = its parents; a graph is three arrays of its rows, and an edge has
two entries.

Source: Ramalingam & Reps (1996), "An incremental algorithm for a generalization of the
shortest-path problem"; Moore (1959), "The shortest path through a maze", algorithm D. Differs: 1.
Many edges at a time, over one tree of paths and not all. 2. What waits is a queue, not a heap: on
graphs of neighbours a slot is passed on 1 to 2 times, in half of Dijkstra's time (drawn: rolls,
digits, walks; the same time for scales over six decades). At worst it is O(n^2 K) a row.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from streamembed.errors import ParameterError
from streamembed.geometry.lists import Slots
from streamembed.manifold.geodesics import Geodesics
from streamembed.numeric.arrays import Array, Bools, Floats, Ints, frozen

numba: Any = None
with suppress(ImportError):  # an optional extra
    import numba  # type: ignore[no-redef,import-not-found,import-untyped,unused-ignore]

__all__ = ["available", "build", "repair"]

available: bool = numba is not None

# Where this share of the slots or more is replaced, most paths break: rows afresh are no dearer.
MOST_REPLACED = 1 / 4
# What a slot of a row is: not looked at, kept, cut off from its source.
OPEN, KEPT, CUT = 0, 1, 2

# Unsigned, so that the loops do not look for negative indices: a quarter of their time.
Indices = npt.NDArray[np.uint32]
Graph = tuple[Indices, Indices, Floats]


def build(graph: csr_array, sources: Ints | None = None) -> Geodesics:
    """As `Geodesics.build`, in half the time.

    Raises
    ------
    ParameterError
        numba is not installed.
    """
    _require()
    n = graph.shape[0]
    slots = np.arange(n) if sources is None else sources
    lengths, parents = np.empty((len(slots), n)), np.empty((len(slots), n), dtype=np.int32)
    _fresh_rows(lengths, parents, np.arange(len(slots)), slots, *_arrays(graph))
    return Geodesics(frozen(lengths), sources, frozen(parents))


def repair(
    geodesics: Geodesics,
    graph_before: csr_array,
    graph_after: csr_array,
    refilled: Ints,
    sources: Ints | None = None,
) -> Geodesics:
    """All rows as `Geodesics.build` would give them, lengths to the last bit.

    Parameters
    ----------
    geodesics
        Of ``graph_before``, with parents; without them all is made afresh.
    graph_before, graph_after
        Of n' and n >= n' slots, as `graph_of` gives them. What changed is read off them.
    refilled
        Slots whose rows are made afresh, which is cheaper where all their edges are others, shape
        (b,); those from n' on are so anyhow.
    sources
        Afterwards, shape (m,); None for all slots.

    Returns
    -------
    A new value. O(m (b K + n)), and O(K) for every length that changed, mostly.

    Raises
    ------
    ParameterError
        numba is not installed.
    """
    _require()
    before, n = len(geodesics), graph_after.shape[0]
    fresh = np.ones(n, dtype=bool)
    fresh[:before] = False
    fresh[refilled] = True
    if geodesics.parents is None or np.count_nonzero(fresh) >= MOST_REPLACED * n:
        return build(graph_after, sources)
    slots = np.arange(n) if sources is None else sources
    place = np.full(n, -1)
    place[geodesics.slots] = np.arange(len(geodesics.lengths))
    kept = np.flatnonzero((place[slots] >= 0) & ~fresh[slots])
    old, new = _arrays(graph_before), _arrays(graph_after)
    if before == n and len(slots) == len(geodesics.lengths) and (place[slots] >= 0).all():
        lengths, parents = geodesics.lengths.copy(), geodesics.parents.copy()
    else:
        lengths = np.full((len(slots), n), np.inf)
        parents = np.full((len(slots), n), -1, dtype=np.int32)
        lengths[kept, :before] = geodesics.lengths[place[slots[kept]]]
        parents[kept, :before] = geodesics.parents[place[slots[kept]]]
    gone_from, gone_to, _ = _only_in_first(*old, *new)
    _repair_rows(lengths, parents, kept, *new, gone_from, gone_to, *_only_in_first(*new, *old))
    rest = np.setdiff1d(np.arange(len(slots)), kept)
    _fresh_rows(lengths, parents, rest, slots[rest], *new)
    return Geodesics(frozen(lengths), sources, frozen(parents))


def _require() -> None:
    if not available:
        raise ParameterError(
            "exact repair of shortest paths needs numba; install it, or use geodesics.patch"
        )


def _arrays(graph: csr_array) -> Graph:
    """Of the types that the loops are compiled for."""
    return graph.indptr.astype(np.uint32), graph.indices.astype(np.uint32), graph.data.copy()


def _only_in_first(
    starts: Indices,
    ends: Indices,
    lengths: Floats,
    other_starts: Indices,
    other_ends: Indices,
    other_lengths: Floats,
) -> Graph:
    """Entries that the second graph has not, or of another length: from, to, length, (e,)."""
    start, end = np.empty(len(ends), np.uint32), np.empty(len(ends), np.uint32)
    length = np.empty(len(ends))
    count = 0
    for i in range(len(starts) - 1):
        at, stop = 0, 0
        if i < len(other_starts) - 1:
            at, stop = other_starts[i], other_starts[i + 1]
        for e in range(starts[i], starts[i + 1]):
            while at < stop and other_ends[at] < ends[e]:
                at += 1
            if at == stop or other_ends[at] != ends[e] or other_lengths[at] != lengths[e]:
                start[count], end[count], length[count] = i, ends[e], lengths[e]
                count += 1
    return start[:count], end[:count], length[:count]


def _settle(
    g: Floats,
    p: Slots,
    queue: Indices,
    waits: Bools,
    size: int,
    starts: Indices,
    ends: Indices,
    lengths: Floats,
) -> None:
    """Pass on what the first ``size`` slots of the queue, and those they shorten, can shorten.

    Nobody ``waits`` afterwards. Every slot of the queue is another, so that a ring of n is enough.
    """
    n, head = len(queue), 0
    while size > 0:
        slot = queue[head]
        head = head + 1 if head + 1 < n else 0
        size -= 1
        waits[slot] = False
        length = g[slot]
        for e in range(starts[slot], starts[slot + 1]):
            other = ends[e]
            way = length + lengths[e]
            if way < g[other]:
                g[other] = way
                p[other] = slot
                if not waits[other]:
                    waits[other] = True
                    tail = head + size
                    queue[tail if tail < n else tail - n] = other
                    size += 1


def _fresh_rows(
    G: Floats, P: Slots, rows: Ints, slots: Ints, starts: Indices, ends: Indices, lengths: Floats
) -> None:
    """Some rows from nothing, in place, by their sources."""
    n = G.shape[1]
    queue, waits = np.empty(n, np.uint32), np.zeros(n, np.bool_)
    for i in range(len(rows)):
        g, p, s = G[rows[i]], P[rows[i]], slots[i]
        g[:] = np.inf
        p[:] = -1
        g[s] = 0.0
        queue[0], waits[s] = s, True
        _settle(g, p, queue, waits, 1, starts, ends, lengths)


def _find_cut(p: Slots, state: Array, trail: Indices, cut: Indices, count: int) -> int:
    """Add to ``count`` slots in ``cut`` what hangs on them, parents first; how many there are."""
    for slot in range(len(p)):
        depth, at = 0, slot
        while state[at] == OPEN and p[at] >= 0:
            trail[depth] = at
            depth += 1
            at = p[at]
        found = CUT if state[at] == CUT else KEPT
        state[at] = found
        for i in range(depth - 1, -1, -1):
            state[trail[i]] = found
            if found == CUT:
                cut[count] = trail[i]
                count += 1
    return count


def _repair_rows(
    G: Floats,
    P: Slots,
    rows: Ints,
    starts: Indices,
    ends: Indices,
    lengths: Floats,
    gone_from: Indices,
    gone_to: Indices,
    came_from: Indices,
    came_to: Indices,
    came: Floats,
) -> None:
    """Some rows, which were right before the edges changed, in place."""
    n = G.shape[1]
    queue, waits = np.empty(n, np.uint32), np.zeros(n, np.bool_)
    state, trail, cut = np.empty(n, np.int8), np.empty(n, np.uint32), np.empty(n, np.uint32)
    for s in rows:
        g, p = G[s], P[s]
        state[:] = OPEN
        count, size = 0, 0
        for e in range(len(gone_to)):
            slot = gone_to[e]
            if p[slot] == gone_from[e]:  # a slot has one parent, and an edge one entry: once
                state[slot] = CUT
                cut[count] = slot
                count += 1
        if count > 0:
            count = _find_cut(p, state, trail, cut, count)
        for i in range(count):
            g[cut[i]] = np.inf
            p[cut[i]] = -1
        # of parents first: most have their last length at once
        for i in range(count):
            slot = cut[i]
            for e in range(starts[slot], starts[slot + 1]):
                way = g[ends[e]] + lengths[e]
                if way < g[slot]:
                    g[slot] = way
                    p[slot] = ends[e]
            if p[slot] >= 0:
                queue[size], waits[slot] = slot, True
                size += 1
        for e in range(len(came)):
            other = came_to[e]
            way = g[came_from[e]] + came[e]
            if way < g[other]:
                g[other] = way
                p[other] = came_from[e]
                if not waits[other]:
                    queue[size], waits[other] = other, True
                    size += 1
        _settle(g, p, queue, waits, size, starts, ends, lengths)


if numba is not None:
    _compile: Any = numba.njit(cache=False, error_model="numpy")
    _only_in_first = _compile(_only_in_first)
    _settle = _compile(_settle)
    _fresh_rows = _compile(_fresh_rows)
    _find_cut = _compile(_find_cut)
    _repair_rows = _compile(_repair_rows)
