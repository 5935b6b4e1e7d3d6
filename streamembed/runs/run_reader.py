"""`read_run`: what a run holds, of whatever kind, also while another process writes to it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamembed.data.ids import read_ids
from streamembed.data.values import format_label
from streamembed.drift.monitor import Monitor
from streamembed.engine.call import Call, Distances, Labels, Points
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import (
    DamagedFileError,
    InputError,
    LogError,
    NotReadyError,
    ParameterError,
    check_path,
    quote,
)
from streamembed.logs.paths import Paths
from streamembed.runs import chains
from streamembed.runs.feed import read_events
from streamembed.runs.origin import open_recorded_log
from streamembed.runs.partition_root import count_learned
from streamembed.runs.recorder import build_rejected_schema
from streamembed.runs.run_store import find_file_error, load_newest, read_tables
from streamembed.runs.run_tables import EventRows
from streamembed.storage.database import Database, stat_files

T = TypeVar("T")
# The largest share of the time that a follower may read.
MAX_SHARE = 0.1
Key = int | str
EVENT_COLUMNS = ["position", "id", "label", "event_time"]


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Progress of a run."""

    # Events that were committed, and rows that were not learned.
    accepted: int
    rejected: int
    position: int  # of the stream


@dataclass(frozen=True, slots=True)
class EventMetadata:
    """Position, label, time and kept columns of an event."""

    position: int | None = None  # of the stream
    # As text; None where there is none.
    label: str | None = None
    time: str | None = None
    kept: Mapping[str, str | None] = field(default_factory=dict)


def read_run(run: str | os.PathLike[str]) -> RunReader:
    """A run, to be read; it never waits for a writer, and no writer waits for it.

    Raises
    ------
    MissingFileError
        There is no run.
    DamagedFileError, FileError
        It is damaged, or cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from streamembed import open_run
    >>> folder = tempfile.mkdtemp()
    >>> with open_run(folder, {"size": 50, "warm_up": 40}) as run:
    ...     _ = run.learn(np.random.default_rng(0).standard_normal((80, 2)))
    >>> with read_run(folder) as reader:
    ...     reader.positions, reader.snapshot().position
    ([80], 80)
    """
    return RunReader(Database.open(Path(check_path(run, "run"))))


class RunReader:
    """What was committed to a run.

    Attributes
    ----------
    path : Path
    kind : str
        "replay", "online", or "partitions" of a replay in partitions.
    origin : dict
        How it came about: version, parameters of the engine, and of a replay those of the log.
    """

    def __init__(self, database: Database) -> None:
        """Use `read_run`."""
        self._database = database
        self.path = database.folder
        self.origin: dict[str, Any] = dict(database.read_fact(chains.ORIGIN, {}))
        self.kind = str(self.origin.get("kind", "replay"))

    def __repr__(self) -> str:
        at = self.positions
        end = f", to event {at[-1]:,}" if at else ""
        return f"<RunReader of {self.path}: {self.kind}, {len(at)} snapshots kept{end}>"

    @property
    def begun(self) -> int:
        """Events that its engine had learned when the run began."""
        if self.kind != "online":
            return int(self.origin.get("start", {}).get("position", 0))
        return self._database.list_records("beginning")[0][1]

    @property
    def finished(self) -> bool:
        """Whether a replay has come to the end of its log, or to damage; False of an online run."""
        return bool(self._database.read_fact(chains.STATE, {}).get("finished"))

    @property
    def damage(self) -> str | None:
        """Why the log of a finished replay could not be read to its end; None where it was."""
        damage: str | None = self._database.read_fact(chains.STATE, {}).get("damage")
        return damage

    @property
    def positions(self) -> list[int]:
        """Stream positions of the snapshots that are kept: about one an octave of age."""
        return [position for _, position in self._database.list_records(chains.SNAPSHOTS)]

    def snapshot(self, position: int | None = None) -> Snapshot:
        """A snapshot that is kept; None for the newest.

        Raises
        ------
        NotReadyError
            None was committed yet.
        ParameterError
            There is none of that position.
        DamagedFileError
            It is not what was written.
        """
        with self._database.read_consistently():
            records = self._database.list_records(chains.SNAPSHOTS)
            if not records:
                raise self._create_not_ready_error("snapshot")
            numbers = [number for number, at in records if position in (None, at)]
            if not numbers:
                raise ParameterError(
                    f"position={quote(position)} must be one of {[at for _, at in records]}, "
                    "or None"
                )
            return Snapshot.from_bytes(self._database.read(chains.SNAPSHOTS, numbers[-1]).data)

    def _create_not_ready_error(self, what: str) -> NotReadyError:
        remedy = "its warm-up has not ended"
        if self.kind != chains.ONLINE and not self.finished:
            remedy = "it is running, or was stopped: run the same command again to resume"
        return NotReadyError(f"{self.path} holds no {what} yet: {remedy}")

    def engine(self) -> Engine:
        """The engine as it was committed last, a copy of your own; NotReadyError before."""
        engine: Engine | None = self._load_last(chains.CHECKPOINTS, chains.FINAL)
        if engine is None:
            raise self._create_not_ready_error("engine")
        return engine

    def monitor(self) -> Monitor | None:
        """The monitor as it was committed last, a copy of your own; None where the run has none."""
        monitor: Monitor | None = self._load_last(chains.MONITORS, chains.FINAL_MONITOR)
        return monitor

    def _load_last(self, committed: str, final: str) -> Any:
        with self._database.read_consistently():
            return load_newest(self._database, final if self.finished else committed)

    def timeline(self) -> Any:
        """A row a snapshot that was committed, as an Arrow table: that of ``timeline.parquet``."""
        table = self.table("timeline")
        return pa.table({"position": pa.array([], pa.int64())}) if table is None else table

    def rejected(self) -> Any:
        """Rows that were not learned and why, as an Arrow table: that of ``rejected.parquet``."""
        table = self.table("rejected")
        return build_rejected_schema(pa.int64()).empty_table() if table is None else table

    def events(self, log: Paths | None = None) -> Iterator[tuple[int, EventRows]]:
        """The events that were committed, in order: the stream position of the first, and these.

        Of a replay they are read from its log, which must still have the rows that were learned;
        of an online run from its calls.

        Parameters
        ----------
        log
            Where the log is now; default: where it was.

        Raises
        ------
        LogError
            The log cannot be read any more.
        ParameterError
            Its rows are others: the error comes last, and what came before is not to be used. Or
            the run was learned in partitions, which keep no account of events.
        """
        if self.kind == chains.PARTITIONS:
            raise ParameterError(f"{self.path} was learned in partitions, which record no events")
        position = self.begun
        parts = self._read_calls() if self.kind != "replay" else self._read_log(log)
        for rows in parts:
            yield position, rows
            position += len(rows)

    def _read_log(self, log: Paths | None) -> Iterator[EventRows]:
        committed = self._read_committed()
        if not committed:
            return
        paths = log or self._database.read_fact(chains.LOG)
        try:
            opened = open_recorded_log(self.origin, paths)
        except (LogError, ParameterError) as error:
            raise LogError(
                f"the events of {self.path} are in its log, which cannot be read again: {error}; "
                "put it back, or name it with log=..."
            ) from error
        rejected = self.rejected()["offset"].to_pylist()
        yield from read_events(opened, committed["fingerprint"], rejected, self.path)

    def _read_committed(self) -> dict[str, Any]:
        """Counts and fingerprint of a finished run, or of the last commit; empty before it."""
        with self._database.read_consistently():
            fact = chains.STATE if self.finished else chains.COMMITTED
            return dict(self._database.read_fact(fact, {}))

    def _list_calls(self) -> Iterator[tuple[Call[Any], int]]:
        """The calls of an online run, and the stream position after each."""
        for record in self._database.read_chain(chains.OPERATIONS):
            yield Call.from_bytes(record.data), record.position

    def _read_calls(self) -> Iterator[EventRows]:
        position = self.begun
        for call, end in self._list_calls():
            if isinstance(call, Points | Distances):
                rows = _to_event_rows(call, self.kept_columns)
                if len(rows) == end - position:  # else some are still pending
                    yield rows
                position = end

    @property
    def log_places(self) -> tuple[str, ...]:
        """The files or folders of the log that a replay learned; none of an online run."""
        return tuple(self._database.read_fact(chains.LOG, ()))

    @property
    def kept_columns(self) -> tuple[str, ...]:
        """The columns that a replay, or an online run, wrote beside the events."""
        return tuple(self.origin.get("columns", {}).get("keep", ()))

    def find_events(self, ids: Collection[Key]) -> dict[Key, EventMetadata]:
        """Look up events by id, in one pass and bounded memory; unknown ones are left out."""
        if isinstance(ids, str):
            raise InputError(f"ids={quote(ids)} is one id: pass [{quote(ids)}]")
        wanted = pa.array(sorted(ids, key=repr)) if len({type(one) for one in ids}) == 1 else None
        events: dict[Key, EventMetadata] = {}
        if wanted is None:
            return events
        for part in self._list_events():
            if part["id"].type == wanted.type:
                for row in part.filter(pc.is_in(part["id"], value_set=wanted)).to_pylist():
                    label, time = (format_label(row.get(name)) for name in ("label", "event_time"))
                    kept = {name: format_label(row[name]) for name in self.kept_columns}
                    events[row["id"]] = EventMetadata(row["position"], label, time, kept)
        for call, _ in self._list_calls() if self.kind == chains.ONLINE else ():
            for key, late in call.labels if isinstance(call, Labels) else ():
                if key in events:
                    events[key] = replace(events[key], label=format_label(late))
        return events

    def _list_events(self) -> Iterator[Any]:
        """Positions, ids, labels, times and kept columns of events, as record batches of Arrow."""
        if self.finished:
            if (path := self.find_file("embedding.parquet")) is not None:
                with pq.ParquetFile(path) as file:
                    yield from file.iter_batches(columns=[*EVENT_COLUMNS, *self.kept_columns])
        elif self.kind != chains.PARTITIONS:
            for position, rows in self.events():
                positions = pa.array(range(position, position + len(rows)), pa.int64())
                ids = positions if rows.ids is None else pa.array(rows.ids.tolist())
                yield pa.record_batch({"position": positions, "id": ids, **rows.passthrough})

    def find_file(self, name: str) -> Path | None:
        """Where a file of a finished run is, once its checksum is verified; None without it.

        Raises
        ------
        DamagedFileError
            It is not what was written.
        """
        checksum = self._database.read_fact(chains.STATE).get("files", {}).get(name)
        if checksum is None:
            return None
        if (fault := find_file_error(self.path, name, checksum)) is not None:
            raise DamagedFileError(f"{self.path}: {fault}; repeat the replay to write it again")
        return self.path / name

    def table(self, name: str) -> Any:
        """A table of the run: the file of a finished one, else what was committed; None without.

        Parameters
        ----------
        name
            Of its file, without ".parquet".
        """
        if self.finished:
            path = self.find_file(f"{name}.parquet")
            return None if path is None else pq.read_table(path)
        with self._database.read_consistently():
            tables = list(read_tables(self._database, name))
        # of an online run, ids of rejected rows are null where a call has none
        return pa.concat_tables(tables, promote_options="default") if tables else None

    def progress(self) -> RunProgress:
        """The progress of the run as of its last commit."""
        database, position = self._database, self.begun
        if self.kind == chains.PARTITIONS:
            position = count_learned(database)
        elif self.kind == chains.REPLAY:
            position += self._read_committed().get("counts", {}).get("accepted", 0)
        elif length := database.count_records(chains.OPERATIONS):
            position = database.read(chains.OPERATIONS, length - 1).position
        return RunProgress(position - self.begun, self.rejected().num_rows, position)

    def read_at_one_moment(self, read: Callable[[], T]) -> T:
        """What a function reads of this run, as of one moment, whatever is written meanwhile."""
        with self._database.read_consistently():
            return read()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _to_event_rows(call: Points | Distances, keep: tuple[str, ...]) -> EventRows:
    """The rows of a call that are events; labels as text, and columns that were kept."""
    rows, points, labels = np.arange(call.rows), np.zeros((call.rows, 0)), None
    if isinstance(call, Points):
        rows, points, labels, ids = call.kept, call.points, call.labels, call.ids
    else:
        ids = read_ids(call.ids, call.rows)
    gone = [] if call.result is None else [row.index for row in call.result.rejected]
    learned = np.flatnonzero(~np.isin(rows, np.array(gone, dtype=np.int64)))
    passthrough = {}
    if labels:
        texts = [format_label(labels[row]) for row in learned.tolist()]
        passthrough["label"] = pa.array(texts, pa.string())
    kept = call.texts if isinstance(call, Points) else [[None] * len(rows) for _ in keep]
    for name, column in zip(keep, kept, strict=True):
        passthrough[name] = pa.array([column[row] for row in learned.tolist()], pa.string())
    chosen = None if ids is None else ids[learned]
    return EventRows(rows[learned], points[learned], passthrough, chosen)


class RunFollower(Generic[T]):
    """Reads a run again after each commit; used by many threads. It never waits for the writer.

    Parameters
    ----------
    run
        The folder of a run of any kind.
    read
        Makes the current value from an open reader and the value before, None at first.

    Attributes
    ----------
    current : T or None
        What was read last; None before that. Replaced by one assignment.
    """

    def __init__(
        self, run: str | os.PathLike[str], read: Callable[[RunReader, T | None], T | None]
    ) -> None:
        self.current: T | None = None
        self._folder = Path(check_path(run, "run"))
        self._read = read
        self._lock = threading.Lock()
        self._origin: dict[str, Any] | None = None
        self._last_stats: list[Any] = []
        self._not_before = 0.0

    def refresh(self) -> None:
        """Read the run if something was written since the last time.

        While another thread reads, and while reading takes more than its share of the time, the
        value stays as it is.

        Raises
        ------
        MissingFileError, DamagedFileError, FileError
            The run cannot be read, or was replaced by another one; the value stays.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            began = time.monotonic()
            if began < self._not_before:
                return
            stats = stat_files(self._folder)
            if stats != self._last_stats:
                with self.open_reader() as reader:
                    self.current = self._read(reader, self.current)
                self._last_stats = stats
                now = time.monotonic()
                self._not_before = now + (now - began) / MAX_SHARE
        finally:
            self._lock.release()

    @contextmanager
    def open_reader(self) -> Iterator[RunReader]:
        """A reader of the run; DamagedFileError where it was replaced by another run."""
        with read_run(self._folder) as reader:
            origin = {name: value for name, value in reader.origin.items() if name != "version"}
            if self._origin is not None and origin != self._origin:
                raise DamagedFileError(
                    f"{self._folder} is another run than when the server started; restart the "
                    "server to serve it"
                )
            self._origin = origin
            yield reader

    def find_write_time(self) -> float:
        """When the run was last written, in seconds of the system clock."""
        # an empty file is what readers leave
        times = [time for _, _, size, time in stat_files(self._folder) if size]
        return max(times, default=0) / 1e9
