"""One file of a log: its format, visible damage, and its complete rows, part by part.

Arrow IPC streams, Arrow IPC files and Parquet, told apart by their first bytes. Reading hands out
every whole row before the first damage and then raises `LogError`; no exception of pyarrow escapes.
Memory does not grow with the file: IPC files are mapped, streams read message by message, Parquet
page by page. Standard input is such a file too, which can be read once: a stream as it comes, the
others, which cannot be read from front to back, from a temporary file.
"""

from __future__ import annotations

import mmap
import os
import sys
import tempfile
import weakref
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from streamembed.errors import LogError, ParameterError

__all__ = [
    "FORMATS",
    "READ_ERRORS",
    "STDIN",
    "LogFile",
    "damaged",
    "probe",
    "probe_stdin",
    "said",
    "whole_rows",
]

FORMATS = {"stream": b"\xff\xff\xff\xff", "file": b"ARROW1", "parquet": b"PAR1"}  # first bytes
HEAD = 8  # bytes that tell the format
FILE_HEAD = 8  # after these bytes, an Arrow IPC file is a stream with a footer behind it
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
STDIN = Path("-")
PIECE = 2**20  # bytes of standard input that are copied at once
PAGE_BUFFER = 2**16  # bytes of a Parquet column read ahead; without it, all of the row group
# What pyarrow raises on damaged bytes; the last two come from its Python side.
READ_ERRORS = (pa.ArrowException, OSError, MemoryError, ValueError, LookupError)


class Stdin:
    """Standard input: its first bytes, then the rest, once.

    As much of a file as `pyarrow.PythonFile` asks for: `read`, `tell`, `closed`, `close`.
    """

    closed = False

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.head = source.read(HEAD)
        self._ahead = self.head  # looked at, not handed out yet
        self._position = 0
        self._last = b""  # of what was handed out
        self._is_taken = False
        self.reader: Any = None  # of a stream, behind its schema
        self.spool: Path | None = None
        self._forget: Any = lambda: None

    def read(self, size: int) -> bytes:
        """The next bytes: that many, or all there are until the end."""
        data, self._ahead = self._ahead[:size], self._ahead[size:]
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

    def last(self, size: int) -> bytes:
        """The last of the bytes handed out, no more than 8."""
        return self._last[-size:] if size else b""

    def left(self) -> int:
        """How many bytes come yet; they are passed over."""
        before = self._position
        while self.read(PIECE):
            pass
        return self._position - before

    def to_disk(self) -> Path:
        """All of it, in a temporary file that goes with this object, if not before."""
        handle, name = tempfile.mkstemp(prefix="streamembed-")
        self._forget = weakref.finalize(self, Path(name).unlink, missing_ok=True)
        try:
            with os.fdopen(handle, "wb") as sink:
                while data := self.read(PIECE):
                    sink.write(data)
        except OSError as error:
            raise LogError(
                f"standard input cannot be copied to {name} ({said(error)}): its format needs a "
                "file; set TMPDIR to where there is room, or send an Arrow IPC stream"
            ) from error
        self.spool = Path(name)
        return self.spool

    def take(self) -> None:
        """Begin to read its rows; LogError for the second time."""
        if self._is_taken:
            raise LogError(
                "standard input was read already and cannot be read twice: open a log on it anew "
                "where something else comes, or save it to a file and open that"
            )
        self._is_taken = True

    def forget(self) -> None:
        """Delete the temporary file, if there is one."""
        self._forget()


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file, by what is known without reading its rows; as text, its path."""

    path: Path
    format: str
    rows: int | None  # None where it cannot tell
    columns: tuple[tuple[str, Any], ...] | None  # names and Arrow types; None if these are damaged
    damage: str | None  # as far as it shows
    stdin: Stdin | None = None

    def __str__(self) -> str:
        return str(self.path) if self.stdin is None else "standard input"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns or ())

    @property
    def place(self) -> Path:
        """Where the bytes are, unless they come as a stream through standard input."""
        return self.path if self.stdin is None or self.stdin.spool is None else self.stdin.spool


def probe(path: Path) -> LogFile:
    """Detect the format from the first bytes; read columns and, from a footer, the row count."""
    try:
        with path.open("rb") as source:
            head = source.read(HEAD)
    except OSError as error:
        raise LogError(f"{path} cannot be opened ({said(error)})") from error
    return _probed(path, _format(head, str(path)))


def probe_stdin() -> LogFile:
    """The same for standard input; what is not a stream is copied to a temporary file.

    Raises
    ------
    LogError
        It is empty, not Arrow, or cannot be copied.
    ParameterError
        It is a terminal, or there is none.
    """
    source = getattr(sys.stdin, "buffer", None)
    if source is None or sys.stdin.isatty():
        what = "there is none" if source is None else "it is a terminal"
        raise ParameterError(
            f"paths is '-', standard input, but {what}: send a log into it (producer | streamembed "
            "replay - ...), or name files"
        )
    stdin = Stdin(source)
    kind = _format(stdin.head, "standard input")
    if kind != "stream":
        return replace(_probed(stdin.to_disk(), kind), path=STDIN, stdin=stdin)
    try:
        stdin.reader = pa.ipc.open_stream(pa.PythonFile(stdin, mode="r"))
    except READ_ERRORS as error:
        damage = f"its schema cannot be read ({said(error)})"
        return LogFile(STDIN, kind, None, None, damage, stdin)
    columns = tuple((column.name, column.type) for column in stdin.reader.schema)
    return LogFile(STDIN, kind, None, columns, None, stdin)


def _format(head: bytes, name: str) -> str:
    if not head:
        raise LogError(f"{name} is empty (0 bytes); write it again, or take it out of the log")
    kind = next((name for name, magic in FORMATS.items() if head.startswith(magic)), None)
    if kind is None:
        raise LogError(
            f"{name} is not Arrow: it begins with {head!r}; read are Arrow IPC streams, Arrow IPC "
            "files (Feather 2) and Parquet: write it as one of these, or take it out of the log"
        )
    return kind


def _probed(path: Path, kind: str) -> LogFile:
    rows, damage, columns = None, None, None
    try:
        if kind == "parquet":
            with pq.ParquetFile(path, pre_buffer=False) as parquet:
                rows, schema = parquet.metadata.num_rows, parquet.schema_arrow
        elif kind == "stream":
            schema = _stream_schema(path, 0)
        else:
            try:
                rows, schema = _footer(path)
            except READ_ERRORS as error:
                damage = f"its footer is missing or damaged ({said(error)})"
                schema = _stream_schema(path, FILE_HEAD)
        columns = tuple((column.name, column.type) for column in schema)
    except READ_ERRORS as error:
        rows, damage = None, f"its schema cannot be read ({said(error)})"
    return LogFile(path, kind, rows, columns, damage)


def _footer(path: Path) -> tuple[int, Any]:
    """Rows and schema of an IPC file."""
    buffer = pa.py_buffer(_mapped(path))
    schema = pa.ipc.open_file(buffer).schema
    return ds.IpcFileFormat().make_fragment(buffer).count_rows(), schema


def _stream_schema(path: Path, start: int) -> Any:
    with pa.OSFile(str(path)) as source:
        source.seek(start)
        return pa.ipc.open_stream(source).schema


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as source:
        return mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)


def whole_rows(file: LogFile, wanted: set[str], limit: int) -> Iterator[Any]:
    """Valid record batches of the wanted columns, until the end or the `LogError`."""
    if file.stdin is not None:
        file.stdin.take()
    rows = 0
    parts = _parts(file, [name for name in file.names if name in wanted], limit)
    try:
        while True:
            try:
                part = next(parts, None)
            except READ_ERRORS as error:
                raise damaged(file, rows, said(error)) from error
            if part is None:
                break
            yield part
            rows += part.num_rows
    finally:
        parts.close()
        if file.stdin is not None:
            file.stdin.forget()
    if file.rows is not None and rows != file.rows:
        raise damaged(file, rows, f"its footer promises {file.rows} rows")


def _parts(file: LogFile, columns: list[str], limit: int) -> Generator[Any, None, None]:
    """The same, with pyarrow's exceptions, and with its own where pyarrow is content too soon."""
    if file.columns is None:
        raise pa.ArrowInvalid(file.damage)
    if file.format == "parquet":
        yield from _parquet_parts(file.place, columns, limit)
    elif file.format == "file" and file.damage is None:
        yield from _file_parts(file.place, columns, limit)
    elif file.stdin is not None and file.stdin.reader is not None:
        stdin = file.stdin
        yield from _stream_parts(stdin.reader, stdin, columns, limit)
    else:
        start = FILE_HEAD if file.format == "file" else 0
        with pa.OSFile(str(file.place)) as source:
            source.seek(start)
            end = _End(source, start == 0)
            yield from _stream_parts(pa.ipc.open_stream(source), end, columns, limit)
    if file.damage is not None:
        raise pa.ArrowInvalid(file.damage)


class _End:
    """The end of a stream in a file, as `Stdin` tells it of what it handed out."""

    def __init__(self, source: Any, must_end: bool) -> None:
        self._source = source
        self._must_end = must_end
        self.tell = source.tell

    def last(self, size: int) -> bytes:
        self._source.seek(self._source.tell() - size)
        data: bytes = self._source.read(size)
        return data

    def left(self) -> int:
        """0 in an IPC file, for its footer follows."""
        return self._source.size() - self._source.tell() if self._must_end else 0


def _stream_parts(
    reader: Any, source: Stdin | _End, columns: list[str], limit: int
) -> Iterator[Any]:
    """An IPC stream; it is read, not mapped, for its writer may still be at work on it.

    pyarrow takes a stream that was cut between two batches for a complete one, and does not look
    behind the end-of-stream marker. The last eight bytes of a file alone do not tell: int32 values
    -1, 0 at the end of a batch are the bytes of the marker.
    """
    while True:
        before = source.tell()
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            break
        yield from _slices(batch, columns, limit)
    if source.last(min(source.tell() - before, len(END_OF_STREAM))) != END_OF_STREAM:
        raise pa.ArrowInvalid("its end-of-stream marker is missing")
    if more := source.left():
        raise pa.ArrowInvalid(f"{more} bytes follow its end-of-stream marker")


def _file_parts(path: Path, columns: list[str], limit: int) -> Iterator[Any]:
    """An IPC file; it is mapped whole, for reading chosen fields would copy the record batch."""
    mapped = _mapped(path)
    reader = pa.ipc.open_file(pa.py_buffer(mapped))
    for index in range(reader.num_record_batches):
        for part in _slices(reader.get_batch(index), columns, limit):
            yield part
            if hasattr(mmap, "MADV_DONTNEED"):  # pages that were read would count as resident
                mapped.madvise(mmap.MADV_DONTNEED)


def _parquet_parts(path: Path, columns: list[str], limit: int) -> Iterator[Any]:
    with pq.ParquetFile(
        path, pre_buffer=False, buffer_size=PAGE_BUFFER, page_checksum_verification=True
    ) as parquet:
        for batch in parquet.iter_batches(limit, columns=columns, use_threads=False):
            yield from _slices(batch, columns, limit)


def _slices(batch: Any, columns: list[str], limit: int) -> Iterator[Any]:
    for start in range(0, batch.num_rows, limit):
        part = batch.select(columns).slice(start, limit)
        part.validate(full=True)  # a damaged offset or dictionary index would read foreign memory
        len(part.columns)  # a damaged type may be one that Python has no name for
        yield part


def said(error: BaseException) -> str:
    """The first line of what an exception says, or its name."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def damaged(file: LogFile, rows: int, why: str) -> LogError:
    return LogError(
        f"{file} (Arrow {file.format}) cannot be read to its end: {why}; {rows} whole rows of "
        "it were read. If its writer still runs, let it close the file; else write the file again, "
        "or go on with the rows that were read"
    )
