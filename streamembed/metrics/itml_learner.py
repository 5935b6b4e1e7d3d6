"""ITML as a learner: units, partners, running bounds, and the core's sweeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np

from streamembed.errors import FeatureError, ParameterError
from streamembed.metrics import bregman, drawn_pairs, itml, itml_buffer, itml_numba
from streamembed.metrics.bregman import Constraints
from streamembed.metrics.examples import Examples
from streamembed.metrics.learner import MeasuredMetric, MetricLearner
from streamembed.metrics.mahalanobis import parse_numbers
from streamembed.metrics.totals import NO_UPDATES, Totals
from streamembed.numeric import compilation, histogram
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.histogram import Histogram
from streamembed.numeric.linalg import symmetrise
from streamembed.pairs import reservoir
from streamembed.pairs.reservoir import Reservoirs
from streamembed.validation import (
    check_choice,
    check_optional,
    check_real,
    check_whole,
    set_fields,
)

# Bounds are percentiles of distances between recent points: each new one with this many of the
# last RECENT, two thousand distances after 200 points.
DRAWS = 10
RECENT = 200


@dataclass(frozen=True, slots=True, eq=False)
class ITMLState:
    """The core's state in scaled features, and what pairs and bounds come from."""

    core: itml_buffer.State  # Prior, metric, pairs and duals
    sample: Reservoirs  # of every class, for partners
    recent: Annotated[Floats, "m d"]  # the last points, scaled
    distances: Histogram  # Squared, under the prior, of random recent pairs
    # What features are divided by: fixed by the first chunk; of merged states between theirs,
    # weighted by the pairs that each has seen.
    scale: Annotated[Floats, "d"]
    # Bounds of the last update.
    upper: float | None
    lower: float | None
    backend: Literal["numpy", "numba"]  # of the sweeps; answers of the two differ in the last bits
    status: str  # of the last update that was learned; ``no bounds`` before one
    unbounded: int  # pairs that came before there was any bound: not learned


@dataclass(frozen=True, slots=True)
class ITMLInfo:
    """How good the metric is for the pairs remembered."""

    measures: itml.Measures  # residual of the optimality conditions, gap and objective
    # Bounds on squared distances of similar and dissimilar pairs, in use now; None: none yet.
    upper: float | None
    lower: float | None
    # Pairs remembered, seen; of equal points, which no metric moves; and those that came before
    # there was any bound.
    n_pairs: int
    n_seen: int
    n_dropped: int
    n_unbounded: int
    backend: str  # of the sweeps, ``numpy`` or ``numba``
    # That of the last chunk that was learned: ``ok``, ``rebuilt``, or ``no bounds``. ``no close
    # pairs``, ``no far pairs``: the metric knows one kind only, and shrinks or stretches all.
    status: str
    # How far A^-1 is taken back to the prior's: 1, wholly. 0 but where pairs that have left the
    # buffer, as in a sorted stream, speak against the metric: take a larger buffer, or shuffle.
    # Always 0 with forgetting.
    shrinkage: float
    totals: Totals = NO_UPDATES  # of all chunks


@dataclass(frozen=True)
class ITMLLearner(MetricLearner):
    """See `streamembed.estimators.ITML`; a prior that is a matrix is in the caller's units."""

    gamma: float = 0.1
    upper: float | None = None
    lower: float | None = None
    buffer: int = 2000
    sweeps: int = 1
    forgetting: float = 0.0
    prior: str | Floats = "identity"
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every parameter, and keep it as a plain value."""
        set_fields(
            self,
            gamma=check_real("gamma", self.gamma, 1e-12, 1e12),
            upper=check_optional(check_real, "upper", self.upper, 0.0, np.inf, opened=True),
            lower=check_optional(check_real, "lower", self.lower, 0.0, np.inf, opened=True),
            buffer=check_whole("buffer", self.buffer, 1),
            sweeps=check_whole("sweeps", self.sweeps, 0),
            forgetting=check_real("forgetting", self.forgetting, 0.0, 1.0 - 1e-12),
            seed=check_whole("seed", self.seed, 0),
        )
        if self.upper is not None and self.lower is not None:
            bregman.check_bounds(self.upper, self.lower)
        if isinstance(self.prior, str):
            check_choice("prior", self.prior, ("identity", "covariance"), " or a matrix")
        else:
            prior = parse_numbers(self.prior, "prior", ParameterError)
            itml.init(prior)  # refuses what is no metric
            set_fields(self, prior=prior)

    def init(self, examples: Examples, scale: Floats) -> ITMLState:
        """Features are divided by these deviations from now on."""
        return ITMLState(
            core=itml.init(self._build_prior(examples, scale), self.gamma),
            sample=reservoir.init(drawn_pairs.CAPACITY, recent=self.forgetting > 0),
            recent=np.zeros((0, len(scale))),
            distances=histogram.init(),
            scale=scale,
            upper=None,
            lower=None,
            backend="numba" if compilation.is_available() else "numpy",
            status="no bounds",
            unbounded=0,
        )

    def _build_prior(self, examples: Examples, scale: Floats) -> Floats:
        """A_0 of scaled features."""
        d = len(scale)
        if not isinstance(self.prior, str):
            if self.prior.shape != (d, d):
                raise FeatureError(
                    f"prior has shape {self.prior.shape}, but the stream has {d} features: it must "
                    f"be ({d}, {d}), in the order of feature_names"
                )
            return symmetrise(self.prior) * np.outer(scale, scale)
        if self.prior == "identity":
            return np.eye(d)
        points = examples.scaled(scale).ends
        points = points - points.mean(axis=0)
        # a covariance of n points has n - 1 directions: the fewer, the nearer to the identity
        share = d / (len(points) + d)
        inverse: Floats = np.linalg.inv(
            (1.0 - share) * (points.T @ points) / len(points) + share * np.eye(d)
        )
        return symmetrise(inverse)

    def update(self, state: ITMLState, examples: Examples) -> tuple[ITMLState, str]:
        """The bounds updated, then sweeps over the pairs remembered."""
        chunk = examples.scaled(state.scale)
        sample, differences, similar = drawn_pairs.draw_pairs(state.sample, chunk)
        recent, distances = self._measure_distances(state, chunk)
        bounds = self._choose_bounds(distances)
        core, status, unbounded = state.core, state.status, state.unbounded
        if bounds is None:
            unbounded += len(differences)
        else:
            core, info = itml.update(
                core,
                differences,
                similar,
                *bounds,
                buffer=self.buffer,
                sweeps=self.sweeps,
                forgetting=self.forgetting,
                seed=self.seed,
                sweep=_find_sweep(state.backend),
            )
            status = info.status
        upper, lower = bounds or (None, None)
        after = replace(
            state,
            core=core,
            sample=sample,
            recent=recent,
            distances=distances,
            upper=upper,
            lower=lower,
            status=status,
            unbounded=unbounded,
        )
        return after, "no bounds" if bounds is None else status

    def _measure_distances(self, state: ITMLState, chunk: Examples) -> tuple[Floats, Histogram]:
        """The last points, and squared distances of new ones to some of them, under the prior."""
        points = chunk.ends
        pool = np.concatenate([state.recent, points])
        distances = histogram.decay(state.distances, 1.0 - self.forgetting)
        generator = np.random.default_rng((self.seed, chunk.position, DRAWS))
        distances = _add_distances(distances, pool, len(state.recent), state.core.prior, generator)
        return pool[-RECENT:].copy(), distances

    def _choose_bounds(self, distances: Histogram) -> tuple[float, float] | None:
        """Upper and lower: as given, or running; a running one gives way to a given one."""
        if self.upper is not None and self.lower is not None:
            return self.upper, self.lower
        running = itml.compute_percentile_bounds(distances)
        if running is None:
            return None
        if self.upper is not None:
            return self.upper, max(running[1], self.upper)
        if self.lower is not None:
            return min(running[0], self.lower), self.lower
        return running

    def merge(self, left: ITMLState, right: ITMLState, indices: Ints) -> ITMLState:
        """The pairs of both in units between theirs, and a metric solved from scratch for them."""
        both = left, right
        shares = np.array([1.0 + state.core.seen for state in both])
        shares /= shares.sum()
        scale = np.sqrt(sum(w * state.scale**2 for w, state in zip(shares, both, strict=True)))
        covariance = sum(
            w * state.core.precision * np.outer(state.scale / scale, state.scale / scale)
            for w, state in zip(shares, both, strict=True)
        )
        prior = symmetrise(np.linalg.inv(covariance))
        converted_left, converted_right = (_convert_units(state, scale, prior) for state in both)
        latest = converted_right.recent[-max(RECENT // 2, RECENT - len(converted_left.recent)) :]
        recent = np.concatenate(
            [
                converted_left.recent[max(0, len(converted_left.recent) + len(latest) - RECENT) :],
                latest,
            ]
        )
        # distances under two different priors cannot be added: these are under one
        n_seen = left.core.seen + right.core.seen
        generator = np.random.default_rng((self.seed, n_seen, DRAWS))
        distances = _add_distances(histogram.init(), recent, 0, prior, generator)
        upper, lower = self._choose_bounds(distances) or (None, None)
        if len(recent) and upper is not None and lower is not None:
            converted_left, converted_right = (
                _replace_bounds(state, upper, lower) for state in (converted_left, converted_right)
            )
        sweep = _find_sweep(left.backend)
        core = itml.merge(
            converted_left.core,
            converted_right.core,
            buffer=self.buffer,
            seed=self.seed,
            sweep=sweep,
        )
        is_fitted = {left.status, right.status} != {"no bounds"}
        return ITMLState(
            core=core,
            sample=drawn_pairs.merge_samples(
                converted_left.sample, converted_right.sample, indices, self.seed
            ),
            recent=recent,
            distances=distances,
            scale=scale,
            upper=upper,
            lower=lower,
            backend=left.backend,
            status="ok" if is_fitted else "no bounds",
            unbounded=left.unbounded + right.unbounded,
        )

    def measure(self, state: ITMLState, scale: Floats) -> MeasuredMetric:
        """The core's metric, in the units of the state."""
        # what is forgotten may speak against the metric of a stream that drifts
        core, shrinkage = (state.core, 0.0) if self.forgetting else itml.shrink(state.core)
        n_close, n_far = core.reference.seen
        status = state.status
        if core.seen > core.dropped and not (n_close and n_far):
            status = "no far pairs" if n_close else "no close pairs"
        info = ITMLInfo(
            itml.measure(core),
            state.upper,
            state.lower,
            n_pairs=len(core),
            n_seen=core.seen,
            n_dropped=core.dropped,
            n_unbounded=state.unbounded,
            backend=state.backend,
            status=status,
            shrinkage=shrinkage,
        )
        return MeasuredMetric(core.matrix, state.scale, info, info)


def _add_distances(
    distances: Histogram, pool: Floats, first: int, prior: Floats, generator: np.random.Generator
) -> Histogram:
    """With squared distances of points from ``first`` on to random ones of the pool."""
    if len(pool) < 2:
        return distances
    left = np.repeat(np.arange(first, len(pool)), DRAWS)
    right = generator.integers(len(pool) - 1, size=len(left))
    steps = pool[left] - pool[right + (right >= left)]
    d2 = np.einsum("ij,ij->i", steps @ prior, steps)
    return histogram.update(distances, np.maximum(d2, 0.0))


def _replace_bounds(state: ITMLState, upper: float, lower: float) -> ITMLState:
    """The same pairs, with these bounds."""
    core, reference = state.core, state.core.reference
    bounds, reference_bounds = (np.where(part.similar, upper, lower) for part in (core, reference))
    core = replace(core, bounds=bounds, reference=replace(reference, bounds=reference_bounds))
    return replace(state, core=core)


def _convert_units(state: ITMLState, scale: Floats, prior: Floats) -> ITMLState:
    """The same pairs and points, divided by another scale, under another prior.

    A bound stays where it was beside its pair's own distance under the prior.
    """
    core, ratio = state.core, state.scale / scale

    def convert(pairs: Constraints) -> tuple[Floats, Floats]:
        differences = pairs.differences * ratio
        old_d2 = np.einsum("ij,ij->i", pairs.differences @ core.prior, pairs.differences)
        new_d2 = np.einsum("ij,ij->i", differences @ prior, differences)
        return differences, pairs.bounds * (new_d2 / old_d2)

    differences, bounds = convert(core.reference.constraints)
    reference = replace(core.reference, differences=differences, bounds=bounds)
    differences, bounds = convert(core.constraints)
    samples = tuple(part * ratio if len(part) else part for part in state.sample.samples)
    return replace(
        state,
        core=replace(
            core, differences=differences, bounds=bounds, prior=prior, reference=reference
        ),
        sample=replace(state.sample, samples=samples),
        recent=state.recent * ratio,
    )


def _find_sweep(backend: Literal["numpy", "numba"]) -> bregman.Sweep:
    """The sweep that a state was begun with, or numpy's where that is not installed."""
    return itml_numba.get_sweep(backend if compilation.is_available() else "numpy")
