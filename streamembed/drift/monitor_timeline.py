"""The timeline of a monitor: the strongest value of each channel in every stretch of the stream.

Its memory is bounded: when there are too many stretches, pairs are merged, to twice the length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pyarrow as pa

from streamembed.numeric.arrays import Array, Floats, Ints

EVENT_CHANNELS = ("coverage", "coordinates", "features", "spread", "labels")
ALL_CHANNELS = (*EVENT_CHANNELS, "spectrum", "metric")
PHASES = ("collecting", "watching", "relearning", "stopped")
STRETCH_LENGTH = 100  # events of a stretch, at first
MAX_STRETCHES = 1024

SCHEMA = pa.schema(
    {
        "position": pa.int64(),
        "channel": pa.string(),
        "memory": pa.int32(),
        "statistic": pa.float64(),
        "run_length": pa.float64(),
        "state": pa.string(),
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class MonitorTimeline:
    """Stretches of the stream, ascending."""

    length: int  # events of a stretch
    positions: Annotated[Ints, "s"]  # events of the stream when each ended
    phases: Annotated[Ints, "s"]  # state of the monitor in each, as an index of `PHASES`
    # Log of the equivalent run length of each channel, and the statistic; nan where there is none.
    logs: Annotated[Floats, "s 7"]
    statistics: Annotated[Floats, "s 7"]
    memories: Annotated[Ints, "s 7"]

    def append_chunks(
        self, positions: Ints, phase: str, logs: Floats, statistics: Floats, memories: Ints
    ) -> MonitorTimeline:
        """The timeline with some more chunks that end at ``positions``, shapes (c,) and (c, 7)."""
        phases = np.full(len(positions), PHASES.index(phase), dtype=np.int64)
        return self._append((positions, phases, logs, statistics, memories))

    def _append(self, more: tuple[Array, ...]) -> MonitorTimeline:
        own = (self.positions, self.phases, self.logs, self.statistics, self.memories)
        # stretches before the last do not change
        cut = max(len(self.positions) - 1, 0)
        tail = tuple(np.concatenate([a[cut:], b]) for a, b in zip(own, more, strict=True))
        merged = _merge_rows(self.length, *tail)
        parts = [np.concatenate([a[:cut], b]) for a, b in zip(own, merged, strict=True)]
        length = self.length
        while len(parts[0]) > MAX_STRETCHES:
            length *= 2
            parts = list(_merge_rows(length, *parts))
        return MonitorTimeline(length, *parts)

    def table(self) -> pa.Table:
        """One row per stretch and watched channel; one row with nulls where none was watched."""
        rows = []
        for s, position in enumerate(self.positions.tolist()):
            state = PHASES[int(self.phases[s])]
            watched = np.flatnonzero(~np.isnan(self.logs[s])).tolist()
            rows += [
                {
                    "position": position,
                    "channel": ALL_CHANNELS[j],
                    "memory": int(self.memories[s, j]),
                    "statistic": float(self.statistics[s, j]),
                    "run_length": float(np.exp(min(float(self.logs[s, j]), 709.0))),
                    "state": state,
                }
                for j in watched
            ] or [{"position": position, "state": state}]
        return pa.Table.from_pylist(rows, schema=SCHEMA)


def create_timeline() -> MonitorTimeline:
    """The empty timeline."""
    no_events = np.zeros(0, dtype=np.int64)
    width = len(ALL_CHANNELS)
    return MonitorTimeline(
        STRETCH_LENGTH,
        no_events,
        no_events,
        np.zeros((0, width)),
        np.zeros((0, width)),
        np.zeros((0, width), dtype=np.int64),
    )


def _merge_rows(
    length: int, positions: Ints, phases: Ints, logs: Floats, statistics: Floats, memories: Ints
) -> tuple[Array, ...]:
    """One row for neighbours of one stretch and phase: the largest run lengths of them."""
    if not len(positions):
        return positions, phases, logs, statistics, memories
    stretch = (positions - 1) // length
    new = np.diff(stretch) != 0
    # of longer stretches the last phase counts, so that their number is bounded
    if length == STRETCH_LENGTH:
        new |= np.diff(phases) != 0
    starts = np.flatnonzero(np.concatenate([[True], new]))
    stops = np.append(starts[1:], len(positions))
    filled = np.where(np.isnan(logs), -np.inf, logs)
    columns = np.arange(logs.shape[1])
    chosen = np.array([a + filled[a:b].argmax(axis=0) for a, b in zip(starts, stops, strict=True)])
    last = stops - 1
    return (
        positions[last],
        phases[last],
        logs[chosen, columns],
        statistics[chosen, columns],
        memories[chosen, columns],
    )
