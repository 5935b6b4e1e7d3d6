"""The driver: takes a log through an engine, chunk by chunk, and passes the results to a sink.

It holds the events since the last snapshot and nothing else that grows. Its progress is
``engine.log_offset``, part of the engine and so of what is saved; a driver resumes there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from streamembed.data.batch import Batch, Rejected
from streamembed.data.features import Features
from streamembed.drift.alarm import Alarm
from streamembed.drift.monitor import Monitor
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import BadRowError, DuplicateIdError, quote
from streamembed.logs.event_log import EventLog, LogBatch
from streamembed.logs.fingerprint import LogFingerprint
from streamembed.logs.pair_log import PairLog, match_features
from streamembed.runs.checkpoint_writer import RowCounts
from streamembed.runs.event_rows import EmbeddedEvents, EventRows
from streamembed.runs.feed import create_feed, find_slots
from streamembed.runs.reject_limit import RejectLimit


class EventSink(Protocol):
    """Receives the results of a driver: a recorder, or a wrapper of one.

    Calls follow the order of the stream. `commit_if_due` follows `write_snapshot` of a snapshot
    that was due: every row of the log before ``engine.log_offset`` has been passed to the sink, as
    an event or as rejected, no event is pending in the engine, and neither has seen a later row.
    An engine that is saved there and what the sink has by then belong together.
    """

    def write_events(self, position: int, rows: EventRows, embedded: EmbeddedEvents | None) -> None:
        """Events from a stream position on, as of the snapshot that comes next.

        Parameters
        ----------
        embedded
            None where the log ended before they were learned. The first call may bring no rows: it
            tells what kind of ids will come.
        """
        ...

    def buffer_events(self, position: int, rows: EventRows) -> None:
        """Events from a stream position on, which will be embedded by the last snapshot."""
        ...

    def read_buffered(self) -> Iterator[tuple[int, EventRows]]:
        """The same events in the same order, in pieces that do not depend on the calls."""
        ...

    def write_snapshot(self, snapshot: Snapshot, refreshes: int) -> None:
        """A snapshot; ``refreshes`` of the factor were made since the first event."""
        ...

    def commit_if_due(
        self, engine: Engine, snapshot: Snapshot, counts: RowCounts, fingerprint: dict[str, int]
    ) -> None:
        """The engine has learned exactly the rows that were passed on; see the class.

        Parameters
        ----------
        counts
            Of the rows of the log so far.
        fingerprint
            Their fingerprint, see `streamembed.logs.fingerprint`.
        """
        ...

    def write_alarms(self, alarms: Sequence[Alarm]) -> None:
        """Alarms of a monitor, before the snapshot that knows of their events."""
        ...

    def write_rejected(self, rows: Sequence[Rejected]) -> None:
        """Rows that could not be learned, by their number in the log, ascending over all calls."""
        ...

    def write_rejected_pairs(self, rows: Sequence[Rejected]) -> None:
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


class ReplayDriver:
    """Takes a log through an engine.

    Parameters
    ----------
    engine
        Its ``log_offset`` is the row of the log to begin with.
    log
        Of the kind and the features that the engine has learned.
    sink
        Receives the results.
    every
        Events between snapshots, a multiple of the chunk size
        (`streamembed.runs.replay_log.compute_snapshot_interval`).
    on_bad_row
        "skip" or "raise", as in `streamembed.replay`.
    pairs
        Learned at the end of the warm-up; None for none, or if they were learned before.
    causal
        Whether events are embedded as of when each was learned, or all by the last snapshot.
    rejected
        Of a log that is resumed, the rows before ``log_offset`` that were rejected,
        ascending; needed where it is a log of distances.

    counts
        Of the rows before ``log_offset``.
    fingerprint
        The fingerprint of these rows, see `streamembed.logs.fingerprint`; updated with the others.
    reject_limit
        How many rows may be rejected.
    monitor
        Monitors the events that the engine accepts.
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
        sink: EventSink,
        every: int,
        on_bad_row: str = "skip",
        pairs: PairLog | None = None,
        rejected: Sequence[int] = (),
        causal: bool = True,
        counts: RowCounts | None = None,
        fingerprint: LogFingerprint | None = None,
        reject_limit: RejectLimit | None = None,
        monitor: Monitor | None = None,
        on_alarm: Callable[[Alarm], None] | None = None,
    ) -> None:
        self._monitor, self._on_alarm = monitor, on_alarm
        self._unmonitored: list[EventRows] = []  # events to pass to the monitor
        self.counts = counts or RowCounts()
        self._reject_limit = reject_limit or RejectLimit()
        self._fingerprint = fingerprint or LogFingerprint(engine.log_offset)
        self._engine = engine
        self._log = log
        self._sink = sink
        self._every = every
        self._on_bad_row = on_bad_row
        self._pairs = pairs
        self._causal = causal
        self._feed = create_feed(log, engine, rejected)
        self._unembedded: list[EventRows] = []  # events since the last snapshot,
        self._first_unembedded = 0  # and the stream position of the first of them
        self._is_begun = False
        self._start = engine.position - self.counts.accepted
        self._last_published = engine.learned  # is published already, or was
        self._part: LogBatch | None = None  # that is being learned
        self._progress: Callable[[int], None] | None = None
        self._reported = 0  # rows

    def run(self, progress: Callable[[int], None] | None = None) -> None:
        """Learn the log from ``engine.log_offset`` on.

        However it ends, what was learned is written, and the sink is closed.

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
                self._report_progress()
            counts = self.counts
            self._reject_limit.check(counts.rejected, counts.accepted + counts.rejected, ended=True)
            whole = True
        finally:
            self._finish(whole)

    def learn(self, part: LogBatch) -> None:
        """Learn one batch of the log: check it, and learn it slice by slice."""
        self._part = part
        rows, unusable = self._feed.read(part)
        fatal = unusable[0] if unusable and self._on_bad_row == "raise" else None
        if fatal is not None:
            rows, unusable = rows.slice(0, int(np.searchsorted(rows.numbers, fatal.index))), []
        if len(rows) and not self._is_begun:
            self._is_begun = True
            self._sink.write_events(self._engine.position, rows.slice(0, 0), None)
        places = [row.index for row in unusable]
        start = done = 0
        while start < len(rows):
            chunk_end = self._next_chunk_end
            stop = min(len(rows), start + chunk_end - self._engine.position)
            rejected = self._accept(rows.slice(start, stop))
            end = bisect_left(places, int(rows.numbers[stop - 1]))
            self._reject([*unusable[done:end], *rejected])
            start, done = stop, end
            self._learn_pairs()
            if self._engine.position == chunk_end and self._is_due(chunk_end):
                self._publish()
                self._commit()
            self._report_progress()
        if fatal is not None:
            raise _create_bad_row_error(fatal.index, fatal.reason)
        self._reject(unusable[done:])
        self._engine.log_offset = part.offset + len(part)
        self._fingerprint.update(part, self._engine.log_offset)

    def _report_progress(self) -> None:
        """Report how many rows of the log are taken, if there are more."""
        rows = self._engine.log_offset
        if self._progress is not None and rows > self._reported:
            self._reported = rows
            self._progress(rows)

    def _accept(self, rows: EventRows) -> list[Rejected]:
        """Have the engine accept rows of one chunk; returns the rejected ones."""
        position = self._engine.position
        try:
            events, rejected = self._feed.accept(rows, self._on_bad_row)
        except (BadRowError, DuplicateIdError) as error:
            if len(rows) == 1:
                raise _add_row_number(error, rows) from error
            # one by one up to the bad row: what is learned must not depend on the batches
            singly = (self._accept(rows.slice(i, i + 1)) for i in range(len(rows)))
            return [row for rejected in singly for row in rejected]
        if len(events):
            if not self._unembedded:
                self._first_unembedded = position
            self._unembedded.append(events)
            if self._monitor is not None:
                self._unmonitored.append(events)
        self._count(accepted=len(events))
        return rejected

    def _update_monitor(self) -> None:
        """Pass all events that the engine has accepted to the monitor."""
        if self._monitor is None or not self._unmonitored:
            return
        rows, self._unmonitored = EventRows.concatenate(self._unmonitored), []
        names = self._engine.feature_names or self._log.feature_names
        events = Batch.of_points(rows.points, Features(names, self._log.ordered), rows.ids)
        labels = None
        if "label" in rows.passthrough and self._monitor.parameters["labels"]:
            labels = rows.passthrough["label"].to_pylist()
        alarms = self._monitor.watch(events, labels)
        self._sink.write_alarms(alarms)
        if self._on_alarm is not None:
            for alarm in alarms:
                self._on_alarm(alarm)

    def _reject(self, rows: list[Rejected]) -> None:
        if rows:
            self._count(rejected=len(rows))
            self._sink.write_rejected(sorted(rows, key=lambda row: row.index))
            counts = self.counts
            self._reject_limit.check(counts.rejected, counts.accepted + counts.rejected)

    def _count(self, **increments: int) -> None:
        totals = {name: getattr(self.counts, name) + number for name, number in increments.items()}
        self.counts = replace(self.counts, **totals)

    @property
    def fingerprint(self) -> dict[str, int]:
        """The fingerprint of all rows so far."""
        return self._fingerprint.to_dict()

    @property
    def _next_chunk_end(self) -> int:
        """The stream position at which the engine learns next."""
        return self._engine.config.chunks.next_cut(self._engine.learned)

    def _is_due(self, position: int) -> bool:
        """Whether there is to be a snapshot of this position."""
        return position == self._engine.config.warm_up_events or position % self._every == 0

    def _learn_pairs(self) -> None:
        """Learn the pair log once the engine has a scale for it, batch by batch."""
        if self._pairs is None or not self._engine.ready:
            return
        log, self._pairs = self._pairs, None
        features = Features(self._engine.feature_names, True)
        order = match_features(log, features.names)
        self._sink.write_rejected_pairs(())
        for part in log:
            if part.rejected and self._on_bad_row == "raise":
                first = part.rejected[0]
                raise _create_bad_row_error(first.index, first.reason, "pair log")
            left, right = (
                Batch.of_points(side[:, order], features) for side in (part.left, part.right)
            )
            self._engine.learn_pairs(left, right, part.similar)
            self._count(pairs=len(part.similar), rejected_pairs=len(part.rejected))
            self._sink.write_rejected_pairs(part.rejected)

    def _publish(self) -> None:
        """Write a snapshot, and the coordinates of every event since the last one."""
        self._update_monitor()
        if self._engine.learned == self._last_published:
            return
        snapshot = self._engine.snapshot()
        self._last_published = snapshot.position
        self._embed(snapshot)
        self._sink.write_snapshot(snapshot, self._engine.refreshes)
        self._count(snapshots=1)

    def _commit(self) -> None:
        """Commit: the sink has all that the engine knows of the log."""
        assert self._part is not None
        self._update_monitor()
        self._fingerprint.update(self._part, self._engine.log_offset)
        fingerprint = self._fingerprint.to_dict()
        self._sink.commit_if_due(self._engine, self._engine.publish(), self.counts, fingerprint)

    def _embed(self, snapshot: Snapshot) -> None:
        """Write the events that the snapshot has learned; keep those whose chunk is incomplete.

        All in one transform: the pieces of the log must not show in the last bit.
        """
        if not self._unembedded:
            return
        rows, first = EventRows.concatenate(self._unembedded), self._first_unembedded
        # events of an earlier replay may wait before
        count = max(snapshot.position - first, 0)
        learned, pending = rows.slice(0, count), rows.slice(count, len(rows))
        if self._causal:
            self._sink.write_events(first, learned, self._feed.embed(snapshot, first, learned))
        else:
            self._sink.buffer_events(first, learned)
        self._unembedded, self._first_unembedded = [pending] if len(pending) else [], first + count

    def _finish(self, whole: bool) -> None:
        """A last snapshot where whole chunks came after the one before; the rest is not learned.

        Where an interrupt fell between learning a chunk and noting it, that chunk has no rows.
        """
        is_ready = self._engine.ready
        self._update_monitor()
        if is_ready and self._engine.position == self._start + self.counts.accepted:
            self._publish()
        snapshot = self._engine.snapshot() if is_ready else None
        if not self._causal:
            self._embed_buffered(snapshot)
        if self._unembedded:
            self._sink.write_events(
                self._first_unembedded, EventRows.concatenate(self._unembedded), None
            )
        self._unembedded = []
        self._sink.close(snapshot, whole)

    def _embed_buffered(self, snapshot: Snapshot | None) -> None:
        """All events by the last snapshot: those of the support exactly as they are in it."""
        for first, rows in self._sink.read_buffered():
            if snapshot is None:
                self._sink.write_events(first, rows, None)
                continue
            embedded = self._feed.embed(snapshot, first, rows)
            own, slots = find_slots(self._engine, first, len(rows))
            embedded.coordinates[own] = snapshot.coordinates[slots]
            self._sink.write_events(first, rows, embedded)


def _add_row_number(error: BadRowError | DuplicateIdError, rows: EventRows) -> Exception:
    """The error about a single row, with its place in the log."""
    number = int(rows.numbers[0])
    if isinstance(error, BadRowError):
        return _create_bad_row_error(number, error.rows[0][1])
    key = "missing" if rows.ids is None else quote(rows.ids.tolist()[0])
    return DuplicateIdError(
        f"row {number} of the log cannot be learned (its id is {key}): ids must be of one kind and "
        "unique within the support; fix the log, or reject rows with repeated ids with "
        "on_bad_row='skip'"
    )


def _create_bad_row_error(number: int, reason: str, log: str = "log") -> BadRowError:
    remedy = "fix it" if log == "pair log" else "fix the log"
    return BadRowError(
        f"row {number} of the {log} cannot be learned ({reason}): {remedy}, or reject such rows "
        "with on_bad_row='skip'",
        ((number, reason),),
    )
