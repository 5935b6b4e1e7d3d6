"""Files elsewhere, by their URI: S3, Google Cloud Storage and whatever else Arrow reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from streamembed.errors import ParameterError, build_file_error, quote, summarise_error


@dataclass(frozen=True, slots=True)
class RemotePath:
    """A file or folder that Arrow reads over a network, with the methods of a path.

    As text it is its URI without what follows a ``?``, which may hold credentials.
    """

    scheme: str
    path: str
    kind: Any  # of `pyarrow.fs.FileType`, as the server answered
    filesystem: Any

    def __str__(self) -> str:
        return f"{self.scheme}://{self.path}"

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]

    def is_file(self) -> bool:
        return bool(self.kind == fs.FileType.File)

    def is_dir(self) -> bool:
        return bool(self.kind == fs.FileType.Directory)

    def exists(self) -> bool:
        return self.is_file() or self.is_dir()

    def iterdir(self) -> Iterator[RemotePath]:
        for info in self.filesystem.get_file_info(fs.FileSelector(self.path)):
            yield RemotePath(self.scheme, info.path, info.type, self.filesystem)

    def open(self) -> Any:
        """Its bytes, read where they are asked for, as a file of pyarrow."""
        return self.filesystem.open_input_file(self.path)


def parse_uri(uri: str) -> Path | RemotePath:
    """The file or folder of a URI; a path of this machine for ``file://``.

    Raises
    ------
    ParameterError
        Arrow reads no such URI.
    FileError
        Its server does not answer.

    Examples
    --------
    >>> str(parse_uri("file:///data/log.parquet"))
    '/data/log.parquet'
    """
    try:
        filesystem, path = fs.FileSystem.from_uri(uri)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ParameterError(
            f"paths={quote(uri)} cannot be read ({summarise_error(error)}): give a path of this "
            "machine, or a URI that Arrow reads, such as s3://bucket/log.parquet or gs://"
        ) from error
    if isinstance(filesystem, fs.LocalFileSystem):
        return Path(path)
    scheme = uri.partition("://")[0]
    try:
        return RemotePath(scheme, path, filesystem.get_file_info(path).type, filesystem)
    except (pa.ArrowException, OSError) as error:
        reason = summarise_error(error)
        cause = error if isinstance(error, OSError) else OSError(reason)
        raise build_file_error(cause, f"{scheme}://{path}", "read", reason) from error


# A file or folder that a log is read from.
LogPath = Path | RemotePath
