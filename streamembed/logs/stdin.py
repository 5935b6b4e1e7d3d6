"""Standard input as a log: read once, a stream as it arrives, other formats from a copy."""

from __future__ import annotations

import os
import tempfile
import weakref
from pathlib import Path
from typing import Any, BinaryIO

from streamembed.errors import LogError, summarise_error

HEAD = 8  # bytes that identify the format
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
STDIN = Path("-")
PIECE = 2**20  # bytes to copy at once


class Stdin:
    """Standard input: its first bytes, then the rest, once.

    It has the methods of a file that `pyarrow.PythonFile` needs: `read`, `tell`, `closed`, `close`.
    """

    closed = False

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.head = source.read(HEAD)
        self._buffered = self.head  # read ahead, not returned yet
        self._position = 0
        self._last = b""  # the last bytes that were returned
        self._is_claimed = False
        self.reader: Any = None  # of a stream, after its schema
        self.copy_path: Path | None = None
        self._delete_copy: Any = lambda: None

    def read(self, size: int) -> bytes:
        """The next bytes: ``size`` of them, or fewer at the end."""
        data, self._buffered = self._buffered[:size], self._buffered[size:]
        if len(data) < size:
            rest = self._source.read(size - len(data))
            data = data + rest if data else rest
        self._position += len(data)
        self._last = (self._last + data[-len(END_OF_STREAM) :])[-len(END_OF_STREAM) :]
        return data

    def tell(self) -> int:
        """Number of bytes returned so far."""
        return self._position

    def close(self) -> None:
        """Do nothing: standard input stays open."""

    def last_bytes(self, size: int) -> bytes:
        """The last of the returned bytes, at most 8."""
        return self._last[-size:] if size else b""

    def count_rest(self) -> int:
        """Number of the remaining bytes; they are read and skipped."""
        before = self._position
        while self.read(PIECE):
            pass
        return self._position - before

    def copy_to_disk(self) -> Path:
        """Copy all of it to a temporary file, deleted with this object or earlier."""
        handle, name = tempfile.mkstemp(prefix="streamembed-")
        self._delete_copy = weakref.finalize(self, Path(name).unlink, missing_ok=True)
        try:
            with os.fdopen(handle, "wb") as sink:
                while data := self.read(PIECE):
                    sink.write(data)
        except OSError as error:
            raise LogError(
                f"standard input cannot be copied to {name} ({summarise_error(error)}), "
                "which its format requires; set TMPDIR to a folder with enough space, or send an "
                "Arrow IPC stream"
            ) from error
        self.copy_path = Path(name)
        return self.copy_path

    def claim(self) -> None:
        """Begin to read its rows; LogError where they have been read."""
        if self._is_claimed:
            raise LogError(
                "standard input has already been read and cannot be read twice: save it to a file "
                "and open that"
            )
        self._is_claimed = True

    def delete_copy(self) -> None:
        """Delete the temporary file, if there is one."""
        self._delete_copy()
