"""How many others are near every slot: which widths have drifted, without lists of neighbours.

Symbols: r = the distance to the K-th nearest other at a distance > 0 ("reach", to the farthest of
fewer), b = the reach of a slot when it was filled, but at least the least width of then.

A slot has drifted where r is above 1.5 b or below b / 1.5. Two counts decide that: of others within
1.5 b there are fewer than K, or of those nearer than b / 1.5 at least K. A chunk subtracts what
leaves and adds what arrives, exactly, whatever is equally far: distances that bounds do not decide
are computed by differences, the same when a point arrives as when it leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from streamembed.geometry.pairwise import BoundedRows, DistanceBounds, Pairwise, split_slots
from streamembed.numeric.arrays import Array, Floats, Ints, pad_rows

# A reach that has become more than DRIFTED b, or less than b / DRIFTED.
DRIFTED = 1.5
# Slots of which the reach is computed to see how far they have drifted, at most.
MOST_MEASURED = 100


@dataclass(frozen=True, slots=True, eq=False)
class NeighborCounts:
    """The counts of the slots; others at a distance of 0 are none."""

    bases: Annotated[Floats, "slots", "finite", "at least 0"]  # b
    within: Annotated[Ints, "slots", "at least 0"]  # others at most DRIFTED b away
    inside: Annotated[Ints, "slots", "at least 0"]  # others nearer than b / DRIFTED
    others: Annotated[Ints, "slots", "at least 0"]  # all others

    @classmethod
    def build(cls, geometry: Pairwise, bases: Floats) -> NeighborCounts:
        """From scratch. O(n^2 d)."""
        counts = cls(bases, *np.zeros((3, len(bases)), dtype=np.int64))
        return counts._fill(geometry, np.arange(len(bases)))

    def replace(
        self, slots: Ints, left: BoundedRows, after: Pairwise, bases: Floats
    ) -> NeighborCounts:
        """The counts after ``slots`` were filled, first or again.

        Parameters
        ----------
        slots
            Shape (b,), distinct; those from n on are new.
        left
            Rows of what ``slots`` held before, to all slots as they are or as they were.
        after
            The geometry of all slots.
        bases
            b of these slots.
        """
        n, n_before = len(after), len(self.bases)
        if 2 * len(slots) >= n:
            all_bases = pad_rows(self.bases, n)
            all_bases[slots] = bases
            return NeighborCounts.build(after, all_bases)
        columns = [pad_rows(column, n) for column in (self.within, self.inside, self.others)]
        padded = NeighborCounts(pad_rows(self.bases, n), *columns)
        for tile in split_slots(slots[slots < n_before], n):
            for column, change in zip(columns, padded._count(left.rows(tile), 0), strict=True):
                column[: len(change)] -= change
        for tile in split_slots(slots, n):
            for column, change in zip(columns, padded._count(after.rows(tile), 0), strict=True):
                column += change
        padded.bases[slots] = bases
        return padded._fill(after, slots)

    def refill(self, slots: Ints, geometry: Pairwise, bases: Floats) -> NeighborCounts:
        """The counts with other ``bases`` of ``slots`` that hold what they held."""
        if not len(slots):
            return self
        counts = NeighborCounts(
            self.bases.copy(), self.within.copy(), self.inside.copy(), self.others.copy()
        )
        counts.bases[slots] = bases
        return counts._fill(geometry, slots)

    def find_drifted(self, n_neighbors: int, least: float, filled: Ints) -> Ints:
        """Slots whose reach, or the ``least`` width, has drifted; at most MOST_MEASURED.

        Those whose counts are farthest from K come first. ``filled`` are none of them.
        """
        wanted = np.minimum(n_neighbors, self.others)
        # where a reach is below the least width it does not matter
        with np.errstate(over="ignore"):
            has_grown = (self.within < wanted) | (least > DRIFTED * self.bases)
            has_shrunk = (self.inside >= wanted) & (least < self.bases / DRIFTED)
        is_drifted = (has_grown | has_shrunk) & (self.others > 0)
        is_drifted[filled] = False
        drifted = np.flatnonzero(is_drifted)
        if len(drifted) > MOST_MEASURED:
            excess = np.maximum(wanted - self.within, self.inside - wanted)[drifted]
            first = np.argsort(-excess, kind="stable")[:MOST_MEASURED]
            drifted = np.sort(drifted[first])
        return drifted

    def _fill(self, geometry: Pairwise, slots: Ints) -> NeighborCounts:
        """Count anew for ``slots``, by their rows, in place."""
        for tile in split_slots(slots, len(self.bases)):
            counts = self._count(geometry.rows(tile), axis=1)
            self.within[tile], self.inside[tile], self.others[tile] = counts
        return self

    def _count(self, block: DistanceBounds, axis: int) -> tuple[Ints, Ints, Ints]:
        """Pairs of a block that are within, inside, and others, summed along an axis.

        With axis 0 by the bases of its columns, with axis 1 by those of its rows.
        """
        size = block.lower.shape[1]
        bases = self.bases[:size] if axis == 0 else self.bases[block.slots][:, None]
        with np.errstate(over="ignore", under="ignore"):
            outer, inner = (DRIFTED * bases) ** 2, np.nextafter((bases / DRIFTED) ** 2, -1.0)
        upper = block.lower + block.slack
        upper += block.row_slack[:, None]
        within, inside = (_count_at_most(block, upper, limit, axis) for limit in (outer, inner))
        size = block.lower.shape[1 - axis]
        others = np.full(size, block.lower.shape[axis])
        # duplicates, a slot itself, and those that are infinitely far
        is_other = (block.lower > 0.0) & (block.lower < np.inf)
        rows, columns = np.divmod(np.flatnonzero(~is_other), is_other.shape[1])
        d2 = block.exact(rows, columns)
        ends = np.where(columns == block.slots[rows], 0.0, d2) == 0.0
        equal = np.bincount((columns, rows)[axis][ends], minlength=size)
        far = np.bincount((columns, rows)[axis][d2 == np.inf], minlength=size)
        inside -= np.where(inner.reshape(-1) >= 0.0, equal, 0)
        return within - equal, inside, others - equal - far


def _count_at_most(block: DistanceBounds, upper: Floats, limit: Floats, axis: int) -> Ints:
    """How many squared distances of a block are at most ``limit``, to the bit, along an axis."""
    is_sure = upper <= limit
    counts: Ints = np.count_nonzero(is_sure, axis=axis)
    is_outside = block.lower > limit
    is_outside |= is_sure
    undecided = np.flatnonzero(~is_outside)
    if len(undecided):
        rows, columns = np.divmod(undecided, is_sure.shape[1])
        limits = np.broadcast_to(limit, is_sure.shape)[rows, columns]
        d2 = block.exact(rows, columns)
        more = (columns, rows)[axis][(d2 <= limits) & (d2 < np.inf)]
        counts += np.bincount(more, minlength=len(counts))
    return counts


def measure_reaches(geometry: Pairwise, slots: Ints, k: int) -> Floats:
    """r of ``slots``, shape (b,); with fewer than k others that of the farthest, with none 0."""
    result = np.zeros(len(slots))
    for start, tile in _enumerate_tiles(slots, len(geometry)):
        a, _, d2 = geometry.rows(tile).nearest(k, positive=True)
        ordered: Array = np.append(d2[np.lexsort((d2, a))], 0.0)
        counts = np.bincount(a, minlength=len(tile))
        last = np.cumsum(counts) - counts + np.minimum(counts, k) - 1
        result[start : start + len(tile)] = np.sqrt(ordered[np.where(counts, last, -1)])
    return result


def _enumerate_tiles(slots: Ints, n: int) -> list[tuple[int, Ints]]:
    tiles = list(split_slots(slots, n))
    starts = np.cumsum([0, *map(len, tiles)])[:-1].tolist()
    return list(zip(starts, tiles, strict=True))
