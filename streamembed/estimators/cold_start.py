"""The base of estimators that learn without labels: features fixed early, gaps become means."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from river import base

from streamembed.data import column_roles, impute
from streamembed.data.impute import FeatureRows
from streamembed.data.table import sort_names
from streamembed.estimators.estimator import PointEstimator
from streamembed.numeric.arrays import Floats


@dataclass(frozen=True, slots=True, eq=False)
class _FeatureStatistics:
    """Statistics of the features after a number of events of the learner.

    Attributes
    ----------
    events : int
        Of the learner.
    began : int
        Events of the learner when the last call began.
    early : tuple of dict
        Rows until the features are settled.
    names : tuple of str
        The features; empty until then.
    means, counts : (d,)
        Of the values that were not missing.
    imputed, ignored : int
    """

    events: int = 0
    began: int = 0
    early: tuple[dict[str, float], ...] = ()
    names: tuple[str, ...] = ()
    means: Floats = field(default_factory=lambda: np.zeros(0))
    counts: Floats = field(default_factory=lambda: np.zeros(0))
    imputed: int = 0
    ignored: int = 0

    def followed_by(self, rows: FeatureRows, events: int) -> tuple[_FeatureStatistics, Floats]:
        """The statistics after some rows, and these as points (n, d), missing values imputed."""
        values, unknown = rows.arrange(self.names)
        points, means, counts = values.copy(), self.means.copy(), self.counts.copy()
        for row, point in zip(values, points, strict=True):
            present = ~np.isnan(row)
            point[~present] = means[~present]
            counts += present
            # by steps: the mean of a constant feature is that constant, to the last bit
            means += np.where(present, row - means, 0.0) / np.maximum(counts, 1.0)
        after = replace(
            self,
            events=events + len(rows),
            means=means,
            counts=counts,
            imputed=self.imputed + int(np.isnan(values).sum()),
            ignored=self.ignored + unknown,
        )
        return after, points


class ColdStartTransformer(PointEstimator, base.MiniBatchTransformer):
    """An estimator whose features are those of the first events; missing values become means.

    The learner inside takes an event by one assignment. The statistics after it are
    assigned before, beside the statistics without it, and the learner's position says which of the
    two is valid: a call that is interrupted, at any line, leaves both consistent.

    Attributes
    ----------
    imputed, ignored : int
        Missing or unusable values that became the mean so far of their feature, and values of
        features that the first events did not show.
    """

    def _begin(self) -> None:
        self._statistics_pair = (
            _FeatureStatistics(),
            _FeatureStatistics(),
        )  # without and with the last events for the learner

    @property
    @abc.abstractmethod
    def _learned(self) -> int:
        """Events that the learner has."""

    @abc.abstractmethod
    def _learn(self, points: Floats, names: tuple[str, ...]) -> None:
        """Give the learner points (n, d), all or none: one event, or the first ones."""

    @property
    def _statistics(self) -> _FeatureStatistics:
        without, after = self._statistics_pair
        return after if self._learned >= after.events else without

    @property
    def _since(self) -> int:
        """What is saved for ``began``: the same, however the stream was cut into calls."""
        return self._statistics.events

    @property
    def imputed(self) -> int:
        """Missing or unusable values that became the mean so far of their feature."""
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
        """The features, or those seen so far."""
        return self._names or sort_names({name for row in self._early for name in row})

    def _complete(self, rows: FeatureRows, first: int) -> None:
        """Learn rows one by one; the ``first`` events, together, once they are all there."""
        began = self._learned
        for i in range(len(rows)):
            before = replace(self._statistics, began=began)
            row = rows.take(slice(i, i + 1))
            if not before.names:
                early = (*before.early, row.row(0))
                if len(early) < first:
                    self._statistics_pair = (replace(before, early=early),) * 2
                    continue
                before, row = self._fix_features(before, early)
            after, points = before.followed_by(row, self._learned)
            self._statistics_pair = self._statistics, after
            self._learn(points, after.names)
        if not len(rows):
            self._statistics_pair = (replace(self._statistics, began=began),) * 2
        self._warn_of_suspects()

    def _fix_features(
        self, before: _FeatureStatistics, early: tuple[dict[str, float], ...]
    ) -> tuple[_FeatureStatistics, FeatureRows]:
        """The features of the first events, with nothing learned, and these events."""
        names = sort_names({name for row in early for name in row}) or ("0",)
        rows = impute.read(list(early), math.inf, 0.0)
        self._suspects = column_roles.describe_suspects(
            names, rows.arrange(names)[0], self._largest
        )
        none = np.zeros(len(names))
        return replace(before, early=(), names=names, means=none, counts=none), rows

    def _fill(self, values: Floats) -> Floats:
        """Missing values by the means so far."""
        return np.where(np.isnan(values), self._statistics.means, values)

    def __getstate__(self) -> dict[str, Any]:
        statistics = replace(self._statistics, began=self._since)
        return {**super().__getstate__(), "_statistics_pair": (statistics, statistics)}
