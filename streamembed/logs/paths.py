"""The files of a log, from the paths that were given: files, folders of them, or ``-``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from streamembed.errors import LogError, ParameterError, path_text, said
from streamembed.logs.file import LogFile, probe, probe_stdin
from streamembed.logs.stdin import STDIN

__all__ = ["Location", "Paths", "list_paths", "probe_files"]

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
        return tuple(probe(path) for path in _paths(given))
    if len(given) > 1:
        raise ParameterError(
            f"paths contains '-', standard input, among {len(given)}; it must be the only one"
        )
    return (probe_stdin(),)


def _paths(given: list[str]) -> list[Path]:
    """The files of files and folders, in reading order."""
    if not given:
        raise ParameterError("paths=[] must name at least one file or folder")
    files: list[Path] = []
    for path in map(Path, given):
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
        try:
            names = sorted(entry.name for entry in path.iterdir() if entry.is_file())
        except OSError as error:
            raise LogError(f"{path} cannot be listed ({said(error)})") from error
        found = [path / name for name in names if not name.startswith((".", "_"))]
        if not found:
            raise LogError(
                f"{path} is a folder without log files; subfolders, and names starting with '.' or "
                "'_' are ignored: name the files, or another folder"
            )
        files += found
    return files
