"""Feeds: rows of a log into an engine, and their coordinates once a snapshot has learned them.

A `PointFeed` passes points on. A `DistanceFeed` translates the rows of a distance log, which refer
to the rows before them in the log, into distances to the support. Rejected rows count in the log
and not in the engine; they are named by their row in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from streamembed.errors import BadRowError, LogError, ParameterError, quote
from streamembed.logs.event_log import EventLog, LogBatch
from streamembed.logs.fingerprint import LogFingerprint
from streamembed.methods.options import POSITION
from streamembed.numeric.arrays import Array, Bools, Floats, Ints
from streamembed.runs.event_rows import EventRows, regroup
from streamembed.runs.recorder import EVENT_PICTURE_COLUMNS, PLACES

TILE = 256  # rows of distances to a whole support at once


def _select_passthrough(part: LogBatch, rows: Ints) -> dict[str, pa.Array]:
    """Labels and times of some rows of a batch, ascending."""
    columns = {"label": part.labels, "event_time": part.event_times}
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
    distances: list[Floats] = []
    rejected = []
    for i, row in enumerate(part.distances):
        key = None if known_ids is None else known_ids[i]
        if known_ids is not None and key is None:
            rejected.append(Rejected(part.offset + i, None, "the id is null"))
        elif row is None:
            rejected.append(Rejected(part.offset + i, key, "null in 'distances'"))
        else:
            usable.append(i)
            distances.append(row)
    index = np.array(usable, dtype=np.int64)
    ids, points = select_ids(known_ids, index), np.zeros((len(index), 0))
    passthrough = _select_passthrough(part, index)
    return EventRows(part.offset + index, points, passthrough, ids, distances), rejected


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
        yield from regroup(read_parts())
    except LogError as error:
        raise LogError(
            f"the events of run={quote(str(run))} are in its log, which cannot be read again: "
            f"{error}"
        ) from error.__cause__


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
        self._engine = engine
        self._log_features = log.features
        self._features = log.features  # in the order of the engine, once it has one

    def read(self, part: LogBatch) -> tuple[EventRows, list[Rejected]]:
        """As `read_points`, for the engine."""
        names = self._engine.feature_names
        if names and names != self._features.names:
            self._features = replace(self._features, names=names)
        return read_points(part, self._log_features, self._features.names)

    def accept(self, rows: EventRows, on_bad_row: str) -> tuple[EventRows, list[Rejected]]:
        """Have the engine accept rows of one chunk; those that are events now, and the others.

        Raises `BadRowError` or `DuplicateIdError` where one of them makes it try them one by one;
        nothing was accepted then.
        """
        # labels are of these rows alone
        checked = Batch.of_points(rows.points, self._features, rows.ids)
        labels = None
        if self._engine.config.metrics and "label" in rows.passthrough:
            labels = rows.passthrough["label"].to_pylist()
        by_time = self._engine.config.clock != POSITION
        times = rows.passthrough.get("event_time") if by_time else None
        call = self._engine.check(checked, labels, times=times)
        learned = self._engine.apply(
            replace(call, on_bad_row=on_bad_row, log_offsets=rows.numbers + 1)
        )
        rejected = [replace(row, index=int(rows.numbers[row.index])) for row in learned.rejected]
        return rows.drop([row.index for row in learned.rejected]), rejected

    def embed(self, snapshot: Snapshot, position: int, rows: EventRows) -> dict[str, Array]:
        """Columns of ``embedding.parquet`` for the events from a position on; NaN where unknown."""
        events = Batch.of_points(rows.points, snapshot.features)
        embedded = snapshot.transform_with_coverage(events)
        columns = _build_columns(self._engine, snapshot, position, *embedded)
        if snapshot.picture is not None and (missing := np.isnan(columns[PLACES[0]])).any():
            others = Batch.of_points(rows.points[missing], snapshot.features)
            places = snapshot.picture.transform(others)
            for name, values in zip(PLACES, places.T, strict=True):
                columns[name][missing] = values
        return columns


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
        if self._start < 0:
            raise ParameterError(
                f"rejected has {len(rejected)} rows; this engine has read {engine.log_offset} rows "
                f"of its log, and at least {len(rejected) - self._start} were rejected: give the "
                "row number of each"
            )
        pending = np.arange(engine.learned, engine.position)
        self._positions: Ints = np.concatenate([engine.support_positions, pending])
        self._numbers = self._positions.copy()
        own = self._positions >= self._start
        self._numbers[own] = self._start + accepted[self._positions[own] - self._start]

    def read(self, part: LogBatch) -> tuple[EventRows, list[Rejected]]:
        """As `read_distances`."""
        return read_distances(part)

    def accept(self, rows: EventRows, on_bad_row: str) -> tuple[EventRows, list[Rejected]]:
        """As `PointFeed.accept`."""
        assert rows.distances is not None
        n, n_retained = len(rows), len(self._numbers)
        keys = [None] * n if rows.ids is None else rows.ids.tolist()
        numbers = np.concatenate([self._numbers, self._start + rows.numbers])
        positions = np.concatenate([self._positions, self._engine.position + np.arange(n)])
        fit: list[Floats] = []
        distance_positions: list[Ints] = []
        accepted: list[int] = []
        rejected: list[Rejected] = []
        for i, row in enumerate(rows.distances):
            end = n_retained + len(fit)  # as if all of them will be accepted
            first = 0 if self._window is None else max(0, end - self._window)
            selected, fault = self._select_distances(
                row, int(numbers[n_retained + i]), numbers[first:end]
            )
            if fault is not None:
                number = int(rows.numbers[i])
                if on_bad_row == "raise":
                    raise BadRowError(fault, ((number, fault),))
                rejected.append(Rejected(number, keys[i], fault))
                continue
            numbers[end] = numbers[n_retained + i]
            fit.append(selected)
            distance_positions.append(positions[first:end])
            accepted.append(i)
        # several are all accepted, or it is for the caller to try them one by one
        ids = None if rows.ids is None else rows.ids[accepted]
        policy = on_bad_row if len(fit) == 1 else "raise"
        call = self._engine.check_distances(fit, ids)
        offsets = rows.numbers[accepted] + 1
        learned = self._engine.apply(replace(call, on_bad_row=policy, log_offsets=offsets))
        self._engine.log_offset = int(rows.numbers[-1]) + 1  # the last rows may be rejected
        for failure in learned.rejected:  # no more than the one
            number = int(rows.numbers[accepted[0]])
            rejected.append(Rejected(number, failure.id, failure.reason))
            fit, distance_positions, accepted = [], [], []
        self._forget_old(numbers[: n_retained + len(fit)], positions[: n_retained + len(fit)])
        events = rows.take(np.array(accepted, dtype=np.int64))
        return replace(events, distances=fit, distance_positions=distance_positions), rejected

    def _forget_old(self, numbers: Ints, positions: Ints) -> None:
        if self._window is not None:
            numbers, positions = numbers[-self._window :], positions[-self._window :]
        elif self._engine.ready and not self._engine.pending:  # landmarks may have changed
            stay = np.searchsorted(positions, self._engine.support_positions)
            numbers, positions = numbers[stay], positions[stay]
        self._numbers, self._positions = numbers.copy(), positions.copy()

    @property
    def _window(self) -> int | None:
        return self._engine.config.window

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
            return row, self._explain_too_short(len(row), number, needed)
        if number - oldest == len(needed):  # none was rejected in between
            return row[oldest - back :].copy(), None
        return row[needed - back], None

    def _explain_too_short(self, length: int, number: int, needed: Ints) -> str:
        """Why a row that does not reach back to the oldest event cannot be used."""
        oldest, engine = int(needed[0]), self._engine
        where = f"row {oldest - self._start}"
        if oldest < self._start:
            where = f"an event {self._start - oldest} before this log"
        if engine.config.memory == "landmarks" and engine.ready:
            name = engine.support_ids.tolist()[0]
            return f"it covers only the last {length} rows; landmark {name!r} ({where}) is older"
        memory = "the window" if engine.config.memory == "window" else "the support"
        n_rejected = number - oldest - len(needed)
        suffix = f", {n_rejected} of them rejected" if n_rejected else ""
        return (
            f"it covers only the last {length} rows; {memory} holds {len(needed)} events and "
            f"begins at {where}: it must cover the last {number - oldest} rows{suffix}"
        )

    def embed(self, snapshot: Snapshot, position: int, rows: EventRows) -> dict[str, Array]:
        """The same: an event without a slot is placed by the distances of its row."""
        support = self._engine.support_positions
        coordinates = np.full((len(rows), len(snapshot.eigenvalues)), np.nan)
        coverage = np.full(len(rows), np.nan)
        own, slots = find_slots(self._engine, position, len(rows))
        coordinates[own] = snapshot.coordinates[slots]
        typical = np.median(snapshot.degrees)
        coverage[own] = np.minimum(1.0, snapshot.degrees[slots] / typical)
        others = np.flatnonzero(~own)
        if rows.distances is None or rows.distance_positions is None:  # they are not remembered
            others = others[:0]
        for start in range(0, len(others), TILE):
            tile = others[start : start + TILE]
            assert rows.distances is not None
            assert rows.distance_positions is not None
            row_distances = [(rows.distances[i], rows.distance_positions[i]) for i in tile.tolist()]
            d = np.array([_scatter_to_support(*row, support) for row in row_distances])
            finite = np.isfinite(d).any(axis=1)
            if finite.any():
                coordinates[tile[finite]] = snapshot.transform_distances(d[finite])
                coverage[tile[finite]] = snapshot.coverage_distances(d[finite])
        return _build_columns(self._engine, snapshot, position, coordinates, coverage)


Feed = PointFeed | DistanceFeed


def create_feed(log: EventLog, engine: Engine, rejected: Sequence[int] = ()) -> Feed:
    """The feed for a log of that kind.

    Parameters
    ----------
    rejected
        Of a log that is resumed at ``engine.log_offset``, the rejected rows before it,
        ascending.
    """
    if log.kind == "distances":
        return DistanceFeed(engine, rejected)
    return PointFeed(engine, log)


def _build_columns(
    engine: Engine, snapshot: Snapshot, position: int, coordinates: Floats, coverage: Floats
) -> dict[str, Array]:
    """Columns for events from a position on; places in the picture of those that have a slot."""
    n, names = len(coverage), name_columns(snapshot.method, coordinates.shape[1])
    columns: dict[str, Array] = {
        "snapshot": np.full(n, snapshot.position),
        "epoch": np.full(n, snapshot.frame.epoch),
        **dict(zip(names, coordinates.T, strict=True)),
        "coverage": coverage,
    }
    if (picture := snapshot.picture) is not None:
        own, slots = find_slots(engine, position, n)
        parts = *picture.coordinates.T, picture.kept
        for name, values in zip(EVENT_PICTURE_COLUMNS, parts, strict=True):
            columns[name] = np.full(n, np.nan)
            columns[name][own] = values[slots]
    return columns


def find_slots(engine: Engine, position: int, n: int) -> tuple[Bools, Ints]:
    """Which of n events from a position on the support still holds, (n,), and where each is."""
    support, events = engine.support_positions, position + np.arange(n)
    slots = np.minimum(np.searchsorted(support, events), len(support) - 1)
    own: Bools = support[slots] == events
    return own, slots[own]


def _scatter_to_support(distances: Floats, positions: Ints, support: Ints) -> Floats:
    """Distances to every item of the support, inf where the row has none."""
    d = np.full(len(support), np.inf)
    slots = np.minimum(np.searchsorted(support, positions), len(support) - 1)
    matches = support[slots] == positions
    d[slots[matches]] = distances[matches]
    return d
