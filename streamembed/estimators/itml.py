"""`ITML`: the metric nearest to a prior with similar pairs near and dissimilar ones far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streamembed import reservoir
from streamembed.core import histogram, itml, itml_fast
from streamembed.core.arrays import Floats
from streamembed.core.histogram import Histogram
from streamembed.core.linalg import symmetric
from streamembed.core.mahalanobis import Mahalanobis, numbers_of
from streamembed.errors import FeatureError, ParameterError
from streamembed.estimators import paired, parameters
from streamembed.estimators.events import Chunk
from streamembed.estimators.metric import MetricEstimator
from streamembed.estimators.spread import Spread
from streamembed.reservoir import Reservoirs

__all__ = ["ITML", "ITMLInfo", "ITMLState"]

# Bounds are percentiles of distances between recent points: each new one with this many of the
# last RECENT, two thousand distances after 200 points.
DRAWS = 10
RECENT = 200


@dataclass(frozen=True, slots=True, eq=False)
class ITMLState:
    """The core's state in scaled features, and what pairs and bounds are drawn from.

    Attributes
    ----------
    core : itml.State
        Prior, metric, pairs and duals.
    sample : Reservoirs
        Of every class, for partners.
    recent : (m, d)
        The last points, scaled.
    distances : Histogram
        Squared, under the prior, of random recent pairs.
    scale : (d,)
        What features are divided by, settled with the first chunk.
    backend : str
        Of the sweeps; answers of the two differ in the last bits.
    last : itml.Info or None
        Of the last chunk.
    unbounded : int
        Pairs that came before any bound could be told: not learned.
    """

    core: itml.State
    sample: Reservoirs
    recent: Floats
    distances: Histogram
    scale: Floats
    backend: Literal["numpy", "numba"]
    last: itml.Info | None
    unbounded: int


@dataclass(frozen=True, slots=True)
class ITMLInfo:
    """How good the metric is for the pairs remembered.

    Attributes
    ----------
    measures : itml.Measures
        Residual of the optimality conditions, gap and objective.
    upper, lower : float or None
        Bounds on squared distances of similar and dissimilar pairs, in use now; None: none yet.
    n_pairs, n_seen, n_dropped, n_unbounded : int
        Pairs remembered, seen; of equal points, which no metric moves; and those that came while
        no bound could be told.
    status : str
        That of the last chunk: ``ok``, ``rebuilt``, or ``no bounds``.
    """

    measures: itml.Measures
    upper: float | None
    lower: float | None
    n_pairs: int
    n_seen: int
    n_dropped: int
    n_unbounded: int
    status: str


class ITML(MetricEstimator):
    """The metric nearest to a prior that has similar pairs below a bound, dissimilar ones above.

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
        first one has at least 20 events.
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
                f"upper={upper!r} must be at most lower={lower!r}: similar pairs stay below upper, "
                "dissimilar ones above lower"
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

    def _start(self, chunk: Chunk, seen: Spread) -> ITMLState:
        return ITMLState(
            itml.init(self._prior(chunk, seen), float(self.gamma)),
            reservoir.init(paired.CAPACITY, recent=self.forgetting > 0),
            np.zeros((0, len(seen.means))),
            histogram.init(),
            seen.scale,
            "numba" if itml_fast.available else "numpy",
            last=None,
            unbounded=0,
        )

    def _prior(self, chunk: Chunk, seen: Spread) -> Floats:
        """A_0 of scaled features."""
        d = len(seen.means)
        if not isinstance(self.prior, str):
            prior = np.asarray(self.prior, dtype=np.float64)
            if prior.shape != (d, d):
                raise FeatureError(
                    f"prior has the shape {prior.shape}, and the stream {d} features: it must be "
                    f"({d}, {d}), in the order {list(self.feature_names)}"
                )
            return symmetric(prior) * np.outer(seen.scale, seen.scale)
        if self.prior == "identity":
            return np.eye(d)
        points = _points(chunk.scaled(seen.scale))
        points = points - points.mean(axis=0)
        # of n points a covariance has n - 1 directions: towards the identity, the more they lack
        share = d / (len(points) + d)
        inverse: Floats = np.linalg.inv(
            (1.0 - share) * (points.T @ points) / len(points) + share * np.eye(d)
        )
        return symmetric(inverse)

    def _push(self, state: ITMLState, chunk: Chunk, seen: Spread) -> ITMLState:
        chunk = chunk.scaled(state.scale)
        sample, differences, similar = paired.pairs(state.sample, chunk)
        recent, distances = self._distances(state, chunk)
        bounds = self._bounds(distances)
        core, last, unbounded = state.core, state.last, state.unbounded
        if bounds is None:
            unbounded += len(differences)
        else:
            core, last = itml.update(
                core,
                differences,
                similar,
                *bounds,
                buffer=int(self.buffer),
                sweeps=int(self.sweeps),
                forgetting=float(self.forgetting),
                seed=int(self.seed),
                sweep=itml_fast.sweeper(state.backend if itml_fast.available else "numpy"),
            )
            if last.status == "refused":
                raise np.linalg.LinAlgError
        return ITMLState(
            core, sample, recent, distances, state.scale, state.backend, last, unbounded
        )

    def _distances(self, state: ITMLState, chunk: Chunk) -> tuple[Floats, Histogram]:
        """The last points, and squared distances of new ones to some of them, under the prior."""
        points = _points(chunk)
        pool = np.concatenate([state.recent, points])
        distances = histogram.decay(state.distances, 1.0 - float(self.forgetting))
        if len(pool) > 1:
            own = np.repeat(np.arange(len(state.recent), len(pool)), DRAWS)
            generator = np.random.default_rng((int(self.seed), chunk.position, DRAWS))
            other = generator.integers(len(pool) - 1, size=len(own))
            steps = pool[own] - pool[other + (other >= own)]
            d2 = np.einsum("ij,ij->i", steps @ state.core.prior, steps)
            distances = histogram.update(distances, np.maximum(d2, 0.0))
        return pool[-RECENT:].copy(), distances

    def _bounds(self, distances: Histogram) -> tuple[float, float] | None:
        """Upper and lower: as given, or running; a running one gives way to a given one."""
        if self.upper is not None and self.lower is not None:
            return float(self.upper), float(self.lower)
        running = itml.percentile_bounds(distances)
        if running is None:
            return None
        if self.upper is not None:
            return float(self.upper), max(running[1], float(self.upper))
        if self.lower is not None:
            return min(running[0], float(self.lower)), float(self.lower)
        return running

    def _measure(self, state: ITMLState, seen: Spread) -> tuple[Mahalanobis, ITMLInfo]:
        upper, lower = self._bounds(state.distances) or (None, None)
        info = ITMLInfo(
            itml.measure(state.core),
            upper,
            lower,
            n_pairs=len(state.core),
            n_seen=state.core.seen,
            n_dropped=state.core.dropped,
            n_unbounded=state.unbounded,
            status="no bounds" if state.last is None else state.last.status,
        )
        metric = Mahalanobis.of(state.core.matrix, certificate=info)
        return metric.unscaled(state.scale), info


def _points(chunk: Chunk) -> Floats:
    """Every point of a chunk, both ends of the pairs that were given too, in order."""
    both = np.stack([chunk.first, chunk.second], axis=1)
    there = np.stack([np.ones(len(chunk), dtype=bool), chunk.codes < 0], axis=1)
    points: Floats = both[there]
    return points
