"""`read_run`: what a run holds, of whatever kind, also while another process writes to it."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamembed.data.ids import read_ids
from streamembed.drift.monitor import Monitor
from streamembed.engine.call import Call, Distances, Labels, Points
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import (
    DamagedFileError,
    LogError,
    NotReadyError,
    ParameterError,
    check_path,
    quote,
)
from streamembed.logs.paths import Paths
from streamembed.runs import chains
from streamembed.runs.event_rows import EventRows
from streamembed.runs.feed import read_distances, read_events, read_points
from streamembed.runs.origin import open_recorded_log
from streamembed.runs.partition_root import list_partitions
from streamembed.runs.recorder import build_rejected_schema
from streamembed.runs.run_store import find_file_error, read_batches
from streamembed.storage.database import Database

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RunProgress:
    """Progress of a run."""

    # Events that were committed, and rows that were not learned.
    accepted: int
    rejected: int
    position: int  # of the stream


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
        """Whether a replay has come to the end of its log; False of an online run."""
        return bool(self._database.read_fact(chains.STATE, {}).get("finished"))

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
                raise NotReadyError(f"{self.path} holds no snapshot yet: its warm-up has not ended")
            numbers = [number for number, at in records if position in (None, at)]
            if not numbers:
                raise ParameterError(
                    f"position={quote(position)} must be one of {[at for _, at in records]}, "
                    "or None"
                )
            return Snapshot.from_bytes(self._database.read(chains.SNAPSHOTS, numbers[-1]).data)

    def engine(self) -> Engine:
        """The engine as it was committed last, a copy of your own; NotReadyError before."""
        with self._database.read_consistently():
            chain = chains.FINAL if self.finished else chains.CHECKPOINTS
            records = self._database.list_records(chain)
            if not records:
                raise NotReadyError(f"{self.path} holds no engine yet: its warm-up has not ended")
            return Engine.from_bytes(self._database.read(chain, records[-1][0]).data)

    def monitor(self) -> Monitor | None:
        """The monitor as it was committed last, a copy of your own; None where the run has none."""
        with self._database.read_consistently():
            chain = chains.FINAL_MONITOR if self.finished else chains.MONITORS
            records = self._database.list_records(chain)
            if not records:
                return None
            return Monitor.from_bytes(self._database.read(chain, records[-1][0]).data)

    def timeline(self) -> Any:
        """A row a snapshot that was committed, as an Arrow table: that of ``timeline.parquet``."""
        table = self.table("timeline")
        return pa.table({"position": pa.array([], pa.int64())}) if table is None else table

    def rejected(self) -> Any:
        """Rows that were not learned and why, as an Arrow table: that of ``rejected.parquet``."""
        table = self.table("rejected")
        return build_rejected_schema().empty_table() if table is None else table

    def partitions(self) -> Any:
        """The partitions of a run by several workers, a row each, as an Arrow table.

        Which files and rows it is, its last round, its events and rejected rows so far, and
        whether it has ended. Of any other run without rows.
        """
        with self._database.read_consistently():
            return list_partitions(self._database)

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
        state = self._database.read_fact(chains.STATE, {})
        fingerprint = state.get("fingerprint") or self._database.read_fact(chains.FINGERPRINT)
        paths = log or self._database.read_fact(chains.LOG)
        if fingerprint is None:
            return
        try:
            opened = open_recorded_log(self.origin, paths)
        except (LogError, ParameterError) as error:
            raise LogError(
                f"the events of {self.path} are in its log, which cannot be read again: {error}; "
                "put it back, or name it with log=..."
            ) from error
        names = opened.feature_names
        with suppress(NotReadyError):
            names = self.snapshot().feature_names or names
        rejected = self.rejected()["offset"].to_pylist()
        select = read_distances
        if opened.kind == "points":
            select = partial(read_points, features=opened.features, names=names)
        yield from read_events(opened, select, fingerprint, rejected, self.path)

    def _read_calls(self) -> Iterator[EventRows]:
        position = self.begun
        for record in self._database.read_chain(chains.OPERATIONS):
            call: Call[Any] = Call.from_bytes(record.data)
            if isinstance(call, Points | Distances):
                rows = _to_event_rows(call)
                if len(rows) == record.position - position:  # else some are still pending
                    yield rows
                position = record.position

    def late_labels(self) -> dict[Hashable, Any]:
        """Labels that came after their events, by id."""
        labels: dict[Hashable, Any] = {}
        if self.kind == chains.ONLINE and self.origin["engine"].get("metrics"):
            for record in self._database.read_chain(chains.OPERATIONS):
                call: Call[Any] = Call.from_bytes(record.data)
                if isinstance(call, Labels):
                    labels.update(call.labels)
        return labels

    def find_file(self, name: str) -> Path | None:
        """Where a file of a finished run is, once its checksum is verified; None without it.

        Raises
        ------
        DamagedFileError
            It is not what was written.
        """
        checksum = self._database.read_fact(chains.STATE)["files"].get(name)
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
            batches = list(read_batches(self._database, name))
        if not batches:
            return None
        tables = [pa.Table.from_batches([batch]) for batch in batches]
        schema = tables[0].schema
        if "id" in schema.names and len({table.schema.field("id").type for table in tables}) > 1:
            # rejected rows of an online run: of a call without ids they are numbers
            schema = schema.set(schema.get_field_index("id"), pa.field("id", pa.string()))
            tables = [table.cast(schema) for table in tables]
        return pa.concat_tables(tables)

    def progress(self) -> RunProgress:
        """The progress of the run as of its last commit."""
        database, begun = self._database, self.begun
        last = [
            *self.positions,
            *(position for _, position in database.list_records(chains.CHECKPOINTS)),
        ]
        if self.kind == chains.REPLAY:
            counts = database.read_fact(chains.STATE, {}).get("counts") or database.read_fact(
                chains.COUNTS, {}
            )
            accepted, rejected = int(counts.get("accepted", 0)), int(counts.get("rejected", 0))
            return RunProgress(accepted, rejected, max([begun + accepted, *last]))
        if self.kind == chains.PARTITIONS:
            table = self.partitions()
            learned, rejected = (sum(table[name].to_pylist()) for name in ("learned", "rejected"))
            return RunProgress(learned, rejected, max(last, default=0))
        if length := database.count_records(chains.OPERATIONS):
            last.append(database.read(chains.OPERATIONS, length - 1).position)
        position = max([begun, *last])
        return RunProgress(position - begun, self.rejected().num_rows, position)

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


def _to_event_rows(call: Points | Distances) -> EventRows:
    """The rows of a call that are events; labels as text."""
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
    chosen = None if ids is None else ids[learned]
    return EventRows(rows[learned], points[learned], passthrough, chosen)


def format_label(value: Any) -> str | None:
    """A label or time as text; None where there is none."""
    return None if value is None or value != value else str(value)
