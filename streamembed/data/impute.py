"""Rows, labels and names as callers have them, made float64: what the river faces of metrics read.

Nothing is refused here that can be imputed: a value that is no usable number becomes NaN, and who
reads decides what stands in its place. `streamembed.data.batch` is the strict door, of the engine.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa
from river.utils.dataframe import to_native_frame

from streamembed.data import batch
from streamembed.errors import FeatureError, InputError, shown
from streamembed.numeric.arrays import Array, Bools, Floats

__all__ = [
    "LARGEST",
    "Rows",
    "are_places",
    "check_pairs",
    "frame_of",
    "given_back",
    "in_order",
    "labels",
    "names_of_columns",
    "one_point",
    "read",
    "read_one",
    "usable",
]

# Metrics multiply sums of squares with one another: fourth powers of larger values would leave the
# doubles, as would those of smaller ones, which count as 0.
LARGEST, SMALLEST = 1e75, 1e-75
LONGEST_PLACE = 10  # digits: a longer name is a number of something else


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

    @property
    def is_dicts(self) -> bool:
        """Whether it came as dicts, one a row."""
        return self.frame is None and not self.ordered

    def check(self, names: tuple[str, ...]) -> None:
        """Refuse columns that cannot be told apart: an array of another width, names for places.

        Raises
        ------
        FeatureError
            Such columns. Names of which some are missing or unknown are fine.
        """
        by_place = are_places(names)
        if self.ordered and names and not by_place:
            raise FeatureError(
                f"X has no feature names, and those that are known are {shown(list(names))}: pass "
                "a frame or dicts, so that columns cannot be mixed up"
            )
        if self.ordered and len(self.names) != len(names):
            raise FeatureError(
                f"X has {len(self.names)} columns; this metric learns {len(names)} features: "
                f"{shown(list(names))}"
            )
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
    if are_places(names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def are_places(names: Iterable[str]) -> bool:
    """Whether features are known by their place, as those of an array."""
    return all(name.isdecimal() and len(name) < LONGEST_PLACE for name in names)


def names_of_columns(names: tuple[str, ...]) -> tuple[str, ...] | None:
    """What a metric calls its columns: nothing where they are "0" to "d - 1", as of an array."""
    return None if names == tuple(map(str, range(len(names)))) else names


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
    if isinstance(X, Sequence) and not isinstance(X, (str, bytes, bytearray, memoryview)):
        if all(isinstance(row, Mapping) for row in X):
            return _from_dicts(X)
        X = batch.as_array(X)
    if isinstance(X, (np.ndarray, memoryview)):
        return _from_array(np.asanyarray(X))
    return _from_frame(frame_of(X))


def read_one(x: Any) -> Rows:
    """One point, a dict of its features; InputError for anything else."""
    return _from_dicts([one_point(x)])


def one_point(x: Any) -> Mapping[Any, Any]:
    """The dict that one point is; InputError for anything else."""
    if not isinstance(x, Mapping):
        raise InputError(
            f"x is {shown(x)}; it must be a dict of features by name: for arrays and frames there "
            "are learn_many and transform_many"
        )
    return x


def frame_of(X: Any) -> Any:
    """What callers have for a table, as a frame of narwhals.

    Raises
    ------
    InputError
        Not a table.
    FeatureError
        A table that cannot be read, for two columns of one name, for instance.
    """
    if isinstance(X, pa.RecordBatch):
        X = pa.Table.from_batches([X])
    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
        if not isinstance(frame, nw.DataFrame) and hasattr(X, "__arrow_c_stream__"):
            frame = nw.from_native(pa.table(X), eager_only=True)
    except Exception as error:  # a frame of somebody else's raises what it likes
        raise FeatureError(
            f"X is a {type(X).__name__} that has columns of the same name, or cannot be read: "
            f"{batch.said(error)}"
        ) from error
    if not isinstance(frame, nw.DataFrame):
        raise InputError(
            f"X is a {type(X).__name__}; it must be a 2-D array, a list of dicts, an Arrow table "
            "or record batch, or a data frame"
        )
    return frame


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
    if X.dtype.kind not in "biufO":
        raise FeatureError(f"X has dtype {X.dtype}; it must be numeric")
    if X.dtype.kind == "O" or np.ma.is_masked(X):
        numbers = [[usable(value) for value in row] for row in X.tolist()]
        return _rows(np.array(numbers, dtype=np.float64).reshape(X.shape), names, True)
    with np.errstate(over="ignore"):  # infinite then, and imputed
        return _rows(np.array(X, dtype=np.float64, order="C"), names, True)


def _from_dicts(X: Sequence[Mapping[Any, Any]]) -> Rows:
    named = [batch.row_by_name(row) for row in X]
    names = list(dict.fromkeys(name for row in named for name in row))
    place = {name: j for j, name in enumerate(names)}
    values = np.full((len(X), len(names)), np.nan)
    present = np.zeros(values.shape, dtype=bool)
    for i, row in enumerate(named):
        for name, value in row.items():
            j = place[name]
            values[i, j] = usable(value)
            present[i, j] = True
    return Rows(values, tuple(names), False, present, None)


def _from_frame(frame: Any) -> Rows:
    names = [batch.feature_name(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise FeatureError(f"X has columns of the same name: {shown(names)}")
    values = np.empty((len(frame), len(names)))
    for j, name in enumerate(frame.columns):
        column = frame.get_column(name)
        if column.dtype.is_float() and not column.null_count():
            values[:, j] = column.to_numpy()
        else:
            values[:, j] = [usable(value) for value in column.to_list()]
    return _rows(values, names, False, frame)


def usable(value: Any, largest: float = LARGEST, smallest: float = SMALLEST) -> float:
    """A usable float, or NaN for whatever must be imputed."""
    number = batch.as_number(value)
    if number is None:
        return math.nan
    if abs(number) < smallest:
        return 0.0
    return number if abs(number) <= largest else math.nan


def given_back(coordinates: Floats, X: Any, frame: Any) -> Any:
    """Coordinates (n, m) as the kind of table that X is; columns 0 to m - 1.

    As strings where frames must have strings; a pandas frame keeps its index.
    """
    columns = range(coordinates.shape[1])
    if isinstance(X, pa.RecordBatch):
        return pa.record_batch({str(j): coordinates[:, j] for j in columns})
    if frame is not None:
        return to_native_frame({j: coordinates[:, j] for j in columns}, like=frame)
    is_list = isinstance(X, Sequence) and not isinstance(X, memoryview)
    if not is_list or not all(isinstance(row, Mapping) for row in X):
        return coordinates
    return [dict(enumerate(row)) for row in coordinates.tolist()]


def labels(y: Any, n: int) -> list[Hashable | None]:
    """n labels as plain Python objects, None where there is none (None, NaN, NaT, NA).

    Raises
    ------
    InputError
        No labels, of another length, or one that cannot be a key.
    """
    return [_label(value) for value in batch.sequence_of(y, n, "y")]


def check_pairs(one: Rows, two: Rows) -> None:
    """Refuse ends of pairs that do not have the same features.

    Dicts need not have every feature: what one lacks is imputed.

    Raises
    ------
    FeatureError
        Arrays of several widths, frames of several names, an array beside names.
    """
    named = two if one.ordered else one
    if one.ordered != two.ordered and named.names and not are_places(named.names):
        bare, other = ("X1", "X2") if one.ordered else ("X2", "X1")
        raise FeatureError(
            f"{bare} has no feature names, and {other} has {shown(list(named.names))}: pass both "
            "as arrays, or both as frames or dicts"
        )
    if one.is_dicts or two.is_dicts or set(one.names) == set(two.names):
        return
    if one.ordered and two.ordered:
        raise FeatureError(
            f"X1 has {len(one.names)} columns and X2 has {len(two.names)}: both ends of a pair "
            "must have the same features"
        )
    raise FeatureError(
        f"X1 has the features {shown(sorted(one.names))} and X2 has {shown(sorted(two.names))}: "
        "both ends of a pair must have the same features"
    )


def _label(value: Any) -> Hashable | None:
    """The label as a plain value that can be a key, or None; `label_key` tells which are equal."""
    if isinstance(value, (np.generic, pa.Scalar)):
        value = value.item() if isinstance(value, np.generic) else value.as_py()
    # NaN and NaT differ from themselves; pandas' NA does not say, and pandas may be absent
    if value is None or value is np.ma.masked:
        return None
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    try:
        hash(value)
    except TypeError as error:
        raise InputError(f"the label {shown(value)} cannot be a key: {error}") from error
    key: Hashable = value
    return key if key == key else None
