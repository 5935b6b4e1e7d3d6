"""Metrics that keep far pairs far, learned from a stream of pairs by Frank-Wolfe steps.

Symbols: delta = x - y, the difference of a pair; H = mean of delta delta^T over close pairs, with
a ridge; A = the metric, with tr(A H) = d; q = delta^T A delta, the SQUARED distance of a far pair;
alpha, w = weights of the far pairs in the gradient G = sum w delta delta^T; lambda, u = the top
eigenpair of G u = lambda H u, with u^T H u = 1.

The smallest q is concave in A, and over {A >= 0, tr(A H) = d} a linear function is largest at
d u u^T: a step is A <- (1 - gamma) A + gamma d u u^T. All is written in input
coordinates. When H changes, A is only rescaled: there is no whitened matrix that could go stale.

Source: docs/algorithms/eig-dml.md; Phillips, Metric Learning, section 17.3; Ying & Li (2012),
Distance metric learning with eigenvalue optimization, JMLR 13, 1-26; Jaggi (2013), Revisiting
Frank-Wolfe, ICML.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from scipy.linalg import solve_triangular

from streamembed.metrics import drawn_pairs
from streamembed.metrics.examples import Examples
from streamembed.metrics.learner import Measured, MetricLearner
from streamembed.metrics.separation import bound_smallest, compute_softmin_weights
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.linalg import largest_pairs
from streamembed.pairs import reservoir
from streamembed.pairs.reservoir import Reservoirs
from streamembed.validation import (
    check_choice,
    check_optional,
    check_real,
    check_whole,
    set_fields,
)

# The ridge of H, a share of each feature's own mean square: it bounds 1 / H where close pairs do
# not vary, and moves the optimum by no more than this share where they do.
RIDGE = 1e-6
# q is exact to eps after a refresh, and its errors contract with A; 200 calls add 1e-13.
REFRESH = 200
# Where tr(A H) has grown by this factor when H changed, the metric was built for another H: its
# steps start again at full length.
STALE = 2.0
# Share of the buffer for the nearest pairs. At 0.5 a pair of medium q can be lost and then ignored
# by the metric: 0.69 of the optimum on one of 18 streams of three data sets. At 0.6 to 1 none was
# lost.
HARD_SHARE = 0.75
# Steps between two averaged bounds, each of which costs as much as a step: 2 % of the cost.
CHECK = 50


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What persists between two calls. Memory O(B d + d^2) for a buffer of B pairs."""

    # Decayed mean of delta delta^T over all close pairs, without ridge.
    close: Annotated[Floats, "d d"]
    mass: float  # number of close pairs in that mean
    matrix: Annotated[Floats, "d d"]  # A in input coordinates, exactly symmetric, tr(A H) = d
    far: Annotated[Floats, "n d"]  # delta of the far pairs remembered, oldest first
    # Arrival position of each among the far pairs, from 0; after a merge, the last ones in order of
    # age.
    births: Annotated[Ints, "n"]
    # q, updated with A; `squared_distances` is the exact recomputation, every 200 calls.
    values: Annotated[Floats, "n"]
    duals: Annotated[Floats, "n"]  # weights of the pairs averaged over the steps, up to a factor
    step: int  # t, from 1: steps since the last start
    # Far pairs that came; those with delta = 0 among them; calls of `update`.
    seen: int
    dropped: int
    calls: int


@dataclass(frozen=True, slots=True, eq=False)
class EigDMLState:
    """The steps' state, and a sample of every class to draw partners from."""

    core: State
    sample: Reservoirs


@dataclass(frozen=True)
class EigDMLLearner(MetricLearner):
    """See `streamembed.estimators.EigDML`; nothing is scaled."""

    # sigma of the soft minimum, relative to the smallest q now; any positive float. 0.5 weighs many
    # of the nearest far pairs, and gives the more accurate metric; 0.02 comes within 7 % of the
    # optimum.
    smoothing: float = 0.5
    buffer: int = 1000  # the most far pairs remembered, at least 2
    # ``"hard"`` fills three quarters with the nearest under the metric and the last with a random
    # sample of the rest; ``"recent"`` keeps the newest.
    policy: str = "hard"
    steps: int = 10  # Frank-Wolfe steps a call, at least 0
    # The step length is 2 / (min(t, step_cap) + 2): the smaller the cap, the faster the metric
    # adapts, and the farther from the optimum it stays.
    step_cap: int = 300
    # Weight of a pair after each later close pair, in (0, 1), or None: nothing is forgotten. Far
    # pairs older than 1 / (1 - decay) far pairs are dropped too.
    decay: float | None = None
    # Random seed; a call uses (seed, far pairs seen before it) and keeps no generator.
    seed: int = 0
    # Relative gap at which steps stop, and at which the status is ``certified``.
    tolerance: float = 1e-3

    def __post_init__(self) -> None:
        """Check every parameter, and keep it as a plain value."""
        check_choice("policy", self.policy, ("hard", "recent"))
        set_fields(
            self,
            smoothing=check_real("smoothing", self.smoothing, 0.0, np.inf, opened=True),
            buffer=check_whole("buffer", self.buffer, 2),
            steps=check_whole("steps", self.steps, 0),
            step_cap=check_whole("step_cap", self.step_cap, 1),
            decay=check_optional(check_real, "decay", self.decay, 0.0, 1.0, opened=True),
            seed=check_whole("seed", self.seed, 0),
            tolerance=check_real("tolerance", self.tolerance, 0.0, 1.0 - 1e-12),
        )

    def init(self, examples: Examples, scale: Floats) -> EigDMLState:
        """No pair yet."""
        recent = self.policy == "recent" or self.decay is not None
        return EigDMLState(init(len(scale)), reservoir.init(drawn_pairs.CAPACITY, recent))

    def update(self, state: EigDMLState, examples: Examples) -> tuple[EigDMLState, str]:
        """Steps with the pairs of these examples."""
        sample, differences, similar = drawn_pairs.draw_pairs(state.sample, examples)
        core = update(state.core, differences[similar], differences[~similar], self)
        return EigDMLState(core, sample), measure(core, self)["status"]

    def compute_metric(self, state: EigDMLState, scale: Floats) -> Measured:
        """The metric and its gap."""
        return Measured(state.core.matrix, np.ones(len(scale)), measure(state.core, self))

    def merge(self, left: EigDMLState, right: EigDMLState, indices: Ints) -> EigDMLState:
        """Close pairs exactly, far pairs of both; the metric starts between the two."""
        return EigDMLState(
            merge(left.core, right.core, self),
            drawn_pairs.merge_samples(left.sample, right.sample, indices, self.seed),
        )


def squared_distances(far: Floats, matrix: Floats) -> Floats:
    """q = delta^T A delta of every row, not below 0. Shape (n,), O(n d^2)."""
    values: Floats = np.maximum(np.einsum("ij,ij->i", far @ matrix, far), 0.0)
    return values


def init(n_features: int) -> State:
    """The state before any pair: A = I."""
    d = n_features
    no_pairs = np.zeros(0)
    return State(
        np.zeros((d, d)), 0.0, np.eye(d), np.zeros((0, d)), np.zeros(0, np.int64), no_pairs,
        no_pairs, step=1, seen=0, dropped=0, calls=0,
    )  # fmt: skip


def compute_constraint(state: State) -> Floats:
    """H: the mean over close pairs with its ridge, positive definite; I before any close pair.

    A feature that no close pair varies in gets the ridge of the average feature.

    Source: Phillips, section 17.3, "H + delta I". Differs: a mean, not a sum, or sigma would have
    to grow with the stream; the ridge is relative, and each feature's own, so that units of
    features do not matter.
    """
    squares = np.diag(state.close)
    if not squares.any():
        return np.eye(len(squares))
    return state.close + np.diag(RIDGE * np.where(squares > 0, squares, squares.mean()))


def update(state: State, close: Floats, far: Floats, settings: EigDMLLearner) -> State:
    """argmax over A of min q subject to A >= 0 and tr(A H) = d: nearer by K.

    Parameters
    ----------
    close, far
        Differences of the pairs of this call, shapes (b, d) and (c, d), finite; either may be
        empty. Far pairs with delta = 0 are dropped and counted.
    settings
        May change between calls.

    Returns
    -------
    The new state. tr(A H) = d to 1e-10 and A is positive semidefinite to rounding, after every
    call. Without steps A is only rescaled; the first call with close pairs starts from H^-1.

    Notes
    -----
    O((b + n + c) d^2 + d^3) and, a step, O(n d + n_a d^2 + d^3), n_a <= n being the pairs with
    weight. The error after t steps of the smoothed problem is O(1 / (sigma t)), and smoothing
    costs at most sigma log n.

    Source: Phillips, algorithm 17.3.1. Differs: 1. vertices are d v v^T, of the trace of the set;
    theirs have trace 1. 2. gamma = 2 / (t + 2); their (t - 1) / t forgets the start and has rank
    one after a step. 3. The matrix of theirs is that of whitened points; this one is the metric.
    4. H is a mean and sigma is relative. 5. exp is shifted. 6. Pairs with delta = 0 would make
    every metric optimal. 7. Only some pairs are remembered, the near ones above all.
    """
    first = not state.close.any()
    mean, mass = pool_rows(state.close, state.mass, close, settings.decay)
    state = replace(state, close=mean, mass=mass)
    scatter = compute_constraint(state)
    if first and state.close.any():
        matrix = _invert(scatter)
        state = replace(state, matrix=matrix, values=squared_distances(state.far, matrix), step=1)
    state, stretch = _rescale(state, scatter)
    if stretch < 1.0 / STALE:
        state = replace(state, step=1)
    state = _add_far(state, far, settings)
    if state.calls % REFRESH == 0:
        state = replace(state, values=squared_distances(state.far, state.matrix))
    if len(state.far) and state.close.any():
        state = _run_frank_wolfe(state, scatter, settings)
        state, _ = _rescale(state, scatter)
    return replace(state, calls=state.calls + 1)


def pool_rows(mean: Floats, mass: float, rows: Floats, decay: float | None) -> tuple[Floats, float]:
    """The mean of delta delta^T, and its mass, with these rows (b, d) in it. O(b d^2).

    With a decay, earlier rows count decay^b times as much as before.
    """
    if len(rows) == 0:
        return mean, mass
    old_mass = mass * (1.0 if decay is None else decay ** len(rows))
    mass = old_mass + len(rows)
    rows = rows / np.sqrt(mass)  # before the square: the sum of squares could overflow
    return (old_mass / mass) * mean + rows.T @ rows, mass


def _rescale(state: State, scatter: Floats) -> tuple[State, float]:
    """A c and q c with c = d / tr(A H)."""
    stretch = len(scatter) / float(np.sum(state.matrix * scatter))
    scaled = replace(state, matrix=stretch * state.matrix, values=stretch * state.values)
    return scaled, stretch


def _add_far(state: State, far: Floats, settings: EigDMLLearner) -> State:
    """The state with these far pairs remembered."""
    arrivals = state.seen + np.arange(len(far))
    is_distinct = np.einsum("ij,ij->i", far, far) >= np.finfo(np.float64).tiny
    far, arrivals = far[is_distinct], arrivals[is_distinct]
    values = squared_distances(far, state.matrix)
    joined = replace(
        state,
        far=np.concatenate([state.far, far]),
        births=np.concatenate([state.births, arrivals]),
        values=np.concatenate([state.values, values]),
        duals=np.concatenate([state.duals, np.zeros(len(far))]),
        seen=state.seen + len(is_distinct),
        dropped=state.dropped + int(np.count_nonzero(~is_distinct)),
    )
    return _drop_excess_far(joined, settings, position=state.seen)


def _drop_excess_far(state: State, settings: EigDMLLearner, position: int) -> State:
    """The state with no more far pairs than the settings allow, in order of age."""
    retained = np.arange(len(state.far))
    if settings.decay is not None:
        retained = retained[state.seen - state.births <= round(1.0 / (1.0 - settings.decay))]
    if len(retained) > settings.buffer:
        if settings.policy == "recent":
            retained = retained[-settings.buffer :]
        else:
            order = retained[np.argsort(state.values[retained], kind="stable")]
            nearest = int(HARD_SHARE * settings.buffer)
            generator = np.random.default_rng((settings.seed, position))
            sampled = generator.choice(order[nearest:], settings.buffer - nearest, replace=False)
            retained = np.sort(np.concatenate([order[:nearest], sampled]))
    if len(retained) == len(state.far):
        return state
    return replace(
        state,
        far=state.far[retained],
        births=state.births[retained],
        values=state.values[retained],
        duals=state.duals[retained],
    )


def _run_frank_wolfe(state: State, scatter: Floats, settings: EigDMLLearner) -> State:
    """The state after up to ``settings.steps`` Frank-Wolfe steps."""
    d = len(scatter)
    whitener = _compute_whitener(scatter)
    matrix, values, duals, step = state.matrix, state.values, state.duals, state.step
    for i in range(settings.steps):
        weights = compute_softmin_weights(values, settings.smoothing)
        top, axis = _find_top(state.far, weights, whitener)
        bound = bound_smallest(d * top, weights)
        if i and i % CHECK == 0:
            bound = min(bound, _compute_bound(state.far, duals, whitener))
        if float(values.min()) >= (1.0 - settings.tolerance) * bound:
            break
        axis *= np.sqrt(d / float(axis @ scatter @ axis))
        gamma = 2.0 / (min(step, settings.step_cap) + 2.0)
        matrix = (1.0 - gamma) * matrix + gamma * np.outer(axis, axis)
        values = (1.0 - gamma) * values + gamma * (state.far @ axis) ** 2
        duals = (1.0 - gamma) * duals + gamma * weights
        step += 1
    return replace(state, matrix=matrix, values=values, duals=duals, step=step)


def _compute_whitener(scatter: Floats) -> Floats:
    """W, lower triangular, with W H W^T = I."""
    root = np.linalg.cholesky(scatter)
    whitener: Floats = solve_triangular(root, np.eye(len(root)), lower=True)
    return whitener


def _invert(scatter: Floats) -> Floats:
    """H^-1, positive semidefinite and symmetric to the last bit."""
    whitener = _compute_whitener(scatter)
    return whitener.T @ whitener


def _find_top(far: Floats, weights: Floats, whitener: Floats) -> tuple[float, Floats]:
    """Largest lambda of G u = lambda H u, and u; the other eigenpairs are not computed."""
    active = weights > 0
    rows = far[active] * np.sqrt(weights[active])[:, None]
    gradient = whitener @ (rows.T @ rows) @ whitener.T
    values, vectors = largest_pairs(gradient, 1)
    return float(values[0]), whitener.T @ vectors[:, 0]


def _compute_bound(far: Floats, weights: Floats, whitener: Floats) -> float:
    """The bound of these weights on every metric; infinite where they are all 0."""
    if not weights.any():
        return np.inf
    return bound_smallest(far.shape[1] * _find_top(far, weights, whitener)[0], weights)


def measure(state: State, settings: EigDMLLearner) -> dict[str, Any]:
    """Objective, bound and gap over the far pairs remembered, from the state alone.

    For any weights alpha of sum 1, d lambda_max(G(alpha), H) >= max over A of min q: weak duality.
    Of the weights at A and of those averaged over the steps the smaller bound is taken; the first
    oscillate where steps are long. More pairs can only lower max min q: the bound holds for all
    pairs ever seen, the objective for those remembered.

    Returns
    -------
    ``objective``, the smallest q; ``bound``, no metric with tr(A H) = d has a larger
    one; ``gap`` = 1 - objective / bound, in [0, 1]; far pairs remembered, seen, and dropped as
    equal points; ``mass``, close pairs behind H; ``step``, t of the next. ``status``:
    ``certified``, gap <= tolerance; ``gap open``, it is not; ``no close pairs``, H = I and nothing
    is learned yet; ``no far pairs``, A is the inverse of H. Pure; O(n d^2 + d^3), two steps.
    """
    value, bound, gap = 0.0, 0.0, 0.0
    status = "no far pairs"
    if len(state.far):
        whitener = _compute_whitener(compute_constraint(state))
        current = compute_softmin_weights(state.values, settings.smoothing)
        value = float(state.values.min())
        bound = min(_compute_bound(state.far, w, whitener) for w in (current, state.duals))
        gap = min(max(1.0 - value / bound, 0.0), 1.0) if bound > 0 else 0.0
        status = "certified" if gap <= settings.tolerance else "gap open"
    if not state.close.any():
        status = "no close pairs"
    return {
        "status": status,
        "objective": value,
        "bound": bound,
        "gap": gap,
        "n_far": len(state.far),
        "n_seen": state.seen,
        "n_dropped": state.dropped,
        "mass": state.mass,
        "step": state.step,
    }


def merge(left: State, right: State, settings: EigDMLLearner) -> State:
    """Two streams' states as one: close pairs exactly, far pairs as if they had come side by side.

    If there are more far pairs than the buffer holds, the policy chooses among both: the newest of
    either are the newest. The metric is the mean of the two by the masses of their close pairs:
    feasible, and only a start for the steps of the next call; t is the smaller of the two.
    O(B d^2 + d^3).
    """
    mass = left.mass + right.mass
    share = right.mass / mass if mass > 0 else 0.5
    start = replace(left, close=(1.0 - share) * left.close + share * right.close, mass=mass)
    scatter = compute_constraint(start)
    fitted = [state for state in (left, right) if state.close.any()]
    matrix = (fitted or [left])[0].matrix
    if len(fitted) == 2:
        first, second = (_rescale(state, scatter)[0].matrix for state in fitted)
        matrix = (1.0 - share) * first + share * second
    ages = np.concatenate([left.seen - left.births, right.seen - right.births])
    order = np.argsort(-ages, kind="stable")
    n_seen = left.seen + right.seen
    joined = replace(
        start,
        matrix=matrix,
        far=np.concatenate([left.far, right.far])[order],
        births=n_seen - len(order) + np.arange(len(order)),
        values=np.zeros(len(order)),
        duals=np.concatenate([_normalise(left.duals), _normalise(right.duals)])[order],
        step=min(state.step for state in fitted or [left]),
        seen=n_seen,
        dropped=left.dropped + right.dropped,
        calls=left.calls + right.calls,
    )
    joined, _ = _rescale(joined, scatter)
    joined = replace(joined, values=squared_distances(joined.far, joined.matrix))
    return _drop_excess_far(joined, settings, position=joined.seen)


def _normalise(weights: Floats) -> Floats:
    """The same weights with sum 1, or all 0."""
    total = float(weights.sum())
    return weights / total if total > 0 else weights
