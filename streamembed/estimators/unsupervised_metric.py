"""`UnsupervisedMetric`: a distance learned without labels, as a river transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamembed.data import impute
from streamembed.data.impute import FeatureRows
from streamembed.errors import NotReadyError
from streamembed.estimators.cold_start import ColdStartTransformer
from streamembed.estimators.replicate import Fit
from streamembed.estimators.unsupervised_pipeline import UnsupervisedPipeline
from streamembed.metric_learning import metric_roots
from streamembed.metric_learning.mahalanobis import Mahalanobis
from streamembed.numeric.arrays import Floats
from streamembed.parameters import declare_parameters, read_texts

# Events from which the features are settled.
SETTLING = 12


@declare_parameters(read_texts(UnsupervisedPipeline.__doc__))
class UnsupervisedMetric(ColdStartTransformer):
    """A Mahalanobis metric from generated pairs: no labels.

    It is shrunk by how well the metrics of two halves of the stream agree: where nothing that
    reproduces is there to learn, it is the Euclidean metric of standardised features.

    - *Cold start.* Until the warm-up ends points come back as they are, missing values as 0.
    - *Features.* The schema is every feature of the first twelve events, or of the warm-up if it is
      shorter. A feature that appears later is ignored, and counted in ``ignored``.
    - *Missing values* become the mean of what the stream has had of the feature, and are counted in
      ``imputed``.

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

    n_components: int | None = None
    diffusion_time: float | None = 16.0
    memory: str = "window"
    size: int = 2000
    warm_up: int | None = None
    chunk_size: int = 50
    gamma: float = 0.1
    shrunk: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the parameters, and start with nothing learned."""
        self._pipeline = UnsupervisedPipeline(**self._get_params())
        self._begin()
        self._read: tuple[Mahalanobis, Floats] | None = None

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"warm_up": 12, "chunk_size": 8, "size": 48}
        yield {"warm_up": 15, "chunk_size": 5, "size": 40, "shrunk": False}

    @property
    def ready(self) -> bool:
        """True once the warm-up is over and points are transformed."""
        return self._pipeline.ready

    @property
    def metric(self) -> Mahalanobis:
        """The metric in the caller's units; NotReadyError before the warm-up ends."""
        if not self._names:
            raise NotReadyError(
                f"{len(self._early)} events have arrived, and {self._settling} determine the "
                "features: learn more"
            )
        return self._pipeline.metric.named(impute.name_metric_columns(self._names))

    @property
    def fit(self) -> Fit:
        """How the metric was obtained; NotReadyError before the warm-up ends."""
        return self._pipeline.fit

    def learn_one(self, x: Mapping[Any, Any]) -> None:
        """Learn one event of the stream."""
        self._take(impute.read_point(x))

    def learn_many(self, X: Any) -> None:
        """Learn a mini-batch: any table that `transform_many` takes."""
        self._take(impute.read(X))

    def flush(self) -> None:
        """Learn the pending events as a short chunk; this is itself an event of the stream.

        Raises
        ------
        NotReadyError
            Before the warm-up ends: a warm-up is never cut short.
        """
        self._pipeline.flush()

    @property
    def _settling(self) -> int:
        """Events that determine the features."""
        return min(SETTLING, self.warm_up or SETTLING)

    def _place(self, rows: FeatureRows) -> Floats:
        if not self.ready:
            return self._fill_with_zeros(rows)
        values = self._fill(self._count_missing(rows.align(self._names)))
        metric = self._pipeline.metric
        if self._read is None or self._read[0] is not metric:
            self._read = (metric, metric_roots.compute_root(metric.matrix))
        return values @ self._read[1]

    def _take(self, table: FeatureRows) -> None:
        if self._names:
            table.check(self._names)
        self._complete(table, SETTLING)

    @property
    def _learned(self) -> int:
        return self._pipeline.position

    def _learn(self, points: Floats, names: tuple[str, ...]) -> None:
        self._pipeline.learn(points)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_read": None}
