"""Landmarks and masses of a stream, without a map: the whole state of a partition.

An engine has a map beside them, which costs as much again: trial functions and a frame. Both
process a chunk to the same bits, by `fade` and
`streamembed.landmarks.absorption.absorb`.

Symbols: n = landmarks, c = events of the chunk, M = slots, h = half-life, T = clock.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamembed.geometry import support
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.support import Support
from streamembed.landmarks import absorption
from streamembed.landmarks.absorption import Cover
from streamembed.numeric.arrays import Bools, Floats, Ints

# The weight of an event that is too late to weigh anything: weights are positive.
LEAST_WEIGHT = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, slots=True, eq=False)
class Covering:
    """Landmarks between two chunks."""

    position: int  # events learned
    time: float  # T, the time of the newest event, to which the masses refer; 0 before the first
    support: Support  # its ids are the arrival positions
    cover: Cover


def init(n_features: int) -> Covering:
    """The landmarks before any event."""
    return Covering(0, 0.0, Support.empty(n_features, np.int64), Cover.empty())


def update(
    before: Covering,
    points: Floats,
    scaling: Scaling,
    size: int,
    half_life: float | None,
    times: Floats | None = None,
) -> Covering:
    """With one more chunk of raw points (c, d), c at least 1.

    O(c M d), and O(M d) for each event that takes a slot.

    Parameters
    ----------
    half_life
        In units of ``times``; None where nothing fades.
    times
        Of the events, (c,), in any order; None for their positions.
    """
    landmarks, position, count = before.support, before.position, len(points)
    if times is None:
        times = np.arange(position, position + count, dtype=np.float64)
    masses, weights, time = fade(landmarks.masses, before.time, times, half_life)
    scaled = scaling.apply(points)
    ages = position - landmarks.births
    geometry = absorption.PointGeometry(landmarks.scaled, scaled, size)
    outcome = absorption.absorb(before.cover, masses, geometry, weights, size, ages)
    assert outcome.cover is not None
    arrivals = position + outcome.events
    new = points[outcome.events], scaled[outcome.events]
    landmarks = support.fill(landmarks, outcome.slots, *new, arrivals, arrivals, outcome.masses)
    return Covering(position + count, time, landmarks, outcome.cover)


def fade(
    masses: Floats, time: float, times: Floats, half_life: float | None
) -> tuple[Floats, Floats, float]:
    """Masses (n,) as of the newest event, the weights of a chunk's events, (c,), and that time.

    An event of time t weighs 2^(-(T - t) / h) as of T, whenever it comes: a late one
    weighs less from the start, and needs no other treatment.

    Parameters
    ----------
    masses, time
        Masses as of that time; without masses the time does not matter.
    times
        Of the events, (c,).
    """
    newest = float(times.max())
    if len(masses):
        newest = max(newest, time)
    if half_life is None:
        return masses, np.ones(len(times)), newest
    with np.errstate(under="ignore"):
        weights = np.maximum(np.exp2(-(newest - times) / half_life), LEAST_WEIGHT)
        faded = masses * np.exp2(-(newest - time) / half_life) if len(masses) else masses
    return faded, weights, newest


def find_stale(masses: Floats, ages: Ints, size: int) -> Bools:
    """Which landmarks give up their slots first, shape (n,); see `landmarks.STALE`.

    Relative to the others of their own cover: in a merged one ages are unknown.
    """
    light = masses < absorption.STALE * masses.mean() if len(masses) else np.zeros(0, dtype=bool)
    return light & (ages > absorption.STALE_AFTER * size)
