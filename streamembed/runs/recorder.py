"""The recorder: writes a replay as the tables of a run folder.

Rows come in the order of the stream, in pieces of any size, and the checkpoint writer buffers them.
At the end the tables are written, by row groups of one size: the files, record batches and row
groups of the log leave no trace in their bytes, and neither does an interrupt.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamembed.data.batch import Rejected
from streamembed.data.output_format import name_columns
from streamembed.drift.alarm import Alarm
from streamembed.drift.monitor import Monitor
from streamembed.engine.picture import PLACES, Picture
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import FeatureError, format_count, quote, summarise_error
from streamembed.logs.event_log import EventLog
from streamembed.methods.options import Config
from streamembed.numeric.arrays import Array
from streamembed.runs import cluster_table
from streamembed.runs.run_store import RunStore
from streamembed.runs.run_tables import EventRows, write_tables
from streamembed.storage import archive

# Events from a stream position on, with columns for them; see `Recorder.write_events`.
EmbeddedRows = tuple[int, EventRows, Mapping[str, Array] | None]


def check_passthrough(log: EventLog, config: Config, causal: bool) -> None:
    """Refuse labels, times and kept columns that Parquet cannot hold, or in the place of others.

    Raises
    ------
    FeatureError
        Naming the column and its type.
    """
    own = {*_list_fields(pa.int64(), config, causal), "label", "event_time"}
    if taken := [name for name in log.kept_types if name in own]:
        raise FeatureError(
            f"keep={quote(taken[0])} is a column of embedding.parquet already: leave it out of "
            "keep=, or write it under another name"
        )
    for name, kind in list_passthrough_types(log).items():
        try:
            pq.write_table(pa.table({name: pa.nulls(0, kind)}), pa.BufferOutputStream())
        except pa.ArrowException as error:
            raise FeatureError(
                f"the column {name!r} of {log.paths[0]} has type {kind}, which embedding.parquet "
                f"cannot store ({summarise_error(error)}); write it in another type, or under "
                "another name"
            ) from error


def list_passthrough_types(log: EventLog) -> dict[str, Any]:
    """The passthrough columns, with their types."""
    kinds = {"label": log.label_type, "event_time": log.event_time_type, **log.kept_types}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _list_fields(id_type: Any, config: Config, causal: bool) -> dict[str, Any]:
    """The columns of the embedding that are not of the log, with their types."""
    numbers = [*name_columns(config.method, config.n_components), "coverage"]
    numbers += EVENT_PICTURE_COLUMNS if config.picture else ()
    return {
        "position": pa.int64(),
        "id": id_type,
        "learned": pa.bool_(),
        **dict.fromkeys(CAUSAL_COLUMNS if causal else (), pa.int64()),
        **dict.fromkeys(numbers, pa.float64()),
    }


class Recorder:
    """Writes what a `streamembed.runs.driver.ReplayDriver` passes to it into a run folder.

    Parameters
    ----------
    store
        Buffers the rows; those that it has already come first. Files are written into its folder,
        and get their names when they are whole.
    log
        Whose labels and times are kept beside the events.
    config
        Of the engine: how many coordinates an event has, and whether there is a picture.
    causal
        Whether events are embedded as of when each was learned, or all by the last snapshot.
    clusters
        Whether the clusters of pictures are written, too.

    Attributes
    ----------
    store : RunStore
    causal : bool
    """

    def __init__(
        self,
        store: RunStore,
        log: EventLog,
        config: Config,
        causal: bool,
        clusters: bool = False,
    ) -> None:
        self.store, self.folder, self.causal, self._alarms = store, store.folder, causal, 0
        self._id_type = id_type = log.id_type or pa.int64()
        timeline = build_timeline_schema(config.n_components, config.picture)
        if store.monitor is not None:
            timeline = timeline.append(pa.field(ALARMS, pa.int64()))
        embedding = {**_list_fields(id_type, config, causal), **list_passthrough_types(log)}
        self._schemas = {  # of the tables
            "embedding": pa.schema(embedding),
            "timeline": timeline,
            "rejected": build_rejected_schema(id_type),
        }
        if config.picture:
            self._schemas["picture"] = _build_picture_schema(id_type)
        if clusters:
            self._schemas["clusters"] = cluster_table.build_schema(id_type)

    def write_events(
        self, position: int, rows: EventRows, embedded: Mapping[str, Array] | None
    ) -> None:
        """Events from a stream position on, as of the snapshot that comes next.

        ``embedded`` has columns for them, NaN where unknown; None where the log ended before they
        were learned.
        """
        self.store.add("embedding", self._build_events(position, rows, embedded))

    def _build_events(
        self, position: int, rows: EventRows, embedded: Mapping[str, Array] | None
    ) -> Any:
        n = len(rows)
        positions = np.arange(position, position + n)
        ids = positions if rows.ids is None else rows.ids
        columns: dict[str, Any] = {
            "position": positions,
            "id": ids if ids.dtype.kind == "i" else ids.tolist(),
            "learned": np.full(n, embedded is not None),
            **rows.passthrough,
            **{name: _to_nullable(values) for name, values in (embedded or {}).items()},
        }
        schema = self._schemas["embedding"]
        arrays = [columns.get(field.name, pa.nulls(n, field.type)) for field in schema]
        return pa.table(arrays, schema=schema)

    def write_snapshot(self, snapshot: Snapshot, refreshes: int) -> None:
        """A row of the timeline."""
        schema = self._schemas["timeline"]
        row = build_timeline_row(snapshot, refreshes, schema, alarms=self._alarms)
        self.store.add("timeline", row)
        self._alarms = 0
        if snapshot.picture is not None:
            self._write_picture(snapshot, snapshot.picture)

    def _write_picture(self, snapshot: Snapshot, picture: Picture) -> None:
        arrays = *picture.coordinates.T, picture.kept, picture.balance, picture.moved
        positions = np.full(len(picture.ids), snapshot.position)
        columns = positions, picture.ids.tolist(), *(array.astype(np.float32) for array in arrays)
        rows = dict(zip(PICTURE_COLUMNS, columns, strict=True))
        schema = _build_picture_schema(pa.string() if picture.ids.dtype.kind != "i" else pa.int64())
        self.store.add("picture", pa.table(rows, schema))

    def write_alarms(self, alarms: Sequence[Alarm]) -> None:
        """Records of the monitor, before the snapshot that knows of their events."""
        self._alarms += sum(alarm.kind == "alarm" for alarm in alarms)
        if alarms:
            columns = {
                "position": [alarm.position for alarm in alarms],
                "alarm": [json.dumps(alarm.as_dict()) for alarm in alarms],
            }
            self.store.add(ALARMS, pa.table(columns, ALARM_SCHEMA))

    def _write_drift(self, monitor: Monitor) -> None:
        drift = monitor.timeline()
        write_tables(self.folder / "drift.parquet", drift.schema, [drift])
        lines = [row for part in self.store.read(ALARMS) for row in part["alarm"].to_pylist()]
        with archive.replace_file(self.folder / "alarms.jsonl") as path:
            path.write_text("".join(f"{line}\n" for line in lines))

    def read_rejected(self, stop: int) -> list[int]:
        """The numbers of the rejected rows before row ``stop`` of the log."""
        parts = [part["offset"].to_pylist() for part in self.store.read("rejected")]
        return [row for part in parts for row in part if row < stop]

    def write_rejected(self, rows: Sequence[Rejected]) -> None:
        """Rows that could not be learned, by their number in the log, ascending over all calls."""
        self.store.add("rejected", to_rejected_table(rows, self._id_type))

    def _list_embedding(self, rest: Iterable[EmbeddedRows]) -> Iterator[Any]:
        """All of ``embedding.parquet``, as tables."""
        yield from self.store.read("embedding")
        for events in rest:
            self.store.database.check_not_replaced()  # or another run is there
            yield self._build_events(*events)

    def close(self, snapshot: Snapshot | None, rest: Iterable[EmbeddedRows]) -> None:
        """Write the tables, and the final snapshot, if the warm-up has ended.

        ``rest`` are the events that come behind those of `write_events`.

        Raises
        ------
        StoppedError
            The folder at the path is not the one that was opened: nothing is written there.
        """
        self.store.database.check_not_replaced()
        for name, schema in self._schemas.items():
            rows = self.store.read(name)
            if name == "embedding":
                rows = self._list_embedding(rest)
            elif name == "clusters":
                rows = cluster_table.list_clusters(self.store.read("picture"), schema)
            write_tables(self.folder / f"{name}.parquet", schema, rows)
        if self.store.monitor is not None:
            self._write_drift(self.store.monitor)
        if snapshot is not None:
            snapshot.save(self.folder / "snapshot.arrow")
        # an interrupt may have left fewer of them than the engine has
        names = ("embedding.parquet", "timeline.parquet")
        events, rows = (pq.read_metadata(self.folder / name).num_rows for name in names)
        self.store.set_interrupt_message(events, format_count(rows, "snapshot"))


def to_rejected_table(rows: Sequence[Rejected], id_type: Any = None) -> Any:
    """Rejected rows as a table; without ``id_type``, ids have their own."""
    keys = [row.id for row in rows]
    if id_type == pa.string():
        keys = [None if key is None else str(key) for key in keys]
    ids = pa.array(keys, id_type)
    columns = [[row.index for row in rows], ids, [row.reason for row in rows]]
    return pa.table(columns, schema=build_rejected_schema(ids.type))


def build_rejected_schema(id_type: Any) -> pa.Schema:
    """Columns of rejected rows."""
    return pa.schema([("offset", pa.int64()), ("id", id_type), ("reason", pa.string())])


def _build_picture_schema(id_type: Any) -> pa.Schema:
    kinds = {"position": pa.int64(), "id": id_type}
    return pa.schema([(name, kinds.get(name, pa.float32())) for name in PICTURE_COLUMNS])


def _to_nullable(values: Array) -> Any:
    """A column of numbers, null where they are NaN."""
    return pa.array(values, mask=np.isnan(values))


# Columns of the timeline: attributes of a snapshot, its certificate and its frame.
TIMELINE_COLUMNS = {
    "certificate": {
        **dict.fromkeys(
            ("residual", "outside", "outside_bound", "gap", "angle_bound"), pa.float64()
        ),
        "met": pa.bool_(),
        "method": pa.string(),
        "parts": pa.int64(),
    },
    "": {"refinement": pa.string(), "resolution": pa.float64(), "n_connected": pa.int64()},
    "frame": {
        **dict.fromkeys(("epoch", "since"), pa.int64()),
        **dict.fromkeys(("lost", "kept_since"), pa.list_(pa.int64())),
        **dict.fromkeys(("fidelity", "price"), pa.float64()),
        "correlations": pa.list_(pa.float64()),
    },
}
# Of a picture: in the table of events, in its own, and in the timeline.
CAUSAL_COLUMNS = ("snapshot", "epoch")
EVENT_PICTURE_COLUMNS = (*PLACES, "picture_kept")
PICTURE_COLUMNS = ("position", "id", *PLACES, "kept", "balance", "moved")
TIMELINE_PICTURE_COLUMNS = {
    **dict.fromkeys(("picture_kept", "picture_balance", "picture_moved"), pa.float64()),
    **dict.fromkeys(("picture_age", "picture_epoch"), pa.int64()),
}
# Alarms of the monitor since the row before; their table.
ALARMS = "alarms"
ALARM_SCHEMA = pa.schema([("position", pa.int64()), ("alarm", pa.string())])


def build_timeline_row(snapshot: Snapshot, refreshes: int, schema: Any = None, **more: int) -> Any:
    """The row of a snapshot in a timeline, as a table; ``schema`` may have ``more`` columns."""
    if schema is None:
        schema = build_timeline_schema(len(snapshot.eigenvalues), snapshot.picture is not None)
    return pa.Table.from_pylist(
        [{**_list_timeline_values(snapshot), **more, "refreshes": refreshes}], schema
    )


def build_timeline_schema(k: int, picture: bool) -> pa.Schema:
    """Columns of a timeline of so many components."""
    columns = {"position": pa.int64()}
    for name in ("eigenvalue", "effective_points"):
        columns |= dict.fromkeys(name_columns(name, k), pa.float64())
    for own in TIMELINE_COLUMNS.values():
        columns |= own
    columns["refreshes"] = pa.int64()
    return pa.schema({**columns, **(TIMELINE_PICTURE_COLUMNS if picture else {})})


def _list_timeline_values(snapshot: Snapshot) -> dict[str, Any]:
    """The row of a snapshot in a timeline, by the names of its columns."""
    k, points = len(snapshot.eigenvalues), snapshot.certificate.effective_points
    row = {
        "position": snapshot.position,
        **dict(zip(name_columns("eigenvalue", k), snapshot.eigenvalues.tolist(), strict=True)),
        **dict(zip(name_columns("effective_points", k), points, strict=True)),
        **_list_picture_columns(snapshot.picture),
    }
    for part, columns in TIMELINE_COLUMNS.items():
        source = getattr(snapshot, part) if part else snapshot
        row |= {name: getattr(source, name) for name in columns}
    return row


def _list_picture_columns(picture: Picture | None) -> dict[str, Any]:
    """Means of a picture; how far a chunk moves its points as a share of its radius."""
    if picture is None:
        return {}
    return {
        "picture_kept": float(picture.kept.mean()),
        "picture_balance": float(np.median(picture.balance)),
        "picture_moved": float(picture.moved.mean()) / (picture.radius or 1.0),
        "picture_age": picture.age,
        "picture_epoch": picture.epoch,
    }
