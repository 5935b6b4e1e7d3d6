"""Landmarks of several covers as those of one: all of them, and the heaviest that fit.

`union` puts them in one order that hangs on nothing but themselves, so that whatever is computed
behind it is the same whoever came first. `thin` takes the heaviest first and leaves out what lies
within a radius of one that was taken; the radius is the least, found by bisection, at which no more
than M stay. A landmark that is left out shares its mass among its 8 nearest that stay.

Every landmark is then within the radius of one that stays, and those that stay are farther apart
than that. Rings, rolls and drifting rings of 8 partitions have the eigenvalues of one cover
(scenario ``merged-landmarks``; docs/decisions/0020 has what else was tried).

Symbols: n = landmarks, M = those that may stay, d2 = squared distances, r = radius.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.spatial.distance import cdist

from streamembed.landmarks.absorption import HEIRS
from streamembed.numeric.arrays import Bools, Floats, Ints

__all__ = ["Landmarks", "Net", "closest", "thin", "union"]

# Of the bisection in log r^2, from the least double on, for one far landmark may be any number of
# times as far as the others are apart: it ends after so many halvings, or where this share of M
# stays. Greedy nets do not shrink steadily as the radius grows, so all of it is part of the answer.
LEAST = float(np.finfo(np.float64).tiny)
HALVINGS = 40
ENOUGH = 0.995
# So many squared distances are held at most, 48 MB: rows that the next halving asks for again.
HELD = 6_000_000
TILE = 256


@dataclass(frozen=True, slots=True, eq=False)
class Landmarks:
    """Landmarks of one cover, or of several.

    Attributes
    ----------
    points : (n, d)
        Raw, in the caller's units.
    masses : (n,)
        Positive.
    keys : (n, 2)
        Partition, and position in it, of the event that each was; int64.
    stale : (n,)
        Those that their own cover would give up first.
    """

    points: Floats
    masses: Floats
    keys: Ints
    stale: Bools

    def __len__(self) -> int:
        return len(self.masses)

    def take(self, index: Ints) -> Self:
        """Some of them, in that order."""
        parts = self.points[index], self.masses[index], self.keys[index], self.stale[index]
        return type(self)(*parts)

    @property
    def order(self) -> Ints:
        """Indices by coordinates, partition, position and mass, shape (n,)."""
        position, partition = self.keys[:, 1], self.keys[:, 0]
        found: Ints = np.lexsort((self.masses, position, partition, *self.points.T[::-1]))
        return found


def union(parts: Sequence[Landmarks]) -> Landmarks:
    """All landmarks of some covers, of equal points one, in the order of `Landmarks.order`.

    The same bits in whatever order the covers come. Of equal points the smallest key stays, with
    their exact sum of masses; it is stale where all are. O(n d log n).
    """
    every = Landmarks(
        np.concatenate([part.points for part in parts]) + 0.0,  # -0.0 becomes 0.0
        np.concatenate([part.masses for part in parts]),
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.stale for part in parts]),
    )
    every = every.take(every.order)
    differs = (every.points[1:] != every.points[:-1]).any(axis=1)
    starts = np.flatnonzero(np.concatenate([[True], differs])[: len(every)])
    if len(starts) == len(every):
        return every
    kept = every.take(starts)
    ends = np.append(starts[1:], len(every))
    for at in np.flatnonzero(ends - starts > 1).tolist():
        group = slice(starts[at], ends[at])
        kept.masses[at] = math.fsum(every.masses[group].tolist())
        kept.stale[at] = every.stale[group].all()
    return kept


@dataclass(frozen=True, slots=True, eq=False)
class Net:
    """What is left of landmarks that were too many.

    Attributes
    ----------
    kept : (m,)
        Indices of those that stay, ascending.
    masses : (m,)
        Theirs, afterwards.
    radius : float
        Within it of one that stays is every landmark; 0 where all stay.
    """

    kept: Ints
    masses: Floats
    radius: float


def thin(landmarks: Landmarks, scaled: Floats, size: int, first: Bools | None = None) -> Net:
    """At most ``size`` of some landmarks, with the mass of all.

    Parameters
    ----------
    landmarks
        In the order of `union`: ties go to those before.
    scaled
        Their points as the kernel sees them, (n, d), finite.
    size
        M, at least 1.
    first
        Those that are to stay if they can, (n,): before heavier ones, so that landmarks change
        little from one merge to the next.

    Returns
    -------
    O(M n d) for each of some 20 halvings, less what is held.

    Examples
    --------
    >>> line = np.array([[0.0], [1.0], [5.0], [5.5], [9.0]])
    >>> nobody = np.zeros(5, dtype=bool)
    >>> keys = np.column_stack([np.zeros(5, dtype=np.int64), np.arange(5)])
    >>> five = Landmarks(line, np.array([3.0, 1, 1, 4, 2]), keys, nobody)
    >>> found = thin(five, line, 3)
    >>> found.kept.tolist(), round(found.masses.sum(), 9).item()
    ([0, 3, 4], 11.0)
    """
    n = len(landmarks)
    if n <= size:
        return Net(np.arange(n, dtype=np.int64), landmarks.masses, 0.0)
    later = np.zeros(n, dtype=bool) if first is None else ~first
    order = np.lexsort((np.arange(n), -landmarks.masses, landmarks.stale, later))
    ordered = scaled[order]
    row = _rows_of(ordered)
    low, high = LEAST, float(row(0).max())
    found = np.zeros(1, dtype=np.int64)  # within the largest distance to the first it stays alone
    for _ in range(HALVINGS):
        middle = math.sqrt(low) * math.sqrt(high)
        kept = _greedy(row, n, size, middle)
        if kept is None:
            low = middle
            continue
        found, high = kept, middle
        if len(kept) >= ENOUGH * size:
            break
    places = np.sort(order[found])
    masses = _share_out(landmarks.masses, scaled, places, high)
    return Net(places, masses, math.sqrt(high))


def _rows_of(points: Floats) -> Callable[[int], Floats]:
    """Squared distances of one point to all, by differences; those asked for first are held."""
    held: dict[int, Floats] = {}
    room = HELD // len(points)

    def row(i: int) -> Floats:
        found = held.get(i)
        if found is None:
            found = cdist(points[i : i + 1], points, "sqeuclidean")[0]
            if len(held) < room:
                held[i] = found
        return found

    return row


def _greedy(row: Callable[[int], Floats], n: int, size: int, radius2: float) -> Ints | None:
    """Those that no one before is near, in order; None where more than ``size`` would stay."""
    free = np.ones(n, dtype=bool)
    kept: list[int] = []
    at = 0
    while True:
        at += int(free[at:].argmax())
        if not free[at]:
            return np.array(kept, dtype=np.int64)
        if len(kept) == size:
            return None
        kept.append(at)
        free &= row(at) > radius2
        free[at] = False  # whatever its distance to itself


def _share_out(masses: Floats, scaled: Floats, kept: Ints, radius2: float) -> Floats:
    """Masses of those that stay, with what the others leave to their nearest.

    In the order of the landmarks, each to its heirs by distance and then by order: sums round, and
    are to round alike.
    """
    result, heirs_of = masses[kept].copy(), scaled[kept]
    count = min(HEIRS, len(kept))
    left = np.delete(np.arange(len(masses)), kept)
    for start in range(0, len(left), TILE):
        leaving = left[start : start + TILE]
        d2 = cdist(scaled[leaving], heirs_of, "sqeuclidean")
        heirs = _nearest(d2, count)
        near = np.take_along_axis(d2, heirs, axis=1)
        weights = np.zeros_like(near)
        weights[:, 0] = 1.0
        if radius2 > 0.0:
            with np.errstate(under="ignore"):
                weights = np.exp((near[:, :1] - near) / radius2)
        shares = weights * (masses[leaving] / weights.sum(axis=1))[:, None]
        np.add.at(result, heirs, shares)
    return result


def _nearest(d2: Floats, count: int) -> Ints:
    """Columns of the smallest entries of each row, by (entry, column), shape (rows, count)."""
    if d2.shape[1] <= count:
        return np.argsort(d2, axis=1, kind="stable")
    some = np.sort(np.argpartition(d2, count - 1, axis=1)[:, :count], axis=1)
    near = np.take_along_axis(d2, some, axis=1)
    found: Ints = np.take_along_axis(some, np.argsort(near, axis=1, kind="stable"), axis=1)
    # where the last of them ties with one outside, which of the two comes is not told
    tied = (d2 <= near.max(axis=1)[:, None]).sum(axis=1) > count
    found[tied] = np.argsort(d2[tied], axis=1, kind="stable")[:, :count]
    return found


def closest(scaled: Floats) -> float:
    """Distance of the closest pair of points (n, d); 0 where there is none."""
    n, least = len(scaled), np.inf
    for start in range(0, n, TILE):
        tile = cdist(scaled[start : start + TILE], scaled, "sqeuclidean")
        rows = np.arange(len(tile))
        tile[rows, start + rows] = np.inf
        least = min(least, float(tile.min()))
    return math.sqrt(least) if least < np.inf else 0.0
