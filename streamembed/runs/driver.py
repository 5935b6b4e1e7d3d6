"""The driver: takes a log through an engine, chunk by chunk, and hands on what comes of it.

It holds the events since the last snapshot and nothing else that grows. How far it has come is
``engine.log_offset``, part of the engine and so of what is saved; a driver goes on from there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from streamembed.data.batch import Batch, Rejected
from streamembed.drift.alarm import Alarm
from streamembed.drift.monitor import Monitor
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import BadRowError, DuplicateIdError, shown
from streamembed.logs.event_log import EventLog, LogBatch
from streamembed.logs.fingerprint import LogFingerprint
from streamembed.logs.pair_log import PairLog, match_features
from streamembed.runs.checkpoint_writer import Counts
from streamembed.runs.event_rows import Embedded, Rows
from streamembed.runs.feed import feed_of, own_slots
from streamembed.runs.reject_limit import Limit

__all__ = ["Driver", "Sink"]


class Sink(Protocol):
    """Where a driver leaves what came of a log: a recorder, or what stands before one.

    Everything comes in the order of the stream. `settle` follows `keep_snapshot` of a snapshot that
    was due: every row of the log before ``engine.log_offset`` has been handed on, as an event or
    as set aside, no event waits in the engine, and no row behind it has been looked at by either:
    an engine that is saved there, and what the sink has by then, belong together.
    """

    def keep_events(self, position: int, rows: Rows, embedded: Embedded | None) -> None:
        """Events from a stream position on, as of the snapshot that comes next.

        Parameters
        ----------
        embedded
            None where the log ended before they were learned. The first call may bring no rows: it
            tells what kind of ids will come.
        """
        ...

    def remember(self, position: int, rows: Rows) -> None:
        """Events from a stream position on, which will be embedded by the last snapshot."""
        ...

    def remembered(self) -> Iterator[tuple[int, Rows]]:
        """These again, in the same order, in pieces that do not hang on how they came."""
        ...

    def keep_snapshot(self, snapshot: Snapshot, refreshes: int) -> None:
        """A snapshot; ``refreshes`` of the factor were made since the first event."""
        ...

    def settle(
        self, engine: Engine, snapshot: Snapshot, counts: Counts, prefix: dict[str, int]
    ) -> None:
        """The engine as it stands is that of all that was handed on; see the class.

        Parameters
        ----------
        counts
            Of the rows of the log so far.
        prefix
            Their fingerprint, see `streamembed.logs.fingerprint`.
        """
        ...

    def keep_alarms(self, alarms: Sequence[Alarm]) -> None:
        """Alarms of a monitor, before the snapshot that knows of their events."""
        ...

    def set_aside(self, rows: Sequence[Rejected]) -> None:
        """Rows that could not be learned, by their number in the log, ascending over all calls."""
        ...

    def set_aside_pairs(self, rows: Sequence[Rejected]) -> None:
        """The same of a pair log; called at least once where there is one that was learned."""
        ...

    def close(self, snapshot: Snapshot | None, whole: bool) -> None:
        """Nothing more comes.

        Parameters
        ----------
        snapshot
            The last one; None where the warm-up did not end.
        whole
            Whether the log was read to its end: False after an interrupt, damage, or a row that
            stopped the replay.
        """
        ...


class Driver:
    """Takes a log through an engine.

    Parameters
    ----------
    engine
        Its ``log_offset`` is the row of the log to begin with.
    log
        Of the kind and the features that the engine has learned.
    sink
        Is handed what comes of it.
    every
        Events between snapshots, a multiple of the chunk size
        (`streamembed.runs.replay_log.cadence`).
    on_bad_row
        "skip" or "raise", as in `streamembed.replay`.
    pairs
        Taught at the end of the warm-up; None for none, or where that was done.
    causal
        Whether events are embedded as of when each was learned, or all by the last snapshot.
    aside
        Of a log that is gone on with, the rows before ``log_offset`` that were set aside,
        ascending; needed where it is a log of distances.

    counts
        Of the rows before ``log_offset``.
    prefix
        The fingerprint of these rows, see `streamembed.logs.fingerprint`; goes on with the others.
    limit
        How many rows may be rejected.
    monitor
        Watches the events that the engine accepts.
    on_alarm
        Called with each of its alarms.

    Attributes
    ----------
    counts : Counts
        Of all rows so far.
    """

    def __init__(
        self,
        engine: Engine,
        log: EventLog,
        sink: Sink,
        every: int,
        on_bad_row: str = "skip",
        pairs: PairLog | None = None,
        aside: Sequence[int] = (),
        causal: bool = True,
        counts: Counts | None = None,
        prefix: LogFingerprint | None = None,
        limit: Limit | None = None,
        monitor: Monitor | None = None,
        on_alarm: Callable[[Alarm], None] | None = None,
    ) -> None:
        self._monitor, self._on_alarm = monitor, on_alarm
        self._unwatched: list[Rows] = []  # events that the monitor has not seen yet
        self.counts = counts or Counts()
        self._limit = limit or Limit()
        self._prefix = prefix or LogFingerprint(engine.log_offset)
        self._engine = engine
        self._log = log
        self._sink = sink
        self._every = every
        self._on_bad_row = on_bad_row
        self._untaught = pairs
        self._causal = causal
        self._feed = feed_of(log, engine, aside)
        self._unseen: list[Rows] = []  # events since the last snapshot,
        self._first = 0  # and the stream position of the first of them
        self._is_begun = False
        self._start = engine.position - self.counts.accepted
        self._last = engine.learned  # is published already, or was
        self._part: LogBatch | None = None  # that is being learned
        self._progress: Callable[[int], None] | None = None
        self._told = 0  # rows

    def run(self, progress: Callable[[int], None] | None = None) -> None:
        """Learn the log from ``engine.log_offset`` on.

        However it ends, what was learned is handed on, and the sink is closed.

        Parameters
        ----------
        progress
            Called with the rows of the log taken so far: after every chunk, and every batch.

        Raises
        ------
        LogError
            The log is damaged, behind rows that are learned.
        BadRowError, DuplicateIdError
            Under "raise", naming the row of the log; it is not counted as taken.
        ParameterError
            The log has fewer rows than were taken.
        """
        self._progress = progress
        whole = False
        try:
            for part in self._log.batches(self._engine.log_offset):
                self.learn(part)
                self._tell()
            counts = self.counts
            self._limit.check(counts.rejected, counts.accepted + counts.rejected, ended=True)
            whole = True
        finally:
            self._finish(whole)

    def learn(self, part: LogBatch) -> None:
        """Learn one batch of the log: check it, and learn it slice by slice."""
        self._part = part
        rows, unusable = self._feed.read(part)
        fatal = unusable[0] if unusable and self._on_bad_row == "raise" else None
        if fatal is not None:
            rows, unusable = rows.part(0, int(np.searchsorted(rows.numbers, fatal.index))), []
        if len(rows) and not self._is_begun:
            self._is_begun = True
            self._sink.keep_events(self._engine.position, rows.part(0, 0), None)
        places = [row.index for row in unusable]
        start = done = 0
        while start < len(rows):
            cut = self._next_cut
            stop = min(len(rows), start + cut - self._engine.position)
            refused = self._take(rows.part(start, stop))
            before = bisect_left(places, int(rows.numbers[stop - 1]))
            self._set_aside([*unusable[done:before], *refused])
            start, done = stop, before
            self._teach()
            if self._engine.position == cut and self._is_due(cut):
                self._publish()
                self._settle()
            self._tell()
        if fatal is not None:
            raise _bad_row(fatal.index, fatal.reason)
        self._set_aside(unusable[done:])
        self._engine.log_offset = part.offset + len(part)
        self._prefix.update(part, self._engine.log_offset)

    def _tell(self) -> None:
        """How many rows of the log are taken, where they have become more."""
        rows = self._engine.log_offset
        if self._progress is not None and rows > self._told:
            self._told = rows
            self._progress(rows)

    def _take(self, rows: Rows) -> list[Rejected]:
        """Have the engine accept rows of one chunk; returns the rejected ones."""
        position = self._engine.position
        try:
            events, refused = self._feed.take(rows, self._on_bad_row)
        except (BadRowError, DuplicateIdError) as error:
            if len(rows) == 1:
                raise _named(error, rows) from error
            # one by one up to the culprit, so that what is learned does not hang on the batches
            singly = (self._take(rows.part(i, i + 1)) for i in range(len(rows)))
            return [row for refused in singly for row in refused]
        if len(events):
            if not self._unseen:
                self._first = position
            self._unseen.append(events)
            if self._monitor is not None:
                self._unwatched.append(events)
        self._count(accepted=len(events))
        return refused

    def _watch(self) -> None:
        """Have the monitor see all events that the engine has accepted."""
        if self._monitor is None or not self._unwatched:
            return
        rows, self._unwatched = Rows.joined(self._unwatched), []
        names = self._engine.feature_names or self._log.feature_names
        index = np.arange(len(rows), dtype=np.int64)
        events = Batch(rows.points, names, self._log.ordered, rows.ids, index, ())
        labels = None
        if "label" in rows.carried and self._monitor.parameters["labels"]:
            labels = rows.carried["label"].to_pylist()
        alarms = self._monitor.watch(events, labels)
        self._sink.keep_alarms(alarms)
        if self._on_alarm is not None:
            for alarm in alarms:
                self._on_alarm(alarm)

    def _set_aside(self, rows: list[Rejected]) -> None:
        if rows:
            self._count(rejected=len(rows))
            self._sink.set_aside(sorted(rows, key=lambda row: row.index))
            counts = self.counts
            self._limit.check(counts.rejected, counts.accepted + counts.rejected)

    def _count(self, **more: int) -> None:
        known = {name: getattr(self.counts, name) + number for name, number in more.items()}
        self.counts = replace(self.counts, **known)

    @property
    def prefix(self) -> dict[str, int]:
        """The fingerprint of all rows so far."""
        return self._prefix.to_dict()

    @property
    def _next_cut(self) -> int:
        """The stream position at which the engine learns next."""
        return self._engine.config.chunks.next_cut(self._engine.learned)

    def _is_due(self, position: int) -> bool:
        """Whether there is to be a snapshot of this position."""
        return position == self._engine.config.warm_up_events or position % self._every == 0

    def _teach(self) -> None:
        """Known pairs, as soon as the engine has a scale for them: batch by batch, none is held."""
        if self._untaught is None or not self._engine.ready:
            return
        log, self._untaught = self._untaught, None
        names = self._engine.feature_names
        order = match_features(log, names)
        self._sink.set_aside_pairs(())
        for part in log:
            if part.rejected and self._on_bad_row == "raise":
                first = part.rejected[0]
                raise _bad_row(first.index, first.reason, "pair log")
            index = np.arange(len(part.similar), dtype=np.int64)
            left, right = (
                Batch(side[:, order], names, True, None, index, ())
                for side in (part.left, part.right)
            )
            self._engine.learn_pairs(left, right, part.similar)
            self._count(pairs=len(part.similar), rejected_pairs=len(part.rejected))
            self._sink.set_aside_pairs(part.rejected)

    def _publish(self) -> None:
        """Hand on a snapshot, and the coordinates of every event since the last one."""
        self._watch()
        if self._engine.learned == self._last:
            return
        snapshot = self._engine.snapshot()
        self._last = snapshot.position
        self._embed(snapshot)
        self._sink.keep_snapshot(snapshot, self._engine.refreshes)
        self._count(snapshots=1)

    def _settle(self) -> None:
        """What was handed on is all that the engine knows of the log."""
        assert self._part is not None
        self._watch()
        self._prefix.update(self._part, self._engine.log_offset)
        told = self._prefix.to_dict()
        self._sink.settle(self._engine, self._engine.publish(), self.counts, told)

    def _embed(self, snapshot: Snapshot) -> None:
        """Hand on the events that the snapshot has learned; keep those that wait for their chunk.

        All in one transform: how the log came in pieces must not show in the last bit.
        """
        if not self._unseen:
            return
        rows, first = Rows.joined(self._unseen), self._first
        # events of an earlier replay may wait before
        count = max(snapshot.position - first, 0)
        whole, waiting = rows.part(0, count), rows.part(count, len(rows))
        if self._causal:
            self._sink.keep_events(first, whole, self._feed.embed(snapshot, first, whole))
        else:
            self._sink.remember(first, whole)
        self._unseen, self._first = [waiting] if len(waiting) else [], first + count

    def _finish(self, whole: bool) -> None:
        """A last snapshot where whole chunks came after the one before; the rest is not learned.

        Where an interrupt fell between learning a chunk and noting it, that chunk has no rows.
        """
        is_ready = self._engine.ready
        self._watch()
        if is_ready and self._engine.position == self._start + self.counts.accepted:
            self._publish()
        snapshot = self._engine.snapshot() if is_ready else None
        if not self._causal:
            self._embed_all(snapshot)
        if self._unseen:
            self._sink.keep_events(self._first, Rows.joined(self._unseen), None)
        self._unseen = []
        self._sink.close(snapshot, whole)

    def _embed_all(self, snapshot: Snapshot | None) -> None:
        """All events by the last snapshot: those of the support exactly as they are in it."""
        for first, rows in self._sink.remembered():
            if snapshot is None:
                self._sink.keep_events(first, rows, None)
                continue
            embedded = self._feed.embed(snapshot, first, rows)
            own, slots = own_slots(self._engine, first, len(rows))
            embedded.coordinates[own] = snapshot.coordinates[slots]
            self._sink.keep_events(first, rows, embedded)


def _named(error: BadRowError | DuplicateIdError, rows: Rows) -> Exception:
    """The error about a single row, with its place in the log."""
    number = int(rows.numbers[0])
    if isinstance(error, BadRowError):
        return _bad_row(number, error.rows[0][1])
    key = "missing" if rows.ids is None else shown(rows.ids.tolist()[0])
    return DuplicateIdError(
        f"row {number} of the log cannot be learned (its id is {key}): ids must be of one kind and "
        "unique within the support; fix the log, or reject rows with repeated ids with "
        "on_bad_row='skip'"
    )


def _bad_row(number: int, reason: str, log: str = "log") -> BadRowError:
    remedy = "fix it" if log == "pair log" else "fix the log"
    return BadRowError(
        f"row {number} of the {log} cannot be learned ({reason}): {remedy}, or reject such rows "
        "with on_bad_row='skip'",
        ((number, reason),),
    )
