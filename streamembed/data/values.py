"""What a number is and what is missing: one value, one array, one column at a time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from importlib import import_module
from itertools import chain
from numbers import Real
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamembed.errors import FeatureError, InputError, summarise_error
from streamembed.numeric.arrays import Array, Bools, Floats

PERIOD = "pandas.period"
# A mask of nulls where there are none.
NO_NULLS: Bools = np.zeros((0, 0), dtype=bool)
FIRST_LISTS = 64  # by which the length of all lists of a column is judged


def as_number(value: Any) -> float | None:
    """A number of any kind as a float, infinite where it is too large; None where it is none.

    Text that reads as a number, dates and spans of time, and complex numbers are none.
    """
    if type(value) is float:
        return value
    if type(value) is not int:
        if isinstance(value, pa.Scalar):
            value = value.as_py()
        elif isinstance(value, np.ndarray) and value.ndim == 0:
            value = value[()]
        if not isinstance(value, (Real, Decimal, np.bool_)) or isinstance(value, np.timedelta64):
            return None
    try:
        with np.errstate(over="ignore"):
            return float(value)
    except OverflowError:  # 10**400
        return math.inf
    except ValueError:  # a signalling NaN of decimal
        return math.nan


def is_null(value: Any) -> bool:
    """Whether a value says that there is none: None, masked, NA or NaT, also in an Arrow scalar.

    NaN is a float, and no null.
    """
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    # pandas may be absent: its nulls are known by their names
    return value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType")


def to_plain(value: Any) -> Any:
    """A value as Python has it; None where it is a null or a NaN of any kind."""
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    elif isinstance(value, np.generic) and not isinstance(value, (np.datetime64, np.timedelta64)):
        value = value.item()
    is_nan = isinstance(value, (float, Decimal, np.generic)) and value != value
    return None if is_nan or is_null(value) else value


def is_sequence(values: Any) -> bool:
    """Whether these are several things in order, and not text, bytes or a buffer."""
    return isinstance(values, Sequence) and not isinstance(
        values, (str, bytes, bytearray, memoryview)
    )


def to_list(values: Any, n: int, name: str) -> list[Any]:
    """One entry a row, see `to_plain`: of a sequence, an array, a series or an Arrow array.

    Raises
    ------
    InputError
        Not a sequence (a set has no order, a dict has keys), or not n entries.
    """
    entries: Any = None
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        try:
            entries = values.to_pylist()
        except (ValueError, ArithmeticError, LookupError) as error:  # a time beyond Python's
            fault = f"{name} has type {values.type}, and values that Python cannot hold"
            raise InputError(f"{fault}: {summarise_error(error)}") from error
    elif isinstance(values, (np.ndarray, memoryview)):
        vector = values if isinstance(values, np.ndarray) else np.asarray(values)
        if vector.ndim != 1 or vector.dtype.kind in "mM":
            raise InputError(
                f"{name} has shape {vector.shape} and dtype {vector.dtype}; it must be ({n},): one "
                "number or string per row"
            )
        entries = vector.tolist()
    elif is_sequence(values):
        entries = values
    else:
        nw = load_narwhals()
        series = nw.from_native(values, series_only=True, pass_through=True)
        if isinstance(series, nw.Series):
            entries = series.to_list()
        elif hasattr(values, "__array__"):  # an index of pandas, a tensor
            return to_list(np.asarray(values), n, name)
    if entries is None:
        hint = f": pass list({name})" if isinstance(values, Iterator) else ""
        raise InputError(
            f"{name} is a {type(values).__name__}; it must be a list, an array or a series of "
            f"length {n}, one entry per row{hint}"
        )
    if len(entries) != n:
        raise InputError(f"{name} has {len(entries)} entries; it must have {n}, one per row")
    is_plain = set(map(type, entries)) <= {str, int, bool, NoneType}
    return list(entries) if is_plain else list(map(to_plain, entries))


def load_narwhals() -> Any:
    """The library of data frames; importing it takes a tenth of the time of importing an engine."""
    return import_module("narwhals.stable.v2")


def to_rectangular_array(X: Sequence[Any], name: str = "X") -> Array:
    """Nested sequences as an array, masks kept; FeatureError where they have several widths."""
    nested = [row for row in X if isinstance(row, (list, tuple))]
    if len(nested) == len(X) and any(cell is np.ma.masked for cell in chain(*nested)):
        hidden = [[cell is np.ma.masked for cell in row] for row in nested]
        X = [
            np.ma.array(np.where(mask, 0.0, np.array(row, dtype=object)), mask=mask)
            for row, mask in zip(nested, hidden, strict=True)
        ]
    has_masks = any(isinstance(row, np.ma.MaskedArray) for row in X)
    try:
        rows: Array = np.ma.array(X) if has_masks else np.asarray(X)
    except (ValueError, TypeError, OverflowError) as error:
        raise FeatureError(
            f"the rows of {name} differ in length, or are not numeric: {summarise_error(error)}"
        ) from error
    return rows


def to_floats(X: Array) -> tuple[Floats, Bools, list[Any]]:
    """An array of numbers or objects as fresh float64, C-contiguous, of the same shape.

    Returns
    -------
    values
        NaN where one is masked or no number, infinite where one leaves the doubles.
    nulls
        True where one is masked; shape (0, 0) where none is.
    strays
        The values that are no numbers.
    """
    values, nulls = np.asarray(X), NO_NULLS
    strays: list[Any] = []
    if isinstance(X, np.ma.MaskedArray) and np.ma.is_masked(X):
        nulls = np.ma.getmaskarray(X)
        values = np.where(nulls, 0, values)
    if values.dtype.kind == "O":
        cells = values.ravel().tolist()
        parsed = [as_number(value) for value in cells]
        strays = [cell for cell, number in zip(cells, parsed, strict=True) if number is None]
        numbers = [math.nan if number is None else number for number in parsed]
        values = np.array(numbers, dtype=np.float64).reshape(values.shape)
    else:
        with np.errstate(over="ignore"):  # beyond the doubles is infinite
            values = np.array(values, dtype=np.float64, order="C")
    if nulls.size:
        values[nulls] = np.nan
    return values, nulls, strays


def column_to_floats(column: Any, name: str) -> Floats:
    """An Arrow column as float64, NaN for null; FeatureError where it is not numeric."""
    given, column = column.type, read_storage(column)
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if pa.types.is_decimal(kind):  # Arrow's own cast is off by a unit in the last place
        exact = [np.nan if each is None else float(each) for each in column.to_pylist()]
        return np.array(exact, dtype=np.float64)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif not is_numeric(kind):
        raise FeatureError(f"column {name!r} has type {given}; features must be numeric")
    if column.type == pa.float16():
        column = column.cast(pa.float32())
    values: Floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values


def decode_type(kind: Any) -> Any:
    """An Arrow type without its encoding: of a dictionary, or of runs, the type of the values."""
    while kind is not None and (pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind)):
        kind = kind.value_type
    return kind


def decode(column: Any) -> Any:
    """An Arrow column without its encoding, see `decode_type`, and without views."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    while column.type != decode_type(column.type):
        if pa.types.is_dictionary(column.type):
            values = decode(column.dictionary)
            column = pa.DictionaryArray.from_arrays(column.indices, values).dictionary_decode()
        elif column.type.value_type == decode_type(column.type):
            column = pc.run_end_decode(column)
        else:  # of which Arrow cannot decode runs
            column = pa.array(column.to_pylist(), decode_type(column.type))
    return column.cast(replace_view(column.type))


def replace_view(kind: Any) -> Any:
    """An Arrow type, or the one in the place of views, of which Arrow selects no rows."""
    if kind is not None and pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if kind is not None and pa.types.is_binary_view(kind) else kind


def find_storage_type(kind: Any) -> Any:
    """The type that Arrow stores: without encoding, and of an extension that beneath it.

    A period of pandas stays one: it is a time, not a number.
    """
    kind = decode_type(kind)
    is_storage = not isinstance(kind, pa.BaseExtensionType) or kind.extension_name == PERIOD
    return kind if is_storage else find_storage_type(kind.storage_type)


def read_storage(column: Any) -> Any:
    """An Arrow column as it is stored, see `find_storage_type`."""
    column = decode(column)
    return column if column.type == find_storage_type(column.type) else read_storage(column.storage)


def read_lists(column: Any) -> Any:
    """An Arrow column of lists as it is stored; one without a value, of type null, as lists."""
    column = read_storage(column)
    return column.cast(pa.list_(pa.float64())) if pa.types.is_null(column.type) else column


def is_numeric(kind: Any) -> bool:
    """Whether columns of an Arrow type can be features."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(find_storage_type(kind)) for test in tests)


def is_list_type(kind: Any) -> bool:
    """Whether each value of an Arrow type is a list, of one size or of any."""
    return hasattr(find_storage_type(kind), "value_field")


def holds_vectors(kind: Any) -> bool:
    """Whether each value of an Arrow type is a list of numbers."""
    return is_list_type(kind) and is_numeric(find_storage_type(kind).value_type)


def find_common_size(column: Any) -> int:
    """How many numbers most of the first lists of a column have, of those with any; 0 without."""
    lengths = pc.list_value_length(read_lists(column)).drop_null().to_pylist()
    common = Counter([length for length in lengths if length][:FIRST_LISTS]).most_common(1)
    return common[0][0] if common else 0


def lists_to_matrix(
    column: Any, name: str, size: int | None = None
) -> tuple[Floats, Bools, dict[int, str]]:
    """An Arrow column of lists as a matrix, a row for each; FeatureError where they hold none.

    Parameters
    ----------
    size
        How many numbers a list must have; None for the commonest, see `find_common_size`.

    Returns
    -------
    values, nulls
        Shapes (n, size), NaN for null; a null list is a row of nulls.
    faults
        What is wrong with lists of another length, by row.
    """
    column = read_lists(column)
    lengths = pc.list_value_length(column)
    if lengths.null_count:
        lengths = lengths.fill_null(-1)
    lengths = lengths.to_numpy(zero_copy_only=False)
    size = find_common_size(column) if size is None else size
    fits = lengths == size
    shape = len(column), size
    # filtered, for there may be numbers beneath a null
    flat = decode((column if fits.all() else column.filter(pa.array(fits))).flatten())
    values, nulls = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
    values[fits] = column_to_floats(flat, name).reshape(int(fits.sum()), size)
    if flat.null_count:
        nulls[fits] = flat.is_null().to_numpy(zero_copy_only=False).reshape(-1, size)
    nulls[lengths < 0] = True
    faults = {
        row: f"{name!r} has {int(lengths[row])} numbers instead of {size}"
        for row in np.flatnonzero((lengths >= 0) & ~fits).tolist()
    }
    return values, nulls, faults


def format_label(value: Any) -> str | None:
    """A label, time or kept value as text that files can hold; None where there is none."""
    is_none = is_null(value) or value != value
    return None if is_none else str(value).encode(errors="replace").decode()
