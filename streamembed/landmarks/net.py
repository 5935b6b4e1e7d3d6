"""Landmarks of several covers as those of one: all of them, and the heaviest that fit.

`union` puts them in one order that depends on nothing but themselves, so that all later results are
the same in any order of the covers. `thin` takes the heaviest first and drops what lies within a
radius of one that was taken; the radius is the least, found by bisection, at which no more than M
stay. A landmark that is dropped shares its mass among its 8 nearest that stay.

Every landmark is then within the radius of one that stays, and those that stay are farther apart
than that. Rings, rolls and drifting rings of 8 partitions have the eigenvalues of one cover
(scenario ``merged-landmarks``).

Symbols: n = landmarks, M = those that may stay, d2 = squared distances, r = radius.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import scipy

from streamembed.landmarks.absorption import MASS_NEIGHBORS, TILE, Cover, compute_shares
from streamembed.numeric.arrays import LARGEST_VALUE, Bools, Floats, Ints
from streamembed.numeric.codec import Within

# The bisection in log r^2 starts at the least double, as one landmark may be arbitrarily far. It
# ends after this many halvings, or where this share of M stays. Greedy nets do not shrink steadily
# as the radius grows, so these constants are part of the result.
LEAST = float(np.finfo(np.float64).tiny)
HALVINGS = 40
ENOUGH = 0.995
# Squared distances in the cache, 48 MB: rows that the next halving needs again.
MAX_STORED = 6_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Landmarks:
    """Landmarks of one cover, or of several."""

    # Raw, in the caller's units.
    points: Annotated[Floats, "n d", Within(-LARGEST_VALUE, LARGEST_VALUE)]
    masses: Annotated[Floats, "n", "finite", "positive"]
    keys: Annotated[Ints, "n 2"]  # partition, and position in it, of each landmark's event
    stale: Annotated[Bools, "n"]  # those that their own cover would drop first

    def __len__(self) -> int:
        return len(self.masses)


def select(landmarks: Landmarks, index: Ints) -> Landmarks:
    """The landmarks with these indices, in that order."""
    points, masses = landmarks.points[index], landmarks.masses[index]
    return Landmarks(points, masses, landmarks.keys[index], landmarks.stale[index])


def find_order(landmarks: Landmarks) -> Ints:
    """Indices by coordinates, partition, position and mass, shape (n,)."""
    partition, position = landmarks.keys.T
    return np.lexsort((landmarks.masses, position, partition, *landmarks.points.T[::-1]))


def union(parts: Sequence[Landmarks]) -> Landmarks:
    """All landmarks of some covers, one for equal points, in the order of `find_order`.

    The same bits in any order of the covers. Of equal points the smallest key stays, with
    their exact sum of masses; it is stale where all are. O(n d log n).
    """
    landmarks = Landmarks(
        np.concatenate([part.points for part in parts]) + 0.0,  # -0.0 becomes 0.0
        np.concatenate([part.masses for part in parts]),
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.stale for part in parts]),
    )
    landmarks = select(landmarks, find_order(landmarks))
    differs = (landmarks.points[1:] != landmarks.points[:-1]).any(axis=1)
    starts = np.flatnonzero(np.concatenate([[True], differs])[: len(landmarks)])
    if len(starts) == len(landmarks):
        return landmarks
    unique = select(landmarks, starts)
    ends = np.append(starts[1:], len(landmarks))
    for i in np.flatnonzero(ends - starts > 1).tolist():
        group = slice(starts[i], ends[i])
        unique.masses[i] = math.fsum(landmarks.masses[group].tolist())
        unique.stale[i] = landmarks.stale[group].all()
    return unique


@dataclass(frozen=True, slots=True, eq=False)
class Net:
    """The landmarks that stay when there are too many."""

    indices: Ints  # (m,): indices of those that stay, ascending
    masses: Floats  # (m,): their masses, afterwards
    radius: float  # every landmark is within it of one that stays; 0 where all stay


def thin(landmarks: Landmarks, scaled: Floats, size: int, first: Bools | None = None) -> Net:
    """At most ``size`` of some landmarks, with the mass of all.

    Parameters
    ----------
    landmarks
        In the order of `union`: ties go to the earlier ones.
    scaled
        Their points in scaled units, (n, d), finite.
    size
        M, at least 1.
    first
        Those to keep if possible, (n,): before heavier ones, so that landmarks change little from
        one merge to the next.

    Returns
    -------
    O(M n d) for each of some 20 halvings, less what is cached.

    Examples
    --------
    >>> line = np.array([[0.0], [1.0], [5.0], [5.5], [9.0]])
    >>> none_stale = np.zeros(5, dtype=bool)
    >>> keys = np.column_stack([np.zeros(5, dtype=np.int64), np.arange(5)])
    >>> five = Landmarks(line, np.array([3.0, 1, 1, 4, 2]), keys, none_stale)
    >>> found = thin(five, line, 3)
    >>> found.indices.tolist(), round(found.masses.sum(), 9).item()
    ([0, 3, 4], 11.0)
    """
    n = len(landmarks)
    if n <= size:
        return Net(np.arange(n, dtype=np.int64), landmarks.masses, 0.0)
    later = np.zeros(n, dtype=bool) if first is None else ~first
    order = np.lexsort((np.arange(n), -landmarks.masses, landmarks.stale, later))
    row = _cache_rows(scaled[order])
    low, high = LEAST, float(row(0).max())
    best = np.zeros(1, dtype=np.int64)  # within the largest distance to the first, it alone stays
    for _ in range(HALVINGS):
        middle = math.sqrt(low) * math.sqrt(high)
        selected = _select_greedily(row, n, size, middle)
        if selected is None:
            low = middle
            continue
        best, high = selected, middle
        if len(selected) >= ENOUGH * size:
            break
    indices = np.sort(order[best])
    return Net(indices, _share_masses(landmarks.masses, scaled, indices, high), math.sqrt(high))


def _cache_rows(points: Floats) -> Callable[[int], Floats]:
    """Squared distances of one point to all, by differences; the first ones computed are cached."""
    cache: dict[int, Floats] = {}
    capacity = MAX_STORED // len(points)

    def row(i: int) -> Floats:
        distances = cache.get(i)
        if distances is None:
            distances = scipy.spatial.distance.cdist(points[i : i + 1], points, "sqeuclidean")[0]
            if len(cache) < capacity:
                cache[i] = distances
        return distances

    return row


def _select_greedily(
    row: Callable[[int], Floats], n: int, size: int, radius2: float
) -> Ints | None:
    """Those with no earlier one near, in order; None if more than ``size`` would stay."""
    is_free = np.ones(n, dtype=bool)
    selected: list[int] = []
    i = 0
    while True:
        i += int(is_free[i:].argmax())
        if not is_free[i]:
            return np.array(selected, dtype=np.int64)
        if len(selected) == size:
            return None
        selected.append(i)
        is_free &= row(i) > radius2
        is_free[i] = False  # whatever its distance to itself


def _share_masses(masses: Floats, scaled: Floats, retained: Ints, radius2: float) -> Floats:
    """Masses of those that stay, with the shares of those that are dropped.

    In the order of the landmarks, each to its nearest by distance and then by order, so that sums
    round in one way.
    """
    result, retained_points = masses[retained].copy(), scaled[retained]
    count = min(MASS_NEIGHBORS, len(retained))
    dropped = np.delete(np.arange(len(masses)), retained)
    for start in range(0, len(dropped), TILE):
        tile = dropped[start : start + TILE]
        d2 = scipy.spatial.distance.cdist(scaled[tile], retained_points, "sqeuclidean")
        neighbors = _find_nearest(d2, count)
        near = np.take_along_axis(d2, neighbors, axis=1)
        np.add.at(result, neighbors, compute_shares(near, radius2) * masses[tile, None])
    return result


def _find_nearest(d2: Floats, count: int) -> Ints:
    """Columns of the smallest entries of each row, by (entry, column), shape (rows, count)."""
    if d2.shape[1] <= count:
        return np.argsort(d2, axis=1, kind="stable")
    candidates = np.sort(np.argpartition(d2, count - 1, axis=1)[:, :count], axis=1)
    near = np.take_along_axis(d2, candidates, axis=1)
    columns: Ints = np.take_along_axis(candidates, np.argsort(near, axis=1, kind="stable"), axis=1)
    # where the last of them ties with one outside, argpartition may return either
    is_tied = (d2 <= near.max(axis=1)[:, None]).sum(axis=1) > count
    columns[is_tied] = np.argsort(d2[is_tied], axis=1, kind="stable")[:, :count]
    return columns


def measure_closest(scaled: Floats) -> float:
    """Distance of the closest pair of points (n, d); 0 where there is none."""
    return math.sqrt(Cover.of(scaled).radius2(2)) if len(scaled) > 1 else 0.0
