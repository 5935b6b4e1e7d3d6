"""The timeline of a monitor: the strongest value of each channel in every stretch of the stream.

Its memory is bounded: when there are too many stretches, pairs are merged, to twice the length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pyarrow as pa

from streamembed.drift.alarm import Alarm
from streamembed.numeric.arrays import Array, Ints

EVENT_CHANNELS = ("coverage", "coordinates", "features", "spread", "labels")
ALL_CHANNELS = (*EVENT_CHANNELS, "pairs")
PHASES = ("collecting", "watching", "relearning", "stopped")
STRETCH_LENGTH = 100  # events of a stretch, at first
MAX_STRETCHES = 384
SCORE_UNITS = 1_000_000

SCHEMA = pa.schema(
    {
        "position": pa.int64(),
        "channel": pa.string(),
        "memory": pa.int32(),
        "statistic": pa.float64(),
        "run_length": pa.float64(),
        "score": pa.float64(),
        "state": pa.string(),
        "kind": pa.string(),
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRows:
    """What some chunks add to the timeline, or what its stretches have."""

    positions: Annotated[Ints, "s"]  # events of the stream when each ended
    phases: Annotated[Array, "s"]  # state of the monitor in each, as an index of `PHASES`
    # Log of the equivalent run length of each channel, and the statistic; nan where there is none.
    logs: Annotated[Array, "s 6"]
    statistics: Annotated[Array, "s 6"]
    memories: Annotated[Array, "s 6"]
    # Sums of the anomaly scores of the events that were watched, in millionths: sums of whole
    # numbers do not depend on how the stream is cut; and how many events.
    scores: Annotated[Ints, "s"]
    counts: Annotated[Array, "s"]

    @classmethod
    def of(
        cls,
        positions: Ints,
        phase: str,
        table: tuple[Array, Array, Array],
        scores: Ints | None = None,
        chunk: int = 0,
    ) -> ChunkRows:
        """Rows of chunks that end at ``positions``; ``table`` is of (c, 6) each."""
        c = len(positions)
        logs, statistics, memories = table
        return cls(
            positions,
            np.full(c, PHASES.index(phase), dtype=np.int8),
            logs.astype(np.float32),
            np.clip(statistics, -1e38, 1e38).astype(np.float32),
            memories.astype(np.int32),
            np.zeros(c, np.int64) if scores is None else scores,
            np.full(c, chunk, dtype=np.int32),
        )

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, rows: slice) -> ChunkRows:
        return ChunkRows(*(a[rows] for a in self._arrays()))

    def _arrays(self) -> tuple[Array, ...]:
        return (
            self.positions,
            self.phases,
            self.logs,
            self.statistics,
            self.memories,
            self.scores,
            self.counts,
        )

    def followed_by(self, more: ChunkRows) -> ChunkRows:
        """These rows and some more."""
        pairs = zip(self._arrays(), more._arrays(), strict=True)
        return ChunkRows(*(np.concatenate(pair) for pair in pairs))

    def merge(self, length: int) -> ChunkRows:
        """One row for neighbours of one stretch and phase: the largest run lengths of them."""
        if not len(self):
            return self
        new = np.diff((self.positions - 1) // length) != 0
        # of longer stretches the last phase counts, so that their number is bounded
        if length == STRETCH_LENGTH:
            new |= np.diff(self.phases) != 0
        if len(self) == 2 and not new[0]:
            return self._merge_two()
        starts = np.flatnonzero(np.concatenate([[True], new]))
        stops = np.append(starts[1:], len(self))
        filled = np.where(np.isnan(self.logs), -np.inf, self.logs)
        columns = np.arange(self.logs.shape[1])
        pairs = zip(starts, stops, strict=True)
        chosen = np.array([a + filled[a:b].argmax(axis=0) for a, b in pairs])
        last = stops - 1
        return ChunkRows(
            self.positions[last],
            self.phases[last],
            self.logs[chosen, columns],
            self.statistics[chosen, columns],
            self.memories[chosen, columns],
            _add_up(self.scores, starts),
            _add_up(self.counts, starts),
        )

    def _merge_two(self) -> ChunkRows:
        """The same of two neighbours, as they come in a loop over events."""
        first, second = np.where(np.isnan(self.logs), -np.inf, self.logs)
        is_second = second > first
        best = (np.where(is_second, a[1], a[0])[None] for a in self._arrays()[2:5])
        sums = (a.sum(keepdims=True, dtype=a.dtype) for a in (self.scores, self.counts))
        return ChunkRows(self.positions[1:], self.phases[1:], *best, *sums)


def _add_up(values: Array, starts: Ints) -> Array:
    sums: Array = np.add.reduceat(values, starts)
    return sums


@dataclass(frozen=True, slots=True, eq=False)
class MonitorTimeline:
    """Stretches of the stream, ascending."""

    length: int  # events of a stretch
    rows: ChunkRows  # stretches that do not change any more, but the last of longer ones
    last: ChunkRows  # the last one

    def append(self, more: ChunkRows) -> MonitorTimeline:
        """The timeline with some more chunks."""
        tail = self.last.followed_by(more).merge(self.length)
        if len(tail) <= 1:
            return MonitorTimeline(self.length, self.rows, tail)
        rows, last, length = self.rows.followed_by(tail[:-1]), tail[-1:], self.length
        while len(rows) >= MAX_STRETCHES:
            length *= 2
            merged = rows.followed_by(last).merge(length)
            rows, last = merged[:-1], merged[-1:]
        return MonitorTimeline(length, rows, last)

    def table(self, records: Sequence[Alarm] = ()) -> pa.Table:
        """A row a stretch and watched channel, or one with nulls; and one a record, by its kind."""
        stretches = self.rows.followed_by(self.last)
        rows = []
        for s, position in enumerate(stretches.positions.tolist()):
            state = PHASES[int(stretches.phases[s])]
            count = int(stretches.counts[s])
            score = float(stretches.scores[s]) / (SCORE_UNITS * count) if count else None
            watched = np.flatnonzero(~np.isnan(stretches.logs[s])).tolist()
            rows += [
                {
                    "position": position,
                    "channel": ALL_CHANNELS[j],
                    "memory": int(stretches.memories[s, j]),
                    "statistic": float(stretches.statistics[s, j]),
                    "run_length": float(np.exp(min(float(stretches.logs[s, j]), 709.0))),
                    "score": score,
                    "state": state,
                }
                for j in watched
            ] or [{"position": position, "state": state}]
        rows += [
            {
                "position": record.position,
                "kind": record.kind,
                **(
                    {
                        "channel": record.channel,
                        "memory": record.memory,
                        "run_length": record.run_length,
                    }
                    if record.channel
                    else {}
                ),
            }
            for record in records
        ]
        rows.sort(key=lambda row: row["position"])
        return pa.Table.from_pylist(rows, schema=SCHEMA)


def create_timeline() -> MonitorTimeline:
    """The empty timeline."""
    none = np.zeros((0, len(ALL_CHANNELS)))
    empty = ChunkRows.of(np.zeros(0, dtype=np.int64), "watching", (none, none, none))
    return MonitorTimeline(STRETCH_LENGTH, empty, empty)
