"""Any table that callers have, read once: the one place where columns become float64.

Nothing is judged here but what no reader could use: what is neither array, dicts nor frame, and
columns of one name. Two policies stand on what is read: `streamembed.data.batch` refuses, for the
engine; `streamembed.data.impute` leaves gaps, for the river estimators. Both have the same numbers.
"""

from __future__ import annotations

import array
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Self, TypeGuard

import numpy as np
import pyarrow as pa

from streamembed.data.values import (
    NO_NULLS,
    as_number,
    column_to_floats,
    decode,
    find_storage_type,
    holds_vectors,
    is_list_type,
    is_null,
    is_sequence,
    lists_to_matrix,
    load_narwhals,
    to_floats,
    to_rectangular_array,
)
from streamembed.errors import FeatureError, InputError, quote, summarise_error
from streamembed.numeric.arrays import Array, Bools, Floats

LONGEST_PLACE = 10  # digits: a longer name is a number of something else
# A number of a vector that is learned beside other features.
VECTOR_PART = re.compile(r"(.+)\[\d+\]")
_ABSENT = object()
NOTHING = np.zeros((0, 0)), NO_NULLS


@dataclass(frozen=True, slots=True, eq=False)
class NumericTable:
    """A table as numbers."""

    # (n, d): Fresh; NaN where there is no number, infinite where one leaves the doubles.
    values: Floats
    names: tuple[str, ...]  # of the d columns, all different, in the caller's order
    ordered: bool  # True where columns are named by their place ("0", "1", ...), not by the caller
    # (n, d): where the source has a null, and where a dict does not have the key; shape (0, 0)
    # where there is no such thing.
    nulls: Bools = field(default_factory=lambda: NO_NULLS)
    absent: Bools = field(default_factory=lambda: NO_NULLS)
    # Rows of dicts that do not have exactly the features that were asked for, or of which one is no
    # number, and why.
    faults: dict[int, str] = field(default_factory=dict)
    # What a reader must raise who takes numbers alone: some column holds something else.
    refused: FeatureError | None = None
    is_dicts: bool = False  # whether it came as dicts, one a row

    def check_numeric(self) -> Self:
        """Itself, where every column holds numbers; else the FeatureError."""
        if self.refused is not None:
            raise self.refused
        return self


def read_table(X: Any, wanted: tuple[str, ...] | None = None, name: str = "X") -> NumericTable:
    """Return any table as numbers.

    Parameters
    ----------
    X
        ndarray or nested sequence (n, d); list of dicts; pyarrow Table, RecordBatch or array of
        lists; an object with an Arrow capsule method; any eager frame that narwhals knows; a
        `InputFrame` of these.
        Integers, booleans and floats become float64; dictionary-encoded columns are decoded; masked
        values are nulls. A single column of lists of numbers is as many features by place.
    wanted
        See `read_dicts`. Of a frame whose one column holds lists, as many numbers as each must
        have, if any has; of no meaning for other tables.
    name
        The argument, for messages.

    Raises
    ------
    InputError
        Not tabular.
    FeatureError
        Two columns of one name, rows of several widths, an array that is no matrix of numbers.
    """
    if isinstance(X, Mapping):
        raise InputError(
            f"{name} is a dict; it must be a list of dicts: for a single point x pass [x]"
        )
    if isinstance(X, (np.ndarray, memoryview, array.array)):
        return _from_array(np.asanyarray(X), name)
    if are_dicts(X):
        return read_dicts(X, wanted)
    if is_sequence(X):
        return _from_array(to_rectangular_array(X, name), name)
    return _from_frame(open_frame(X, name), wanted)


def are_dicts(X: Any) -> TypeGuard[Sequence[Mapping[Any, Any]]]:
    """Whether a table is a list of dicts; one without rows is."""
    if not is_sequence(X) or isinstance(X, array.array):
        return False
    return all(type(row) is dict or isinstance(row, Mapping) for row in X)


def check_point(x: Any) -> Mapping[Any, Any]:
    """The dict that one point is; InputError for anything else."""
    if not isinstance(x, Mapping):
        raise InputError(
            f"x is {quote(x)}; it must be a dict of features by name: for arrays and data frames "
            "use learn_many and transform_many"
        )
    return x


# ------------------------------------------------------------------------------------------- names


def sort_names(names: Iterable[Any]) -> tuple[str, ...]:
    """Feature names as text, in the order that they always have.

    By name; by place where all are places, so that "10" comes after "9".

    Raises
    ------
    FeatureError
        As `to_feature_name`.
    """
    texts = sorted(name if type(name) is str else to_feature_name(name) for name in names)
    if are_positions(texts):
        texts.sort(key=int)
    return tuple(texts)


def are_positions(names: Iterable[str]) -> bool:
    """Whether features are known by their place, as those of an array."""
    return all(name.isdecimal() and len(name) < LONGEST_PLACE for name in names)


def parse_vector_name(name: str) -> str | None:
    """The vector of which a feature of that name is a number; None for other features."""
    match = VECTOR_PART.fullmatch(name)
    return None if match is None else match[1]


def check_array_columns(
    table: NumericTable, names: Sequence[str], ordered: bool, learner: str, name: str
) -> None:
    """Refuse an array where features are known by name, or are not as many as its columns."""
    if not ordered:
        raise FeatureError(
            f"{name} has no feature names, but the features are known by name "
            f"({quote(list(names))}): pass a data frame or dicts, so that columns cannot be mixed "
            "up"
        )
    if len(table.names) != len(names):
        raise FeatureError(
            f"{name} has {len(table.names)} columns; {learner} {len(names)}: {quote(list(names))}"
        )


def to_feature_name(name: Any) -> str:
    """A name as text; FeatureError where it has none, or one that no file can hold."""
    try:
        text = str(name)
        text.encode()
    except MemoryError:
        raise
    except Exception as error:  # of a foreign __str__; half a pair of surrogates; 10**5000
        raise FeatureError(
            f"a feature cannot be called {quote(name)} ({summarise_error(error)})"
        ) from error
    return text


def with_text_keys(row: Mapping[Any, Any]) -> dict[str, Any]:
    """One point, or itself, with text for keys; FeatureError where two keys are the same text."""
    if type(row) is dict and set(map(type, row)) == {str}:
        return row
    renamed = {name if type(name) is str else to_feature_name(name): row[name] for name in row}
    if len(renamed) < len(row):
        number = Counter(to_feature_name(name) for name in row)
        repeated = next(name for name in number if number[name] > 1)
        raise FeatureError(
            f"two features have the same name {quote(repeated)}, such as 1 and '1'; rename "
            "one of them"
        )
    return renamed


# ---------------------------------------------------------------------------------- kinds of table


def _from_array(X: Array, name: str) -> NumericTable:
    if X.dtype.names is not None:
        raise FeatureError(
            f"{name} is a structured array of {list(X.dtype.names)}: pass pandas.DataFrame({name})"
        )
    if X.ndim != 2:
        raise FeatureError(
            f"{name} has shape {X.shape}; it must be (n, d), one row per point: reshape a single "
            "point to (1, d)"
        )
    if X.dtype.kind not in "biufO":
        raise FeatureError(
            f"{name} has dtype {X.dtype}; it must be numeric: integers, floats or booleans"
        )
    values, nulls, strays = to_floats(X)
    refused = None
    if strays:
        refused = FeatureError(
            f"{name} has dtype {X.dtype} and a value that is not a number ({quote(strays[0])}); "
            "all must be numeric"
        )
    names = tuple(map(str, range(X.shape[1])))
    return NumericTable(values, names, True, nulls=nulls, refused=refused)


def read_dicts(
    X: Sequence[Mapping[Any, Any]], wanted: tuple[str, ...] | None = None
) -> NumericTable:
    """Return dicts, one a row, as a table.

    Parameters
    ----------
    wanted
        The columns, where every row must have exactly these features: other rows have a fault.
        None takes every feature that some row has.

    Raises
    ------
    FeatureError
        Without ``wanted``: two keys of a row are the same text.
    """
    rows: list[dict[str, Any]] = []
    faults: dict[int, str] = {}
    for i, row in enumerate(X):
        try:
            rows.append(with_text_keys(row))
        except FeatureError as error:
            if wanted is None:
                raise
            rows.append({})
            faults[i] = str(error)
    names = tuple(dict.fromkeys(chain.from_iterable(rows))) if wanted is None else wanted
    expected = set(names)
    values = np.empty((len(X), len(names)))
    nulls, absent = np.zeros((2, *values.shape), dtype=bool)
    for i, row in enumerate(rows):
        if wanted is not None and row.keys() != expected:
            faults.setdefault(i, _describe_keys(row.keys(), expected))
            values[i] = np.nan
            continue
        numbers = cells = [row.get(name, _ABSENT) for name in names]
        if set(map(type, cells)) != {float}:
            numbers = list(map(as_number, cells))
        if None in numbers:
            for j in [j for j, number in enumerate(numbers) if number is None]:
                numbers[j] = math.nan
                if cells[j] is _ABSENT:
                    absent[i, j] = True
                elif is_null(cells[j]):
                    nulls[i, j] = True
                elif wanted is not None:
                    faults.setdefault(i, f"{quote(cells[j])} in {names[j]!r} is not a number")
                elif is_sequence(cells[j]) or isinstance(cells[j], np.ndarray):
                    raise FeatureError(
                        f"the value of {names[j]!r} is a sequence, and a feature is a number: make "
                        "each of its numbers a feature, for example dict(enumerate(vector))"
                    )
        values[i] = numbers
    return NumericTable(
        values, names, False, nulls=nulls, absent=absent, faults=faults, is_dicts=True
    )


def _describe_keys(keys: Collection[str], wanted: set[str]) -> str:
    """What is wrong with the features of a row."""
    missing = sorted(wanted.difference(keys))
    if missing:
        return f"missing features {quote(missing)}"
    return f"unknown features {quote(sorted(set(keys) - wanted))}"


def _from_frame(X: InputFrame, wanted: tuple[str, ...] | None) -> NumericTable:
    """The numbers of a frame; of a column of lists one a place, and beside others with its name."""
    sizes, parts = Counter(map(parse_vector_name, wanted or ())), list[tuple[Floats, Bools]]()
    names, faults, refused, ordered = list[str](), dict[int, str](), None, False
    for name, column in X.columns.items():
        kind, is_named = getattr(column, "type", None), name in sizes
        is_alone = len(X.columns) == 1 and not is_named
        is_known = is_named or (is_alone and wanted is not None and are_positions(wanted))
        if kind is not None and (holds_vectors(kind) or (kind == pa.null() and is_known)):
            size = len(wanted or ()) if is_alone else sizes[name]
            size = getattr(find_storage_type(kind), "list_size", size)
            values, nulls, wrong = lists_to_matrix(column, name, size or None)
            faults, ordered = faults | wrong, is_alone
            names += [str(j) if is_alone else f"{name}[{j}]" for j in range(values.shape[1])]
        else:
            values, nulls, error = _read_column(column, name, X.argument)
            refused = refused or error
            names.append(name)
        parts.append((values, nulls))
    values, nulls = map(np.column_stack, zip(*parts, strict=True)) if parts else NOTHING
    nulls = NO_NULLS if X.mixes_nulls and not ordered else nulls
    return NumericTable(values, tuple(names), ordered, nulls, faults=faults, refused=refused)


def _read_column(
    column: Any, name: str, argument: str
) -> tuple[Floats, Bools, FeatureError | None]:
    """Numbers and nulls of a column, (n,), NaN where there is no number; why it is refused."""
    if isinstance(column, list):
        numbers, nulls = list(map(as_number, column)), np.array(list(map(is_null, column)), bool)
        values = np.array([math.nan if number is None else number for number in numbers], float)
        strays = [row for row, number in enumerate(numbers) if number is None and not nulls[row]]
        if not strays:
            return values, nulls, None
        what = f"it has {quote(column[strays[0]])}"
        return values, nulls, FeatureError(f"column {name!r} of {argument} is not numeric: {what}")
    arrow = decode(column)
    nulls = arrow.is_null().to_numpy(zero_copy_only=False)
    try:
        return column_to_floats(arrow, name), nulls, None
    except FeatureError as error:
        return np.full(len(arrow), np.nan), nulls, error


@dataclass(frozen=True, slots=True, eq=False)
class InputFrame:
    """A data frame or an Arrow table, its columns in Arrow."""

    columns: Mapping[str, Any]  # by name; lists of values where Arrow has no type for them
    argument: str = "X"  # what it was passed as, for messages
    mixes_nulls: bool = False  # whether NaN stands for null there, as in pandas

    @property
    def names(self) -> tuple[str, ...]:
        """Of its columns."""
        return tuple(self.columns)

    def select(self, names: Iterable[str]) -> InputFrame:
        """Some of the columns, in the order of the frame."""
        wanted = set(names)
        return replace(self, columns={n: c for n, c in self.columns.items() if n in wanted})


def is_frame(X: Any) -> bool:
    """Whether `read_table` takes it for a data frame or an Arrow table, or refuses it as none."""
    if isinstance(X, (Mapping, np.ndarray, memoryview, array.array)):
        return False
    return isinstance(X, InputFrame) or not is_sequence(X)


def open_frame(X: Any, name: str = "X") -> InputFrame:
    """A data frame, an Arrow table, or what has an Arrow capsule, read.

    ``name`` is that of the argument.

    Raises
    ------
    InputError
        It is none of these.
    FeatureError
        Two columns of one name, names of several levels, or an object that cannot be read.
    """
    if isinstance(X, InputFrame):
        return X
    nw = load_narwhals()
    try:
        frame = nw.from_native(X, eager_only=True, allow_series=True, pass_through=True)
        if isinstance(frame, nw.Series):
            frame = frame.to_arrow()
        if isinstance(frame, pa.Array | pa.ChunkedArray) and not pa.types.is_struct(frame.type):
            frame = pa.table({"X": frame}) if is_list_type(frame.type) else None
        is_capsule = hasattr(frame, "__arrow_c_stream__") or hasattr(frame, "__arrow_c_array__")
        if is_capsule and not isinstance(frame, nw.DataFrame):
            frame = nw.from_native(pa.table(frame))
        if isinstance(frame, nw.DataFrame):
            return _read_frame(frame, name)
    except (FeatureError, MemoryError):
        raise
    # a foreign frame may raise anything when its columns are not columns of Arrow
    except Exception as error:
        raise FeatureError(
            f"{name} is a {type(X).__name__} with duplicate column names, or one that cannot be "
            f"read: {summarise_error(error)}"
        ) from error
    ways = {
        "collect": "{}.collect()",
        "__dlpack__": "numpy.from_dlpack({})",
        "__next__": "list({})",
        "toarray": "{}.toarray()",
    }
    hints = [f": pass {way.format(name)}" for kind, way in ways.items() if hasattr(X, kind)]
    raise InputError(
        f"{name} is a {type(X).__name__}; it must be a 2-D array, a list of dicts, an Arrow table "
        f"or record batch, or a data frame{''.join(hints[:1])}"
    )


def _read_frame(frame: Any, argument: str) -> InputFrame:
    """A frame of narwhals, column by column."""
    given = frame.columns
    if any(isinstance(name, tuple) for name in given):
        raise FeatureError(
            f"{argument} has multi-level columns ({quote(given)}): flatten their names, one text "
            "per column"
        )
    columns = {to_feature_name(own): _read_series(frame.get_column(own)) for own in given}
    if len(columns) < len(given):
        raise FeatureError(f"{argument} has duplicate column names: {quote(given)}")
    return InputFrame(columns, argument, frame.implementation.is_pandas_like())


def _read_series(series: Any) -> Any:
    """A column in Arrow, or the list of its values where Arrow has no type for them."""
    try:
        column = series.to_arrow()
    except MemoryError:
        raise
    except Exception:  # of what the library of the frame converts with
        return series.to_list()
    is_opaque = str(series.dtype) == "Object" and pa.types.is_fixed_size_binary(column.type)
    return series.to_list() if is_opaque else column
