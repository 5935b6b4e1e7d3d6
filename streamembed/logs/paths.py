"""The files of a log, from what was given: files, folders of them, patterns, or ``-``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from glob import glob
from itertools import chain
from pathlib import Path

from streamembed.errors import LogError, ParameterError, path_text, said, shown
from streamembed.logs.log_file import LogFile, is_arrow, probe, probe_stdin
from streamembed.logs.stdin import STDIN

Location = str | os.PathLike[str]
Paths = Location | Sequence[Location]


def list_paths(paths: Paths) -> list[str]:
    """The paths as text; ParameterError if one is not a path."""
    if isinstance(paths, Sequence) and not isinstance(paths, (str, bytes, bytearray, memoryview)):
        return [path_text(path, "paths") for path in paths]
    return [path_text(paths, "paths")]


def probe_files(paths: Paths) -> tuple[LogFile, ...]:
    """Every file, in reading order, as it looks from outside."""
    given = list_paths(paths)
    if all(os.fspath(path) != str(STDIN) for path in given):
        return tuple(probe(path) for path in _find_files(given))
    if len(given) > 1:
        raise ParameterError(
            f"paths contains '-', standard input, among {len(given)}; it must be the only one"
        )
    return (probe_stdin(),)


def _find_files(given: list[str]) -> list[Path]:
    """The files of files, folders and patterns, in reading order."""
    if not given:
        raise ParameterError("paths=[] must name at least one file or folder")
    files: list[Path] = []
    for path in chain.from_iterable(map(_expand_pattern, given)):
        try:
            is_file, is_folder, exists = path.is_file(), path.is_dir(), path.exists()
        except OSError as error:
            raise LogError(f"{path} cannot be opened ({said(error)})") from error
        if is_file:
            files.append(path)
            continue
        if not is_folder:  # a pipe would be waited for
            what = "neither a file nor a folder" if exists else "missing"
            raise LogError(f"{path} is {what}; a log is a file, or a folder of files")
        files += _list_folder_files(path)
    return files


def _expand_pattern(given: str) -> list[Path]:
    """A path, or the paths that a pattern stands for, in the order of their names."""
    path = Path(given)
    if os.path.lexists(path) or not any(sign in given for sign in "*?["):
        return [path]
    found = sorted(glob(given, recursive=True))
    if not found:
        raise ParameterError(
            f"paths has the pattern {given!r}, which matches nothing; it must name files or folders"
        )
    return list(map(Path, found))


def _list_folder_files(folder: Path) -> list[Path]:
    """The log files of a folder, and of those in it that are named ``key=value``."""
    others: list[str] = []
    found = list(_iterate_folder(folder, others))
    if not found:
        inside = f"; it has the folders {shown(sorted(others))}" if others else ""
        raise ParameterError(
            f"{folder} is a folder without log files{inside}: name the files, or another folder "
            "(subfolders not named key=value, and names starting with '.' or '_', are ignored)"
        )
    if not any(is_arrow(path) for path in found):
        raise ParameterError(
            f"{folder} is a folder without log files: none of its {len(found)} files is Arrow IPC "
            f"or Parquet ({shown(sorted(path.name for path in found)[:3])}): name the files, or "
            "another folder"
        )
    return found


def _iterate_folder(folder: Path, others: list[str]) -> Iterator[Path]:
    """Files in the order of their names; ``others`` takes the folders that are passed over."""
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
        kinds = [(entry, entry.is_file(), entry.is_dir()) for entry in entries]
    except OSError as error:
        raise LogError(f"{folder} cannot be listed ({said(error)})") from error
    for entry, is_file, is_folder in kinds:
        if entry.name.startswith((".", "_")):
            continue
        if is_file:
            yield entry
        elif is_folder and "=" in entry.name[1:]:
            yield from _iterate_folder(entry, others)
        elif is_folder:
            others.append(entry.name)
