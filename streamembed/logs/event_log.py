"""Arrow event logs in, numbered batches of events out, in memory that does not grow with the log.

A log is one file, or many read as one: Arrow IPC streams, Arrow IPC files and Parquet, recognised
by their first bytes. `streamembed.logs.log_columns` decodes the columns.
Every complete row before the first damage is returned, then `LogError` names the place. Arrow
checks the structure of a file, not its content: a bit flipped inside a number goes unnoticed,
except in Parquet pages with checksums (`write_log` writes them).

A row has a number, counted from 0 over all files in reading order; formats, batches and row groups
do not matter. After n rows of a log, ``log.batches(n)`` continues, as long as the rows before are
unchanged: files may be added after the others, rewritten in another format, or grow at their end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.data.batch import read_columns
from streamembed.data.column_roles import (
    DISTANCES,
    LOG_REMEDY,
    ColumnCandidates,
    ColumnChoice,
    Columns,
    check_names,
    choose_event_columns,
    describe_suspicious,
)
from streamembed.data.distance_rows import read_list_rows
from streamembed.data.features import Features
from streamembed.data.table import InputFrame, NumericTable
from streamembed.data.times import TimeOrder, is_time_type
from streamembed.data.values import find_common_size, holds_vectors
from streamembed.errors import (
    ColumnWarning,
    FeatureError,
    LogError,
    ParameterError,
    TimeOrderWarning,
    quote,
    suggest_word,
    warn,
)
from streamembed.logs import log_columns
from streamembed.logs.log_file import LogFile, build_damage_error, read_rows
from streamembed.logs.log_writer import write_distance_log as write_distance_log
from streamembed.logs.log_writer import write_log as write_log
from streamembed.logs.paths import Paths, probe_files, select_folders
from streamembed.numeric.arrays import Array, Bools, Floats
from streamembed.validation import check_whole

ROWS_PER_BATCH = 65_536  # largest number of rows in one LogBatch
BYTES_PER_BATCH = 4 * 2**20  # largest number of bytes of its points
ROWS_OF_LISTS = 64  # rows of distances decoded at once: only then are their lengths known


@dataclass(frozen=True, slots=True, eq=False)
class LogBatch:
    """Consecutive rows of a log.

    Attributes
    ----------
    points : (n, d)
        float64, C-contiguous, columns in the order of ``EventLog.feature_names``; nulls are NaN.
        (n, 0) in a log of distances.
    nulls : (n, d)
        bool, True where the log has a null, to distinguish it from a NaN.
    distances : list of (L_i,) or None
        The rows of a log of distances; None for a null row, NaN for a null in a row. None in a log
        of points.
    ids : (n,) or None
        int64; objects (int or str, None for a null) where an id is null or not an integer; None
        where the log has no ids.
    labels, event_times : pyarrow.Array of n, or None
        In the types of the log; dictionaries are decoded. None where no file has the column, nulls
        where only this file lacks it. They hold the memory of their whole record batch.
    offset : int
        Row number of the first row, counted from 0 over all files.
    kept : dict of str to pyarrow.Array
        The columns that are written beside the events, as labels.
    faults : dict of int to str
        Rows, by index in the batch, that are not points, and why: lists of another length.
    """

    points: Floats
    nulls: Bools
    distances: list[Floats | None] | None
    ids: Array | None
    labels: Any
    event_times: Any
    offset: int
    kept: dict[str, Any] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.points)


@dataclass(frozen=True, slots=True)
class EventLog:
    """A readable log; iterate over it, as often as needed, for `LogBatch` objects.

    `batches` reads it from a given row.

    Iterating raises `LogError` where a file is damaged or ends in
    the middle of a batch, after all complete rows before, and `FeatureError` where an id is neither
    a 64-bit integer nor text, or a label does not have the log's type. IPC files are mapped; a
    record batch that is compressed, or in a stream, is in memory as a whole while its rows are
    returned; of Parquet, the current pages and the footer.

    Attributes
    ----------
    paths : tuple of Path or str
        The files, in the order in which they are read; of a URI text, without credentials.
    folders : tuple of Path
        The given folders of this machine, which contain the files.
    kind : str
        "points" or "distances".
    feature_names : tuple of str
        The columns of ``LogBatch.points``: sorted by name, or the positions in a list column;
        none in a log of distances.
    columns : Columns
        What each column is for, and why others are left out; as text, one line.
    id_type : pyarrow.DataType or None
        int64 or string, as ids are compared; None where there is no column of ids.
    label_type, event_time_type : pyarrow.DataType or None
        Types of these columns, dictionaries decoded; None where no file has the column.
    kept_types : dict of str to pyarrow.DataType
        Types of the columns that are written beside the events.
    n_rows : int or None
        Rows of all files; None where a stream or damage makes that unknown until all is read.
    metric : str
        That of the engine that learns the log; the points of `LogBatch` are as in the log.
    """

    paths: tuple[Path | str, ...]
    folders: tuple[Path, ...]
    kind: str
    feature_names: tuple[str, ...]
    columns: Columns
    id_type: Any
    label_type: Any
    event_time_type: Any
    kept_types: Mapping[str, Any]
    n_rows: int | None
    _files: tuple[LogFile, ...] = field(repr=False)
    metric: str = "euclidean"

    @property
    def ordered(self) -> bool:
        """True if features are known by position, like those of an array."""
        return self.kind == "points" and self.columns.list_column is not None

    @property
    def features(self) -> Features:
        """Names of the features, and whether they are known by position."""
        return Features(self.feature_names, self.ordered, self.metric)

    @property
    def columns_read(self) -> dict[str, Any]:
        """The features, and the types of the labels and times that there are."""
        types = {"label": self.label_type, "event_time": self.event_time_type}
        given = {name: str(kind) for name, kind in types.items() if kind is not None}
        return {"features": self.feature_names, **given}

    def select_files(self, start: int, stop: int) -> EventLog:
        """Some of the files, with the columns of the whole log."""
        files = self._files[start:stop]
        return replace(self, paths=self.paths[start:stop], n_rows=_count_rows(files), _files=files)

    def __iter__(self) -> Iterator[LogBatch]:
        return self.read(0, self._files)

    def batches(self, start: int = 0) -> Iterator[LogBatch]:
        """The log from a given row; iterating over the log itself begins at its first row.

        Earlier rows are neither decoded nor checked: files and Parquet row groups are skipped by
        the counts in their footers; within an IPC file or stream, record batches are read, and
        not decoded.

        Parameters
        ----------
        start
            Number of the first row to return, counted from 0 over all files; the number of rows of
            the log returns none.

        Raises
        ------
        ParameterError
            It is beyond the end of the log; raised when reading has reached that.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_log(f"{folder}/log", np.eye(5), list("abcde"), rows_per_batch=2)
        ...     [(part.offset, len(part)) for part in open_log(folder).batches(3)]
        [(3, 1), (4, 1)]
        """
        return self.read(check_whole("start", start, 0), self._files)

    def read(self, start: int, files: Iterable[LogFile]) -> Iterator[LogBatch]:
        """Batches from a row on; ``files`` are those of the log, and may go on after them."""
        order, layout = TimeOrder(), self.columns
        used = {*layout.event_columns, layout.id, layout.label, layout.time, *layout.keep}
        columns = {name for name in used if name is not None}
        offset, limit = 0, _compute_row_limit(layout)
        for file in files:
            if file.rows is not None and offset < start and offset + file.rows <= start:
                offset += file.rows
                continue
            for part in read_rows(file, columns, limit, start - offset):
                if isinstance(part, int):  # number of skipped rows
                    offset += part
                    continue
                batch = self._decode_batch(part, layout, offset, file)
                if (message := order.find_decrease(batch.event_times, file)) is not None:
                    warn(message, TimeOrderWarning)
                yield batch
                offset += part.num_rows
        if offset < start:
            raise ParameterError(
                f"start={start} must be at most {offset}, the number of rows of the log; check "
                "that it is the log that you read before"
            )

    def _decode_batch(self, part: Any, layout: Columns, offset: int, file: LogFile) -> LogBatch:
        distances = None
        nothing = np.zeros((part.num_rows, 0))
        table = NumericTable(nothing, (), False, nulls=nothing.astype(bool))
        if layout.kind == "distances":
            distances = read_list_rows(part.column(DISTANCES))
        else:
            columns = {name: part.column(name) for name in layout.event_columns}
            table, _ = read_columns(InputFrame(columns, str(file)), self.features, str(file))
        decode = partial(log_columns.decode_column, part, offset=offset, file=file)
        return LogBatch(
            points=table.values,
            nulls=table.nulls,
            distances=distances,
            ids=log_columns.to_optional_ids(decode(name=layout.id, kind=self.id_type)),
            labels=decode(name=layout.label, kind=self.label_type),
            event_times=decode(name=layout.time, kind=self.event_time_type),
            offset=offset,
            kept={name: decode(name=name, kind=kind) for name, kind in self.kept_types.items()},
            faults=table.faults,
        )


def _count_rows(files: Sequence[LogFile]) -> int | None:
    counts = [file.rows for file in files if file.rows is not None]
    return sum(counts) if len(counts) == len(files) else None


def _compute_row_limit(layout: Columns) -> int:
    if layout.kind == "distances":
        return ROWS_OF_LISTS
    return max(1, min(ROWS_PER_BATCH, BYTES_PER_BATCH // (8 * len(layout.features))))


def open_log(
    paths: Paths,
    features: Sequence[str] | None = None,
    *,
    exclude: Sequence[str] | None = None,
    id: str | None = None,
    label: str | None = None,
    time: str | None = None,
    keep: Sequence[str] | None = None,
) -> EventLog:
    """Open files as one log, after inspecting the columns and the first rows.

    Parameters
    ----------
    paths
        A file, a folder, a pattern of these (``events/*.parquet``), or several, read in this order;
        the files of a folder in the natural order of their names (9 before 10), without names that
        begin with "." or "_", and without subfolders except those named ``key=value``, whose names
        are not columns. The folder of a Delta, Iceberg, Hudi or Lance table is refused.
        Formats may be mixed. URIs of what Arrow reads
        (files and folders, ``s3://bucket/log.parquet``, ``gs://``) are read over the network, with
        the credentials that Arrow finds.
    features
        The feature columns; None for all numeric columns (integers, floats, booleans, decimals, and
        dictionaries, runs and extensions of these) that have no other role and are not named like
        ids, times or targets, or the only column of lists of numbers. Names may be case-sensitive
        patterns (``x*``, ``pixel_?``, ``[ab]``) of such columns; a column of exactly that name
        takes precedence, and is a feature whatever its name. The name of a list column may be
        given alone or with numeric columns; its numbers are then called "0", "1", ..., or
        "embedding[0]", "embedding[1]", ..., by which an engine knows them, and together weigh as
        one feature.
    exclude
        Names or patterns of columns that are left out in any case.
    id, label, time
        The columns with ids, labels and times; None for ``id``, ``label`` and ``event_time``, if
        there are such columns.
    keep
        Columns of any type that a replay writes beside the events, such as the text behind a
        vector: into ``embedding.parquet``, and onto the page of a report.

    Notes
    -----
    A numeric column named like an id, time or target (``user_id``, ``timestamp``, ``target``; a
    ``y`` beside an ``x`` is a coordinate) is suspicious, and left out. Lists have the
    commonest length of the first rows; others are bad rows. A column without a value, of type null,
    in some of the files is missing there.
    `EventLog.columns` has the role of each column.

    Without chosen features, a column ``distances`` of lists of numbers makes the log one of
    distances: row t has the unsquared distances to all t rows before it, or to the most recent of
    them, oldest first.

    Raises
    ------
    LogError
        A path that is missing, an empty file, a first file cut before its rows begin (such a later
        file raises when reading reaches it).
    FeatureError
        No numeric column; a chosen column that is missing, reserved or not numeric; a pattern that
        matches no column; vectors beside other features, none chosen; two columns of one name;
        files that differ in their features, or in types of ids, labels or times that have no common
        one.
    ParameterError
        No paths, a folder without logs, a pattern without files, a file that is neither Arrow nor
        Parquet, "-" (standard input);
        features that are not different names, a column with two roles.

    Warns
    -----
    ColumnWarning
        Suspicious columns are left out.
    TimeOrderWarning
        While it is read: event times fall from one file to the next.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_log(f"{folder}/day-1", np.eye(3), ["a", "b", "c"], rows_per_batch=2)
    ...     [(batch.offset, batch.points.shape) for batch in open_log(folder)]
    [(0, (2, 3)), (2, (1, 3))]
    """
    log = open_with_choice(paths, parse_choice(features, exclude, id, label, time, keep))
    warn_of_columns(log)
    return log


def parse_choice(
    features: Sequence[str] | None,
    exclude: Sequence[str] | None = None,
    id: str | None = None,
    label: str | None = None,
    time: str | None = None,
    keep: Sequence[str] | None = None,
) -> ColumnChoice:
    """The checked choice of columns, from the arguments of `open_log`."""
    for name, column in (("id", id), ("label", label), ("time", time)):
        if column is not None and (not isinstance(column, str) or not column):
            raise ParameterError(f"{name}={quote(column)} must be the name of a column, or None")
    return ColumnChoice(
        None if features is None else check_names("features", features),
        () if exclude is None else check_names("exclude", exclude),
        id,
        label,
        time,
        check_names("keep", keep) if keep else (),
    )


def warn_of_columns(log: EventLog) -> None:
    """Warn of suspicious columns, which are left out, where there are any."""
    reasons = {name: log.columns.left_out[name] for name in log.columns.suspicious}
    if reasons:
        warn(describe_suspicious(reasons, LOG_REMEDY), ColumnWarning)


def open_with_choice(paths: Paths, choice: ColumnChoice) -> EventLog:
    """`open_log` without its warning."""
    return open_files(probe_files(paths), choice, select_folders(paths))


def open_files(
    files: Sequence[LogFile], choice: ColumnChoice, folders: tuple[Path, ...]
) -> EventLog:
    """Files as one log; ``folders`` are those that contain them, as far as they were given."""
    first, readable = files[0], [file for file in files if file.columns is not None]
    if first.columns is None:
        raise build_damage_error(first, 0, str(first.damage))
    # columns without a value, of type null, have the type that they have in another file
    given = chain.from_iterable(file.types.items() for file in readable[::-1])
    joint = {name: kind for name, kind in given if kind != pa.null()}

    def list_candidates(file: LogFile, sizes: Mapping[str, int]) -> ColumnCandidates:
        types = {n: joint.get(n, t) if t == pa.null() else t for n, t in file.types.items()}
        return ColumnCandidates.of(str(file), types, sizes, choice)

    sizes = _read_list_sizes(readable, list_candidates(first, {}), choice)
    candidates = list_candidates(first, sizes)
    layout = _find_layout(first, candidates, choice)
    roles = {name: role for name, role in choice.roles.items() if name not in layout.event_columns}
    role_columns: dict[str, Any] = {
        role: name for name, role in roles.items() if any(name in file.names for file in files)
    }
    wanted = [("id", choice.id), ("label", choice.label), ("time", choice.time)]
    for role, name in [*wanted, *(("keep", name) for name in choice.keep)]:
        if name is not None and not any(name in file.names for file in files):
            raise FeatureError(
                f"{role}={quote(name)} is not a column of {first}: "
                + (suggest_word(name, first.names) or f"it has {quote(sorted(first.names))}")
            )
    time_type = log_columns.find_common_type(files, role_columns.get("time"))
    if choice.time is not None and not (is_time_type(time_type) or pa.types.is_null(time_type)):
        raise FeatureError(
            f"time={quote(choice.time)} has type {time_type}; times must be timestamps, dates or "
            "numbers: cast the column, such as by pyarrow.compute.strptime, or name another"
        )
    left_out: dict[str, str] = {}
    for file in {file.columns: file for file in readable[::-1]}.values():
        file_candidates = list_candidates(file, sizes)
        _check_same_layout(file, _find_layout(file, file_candidates, choice), first, layout)
        for name in {*file.names}.difference(layout.event_columns, roles, choice.keep):
            left_out.setdefault(name, file_candidates.explain_exclusion(name))
    left_out = {name: left_out[name] for name in sorted(left_out)}
    role_columns |= {"keep": choice.keep, "left_out": left_out}
    vectors = {name for name, kind in candidates.types.items() if holds_vectors(kind)}
    warned = vectors.difference(candidates.excluded).union(candidates.suspicious)
    suspicious = tuple(n for n in left_out if n in warned) if choice.features is None else ()
    return EventLog(
        paths=tuple(file.place.address for file in files),
        folders=folders,
        kind=layout.kind,
        feature_names=layout.features,
        columns=replace(layout, **role_columns, suspicious=suspicious),
        id_type=log_columns.find_id_type(readable, role_columns.get("id")),
        label_type=log_columns.find_common_type(files, role_columns.get("label")),
        event_time_type=time_type,
        kept_types={name: log_columns.find_common_type(files, name) for name in choice.keep},
        n_rows=_count_rows(files),
        _files=tuple(files),
    )


def _read_list_sizes(
    files: Sequence[LogFile], candidates: ColumnCandidates, choice: ColumnChoice
) -> dict[str, int]:
    """How many numbers the first list has of columns of lists that may be of any length."""
    chosen = set(candidates.features if choice.features is None else choice.features)
    if chosen and chosen <= set(candidates.numeric):
        return {}
    lists = {name for name, kind in candidates.types.items() if holds_vectors(kind)} - {DISTANCES}
    sizes: dict[str, int] = {}
    for name in lists.difference(candidates.vectors, choice.roles, candidates.excluded):
        with suppress(LogError):  # reading the rows raises it
            having = (file for file in files if name in file.names)
            parts = (part for file in having for part in read_rows(file, {name}, ROWS_OF_LISTS))
            heads = (part for part in parts if not isinstance(part, int))  # a group without rows
            sizes[name] = next(
                filter(None, (find_common_size(head.column(name)) for head in heads)), 0
            )
    return sizes


def _find_layout(file: LogFile, candidates: ColumnCandidates, choice: ColumnChoice) -> Columns:
    """Where the events of a file are; FeatureError where a used column occurs twice."""
    layout = choose_event_columns(candidates, choice)
    number = Counter(file.names)
    for name in (*layout.event_columns, *choice.roles):
        if number[name] > 1:
            raise FeatureError(f"{file} has two columns named {name!r}; rename one of them")
    return layout


def _check_same_layout(
    file: LogFile, layout: Columns, first: LogFile, expected_layout: Columns
) -> None:
    """FeatureError where the events of a file are in other columns than those of the first."""
    if layout == expected_layout:
        return
    names, expected = set(layout.features), set(expected_layout.features)
    raise FeatureError(
        f"{file} has {layout.describe_features()}, but {first} has "
        f"{expected_layout.describe_features()} (missing: {quote(sorted(expected - names))}, more: "
        f"{quote(sorted(names - expected))}); all files of a log must have the same features: "
        "choose them with features=, or read the files separately"
    )
