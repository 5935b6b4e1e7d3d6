"""The run folder: created, cleared of an older run on request, locked by one writer at a time.

A replay or an online run holds the lock of the file ``.lock`` until it ends. The system releases
it when the process is gone, however that came about, so that no lock is ever stale; the file stays.
What a killed process leaves besides are the database, and partial tables, whose names carry its
number; the next writer removes these. Nothing is written where a log is read.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from streamembed.errors import ParameterError, StreamembedError, build_file_error, check_path, quote
from streamembed.logs.event_log import EventLog
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
    "rejected.parquet",
    "drift.parquet",
    "alarms.jsonl",
    "landmarks.arrow",
)
# Besides tables, the database with what SQLite has beside it.
RUN_FILES = (*FILES, *WRITER_FILES, f"{DATABASE_NAME}-shm")
UNFINISHED = (
    "{} is an unfinished run: its replay is still running, or was killed; wait until it ends, or "
    "repeat the command to resume it, or replay the log again with --overwrite"
)


def name_partial(path: Path) -> Path:
    """Where a table is written until it is complete."""
    return path.with_name(f"{path.name}.{os.getpid()}.part")


def is_unfinished(folder: Path) -> bool:
    """True if a replay is at work in the folder, or was killed there."""
    names = {path.name for path in folder.iterdir()}
    partials = {name for name in names if _is_partial(name)}
    begun = partials or names & {DATABASE_NAME, LOCK}
    known = {*partials, *RUN_FILES, PARTS, LOCK}
    return bool(begun) and "timeline.parquet" not in names and names <= known


def _is_partial(name: str) -> bool:
    # SQLite has files beside a database that is being created
    return ".part" in name and name.startswith((*FILES, DATABASE_NAME))


def check_apart(name: str, target: Path, log: EventLog, folder: bool) -> None:
    """Refuse to write where a log is read, whatever links lead there; nothing is touched.

    Parameters
    ----------
    name
        What the message calls ``target``.
    target
        A file to write, or a run folder.
    folder
        Whether it is a run folder; one below a folder of logs is apart, for those are not read
        with what is below them.

    Raises
    ------
    ParameterError
        It is or holds a file of the log, or is a folder of it, or a file in one.
    """
    places = [target] if folder else [target, target.parent, Path(os.path.realpath(target)).parent]
    if folder and "=" in target.name[1:]:  # it would be read with the folder above it
        places.append(target.parent)
    touched = _read_identities([target, *(target / file for file in FILES)])
    # what a network reads is elsewhere
    files = [path for path in log.paths if isinstance(path, Path) and path.exists()]
    is_inside = _read_identities(places) & _read_identities(log.folders)
    if is_inside or touched & _read_identities([*files, *_list_parents(files)]):
        raise ParameterError(
            f"{name}={quote(str(target))} is, contains or lies in the folder or a file from which "
            f"the log is read ({log.paths[0]}): choose another place"
        )


def is_same_path(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> bool:
    """True if two paths lead to the same existing file or folder."""
    return bool(_read_identities([Path(first)]) & _read_identities([Path(second)]))


def _list_parents(paths: Iterable[Path]) -> set[Path]:
    """The folders that paths lie in; and where one is a link, those of what it leads to."""
    holders = set()
    for path in paths:
        holders.add(path.parent)
        if path.is_symlink():
            holders.add(Path(os.path.realpath(path)).parent)
    real = {Path(os.path.realpath(holder)) for holder in holders}
    return real.union(*(holder.parents for holder in real))


def _read_identities(paths: Iterable[Path]) -> set[tuple[int, int]]:
    """What the system knows the paths by; those that are not there have none."""
    identities = set()
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            status = path.stat()
            identities.add((status.st_dev, status.st_ino))
    return identities


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
    try:
        if folder.exists() and not folder.is_dir():
            raise ParameterError(
                f"run={quote(str(folder))} must be a folder, or not exist yet; it is a file"
            )
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOCK).open("a+b") as lock:
            _lock(lock, folder)
            for path in folder.iterdir():  # of a process that was killed
                if _is_partial(path.name):
                    path.unlink()
            try:
                yield folder
            finally:
                with contextlib.suppress(OSError):
                    for path in folder.glob(f"*.{os.getpid()}.part"):
                        path.unlink()
    except OSError as error:
        if isinstance(error, StreamembedError):
            raise
        raise build_file_error(error, folder, "used as a run folder") from error


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
    """
    if (folder / DATABASE_NAME).exists() and not overwrite:
        return Database.open(folder, writes=True)
    clear_folder(folder, overwrite)
    return Database.create(folder)


def clear_folder(folder: Path, overwrite: bool | None) -> None:
    """Remove the files of an older run; ParameterError if there are any, unless ``overwrite``."""
    names = sorted(path.name for path in folder.iterdir() if path.name != LOCK)
    if names and overwrite is None:
        raise ParameterError(
            f"run={quote(str(folder))} holds {quote(names[0])} and no run: choose an empty folder, "
            "or one that does not exist yet"
        )
    if names and not overwrite:
        raise ParameterError(
            f"run={quote(str(folder))} is not empty: choose another folder, or replace the run "
            "with overwrite=True"
        )
    for name in RUN_FILES:
        (folder / name).unlink(missing_ok=True)
    if (folder / PARTS).is_dir():
        shutil.rmtree(folder / PARTS)
