"""Which events of an unbounded stream become landmarks, and which add to the mass of one.

A support of fixed size covers the stream: an event nearer to a landmark than the closest pair of
landmarks are to one another is redundant and adds to that landmark's mass; a novel one takes a
slot. Where none is free, the lighter of the closest pair gives up its slot and shares its mass
among its neighbours. The radius of the cover is that closest pair's distance: no parameter, and
without forgetting it only grows. Mass is conserved.

Symbols: n = landmarks, c = events of the chunk, M = slots, d2 = squared distances.

Source: docs/algorithms/landmarks.md. The rule is that of doubling algorithms for incremental
k-center (Charikar et al., 1997), with the mass kept as the weight of a quadrature. Differs: such
algorithms merge a center into one other; a mass that moves whole moves the measure by the radius,
one that is shared among the neighbours on all sides hardly at all (measured on that page).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Protocol

import numpy as np
import scipy

from streamembed.geometry.pairwise import choose_center
from streamembed.numeric.arrays import Array, Bools, Floats, Ints

# A landmark lighter than this share of the mean mass, after so many events a slot, is stale: an
# outlier, or the place of a mass that has faded. It gives up its slot before any pair does, or
# else outliers would take one slot after the other from where the mass is.
STALE = 0.02
STALE_AFTER = 10
# A landmark that gives up its slot shares its mass among this many neighbours, with weights that
# fall to 1/e where the squared distance has grown by a squared radius. Compared with merging into
# the nearest, the eigenvalues are up to 3 times nearer to those of a batch map.
MASS_NEIGHBORS = 8
# Masses below this share of the total are kept there: they add nothing to it in double precision.
# In units of the total, masses, m a = m q^-alpha and the normalisation s then lie between this
# share and its inverse, for every alpha in [0, 2]. Products with weights are taken in float32, of
# these and of their quotients: eight decades are left to either end of its range.
LEAST_MASS = 1e-15
TILE = 256
TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, slots=True, eq=False)
class Cover:
    """The nearest other landmark of each, and so the closest pair."""

    # Slot, int64; -1 for a landmark that is alone.
    nearest: Annotated[Ints, "slots", "one of its rows or -1"]
    # Squared distance to it, inf for a landmark that is alone.
    nearest_d2: Annotated[Floats, "slots"]

    @classmethod
    def empty(cls) -> Cover:
        """The cover of no landmarks."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros(0))

    @classmethod
    def of(cls, points: Floats) -> Cover:
        """The cover of scaled points (n, d), from scratch. O(n^2 d), in tiles of rows."""
        n = len(points)
        nearest, nearest_d2 = np.full(n, -1, dtype=np.int64), np.full(n, np.inf)
        for start in range(0, n if n > 1 else 0, TILE):
            slots = np.arange(start, min(n, start + TILE))
            d2 = scipy.spatial.distance.cdist(points[slots], points, "sqeuclidean")
            d2[np.arange(len(slots)), slots] = np.inf
            nearest[slots], nearest_d2[slots] = d2.argmin(axis=1), d2.min(axis=1)
        return cls(nearest, nearest_d2)

    def radius2(self, size: int) -> float:
        """Squared radius: that of the closest pair; 0 while there are free slots among ``size``."""
        if len(self.nearest) < size:
            return 0.0
        return float(self.nearest_d2.min())


class SlotGeometry(Protocol):
    """Squared distances between arriving events and the current content of the slots."""

    def nearest(self) -> tuple[Ints, Floats]:
        """For every event: the nearest slot as the chunk begins, and the squared distance."""

    def row(self, event: int) -> Floats:
        """From one event to every slot in use, shape (n,)."""

    def rows(self, slots: Ints) -> Floats:
        """From some slots to every slot in use, shape (b, n)."""

    def place(self, event: int, slot: int) -> None:
        """Put an event into a slot; a slot at the end is new."""


class PointGeometry:
    """A geometry of coordinates."""

    def __init__(self, points: Floats, arriving: Floats, size: int) -> None:
        """Points of the slots (n, d) and arriving points (c, d), in scaled units."""
        self._n = len(points)
        self._points = np.empty((max(size, len(points)), arriving.shape[1]))
        self._points[: self._n] = points
        self._arriving = arriving

    def nearest(self) -> tuple[Ints, Floats]:
        """The nearest slot of each event, by one product, and the squared distance by differences.

        An event so far away that rounding misleads the product falls through to `row`.
        """
        c, d = self._arriving.shape
        points = self._points[: self._n]
        center = choose_center(points)
        left, right = np.ones((c, d + 1)), np.empty((self._n, d + 1))
        with np.errstate(over="ignore", invalid="ignore"):
            np.subtract(self._arriving, center, out=left[:, :d])
            np.subtract(points, center, out=right[:, :d])
            right[:, d] = np.einsum("ij,ij->i", right[:, :d], right[:, :d])
            right[:, :d] *= -2.0
            near = (left @ right.T).argmin(axis=1)
            differences = self._arriving - points[near]
            d2: Floats = np.einsum("ij,ij->i", differences, differences)
        return near, d2

    def row(self, event: int) -> Floats:
        """By differences, O(n d)."""
        row: Floats = scipy.spatial.distance.cdist(
            self._arriving[event : event + 1], self._points[: self._n], "sqeuclidean"
        )[0]
        return row

    def rows(self, slots: Ints) -> Floats:
        """By differences, O(b n d)."""
        points = self._points[: self._n]
        rows: Floats = scipy.spatial.distance.cdist(points[slots], points, "sqeuclidean")
        return rows

    def place(self, event: int, slot: int) -> None:
        """O(d)."""
        self._points[slot] = self._arriving[event]
        self._n = max(self._n, slot + 1)


class DistanceGeometry:
    """A geometry of objects without coordinates: everything is looked up."""

    def __init__(self, slots: Array, to_slots: Floats, to_events: Floats, size: int) -> None:
        """Unsquared distances: ``slots`` (n, n) between the slots, ``to_slots`` (c, n) and
        ``to_events`` (c, c) from the events.

        A slot's content is an index into the slots as they were, followed by the events.
        """
        self._n = self._first = len(slots)
        self._slots = slots
        self._to_slots = to_slots
        self._events = np.concatenate([to_slots, to_events], axis=1)
        self._content = np.empty(max(size, self._n), dtype=np.int64)
        self._content[: self._n] = np.arange(self._n)

    def nearest(self) -> tuple[Ints, Floats]:
        """The nearest slot of each event, and the squared distance: the smallest entry of a row."""
        near = self._to_slots.argmin(axis=1)
        d = self._to_slots[np.arange(len(near)), near]
        return near, d * d

    def row(self, event: int) -> Floats:
        """One row, in the order of the slots."""
        d: Floats = self._events[event][self._content[: self._n]]
        return d * d

    def rows(self, slots: Ints) -> Floats:
        """A row for each slot, of its old content or of the event that it holds now."""
        content = self._content[: self._n]
        rows = np.empty((len(slots), self._n))
        for i, index in enumerate(self._content[slots].tolist()):
            if index < self._first:
                distances = np.concatenate([self._slots[index], self._to_slots[:, index]])
            else:
                distances = self._events[index - self._first]
            rows[i] = distances[content]
        return rows * rows

    def place(self, event: int, slot: int) -> None:
        """O(1)."""
        self._content[slot] = self._first + event
        self._n = max(self._n, slot + 1)


@dataclass(frozen=True, slots=True, eq=False)
class Absorption:
    """Where the events of a chunk go."""

    slots: Ints  # (b,): slots that hold another event than before, int64; of landmarks ascending
    events: Ints  # (b,): the event of the chunk in each
    masses: Floats  # (n',): of all slots, afterwards
    cover: Cover | None = None  # of landmarks, as all that follows
    # (c,): for every event the nearest slot at the start of the chunk, and the squared distance;
    # empty where there was no landmark.
    near: Ints | None = None
    near_d2: Floats | None = None


def absorb(
    cover: Cover, masses: Floats, geometry: SlotGeometry, weights: Floats, size: int, ages: Ints
) -> Absorption:
    """Take a chunk of events into a cover of at most ``size`` landmarks.

    Parameters
    ----------
    cover, masses
        Of the n landmarks before.
    geometry
        Distances, `PointGeometry` or `DistanceGeometry`; it is modified.
    weights
        Mass of each event, shape (c,), positive.
    size
        M, at least 2.
    ages
        Events since each landmark took its slot, shape (n,), int64.

    Returns
    -------
    Absorption
        ``masses.sum()`` has grown by ``weights.sum()``, but for rounding. O(c n d) for events that
        add mass; O(n d) more for each that takes a slot.

    Examples
    --------
    >>> import numpy as np
    >>> line = np.array([[0.0], [10.0], [0.0], [9.0], [30.0]])
    >>> no_ages = np.zeros(0, dtype=np.int64)
    >>> geometry = PointGeometry(line[:0], line, 3)
    >>> done = absorb(Cover.empty(), np.zeros(0), geometry, np.ones(5), 3, no_ages)
    >>> done.events.tolist(), done.masses.tolist()
    ([0, 1, 4], [2.0, 2.0, 1.0])
    """
    growing_cover = _GrowingCover(cover, masses, geometry, size, ages > STALE_AFTER * size)
    near, d2 = np.zeros(0, dtype=np.int64), np.zeros(0)
    if growing_cover.n:
        near, d2 = geometry.nearest()
        is_covered = d2 <= cover.radius2(size)
        growing_cover.masses[: growing_cover.n] += np.bincount(
            near[is_covered], weights[is_covered], growing_cover.n
        )
        novel = np.flatnonzero(~is_covered)
    else:
        novel = np.arange(len(weights))
    for event in novel.tolist():
        growing_cover.take(event, float(weights[event]))
    return growing_cover.result(near, d2)


def compute_shares(d2: Floats, radius2: float) -> Floats:
    """Shares of a mass (b, k) that its neighbours at squared distances ``d2`` (b, k) get.

    exp(-d2 / radius2), of a sum of 1 in each row: with a radius of 0 only the nearest get any.
    """
    with np.errstate(under="ignore", over="ignore"):
        weights = np.exp((d2.min(axis=1, keepdims=True) - d2) / max(radius2, TINY))
    shares: Floats = weights / weights.sum(axis=1, keepdims=True)
    return shares


class _GrowingCover:
    """The cover while the events of a chunk are added one by one."""

    def __init__(
        self, cover: Cover, masses: Floats, geometry: SlotGeometry, size: int, old: Bools
    ) -> None:
        self.n = len(masses)
        self.geometry = geometry
        self.size = size
        self.masses = np.zeros(size)
        self.masses[: self.n] = masses
        self.old = np.flatnonzero(old)
        self.nearest = np.full(size, -1, dtype=np.int64)
        self.nearest[: self.n] = cover.nearest
        self.nearest_d2 = np.full(size, np.inf)
        self.nearest_d2[: self.n] = cover.nearest_d2
        self.content = np.full(size, -1, dtype=np.int64)  # event in each slot, -1 where unchanged

    def take(self, event: int, weight: float) -> None:
        """Give a slot to one event, or its mass to the nearest landmark."""
        row = self.geometry.row(event)
        if self.n < self.size:
            nearest = int(row.argmin()) if self.n else 0
            if self.n and row[nearest] <= 0.0:
                self.masses[nearest] += weight
            else:
                self._insert(event, self.n, row, weight)
            return
        nearest = int(row.argmin())
        pair = int(self.nearest_d2.argmin())
        if row[nearest] <= self.nearest_d2[pair]:
            self.masses[nearest] += weight
            return
        freed = pair
        if self.masses[self.nearest[pair]] <= self.masses[pair]:
            freed = int(self.nearest[pair])
        if len(self.old):
            lightest = int(self.old[self.masses[self.old].argmin()])
            if self.masses[lightest] < STALE * self.masses.mean():
                freed = lightest
            self.old = self.old[self.old != freed]
        self._share_mass(freed)
        self._insert(event, freed, row, weight)

    def _share_mass(self, slot: int) -> None:
        """Give the mass of a landmark to its neighbours, most of it to the nearest."""
        d2 = self.geometry.rows(np.array([slot]))[0]
        d2[slot] = np.inf
        count = min(MASS_NEIGHBORS, self.n - 1)
        neighbors = np.argpartition(d2, count - 1)[:count]
        shares = compute_shares(d2[neighbors][None], float(self.nearest_d2.min()))[0]
        self.masses[neighbors] += shares * self.masses[slot]

    def _insert(self, event: int, slot: int, row: Floats, weight: float) -> None:
        """Put an event into a slot, and update the nearest neighbours of all others."""
        self.geometry.place(event, slot)
        if slot == self.n:
            self.n += 1
            row = np.append(row, np.inf)
        row[slot] = np.inf
        n = self.n
        nearest, nearest_d2 = self.nearest[:n], self.nearest_d2[:n]
        orphans = np.flatnonzero(nearest == slot)
        closer = row < nearest_d2
        nearest[closer], nearest_d2[closer] = slot, row[closer]
        orphans = orphans[~closer[orphans]]
        if len(orphans):
            rows = self.geometry.rows(orphans)
            rows[np.arange(len(orphans)), orphans] = np.inf
            nearest[orphans] = rows.argmin(axis=1)
            nearest_d2[orphans] = rows.min(axis=1)
        if n > 1:
            nearest[slot] = row.argmin()
            nearest_d2[slot] = row[nearest[slot]]
        self.masses[slot] = weight
        self.content[slot] = event

    def result(self, near: Ints, near_d2: Floats) -> Absorption:
        """The result of `absorb`: slots, their events, masses, the cover, and what was nearest."""
        slots = np.flatnonzero(self.content >= 0)
        masses = np.maximum(self.masses[: self.n], LEAST_MASS * self.masses.sum())
        return Absorption(
            slots,
            self.content[slots],
            masses,
            Cover(self.nearest[: self.n].copy(), self.nearest_d2[: self.n].copy()),
            near,
            near_d2,
        )
