"""`verify`: whether all that a run holds is what was written, and what to do where it is not."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamembed.drift.monitor import Monitor
from streamembed.engine.call import Call
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import (
    DamagedFileError,
    LogError,
    ParameterError,
    check_path,
)
from streamembed.logs.paths import Paths
from streamembed.merging.landmark_set import LandmarkSet
from streamembed.runs import chains
from streamembed.runs import run_folder as runfolder
from streamembed.runs.log_replay import replay
from streamembed.runs.origin import list_differences, open_recorded_log
from streamembed.runs.recorder import COLUMNS_KEY
from streamembed.runs.run_store import find_file_error, select_retained
from streamembed.storage import archive
from streamembed.storage.database import Database

MAX_MESSAGE_LENGTH = 100  # characters of SQLite's report in a message
# What to do about it.
REPLAY_REMEDY = "replay the log again with --overwrite"
RESTORE_REMEDY = (
    "restore the folder from a copy; `streamembed export` exports what can still be read"
)


def _decode_table(data: bytes) -> None:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        reader.read_all()


# What decodes a record of a chain that is no table, and how many of the newest are kept (of
# snapshots others, too).
CHAINS: dict[str, tuple[Callable[[bytes], Any], int]] = {
    chains.BEGINNING: (Engine.from_bytes, 1),
    chains.FIRST_MONITOR: (Monitor.from_bytes, 1),
    chains.CHECKPOINTS: (Engine.from_bytes, 2),
    chains.MONITORS: (Monitor.from_bytes, 2),
    chains.FINAL: (Engine.from_bytes, 1),
    chains.FINAL_MONITOR: (Monitor.from_bytes, 1),
    chains.MERGED: (LandmarkSet.from_bytes, 1),
    chains.SNAPSHOTS: (Snapshot.from_bytes, 1),
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is not as it was written: what, and what to do."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What was looked at, and what is wrong."""

    checked: dict[str, int]  # how many facts, records of each chain, and files
    troubles: tuple[Trouble, ...]


def verify(
    run: str | os.PathLike[str],
    deep: bool = False,
    log: Paths | None = None,
) -> Verified:
    """Check every checksum of a run, that positions ascend, and that what belongs there is there.

    Parameters
    ----------
    deep
        Also learn everything again, from the batches of the run or from its log, and compare bytes.
    log
        The log of a replay, for ``deep``; default: where it was.

    Raises
    ------
    ParameterError
        ``deep`` of a run that was learned in partitions, or a log where none is read.
    LogError
        The log is damaged.
    FileError
        There is no run, or it cannot be read.
    """
    folder = Path(check_path(run, "run"))
    checked: dict[str, int] = {}
    troubles: list[Trouble] = []
    try:
        with Database.open(folder) as database:
            kind = _read_kind(database)
            remedy = RESTORE_REMEDY if kind == chains.ONLINE else REPLAY_REMEDY
            if log is None and deep and kind != chains.ONLINE:
                log = database.read_fact(chains.LOG)
            _check_options(deep, log, kind)
            for name, check in _list_checks(database, folder):
                try:
                    checked[name] = check()
                except MemoryError:  # Arrow's is an ArrowException
                    raise
                except (OSError, pa.ArrowException, ValueError, KeyError) as error:
                    troubles.append(Trouble(f"{name}: {_to_one_line(error)}", remedy))
            if deep and not troubles:
                compare = _learn_again if kind == chains.ONLINE else _replay_again
                try:
                    checked["learned again"] = compare(database, folder, log)
                except DamagedFileError as error:
                    troubles.append(Trouble(f"learned again: {_to_one_line(error)}", remedy))
    except DamagedFileError as error:
        troubles.append(Trouble(_to_one_line(error), RESTORE_REMEDY))
    return Verified(checked, tuple(troubles))


def _read_kind(database: Database) -> str:
    try:
        return str(database.read_fact(chains.ORIGIN, {}).get("kind", "replay"))
    except DamagedFileError:
        return chains.ONLINE  # which nothing can be replayed of


def _check_options(deep: bool, log: Paths | None, kind: str) -> None:
    if deep and kind == chains.PARTITIONS:
        raise ParameterError(
            "a run that was learned in partitions is not repeated by verify: repeat it into "
            "another folder, and compare all files but run.db"
        )
    if log is not None and kind == chains.ONLINE:
        raise ParameterError("this is an online run, which has no log: leave log out")
    if log is not None and not deep:
        raise ParameterError("only deep=True reads the log: add it, or leave log out")


def _list_checks(database: Database, folder: Path) -> Iterator[tuple[str, Callable[[], int]]]:
    """What is looked at, by name: how many there are, or an error."""

    def structure() -> int:
        if faults := database.check():
            message = " ".join(faults[0].removeprefix("*** in database main ***").split())[
                :MAX_MESSAGE_LENGTH
            ]
            raise DamagedFileError(f'SQLite reports of its structure: "{message}"')
        return 1

    def facts() -> int:
        names = database.list_facts()
        for name in names:
            database.read_fact(name)
        if chains.ORIGIN not in names or chains.STATE not in names:
            raise DamagedFileError("what the run is was lost")
        return len(names)

    yield "database", structure
    yield "facts", facts
    try:
        names = database.list_chains()
    except DamagedFileError:
        return  # the structure says it
    for chain in names:
        yield chain, partial(_check_chain, database, chain)
    state = database.read_fact(chains.STATE, {})
    files = state["files"] if state.get("finished") else {}
    for name in runfolder.FILES:
        if name in files or (folder / name).exists():
            yield name, partial(_check_file, folder, name, files.get(name))


def _check_chain(database: Database, chain: str) -> int:
    """All records of one chain, and whether these are the ones that must be there."""
    length = database.count_records(chain)
    numbers = [number for number, _ in database.list_records(chain)]
    decode, n_newest = CHAINS.get(chain, (_decode_table, length))
    if chain == chains.OPERATIONS:
        decode = Call.from_bytes
    elif chain.startswith(chains.PARTITION):  # those that were not merged yet, and the newest
        decode = partial(archive.unseal, kind="partition", path=chain)
        n_newest = length - min(numbers, default=0)
    expected = set(range(max(0, length - n_newest), length))
    if chain == chains.SNAPSHOTS:
        expected = select_retained(length)
    if set(numbers) != expected:
        lost = sorted(expected - set(numbers))
        raise DamagedFileError(f"records {lost[:5]} are lost" if lost else "records were added")
    is_online, before = chain == chains.OPERATIONS, -1
    start = database.list_records(chains.BEGINNING)[0][1] if is_online else 0
    for number in numbers:
        record = database.read(chain, number)
        if record.position < before:
            raise DamagedFileError(f"record {number} is of an earlier event than the last")
        before, decoded = record.position, decode(record.data)
        if is_online:
            start += decoded.events
            if record.position != start:
                raise DamagedFileError(
                    f"batch {number} leads to event {start}, not {record.position}"
                )
    return len(numbers)


def _check_file(folder: Path, name: str, crc: int | None) -> int:
    path = folder / name
    if crc is not None and (fault := find_file_error(folder, name, crc)) is not None:
        raise DamagedFileError(f"{fault}: repeat the replay to write it again")
    if path.suffix == ".arrow":
        (LandmarkSet if name == "landmarks.arrow" else Snapshot).load(path)
        return 1
    if path.suffix == ".jsonl":
        return len([json.loads(line) for line in path.read_text().splitlines()])
    pq.read_table(path, page_checksum_verification=True).validate(full=True)
    return 1


def _learn_again(database: Database, folder: Path, log: Any) -> int:
    engine = Engine.from_bytes(database.read(chains.BEGINNING, 0).data)
    records = database.list_records(chains.CHECKPOINTS)
    n_committed = database.read_fact(chains.FINGERPRINT)["operations"] if records else -1
    count = 0
    for record in database.read_chain(chains.OPERATIONS):
        engine.apply(Call.from_bytes(record.data))
        count += 1
        if engine.position != record.position:
            raise DamagedFileError(
                f"batch {record.number} leads to event {engine.position}, not {record.position}"
            )
        if (
            count == n_committed
            and database.read(chains.CHECKPOINTS, records[-1][0]).data != engine.to_bytes()
        ):
            raise DamagedFileError(f"the engine at event {engine.position} has other bytes")
    return count


def _replay_again(database: Database, folder: Path, log: Any) -> int:
    """The log into another folder: its files must be those of this one."""
    origin, state = database.read_fact(chains.ORIGIN), database.read_fact(chains.STATE, {})
    if not state.get("finished"):
        raise ParameterError(
            f"{folder} is not finished, so there is nothing to compare with: resume it first"
        )
    if origin["start"]["position"]:
        raise ParameterError(f"{folder} began with an engine that had learned, which is not kept")
    opened = open_recorded_log(origin, log)
    # the timeline holds what the first replay left out
    metadata = pq.read_metadata(folder / "timeline.parquet").metadata
    written = json.loads(metadata[COLUMNS_KEY.encode()])
    left_out, suspicious = written["left_out"], tuple(written["suspicious"])
    columns = replace(opened.columns, left_out=left_out, suspicious=suspicious)
    opened = replace(opened, columns=columns)
    monitor = None
    if origin.get("monitor"):
        monitor = Monitor.from_bytes(database.read(chains.FIRST_MONITOR, 0).data)
    with tempfile.TemporaryDirectory() as other:
        done = replay(
            opened,
            Engine(**origin["engine"]),
            Path(other) / "run",
            snapshot_every=origin["snapshot_every"],
            on_bad_row=origin["on_bad_row"],
            embed=origin["embed"],
            monitor=monitor,
        )
        if done.damage is not None:
            raise LogError(done.damage)
        with Database.open(done.path) as database_again:
            again = database_again.read_fact(chains.STATE)
    rows, rows_again = (
        {name: one[name] for name in ("rows", "fingerprint")} for one in (state, again)
    )
    if lines := list_differences(rows, rows_again):
        raise ParameterError(
            f"the log has other rows than {folder} has taken ({'; '.join(lines[:4])}): give the "
            "log of this run, or resume the run first where its log has grown"
        )
    if lines := list_differences(state["files"], again["files"], "checksum"):
        raise DamagedFileError(f"the log leads to files of other bytes: {'; '.join(lines)}")
    return len(state["files"])


def _to_one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text.partition(" is damaged: ")[2].partition("; `streamembed")[0] or text
