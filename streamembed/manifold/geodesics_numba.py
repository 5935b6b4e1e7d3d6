"""Repair of rows of shortest paths by compiled loops.

A chunk breaks the path to every slot whose path from the source uses a removed edge. These are
found along the parents, reset, and reached again from their neighbours; added edges that shorten a
path count from both their ends. Shorter lengths are passed on until nothing changes. Lengths are
those of scipy to the last bit: see `streamembed.manifold.geodesics` for why they are one number. Of
equally long paths another may be stored.

Symbols: g = a row of lengths, p = its parents; a graph is three arrays of its rows, and an edge has
two entries.

Source: Ramalingam & Reps (1996), "An incremental algorithm for a generalization of the
shortest-path problem"; Moore (1959), "The shortest path through a maze", algorithm D. Differs: 1.
Many edges at a time, over one tree of paths and not all. 2. A queue in place of a heap: on
graphs of neighbours a slot is queued 1 to 2 times, in half of Dijkstra's time (measured: rolls,
digits, walks; the same time for scales over six decades). At worst it is O(n^2 K) a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from streamembed.errors import ParameterError
from streamembed.geometry.lists import Slots
from streamembed.manifold.geodesics import Geodesics
from streamembed.numeric import compilation
from streamembed.numeric.arrays import Array, Bools, Floats, Ints, freeze

# Where this share of the slots or more is replaced, most paths break: rows from scratch cost no
# more.
MOST_REPLACED = 1 / 4
# Status of a slot in a row: not visited, kept, cut off from its source.
OPEN, KEPT, CUT = 0, 1, 2

# Unsigned, so that the loops do not check for negative indices: a quarter of their time.
Indices = np.ndarray[tuple[Any, ...], np.dtype[np.uint32]]
Graph = tuple[Indices, Indices, Floats]


def build(graph: csr_array, sources: Ints | None = None) -> Geodesics:
    """As `Geodesics.build`, in half the time.

    Raises
    ------
    ParameterError
        numba is not installed.
    """
    _require_numba()
    n = graph.shape[0]
    slots = np.arange(n) if sources is None else sources
    lengths, parents = np.empty((len(slots), n)), np.empty((len(slots), n), dtype=np.int32)
    _compute_rows(lengths, parents, np.arange(len(slots)), slots, *_to_arrays(graph))
    return Geodesics(freeze(lengths), sources, freeze(parents))


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
        Of ``graph_before``, with parents; without them all rows are computed from scratch.
    graph_before, graph_after
        Of n' and n >= n' slots, as `build_graph` gives them. Changes are found by comparing them.
    refilled
        Slots whose rows are computed from scratch, which is cheaper where all their edges changed,
        shape (b,); those from n' on always are.
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
    _require_numba()
    n_before, n = len(geodesics), graph_after.shape[0]
    is_refilled = np.ones(n, dtype=bool)
    is_refilled[:n_before] = False
    is_refilled[refilled] = True
    if geodesics.parents is None or np.count_nonzero(is_refilled) >= MOST_REPLACED * n:
        return build(graph_after, sources)
    slots = np.arange(n) if sources is None else sources
    row_of = np.full(n, -1)
    row_of[geodesics.slots] = np.arange(len(geodesics.lengths))
    repaired = np.flatnonzero((row_of[slots] >= 0) & ~is_refilled[slots])
    old, new = _to_arrays(graph_before), _to_arrays(graph_after)
    if n_before == n and len(slots) == len(geodesics.lengths) and (row_of[slots] >= 0).all():
        lengths, parents = geodesics.lengths.copy(), geodesics.parents.copy()
    else:
        lengths = np.full((len(slots), n), np.inf)
        parents = np.full((len(slots), n), -1, dtype=np.int32)
        lengths[repaired, :n_before] = geodesics.lengths[row_of[slots[repaired]]]
        parents[repaired, :n_before] = geodesics.parents[row_of[slots[repaired]]]
    removed_from, removed_to, _ = _find_only_in_first(*old, *new)
    _repair_rows(
        lengths, parents, repaired, *new, removed_from, removed_to, *_find_only_in_first(*new, *old)
    )
    rest = np.setdiff1d(np.arange(len(slots)), repaired)
    _compute_rows(lengths, parents, rest, slots[rest], *new)
    return Geodesics(freeze(lengths), sources, freeze(parents))


def _require_numba() -> None:
    if not compilation.is_available():
        raise ParameterError(
            "exact repair of shortest paths needs numba; install it, or use geodesics.patch"
        )


def _to_arrays(graph: csr_array) -> Graph:
    """The arrays of a graph in the types that the loops are compiled for."""
    return graph.indptr.astype(np.uint32), graph.indices.astype(np.uint32), graph.data.copy()


@compilation.compile_at_first_call
def _find_only_in_first(
    starts: Indices,
    ends: Indices,
    lengths: Floats,
    other_starts: Indices,
    other_ends: Indices,
    other_lengths: Floats,
) -> Graph:
    """Entries that the second graph lacks or has with another length: from, to, length, (e,)."""
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


@compilation.compile_at_first_call
def _relax(
    g: Floats,
    p: Slots,
    queue: Indices,
    is_queued: Bools,
    size: int,
    starts: Indices,
    ends: Indices,
    lengths: Floats,
) -> None:
    """Relax the edges of the first ``size`` slots of the queue, and of those that become nearer.

    The queue is empty afterwards. Its slots are distinct, so that a ring of n is enough.
    """
    n, head = len(queue), 0
    while size > 0:
        slot = queue[head]
        head = head + 1 if head + 1 < n else 0
        size -= 1
        is_queued[slot] = False
        length = g[slot]
        for e in range(starts[slot], starts[slot + 1]):
            other = ends[e]
            length_through = length + lengths[e]
            if length_through < g[other]:
                g[other] = length_through
                p[other] = slot
                if not is_queued[other]:
                    is_queued[other] = True
                    tail = head + size
                    queue[tail if tail < n else tail - n] = other
                    size += 1


@compilation.compile_at_first_call
def _compute_rows(
    G: Floats, P: Slots, rows: Ints, slots: Ints, starts: Indices, ends: Indices, lengths: Floats
) -> None:
    """Some rows from scratch, in place, by their sources."""
    n = G.shape[1]
    queue, is_queued = np.empty(n, np.uint32), np.zeros(n, np.bool_)
    for i in range(len(rows)):
        g, p, s = G[rows[i]], P[rows[i]], slots[i]
        g[:] = np.inf
        p[:] = -1
        g[s] = 0.0
        queue[0], is_queued[s] = s, True
        _relax(g, p, queue, is_queued, 1, starts, ends, lengths)


@compilation.compile_at_first_call
def _find_cut(p: Slots, state: Array, path: Indices, cut: Indices, count: int) -> int:
    """Add to ``count`` slots in ``cut`` all below them, parents first; return the new count."""
    for slot in range(len(p)):
        depth, at = 0, slot
        while state[at] == OPEN and p[at] >= 0:
            path[depth] = at
            depth += 1
            at = p[at]
        status = CUT if state[at] == CUT else KEPT
        state[at] = status
        for i in range(depth - 1, -1, -1):
            state[path[i]] = status
            if status == CUT:
                cut[count] = path[i]
                count += 1
    return count


@compilation.compile_at_first_call
def _repair_rows(
    G: Floats,
    P: Slots,
    rows: Ints,
    starts: Indices,
    ends: Indices,
    lengths: Floats,
    removed_from: Indices,
    removed_to: Indices,
    added_from: Indices,
    added_to: Indices,
    added: Floats,
) -> None:
    """Repair some rows, which were exact before the edges changed, in place."""
    n = G.shape[1]
    queue, is_queued = np.empty(n, np.uint32), np.zeros(n, np.bool_)
    state, path, cut = np.empty(n, np.int8), np.empty(n, np.uint32), np.empty(n, np.uint32)
    for s in rows:
        g, p = G[s], P[s]
        state[:] = OPEN
        count, size = 0, 0
        for e in range(len(removed_to)):
            slot = removed_to[e]
            if p[slot] == removed_from[e]:  # a slot has one parent, and an edge one entry: once
                state[slot] = CUT
                cut[count] = slot
                count += 1
        if count > 0:
            count = _find_cut(p, state, path, cut, count)
        for i in range(count):
            g[cut[i]] = np.inf
            p[cut[i]] = -1
        # parents first: most have their final length at once
        for i in range(count):
            slot = cut[i]
            for e in range(starts[slot], starts[slot + 1]):
                length_through = g[ends[e]] + lengths[e]
                if length_through < g[slot]:
                    g[slot] = length_through
                    p[slot] = ends[e]
            if p[slot] >= 0:
                queue[size], is_queued[slot] = slot, True
                size += 1
        for e in range(len(added)):
            other = added_to[e]
            length_through = g[added_from[e]] + added[e]
            if length_through < g[other]:
                g[other] = length_through
                p[other] = added_from[e]
                if not is_queued[other]:
                    queue[size], is_queued[other] = other, True
                    size += 1
        _relax(g, p, queue, is_queued, size, starts, ends, lengths)
