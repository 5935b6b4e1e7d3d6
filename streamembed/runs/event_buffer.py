"""Events that wait for the last snapshot, as record batches and back.

Of distances only ids, labels and times are kept: what is far in the past reaches nothing that the
last snapshot has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.numeric.arrays import Ints
from streamembed.runs.event_rows import Rows
from streamembed.runs.run_tables import ROW_GROUP
from streamembed.storage import archive

__all__ = ["packed", "pieces"]


def packed(rows: Rows) -> Any:
    """Rows as a record batch."""
    columns = {"number": pa.array(rows.numbers), "point": archive.vectors_of(rows.points)}
    if rows.ids is not None:
        columns["id"] = pa.array(rows.ids.tolist())
    return pa.record_batch({**columns, **{f"+{k}": v for k, v in rows.carried.items()}})


def pieces(batches: Iterable[Any]) -> Iterator[Rows]:
    """The rows of such batches, `streamembed.runs.run_tables.ROW_GROUP` at a time."""
    waiting: list[Any] = []
    count = 0
    for batch in batches:
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
