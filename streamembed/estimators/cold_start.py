"""The base of estimators that learn without labels: features fixed early, gaps become means."""

from __future__ import annotations

import abc
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from river import base

from streamembed.data.impute import FeatureRows
from streamembed.estimators.estimator import ColdStart, FeatureEstimator, PointEstimator
from streamembed.numeric.arrays import Bools, Floats


@dataclass(frozen=True, slots=True, eq=False)
class FeatureStatistics(ColdStart):
    """The features after a number of events of the learner, and their running means."""

    events: int = 0  # of the learner
    began: int = 0  # events of the learner when the last call began
    # (d,): of the values that were not missing; empty before the first event of the learner.
    means: Floats = field(default_factory=lambda: np.zeros(0))
    counts: Floats = field(default_factory=lambda: np.zeros(0))

    def fill(self, values: Floats, events: int) -> tuple[FeatureStatistics, Floats]:
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


class ColdStartLearner(FeatureEstimator):
    """An estimator whose features are those of the first events; missing values become means.

    The learner inside takes an event by one assignment. The statistics after it are
    assigned before, beside the statistics without it, and the learner's position says which of the
    two is valid: a call that is interrupted, at any line, leaves both consistent.
    """

    def _begin(self) -> None:
        self._statistics_pair = (
            FeatureStatistics(),
            FeatureStatistics(),
        )  # without and with the last events for the learner

    @property
    @abc.abstractmethod
    def _learned(self) -> int:
        """Events that the learner has."""

    @abc.abstractmethod
    def _learn(self, points: Floats, names: tuple[str, ...], is_filled: Bools) -> None:
        """Give the learner points (n, d), all or none: one event, or the first ones.

        ``is_filled`` (n,) says in which of them a mean stands for a missing value.
        """

    @property
    def _statistics(self) -> FeatureStatistics:
        without, after = self._statistics_pair
        return after if self._learned >= after.events else without

    @property
    def _since(self) -> int:
        """What is saved for ``began``: the same, however the stream was cut into calls."""
        return self._statistics.events

    def _complete(self, rows: FeatureRows, first: int) -> None:
        """Learn rows one by one; the ``first`` events, together, once they are all there."""
        before, began = self._statistics, self._learned
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
                counted, values = waiting.settle()
            after, points = counted.fill(values, self._learned + len(values))
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


class ColdStartTransformer(ColdStartLearner, PointEstimator, base.MiniBatchTransformer):
    """A transformer of points whose features are those of the first events."""

    def learn_one(self, x: Any) -> None:
        """Learn one event of the stream."""
        self._take(self._read_point(x))

    def learn_many(self, X: Any) -> None:
        """Learn a mini-batch: any table that `transform_many` takes."""
        self._take(self._read_rows(X))

    @abc.abstractmethod
    def _take(self, rows: FeatureRows) -> None:
        """Learn rows, one by one."""
