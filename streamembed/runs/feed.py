"""Feeds: rows of a log into an engine, and their coordinates once a snapshot has learned them.

A `PointFeed` hands points on. A `DistanceFeed` puts the rows of a distance log, which refer to the
rows before them in the log, into the engine's terms: distances to what it holds. Rows that were set
aside count in the log and not in the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa

from streamembed.data import batch
from streamembed.data.batch import Batch, Rejected
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import BadRowError
from streamembed.logs.reader import EventLog, LogBatch
from streamembed.numeric.arrays import Array, Floats, Ints

__all__ = ["DistanceFeed", "Feed", "PointFeed", "Rows", "Taken", "feed_of"]

TILE = 256  # rows of distances to a whole support at once


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of one batch of a log that may become events.

    Attributes
    ----------
    offset : int
        Row number in the log of the batch.
    kept : (n,)
        Index in the batch of each row.
    ids : (n,) or None
        int64 or str.
    events : (n, d) or list of n rows
        Points, or the distances that the log has.
    labels : list or None
        One a row, where the engine learns metrics.
    """

    offset: int
    kept: Ints
    ids: Array | None
    events: Any
    labels: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.kept)

    def part(self, start: int, stop: int) -> Self:
        """A consecutive part of them."""
        ids = None if self.ids is None else self.ids[start:stop]
        labels = None if self.labels is None else self.labels[start:stop]
        kept, events = self.kept[start:stop], self.events[start:stop]
        return type(self)(self.offset, kept, ids, events, labels)


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """What became of rows: accepted ones are events now, in log order.

    Attributes
    ----------
    accepted : (n,)
        Which of the rows.
    held : (n, d) or list of n
        What their coordinates will be made of.
    rejected : tuple of Rejected
        The others, by their index in the batch.
    """

    accepted: Ints
    held: Any
    rejected: tuple[Rejected, ...]


class Feed(Protocol):
    """What a recorder needs of a log of one kind."""

    def read(self, part: LogBatch) -> tuple[Rows, tuple[Rejected, ...]]:
        """The rows of a batch that may become events, and those that never can."""
        ...

    def take(self, rows: Rows, on_bad_row: str) -> Taken:
        """Pass rows of one chunk to the engine.

        Raises `BadRowError` or `DuplicateIdError` where one of them makes it try them one by one;
        nothing was accepted then.
        """
        ...

    def join(self, parts: Sequence[Any]) -> Any:
        """What is held of several, in one piece."""
        ...

    def embed(self, snapshot: Snapshot, position: int, held: Any) -> tuple[Floats, Floats]:
        """Coordinates (n, k) and coverage (n,) of the events from a position on; NaN if unknown."""
        ...


def feed_of(log: EventLog, engine: Engine) -> Feed:
    """The feed for a log of that kind."""
    return DistanceFeed(engine) if log.kind == "distances" else PointFeed(engine, log)


class PointFeed:
    """Points of a log into an engine, columns in its order."""

    def __init__(self, engine: Engine, log: EventLog) -> None:
        self._engine = engine
        self._names = log.feature_names
        self._ordered = log.ordered

    def read(self, part: LogBatch) -> tuple[Rows, tuple[Rejected, ...]]:
        points, nulls, names = part.points, part.nulls, self._names
        known = self._engine.feature_names
        if known not in ((), names):  # taught by places: "10" is after "9"
            order = [names.index(name) for name in known]
            names, points, nulls = known, points[:, order], nulls[:, order]
        read = batch.checked(points, names, self._ordered, nulls, {}, part.ids, "skip")
        labels = None
        if part.labels is not None and self._engine.config.metrics:
            labels = part.labels.take(pa.array(read.kept)).to_pylist()
        return Rows(part.offset, read.kept, read.ids, read.points, labels), read.rejected

    def take(self, rows: Rows, on_bad_row: str) -> Taken:
        names = self._engine.feature_names or self._names
        own = np.arange(len(rows), dtype=np.int64)  # labels are of these rows alone
        checked = Batch(rows.events, names, self._ordered, rows.ids, own, ())
        learned = self._engine.admit(checked, on_bad_row, rows.labels)
        gone = [row.index for row in learned.rejected]
        rejected = tuple(replace(row, index=int(rows.kept[row.index])) for row in learned.rejected)
        stay = np.delete(own, gone)
        return Taken(stay, rows.events[stay], rejected)

    def join(self, parts: Sequence[Any]) -> Any:
        return np.concatenate(parts)

    def embed(self, snapshot: Snapshot, position: int, held: Any) -> tuple[Floats, Floats]:
        names = snapshot.feature_names
        index = np.arange(len(held), dtype=np.int64)
        return snapshot.transform_with_coverage(Batch(held, names, self._ordered, None, index, ()))


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """A row as the engine took it: distances to the events of these stream positions."""

    distances: Floats
    positions: Ints


class DistanceFeed:
    """Distances of a log into an engine.

    Rows are counted from the engine's first event: those of this log begin where it stood. Of
    every item that the next row must hold, oldest first, the feed knows the row and the stream
    position; so its memory is that of the engine's support.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._start = engine.position
        waiting = np.arange(self._start - engine.pending, self._start)
        self._positions: Ints = np.concatenate([engine.support_positions, waiting])
        self._numbers = self._positions.copy()

    def read(self, part: LogBatch) -> tuple[Rows, tuple[Rejected, ...]]:
        assert part.distances is not None
        known = batch.read_ids(part.ids, len(part))
        rejected = []
        for i, row in enumerate(part.distances):
            key = None if known is None else known[i]
            if known is not None and key is None:
                rejected.append(Rejected(i, None, "the id is null"))
            elif row is None:
                rejected.append(Rejected(i, key, "null in 'distances'"))
        kept = np.delete(np.arange(len(part)), [row.index for row in rejected])
        events = [part.distances[i] for i in kept.tolist()]
        return Rows(part.offset, kept, batch.typed_ids(known, kept), events), tuple(rejected)

    def take(self, rows: Rows, on_bad_row: str) -> Taken:
        n, held = len(rows), len(self._numbers)
        numbers = np.concatenate([self._numbers, self._start + rows.offset + rows.kept])
        positions = np.concatenate([self._positions, self._engine.position + np.arange(n)])
        fit: list[_Row] = []
        accepted: list[int] = []
        rejected: list[Rejected] = []
        for i, row in enumerate(rows.events):
            end = held + len(fit)  # as if all of them will be accepted
            first = 0 if self._window is None else max(0, end - self._window)
            chosen, fault = self._chosen(row, int(numbers[held + i]), numbers[first:end])
            if fault is not None:
                if on_bad_row == "raise":
                    raise BadRowError(fault, ((int(rows.kept[i]), fault),))
                key = None if rows.ids is None else rows.ids.tolist()[i]
                rejected.append(Rejected(int(rows.kept[i]), key, fault))
                continue
            numbers[end] = numbers[held + i]
            fit.append(_Row(chosen, positions[first:end]))
            accepted.append(i)
        # several are all accepted, or it is for the caller to try them one by one
        ids = None if rows.ids is None else rows.ids[accepted]
        policy = on_bad_row if len(fit) == 1 else "raise"
        learned = self._engine.admit_distances([row.distances for row in fit], ids, policy)
        for refused in learned.rejected:  # no more than the one
            rejected.append(Rejected(int(rows.kept[accepted[0]]), refused.id, refused.reason))
            fit, accepted = [], []
        self._keep(numbers[: held + len(fit)], positions[: held + len(fit)])
        return Taken(np.array(accepted, dtype=np.int64), fit, tuple(rejected))

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
            return row, f"it has {len(row)} distances, but only {number} rows came before"
        if len(needed) == 0:
            return row[:0], None
        oldest = int(needed[0])
        if oldest < back:
            return row, self._too_short(len(row), number, needed)
        if number - oldest == len(needed):  # none was set aside in between
            return row[oldest - back :].copy(), None
        return row[needed - back], None

    def _too_short(self, length: int, number: int, needed: Ints) -> str:
        """Why a row is no use that does not reach back to the oldest item."""
        oldest, engine = int(needed[0]), self._engine
        where = f"row {oldest - self._start}"
        if oldest < self._start:
            where = f"an event {self._start - oldest} before this log"
        if engine.config.memory == "landmarks" and engine.ready:
            name = engine.support_ids.tolist()[0]
            return f"it refers only to the last {length} rows; landmark {name!r} ({where}) is older"
        what = "the window" if engine.config.memory == "window" else "the support"
        aside = number - oldest - len(needed)
        among = f", {aside} of them set aside" if aside else ""
        return (
            f"it refers only to the last {length} rows; {what} holds {len(needed)} events and "
            f"begins at {where}: it must refer to the last {number - oldest}{among}"
        )

    def join(self, parts: Sequence[Any]) -> Any:
        return [row for part in parts for row in part]

    def embed(self, snapshot: Snapshot, position: int, held: Any) -> tuple[Floats, Floats]:
        """Those of their own slots; of an event that has none any more, what its row brought."""
        support = self._engine.support_positions
        coordinates = np.full((len(held), len(snapshot.eigenvalues)), np.nan)
        coverage = np.full(len(held), np.nan)
        events = position + np.arange(len(held))
        slots = np.minimum(np.searchsorted(support, events), len(support) - 1)
        own = support[slots] == events
        coordinates[own] = snapshot.coordinates[slots[own]]
        masses = np.minimum(1.0, snapshot.degrees / np.median(snapshot.degrees))
        coverage[own] = masses[slots[own]]
        others = np.flatnonzero(~own)
        for start in range(0, len(others), TILE):
            tile = others[start : start + TILE]
            d = np.array([_to_support(held[i], support) for i in tile.tolist()])
            known = np.isfinite(d).any(axis=1)
            if known.any():
                coordinates[tile[known]] = snapshot.transform_distances(d[known])
                coverage[tile[known]] = snapshot.coverage_distances(d[known])
        return coordinates, coverage


def _to_support(row: _Row, support: Ints) -> Floats:
    """Distances to every item of the support, inf where the row did not bring it."""
    d = np.full(len(support), np.inf)
    slots = np.minimum(np.searchsorted(support, row.positions), len(support) - 1)
    found = support[slots] == row.positions
    d[slots[found]] = row.distances[found]
    return d
