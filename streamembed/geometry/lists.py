"""The nearest neighbours of every slot, kept exact while slots are replaced; and ε graphs likewise.

A list holds the nearest others of one slot, nearer ones first and among equally near ones the
older. It has more entries than are asked for: what leaves is removed and what arrives is
inserted, and only a list that has run short is computed again, from one row of distances. What
lies behind the end of a list is unknown, so nothing is ever inserted there.

Symbols: n = slots, b = those replaced, K = neighbours, w = entries of a list, d2 = squared
distances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from streamembed.geometry.pairwise import DistanceBounds, Pairwise, split_slots
from streamembed.numeric.arrays import Floats, Ints, find_last, freeze, pad

Slots = np.ndarray[tuple[Any, ...], np.dtype[np.int32]]

LARGEST_NEIGHBORS = 1000
# Where this share of the slots or more is replaced, many lists run short: a rebuild is no dearer.
MOST_REPLACED = 1 / 2


@dataclass(frozen=True, slots=True, eq=False)
class NeighborLists:
    """The nearest others of every slot: a value, whose arrays are never written."""

    # Slots, ascending by (d2, arrival); -1 behind the end.
    near: Annotated[Slots, "slots w", "one of its rows or -1"]
    d2: Annotated[Floats, "slots w"]  # squared distances to them; inf behind the end
    # Every other that is nearer than this, in squared distance, is in the list; of those just so
    # near, some of the oldest. inf where the list has all that there are.
    limits: Annotated[Floats, "slots"]
    n_neighbors: int  # K: a list holds as many, or all that there are
    is_distinct: bool = False  # whether lists leave out others at a distance of 0

    @classmethod
    def build(
        cls,
        geometry: Pairwise,
        positions: Ints,
        n_neighbors: int,
        spare: int | None = None,
        is_distinct: bool = False,
    ) -> NeighborLists:
        """The lists of all slots, from scratch.

        Parameters
        ----------
        positions
            Of the slots' events in the stream, shape (n,), unique.
        n_neighbors
            K, at least 1.
        spare
            Entries that a list may lose before it is computed again; None for K.
        is_distinct
            Whether to leave out others at a distance of 0.

        Returns
        -------
        NeighborLists
            O(n^2 d), in memory O(n w).

        Examples
        --------
        >>> import numpy as np
        >>> from streamembed.geometry.pairwise import PointDistances
        >>> line = np.array([[0.0], [1.0], [3.0], [3.0]])
        >>> lists = NeighborLists.build(PointDistances(line), np.arange(4), 2)
        >>> lists.near[:, :2].tolist()
        [[1, 2], [0, 2], [3, 1], [2, 1]]
        >>> line[0] = 4.0
        >>> geometry, positions = PointDistances(line), np.array([4, 1, 2, 3])
        >>> lists.replace(np.array([0]), geometry, positions).near[:, :2].tolist()
        [[2, 3], [2, 3], [3, 0], [2, 0]]
        """
        n, width = len(positions), n_neighbors + (n_neighbors if spare is None else spare)
        near, d2 = np.full((n, width), -1, dtype=np.int32), np.full((n, width), np.inf)
        limits = np.full(n, np.inf)
        for tile in split_slots(np.arange(n), n):
            _fill((near, d2, limits), geometry.rows(tile), positions, is_distinct)
        return cls(freeze(near), freeze(d2), freeze(limits), n_neighbors, is_distinct)

    @classmethod
    def __unpack__(cls, packed: NeighborLists) -> NeighborLists:
        """ValueError for lists without so many entries, or with distances to nothing."""
        if not 1 <= packed.n_neighbors <= packed.near.shape[1]:
            raise ValueError(f"lists of {packed.n_neighbors} in {packed.near.shape[1]} entries")
        if not (np.isfinite(packed.d2) == (packed.near >= 0)).all():
            raise ValueError("lists have distances to nothing")
        return packed

    def __len__(self) -> int:
        return len(self.near)

    def replace(self, slots: Ints, geometry: Pairwise, positions: Ints) -> NeighborLists:
        """The lists after ``slots`` were refilled.

        Parameters
        ----------
        slots
            Shape (b,), distinct; those from n on are new, and follow without a hole.
        geometry, positions
            Of all slots, afterwards; those of ``slots`` are the largest positions. Rows of other
            slots are asked for only where a list has run short.

        Returns
        -------
        NeighborLists
            O(n (b d + w)).
        """
        n, k = len(positions), self.n_neighbors
        if not len(slots):
            return self
        if len(slots) >= MOST_REPLACED * n:
            spare = self.near.shape[1] - k
            return NeighborLists.build(geometry, positions, k, spare, self.is_distinct)
        width = self.near.shape[1]
        near, d2 = pad(self.near, n, -1), pad(self.d2, n, np.inf)
        arrays = near, d2, limits = near, d2, pad(self.limits, n, np.inf)
        is_replaced = np.zeros(n + 1, dtype=bool)
        is_replaced[slots] = True
        # as unsigned numbers the entries -1 are the largest, and clipped to the last
        removed = np.flatnonzero(is_replaced.take(near.view(np.uint32), mode="clip"))
        near.reshape(-1)[removed], d2.reshape(-1)[removed] = -1, np.inf
        limit = limits.copy()
        limit[slots] = -np.inf  # their lists are computed again
        arrivals: list[tuple[Ints, Ints, Floats]] = []
        for tile in split_slots(slots, n):
            block = geometry.rows(tile)
            _fill(arrays, block, positions, self.is_distinct)
            row, into, arriving_d2 = block.within(limit, self.is_distinct)
            # of others just at the limit, older ones may be missing
            is_known = arriving_d2 < limit[into]
            arrivals.append((into[is_known], tile[row[is_known]], arriving_d2[is_known]))
        into, arriving, arriving_d2 = (np.concatenate(part) for part in zip(*arrivals, strict=True))
        is_touched = np.zeros(n, dtype=bool)
        is_touched[removed // width] = is_touched[into] = True
        is_touched[slots] = False
        rows = np.flatnonzero(is_touched)
        order = np.lexsort((positions[arriving], arriving_d2, into))
        at = np.searchsorted(rows, into[order])
        near[rows], d2[rows], limits[rows] = _merge(
            near[rows], d2[rows], limits[rows], at, arriving[order], arriving_d2[order]
        )
        too_short = rows[(near[rows, k - 1] < 0) & (limits[rows] < np.inf)]
        for tile in split_slots(too_short, n):
            _fill(arrays, geometry.rows(tile), positions, self.is_distinct)
        return NeighborLists(freeze(near), freeze(d2), freeze(limits), k, self.is_distinct)

    @property
    def nearest(self) -> tuple[Slots, Floats]:
        """The K nearest of every slot and their d2, both (n, K); -1 and inf behind the end."""
        return self.near[:, : self.n_neighbors], self.d2[:, : self.n_neighbors]

    @property
    def reaches(self) -> Floats:
        """The distance to the last of the K nearest of every slot, (n,); 0 where none is listed."""
        return np.sqrt(find_last(self.d2[:, : self.n_neighbors]))

    def find_changed(self, previous: NeighborLists, slots: Ints) -> Ints:
        """``slots``, and all others whose K nearest were others, or elsewhere: ascending, (m,)."""
        n, k = len(previous), self.n_neighbors
        changed = np.ones(len(self), dtype=bool)
        changed[:n] = (self.near[:n, :k] != previous.near[:, :k]).any(axis=1)
        changed[:n] |= (self.d2[:n, :k] != previous.d2[:, :k]).any(axis=1)
        changed[slots] = True
        return np.flatnonzero(changed)


@dataclass(frozen=True, slots=True, eq=False)
class RadiusEdges:
    """All pairs of slots within a radius: a value, whose arrays are never written."""

    # Slots, i < j, ascending by (i, j).
    i: Annotated[Slots, "m"]
    j: Annotated[Slots, "m"]
    d2: Annotated[Floats, "m"]  # squared distances, at most ``radius2``
    radius2: float

    @classmethod
    def build(cls, geometry: Pairwise, radius2: float) -> RadiusEdges:
        """The edges among all slots, from scratch. O(n^2 d)."""
        empty = np.zeros(0, dtype=np.int32)
        return cls(empty, empty, np.zeros(0), radius2).replace(np.arange(len(geometry)), geometry)

    def replace(self, slots: Ints, geometry: Pairwise) -> RadiusEdges:
        """The edges after ``slots``, distinct, were refilled; ``geometry`` is that after it.

        O(b n d + m).
        """
        n = len(geometry)
        is_replaced = np.zeros(n, dtype=bool)
        is_replaced[slots] = True
        is_kept = ~(is_replaced[self.i] | is_replaced[self.j])
        parts = [(self.i[is_kept], self.j[is_kept], self.d2[is_kept])]
        for tile in split_slots(slots, n):
            row, ends, d2 = geometry.rows(tile).within(self.radius2)
            heads = tile[row]
            # of two that arrive, from the smaller one only
            is_first = (heads < ends) | ~is_replaced[ends]
            heads, ends = heads[is_first].astype(np.int32), ends[is_first].astype(np.int32)
            parts.append((np.minimum(heads, ends), np.maximum(heads, ends), d2[is_first]))
        i, j, d2 = (np.concatenate(part) for part in zip(*parts, strict=True))
        order = np.argsort(i * np.int64(n) + j, kind="stable")
        return RadiusEdges(freeze(i[order]), freeze(j[order]), freeze(d2[order]), self.radius2)


def _fill(
    lists: tuple[Slots, Floats, Floats],
    block: DistanceBounds,
    positions: Ints,
    is_distinct: bool,
) -> None:
    """Write near, d2 and limits of the slots of a block, from their rows."""
    near, d2, limits = lists
    width = near.shape[1]
    a, i, entry_d2 = block.nearest(width, is_distinct)
    order = np.lexsort((positions[i], entry_d2, a))
    a, i, entry_d2 = a[order], i[order], entry_d2[order]
    rank = np.arange(len(a)) - np.searchsorted(a, a)
    is_listed = rank < width
    i, entry_d2, rank = i[is_listed], entry_d2[is_listed], rank[is_listed]
    a = block.slots[a[is_listed]]
    near[block.slots], d2[block.slots] = -1, np.inf
    near[a, rank], d2[a, rank] = i, entry_d2
    # a list that is not full has all that there are: then it is inf
    limits[block.slots] = d2[block.slots, -1]


def _merge(
    near: Slots, d2: Floats, limits: Floats, at: Ints, arriving: Ints, arriving_d2: Floats
) -> tuple[Slots, Floats, Floats]:
    """Some lists without the removed entries, and with those that arrive.

    ``near``, ``d2``, ``limits`` of r lists: -1 and inf where an entry was removed. ``at``,
    ``arriving``, ``arriving_d2`` (p,): the row of the list, the slot and its d2, below the limit,
    ascending by (row, d2, position); younger than all that is listed.
    """
    r, width = near.shape
    rank = np.arange(len(at)) - np.searchsorted(at, at)
    is_near = rank <= width  # one more than fits tells that the list is full
    at, rank = at[is_near], rank[is_near]
    n_columns = width + int(rank.max(initial=-1)) + 1
    merged, merged_d2 = np.full((r, n_columns), -1, np.int32), np.full((r, n_columns), np.inf)
    merged[:, :width], merged_d2[:, :width] = near, d2
    merged[at, width + rank] = arriving[is_near]
    merged_d2[at, width + rank] = arriving_d2[is_near]
    is_full = np.count_nonzero(merged >= 0, axis=1) > width
    order = np.argsort(merged_d2, axis=1, kind="stable")[:, :width]
    order += (np.arange(r) * n_columns)[:, None]  # of flat arrays: ten times faster to take from
    near, d2 = merged.take(order), merged_d2.take(order)
    return near, d2, np.where(is_full, d2[:, -1], limits)
