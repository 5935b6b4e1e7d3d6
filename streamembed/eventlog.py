"""Arrow event logs in, numbered batches of points out, in memory that does not grow with the log.

A log is one file, or many read as one: Arrow IPC streams, Arrow IPC files and Parquet, told apart
by their first bytes. Columns named ``id``, ``label`` and ``event_time`` are reserved; features are
the numeric others. Every whole row before the first damage is handed out, then `LogError` says
where it ended. Arrow checks the structure of a file, not its content: a bit flipped inside a number
goes unnoticed, but for Parquet pages with checksums (`write_log` writes them).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from streamembed.batch import column_values, named_features
from streamembed.core.arrays import Array, Floats
from streamembed.errors import FeatureError, InputError, LogError, ParameterError
from streamembed.logfile import FORMATS, LogFile, damaged, probe, said, whole_rows

__all__ = ["EventLog", "LogBatch", "LogDescription", "describe_log", "open_log", "write_log"]

Location = str | os.PathLike[str]

RESERVED = ("id", "label", "event_time")
ROWS_PER_BATCH = 65_536  # at most, in one LogBatch,
BYTES_PER_BATCH = 32 * 2**20  # of points that hold no more than this


@dataclass(frozen=True, slots=True, eq=False)
class LogBatch:
    """Consecutive rows of a log.

    Attributes
    ----------
    points : (n, d)
        float64, C-contiguous, columns in the order of ``EventLog.feature_names``; nulls are NaN.
    nulls : (n, d)
        bool, True where the log has a null, so that it can be told from a NaN.
    ids : (n,) or None
        int64; objects (int or str, None for a null) where one is null or no integer; None where
        the log has no ids.
    labels, event_times : pyarrow.Array of n, or None
        As in the file; None where it has none. They keep the memory of their whole record batch.
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
class EventLog:
    """A log that can be read: iterate over it for `LogBatch` after `LogBatch`, as often as needed.

    Iterating raises `LogError` where a file is damaged or ends in the middle of a batch, after all
    whole rows before, and `FeatureError` where an id is no 64-bit integer and no text. IPC files
    are mapped; a record batch that is compressed, or in a stream, is held whole while its rows are
    handed out; of Parquet, the pages at hand and the footer.

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
        Rows of all files; None where a stream or damage leaves that open until all is read.
    """

    paths: tuple[Path, ...]
    feature_names: tuple[str, ...]
    has_ids: bool
    ignored: tuple[str, ...]
    n_rows: int | None
    _files: tuple[LogFile, ...] = field(repr=False)

    def __iter__(self) -> Iterator[LogBatch]:
        most = BYTES_PER_BATCH // (8 * len(self.feature_names))
        limit = max(1, min(ROWS_PER_BATCH, most))
        offset = 0
        for file in self._files:
            for part in whole_rows(file, {*self.feature_names, *RESERVED}, limit):
                yield _log_batch(part, self.feature_names, offset, file.path)
                offset += part.num_rows


@dataclass(frozen=True, slots=True)
class LogDescription:
    """What a log holds, as far as can be told without reading its rows.

    Attributes
    ----------
    files, formats, rows, damages : tuple
        For each file in order: its path; "stream", "file" (both Arrow IPC) or "parquet"; how many
        rows, None where it cannot tell; damage that shows from outside, or None.
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
    paths: Location | Sequence[Location], features: Sequence[str] | None = None
) -> EventLog:
    """Return the log that these files are, after a look at the columns of each.

    Parameters
    ----------
    paths
        A file, a folder, or several, read in this order; the files of a folder in the order of
        their names, without subfolders and without names that begin with "." or "_".
    features
        Exact names of the feature columns; None for all numeric columns that are not reserved.
        Integers, floats, booleans, decimals, and dictionaries of these, are numeric.

    Raises
    ------
    LogError
        A path that is missing, an empty file or folder, bytes that are not Arrow, a first file cut
        before its rows begin (such a later file is an error when reading comes to it).
    FeatureError
        No numeric column; a chosen column that is missing, reserved or not numeric; two columns of
        one name; files that differ in their features or in the kind of their ids.
    ParameterError
        No paths, or features that are not different names.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_log(f"{folder}/day-1", np.eye(3), ["a", "b", "c"], rows_per_batch=2)
    ...     [(batch.offset, batch.points.shape) for batch in open_log(folder)]
    [(0, (2, 3)), (2, (1, 3))]
    """
    chosen = None if features is None else _chosen(features)
    files = tuple(probe(path) for path in _paths(paths))
    first = files[0]
    if first.columns is None:
        raise damaged(first, 0, str(first.damage))
    names, ids = _features(first, chosen), _id_kind(first)
    for file in (file for file in files if file.columns is not None):
        found = _features(file, chosen)
        if found != names:
            raise FeatureError(
                f"{file.path} lacks the numeric columns {sorted(set(names) - set(found))} of "
                f"{first.path} and has also {sorted(set(found) - set(names))}; all files of a log "
                "must have the same features: choose them with features=, or read the files apart"
            )
        if _id_kind(file) != ids:
            raise FeatureError(
                f"{file.path} has {_id_kind(file)} and {first.path} has {ids}; all files of a log "
                "must have the same kind of ids: read the files apart"
            )
    counts = [file.rows for file in files if file.rows is not None]
    return EventLog(
        paths=tuple(file.path for file in files),
        feature_names=names,
        has_ids=ids != "no ids",
        ignored=tuple(sorted({n for f in files for n in f.names}.difference(names, RESERVED))),
        n_rows=sum(counts) if len(counts) == len(files) else None,
        _files=files,
    )


def describe_log(
    paths: Location | Sequence[Location], features: Sequence[str] | None = None
) -> LogDescription:
    """Return what a log holds; parameters and errors are those of `open_log`."""
    log = open_log(paths, features)
    return LogDescription(
        files=log.paths,
        formats=tuple(file.format for file in log._files),
        rows=tuple(file.rows for file in log._files),
        damages=tuple(file.damage for file in log._files),
        feature_names=log.feature_names,
        reserved=tuple(sorted({n for f in log._files for n in f.names if n in RESERVED})),
        ignored=log.ignored,
    )


def _paths(paths: Location | Sequence[Location]) -> list[Path]:
    """The files of files and folders, in reading order."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not given:
        raise ParameterError("paths is empty; it must name at least one file or folder")
    files: list[Path] = []
    for path in map(Path, given):
        if path.is_file():
            files.append(path)
            continue
        if not path.is_dir():  # a pipe would be waited for
            what = "neither a file nor a folder" if path.exists() else "missing"
            raise LogError(f"{path} is {what}; a log is a file, or a folder of files")
        try:
            names = sorted(entry.name for entry in path.iterdir() if entry.is_file())
        except OSError as error:
            raise LogError(f"{path} cannot be listed ({said(error)})") from error
        found = [path / name for name in names if not name.startswith((".", "_"))]
        if not found:
            raise LogError(
                f"{path} is a folder without log files; subfolders, and names that begin with '.' "
                "or '_', are not read: name the files, or another folder"
            )
        files += found
    return files


def _chosen(features: Sequence[str]) -> tuple[str, ...]:
    names = list(features)
    strings = not isinstance(features, str) and all(isinstance(name, str) for name in names)
    if not strings or not names or len(set(names)) < len(names):
        raise ParameterError(
            f"features is {features!r}; it must be a list of different column names, at least one, "
            "or None for all numeric columns"
        )
    return named_features(names)


def _features(file: LogFile, chosen: tuple[str, ...] | None) -> tuple[str, ...]:
    """The feature columns of one file, sorted by name."""
    types = dict(file.columns or ())
    numeric = named_features([n for n in types if n not in RESERVED and _is_numeric(types[n])])
    names = numeric if chosen is None else chosen
    if not names:
        raise FeatureError(
            f"{file.path} has no numeric column beside {list(RESERVED)}, only {sorted(types)}; a "
            "log needs at least one feature"
        )
    for name in names:
        if name not in numeric:
            what = "missing" if name not in types else f"of type {types[name]}"
            raise FeatureError(
                f"the feature {name!r} of {file.path} is {'reserved' if name in RESERVED else what}"
                f"; it must be one of the numeric columns {list(numeric)}"
            )
    for name in (*names, *RESERVED):
        if file.names.count(name) > 1:
            raise FeatureError(f"{file.path} has two columns named {name!r}; rename one of them")
    return names


def _id_kind(file: LogFile) -> str:
    """What the ids of one file are, in words."""
    kind = dict(file.columns or ()).get("id")
    if kind is None:
        return "no ids"
    if pa.types.is_integer(_value_type(kind)):
        return "whole numbers as ids"
    try:
        pa.nulls(0, _value_type(kind)).cast(pa.large_string())
    except pa.ArrowException as error:
        raise FeatureError(
            f"the column 'id' of {file.path} has type {kind}; it must hold integers or strings"
        ) from error
    return "text as ids"


def _is_numeric(kind: Any) -> bool:
    kind = _value_type(kind)
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def _value_type(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _log_batch(part: Any, names: tuple[str, ...], offset: int, path: Path) -> LogBatch:
    """The columns of a valid record batch, decoded."""
    found = dict(zip(part.schema.names, part.columns, strict=True))
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
    if column.type == pa.uuid():  # the cast would take its 16 bytes for text
        column = pa.array([key and str(key) for key in column.to_pylist()], pa.large_string())
    try:
        column = column.cast(pa.int64() if whole else pa.large_string())
    except pa.ArrowException as error:
        raise FeatureError(
            f"the column 'id' of {path} holds what is no 64-bit integer and no text, from row "
            f"{offset} of the log on ({said(error)}); write ids as int64 or as strings"
        ) from error
    if whole and not column.null_count:
        return np.array(column, dtype=np.int64)
    return np.array(column.to_pylist(), dtype=object)


def _decoded(column: Any) -> Any:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def write_log(
    path: Location,
    points: npt.ArrayLike,
    feature_names: Sequence[str],
    ids: Any = None,
    labels: Any = None,
    *,
    format: str = "stream",
    rows_per_batch: int = 4096,
) -> None:
    """Write one file that `open_log` reads back, in place of what was there.

    Parameters
    ----------
    path
        The file; its folder must exist.
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
    FeatureError, InputError
        Names that do not fit the points; ids or labels that do not.
    LogError
        The file cannot be written.
    ParameterError
        No such format, or less than one row in a batch.
    """
    if format not in FORMATS:
        raise ParameterError(f"format is {format!r}; it must be one of {list(FORMATS)}")
    if rows_per_batch < 1:
        raise ParameterError(f"rows_per_batch is {rows_per_batch}; it must be at least 1")
    batch = _record_batch(points, list(feature_names), ids, labels)
    try:
        with (
            pa.OSFile(os.fspath(path), "wb") as sink,
            _writer(sink, batch.schema, format) as writer,
        ):
            for start in range(0, batch.num_rows, rows_per_batch):
                writer.write_batch(batch.slice(start, rows_per_batch))
    except (pa.ArrowException, OSError) as error:
        raise LogError(f"{path} cannot be written ({said(error)}); try another folder") from error


def _record_batch(points: npt.ArrayLike, names: list[str], ids: Any, labels: Any) -> Any:
    """The columns id and label, where given, and the features."""
    if not names or len({*names, *RESERVED}) < len(names) + len(RESERVED):
        raise FeatureError(
            f"feature_names is {names}; it must be different names, at least one, and none of "
            f"{list(RESERVED)}"
        )
    try:
        columns = np.asarray(points, dtype=np.float64).T
        given = {"id": ids, "label": labels, **dict(zip(names, columns, strict=True))}
        return pa.record_batch({n: pa.array(c) for n, c in given.items() if c is not None})
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(
            f"points, ids and labels are no columns of one length ({said(error)}); they must be "
            f"(n, {len(names)}), as feature_names has names, (n,) and (n,)"
        ) from error


def _writer(sink: Any, schema: Any, format: str) -> Any:
    if format == "parquet":
        return pq.ParquetWriter(sink, schema, write_page_checksum=True)
    return (pa.ipc.new_stream if format == "stream" else pa.ipc.new_file)(sink, schema)
