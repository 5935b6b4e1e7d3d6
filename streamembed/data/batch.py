"""The strict policy: any table in, one checked `Batch` out, for the engine.

Columns come out in the engine's order. Rows that cannot be learned are reported with a reason,
never silently dropped.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamembed.data.ids import read_ids, select_ids
from streamembed.data.table import (
    NumericTable,
    are_dicts,
    find_columns,
    read_table,
    sort_names,
    with_text_keys,
)
from streamembed.errors import (
    BadRowError,
    FeatureError,
    InputError,
    describe_feature_mismatch,
    quote,
)
from streamembed.numeric.arrays import Array, Bools, Floats, Ints

# Squares of larger values, summed over features, would leave the doubles.
LARGEST_VALUE = 1e150
# Remedy in errors of bad rows, where rows are learned.
LEARNING = "nothing was learned: fix them, or reject them with on_bad_row='skip'"


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
        Finite, float64, C-contiguous, a copy of the input.
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


@contextmanager
def rename_argument(name: str) -> Iterator[None]:
    """In errors raised inside, write the argument's name for X; quoted values stay unchanged."""
    try:
        yield
    except InputError as error:
        parts = re.split(r"('[^']*'|\"[^\"]*\")", str(error))
        message = "".join(
            [re.sub(r"\bX\b", name, part) if part[:1] not in ("'", '"') else part for part in parts]
        )
        error.args = (message, *error.args[1:])
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
        Any table that `streamembed.data.table.read_table` reads. A `Batch` of those names is handed
        back as it is.
    ids
        One int or str a row, or None.
    names, ordered
        The features that the engine knows, and whether they are places; None to take those of X
        (named features are then in the order of `streamembed.data.table.sort_names`).
    on_bad_row
        "raise" refuses the whole call, "skip" lists bad rows in ``rejected``.
    remedy
        The remedy in an error of bad rows.

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
                f"X has the features {quote(list(X.names))}; expected {quote(list(names))}"
            )
        return X
    wanted = names
    if are_dicts(X):
        if not len(X):
            X = np.zeros(0)  # without rows there are no features
        elif names is None:
            wanted = sort_names(with_text_keys(X[0]))
    table = read_table(X, wanted)
    if table.refused is not None:
        raise table.refused
    columns = match_feature_names(table, names, ordered)
    values, nulls, faults = table.values, table.nulls, table.faults
    ordered = table.ordered if columns == table.names else ordered
    if columns != table.names:
        order = find_columns(table.names, columns)
        values = np.take(values, order, axis=1)
        nulls = nulls[:, order] if nulls.size else nulls
    if nulls.size and table.mixes_nulls:
        first = {i: int(np.argmax(nulls[i])) for i in np.flatnonzero(nulls.any(axis=1)).tolist()}
        faults = {**faults, **{i: f"null or NaN in {columns[j]!r}" for i, j in first.items()}}
    return check_table(values, columns, ordered, nulls, faults, ids, on_bad_row, remedy)


def match_feature_names(
    table: NumericTable, names: tuple[str, ...] | None, ordered: bool
) -> tuple[str, ...]:
    """The feature names in order; FeatureError if the columns of the table do not match them."""
    if not table.ordered:
        if names is not None and set(table.names) != set(names):
            raise FeatureError(describe_feature_mismatch("X", table.names, names))
        return sort_names(table.names) if names is None else names
    if names is not None and not ordered:
        raise FeatureError(
            f"X has no feature names, but the features are known by name ({quote(list(names))}): "
            "pass a data frame or dicts, so that columns cannot be mixed up"
        )
    if names is not None and len(table.names) != len(names):
        raise FeatureError(
            f"X has {len(table.names)} columns; it must have {len(names)}: {quote(list(names))}"
        )
    return table.names


def check_table(
    values: Floats,
    names: tuple[str, ...],
    ordered: bool,
    nulls: Bools,
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
    row_ids = read_ids(ids, len(values))
    with np.errstate(invalid="ignore"):
        usable = (np.abs(values) <= LARGEST_VALUE).all(axis=1)
    null_ids = (
        [] if row_ids is None else [i for i, key in enumerate(row_ids.tolist()) if key is None]
    )
    if usable.all() and not faults and not null_ids:
        accepted = np.arange(len(values), dtype=np.int64)
        return Batch(
            np.ascontiguousarray(values),
            names,
            ordered,
            select_ids(row_ids, accepted),
            accepted,
            (),
        )
    reasons = {int(i): _reason(values[i], names, nulls, int(i)) for i in np.flatnonzero(~usable)}
    reasons.update(dict.fromkeys(null_ids, "the id is null"))
    reasons.update(faults)
    if on_bad_row == "raise":
        rows = tuple(sorted(reasons.items()))
        first = "; ".join(f"row {i}: {reason}" for i, reason in rows[:3])
        raise BadRowError(
            f"{len(rows)} of {len(values)} rows of X cannot be used ({first}); {remedy}",
            rows,
        )
    accepted = np.array([i for i in range(len(values)) if i not in reasons], dtype=np.int64)
    rejected = tuple(
        Rejected(i, None if row_ids is None else row_ids[i], reasons[i]) for i in sorted(reasons)
    )
    return Batch(
        np.ascontiguousarray(values[accepted]),
        names,
        ordered,
        select_ids(row_ids, accepted),
        accepted,
        rejected,
    )


def _reason(row: Floats, names: tuple[str, ...], nulls: Bools, index: int) -> str:
    """Why a row with a value that is not a usable number cannot be learned."""
    if nulls.size and nulls[index].any():
        return f"null in {names[int(np.argmax(nulls[index]))]!r}"
    for test, what in ((np.isnan(row), "NaN"), (np.isinf(row), "infinite value")):
        if test.any():
            return f"{what} in {names[int(np.argmax(test))]!r}"
    worst = int(np.argmax(np.abs(row)))
    return f"value {row[worst]:g} in {names[worst]!r} is beyond 1e150, so its square overflows"
