"""One file of a log: its format, visible damage, and its complete rows, part by part.

Arrow IPC streams, Arrow IPC files and Parquet are recognised by their first bytes. Reading returns
every complete row before the first damage and then raises `LogError`; no exception of pyarrow
escapes. Memory does not grow with the file: IPC files are mapped, streams read message by message,
Parquet page by page.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.dataset import IpcFileFormat

from streamembed.errors import LogError, ParameterError, summarise_error
from streamembed.logs.other_formats import describe_conversion
from streamembed.logs.remote_path import LogPath, RemotePath

HEAD = 8  # bytes that identify the format
FORMATS = {"stream": b"\xff\xff\xff\xff", "file": b"ARROW1", "parquet": b"PAR1"}  # first bytes
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
PAGE_BUFFER = 2**16  # bytes of a Parquet column read ahead; without it, all of the row group
REMOTE_BUFFER = 2**22  # the same over a network, where a request costs as much as megabytes
# What pyarrow raises on damaged bytes; the last two come from its Python side.
READ_ERRORS = (pa.ArrowException, OSError, MemoryError, ValueError, LookupError)
# A MemoryError is damage where Arrow requests more than this multiple of the bytes of the file.
EXPANSION = 1 << 10


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file, as described without reading its rows; as text, its path."""

    path: LogPath
    format: str
    rows: int | None  # None where unknown
    columns: tuple[tuple[str, Any], ...] | None  # names and Arrow types; None if these are damaged
    damage: str | None  # as far as it is visible without reading the rows

    def __str__(self) -> str:
        return str(self.path)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns or ())


def probe(path: LogPath) -> LogFile:
    """Detect the format from the first bytes; read columns and, from a footer, the row count."""
    try:
        head = _read_head(path)
    except OSError as error:
        raise LogError(f"{path} cannot be opened ({summarise_error(error)})") from error
    return _probe_format(path, _detect_format(head, str(path)))


def _read_head(path: LogPath) -> bytes:
    with path.open() if isinstance(path, RemotePath) else path.open("rb") as source:
        head: bytes = source.read(HEAD)
        return head


def _detect_format(head: bytes, name: str) -> str:
    if not head:
        raise LogError(f"{name} is empty (0 bytes); write it again, or remove it from the log")
    kind = next((name for name, magic in FORMATS.items() if head.startswith(magic)), None)
    if kind is None:
        if (conversion := describe_conversion(name, head)) is not None:
            raise ParameterError(
                f"{name} is {conversion[0]}, not Arrow or Parquet: convert it: {conversion[1]}"
            )
        raise LogError(
            f"{name} is not Arrow: it begins with {head!r}; supported are Arrow IPC streams, Arrow "
            "IPC files (Feather 2) and Parquet: write it as one of these, or remove it from the log"
        )
    return kind


def _probe_format(path: LogPath, kind: str) -> LogFile:
    rows, damage, columns = None, None, None
    try:
        if kind == "parquet":
            with _open_parquet(path) as parquet:
                rows, schema = parquet.metadata.num_rows, parquet.schema_arrow
        elif kind == "stream":
            with _open_file(path) as source:
                schema = pa.ipc.open_stream(source).schema
        else:
            rows, schema = _read_footer(path)
        columns = tuple((column.name, column.type) for column in schema)
    except READ_ERRORS as error:
        _check_damage(error, path)
        part = "schema" if kind == "stream" else "footer"
        rows, damage = None, f"its {part} cannot be read ({summarise_error(error)})"
    return LogFile(path, kind, rows, columns, damage)


def _read_footer(path: LogPath) -> tuple[int, Any]:
    source = _map_file(path)[0]
    with pa.ipc.open_file(source) as reader:  # `reader.count_rows` is new in pyarrow 26
        return IpcFileFormat().make_fragment(source).count_rows(), reader.schema


def _open_file(path: LogPath) -> Any:
    """The bytes of a file as a file of pyarrow."""
    return path.open() if isinstance(path, RemotePath) else pa.OSFile(str(path))


def _open_parquet(path: LogPath) -> Any:
    is_remote = isinstance(path, RemotePath)
    return pq.ParquetFile(
        path.open() if isinstance(path, RemotePath) else path,
        pre_buffer=False,
        buffer_size=REMOTE_BUFFER if is_remote else PAGE_BUFFER,
        page_checksum_verification=True,
    )


def _map_file(path: LogPath) -> tuple[Any, mmap.mmap | None]:
    """What `pyarrow.ipc.open_file` reads, and the map of memory behind a file of this machine."""
    if isinstance(path, RemotePath):
        return path.open(), None
    with path.open("rb") as source:
        mapped = mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
    return pa.py_buffer(mapped), mapped


def read_rows(file: LogFile, column_names: set[str], limit: int, start: int = 0) -> Iterator[Any]:
    """Valid record batches of the wanted columns, until the end or the `LogError`.

    Rows before ``start`` are skipped: integers, their numbers, are returned in their place. Their
    record batches and row groups are not decoded where the format has their lengths.
    """
    rows = 0
    parts = _read_parts(file, [name for name in file.names if name in column_names], limit, start)
    try:
        while True:
            try:
                part = next(parts, None)
            except READ_ERRORS as error:
                _check_damage(error, file.path)
                raise build_damage_error(file, rows, summarise_error(error)) from error
            if part is None:
                break
            yield part
            rows += part if isinstance(part, int) else part.num_rows
    finally:
        parts.close()
    if file.rows is not None and rows != file.rows:
        raise build_damage_error(file, rows, f"its footer declares {file.rows} rows")


def _check_damage(error: BaseException, path: LogPath) -> None:
    """Raise the error again where it is no damage: memory is short."""
    if not isinstance(error, MemoryError):
        return
    request = re.search(r"size (\d+) failed", str(error))  # in Arrow's message
    # unknown for a stream and over a network
    size = path.stat().st_size if isinstance(path, Path) and path.is_file() else 1 << 30
    if request is None or int(request[1]) <= EXPANSION * size:
        raise error


def _read_parts(
    file: LogFile, columns: list[str], limit: int, start: int
) -> Generator[Any, None, None]:
    """The rows, with pyarrow's exceptions, and with more of them where pyarrow misses damage."""
    if file.columns is None:
        raise pa.ArrowInvalid(file.damage)
    if file.format == "parquet":
        yield from _read_parquet(file.path, columns, limit, start)
    elif file.format == "file":
        yield from _read_file(file.path, columns, limit, start)
    else:
        yield from _read_stream(file.path, columns, limit, start)


def _read_stream(path: LogPath, columns: list[str], limit: int, start: int) -> Iterator[Any]:
    """An IPC stream, read message by message.

    pyarrow accepts a stream that was cut between two batches as complete, and does not look after
    the end-of-stream marker. The last eight bytes of a file are no proof: int32 values -1, 0 at the
    end of a batch are the bytes of the marker.
    """
    with _open_file(path) as source:
        reader = pa.ipc.open_stream(source)
        while True:
            before = source.tell()
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                break
            yield from _split_valid(batch, columns, limit, start)
            start -= batch.num_rows
        size = min(source.tell() - before, len(END_OF_STREAM))
        source.seek(source.tell() - size)
        if source.read(size) != END_OF_STREAM:
            raise pa.ArrowInvalid("its end-of-stream marker is missing")
        if n_rest := source.size() - source.tell():
            raise pa.ArrowInvalid(f"{n_rest} bytes follow its end-of-stream marker")


def _read_file(path: LogPath, columns: list[str], limit: int, start: int) -> Iterator[Any]:
    """An IPC file; it is mapped whole, because reading chosen fields would copy the batch."""
    source, mapped = _map_file(path)
    reader = pa.ipc.open_file(source)
    first, batches = 0, reader.num_record_batches
    if start > 0:
        # a column of numbers has the length of a record batch, and is decompressed fast
        kinds = enumerate(reader.schema.types)
        plain = next((i for i, kind in kinds if pa.types.is_primitive(kind)), 0)
        options = pa.ipc.IpcReadOptions(included_fields=[plain])
        lengths = pa.ipc.open_file(source, options=options)
        while first < batches and (rows := lengths.get_batch(first).num_rows) <= start:
            yield rows
            start -= rows
            first += 1
    for index in range(first, batches):
        batch = reader.get_batch(index)
        for part in _split_valid(batch, columns, limit, start):
            yield part
            if isinstance(mapped, mmap.mmap) and hasattr(
                mmap, "MADV_DONTNEED"
            ):  # pages that are read count as resident
                mapped.madvise(mmap.MADV_DONTNEED)
        start -= batch.num_rows


def _read_parquet(path: LogPath, columns: list[str], limit: int, start: int) -> Iterator[Any]:
    with _open_parquet(path) as parquet:
        group, groups = 0, parquet.num_row_groups
        while group < groups and (rows := parquet.metadata.row_group(group).num_rows) <= start:
            yield rows
            start -= rows
            group += 1
        for batch in parquet.iter_batches(
            limit, row_groups=list(range(group, groups)), columns=columns, use_threads=False
        ):
            yield from _split_valid(batch, columns, limit, start)
            start -= batch.num_rows


def _split_valid(batch: Any, columns: list[str], limit: int, start: int) -> Iterator[Any]:
    """Valid slices from a row of the batch on; before them, the number of skipped rows."""
    first = min(max(start, 0), batch.num_rows)
    if first:
        yield first
    for row in range(first, batch.num_rows, limit):
        part = batch.select(columns).slice(row, limit)
        part.validate(full=True)  # a damaged offset or dictionary index would read memory beyond it
        len(part.columns)  # a damaged type may be unknown to Python
        yield part


def build_damage_error(file: LogFile, rows: int, why: str) -> LogError:
    remedy = (
        "If its writer is still running, let it close the file; otherwise write the file again, or "
        "continue with these rows"
    )
    if "decrypt" in why:  # in Arrow's message, where the footer is plain
        remedy = "Some of its columns are encrypted: exclude these, or write it again without keys"
    elif "not implemented" in why:  # a type or codec that this pyarrow lacks
        remedy = "Write it again with types such as int64, float64 or string, compressed by zstd"
    return LogError(
        f"{file} (Arrow {file.format}) cannot be read to the end: {why}; {rows} complete rows were "
        f"read. {remedy}"
    )
