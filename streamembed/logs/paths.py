"""The files of a log, from paths of files, folders or patterns."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from glob import glob
from itertools import product
from pathlib import Path, PurePath
from typing import Any

from pyarrow import fs

from streamembed.errors import LogError, ParameterError, check_path
from streamembed.logs.log_file import CONVERSIONS, LogFile, probe
from streamembed.logs.place import Place, find_place, is_uri

Location = str | os.PathLike[str]
Paths = Location | Sequence[Location]
# Longer runs of digits are hashes: how they sort has no meaning.
LONGEST_NUMBER = 40
# Tables that are folders, by a folder inside: their name, and how its files end.
TABLES = {
    "_delta_log": ("a Delta table", ""),
    "metadata": ("an Iceberg table", ".metadata.json"),
    ".hoodie": ("a Hudi table", ""),
    "_versions": ("a Lance data set", ".manifest"),
}


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


def normalise_paths(paths: Paths) -> list[str]:
    """The paths and URIs as text; ParameterError where a value is neither."""
    is_one = isinstance(paths, (str, bytes, bytearray, memoryview))
    listed: Any = paths if isinstance(paths, Sequence) and not is_one else [paths]
    return [path if is_uri(path) else check_path(path, "paths") for path in listed]


def select_folders(paths: Paths) -> tuple[Path, ...]:
    """Those of the paths that are folders here."""
    local = (Path(path) for path in normalise_paths(paths) if not is_uri(path))
    return tuple(path for path in local if path.is_dir())


def probe_files(paths: Paths) -> tuple[LogFile, ...]:
    """Describe every file, in reading order, without reading its rows."""
    names = normalise_paths(paths)
    if not names:
        raise ParameterError("paths=[] must name at least one file or folder")
    if "-" in names:
        raise ParameterError(
            "paths contains '-', standard input, which is no log, since it can be read only once: "
            "write files into a folder and follow it (follow_log; replay --follow), or learn what "
            "arrives with open_run"
        )
    return tuple(probe(place) for name in names for place in _find_files(name))


def _find_files(name: str) -> Iterator[Place]:
    for place in _expand_pattern(name):
        if place.kind == fs.FileType.File:
            yield place
        elif place.kind == fs.FileType.Directory:
            check_no_table(place)
            if not (files := list_folder(place)):
                raise ParameterError(
                    f"{place} is a folder without log files: name the files, or another folder "
                    "(subfolders not named key=value, and names starting with '.' or '_', are "
                    "ignored)"
                )
            yield from files
        else:  # reading a pipe would wait
            is_missing = place.kind == fs.FileType.NotFound
            fault = "missing" if is_missing else "neither a file nor a folder"
            cause = FileNotFoundError(errno.ENOENT, fault) if is_missing else None
            raise LogError(f"{place} is {fault}; a log is a file, or a folder of files") from cause


def _expand_pattern(name: str) -> list[Place]:
    """A path, or the paths that match a pattern, in natural order."""
    is_pattern = any(sign in name for sign in "*?[") and not is_uri(name)
    if not is_pattern or os.path.lexists(name):
        return [find_place(name)]
    matches = sorted(glob(name, recursive=True), key=natural_order)
    if not matches:
        raise ParameterError(
            f"paths has the pattern {name!r}, which matches nothing; it must name files or folders"
        )
    for folder in {os.path.dirname(match) for match in matches}:
        check_no_table(find_place(folder or "."))
    return [find_place(match) for match in matches]


def check_no_table(folder: Place) -> None:
    """ParameterError where a folder is in a table, whose files also have rows that were deleted."""
    top = PurePath(folder.path)
    for table, (mark, (kind, end)) in product((top, *top.parents), TABLES.items()):
        selector = fs.FileSelector((table / mark).as_posix(), allow_not_found=True)
        names: list[str] = []
        with suppress(OSError):  # a folder that may not be listed
            names = [file.path for file in folder.filesystem.get_file_info(selector)]
        if any(name.endswith(end) for name in names):
            raise ParameterError(
                f"{folder} belongs to {kind} in {table}, whose files also have rows that were "
                f"deleted or rewritten: write the rows of its newest version to a file: "
                f"{CONVERSIONS} has the line"
            )


def list_folder(folder: Place) -> list[Place]:
    """The files of a folder of logs, in reading order, perhaps none."""
    children = sorted(folder.list_children(), key=lambda child: natural_order(child.name))
    if any(child.name in TABLES for child in children):
        check_no_table(folder)
    files: list[Place] = []
    for child in children:
        if child.name.startswith((".", "_")):
            continue
        if child.kind == fs.FileType.File:
            files.append(child)
        elif child.kind == fs.FileType.Directory and "=" in child.name[1:]:
            files += list_folder(child)
    return files
