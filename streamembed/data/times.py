"""Times of events, as numbers: of a column of timestamps its seconds, of numbers these."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamembed.data.values import as_number, to_list
from streamembed.errors import InputError, quote, summarise_error
from streamembed.numeric.arrays import Floats

LARGEST_TIME = 2.0**63  # of whole numbers of 64 bits, such as nanoseconds since 1970
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def is_time_type(kind: Any) -> bool:
    """Whether a column of that Arrow type can be a clock."""
    of = pa.types
    tests = (of.is_timestamp, of.is_date, of.is_integer, of.is_floating, of.is_decimal)
    return any(test(kind) for test in tests)


def read_times(times: Any, n: int) -> Floats:
    """Times of n rows, (n,); NaN where one is missing.

    Parameters
    ----------
    times
        An Arrow column, an array or a sequence: numbers in any unit, or timestamps and dates, of
        which these are the seconds since 1970.

    Raises
    ------
    InputError
        Not one a row, or what is neither.
    """
    if isinstance(times, (pa.Array, pa.ChunkedArray)):
        return _read_column(times, n)
    array = np.asarray(times) if hasattr(times, "__array__") else None
    if array is not None and array.dtype.kind == "M":
        unit = np.datetime_data(array.dtype)[0]  # ns would wrap the year 9999 around to 1816
        unit = unit if unit in _PER_SECOND else "ns" if unit in ("ps", "fs", "as") else "s"
        return _read_column(pa.array(array.astype(f"datetime64[{unit}]")), n)
    values = to_list(times, n, "times")
    are_stamps = any(hasattr(value, "isoformat") for value in values)
    numbers = list(map(as_number, values))
    for i, value in enumerate(values):
        is_time = hasattr(value, "isoformat") if are_stamps else numbers[i] is not None
        if value is not None and not is_time:
            raise InputError(
                f"the time of row {i} is {quote(value)}; times must all be numbers, or all "
                "timestamps"
            )
    if not are_stamps:
        return np.array(numbers, dtype=np.float64)  # NaN for None
    try:
        return _read_column(pa.array(values), n)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InputError(f"times are of several kinds ({summarise_error(error)})") from error


def _read_column(column: Any, n: int) -> Floats:
    if len(column) != n:
        raise InputError(f"times has {len(column)} entries for {n} rows; give one a row")
    if not is_time_type(column.type) and not pa.types.is_null(column.type):
        raise InputError(
            f"times are of type {column.type}; they must be timestamps, dates or numbers"
        )
    seconds = 1.0
    if pa.types.is_date(column.type):
        column = column.cast(pa.timestamp("s") if column.type.bit_width == 32 else "timestamp[ms]")
    if pa.types.is_timestamp(column.type):
        seconds = _PER_SECOND[column.type.unit]
        column = column.cast(pa.int64())
    numbers = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(numbers, dtype=np.float64) / seconds


def find_late(times: Floats, newest: float | None, max_skew: float | None) -> list[tuple[int, str]]:
    """Which of some rows, in order, cannot be events for their time, and why.

    Parameters
    ----------
    times
        Of each row, (n,), NaN where it has none.
    newest
        Of all events so far; None before the first.
    max_skew
        How far beyond the newest a time may be: one row of the year 2100 would fade all others to
        nothing. None for any.
    """
    faults: list[tuple[int, str]] = []
    with np.errstate(invalid="ignore"):
        usable = np.abs(times) <= LARGEST_TIME
    if max_skew is None and usable.all():
        return faults
    for i, time in enumerate(times.tolist()):
        if np.isnan(time):
            faults.append((i, "the event time is missing"))
        elif not usable[i]:
            what = f"the event time {time:g} is beyond 2**63"
            faults.append((i, f"{what}: give seconds, or timestamps"))
        elif newest is not None and max_skew is not None and time > newest + max_skew:
            what = f"the event time {time:.17g} is more than max_skew={max_skew:g}"
            faults.append((i, f"{what} beyond the newest so far"))
        else:
            newest = time if newest is None else max(newest, time)
    return faults


class TimeOrder:
    """Whether event times go on ascending from one file of a log to the next."""

    def __init__(self) -> None:
        self._file: object = None
        self._newest = -np.inf  # of the current file
        self._fall = 0.0  # the largest within a file: such a log is in no order anyway

    def find_decrease(self, column: Any, file: object) -> str | None:
        """What is wrong where a file begins before the end of the file before it, or None."""
        if column is None or not is_time_type(column.type):
            return None
        times = read_times(column, len(column))
        times = times[np.isfinite(times)]
        if not len(times):
            return None
        message = None
        if file is not self._file:
            fall = self._newest - times[0]
            if fall > self._fall:
                message = (
                    f"event times fall by {fall:g} from {self._file} to {file}, which is "
                    "read after it: rename the files so that their names ascend with the times, or "
                    "give the paths in that order"
                )
            self._file, self._newest = file, -np.inf
        peaks = np.maximum.accumulate(np.append(self._newest, times))
        self._newest, self._fall = peaks[-1], max(self._fall, float((peaks[1:] - times).max()))
        return message
