"""`UnsupervisedMetric`: a distance learned without labels, as a river transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from river import base

from streamembed import parameters
from streamembed.data import impute
from streamembed.data.impute import Rows
from streamembed.errors import NotReadyError
from streamembed.estimators.pipeline import UnsupervisedPipeline
from streamembed.estimators.strand import Fit
from streamembed.metric_learning import balance
from streamembed.metric_learning.mahalanobis import Mahalanobis
from streamembed.numeric.arrays import Floats

__all__ = ["UnsupervisedMetric"]

# Events from which the features are settled.
SETTLING = 12


class UnsupervisedMetric(base.MiniBatchTransformer):
    """A Mahalanobis metric from generated pairs: no labels.

    It is shrunk by how well the metrics of two halves of the stream agree: where nothing that
    reproduces is there to learn, it is the Euclidean metric of standardised features.

    - *Cold start.* Until the warm-up ends points come back as they are, missing values as 0.
    - *Features.* The schema is every feature of the first twelve events. A feature that appears
      later is ignored, and counted in ``ignored``.
    - *Missing values* become the mean of what the stream has had of the feature, and are counted in
      ``imputed``.

    Parameters
    ----------
    n_components, diffusion_time, memory, size, warm_up, chunk_size, gamma, shrunk, seed
        See `streamembed.estimators.pipeline.UnsupervisedPipeline`.

    Raises
    ------
    ParameterError
        A parameter cannot have that value.

    Examples
    --------
    >>> from river import datasets
    >>> model = UnsupervisedMetric(warm_up=60, size=100)
    >>> for x, _ in datasets.Phishing().take(110):
    ...     model.learn_one(x)
    >>> model.metric.matrix.shape, len(model.transform_one(x))
    ((9, 9), 9)
    """

    def __init__(
        self,
        n_components: int | None = None,
        diffusion_time: float | None = 16.0,
        memory: str = "window",
        size: int = 2000,
        warm_up: int | None = None,
        chunk_size: int = 50,
        gamma: float = 0.1,
        shrunk: bool = True,
        seed: int = 0,
    ) -> None:
        self.n_components = n_components
        self.diffusion_time = diffusion_time
        self.memory = memory
        self.size = size
        self.warm_up = warm_up
        self.chunk_size = chunk_size
        self.gamma = gamma
        self.shrunk = shrunk
        self.seed = seed
        parameters.whole("chunk_size", chunk_size, 1)
        parameters.whole("seed", seed, 0)
        self._pipeline = UnsupervisedPipeline(
            n_components=n_components,
            diffusion_time=diffusion_time,
            memory=memory,
            size=size,
            warm_up=warm_up,
            chunk_size=chunk_size,
            gamma=gamma,
            shrunk=shrunk,
            seed=seed,
        )
        self.imputed = 0
        self.ignored = 0
        self._early: list[dict[str, float]] = []
        self._names: tuple[str, ...] = ()
        self._sums: Floats = np.zeros(0)
        self._counts: Floats = np.zeros(0)
        self._read: tuple[Mahalanobis, Floats] | None = None

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"warm_up": 12, "chunk_size": 4, "size": 64}
        yield {"warm_up": 15, "chunk_size": 1, "size": 40, "shrunk": False}

    @property
    def ready(self) -> bool:
        """True once the warm-up is over and points are transformed."""
        return self._pipeline.ready

    @property
    def metric(self) -> Mahalanobis:
        """The metric in the caller's units; NotReadyError before the warm-up ends."""
        if not self._names:
            raise NotReadyError(
                f"{len(self._early)} events have come, and {SETTLING} settle the features: learn "
                "more of them"
            )
        return self._pipeline.metric.named(impute.names_of_columns(self._names))

    @property
    def fit(self) -> Fit:
        """How the metric was obtained; NotReadyError before the warm-up ends."""
        return self._pipeline.fit

    def learn_one(self, x: Mapping[Any, Any]) -> None:
        """Learn one event of the stream."""
        self._take(impute.read_one(x))

    def learn_many(self, X: Any) -> None:
        """Learn a mini-batch: any table that `transform_many` takes."""
        self._take(impute.read(X))

    def transform_one(self, x: Mapping[Any, Any]) -> dict[Any, Any]:
        """The point in the metric's Euclidean space, keys 0 to d - 1."""
        return dict(enumerate(self._placed(impute.read_one(x))[0].tolist()))

    def transform_many(self, X: Any) -> Any:
        """Points in the metric's Euclidean space, as the same kind of table."""
        table = impute.read(X)
        return impute.given_back(self._placed(table), X, table.frame)

    def _placed(self, table: Rows) -> Floats:
        if not self.ready:
            early = {name for row in self._early for name in row}
            names = self._names or impute.in_order(early or set(table.names))
            values = table.aligned(names)[0]
            return np.where(np.isnan(values), 0.0, values)
        values = self._filled(table.aligned(self._names)[0])
        metric = self._pipeline.metric
        if self._read is None or self._read[0] is not metric:
            self._read = (metric, balance.root(metric.matrix))
        placed: Floats = values @ self._read[1]
        return placed

    def _filled(self, values: Floats) -> Floats:
        """Missing values by the means so far."""
        means = self._sums / np.maximum(self._counts, 1.0)
        return np.where(np.isnan(values), means, values)

    def _take(self, table: Rows) -> None:
        if self._names:
            table.check(self._names)
        for i in range(len(table)):
            if self._names:
                self._push(table, i)
                continue
            self._early.append(table.row(i))
            if len(self._early) == SETTLING:
                self._settle()

    def _settle(self) -> None:
        """The features are those seen so far; what waited is learned."""
        early, self._early = self._early, []
        self._names = impute.in_order({name for row in early for name in row}) or ("0",)
        self._sums = np.zeros(len(self._names))
        self._counts = np.zeros(len(self._names))
        waiting = impute.read(early)
        for i in range(len(early)):
            self._push(waiting, i)

    def _push(self, table: Rows, index: int) -> None:
        """Impute by the means so far, learn, and let the means know what was seen."""
        part = slice(index, index + 1)
        one = Rows(table.values[part], table.names, table.ordered, table.present[part], None)
        values, unknown = one.aligned(self._names)
        seen = ~np.isnan(values[0])
        self._pipeline.learn(self._filled(values))
        self._sums += np.where(seen, values[0], 0.0)
        self._counts += seen
        self.imputed += len(seen) - int(seen.sum())
        self.ignored += unknown
