"""`ITML`: the metric nearest to a prior with similar pairs near and dissimilar ones far."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamembed import parameters
from streamembed.errors import ParameterError
from streamembed.estimators.metric import MetricEstimator
from streamembed.learners.itml import ITMLInfo, ITMLLearner
from streamembed.metric_learning import itml
from streamembed.metric_learning.mahalanobis import numbers_of

__all__ = ["ITML", "ITMLInfo"]


class ITML(MetricEstimator):
    """The metric nearest to a prior with similar pairs below a bound and dissimilar ones above.

    min D(A, A_0) + gamma D(bounds moved, bounds), D being the LogDet divergence; one sweep over
    the remembered pairs a chunk comes within 1 % of the batch objective. Each labelled point makes
    up to two pairs, with a remembered point of its class and with one of another.

    Features are divided by their deviations over the first chunk, and so are the coordinates of
    the prior and of the bounds; `metric` is in the caller's units. The prior "identity" therefore
    is standardised Euclidean distance.

    With numba (the extra ``fast``) sweeps are some ten times faster, after a second of compiling.

    Parameters
    ----------
    gamma
        Price of moving a bound, positive. 1 converges twenty to forty times slower than 0.1.
    upper, lower
        Bounds on squared distances under the scale above; None: the running 5th and 95th
        percentiles of squared distances between recent points, under the prior.
    buffer
        Pairs remembered, at least 1.
    sweeps
        Over all of them, a chunk.
    forgetting
        Share, in [0, 1), of the metric that goes back to the prior at every chunk; 0.005 for
        streams that drift.
    prior
        "identity"; "covariance": the inverse covariance of the first chunk, with a ridge; or a
        positive definite matrix in the caller's units, features in the order of `feature_names`.
    chunk_size
        Events per update. Chunks are cut at multiples of it in the stream, never by the call; the
        first one has at least 20 events. `metric` is as of the last whole chunk.
    seed
        Of what is drawn, together with the position.

    Raises
    ------
    ParameterError
        A parameter cannot have that value.

    Examples
    --------
    >>> from river import datasets
    >>> model = ITML()
    >>> for x, y in datasets.Phishing().take(200):
    ...     model.learn_one(x, y)
    >>> model.info.status, model.info.n_pairs > 300
    ('ok', True)
    """

    def __init__(
        self,
        gamma: float = 0.1,
        upper: float | None = None,
        lower: float | None = None,
        buffer: int = 2000,
        sweeps: int = 1,
        forgetting: float = 0.0,
        prior: str | npt.ArrayLike = "identity",
        chunk_size: int = 50,
        seed: int = 0,
    ) -> None:
        self.gamma = gamma
        self.upper = upper
        self.lower = lower
        self.buffer = buffer
        self.sweeps = sweeps
        self.forgetting = forgetting
        self.prior = prior
        self.chunk_size = chunk_size
        self.seed = seed
        parameters.real("gamma", gamma, 1e-12, 1e12)
        for name, bound in (("upper", upper), ("lower", lower)):
            if bound is not None:
                parameters.real(name, bound, 0.0, np.inf, " or None", opened=True)
        if upper is not None and lower is not None and not upper <= lower:
            raise ParameterError(
                f"upper={upper!r} must be at most lower={lower!r}: similar pairs could be farther "
                "apart than dissimilar ones; swap them"
            )
        parameters.whole("buffer", buffer, 1)
        parameters.whole("sweeps", sweeps, 0)
        parameters.real("forgetting", forgetting, 0.0, 1.0 - 1e-12)
        if isinstance(prior, str):
            parameters.one_of("prior", prior, ("identity", "covariance"), " or a matrix")
        else:
            itml.init(numbers_of(prior, "prior", ParameterError), gamma)  # says what is wrong
        self._begin()

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"chunk_size": 4}
        yield {"chunk_size": 10, "buffer": 30, "forgetting": 0.01, "prior": "covariance"}
        yield {"chunk_size": 5, "upper": 1.0, "lower": 20.0, "sweeps": 2}

    def _made(self) -> ITMLLearner:
        prior = self.prior if isinstance(self.prior, str) else np.asarray(self.prior, np.float64)
        return ITMLLearner(
            gamma=float(self.gamma),
            upper=None if self.upper is None else float(self.upper),
            lower=None if self.lower is None else float(self.lower),
            buffer=int(self.buffer),
            sweeps=int(self.sweeps),
            forgetting=float(self.forgetting),
            prior=prior,
            seed=int(self.seed),
        )
