"""The recorder: feeds an engine up to every snapshot, and writes the results into a run folder.

Its tables grow by row groups of one size, in the order of the stream, so that the files, record
batches and row groups of the log leave no trace in their bytes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamembed.data.batch import Batch, Rejected
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import BadRowError, DuplicateIdError, FeatureError, shown
from streamembed.logs.file import said
from streamembed.logs.pairs import PairLog, in_order
from streamembed.logs.reader import EventLog, LogBatch
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.runs.feed import Rows, feed_of
from streamembed.runs.folder import partial

__all__ = ["Recorder", "check_carried"]

# Rows buffered before a row group is written: fixed, so that the log's own batches do not show.
ROW_GROUP = 4096


def check_carried(log: EventLog) -> None:
    """Refuse labels and times that Parquet cannot hold.

    Raises
    ------
    FeatureError
        Naming the column and its type.
    """
    for name, kind in _carried(log).items():
        try:
            pq.write_table(pa.table({name: pa.nulls(0, kind)}), pa.BufferOutputStream())
        except pa.ArrowException as error:
            raise FeatureError(
                f"the column {name!r} of the log has type {kind}, which embedding.parquet cannot "
                f"hold ({said(error)}); write it in another type, or under another name"
            ) from error


def _carried(log: EventLog) -> dict[str, Any]:
    """The columns that are handed on, with their types."""
    kinds = {"label": log.label_type, "event_time": log.event_time_type}
    return {name: kind for name, kind in kinds.items() if kind is not None}


@dataclass(slots=True)
class Table:
    """A Parquet file of row groups of one size, which gets its name only when it is complete."""

    path: Path
    schema: Any
    writer: Any = None
    waiting: list[Any] = field(default_factory=list)
    rows: int = 0

    def add(self, columns: dict[str, Any]) -> None:
        """Add rows; write every full row group."""
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
        """Write the remaining rows and give the file its name."""
        if self.rows:
            self._write(pa.concat_tables(self.waiting))
        self._writer().close()
        os.replace(self._temporary, self.path)

    def _write(self, group: Any) -> None:
        # in one piece: Parquet ends its pages where the pieces of a column end
        self._writer().write_table(group.combine_chunks(), row_group_size=ROW_GROUP)

    @property
    def _temporary(self) -> Path:
        return partial(self.path)

    def _writer(self) -> Any:
        if self.writer is None:
            self.writer = pq.ParquetWriter(
                self._temporary, self.schema, compression="zstd", write_page_checksum=True
            )
        return self.writer


@dataclass(frozen=True, slots=True, eq=False)
class _Events:
    """Accepted events from a stream position on, not yet written."""

    position: int
    ids: Array
    carried: dict[str, Any]
    held: Any  # what the feed makes coordinates of

    def part(self, start: int, stop: int) -> Self:
        carried = {name: column.slice(start, stop - start) for name, column in self.carried.items()}
        held = self.held[start:stop]
        return type(self)(self.position + start, self.ids[start:stop], carried, held)

    def __len__(self) -> int:
        return len(self.ids)


class Recorder:
    """Feeds an engine up to every snapshot position, and writes the results."""

    def __init__(
        self,
        folder: Path,
        engine: Engine,
        log: EventLog,
        every: int,
        on_bad_row: str,
        pairs: PairLog | None = None,
    ) -> None:
        self.engine = engine
        self.accepted = self.rejected = self.snapshots = self.pairs = self.rejected_pairs = 0
        self._pairs = pairs  # until they are taught
        self._feed = feed_of(log, engine)
        self._carried = _carried(log)
        self._every = every
        self._on_bad_row = on_bad_row
        self._folder = folder
        self._unseen: list[_Events] = []  # since the last snapshot
        self._clock = time.perf_counter()
        self._embedding: Table | None = None
        k = engine.config.n_components
        self._timeline = Table(folder / "timeline.parquet", _timeline_schema(k))
        self._rejected = Table(folder / "rejected.parquet", _REJECTED)
        self._start = engine.position
        self._last = engine.position - engine.pending  # what is published already, or was

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """However the replay ends, what was learned is written and named; an interrupt tells so."""
        self._finish()
        embedding = self._embedding or self._embedding_table(None)
        for table in (embedding, self._timeline, self._rejected):
            table.close()
        if self.engine.ready:
            self.engine.snapshot().save(self._folder / "snapshot.arrow")
        if isinstance(error, KeyboardInterrupt):
            held = pq.read_metadata(
                embedding.path
            ).num_rows  # it may have fallen between two counts
            error.add_note(f"the run up to here is written whole: {held} events in {self._folder}")

    def learn(self, part: LogBatch) -> None:
        """Learn one batch of the log: check it, and learn it slice by slice."""
        rows, refused = self._feed.read(part)
        aside, stop = list(refused), len(rows)
        fatal = aside[0] if aside and self._on_bad_row == "raise" else None
        if fatal is not None:
            aside, stop = [], int(np.searchsorted(rows.kept, fatal.index))
        if self._embedding is None and rows.ids is not None and stop:
            self._embedding = self._embedding_table(rows.ids)
        start = 0
        while start < stop:
            cut = self._next_chunk
            end = min(stop, start + cut - self.engine.position)
            aside += self._take(rows.part(start, end), part)
            start = end
            self._teach()
            if self.engine.position == cut and self._is_due(cut):
                self._publish()
        # in the order of the log, whatever its batches
        self._set_aside(part.offset, sorted(aside, key=lambda row: row.index))
        if fatal is not None:
            raise _bad_row(part.offset + fatal.index, fatal.index, fatal.reason)

    def _teach(self) -> None:
        """Known pairs, as soon as the engine has a scale for them: batch by batch, none is held."""
        if self._pairs is None or not self.engine.ready:
            return
        log, self._pairs = self._pairs, None
        order = in_order(log, self.engine.feature_names)
        table = Table(self._folder / "rejected_pairs.parquet", _REJECTED)
        try:
            for part in log:
                index = np.arange(len(part.similar), dtype=np.int64)
                if part.rejected and self._on_bad_row == "raise":
                    first = part.rejected[0]
                    raise BadRowError(
                        f"row {first.index} of the pair log cannot be learned ({first.reason}): "
                        "mend it, or set such rows aside with on_bad_row='skip'",
                        ((first.index, first.reason),),
                    )
                left, right = (
                    Batch(side[:, order], self.engine.feature_names, True, None, index, ())
                    for side in (part.left, part.right)
                )
                self.engine.learn_pairs(left, right, part.similar)
                self.pairs += len(part.similar)
                self.rejected_pairs += len(part.rejected)
                table.add(_reasons(0, part.rejected))
        finally:
            table.close()

    def _finish(self) -> None:
        """A last snapshot where whole chunks came after the one before; the rest is not learned.

        Where an interrupt fell between learning a chunk and noting it, that chunk has no rows.
        """
        if self.engine.ready and self.engine.position == self._start + self.accepted:
            self._publish()
        for events in self._unseen:
            self._write(events, None, None)
        self._unseen = []

    def _take(self, rows: Rows, part: LogBatch) -> tuple[Rejected, ...]:
        """Have the engine accept rows of one chunk; returns those that were set aside."""
        position = self.engine.position
        try:
            taken = self._feed.take(rows, self._on_bad_row)
        except (BadRowError, DuplicateIdError) as error:
            if len(rows) == 1:
                raise self._named(error, rows) from error
            # one by one up to the culprit, so that what is learned does not hang on the batches
            return sum((self._take(rows.part(i, i + 1), part) for i in range(len(rows))), ())
        stay = taken.accepted
        if len(stay):
            default = np.arange(position, position + len(stay))
            ids = default if rows.ids is None else rows.ids[stay]
            carried = self._carried_of(part, rows.kept[stay])
            self._unseen.append(_Events(position, ids, carried, taken.held))
        self.accepted += len(stay)
        return taken.rejected

    def _carried_of(self, part: LogBatch, index: Ints) -> dict[str, Any]:
        """Copies of labels and times, for slices would hold on to the batch."""
        columns = {"label": part.labels, "event_time": part.event_times}
        return {name: columns[name].take(pa.array(index)) for name in self._carried}

    @staticmethod
    def _named(error: BadRowError | DuplicateIdError, rows: Rows) -> Exception:
        """The error about a single row, with its place in the log."""
        index = int(rows.kept[0])
        if isinstance(error, BadRowError):
            return _bad_row(rows.offset + index, index, error.rows[0][1])
        key = "missing" if rows.ids is None else shown(rows.ids.tolist()[0])
        return DuplicateIdError(
            f"row {rows.offset + index} of the log cannot be learned (its id is {key}): ids must "
            "be of one kind and unique within the support; mend the log, or set rows whose id "
            "comes again aside with on_bad_row='skip'"
        )

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
        events = _Events(
            self._unseen[0].position,
            np.concatenate([part.ids for part in self._unseen]),
            {
                name: pa.concat_arrays([part.carried[name] for part in self._unseen])
                for name in self._carried
            },
            self._feed.join([part.held for part in self._unseen]),
        )
        # events of an earlier replay may wait before
        count = max(snapshot.position - events.position, 0)
        whole = events.part(0, count)
        self._write(whole, *self._feed.embed(snapshot, whole.position, whole.held))
        self._unseen = [events.part(count, len(events))] if count < len(events) else []

    def _write(self, events: _Events, coordinates: Floats | None, coverage: Floats | None) -> None:
        """Rows of the embedding; None where the events are not learned."""
        if self._embedding is None:
            self._embedding = self._embedding_table(events.ids)
        n = len(events)
        columns: dict[str, Any] = {
            "position": np.arange(events.position, events.position + n),
            "id": events.ids.tolist(),
            "learned": np.full(n, coordinates is not None),
        }
        for j in range(self.engine.config.n_components):
            columns[f"c{j}"] = _nullable(n, None if coordinates is None else coordinates[:, j])
        columns["coverage"] = _nullable(n, coverage)
        self._embedding.add({**columns, **events.carried})

    def _embedding_table(self, ids: Array | None) -> Table:
        text = ids is not None and ids.dtype.kind != "i"
        fields = [
            pa.field("position", pa.int64()),
            pa.field("id", pa.string() if text else pa.int64()),
            pa.field("learned", pa.bool_()),
            *[pa.field(f"c{j}", pa.float64()) for j in range(self.engine.config.n_components)],
            pa.field("coverage", pa.float64()),
            *[pa.field(name, kind) for name, kind in self._carried.items()],
        ]
        return Table(self._folder / "embedding.parquet", pa.schema(fields))

    def _set_aside(self, offset: int, rows: Sequence[Rejected]) -> None:
        if not rows:
            return
        self.rejected += len(rows)
        self._rejected.add(_reasons(offset, rows))


def _reasons(offset: int, rows: Sequence[Rejected]) -> dict[str, Any]:
    """Rows set aside, as columns of `_REJECTED`."""
    return {
        "offset": [offset + row.index for row in rows],
        "id": [None if row.id is None else str(row.id) for row in rows],
        "reason": [row.reason for row in rows],
    }


def _bad_row(row: int, index: int, reason: str) -> BadRowError:
    return BadRowError(
        f"row {row} of the log cannot be learned ({reason}): mend the log, or set such rows aside "
        "with on_bad_row='skip'",
        ((index, reason),),
    )


def _nullable(n: int, values: Floats | None) -> Any:
    """A column of doubles, null where there is none."""
    if values is None:
        return pa.nulls(n, pa.float64())
    return pa.array(values, mask=np.isnan(values))


_REJECTED = pa.schema([("offset", pa.int64()), ("id", pa.string()), ("reason", pa.string())])


def _timeline_schema(k: int) -> Any:
    numbers = ["residual", "outside", "outside_bound", "gap", "angle_bound"]
    return pa.schema(
        [
            ("position", pa.int64()),
            *[(f"eigenvalue_{j}", pa.float64()) for j in range(k)],
            *[(name, pa.float64()) for name in numbers],
            ("met", pa.bool_()),
            ("method", pa.string()),
            ("rung", pa.string()),
            ("resolution", pa.float64()),
            ("n_connected", pa.int64()),
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
        "outside_bound": [certificate.outside_bound],
        "gap": [certificate.gap],
        "angle_bound": [certificate.angle_bound],
        "met": [certificate.met],
        "method": [certificate.method],
        "rung": [snapshot.rung],
        "resolution": [snapshot.resolution],
        "n_connected": [snapshot.n_connected],
        "epoch": [frame.epoch],
        "displacement": [frame.displacement],
        "movement": [frame.movement],
        "refreshes": [refreshes],
        "seconds": [seconds],
    }
