"""Events of a run by id: their positions, labels and times."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamembed.engine.call import Call
from streamembed.errors import DamagedFileError
from streamembed.runs.checkpoint_writer import CHECKPOINTS, COUNTS, PARTITIONS, SNAPSHOTS
from streamembed.runs.resume import STATE, find_file_error
from streamembed.runs.run_reader import RunReader
from streamembed.runs.session import OPERATIONS

Key = int | str
COLUMNS = ("position", "id", "label", "event_time")


@dataclass(frozen=True, slots=True)
class EventMetadata:
    """Position, label and time of an event."""

    position: int | None = None  # of the stream
    # As text; None where there is none.
    label: str | None = None
    time: str | None = None


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Progress of a run."""

    # Events that were committed, and rows that were not learned.
    accepted: int
    rejected: int
    position: int  # of the stream


def read_progress(reader: RunReader) -> RunProgress:
    """The progress of the run as of its last commit."""
    database, begun = reader._database, reader.begun
    last = [position for _, position in database.list_records(SNAPSHOTS)]
    last += [position for _, position in database.list_records(CHECKPOINTS)]
    if reader.kind == "replay":
        counts = database.read_fact(STATE, {}).get("counts") or database.read_fact(COUNTS, {})
        accepted = int(counts.get("accepted", 0))
        return RunProgress(accepted, int(counts.get("rejected", 0)), max([begun + accepted, *last]))
    if reader.kind == PARTITIONS:
        table = reader.partitions()
        learned, rejected = (sum(table[name].to_pylist()) for name in ("learned", "rejected"))
        return RunProgress(learned, rejected, max(last, default=0))
    last += [position for _, position in database.list_records(OPERATIONS)]
    position = max([begun, *last])
    return RunProgress(position - begun, reader.rejected().num_rows, position)


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
    late: dict[Key, Any] = {}
    for columns in _read_columns(reader, late):
        if columns["id"].type != wanted_ids.type:
            continue
        chosen = pc.indices_nonzero(pc.is_in(columns["id"], value_set=wanted_ids))
        rows = {name: column.take(chosen).to_pylist() for name, column in columns.items()}
        nothing = [None] * len(chosen)
        labels, times = rows.get("label", nothing), rows.get("event_time", nothing)
        for key, position, label, time in zip(
            rows["id"], rows["position"], labels, times, strict=True
        ):
            events[key] = EventMetadata(position, _to_text(label), _to_text(time))
    for key, label in late.items():
        if key in events:
            events[key] = replace(events[key], label=_to_text(label))
    return events


def _to_text(value: Any) -> str | None:
    return None if value is None or value != value else str(value)


def _read_columns(reader: RunReader, late: dict[Key, Any]) -> Iterator[Mapping[str, Any]]:
    """Positions, ids, labels and times, as Arrow arrays; labels that came late go into ``late``."""
    if reader.finished:
        yield from _read_embedding(reader)
    elif reader.kind != "replay":
        yield from _read_operations(reader, late)
    elif reader.origin.get("embed") == "causal":
        for batch in reader._batches("embedding"):
            yield {name: batch[name] for name in COLUMNS if name in batch.schema.names}
    else:
        start = reader.begun
        for batch in reader._batches("events"):
            positions = pa.array(range(start, start + batch.num_rows), pa.int64())
            start += batch.num_rows
            names = batch.schema.names
            passthrough = {name: batch[f"+{name}"] for name in COLUMNS if f"+{name}" in names}
            ids = batch["id"] if "id" in names else positions
            yield {"position": positions, "id": ids, **passthrough}


def _read_embedding(reader: RunReader) -> Iterator[Mapping[str, Any]]:
    name = "embedding.parquet"
    files = reader._database.read_fact(STATE)["files"]
    if name not in files:
        return
    if (fault := find_file_error(reader.path, name, files[name])) is not None:
        raise DamagedFileError(f"{reader.path}: {fault}; repeat the replay to write it again")
    with pq.ParquetFile(reader.path / name) as file:
        columns = [name for name in COLUMNS if name in file.schema_arrow.names]
        for batch in file.iter_batches(columns=columns):
            yield {name: batch[name] for name in columns}


def _read_operations(reader: RunReader, late: dict[Key, Any]) -> Iterator[Mapping[str, Any]]:
    start = reader.begun
    for record in reader._database.read_chain(OPERATIONS):
        call = Call.from_bytes(record.data)
        metadata, arrays = call.metadata, call.arrays
        if call.name == "label":
            late.update(zip(metadata["ids"], metadata["labels"], strict=True))
        if call.name not in ("learn", "learn_distances"):
            continue
        rejected = set(call.unlearned)
        is_points = call.name == "learn"
        rows = arrays["kept"].tolist() if is_points else list(range(call.rows))
        learned = [place for place, row in enumerate(rows) if row not in rejected]
        positions = list(range(start, record.position))
        start = record.position
        if len(learned) != len(positions):
            continue  # some are still pending
        known_ids = arrays["ids"].tolist() if "ids" in arrays else metadata.get("ids")
        ids = positions if known_ids is None else [known_ids[place] for place in learned]
        columns = {"position": pa.array(positions, pa.int64()), "id": pa.array(ids)}
        if metadata.get("labels"):
            labels = [metadata["labels"][rows[place]] for place in learned]
            columns["label"] = pa.array([_to_text(label) for label in labels], pa.string())
        yield columns
