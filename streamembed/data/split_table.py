"""A table that a caller passes, split by the roles of its columns: points, ids, labels, texts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from streamembed.data.batch import Batch
from streamembed.data.column_roles import (
    CHOOSE,
    RESERVED,
    ColumnCandidates,
    ColumnChoice,
    check_names,
    choose_event_columns,
    describe_no_features,
    describe_suspicious,
    find_suspicious,
)
from streamembed.data.table import InputFrame, are_dicts, is_frame, open_frame
from streamembed.data.values import (
    as_number,
    find_common_size,
    format_label,
    holds_vectors,
    is_numeric,
    to_list,
)
from streamembed.errors import (
    ColumnWarning,
    FeatureError,
    InputError,
    ParameterError,
    quote,
    summarise_error,
    warn,
)


@dataclass(frozen=True, slots=True, eq=False)
class SplitTable:
    """A table by what its columns are for."""

    points: Any  # what holds the points
    # The column of ids, labels or times by its reserved name; None where there is none.
    read: Callable[[str], Any] = lambda _: None


def split(
    X: Any,
    learned_names: tuple[str, ...] | None,
    features: Any = None,
    name: str = "X",
    remedy: str = CHOOSE,
) -> SplitTable:
    """The columns of a table, or the keys of dicts, by their roles; an array is all points.

    Parameters
    ----------
    learned_names
        The features that are learned already: these are features, whatever their names.
    features
        Names or patterns of the columns to take; None for all that are not reserved or suspicious.
    name
        The argument, for messages.
    remedy
        What to do about suspicious columns, for the warning.

    Raises
    ------
    FeatureError
        No column is a feature.
    ParameterError
        Features chosen of what has no columns.

    Warns
    -----
    ColumnWarning
        Where nothing is learned or chosen yet: suspicious columns, and those without numbers, are
        left out.
    """
    chosen = None if features is None else check_names("features", features)
    if isinstance(X, Batch) or not (are_dicts(X) or is_frame(X)) or (are_dicts(X) and not len(X)):
        if chosen is not None:
            raise ParameterError(
                f"features={quote(features)} chooses columns of a table or keys of dicts, but "
                f"{name} is a {type(X).__name__}: choose its columns beforehand"
            )
        return SplitTable(X)
    learned = (*(learned_names or ()), *(chosen or ()))
    if are_dicts(X):
        return _split_dicts(X, learned, chosen, name, remedy)
    return _split_frame(open_frame(X, name), learned, chosen, remedy)


def _split_frame(
    frame: InputFrame, learned: tuple[str, ...], chosen: tuple[str, ...] | None, remedy: str
) -> SplitTable:
    types = {name: getattr(column, "type", pa.float64()) for name, column in frame.columns.items()}
    # values of columns that have no type are judged when they are read
    types |= {name: pa.float64() for name, kind in types.items() if kind == pa.null()}
    left_out = find_suspicious(types, learned)
    if chosen is None:
        faults = {n: str(t) for n, t in types.items() if not (is_numeric(t) or holds_vectors(t))}
        left_out = _leave_out(frame.names, left_out, faults, learned, frame.argument, remedy)
        features: Collection[str] = types.keys() - left_out.keys()
        vectors = sorted(name for name in features if holds_vectors(types[name]))
        if vectors and len(features) > 1 and not learned:
            raise FeatureError(
                f"{frame.argument} has vectors beside other columns ({vectors}): select the vector "
                f"alone, or choose with features={vectors[:1]} where a method takes that"
            )
    else:
        lists = [name for name, kind in types.items() if holds_vectors(kind)]
        sizes = {name: find_common_size(frame.columns[name]) for name in lists}
        features = _choose_columns(types, sizes, chosen, frame.argument)
    columns = {role: frame.columns[role] for role in RESERVED if role in left_out}
    return SplitTable(frame.select(features), columns.get)


def _split_dicts(
    rows: Sequence[Mapping[Any, Any]],
    learned: tuple[str, ...],
    chosen: tuple[str, ...] | None,
    name: str,
    remedy: str,
) -> SplitTable:
    """The first dict decides, as it does for the features."""
    keys = dict.fromkeys(chain.from_iterable(rows))
    types = {key: pa.float64() for key in keys if isinstance(key, str)}
    first = [key for key in types if key in rows[0]]
    known = {*learned} or {*first}.difference(find_suspicious(first))
    left_out = suspicious = find_suspicious(types, known)
    if chosen is None:
        faults = {k: type(rows[0][k]).__name__ for k in first if _is_no_number(rows[0][k])}
        left_out = _leave_out(keys, suspicious, faults, learned, name, remedy)
        points = _drop_keys(rows, {*(learned or first)}.difference(left_out), {*suspicious})
    else:
        features = _choose_columns(types, {}, chosen, name)
        points = [{key: row[key] for key in row if key in features} for row in rows]
    columns = {role: [row.get(role) for row in rows] for role in RESERVED if role in left_out}
    return SplitTable(points, columns.get)


def _leave_out(
    keys: Collection[Any],
    suspicious: Mapping[str, str],
    faults: Mapping[str, str],
    learned: Collection[str],
    name: str,
    remedy: str,
) -> dict[str, str]:
    """The columns that are no features, and why; with a warning where nothing is learned yet.

    ``faults`` says what those are that are not numeric.
    """
    left_out = {key: why for key, why in faults.items() if key not in learned} | dict(suspicious)
    if learned:
        return left_out
    if left_out and len(left_out) == len(keys):
        raise FeatureError(describe_no_features(name, left_out))
    warned = {key: why for key, why in left_out.items() if key not in RESERVED}
    if warned:
        warn(describe_suspicious(warned, remedy), ColumnWarning)
    return left_out


def _is_no_number(value: Any) -> bool:
    return value is not None and as_number(value) is None


def _drop_keys(
    rows: Sequence[Mapping[Any, Any]], features: set[str], names: set[str]
) -> Sequence[Mapping[Any, Any]]:
    """Dicts without ``names``, and without what is no feature and no number: row by row, so that
    it does not matter which rows come in one call.
    """
    if all(row.keys() <= features for row in rows):
        return rows
    return [
        {
            key: value
            for key, value in row.items()
            if key in features or not (key in names or _is_no_number(value))
        }
        for row in rows
    ]


def _choose_columns(
    types: Mapping[str, Any], sizes: Mapping[str, int], chosen: tuple[str, ...], where: str
) -> tuple[str, ...]:
    """The columns, or keys of dicts, that names or patterns select."""
    choice = ColumnChoice(chosen)
    candidates = ColumnCandidates.of(where, types, sizes, choice)
    return choose_event_columns(candidates, choice).event_columns


def split_kept_texts(X: Any, names: tuple[str, ...]) -> tuple[Any, list[list[str | None]]]:
    """A table, or dicts, without some columns; and the values of these as text, (n,) each.

    Raises
    ------
    FeatureError
        A column that is not there, or a key that no dict has.
    """
    if not names:
        return X, []
    columns, others = dict[str, Any](), X
    if are_dicts(X):
        others = [{key: row[key] for key in row if key not in names} for row in X]
        for name in names:
            if not len(X) or any(name in row for row in X):
                columns[name] = [row.get(name) for row in X]
    elif is_frame(X) and not isinstance(X, Batch):
        frame = open_frame(X)
        others = frame.select(set(frame.names).difference(names))
        for name in set(names).intersection(frame.names):
            column = frame.columns[name]
            columns[name] = to_list(column, len(column), f"the column {name!r}")
    else:
        raise FeatureError(
            f"X is a {type(X).__name__} without columns, and the columns {quote(list(names))} are "
            "to be kept: pass a table, a data frame or a list of dicts"
        )
    if missing := [name for name in names if name not in columns]:
        raise FeatureError(f"X has no column {missing[0]!r}, which is to be kept")
    try:
        return others, [[format_label(value) for value in columns[name]] for name in names]
    except (TypeError, ValueError, ArithmeticError) as error:
        fault = f"X has values in columns to be kept ({quote(list(names))}) that are no text"
        raise InputError(f"{fault}: {summarise_error(error)}") from error
