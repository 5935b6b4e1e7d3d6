"""Anything tabular in, one checked `Batch` out: the only place where data is inspected.

Arrays, lists of dicts, Arrow tables and record batches, anything with an Arrow capsule and every
eager frame that narwhals knows become a float64 matrix with its columns in the engine's order.
Rows that cannot be learned are told apart by reason, never silently dropped.
"""

from __future__ import annotations

import array
import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral, Real
from types import NoneType
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa

from streamembed.errors import BadRowError, FeatureError, InputError, other_features, shown
from streamembed.numeric.arrays import Array, Floats, Ints

__all__ = [
    "Batch",
    "Rejected",
    "array_values",
    "arrow_of",
    "as_array",
    "as_number",
    "called",
    "checked",
    "column_values",
    "feature_name",
    "masked_row",
    "named_features",
    "read",
    "read_ids",
    "row_by_name",
    "said",
    "sequence_of",
    "typed_ids",
]

# Squares of larger values, summed over features, would leave the doubles.
LARGEST_VALUE = 1e150
# What errors of bad rows say to try, where rows are learned.
LEARNING = "nothing was learned: mend them, or set them aside with on_bad_row='skip'"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that was not learned: its index in the call, its id where it had one, and why."""

    index: int
    id: Hashable | None
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Rows ready to be learned or transformed.

    Attributes
    ----------
    points : (n, d)
        Finite, float64, C-contiguous, a copy of what was handed in.
    names : tuple of str
        The features, in column order.
    ordered : bool
        True where the columns were named by their place ("0", "1", ...), not by the caller.
    ids : (n,) or None
        int64, or objects that are all str, of any length each; None where the caller gave none.
    kept : (n,)
        Index in the call of each row.
    rejected : tuple of Rejected
        The other rows, ascending by index.
    """

    points: Floats
    names: tuple[str, ...]
    ordered: bool
    ids: Array | None
    kept: Ints
    rejected: tuple[Rejected, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """A matrix on its way to become a batch: nulls are NaN, marked; faults are by row."""

    values: Floats
    names: tuple[str, ...]
    ordered: bool
    nulls: Array
    faults: dict[int, str]


@contextmanager
def called(name: str) -> Iterator[None]:
    """What is said of X in here is said of the argument of that name; values in quotes stay."""
    try:
        yield
    except InputError as error:
        parts = re.split(r"('[^']*'|\"[^\"]*\")", str(error))
        told = "".join(
            [re.sub(r"\bX\b", name, part) if part[:1] not in ("'", '"') else part for part in parts]
        )
        error.args = (told, *error.args[1:])
        raise


def read(
    X: Any,
    ids: Any = None,
    names: tuple[str, ...] | None = None,
    ordered: bool = False,
    on_bad_row: str = "raise",
    remedy: str = LEARNING,
) -> Batch:
    """Return the rows of ``X`` as a checked batch, columns in the order of ``names``.

    Parameters
    ----------
    X
        ndarray or nested sequence (n, d); list of dicts; pyarrow Table or RecordBatch; an object
        with an Arrow capsule method; any eager frame that narwhals knows. Integers, booleans and
        floats become float64; dictionary-encoded columns are decoded; masked values are nulls. A
        `Batch` of those names is handed back as it is.
    ids
        One int or str a row, or None.
    names, ordered
        The features that the engine knows, and whether they are places; None to take those of X
        (named features are then ordered by name).
    on_bad_row
        "raise" refuses the whole call, "skip" sets bad rows aside in ``rejected``.
    remedy
        What an error of bad rows says to try.

    Raises
    ------
    FeatureError
        Wrong width, wrong names, a column that is not numeric, an empty feature set.
    BadRowError
        Under "raise": nulls, NaN, infinities, values beyond 1e150, missing features, null ids.
    InputError
        Not tabular, or ids that are not one whole number or string a row.
    """
    if isinstance(X, Batch):
        if names is not None and X.names != names:
            raise FeatureError(
                f"X has the features {shown(list(X.names))}; those that are known are "
                f"{shown(list(names))}"
            )
        return X
    columns = _columns(X, names)
    if names is not None:
        columns = _matched(columns, names, ordered)
    return checked(
        columns.values,
        columns.names,
        columns.ordered,
        columns.nulls,
        columns.faults,
        ids,
        on_bad_row,
        remedy,
    )


def checked(
    values: Floats,
    names: tuple[str, ...],
    ordered: bool,
    nulls: Array,
    faults: Mapping[int, str],
    ids: Any,
    on_bad_row: str,
    remedy: str = LEARNING,
) -> Batch:
    """The rows of a float64 matrix that can be learned, and the others by reason.

    Parameters
    ----------
    values
        Shape (n, d), NaN where a value is missing.
    nulls
        Shape (n, d), True where the source had a null; shape (0, 0) where it had none.
    faults
        Reasons known already, by row.
    """
    if values.shape[1] == 0:
        raise FeatureError("X has no features: it must have at least one numeric column")
    known = read_ids(ids, len(values))
    with np.errstate(invalid="ignore"):
        fine = (np.abs(values) <= LARGEST_VALUE).all(axis=1)
    null_ids = [] if known is None else [i for i, key in enumerate(known.tolist()) if key is None]
    if fine.all() and not faults and not null_ids:
        kept = np.arange(len(values), dtype=np.int64)
        return Batch(np.ascontiguousarray(values), names, ordered, typed_ids(known, kept), kept, ())
    reasons = {int(i): _reason(values[i], names, nulls, int(i)) for i in np.flatnonzero(~fine)}
    reasons.update(dict.fromkeys(null_ids, "the id is null"))
    reasons.update(faults)
    if on_bad_row == "raise":
        rows = tuple(sorted(reasons.items()))
        first = "; ".join(f"row {i}: {reason}" for i, reason in rows[:3])
        raise BadRowError(
            f"{len(rows)} of {len(values)} rows of X cannot be used ({first}); {remedy}",
            rows,
        )
    kept = np.array([i for i in range(len(values)) if i not in reasons], dtype=np.int64)
    rejected = tuple(
        Rejected(i, None if known is None else known[i], reasons[i]) for i in sorted(reasons)
    )
    return Batch(
        np.ascontiguousarray(values[kept]), names, ordered, typed_ids(known, kept), kept, rejected
    )


def _reason(row: Floats, names: tuple[str, ...], nulls: Array, index: int) -> str:
    """Why a row with a value that is not a usable number cannot be learned."""
    if nulls.size and nulls[index].any():
        return f"null in {names[int(np.argmax(nulls[index]))]!r}"
    for test, what in ((np.isnan(row), "NaN"), (np.isinf(row), "infinite value")):
        if test.any():
            return f"{what} in {names[int(np.argmax(test))]!r}"
    worst = int(np.argmax(np.abs(row)))
    return f"value {row[worst]:g} in {names[worst]!r}: beyond 1e150 its square overflows"


def read_ids(ids: Any, n: int) -> Array | None:
    """The ids as an array of int64 or of objects (str or int, None), or None.

    Raises
    ------
    InputError
        Not one id a row, or ids that are neither all strings nor all whole numbers of 64 bits.
    """
    if ids is None:
        return None
    if type(ids) is np.ndarray and ids.dtype.kind == "i" and ids.ndim == 1 and len(ids) == n:
        return ids.astype(np.int64)
    entries = sequence_of(ids, n, "ids")
    kinds = set(map(type, entries))
    if not kinds <= {int, str, NoneType}:
        entries = [_plain_id(key) for key in entries]
        kinds = set(map(type, entries))
    if kinds >= {int, str}:
        raise InputError(
            "ids holds whole numbers and strings, which cannot be told apart once written (1 and "
            "'1'); make all of them strings, or all of them numbers"
        )
    if kinds == {int}:
        try:
            return np.array(entries, dtype=np.int64)
        except OverflowError as error:
            large = next(key for key in entries if not -(2**63) <= key < 2**63)
            raise InputError(
                f"ids holds {shown(large)}; whole numbers must fit into 64 bits with a sign: use "
                "strings for larger ones"
            ) from error
    if int in kinds:  # and nulls
        read_ids([key for key in entries if key is not None], n - entries.count(None))
    if str in kinds:
        _check_unicode(entries)
    keys = np.empty(n, dtype=object)
    keys[:] = entries
    return keys


def _plain_id(key: Any) -> int | str | None:
    """An id as Python has it."""
    if key is None or key is np.ma.masked or _is_null(key):
        return None
    if isinstance(key, str):
        return str(key)
    if isinstance(key, Integral) and not isinstance(key, (bool, np.timedelta64)):
        return int(key)
    raise InputError(f"ids holds {shown(key)}; ids must be all strings, or all whole numbers")


def _check_unicode(entries: Sequence[str | None]) -> None:
    """Refuse what no file can hold: half of a pair of surrogates."""
    try:
        "".join(key for key in entries if key is not None).encode()
    except UnicodeEncodeError as error:
        raise InputError(f"ids holds text that is not valid Unicode ({error})") from error


def typed_ids(known: Array | None, kept: Ints) -> Array | None:
    """The ids of the rows that stay, as int64, or as objects that are all str."""
    if known is None:
        return None
    chosen: Array = known[kept]
    if chosen.dtype == object and len(chosen) and not isinstance(chosen[0], str):
        return chosen.astype(np.int64)
    return chosen


def sequence_of(values: Any, n: int, name: str) -> list[Any]:
    """One entry a row as a list: of a sequence, array, series or Arrow array; a mask is None.

    Raises
    ------
    InputError
        Not a sequence (a set has no order, a dict has keys), or not n entries.
    """
    found: Any = None
    if isinstance(values, (list, tuple)):
        found = values
    elif isinstance(values, (pa.Array, pa.ChunkedArray)):
        found = values.to_pylist()
    elif isinstance(values, (np.ndarray, memoryview)):
        one = values if isinstance(values, np.ndarray) else np.asarray(values)
        if one.ndim != 1 or one.dtype.kind in "mM":
            raise InputError(
                f"{name} has shape {one.shape} and dtype {one.dtype}; it must be ({n},), one "
                "number or string a row"
            )
        found = one.tolist()
    elif isinstance(values, Sequence) and not isinstance(values, (str, bytes, bytearray)):
        found = list(values)
    else:
        series = nw.from_native(values, series_only=True, pass_through=True)
        if isinstance(series, nw.Series):
            found = series.to_list()
        elif hasattr(values, "__array__"):  # an index of pandas, a tensor
            return sequence_of(np.asarray(values), n, name)
    if found is None:
        raise InputError(
            f"{name} is a {type(values).__name__}; it must be a list, an array or a series of {n}, "
            "one a row"
        )
    if len(found) != n:
        raise InputError(f"{name} has {len(found)} entries; it must have {n}, one a row")
    return list(found)


def _is_null(value: Any) -> bool:
    """NaN, NaT, NA: what differs from itself, or is called so; pandas may be absent."""
    if type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float) and value != value


def _columns(X: Any, names: tuple[str, ...] | None) -> _Columns:
    """Dispatch on what X is."""
    if isinstance(X, (np.ndarray, memoryview, array.array)):
        return _from_array(np.asanyarray(X))
    if isinstance(X, pa.RecordBatch):
        return _from_arrow(pa.Table.from_batches([X]))
    if isinstance(X, pa.Table):
        return _from_arrow(X)
    if isinstance(X, Mapping):
        raise InputError("X is a dict; one point x is a list of one dict: pass [x]")
    if isinstance(X, Sequence) and not isinstance(X, (str, bytes, bytearray)):
        if len(X) and all(isinstance(row, Mapping) for row in X):
            return _from_dicts(X, names)
        return _from_array(as_array(X))
    columns = _from_arrow(arrow_of(X))
    if columns.nulls.size and _mixes_nulls(X):
        for i in np.flatnonzero(columns.nulls.any(axis=1)).tolist():
            name = columns.names[int(np.argmax(columns.nulls[i]))]
            columns.faults[i] = f"null or NaN in {name!r}"
    return columns


def _mixes_nulls(X: Any) -> bool:
    """Whether this frame has one thing for null and NaN, as those of pandas have."""
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    return isinstance(frame, nw.DataFrame) and frame.implementation.is_pandas_like()


def arrow_of(X: Any) -> Any:
    """A frame, or what has an Arrow capsule, as an Arrow table; InputError for anything else."""
    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
        if isinstance(frame, nw.DataFrame):
            if all(type(name) is str for name in frame.columns):
                return frame.to_arrow().select(frame.columns)
            if any(isinstance(name, tuple) for name in frame.columns):
                raise FeatureError(
                    f"X has columns of several levels ({shown(frame.columns)}): join their names "
                    "into one text each"
                )
            # pyarrow would take whole numbers for places, and warns of mixed names
            columns = [frame.get_column(name).to_arrow() for name in frame.columns]
            return pa.table(columns, names=[feature_name(name) for name in frame.columns])
        if hasattr(X, "__arrow_c_stream__"):
            return pa.table(X)
        if hasattr(X, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(X)])
    except FeatureError:
        raise
    # a frame of somebody else's: what it raises when its columns are no columns of Arrow is its own
    except Exception as error:
        raise FeatureError(
            f"X is a {type(X).__name__} that has a column that is not numeric, or two of the same "
            f"name: {said(error)}"
        ) from error
    hint = ": pass X.toarray()" if hasattr(X, "toarray") else ""
    raise InputError(
        f"X is a {type(X).__name__}; it must be a 2-D array, a list of dicts, an Arrow table or "
        f"record batch, or a data frame{hint}"
    )


def said(error: BaseException) -> str:
    """The first line of what an exception says, or its name."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def as_array(X: Sequence[Any]) -> Array:
    """Nested sequences as an array, masks kept; FeatureError where they have several widths."""
    try:
        if any(isinstance(row, np.ma.MaskedArray) or _has_mask(row) for row in X):
            return np.ma.array([masked_row(row) for row in X])
        rows: Array = np.asarray(X)
    except (ValueError, TypeError, OverflowError) as error:
        raise FeatureError(
            f"the rows of X do not have the same width, or hold no numbers: {said(error)}"
        ) from error
    return rows


def _has_mask(row: Any) -> bool:
    return isinstance(row, (list, tuple)) and any(value is np.ma.masked for value in row)


def masked_row(row: Any) -> Any:
    """A row of numbers as an array, masked where `numpy.ma.masked` stands among them.

    numpy itself would make NaN of it, and warn.
    """
    if not _has_mask(row):
        return np.asanyarray(row)
    mask = [value is np.ma.masked for value in row]
    values = [0.0 if value is np.ma.masked else value for value in row]
    return np.ma.array(values, mask=mask)


def _from_array(X: Array) -> _Columns:
    if X.ndim != 2:
        raise FeatureError(
            f"X has shape {X.shape}; it must be (n, d), one row a point: reshape one point to "
            "(1, d)"
        )
    names = tuple(map(str, range(X.shape[1])))
    nulls = np.zeros((0, 0), dtype=bool)
    if isinstance(X, np.ma.MaskedArray):
        if np.ma.is_masked(X):
            nulls = np.ma.getmaskarray(X)
        X = np.ma.getdata(X)
    if X.dtype.kind == "O":
        values = np.array([[_element(value, X) for value in row] for row in X.tolist()])
        values = values.reshape(X.shape).astype(np.float64)
    elif X.dtype.kind in "biuf":
        with np.errstate(over="ignore"):  # beyond the doubles is infinite, and a bad row
            values = np.array(X, dtype=np.float64, order="C")
    else:
        raise FeatureError(
            f"X has dtype {X.dtype}; it must be numeric: integers, floats or booleans"
        )
    if nulls.size:
        values[nulls] = np.nan
    return _Columns(values, names, True, nulls, {})


def array_values(X: Any) -> Floats:
    """A matrix (n, d) of numbers, whatever they are; FeatureError or InputError for anything else.

    NaN where one is masked or missing, infinite where it leaves the doubles.
    """
    if isinstance(X, Sequence) and not isinstance(X, (str, bytes, bytearray, memoryview)):
        return _from_array(as_array(X)).values
    try:
        table = np.asanyarray(X)
    except Exception as error:  # of somebody else's __array__
        raise InputError(f"{shown(X)} is no array ({said(error)})") from error
    return _from_array(table).values


def _element(value: Any, X: Array) -> float:
    number = as_number(value)
    if number is None:
        raise FeatureError(
            f"X has dtype {X.dtype} and holds what is no number ({shown(value)}); it must be "
            "numeric"
        )
    return number


def as_number(value: Any) -> float | None:
    """A number of any kind as a float, infinite where it is too large; None where it is none.

    Text that reads as a number, dates and spans of time, and complex numbers are none.
    """
    if type(value) is float:
        return value
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


def named_features(names: Iterable[Any]) -> tuple[str, ...]:
    """Feature names as str, in the order that named features always have: by name."""
    return tuple(sorted(feature_name(name) for name in names))


def feature_name(name: Any) -> str:
    """A name as text; FeatureError where it has none, or one that no file can hold."""
    try:
        text = str(name)
        text.encode()
    except Exception as error:  # of somebody else's __str__; half a pair of surrogates; 10**5000
        raise FeatureError(f"a feature cannot be called {shown(name)} ({said(error)})") from error
    return text


def row_by_name(row: Mapping[Any, Any]) -> dict[str, Any]:
    """One point as a dict with text for keys; FeatureError where two keys are the same text."""
    named = {name if type(name) is str else feature_name(name): row[name] for name in row}
    if len(named) < len(row):
        names = [feature_name(name) for name in row]
        twice = next(name for name in names if names.count(name) > 1)
        raise FeatureError(
            f"two features are called {shown(twice)}, such as 1 and '1'; rename one of them"
        )
    return named


def column_values(column: Any, name: str) -> Floats:
    """An Arrow column as float64, NaN for null; FeatureError where it is not numeric."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif not numeric:
        raise FeatureError(f"column {name!r} has type {kind}; features must be numeric")
    if column.type == pa.float16():
        column = column.cast(pa.float32())
    values: Floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values


def _from_arrow(table: Any) -> _Columns:
    names = [feature_name(name) for name in table.column_names]
    if len(set(names)) < len(names):
        raise FeatureError(f"X has columns of the same name: {shown(names)}")
    order = named_features(names)
    values = np.empty((table.num_rows, len(names)))
    nulls: Array = np.zeros((0, 0), dtype=bool)
    for j, name in enumerate(order):
        column = table.column(names.index(name)).combine_chunks()
        values[:, j] = column_values(column, name)
        if column.null_count:
            if not nulls.size:
                nulls = np.zeros(values.shape, dtype=bool)
            nulls[:, j] = column.is_null().to_numpy(zero_copy_only=False)
    return _Columns(values, order, False, nulls, {})


def _from_dicts(X: Sequence[Mapping[Any, Any]], names: tuple[str, ...] | None) -> _Columns:
    order = tuple(sorted(row_by_name(X[0]))) if names is None else names
    wanted = set(order)
    values = np.full((len(X), len(order)), np.nan)
    nulls = np.zeros(values.shape, dtype=bool)
    faults: dict[int, str] = {}
    for i, row in enumerate(X):
        try:
            found = row_by_name(row)
        except FeatureError as error:
            faults[i] = str(error)
            continue
        if found.keys() != wanted:
            missing = sorted(wanted - found.keys())
            unknown = sorted(found.keys() - wanted)
            what = f"missing features {shown(missing)}"
            faults[i] = what if missing else f"unknown features {shown(unknown)}"
            continue
        for j, name in enumerate(order):
            value = found[name]
            number = as_number(value)
            if number is not None:
                values[i, j] = number
            elif value is None or value is np.ma.masked or type(value).__name__ == "NAType":
                nulls[i, j] = True
            else:
                faults[i] = f"{shown(value)} in {name!r} is not a number"
                break
    return _Columns(values, order, False, nulls, faults)


def _matched(columns: _Columns, names: tuple[str, ...], ordered: bool) -> _Columns:
    """The same columns in the engine's order, or an error that says what is missing."""
    if columns.ordered:
        if not ordered:
            raise FeatureError(
                f"X has no feature names, and those that are known are {shown(list(names))}: pass "
                "a frame or dicts, so that columns cannot be mixed up"
            )
        if columns.values.shape[1] != len(names):
            raise FeatureError(
                f"X has {columns.values.shape[1]} columns; it must have {len(names)}: "
                f"{shown(list(names))}"
            )
        return columns
    if set(columns.names) != set(names):
        raise FeatureError(other_features("X", columns.names, names))
    if columns.names == names:
        return columns
    place = [columns.names.index(name) for name in names]
    nulls = columns.nulls[:, place] if columns.nulls.size else columns.nulls
    return _Columns(columns.values[:, place], names, ordered, nulls, columns.faults)
