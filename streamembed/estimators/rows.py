"""Rows, labels and names as callers have them, made float64: what the river faces of metrics read.

Nothing is refused here that can be imputed: a value that is no usable number becomes NaN, and who
reads decides what stands in its place. `streamembed.batch` is the strict door, of the engine.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa
from river.utils.dataframe import to_native_frame

from streamembed.core.arrays import Array, Bools, Floats
from streamembed.errors import FeatureError, InputError

__all__ = ["LARGEST", "Rows", "booleans", "given_back", "in_order", "labels", "read"]

# Metrics multiply sums of squares with one another: fourth powers of larger values would leave the
# doubles, as would those of smaller ones, which count as 0.
LARGEST, SMALLEST = 1e75, 1e-75


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """A table of numbers on its way into an estimator.

    Attributes
    ----------
    values : (n, w)
        NaN where there is no usable number.
    names : tuple of str
        Of the w columns, in the caller's order.
    ordered : bool
        Whether columns are named by their place.
    present : (n, w)
        False where a dict does not have the key at all.
    frame
        The narwhals frame they came in, or None.
    """

    values: Floats
    names: tuple[str, ...]
    ordered: bool
    present: Bools
    frame: Any

    def __len__(self) -> int:
        return len(self.values)

    def check(self, names: tuple[str, ...]) -> None:
        """Refuse columns that cannot be told apart: an array of another width, names for places.

        Raises
        ------
        FeatureError
            Such columns. Names of which some are missing or unknown are fine.
        """
        if self.ordered and len(self.names) != len(names):
            raise FeatureError(
                f"X has {len(self.names)} columns; this metric learns {len(names)} features: "
                f"{list(names)}"
            )
        by_place = all(name.isdecimal() for name in names)
        if by_place and self.names and not set(self.names) & set(names):
            raise FeatureError(
                f"X has the features {list(self.names)}; this metric learned an array, whose "
                f"features are {list(names)}: hand in arrays, or start with names"
            )

    def aligned(self, names: tuple[str, ...]) -> tuple[Floats, int]:
        """The values in the order of ``names``, (n, d), and how many others there are.

        Raises
        ------
        FeatureError
            As `check`.
        """
        self.check(names)
        if self.ordered or self.names == names:
            return self.values, 0
        place = {name: j for j, name in enumerate(self.names)}
        values = np.full((len(self), len(names)), np.nan)
        for j, name in enumerate(names):
            if name in place:
                values[:, j] = self.values[:, place[name]]
        unknown = [j for name, j in place.items() if name not in set(names)]
        return values, int(np.count_nonzero(self.present[:, unknown]))

    def row(self, index: int) -> dict[str, float]:
        """One row as a dict, with NaN."""
        found = zip(self.names, self.values[index].tolist(), self.present[index], strict=True)
        return {name: value for name, value, present in found if present}


def in_order(names: set[str]) -> tuple[str, ...]:
    """Feature names in the order they always have: by name, or by place where all are places."""
    if all(name.isdecimal() for name in names):
        return tuple(sorted(names, key=int))
    return tuple(sorted(names))


def read(X: Any) -> Rows:
    """Rows of an array, a list of dicts, an Arrow table or record batch, or a data frame.

    Raises
    ------
    InputError
        Not tabular.
    FeatureError
        Two columns of one name; rows of several widths.
    """
    if isinstance(X, Mapping):
        raise InputError("X is a dict; one point is learn_one(x, y), or a list of one dict")
    if isinstance(X, Sequence) and not isinstance(X, (str, bytes)):
        if all(isinstance(row, Mapping) for row in X):
            return _from_dicts(X)
        try:
            X = np.asarray(X)
        except ValueError as error:
            raise FeatureError(f"the rows of X do not have one width: {error}") from error
    if isinstance(X, np.ndarray):
        return _from_array(X)
    if isinstance(X, pa.RecordBatch):
        X = pa.Table.from_batches([X])
    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise FeatureError(f"X has columns of the same name: {error}") from error
    if not isinstance(frame, nw.DataFrame) and hasattr(X, "__arrow_c_stream__"):
        frame = nw.from_native(pa.table(X), eager_only=True)
    if not isinstance(frame, nw.DataFrame):
        raise InputError(
            f"X is a {type(X).__name__}; it must be a 2-D array, a list of dicts, an Arrow table "
            "or record batch, or a data frame"
        )
    return _from_frame(frame)


def _rows(values: Floats, names: Sequence[str], ordered: bool, frame: Any = None) -> Rows:
    """Rows that all have every column."""
    with np.errstate(invalid="ignore"):
        usable = np.abs(values) <= LARGEST
    values = np.where(usable, np.where(np.abs(values) < SMALLEST, 0.0, values), np.nan)
    return Rows(values, tuple(names), ordered, np.ones(values.shape, dtype=bool), frame)


def _from_array(X: Array) -> Rows:
    if X.ndim != 2:
        raise FeatureError(
            f"X has shape {X.shape}; it must be (n, d), one row a point: reshape one point to "
            "(1, d)"
        )
    names = [str(j) for j in range(X.shape[1])]
    if X.dtype.kind in "biuf":
        return _rows(np.array(X, dtype=np.float64, order="C"), names, True)
    numbers = [[_number(value) for value in row] for row in X.tolist()]
    return _rows(np.array(numbers, dtype=np.float64).reshape(X.shape), names, True)


def _from_dicts(X: Sequence[Mapping[Any, Any]]) -> Rows:
    names = list(dict.fromkeys(str(name) for row in X for name in row))
    place = {name: j for j, name in enumerate(names)}
    values = np.full((len(X), len(names)), np.nan)
    present = np.zeros(values.shape, dtype=bool)
    for i, row in enumerate(X):
        for name, value in row.items():
            j = place[str(name)]
            values[i, j] = _number(value)
            present[i, j] = True
    return Rows(values, tuple(names), False, present, None)


def _from_frame(frame: Any) -> Rows:
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise FeatureError(f"X has columns of the same name: {names}")
    values = np.empty((len(frame), len(names)))
    for j, name in enumerate(frame.columns):
        column = frame.get_column(name)
        if column.dtype.is_numeric() and not column.null_count():
            values[:, j] = column.to_numpy()
        else:
            values[:, j] = [_number(value) for value in column.to_list()]
    return _rows(values, names, False, frame)


def _number(value: Any) -> float:
    """A usable float, or NaN for whatever must be imputed."""
    if value is None or isinstance(value, (str, bytes)):
        return math.nan
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    if abs(number) < SMALLEST:
        return 0.0
    return number if abs(number) <= LARGEST else math.nan


def given_back(coordinates: Floats, X: Any, frame: Any) -> Any:
    """Coordinates (n, m) as the kind of table that X is; columns 0 to m - 1.

    As strings where frames must have strings; a pandas frame keeps its index.
    """
    columns = range(coordinates.shape[1])
    if isinstance(X, pa.RecordBatch):
        return pa.record_batch({str(j): coordinates[:, j] for j in columns})
    if frame is not None:
        return to_native_frame({j: coordinates[:, j] for j in columns}, like=frame)
    if isinstance(X, np.ndarray) or not all(isinstance(row, Mapping) for row in X):
        return coordinates
    return [dict(enumerate(row)) for row in coordinates.tolist()]


def labels(y: Any, n: int) -> list[Hashable | None]:
    """n labels as plain Python objects, None where there is none (None, NaN, NaT, NA).

    Raises
    ------
    InputError
        No labels, of another length, or one that cannot be a key.
    """
    return [_label(value) for value in _listed(y, n, "y", "one label a row")]


def booleans(similar: Any, n: int) -> list[bool | None]:
    """n answers to "similar?", None where there is none.

    Raises
    ------
    InputError
        Another length, or what is neither a boolean nor 0 or 1.
    """
    answers = [_label(value) for value in _listed(similar, n, "similar", "one boolean a pair")]
    for answer in answers:
        if answer is not None and answer not in (0, 1):
            raise InputError(
                f"similar holds {answer!r}; it must be True or False (or 1 or 0) for every pair: "
                "labels of +1 and -1 are similar=(y == 1)"
            )
    return [None if answer is None else bool(answer) for answer in answers]


def _listed(values: Any, n: int, name: str, what: str) -> list[Any]:
    """An array, a series, an Arrow array or a sequence as a list of n."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        values = values.to_pylist()
    if not isinstance(values, (list, tuple, np.ndarray)):
        series = nw.from_native(values, series_only=True, pass_through=True)
        if isinstance(series, nw.Series):
            values = series.to_list()
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise InputError(f"{name} has shape {values.shape}; it must be ({n},), {what}")
        values = values.tolist()
    if not isinstance(values, Sequence) or isinstance(values, (str, bytes)):
        raise InputError(f"{name} is {values!r}; it must be a sequence of {n}, {what}")
    if len(values) != n:
        raise InputError(f"{name} has {len(values)} entries; it must have {n}, {what}")
    return list(values)


def _label(value: Any) -> Hashable | None:
    """The label as a plain value that can be a key, or None; `label_key` tells which are equal."""
    if isinstance(value, (np.generic, pa.Scalar)):
        value = value.item() if isinstance(value, np.generic) else value.as_py()
    # NaN and NaT differ from themselves; pandas' NA does not say, and pandas may be absent
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    try:
        hash(value)
    except TypeError as error:
        raise InputError(f"the label {value!r} cannot be a key: {error}") from error
    key: Hashable = value
    return key if key == key else None
