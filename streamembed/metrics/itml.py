"""Information-theoretic metric learning from a stream of pairs: ITML that remembers duals.

Symbols as in `bregman`: v, s, xi_0, p, lambda, gamma, A, A_0, d; B = size of the buffer; S = sum
of s lambda v v^T over pairs that have left it; rho = share that is forgotten per chunk.

Streaming rests on the first optimality condition, which holds after every projection::

    A^-1 = A_0^-1 + S + sum over the buffer of s lambda v v^T

A is a function of the prior and the duals, and is computed from them after every chunk. A pair can
leave the buffer with A untouched: its dual goes into S and stays as it is. Forgetting is a convex
combination of A^-1 and A_0^-1, positive definite in any case.

Half of the buffer is for either kind of pair, and the oldest of a kind leaves for a new one. Only
while no pair of the other kind has come nothing goes into S, for a dual is right only beside those
of the other kind: the pairs are a uniform sample then (Vitter's algorithm R), and each of them
counts for as many as it stands for. A pair that leaves takes its dual along.

Source: docs/algorithms/itml.md; Davis, Kulis, Jain, Sra & Dhillon (2007), Information-theoretic
metric learning, ICML; Jain, section 1.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np

from streamembed.errors import FeatureError, ParameterError
from streamembed.metrics import bregman, drawn_pairs
from streamembed.metrics.bregman import Constraints, build_pairs
from streamembed.metrics.examples import Examples
from streamembed.metrics.learner import Measured, MetricLearner
from streamembed.metrics.mahalanobis import parse_numbers
from streamembed.numeric import histogram
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.codec import Count
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

# Places of a kind that has come alone, at least: 25 pairs that stand for 3,000 are learned by
# heart, and the metric was worse than its prior; with 500 it was better on all of five data sets.
LEAST_ALONE = 500
# Bounds are percentiles of distances between recent points: each new one with this many of the
# last RECENT, two thousand distances after 200 points.
DRAWS, RECENT, PERCENTILES = 10, 200, (0.05, 0.95)
# The upper bound is at least this share of the lower one: the 5th percentile of data with
# many duplicates is 0, and no metric makes a distance 0.
LEAST_UPPER = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """The metric and the pairs behind it. Memory O(B d + d^2)."""

    # A_0 and its inverse.
    prior: Annotated[Floats, "d d"]
    precision: Annotated[Floats, "d d"]
    absorbed: Annotated[Floats, "d d"]  # S
    matrix: Annotated[Floats, "d d"]  # A, positive definite, exactly symmetric
    pairs: Constraints  # those remembered
    seen: Annotated[Ints, "2"]  # similar and dissimilar pairs that came
    dropped: Count  # pairs of equal points that came
    calls: Count

    def rebuilt(self) -> Floats | None:
        """A from the prior and the duals; None where rounding leaves it no inverse."""
        if not (self.pairs.duals.any() or self.absorbed.any()):
            return self.prior
        return bregman.invert(self.precision + self.absorbed + self.pairs.dual_sum)


def init(prior: Floats) -> Memory:
    """The memory before any pair: A = A_0.

    Raises
    ------
    ParameterError
        The prior is not (d, d), finite, symmetric and positive definite.
    """
    if prior.ndim != 2 or prior.shape[0] != prior.shape[1] or len(prior) == 0:
        raise ParameterError(f"prior has shape {prior.shape}; it must be (d, d), like np.eye(d)")
    if not np.isfinite(prior).all():
        raise ParameterError("prior has NaN or infinities; it must be finite")
    if np.abs(prior - prior.T).max() > 1e-8 * np.abs(prior).max():
        raise ParameterError(
            "prior is not symmetric; use (prior + prior.T) / 2 if that is intended"
        )
    prior = symmetrise(prior)
    inverse = bregman.invert(prior)
    if inverse is None:
        raise ParameterError(
            "prior is not positive definite; add a ridge, such as 1e-6 of its mean diagonal"
        )
    d = len(prior)
    pairs = build_pairs(np.zeros((0, d)), np.zeros(0, np.bool_), 1.0, 1.0, 1.0)
    return Memory(
        prior=prior,
        precision=inverse,
        absorbed=np.zeros((d, d)),
        matrix=prior,
        pairs=pairs,
        seen=np.zeros(2, np.int64),
        dropped=0,
        calls=0,
    )


def compute_percentile_bounds(distances: Histogram) -> tuple[float, float] | None:
    """Upper and lower bound: percentiles of SQUARED distances between random pairs under A_0.

    Returns
    -------
    (upper, lower), upper at least 1e-6 of lower; None where there are no distances, or most of
    them are 0, or too small for a bound.

    Source: Jain, section 1.3. Differs: squared.
    """
    if histogram.count(distances) == 0:
        return None
    upper, lower = (histogram.quantile(distances, p) for p in PERCENTILES)
    upper = max(upper, LEAST_UPPER * lower)
    return (upper, lower) if upper > bregman.SMALLEST else None


@dataclass(frozen=True, slots=True, eq=False)
class ITMLState:
    """The memory in scaled features, and what pairs and bounds come from."""

    memory: Memory
    sample: Reservoirs  # of every class, for partners
    recent: Annotated[Floats, "m d"]  # the last points, scaled
    distances: Histogram  # squared, under the prior, of random recent pairs
    scale: Annotated[Floats, "d"]  # what features are divided by: fixed by the first chunk
    # Bounds of the last update; None before there is any distance.
    upper: float | None
    lower: float | None
    unbounded: Count  # pairs that came before there was any bound: not learned


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
    mergeable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check every parameter, and keep it as a plain value."""
        set_fields(
            self,
            gamma=check_real("gamma", self.gamma, 1e-12, 1e12),
            upper=check_optional(check_real, "upper", self.upper, 0.0, np.inf, opened=True),
            lower=check_optional(check_real, "lower", self.lower, 0.0, np.inf, opened=True),
            buffer=check_whole("buffer", self.buffer, 2),
            sweeps=check_whole("sweeps", self.sweeps, 0),
            forgetting=check_real("forgetting", self.forgetting, 0.0, 1.0 - 1e-12),
            seed=check_whole("seed", self.seed, 0),
        )
        if self.upper is not None and self.lower is not None and self.upper > self.lower:
            raise ParameterError(
                f"upper={self.upper} must be at most lower={self.lower}: similar pairs could be "
                "farther apart than dissimilar ones; swap them"
            )
        if isinstance(self.prior, str):
            check_choice("prior", self.prior, ("identity", "covariance"), " or a matrix")
        else:
            prior = parse_numbers(self.prior, "prior", ParameterError)
            init(prior)  # refuses what is no metric
            set_fields(self, prior=prior)

    def init(self, examples: Examples, scale: Floats) -> ITMLState:
        """Features are divided by these deviations from now on."""
        return ITMLState(
            memory=init(self._build_prior(examples, scale)),
            sample=reservoir.init(drawn_pairs.CAPACITY, recent=self.forgetting > 0),
            recent=np.zeros((0, len(scale))),
            distances=histogram.init(),
            scale=scale,
            upper=None,
            lower=None,
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
            return self.prior * np.outer(scale, scale)
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
        after = replace(state, sample=sample, recent=recent, distances=distances)
        if bounds is None:
            return replace(after, unbounded=state.unbounded + len(differences)), "no bounds"
        upper, lower = bounds
        pairs = build_pairs(differences, similar, upper, lower, self.gamma)
        memory = self.learn(state.memory, pairs, len(differences) - len(pairs))
        if memory is None:
            return state, "refused"
        return replace(after, memory=memory, upper=upper, lower=lower), "ok"

    def _measure_distances(self, state: ITMLState, chunk: Examples) -> tuple[Floats, Histogram]:
        """The last points, and squared distances of new ones to some of them, under the prior."""
        pool, n_old = np.concatenate([state.recent, chunk.ends]), len(state.recent)
        distances = histogram.decay(state.distances, 1.0 - self.forgetting)
        if len(pool) > 1:
            generator = np.random.default_rng((self.seed, chunk.position, DRAWS))
            left = np.repeat(np.arange(n_old, len(pool)), DRAWS)
            right = generator.integers(len(pool) - 1, size=len(left))
            steps = pool[left] - pool[right + (right >= left)]
            d2 = np.einsum("ij,ij->i", steps @ state.memory.prior, steps)
            distances = histogram.update(distances, np.maximum(d2, 0.0))
        return pool[-RECENT:].copy(), distances

    def _choose_bounds(self, distances: Histogram) -> tuple[float, float] | None:
        """Upper and lower: as given, or running; a running one gives way to a given one."""
        if self.upper is not None and self.lower is not None:
            return self.upper, self.lower
        running = compute_percentile_bounds(distances)
        if running is None:
            return None
        if self.upper is not None:
            return self.upper, max(running[1], self.upper)
        if self.lower is not None:
            return min(running[0], self.lower), self.lower
        return running

    def learn(self, memory: Memory, arriving: Constraints, n_dropped: int = 0) -> Memory | None:
        """min D(A, A_0) + gamma D(xi, xi_0) with s (p - xi) <= 0 for all pairs: nearer by sweeps.

        Before anything else A^-1 <- (1 - rho) A^-1 + rho A_0^-1. More pairs than half of the buffer
        are processed in batches, so that each is swept. None where A would leave the range of
        double precision. O(sweeps (n + b) d^2 + d^3) for b arriving pairs.

        Source: Davis et al. (2007), algorithm 1, over a buffer. Differs: 1. bounds are squared; the
        usual percentile defaults are not, and are compared with squared distances. 2. random order.
        3. Pairs that leave keep their dual. To take s lambda v v^T out of A^-1 instead, as exact
        windows would, makes A indefinite: what other pairs did was done in its presence.
        4. Forgetting.
        """
        n_seen = int(memory.seen.sum()) + memory.dropped
        generator = np.random.default_rng((self.seed, n_seen, memory.calls))
        places = self.buffer // 2
        with np.errstate(all="ignore"):  # overflow is refused below
            after = self._forget(memory)
            for start in range(0, max(len(arriving), 1), places):
                batch = arriving.take(slice(start, start + places))
                after = self._remember(after, batch, generator)
                for _ in range(self.sweeps):
                    order = generator.permutation(len(after.pairs))
                    matrix, duals = bregman.sweep(after.matrix, after.pairs, order)
                    after = replace(after, matrix=matrix, pairs=replace(after.pairs, duals=duals))
            matrix_of_duals = after.rebuilt()
            if matrix_of_duals is not None:
                after = replace(after, matrix=matrix_of_duals)
            elif bregman.invert(after.matrix) is None:
                return None
        return replace(after, dropped=memory.dropped + n_dropped, calls=memory.calls + 1)

    def _forget(self, memory: Memory) -> Memory:
        """A^-1 <- (1 - rho) A^-1 + rho A_0^-1, with all duals, absorbed ones too, times 1 - rho."""
        kept = 1.0 - self.forgetting
        pairs = replace(memory.pairs, duals=kept * memory.pairs.duals)
        after = replace(memory, absorbed=kept * memory.absorbed, pairs=pairs)
        matrix = after.rebuilt() if self.forgetting else None
        return memory if matrix is None else replace(after, matrix=matrix)

    def _remember(
        self, memory: Memory, arriving: Constraints, generator: np.random.Generator
    ) -> Memory:
        """The memory with these pairs; A is untouched where both kinds have come."""
        n_similar = int(np.count_nonzero(arriving.similar))
        seen = memory.seen + np.array([n_similar, len(arriving) - n_similar])
        pairs, places = memory.pairs.joined(arriving), self.buffer // 2
        if not seen.all():
            return self._sample(replace(memory, seen=seen), pairs, generator)
        stays = np.ones(len(pairs), dtype=np.bool_)
        for kind in (True, False):
            if (arriving.similar == kind).any():
                stays[np.flatnonzero(pairs.similar == kind)[:-places]] = False
        absorbed = memory.absorbed + pairs.take(~stays).dual_sum
        return replace(memory, absorbed=absorbed, pairs=pairs.take(stays), seen=seen)

    def _sample(self, memory: Memory, pairs: Constraints, generator: np.random.Generator) -> Memory:
        """The memory with a uniform sample of all pairs, which are of one kind."""
        n_seen, n_old = int(memory.seen.sum()), len(memory.pairs)
        size, chosen = max(self.buffer // 2, LEAST_ALONE), list(range(n_old))
        n_before = n_seen - (len(pairs) - n_old)
        for i in range(len(pairs) - n_old):
            if len(chosen) < size:
                chosen.append(n_old + i)
                continue
            place = int(generator.integers(n_before + i + 1))
            if place < size:
                chosen[place] = n_old + i
        kept = pairs.take(np.array(chosen, dtype=np.int64))
        kept = replace(kept, prices=np.full(len(kept), self.gamma * n_seen / max(len(kept), 1)))
        after = replace(memory, pairs=kept)
        matrix = after.rebuilt()
        if matrix is None:  # by rounding: of one kind, fewer duals never make A indefinite
            return init(memory.prior)
        return replace(after, matrix=matrix)

    def compute_metric(self, state: ITMLState, scale: Floats) -> Measured:
        """The metric in the units of the state."""
        memory = state.memory
        n_close, n_far = memory.seen.tolist()
        status = "no bounds" if state.upper is None else "ok"
        if (n_close or n_far) and not (n_close and n_far):
            status = "no far pairs" if n_close else "no close pairs"
        facts = {
            "status": status,
            "residual": float(
                bregman.compute_residuals(memory.matrix, memory.pairs).max(initial=0)
            ),
            "objective": bregman.objective(memory.matrix, memory.prior, memory.pairs),
            "upper": state.upper,
            "lower": state.lower,
            "n_pairs": len(memory.pairs),
            "n_seen": n_close + n_far + memory.dropped,
            "n_dropped": memory.dropped,
            "n_unbounded": state.unbounded,
        }
        return Measured(memory.matrix, state.scale, facts)
