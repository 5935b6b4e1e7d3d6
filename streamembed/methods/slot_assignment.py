"""Where the events of a chunk go: which of them get a slot of the support, and which slot."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamembed.geometry.kernel_matrix import Graph
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.support import Support, fill, slots_for
from streamembed.landmarks import absorption, covering
from streamembed.landmarks.absorption import Cover
from streamembed.methods.chunk import Chunk
from streamembed.methods.options import Config
from streamembed.numeric.arrays import Floats, Ints

__all__ = ["Assigned", "arrange_distances", "assign", "fill_slots"]


@dataclass(frozen=True, slots=True, eq=False)
class Assigned:
    """Where the events of a chunk go: slots and the event that each now holds, and all masses.

    Among landmarks also the nearest of them for each event, and the squared distance, (c,); with a
    clock of event times, that of the newest.
    """

    slots: Ints
    events: Ints
    masses: Floats
    cover: Cover | None
    near: Ints | None = None
    near_d2: Floats | None = None
    time: float | None = None


def assign(
    support: Support,
    cover: Cover | None,
    distances: Graph | None,
    position: int,
    scaling: Scaling,
    chunk: Chunk,
    config: Config,
    time: float | None = None,
) -> Assigned:
    """Slots for the events that get one: all, or, among landmarks, the novel ones."""
    count = len(chunk)
    if cover is None:
        slots = slots_for(position, count, config.window)
        masses = np.ones(max(len(support), int(slots.max()) + 1))
        return Assigned(slots, np.arange(count, dtype=np.int64), masses, None)
    size, times = config.size, chunk.times
    if times is None:  # positions are the times, and the newest is that of the event before
        times, time = np.arange(position, position + count, dtype=np.float64), position - 1.0
    masses, weights, newest = covering.fade(support.masses, time or 0.0, times, config.half_life)
    if chunk.known is None or chunk.among is None:
        arriving = scaling.apply(chunk.points)
        geometry: absorption.Geometry = absorption.Points(support.scaled, arriving, size)
    else:
        held = np.zeros((0, 0)) if distances is None else distances.weights
        known = np.empty_like(chunk.known)
        known[:, support.oldest_first] = chunk.known
        geometry = absorption.Distances(held, known, chunk.among, size)
    taken = absorption.absorb(cover, masses, geometry, weights, size, position - support.births)
    return Assigned(
        taken.slots,
        taken.events,
        taken.masses,
        taken.cover,
        taken.near,
        taken.near_d2,
        None if chunk.times is None else newest,
    )


def fill_slots(
    support: Support, placed: Assigned, scaling: Scaling, chunk: Chunk, births: Ints
) -> Support:
    """The support with the chunk in its slots."""
    events = placed.events
    points = chunk.points[events]
    return fill(
        support,
        placed.slots,
        points,
        scaling.apply(points),
        chunk.ids[events],
        births[events],
        placed.masses,
    )


def arrange_distances(support: Support, placed: Assigned, chunk: Chunk) -> Floats | None:
    """Unsquared distances of the new slots to all slots in use afterwards, shape (b, n')."""
    if chunk.known is None or chunk.among is None:
        return None
    slots, events = placed.slots, placed.events
    rows = np.zeros((len(slots), len(placed.masses)))
    rows[:, support.oldest_first] = chunk.known[events]
    rows[:, slots] = chunk.among[np.ix_(events, events)]
    return rows
