"""The metrics: of moments of classes and pairs, exact and mergeable, and of pairs.

Moments sample nothing: from labels, all pairs of the stream count, by way of class moments
(`streamembed.metrics.scatter`), and given pairs beside them. ITML, Eig-DML and the diagonal of
must-link pairs remember pairs, drawn from labels or given.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from streamembed import validation
from streamembed.data import impute
from streamembed.errors import NotReadyError, ParameterError
from streamembed.estimators.metric_estimator import MetricEstimator, declare_metric
from streamembed.metrics import fenn, fenn_display, training_stream
from streamembed.metrics.class_moments import join_scatters
from streamembed.metrics.contrast import ContrastLearner
from streamembed.metrics.discriminant import DiscriminantLearner
from streamembed.metrics.eig_dml import EigDMLLearner
from streamembed.metrics.fenn import FennLearner
from streamembed.metrics.fenn_display import FennDisplay
from streamembed.metrics.geometric_mean import GeometricMeanLearner
from streamembed.metrics.itml import ITMLLearner
from streamembed.metrics.learner import MetricLearner
from streamembed.metrics.mahalanobis import Mahalanobis
from streamembed.metrics.must_link import DiagonalLearner, LeadingLearner
from streamembed.numeric.arrays import Floats
from streamembed.threads import one_blas_thread


@declare_metric
class FENN(MetricEstimator):
    """The metric of least free energy: similar pairs near, at a temperature that keeps it broad.

    Every class, and every pair of classes, counts the same, however many points it has. Distances
    do not change under a linear map of the data: nothing is scaled.

    Until two classes have two points each the metric is standardised Euclidean distance, and
    its certificate's status says so. With a number for ``mu`` all points then count as one class:
    directions in which the standardised features vary little together weigh most. For points
    without labels, give all of them the same one.

    Pairs that were given make within and between scatter of their own; beside labels, a pair weighs
    as much as a point.

    Parameters
    ----------
    mu
        Temperature: "heat_capacity", the one of the largest heat capacity; "cv", the one under
        which a sample of 400 labelled points finds its classes best (more accurate, and a tenth of
        a second whenever the metric is read after more was learned); or a positive number.

    Examples
    --------
    >>> from river import datasets
    >>> model = FENN()
    >>> for x, y in datasets.Phishing().take(200):
    ...     model.learn_one(x, y)
    >>> model.metric.certificate.status, model.metric.certificate.n_informative
    ('measured', 1)
    """

    mu: float | str = "heat_capacity"
    _learner_type: ClassVar[Any] = FennLearner

    def display(self, X: Any, mu: float | None = None) -> FennDisplay:
        """Coordinates to look at: points along the directions that separate the classes.

        Where `transform_many` keeps all directions, for distances, this shows the classes less one
        that are informative; without two classes all, those of the lowest energies first.

        Parameters
        ----------
        X
            Any table that `transform_many` takes.
        mu
            Temperature, positive: towards 0 all points lie on a line, towards infinity all
            directions weigh the same. None: the one of the largest Fisher information in the range
            of the energies, or of the largest heat capacity where that has no maximum.

        Returns
        -------
        ``coordinates`` (n, k), ``weights`` (k,) with sum 1, ``directions`` (features, k), ``mu``.

        Raises
        ------
        NotReadyError
            No chunk is learned yet: learn more, or call `flush`.
        ParameterError
            mu is no positive number.

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> X, y = load_wine(return_X_y=True)
        >>> model = FENN()
        >>> model.learn_many(X, y)
        >>> shown = model.display(X)
        >>> shown.coordinates.shape, shown.weights.round(2).tolist()
        ((178, 2), [0.66, 0.34])
        """
        mu = validation.check_optional(validation.check_real, "mu", mu, 1e-12, 1e12)
        if self._stream is None:
            raise NotReadyError(
                f"display needs a whole chunk, and {self.position} events have arrived: learn "
                "more, or call flush()"
            )
        rows = impute.read(X).align(self._names)
        points = self._stream.spread.fill_gaps(self._count_missing(rows))
        with one_blas_thread():
            shown = training_stream.show_waiting(self._stream, self._learner, self._key)
            scatters = join_scatters(shown.progress[self._key].state)
            return fenn_display.compute_display(points, fenn.compute_spectrum(scatters), mu)

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"chunk_size": 4}
        yield {"chunk_size": 10, "mu": "cv"}


@declare_metric
class DiscriminantAnalysis(MetricEstimator):
    """Linear discriminant analysis: the directions that separate the classes, as a distance.

    (`river` calls something else LDA: latent Dirichlet allocation.) The metric has the rank of the
    classes less one; `transform_one` gives the discriminant coordinates, best first, and zeros for
    the rest. Nothing is scaled: the directions do not depend on the units of the features.

    With one class, or equal means, the metric is standardised Euclidean distance. Pairs that were
    given make within and between scatter of their own; beside labels, a pair weighs as much as a
    point.

    Examples
    --------
    >>> from river import datasets
    >>> model = DiscriminantAnalysis()
    >>> for x, y in datasets.Phishing().take(200):
    ...     model.learn_one(x, y)
    >>> model.metric.certificate.status, model.metric.rank
    ('measured', 1)
    """

    _learner_type: ClassVar[Any] = DiscriminantLearner

    def _compute_root(self, metric: Mahalanobis) -> Floats:
        directions = np.array(metric.certificate.get("directions", ()))
        if directions.size == 0:
            return super()._compute_root(metric)
        return np.pad(directions, ((0, 0), (0, len(directions) - directions.shape[1])))


@declare_metric
class ContrastMetric(MetricEstimator):
    """(alpha I + C - F)^-1 made a metric: similar pairs near, dissimilar ones far, in one step.

    C and F are the means of the outer products of differences of similar and of dissimilar pairs:
    all pairs of labelled points, and the pairs that were given, each counting the same. Features
    are divided by their deviations over all that was learned; `metric` is in the caller's units.

    As printed in the source the formula is no metric on real data: eigenvalues below 1 % of the
    mean diagonal of C are raised to that, and its certificate's ``n_clipped`` counts them. It lost
    to Euclidean distance on five of seven data sets; `GeometricMeanMetric` did not.

    Parameters
    ----------
    alpha
        Positive; in squared deviations.

    Examples
    --------
    >>> from river import datasets
    >>> model = ContrastMetric()
    >>> for x, y in datasets.Phishing().take(200):
    ...     model.learn_one(x, y)
    >>> model.metric.certificate.status, model.metric.matrix.shape
    ('guarded', (9, 9))
    """

    alpha: float = 0.01
    _learner_type: ClassVar[Any] = ContrastLearner


@declare_metric
class GeometricMeanMetric(MetricEstimator):
    """The metric between C^-1 and F: similar pairs shrunk, dissimilar ones stretched.

    A = C^-1/2 (C^1/2 F C^1/2)^t C^-1/2, with C and F as in `ContrastMetric`, of features divided by
    their deviations over all that was learned; `metric` is in the caller's units. At t = 1/4 the
    metric was nowhere more than half a point of 5-NN accuracy below standardised Euclidean
    distance, and up to 2 above: the one to take without looking.

    Where similar or dissimilar pairs are missing the metric is standardised Euclidean distance, and
    its certificate's status tells which.

    Parameters
    ----------
    t
        Place between C^-1 (0) and F (1).

    Examples
    --------
    >>> from river import datasets
    >>> model = GeometricMeanMetric()
    >>> for x, y in datasets.Phishing().take(200):
    ...     model.learn_one(x, y)
    >>> model.metric.certificate.status
    'measured'
    """

    t: float = 0.25
    _learner_type: ClassVar[Any] = GeometricMeanLearner


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
