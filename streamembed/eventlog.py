"""Arrow event logs in, numbered batches of points out, in memory that does not grow with the log.

A log is one file, or many read as one: those of a folder by name, several paths in the order given.
Arrow IPC streams, Arrow IPC files and Parquet are told apart by their first bytes. Reserved columns
are ``id``, ``label`` and ``event_time``; features are the numeric others. Every whole row before
the first damage is handed out, then `LogError` says where it ended. Arrow checks the structure of
a file, not its content: a flipped bit inside a number goes unnoticed (only Parquet pages may carry
checksums, which are verified, and which `write_log` writes).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.dataset  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from streamembed.batch import column_values, named_features
from streamembed.core.arrays import Array, Floats
from streamembed.errors import FeatureError, InputError, LogError, ParameterError

__all__ = [
    "EventLog",
    "LogBatch",
    "LogDescription",
    "describe_log",
    "open_log",
    "write_log",
]

PathLike = str | os.PathLike[str]

RESERVED = ("id", "label", "event_time")
FORMATS = {"stream": b"\xff\xff\xff\xff", "file": b"ARROW1", "parquet": b"PAR1"}  # first bytes
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
ROWS_PER_BATCH = 65_536  # at most, in one LogBatch,
BYTES_PER_BATCH = 32 * 2**20  # of points that hold no more than this
PAGE_BUFFER = 2**16  # of Parquet read ahead for each column; without it a whole row group is

# What pyarrow raises on damaged bytes; LookupError and ValueError also come from its Python side.
_READ_ERRORS = (pa.ArrowException, OSError, MemoryError, ValueError, LookupError)


@dataclass(frozen=True, slots=True, eq=False)
class LogBatch:
    """Consecutive rows of one log.

    Attributes
    ----------
    points : (n, d)
        float64, C-contiguous, columns in the order of ``EventLog.feature_names``; nulls are NaN.
    nulls : (n, d)
        bool, True where the log has a null, so that it can be told from a NaN.
    ids : (n,) or None
        int64 where all are whole numbers, else objects: int or str, None for a null. None where
        the log has no ids.
    labels, event_times : pyarrow.Array of n or None
        As in the file, None where the file has none. They share the memory of the record batch
        that they came from: copy what is to be kept for long.
    offset : int
        Row number of the first row, counted from 0 over all files.
    """

    points: Floats
    nulls: npt.NDArray[np.bool_]
    ids: Array | None
    labels: Any
    event_times: Any
    offset: int


@dataclass(frozen=True, slots=True)
class _LogFile:
    """One file: rows is None where it cannot tell, schema where it is damaged too early."""

    path: Path
    format: str
    rows: int | None
    schema: Any
    damage: str | None


@dataclass(frozen=True, slots=True)
class EventLog:
    """A log that was opened: iterate over it for its `LogBatch` es, as often as needed.

    Iterating raises `LogError` where a file ends in the middle of a batch or is damaged, after all
    whole rows before that were handed out, and `FeatureError` where an id cannot be held.
    One record batch of an IPC stream and one page a column of Parquet are in memory at a time;
    IPC files are mapped.

    Attributes
    ----------
    paths : tuple of Path
        The files, in the order in which they are read.
    feature_names : tuple of str
        Sorted by name: the columns of ``LogBatch.points``.
    has_ids : bool
        True where there is a column ``id``.
    ignored : tuple of str
        Columns that are neither features nor reserved, sorted.
    n_rows : int or None
        Rows in all files; None where a stream, or damage, leaves this open until all is read.
    """

    paths: tuple[Path, ...]
    feature_names: tuple[str, ...]
    has_ids: bool
    ignored: tuple[str, ...]
    n_rows: int | None
    _files: tuple[_LogFile, ...] = field(repr=False)

    def __iter__(self) -> Iterator[LogBatch]:
        offset = 0
        most = BYTES_PER_BATCH // (8 * len(self.feature_names))
        limit = max(1, min(ROWS_PER_BATCH, most))
        wanted = {*self.feature_names, *RESERVED}
        for file in self._files:
            for part in _whole_rows(file, wanted, limit):
                yield _log_batch(part, self.feature_names, offset, file.path)
                offset += part.num_rows


@dataclass(frozen=True, slots=True)
class LogDescription:
    """What a log holds, as far as can be told without reading its rows.

    Attributes
    ----------
    files : tuple of Path
        In the order in which they are read. The next three have one entry for each.
    formats : tuple of str
        "stream" and "file" (both Arrow IPC) or "parquet".
    rows : tuple of int or None
        None where the file cannot tell.
    damages : tuple of str or None
        Damage that shows from outside: a missing footer, a schema that cannot be read.
    feature_names, reserved, ignored : tuple of str
        The columns by their use, sorted.
    """

    files: tuple[Path, ...]
    formats: tuple[str, ...]
    rows: tuple[int | None, ...]
    damages: tuple[str | None, ...]
    feature_names: tuple[str, ...]
    reserved: tuple[str, ...]
    ignored: tuple[str, ...]


def open_log(
    paths: PathLike | Sequence[PathLike], features: Sequence[str] | None = None
) -> EventLog:
    """Return the log of these files, after a look at every file's schema.

    Parameters
    ----------
    paths
        A file or a folder, or several. The files of a folder are read in the order of their names,
        without subfolders and without names that begin with "." or "_".
    features
        Exact names of the feature columns; None for all numeric columns that are not reserved.
        Integers, floats, booleans, decimals and dictionaries of these are numeric.

    Raises
    ------
    LogError
        A path that is missing, an empty file or folder, bytes that are not Arrow, or a first file
        that ends before its schema does (such a later file is an error when it is reached).
    FeatureError
        No numeric column; a chosen column that is missing, reserved, twice there or not numeric;
        files that differ in their feature columns, or in whether and what ids they have.
    ParameterError
        No paths, or features that are not a sequence of different names.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_log(f"{folder}/day-1", np.eye(3), ["a", "b", "c"], rows_per_batch=2)
    ...     [(batch.offset, batch.points.shape) for batch in open_log(folder)]
    [(0, (2, 3)), (2, (1, 3))]
    """
    chosen = None if features is None else _chosen(features)
    files = tuple(_probe(path) for path in _paths(paths))
    first = files[0]
    if first.schema is None:
        raise _damaged(first, 0, str(first.damage))
    names, ids = _features(first, chosen), _id_kind(first)
    readable = [file for file in files if file.schema is not None]
    for file in readable[1:]:
        found, found_ids = _features(file, chosen), _id_kind(file)
        if found != names:
            raise FeatureError(
                f"{file.path} lacks the numeric columns {sorted(set(names) - set(found))} of "
                f"{first.path} and has also {sorted(set(found) - set(names))}; all files of a log "
                "must have the same features: choose those with features=, or read them apart"
            )
        if found_ids != ids:
            raise FeatureError(
                f"{file.path} has {found_ids} in the column 'id', {first.path} has {ids}; all "
                "files of a log must have the same kind of ids: read them apart"
            )
    columns = {name for file in readable for name in file.schema.names}
    counts = [file.rows for file in files]
    total = None if None in counts else sum(count or 0 for count in counts)
    ignored = tuple(sorted(columns.difference(names, RESERVED)))
    return EventLog(
        tuple(file.path for file in files), names, ids != "no ids", ignored, total, files
    )


def describe_log(
    paths: PathLike | Sequence[PathLike], features: Sequence[str] | None = None
) -> LogDescription:
    """Return what a log holds, from its schemas and footers; parameters and errors of `open_log`.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_log(f"{folder}/log", np.eye(3), ["a", "b", "c"], labels=[1, 1, 0], format="file")
    ...     what = describe_log(folder)
    >>> what.formats, what.rows, what.reserved
    (('file',), (3,), ('label',))
    """
    log = open_log(paths, features)
    files = log._files
    columns = {name for file in files if file.schema is not None for name in file.schema.names}
    return LogDescription(
        files=log.paths,
        formats=tuple(file.format for file in files),
        rows=tuple(file.rows for file in files),
        damages=tuple(file.damage for file in files),
        feature_names=log.feature_names,
        reserved=tuple(sorted(columns.intersection(RESERVED))),
        ignored=log.ignored,
    )


def write_log(
    path: PathLike,
    points: npt.ArrayLike,
    feature_names: Sequence[str],
    ids: Any = None,
    labels: Any = None,
    *,
    format: str = "stream",
    rows_per_batch: int = 4096,
) -> None:
    """Write a log that `open_log` reads back: columns id, label (where given), then the features.

    Parameters
    ----------
    path
        The file, replaced where it exists.
    points
        Shape (n, d), written as float64; NaN is written as NaN, not as null.
    feature_names
        d different names, none of them reserved.
    ids, labels
        n of anything that Arrow takes for a column, or None.
    format
        "stream" or "file" (Arrow IPC), or "parquet" (with page checksums).
    rows_per_batch
        Rows in one record batch or row group, at least 1.

    Raises
    ------
    FeatureError
        As many different, unreserved names as columns were not given.
    InputError
        Points, ids or labels that are not columns of the same length.
    LogError
        The file cannot be written.
    ParameterError
        A format or a number of rows that does not exist.
    """
    if format not in FORMATS:
        raise ParameterError(f"format is {format!r}; it must be one of {list(FORMATS)}")
    if rows_per_batch < 1:
        raise ParameterError(f"rows_per_batch is {rows_per_batch}; it must be at least 1")
    batch = _record_batch(points, list(feature_names), ids, labels)
    try:
        with pa.OSFile(os.fspath(path), "wb") as sink, _writer(sink, batch.schema, format) as writer:
            for start in range(0, batch.num_rows, rows_per_batch):
                writer.write_batch(batch.slice(start, rows_per_batch))
    except (pa.ArrowException, OSError) as error:
        raise LogError(f"{path} cannot be written ({_said(error)}); try another folder") from error


# ---------------------------------------------------------------------- which files, which columns


def _paths(paths: PathLike | Sequence[PathLike]) -> list[Path]:
    """The files of files and folders, in reading order."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise ParameterError("paths is empty; it must name at least one file or folder")
    files: list[Path] = []
    for path in map(Path, given):
        if path.is_file():
            files.append(path)
            continue
        if not path.is_dir():
            what = "neither a file nor a folder" if path.exists() else "missing"
            raise LogError(f"{path} is {what}; a log is a file, or a folder of files")
        try:
            names = sorted(entry.name for entry in path.iterdir() if entry.is_file())
        except OSError as error:
            raise LogError(f"{path} cannot be listed ({_said(error)})") from error
        found = [path / name for name in names if not name.startswith((".", "_"))]
        if not found:
            raise LogError(
                f"{path} is a folder without log files; subfolders, and names that begin with '.' "
                "or '_', are not read"
            )
        files += found
    return files


def _probe(path: Path) -> _LogFile:
    """Tell the format by the first bytes, and read the schema and the count of rows."""
    try:
        with path.open("rb") as stream:
            head = stream.read(8)
    except OSError as error:
        raise LogError(f"{path} cannot be opened ({_said(error)})") from error
    if not head:
        raise LogError(f"{path} is empty (0 bytes); write it again, or take it out of the log")
    kind = next((name for name, magic in FORMATS.items() if head.startswith(magic)), None)
    if kind is None:
        raise LogError(
            f"{path} is not Arrow: it begins with {head!r}; read are Arrow IPC streams, Arrow IPC "
            "files (Feather 2) and Parquet: write it as one of these, or take it out of the log"
        )
    try:
        if kind == "parquet":
            with pq.ParquetFile(path, pre_buffer=False) as parquet:
                return _LogFile(path, kind, parquet.metadata.num_rows, parquet.schema_arrow, None)
        if kind == "file":
            try:
                return _probe_ipc_file(path)
            except _READ_ERRORS as error:
                return _LogFile(
                    path, kind, None, _stream_schema(path, 8), f"no footer ({_said(error)})"
                )
        return _LogFile(path, kind, None, _stream_schema(path, 0), None)
    except _READ_ERRORS as error:
        return _LogFile(path, kind, None, None, f"its schema cannot be read ({_said(error)})")


def _probe_ipc_file(path: Path) -> _LogFile:
    buffer = pa.py_buffer(_mapped(path))
    schema = pa.ipc.open_file(buffer).schema
    try:
        rows = pa.dataset.IpcFileFormat().make_fragment(buffer).count_rows()
    except _READ_ERRORS:  # reading will say where
        rows = None
    return _LogFile(path, "file", rows, schema, None)


def _stream_schema(path: Path, start: int) -> Any:
    with pa.OSFile(str(path)) as source:
        source.seek(start)
        return pa.ipc.open_stream(source).schema


def _chosen(features: Sequence[str]) -> tuple[str, ...]:
    """Feature names that the caller chose, checked and sorted."""
    names = [features] if isinstance(features, str) else list(features)
    strange = isinstance(features, str) or not all(isinstance(name, str) for name in names)
    if strange or not names or len(set(names)) < len(names):
        raise ParameterError(
            f"features is {features!r}; it must be a list of different column names, at least one, "
            "or None for all numeric columns"
        )
    return named_features(names)


def _features(file: _LogFile, chosen: tuple[str, ...] | None) -> tuple[str, ...]:
    """The feature columns of one file, sorted by name."""
    columns = {column.name: column.type for column in file.schema}
    numeric = [name for name in columns if name not in RESERVED and _is_numeric(columns[name])]
    names = named_features(numeric) if chosen is None else chosen
    if not names:
        raise FeatureError(
            f"{file.path} has no numeric column beside {list(RESERVED)}: it has "
            f"{list(columns)}; a log needs at least one feature"
        )
    for name in names:
        if name not in numeric:
            what = "missing" if name not in columns else f"of type {columns[name]}"
            what = "reserved" if name in RESERVED else what
            raise FeatureError(
                f"the feature {name!r} of {file.path} is {what}; it must be one of the numeric "
                f"columns {sorted(numeric)}"
            )
    twice = [name for name in (*names, *RESERVED) if file.schema.names.count(name) > 1]
    if twice:
        raise FeatureError(f"{file.path} has several columns of the name {twice[0]!r}; rename them")
    return names


def _id_kind(file: _LogFile) -> str:
    """Whether a file has ids, and of what kind they become."""
    if "id" not in file.schema.names:
        return "no ids"
    kind = _value_type(file.schema.field("id").type)
    if pa.types.is_integer(kind):
        return "whole numbers"
    try:
        pa.nulls(0, kind).cast(pa.large_string())
    except pa.ArrowException as error:
        raise FeatureError(
            f"the column 'id' of {file.path} has type {kind}; it must hold integers or strings"
        ) from error
    return "text"


def _value_type(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_numeric(kind: Any) -> bool:
    kind = _value_type(kind)
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


# ------------------------------------------------------------------------------------ reading rows


class _Broken(Exception):
    """The file is not whole, though pyarrow is content with it."""


def _whole_rows(file: _LogFile, wanted: set[str], limit: int) -> Iterator[Any]:
    """Valid record batches of at most ``limit`` rows; at the first damage, `LogError`."""
    rows = 0
    parts = _parts(file, wanted, limit)
    while True:
        try:
            part = next(parts, None)
        except (_Broken, *_READ_ERRORS) as error:
            raise _damaged(file, rows, _said(error)) from error
        if part is None:
            break
        yield part
        rows += part.num_rows
    if file.rows is not None and rows != file.rows:
        raise _damaged(file, rows, f"its footer promises {file.rows} rows")


def _parts(file: _LogFile, wanted: set[str], limit: int) -> Iterator[Any]:
    """The same by format, with the exceptions of pyarrow."""
    if file.schema is None:
        raise _Broken(file.damage)
    places = [i for i, name in enumerate(file.schema.names) if name in wanted]
    columns = [file.schema.names[i] for i in places]
    options = pa.ipc.IpcReadOptions(included_fields=places)
    if file.format == "parquet":
        batches = _parquet_batches(file.path, columns, limit)
    elif file.format == "stream":
        batches = _stream_batches(file.path, 0, options, limit)
    elif file.damage is None:
        batches = _file_batches(file.path, options, limit)
    else:  # without its footer, an IPC file is a stream after eight bytes
        batches = _stream_batches(file.path, 8, options, limit)
    for batch in batches:
        if not set(columns).issubset(batch.schema.names):
            raise _Broken("its columns changed while it was open")
        yield batch
    if file.damage is not None:
        raise _Broken(file.damage)


def _slices(batch: Any, limit: int) -> Iterator[Any]:
    for start in range(0, batch.num_rows, limit):
        part = batch.slice(start, limit)
        part.validate(full=True)  # else a damaged offset or dictionary index reads foreign memory
        yield part


def _stream_batches(path: Path, start: int, options: Any, limit: int) -> Iterator[Any]:
    """An IPC stream, read and not mapped: its writer may still be at work on it.

    pyarrow takes a stream that was cut between two batches for a complete one, and does not look
    at what follows the end-of-stream marker. The last eight bytes of the file alone do not tell:
    int32 values -1, 0 at the end of a batch are the same bytes as the marker.
    """
    with pa.OSFile(str(path)) as source:
        source.seek(start)
        reader = pa.ipc.open_stream(source, options=options)
        while True:
            before = source.tell()
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                break
            yield from _slices(batch, limit)
        end = source.tell()
        source.seek(max(before, end - len(END_OF_STREAM)))
        if source.read(len(END_OF_STREAM)) != END_OF_STREAM:
            raise _Broken("its end-of-stream marker is missing")
        if start == 0 and source.size() > end:
            raise _Broken(f"{source.size() - end} bytes follow its end-of-stream marker")


def _file_batches(path: Path, options: Any, limit: int) -> Iterator[Any]:
    """An IPC file, mapped: one record batch may be larger than memory."""
    mapped = _mapped(path)
    reader = pa.ipc.open_file(pa.py_buffer(mapped), options=options)
    for index in range(reader.num_record_batches):
        for part in _slices(reader.get_batch(index), limit):
            yield part
            if hasattr(mmap, "MADV_DONTNEED"):  # pages that were read would count as resident
                mapped.madvise(mmap.MADV_DONTNEED)


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def _parquet_batches(path: Path, columns: list[str], limit: int) -> Iterator[Any]:
    with pq.ParquetFile(
        path, pre_buffer=False, buffer_size=PAGE_BUFFER, page_checksum_verification=True
    ) as parquet:
        for batch in parquet.iter_batches(limit, columns=columns, use_threads=False):
            yield from _slices(batch, limit)


def _log_batch(part: Any, names: tuple[str, ...], offset: int, path: Path) -> LogBatch:
    """The columns of a valid record batch as arrays."""
    found = {name: part.column(name) for name in (*names, *RESERVED) if name in part.schema.names}
    points = np.empty((part.num_rows, len(names)))
    nulls = np.zeros(points.shape, dtype=bool)
    for j, name in enumerate(names):
        column = _decoded(found[name])
        points[:, j] = column_values(column, name)
        if column.null_count:
            nulls[:, j] = column.is_null().to_numpy(zero_copy_only=False)
    ids = _ids(found["id"], offset, path) if "id" in found else None
    return LogBatch(points, nulls, ids, found.get("label"), found.get("event_time"), offset)


def _ids(column: Any, offset: int, path: Path) -> Array:
    """Ids as int64, or as objects where one is null or they are not integers."""
    column = _decoded(column)
    whole = pa.types.is_integer(column.type)
    try:
        column = column.cast(pa.int64() if whole else pa.large_string())
    except pa.ArrowException as error:
        raise FeatureError(
            f"the column 'id' of {path} holds what is no 64-bit integer and no text, from row "
            f"{offset} of the log on ({_said(error)}); write ids as int64 or as strings"
        ) from error
    if whole and not column.null_count:
        return np.array(column, dtype=np.int64)
    return np.array(column.to_pylist(), dtype=object)


def _decoded(column: Any) -> Any:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


# ------------------------------------------------------------------------------- writing, messages


def _record_batch(points: npt.ArrayLike, names: list[str], ids: Any, labels: Any) -> Any:
    """All columns of a log that is to be written."""
    values = np.asarray(points, dtype=np.float64)
    if values.ndim != 2:
        raise InputError(f"points has shape {values.shape}; it must be (n, d)")
    if len(names) != values.shape[1] or len(set(names)) < len(names) or not names:
        raise FeatureError(
            f"feature_names is {names}; it must be {values.shape[1]} different names, one a column"
        )
    if set(names) & set(RESERVED):
        raise FeatureError(f"feature_names is {names}; {list(RESERVED)} are reserved: rename them")
    columns = {}
    for name, given in (("id", ids), ("label", labels)):
        if given is None:
            continue
        try:
            column = given if isinstance(given, pa.Array) else pa.array(given)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InputError(f"{name}s is no column for Arrow ({_said(error)})") from error
        if len(column) != len(values):
            raise InputError(f"{name}s has {len(column)} entries; points has {len(values)} rows")
        columns[name] = column
    columns.update((name, pa.array(values[:, j])) for j, name in enumerate(names))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _writer(sink: Any, schema: Any, format: str) -> Any:
    if format == "parquet":
        return pq.ParquetWriter(sink, schema, write_page_checksum=True)
    return (pa.ipc.new_stream if format == "stream" else pa.ipc.new_file)(sink, schema)


def _said(error: BaseException) -> str:
    """The first line of what an exception says, or its name."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _damaged(file: _LogFile, rows: int, why: str) -> LogError:
    return LogError(
        f"{file.path} (Arrow {file.format}) cannot be read to its end: {why}; {rows} whole rows of "
        "it were read. If its writer still runs, let it close the file; else write the file again, "
        "or go on with the rows that were read"
    )
