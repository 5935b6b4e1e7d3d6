"""Where the events of a chunk go: which of them get a slot of the support, and which slot."""

from __future__ import annotations

import numpy as np

from streamembed.geometry.kernel_matrix import KernelMatrix
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.support import Support, choose_slots, fill
from streamembed.landmarks import absorption, covering
from streamembed.landmarks.absorption import Absorption, Cover
from streamembed.methods.chunk import AcceptedEvents
from streamembed.methods.options import Config
from streamembed.numeric.arrays import Floats


def assign(
    support: Support,
    cover: Cover | None,
    distances: KernelMatrix | None,
    position: int,
    scaling: Scaling,
    chunk: AcceptedEvents,
    config: Config,
    time: float | None = None,
) -> tuple[Support, Absorption, float | None]:
    """The support after a chunk: its events get a slot, all, or, among landmarks, the novel ones.

    With a clock of event times also the time of the newest.
    """
    newest = None
    if cover is None:
        slots = choose_slots(position, len(chunk), config.window)
        masses = np.ones(max(len(support), int(slots.max()) + 1))
        assigned = Absorption(slots, np.arange(len(chunk), dtype=np.int64), masses)
    else:
        assigned, newest = _absorb(
            support, cover, distances, position, scaling, chunk, config, time
        )
    events = assigned.events
    points = chunk.points[events]
    new = points, scaling.apply(points), chunk.ids[events], position + events
    return fill(support, assigned.slots, *new, assigned.masses), assigned, newest


def _absorb(
    support: Support,
    cover: Cover,
    distances: KernelMatrix | None,
    position: int,
    scaling: Scaling,
    chunk: AcceptedEvents,
    config: Config,
    time: float | None,
) -> tuple[Absorption, float | None]:
    """Slots for the novel events of a chunk, and masses; as `assign`."""
    count, size, times = len(chunk), config.size, chunk.times
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


def arrange_distances(support: Support, assignment: Absorption, chunk: AcceptedEvents) -> Floats:
    """Unsquared distances of the new slots to all slots in use afterwards, shape (b, n').

    ``support`` is that before the chunk, of objects without coordinates.
    """
    assert chunk.distances is not None
    assert chunk.mutual_distances is not None
    slots, events = assignment.slots, assignment.events
    rows = np.zeros((len(slots), len(assignment.masses)))
    rows[:, support.oldest_first] = chunk.distances[events]
    rows[:, slots] = chunk.mutual_distances[np.ix_(events, events)]
    return rows
