"""The run folder: created, cleared of an older run on request, locked by one writer at a time.

A replay or an online run holds the lock of the file ``.lock`` until it ends. The system releases
it when the process is gone, however that came about, so that no lock is ever stale; the file stays.
What a killed process leaves besides are the database and partial files; the next writer removes
these. Nothing is written where a log is read.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from streamembed.errors import ParameterError, check_path, quote
from streamembed.logs.event_log import EventLog
from streamembed.storage.archive import translate_file_errors
from streamembed.storage.database import DATABASE_NAME, LOCK, PARTS, WRITER_FILES, Database

try:
    import fcntl
except ImportError:  # where the system has no such locks, two replays are not kept apart
    fcntl = None  # type: ignore[assignment]

FILES = (
    "snapshot.arrow",
    "embedding.parquet",
    "timeline.parquet",
    "picture.parquet",
    "clusters.parquet",
    "rejected.parquet",
    "drift.parquet",
    "alarms.jsonl",
    "landmarks.arrow",
)
# Besides tables, the database with what SQLite has beside it.
RUN_FILES = (*FILES, *WRITER_FILES, f"{DATABASE_NAME}-shm")
# Files that are being written: tables and snapshots, and a database with what SQLite has beside it.
PARTIAL_FILES = (".[0-9]*-*.part", f"{DATABASE_NAME}.*.part*")


def check_apart(name: str, target: Path, log: EventLog) -> None:
    """Refuse to write where a log is read, whatever links lead there; nothing is touched.

    Parameters
    ----------
    name
        What the message calls ``target``.
    target
        A file to write, or a run folder.

    Raises
    ------
    ParameterError
        It is or holds a file of the log, or is or lies in a folder of it.
    """
    # what a network reads is elsewhere
    files = [path for path in log.paths if isinstance(path, Path)]
    if lies_in(target, [*log.folders, *files]) or any(lies_in(path, [target]) for path in files):
        raise ParameterError(
            f"{name}={quote(str(target))} is, contains or lies in the folder or a file from which "
            f"the log is read ({log.paths[0]}): choose another place"
        )


def lies_in(target: Path, places: Iterable[Path]) -> bool:
    """Whether a path is one of these files, or is or lies in one of these folders, by any link."""
    # where a link leads, and where it lies
    own = _resolve(target), _resolve(target.parent) / target.name
    return any(
        is_same_path(target, place) or any(one.is_relative_to(_resolve(place)) for one in own)
        for place in places
    )


def _resolve(path: Path) -> Path:
    return Path(os.path.realpath(path))


def is_same_path(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> bool:
    """True if two paths lead to the same existing file or folder."""
    try:
        return os.path.samefile(first, second)
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def lock_folder(run: str | os.PathLike[str]) -> Iterator[Path]:
    """Create the folder and lock it until the block ends; the lock file stays.

    Raises
    ------
    ParameterError
        Another process is at work in it.
    FileError
        It cannot be made, read or written to, or is no folder.
    """
    folder = Path(check_path(run, "run"))
    if folder.is_file():
        raise ParameterError(
            f"run={str(folder)!r} must be a folder, but it is a file: choose another"
        )
    with translate_file_errors(folder, "used as a run folder"):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOCK).open("a+b") as lock:
            _lock(lock, folder)
            for pattern in PARTIAL_FILES:  # of a process that was killed
                for path in folder.glob(pattern):
                    path.unlink()
            yield folder


def _lock(lock: BinaryIO, folder: Path) -> None:
    """Lock the file, and write the number of this process into it."""
    try:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        lock.seek(0)
        owner = lock.read(20).decode(errors="replace")
        raise ParameterError(
            f"run={quote(str(folder))} is being written by another writer (process {owner}): "
            "wait until it ends, or choose another folder"
        ) from error
    lock.truncate(0)
    lock.write(b"%d" % os.getpid())
    lock.flush()


def open_database(folder: Path, overwrite: bool | None) -> Database:
    """The database of a run, for writing: a new one where there is none or it is to be replaced.

    ``overwrite`` is None where that is no choice.

    Raises
    ------
    ParameterError
        The folder holds something else, and is not to be replaced.
    """
    if (folder / DATABASE_NAME).exists() and not overwrite:
        return Database.open(folder, writes=True)
    names = sorted(path.name for path in folder.iterdir() if path.name != LOCK)
    if names and not overwrite:
        choice = "or replace the run with overwrite=True"
        if overwrite is None:
            choice = f"for it holds {quote(names[0])} and no run"
        raise ParameterError(
            f"run={quote(str(folder))} is not empty: choose another folder, {choice}"
        )
    for name in RUN_FILES:
        (folder / name).unlink(missing_ok=True)
    if (folder / PARTS).is_dir():
        shutil.rmtree(folder / PARTS)
    return Database.create(folder)
