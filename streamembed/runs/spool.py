"""Events that wait for the last snapshot: a file beside the tables of a run, until it is read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.numeric.arrays import Ints
from streamembed.runs.folder import partial
from streamembed.runs.rows import Rows
from streamembed.runs.tables import ROW_GROUP
from streamembed.storage import archive

__all__ = ["Spool"]


class Spool:
    """Rows written in the order of the stream and read once, in pieces of one size.

    Of distances only ids, labels and times are kept: what is far in the past reaches nothing that
    the last snapshot has.

    Parameters
    ----------
    path
        Of the table that comes of it.
    position
        Of the first event.
    """

    def __init__(self, path: Path, position: int) -> None:
        self._path = partial(path.with_name(f"{path.name}.events"))
        self._position = position
        self._sink: Any = None
        self._writer: Any = None

    def add(self, rows: Rows) -> None:
        """Behind all before them."""
        columns = {"number": pa.array(rows.numbers), "point": archive.vectors_of(rows.points)}
        if rows.ids is not None:
            columns["id"] = pa.array(rows.ids.tolist())
        batch = pa.record_batch({**columns, **{f"+{k}": v for k, v in rows.carried.items()}})
        if self._writer is None:
            self._sink = pa.OSFile(str(self._path), "wb")
            self._writer = pa.ipc.new_stream(self._sink, batch.schema)
        self._writer.write_batch(batch)

    def read(self) -> Iterator[tuple[int, Rows]]:
        """Positions and rows; the file is removed behind the last of them."""
        if self._writer is None:
            return
        self._writer.close()
        self._sink.close()
        position = self._position
        with pa.OSFile(str(self._path)) as source, pa.ipc.open_stream(source) as reader:
            for rows in _pieces(reader):
                yield position, rows
                position += len(rows)
        self._path.unlink()


def _pieces(reader: Any) -> Iterator[Rows]:
    waiting: list[Any] = []
    count = 0
    for batch in reader:
        waiting.append(batch)
        count += batch.num_rows
        while count >= ROW_GROUP:
            whole = pa.Table.from_batches(waiting).combine_chunks()
            yield _rows_of(whole.slice(0, ROW_GROUP))
            waiting, count = whole.slice(ROW_GROUP).to_batches(), count - ROW_GROUP
    if count:
        yield _rows_of(pa.Table.from_batches(waiting))


def _rows_of(table: Any) -> Rows:
    table = table.combine_chunks()
    numbers: Ints = table["number"].to_numpy()
    ids = None
    if "id" in table.column_names:
        told = table["id"].to_pylist()
        ids = np.empty(len(told), dtype=object)
        ids[:] = told
        if pa.types.is_integer(table.schema.field("id").type):
            ids = ids.astype(np.int64)
    carried = {
        name[1:]: table[name].chunk(0) for name in table.column_names if name.startswith("+")
    }
    return Rows(numbers, archive.matrix_of(table["point"]), carried, ids)
