"""Where a replay begins: with the first row, or where one that ended early was committed last."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from streamembed.drift.monitor import Monitor
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import LogError, ParameterError, shown
from streamembed.logs.event_log import EventLog, LogBatch
from streamembed.logs.fingerprint import LogFingerprint
from streamembed.logs.stdin import STDIN
from streamembed.runs import run_folder as runfolder
from streamembed.runs.checkpoint_writer import PARTITIONS, SNAPSHOTS, Counts, Ledger
from streamembed.runs.origin import must_be_same
from streamembed.storage.database import Database, thinned

__all__ = [
    "FINAL",
    "FINAL_MONITOR",
    "FIRST_MONITOR",
    "ORIGIN",
    "STATE",
    "Beginning",
    "begin",
    "end",
    "opened",
    "start_of",
    "watcher_of",
    "wrong",
]

# Facts of the database: how the run came about, and how far it is; the chain of final engines.
ORIGIN, STATE, FINAL = "origin", "state", "final"
# And the chains of the monitor as it was at first, and at the end.
FIRST_MONITOR, FINAL_MONITOR = "first_monitor", "final_monitor"


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where a replay begins.

    Attributes
    ----------
    rows : int
        Rows of the log that were taken before.
    counts : Counts
    prefix : Prefix
        Of these rows.
    finished : bool
        Whether the log has no others, and the run is whole.
    """

    rows: int
    counts: Counts
    prefix: LogFingerprint
    finished: bool = False


def start_of(engine: Engine) -> dict[str, int]:
    """What tells the engine that a run began with from others."""
    crc = zlib.crc32(engine.to_bytes()) if engine.position else 0
    return {"position": engine.position, "crc": crc}


def watcher_of(monitor: Monitor | None) -> dict[str, Any] | None:
    """What tells the monitor that a run began with from others."""
    if monitor is None:
        return None
    return {**monitor.parameters, "crc": zlib.crc32(monitor.to_bytes())}


@contextmanager
def opened(
    folder: Path,
    log: EventLog,
    origin: Mapping[str, Any],
    overwrite: bool,
    monitor: Monitor | None = None,
) -> Iterator[Database]:
    """The database of the run, a new one or one that goes on.

    Raises
    ------
    ParameterError
        The folder holds something else, or a run that came about in another way.
    """
    with runfolder.opened(folder, overwrite) as database:
        before = database.fact(ORIGIN)
        if before is None:
            with database.commit():
                database.note(ORIGIN, origin)
                database.note(STATE, {"finished": False, "rows": 0})
                if monitor is not None:
                    database.append(FIRST_MONITOR, monitor.position, 0, monitor.to_bytes())
        elif before.get("kind") != "replay":
            what = "is a run that is learned into (open_run), no replay"
            if before.get("kind") == PARTITIONS:
                what = "was learned in partitions (--workers)"
            raise ParameterError(f"run={shown(str(folder))} {what}: choose another folder")
        else:
            _must_be_same(folder, log, before, origin)
        yield database


def _must_be_same(
    folder: Path, log: EventLog, before: Mapping[str, Any], origin: Mapping[str, Any]
) -> None:
    place = f"run={shown(str(folder))}"
    must_be_same(place, before, origin)
    if STDIN in log.paths:
        raise ParameterError(
            f"{place} is not empty, and standard input cannot be gone on with, since what was read "
            "is gone: choose another folder, or replace the run with overwrite=True (--overwrite)"
        )


def begin(
    folder: Path,
    database: Database,
    ledger: Ledger,
    log: EventLog,
    engine: Engine,
    monitor: Monitor | None = None,
) -> Beginning:
    """Bring the engine to where the run was committed last; check that the log still leads there.

    Raises
    ------
    ParameterError
        The rows that were taken are not those of the log any more.
    """
    last = ledger.last()
    state = database.fact(STATE, {})
    if last is None and not state.get("finished"):
        return Beginning(0, Counts(), LogFingerprint())
    ends: dict[int, dict[str, int]] = {}
    if last is not None:
        ends[last[2]["rows"]] = last[2]
    if state.get("finished"):
        ends[state["rows"]] = state["prefix"]
    prefixes, more = _read_prefixes(folder, log, ends)
    if state.get("finished") and not more and _is_whole(folder, state):
        engine.become(Engine.from_bytes(database.read(FINAL, state["final"]).data))
        if monitor is not None:
            newest = database.length(FINAL_MONITOR) - 1
            monitor.become(Monitor.from_bytes(database.read(FINAL_MONITOR, newest).data))
        return Beginning(state["rows"], Counts(**state["counts"]), LogFingerprint(), finished=True)
    if state.get("finished"):
        with database.commit():
            database.note(STATE, {"finished": False, "rows": state["rows"]})
    if last is None:
        return Beginning(0, Counts(), LogFingerprint())
    saved, counts, told = last
    engine.become(saved)
    return Beginning(told["rows"], counts, prefixes[told["rows"]])


def _is_whole(folder: Path, state: Mapping[str, Any]) -> bool:
    """Whether the files of a finished run are all there still, as they were."""
    return not any(wrong(folder, name, crc) for name, crc in state["files"].items())


def wrong(folder: Path, name: str, crc: int) -> str | None:
    """What is wrong with a file of a finished run; None where it is what was written."""
    try:
        found = zlib.crc32((folder / name).read_bytes())
    except FileNotFoundError:
        return f"{name} is missing"
    return None if found == crc else f"{name} is not what was written"


def _read_prefixes(
    folder: Path, log: EventLog, ends: Mapping[int, dict[str, int]]
) -> tuple[dict[int, LogFingerprint], bool]:
    """The fingerprints of the log up to some rows, as they must be; and whether there are more."""
    wanted = sorted(ends)
    found: dict[int, LogFingerprint] = {}
    prefix, more = LogFingerprint(), False
    for part in _readable(log, wanted, found):
        for end in wanted[len(found) :]:
            prefix.update(part, end)
            if prefix.rows < end:
                break
            if prefix.to_dict() != ends[end]:
                columns = [
                    name for name, crc in prefix.to_dict().items() if ends[end].get(name) != crc
                ]
                raise ParameterError(
                    f"the first {end} rows of the log are not those that run="
                    f"{shown(str(folder))} has learned (they differ in {', '.join(columns)}): "
                    "replay the log that it began with, or replace the run with overwrite=True "
                    "(--overwrite)"
                )
            found[end] = prefix.copy()
        more = part.offset + len(part) > wanted[-1]
        if more:
            break
    if len(found) < len(wanted):
        raise ParameterError(
            f"the log has {prefix.rows} rows, and run={shown(str(folder))} has learned "
            f"{wanted[len(found)]}: replay the log that it began with"
        )
    return found, more


def _readable(
    log: EventLog, wanted: list[int], found: Mapping[int, LogFingerprint]
) -> Iterator[LogBatch]:
    """The log up to its damage, if that is behind what is wanted: who learns it will meet it."""
    try:
        yield from log.batches(0)
    except LogError:
        if len(found) < len(wanted):
            raise


def _keep_last(database: Database, snapshot: Snapshot) -> list[Path]:
    """The last snapshot, if the last checkpoint has not kept it; files to be removed."""
    kept = database.numbers(SNAPSHOTS)
    if kept and kept[-1][1] == snapshot.position:
        return []
    database.append(SNAPSHOTS, snapshot.position, len(snapshot.ids), snapshot.to_bytes())
    return database.keep_only(SNAPSHOTS, thinned(database.length(SNAPSHOTS)))


def end(
    database: Database,
    engine: Engine,
    counts: Counts,
    prefix: Mapping[str, int],
    whole: bool,
    monitor: Monitor | None = None,
) -> None:
    """The run is whole, or has ended early: say so, and keep the engine as it is at its end."""
    state: dict[str, Any] = {"finished": whole, "rows": engine.log_offset}
    if whole:
        state |= {"counts": asdict(counts), "prefix": dict(prefix)}
    gone: list[Path] = []
    with database.commit():
        if whole:
            number = database.append(FINAL, engine.position, 0, engine.to_bytes())
            gone = database.keep_only(FINAL, {number})
            if monitor is not None:
                last = database.append(FINAL_MONITOR, monitor.position, 0, monitor.to_bytes())
                gone += database.keep_only(FINAL_MONITOR, {last})
            if engine.ready:
                gone += _keep_last(database, engine.publish())
            paths = [database.folder / name for name in runfolder.FILES]
            files = {path.name: zlib.crc32(path.read_bytes()) for path in paths if path.exists()}
            state |= {"final": number, "files": files}
        database.note(STATE, state)
    for path in gone:
        path.unlink(missing_ok=True)
