"""The files of a log, from paths of files, folders or patterns."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from glob import glob
from itertools import chain, product
from pathlib import Path, PurePath
from typing import Any, TypeGuard

from pyarrow import fs

from streamembed.errors import (
    SCHEME,
    LogError,
    ParameterError,
    check_path,
    quote,
    summarise_error,
)
from streamembed.logs.log_file import LogFile, probe
from streamembed.logs.other_formats import TABLES, build_command
from streamembed.logs.remote_path import LogPath, RemotePath, parse_uri

Location = str | os.PathLike[str]
Paths = Location | Sequence[Location]
# Longer runs of digits are hashes: how they sort has no meaning.
LONGEST_NUMBER = 40


def natural_order(path: str) -> list[tuple[str, str]]:
    """Sort key of a path: by its names from the left, numbers in them by their value.

    Examples
    --------
    >>> sorted(["part-10", "part-2", "hour=9/b", "hour=10/a"], key=natural_order)
    ['hour=9/b', 'hour=10/a', 'part-2', 'part-10']
    """
    names = PurePath(path).parts
    padded = (re.sub("[0-9]+", lambda run: run[0].zfill(LONGEST_NUMBER), name) for name in names)
    return list(zip(padded, names, strict=True))  # "1" and "01" are told apart


def list_paths(paths: Paths) -> list[str]:
    """The paths and URIs as text; ParameterError where a value is neither."""
    is_one = isinstance(paths, (str, bytes, bytearray, memoryview))
    listed: Any = paths if isinstance(paths, Sequence) and not is_one else [paths]
    return [path if is_uri(path) else check_path(path, "paths") for path in listed]


def is_uri(path: object) -> TypeGuard[str]:
    """Whether a path is a URI, such as ``s3://bucket/log.parquet``."""
    return isinstance(path, str) and SCHEME.match(path) is not None


def list_folders(paths: Paths) -> tuple[Path, ...]:
    """Those of the paths that are folders here."""
    local = (Path(path) for path in list_paths(paths) if not is_uri(path))
    return tuple(path for path in local if path.is_dir())


def probe_files(paths: Paths) -> tuple[LogFile, ...]:
    """Describe every file, in reading order, without reading its rows."""
    names = list_paths(paths)
    if "-" in names:
        raise ParameterError(
            "paths contains '-', standard input, which is no log, since it can be read only once: "
            "write files into a folder and follow it (follow_log; replay --follow), or learn what "
            "arrives with open_run"
        )
    return tuple(probe(path) for path in _find_files(names))


def _find_files(names: list[str]) -> list[LogPath]:
    if not names:
        raise ParameterError("paths=[] must name at least one file or folder")
    files: list[LogPath] = []
    for path in chain.from_iterable(map(_expand_pattern, names)):
        try:
            is_file, is_folder, exists = path.is_file(), path.is_dir(), path.exists()
        except OSError as error:
            raise LogError(f"{path} cannot be opened ({summarise_error(error)})") from error
        if is_file:
            files.append(path)
            continue
        if not is_folder:  # reading a pipe would wait
            fault = "neither a file nor a folder" if exists else "missing"
            cause = None if exists else FileNotFoundError(errno.ENOENT, fault)
            raise LogError(f"{path} is {fault}; a log is a file, or a folder of files") from cause
        files += _list_folder_files(path)
    return files


def _expand_pattern(name: str) -> Sequence[LogPath]:
    """A path, or the paths that match a pattern, in natural order."""
    path = parse_uri(name) if is_uri(name) else Path(name)
    is_pattern = any(sign in name for sign in "*?[") and not is_uri(name)
    if not is_pattern or os.path.lexists(name):
        return [path]
    matches = [Path(match) for match in sorted(glob(name, recursive=True), key=natural_order)]
    if not matches:
        raise ParameterError(
            f"paths has the pattern {name!r}, which matches nothing; it must name files or folders"
        )
    for folder in {match.parent for match in matches}:
        check_plain(folder)
    return matches


def check_plain(folder: LogPath) -> None:
    """ParameterError where a folder is in a table, whose files also have rows that were deleted."""
    system, path, scheme = fs.LocalFileSystem(), os.path.abspath(str(folder)), ""
    if isinstance(folder, RemotePath):
        system, path, scheme = folder.filesystem, folder.path, f"{folder.scheme}://"
    places = PurePath(path), *PurePath(path).parents
    for place, (mark, (kind, end, modules, rows)) in product(places, TABLES.items()):
        selector = fs.FileSelector((place / mark).as_posix(), allow_not_found=True)
        names: list[str] = []
        with suppress(OSError):  # a folder that may not be listed
            names = [one.path for one in system.get_file_info(selector) if one.path.endswith(end)]
        if names:
            newest = scheme + max(names, key=natural_order)
            rows = rows.replace("FOLDER", repr(f"{scheme}{place}")).replace("NEWEST", repr(newest))
            raise ParameterError(
                f"{folder} belongs to {kind}, whose files also have rows that were deleted or "
                "rewritten: read a file with the rows of its newest version, such as the "
                f"rows.parquet of: {build_command(modules, rows, 'rows.parquet')}"
            )


def _list_folder_files(folder: LogPath) -> list[LogPath]:
    skipped: list[str] = []
    check_plain(folder)
    files = list(_iterate_folder(folder, skipped))
    if not files:
        inside = f"; it has the folders {quote(skipped)}" if skipped else ""
        raise ParameterError(
            f"{folder} is a folder without log files{inside}: name the files, or another folder "
            "(subfolders not named key=value, and names starting with '.' or '_', are ignored)"
        )
    return files


def list_folder(folder: Path) -> list[Path]:
    """The files of a folder of logs, in reading order, perhaps none."""
    return [path for path in _iterate_folder(folder, []) if isinstance(path, Path)]


def _iterate_folder(folder: LogPath, skipped: list[str]) -> Iterator[LogPath]:
    """Files in natural order; skipped folders are appended to ``skipped``."""
    try:
        entries: list[LogPath] = [*folder.iterdir()]
        entries.sort(key=lambda entry: natural_order(entry.name))
        if any(entry.name in TABLES for entry in entries):
            check_plain(folder)
        kinds = [(entry, entry.is_file(), entry.is_dir()) for entry in entries]
    except OSError as error:
        raise LogError(f"{folder} cannot be listed ({summarise_error(error)})") from error
    for entry, is_file, is_folder in kinds:
        if entry.name.startswith((".", "_")):
            continue
        if is_file:
            yield entry
        elif is_folder and "=" in entry.name[1:]:
            yield from _iterate_folder(entry, skipped)
        elif is_folder:
            skipped.append(entry.name)
