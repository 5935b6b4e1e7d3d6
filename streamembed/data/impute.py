"""The lenient policy: any table in, float64 with gaps out, for the river estimators.

Nothing is refused here that can be imputed: a value that is no usable number becomes NaN, and the
caller decides what replaces it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from streamembed.data.column_roles import explain_suspicion
from streamembed.data.table import (
    NumericTable,
    are_positions,
    check_array_columns,
    check_point,
    read_dicts,
    read_table,
)
from streamembed.errors import FeatureError, quote
from streamembed.numeric.arrays import Floats

# Metrics multiply sums of squares with one another: fourth powers of larger values would leave the
# doubles, as would those of smaller ones, which count as 0.
LARGEST, SMALLEST = 1e75, 1e-75


class FeatureRows(NumericTable):
    """A table on its way into an estimator: every number is usable, NaN is a gap."""

    __slots__ = ()

    def __len__(self) -> int:
        return len(self.values)

    def check(self, names: tuple[str, ...], learner: str = "this metric", name: str = "X") -> None:
        """Refuse an array of another width, and named columns where features are known by place.

        Raises
        ------
        FeatureError
            Such columns. Names of which some are missing or unknown are fine.
        """
        by_place = are_positions(names)
        if self.ordered:
            check_array_columns(self, names, by_place, f"{learner} has", name)
        if by_place and self.names and not set(self.names) & set(names):
            raise FeatureError(
                f"{name} has the features {list(self.names)}; {learner} learned from arrays, whose "
                f"features are {list(names)}: pass arrays, or start again with named features"
            )

    def align(self, names: tuple[str, ...]) -> tuple[Floats, int]:
        """The values in the order of ``names``, (n, d), and how many others there are.

        Raises
        ------
        FeatureError
            As `check`.
        """
        self.check(names)
        return self.arrange(names)

    def arrange(self, names: tuple[str, ...]) -> tuple[Floats, int]:
        """`align` without a check: arrays must have as many columns."""
        if self.names == names or (self.ordered and len(self.names) == len(names)):
            return self.values, 0
        place = {name: j for j, name in enumerate(self.names)}
        if len(place) == len(names) and not self.absent.any() and all(n in place for n in names):
            return self.values[:, [place[name] for name in names]], 0
        values = np.full((len(self), len(names)), np.nan)
        for j, name in enumerate(names):
            if name in place:
                values[:, j] = self.values[:, place[name]]
        others = set(place).difference(names)
        unknown = [place[name] for name in others if explain_suspicion(name) is None]
        absent = np.count_nonzero(self.absent[:, unknown]) if self.absent.any() else 0
        return values, len(self) * len(unknown) - int(absent)

    def take(self, chosen: list[int] | slice) -> FeatureRows:
        """Some of the rows."""
        absent = self.absent[chosen] if self.absent.size else self.absent
        return replace(self, values=self.values[chosen], absent=absent)

    def row(self, index: int) -> dict[str, float]:
        """One row as a dict of what it has, with NaN."""
        values = dict(zip(self.names, self.values[index].tolist(), strict=True))
        absent = np.flatnonzero(self.absent[index]) if self.absent.size else ()
        for j in absent:
            del values[self.names[j]]
        return values


def name_metric_columns(names: tuple[str, ...]) -> tuple[str, ...] | None:
    """What a metric calls its columns: nothing where they are "0" to "d - 1", as of an array."""
    return None if names == tuple(map(str, range(len(names)))) else names


def read(
    X: Any, largest: float = LARGEST, smallest: float = SMALLEST, name: str = "X"
) -> FeatureRows:
    """Rows of any table that `streamembed.data.table.read_table` reads, and its errors.

    Parameters
    ----------
    largest, smallest
        Numbers beyond the one are not usable, numbers below the other count as 0.
    name
        The argument, for messages.
    """
    return _drop_unusable_values(read_table(X, name=name), largest, smallest)


def read_point(x: Any, largest: float = LARGEST, smallest: float = SMALLEST) -> FeatureRows:
    """One point, a dict of its features; InputError for anything else."""
    if type(x) is dict and set(map(type, x)) == {str}:
        # the short way for the common case, numbers that are all usable
        cells = list(x.values())
        if set(map(type, cells)) == {float}:
            values = np.array([cells])
            size = np.abs(values)
            if smallest <= size.min() and size.max() <= largest:
                return FeatureRows(values, tuple(x), False, is_dicts=True)
    return _drop_unusable_values(read_dicts([check_point(x)]), largest, smallest)


def _drop_unusable_values(table: NumericTable, largest: float, smallest: float) -> FeatureRows:
    """The rows of a table, NaN where a value is too large, 0 where too small."""
    values = table.values
    size = np.abs(values)
    np.putmask(values, ~(size <= largest), np.nan)
    np.putmask(values, size < smallest, 0.0)
    return FeatureRows(
        values, table.names, table.ordered, absent=table.absent, is_dicts=table.is_dicts
    )


def check_pairs(left: FeatureRows, right: FeatureRows) -> None:
    """Refuse ends of pairs that do not have the same features.

    Dicts need not have every feature: what one lacks is imputed.

    Raises
    ------
    FeatureError
        Arrays of several widths, frames of several names, an array beside names.
    """
    table = right if left.ordered else left
    if left.ordered != right.ordered and table.names and not are_positions(table.names):
        bare, other = ("X1", "X2") if left.ordered else ("X2", "X1")
        raise FeatureError(
            f"{bare} has no feature names, but {other} has {quote(list(table.names))}: pass both "
            "as arrays, or both as data frames or dicts"
        )
    if left.is_dicts or right.is_dicts or set(left.names) == set(right.names):
        return
    raise FeatureError(
        f"X1 has the features {quote(sorted(left.names))} and X2 has {quote(sorted(right.names))}: "
        "both ends of a pair must have the same features"
    )
