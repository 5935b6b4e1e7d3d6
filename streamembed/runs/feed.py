"""Feeds: rows of a log into an engine, and their coordinates once a snapshot has learned them.

A `PointFeed` hands points on. A `DistanceFeed` puts the rows of a distance log, which refer to the
rows before them in the log, into the engine's terms: distances to what it holds. Rows that were set
aside count in the log and not in the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from streamembed.data import batch
from streamembed.data.batch import Batch, Rejected
from streamembed.data.ids import read_ids, typed_ids
from streamembed.data.table import column_order
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import BadRowError, ParameterError
from streamembed.logs.event_log import EventLog, LogBatch
from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.runs.event_rows import Embedded, Rows

__all__ = ["DistanceFeed", "Feed", "PointFeed", "feed_of", "own_slots"]

TILE = 256  # rows of distances to a whole support at once


class Feed(Protocol):
    """What a driver asks of a log of one kind. Rejected rows are named by their row in the log."""

    def read(self, part: LogBatch) -> tuple[Rows, list[Rejected]]:
        """The rows of a batch that may become events, and those that never can, ascending."""
        ...

    def take(self, rows: Rows, on_bad_row: str) -> tuple[Rows, list[Rejected]]:
        """Have the engine accept rows of one chunk; those that are events now, and the others.

        Raises `BadRowError` or `DuplicateIdError` where one of them makes it try them one by one;
        nothing was accepted then.
        """
        ...

    def embed(self, snapshot: Snapshot, position: int, rows: Rows) -> Embedded:
        """Where the events from a position on are."""
        ...


def feed_of(log: EventLog, engine: Engine, aside: Sequence[int] = ()) -> Feed:
    """The feed for a log of that kind.

    Parameters
    ----------
    aside
        Of a log that is gone on with at ``engine.log_offset``, the rows before that were set
        aside, ascending.
    """
    if log.kind == "distances":
        return DistanceFeed(engine, aside)
    return PointFeed(engine, log)


def _carried(part: LogBatch, kept: Ints) -> dict[str, pa.Array]:
    """Labels and times of some rows of a batch; copies, for slices would hold on to all of it."""
    columns = {"label": part.labels, "event_time": part.event_times}
    index = pa.array(kept)
    return {name: column.take(index) for name, column in columns.items() if column is not None}


class PointFeed:
    """Points of a log into an engine, columns in its order."""

    def __init__(self, engine: Engine, log: EventLog) -> None:
        self._engine = engine
        self._names = log.feature_names
        self._ordered = log.ordered

    def read(self, part: LogBatch) -> tuple[Rows, list[Rejected]]:
        points, nulls, names = part.points, part.nulls, self._names
        known = self._engine.feature_names
        if known not in ((), names):  # taught by places: "10" is after "9"
            order = column_order(names, known)
            names, points, nulls = known, points[:, order], nulls[:, order]
        read = batch.check_table(points, names, self._ordered, nulls, part.faults, part.ids, "skip")
        rows = Rows(part.offset + read.kept, read.points, _carried(part, read.kept), read.ids)
        return rows, [replace(row, index=part.offset + row.index) for row in read.rejected]

    def take(self, rows: Rows, on_bad_row: str) -> tuple[Rows, list[Rejected]]:
        names = self._engine.feature_names or self._names
        own = np.arange(len(rows), dtype=np.int64)  # labels are of these rows alone
        checked = Batch(rows.points, names, self._ordered, rows.ids, own, ())
        labels = None
        if self._engine.config.metrics and "label" in rows.carried:
            labels = rows.carried["label"].to_pylist()
        times = rows.carried.get("event_time")
        done = int(rows.numbers[-1]) + 1
        learned = self._engine.admit(checked, on_bad_row, labels, done, times)
        gone = [row.index for row in learned.rejected]
        rejected = [replace(row, index=int(rows.numbers[row.index])) for row in learned.rejected]
        return rows.take(np.delete(own, gone)), rejected

    def embed(self, snapshot: Snapshot, position: int, rows: Rows) -> Embedded:
        index = np.arange(len(rows), dtype=np.int64)
        events = Batch(rows.points, snapshot.feature_names, self._ordered, None, index, ())
        coordinates, coverage = snapshot.transform_with_coverage(events)
        places, kept = _find_places(self._engine, snapshot, position, len(rows))
        if places is not None and snapshot.picture is not None:
            gone = np.isnan(places[:, 0])
            if gone.any():
                others = replace(events, points=rows.points[gone], kept=index[: gone.sum()])
                places[gone] = snapshot.picture.transform(others)
        at = snapshot.position, snapshot.frame.epoch
        return Embedded(coordinates, coverage, *at, places, kept)


class DistanceFeed:
    """Distances of a log into an engine.

    Rows are counted from the engine's first event: those of this log begin where it stood. Of
    every item that the next row must hold, oldest first, the feed knows the row and the stream
    position; so its memory is that of the engine's support.
    """

    def __init__(self, engine: Engine, aside: Sequence[int] = ()) -> None:
        self._engine = engine
        # the rows of this log that are events
        taken = np.delete(np.arange(engine.log_offset), np.array(aside, dtype=np.int64))
        self._start = engine.position - len(taken)
        if self._start < 0:
            raise ParameterError(
                f"aside has {len(aside)} rows; of the {engine.log_offset} rows that this engine "
                f"has read from its log of distances, at least {len(aside) - self._start} were "
                "rejected: give the row number of each"
            )
        waiting = np.arange(engine.learned, engine.position)
        self._positions: Ints = np.concatenate([engine.support_positions, waiting])
        self._numbers = self._positions.copy()
        own = self._positions >= self._start
        self._numbers[own] = self._start + taken[self._positions[own] - self._start]

    def read(self, part: LogBatch) -> tuple[Rows, list[Rejected]]:
        assert part.distances is not None
        known = read_ids(part.ids, len(part))
        kept: list[int] = []
        distances: list[Floats] = []
        rejected = []
        for i, row in enumerate(part.distances):
            key = None if known is None else known[i]
            if known is not None and key is None:
                rejected.append(Rejected(part.offset + i, None, "the id is null"))
            elif row is None:
                rejected.append(Rejected(part.offset + i, key, "null in 'distances'"))
            else:
                kept.append(i)
                distances.append(row)
        index = np.array(kept, dtype=np.int64)
        ids, points = typed_ids(known, index), np.zeros((len(index), 0))
        return Rows(part.offset + index, points, _carried(part, index), ids, distances), rejected

    def take(self, rows: Rows, on_bad_row: str) -> tuple[Rows, list[Rejected]]:
        assert rows.distances is not None
        n, held = len(rows), len(self._numbers)
        keys = [None] * n if rows.ids is None else rows.ids.tolist()
        numbers = np.concatenate([self._numbers, self._start + rows.numbers])
        positions = np.concatenate([self._positions, self._engine.position + np.arange(n)])
        fit: list[Floats] = []
        reached: list[Ints] = []
        accepted: list[int] = []
        rejected: list[Rejected] = []
        for i, row in enumerate(rows.distances):
            end = held + len(fit)  # as if all of them will be accepted
            first = 0 if self._window is None else max(0, end - self._window)
            chosen, fault = self._chosen(row, int(numbers[held + i]), numbers[first:end])
            if fault is not None:
                number = int(rows.numbers[i])
                if on_bad_row == "raise":
                    raise BadRowError(fault, ((number, fault),))
                rejected.append(Rejected(number, keys[i], fault))
                continue
            numbers[end] = numbers[held + i]
            fit.append(chosen)
            reached.append(positions[first:end])
            accepted.append(i)
        # several are all accepted, or it is for the caller to try them one by one
        ids = None if rows.ids is None else rows.ids[accepted]
        policy = on_bad_row if len(fit) == 1 else "raise"
        learned = self._engine.admit_distances(fit, ids, policy, int(rows.numbers[-1]) + 1)
        for refused in learned.rejected:  # no more than the one
            number = int(rows.numbers[accepted[0]])
            rejected.append(Rejected(number, refused.id, refused.reason))
            fit, reached, accepted = [], [], []
        self._keep(numbers[: held + len(fit)], positions[: held + len(fit)])
        events = rows.take(np.array(accepted, dtype=np.int64))
        return replace(events, distances=fit, reached=reached), rejected

    def _keep(self, numbers: Ints, positions: Ints) -> None:
        """Forget the items that no row must hold any more."""
        if self._window is not None:
            numbers, positions = numbers[-self._window :], positions[-self._window :]
        elif self._engine.ready and not self._engine.pending:  # landmarks may have changed
            stay = np.searchsorted(positions, self._engine.support_positions)
            numbers, positions = numbers[stay], positions[stay]
        self._numbers, self._positions = numbers.copy(), positions.copy()

    @property
    def _window(self) -> int | None:
        return self._engine.config.window

    def _chosen(self, row: Floats, number: int, needed: Ints) -> tuple[Floats, str | None]:
        """The distances to the rows that are needed, out of those to the last ones."""
        back = number - len(row)
        if back < 0:
            return row, f"it has {len(row)} distances, but only {number} rows precede it"
        if len(needed) == 0:
            return row[:0], None
        oldest = int(needed[0])
        if oldest < back:
            return row, self._too_short(len(row), number, needed)
        if number - oldest == len(needed):  # none was set aside in between
            return row[oldest - back :].copy(), None
        return row[needed - back], None

    def _too_short(self, length: int, number: int, needed: Ints) -> str:
        """Why a row that does not reach back to the oldest event cannot be used."""
        oldest, engine = int(needed[0]), self._engine
        where = f"row {oldest - self._start}"
        if oldest < self._start:
            where = f"an event {self._start - oldest} before this log"
        if engine.config.memory == "landmarks" and engine.ready:
            name = engine.support_ids.tolist()[0]
            return f"it covers only the last {length} rows; landmark {name!r} ({where}) is older"
        what = "the window" if engine.config.memory == "window" else "the support"
        aside = number - oldest - len(needed)
        among = f", {aside} of them rejected" if aside else ""
        return (
            f"it covers only the last {length} rows; {what} holds {len(needed)} events and begins "
            f"at {where}: it must cover the last {number - oldest} rows{among}"
        )

    def embed(self, snapshot: Snapshot, position: int, rows: Rows) -> Embedded:
        """Those of their own slots; of an event that has none any more, what its row brought."""
        support = self._engine.support_positions
        coordinates = np.full((len(rows), len(snapshot.eigenvalues)), np.nan)
        coverage = np.full(len(rows), np.nan)
        own, slots = own_slots(self._engine, position, len(rows))
        coordinates[own] = snapshot.coordinates[slots]
        typical = np.median(snapshot.degrees)
        coverage[own] = np.minimum(1.0, snapshot.degrees[slots] / typical)
        others = np.flatnonzero(~own)
        if rows.distances is None or rows.reached is None:  # they are not remembered
            others = others[:0]
        for start in range(0, len(others), TILE):
            tile = others[start : start + TILE]
            assert rows.distances is not None
            assert rows.reached is not None
            brought = [(rows.distances[i], rows.reached[i]) for i in tile.tolist()]
            d = np.array([_to_support(*row, support) for row in brought])
            known = np.isfinite(d).any(axis=1)
            if known.any():
                coordinates[tile[known]] = snapshot.transform_distances(d[known])
                coverage[tile[known]] = snapshot.coverage_distances(d[known])
        places = _find_places(self._engine, snapshot, position, len(rows))
        at = snapshot.position, snapshot.frame.epoch
        return Embedded(coordinates, coverage, *at, *places)


def _find_places(
    engine: Engine, snapshot: Snapshot, position: int, n: int
) -> tuple[Floats | None, Floats | None]:
    """Places and kept of n events from a position on; NaN where they have no slot any more."""
    picture = snapshot.picture
    if picture is None:
        return None, None
    own, slots = own_slots(engine, position, n)
    places, kept = np.full((n, 2), np.nan), np.full(n, np.nan)
    places[own], kept[own] = picture.coordinates[slots], picture.kept[slots]
    return places, kept


def own_slots(engine: Engine, position: int, n: int) -> tuple[Bools, Ints]:
    """Which of n events from a position on the support still holds, (n,), and where each is."""
    support, events = engine.support_positions, position + np.arange(n)
    slots = np.minimum(np.searchsorted(support, events), len(support) - 1)
    own: Bools = support[slots] == events
    return own, slots[own]


def _to_support(distances: Floats, reached: Ints, support: Ints) -> Floats:
    """Distances to every item of the support, inf where the row did not bring it."""
    d = np.full(len(support), np.inf)
    slots = np.minimum(np.searchsorted(support, reached), len(support) - 1)
    found = support[slots] == reached
    d[slots[found]] = distances[found]
    return d
