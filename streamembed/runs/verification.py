"""`verify`: whether all that a run holds is what was written, and what to do where it is not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamembed.engine.call import Call
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import DamagedFileError, ParameterError, check_path, quote
from streamembed.merging.landmark_set import LandmarkSet
from streamembed.runs import chains
from streamembed.runs import run_folder as runfolder
from streamembed.runs.online_run import apply_calls
from streamembed.runs.partition import PartitionCheckpoint
from streamembed.runs.run_store import (
    OBJECTS,
    find_file_error,
    from_ipc_bytes,
    list_retained,
    load_newest,
)
from streamembed.storage.database import FACT, Database

# What to do about it.
REPLAY_REMEDY = "replay the log again with --overwrite"
RESTORE_REMEDY = (
    "restore the folder from a copy; `streamembed export` exports what can still be read"
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that is not as it was written: what, and what to do."""

    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Verified:
    """What was looked at, and what is wrong."""

    checked: dict[str, int]  # how many records of each chain, and files
    troubles: tuple[Trouble, ...]


def verify(run: str | os.PathLike[str], deep: bool = False) -> Verified:
    """Check every checksum of a run, and that what belongs there is there.

    Parameters
    ----------
    deep
        Also learn the calls of an online run again, and compare bytes.

    Raises
    ------
    ParameterError
        ``deep`` of a replay, which has its rows in a log.
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
            if deep and kind != chains.ONLINE:
                raise ParameterError(
                    f"{folder} is a replay, whose rows are in its log: to learn them again, replay "
                    "the log into another folder, and compare all files but run.db"
                )
            for name, check in _list_checks(database, folder):
                try:
                    checked[name] = check()
                except MemoryError:  # Arrow's is an ArrowException
                    raise
                except (OSError, pa.ArrowException, ValueError, KeyError) as error:
                    troubles.append(Trouble(f"{name}: {_to_one_line(error)}", remedy))
            if deep and not troubles:
                try:
                    checked["learned again"] = _learn_again(database)
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


def _list_checks(database: Database, folder: Path) -> Iterator[tuple[str, Callable[[], int]]]:
    """What is looked at, by name: how many there are, or an error."""

    def structure() -> int:
        if faults := database.check():
            raise DamagedFileError(f"SQLite reports of its structure: {quote(faults[0])}")
        return 1

    yield "database", structure
    try:
        names = database.list_chains()
    except DamagedFileError:
        return  # the structure says it
    for chain in dict.fromkeys([f"{FACT}{chains.ORIGIN}", f"{FACT}{chains.STATE}", *names]):
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
    decode: Callable[[bytes], Any] = from_ipc_bytes
    expected = set(range(length))
    if chain in OBJECTS:
        decode, expected = OBJECTS[chain][0].from_bytes, list_retained(chain, length)
    elif chain == chains.OPERATIONS:
        decode = Call.from_bytes
    elif chain.startswith(FACT):
        decode, expected = json.loads, {max(length - 1, 0)}
    elif chain.startswith(chains.PARTITION):  # those that were not merged yet, and the newest
        decode = PartitionCheckpoint.from_bytes
        expected = set(range(min(numbers, default=0), length))
    if set(numbers) != expected:
        lost = sorted(expected - set(numbers))
        raise DamagedFileError(f"records {lost[:5]} are lost" if lost else "records were added")
    for number in numbers:
        decode(database.read(chain, number).data)
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


def _learn_again(database: Database) -> int:
    engine, count = load_newest(database, chains.BEGINNING), 0
    committed = database.read_fact(chains.COMMITTED, {"fingerprint": {"operations": 0}})
    for count in apply_calls(database, engine):
        if count == committed["fingerprint"]["operations"]:
            last = database.count_records(chains.CHECKPOINTS) - 1
            if database.read(chains.CHECKPOINTS, last).data != engine.to_bytes():
                raise DamagedFileError(f"the engine at event {engine.position} has other bytes")
    return count


def _to_one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text.partition(" is damaged: ")[2].partition("; `streamembed")[0] or text
