"""One file of a log: what format it has, what damage shows, and its whole rows, part by part.

Arrow IPC streams, Arrow IPC files and Parquet, told apart by their first bytes. Reading hands out
every whole row before the first damage and then raises `LogError`; no exception of pyarrow escapes.
Memory does not grow with the file: IPC files are mapped, streams read message by message, Parquet
page by page.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from streamembed.errors import LogError

__all__ = ["FORMATS", "READ_ERRORS", "LogFile", "damaged", "probe", "said", "whole_rows"]

FORMATS = {"stream": b"\xff\xff\xff\xff", "file": b"ARROW1", "parquet": b"PAR1"}  # first bytes
FILE_HEAD = 8  # after these bytes, an Arrow IPC file is a stream with a footer behind it
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
PAGE_BUFFER = 2**16  # bytes of a Parquet column read ahead; without it, all of the row group
# What pyarrow raises on damaged bytes; the last two come from its Python side.
READ_ERRORS = (pa.ArrowException, OSError, MemoryError, ValueError, LookupError)


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file, as it looks from outside."""

    path: Path
    format: str
    rows: int | None  # None where it cannot tell
    columns: tuple[tuple[str, Any], ...] | None  # names and Arrow types; None if these are damaged
    damage: str | None  # as far as it shows

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns or ())


def probe(path: Path) -> LogFile:
    """Tell the format by the first bytes; read columns and, from a footer, the count of rows."""
    try:
        with path.open("rb") as source:
            head = source.read(8)
    except OSError as error:
        raise LogError(f"{path} cannot be opened ({said(error)})") from error
    if not head:
        raise LogError(f"{path} is empty (0 bytes); write it again, or take it out of the log")
    kind = next((name for name, magic in FORMATS.items() if head.startswith(magic)), None)
    if kind is None:
        raise LogError(
            f"{path} is not Arrow: it begins with {head!r}; read are Arrow IPC streams, Arrow IPC "
            "files (Feather 2) and Parquet: write it as one of these, or take it out of the log"
        )
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
    rows = 0
    parts = _parts(file, [name for name in file.names if name in wanted], limit)
    while True:
        try:
            part = next(parts, None)
        except READ_ERRORS as error:
            raise damaged(file, rows, said(error)) from error
        if part is None:
            break
        yield part
        rows += part.num_rows
    if file.rows is not None and rows != file.rows:
        raise damaged(file, rows, f"its footer promises {file.rows} rows")


def _parts(file: LogFile, columns: list[str], limit: int) -> Iterator[Any]:
    """The same, with pyarrow's exceptions, and with its own where pyarrow is content too soon."""
    if file.columns is None:
        raise pa.ArrowInvalid(file.damage)
    if file.format == "parquet":
        yield from _parquet_parts(file.path, columns, limit)
    elif file.format == "file" and file.damage is None:
        yield from _file_parts(file.path, columns, limit)
    else:
        start = FILE_HEAD if file.format == "file" else 0
        yield from _stream_parts(file.path, start, columns, limit)
    if file.damage is not None:
        raise pa.ArrowInvalid(file.damage)


def _stream_parts(path: Path, start: int, columns: list[str], limit: int) -> Iterator[Any]:
    """An IPC stream; it is read, not mapped, for its writer may still be at work on it.

    pyarrow takes a stream that was cut between two batches for a complete one, and does not look
    behind the end-of-stream marker. The last eight bytes of a file alone do not tell: int32 values
    -1, 0 at the end of a batch are the bytes of the marker.
    """
    with pa.OSFile(str(path)) as source:
        source.seek(start)
        reader = pa.ipc.open_stream(source)
        while True:
            before = source.tell()
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                break
            yield from _slices(batch, columns, limit)
        end = source.tell()
        source.seek(max(before, end - len(END_OF_STREAM)))
        if source.read(len(END_OF_STREAM)) != END_OF_STREAM:
            raise pa.ArrowInvalid("its end-of-stream marker is missing")
        if start == 0 and source.size() > end:
            raise pa.ArrowInvalid(f"{source.size() - end} bytes follow its end-of-stream marker")


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
        yield part


def said(error: BaseException) -> str:
    """The first line of what an exception says, or its name."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def damaged(file: LogFile, rows: int, why: str) -> LogError:
    return LogError(
        f"{file.path} (Arrow {file.format}) cannot be read to its end: {why}; {rows} whole rows of "
        "it were read. If its writer still runs, let it close the file; else write the file again, "
        "or go on with the rows that were read"
    )
