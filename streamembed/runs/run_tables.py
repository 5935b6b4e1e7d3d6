"""Rows of a log on their way into a run folder, and its tables: Parquet files that grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import pyarrow as pa

from streamembed.logs.log_writer import open_writer
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.runs.run_folder import name_partial
from streamembed.storage.archive import replace_synced

# Rows buffered before a row group is written: fixed, so that the log's own batches do not show.
ROW_GROUP_SIZE = 4096


@dataclass(frozen=True, slots=True, eq=False)
class EventRows:
    """Rows of a log that may become events, or have."""

    numbers: Ints  # (n,): row number in the log of each
    points: Floats  # (n, d): features in the engine's order; (n, 0) in a log of distances
    passthrough: dict[str, pa.Array]  # labels and times, where the log has them: written unchanged
    ids: Array | None = None  # (n,) or None: int64 or str; None where the log has none
    # In a log of distances, the row as the log has it; as the engine took it, once it has.
    distances: Array | None = None  # (n,) of arrays
    # Stream positions that these distances lead to; None before the engine took them.
    distance_positions: Array | None = None  # (n,) of arrays

    def __len__(self) -> int:
        return len(self.numbers)

    def slice(self, start: int, stop: int) -> Self:
        """A consecutive range of them, as views."""
        return self._select(lambda rows: rows[start:stop], lambda c: c.slice(start, stop - start))

    def drop(self, indices: Sequence[int]) -> Self:
        """Without some of them; the same object without any of these."""
        return self.take(np.delete(np.arange(len(self)), indices)) if len(indices) else self

    def take(self, chosen: Ints) -> Self:
        """A selection of them, copied."""
        index = pa.array(chosen)
        return self._select(lambda rows: rows[chosen], lambda column: column.take(index))

    def _select(self, of_array: Callable[[Array], Array], of_column: Callable[[Any], Any]) -> Self:
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        chosen: dict[str, Any] = {
            name: None if one is None else of_array(one) for name, one in arrays.items()
        }
        columns = {name: of_column(column) for name, column in self.passthrough.items()}
        return replace(self, passthrough=columns, **chosen)

    @classmethod
    def concatenate(cls, parts: Sequence[EventRows]) -> Self:
        """All rows of several, in one piece; of one part, the part itself."""
        first = parts[0]
        if len(parts) == 1:
            return cast(Self, first)
        names = [name for name in _ARRAYS if getattr(first, name) is not None]
        columns = {
            name: pa.concat_arrays([part.passthrough[name] for part in parts])
            for name in first.passthrough
        }
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return cls(passthrough=columns, **arrays)


_ARRAYS = ("numbers", "points", "ids", "distances", "distance_positions")


def regroup(parts: Iterable[EventRows]) -> Iterator[EventRows]:
    """The same rows, `ROW_GROUP_SIZE` at a time."""
    waiting: list[EventRows] = []
    count = 0
    for rows in parts:
        start = 0
        while count + len(rows) - start >= ROW_GROUP_SIZE:
            stop = start + ROW_GROUP_SIZE - count
            yield EventRows.concatenate([*waiting, rows.slice(start, stop)])
            waiting, count, start = [], 0, stop
        if start < len(rows):
            waiting.append(rows.slice(start, len(rows)))
            count += len(rows) - start
    if waiting:
        yield EventRows.concatenate(waiting)


@dataclass(slots=True)
class RowGroupWriter:
    """Writes a Parquet file by row groups of one size; it gets its name when it is complete."""

    path: Path
    schema: Any
    writer: Any = None
    buffered: list[Any] = field(default_factory=list)
    rows: int = 0

    def add(self, part: Any) -> None:
        """Add a table of this schema; write every full row group."""
        self.buffered.append(part)
        self.rows += part.num_rows
        if self.rows >= ROW_GROUP_SIZE:
            whole = pa.concat_tables(self.buffered)  # without a copy
            start = 0
            while self.rows - start >= ROW_GROUP_SIZE:
                self._write_group(whole.slice(start, ROW_GROUP_SIZE))
                start += ROW_GROUP_SIZE
            self.buffered, self.rows = [whole.slice(start)], self.rows - start

    def close(self) -> None:
        """Write the remaining rows; give the file its name."""
        if self.rows:
            self._write_group(pa.concat_tables(self.buffered))
        self._open().close()
        replace_synced(self._temporary, self.path)

    def _write_group(self, group: Any) -> None:
        # in one piece: Parquet ends its pages where the pieces of a column end
        self._open().write_table(group.combine_chunks(), row_group_size=ROW_GROUP_SIZE)

    @property
    def _temporary(self) -> Path:
        return name_partial(self.path)

    def _open(self) -> Any:
        if self.writer is None:
            self.writer = open_writer(self._temporary, self.schema, "parquet", "zstd")
        return self.writer


def write_table(path: Path, table: Any) -> None:
    """A whole table as such a file."""
    target = RowGroupWriter(path, table.schema)
    target.add(table)
    target.close()
