"""Metrics from moments of classes and of pairs, exact and mergeable.

Nothing is sampled: from labels, all pairs of the stream count, by way of class moments
(`streamembed.metrics.scatter`); given pairs count beside them.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from streamembed.data import impute
from streamembed.errors import NotReadyError
from streamembed.estimators.metric_estimator import MetricEstimator, declare_metric
from streamembed.metrics import fenn, fenn_display, training_stream
from streamembed.metrics.class_moments import join_scatters
from streamembed.metrics.contrast import ContrastLearner
from streamembed.metrics.discriminant import DiscriminantLearner
from streamembed.metrics.fenn import FennLearner
from streamembed.metrics.fenn_display import FennDisplay
from streamembed.metrics.geometric_mean import GeometricMeanLearner
from streamembed.metrics.mahalanobis import Mahalanobis
from streamembed.numeric.arrays import Floats
from streamembed.threads import one_blas_thread
from streamembed.validation import check_optional, check_real


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
        mu = check_optional(check_real, "mu", mu, 1e-12, 1e12)
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
