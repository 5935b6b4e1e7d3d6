"""Events of a run by id: their positions, labels and times."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamembed.runs.run_reader import RunReader, format_label

Key = int | str
COLUMNS = ("position", "id", "label", "event_time")


@dataclass(frozen=True, slots=True)
class EventMetadata:
    """Position, label and time of an event."""

    position: int | None = None  # of the stream
    # As text; None where there is none.
    label: str | None = None
    time: str | None = None


def find_events(reader: RunReader, ids: Collection[Key]) -> dict[Key, EventMetadata]:
    """Look up events by id, in one pass over the run, in bounded memory.

    Parameters
    ----------
    reader
        The run.
    ids
        Of the events; unknown ones are left out.
    """
    wanted_ids = pa.array(sorted(ids, key=repr)) if len({type(one) for one in ids}) == 1 else None
    events: dict[Key, EventMetadata] = {}
    if wanted_ids is None:
        return events
    for columns in _read_embedding(reader) if reader.finished else _read_events(reader):
        if columns["id"].type != wanted_ids.type:
            continue
        chosen = pc.indices_nonzero(pc.is_in(columns["id"], value_set=wanted_ids))
        rows = {name: column.take(chosen).to_pylist() for name, column in columns.items()}
        nothing = [None] * len(chosen)
        labels, times = rows.get("label", nothing), rows.get("event_time", nothing)
        for key, position, label, time in zip(
            rows["id"], rows["position"], labels, times, strict=True
        ):
            events[key] = EventMetadata(position, format_label(label), format_label(time))
    for key, label in reader.late_labels().items():
        if key in events:
            events[key] = replace(events[key], label=format_label(label))
    return events


def _read_events(reader: RunReader) -> Iterator[Mapping[str, Any]]:
    """Positions, ids, labels and times, as Arrow arrays."""
    for position, rows in reader.events():
        positions = pa.array(range(position, position + len(rows)), pa.int64())
        ids = positions if rows.ids is None else pa.array(rows.ids.tolist())
        yield {"position": positions, "id": ids, **rows.passthrough}


def _read_embedding(reader: RunReader) -> Iterator[Mapping[str, Any]]:
    path = reader.find_file("embedding.parquet")
    if path is None:
        return
    with pq.ParquetFile(path) as file:
        columns = [name for name in COLUMNS if name in file.schema_arrow.names]
        for batch in file.iter_batches(columns=columns):
            yield {name: batch[name] for name in columns}
