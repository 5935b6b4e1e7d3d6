"""The columns of a log file: the purpose of each, and how its values are decoded.

Columns named ``id``, ``label`` and ``event_time`` are reserved. Features are the numeric others, or
the places of one fixed-size list of numbers. A column ``distances`` of lists of numbers makes the
log one of distances.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamembed.data.table import in_order, read_table
from streamembed.data.values import column_values
from streamembed.errors import FeatureError, said
from streamembed.logs.file import LogFile
from streamembed.numeric.arrays import Array, Floats, Ints

__all__ = [
    "CARRIED",
    "DISTANCES",
    "RESERVED",
    "Layout",
    "by_bytes",
    "carried",
    "carried_type",
    "distances_of",
    "id_kind",
    "ids_of",
    "layout_of",
    "points_of",
]

CARRIED = ("label", "event_time")  # handed on as they are
RESERVED = ("id", *CARRIED)
DISTANCES = "distances"
ADVICE = (
    "lists of varying length cannot be features: write them as fixed-size lists, or as one numeric "
    "column per position"
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a log keeps its events.

    Attributes
    ----------
    kind : str
        "points" or "distances".
    feature_names : tuple of str
        Numeric columns, in the order of `in_order`; or the places "0", "1", ... of a list column;
        none of distances.
    list_column : str or None
        The list column that holds the points or the distances; None for numeric columns.
    """

    kind: str
    feature_names: tuple[str, ...]
    list_column: str | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the file that hold the events."""
        return self.feature_names if self.list_column is None else (self.list_column,)

    def __str__(self) -> str:
        if self.kind == "distances":
            return "distances"
        if self.list_column is None:
            return f"the numeric columns {list(self.feature_names)}"
        return f"the vectors {self.list_column!r} of {len(self.feature_names)} numbers"


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of one file by what they could be."""

    file: LogFile
    types: dict[str, Any]
    numeric: tuple[str, ...]
    vectors: dict[str, int]  # fixed-size lists of numbers, with their sizes

    def __str__(self) -> str:
        vectors = f" or the vectors {sorted(self.vectors)}" if self.vectors else ""
        return f"the numeric columns {list(self.numeric)}{vectors}"


def layout_of(file: LogFile, chosen: tuple[str, ...] | None) -> Layout:
    """Where one file keeps its events; ``chosen`` are names or patterns, None takes what there is.

    Raises
    ------
    FeatureError
        No features, more than one thing that could be them, or none by a name or pattern.
    """
    types = dict(file.columns or ())
    free = {name: kind for name, kind in types.items() if name not in RESERVED}
    columns = _Columns(
        file,
        types,
        in_order(name for name, kind in free.items() if _is_numeric(_value_type(kind))),
        {name: kind.list_size for name, kind in free.items() if _is_vector(kind)},
    )
    layout = _find(columns) if chosen is None else _chosen(columns, chosen)
    for name in (*layout.columns, *RESERVED):
        if file.names.count(name) > 1:
            raise FeatureError(f"{file} has two columns named {name!r}; rename one of them")
    return layout


def _find(columns: _Columns) -> Layout:
    """The layout of a file of which nothing was chosen."""
    file, numeric, vectors = columns.file, columns.numeric, columns.vectors
    if _is_list_of_numbers(columns.types.get(DISTANCES)):
        return Layout("distances", (), DISTANCES)
    if vectors and (numeric or len(vectors) > 1):
        one = sorted(vectors)[0]
        raise FeatureError(
            f"{file} has several possible sets of features ({columns}); choose one with features=, "
            f"for example {[one]} or {list(numeric[:3]) or [sorted(vectors)[1]]}"
        )
    if vectors:
        return _vector(*vectors.items())
    if not numeric:
        lists = [name for name, kind in columns.types.items() if _is_list_of_numbers(kind)]
        raise FeatureError(
            f"{file} has no numeric column besides {list(RESERVED)}, only {sorted(columns.types)}; "
            f"a log needs at least one feature{f' ({lists[0]!r}: {ADVICE})' if lists else ''}"
        )
    return Layout("points", numeric, None)


def _chosen(columns: _Columns, chosen: tuple[str, ...]) -> Layout:
    """The layout that names, patterns, or the places of a vector, ask for."""
    vectors = columns.vectors
    if not columns.types.keys() & set(chosen) and set(chosen) == set(_places(len(chosen))):
        fitting = [name for name, size in vectors.items() if size == len(chosen)]
        if len(fitting) > 1:
            raise FeatureError(
                f"{columns.file} has the vectors {sorted(fitting)}, all of {len(chosen)} numbers; "
                f"choose one of them with features=, for example {sorted(fitting)[:1]}"
            )
        if fitting:
            return _vector((fitting[0], len(chosen)))
    if len(chosen) == 1 and chosen[0] in vectors:
        return _vector((chosen[0], vectors[chosen[0]]))
    names: set[str] = set()
    for name in chosen:
        if name in columns.numeric:
            names.add(name)
        elif name in columns.types or not any(sign in name for sign in "*?["):
            raise FeatureError(_refusal(columns, name))
        else:
            matching = [column for column in columns.numeric if fnmatchcase(column, name)]
            if not matching:
                raise FeatureError(
                    f"the pattern {name!r} matches no numeric column of {columns.file}; choose "
                    f"among {columns}"
                )
            names.update(matching)
    return Layout("points", in_order(names), None)


def _refusal(columns: _Columns, name: str) -> str:
    """Why a column cannot be a feature."""
    kind = columns.types.get(name)
    if name in RESERVED:
        what, advice = "reserved", ""
    elif kind is None:
        what, advice = "missing", ""
    elif name in columns.vectors:
        what, advice = (
            f"a vector of {columns.vectors[name]} numbers",
            ("; a vector column must be chosen alone"),
        )
    else:
        what, advice = f"of type {kind}", ""
        if name == DISTANCES and _is_list_of_numbers(kind):
            advice = "; a log of distances takes no features"
        elif _is_list_of_numbers(kind):
            advice = f"; {ADVICE}"
    return f"the feature {name!r} of {columns.file} is {what}; it must be one of {columns}{advice}"


def _vector(column: tuple[str, int]) -> Layout:
    return Layout("points", _places(column[1]), column[0])


def _places(size: int) -> tuple[str, ...]:
    """The names that features have by their place, as those of an array."""
    return tuple(map(str, range(size)))


def _is_numeric(kind: Any) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def _is_vector(kind: Any) -> bool:
    return pa.types.is_fixed_size_list(kind) and kind.list_size > 0 and _is_numeric(kind.value_type)


def _is_list_of_numbers(kind: Any) -> bool:
    if kind is None:
        return False
    tests = (
        pa.types.is_list,
        pa.types.is_large_list,
        pa.types.is_fixed_size_list,
        pa.types.is_list_view,
        pa.types.is_large_list_view,
    )
    if not any(test(kind) for test in tests):
        return False
    return bool(pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type))


def _value_type(kind: Any) -> Any:
    is_coded = kind is not None and pa.types.is_dictionary(kind)
    return kind.value_type if is_coded else kind


def _decode(column: Any) -> Any:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


# ------------------------------------------------------------------------------------- the events


def points_of(part: Any, layout: Layout) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Points of a record batch, (n, d), NaN for null; and where the nulls are, (n, d)."""
    if layout.list_column is not None:
        return _vectors(part.column(layout.list_column), layout)
    table = read_table(part.select(list(layout.feature_names)))
    assert table.refused is None
    return table.values, table.nulls if table.nulls.size else np.zeros(table.values.shape, bool)


def _vectors(column: Any, layout: Layout) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """The same of a fixed-size list column; a null list is a row of nulls."""
    shape = len(column), len(layout.feature_names)
    flat = column.values.slice(column.offset * shape[1], len(column) * shape[1])
    points: Floats = np.array(column_values(flat, str(layout.list_column))).reshape(shape)
    nulls = np.zeros(shape, dtype=bool)
    if flat.null_count:
        nulls |= flat.is_null().to_numpy(zero_copy_only=False).reshape(shape)
    if column.null_count:
        nulls[column.is_null().to_numpy(zero_copy_only=False)] = True
        points[nulls] = np.nan
    return points, nulls


def distances_of(part: Any, layout: Layout) -> list[Floats | None]:
    """Every row of a record batch of distances; None for null, NaN for a null in a row."""
    column = part.column(layout.list_column)
    ends = np.cumsum(_lengths(column))
    flat = np.array(column_values(column.flatten(), DISTANCES))
    rows: list[Floats | None] = [*np.split(flat, ends[:-1])] if len(column) else []
    if column.null_count:
        for i in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            rows[i] = None
    return rows


def by_bytes(part: Any, layout: Layout, limit: int) -> Iterator[Any]:
    """Slices of a record batch with no more bytes of distances than that, or of one row."""
    if layout.kind == "points":
        yield part
        return
    ends = 8 * np.cumsum(_lengths(part.column(layout.list_column)))
    start = 0
    while start < part.num_rows:
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        yield part.slice(start, stop - start)
        start = stop


def _lengths(column: Any) -> Ints:
    """How many numbers each list holds, 0 for null."""
    lengths: Ints = pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
    return lengths


# ------------------------------------------------------------------------------- the other columns


def id_kind(file: LogFile) -> str:
    """What the ids of one file are, in words."""
    kind = dict(file.columns or ()).get("id")
    if kind is None:
        return "no ids"
    if pa.types.is_integer(_value_type(kind)):
        return "whole numbers as ids"
    if not _is_castable(_value_type(kind), pa.large_string()):
        raise FeatureError(
            f"the column 'id' of {file} has type {kind}; it must contain integers or strings"
        )
    return "text as ids"


def ids_of(part: Any, offset: int, file: LogFile) -> Array | None:
    """Ids as int64, or as objects where one is null or they are not integers; None without."""
    if "id" not in part.schema.names:
        return None
    column = _decode(part.column("id"))
    whole = pa.types.is_integer(column.type)
    if column.type == pa.uuid():  # the cast would take its 16 bytes for text
        column = pa.array([key and str(key) for key in column.to_pylist()], pa.large_string())
    try:
        column = column.cast(pa.int64() if whole else pa.large_string())
    except pa.ArrowException as error:
        raise FeatureError(
            f"the column 'id' of {file} has values that are neither 64-bit integers nor text, from "
            f"row {offset} of the log on ({said(error)}); write ids as int64 or as strings"
        ) from error
    if whole and not column.null_count:
        return np.array(column, dtype=np.int64)
    return np.array(column.to_pylist(), dtype=object)


def carried_type(files: Sequence[LogFile], name: str) -> Any:
    """The type of a carried column: that of the first file that has it, decoded.

    None where no file has it; a file with nothing but nulls leaves the choice to the next.
    """
    first, kind = None, None
    for file in files:
        own = _value_type(dict(file.columns or ()).get(name))
        if own is None or own == kind:
            continue
        if first is None or kind == pa.null():
            first, kind = file, own
        elif not _is_castable(own, kind):
            raise FeatureError(
                f"the column {name!r} of {file} has type {own}, which cannot be converted to the "
                f"{kind} of {first}; all files of a log must have the same type: read the files "
                "separately"
            )
    return kind


def carried(part: Any, name: str, kind: Any, offset: int, file: LogFile) -> Any:
    """The values of a carried column in that type, nulls if this file lacks it; else None."""
    if kind is None:
        return None
    if name not in part.schema.names:
        return pa.nulls(part.num_rows, kind)
    column = _decode(part.column(name))
    try:
        return column if column.type == kind else column.cast(kind)
    except pa.ArrowException as error:
        raise FeatureError(
            f"the column {name!r} of {file} has values, from row {offset} of the log on, that are "
            f"not {kind}, its type in the first file ({said(error)}); write it in that type"
        ) from error


def _is_castable(kind: Any, to: Any) -> bool:
    try:
        return bool(kind == to or pa.nulls(0, kind).cast(to).type == to)
    except pa.ArrowException:
        return False
