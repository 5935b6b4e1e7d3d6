"""The store of a run: claimed by one writer, begun with an origin, committed, finished.

It is the same for every kind of run: a database with facts and chains of records, in a folder that
its writer locks. Rows of tables are buffered in memory until a point where the engine has learned
exactly these rows. There all of it is committed in one transaction with the engine and a snapshot,
so that a process that was killed resumes at the last commit.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from streamembed.drift.monitor import Monitor
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import ParameterError, quote
from streamembed.runs import chains
from streamembed.runs.run_folder import FILES, lock_folder, open_database
from streamembed.storage.database import Database
from streamembed.validation import parse_count_or_unit

# Bytes of rows that are buffered before a commit is due.
MAX_BUFFERED_BYTES = 1 << 25
# The largest share of the time that commits may take.
MAX_COMMIT_SHARE = 0.03
PIECE = 1 << 20  # bytes of a file that are read at once


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """How often a run commits its engine: after so many events or seconds, whichever is first."""

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


@dataclass(frozen=True, slots=True)
class Commit:
    """What a run had at a commit."""

    engine: Engine
    counts: RowCounts
    fingerprint: dict[str, int]  # of the rows of the log, or how many calls there were


class RunStore:
    """The store of one run, for its one writer; by `claim`.

    Attributes
    ----------
    folder : Path
    database : Database
    monitor : Monitor or None
        Committed with every engine.
    """

    def __init__(
        self, database: Database, policy: CheckpointPolicy, monitor: Monitor | None = None
    ) -> None:
        """Use `claim`."""
        self.database, self.folder, self.monitor = database, database.folder, monitor
        self._policy = policy
        self._buffered: dict[str, list[Any]] = {}
        self._buffered_bytes = 0
        self._last_commit = time.monotonic()
        self._commit_seconds = 0.0
        self._position: int | None = None  # of the last commit

    @classmethod
    @contextmanager
    def claim(
        cls,
        run: Any,
        policy: CheckpointPolicy,
        monitor: Monitor | None = None,
        overwrite: bool | None = False,
    ) -> Iterator[Self]:
        """Lock the folder of a run and open its database; both are released together.

        The database is a new one where there is none. ``overwrite`` is whether to replace an older
        run; None where that is no choice.
        """
        with lock_folder(run) as folder, open_database(folder, overwrite) as database:
            yield cls(database, policy, monitor)

    # ------------------------------------------------------------------ origin

    def read_origin(self, kind: str) -> dict[str, Any] | None:
        """How the run came about; None of a new one; ParameterError where it is of another kind."""
        origin: dict[str, Any] | None = self.database.read_fact(chains.ORIGIN)
        if origin is not None and (own := origin.get("kind", chains.REPLAY)) != kind:
            raise ParameterError(
                f"run={quote(str(self.folder))} {chains.KINDS[own]}: choose another folder"
            )
        return origin

    def begin(self, origin: Mapping[str, Any], first: Mapping[str, Engine | Monitor]) -> None:
        """Write how a new run came about, and what it begins with, by chain."""
        with self.database.commit():
            for chain, value in first.items():
                self.database.append(chain, value.position, 0, value.to_bytes())
            self.database.write_fact(chains.ORIGIN, origin)
            self.database.write_fact(chains.STATE, {"finished": False})

    def write_fact(self, name: str, value: Any) -> None:
        """A fact, in a commit of its own, unless it is known."""
        if self.database.read_fact(name) != value:
            with self.database.commit():
                self.database.write_fact(name, value)

    # ------------------------------------------------------------------ growing

    def add(self, name: str, rows: Any) -> None:
        """Append rows (an Arrow table or record batch) to a table."""
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        if table.num_rows:
            self._buffered.setdefault(name, []).append(table)
            self._buffered_bytes += table.nbytes

    def read(self, name: str) -> Iterator[Any]:
        """All record batches of a table, buffered ones included."""
        yield from read_batches(self.database, name)
        for table in self._buffered.get(name, ()):
            yield from table.to_batches()

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

    def commit(self, now: Commit, snapshot: Snapshot) -> None:
        """Commit the buffered rows, the engine that has learned exactly these, and a snapshot."""
        start = time.monotonic()
        database, engine = self.database, now.engine
        with database.commit():
            for name in self._buffered:
                self._append_buffered(name, snapshot.position)
            database.append(chains.CHECKPOINTS, engine.position, 0, engine.to_bytes())
            append_snapshot(database, snapshot)
            newest = {database.count_records(chains.CHECKPOINTS) - i for i in (1, 2)}
            database.keep_only(chains.CHECKPOINTS, newest)
            if self.monitor is not None:
                database.append(chains.MONITORS, engine.position, 0, self.monitor.to_bytes())
                database.keep_only(chains.MONITORS, newest)
            database.write_fact(chains.COUNTS, asdict(now.counts))
            database.write_fact(chains.FINGERPRINT, now.fingerprint)
        self._buffered, self._buffered_bytes, self._position = {}, 0, snapshot.position
        self._last_commit = time.monotonic()
        self._commit_seconds = self._last_commit - start

    def _append_buffered(self, name: str, position: int) -> None:
        """The buffered rows of one table as a record, within a commit."""
        table = pa.concat_tables(self._buffered[name]).combine_chunks()
        self.database.append(name, position, table.num_rows, to_ipc_bytes(table))

    # ------------------------------------------------------------------ resuming, finishing

    def load_last(self) -> Commit | None:
        """The last commit; None before the first. The monitor becomes what it was then."""
        length = self.database.count_records(chains.CHECKPOINTS)
        if not length:
            return None
        record = self.database.read(chains.CHECKPOINTS, length - 1)
        self._position = record.position
        counts = RowCounts(**self.database.read_fact(chains.COUNTS))
        self._become_monitor(chains.MONITORS)
        fingerprint = dict(self.database.read_fact(chains.FINGERPRINT))
        return Commit(Engine.from_bytes(record.data), counts, fingerprint)

    def load_final(self) -> Commit | None:
        """What the run finished with, with its files as they were written; None where it has not.

        The monitor becomes what it was then.
        """
        state = self.database.read_fact(chains.STATE, {})
        files = state.get("files", {}).items()
        if not state.get("finished") or any(find_file_error(self.folder, *file) for file in files):
            return None
        self._become_monitor(chains.FINAL_MONITOR)
        engine = Engine.from_bytes(self.database.read(chains.FINAL, state["final"]).data)
        return Commit(engine, RowCounts(**state["counts"]), state["fingerprint"])

    def _become_monitor(self, chain: str) -> None:
        if self.monitor is not None:
            newest = self.database.count_records(chain) - 1
            self.monitor.become(Monitor.from_bytes(self.database.read(chain, newest).data))

    def finish(self, now: Commit) -> None:
        """The run is whole, and its files are written: keep what it ended with."""
        engine, database, monitor = now.engine, self.database, self.monitor
        with database.commit():
            number = database.append(chains.FINAL, engine.position, 0, engine.to_bytes())
            database.keep_only(chains.FINAL, {number})
            if monitor is not None:
                last = database.append(
                    chains.FINAL_MONITOR, monitor.position, 0, monitor.to_bytes()
                )
                database.keep_only(chains.FINAL_MONITOR, {last})
            records = database.list_records(chains.SNAPSHOTS)
            # the last snapshot, unless the last checkpoint has kept it
            if engine.ready and (not records or records[-1][1] != engine.publish().position):
                append_snapshot(database, engine.publish(fresh=True))
            paths = [self.folder / name for name in FILES]
            state = {
                "finished": True,
                "rows": engine.log_offset,
                "counts": asdict(now.counts),
                "fingerprint": now.fingerprint,
                "final": number,
                "files": {path.name: compute_file_crc(path) for path in paths if path.exists()},
            }
            database.write_fact(chains.STATE, state)


def append_snapshot(database: Database, snapshot: Snapshot) -> None:
    """A snapshot of a run, within a commit; older ones are thinned out."""
    database.append(chains.SNAPSHOTS, snapshot.position, len(snapshot.ids), snapshot.to_bytes())
    database.keep_only(chains.SNAPSHOTS, select_retained(database.count_records(chains.SNAPSHOTS)))


def select_retained(length: int) -> set[int]:
    """Which of so many records of a history are kept: the newest, and about one an octave of age.

    What is not among them once never is again.

    Examples
    --------
    >>> sorted(select_retained(20))
    [0, 8, 12, 16, 18, 19]
    """
    newest = length - 1
    retained = set()
    for number in range(length):
        step = 1 << max(0, (newest - number).bit_length() - 1)
        if number % step == 0:
            retained.add(number)
    return retained


def read_batches(database: Database, chain: str) -> Iterator[Any]:
    """The record batches of a chain of tables."""
    for record in database.read_chain(chain):
        with pa.ipc.open_stream(pa.py_buffer(record.data)) as reader:
            yield from reader


def read_table(database: Database, chain: str, schema: Any) -> Any:
    """All rows of a chain of tables."""
    return pa.Table.from_batches(read_batches(database, chain), schema)


def to_ipc_bytes(table: Any) -> bytes:
    """A table as the bytes of a record."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def compute_file_crc(path: Path) -> int:
    """The CRC32 of a file, read piece by piece."""
    crc = 0
    with path.open("rb") as source:
        while data := source.read(PIECE):
            crc = zlib.crc32(data, crc)
    return crc


def find_file_error(folder: Path, name: str, crc: int) -> str | None:
    """What is wrong with a file of a finished run; None where it is what was written."""
    try:
        checksum = compute_file_crc(folder / name)
    except FileNotFoundError:
        return f"{name} is missing"
    return None if checksum == crc else f"{name} is not what was written"
