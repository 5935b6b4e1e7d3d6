"""The ledger of a replay: what came of the log so far, and the engine that it came of, as one.

Rows of every table wait in memory until a point where the engine holds exactly what they tell;
there all of it may be committed, in one transaction with the engine and a snapshot. A replay that
was killed goes on from the last of these points.
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
from streamembed.errors import ParameterError, shown
from streamembed.storage.database import Database, thinned
from streamembed.validation import count_or_unit

__all__ = [
    "CHECKPOINTS",
    "MERGED",
    "MONITORS",
    "PARTITION",
    "PARTITIONS",
    "PREFIX",
    "SNAPSHOTS",
    "Cadence",
    "Counts",
    "Ledger",
    "packed",
]

# Chains of the database: engines, of which the newest two are kept, and a thinned history.
CHECKPOINTS, SNAPSHOTS = "checkpoints", "snapshots"
# Of a replay by several workers: the landmarks of the last round, and of each partition the newest
# few checkpoints; and what such a run is called.
MERGED, PARTITION, PARTITIONS = "merged", "partition-", "partitions"
# Monitors, one with every engine.
MONITORS = "monitors"
# Of its facts.
COUNTS, PREFIX = "counts", "prefix"
# Bytes of rows that wait at most, if it can be helped.
MOST_WAITING = 1 << 25
# A checkpoint may take this share of the time between two.
SHARE = 0.03


@dataclass(frozen=True, slots=True)
class Cadence:
    """How often a replay commits; whichever comes first.

    Attributes
    ----------
    events : int or None
    seconds : float or None
        And never so often that commits take more than 3 % of the time.
    """

    events: int | None = None
    seconds: float | None = 30.0

    @classmethod
    def of(cls, asked: int | str | None) -> Self:
        """From events, seconds such as "30s", or None for the default.

        Raises
        ------
        ParameterError
            Anything else.
        """
        if asked is None:
            return cls()
        events, seconds = count_or_unit(asked, "s")
        if events or (seconds and seconds < np.inf):
            return cls(events, seconds)
        raise ParameterError(
            f"checkpoint_every={shown(asked)} must be a number of events, or seconds such as '30s'"
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """What came of the rows so far; see `streamembed.Replayed`."""

    accepted: int = 0
    rejected: int = 0
    snapshots: int = 0
    pairs: int = 0
    rejected_pairs: int = 0


class Ledger:
    """Tables that grow, committed with the engine.

    Parameters
    ----------
    database
        Where they are kept; what it holds already comes first.
    cadence
        How often.
    monitor
        Committed with the engine.
    """

    def __init__(
        self, database: Database, cadence: Cadence, monitor: Monitor | None = None
    ) -> None:
        self._monitor = monitor
        self._database = database
        self._cadence = cadence
        self._waiting: dict[str, list[Any]] = {}
        self._bytes = 0
        self._clock = time.monotonic()
        self._cost = 0.0
        self._position: int | None = None  # of the last commit

    # ------------------------------------------------------------------ growing

    def add(self, name: str, rows: Any) -> None:
        """Rows of a table (an Arrow table or record batch), behind all of it."""
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        if table.num_rows:
            self._waiting.setdefault(name, []).append(table)
            self._bytes += table.nbytes

    def read(self, name: str) -> Iterator[Any]:
        """All record batches of a table, those that wait included."""
        for record in self._database.chain(name):
            with pa.ipc.open_stream(pa.py_buffer(record.data)) as reader:
                yield from reader
        for table in self._waiting.get(name, ()):
            yield from table.to_batches()

    # ------------------------------------------------------------------ committing

    def must_be_here(self) -> None:
        """StoppedError where what is at the path of the run is not what was opened."""
        self._database.must_be_here()

    def settle(
        self, engine: Engine, snapshot: Snapshot, counts: Counts, prefix: dict[str, int]
    ) -> bool:
        """Commit if it is time; whether it was.

        Parameters
        ----------
        engine, snapshot
            As they stand once all that was added came of them.
        counts, prefix
            Of the rows of the log until here.
        """
        if not self.is_due(snapshot.position):
            return False
        self.commit(engine, snapshot, counts, prefix)
        return True

    def is_due(self, position: int) -> bool:
        """Whether it is time to commit, at a stream position."""
        if self._position is None:
            return True
        seconds, events = self._cadence.seconds, self._cadence.events
        elapsed = time.monotonic() - self._clock
        if events is not None and position - self._position >= events:
            return True
        late = seconds is not None and elapsed >= max(seconds, self._cost / SHARE)
        return late or self._bytes >= MOST_WAITING

    def commit(
        self, engine: Engine, snapshot: Snapshot, counts: Counts, prefix: dict[str, int]
    ) -> None:
        """All that waits, and the engine, in one transaction."""
        began = time.monotonic()
        database, position = self._database, snapshot.position
        with database.commit():
            for name, tables in self._waiting.items():
                whole = pa.concat_tables(tables).combine_chunks()
                database.append(name, position, whole.num_rows, packed(whole))
            database.append(CHECKPOINTS, engine.position, 0, engine.to_bytes())
            database.append(SNAPSHOTS, position, len(snapshot.ids), snapshot.to_bytes())
            newest = {database.length(CHECKPOINTS) - i for i in (1, 2)}
            gone = database.keep_only(CHECKPOINTS, newest)
            if self._monitor is not None:
                database.append(MONITORS, engine.position, 0, self._monitor.to_bytes())
                gone += database.keep_only(MONITORS, newest)
            gone += database.keep_only(SNAPSHOTS, thinned(database.length(SNAPSHOTS)))
            database.note(COUNTS, asdict(counts))
            database.note(PREFIX, prefix)
        for path in gone:
            path.unlink(missing_ok=True)
        self._waiting, self._bytes, self._position = {}, 0, position
        self._clock = time.monotonic()
        self._cost = self._clock - began

    def last(self) -> tuple[Engine, Counts, dict[str, int]] | None:
        """The engine of the last commit, and what was known with it; None before the first.

        The monitor goes back to where it stood then.
        """
        length = self._database.length(CHECKPOINTS)
        if not length:
            return None
        record = self._database.read(CHECKPOINTS, length - 1)
        self._position = record.position
        counts = Counts(**self._database.fact(COUNTS))
        if self._monitor is not None:
            self._monitor.become(Monitor.from_bytes(self._database.read(MONITORS, length - 1).data))
        return Engine.from_bytes(record.data), counts, dict(self._database.fact(PREFIX))


def packed(table: Any) -> bytes:
    """A table as the bytes of a record."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed
