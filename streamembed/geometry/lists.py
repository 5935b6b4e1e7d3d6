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
from streamembed.numeric.arrays import Floats, Ints, freeze

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
    reach: Annotated[Floats, "slots"]
    n_neighbors: int  # K: a list holds as many, or all that there are

    @classmethod
    def build(
        cls,
        geometry: Pairwise,
        positions: Ints,
        n_neighbors: int,
        spare: int | None = None,
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
        >>> lists, changed = lists.replace(np.array([0]), geometry, positions)
        >>> lists.near[:, :2].tolist(), changed.tolist()
        ([[2, 3], [2, 3], [3, 0], [2, 0]], [0, 1, 2, 3])
        """
        n, width = len(geometry), n_neighbors + (n_neighbors if spare is None else spare)
        lists = _make_empty(n, width)
        for tile in split_slots(np.arange(n), n):
            _fill(lists, geometry.rows(tile), positions)
        near, d2, reach = lists
        return cls(freeze(near), freeze(d2), freeze(reach), n_neighbors)

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

    def replace(
        self, slots: Ints, geometry: Pairwise, positions: Ints
    ) -> tuple[NeighborLists, Ints]:
        """The lists after ``slots`` were refilled.

        Parameters
        ----------
        slots
            Shape (b,), distinct; those from n on are new, and follow without a hole.
        geometry, positions
            Of all slots, afterwards. Rows of other slots than ``slots`` are asked for only where
            a list has run short.

        Returns
        -------
        lists, changed
            ``changed`` are ``slots`` and those whose K nearest, or the distances to them, are no
            longer the same: ascending, (m,). O(n (b d + w)).
        """
        n, k = len(geometry), self.n_neighbors
        if not len(slots):
            return self, slots
        if len(slots) >= MOST_REPLACED * n:
            lists = NeighborLists.build(geometry, positions, k, self.near.shape[1] - k)
            return lists, self._find_changed(lists.near, lists.d2, np.arange(n), slots)
        width = self.near.shape[1]
        near, d2, reach = arrays = _make_empty(n, width)
        near[: len(self)], d2[: len(self)], reach[: len(self)] = self.near, self.d2, self.reach
        is_replaced = np.zeros(n + 1, dtype=bool)  # the last for the slot -1
        is_replaced[slots] = True
        removed = np.flatnonzero(is_replaced.take(near, mode="wrap"))
        near.reshape(-1)[removed], d2.reshape(-1)[removed] = -1, np.inf
        limit = reach.copy()
        limit[slots] = -np.inf  # their lists are computed again
        entries: list[tuple[Ints, Ints, Floats]] = []
        for tile in split_slots(slots, n):
            block = geometry.rows(tile)
            _fill(arrays, block, positions)
            row, into, entry_d2 = block.within(limit)
            entries.append((into, tile[row], entry_d2))
        into, arriving, entry_d2 = (np.concatenate(part) for part in zip(*entries, strict=True))
        is_touched = np.zeros(n, dtype=bool)
        is_touched[removed // width] = is_touched[into] = True
        is_touched[slots] = False
        rows = np.flatnonzero(is_touched)
        at = np.searchsorted(rows, into)
        near[rows], d2[rows], reach[rows] = _merge(
            near[rows], d2[rows], reach[rows], at, arriving, entry_d2, positions
        )
        too_short = rows[(near[rows, k - 1] < 0) & (reach[rows] < np.inf)]
        for tile in split_slots(too_short, n):
            _fill(arrays, geometry.rows(tile), positions)
        lists = NeighborLists(freeze(near), freeze(d2), freeze(reach), k)
        return lists, self._find_changed(near, d2, rows, slots)

    def _find_changed(self, near: Slots, d2: Floats, rows: Ints, slots: Ints) -> Ints:
        """``slots``, and those among ``rows`` whose K nearest are others than here."""
        k, changed = self.n_neighbors, np.zeros(len(near), dtype=bool)
        old_rows = rows[rows < len(self)]
        changed[old_rows] = (near[old_rows, :k] != self.near[old_rows, :k]).any(axis=1)
        changed[old_rows] |= (d2[old_rows, :k] != self.d2[old_rows, :k]).any(axis=1)
        changed[slots] = True
        return np.flatnonzero(changed)

    @property
    def nearest(self) -> tuple[Slots, Floats]:
        """The K nearest of every slot and their d2, both (n, K); -1 and inf behind the end."""
        return self.near[:, : self.n_neighbors], self.d2[:, : self.n_neighbors]

    def find_changed(self, previous: NeighborLists, slots: Ints) -> Ints:
        """``slots``, and all others whose K nearest were others, or elsewhere: ascending, (m,)."""
        return previous._find_changed(self.near, self.d2, np.arange(len(self)), slots)


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


def _make_empty(n: int, width: int) -> tuple[Slots, Floats, Floats]:
    """Empty lists, and all that there is."""
    near = np.full((n, width), -1, dtype=np.int32)
    return near, np.full((n, width), np.inf), np.full(n, np.inf)


def _fill(lists: tuple[Slots, Floats, Floats], block: DistanceBounds, positions: Ints) -> None:
    """Write near, d2 and reach of the slots of a block, from their rows."""
    near, d2, reach = lists
    width = near.shape[1]
    a, i, entry_d2 = block.nearest(width)
    order = np.lexsort((positions[i], entry_d2, a))
    a, i, entry_d2 = a[order], i[order], entry_d2[order]
    rank = np.arange(len(a)) - np.searchsorted(a, a)
    is_listed = rank < width
    i, entry_d2, rank = i[is_listed], entry_d2[is_listed], rank[is_listed]
    a = block.slots[a[is_listed]]
    near[block.slots], d2[block.slots] = -1, np.inf
    near[a, rank], d2[a, rank] = i, entry_d2
    # a list that is not full has all that there are: then it is inf
    reach[block.slots] = d2[block.slots, -1]


def _merge(
    near: Slots,
    d2: Floats,
    reach: Floats,
    into: Ints,
    arriving: Ints,
    entry_d2: Floats,
    positions: Ints,
) -> tuple[Slots, Floats, Floats]:
    """Some lists without the removed entries, and with those that arrive.

    Every entry's index is counted, which is several times faster than sorting.

    Parameters
    ----------
    near, d2, reach
        Of r lists; -1 and inf where an entry was removed.
    into, arriving, entry_d2
        Shapes (p,): the list, the slot and its d2, at most the reach; distinct.
    """
    r, width = near.shape
    order = np.lexsort((positions[arriving], entry_d2, into))
    into, arriving, entry_d2 = into[order], arriving[order], entry_d2[order]
    # How many entries each that arrives has before it, of those that stay.
    list_d2 = d2[into]
    ahead = np.count_nonzero(list_d2 < entry_d2[:, None], axis=1)
    equal, column = np.divmod(np.flatnonzero(list_d2 == entry_d2[:, None]), width)
    older = positions[near[into[equal], column]] < positions[arriving[equal]]
    ahead += np.bincount(equal[older], minlength=len(ahead))
    # Those just at the reach are known only before one that stays.
    n_left = np.count_nonzero(near >= 0, axis=1)
    is_known = (entry_d2 < reach[into]) | (ahead < n_left[into])
    into, arriving = into[is_known], arriving[is_known]
    entry_d2, ahead = entry_d2[is_known], ahead[is_known]
    # Indices of flat lists, behind which the last is for what does not fit.
    start, end = np.arange(r) * width, r * width
    position = ahead + np.arange(len(into)) - np.searchsorted(into, into)
    position = np.where(position < width, start[into] + position, end)
    is_listed = ahead < width
    inserted = np.bincount((start[into] + ahead)[is_listed], minlength=end).reshape(r, width)
    inserted.cumsum(axis=1, out=inserted)
    target = np.arange(n_left.sum()) + np.repeat(start - (n_left.cumsum() - n_left), n_left)
    target += inserted.reshape(-1)[target]
    target[target >= np.repeat(start + width, n_left)] = end
    kept_entries = np.flatnonzero(near >= 0)
    merged, merged_d2 = np.full(end + 1, -1, dtype=np.int32), np.full(end + 1, np.inf)
    merged[target], merged_d2[target] = near.reshape(-1)[kept_entries], d2.reshape(-1)[kept_entries]
    merged[position], merged_d2[position] = arriving, entry_d2
    near, d2 = merged[:end].reshape(r, width), merged_d2[:end].reshape(r, width)
    full = n_left + np.bincount(into, minlength=r) > width
    return near, d2, np.where(full, d2[:, -1], reach)
