"""The checkpoint writer: commits the tables of a run together with the engine.

Rows of every table are buffered in memory until a point where the engine has learned exactly these
rows. There all of it can be committed, in one transaction with the engine and a snapshot. A replay
that was killed resumes at the last commit.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from streamembed.drift.monitor import Monitor
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import ParameterError, quote
from streamembed.storage.database import Database, select_retained
from streamembed.validation import parse_count_or_unit

# Chains of the database: engines, of which the newest two are kept, and a thinned history.
CHECKPOINTS, SNAPSHOTS = "checkpoints", "snapshots"
# Of a replay by several workers: the landmarks of the last round, and of each partition the newest
# few checkpoints; and what such a run is called.
MERGED, PARTITION, PARTITIONS = "merged", "partition-", "partitions"
# Events of a log that can be read once.
EVENTS = "events"
# Monitors, one with every engine.
MONITORS = "monitors"
# Of its facts.
COUNTS, FINGERPRINT = "counts", "prefix"
# Bytes of rows that are buffered before a commit is due.
MAX_BUFFERED_BYTES = 1 << 25
# The largest share of the time that commits may take.
MAX_COMMIT_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """How often a replay commits: after so many events or seconds, whichever comes first."""

    events: int | None = None
    seconds: float | None = 30.0  # longer where commits would take more than 3 % of the time

    @classmethod
    def parse(cls, asked: int | str | None) -> Self:
        """From events, seconds such as "30s", or None for the default.

        Raises
        ------
        ParameterError
            Anything else.
        """
        if asked is None:
            return cls()
        events, seconds = parse_count_or_unit(asked, "s")
        if events or (seconds and seconds < np.inf):
            return cls(events, seconds)
        raise ParameterError(
            f"checkpoint_every={quote(asked)} must be a number of events, or seconds such as '30s'"
        )


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Counts of the rows so far; see `streamembed.Replayed`."""

    accepted: int = 0
    rejected: int = 0
    snapshots: int = 0
    pairs: int = 0
    rejected_pairs: int = 0


class CheckpointWriter:
    """Appends rows to tables and commits them with the engine.

    Parameters
    ----------
    database
        Where they are stored; its rows come first.
    monitor
        Committed with the engine.
    """

    def __init__(
        self, database: Database, policy: CheckpointPolicy, monitor: Monitor | None = None
    ) -> None:
        self._monitor = monitor
        self._database = database
        self._policy = policy
        self._buffered: dict[str, list[Any]] = {}
        self._buffered_bytes = 0
        self._last_commit = time.monotonic()
        self._commit_seconds = 0.0
        self._position: int | None = None  # of the last commit

    # ------------------------------------------------------------------ growing

    def add(self, name: str, rows: Any) -> None:
        """Append rows (an Arrow table or record batch) to a table."""
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        if table.num_rows:
            self._buffered.setdefault(name, []).append(table)
            self._buffered_bytes += table.nbytes

    def read(self, name: str) -> Iterator[Any]:
        """All record batches of a table, buffered ones included."""
        yield from read_batches(self._database, name)
        for table in self._buffered.get(name, ()):
            yield from table.to_batches()

    # ------------------------------------------------------------------ committing

    def check_in_place(self) -> None:
        """StoppedError unless the files at the path of the run are those that were opened."""
        self._database.check_in_place()

    def is_due(self, position: int) -> bool:
        """Whether a commit is due at a stream position."""
        if self._position is None:
            return True
        seconds, events = self._policy.seconds, self._policy.events
        elapsed = time.monotonic() - self._last_commit
        if events is not None and position - self._position >= events:
            return True
        late = seconds is not None and elapsed >= max(
            seconds, self._commit_seconds / MAX_COMMIT_SHARE
        )
        return late or self._buffered_bytes >= MAX_BUFFERED_BYTES

    def commit(
        self, engine: Engine, snapshot: Snapshot, counts: RowCounts, fingerprint: dict[str, int]
    ) -> None:
        """Commit all buffered rows and the engine in one transaction.

        Parameters
        ----------
        engine, snapshot
            Those of exactly the rows that were added.
        counts, fingerprint
            Of the rows of the log until here.
        """
        start = time.monotonic()
        database, position = self._database, snapshot.position
        with database.commit():
            for name in self._buffered:
                self.append_buffered(name, position)
            database.append(CHECKPOINTS, engine.position, 0, engine.to_bytes())
            append_snapshot(database, snapshot)
            newest = {database.count_records(CHECKPOINTS) - i for i in (1, 2)}
            database.keep_only(CHECKPOINTS, newest)
            if self._monitor is not None:
                database.append(MONITORS, engine.position, 0, self._monitor.to_bytes())
                database.keep_only(MONITORS, newest)
            database.write_fact(COUNTS, asdict(counts))
            database.write_fact(FINGERPRINT, fingerprint)
        self._buffered, self._buffered_bytes, self._position = {}, 0, position
        self._last_commit = time.monotonic()
        self._commit_seconds = self._last_commit - start

    def append_buffered(self, name: str, position: int) -> None:
        """The buffered rows of one table as a record, within a commit."""
        if name in self._buffered:
            table = pa.concat_tables(self._buffered[name]).combine_chunks()
            self._database.append(name, position, table.num_rows, to_ipc_bytes(table))

    def load_last(self) -> tuple[Engine, RowCounts, dict[str, int]] | None:
        """The engine of the last commit, its counts and fingerprint; None before the first.

        The monitor is restored to the same commit.
        """
        length = self._database.count_records(CHECKPOINTS)
        if not length:
            return None
        record = self._database.read(CHECKPOINTS, length - 1)
        self._position = record.position
        counts = RowCounts(**self._database.read_fact(COUNTS))
        if self._monitor is not None:
            self._monitor.become(Monitor.from_bytes(self._database.read(MONITORS, length - 1).data))
        return Engine.from_bytes(record.data), counts, dict(self._database.read_fact(FINGERPRINT))


def append_snapshot(database: Database, snapshot: Snapshot) -> None:
    """A snapshot of a run, within a commit; older ones are thinned out."""
    database.append(SNAPSHOTS, snapshot.position, len(snapshot.ids), snapshot.to_bytes())
    database.keep_only(SNAPSHOTS, select_retained(database.count_records(SNAPSHOTS)))


def read_batches(database: Database, chain: str) -> Iterator[Any]:
    """The record batches of a chain of tables."""
    for record in database.read_chain(chain):
        with pa.ipc.open_stream(pa.py_buffer(record.data)) as reader:
            yield from reader


def to_ipc_bytes(table: Any) -> bytes:
    """A table as the bytes of a record."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
