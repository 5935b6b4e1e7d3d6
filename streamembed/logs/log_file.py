"""One file of a log: its format, visible damage, and its complete rows, part by part.

Arrow IPC streams, Arrow IPC files and Parquet are recognised by their first bytes. Reading returns
every complete row before the first damage and then raises `LogError`; no exception of pyarrow
escapes. Memory does not grow with the file: IPC files are mapped, streams read message by message,
Parquet page by page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamembed.errors import LogError, ParameterError, summarise_error
from streamembed.logs.place import Place

CONVERSIONS = "docs/guides/formats.md"  # the page with the lines that convert other formats
HEAD = 8  # bytes that identify the format
FORMATS = {"stream": b"\xff\xff\xff\xff", "file": b"ARROW1", "parquet": b"PAR1"}  # first bytes
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
PAGE_BUFFER = 2**16  # bytes of a Parquet column read ahead; without it, all of the row group
REMOTE_BUFFER = 2**22  # the same over a network, where a request costs as much as megabytes
# What pyarrow raises on damaged bytes; the last two come from its Python side. A size that is
# damaged is more memory than there is, an ArrowException, too.
READ_ERRORS = (pa.ArrowException, OSError, ValueError, LookupError)


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file, as described without reading its rows; as text, its path."""

    place: Place
    format: str
    rows: int | None  # None where unknown
    columns: tuple[tuple[str, Any], ...] | None  # names and Arrow types; None if these are damaged
    damage: str | None  # as far as it is visible without reading the rows

    def __str__(self) -> str:
        return str(self.place)

    @property
    def types(self) -> dict[str, Any]:
        return dict(self.columns or ())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns or ())


def probe(place: Place) -> LogFile:
    """Detect the format from the first bytes; read columns and, from a footer, the row count."""
    try:
        with place.open() as source:
            head = source.read(HEAD)
    except (pa.ArrowException, OSError) as error:
        raise LogError(f"{place} cannot be opened ({summarise_error(error)})") from error
    kind, rows, columns, damage = _detect_format(head, str(place)), None, None, None
    try:
        if kind == "parquet":
            with _open_parquet(place) as parquet:
                rows, schema = parquet.metadata.num_rows, parquet.schema_arrow
        elif kind == "stream":
            with place.open() as source:
                schema = pa.ipc.open_stream(source).schema
        else:
            from pyarrow.dataset import IpcFileFormat  # noqa: PLC0415  imports pandas

            fragment = IpcFileFormat().make_fragment(place.path, filesystem=place.filesystem)
            # `count_rows` of the reader is new in pyarrow 26
            rows, schema = fragment.count_rows(), fragment.physical_schema
        columns = tuple((column.name, column.type) for column in schema)
    except READ_ERRORS as error:
        part = "schema" if kind == "stream" else "footer"
        rows, damage = None, f"its {part} cannot be read ({summarise_error(error)})"
    return LogFile(place, kind, rows, columns, damage)


def _detect_format(head: bytes, name: str) -> str:
    if not head:
        raise LogError(f"{name} is empty (0 bytes); write it again, or remove it from the log")
    for kind, magic in FORMATS.items():
        if magic.startswith(head[: len(magic)]):  # shorter, where the file was cut
            return kind
    raise ParameterError(
        f"{name} is neither Arrow nor Parquet, it begins with {head!r}: convert it ({CONVERSIONS} "
        "has a line for each format), or remove it from the log"
    )


def _open_parquet(place: Place) -> Any:
    return pq.ParquetFile(
        place.open(),
        pre_buffer=False,
        buffer_size=PAGE_BUFFER if place.is_local else REMOTE_BUFFER,
        page_checksum_verification=True,
    )


def read_rows(file: LogFile, column_names: set[str], limit: int, start: int = 0) -> Iterator[Any]:
    """Valid record batches of the wanted columns, until the end or the `LogError`.

    Rows before ``start`` are skipped: integers, their numbers, are returned in their place. Row
    groups of Parquet before it are not read.
    """
    rows = 0
    names = [name for name in file.names if name in column_names]
    try:
        if file.columns is None:
            raise pa.ArrowInvalid(file.damage)
        for part in READERS[file.format](file.place, names, limit, start):
            yield part
            rows += part if isinstance(part, int) else part.num_rows
    except READ_ERRORS as error:
        raise build_damage_error(file, rows, summarise_error(error)) from error
    if file.rows is not None and rows != file.rows:
        raise build_damage_error(file, rows, f"its footer declares {file.rows} rows")


def _read_stream(place: Place, columns: list[str], limit: int, start: int) -> Iterator[Any]:
    """An IPC stream, read message by message.

    pyarrow accepts a stream that was cut between two batches as complete, and does not look after
    the end-of-stream marker. The last eight bytes of a file are no proof: int32 values -1, 0 at the
    end of a batch are the bytes of the marker.
    """
    with place.open() as source:
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


def _read_file(place: Place, columns: list[str], limit: int, start: int) -> Iterator[Any]:
    """An IPC file; mapped, so that a large batch is not in memory as a whole."""
    with pa.memory_map(place.path) if place.is_local else place.open() as source:
        reader = pa.ipc.open_file(source)
        for index in range(reader.num_record_batches):
            batch = reader.get_batch(index)
            yield from _split_valid(batch, columns, limit, start)
            start -= batch.num_rows


def _read_parquet(place: Place, columns: list[str], limit: int, start: int) -> Iterator[Any]:
    with _open_parquet(place) as parquet:
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


READERS = {"parquet": _read_parquet, "file": _read_file, "stream": _read_stream}


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
