"""Metrics from pairs, drawn from labels or given: `ITML`, `EigDML`, `MustLinkMetric`."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy.typing as npt

from streamembed import validation
from streamembed.errors import ParameterError
from streamembed.estimators.metric_estimator import MetricEstimator, declare_metric
from streamembed.metrics.eig_dml import EigDMLLearner
from streamembed.metrics.itml import ITMLLearner
from streamembed.metrics.learner import MetricLearner
from streamembed.metrics.must_link import DiagonalLearner, LeadingLearner


@declare_metric
class ITML(MetricEstimator):
    """The metric nearest to a prior with similar pairs below a bound and dissimilar ones above.

    min D(A, A_0) + gamma D(bounds moved, bounds), D being the LogDet divergence; one sweep over
    the remembered pairs a chunk comes within 1 % of the batch objective. Each labelled point makes
    up to two pairs, with a remembered point of its class and with one of another.

    Features are divided by their deviations over the first chunk, and so are the coordinates of
    the prior and of the bounds; `metric` is in the caller's units. The prior "identity" therefore
    is standardised Euclidean distance.

    Without a similar, or without a dissimilar pair so far, the metric shrinks or stretches all, and
    its status says so. The answer depends on the order of the pairs: it cannot be merged.

    Parameters
    ----------
    gamma
        Price of moving a bound, positive. 1 converges twenty to forty times slower than 0.1.
    upper, lower
        Bounds on squared distances under the scale above; None: the running 5th and 95th
        percentiles of squared distances between recent points, under the prior.
    buffer
        Pairs remembered, at least 2: the newest, half of either kind. A kind that comes alone at
        first has 500 places at least.
    sweeps
        Over all of them, a chunk.
    forgetting
        Share, in [0, 1), of the metric that goes back to the prior at every chunk; 0.005 for
        streams that drift.
    prior
        "identity"; "covariance": the inverse of the first chunk's covariance, shrunk towards the
        identity by d / (n + d) of n points; or a positive definite matrix in the caller's units,
        features in the order of `feature_names`.

    Examples
    --------
    >>> from river import datasets
    >>> model = ITML()
    >>> for x, y in datasets.Phishing().take(200):
    ...     model.learn_one(x, y)
    >>> model.metric.certificate.status, model.metric.certificate.n_pairs > 300
    ('ok', True)
    """

    gamma: float = 0.1
    upper: float | None = None
    lower: float | None = None
    buffer: int = 2000
    sweeps: int = 1
    forgetting: float = 0.0
    prior: str | npt.ArrayLike = "identity"
    _learner_type: ClassVar[Any] = ITMLLearner

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"chunk_size": 4}
        yield {
            "chunk_size": 10,
            "buffer": 30,
            "forgetting": 0.01,
            "prior": "covariance",
            "sweeps": 2,
        }


@declare_metric
class EigDML(MetricEstimator):
    """Maximise the smallest squared distance of dissimilar pairs, by Frank-Wolfe steps.

    The mean squared distance of similar pairs is fixed at the number of features. Each labelled
    point makes up to two pairs, with a remembered point of its class and with one of another. The
    answer does not depend on the units of the features: nothing is scaled. Before there are
    similar pairs the metric is the identity, before there are dissimilar ones the inverse of their
    scatter.

    ``gap`` of its certificate bounds how far the metric is from the best for the dissimilar pairs
    remembered. Near to the optimum is not the same as accurate: a ``smoothing`` of 0.5 or 2 weighs
    more pairs than the nearest and bears wrong labels. On letter it is less accurate than Euclidean
    distance.

    Parameters
    ----------
    smoothing
        Of the minimum, relative to the smallest squared distance; positive. 0.02 comes within 7 %
        of the optimum.
    buffer
        Dissimilar pairs remembered, at least 2.
    policy
        "hard" remembers the nearest, and a sample of the rest; "recent" the newest, as do the
        samples of the classes, for streams that drift.
    steps
        Frank-Wolfe steps a chunk.
    step_cap
        Steps are never shorter than 2 / (step_cap + 2): smaller follows drift faster.
    decay
        Weight of a pair after each later one, in (0, 1), for streams that drift; None: 1.

    Examples
    --------
    >>> from river import datasets
    >>> model = EigDML()
    >>> for x, y in datasets.Phishing().take(200):
    ...     model.learn_one(x, y)
    >>> model.metric.certificate.status, model.metric.certificate.n_far > 150
    ('gap open', True)
    """

    smoothing: float = 0.5
    buffer: int = 1000
    policy: str = "hard"
    steps: int = 10
    step_cap: int = 300
    decay: float | None = None
    _learner_type: ClassVar[Any] = EigDMLLearner

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"chunk_size": 4}
        yield {"chunk_size": 2, "policy": "recent", "decay": 0.99, "buffer": 60}


@declare_metric
class MustLinkMetric(MetricEstimator):
    """Must-link pairs near, cannot-link pairs far: directions by the ratio of their spreads.

    A = sum sqrt(f_i) u_i u_i^T over the directions with F u = f C u and u^T C u = 1, C and F being
    the means of the outer products of differences of must-link and of cannot-link pairs: all pairs
    of labelled points, and the pairs that were given. Exact from sums, and merged exactly. The
    answer does not depend on the units of the features: nothing is scaled. Before there are
    must-link pairs the metric is the identity.

    With ``diagonal`` the last thousand cannot-link pairs are remembered, each labelled point making
    up to two pairs with remembered ones (docs/algorithms/must-link.md).

    Parameters
    ----------
    rank
        Directions to keep: those with the largest ratio of cannot-link to must-link spread.
        One direction is useless among many classes. None: all.
    diagonal
        True: weights of the features only, nothing for their correlations, with the largest mean
        (unsquared) distance of cannot-link pairs at a fixed mean squared one of must-link
        pairs; ``gap`` of the certificate bounds how far from the optimum they are. Not together
        with ``rank``.

    Examples
    --------
    >>> from river import datasets
    >>> model = MustLinkMetric(diagonal=True)
    >>> for x, y in datasets.Phishing().take(200):
    ...     model.learn_one(x, y)
    >>> model.metric.certificate.status
    'certified'
    """

    rank: int | None = None
    diagonal: bool = False

    def __post_init__(self) -> None:
        """Check the parameters, and start with nothing learned."""
        validation.check_flag("diagonal", self.diagonal)
        if self.rank is not None and self.diagonal:
            raise ParameterError(
                f"rank={self.rank!r} must be None with diagonal=True, whose solution has no "
                "leading directions; drop one of them"
            )
        super().__post_init__()

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"chunk_size": 4}
        yield {"chunk_size": 4, "rank": 2}
        yield {"chunk_size": 4, "diagonal": True}

    def _make_learner(self) -> MetricLearner:
        if self.diagonal:
            return DiagonalLearner(seed=self.seed)
        return LeadingLearner(self.rank)
