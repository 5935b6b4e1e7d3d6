"""The tables of a run folder: Parquet files that grow, by row groups of one size."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamembed.logs.log_writer import open_writer
from streamembed.runs.run_folder import partial

__all__ = ["Table"]

# Rows buffered before a row group is written: fixed, so that the log's own batches do not show.
ROW_GROUP = 4096


@dataclass(slots=True)
class Table:
    """A Parquet file of row groups of one size, which gets its name only when it is complete."""

    path: Path
    schema: Any
    writer: Any = None
    waiting: list[Any] = field(default_factory=list)
    rows: int = 0

    def add(self, columns: dict[str, Any]) -> None:
        """Add rows; write every full row group."""
        self.add_table(pa.table(columns, schema=self.schema))

    def add_table(self, part: Any) -> None:
        """The same of an Arrow table of this schema."""
        self.waiting.append(part)
        self.rows += part.num_rows
        if self.rows >= ROW_GROUP:
            whole = pa.concat_tables(self.waiting)
            start = 0
            while self.rows - start >= ROW_GROUP:
                self._write_group(whole.slice(start, ROW_GROUP))
                start += ROW_GROUP
            self.waiting, self.rows = [whole.slice(start)], self.rows - start

    def close(self, metadata: dict[str, str] | None = None) -> None:
        """Write the remaining rows, and what is said of all; give the file its name."""
        if self.rows:
            self._write_group(pa.concat_tables(self.waiting))
        if metadata is not None:
            self._open().add_key_value_metadata(metadata)
        self._open().close()
        os.replace(self._temporary, self.path)

    def _write_group(self, group: Any) -> None:
        # in one piece: Parquet ends its pages where the pieces of a column end
        self._open().write_table(group.combine_chunks(), row_group_size=ROW_GROUP)

    @property
    def _temporary(self) -> Path:
        return partial(self.path)

    def _open(self) -> Any:
        if self.writer is None:
            self.writer = open_writer(self._temporary, self.schema, "parquet", "zstd")
        return self.writer
