"""The columns of a log file as values: points, distances, ids, and what is carried along.

What each column is for is decided in `streamembed.data.column_roles`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamembed.data.column_roles import DISTANCES, Layout
from streamembed.data.table import read_table
from streamembed.data.values import column_values, plain_type, vectors_of
from streamembed.errors import FeatureError, said
from streamembed.logs.log_file import LogFile
from streamembed.numeric.arrays import Array, Bools, Floats, Ints

# ------------------------------------------------------------------------------------- the events


def decode_points(part: Any, layout: Layout) -> tuple[Floats, Bools, dict[int, str]]:
    """Points of a record batch, (n, d), NaN for null; where the nulls are; and rows of lists of
    another length than d, by index.
    """
    if layout.list_column is not None:
        column = part.column(layout.list_column)
        return vectors_of(column, layout.list_column, len(layout.feature_names))
    table = read_table(part.select(list(layout.feature_names)))
    assert table.refused is None
    nulls = table.nulls if table.nulls.size else np.zeros(table.values.shape, bool)
    return table.values, nulls, {}


def decode_distances(part: Any, layout: Layout) -> list[Floats | None]:
    """Every row of a record batch of distances; None for null, NaN for a null in a row."""
    column = part.column(layout.list_column)
    ends = np.cumsum(_list_lengths(column))
    flat = np.array(column_values(column.flatten(), DISTANCES))
    rows: list[Floats | None] = [*np.split(flat, ends[:-1])] if len(column) else []
    if column.null_count:
        for i in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
            rows[i] = None
    return rows


def split_by_bytes(part: Any, layout: Layout, limit: int) -> Iterator[Any]:
    """Slices of a record batch with no more bytes of distances than that, or of one row."""
    if layout.kind == "points":
        yield part
        return
    ends = 8 * np.cumsum(_list_lengths(part.column(layout.list_column)))
    start = 0
    while start < part.num_rows:
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + limit, side="right")))
        yield part.slice(start, stop - start)
        start = stop


def _decode(column: Any) -> Any:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _list_lengths(column: Any) -> Ints:
    """How many numbers each list holds, 0 for null."""
    lengths: Ints = pc.list_value_length(column).fill_null(0).to_numpy().astype(np.int64)
    return lengths


# ------------------------------------------------------------------------------- the other columns


def _column_type(file: LogFile, name: str | None) -> Any:
    return None if name is None else dict(file.columns or ()).get(name)


def describe_ids(file: LogFile, name: str | None) -> str:
    """What the ids of one file are, in words."""
    kind = _column_type(file, name)
    if kind is None:
        return "no ids"
    if pa.types.is_integer(plain_type(kind)):
        return "whole numbers as ids"
    if not _is_castable(plain_type(kind), pa.large_string()):
        raise FeatureError(
            f"the column {name!r} of {file} has type {kind}; it must contain integers or strings"
        )
    return "text as ids"


def decode_ids(part: Any, name: str | None, offset: int, file: LogFile) -> Array | None:
    """Ids as int64, or as objects where one is null or they are not integers; None without."""
    if name not in part.schema.names:
        return None
    column = _decode(part.column(name))
    whole = pa.types.is_integer(column.type)
    if column.type == pa.uuid():  # the cast would take its 16 bytes for text
        column = pa.array([key and str(key) for key in column.to_pylist()], pa.large_string())
    try:
        column = column.cast(pa.int64() if whole else pa.large_string())
    except pa.ArrowException as error:
        raise FeatureError(
            f"the column {name!r} of {file} has values that are neither 64-bit integers nor text, "
            f"from row {offset} of the log on ({said(error)}); write ids as int64 or as strings"
        ) from error
    if whole and not column.null_count:
        return np.array(column, dtype=np.int64)
    return np.array(column.to_pylist(), dtype=object)


def find_passthrough_type(files: Sequence[LogFile], name: str | None) -> Any:
    """The type of a carried column: that of the first file that has it, decoded.

    None where no file has it; a file with nothing but nulls leaves the choice to the next.
    """
    first, kind = None, None
    for file in files:
        own = plain_type(_column_type(file, name))
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


def decode_passthrough(part: Any, name: str | None, kind: Any, offset: int, file: LogFile) -> Any:
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
