"""The timeline of a monitor: the strongest value of each channel in every stretch of the stream.

Its memory is bounded: when there are too many stretches, pairs are merged, to twice the length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from streamembed.drift.alarm import Alarm
from streamembed.numeric.arrays import Floats, Ints

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
        "run_length": pa.float64(),
        "score": pa.float64(),
        "state": pa.string(),
        "kind": pa.string(),
    }
)


_N = len(ALL_CHANNELS)
# Of a row: the event at which it ends, the phase as an index of `PHASES`, the sum of the anomaly
# scores of its events in millionths, and how many were watched. Sums of whole numbers do not depend
# on how the stream is cut.
_END, _PHASE, _SUMS = 0, 1, slice(2, 4)
# Then two values a channel, nan where it is not watched: log run length, memory.
_CHANNELS = slice(4, 4 + 2 * _N)


def build_rows(
    ends: Ints,
    phase: str,
    channels: Floats | None = None,
    scores: Ints | None = None,
    chunk: int = 0,
) -> Floats:
    """Rows of chunks that end at ``ends``.

    Parameters
    ----------
    channels
        Log run length and memory of each channel, shape (c, 2, 6); None without.
    scores
        Sums of the anomaly scores of their ``chunk`` events each, in millionths.
    """
    rows = np.full((len(ends), _CHANNELS.stop), np.nan)
    rows[:, _END], rows[:, _PHASE], rows[:, _SUMS] = ends, PHASES.index(phase), 0.0
    if channels is not None:
        rows[:, _CHANNELS] = channels.reshape(len(ends), 2 * _N)
    if scores is not None:
        rows[:, _SUMS] = np.stack([scores, np.full(len(ends), chunk)], axis=1)
    return rows


def _merge(rows: Floats, length: int) -> Floats:
    """One row for neighbours of one stretch and phase: the largest run lengths of them."""
    new = np.diff((rows[:, _END] - 1) // length) != 0
    # of longer stretches the last phase counts, so that their number is bounded
    if length == STRETCH_LENGTH:
        new |= np.diff(rows[:, _PHASE]) != 0
    starts = np.flatnonzero(np.concatenate([np.ones(min(len(rows), 1), dtype=np.bool_), new]))
    stops = np.append(starts[1:], len(rows))
    merged: Floats = rows[stops - 1]
    if len(merged) == len(rows):
        return merged
    merged[:, _SUMS] = np.add.reduceat(rows[:, _SUMS], starts)
    channels = rows[:, _CHANNELS].reshape(-1, 2, _N)
    logs = np.where(np.isnan(channels[:, 0]), -np.inf, channels[:, 0])
    for row, start, stop in zip(merged, starts, stops, strict=True):
        best = start + logs[start:stop].argmax(axis=0)
        row[_CHANNELS] = channels[best, :, np.arange(_N)].T.ravel()
    return merged


@dataclass(frozen=True, slots=True, eq=False)
class MonitorTimeline:
    """Stretches of the stream, ascending; see `build_rows`."""

    length: int = STRETCH_LENGTH  # events of a stretch
    rows: Annotated[Floats, "s 16"] = field(default_factory=lambda: np.zeros((0, _CHANNELS.stop)))

    def append(self, more: Floats) -> MonitorTimeline:
        """The timeline with some more chunks."""
        tail = _merge(np.concatenate([self.rows[-1:], more]), self.length)
        rows, length = np.concatenate([self.rows[:-1], tail]), self.length
        while len(rows) > MAX_STRETCHES:
            length *= 2
            rows = _merge(rows, length)
        return MonitorTimeline(length, rows)

    def table(self, records: Sequence[Alarm] = ()) -> pa.Table:
        """A row a stretch and watched channel, or one with nulls; and one a record, by its kind."""
        rows: list[dict[str, Any]] = []
        for row in self.rows:
            total, count = row[_SUMS].tolist()
            own = {"position": int(row[_END]), "state": PHASES[int(row[_PHASE])]}
            channels = [
                {
                    **own,
                    "channel": name,
                    "memory": int(memory),
                    "run_length": float(np.exp(min(log, 709.0))),
                    "score": total / (SCORE_UNITS * count) if count else None,
                }
                for name, (log, memory) in zip(
                    ALL_CHANNELS, row[_CHANNELS].reshape(2, _N).T.tolist(), strict=True
                )
                if not np.isnan(log)
            ]
            rows += channels or [own]
        for record in records:
            own = {"position": record.position, "kind": record.kind}
            if record.channel:
                names = ("channel", "memory", "run_length")
                own |= {name: getattr(record, name) for name in names}
            rows.append(own)
        rows.sort(key=lambda row: row["position"])
        return pa.Table.from_pylist(rows, schema=SCHEMA)
