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

    bases: Annotated[Floats, "slots"]  # b
    within: Annotated[Ints, "slots"]  # others at most DRIFTED b away
    inside: Annotated[Ints, "slots"]  # others nearer than b / DRIFTED
    others: Annotated[Ints, "slots"]  # all others

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
        bases_now = pad_rows(self.bases, n)
        bases_now[slots] = bases
        if 2 * len(slots) >= n:
            return NeighborCounts.build(after, bases_now)
        totals = [pad_rows(column, n) for column in (self.within, self.inside, self.others)]
        within, inside = _choose_limits(bases_now)
        for tile in split_slots(slots[slots < n_before], n):
            block = left.rows(tile)
            size = block.lower.shape[1]
            changes = _count(block, (0, within[:size], inside[:size]))[0]
            for total, change in zip(totals, changes, strict=True):
                total[:size] -= change
        own = []
        for tile in split_slots(slots, n):
            by_row = 1, within[tile], inside[tile]
            changes, counts = _count(after.rows(tile), (0, within, inside), by_row)
            own.append(counts)
            for total, change in zip(totals, changes, strict=True):
                total += change
        for total, parts in zip(totals, zip(*own, strict=True), strict=True):
            total[slots] = np.concatenate(parts)
        return NeighborCounts(bases_now, *totals)

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
            by_row = 1, *_choose_limits(self.bases[tile])
            counts = _count(geometry.rows(tile), by_row)[0]
            self.within[tile], self.inside[tile], self.others[tile] = counts
        return self


def _choose_limits(bases: Floats) -> tuple[Floats, Floats]:
    """Squared distances up to which others are within, and inside."""
    with np.errstate(over="ignore", under="ignore"):
        return (DRIFTED * bases) ** 2, np.nextafter((bases / DRIFTED) ** 2, -1.0)


def _count(
    block: DistanceBounds, *limits: tuple[int, Floats, Floats]
) -> list[tuple[Ints, Ints, Ints]]:
    """Pairs of a block that are within, inside, and others, once for each of the ``limits``.

    These are an axis, along which pairs are summed, and the two limits: with axis 0 of every
    column, with 1 of every row.
    """
    shape = block.lower.shape
    # all others are sure to be others, and farther
    widest = [within[:, None] if axis else within for axis, within, _ in limits]
    is_far = block.lower > (widest[0] if len(limits) == 1 else np.maximum(*widest))
    is_far &= block.lower < np.inf
    near = np.flatnonzero(~is_far)
    pairs = rows, columns = np.divmod(near, shape[1])
    low = block.lower.take(near)
    d2 = low + block.slack[columns] + block.row_slack[rows]
    is_sure = low > 0.0
    at = [(pairs[1 - axis], within, inside) for axis, within, inside in limits]
    limits_at = [(within[i], inside[i]) for i, within, inside in at]
    for within, inside in limits_at:
        is_sure &= ((d2 <= inside) | (low > inside)) & ((d2 <= within) | (low > within))
    unsure = np.flatnonzero(~is_sure)
    a, b = rows[unsure], columns[unsure]
    d2[unsure] = np.where(b == block.slots[a], 0.0, block.exact(a, b))
    is_other = (d2 > 0.0) & (d2 < np.inf)
    counts = []
    for (axis, *_), (i, *_), (within, inside) in zip(limits, at, limits_at, strict=True):
        chosen = (is_other & (d2 <= within), is_other & (d2 <= inside), ~is_other)
        n_within, n_inside, n_none = (
            np.bincount(i[each], minlength=shape[1 - axis]) for each in chosen
        )
        counts.append((n_within, n_inside, shape[axis] - n_none))
    return counts


def measure_reaches(geometry: Pairwise, slots: Ints, k: int) -> Floats:
    """r of ``slots``, shape (b,); with fewer than k others that of the farthest, with none 0."""
    result = [np.zeros(0)]
    for tile in split_slots(slots, len(geometry)):
        a, _, d2 = geometry.rows(tile).nearest(k, positive=True)
        ordered: Array = np.append(d2[np.lexsort((d2, a))], 0.0)
        counts = np.bincount(a, minlength=len(tile))
        last = np.cumsum(counts) - counts + np.minimum(counts, k) - 1
        result.append(np.sqrt(ordered[np.where(counts, last, -1)]))
    return np.concatenate(result)
