"""What a run knows of single events: their positions, labels and times, by id."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamembed.errors import DamagedFileError
from streamembed.runs import calls
from streamembed.runs.checkpoint_writer import CHECKPOINTS, COUNTS, SNAPSHOTS
from streamembed.runs.resume import STATE, wrong
from streamembed.runs.run_reader import RunReader
from streamembed.runs.session import OPERATIONS

__all__ = ["Standing", "Told", "find_events", "standing", "token"]

Key = int | str
COLUMNS = ("position", "id", "label", "event_time")


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of an event.

    Attributes
    ----------
    position : int or None
        Of the stream.
    label, time : str or None
        As text; None where there is none.
    """

    position: int | None = None
    label: str | None = None
    time: str | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a run is.

    Attributes
    ----------
    accepted, rejected : int
        Events that were committed, and rows that were not learned.
    position : int
        Of the stream.
    """

    accepted: int
    rejected: int
    position: int


def token(reader: RunReader) -> str:
    """A text that changes with whatever is committed."""
    database = reader._database
    lengths = [(name, database.length(name)) for name in database.chains()]
    return repr((lengths, database.fact(STATE), database.fact(COUNTS)))


def standing(reader: RunReader) -> Standing:
    """How far the run is, as it was committed last."""
    database, begun = reader._database, reader.begun
    last = [position for _, position in database.numbers(SNAPSHOTS)]
    last += [position for _, position in database.numbers(CHECKPOINTS)]
    if reader.kind == "replay":
        counts = database.fact(STATE, {}).get("counts") or database.fact(COUNTS, {})
        accepted = int(counts.get("accepted", 0))
        return Standing(accepted, int(counts.get("rejected", 0)), max([begun + accepted, *last]))
    last += [position for _, position in database.numbers(OPERATIONS)]
    position = max([begun, *last])
    return Standing(position - begun, reader.rejected().num_rows, position)


def find_events(reader: RunReader, ids: Collection[Key]) -> dict[Key, Told]:
    """What is known of events, in one pass over the run, in bounded memory.

    Parameters
    ----------
    reader
        The run.
    ids
        Of the events; those that nothing is known of are left out.
    """
    wanted = pa.array(sorted(ids, key=repr)) if len({type(one) for one in ids}) == 1 else None
    found: dict[Key, Told] = {}
    if wanted is None:
        return found
    late: dict[Key, Any] = {}
    for columns in _pieces(reader, late):
        if columns["id"].type != wanted.type:
            continue
        chosen = pc.indices_nonzero(pc.is_in(columns["id"], value_set=wanted))
        if not len(chosen):
            continue
        rows = {name: column.take(chosen).to_pylist() for name, column in columns.items()}
        nothing = [None] * len(chosen)
        labels, times = rows.get("label", nothing), rows.get("event_time", nothing)
        for key, position, label, time in zip(
            rows["id"], rows["position"], labels, times, strict=True
        ):
            found[key] = Told(position, _text(label), _text(time))
    for key, label in late.items():
        if key in found:
            found[key] = replace(found[key], label=_text(label))
    return found


def _text(value: Any) -> str | None:
    return None if value is None or value != value else str(value)


def _pieces(reader: RunReader, late: dict[Key, Any]) -> Iterator[Mapping[str, Any]]:
    """Positions, ids, labels and times, as Arrow arrays; labels that came late go into ``late``."""
    if reader.finished:
        yield from _written(reader)
    elif reader.kind != "replay":
        yield from _operations(reader, late)
    elif reader.origin.get("embed") == "causal":
        for batch in reader._batches("embedding"):
            yield {name: batch[name] for name in COLUMNS if name in batch.schema.names}
    else:
        start = reader.begun
        for batch in reader._batches("events"):
            positions = pa.array(range(start, start + batch.num_rows), pa.int64())
            start += batch.num_rows
            names = batch.schema.names
            carried = {name: batch[f"+{name}"] for name in COLUMNS if f"+{name}" in names}
            ids = batch["id"] if "id" in names else positions
            yield {"position": positions, "id": ids, **carried}


def _written(reader: RunReader) -> Iterator[Mapping[str, Any]]:
    """Those of a finished replay, from its file."""
    name = "embedding.parquet"
    files = reader._database.fact(STATE)["files"]
    if name not in files:
        return
    if (told := wrong(reader.path, name, files[name])) is not None:
        raise DamagedFileError(f"{reader.path}: {told}; the same replay again makes it anew")
    with pq.ParquetFile(reader.path / name) as file:
        columns = [name for name in COLUMNS if name in file.schema_arrow.names]
        for batch in file.iter_batches(columns=columns):
            yield {name: batch[name] for name in columns}


def _operations(reader: RunReader, late: dict[Key, Any]) -> Iterator[Mapping[str, Any]]:
    """Those of the calls of a run that is learned into."""
    start = reader.begun
    for record in reader._database.chain(OPERATIONS):
        operation, _ = calls.unpack(record.data)
        told, arrays = operation.told, operation.arrays
        if operation.name == "label":
            late.update(zip(told["ids"], told["labels"], strict=True))
        if operation.name not in ("learn", "learn_distances"):
            continue
        gone = set(told["gone"])
        is_points = operation.name == "learn"
        rows = arrays["kept"].tolist() if is_points else list(range(operation.rows))
        stay = [place for place, row in enumerate(rows) if row not in gone]
        positions = list(range(start, record.position))
        start = record.position
        if len(stay) != len(positions):
            continue  # some are still pending
        known = arrays.get("ids") if is_points else told["ids"]
        ids = positions if known is None else [calls.plain(known[place]) for place in stay]
        columns = {"position": pa.array(positions, pa.int64()), "id": pa.array(ids)}
        if told.get("labels"):
            labels = [told["labels"][rows[place]] for place in stay]
            columns["label"] = pa.array([_text(label) for label in labels], pa.string())
        yield columns
