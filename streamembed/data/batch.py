"""The strict policy: any table in, one checked `Batch` out, for the engine.

Columns come out in the engine's order. Rows that cannot be learned are reported with a reason,
never silently dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from streamembed.data.features import Features
from streamembed.data.ids import read_ids, select_ids
from streamembed.data.table import (
    NumericTable,
    are_dicts,
    check_array_columns,
    read_table,
    sort_names,
    with_text_keys,
)
from streamembed.data.values import NO_NULLS
from streamembed.errors import BadRowError, FeatureError, describe_feature_mismatch, quote
from streamembed.numeric.arrays import LARGEST_VALUE, Array, Bools, Floats, Ints

# Remedy in errors of bad rows, where rows are learned.
LEARNING = "nothing was learned: fix them, or reject them with on_bad_row='skip'"
NO_DIRECTION = "a vector of zeros has no direction, which metric='cosine' compares"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that was not learned: its index in the call, its id where it had one, and why."""

    index: int
    id: int | str | None
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Rows ready to be learned or transformed."""

    points: Floats  # (n, d): Finite, float64, C-contiguous, a copy of the input
    features: Features  # of the d columns
    # (n,) or None: int64, or objects that are all str, of any length each; None where the caller
    # gave none.
    ids: Array | None
    kept: Ints  # (n,): index in the call of each row
    rejected: tuple[Rejected, ...]  # the other rows, ascending by index

    @classmethod
    def of_points(cls, points: Floats, features: Features, ids: Array | None = None) -> Self:
        """A batch of points that are known to be usable, all of them."""
        return cls(points, features, ids, np.arange(len(points), dtype=np.int64), ())

    def with_metric(
        self, metric: str, on_bad_row: str, remedy: str = LEARNING, name: str = "X"
    ) -> Self:
        """The rows as `read` reads them under that metric; itself where it has it already.

        Raises
        ------
        BadRowError
            As `read`.
        """
        if metric in ("euclidean", self.features.metric):
            return self
        features = replace(self.features, metric=metric)
        read = check_table(
            self.points, features, NO_NULLS, {}, self.ids, on_bad_row, remedy=remedy, name=name
        )
        others = [replace(row, index=int(self.kept[row.index])) for row in read.rejected]
        rejected = sorted([*self.rejected, *others], key=lambda row: row.index)
        kept = self.kept[read.kept]
        return replace(
            self,
            points=read.points,
            features=features,
            ids=read.ids,
            kept=kept,
            rejected=tuple(rejected),
        )


def read(
    X: Any,
    ids: Any = None,
    features: Features | None = None,
    on_bad_row: str = "raise",
    remedy: str = LEARNING,
    name: str = "X",
    metric: str = "euclidean",
) -> Batch:
    """Return the rows of ``X`` as a checked batch, columns in the order of ``features``.

    Parameters
    ----------
    X
        Any table that `streamembed.data.table.read_table` reads. A `Batch` of those features
        is handed back as it is.
    ids
        One int or str a row, or None.
    features
        Those that the engine knows; None to take those of X (named features are then in the order
        of `streamembed.data.table.sort_names`).
    on_bad_row
        "raise" refuses the whole call, "skip" lists bad rows in ``rejected``.
    remedy
        The remedy in an error of bad rows.
    name
        The argument, for messages.
    metric
        That of features that are not known yet. "cosine" divides rows by their lengths.

    Raises
    ------
    FeatureError
        Wrong width, wrong names, a column that is not numeric, an empty feature set.
    BadRowError
        Under "raise": nulls, NaN, infinities, values beyond 1e150, missing features, null ids;
        rows of zeros under "cosine".
    InputError
        Not tabular, or ids that are not one whole number or string a row.
    """
    if isinstance(X, Batch):
        if features is not None and X.features.names != features.names:
            raise FeatureError(
                f"{name} has the features {quote(list(X.features.names))}; expected "
                f"{quote(list(features.names))}"
            )
        return X.with_metric(
            metric if features is None else features.metric, on_bad_row, remedy, name
        )
    if ids is None and features is not None and is_usable_as_is(X, features):
        return Batch.of_points(X.copy(), features)
    table, own = read_columns(X, features, name)
    features = replace(own, metric=metric if features is None else features.metric)
    return check_table(
        table.values, features, table.nulls, table.faults, ids, on_bad_row, remedy, name=name
    )


def read_columns(
    X: Any, features: Features | None, name: str = "X"
) -> tuple[NumericTable, Features]:
    """Any table as numbers, its columns in the order of the features; None for those of X.

    Raises
    ------
    FeatureError, InputError
        As `read`.
    """
    wanted = None if features is None else features.names
    if are_dicts(X):
        if not len(X):
            X = np.zeros(0)  # without rows there are no features
        elif wanted is None:
            wanted = sort_names(with_text_keys(X[0]))
    table = read_table(X, wanted, name).check_numeric()
    features = choose_features(table, features, name)
    if features.names != table.names:
        place = {name: j for j, name in enumerate(table.names)}
        order = [place[name] for name in features.names]
        nulls = table.nulls[:, order] if table.nulls.size else table.nulls
        table = replace(table, values=np.take(table.values, order, axis=1), nulls=nulls)
    return table, features


def is_usable_as_is(X: Any, features: Features) -> bool:
    """Whether X is an array of points of these features as it is: 5 us instead of 40 to read it."""
    is_matrix = type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2
    is_plain = is_matrix and features.metric == "euclidean"
    has_columns = is_plain and features.ordered and X.shape[1] == len(features.names) > 0
    return has_columns and bool(np.abs(X).max(initial=0.0) <= LARGEST_VALUE)


def choose_features(table: NumericTable, features: Features | None, name: str = "X") -> Features:
    """The features of a batch of that table; FeatureError if its columns are not ``features``."""
    if features is None:
        names = table.names if table.ordered else sort_names(table.names)
        return Features(names, table.ordered)
    names = features.names
    if not table.ordered:
        if set(table.names) != set(names):
            raise FeatureError(describe_feature_mismatch(name, table.names, names))
        return replace(features, ordered=features.ordered and names != table.names)
    check_array_columns(table, names, features.ordered, "it must have", name)
    return features


def check_table(
    values: Floats,
    features: Features,
    nulls: Bools,
    faults: Mapping[int, str],
    ids: Any,
    on_bad_row: str,
    remedy: str = LEARNING,
    name: str = "X",
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
        raise FeatureError(f"{name} has no features: it must have at least one numeric column")
    row_ids = read_ids(ids, len(values))
    with np.errstate(invalid="ignore"):
        usable = np.asarray((np.abs(values) <= LARGEST_VALUE).all(axis=1))
    if features.metric == "cosine":
        if np.ptp(features.divisors):
            raise FeatureError(
                f"{name} has a vector and other columns, which metric='cosine' would divide by one "
                "length: learn the vector alone, or with metric='euclidean'"
            )
        values = _normalize(values, usable)
        usable &= values.any(axis=1)
    keys = [None] * len(values) if row_ids is None else row_ids.tolist()
    null_ids = [] if row_ids is None else [i for i, key in enumerate(keys) if key is None]
    if usable.all() and not faults and not null_ids:
        accepted = np.arange(len(values), dtype=np.int64)
        ids = select_ids(row_ids, accepted)
        return Batch(np.ascontiguousarray(values), features, ids, accepted, ())
    reasons = {
        int(i): _describe_fault(values[i], features.names, nulls, int(i))
        for i in np.flatnonzero(~usable)
    }
    reasons.update(dict.fromkeys(null_ids, "the id is null"))
    reasons.update(faults)
    if on_bad_row == "raise":
        fault = f"{len(values)} rows of {name} cannot be used"
        raise BadRowError.of(sorted(reasons.items()), fault, remedy)
    accepted = np.array([i for i in range(len(values)) if i not in reasons], dtype=np.int64)
    rejected = tuple(Rejected(i, keys[i], reasons[i]) for i in sorted(reasons))
    return Batch(
        np.ascontiguousarray(values[accepted]),
        features,
        select_ids(row_ids, accepted),
        accepted,
        rejected,
    )


def _normalize(values: Floats, rows: Bools) -> Floats:
    """The values with these rows divided by their lengths; rows of zeros stay.

    Rows are scaled by powers of two first: lengths then neither overflow nor vanish, and a row has
    the same bits whatever power of two it is multiplied by.
    """
    scaled, unit = np.ascontiguousarray(values[rows]), values.copy()
    _, powers = np.frexp(np.abs(scaled).max(axis=1, initial=0.0))
    scaled = np.ldexp(scaled, -powers[:, None])
    lengths = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    unit[rows] = scaled / np.where(lengths > 0.0, lengths, 1.0)[:, None]
    return unit


def _describe_fault(row: Floats, names: tuple[str, ...], nulls: Bools, index: int) -> str:
    """Why a row with a value that is not a usable number cannot be learned."""
    if nulls.size and nulls[index].any():
        return f"null in {names[int(np.argmax(nulls[index]))]!r}"
    for test, what in ((np.isnan(row), "NaN"), (np.isinf(row), "infinite value")):
        if test.any():
            return f"{what} in {names[int(np.argmax(test))]!r}"
    if not row.any():
        return NO_DIRECTION
    worst = int(np.argmax(np.abs(row)))
    return f"value {row[worst]:g} in {names[worst]!r} is beyond 1e150, so its square overflows"
