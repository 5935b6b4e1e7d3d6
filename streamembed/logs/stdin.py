"""Standard input as a log: read once, a stream as it comes, what is no stream from a copy of it."""

from __future__ import annotations

import os
import tempfile
import weakref
from pathlib import Path
from typing import Any, BinaryIO

from streamembed.errors import LogError, said

HEAD = 8  # bytes that tell the format
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
STDIN = Path("-")
PIECE = 2**20  # bytes that are copied at once


class Stdin:
    """Standard input: its first bytes, then the rest, once.

    As much of a file as `pyarrow.PythonFile` asks for: `read`, `tell`, `closed`, `close`.
    """

    closed = False

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.head = source.read(HEAD)
        self._buffered = self.head  # looked at, not handed out yet
        self._position = 0
        self._last = b""  # of what was handed out
        self._is_claimed = False
        self.reader: Any = None  # of a stream, behind its schema
        self.peeked: list[
            tuple[int, Any]
        ] = []  # record batches that were looked at, not handed out
        self.copy_path: Path | None = None
        self._delete_copy: Any = lambda: None

    def read(self, size: int) -> bytes:
        """The next bytes: that many, or all there are until the end."""
        data, self._buffered = self._buffered[:size], self._buffered[size:]
        if len(data) < size:
            more = self._source.read(size - len(data))
            data = data + more if data else more
        self._position += len(data)
        self._last = (self._last + data[-len(END_OF_STREAM) :])[-len(END_OF_STREAM) :]
        return data

    def tell(self) -> int:
        """Bytes handed out so far."""
        return self._position

    def close(self) -> None:
        """Nothing: standard input is not ours to close."""

    def last_bytes(self, size: int) -> bytes:
        """The last of the bytes handed out, no more than 8."""
        return self._last[-size:] if size else b""

    def count_rest(self) -> int:
        """How many bytes come yet; they are passed over."""
        before = self._position
        while self.read(PIECE):
            pass
        return self._position - before

    def copy_to_disk(self) -> Path:
        """All of it, in a temporary file that goes with this object, if not before."""
        handle, name = tempfile.mkstemp(prefix="streamembed-")
        self._delete_copy = weakref.finalize(self, Path(name).unlink, missing_ok=True)
        try:
            with os.fdopen(handle, "wb") as sink:
                while data := self.read(PIECE):
                    sink.write(data)
        except OSError as error:
            raise LogError(
                f"standard input cannot be copied to {name} ({said(error)}), which its format "
                "requires; set TMPDIR to a folder with enough space, or send an Arrow IPC stream"
            ) from error
        self.copy_path = Path(name)
        return self.copy_path

    def claim(self) -> None:
        """Begin to read its rows; LogError for the second time."""
        if self._is_claimed:
            raise LogError(
                "standard input has already been read and cannot be read twice: save it to a file "
                "and open that"
            )
        self._is_claimed = True

    def delete_copy(self) -> None:
        """Delete the temporary file, if there is one."""
        self._delete_copy()
