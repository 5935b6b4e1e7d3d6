"""`UnsupervisedMetric`: a distance learned without labels, as a river transformer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streamembed.data import impute
from streamembed.data.impute import FeatureRows
from streamembed.errors import NotReadyError
from streamembed.estimators.estimator import ColdStartTransformer
from streamembed.metrics.mahalanobis import Mahalanobis
from streamembed.numeric import moments
from streamembed.numeric.arrays import Bools, Floats
from streamembed.pairs import predictability
from streamembed.parameters import declare_parameters
from streamembed.threads import one_blas_thread
from streamembed.validation import check_optional, check_whole

# Events from which the features are settled.
SETTLING = 12
# Fewest events of a warm-up, and how many for each feature: the scale comes from these.
WARM_UP, WARM_UP_SHARE = 100, 10
# Events after which weights are measured again, at least.
LEAST_RENEWED = 500


@dataclass(frozen=True, slots=True, eq=False)
class WeightedStream:
    """The last events, and what was measured of them."""

    recent: Floats = field(default_factory=lambda: np.zeros((0, 0)))  # (n, d)
    position: int = 0  # events so far
    metric: Mahalanobis | None = None  # None before the warm-up ends
    measured: int = 0  # position at which it was measured


@declare_parameters({})
class UnsupervisedMetric(ColdStartTransformer):
    """Standardised Euclidean distance in which features that the others do not predict weigh less.

    No labels: structure that shows in nearest neighbours is shared by several features, so that a
    feature of which the others know nothing is noise beside it, or independent of it; it then
    weighs a tenth. Where that leaves nothing it is the Euclidean metric of standardised features.
    It is measured again after as many events as before, at most after ``size``, or 500.

    Parameters
    ----------
    size
        The last events, of which features are weighed.
    warm_up
        Events before the first measurement; None: 100, or ten for each feature if that is more, at
        most ``size``.
    seed
        Of the sample of 600 events that is measured.

    Notes
    -----
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

    size: int = 2000
    warm_up: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the parameters, and start with nothing learned."""
        check_whole("size", self.size, 6)
        check_optional(check_whole, "warm_up", self.warm_up, 6, high=self.size)
        check_whole("seed", self.seed, 0)
        self._stream = WeightedStream()
        self._begin()

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"warm_up": 12, "size": 48}
        yield {"warm_up": 15, "size": 40}

    @property
    def ready(self) -> bool:
        """True once the warm-up is over and points are transformed."""
        return self._stream.metric is not None

    @property
    def metric(self) -> Mahalanobis:
        """The metric in the caller's units; NotReadyError before the warm-up ends.

        Its certificate has ``feature_weights`` and ``predictability`` (R2 of each feature from the
        others), in the order of the features; ``weighed``, the share of the fall of weights that
        was let through; and ``measured``, the stream position.
        """
        if self._stream.metric is None:
            raise NotReadyError(
                f"{len(self._early) + self._stream.position} events have arrived, and weights are "
                "measured once the warm-up ends: learn more"
            )
        return self._stream.metric

    def flush(self) -> None:
        """Do nothing, as no event waits; NotReadyError before the warm-up ends."""
        _ = self.metric

    def _compute_coordinates(self, rows: FeatureRows) -> Floats:
        if not self.ready:
            return self._fill_with_zeros(rows)
        values = self._fill(self._count_missing(rows.align(self._names)))
        return values * np.sqrt(np.diag(self.metric.matrix))

    def _learn_rows(self, rows: FeatureRows) -> None:
        self._learn_imputed(rows, min(SETTLING, self.warm_up or SETTLING, self.size))

    @property
    def _n_learned(self) -> int:
        return self._stream.position

    def _learn(self, points: Floats, names: tuple[str, ...], is_filled: Bools) -> None:
        before = self._stream
        recent = points
        if before.position:
            recent = np.concatenate([before.recent, points])[-self.size :]
        after = replace(before, recent=recent, position=before.position + len(points))
        warm_up = self.warm_up or min(max(WARM_UP, WARM_UP_SHARE * len(names)), self.size)
        due = min(2 * before.measured, before.measured + max(len(recent), LEAST_RENEWED))
        if after.position >= max(warm_up, due):
            with one_blas_thread():
                metric = self._compute_metric(recent, after.position)
            named = metric.named(impute.name_metric_columns(names))
            after = replace(after, metric=named, measured=after.position)
        self._stream = after

    def _compute_metric(self, points: Floats, position: int) -> Mahalanobis:
        """The metric of the last events, (n, d)."""
        scale = moments.update(moments.init(points.shape[1]), points).scale
        weights = predictability.weigh_features(points / scale, (self.seed, position))
        facts = {
            "source": "features",
            "status": "ok",
            "feature_weights": weights.weights,
            "predictability": weights.r2,
            "weighed": weights.share,
            "measured": position,
        }
        return Mahalanobis.of(np.diag(weights.weights), certificate=facts).unscaled(scale)
