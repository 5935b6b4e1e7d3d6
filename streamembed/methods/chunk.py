"""Events on their way into the state, points or objects known by distances; and their slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Self

import numpy as np

from streamembed.geometry.kernel_matrix import KernelMatrix
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.support import Support, fill
from streamembed.landmarks import absorption, covering
from streamembed.landmarks.absorption import Absorption, Cover
from streamembed.methods.options import Config
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.numeric.codec import NOT_SAVED, SAVED_IF_SET


@dataclass(frozen=True, slots=True, eq=False)
class AcceptedEvents:
    """Accepted events in the order of the stream: some that wait, or a whole chunk."""

    points: Annotated[Floats, "c d"]  # raw; (c, 0) for objects without coordinates
    ids: Annotated[Array, "c", "int64 or text", "different"]
    # For objects without coordinates: distances to the most recent objects, oldest first, and
    # behind them to the events of the chunk before; (L_i,) each.
    rows: tuple[Annotated[Floats, "*"], ...] | None = None
    # Class indices, -1 where unknown; None where no metric learns from labels.
    classes: Annotated[Ints, "c"] | None = None
    # Where masses fade by them; None where they fade by positions.
    times: Annotated[Floats, "c"] | None = field(default=None, metadata=SAVED_IF_SET)
    # Of a chunk of objects without coordinates, (c, n): unsquared distances to the n items of the
    # support, oldest first; inf where the item has left the window before the event came.
    distances: Floats | None = field(default=None, metadata=NOT_SAVED)
    # (c, c): the same to one another: symmetric, zero diagonal.
    mutual_distances: Floats | None = field(default=None, metadata=NOT_SAVED)

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def joined(cls, parts: Sequence[AcceptedEvents]) -> Self:
        """The same events in one array each."""
        rows = None
        if parts[0].rows is not None:
            rows = tuple(row for part in parts for row in part.rows or ())
        classes = None
        if parts[0].classes is not None:
            classes = np.concatenate([part.classes for part in parts if part.classes is not None])
        times = None
        if parts[0].times is not None:
            times = np.concatenate([part.times for part in parts if part.times is not None])
        return cls(
            np.concatenate([part.points for part in parts]),
            np.concatenate([part.ids for part in parts]),
            rows,
            classes,
            times,
        )

    def with_distances(self, n_objects: int) -> Self:
        """A chunk with the distances of its rows, beside a support of ``n_objects``."""
        rows, c = self.rows or (), len(self)
        distances, mutual_distances = np.full((c, n_objects), np.inf), np.zeros((c, c))
        for i, row in enumerate(rows):
            n_known = min(len(row) - i, n_objects)
            distances[i, n_objects - n_known :] = row[len(row) - i - n_known : len(row) - i]
            mutual_distances[i, :i] = mutual_distances[:i, i] = row[len(row) - i :]
        return replace(self, distances=distances, mutual_distances=mutual_distances)


def assign_slots(
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
        slots = position + np.arange(len(chunk), dtype=np.int64)
        if config.window is not None:  # event p takes the slot of the oldest, p mod size
            slots %= config.window
        masses = np.ones(max(len(support), int(slots.max()) + 1))
        assigned = Absorption(slots, np.arange(len(chunk), dtype=np.int64), masses)
    else:
        assigned, newest = _absorb(
            support, cover, distances, position, scaling, chunk, config, time=time
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
    """Slots for the novel events of a chunk, and masses; as `assign_slots`."""
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
