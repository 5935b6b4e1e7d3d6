"""Decode the columns of a log file: points, distances, ids, and passthrough columns.

`streamembed.data.column_roles` decides the role of each column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamembed.data.column_roles import DISTANCES, Columns
from streamembed.data.values import (
    column_to_floats,
    decode,
    decode_type,
    lists_to_matrix,
    read_lists,
    replace_view,
)
from streamembed.errors import FeatureError, summarise_error
from streamembed.logs.log_file import LogFile
from streamembed.numeric.arrays import Array, Bools, Floats, Ints

UNITS = ("s", "ms", "us", "ns")  # of timestamps, the finest last

# ------------------------------------------------------------------------------------- the events


def decode_points(part: Any, layout: Columns) -> tuple[Floats, Bools, dict[int, str]]:
    """Points of a record batch, (n, d), NaN for null; a mask of the nulls; and the rows, by index,
    whose lists do not have d values.
    """
    if layout.list_column is not None:
        column = part.column(layout.list_column)
        return lists_to_matrix(column, layout.list_column, len(layout.features))
    points = np.empty((part.num_rows, len(layout.features)))
    nulls = np.zeros(points.shape, bool)
    for j, name in enumerate(layout.features):
        column = decode(part.column(name))
        points[:, j] = column_to_floats(column, name)
        if column.null_count:
            nulls[:, j] = column.is_null().to_numpy(zero_copy_only=False)
    return points, nulls, {}


def decode_distances(part: Any, layout: Columns) -> list[Floats | None]:
    """Every row of a record batch of distances; None for null, NaN for a null in a row."""
    column = read_lists(part.column(layout.list_column))
    ends = np.cumsum(_count_list_items(column))
    flat = np.array(column_to_floats(column.flatten(), DISTANCES))
    rows: list[Floats | None] = [*np.split(flat, ends[:-1])] if len(column) else []
    if column.null_count:
        for i in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            rows[i] = None
    return rows


def split_by_bytes(part: Any, layout: Columns, limit: int) -> Iterator[Any]:
    """Slices of a record batch with at most ``limit`` bytes of distances, or of one row."""
    if layout.kind == "points":
        yield part
        return
    ends = 8 * np.cumsum(_count_list_items(read_lists(part.column(layout.list_column))))
    start = 0
    while start < part.num_rows:
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        yield part.slice(start, stop - start)
        start = stop


def _count_list_items(column: Any) -> Ints:
    """The number of values in each list, 0 for null."""
    lengths: Ints = pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
    return lengths


# ------------------------------------------------------------------------------- the other columns


def _find_column_type(file: LogFile, name: str | None) -> Any:
    return None if name is None else dict(file.columns or ()).get(name)


def find_id_type(file: LogFile, name: str | None) -> Any:
    """The type of the ids of a file, int64 or string; None without ids."""
    kind = _find_column_type(file, name)
    if kind is None:
        return None
    if pa.types.is_integer(decode_type(kind)):
        return pa.int64()
    if not _is_castable(decode_type(kind), pa.large_string()):
        raise FeatureError(
            f"the column {name!r} of {file} has type {kind}; it must contain integers or strings"
        )
    return pa.string()


def decode_ids(part: Any, name: str | None, offset: int, file: LogFile) -> Array | None:
    """Ids as int64, or as objects where an id is null or not an integer; None without ids."""
    if name not in part.schema.names:
        return None
    column = decode(part.column(name))
    whole = pa.types.is_integer(column.type)
    if column.type == pa.uuid():  # the cast would read its 16 bytes as text
        column = pa.array([key and str(key) for key in column.to_pylist()], pa.large_string())
    try:
        column = column.cast(pa.int64() if whole else pa.large_string())
    except pa.ArrowException as error:
        raise FeatureError(
            f"the column {name!r} of {file} has values that are neither 64-bit integers nor text, "
            f"from row {offset} of the log on ({summarise_error(error)}); "
            "write ids as int64 or as strings"
        ) from error
    if whole and not column.null_count:
        return np.array(column, dtype=np.int64)
    return np.array(column.to_pylist(), dtype=object)


def find_common_type(files: Sequence[LogFile], name: str | None) -> Any:
    """The type of a column that holds its values in all files, dictionaries decoded.

    None where no file has the column; a file with only nulls does not determine the type.
    """
    first, kind = None, None
    for file in files:
        own = replace_view(decode_type(_find_column_type(file, name)))
        if own is None or (own in (kind, pa.null()) and kind is not None):
            continue
        joint = own if kind in (None, pa.null()) else _join_types(kind, own)
        if joint is None:
            raise FeatureError(
                f"the column {name!r} has type {own} in {file} and {kind} in {first}, which would "
                "change its values; write it in one type in all files of the log, or read the "
                "files separately"
            )
        first, kind = first if joint == kind else file, joint
    return kind


def _join_types(kind: Any, other: Any) -> Any:
    """A type for the values of two different ones, each the same as before; None without one."""
    of, both = pa.types, (kind, other)
    if all(of.is_string(each) or of.is_large_string(each) for each in both):
        return kind
    if all(of.is_integer(each) for each in both):
        return pa.int64()
    if all(of.is_integer(each) or of.is_float64(each) for each in both):
        return pa.float64()  # pandas has it for integers with a gap
    if all(map(of.is_timestamp, both)) and (kind.tz is None) == (other.tz is None):
        return pa.timestamp(max((each.unit for each in both), key=UNITS.index), kind.tz)
    return None


def decode_passthrough(part: Any, name: str | None, kind: Any, offset: int, file: LogFile) -> Any:
    """The values of a passthrough column in its type, nulls where this file lacks it; or None."""
    if kind is None:
        return None
    if name not in part.schema.names:
        return pa.nulls(part.num_rows, kind)
    column = decode(part.column(name))
    try:
        return column if column.type == kind else column.cast(kind)
    except pa.ArrowException as error:
        raise FeatureError(
            f"the column {name!r} of {file} has values, from row {offset} of the log on, that do "
            f"not fit into {kind}, which the types of all files need ({summarise_error(error)}); "
            "write it in one type in all files"
        ) from error


def _is_castable(kind: Any, to: Any) -> bool:
    try:
        return bool(kind == to or pa.nulls(0, kind).cast(to).type == to)
    except pa.ArrowException:
        return False
