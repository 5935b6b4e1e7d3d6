"""Files and folders that logs are read from: here, or on what Arrow reads over a network."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import pyarrow as pa
from pyarrow import fs

from streamembed.errors import (
    SCHEME,
    LogError,
    ParameterError,
    build_file_error,
    quote,
    summarise_error,
)

LOCAL = fs.LocalFileSystem()
ERRORS = (pa.ArrowException, OSError, ValueError)  # ValueError: a name that is not UTF-8


@dataclass(frozen=True, slots=True)
class Place:
    """A file or folder; as text what was given, of a URI without credentials."""

    filesystem: Any  # of `pyarrow.fs`
    path: str  # in this file system
    kind: Any  # of `pyarrow.fs.FileType`
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    @property
    def address(self) -> Path | str:
        """Its path on this machine, or its URI."""
        return Path(self.text) if self.is_local else self.text

    def open(self) -> Any:
        """Its bytes, as a file of pyarrow."""
        return self.filesystem.open_input_file(self.path)

    def list_children(self) -> list[Place]:
        """The files and folders in a folder, in no order.

        Raises
        ------
        LogError
            It cannot be listed.
        """
        try:
            infos = self.filesystem.get_file_info(fs.FileSelector(self.path))
        except ERRORS as error:
            raise LogError(f"{self} cannot be listed ({summarise_error(error)})") from error
        folder = self.text.rstrip("/")
        return [
            Place(self.filesystem, info.path, info.type, f"{folder}/{info.base_name}")
            for info in infos
        ]


def is_uri(path: object) -> TypeGuard[str]:
    """Whether a path is a URI, such as ``s3://bucket/log.parquet``."""
    return isinstance(path, str) and SCHEME.match(path) is not None


def find_place(text: str) -> Place:
    """The place of a path or URI, whether or not there is anything.

    Raises
    ------
    ParameterError
        Arrow reads no such URI.
    LogError
        The system cannot say what is there, such as for a name that is too long.
    FileError
        The server of a URI does not answer.

    Examples
    --------
    >>> str(find_place("file:///data/log.parquet"))
    '/data/log.parquet'
    """
    # Arrow takes a relative path with a colon for a URI
    filesystem, path = LOCAL, os.path.abspath(text)
    if is_uri(text):
        try:
            filesystem, path = fs.FileSystem.from_uri(text)
        except ERRORS as error:
            raise ParameterError(
                f"paths={quote(text)} cannot be read ({summarise_error(error)}): give a path of "
                "this machine, or a URI that Arrow reads, such as s3://bucket/log.parquet or gs://"
            ) from error
        is_here = isinstance(filesystem, fs.LocalFileSystem)
        text = path if is_here else f"{text.partition('://')[0]}://{path}"
    try:
        return Place(filesystem, path, filesystem.get_file_info(path).type, text)
    except ERRORS as error:
        reason = summarise_error(error)
        if filesystem is LOCAL:
            raise LogError(f"{text} cannot be opened ({reason})") from error
        cause = error if isinstance(error, OSError) else OSError(reason)
        raise build_file_error(cause, text, "read", reason) from error
