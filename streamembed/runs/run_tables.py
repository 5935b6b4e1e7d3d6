"""The tables of a run folder: Parquet files that grow, by row groups of one size."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamembed.logs.log_writer import open_writer
from streamembed.runs.run_folder import name_partial
from streamembed.storage.archive import replace_synced

# Rows buffered before a row group is written: fixed, so that the log's own batches do not show.
ROW_GROUP_SIZE = 4096


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

    def close(self, metadata: dict[str, str] | None = None) -> None:
        """Write the remaining rows and the metadata; give the file its name."""
        if self.rows:
            self._write_group(pa.concat_tables(self.buffered))
        if metadata is not None:
            self._open().add_key_value_metadata(metadata)
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


def write_table(path: Path, table: Any, metadata: dict[str, str] | None = None) -> None:
    """A whole table as such a file."""
    target = RowGroupWriter(path, table.schema)
    target.add(table)
    target.close(metadata)
