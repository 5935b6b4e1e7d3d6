"""The recorder: what is kept of a replay, as the tables of a run folder.

Rows come in the order of the stream, in pieces of any size; the tables grow by row groups of one
size, so that the files, record batches and row groups of the log leave no trace in their bytes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamembed.data.batch import Rejected
from streamembed.engine.picture import Picture
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import FeatureError, said
from streamembed.logs.reader import EventLog
from streamembed.methods.config import Config
from streamembed.numeric.arrays import Array, Floats
from streamembed.runs import origin as origins
from streamembed.runs.rows import Embedded, Rows
from streamembed.runs.spool import Spool
from streamembed.runs.tables import Table

__all__ = ["Recorder", "check_carried"]


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
    log
        Whose labels and times are kept beside the events.
    config
        Of the engine: how many coordinates an event has, and whether there is a picture.
    origin
        How the run came about, see `streamembed.runs.origin`; the timeline says it.
    causal
        Whether events are embedded as of when each was learned, and by which snapshot is kept.

    Attributes
    ----------
    events : int or None
        Rows of the finished embedding; None before all files are whole.
    """

    def __init__(
        self,
        folder: Path,
        log: EventLog,
        config: Config,
        origin: Mapping[str, Any],
        causal: bool = False,
    ) -> None:
        k, picture = config.n_components, config.picture
        self.events: int | None = None
        self._folder = folder
        self._origin = origin
        self._k = k
        self._carried = carried_types(log)
        self._clock = time.perf_counter()
        self._embedding: Table | None = None
        self._has_picture, self._causal = picture, causal
        self._spool: Spool | None = None
        self._places = PLACES if picture else ()
        self._pictures: Table | None = None
        told = json.dumps(log.columns.as_dict())
        timeline = _timeline_schema(k, picture).with_metadata({COLUMNS: told})
        self._timeline = Table(folder / "timeline.parquet", timeline)
        self._rejected = Table(folder / "rejected.parquet", _REJECTED)
        self._rejected_pairs: Table | None = None

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
        self._embedding_of(ids).add({**columns, **rows.carried})

    def remember(self, position: int, rows: Rows) -> None:
        """Events that are to be embedded by the last snapshot."""
        if self._spool is None:
            self._spool = Spool(self._folder / "embedding.parquet", position)
        self._spool.add(rows)

    def remembered(self) -> Iterator[tuple[int, Rows]]:
        """All of them, `streamembed.runs.tables.ROW_GROUP` at a time."""
        return iter(()) if self._spool is None else self._spool.read()

    def _embedding_of(self, ids: Array | None) -> Table:
        """The table of events; the first ids tell whether they are text."""
        if self._embedding is None:
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
        now = time.perf_counter()
        self._timeline.add(_timeline_row(snapshot, refreshes, now - self._clock))
        self._clock = now
        if snapshot.picture is not None:
            self._keep_picture(snapshot, snapshot.picture)

    def _keep_picture(self, snapshot: Snapshot, picture: Picture) -> None:
        """A row for every point of the picture."""
        told = *picture.coordinates.T, picture.kept, picture.balance, picture.moved
        positions = np.full(len(picture.ids), snapshot.position)
        columns = positions, picture.ids.tolist(), *(one.astype(np.float32) for one in told)
        rows = dict(zip(PICTURE, columns, strict=True))
        self._pictures_of(picture.ids.dtype.kind != "i").add(rows)

    def _pictures_of(self, text: bool) -> Table:
        """The table of pictures; the first ids tell whether they are text."""
        if self._pictures is None:
            kinds = {"position": pa.int64(), "id": pa.string() if text else pa.int64()}
            schema = pa.schema([(name, kinds.get(name, pa.float32())) for name in PICTURE])
            self._pictures = Table(self._folder / "picture.parquet", schema)
        return self._pictures

    def set_aside(self, rows: Sequence[Rejected]) -> None:
        """Rows of the log that could not be learned."""
        self._rejected.add(_reasons(rows))

    def set_aside_pairs(self, rows: Sequence[Rejected]) -> None:
        """Rows of a pair log that could not be learned, none of them perhaps."""
        if self._rejected_pairs is None:
            self._rejected_pairs = Table(self._folder / "rejected_pairs.parquet", _REJECTED)
        self._rejected_pairs.add(_reasons(rows))

    def close(self, snapshot: Snapshot | None, whole: bool) -> None:
        """Give the files their names, and write the final snapshot, if there is one."""
        self._embedding_of(None).close()
        self._timeline.close(origins.pack(self._origin, whole))
        if self._has_picture:
            self._pictures_of(text=False)
        for table in (self._rejected, self._rejected_pairs, self._pictures):
            if table is not None:
                table.close()
        if snapshot is not None:
            snapshot.save(self._folder / "snapshot.arrow")
        # an interrupt may have left fewer of them than the engine has
        self.events = pq.read_metadata(self._embedding_of(None).path).num_rows


def _reasons(rows: Sequence[Rejected]) -> dict[str, Any]:
    """Rejected rows, as columns of `_REJECTED`."""
    return {
        "offset": [row.index for row in rows],
        "id": [None if row.id is None else str(row.id) for row in rows],
        "reason": [row.reason for row in rows],
    }


def _nullable(values: Floats) -> Any:
    """A column of doubles, null where they are NaN."""
    return pa.array(values, mask=np.isnan(values))


_REJECTED = pa.schema([("offset", pa.int64()), ("id", pa.string()), ("reason", pa.string())])


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
COUNTS = dict.fromkeys(("position", "n_connected", "parts", "epoch", "refreshes"), pa.int64())
COUNTS |= dict.fromkeys(("picture_age", "picture_epoch"), pa.int64())
KINDS = {**COUNTS, "met": pa.bool_(), "method": pa.string(), "rung": pa.string()}


def _timeline_schema(k: int, picture: bool) -> pa.Schema:
    values = [f"eigenvalue_{j}" for j in range(k)]
    points = [f"effective_points_{j}" for j in range(k)]
    names = ["position", *values, *points, *CERTIFICATE, *SNAPSHOT, *FRAME, "refreshes", "seconds"]
    names += PICTURED if picture else ()
    return pa.schema([(name, KINDS.get(name, pa.float64())) for name in names])


def _timeline_row(snapshot: Snapshot, refreshes: int, seconds: float) -> dict[str, Any]:
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
        "seconds": [seconds],
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
