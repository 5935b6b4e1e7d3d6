"""Times of the events of an estimator: the key or column ``event_time``, which is no feature."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from streamembed.data.column_roles import RESERVED
from streamembed.data.table import are_dicts, is_frame, open_frame
from streamembed.data.times import find_late, read_times
from streamembed.errors import BadRowError, InputError
from streamembed.numeric.arrays import Floats

COLUMN = RESERVED[2]  # as in tables that an engine learns


def split_times(X: Any) -> tuple[Any, Any]:
    """A mini-batch without its times, and these, one a row; None where it has none."""
    if are_dicts(X):
        rows = [{key: value for key, value in row.items() if key != COLUMN} for row in X]
        return rows, [row.get(COLUMN) for row in X]
    if not is_frame(X):
        return X, None
    frame = open_frame(X)
    if COLUMN not in frame.names:
        return frame, None
    return frame.select([name for name in frame.names if name != COLUMN]), frame.columns[COLUMN]


@dataclass(frozen=True, slots=True, eq=False)
class EventTimes:
    """The times of some events of a stream, one after the other."""

    start: int = 0  # position of the first of them
    times: Floats = field(default_factory=lambda: np.zeros(0))  # (n,)
    newest: float | None = None  # of the events before them; None where there are none

    def select(self, start: int, stop: int) -> Floats:
        """Those of the events from one position to another."""
        return self.times[start - self.start : stop - self.start]

    def trim(self, start: int, stop: int) -> Self:
        """Only the times from one position to another."""
        newest = _newest(self.newest, self.times[: start - self.start])
        # a copy whose pickle is that of any other array of these numbers
        times = np.array(self.select(start, stop).tolist(), dtype=np.float64)
        return replace(self, start=start, times=times, newest=newest)

    def append(self, times: Any, n: int, max_skew: float | None) -> Self:
        """With the times of n more events, as they were given.

        Raises
        ------
        InputError
            There are none, or one is no time.
        BadRowError
            One is missing, or lies too far beyond the newest before it.
        """
        if times is None:
            raise InputError(
                "X has no times, and masses fade by them (clock='event_time'): give each event a "
                f"key or column {COLUMN!r}, or leave clock= out"
            )
        seconds = read_times(times, n)
        faults = find_late(seconds, _newest(self.newest, self.times), max_skew)
        if faults:
            remedy = "nothing was learned: fix their times, or leave these rows out"
            raise BadRowError.of(faults, f"{n} rows cannot be learned", remedy)
        return replace(self, times=np.concatenate([self.times, seconds]))


def _newest(newest: float | None, times: Floats) -> float | None:
    return max([*times.tolist(), *([] if newest is None else [newest])], default=None)
