"""Where the events of a chunk go: which of them get a slot of the support, and which slot."""

from __future__ import annotations

import numpy as np

from streamembed.geometry.kernel_matrix import KernelMatrix
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.support import Support, choose_slots, fill
from streamembed.landmarks import absorption, covering
from streamembed.landmarks.absorption import Absorption, Cover
from streamembed.methods.chunk import Chunk
from streamembed.methods.options import Config
from streamembed.numeric.arrays import Floats, Ints


def assign(
    support: Support,
    cover: Cover | None,
    distances: KernelMatrix | None,
    position: int,
    scaling: Scaling,
    chunk: Chunk,
    config: Config,
    time: float | None = None,
) -> tuple[Absorption, float | None]:
    """Slots for the events that get one: all, or, among landmarks, the novel ones.

    With a clock of event times also the time of the newest.
    """
    count = len(chunk)
    if cover is None:
        slots = choose_slots(position, count, config.window)
        masses = np.ones(max(len(support), int(slots.max()) + 1))
        return Absorption(slots, np.arange(count, dtype=np.int64), masses), None
    size, times = config.size, chunk.times
    if times is None:  # positions are the times, and the newest is that of the event before
        times, time = np.arange(position, position + count, dtype=np.float64), position - 1.0
    masses, weights, newest = covering.fade(support.masses, time or 0.0, times, config.half_life)
    if chunk.distances is None or chunk.mutual_distances is None:
        new_points = scaling.apply(chunk.points)
        geometry: absorption.SlotGeometry = absorption.PointGeometry(
            support.scaled, new_points, size
        )
    else:
        support_distances = np.zeros((0, 0)) if distances is None else distances.weights
        new_distances = np.empty_like(chunk.distances)
        new_distances[:, support.oldest_first] = chunk.distances
        geometry = absorption.DistanceGeometry(
            support_distances, new_distances, chunk.mutual_distances, size
        )
    absorbed = absorption.absorb(cover, masses, geometry, weights, size, position - support.births)
    return absorbed, None if chunk.times is None else newest


def fill_slots(
    support: Support, assignment: Absorption, scaling: Scaling, chunk: Chunk, positions: Ints
) -> Support:
    """The support with the chunk in its slots."""
    events = assignment.events
    points = chunk.points[events]
    return fill(
        support,
        assignment.slots,
        points,
        scaling.apply(points),
        chunk.ids[events],
        positions[events],
        assignment.masses,
    )


def arrange_distances(support: Support, assignment: Absorption, chunk: Chunk) -> Floats | None:
    """Unsquared distances of the new slots to all slots in use afterwards, shape (b, n')."""
    if chunk.distances is None or chunk.mutual_distances is None:
        return None
    slots, events = assignment.slots, assignment.events
    rows = np.zeros((len(slots), len(assignment.masses)))
    rows[:, support.oldest_first] = chunk.distances[events]
    rows[:, slots] = chunk.mutual_distances[np.ix_(events, events)]
    return rows
