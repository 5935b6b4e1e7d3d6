"""Feeds: rows of a log into an engine, and their coordinates once a snapshot has learned them.

A `PointFeed` passes points on. A `DistanceFeed` translates the rows of a distance log, which refer
to the rows before them in the log, into distances to the support. Rejected rows count in the log
and not in the engine; they are named by their row in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from streamembed.data import batch
from streamembed.data.batch import Batch, Rejected
from streamembed.data.features import Features
from streamembed.data.ids import read_ids, select_ids
from streamembed.data.output_format import name_columns
from streamembed.data.table import find_columns
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import LogError, ParameterError, quote
from streamembed.logs.event_log import EventLog, LogBatch
from streamembed.logs.fingerprint import LogFingerprint
from streamembed.methods.options import POSITION
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.runs.log_transform import embed_points, list_columns
from streamembed.runs.recorder import EVENT_PICTURE_COLUMNS
from streamembed.runs.run_tables import EventRows, regroup

TILE = 256  # rows of distances to a whole support at once


def _select_passthrough(part: LogBatch, rows: Ints) -> dict[str, pa.Array]:
    """Labels, times and kept columns of some rows of a batch, ascending."""
    columns = {"label": part.labels, "event_time": part.event_times, **part.kept}
    given = {name: column for name, column in columns.items() if column is not None}
    if len(rows) == len(part):
        return given
    index = pa.array(rows)
    return {name: column.take(index) for name, column in given.items()}


def read_points(
    part: LogBatch, features: Features, names: tuple[str, ...]
) -> tuple[EventRows, list[Rejected]]:
    """The rows of a batch that may become events, and those that never can, ascending.

    ``features`` are those of the log, and ``names`` the same in the order of the result.
    """
    points, nulls = part.points, part.nulls
    if names != features.names:  # learned by column order: "10" is after "9"
        order = find_columns(features.names, names)
        points, nulls = points[:, order], nulls[:, order]
        features = replace(features, names=names)
    read = batch.check_table(points, features, nulls, part.faults, part.ids, "skip")
    passthrough = _select_passthrough(part, read.kept)
    rows = EventRows(part.offset + read.kept, read.points, passthrough, read.ids)
    return rows, [replace(row, index=part.offset + row.index) for row in read.rejected]


def read_distances(part: LogBatch) -> tuple[EventRows, list[Rejected]]:
    """The same of a log of distances."""
    assert part.distances is not None
    known_ids = read_ids(part.ids, len(part))
    usable: list[int] = []
    rejected = []
    for i, row in enumerate(part.distances):
        key = None if known_ids is None else known_ids[i]
        if known_ids is not None and key is None:
            rejected.append(Rejected(part.offset + i, None, "the id is null"))
        elif row is None:
            rejected.append(Rejected(part.offset + i, key, "null in 'distances'"))
        else:
            usable.append(i)
    index = np.array(usable, dtype=np.int64)
    ids, points = select_ids(known_ids, index), np.zeros((len(index), 0))
    passthrough = _select_passthrough(part, index)
    known = np.fromiter((part.distances[i] for i in usable), dtype=object)
    return EventRows(part.offset + index, points, passthrough, ids, known), rejected


def read_events(
    log: EventLog,
    read: Callable[[LogBatch], tuple[EventRows, list[Rejected]]],
    fingerprint: Mapping[str, int],
    rejected: Sequence[int],
    run: Path,
) -> Iterator[EventRows]:
    """The events among the first rows of a log that a run has learned, a row group at a time.

    Parameters
    ----------
    read
        `read_points` or `read_distances`.
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
            rows = replace(read(part)[0], distances=None)
            lost = np.isin(rows.numbers, gone) | (rows.numbers >= end)
            yield rows.drop(np.flatnonzero(lost).tolist())
            if part.offset + len(part) >= end:
                break
        check_rows(now, fingerprint, run)

    try:
        yield from regroup(read_parts(), EventRows.concatenate)
    except LogError as error:
        raise LogError(
            f"the events of run={quote(str(run))} are in its log, which cannot be read again: "
            f"{error}"
        ) from error.__cause__


def check_log(
    parts: Iterable[LogBatch],
    before: Mapping[str, int],
    run: Path,
    start: int = 0,
    stop: int | None = None,
) -> bool:
    """Whether a log has more rows than a run has learned, all of which must be there as they were.

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
    check_rows(now, before, run)
    return more


def check_rows(now: LogFingerprint, before: Mapping[str, int], run: Path) -> None:
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
    """Points of a log into an engine, columns in its order."""

    def __init__(self, engine: Engine, log: EventLog) -> None:
        self._engine, self._log_features = engine, log.features

    @property
    def _features(self) -> Features:
        names = self._engine.feature_names or self._log_features.names
        return replace(self._log_features, names=names)

    def read(self, part: LogBatch) -> tuple[EventRows, list[Rejected]]:
        """As `read_points`, for the engine."""
        return read_points(part, self._log_features, self._features.names)

    def accept(self, rows: EventRows) -> tuple[EventRows, list[Rejected]]:
        """Have the engine accept rows; those that are events now, and the others."""
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

    def read(self, part: LogBatch) -> tuple[EventRows, list[Rejected]]:
        """As `read_distances`."""
        return read_distances(part)

    def accept(self, rows: EventRows) -> tuple[EventRows, list[Rejected]]:
        """As `PointFeed.accept`, row by row: the next must hold those that are accepted."""
        assert rows.distances is not None
        fit: list[Floats] = []
        known: list[Ints] = []
        accepted: list[int] = []
        rejected: list[Rejected] = []
        for i, (number, row) in enumerate(zip(rows.numbers.tolist(), rows.distances, strict=True)):
            position, ids = self._engine.position, None if rows.ids is None else rows.ids[i : i + 1]
            distances, fault = self._select_distances(row, self._start + number, self._numbers)
            if fault is None:
                call = self._engine.check_distances([distances], ids)
                offsets = np.array([number + 1])
                learned = self._engine.apply(replace(call, on_bad_row="skip", log_offsets=offsets))
                fault = learned.rejected[0].reason if learned.rejected else None
            if fault is not None:
                rejected.append(Rejected(number, None if ids is None else ids.tolist()[0], fault))
                continue
            accepted.append(i)
            fit.append(distances)
            known.append(self._positions)
            numbers = np.append(self._numbers, self._start + number)
            self._forget_old(numbers, np.append(self._positions, position))
        events = rows.take(np.array(accepted, dtype=np.int64))
        used, at = (np.fromiter(lists, dtype=object) for lists in (fit, known))
        return replace(events, distances=used, distance_positions=at), rejected

    def _forget_old(self, numbers: Ints, positions: Ints) -> None:
        if (window := self._engine.config.window) is not None:
            numbers, positions = numbers[-window:], positions[-window:]
        elif self._engine.ready and not self._engine.pending:  # landmarks may have changed
            stay = np.searchsorted(positions, self._engine.support_positions)
            numbers, positions = numbers[stay], positions[stay]
        self._numbers, self._positions = numbers, positions

    def _select_distances(
        self, row: Floats, number: int, needed: Ints
    ) -> tuple[Floats, str | None]:
        """The distances to the rows that are needed, out of those to the last ones."""
        back = number - len(row)
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
    their points, or by the distances of their rows.
    """
    n, support, events = len(rows), engine.support_positions, position + np.arange(len(rows))
    slots = np.minimum(np.searchsorted(support, events), len(support) - 1)
    own = support[slots] == events
    names = name_columns(snapshot.method, len(snapshot.eigenvalues))
    known = dict(zip(names, snapshot.coordinates.T, strict=True))
    if snapshot.feature_names:
        columns = embed_points(snapshot, Batch.of_points(rows.points, snapshot.features))
    else:
        known["coverage"] = np.minimum(1.0, snapshot.degrees / np.median(snapshot.degrees))
        columns = _embed_distances(snapshot, rows, np.flatnonzero(~own), support)
    if (picture := snapshot.picture) is not None:
        parts = *picture.coordinates.T, picture.kept
        known |= zip(EVENT_PICTURE_COLUMNS, parts, strict=True)
    for name, values in known.items():
        columns.setdefault(name, np.full(n, np.nan))[own] = values[slots[own]]
    at = {"snapshot": np.full(n, snapshot.position), "epoch": np.full(n, snapshot.frame.epoch)}
    return {**at, **columns}


def _embed_distances(
    snapshot: Snapshot, rows: EventRows, others: Ints, support: Ints
) -> dict[str, Array]:
    """Columns for rows of distances, NaN where they have none to the support, or are not kept."""
    columns: dict[str, Array] = {
        name: np.full(len(rows), np.nan) for name in list_columns(snapshot)
    }
    names = name_columns(snapshot.method, len(snapshot.eigenvalues))
    if rows.distances is None or rows.distance_positions is None:
        return columns
    for start in range(0, len(others), TILE):
        tile = others[start : start + TILE]
        pairs = zip(rows.distances[tile], rows.distance_positions[tile], strict=True)
        d = np.array([_scatter_to_support(*pair, support) for pair in pairs])
        finite = np.isfinite(d).any(axis=1)
        if finite.any():
            coordinates = snapshot.transform_distances(d[finite])
            for name, values in zip(names, coordinates.T, strict=True):
                columns[name][tile[finite]] = values
            columns["coverage"][tile[finite]] = snapshot.coverage_distances(d[finite])
    return columns


def _scatter_to_support(distances: Floats, positions: Ints, support: Ints) -> Floats:
    """Distances to every item of the support, inf where the row has none."""
    d = np.full(len(support), np.inf)
    slots = np.minimum(np.searchsorted(support, positions), len(support) - 1)
    matches = support[slots] == positions
    d[slots[matches]] = distances[matches]
    return d
