"""Feeds: rows of a log into an engine, and their coordinates once a snapshot has learned them.

A `PointFeed` passes points on. A `DistanceFeed` translates the rows of a distance log, which refer
to the rows before them in the log, into distances to the support. Rejected rows count in the log
and not in the engine; they are named by their row in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from streamembed.data import batch
from streamembed.data.batch import Batch, Rejected
from streamembed.data.features import Features
from streamembed.data.ids import read_ids
from streamembed.data.output_format import name_columns
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import LogError, ParameterError, quote
from streamembed.logs.event_log import EventLog, LogBatch
from streamembed.logs.fingerprint import LogFingerprint
from streamembed.methods.options import POSITION
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.runs.log_transform import embed_points
from streamembed.runs.recorder import EVENT_PICTURE_COLUMNS
from streamembed.runs.run_tables import EventRows, regroup


def _select_passthrough(part: LogBatch, rows: Ints) -> dict[str, pa.Array]:
    """Labels, times and kept columns of some rows of a batch, ascending."""
    columns = {"label": part.labels, "event_time": part.event_times, **part.kept}
    given = {name: column for name, column in columns.items() if column is not None}
    if len(rows) == len(part):
        return given
    index = pa.array(rows)
    return {name: column.take(index) for name, column in given.items()}


def split_rows(part: LogBatch, features: Features) -> tuple[EventRows, list[Rejected]]:
    """The rows of a batch that may become events, and those that never can, ascending.

    ``features`` are those of the log. Of distances all rows may: a `DistanceFeed` finds out.
    """
    if part.distances is not None:
        rows, ids = np.arange(len(part)), read_ids(part.ids, len(part))
        passthrough = _select_passthrough(part, rows)
        return EventRows(part.offset + rows, part.points, passthrough, ids), []
    read = batch.check_table(part.points, features, part.nulls, part.faults, part.ids, "skip")
    passthrough = _select_passthrough(part, read.kept)
    events = EventRows(part.offset + read.kept, read.points, passthrough, read.ids)
    return events, [replace(row, index=part.offset + row.index) for row in read.rejected]


def read_events(
    log: EventLog, fingerprint: Mapping[str, int], rejected: Sequence[int], run: Path
) -> Iterator[EventRows]:
    """The events among the first rows of a log that a run has learned, a row group at a time.

    Parameters
    ----------
    fingerprint
        Of these rows, as they were learned.
    rejected
        Numbers of the rejected rows among them, ascending.
    run
        For messages.

    Raises
    ------
    LogError
        The log cannot be read to there.
    ParameterError
        Its rows are others. Both come where they are found: what was yielded is not to be used.
    """
    end, gone = fingerprint["rows"], np.array(rejected, dtype=np.int64)
    now = LogFingerprint()

    def read_parts() -> Iterator[EventRows]:
        for part in log.batches(0) if end else ():
            now.update(part, end)
            rows, _ = split_rows(part, log.features)
            lost = np.isin(rows.numbers, gone) | (rows.numbers >= end)
            yield rows.drop(np.flatnonzero(lost).tolist())
            if part.offset + len(part) >= end:
                break
        check_rows_unchanged(now, fingerprint, run)

    try:
        yield from regroup(read_parts(), EventRows.concatenate)
    except LogError as error:
        raise LogError(
            f"the events of run={quote(str(run))} are in its log, which cannot be read again: "
            f"{error}"
        ) from error.__cause__


def check_log_unchanged(
    parts: Iterable[LogBatch],
    before: Mapping[str, int],
    run: Path,
    start: int = 0,
    stop: int | None = None,
) -> bool:
    """Refuse a log whose learned rows have changed; whether it has more rows than were learned.

    Parameters
    ----------
    parts
        The log from row ``start`` on; what is behind row ``stop`` is not looked at.
    before
        Fingerprint of the rows that were learned.

    Raises
    ------
    ParameterError
        The log has other rows.
    LogError
        They cannot be read.
    """
    now, wanted, more = LogFingerprint(start), before["rows"], False
    try:
        for part in parts:
            now.update(part, wanted)
            end = part.offset + len(part)
            more = (end if stop is None else min(end, stop)) > wanted
            if more:
                break
    except LogError:  # behind these rows, whoever learns them says so
        if now.rows < wanted:
            raise
    check_rows_unchanged(now, before, run)
    return more


def check_rows_unchanged(now: LogFingerprint, before: Mapping[str, int], run: Path) -> None:
    """ParameterError unless the first rows of a log are those that a run has learned."""
    place, rows = f"run={quote(str(run))}", before["rows"]
    if now.rows < rows:
        raise ParameterError(
            f"the log has {now.rows:,} rows, and {place} has learned {rows:,}: give the log "
            "that it began with"
        )
    if changed := now.find_changed(before):
        raise ParameterError(
            f"the first {rows:,} rows of the log are not those that {place} has learned (they "
            f"differ in {', '.join(changed)}): give the log that it began with, or replace the run "
            "with overwrite=True"
        )


class PointFeed:
    """Points of a log into an engine."""

    def __init__(self, engine: Engine, features: Features) -> None:
        self._engine, self._features = engine, features

    def accept(self, part: LogBatch, rows: EventRows) -> tuple[EventRows, list[Rejected]]:
        """Have the engine accept rows of a batch; those that are events now, and the others."""
        # labels are of these rows alone
        checked = Batch.of_points(rows.points, self._features, rows.ids)
        labels = None
        if self._engine.config.metrics and "label" in rows.passthrough:
            labels = rows.passthrough["label"].to_pylist()
        by_time = self._engine.config.clock != POSITION
        times = rows.passthrough.get("event_time") if by_time else None
        call = self._engine.check(checked, labels, times=times)
        learned = self._engine.apply(replace(call, on_bad_row="skip", log_offsets=rows.numbers + 1))
        rejected = [replace(row, index=int(rows.numbers[row.index])) for row in learned.rejected]
        return rows.drop([row.index for row in learned.rejected]), rejected


class DistanceFeed:
    """Distances of a log into an engine.

    Rows are counted from the engine's first event: those of this log begin where it stood. Of
    every item that the next row must hold, oldest first, the feed knows the row and the stream
    position; so its memory is that of the engine's support.
    """

    def __init__(self, engine: Engine, rejected: Sequence[int] = ()) -> None:
        self._engine = engine
        # the rows of this log that are events
        accepted = np.delete(np.arange(engine.log_offset), np.array(rejected, dtype=np.int64))
        self._start = engine.position - len(accepted)
        pending = np.arange(engine.learned, engine.position)
        positions: Ints = np.concatenate([engine.support_positions, pending])
        numbers, own = positions.copy(), positions >= self._start
        numbers[own] = self._start + accepted[positions[own] - self._start]
        self._forget_old(numbers, positions)

    def accept(self, part: LogBatch, rows: EventRows) -> tuple[EventRows, list[Rejected]]:
        """As `PointFeed.accept`, row by row: the next must hold those that are accepted."""
        assert part.distances is not None
        accepted, rejected = list[int](), list[Rejected]()
        for i, number in enumerate(rows.numbers.tolist()):
            position, ids = self._engine.position, None if rows.ids is None else rows.ids[i : i + 1]
            row = part.distances[number - part.offset]
            distances, fault = self._select_distances(row, self._start + number)
            if fault is None:
                call = self._engine.check_distances([distances], ids)
                offsets = np.array([number + 1])
                learned = self._engine.apply(replace(call, on_bad_row="skip", log_offsets=offsets))
                fault = learned.rejected[0].reason if learned.rejected else None
            if fault is not None:
                rejected.append(Rejected(number, None if ids is None else ids.tolist()[0], fault))
                continue
            accepted.append(i)
            numbers = np.append(self._numbers, self._start + number)
            self._forget_old(numbers, np.append(self._positions, position))
        return rows.take(np.array(accepted, dtype=np.int64)), rejected

    def _forget_old(self, numbers: Ints, positions: Ints) -> None:
        if (window := self._engine.config.window) is not None:
            numbers, positions = numbers[-window:], positions[-window:]
        elif self._engine.ready and not self._engine.pending:  # landmarks may have changed
            stay = np.searchsorted(positions, self._engine.support_positions)
            numbers, positions = numbers[stay], positions[stay]
        self._numbers, self._positions = numbers, positions

    def _select_distances(
        self, row: Floats | None, number: int
    ) -> tuple[Floats | None, str | None]:
        """The distances to the rows that are needed, out of those to the last ones."""
        if row is None:
            return row, "null in 'distances'"
        back, needed = number - len(row), self._numbers
        if back < 0:
            return row, f"it has {len(row)} distances, but only {number} rows precede it"
        if len(needed) == 0:
            return row[:0], None
        oldest = int(needed[0])
        if oldest < back:
            last = f"it covers only the last {len(row)} rows"
            return row, f"{last}; it must cover the last {number - oldest}"
        if number - oldest == len(needed):  # none was rejected in between
            return row[oldest - back :].copy(), None
        return row[needed - back], None


def embed_events(
    engine: Engine, snapshot: Snapshot, position: int, rows: EventRows
) -> dict[str, Array]:
    """Columns of ``embedding.parquet`` for the events from a position on; NaN where unknown.

    An event that the support still holds is where the snapshot has it; the others are placed by
    their points, where they have any.
    """
    n, support, events = len(rows), engine.support_positions, position + np.arange(len(rows))
    slots = np.minimum(np.searchsorted(support, events), len(support) - 1)
    own = support[slots] == events
    names = name_columns(snapshot.method, len(snapshot.eigenvalues))
    known = dict(zip(names, snapshot.coordinates.T, strict=True))
    columns: dict[str, Array] = {}
    if snapshot.feature_names:
        columns = embed_points(snapshot, Batch.of_points(rows.points, snapshot.features))
    else:
        known["coverage"] = np.minimum(1.0, snapshot.degrees / np.median(snapshot.degrees))
    if (picture := snapshot.picture) is not None:
        known |= zip(EVENT_PICTURE_COLUMNS, (*picture.coordinates.T, picture.kept), strict=True)
    for name, values in known.items():
        columns.setdefault(name, np.full(n, np.nan))[own] = values[slots[own]]
    at = {"snapshot": np.full(n, snapshot.position), "epoch": np.full(n, snapshot.frame.epoch)}
    return {**at, **columns}
