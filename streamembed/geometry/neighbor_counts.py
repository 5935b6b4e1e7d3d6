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
        limits = _choose_limits(padded.bases)
        for tile in split_slots(slots[slots < n_before], n):
            for column, change in zip(columns, _count(left.rows(tile), limits, 0), strict=True):
                column[: len(change)] -= change
        for tile in split_slots(slots, n):
            for column, change in zip(columns, _count(after.rows(tile), limits, 0), strict=True):
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
            limits = _choose_limits(self.bases[tile])
            counts = _count(geometry.rows(tile), limits, axis=1)
            self.within[tile], self.inside[tile], self.others[tile] = counts
        return self


def _choose_limits(bases: Floats) -> tuple[Floats, Floats]:
    """Squared distances up to which others are within, and inside."""
    with np.errstate(over="ignore", under="ignore"):
        return (DRIFTED * bases) ** 2, np.nextafter((bases / DRIFTED) ** 2, -1.0)


def _count(
    block: DistanceBounds, limits: tuple[Floats, Floats], axis: int
) -> tuple[Ints, Ints, Ints]:
    """Pairs of a block that are within, inside, and others, summed along an axis.

    ``limits`` are those of its columns with axis 0, and more; of its rows with axis 1.
    """
    size = block.lower.shape[1 - axis]
    within, inside = (limit[:size] for limit in limits)
    # all others are sure to be others, and farther
    is_far = block.lower > (within if axis == 0 else within[:, None])
    is_far &= block.lower < np.inf
    near = np.flatnonzero(~is_far)
    rows, columns = np.divmod(near, is_far.shape[1])
    at = (columns, rows)[axis]
    low, within, inside = block.lower.take(near), within[at], inside[at]
    d2 = low + block.slack[columns] + block.row_slack[rows]
    is_sure = (low > 0.0) & ((d2 <= inside) | ((low > inside) & (d2 <= within)))
    unsure = np.flatnonzero(~is_sure)
    a, b = rows[unsure], columns[unsure]
    d2[unsure] = np.where(b == block.slots[a], 0.0, block.exact(a, b))
    is_other = (d2 > 0.0) & (d2 < np.inf)
    chosen = (is_other & (d2 <= within), is_other & (d2 <= inside), ~is_other)
    n_within, n_inside, n_none = (np.bincount(at[each], minlength=size) for each in chosen)
    return n_within, n_inside, block.lower.shape[axis] - n_none


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
