"""Write logs from arrays: points or rows of distances, in every format that `open_log` reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from streamembed.data.column_roles import DISTANCES, RESERVED
from streamembed.data.distance_rows import list_rows
from streamembed.data.table import read_table, to_feature_name
from streamembed.data.values import is_null, to_list
from streamembed.errors import (
    FeatureError,
    InputError,
    LogError,
    quote,
    summarise_error,
)
from streamembed.logs.log_file import FORMATS
from streamembed.logs.paths import Location
from streamembed.storage.archive import check_writable
from streamembed.validation import check_choice, check_whole


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
    """Write one file that `open_log` reads back, replacing an existing one.

    Parameters
    ----------
    path
        The file; its folder must exist.
    points
        Shape (n, d), written as float64; NaN is written as NaN, not as null.
    feature_names
        d different names, none of them reserved.
    ids, labels
        n values of any type that Arrow converts to a column, or None.
    format
        "stream" or "file" (Arrow IPC), or "parquet" (with page checksums).
    rows_per_batch
        Rows in one record batch or row group, at least 1.

    Raises
    ------
    FeatureError, InputError
        Names that do not fit the points; ids or labels that do not.
    FileError
        Its folder does not exist.
    LogError
        The file cannot be written.
    ParameterError
        No such format, or less than one row in a batch.
    """
    format = check_choice("format", format, tuple(FORMATS))
    rows_per_batch = check_whole("rows_per_batch", rows_per_batch, 1)
    values = read_table(points).check_numeric().values
    n, d = values.shape
    names = list(map(to_feature_name, feature_names)) if np.ndim(feature_names) == 1 else []
    if not d or len(names) != d or len({*names, *RESERVED}) < d + len(RESERVED):
        raise FeatureError(
            f"feature_names={quote(feature_names)} must be a list of different names, one for "
            f"each of the {d} columns of points, and none of {list(RESERVED)}"
        )
    columns = _build_columns(n, ids, labels)
    columns |= zip(names, map(pa.array, values.T), strict=True)
    _write(path, pa.table(columns), rows_per_batch, format)


def write_distance_log(
    path: Location,
    rows: Sequence[npt.ArrayLike | None],
    ids: Any = None,
    labels: Any = None,
    *,
    format: str = "stream",
    rows_per_batch: int = 256,
) -> None:
    """Write one file of distances that `open_log` reads back, replacing an existing one.

    Parameters
    ----------
    path
        The file; its folder must exist.
    rows
        n rows: the unsquared distances of row t to all t rows before it, or to the most recent of
        them, oldest first; row 0 is empty. None is written as null. For `streamembed transform`,
        the distances to the items of a snapshot, in the order of its ids.
    ids, labels
        n values of any type that Arrow converts to a column, or None.
    format
        "stream" or "file" (Arrow IPC), or "parquet" (with page checksums).
    rows_per_batch
        Rows in one record batch or row group, at least 1; a batch of a stream is read into memory
        as a whole.

    Raises
    ------
    InputError
        A row that is not a row of numbers; ids or labels of another length.
    FileError
        Its folder does not exist.
    LogError
        The file cannot be written.
    ParameterError
        No such format, or less than one row in a batch.
    """
    format = check_choice("format", format, tuple(FORMATS))
    rows_per_batch = check_whole("rows_per_batch", rows_per_batch, 1)
    numbers = list_rows(rows)
    for index, values in enumerate(numbers):
        if values is None and not is_null(rows[index]):
            raise InputError(
                f"row {index} of rows is not a row of numbers ({quote(rows[index])}); it must be "
                "(L,), one distance per object"
            )
    columns = _build_columns(len(numbers), ids, labels)
    columns[DISTANCES] = pa.array(numbers, pa.large_list(pa.float64()))
    _write(path, pa.table(columns), rows_per_batch, format)


def _build_columns(n: int, ids: Any, labels: Any) -> dict[str, Any]:
    given = {"id": ids, "label": labels}
    return {name: _build_column(name, data, n) for name, data in given.items() if data is not None}


def _build_column(name: str, data: Any, n: int) -> Any:
    values = data if isinstance(data, (pa.Array, np.ndarray)) else to_list(data, n, f"{name}s")
    try:
        column = pa.array(values)
        if len(column) == n:
            return column
        fault = f"there are {len(column)}"
    except MemoryError:
        raise
    # labels are objects of the caller, which may raise any exception
    except Exception as error:
        fault = summarise_error(error)
    raise InputError(f"{name}s are not a column of {n} rows ({fault})")


def _write(path: Location, table: Any, rows_per_batch: int, format: str) -> None:
    """Write a table as one file; not into a pipe, where writing waits for a reader."""
    target = check_writable(path)
    try:
        with (
            pa.OSFile(str(target), "wb") as sink,
            open_writer(sink, table.schema, format) as writer,
        ):
            writer.write_table(table, rows_per_batch)
    except (pa.ArrowException, OSError) as error:
        raise LogError(
            f"{path} cannot be written ({summarise_error(error)}); try another folder"
        ) from error


def open_writer(sink: Any, schema: Any, format: str, compression: str = "snappy") -> Any:
    """A writer of pyarrow for one of the `FORMATS`; Parquet with page checksums.

    ``sink`` is a path or an open file; ``compression`` is Parquet's.
    """
    if format == "parquet":
        return pq.ParquetWriter(sink, schema, compression=compression, write_page_checksum=True)
    return (pa.ipc.new_stream if format == "stream" else pa.ipc.new_file)(sink, schema)
