"""The store of a run: claimed by one writer, begun with an origin, committed, finished.

It is the same for every kind of run: a database with facts and chains of records, in a folder that
its writer locks. Rows of tables are buffered in memory until a point where the engine has learned
exactly these rows. There all of it is committed in one transaction with the engine and a snapshot,
so that a process that was killed resumes at the last commit.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from streamembed.drift.monitor import Monitor
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import ParameterError, quote
from streamembed.merging.landmark_set import LandmarkSet
from streamembed.runs import chains
from streamembed.runs.origin import check_same
from streamembed.runs.run_folder import FILES, lock_folder, open_database
from streamembed.storage.database import Database
from streamembed.storage.saved_object import SavedObject
from streamembed.validation import parse_count_or_unit

# Bytes of rows that are buffered before a commit is due.
MAX_BUFFERED_BYTES = 1 << 25
CHECKPOINT_EVERY = "30s"  # longer where commits would take more than their share of the time
# The largest share of the time that commits may take.
MAX_COMMIT_SHARE = 0.03
PIECE = 1 << 20  # bytes of a file that are read at once


@dataclass(slots=True)
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

    def as_dict(self) -> dict[str, Any]:
        """Without the engine, JSON-ready."""
        return {"counts": asdict(self.counts), "fingerprint": self.fingerprint}


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
        self,
        database: Database,
        cadence: tuple[int | None, float | None],
        monitor: Monitor | None,
    ) -> None:
        """Use `claim`."""
        self.database, self.folder, self.monitor = database, database.folder, monitor
        self._every, self._seconds = cadence  # in events, or seconds
        self._buffered: dict[str, list[Any]] = {}
        self._buffered_bytes = 0
        self._last_commit = time.monotonic()
        self._commit_seconds = 0.0
        self._position: int | None = None  # of the last commit
        self._held = ""

    @classmethod
    @contextmanager
    def claim(
        cls,
        run: Any,
        checkpoint_every: int | str | None = None,
        monitor: Monitor | None = None,
        overwrite: bool | None = False,
    ) -> Iterator[Self]:
        """Lock the folder of a run and open its database; both are released together.

        The database is a new one where there is none. ``checkpoint_every`` is how often the engine
        is committed: a number of events, or seconds such as "30s". ``overwrite`` is whether to
        replace an older run; None where that is no choice.
        """
        every = CHECKPOINT_EVERY if checkpoint_every is None else checkpoint_every
        cadence = parse_count_or_unit("checkpoint_every", every, "s", 1e9)
        with lock_folder(run) as folder, open_database(folder, overwrite) as database:
            store = cls(database, cadence, monitor)
            try:
                yield store
            except KeyboardInterrupt as error:
                if store._held:
                    error.add_note(f"interrupted at {store._held}; repeat the call to resume")
                raise

    def set_interrupt_message(self, events: int, more: str) -> None:
        """What a KeyboardInterrupt is to say of the run: its events, and what else it holds."""
        self._held = f"{events:,} events; {self.folder} holds them and {more}"

    # ------------------------------------------------------------------ origin

    def read_origin(self, kind: str) -> dict[str, Any] | None:
        """How the run came about; None of a new one; ParameterError where it is of another kind."""
        origin: dict[str, Any] | None = self.database.read_fact(chains.ORIGIN)
        if origin is not None and (own := origin.get("kind", chains.REPLAY)) != kind:
            raise ParameterError(
                f"run={quote(str(self.folder))} {chains.KINDS[own]}: choose another folder"
            )
        return origin

    def begin(
        self,
        origin: Mapping[str, Any],
        first: Engine | None = None,
        select: Callable[[dict[str, Any]], dict[str, Any]] = dict,
    ) -> None:
        """Begin a run, or check that the one that is there began in the same way.

        Parameters
        ----------
        origin
            How it came about.
        first
            The engine that a new online run begins with.
        select
            What of an origin is compared; default: all of it.

        Raises
        ------
        ParameterError
            The run is of another kind, or began in another way.
        """
        before = self.read_origin(origin["kind"])
        if before is not None:
            check_same(self.folder, select(before), select(dict(origin)))
            return
        with self.database.commit():
            if first is not None:
                append_object(self.database, chains.BEGINNING, first, first.position)
            self.database.write_fact(chains.ORIGIN, origin)
            self.database.write_fact(chains.STATE, {"finished": False})

    def write_fact(self, name: str, value: Any) -> None:
        """A fact, in a commit of its own, unless it is known."""
        if self.database.read_fact(name) != value:
            with self.database.commit():
                self.database.write_fact(name, value)

    # ------------------------------------------------------------------ growing

    def add(self, name: str, rows: Any) -> None:
        """Append rows, an Arrow table, to a table."""
        if rows.num_rows:
            self._buffered.setdefault(name, []).append(rows)
            self._buffered_bytes += rows.nbytes

    def read(self, name: str) -> Iterator[Any]:
        """All rows of a table, as tables, buffered ones included."""
        yield from read_tables(self.database, name)
        yield from self._buffered.get(name, ())

    def is_due(self, position: int) -> bool:
        """Whether a commit is due at a stream position."""
        if self._position is None:
            return True
        elapsed = time.monotonic() - self._last_commit
        if self._every is not None and position - self._position >= self._every:
            return True
        longest = self._commit_seconds / MAX_COMMIT_SHARE
        late = self._seconds is not None and elapsed >= max(self._seconds, longest)
        return late or self._buffered_bytes >= MAX_BUFFERED_BYTES

    def commit(self, now: Commit, snapshot: Snapshot) -> None:
        """Commit the buffered rows, the engine that has learned exactly these, and a snapshot."""
        start = time.monotonic()
        with self.database.commit():
            for name, tables in self._buffered.items():
                table = pa.concat_tables(tables).combine_chunks()
                self.database.append(name, snapshot.position, to_ipc_bytes(table))
            self._append(chains.CHECKPOINTS, chains.MONITORS, now.engine)
            append_object(self.database, chains.SNAPSHOTS, snapshot, snapshot.position)
            self.database.write_fact(chains.COMMITTED, now.as_dict())
        self._buffered, self._buffered_bytes, self._position = {}, 0, snapshot.position
        self._last_commit = time.monotonic()
        self._commit_seconds = self._last_commit - start

    def _append(self, engines: str, monitors: str, engine: Engine) -> None:
        """The engine and the monitor, within a commit, to chains of these names."""
        append_object(self.database, engines, engine, engine.position)
        if self.monitor is not None:
            append_object(self.database, monitors, self.monitor, engine.position)

    # ------------------------------------------------------------------ resuming, finishing

    def load_last(self) -> Commit | None:
        """The last commit; None before the first. The monitor becomes what it was then."""
        committed = self.database.read_fact(chains.COMMITTED)
        if committed is None:
            return None
        last = self._load(chains.CHECKPOINTS, chains.MONITORS, committed)
        self._position = last.engine.position
        return last

    def load_final(self) -> Commit | None:
        """What the run finished with, with its files as they were written; None where it has not.

        The monitor becomes what it was then.
        """
        state = self.database.read_fact(chains.STATE, {})
        files = state.get("files", {}).items()
        if not state.get("finished") or any(find_file_error(self.folder, *file) for file in files):
            return None
        return self._load(chains.FINAL, chains.FINAL_MONITOR, state)

    def _load(self, engines: str, monitors: str, committed: Mapping[str, Any]) -> Commit:
        if self.monitor is not None:
            self.monitor.become(load_newest(self.database, monitors))
        counts = RowCounts(**committed["counts"])
        return Commit(load_newest(self.database, engines), counts, committed["fingerprint"])

    def finish(self, now: Commit, damage: str | None) -> None:
        """Its files are written: keep what it ended with, and why its log could not be read on."""
        with self.database.commit():
            self._append(chains.FINAL, chains.FINAL_MONITOR, now.engine)
            records = self.database.list_records(chains.SNAPSHOTS)
            # the last snapshot, unless the last checkpoint has kept it
            if now.engine.ready:
                last = now.engine.publish(fresh=True)
                if not records or records[-1][1] != last.position:
                    append_object(self.database, chains.SNAPSHOTS, last, last.position)
            paths = [self.folder / name for name in FILES]
            files = {path.name: compute_file_crc(path) for path in paths if path.exists()}
            state = {"finished": True, "damage": damage, "files": files, **now.as_dict()}
            self.database.write_fact(chains.STATE, state)


# Classes of the objects in chains, and how many of the newest are kept; of snapshots others, too.
OBJECTS: dict[str, tuple[type[SavedObject], int]] = {
    chains.BEGINNING: (Engine, 1),
    chains.CHECKPOINTS: (Engine, 2),
    chains.MONITORS: (Monitor, 2),
    chains.FINAL: (Engine, 1),
    chains.FINAL_MONITOR: (Monitor, 1),
    chains.MERGED: (LandmarkSet, 1),
    chains.SNAPSHOTS: (Snapshot, 1),
}


def append_object(database: Database, chain: str, value: SavedObject, position: int) -> None:
    """An object of a stream position, within a commit; older ones of its chain are dropped."""
    number = database.append(chain, position, value.to_bytes())
    database.keep_only(chain, list_retained(chain, number + 1))


def load_newest(database: Database, chain: str) -> Any:
    """The newest object of a chain; None before the first."""
    length = database.count_records(chain)
    return OBJECTS[chain][0].from_bytes(database.read(chain, length - 1).data) if length else None


def list_retained(chain: str, length: int) -> set[int]:
    """Which of so many records of a chain of objects are kept."""
    if chain == chains.SNAPSHOTS:
        return select_retained(length)
    return set(range(max(0, length - OBJECTS[chain][1]), length))


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


def read_tables(database: Database, chain: str) -> Iterator[Any]:
    """The tables of a chain."""
    for record in database.read_chain(chain):
        yield from_ipc_bytes(record.data)


def to_ipc_bytes(table: Any) -> bytes:
    """A table as the bytes of a record."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_ipc_bytes(data: bytes) -> Any:
    """The inverse of `to_ipc_bytes`."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()


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
