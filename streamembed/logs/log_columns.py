"""Ids, labels and times of a log: the one type that each has in all files, and their values."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.data.values import decode, decode_type, replace_view
from streamembed.errors import FeatureError, summarise_error
from streamembed.logs.log_file import LogFile
from streamembed.numeric.arrays import Array

UNITS = ("s", "ms", "us", "ns")  # of timestamps, the finest last


def find_id_type(files: Sequence[LogFile], name: str | None) -> Any:
    """The type of the ids of a log, int64 or string; None without ids."""
    kind = find_common_type(files, name)
    if kind is None:
        return None
    bare = next((file for file in files if name not in file.names), None)
    if bare is not None:
        raise FeatureError(
            f"{bare} has no column {name!r}, which other files of the log have, and every event "
            "needs an id: write it to all files, or read these separately"
        )
    if pa.types.is_integer(kind):
        return pa.int64()
    with suppress(pa.ArrowException):  # a kind without a text
        if kind == pa.uuid() or (
            not pa.types.is_floating(kind) and pa.nulls(0, kind).cast(pa.string()) is not None
        ):
            return pa.string()
    raise FeatureError(
        f"the column {name!r} of {files[0]} has type {kind}; it must contain integers or strings"
    )


def to_optional_ids(column: Any) -> Array | None:
    """Ids as int64, or as objects where an id is null or text; None without ids."""
    if column is None:
        return None
    if pa.types.is_integer(column.type) and not column.null_count:
        return np.array(column)
    return np.array(column.to_pylist(), dtype=object)


def find_common_type(files: Sequence[LogFile], name: Any) -> Any:
    """The type of a column that holds its values in all files, dictionaries decoded.

    None where no file has the column; a file with only nulls does not determine the type.
    """
    first, kind = None, None
    for file in files:
        own = replace_view(decode_type(file.types.get(name)))
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


def decode_column(part: Any, name: str | None, kind: Any, offset: int, file: LogFile) -> Any:
    """A column of ids, labels or times in its type, nulls where this file lacks it; or None."""
    if kind is None:
        return None
    if name not in part.schema.names:
        return pa.nulls(part.num_rows, kind)
    column = decode(part.column(name))
    if column.type == pa.uuid() != kind:  # a cast would read the 16 bytes as text
        column = pa.array([key and str(key) for key in column.to_pylist()], kind)
    try:
        return column if column.type == kind else column.cast(kind)
    except pa.ArrowException as error:
        raise FeatureError(
            f"the column {name!r} of {file} has values, from row {offset} of the log on, that do "
            f"not fit into {kind}, which the log needs ({summarise_error(error)}); write it in one "
            "type in all files, ids as int64 or string"
        ) from error
