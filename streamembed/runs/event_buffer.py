"""The buffer of events that the last snapshot will embed, as record batches and back.

Of distances only ids, labels and times are stored: old events have no distances to what the last
snapshot has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.numeric.arrays import Ints
from streamembed.runs.event_rows import EventRows
from streamembed.runs.run_tables import ROW_GROUP_SIZE
from streamembed.storage import archive


def to_record_batch(rows: EventRows) -> Any:
    """Rows as a record batch."""
    columns = {"number": pa.array(rows.numbers), "point": archive.to_list_column(rows.points)}
    if rows.ids is not None:
        columns["id"] = pa.array(rows.ids.tolist())
    return pa.record_batch({**columns, **{f"+{k}": v for k, v in rows.passthrough.items()}})


def read_event_rows(batches: Iterable[Any]) -> Iterator[EventRows]:
    """The rows of such batches, `streamembed.runs.run_tables.ROW_GROUP_SIZE` at a time."""
    buffered: list[Any] = []
    count = 0
    for batch in batches:
        buffered.append(batch)
        count += batch.num_rows
        while count >= ROW_GROUP_SIZE:
            whole = pa.Table.from_batches(buffered).combine_chunks()
            yield _to_event_rows(whole.slice(0, ROW_GROUP_SIZE))
            buffered, count = whole.slice(ROW_GROUP_SIZE).to_batches(), count - ROW_GROUP_SIZE
    if count:
        yield _to_event_rows(pa.Table.from_batches(buffered))


def _to_event_rows(table: Any) -> EventRows:
    table = table.combine_chunks()
    numbers: Ints = table["number"].to_numpy()
    ids = None
    if "id" in table.column_names:
        keys = table["id"].to_pylist()
        ids = np.empty(len(keys), dtype=object)
        ids[:] = keys
        if pa.types.is_integer(table.schema.field("id").type):
            ids = ids.astype(np.int64)
    passthrough = {
        name[1:]: table[name].chunk(0) for name in table.column_names if name.startswith("+")
    }
    return EventRows(numbers, archive.to_matrix(table["point"]), passthrough, ids)
