"""The nearest neighbours of every slot, kept exact while slots are replaced; and ε graphs likewise.

A list holds the nearest others of one slot, nearer ones first and among equally near ones the
older. It has room for more than are asked for: what leaves is struck out and what arrives is put
in, and only a list that has run short is made afresh, from one row of distances. What lies behind
the end of a list is unknown, so nothing is ever put there.

Symbols: n = slots, b = those replaced, K = neighbours, w = room in a list, d2 = squared distances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from streamembed.geometry.pairwise import Block, Pairwise, tiles
from streamembed.numeric.arrays import Floats, Ints, frozen

__all__ = ["Edges", "Lists"]

Slots = npt.NDArray[np.int32]

# Where this share of the slots or more is replaced, many lists run short: a rebuild is no dearer.
MOST_REPLACED = 1 / 2


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """The nearest others of every slot: a value, whose arrays are never written.

    Attributes
    ----------
    near : (n, w)
        Slots, ascending by (d2, birth); -1 behind the end.
    d2 : (n, w)
        Squared distances to them; inf behind the end.
    reach : (n,)
        Every other that is nearer than this, in squared distance, is in the list; of those just so
        near, some of the oldest. inf where the list has all that there are.
    n_neighbors : int
        K: a list holds as many, or all that there are.
    positive : bool
        Whether duplicates, at a distance of 0, are no neighbours.
    """

    near: Annotated[Slots, "n w"]
    d2: Annotated[Floats, "n w"]
    reach: Annotated[Floats, "n"]
    n_neighbors: int
    positive: bool

    @classmethod
    def build(
        cls,
        geometry: Pairwise,
        births: Ints,
        n_neighbors: int,
        spare: int | None = None,
        positive: bool = False,
    ) -> Lists:
        """The lists of everything that the slots hold, from scratch.

        Parameters
        ----------
        births
            Shape (n,), unique.
        n_neighbors
            K, at least 1.
        spare
            Entries that a list may lose before it is made afresh; None for K.
        positive
            Leave out duplicates.

        Returns
        -------
        Lists
            O(n^2 d), in memory O(n w).

        Examples
        --------
        >>> import numpy as np
        >>> from streamembed.geometry.pairwise import Coordinates
        >>> line = np.array([[0.0], [1.0], [3.0], [3.0]])
        >>> lists = Lists.build(Coordinates(line), np.arange(4), 2)
        >>> lists.near[:, :2].tolist()
        [[1, 2], [0, 2], [3, 1], [2, 1]]
        >>> line[0] = 4.0
        >>> lists, changed = lists.replace(np.array([0]), Coordinates(line), np.array([4, 1, 2, 3]))
        >>> lists.near[:, :2].tolist(), changed.tolist()
        ([[2, 3], [2, 3], [3, 0], [2, 0]], [0, 1, 2, 3])
        """
        n, width = len(geometry), n_neighbors + (n_neighbors if spare is None else spare)
        held = _empty(n, width)
        for tile in tiles(np.arange(n), n):
            _fill(held, geometry.rows(tile), births, positive)
        near, d2, reach = held
        return cls(frozen(near), frozen(d2), frozen(reach), n_neighbors, positive)

    @classmethod
    def __unpack__(cls, kept: Lists) -> Lists:
        """ValueError for lists that name slots which there are not."""
        n, width = kept.near.shape
        if not 1 <= kept.n_neighbors <= width or not ((kept.near >= -1) & (kept.near < n)).all():
            raise ValueError(f"lists of {kept.n_neighbors} in {width} entries among {n} slots")
        return kept

    def __len__(self) -> int:
        return len(self.near)

    def replace(self, slots: Ints, geometry: Pairwise, births: Ints) -> tuple[Lists, Ints]:
        """The lists once ``slots`` hold something else.

        Parameters
        ----------
        slots
            Shape (b,), distinct; those from n on are new, and follow without a hole.
        geometry, births
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
            lists = Lists.build(geometry, births, k, self.near.shape[1] - k, self.positive)
            return lists, self._changed(lists.near, lists.d2, np.arange(n), slots)
        width = self.near.shape[1]
        near, d2, reach = held = self._grown(n - len(self))
        leaving = np.zeros(n + 1, dtype=bool)  # the last for the slot -1
        leaving[slots] = True
        struck = np.flatnonzero(leaving.take(near, mode="wrap"))
        near.reshape(-1)[struck], d2.reshape(-1)[struck] = -1, np.inf
        limit = reach.copy()
        limit[slots] = -np.inf  # theirs are made afresh
        found: list[tuple[Ints, Ints, Floats]] = []
        for tile in tiles(slots, n):
            block = geometry.rows(tile)
            _fill(held, block, births, self.positive)
            row, into, apart = block.within(limit, self.positive)
            found.append((into, tile[row], apart))
        into, arriving, apart = (np.concatenate(part) for part in zip(*found, strict=True))
        touched = np.zeros(n, dtype=bool)
        touched[struck // width] = touched[into] = True
        touched[slots] = False
        rows = np.flatnonzero(touched)
        near[rows], d2[rows], reach[rows] = _merge(
            near[rows], d2[rows], reach[rows], np.searchsorted(rows, into), arriving, apart, births
        )
        short = rows[(near[rows, k - 1] < 0) & (reach[rows] < np.inf)]
        for tile in tiles(short, n):
            _fill(held, geometry.rows(tile), births, self.positive)
        lists = Lists(frozen(near), frozen(d2), frozen(reach), k, self.positive)
        return lists, self._changed(near, d2, rows, slots)

    def _grown(self, more: int) -> tuple[Slots, Floats, Floats]:
        """Copies of near, d2 and reach, with room for more slots."""
        near, d2, reach = _empty(more, self.near.shape[1])
        return (
            np.concatenate([self.near, near]),
            np.concatenate([self.d2, d2]),
            np.concatenate([self.reach, reach]),
        )

    def _changed(self, near: Slots, d2: Floats, rows: Ints, slots: Ints) -> Ints:
        """``slots``, and those among ``rows`` whose K nearest are others than here."""
        k, changed = self.n_neighbors, np.zeros(len(near), dtype=bool)
        kept = rows[rows < len(self)]
        changed[kept] = (near[kept, :k] != self.near[kept, :k]).any(axis=1)
        changed[kept] |= (d2[kept, :k] != self.d2[kept, :k]).any(axis=1)
        changed[slots] = True
        return np.flatnonzero(changed)

    @property
    def nearest(self) -> tuple[Slots, Floats]:
        """The K nearest of every slot and their d2, both (n, K); -1 and inf behind the end."""
        return self.near[:, : self.n_neighbors], self.d2[:, : self.n_neighbors]

    def changed_since(self, before: Lists, slots: Ints) -> Ints:
        """``slots``, and all others whose K nearest were others, or elsewhere: ascending, (m,)."""
        return before._changed(self.near, self.d2, np.arange(len(self)), slots)

    def kth_positive(self, k: int, geometry: Pairwise, slots: Ints | None = None) -> Floats:
        """Distances, not squared, to the k-th nearest at a distance > 0.

        Parameters
        ----------
        k
            At least 1.
        geometry
            Asked for the rows of lists that hold fewer than k such, and not all that there are:
            never where duplicates are left out, and k <= K.
        slots
            Shape (m,); None for all. Where duplicates are left out, and k <= K, only slots that
            `replace` returns can have changed; else others can, too.

        Returns
        -------
        Shape (m,). With fewer than k at a positive distance, that to the farthest; with none, 0.
        """
        asked = np.arange(len(self)) if slots is None else slots
        d2 = self.d2[asked]
        at = np.count_nonzero(d2 <= 0, axis=1) + (k - 1)
        result = np.where(
            at < d2.shape[1], d2[np.arange(len(d2)), np.minimum(at, d2.shape[1] - 1)], np.inf
        )
        missing = np.flatnonzero(result == np.inf)
        result[missing] = np.where(d2[missing] < np.inf, d2[missing], 0.0).max(axis=1, initial=0.0)
        short = missing[self.reach[asked[missing]] < np.inf]
        for tile in tiles(short, len(self)):
            a, _, apart = geometry.rows(asked[tile]).nearest(k, positive=True)
            ordered = np.append(apart[np.lexsort((apart, a))], 0.0)
            counts = np.bincount(a, minlength=len(tile))
            last = np.cumsum(counts) - counts + np.minimum(counts, k) - 1
            result[tile] = ordered[np.where(counts, last, -1)]
        return np.sqrt(result)


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """All pairs of slots within a radius: a value, whose arrays are never written.

    Attributes
    ----------
    i, j : (m,)
        Slots, i < j, ascending by (i, j).
    d2 : (m,)
        Squared distances, at most ``radius2``.
    radius2 : float
    """

    i: Annotated[Slots, "m"]
    j: Annotated[Slots, "m"]
    d2: Annotated[Floats, "m"]
    radius2: float

    @classmethod
    def build(cls, geometry: Pairwise, radius2: float) -> Edges:
        """The edges among everything that the slots hold, from scratch. O(n^2 d)."""
        nothing = np.zeros(0, dtype=np.int32)
        return cls(nothing, nothing, np.zeros(0), radius2).replace(
            np.arange(len(geometry)), geometry
        )

    def replace(self, slots: Ints, geometry: Pairwise) -> Edges:
        """The edges once ``slots``, distinct, hold something else: ``geometry`` is afterwards.

        O(b n d + m).
        """
        n = len(geometry)
        leaving = np.zeros(n, dtype=bool)
        leaving[slots] = True
        stays = ~(leaving[self.i] | leaving[self.j])
        parts = [(self.i[stays], self.j[stays], self.d2[stays])]
        for tile in tiles(slots, n):
            row, other, d2 = geometry.rows(tile).within(self.radius2)
            own = tile[row]
            once = (own < other) | ~leaving[other]  # of two that arrive, from the smaller one only
            own, other = own[once].astype(np.int32), other[once].astype(np.int32)
            parts.append((np.minimum(own, other), np.maximum(own, other), d2[once]))
        i, j, d2 = (np.concatenate(part) for part in zip(*parts, strict=True))
        order = np.argsort(i * np.int64(n) + j, kind="stable")
        return Edges(frozen(i[order]), frozen(j[order]), frozen(d2[order]), self.radius2)


def _empty(n: int, width: int) -> tuple[Slots, Floats, Floats]:
    """Lists that hold nothing, and all that there is."""
    near = np.full((n, width), -1, dtype=np.int32)
    return near, np.full((n, width), np.inf), np.full(n, np.inf)


def _fill(held: tuple[Slots, Floats, Floats], block: Block, births: Ints, positive: bool) -> None:
    """Write near, d2 and reach of the slots of a block, from their rows."""
    near, d2, reach = held
    width = near.shape[1]
    a, i, apart = block.nearest(width, positive)
    order = np.lexsort((births[i], apart, a))
    a, i, apart = a[order], i[order], apart[order]
    rank = np.arange(len(a)) - np.searchsorted(a, a)
    first = rank < width
    a, i, apart, rank = block.slots[a[first]], i[first], apart[first], rank[first]
    near[block.slots], d2[block.slots] = -1, np.inf
    near[a, rank], d2[a, rank] = i, apart
    # fewer than there is room for are all that there are: then it is inf
    reach[block.slots] = d2[block.slots, -1]


def _merge(
    near: Slots,
    d2: Floats,
    reach: Floats,
    into: Ints,
    arriving: Ints,
    apart: Floats,
    births: Ints,
) -> tuple[Slots, Floats, Floats]:
    """Some lists without what was struck out of them, and with what arrives.

    Every entry's place is counted out, which is several times faster than sorting.

    Parameters
    ----------
    near, d2, reach
        Of r lists; -1 and inf where an entry was struck out.
    into, arriving, apart
        Shapes (p,): the list, the slot and its d2, at most the reach; distinct.
    """
    r, width = near.shape
    order = np.lexsort((births[arriving], apart, into))
    into, arriving, apart = into[order], arriving[order], apart[order]
    # How many entries each that arrives has before it, of those that stay.
    there = d2[into]
    ahead = np.count_nonzero(there < apart[:, None], axis=1)
    equal, column = np.divmod(np.flatnonzero(there == apart[:, None]), width)
    older = births[near[into[equal], column]] < births[arriving[equal]]
    ahead += np.bincount(equal[older], minlength=len(ahead))
    # Those just at the reach are known only before one that stays.
    left = np.count_nonzero(near >= 0, axis=1)
    known = (apart < reach[into]) | (ahead < left[into])
    into, arriving, apart, ahead = into[known], arriving[known], apart[known], ahead[known]
    # Indices of flat lists, behind which the last is for what finds no room.
    start, end = np.arange(r) * width, r * width
    place = ahead + np.arange(len(into)) - np.searchsorted(into, into)
    place = np.where(place < width, start[into] + place, end)
    inside = ahead < width
    inserted = np.bincount((start[into] + ahead)[inside], minlength=end).reshape(r, width)
    inserted.cumsum(axis=1, out=inserted)
    moved = np.arange(left.sum()) + np.repeat(start - (left.cumsum() - left), left)
    moved += inserted.reshape(-1)[moved]
    moved[moved >= np.repeat(start + width, left)] = end
    stays = np.flatnonzero(near >= 0)
    merged, merged_d2 = np.full(end + 1, -1, dtype=np.int32), np.full(end + 1, np.inf)
    merged[moved], merged_d2[moved] = near.reshape(-1)[stays], d2.reshape(-1)[stays]
    merged[place], merged_d2[place] = arriving, apart
    near, d2 = merged[:end].reshape(r, width), merged_d2[:end].reshape(r, width)
    full = left + np.bincount(into, minlength=r) > width
    return near, d2, np.where(full, d2[:, -1], reach)
