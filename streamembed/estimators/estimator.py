"""The bases of river estimators of points: tables, features of the first events, missing values."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from river import base

from streamembed.data import impute
from streamembed.data.batch import NO_DIRECTION
from streamembed.data.column_roles import (
    RENAME,
    describe_empty,
    describe_suspicious,
    find_suspicious,
)
from streamembed.data.impute import FeatureRows
from streamembed.data.output_format import derive_prefix, name_columns, to_table
from streamembed.data.table import are_positions, sort_names
from streamembed.errors import (
    BadRowError,
    ColumnWarning,
    FeatureError,
    ParameterError,
    quote,
    warn,
)
from streamembed.numeric.arrays import Bools, Floats
from streamembed.parameters import HintedAttributes, reject_unknown_parameters


@dataclass(frozen=True, slots=True, eq=False)
class ColdStart:
    """The features of a stream: those of its first events, retained until they are settled."""

    # Rows of the first events, by feature; empty once the features are settled.
    early: tuple[dict[str, float], ...] = ()
    names: tuple[str, ...] = ()  # the features; empty until then
    # Missing values so far, and values of other features.
    imputed: int = 0
    ignored: int = 0
    left_out: tuple[str, ...] = ()  # suspicious columns of the first events, sorted
    # columns without a number until the features were settled
    empty: tuple[str, ...] = ()

    @property
    def observed_names(self) -> tuple[str, ...]:
        """The features, or those seen so far."""
        return self.names or sort_names({name for row in self.early for name in row})

    def add(self, *rows: dict[str, float]) -> Self:
        """With one more of the first events, of one row or two, without suspicious columns.

        The first of all is the first that has a number; no event before it counts.
        """
        first = self.early[0] if self.early else rows[0]
        known = set(first).difference(() if self.early else find_suspicious(first))
        suspicious = find_suspicious([name for row in rows for name in row], known)
        rows = tuple({n: row[n] for n in row if n not in suspicious} for row in rows)
        left_out = self.left_out
        if not suspicious.keys() <= set(left_out):
            left_out = tuple(sorted({*left_out, *suspicious}))
        values = [value for row in rows for value in row.values()]
        if self.early or not all(map(math.isnan, values)):
            return replace(self, early=(*self.early, *rows), left_out=left_out)
        return replace(self, left_out=left_out, empty=self.empty or tuple(rows[0]))

    def count_before(self, rows: FeatureRows) -> int:
        """How many of these rows come before the first event."""
        if self.early or self.names:
            return 0
        return next((i for i in range(len(rows)) if self.add(rows.row(i)).early), len(rows))

    def fix_features(self, numbers_only: bool = False) -> tuple[Self, Floats]:
        """The same with the features settled, and the first events (n, d), NaN where missing.

        Parameters
        ----------
        numbers_only
            Whether a feature needs a number to be one. The columns of an array always are.
        """
        names = self.observed_names
        usable = {name for row in self.early for name in row if not math.isnan(row[name])}
        empty = tuple(name for name in names if name not in usable)
        if numbers_only and not are_positions(names):
            names = sort_names(usable)
        values = np.array([[row.get(name, math.nan) for name in names] for row in self.early])
        others = set(self.observed_names).difference(names)
        settled = replace(
            self,
            early=(),
            names=names,
            imputed=self.imputed + int(np.isnan(values).sum()),
            ignored=self.ignored + sum(name in others for row in self.early for name in row),
            empty=empty,
        )
        return settled, values

    def arrange(self, rows: FeatureRows) -> tuple[Self, Floats]:
        """Rows in the order of the settled features, (n, d), NaN where missing, and counted."""
        values, unknown = rows.arrange(self.names)
        gaps = int(np.count_nonzero(np.isnan(values)))
        return replace(self, imputed=self.imputed + gaps, ignored=self.ignored + unknown), values

    def merge(self, other: Self) -> Self:
        """Of two streams, without the first events of either: these are to be learned again."""
        return replace(
            self,
            early=(),
            names=self.names or other.names,
            imputed=self.imputed + other.imputed,
            ignored=self.ignored + other.ignored,
            left_out=tuple(sorted({*self.left_out, *other.left_out})),
            empty=self.empty or other.empty,
        )


@dataclass(frozen=True, slots=True, eq=False)
class FeatureStatistics(ColdStart):
    """The features after a number of events of the learner, and their running means."""

    events: int = 0  # of the learner
    began: int = 0  # events of the learner when the last call began
    # (d,): of the values that were not missing; empty before the first event of the learner.
    means: Floats = field(default_factory=lambda: np.zeros(0))
    counts: Floats = field(default_factory=lambda: np.zeros(0))

    def update_and_fill(self, values: Floats, events: int) -> tuple[FeatureStatistics, Floats]:
        """The statistics with these rows (n, d), the learner having ``events``; and no NaN left."""
        points = values.copy()
        means, counts = self.means.copy(), self.counts.copy()
        if not self.events:
            means, counts = np.zeros((2, values.shape[1]))
        for row, point in zip(values, points, strict=True):
            present = ~np.isnan(row)
            point[~present] = means[~present]
            counts += present
            # by steps: the mean of a constant feature is that constant, to the last bit
            means += np.where(present, row - means, 0.0) / np.maximum(counts, 1.0)
        return replace(self, events=events, means=means, counts=counts), points


class FeatureEstimator(HintedAttributes, base.Base):
    """An estimator of river that learns points, whose features are those of the first events.

    Attributes
    ----------
    imputed, ignored : int
        Missing or unusable values that became the mean of their feature, and values of features
        that the first events did not show.
    imputed_in_transform, ignored_in_transform : int
        The same as ``imputed`` and ``ignored`` of the points that were transformed, once the
        features are settled. They are no part of what was learned: a copy by pickle begins at 0.
    """

    imputed_in_transform = 0
    ignored_in_transform = 0
    _largest: ClassVar[float] = impute.LARGEST  # values beyond it are missing
    _smallest: ClassVar[float] = impute.SMALLEST  # values below it are 0
    _title: ClassVar[str] = "this metric"  # what messages call it

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            reject_unknown_parameters(cls)

    _cold_start: ColdStart

    @property
    def _statistics(self) -> ColdStart:
        return self._cold_start

    @property
    def imputed(self) -> int:
        """Missing or unusable values that became the mean of their feature."""
        return self._statistics.imputed

    @property
    def ignored(self) -> int:
        """Values of features that the first events did not show."""
        return self._statistics.ignored

    @property
    def _names(self) -> tuple[str, ...]:
        return self._statistics.names

    @property
    def _early(self) -> tuple[dict[str, float], ...]:
        return self._statistics.early

    @property
    def _observed_names(self) -> tuple[str, ...]:
        return self._statistics.observed_names

    def _read_point(self, x: Any) -> FeatureRows:
        """One point, a dict of its features."""
        return self._check_features(impute.read_point(x, self._largest, self._smallest))

    def _read_rows(self, X: Any, name: str = "X") -> FeatureRows:
        """A mini-batch; arrays of another width than before are refused."""
        return self._check_features(impute.read(X, self._largest, self._smallest, name), name)

    def _check_features(self, rows: FeatureRows, name: str = "X") -> FeatureRows:
        """Refuse arrays of another width, and directions of nothing, before anything is counted."""
        if len(rows) and (rows.ordered or self._names) and self._observed_names:
            rows.check(self._observed_names, self._title, name)
        if rows.ordered and len(rows) and not rows.names:
            raise FeatureError(f"{name} has no features: it must have at least one column")
        # a parameter; of metrics it is a property
        if vars(self).get("metric") == "cosine" and rows.values.size:
            zeros = np.flatnonzero(~rows.values.any(axis=1)).tolist()
            if zeros:
                faults = [(i, NO_DIRECTION) for i in zeros]
                fault = f"{len(rows)} rows of {name} are bad"
                raise BadRowError.of(faults, fault, "leave them out")
        return rows

    def _fill_with_zeros(self, rows: FeatureRows) -> Floats:
        """Points as they come, (n, d), missing values as 0: what they are before the warm-up ends.

        Arrays of another width than before are refused.
        """
        usual = set(rows.names).difference(find_suspicious(rows.names))
        values = rows.align(self._observed_names or sort_names(usual))[0]
        return np.where(np.isnan(values), 0.0, values)

    def _check_mergeable(self, other: Any) -> None:
        """Refuse this one itself, another class, other parameters, other features."""
        if other is self:
            raise ParameterError(
                "other is this estimator itself, so everything it learned would count twice: merge "
                "one that learned another stream"
            )
        its, own = f"is a {type(other).__name__}", f"is a {type(self).__name__}"
        if its == own:
            mine, theirs = self._get_params(), other._get_params()
            differ = [name for name in mine if repr(mine[name]) != repr(theirs[name])]
            its, own = (
                "has " + ", ".join(f"{name}={quote(given[name])}" for name in differ)
                for given in (theirs, mine)
            )
        if its != own:
            raise ParameterError(
                f"other {its} and this {own}: only estimators of the same class and parameters "
                "can be merged"
            )
        if self._names and other._names and self._names != other._names:
            raise FeatureError(
                f"other has the features {quote(list(other._names))} and this has "
                f"{quote(list(self._names))}: only estimators of the same features can be merged"
            )

    def _count_missing(self, arranged: tuple[Floats, int]) -> Floats:
        """Count missing and unknown values of points to transform; return the points (n, d)."""
        values, unknown = arranged
        gaps = int(np.count_nonzero(np.isnan(values)))
        if gaps or unknown:
            self.imputed_in_transform += gaps
            self.ignored_in_transform += unknown
        return values

    @contextmanager
    def _compute_on_copy(self) -> Iterator[Self]:
        """A copy to compute a call on; assigned at once, last: what breaks off changes nothing."""
        before, after = self._cold_start, object.__new__(type(self))
        vars(after).update(vars(self))
        yield after
        vars(self).update(vars(after))
        self._warn_of_columns(before)

    def _warn_of_columns(self, before: ColdStart) -> None:
        """Warn of what became of columns since a call began, once its events are learned."""
        after = self._statistics
        if after.left_out != before.left_out:
            reasons = find_suspicious(sorted(set(after.left_out).difference(before.left_out)))
            warn(describe_suspicious(reasons, RENAME), ColumnWarning)
        if after.empty != before.empty and after.empty:
            warn(describe_empty(after.empty, after.names, self._largest), ColumnWarning)

    def __getstate__(self) -> dict[str, Any]:
        others = ("imputed_in_transform", "ignored_in_transform")
        return {name: value for name, value in vars(self).items() if name not in others}


class PointEstimator(FeatureEstimator):
    """An estimator of points that places them: a river transformer."""

    _hints: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("fit", "partial_fit", "learn"), "learn_many(X)"),
        **dict.fromkeys(("transform", "predict"), "transform_many(X)"),
        "predict_one": "transform_one(x)",
        "fit_transform": "learn_many(X), then transform_many(X)",
        "feature_loadings": "snapshot().feature_loadings",
    }

    def transform_one(self, x: Mapping[Any, Any]) -> dict[Any, Any]:
        """Coordinates of one point, by names such as ``pca_0``: see `prefix`."""
        return self._name_coordinates(self._compute_coordinates(self._read_point(x)))

    def transform_many(self, X: Any) -> Any:
        """Coordinates of a mini-batch, as the same kind of data frame (pandas with its index).

        Arrays come back as arrays, lists of dicts as lists of dicts, record batches as record
        batches. Columns are called as the keys of `transform_one`.
        """
        coordinates = self._compute_coordinates(self._read_rows(X))
        return to_table(coordinates, X, name_columns(self.prefix, coordinates.shape[1]))

    @property
    def prefix(self) -> str:
        """The prefix of coordinate names, before their number: ``pca_0`` and ``pca_1``."""
        return derive_prefix(type(self).__name__)

    def _name_coordinates(self, coordinates: Floats) -> dict[Any, Any]:
        """The first row of coordinates, by name."""
        names = name_columns(self.prefix, coordinates.shape[1])
        return dict(zip(names, coordinates[0].tolist(), strict=True))

    def _compute_coordinates(self, rows: FeatureRows) -> Floats:
        """Coordinates (n, m) of rows."""
        raise NotImplementedError


class StreamTransformer(PointEstimator, base.MiniBatchTransformer):
    """A transformer of points that learns without labels."""

    def learn_one(self, x: Any) -> None:
        """Learn one event of the stream."""
        self._learn_rows(self._read_point(x))

    def learn_many(self, X: Any) -> None:
        """Learn a mini-batch: any table that `transform_many` takes.

        Raises
        ------
        InputError, FeatureError
            X is no table, or an array of another width than before; nothing was learned.
        """
        self._learn_rows(self._read_rows(X))

    @abc.abstractmethod
    def _learn_rows(self, rows: FeatureRows) -> None:
        """Learn rows, one by one."""


class ColdStartLearner(FeatureEstimator):
    """An estimator whose features are those of the first events; missing values become means.

    The learner inside takes an event by one assignment. The statistics after it are
    assigned before, beside the statistics without it, and the learner's position says which of the
    two is valid: a call that is interrupted, at any line, leaves both consistent.
    """

    def _begin(self) -> None:
        # without and with the last events for the learner
        self._statistics_pair = FeatureStatistics(), FeatureStatistics()

    @property
    @abc.abstractmethod
    def _n_learned(self) -> int:
        """Events that the learner has."""

    @abc.abstractmethod
    def _learn(self, points: Floats, names: tuple[str, ...], is_filled: Bools) -> None:
        """Give the learner points (n, d), all or none: one event, or the first ones.

        ``is_filled`` (n,) says in which of them a mean stands for a missing value.
        """

    @property
    def _statistics(self) -> FeatureStatistics:
        without, after = self._statistics_pair
        return after if self._n_learned >= after.events else without

    @property
    def _since(self) -> int:
        """What is saved for ``began``: the same, however the stream was cut into calls."""
        return self._statistics.events

    def _learn_imputed(self, rows: FeatureRows, first: int) -> None:
        """Learn rows one by one; the ``first`` events, together, once they are all there."""
        before, began = self._statistics, self._n_learned
        for i in range(len(rows)):
            current = replace(self._statistics, began=began)
            row = rows if len(rows) == 1 else rows.take(slice(i, i + 1))
            if current.names:
                counted, values = current.arrange(row)
            else:
                waiting = current.add(row.row(0))
                if len(waiting.early) < first:
                    self._statistics_pair = (waiting,) * 2
                    continue
                counted, values = waiting.fix_features()
            after, points = counted.update_and_fill(values, self._n_learned + len(values))
            self._statistics_pair = self._statistics, after
            self._learn(points, after.names, np.asarray(np.isnan(values).any(axis=1)))
        if not len(rows):
            self._statistics_pair = (replace(self._statistics, began=began),) * 2
        self._warn_of_columns(before)

    def _fill(self, values: Floats) -> Floats:
        """Missing values by the means so far."""
        return np.where(np.isnan(values), self._statistics.means, values)

    def __getstate__(self) -> dict[str, Any]:
        statistics = replace(self._statistics, began=self._since)
        return {**super().__getstate__(), "_statistics_pair": (statistics, statistics)}


class ColdStartTransformer(ColdStartLearner, StreamTransformer):
    """A transformer of points whose features are those of the first events."""
