"""Squared distances between the events of slots, as bounds first and then to the bit.

Of many pairs only few matter, those nearer than something. A geometry gives `DistanceBounds`, one
matrix product for points in coordinates, and the distances themselves where the bounds do not
decide: by differences, so that every path has the same bits, from either end.

Symbols: n = slots, b = rows of a block, d2 = squared distances; inf is no neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.linalg import squared_distances

# Entries of a block of distances, 2 MB: memory stays O(n), and the block in the cache. A build
# takes half as long again with blocks of 8 MB, and with those of few rows.
CELLS = 2**18
# Above it sums of products may overflow: such a point's distances are taken by differences alone.
LARGEST = 1e300
# What products of denormal numbers may be off by, and far more.
SMALLEST = 1e-300
# The centre is the median of about this many points: it needs only to be near, outliers or not.
SAMPLE = 64


def split_slots(slots: Ints, n: int) -> Iterator[Ints]:
    """``slots``, as many at a time as a block of `CELLS` entries has rows; at least one."""
    step = max(1, CELLS // max(1, n))
    return (slots[start : start + step] for start in range(0, len(slots), step))


@dataclass(frozen=True, eq=False)
class DistanceBounds:
    """Bounds on the squared distances from some slots to all."""

    slots: Ints  # (b,)
    # (b, n): bounds; NaN where nothing is known. That from a slot to itself means nothing.
    lower: Floats
    slack: Floats  # (n,): from slot i to j, ``lower + slack[j] + slack[i]`` is a bound from above
    row_slack: Floats  # (b,): that of the rows
    # The distances themselves, for indices of rows and of columns, both (p,): the same from i to j
    # as from j to i, and in every block.
    exact: Callable[[Ints, Ints], Floats]

    def within(self, limit: float | Floats, positive: bool = False) -> tuple[Ints, Ints, Floats]:
        """Rows, columns and d2 of all others at most so far, each (p,), in the order of the block.

        Parameters
        ----------
        limit
            Of all, or of every column (n,) or row (b, 1); NaN for no limit.
        positive
            Leave out distances of 0.
        """
        rows, columns = np.divmod(np.flatnonzero(~(self.lower > limit)), self.lower.shape[1])
        d2 = self.exact(rows, columns)
        is_near = (d2 < np.inf) & (columns != self.slots[rows])
        is_near &= ~(d2 > np.broadcast_to(limit, self.lower.shape)[rows, columns])
        if positive:
            is_near &= d2 > 0
        return rows[is_near], columns[is_near], d2[is_near]

    def nearest(self, count: int, positive: bool = False) -> tuple[Ints, Ints, Floats]:
        """As `within`: the ``count`` nearest others of every row, all that tie, and some more."""
        if count >= self.lower.shape[1]:
            return self.within(np.inf, positive)
        upper = self.lower + self.slack
        upper += self.row_slack[:, None]
        if positive:
            upper = np.where(self.lower > 0, upper, np.inf)
        # one of those that are surely no farther may be the slot itself
        upper.partition(count, axis=1)
        return self.within(upper[:, count, None], positive)


class Pairwise(Protocol):
    """Squared distances between the events of n slots."""

    def __len__(self) -> int:
        """Slots in use."""

    def rows(self, slots: Ints) -> DistanceBounds:
        """From some slots to all."""


def choose_center(points: Floats) -> Floats:
    """A value of each feature (d,) in the middle of points (n, d), by a sample of them."""
    sample = points[:: max(1, len(points) // SAMPLE)]
    middle = len(sample) // 2
    return np.partition(sample, middle, axis=0)[middle] if len(points) else np.zeros(1)


class PointDistances:
    """Distances between points in coordinates: one product bounds them, differences decide."""

    def __init__(self, points: Floats) -> None:
        """Points (n, d), finite. Those 1e154 apart are no neighbours."""
        self._points = np.ascontiguousarray(points)
        n, d = points.shape
        self._centred = np.ones((n, d + 2))  # x, 1, and a lower bound on its norm
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            center = choose_center(self._points)
            centred = np.subtract(self._points, center, out=self._centred[:, :d])
            norms = np.einsum("ij,ij->i", centred, centred)
            norms[~(norms < LARGEST)] = np.nan
            # of a sum of d + 2 products, of its norms, of the centring, and of the differences
            loss = (6 * d + 16) * float(np.finfo(np.float64).eps)
            self._centred[:, d + 1] = (1.0 - loss) * norms - SMALLEST
            self._slack = 2.0 * loss * norms + 2.0 * SMALLEST

    def __len__(self) -> int:
        return len(self._points)

    def rows(self, slots: Ints) -> DistanceBounds:
        """Bounds as wide as the two points' own norms make them: an outlier widens but its own."""
        left = self._centred[slots]  # and then -2 x, the bound, 1
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            left[:, :-2] *= -2.0
            left[:, -2:] = left[:, :-3:-1].copy()
            lower = left @ self._centred.T
        return DistanceBounds(
            slots,
            lower,
            self._slack,
            self._slack[slots],
            partial(_compute_exact_squares, self._points[slots], self._points),
        )


def _compute_exact_squares(left: Floats, right: Floats, rows: Ints, columns: Ints) -> Floats:
    """Squared distances of rows of ``left`` and rows of ``right``, by differences, shape (p,)."""
    d2 = np.empty(len(rows))
    step = max(1, CELLS // max(1, right.shape[1]))
    with np.errstate(over="ignore", under="ignore"):
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            differences = left[rows[part]] - right[columns[part]]
            np.einsum("ij,ij->i", differences, differences, out=d2[part])
    return d2


class DistanceTable:
    """Distances that are looked up: some rows given, others read when they are needed."""

    def __init__(self, slots: Ints, d2: Floats, read_rows: Callable[[Ints], Floats]) -> None:
        """Rows d2 (b, n) of ``slots``; ``read_rows`` gives those of any other slots, (b', n).

        Entries of both for the same two slots are the same.
        """
        self._d2 = d2
        self._read_rows = read_rows
        self._at = np.full(d2.shape[1], -1)
        self._at[slots] = np.arange(len(slots))

    def __len__(self) -> int:
        return len(self._at)

    def rows(self, slots: Ints) -> DistanceBounds:
        """The distances are their own bounds."""
        at = self._at[slots]
        d2 = self._d2[at] if len(self._d2) else np.empty((len(slots), len(self)))
        if (at < 0).any():
            d2[at < 0] = self._read_rows(slots[at < 0])
        return DistanceBounds(
            slots,
            d2,
            np.zeros(len(self)),
            np.zeros(len(slots)),
            lambda rows, columns: d2[rows, columns],
        )


@dataclass(frozen=True, slots=True, eq=False)
class SquaredDistances:
    """Squared distances between the objects of n slots: of points by differences, or as learned."""

    points: Floats  # (n, d); d is 0 where only distances are known
    # slots -> unsquared distances (b, n), of objects of which only distances are known.
    read_distances: Callable[[Ints], Floats] | None = None

    def __len__(self) -> int:
        return len(self.points)

    def rows(self, slots: Ints) -> Floats:
        """From some slots to all, (b, n)."""
        if self.read_distances is not None:
            return self.read_distances(slots) ** 2
        with np.errstate(over="ignore", under="ignore"):
            return squared_distances(self.points[slots], self.points, 0.0)
