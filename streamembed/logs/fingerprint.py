"""Fingerprint of the first rows of a log, independent of how it is split into batches."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.logs.event_log import LogBatch

WIDE_BITS = 64  # bits of a timestamp in fine units


class LogFingerprint:
    """A running checksum of each column over the first rows of a log.

    Attributes
    ----------
    rows : int
        Number of rows.
    """

    def __init__(self, rows: int = 0) -> None:
        """Start after the first ``rows`` rows, without their checksums."""
        self.rows = rows
        self._sums: dict[str, int] = {}

    def update(self, part: LogBatch, stop: int) -> None:
        """Add the rows of a batch up to row ``stop`` of the log; earlier rows are skipped."""
        first, last = self.rows - part.offset, min(stop - part.offset, len(part))
        if last <= first:
            return
        rows = slice(first, last)
        self._add("points", part.points[rows].tobytes())
        for row, feature in np.argwhere(part.nulls[rows]).tolist():
            self._add("nulls", b"%d,%d;" % (self.rows + row, feature))
        for row in sorted(part.faults):
            if first <= row < last:
                self._add("faults", f"{part.offset + row}:{part.faults[row]};".encode())
        for row_distances in (part.distances or [])[rows]:
            length = b"none;" if row_distances is None else b"%d;" % len(row_distances)
            self._add("distances", length)
            self._add("distances", b"" if row_distances is None else row_distances.tobytes())
        others = {"ids": part.ids, "labels": part.labels, "times": part.event_times}
        for name, column in others.items():
            if column is not None:
                self._add(name, _encode_column(column, rows))
        self.rows = part.offset + last

    def copy(self) -> LogFingerprint:
        """An independent copy."""
        return self.from_dict(self.to_dict())

    @classmethod
    def from_dict(cls, fields: Mapping[str, int]) -> LogFingerprint:
        """The inverse of `to_dict`."""
        fingerprint = cls(fields["rows"])
        fingerprint._sums = {name: crc for name, crc in fields.items() if name != "rows"}
        return fingerprint

    def to_dict(self) -> dict[str, int]:
        """JSON-ready; equal for equal rows, and for others with a chance of one in four billion."""
        return {"rows": self.rows, **self._sums}

    def find_changed(self, before: Mapping[str, int]) -> list[str]:
        """Columns whose first ``before["rows"]`` rows differ from those that gave ``before``."""
        now = self.to_dict()
        return [name for name in {**before, **now} if now.get(name) != before.get(name)]

    def _add(self, name: str, data: bytes | memoryview) -> None:
        self._sums[name] = zlib.crc32(data, self._sums.get(name, 0))


def _encode_column(column: Any, rows: slice) -> bytes:
    """Values as text, concatenated: the same for every split of the column."""
    part = column[rows]
    kind = part.type if isinstance(part, pa.Array) else None
    if kind is not None and pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        part = part.view(pa.int64() if kind.bit_width == WIDE_BITS else pa.int32())
    return "".join(f"{value!r};" for value in part.tolist()).encode(errors="surrogatepass")
