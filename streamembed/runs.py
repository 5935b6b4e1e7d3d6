"""`replay`: an Arrow log through an engine into a run folder.

A run folder holds ``snapshot.arrow`` (the final snapshot), ``embedding.parquet`` (every accepted
event as of when it was learned), ``timeline.parquet`` (a row a snapshot) and ``rejected.parquet``
(every row that could not be learned, with its offset in the log and why). All but the column
``seconds`` of the timeline are a function of the log's rows and the engine's parameters: files,
record batches and row groups leave no trace.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamembed import batch
from streamembed.batch import Batch, Rejected
from streamembed.core.arrays import Array, Floats
from streamembed.engine import Engine
from streamembed.errors import (
    BadRowError,
    DuplicateIdError,
    FeatureError,
    LogError,
    ParameterError,
)
from streamembed.eventlog import EventLog, LogBatch, open_log
from streamembed.snapshot import Snapshot

__all__ = ["Replayed", "replay"]

# Rows buffered before a row group is written: fixed, so that the log's own batches do not show.
ROW_GROUP = 4096
SNAPSHOT_EVERY = 100
PARTS = ("embedding.parquet", "timeline.parquet", "rejected.parquet")


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay did.

    Attributes
    ----------
    path : Path
        The run folder.
    accepted, learned, rejected : int
        Rows that became events; those of whole chunks; those set aside.
    snapshots : int
        Rows of the timeline.
    position : int
        The engine's, events of an unfinished chunk included.
    snapshot : Snapshot or None
        The final one; None where the log ended before the warm-up did.
    damage : str or None
        Why the log could not be read to its end, where it could not.
    """

    path: Path
    accepted: int
    learned: int
    rejected: int
    snapshots: int
    position: int
    snapshot: Snapshot | None
    damage: str | None


def replay(
    log: EventLog | str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    engine: Engine,
    run: str | os.PathLike[str],
    *,
    snapshot_every: int | None = None,
    features: Sequence[str] | None = None,
    on_bad_row: str = "skip",
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Replayed:
    """Learn a whole log and leave a run folder.

    Parameters
    ----------
    log
        Files or folders of Arrow IPC (stream or file) or Parquet, or an open `EventLog`.
    engine
        Learns the log, and can go on learning afterwards.
    run
        The folder to make; it must not exist or be empty, unless ``overwrite``.
    snapshot_every
        Events between snapshots, a multiple of ``chunk_size``; default: the first one from 100 on.
    features
        Columns to take as features; default: those that the engine knows, or all numeric ones.
    on_bad_row
        "skip" sets rows that cannot be learned aside, "raise" stops at the first; the engine's own
        parameter is for its own calls.
    progress
        Called with the rows of the log read so far.

    Returns
    -------
    Replayed

    Raises
    ------
    ParameterError
        The run folder is not empty, ``snapshot_every`` does not fit the chunks, or ``features``
        were given for a log that is open already.
    FeatureError
        The log does not have the features that the engine has learned.
    LogError
        Nothing of the log can be read. A log that is damaged later on is learned up to there, the
        run is written whole, and ``Replayed.damage`` says where it ended.
    BadRowError, DuplicateIdError
        Under "raise", naming the row's offset in the log; every row before it is learned and
        the run is written, as it is after a KeyboardInterrupt.

    Notes
    -----
    Coordinates of an event are those of the first snapshot that has learned it. Memory does not
    grow with the log: the events since the last snapshot are held, nothing else.
    """
    if on_bad_row not in ("raise", "skip"):
        raise ParameterError(f"on_bad_row={on_bad_row!r} must be one of 'raise', 'skip'")
    every = _cadence(engine.config.chunk_size, snapshot_every)
    opened = _opened(log, features, engine)
    folder = _folder(Path(run), overwrite)
    damage = None
    with _Recorder(folder, engine, every, on_bad_row) as recorder:
        try:
            for part in opened:
                recorder.learn(part, opened.feature_names)
                if progress is not None:
                    progress(part.offset + len(part.points))
        except LogError as error:
            damage = str(error)
    return Replayed(
        folder,
        recorder.accepted,
        max(0, recorder.accepted - engine.pending),  # some may have waited before the replay
        recorder.rejected,
        recorder.snapshots,
        engine.position,
        engine.snapshot() if engine.ready else None,
        damage,
    )


def _opened(log: Any, features: Sequence[str] | None, engine: Engine) -> EventLog:
    """The log, with the features that the engine has learned, if it has learned any."""
    if not isinstance(log, EventLog):
        return _fitting(open_log(log, features or engine.feature_names or None), engine)
    if features is not None:
        raise ParameterError(
            "features were given for an EventLog, which has its own: give them to open_log"
        )
    return _fitting(log, engine)


def _fitting(log: EventLog, engine: Engine) -> EventLog:
    if engine.feature_names and set(engine.feature_names) != set(log.feature_names):
        raise FeatureError(
            f"the log has the features {list(log.feature_names)}; this engine has learned "
            f"{list(engine.feature_names)}: choose these with features, or start a new engine"
        )
    return log


def _cadence(chunk_size: int, every: int | None) -> int:
    if every is None:
        return -(-SNAPSHOT_EVERY // chunk_size) * chunk_size
    if every < 1 or every % chunk_size:
        raise ParameterError(
            f"snapshot_every={every} must be a positive multiple of chunk_size={chunk_size}: "
            "snapshots change at whole chunks only"
        )
    return every


def _folder(run: Path, overwrite: bool) -> Path:
    """The run folder, made; emptied of an older run's files where that was asked for."""
    if run.exists() and not run.is_dir():
        raise ParameterError(f"run={str(run)!r} is a file; it must be a folder, or not exist yet")
    run.mkdir(parents=True, exist_ok=True)
    if any(run.iterdir()):
        if not overwrite:
            raise ParameterError(
                f"run={str(run)!r} is not empty: choose another folder, or overwrite the run"
            )
        for name in ("snapshot.arrow", *PARTS):
            (run / name).unlink(missing_ok=True)
    return run


@dataclass(slots=True)
class _Table:
    """A Parquet file that grows by row groups of one size, under its name only once it is whole."""

    path: Path
    schema: Any
    writer: Any = None
    waiting: list[Any] = field(default_factory=list)
    rows: int = 0

    def add(self, columns: dict[str, Any]) -> None:
        """Take rows; write every row group that is full."""
        part = pa.table(columns, schema=self.schema)
        self.waiting.append(part)
        self.rows += part.num_rows
        if self.rows >= ROW_GROUP:
            whole = pa.concat_tables(self.waiting)
            start = 0
            while self.rows - start >= ROW_GROUP:
                self._write(whole.slice(start, ROW_GROUP))
                start += ROW_GROUP
            self.waiting, self.rows = [whole.slice(start)], self.rows - start

    def close(self) -> None:
        """Write what waits and give the file its name."""
        if self.rows:
            self._write(pa.concat_tables(self.waiting))
        self._writer().close()
        os.replace(self._temporary, self.path)

    def _write(self, group: Any) -> None:
        # in one piece: Parquet ends its pages where the pieces of a column end
        self._writer().write_table(group.combine_chunks(), row_group_size=ROW_GROUP)

    @property
    def _temporary(self) -> Path:
        return self.path.with_name(self.path.name + ".part")

    def _writer(self) -> Any:
        if self.writer is None:
            self.writer = pq.ParquetWriter(
                self._temporary, self.schema, compression="zstd", write_page_checksum=True
            )
        return self.writer


class _Recorder:
    """Feeds an engine up to every snapshot position, and writes what came of it."""

    def __init__(self, folder: Path, engine: Engine, every: int, on_bad_row: str) -> None:
        self.engine = engine
        self._every = every
        self._on_bad_row = on_bad_row
        self.accepted = self.rejected = self.snapshots = 0
        self._folder = folder
        self._unseen: list[tuple[int, Floats, Array]] = []  # events since the last snapshot
        self._clock = time.perf_counter()
        self._embedding: _Table | None = None
        k = engine.config.n_components
        self._timeline = _Table(folder / "timeline.parquet", _timeline_schema(k))
        self._rejected = _Table(folder / "rejected.parquet", _REJECTED)
        self._start = engine.position
        self._last = engine.position - engine.pending  # what is published already, or was

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """However the replay ends, what was learned is written and named."""
        self._finish()
        for table in (
            self._embedding or self._embedding_table(None),
            self._timeline,
            self._rejected,
        ):
            table.close()
        if self.engine.ready:
            self.engine.snapshot().save(self._folder / "snapshot.arrow")

    def learn(self, part: LogBatch, names: tuple[str, ...]) -> None:
        """Take one batch of the log: check it, and learn it slice by slice."""
        points, nulls = part.points, part.nulls
        if self.engine.feature_names not in ((), names):  # taught by places: "10" is after "9"
            order = [names.index(name) for name in self.engine.feature_names]
            names, points, nulls = self.engine.feature_names, points[:, order], nulls[:, order]
        rows = batch.checked(points, names, False, nulls, {}, part.ids, "skip")
        aside, stop = list(rows.rejected), len(rows.points)
        fatal = aside[0] if aside and self._on_bad_row == "raise" else None
        if fatal is not None:
            aside, stop = [], int(np.searchsorted(rows.kept, fatal.index))
        if self._embedding is None and rows.ids is not None and stop:
            self._embedding = self._embedding_table(rows.ids)
        start = 0
        while start < stop:
            cut = self._next_chunk
            end = min(stop, start + cut - self.engine.position)
            aside += self._take(_rows(rows, start, end), part.offset)
            start = end
            if self.engine.position == cut and self._is_due(cut):
                self._publish()
        # in the order of the log, whatever its batches
        self._set_aside(part.offset, sorted(aside, key=lambda row: row.index))
        if fatal is not None:
            raise BadRowError(
                f"row {part.offset + fatal.index} of the log cannot be learned ({fatal.reason}): "
                "mend the log, or set such rows aside with on_bad_row='skip'",
                ((fatal.index, fatal.reason),),
            )

    def _finish(self) -> None:
        """A last snapshot where whole chunks came after the one before; the rest is not learned.

        Where an interrupt fell between learning a chunk and noting it, that chunk has no rows.
        """
        if self.engine.ready and self.engine.position == self._start + self.accepted:
            self._publish()
        for position, points, ids in self._unseen:
            self._write_embedding(position, ids, len(points), None, None)
        self._unseen = []

    def _take(self, part: Batch, offset: int) -> tuple[Rejected, ...]:
        """Have the engine accept rows of one chunk; returns those that it set aside."""
        position = self.engine.position
        try:
            learned = self.engine.admit(part, self._on_bad_row)
        except DuplicateIdError as error:
            if len(part.points) == 1:
                row = offset + int(part.kept[0])
                key = "missing" if part.ids is None else repr(part.ids[0].item())
                raise DuplicateIdError(
                    f"row {row} of the log cannot be learned (its id is {key}): ids must be of one "
                    "kind and unique within the support; mend the log, or set rows whose id comes "
                    "again aside with on_bad_row='skip'"
                ) from error
            # one by one up to the culprit, so that what is learned does not hang on the batches
            return sum(
                (self._take(_rows(part, i, i + 1), offset) for i in range(len(part.points))), ()
            )
        gone = {row.index for row in learned.rejected}
        stay = np.array([i for i, index in enumerate(part.kept.tolist()) if index not in gone], int)
        ids = np.arange(position, position + len(stay)) if part.ids is None else part.ids[stay]
        if len(stay):
            self._unseen.append((position, part.points[stay], ids))
        self.accepted += len(stay)
        return learned.rejected

    @property
    def _next_chunk(self) -> int:
        """The stream position at which the engine learns next."""
        if not self.engine.ready:
            return self.engine.config.warm_up_events
        size = self.engine.config.chunk_size
        return ((self.engine.position - self.engine.pending) // size + 1) * size

    def _is_due(self, position: int) -> bool:
        """Whether the timeline has a snapshot of this position."""
        return position == self.engine.config.warm_up_events or position % self._every == 0

    def _publish(self) -> None:
        """Snapshot, timeline, and the coordinates of every event since the last one."""
        if self.engine.position - self.engine.pending == self._last:
            return
        snapshot = self.engine.snapshot()
        self._last = snapshot.position
        self._embed(snapshot)
        now = time.perf_counter()
        self._timeline.add(_timeline_row(snapshot, self.engine.refreshes, now - self._clock))
        self._clock = now
        self.snapshots += 1

    def _embed(self, snapshot: Snapshot) -> None:
        """Write the events that the snapshot has learned; keep those that wait for their chunk.

        All in one transform: how the log came in pieces must not show in the last bit.
        """
        if not self._unseen:
            return
        first = self._unseen[0][0]
        points = np.concatenate([points for _, points, _ in self._unseen])
        ids = np.concatenate([ids for _, _, ids in self._unseen])
        whole = max(snapshot.position - first, 0)  # events of an earlier replay may wait before
        coordinates, coverage = snapshot.transform_with_coverage(points[:whole])
        self._write_embedding(first, ids[:whole], whole, coordinates, coverage)
        waits = len(points) > whole
        self._unseen = [(first + whole, points[whole:], ids[whole:])] if waits else []

    def _write_embedding(
        self,
        position: int,
        ids: Array,
        count: int,
        coordinates: Floats | None,
        coverage: Floats | None,
    ) -> None:
        if self._embedding is None:
            self._embedding = self._embedding_table(ids)
        columns: dict[str, Any] = {
            "position": np.arange(position, position + count),
            "id": pa.array(ids.tolist(), self._embedding.schema.field("id").type),
            "learned": np.full(count, coordinates is not None),
        }
        for j in range(self.engine.config.n_components):
            columns[f"c{j}"] = pa.nulls(count) if coordinates is None else coordinates[:, j]
        columns["coverage"] = pa.nulls(count) if coverage is None else coverage
        kinds = {name: self._embedding.schema.field(name).type for name in columns}
        self._embedding.add(
            {
                name: pa.array(value, kinds[name])
                if isinstance(value, np.ndarray)
                else value.cast(kinds[name])
                for name, value in columns.items()
            }
        )

    def _embedding_table(self, ids: Array | None) -> _Table:
        text = ids is not None and ids.dtype.kind != "i"
        fields = [
            pa.field("position", pa.int64()),
            pa.field("id", pa.string() if text else pa.int64()),
            pa.field("learned", pa.bool_()),
            *[pa.field(f"c{j}", pa.float64()) for j in range(self.engine.config.n_components)],
            pa.field("coverage", pa.float64()),
        ]
        return _Table(self._folder / "embedding.parquet", pa.schema(fields))

    def _set_aside(self, offset: int, rows: Sequence[Rejected]) -> None:
        if not rows:
            return
        self.rejected += len(rows)
        self._rejected.add(
            {
                "offset": [offset + row.index for row in rows],
                "id": [None if row.id is None else str(row.id) for row in rows],
                "reason": [row.reason for row in rows],
            }
        )


def _rows(rows: Batch, start: int, stop: int) -> Batch:
    """Consecutive rows of a batch; those set aside stay behind."""
    ids = None if rows.ids is None else rows.ids[start:stop]
    points, kept = rows.points[start:stop], rows.kept[start:stop]
    return Batch(points, rows.names, rows.ordered, ids, kept, ())


_REJECTED = pa.schema([("offset", pa.int64()), ("id", pa.string()), ("reason", pa.string())])


def _timeline_schema(k: int) -> Any:
    numbers = ["residual", "outside", "gap", "angle_bound"]
    return pa.schema(
        [
            ("position", pa.int64()),
            *[(f"eigenvalue_{j}", pa.float64()) for j in range(k)],
            *[(name, pa.float64()) for name in numbers],
            ("met", pa.bool_()),
            ("method", pa.string()),
            ("rung", pa.string()),
            ("epoch", pa.int64()),
            ("displacement", pa.float64()),
            ("movement", pa.float64()),
            ("refreshes", pa.int64()),
            ("seconds", pa.float64()),
        ]
    )


def _timeline_row(snapshot: Snapshot, refreshes: int, seconds: float) -> dict[str, Any]:
    certificate, frame = snapshot.certificate, snapshot.frame
    return {
        "position": [snapshot.position],
        **{f"eigenvalue_{j}": [value] for j, value in enumerate(snapshot.eigenvalues.tolist())},
        "residual": [certificate.residual],
        "outside": [certificate.outside],
        "gap": [certificate.gap],
        "angle_bound": [certificate.angle_bound],
        "met": [certificate.met],
        "method": [certificate.method],
        "rung": [snapshot.rung],
        "epoch": [frame.epoch],
        "displacement": [frame.displacement],
        "movement": [frame.movement],
        "refreshes": [refreshes],
        "seconds": [seconds],
    }
