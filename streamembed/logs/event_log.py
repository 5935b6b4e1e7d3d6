"""Arrow event logs in, numbered batches of events out, in memory that does not grow with the log.

A log is one file, or many read as one: Arrow IPC streams, Arrow IPC files and Parquet, told apart
by their first bytes; ``-`` is standard input. Which columns are what is told in
`streamembed.logs.log_columns`. Every whole row before the first damage is handed out, then
`LogError` says where it ended. Arrow checks the structure of a file, not its content: a bit flipped
inside a number goes unnoticed, but for Parquet pages with checksums (`write_log` writes them).

A row is known by its number, counted from 0 over all files in reading order; formats, batches
and row groups do not matter. So whoever has taken n rows of a log goes on with ``log.batches(n)``,
as long as the rows before are still there: files may be added behind the others, be written anew
in another format, or grow at their end.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamembed.data.column_roles import (
    DISTANCES,
    LOOKED_AT,
    Choice,
    Columns,
    Found,
    Layout,
    layout_of,
    named,
)
from streamembed.data.values import is_list_type
from streamembed.errors import ColumnWarning, FeatureError, LogError, ParameterError, shown, warn
from streamembed.logs import log_columns
from streamembed.logs.log_file import LogFile, damage_error, peek_rows, read_rows
from streamembed.logs.log_writer import write_distance_log as write_distance_log
from streamembed.logs.log_writer import write_log as write_log
from streamembed.logs.paths import Paths, list_paths, probe_files
from streamembed.logs.stdin import STDIN
from streamembed.numeric.arrays import Array, Floats
from streamembed.validation import whole

ROWS_PER_BATCH = 65_536  # at most, in one LogBatch,
BYTES_PER_BATCH = 32 * 2**20  # of points or distances that hold no more than this
ROWS_OF_LISTS = 64  # of a Parquet file decoded at once: how long a list is shows only then


@dataclass(frozen=True, slots=True, eq=False)
class LogBatch:
    """Consecutive rows of a log.

    Attributes
    ----------
    points : (n, d)
        float64, C-contiguous, columns in the order of ``EventLog.feature_names``; nulls are NaN.
        (n, 0) in a log of distances.
    nulls : (n, d)
        bool, True where the log has a null, so that it can be told from a NaN.
    distances : list of (L_i,) or None
        In a log of distances, each row's; None for a null row, NaN for a null in a row. None in a
        log of points.
    ids : (n,) or None
        int64; objects (int or str, None for a null) where one is null or no integer; None where
        the log has no ids.
    labels, event_times : pyarrow.Array of n, or None
        Of the types that the log has; dictionaries are decoded. None where no file has any, nulls
        where only this one has none. They keep the memory of their whole record batch.
    offset : int
        Row number of the first row, counted from 0 over all files.
    faults : dict of int to str
        Rows, by index in the batch, that can be no points, and why: lists of another length.
    """

    points: Floats
    nulls: npt.NDArray[np.bool_]
    distances: list[Floats | None] | None
    ids: Array | None
    labels: Any
    event_times: Any
    offset: int
    faults: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.points)


@dataclass(frozen=True, slots=True)
class EventLog:
    """A readable log; iterate over it, as often as needed, for `LogBatch` objects.

    `batches` reads it from a row on.

    Standard input can be read once. Iterating raises `LogError` where a file is damaged or ends in
    the middle of a batch, after all whole rows before, and `FeatureError` where an id is no 64-bit
    integer and no text, or a label not of the log's type. IPC files are mapped; a record batch
    that is compressed, or in a stream, is held whole while its rows are handed out; of Parquet,
    the pages at hand and the footer.

    Attributes
    ----------
    paths : tuple of Path
        The files, in the order in which they are read.
    folders : tuple of Path
        The folders that were named, whose files these are.
    kind : str
        "points" or "distances".
    feature_names : tuple of str
        The columns of ``LogBatch.points``: sorted by name, or by place where they are the places of
        a list column; none in a log of distances.
    list_column : str or None
        The list column that holds the points or the distances; None for numeric columns.
    columns : Columns
        What each column is for, and why others are left out; as text, one line.
    has_ids : bool
        True where there is a column of ids.
    label_type, event_time_type : pyarrow.DataType or None
        Of these columns, dictionaries decoded; None where no file has it.
    ignored : tuple of str
        Columns that are left out, sorted.
    n_rows : int or None
        Rows of all files; None where a stream or damage leaves that open until all is read.
    """

    paths: tuple[Path, ...]
    folders: tuple[Path, ...]
    kind: str
    feature_names: tuple[str, ...]
    list_column: str | None
    columns: Columns
    has_ids: bool
    label_type: Any
    event_time_type: Any
    ignored: tuple[str, ...]
    n_rows: int | None
    _files: tuple[LogFile, ...] = field(repr=False)

    @property
    def ordered(self) -> bool:
        """True if features are known by position, like those of an array."""
        return self.kind == "points" and self.list_column is not None

    def __iter__(self) -> Iterator[LogBatch]:
        return self._batches(0)

    def batches(self, start: int = 0) -> Iterator[LogBatch]:
        """The log from a row on; iterating over the log itself begins at its first row.

        What lies before is neither decoded nor checked: files and Parquet row groups are passed
        over by the counts in their footers, record batches of an IPC file by their lengths; a
        stream has to be read up to there, but its values are not looked at.

        Parameters
        ----------
        start
            Row number, counted from 0 over all files, of the first row that is handed out; as
            many as the log has rows for none.

        Raises
        ------
        ParameterError
            It is beyond the end of the log; where streams leave open how many rows there are, only
            once they have been read.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_log(f"{folder}/log", np.eye(5), list("abcde"), rows_per_batch=2)
        ...     [(part.offset, len(part)) for part in open_log(folder).batches(3)]
        [(3, 1), (4, 1)]
        """
        start = whole("start", start, 0)
        if self.n_rows is not None and start > self.n_rows:
            raise _start_error(start, self.n_rows)
        return self._batches(start)

    def _batches(self, start: int) -> Iterator[LogBatch]:
        layout = Layout(self.kind, self.feature_names, self.list_column)
        uses = self.columns.id, self.columns.label, self.columns.time
        wanted = {*layout.columns, *(name for name in uses if name is not None)}
        offset = 0
        for file in self._files:
            if file.rows is not None and offset < start and offset + file.rows <= start:
                offset += file.rows
                continue
            for part in read_rows(file, wanted, _row_limit(layout, file), start - offset):
                if isinstance(part, int):  # rows that were passed over
                    offset += part
                    continue
                for piece in log_columns.split_by_bytes(part, layout, BYTES_PER_BATCH):
                    yield self._batch(piece, layout, offset, file)
                    offset += piece.num_rows
        if offset < start:
            raise _start_error(start, offset)

    def _batch(self, part: Any, layout: Layout, offset: int, file: LogFile) -> LogBatch:
        """The columns of a valid record batch, decoded."""
        distances, uses = None, self.columns
        faults: dict[int, str] = {}
        points, nulls = np.zeros((part.num_rows, 0)), np.zeros((part.num_rows, 0), dtype=bool)
        if layout.kind == "points":
            points, nulls, faults = log_columns.decode_points(part, layout)
        else:
            distances = log_columns.decode_distances(part, layout)
        return LogBatch(
            points,
            nulls,
            distances,
            log_columns.decode_ids(part, uses.id, offset, file),
            log_columns.decode_passthrough(part, uses.label, self.label_type, offset, file),
            log_columns.decode_passthrough(part, uses.time, self.event_time_type, offset, file),
            offset,
            faults,
        )


def _start_error(start: int, rows: int) -> ParameterError:
    return ParameterError(
        f"start={start} must be at most {rows}, the number of rows of the log: is it the one that "
        "was read before?"
    )


def _row_limit(layout: Layout, file: LogFile) -> int:
    """The most rows to take from a file at once."""
    if layout.kind == "distances":
        return ROWS_OF_LISTS if file.format == "parquet" else ROWS_PER_BATCH
    return max(1, min(ROWS_PER_BATCH, BYTES_PER_BATCH // (8 * len(layout.feature_names))))


@dataclass(frozen=True, slots=True)
class LogDescription:
    """What a log contains, as far as can be known without reading its rows.

    Attributes
    ----------
    files, formats, rows, damages : tuple
        For each file in order: its path; "stream", "file" (both Arrow IPC) or "parquet"; how many
        rows, None where it cannot tell; damage that shows from outside, or None.
    kind : str
        "points" or "distances".
    feature_names, reserved, ignored : tuple of str
        The columns by their use, sorted; places in order.
    list_column : str or None
        The list column that holds the points or the distances.
    """

    files: tuple[Path, ...]
    formats: tuple[str, ...]
    rows: tuple[int | None, ...]
    damages: tuple[str | None, ...]
    kind: str
    feature_names: tuple[str, ...]
    list_column: str | None
    reserved: tuple[str, ...]
    ignored: tuple[str, ...]


def open_log(
    paths: Paths,
    features: Sequence[str] | None = None,
    *,
    exclude: Sequence[str] | None = None,
    id: str | None = None,
    label: str | None = None,
    time: str | None = None,
) -> EventLog:
    """Open files as one log, after inspecting the columns and the first rows.

    Parameters
    ----------
    paths
        A file, a folder, a pattern of these (``events/*.parquet``), or several, read in this order;
        the files of a folder in the order of their names, without names that begin with "." or "_",
        and without subfolders but those named ``key=value``, whose names are no columns. Formats
        may be mixed. "-", alone, is standard input: a stream is read as it comes, an IPC file or
        Parquet is copied to a temporary file first.
    features
        The feature columns; None for all numeric columns (integers, floats, booleans, decimals, and
        dictionaries of these) that are in no other use and do not look like ids, times or targets,
        or the one column of lists of numbers of one length. Names may be patterns (``x*``,
        ``pixel_?``, ``[ab]``) of such columns, in which case counts; a column of exactly that name
        goes before, and is a feature whatever it looks like. The name of a list column stands
        alone; so do its places ("0", "1", ...), by which an engine knows it.
    exclude
        Names or patterns of columns that are left out, whatever they are called.
    id, label, time
        The columns with ids, labels and times; None for ``id``, ``label`` and ``event_time``, where
        there are such columns.

    Notes
    -----
    Columns look like something else that are named so (``user_id``, ``timestamp``, ``target``; a
    ``y`` beside an ``x`` is a coordinate), or whose first 50 rows are whole numbers that ascend, or
    large numbers that never fall. `EventLog.columns` says what became of each column.

    Where nothing is chosen, and there is a column ``distances`` of lists of numbers, the log is
    one of distances: row t holds the unsquared distances to all t rows before it, or to the most
    recent of them, oldest first.

    Raises
    ------
    LogError
        A path that is missing, an empty file, bytes that are not Arrow, a first file cut before its
        rows begin (such a later file is an error when reading comes to it).
    FeatureError
        No numeric column; a chosen column that is missing, reserved or not numeric; a pattern that
        matches none; vectors beside other features; two columns of one name; files that differ in
        their features, the kind of their ids or, beyond a cast, in the type of their labels.
    ParameterError
        No paths, a folder without logs, a pattern of no files, "-" beside others or at a terminal;
        features that are not different names, a column of two uses.

    Warns
    -----
    ColumnWarning
        Columns were left out because they look like ids, times or targets.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_log(f"{folder}/day-1", np.eye(3), ["a", "b", "c"], rows_per_batch=2)
    ...     [(batch.offset, batch.points.shape) for batch in open_log(folder)]
    [(0, (2, 3)), (2, (1, 3))]
    """
    log = open_with_choice(paths, parse_choice(features, exclude, id, label, time))
    if (told := describe_doubts(log)) is not None:
        warn(told, ColumnWarning)
    return log


def parse_choice(
    features: Sequence[str] | None,
    exclude: Sequence[str] | None = None,
    id: str | None = None,
    label: str | None = None,
    time: str | None = None,
) -> Choice:
    """What was said of the columns, checked; as `open_log` takes it."""
    for name, given in (("id", id), ("label", label), ("time", time)):
        if given is not None and (not isinstance(given, str) or not given):
            raise ParameterError(f"{name}={shown(given)} must be the name of a column, or None")
    return Choice(
        None if features is None else named("features", features),
        () if exclude is None else named("exclude", exclude),
        id,
        label,
        time,
    )


def describe_doubts(log: EventLog) -> str | None:
    """What a warning says of columns that were left out because of their looks."""
    left = log.columns.left_out
    if not log.columns.doubtful:
        return None
    told = ", ".join(f"{name!r} ({left[name]})" for name in log.columns.doubtful)
    return (
        f"columns of the log are left out of the features: {told}; settle it with features=, "
        "exclude=, id=, label= or time="
    )


def open_with_choice(paths: Paths, choice: Choice) -> EventLog:
    """`open_log` without its warning."""
    files = probe_files(paths)
    first = files[0]
    if first.columns is None:
        raise damage_error(first, 0, str(first.damage))
    readable = [file for file in files if file.columns is not None]
    head = _read_head(readable, choice)
    found = Found.of(str(first), dict(first.columns), head, choice)
    layout = _find_layout(first, found, choice)
    used = {name: use for name, use in choice.uses.items() if name not in layout.columns}
    has = {use: name for name, use in used.items() if any(name in file.names for file in files)}
    for use, name in (("id", choice.id), ("label", choice.label), ("time", choice.time)):
        if name is not None and use not in has:
            raise FeatureError(
                f"the column {name!r}, named by {use}, is not in {first}, which has "
                f"{shown(sorted(first.names))}"
            )
    ids = log_columns.describe_ids(first, has.get("id"))
    left_out: dict[str, str] = {}
    for file in readable:
        own = Found.of(str(file), dict(file.columns or ()), head, choice)
        _check_same_layout(file, _find_layout(file, own, choice), first, layout)
        kind = log_columns.describe_ids(file, has.get("id"))
        if kind != ids:
            raise FeatureError(
                f"{file} has {kind}, but {first} has {ids}; all "
                "files of a log must have the same kind of ids: read the files separately"
            )
        for name in {*file.names}.difference(layout.columns, used):
            left_out.setdefault(name, own.why_not(name))
    left_out = {name: left_out[name] for name in sorted(left_out)}
    doubtful = tuple(n for n in left_out if choice.features is None and n in found.doubtful)
    counts = [file.rows for file in files if file.rows is not None]
    known = len(counts) == len(files) and first.stdin is None
    return EventLog(
        paths=tuple(file.path for file in files),
        folders=tuple(path for path in map(Path, list_paths(paths)) if path.is_dir()),
        kind=layout.kind,
        feature_names=layout.feature_names,
        list_column=layout.list_column,
        columns=Columns(
            layout.feature_names,
            layout.list_column,
            has.get("id"),
            has.get("label"),
            has.get("time"),
            left_out,
            doubtful,
        ),
        has_ids=ids != "no ids",
        label_type=log_columns.find_passthrough_type(files, has.get("label")),
        event_time_type=log_columns.find_passthrough_type(files, has.get("time")),
        ignored=tuple(left_out),
        n_rows=sum(counts) if known else None,
        _files=files,
    )


def _read_head(files: Sequence[LogFile], choice: Choice) -> dict[str, Any]:
    """The first rows of the columns that could be features, by name, as far as they are there."""
    first = files[0]
    found = Found.of(str(first), dict(first.columns or ()), {}, replace(choice, trusted=True))
    lists = [name for name, kind in first.columns or () if is_list_type(kind)]
    chosen = set(choice.features or ())
    if choice.features is None and DISTANCES in lists:
        return {}
    wanted = {name for name in (*found.numeric, *lists) if name not in chosen or name in lists}
    wanted -= {name for name in found.vectors if name in wanted}
    if choice.trusted or (chosen and chosen <= set(found.numeric)):
        return {}
    parts: dict[str, list[Any]] = {}
    rows = 0
    with suppress(LogError):  # whoever reads the rows is told
        for part in chain.from_iterable(peek_rows(file, wanted, LOOKED_AT) for file in files):
            if rows >= LOOKED_AT:
                break
            if isinstance(part, int):  # rows that were passed over
                continue
            part = part.slice(0, LOOKED_AT - rows)
            rows += len(part)
            for name, column in zip(part.schema.names, part.columns, strict=True):
                parts.setdefault(name, []).append(_widen(column))
    return {name: _concatenate(columns) for name, columns in parts.items()}


def _widen(column: Any) -> Any:
    """Numbers in the type that holds those of all files, as far as they are looked at."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _widen(column.dictionary_decode())
    if pa.types.is_floating(kind):
        return column.cast(pa.float64())
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return column.cast(pa.int64())
    return column


def _concatenate(columns: Sequence[Any]) -> Any:
    """The column of several files, up to the first that has another type."""
    kind = columns[0].type
    return pa.chunked_array([*takewhile(lambda column: column.type == kind, columns)], kind)


def _find_layout(file: LogFile, found: Found, choice: Choice) -> Layout:
    """Where a file keeps its events, if each column that counts is there once."""
    layout = layout_of(found, choice)
    number = Counter(file.names)
    for name in (*layout.columns, *choice.uses):
        if number[name] > 1:
            raise FeatureError(f"{file} has two columns named {name!r}; rename one of them")
    return layout


def _check_same_layout(file: LogFile, layout: Layout, first: LogFile, wanted: Layout) -> None:
    """Refuse a file whose events are in other columns than those of the first."""
    if layout == wanted:
        return
    if layout.list_column is None and wanted.list_column is None:
        found, names = set(layout.feature_names), set(wanted.feature_names)
        differs = (
            f"lacks the numeric columns {sorted(names - found)} of {first} and has the unexpected "
            f"columns {sorted(found - names)}"
        )
    else:
        differs = f"has {layout}, but {first} has {wanted}"
    raise FeatureError(
        f"{file} {differs}; all files of a log must have the same features: choose them with "
        "features=, or read the files separately"
    )


def describe_log(paths: Paths, features: Sequence[str] | None = None) -> LogDescription:
    """Describe what a log contains; parameters and errors are those of `open_log`.

    Standard input is refused: it would be gone.
    """
    if any(os.fspath(path) == str(STDIN) for path in list_paths(paths)):
        raise ParameterError(
            "paths contains '-', standard input, which inspecting would consume: save it to a file"
        )
    log = open_with_choice(paths, parse_choice(features))
    uses = (log.columns.id, log.columns.label, log.columns.time)
    reserved = {*uses, *((log.list_column,) if log.kind == "distances" else ())}
    return LogDescription(
        files=log.paths,
        formats=tuple(file.format for file in log._files),
        rows=tuple(file.rows for file in log._files),
        damages=tuple(file.damage for file in log._files),
        kind=log.kind,
        feature_names=log.feature_names,
        list_column=log.list_column,
        reserved=tuple(sorted({n for f in log._files for n in f.names if n in reserved})),
        ignored=log.ignored,
    )
