"""The recorder: what is kept of a replay, as the tables of a run folder.

Rows come in the order of the stream, in pieces of any size, and wait in the ledger. When no more
come, the tables are written, by row groups of one size: the files, record batches and row groups of
the log leave no trace in their bytes, and neither does an interrupt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamembed.data.batch import Rejected
from streamembed.drift.alarm import Alarm
from streamembed.drift.monitor import Monitor
from streamembed.engine.engine import Engine
from streamembed.engine.picture import Picture
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import FeatureError, said
from streamembed.logs.event_log import EventLog
from streamembed.methods.options import Config
from streamembed.numeric.arrays import Array, Floats
from streamembed.runs import event_buffer
from streamembed.runs import origin as origins
from streamembed.runs.checkpoint_writer import Counts, Ledger
from streamembed.runs.event_rows import Embedded, Rows
from streamembed.runs.run_tables import Table
from streamembed.storage import archive

__all__ = ["PLACES", "REJECTED", "Recorder", "check_carried", "reasons", "timeline_of"]


# Key of the metadata of timeline.parquet: what the columns of the log were used for, as JSON.
COLUMNS = "streamembed-columns"


def check_carried(log: EventLog) -> None:
    """Refuse labels and times that Parquet cannot hold.

    Raises
    ------
    FeatureError
        Naming the column and its type.
    """
    for name, kind in carried_types(log).items():
        try:
            pq.write_table(pa.table({name: pa.nulls(0, kind)}), pa.BufferOutputStream())
        except pa.ArrowException as error:
            raise FeatureError(
                f"the column {name!r} of the log has type {kind}, which embedding.parquet cannot "
                f"store ({said(error)}); write it in another type, or under another name"
            ) from error


def carried_types(log: EventLog) -> dict[str, Any]:
    """The columns that are handed on, with their types."""
    kinds = {"label": log.label_type, "event_time": log.event_time_type}
    return {name: kind for name, kind in kinds.items() if kind is not None}


class Recorder:
    """Writes what a `streamembed.runs.driver.Driver` hands on into a run folder.

    Parameters
    ----------
    folder
        Where its files go; each gets its name when it is whole.
    ledger
        Where rows wait; what it holds already comes first.
    first
        Stream position of the first event.
    log
        Whose labels and times are kept beside the events.
    config
        Of the engine: how many coordinates an event has, and whether there is a picture.
    origin
        How the run came about, see `streamembed.runs.origin`; the timeline says it.
    causal
        Whether events are embedded as of when each was learned, and by which snapshot is kept.

    has_pairs
        Whether there is a log of given pairs.
    every
        Events between snapshots.
    stop
        Asked where it may be committed; True ends the replay there.
    monitor
        Whose timeline and alarms are kept.

    Attributes
    ----------
    events : int or None
        Rows of the finished embedding; None before all files are whole.
    """

    def __init__(
        self,
        folder: Path,
        ledger: Ledger,
        first: int,
        log: EventLog,
        config: Config,
        origin: Mapping[str, Any],
        causal: bool = False,
        has_pairs: bool = False,
        stop: Callable[[], bool] | None = None,
        every: int = 0,
        monitor: Monitor | None = None,
    ) -> None:
        self._monitor, self._alarms = monitor, 0
        k, picture = config.n_components, config.picture
        self.events: int | None = None
        self._folder = folder
        self._ledger = ledger
        self._first = first
        self._stop = stop
        self._rows, self._every = log.n_rows, every
        self._origin = origin
        self._k = k
        self._carried = carried_types(log)
        self._embedding: Table | None = None
        self._has_picture, self._causal = picture, causal
        self._places = PLACES if picture else ()
        told = json.dumps(log.columns.as_dict())
        schema = _timeline_schema(k, picture)
        if monitor is not None:
            schema = schema.append(pa.field(ALARMS, pa.int64()))
        self._timeline = schema.with_metadata({COLUMNS: told})
        self._has_pairs = has_pairs

    def keep_events(self, position: int, rows: Rows, embedded: Embedded | None) -> None:
        """Events from a stream position on; None where they are not learned."""
        n = len(rows)
        where = Embedded.nowhere(n, self._k) if embedded is None else embedded
        positions = np.arange(position, position + n)
        ids = positions if rows.ids is None else rows.ids
        columns: dict[str, Any] = {
            "position": positions,
            "id": ids.tolist(),
            "learned": np.full(n, embedded is not None),
        }
        if self._causal:
            at = (np.full(n, one) for one in (where.snapshot, where.epoch))
            unknown = np.full(n, embedded is None)
            columns["snapshot"], columns["epoch"] = (pa.array(one, mask=unknown) for one in at)
        for j in range(self._k):
            columns[f"c{j}"] = _nullable(where.coordinates[:, j])
        columns["coverage"] = _nullable(where.coverage)
        if self._has_picture and where.places is not None and where.kept is not None:
            columns["picture_x"], columns["picture_y"] = map(_nullable, where.places.T)
            columns["picture_kept"] = _nullable(where.kept)
        table = self._embedding_of(ids)
        if self._causal:
            self._ledger.add("embedding", pa.table({**columns, **rows.carried}, table.schema))
        else:  # nothing more comes
            table.add({**columns, **rows.carried})

    def remember(self, position: int, rows: Rows) -> None:
        """Events that are to be embedded by the last snapshot."""
        self._ledger.add("events", event_buffer.packed(rows))

    def remembered(self) -> Iterator[tuple[int, Rows]]:
        """All of them, `streamembed.runs.run_tables.ROW_GROUP` at a time."""
        position = self._first
        for rows in event_buffer.pieces(self._ledger.read("events")):
            yield position, rows
            position += len(rows)

    def settle(
        self, engine: Engine, snapshot: Snapshot, counts: Counts, prefix: dict[str, int]
    ) -> None:
        """Commit what came so far, if it is time, or if it is to stop here."""
        if self._stop is not None and self._stop():
            self._ledger.commit(engine, snapshot, counts, prefix)
            raise KeyboardInterrupt
        # the last snapshot that a log of this length leads to is where a longer one goes on
        if self._rows is not None and prefix["rows"] + self._every >= self._rows:
            self._ledger.commit(engine, snapshot, counts, prefix)
        else:
            self._ledger.settle(engine, snapshot, counts, prefix)

    def _embedding_of(self, ids: Array | None) -> Table:
        """The table of events; the first ids tell whether they are text."""
        if self._embedding is None:
            self._ledger.must_be_here()  # else it is the folder of another run, or none
            text = ids is not None and ids.dtype.kind != "i"
            fields = [
                pa.field("position", pa.int64()),
                pa.field("id", pa.string() if text else pa.int64()),
                pa.field("learned", pa.bool_()),
                *[pa.field(name, pa.int64()) for name in CAUSAL if self._causal],
                *[pa.field(f"c{j}", pa.float64()) for j in range(self._k)],
                *[pa.field(name, pa.float64()) for name in ("coverage", *self._places)],
                *[pa.field(name, kind) for name, kind in self._carried.items()],
            ]
            self._embedding = Table(self._folder / "embedding.parquet", pa.schema(fields))
        return self._embedding

    def keep_snapshot(self, snapshot: Snapshot, refreshes: int) -> None:
        """A row of the timeline."""
        row = _timeline_row(snapshot, refreshes)
        if self._monitor is not None:
            row[ALARMS] = [self._alarms]
            self._alarms = 0
        self._ledger.add("timeline", pa.table(row, self._timeline))
        if snapshot.picture is not None:
            self._keep_picture(snapshot, snapshot.picture)

    def _keep_picture(self, snapshot: Snapshot, picture: Picture) -> None:
        """A row for every point of the picture."""
        told = *picture.coordinates.T, picture.kept, picture.balance, picture.moved
        positions = np.full(len(picture.ids), snapshot.position)
        columns = positions, picture.ids.tolist(), *(one.astype(np.float32) for one in told)
        rows = dict(zip(PICTURE, columns, strict=True))
        schema = _picture_schema(text=picture.ids.dtype.kind != "i")
        self._ledger.add("picture", pa.table(rows, schema))

    def keep_alarms(self, alarms: Sequence[Alarm]) -> None:
        """Alarms of the monitor."""
        self._alarms += len(alarms)
        if alarms:
            columns = {
                "position": [alarm.position for alarm in alarms],
                "alarm": [json.dumps(alarm.as_dict()) for alarm in alarms],
            }
            self._ledger.add(ALARMS, pa.table(columns, ALARM))

    def _write_drift(self, monitor: Monitor) -> None:
        """What the monitor has seen: its timeline, and its alarms, a line each."""
        table = monitor.timeline()
        drift = Table(self._folder / "drift.parquet", table.schema)
        drift.add_table(table)
        drift.close()
        lines = [row for part in self._ledger.read(ALARMS) for row in part["alarm"].to_pylist()]
        with archive.replacing(self._folder / "alarms.jsonl") as path:
            path.write_text("".join(f"{line}\n" for line in lines))

    def set_aside(self, rows: Sequence[Rejected]) -> None:
        """Rows of the log that could not be learned."""
        self._ledger.add("rejected", reasons(rows))

    def set_aside_pairs(self, rows: Sequence[Rejected]) -> None:
        """Rows of a pair log that could not be learned, none of them perhaps."""
        self._ledger.add("rejected_pairs", reasons(rows))

    def _write(self, name: str, schema: pa.Schema, metadata: dict[str, str] | None = None) -> None:
        """One table of the folder; ``schema`` is that of one without rows."""
        table: Table | None = None
        for batch in self._ledger.read(name):
            kind = batch.schema.with_metadata(schema.metadata)
            table = table or Table(self._folder / f"{name}.parquet", kind)
            table.add_table(pa.Table.from_batches([batch]).cast(kind))
        (table or Table(self._folder / f"{name}.parquet", schema)).close(metadata)

    def close(self, snapshot: Snapshot | None, whole: bool) -> None:
        """Write the tables, and the final snapshot, if there is one.

        Raises
        ------
        StoppedError
            The folder at the path is not the one that was opened: nothing is written there.
        """
        self._ledger.must_be_here()
        if self._causal:
            for batch in self._ledger.read("embedding"):
                self._embedding_of(None).add_table(pa.Table.from_batches([batch]))
        self._embedding_of(None).close()
        self._write("timeline", self._timeline, origins.pack(self._origin, whole))
        self._write("rejected", REJECTED)
        if self._has_pairs:
            self._write("rejected_pairs", REJECTED)
        if self._has_picture:
            self._write("picture", _picture_schema(text=False))
        if self._monitor is not None:
            self._write_drift(self._monitor)
        if snapshot is not None:
            snapshot.save(self._folder / "snapshot.arrow")
        # an interrupt may have left fewer of them than the engine has
        self.events = pq.read_metadata(self._embedding_of(None).path).num_rows


def reasons(rows: Sequence[Rejected]) -> Any:
    """Rejected rows, as a table."""
    columns = {
        "offset": [row.index for row in rows],
        "id": [None if row.id is None else str(row.id) for row in rows],
        "reason": [row.reason for row in rows],
    }
    return pa.table(columns, REJECTED)


def _picture_schema(text: bool) -> pa.Schema:
    """Of the table of pictures, where ids are text or numbers."""
    kinds = {"position": pa.int64(), "id": pa.string() if text else pa.int64()}
    return pa.schema([(name, kinds.get(name, pa.float32())) for name in PICTURE])


def _nullable(values: Floats) -> Any:
    """A column of doubles, null where they are NaN."""
    return pa.array(values, mask=np.isnan(values))


REJECTED = pa.schema([("offset", pa.int64()), ("id", pa.string()), ("reason", pa.string())])


# Columns of the timeline that are attributes, and what those are that are no doubles.
CERTIFICATE = (
    "residual",
    "outside",
    "outside_bound",
    "gap",
    "angle_bound",
    "met",
    "method",
    "parts",
)
SNAPSHOT = ("rung", "resolution", "n_connected")
FRAME = ("epoch", "displacement", "movement")
# Of a picture: in the table of events, in its own, and in the timeline.
CAUSAL = ("snapshot", "epoch")
PLACES = ("picture_x", "picture_y", "picture_kept")
PICTURE = ("position", "id", "x", "y", "kept", "balance", "moved")
PICTURED = ("picture_kept", "picture_balance", "picture_moved", "picture_age", "picture_epoch")
# Alarms of the monitor since the row before; their table.
ALARMS = "alarms"
ALARM = pa.schema([("position", pa.int64()), ("alarm", pa.string())])
COUNTS = dict.fromkeys(("position", "n_connected", "parts", "epoch", "refreshes"), pa.int64())
COUNTS |= dict.fromkeys(("picture_age", "picture_epoch"), pa.int64())
KINDS = {**COUNTS, "met": pa.bool_(), "method": pa.string(), "rung": pa.string()}


def timeline_of(snapshot: Snapshot, engine: Engine) -> Any:
    """The row of a snapshot in a timeline, as a table."""
    row = _timeline_row(snapshot, engine.refreshes)
    return pa.table(row, _timeline_schema(len(snapshot.eigenvalues), snapshot.picture is not None))


def _timeline_schema(k: int, picture: bool) -> pa.Schema:
    values = [f"eigenvalue_{j}" for j in range(k)]
    points = [f"effective_points_{j}" for j in range(k)]
    names = ["position", *values, *points, *CERTIFICATE, *SNAPSHOT, *FRAME, "refreshes"]
    names += PICTURED if picture else ()
    return pa.schema([(name, KINDS.get(name, pa.float64())) for name in names])


def _timeline_row(snapshot: Snapshot, refreshes: int) -> dict[str, Any]:
    return {
        "position": [snapshot.position],
        **{f"eigenvalue_{j}": [value] for j, value in enumerate(snapshot.eigenvalues.tolist())},
        **{
            f"effective_points_{j}": [value]
            for j, value in enumerate(snapshot.certificate.effective_points)
        },
        **{name: [getattr(snapshot.certificate, name)] for name in CERTIFICATE},
        **{name: [getattr(snapshot, name)] for name in SNAPSHOT},
        **{name: [getattr(snapshot.frame, name)] for name in FRAME},
        "refreshes": [refreshes],
        **_pictured(snapshot.picture),
    }


def _pictured(picture: Picture | None) -> dict[str, Any]:
    """Means of a picture; how far a chunk moves its points as a share of its radius."""
    if picture is None:
        return {}
    return {
        "picture_kept": [float(picture.kept.mean())],
        "picture_balance": [float(np.median(picture.balance))],
        "picture_moved": [float(picture.moved.mean()) / (picture.radius or 1.0)],
        "picture_age": [picture.age],
        "picture_epoch": [picture.epoch],
    }
