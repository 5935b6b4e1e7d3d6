"""Where a replay begins: at the first row, or at the last commit of one that ended early."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from streamembed.drift.monitor import Monitor
from streamembed.engine.engine import Engine
from streamembed.errors import LogError, ParameterError, quote
from streamembed.logs.event_log import EventLog, LogBatch
from streamembed.logs.fingerprint import LogFingerprint
from streamembed.runs import run_folder as runfolder
from streamembed.runs.checkpoint_writer import (
    EVENTS,
    PARTITIONS,
    SNAPSHOTS,
    CheckpointWriter,
    RowCounts,
    append_snapshot,
)
from streamembed.runs.feed import check_rows
from streamembed.runs.origin import check_same, describe_place
from streamembed.storage.database import Database

# Facts of the database: how the run came about, and how far it is; the chain of final engines.
ORIGIN, STATE, FINAL = "origin", "state", "final"
# Where the log is that can be read again.
LOG = "log"
# And the chains of the monitor as it was at first, and at the end.
FIRST_MONITOR, FINAL_MONITOR = "first_monitor", "final_monitor"
PIECE = 1 << 20  # bytes of a file that are read at once


@dataclass(frozen=True, slots=True)
class ReplayStart:
    """Where a replay begins."""

    rows: int  # rows of the log that were taken before
    counts: RowCounts
    fingerprint: LogFingerprint  # of these rows
    finished: bool = False  # whether the log has no others, and the run is whole


def describe_engine(engine: Engine) -> dict[str, int]:
    """What identifies the engine that a run began with."""
    crc = zlib.crc32(engine.to_bytes()) if engine.position else 0
    return {"position": engine.position, "crc": crc}


def describe_monitor(monitor: Monitor | None) -> dict[str, Any] | None:
    """What identifies the monitor that a run began with."""
    if monitor is None:
        return None
    return {**monitor.parameters, "crc": zlib.crc32(monitor.to_bytes())}


@contextmanager
def open_database(
    folder: Path,
    log: EventLog,
    origin: Mapping[str, Any],
    overwrite: bool,
    monitor: Monitor | None = None,
) -> Iterator[Database]:
    """The database of the run, a new one or one to resume.

    Raises
    ------
    ParameterError
        The folder holds something else, or a run that came about in another way.
    """
    with runfolder.open_database(folder, overwrite) as database:
        before = database.read_fact(ORIGIN)
        if before is None:
            with database.commit():
                database.write_fact(ORIGIN, origin)
                database.write_fact(STATE, {"finished": False, "rows": 0})
                if monitor is not None:
                    database.append(FIRST_MONITOR, monitor.position, 0, monitor.to_bytes())
        elif before.get("kind") != "replay":
            what = "is a run that is learned into (open_run), no replay"
            if before.get("kind") == PARTITIONS:
                what = "was learned in partitions (--workers)"
            raise ParameterError(f"run={quote(str(folder))} {what}: choose another folder")
        else:
            place = f"run={quote(str(folder))}"
            check_same(place, _select_compared(before), _select_compared(origin))
            if not log.is_repeatable:
                raise ParameterError(
                    f"{place} is not empty, and standard input cannot be resumed, since what was "
                    "read is gone: choose another folder, or replace the run with overwrite=True "
                    "(--overwrite)"
                )
        if database.read_fact(LOG) != (paths := describe_place(log)):
            with database.commit():
                database.write_fact(LOG, paths)
        yield database


def _select_compared(origin: Mapping[str, Any]) -> dict[str, Any]:
    """Without the columns that are not used: files that come later may have others."""
    used = {k: v for k, v in origin["columns"].items() if k not in ("left_out", "doubtful")}
    return {**origin, "columns": used}


def restore(
    folder: Path,
    database: Database,
    checkpoint_writer: CheckpointWriter,
    log: EventLog,
    engine: Engine,
    monitor: Monitor | None = None,
    grows: bool = False,
) -> ReplayStart:
    """Bring the engine to where the run was committed last; check that the log still leads there.

    ``grows`` is whether there may be more rows to come.

    Raises
    ------
    ParameterError
        The rows that were taken are not those of the log any more.
    """
    last = checkpoint_writer.load_last()
    state = database.read_fact(STATE, {})
    if last is None and not state.get("finished"):
        return ReplayStart(0, RowCounts(), LogFingerprint())
    ends: dict[int, dict[str, int]] = {}
    if last is not None:
        ends[last[2]["rows"]] = last[2]
    if state.get("finished"):
        ends[state["rows"]] = state["prefix"]
    fingerprints, more = _read_fingerprints(folder, log, ends)
    if (
        state.get("finished")
        and not more
        and not grows
        and not any(find_file_error(folder, name, crc) for name, crc in state["files"].items())
    ):
        engine.become(Engine.from_bytes(database.read(FINAL, state["final"]).data))
        if monitor is not None:
            newest = database.count_records(FINAL_MONITOR) - 1
            monitor.become(Monitor.from_bytes(database.read(FINAL_MONITOR, newest).data))
        return ReplayStart(
            state["rows"], RowCounts(**state["counts"]), LogFingerprint(), finished=True
        )
    if state.get("finished"):
        with database.commit():
            database.write_fact(STATE, {"finished": False, "rows": state["rows"]})
    if last is None:
        return ReplayStart(0, RowCounts(), LogFingerprint())
    saved, counts, fingerprint = last
    engine.become(saved)
    return ReplayStart(fingerprint["rows"], counts, fingerprints[fingerprint["rows"]])


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


def _read_fingerprints(
    folder: Path, log: EventLog, ends: Mapping[int, dict[str, int]]
) -> tuple[dict[int, LogFingerprint], bool]:
    """The fingerprints of the log up to some rows, as they must be; and whether there are more."""
    wanted = sorted(ends)
    fingerprints: dict[int, LogFingerprint] = {}
    fingerprint, more = LogFingerprint(), False
    for part in _read_undamaged(log, wanted, fingerprints):
        for end in wanted[len(fingerprints) :]:
            fingerprint.update(part, end)
            if fingerprint.rows < end:
                break
            check_rows(fingerprint, ends[end], folder)
            fingerprints[end] = fingerprint.copy()
        more = part.offset + len(part) > wanted[-1]
        if more:
            break
    if len(fingerprints) < len(wanted):
        check_rows(fingerprint, ends[wanted[len(fingerprints)]], folder)
    return fingerprints, more


def _read_undamaged(
    log: EventLog, wanted: list[int], fingerprints: Mapping[int, LogFingerprint]
) -> Iterator[LogBatch]:
    """The log up to its damage, if that is behind what is wanted: the driver raises it."""
    try:
        yield from log.batches(0)
    except LogError:
        if len(fingerprints) < len(wanted):
            raise


def finish(
    database: Database,
    checkpoint_writer: CheckpointWriter,
    engine: Engine,
    counts: RowCounts,
    fingerprint: Mapping[str, int],
    whole: bool,
    monitor: Monitor | None = None,
) -> None:
    """The run is whole, or has ended early: say so, and keep the engine as it is at its end."""
    state: dict[str, Any] = {"finished": whole, "rows": engine.log_offset}
    if whole:
        state |= {"counts": asdict(counts), "prefix": dict(fingerprint)}
    with database.commit():
        if whole:
            checkpoint_writer.append_buffered(EVENTS, engine.position)  # nothing resumes there
            number = database.append(FINAL, engine.position, 0, engine.to_bytes())
            database.keep_only(FINAL, {number})
            if monitor is not None:
                last = database.append(FINAL_MONITOR, monitor.position, 0, monitor.to_bytes())
                database.keep_only(FINAL_MONITOR, {last})
            records = database.list_records(SNAPSHOTS)
            # the last snapshot, unless the last checkpoint has kept it
            if engine.ready and (not records or records[-1][1] != engine.publish().position):
                append_snapshot(database, engine.publish(fresh=True))
            paths = [database.folder / name for name in runfolder.FILES]
            files = {path.name: compute_file_crc(path) for path in paths if path.exists()}
            state |= {"final": number, "files": files}
        database.write_fact(STATE, state)
