"""Anything tabular in, one checked `Batch` out: the only place where data is inspected.

Arrays, lists of dicts, Arrow tables and record batches, anything with an Arrow capsule and every
eager frame that narwhals knows become a float64 matrix with its columns in the engine's order.
Rows that cannot be learned are told apart by reason, never silently dropped.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa

from streamembed.core.arrays import Array, Floats, Ints
from streamembed.errors import BadRowError, FeatureError, InputError

__all__ = [
    "Batch",
    "Rejected",
    "checked",
    "column_values",
    "named_features",
    "read",
    "read_ids",
    "typed_ids",
]

# Squares of larger values, summed over features, would leave the doubles.
LARGEST_VALUE = 1e150


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
        int64 or str, None where the caller gave none.
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


def read(
    X: Any,
    ids: Any = None,
    names: tuple[str, ...] | None = None,
    ordered: bool = False,
    on_bad_row: str = "raise",
) -> Batch:
    """Return the rows of ``X`` as a checked batch, columns in the order of ``names``.

    Parameters
    ----------
    X
        ndarray or nested sequence (n, d); list of dicts; pyarrow Table or RecordBatch; an object
        with an Arrow capsule method; any eager frame that narwhals knows. Integers, booleans and
        floats become float64; dictionary-encoded columns are decoded.
    ids
        One int or str a row, or None.
    names, ordered
        The features that the engine knows, and whether they are places; None to take those of X
        (named features are then ordered by name).
    on_bad_row
        "raise" refuses the whole call, "skip" sets bad rows aside in ``rejected``.

    Raises
    ------
    FeatureError
        Wrong width, wrong names, a column that is not numeric, an empty feature set.
    BadRowError
        Under "raise": nulls, NaN, infinities, values beyond 1e150, missing features, null ids.
    InputError
        Not tabular, or as many ids as rows do not come.
    """
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
    )


def checked(
    values: Floats,
    names: tuple[str, ...],
    ordered: bool,
    nulls: Array,
    faults: Mapping[int, str],
    ids: Any,
    on_bad_row: str,
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
            f"{len(rows)} of {len(values)} rows of X cannot be used ({first}); nothing was "
            "learned: mend them, or set them aside with on_bad_row='skip'",
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
    """The ids as an array of int64 or of objects (str, None), or None."""
    if ids is None:
        return None
    if isinstance(ids, (pa.Array, pa.ChunkedArray)):
        ids = ids.to_pylist()
    array = np.asarray(ids)
    if array.ndim != 1 or len(array) != n:
        raise InputError(f"ids has shape {array.shape}; it must be ({n},), one a row")
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    entries = array.tolist()
    if all(isinstance(key, str) or key is None for key in entries):
        return np.array(entries, dtype=object)
    if all((isinstance(key, int) and not isinstance(key, bool)) or key is None for key in entries):
        return np.array(entries, dtype=object)
    strange = next(key for key in entries if not isinstance(key, (str, type(None))))
    raise InputError(f"ids holds {strange!r}; ids must be whole numbers, or all of them strings")


def typed_ids(known: Array | None, kept: Ints) -> Array | None:
    """The ids of the rows that stay, as int64 or fixed-width str."""
    if known is None:
        return None
    chosen = known[kept]
    if chosen.dtype != object:
        return chosen
    entries = chosen.tolist()
    is_text = any(isinstance(key, str) for key in entries)
    return np.array(entries, dtype=np.str_ if is_text else np.int64)


def _columns(X: Any, names: tuple[str, ...] | None) -> _Columns:
    """Dispatch on what X is."""
    if isinstance(X, np.ndarray):
        return _from_array(X)
    if isinstance(X, pa.RecordBatch):
        return _from_arrow(pa.Table.from_batches([X]))
    if isinstance(X, pa.Table):
        return _from_arrow(X)
    if isinstance(X, Mapping):
        raise InputError(
            "X is a dict; one point is a list of one dict: learn([x]), or learn_one(x)"
        )
    if isinstance(X, Sequence) and not isinstance(X, (str, bytes)):
        if len(X) and all(isinstance(row, Mapping) for row in X):
            return _from_dicts(X, names)
        return _from_array(_as_array(X))
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        try:
            return _from_arrow(frame.to_arrow().select(frame.columns))
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise FeatureError(f"X has a column that is not numeric: {error}") from error
    if hasattr(X, "__arrow_c_stream__"):
        return _from_arrow(pa.table(X))
    if hasattr(X, "__arrow_c_array__"):
        return _from_arrow(pa.Table.from_batches([pa.record_batch(X)]))
    raise InputError(
        f"X is a {type(X).__name__}; it must be a 2-D array, a list of dicts, an Arrow table or "
        "record batch, or a data frame"
    )


def _as_array(X: Sequence[Any]) -> Array:
    try:
        rows: Array = np.asarray(X)
    except ValueError as error:
        raise FeatureError(f"the rows of X do not have the same width: {error}") from error
    return rows


def _from_array(X: Array) -> _Columns:
    if X.ndim != 2:
        raise FeatureError(
            f"X has shape {X.shape}; it must be (n, d), one row a point: reshape one point to "
            "(1, d)"
        )
    if X.dtype.kind not in "biuf":
        try:
            X = np.array([[float(value) for value in row] for row in X.tolist()]).reshape(X.shape)
        except (TypeError, ValueError) as error:
            raise FeatureError(
                f"X has dtype {X.dtype} and holds what is no number ({error}); it must be numeric"
            ) from error
    values = np.array(X, dtype=np.float64, order="C")
    return _Columns(values, tuple(map(str, range(X.shape[1]))), True, np.zeros((0, 0), bool), {})


def named_features(names: Sequence[Any]) -> tuple[str, ...]:
    """Feature names as str, in the order that named features always have: by name."""
    return tuple(sorted(str(name) for name in names))


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
    names = [str(name) for name in table.column_names]
    if len(set(names)) < len(names):
        raise FeatureError(f"X has columns of the same name: {names}")
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
    order = named_features(list(X[0])) if names is None else names
    values = np.full((len(X), len(order)), np.nan)
    nulls = np.zeros(values.shape, dtype=bool)
    faults: dict[int, str] = {}
    for i, row in enumerate(X):
        found = {str(key): value for key, value in row.items()}
        if found.keys() != set(order):
            missing = sorted(set(order) - found.keys())
            unknown = sorted(found.keys() - set(order))
            faults[i] = f"missing features {missing}" if missing else f"unknown features {unknown}"
            continue
        for j, name in enumerate(order):
            value = found[name]
            if value is None:
                nulls[i, j] = True
                continue
            if isinstance(value, (str, bytes)):
                faults[i] = f"{value!r} in {name!r} is not a number"
                break
            try:
                values[i, j] = value
            except (TypeError, ValueError):
                faults[i] = f"{value!r} in {name!r} is not a number"
                break
    return _Columns(values, order, False, nulls, faults)


def _matched(columns: _Columns, names: tuple[str, ...], ordered: bool) -> _Columns:
    """The same columns in the engine's order, or an error that says what is missing."""
    if columns.ordered:
        if columns.values.shape[1] != len(names):
            raise FeatureError(
                f"X has {columns.values.shape[1]} columns; this engine learns {len(names)}: "
                f"{list(names)}"
            )
        return columns
    if set(columns.names) != set(names):
        missing = sorted(set(names) - set(columns.names))
        unknown = sorted(set(columns.names) - set(names))
        raise FeatureError(
            f"X lacks the features {missing} and has the unknown {unknown}; this engine learns "
            f"{list(names)}"
        )
    if columns.names == names:
        return columns
    place = [columns.names.index(name) for name in names]
    nulls = columns.nulls[:, place] if columns.nulls.size else columns.nulls
    return _Columns(columns.values[:, place], names, ordered, nulls, columns.faults)
