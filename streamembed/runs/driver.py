"""The driver: takes a log through an engine, and passes the results to a recorder.

It holds the events since the last snapshot that the recorder must have, and nothing else that
grows. Its progress is ``engine.log_offset``, part of the engine and so of what is saved; a driver
resumes there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from streamembed.data.batch import Batch, Rejected
from streamembed.drift.alarm import Alarm
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import BadRowError, LogError
from streamembed.logs.event_log import EventLog, LogBatch
from streamembed.logs.fingerprint import LogFingerprint
from streamembed.logs.followed_log import FollowedLog
from streamembed.runs.feed import DistanceFeed, PointFeed, embed_events, read_events, split_rows
from streamembed.runs.recorder import EmbeddedRows, Recorder
from streamembed.runs.run_store import Commit
from streamembed.runs.run_tables import EventRows
from streamembed.validation import parse_count_or_unit

# Rows of which a share is looked at: of fewer, one bad row may be many percent.
MIN_ROWS = 1000


Limit = tuple[int | None, float | None]  # a number of rows, or a percentage


def parse_max_rejected(asked: int | str | None) -> Limit:
    """The most rows that may be rejected, from a number, a share such as "1%", or None.

    Examples
    --------
    >>> parse_max_rejected("1%"), parse_max_rejected(20), parse_max_rejected(None)
    ((None, 1.0), (20, None), (None, None))
    """
    return (None, None) if asked is None else parse_count_or_unit("max_rejected", asked, "%", 100)


def check_rejected(limit: Limit, rejected: int, taken: int, newest: Rejected | None = None) -> None:
    """BadRowError where more rows were rejected; ``newest`` is one of them, None at the end."""
    rows, percent = limit
    too_many = rows is not None and rejected > rows
    if percent is not None and (taken >= MIN_ROWS or newest is None):
        too_many = rejected > percent / 100 * taken
    if too_many:
        allowed = f"{percent:g}% of them" if rows is None else f"{rows:,}"
        last = "" if newest is None else f", also row {newest.index} ({newest.reason})"
        raise BadRowError(
            f"{rejected:,} of {taken:,} rows of the log were rejected{last}, more than "
            f"max_rejected allows ({allowed}); rejected.parquet says why: fix the log and start "
            "again with overwrite=True, or allow more",
            () if newest is None else ((newest.index, newest.reason),),
        )


@dataclass(eq=False)
class ReplayDriver:
    """Takes a log through an engine.

    Calls of the recorder follow the order of the stream. `RunStore.commit` follows
    `Recorder.write_snapshot` of a snapshot that was due: every row of the log before
    ``engine.log_offset`` has been recorded, as an event or as rejected, no event is pending in the
    engine, and neither has seen a later row. What was recorded by then and the engine of that
    moment belong together.

    Parameters
    ----------
    source
        The log, of the kind and the features that the engine has learned; or a folder that is
        followed.
    recorder
        Receives the results.
    start
        The engine, whose ``log_offset`` is the row of the log to begin with, and the rows before.
    every
        Events between snapshots, a multiple of the chunk size.

    Attributes
    ----------
    engine : Engine
    counts : RowCounts
        Of all rows so far.
    """

    source: EventLog | FollowedLog
    recorder: Recorder
    start: Commit
    every: int
    max_rejected: Limit = (None, None)
    on_alarm: Callable[[Alarm], None] | None = None
    progress: Callable[[int], None] | None = None
    stop: Callable[[], bool] | None = None

    def __post_init__(self) -> None:
        self.engine, self.counts = engine, _ = self.start.engine, self.start.counts
        self._fingerprint = LogFingerprint.from_dict(self.start.fingerprint)
        self._feed: PointFeed | DistanceFeed = PointFeed(engine, self._log.features)
        if self._log.kind == "distances":
            self._feed = DistanceFeed(engine, self.recorder.read_rejected(engine.log_offset))
        self._unembedded: list[EventRows] = []  # causal: events that no snapshot has learned
        self._first = engine.position - self.counts.accepted  # position of the first event
        self._last_published = engine.learned  # is published already, or was

    @property
    def _log(self) -> EventLog:
        """The log as it is now."""
        return self.source.log if isinstance(self.source, FollowedLog) else self.source

    def run(self) -> str | None:
        """Learn the log from ``engine.log_offset`` on; why it could not be read to its end, if so.

        However it ends, what was learned is written, and the recorder is closed.

        Raises
        ------
        LogError
            The rows that were learned cannot be read again, to be embedded.
        BadRowError
            More rows are rejected than ``max_rejected``.
        ParameterError
            The log has fewer rows than were taken.
        """
        damage = None
        try:
            for part in self.source.batches(self.engine.log_offset):
                self.learn(part)
                self._call_progress(self.engine.log_offset)
            self._check_rejected()
        except LogError as error:
            damage = str(error)
        finally:
            self._finish()
        return damage

    def learn(self, part: LogBatch) -> None:
        """Learn one batch of the log: check it, and learn it slice by slice."""
        rows, unusable = split_rows(part, self._log.features)
        places = [row.index for row in unusable]
        start = done = 0
        while start < len(rows):
            end_of_slice = self._find_next_snapshot()
            stop = min(len(rows), start + end_of_slice - self.engine.position)
            events, rejected = self._feed.accept(part, rows.slice(start, stop - start))
            last = int(rows.numbers[stop - 1])
            end = bisect_left(places, last)
            self._record_rows(part, last + 1, events, [*unusable[done:end], *rejected])
            start, done = stop, end
            if self.engine.position == end_of_slice:
                self._publish()
                self._commit()
                self._call_progress(self.engine.log_offset)
        self.engine.log_offset = part.offset + len(part)
        self._record_rows(part, self.engine.log_offset, rows.slice(start, 0), unusable[done:])

    def _record_rows(
        self, part: LogBatch, stop: int, events: EventRows, rejected: list[Rejected]
    ) -> None:
        """Record the next rows of the log, those before ``stop``: events, the others rejected."""
        rejected.sort(key=lambda row: row.index)
        self.counts.accepted += len(events)
        if len(events) and self.recorder.causal:
            self._unembedded.append(events)
        self._watch(events, stop)
        if rejected:
            self.counts.rejected += len(rejected)
            self.recorder.write_rejected(rejected)
        self._fingerprint.update(part, stop)
        if rejected:
            self._check_rejected(rejected[0])

    def _find_next_snapshot(self) -> int:
        """At which event it is due: where the warm-up ends, or at a multiple of the interval."""
        position, every = self.engine.position, self.every
        warm_up = self.engine.config.warm_up_events
        return warm_up if position < warm_up else every * (position // every + 1)

    def _call_progress(self, rows: int) -> None:
        """One that raises, to end the replay, is not called again while the run is written."""
        progress, self.progress = self.progress, None
        if progress is not None:
            progress(rows)
        self.progress = progress

    def _watch(self, events: EventRows, stop: int) -> None:
        """Have the monitor watch the next rows, those before ``stop``."""
        monitor, first = self.recorder.store.monitor, self._fingerprint.rows
        if monitor is None or stop == first:
            return
        kept, n = events.numbers - first, stop - first
        labels = np.full(n, None) if monitor.parameters["labels"] else None
        if labels is not None and "label" in events.passthrough:
            labels[kept] = events.passthrough["label"].to_pylist()
        rejected = tuple(Rejected(i, None, "") for i in np.setdiff1d(np.arange(n), kept).tolist())
        batch = Batch(events.points, self._log.features, events.ids, kept, rejected)
        alarms = monitor.watch(batch, labels)
        self.recorder.write_alarms(alarms)
        if self.on_alarm is not None:
            for alarm in alarms:
                self.on_alarm(alarm)

    def _check_rejected(self, newest: Rejected | None = None) -> None:
        counts = self.counts
        taken = counts.accepted + counts.rejected
        check_rejected(self.max_rejected, counts.rejected, taken, newest)

    def build_commit(self) -> Commit:
        """The engine with counts and fingerprint of all rows so far."""
        return Commit(self.engine, self.counts, self._fingerprint.to_dict())

    def _publish(self) -> None:
        """Write a snapshot, and the coordinates of every event since the last one."""
        if self.engine.learned == self._last_published:
            return
        snapshot = self.engine.snapshot(fresh=True)
        self._last_published = snapshot.position
        self._embed(snapshot)
        self.recorder.write_snapshot(snapshot, self.engine.refreshes)
        self.counts.snapshots += 1

    def _commit(self) -> None:
        """Commit, if it is time: the recorder has all that the engine knows of the log."""
        stops = self.stop is not None and self.stop()
        # the last snapshot that a log of this length leads to is where a longer one resumes
        rows, store = self._log.n_rows, self.recorder.store
        is_last = rows is not None and self._fingerprint.rows + self.every >= rows
        if stops or is_last or store.is_due(self.engine.position):
            store.commit(self.build_commit(), self.engine.publish(fresh=True))
        if stops:
            raise KeyboardInterrupt

    def _embed(self, snapshot: Snapshot) -> None:
        """Write the events that the snapshot has learned; keep those whose chunk is incomplete.

        All in one transform: the pieces of the log must not show in the last bit.
        """
        if self._unembedded:
            rows, first = EventRows.concatenate(self._unembedded), self._first_unembedded
            # events of an earlier replay may wait before
            count = max(snapshot.position - first, 0)
            for events in self._embed_rows(first, rows.slice(0, count), snapshot):
                self.recorder.write_events(*events)
            pending = rows.slice(count)
            self._unembedded = [pending] if len(pending) else []

    @property
    def _first_unembedded(self) -> int:
        """Stream position of the first event that is not written."""
        return self._first + self.counts.accepted - sum(map(len, self._unembedded))

    def _embed_rows(
        self, position: int, rows: EventRows, snapshot: Snapshot | None
    ) -> Iterator[EmbeddedRows]:
        """Events from a position on by a snapshot; without coordinates where it has not learned."""
        learned = 0 if snapshot is None else snapshot.position - position
        split = min(max(learned, 0), len(rows))
        if snapshot is not None and split:
            known = rows.slice(0, split)
            yield position, known, embed_events(self.engine, snapshot, position, known)
        if split < len(rows):
            yield position + split, rows.slice(split), None

    def _finish(self) -> None:
        """A last snapshot where whole chunks came after the one before; the rest is not learned.

        Where an interrupt fell between learning a chunk and noting it, that chunk has no rows.
        """
        is_ready = self.engine.ready
        if is_ready and self.engine.position == self._first + self.counts.accepted:
            self._publish()
        snapshot = self.engine.snapshot() if is_ready else None
        self.recorder.close(snapshot, self._embed_rest(snapshot))

    def _embed_rest(self, snapshot: Snapshot | None) -> Iterator[EmbeddedRows]:
        """All events that are not written: by the last snapshot, or as not learned."""
        position, parts = self._first_unembedded, iter(self._unembedded)
        if not self.recorder.causal:
            position, parts = self._first, self._read_events()
        for rows in parts:
            yield from self._embed_rows(position, rows, snapshot)
            position += len(rows)

    def _read_events(self) -> Iterator[EventRows]:
        """All events so far in order, in pieces that do not depend on how the log was read."""
        rejected = self.recorder.read_rejected(self._fingerprint.rows)
        taken, run = self._fingerprint.to_dict(), self.recorder.folder
        for rows in read_events(self._log, taken, rejected, run):
            yield rows
            self._call_progress(int(rows.numbers[-1]) + 1)
