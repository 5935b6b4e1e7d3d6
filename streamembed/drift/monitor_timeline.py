"""The timeline of a monitor: of every stretch of the stream the loudest value of each channel.

Its memory is bounded: where there are too many stretches, two become one, of twice the length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from streamembed.numeric.arrays import Array, Floats, Ints

__all__ = ["ALL_CHANNELS", "PHASES", "Record", "empty"]

ALL_CHANNELS = (
    "coverage",
    "coordinates",
    "features",
    "spread",
    "labels",
    "spectrum",
    "metric",
)
PHASES = ("collecting", "watching", "relearning", "stopped")
LENGTH = 100  # events of a stretch, at first
MOST = 1024

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
class Record:
    """Stretches of the stream, ascending.

    Attributes
    ----------
    length : int
        Events of a stretch.
    positions : (s,)
        Events of the stream when each ended.
    phases : (s,)
        What the monitor did in it, by number.
    logs, statistics : (s, 7)
        Log of the equivalent run length of each channel, and the statistic; nan where there is
        none.
    memories : (s, 7)
    """

    length: int
    positions: Annotated[Ints, "s"]
    phases: Annotated[Ints, "s"]
    logs: Annotated[Floats, "s 7"]
    statistics: Annotated[Floats, "s 7"]
    memories: Annotated[Ints, "s 7"]

    def followed_by(
        self, positions: Ints, phase: str, logs: Floats, statistics: Floats, memories: Ints
    ) -> Record:
        """With values of some chunks that end at ``positions``, shapes (c,) and (c, 7)."""
        phases = np.full(len(positions), PHASES.index(phase), dtype=np.int64)
        return self._joined((positions, phases, logs, statistics, memories))

    def _joined(self, more: tuple[Array, ...]) -> Record:
        mine = (self.positions, self.phases, self.logs, self.statistics, self.memories)
        # what lies before the last stretch does not change
        cut = max(len(self.positions) - 1, 0)
        tail = tuple(np.concatenate([a[cut:], b]) for a, b in zip(mine, more, strict=True))
        merged = _merged(self.length, *tail)
        parts = [np.concatenate([a[:cut], b]) for a, b in zip(mine, merged, strict=True)]
        length = self.length
        while len(parts[0]) > MOST:
            length *= 2
            parts = list(_merged(length, *parts))
        return Record(length, *parts)

    def table(self) -> pa.Table:
        """A row for each stretch and channel that was watched in it; null where none was."""
        rows: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        for s, position in enumerate(self.positions.tolist()):
            state = PHASES[int(self.phases[s])]
            told: list[int] = np.flatnonzero(~np.isnan(self.logs[s])).tolist()
            columns: list[int | None] = [*told] or [None]
            for j in columns:
                rows["position"].append(position)
                rows["state"].append(state)
                rows["channel"].append(None if j is None else ALL_CHANNELS[j])
                rows["memory"].append(None if j is None else int(self.memories[s, j]))
                rows["statistic"].append(None if j is None else float(self.statistics[s, j]))
                log = None if j is None else min(float(self.logs[s, j]), 709.0)
                rows["run_length"].append(None if log is None else float(np.exp(log)))
        return pa.table(rows, schema=SCHEMA)


def empty() -> Record:
    """Of a stream that has not begun."""
    none = np.zeros(0, dtype=np.int64)
    wide = len(ALL_CHANNELS)
    return Record(
        LENGTH,
        none,
        none,
        np.zeros((0, wide)),
        np.zeros((0, wide)),
        np.zeros((0, wide), dtype=np.int64),
    )


def _merged(
    length: int, positions: Ints, phases: Ints, logs: Floats, statistics: Floats, memories: Ints
) -> tuple[Array, ...]:
    """One row for neighbours of one stretch and phase: the largest run lengths of them."""
    if not len(positions):
        return positions, phases, logs, statistics, memories
    stretch = (positions - 1) // length
    new = np.diff(stretch) != 0
    if (
        length == LENGTH
    ):  # of longer stretches the last phase counts, so that their number is bounded
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
