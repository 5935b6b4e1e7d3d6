"""`UnsupervisedMetric`: a distance learned without labels, as a river transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamembed.data import impute
from streamembed.data.impute import FeatureRows
from streamembed.engine.engine import PARAMETERS, Engine
from streamembed.errors import NotReadyError
from streamembed.estimators.cold_start import ColdStartTransformer
from streamembed.methods.options import Config
from streamembed.metrics import metric_roots
from streamembed.metrics.mahalanobis import Mahalanobis
from streamembed.numeric.arrays import Bools, Floats
from streamembed.parameters import declare_parameters
from streamembed.validation import check_optional, check_whole

# Events from which the features are settled.
SETTLING = 12
# Fewest events of a warm-up, and how many for each feature: the scale comes from these.
WARM_UP, WARM_UP_SHARE = 100, 10


@declare_parameters(PARAMETERS)
class UnsupervisedMetric(ColdStartTransformer):
    """A Mahalanobis metric from generated pairs: no labels.

    It is the metric ``itml`` of an engine that has no labels: features that the others do not
    predict weigh less, and pairs that an embedding separates change it as far as halves of the
    events agree, and no feature is predicted worse for it. Where that leaves nothing it is the
    Euclidean metric of standardised features, and `metric`'s certificate says why. It is measured
    again after as many events as before, at most after ``size``.

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

    memory: str = "window"
    size: int = 2000
    half_life: float | None = None
    warm_up: int | None = None
    chunk_size: int = 50
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the parameters, and start with nothing learned."""
        check_optional(check_whole, "warm_up", self.warm_up, 6)
        self._build_config(1)
        self._engine: Engine | None = None
        self._begin()
        self._read: tuple[Mahalanobis, Floats] | None = None

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"warm_up": 12, "chunk_size": 8, "size": 48}
        yield {"warm_up": 15, "chunk_size": 5, "size": 40}

    @property
    def ready(self) -> bool:
        """True once the warm-up is over and points are transformed."""
        return self._engine is not None and self._engine.ready

    @property
    def engine(self) -> Engine:
        """The engine inside, to be saved or looked at; NotReadyError before it has the features."""
        if self._engine is None:
            raise NotReadyError(
                f"{len(self._early)} events have arrived, and {self._settling} determine the "
                "features: learn more"
            )
        return self._engine

    @property
    def metric(self) -> Mahalanobis:
        """The metric in the caller's units; NotReadyError before the warm-up ends."""
        metric = self.engine.publish().metrics["itml"]
        return metric.named(impute.name_metric_columns(self._names))

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
        self.engine.flush()

    @property
    def _settling(self) -> int:
        """Events that determine the features."""
        return min(SETTLING, self.warm_up or SETTLING)

    def _place(self, rows: FeatureRows) -> Floats:
        if not self.ready:
            return self._fill_with_zeros(rows)
        values = self._fill(self._count_missing(rows.align(self._names)))
        metric = self.engine.publish().metrics["itml"]
        if self._read is None or self._read[0] is not metric:
            self._read = (metric, metric_roots.compute_root(metric.matrix))
        return values @ self._read[1]

    def _take(self, table: FeatureRows) -> None:
        if self._names:
            table.check(self._names)
        self._complete(table, self._settling)

    def _build_config(self, width: int) -> Config:
        """Of the engine, for so many features; of its map, the cheapest, nothing is shown."""
        warm_up = self.warm_up
        if warm_up is None:
            warm_up = max(WARM_UP, WARM_UP_SHARE * width, self.chunk_size)
            warm_up = warm_up if self.memory == "all" else min(warm_up, self.size)
        own = {**self._get_params(), "warm_up": warm_up}
        return Config(kernel="gaussian", n_components=1, tolerance=None, metrics=("itml",), **own)

    @property
    def _learned(self) -> int:
        return 0 if self._engine is None else self._engine.position

    def _learn(self, points: Floats, names: tuple[str, ...], is_filled: Bools) -> None:
        engine = self._engine or Engine(**self._build_config(len(names)).as_dict())
        engine.learn(points)
        self._engine = engine

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_read": None}
