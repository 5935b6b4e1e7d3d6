"""Information-theoretic metric learning from a stream of pairs: ITML that remembers duals.

Symbols as in `bregman`: v, s, xi_0, p, lambda, gamma, A, A_0, d; B = size of the buffer; S = sum
of s lambda v v^T over pairs that have left it; rho = share that is forgotten per call; K = sweeps;
w = shrinkage of the metric that is handed out.

Streaming rests on the first optimality condition, which holds after every projection::

    A^-1 = A_0^-1 + S + sum over the buffer of s lambda v v^T

A is a function of the prior and the duals. Rounding can be repaired from it, a pair
can leave the buffer with A untouched (its dual goes into S and stays as it is), and forgetting is
a convex combination of A^-1 and A_0^-1, positive definite in any case. Which pairs leave, and what
those that stay stand for, is `itml_buffer`.

Source: docs/algorithms/itml.md; Davis, Kulis, Jain, Sra & Dhillon (2007), Information-theoretic
metric learning, ICML; Jain, section 1.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh

from streamembed.errors import InputError, ParameterError
from streamembed.metrics import bregman, itml_buffer
from streamembed.metrics.bregman import Sweep, SweepResult
from streamembed.metrics.itml_buffer import Reference, State
from streamembed.numeric import histogram
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.histogram import Histogram
from streamembed.numeric.linalg import symmetrise

# A is computed from scratch from the duals where A (A^-1 x) misses x by this share of it, or, where
# A is ill-conditioned, by more than the accuracy of its inverse.
DRIFT = 1e-10
CERTAIN = 64 * np.finfo(np.float64).eps
# The upper bound is at least this share of the lower one: the 5th percentile of data with
# many duplicates is 0, and no metric makes a distance 0.
LEAST_UPPER = 1e-6
# w is one of these. 0 unless the objective is estimated to be more than this many times the best,
# or more than that of A_0: a sample's choice between nearly equal ones is noise.
SHRINKAGES = np.array([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0])
TOLERATED = 1.05

Status = Literal["ok", "rebuilt", "refused", "not converged"]


@dataclass(frozen=True, slots=True)
class Info:
    """The Info of one call."""

    # Pairs that came; those of equal points, which no metric moves; those, old or new, for which
    # the buffer had no place.
    added: int
    dropped: int
    evicted: int
    # Sweeps done, and projections among them that moved A.
    sweeps: int
    updates: int
    # Of `update`: the largest of the last sweep, each before its projection; 0 without a sweep. Of
    # `solve`: the largest at the end. As a share of the bound (`bregman.compute_residuals`).
    residual: float
    # Relative distance of A from the matrix of its duals, estimated at a random vector.
    drift: float
    # ``ok``. ``rebuilt``: the drift was too large, and A was computed from scratch from the duals.
    # ``refused``: A left the range of double precision, and the state is the one passed in; bounds
    # or features differ by too many decades: scale them. ``not converged``: `solve` used up its
    # sweeps; take more, or a smaller gamma.
    status: Status


@dataclass(frozen=True, slots=True)
class Measures:
    """How near A is to the optimum for the pairs remembered."""

    residual: float  # largest of `bregman.compute_residuals`; 0 at the optimum
    # Upper bound on the objective minus its minimum: primal minus dual, absolute. With absorbed
    # pairs: of the problem in which their duals stay as they are.
    gap: float
    # `bregman.objective` of A over the pairs remembered, against the prior, with the price of each.
    objective: float
    # ||A - A'|| / ||A'|| (Frobenius), A' being computed from the duals; infinite where these are
    # not accurate enough to have an inverse.
    drift: float


def init(prior: npt.ArrayLike, gamma: float = 0.1) -> State:
    """The state before any pair: A = A_0.

    Parameters
    ----------
    prior
        A_0, shape (d, d), symmetric, positive definite.
    gamma
        Positive. The smaller, the nearer A stays to A_0 and the fewer sweeps it takes: 1, the
        value of most programs, takes twice as many as 0.1.

    Raises
    ------
    ParameterError
        The prior is not (d, d), finite, symmetric and positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> state, info = update(init(np.eye(2)), [[2.0, 0.0]], [True], upper=1.0, lower=9.0)
    >>> info.status, bool(state.matrix[0, 0] < 1.0), float(state.matrix[1, 1])
    ('ok', True, 1.0)
    """
    A = np.asarray(prior, dtype=np.float64)
    if A.ndim != 2 or A.shape[0] != A.shape[1] or len(A) == 0:
        raise ParameterError(f"prior has shape {A.shape}; it must be (d, d), like np.eye(d)")
    if not np.isfinite(A).all():
        raise ParameterError("prior has NaN or infinities; it must be finite")
    if np.abs(A - A.T).max() > 1e-8 * np.abs(A).max():
        raise ParameterError(
            "prior is not symmetric; use (prior + prior.T) / 2 if that is intended"
        )
    A = symmetrise(A)
    inverse = bregman.invert(A) if bregman.is_positive_definite(A) else None
    if inverse is None:
        raise ParameterError(
            "prior is not positive definite; add a ridge, such as 1e-6 of its mean diagonal"
        )
    d, no_pairs = len(A), bregman.empty(len(A))
    return State(
        prior=A,
        precision=inverse,
        absorbed=np.zeros((d, d)),
        matrix=A.copy(),
        differences=no_pairs.differences,
        similar=no_pairs.similar,
        bounds=no_pairs.bounds,
        duals=np.zeros(0),
        keys=np.zeros(0),
        alone=np.zeros(2),
        reference=Reference(
            no_pairs.differences, no_pairs.similar, no_pairs.bounds, np.zeros(0), np.zeros(2)
        ),
        gamma=float(gamma),
        seen=0,
        dropped=0,
        calls=0,
    )


def update(
    state: State,
    differences: npt.ArrayLike,
    similar: npt.ArrayLike,
    upper: float,
    lower: float,
    *,
    buffer: int = 2000,
    sweeps: int = 1,
    forgetting: float = 0.0,
    seed: int | None = 0,
    sweep: Sweep = bregman.sweep,
) -> tuple[State, Info]:
    """min D(A, A_0) + gamma D(xi, xi_0) with s (p - xi) <= 0 for all pairs: nearer by K sweeps.

    Parameters
    ----------
    differences, similar
        Of these pairs, shapes (b, d) and (b,); b = 0 sweeps the remembered pairs. More pairs than
        the buffer holds are processed in batches, so that each is swept.
    upper, lower
        Bounds on the SQUARED distances of similar and of dissimilar pairs; see
        `compute_percentile_bounds`.
    buffer
        The most pairs remembered, at least 1: half of either kind, or more where there are fewer
        of the other. Of 4000 pairs of wine the objective after one pass
        is 1.04 times the batch's with 50 or 200 of them, 1.001 with 2000.
    sweeps
        Over the whole buffer, each time. 0 only remembers.
    forgetting
        rho in [0, 1): before anything else A^-1 <- (1 - rho) A^-1 + rho A_0^-1. For drift 0.005 a
        call of 50 pairs is a start; 0 forgets nothing.
    seed
        Of the order within a sweep, drawn from (seed, pairs seen, calls); None: as remembered.
    sweep
        `itml_numba.get_sweep("numba")` is faster; the answer differs in the last bits.

    Returns
    -------
    The new state, A finite and positive definite, and what was done; the old state is untouched.
    O(K (n + b) d^2 + d^3).

    Raises
    ------
    InputError, FeatureError
        Differences are not finite, not of d features, or ``similar`` does not fit.
    ParameterError
        A bound is not positive, or upper is above lower.

    Source: Davis et al. (2007), algorithm 1, over a buffer. Differs: 1. bounds are squared; the
    usual percentile defaults are not, and are compared with squared distances. 2. random order.
    3. Pairs that leave keep their dual. To take s lambda v v^T out of A^-1 instead, as exact
    windows would, makes A indefinite: what other pairs did was done in its presence. Pairs that
    came without the other kind are an exception: see `itml_buffer`. 4. Forgetting.
    """
    arriving, dropped = bregman.check_pairs(differences, similar, upper, lower, len(state.matrix))
    order = _SweepOrder(seed, state)
    keys = order.generator(2)
    new, updates, residual, evicted = state, 0, 0.0, 0
    with np.errstate(all="ignore"):  # overflow is refused below
        if forgetting:
            new = itml_buffer.forget(_forget(new, forgetting), forgetting)
        # where pairs must leave each new one of a mixed batch has a place, and is swept
        size = buffer if len(state) + len(arriving) <= buffer else max(buffer // 2, 1)
        for start in range(0, max(len(arriving), 1), size):
            batch = arriving.take(slice(start, start + size))
            new, n_leaving = itml_buffer.remember(new, batch, buffer, keys)
            evicted += n_leaving
            for _ in range(sweeps):
                new, swept = _sweep_once(new, sweep, order)
                updates, residual = updates + swept.updates, swept.residual
        new, drift, status = _repair(new, order.generator(1))
    info = Info(
        added=len(arriving),
        dropped=dropped,
        evicted=evicted,
        sweeps=sweeps,
        updates=updates,
        residual=residual,
        drift=drift,
        status=status,
    )
    if status == "refused":
        return state, replace(info, added=0, evicted=0, updates=0)
    new = replace(
        new,
        seen=state.seen + len(arriving) + dropped,
        dropped=state.dropped + dropped,
        calls=state.calls + 1,
    )
    return new, info


def solve(
    differences: npt.ArrayLike,
    similar: npt.ArrayLike,
    upper: float,
    lower: float,
    *,
    prior: npt.ArrayLike | None = None,
    gamma: float = 0.1,
    tolerance: float = 1e-6,
    max_sweeps: int = 1000,
    seed: int | None = 0,
    sweep: Sweep = bregman.sweep,
) -> tuple[State, Info]:
    """argmin D(A, A_0) + gamma D(xi, xi_0) with s (p - xi) <= 0 for all pairs: the batch answer.

    Parameters
    ----------
    differences, similar, upper, lower, seed, sweep
        As in `update`. In random order (a number as seed) it takes tens of sweeps where the fixed
        order of the source (None) takes up to thousands.
    prior
        A_0; None: the identity.
    gamma
        As in `init`.
    tolerance
        Largest residual to stop at, in (0, 1); see `bregman.compute_residuals`.
    max_sweeps
        Where to give up; the status then is ``not converged``.

    Returns
    -------
    A state whose buffer is all pairs: `measure` has the gap and the objective, and `update`, with
    a large enough buffer, goes on from it. O(n d^2) a sweep.

    Raises
    ------
    InputError, FeatureError, ParameterError
        As `init` and `update`.

    Source: Davis et al. (2007), algorithm 1. Differs: it stops by the optimality conditions, not
    when duals move little, which they do long before; and those of `update`.

    Examples
    --------
    >>> import numpy as np
    >>> state, info = solve([[2.0, 0.0]], [True], upper=1.0, lower=9.0, gamma=1e9)
    >>> info.status, round(float(state.matrix[0, 0]), 6)  # the squared distance is 1
    ('ok', 0.25)
    """
    width = np.shape(differences)[-1] if np.ndim(differences) == 2 else 0
    if prior is None and width == 0:
        raise InputError(f"differences have shape {np.shape(differences)}; they must be (n, d)")
    start = init(np.eye(width) if prior is None else prior, gamma)
    arriving, dropped = bregman.check_pairs(differences, similar, upper, lower, len(start.matrix))
    order = _SweepOrder(seed, start)
    state, _ = itml_buffer.remember(start, arriving, max(len(arriving), 1), order.generator(2))
    state = replace(state, seen=len(arriving) + dropped, dropped=dropped, calls=1)
    status: Status = "ok"
    n_sweeps, updates, drift = 0, 0, 0.0
    residual = _compute_residual(state)
    while residual > tolerance and n_sweeps < max_sweeps and status != "refused":
        with np.errstate(all="ignore"):
            state, swept = _sweep_once(state, sweep, order)
            n_sweeps, updates = n_sweeps + 1, updates + swept.updates
            if swept.residual <= tolerance or n_sweeps == max_sweeps:
                state, drift, status = _repair(state, order.generator(1))
                residual = _compute_residual(state)
    if status == "refused":
        state = replace(start, seen=state.seen, dropped=dropped, calls=1)
    elif residual > tolerance:
        status = "not converged"
    return state, Info(
        added=len(arriving),
        dropped=dropped,
        evicted=0,
        sweeps=n_sweeps,
        updates=updates,
        residual=residual,
        drift=drift,
        status=status,
    )


def merge(
    left: State,
    right: State,
    *,
    buffer: int = 2000,
    seed: int | None = 0,
    tolerance: float = 1e-3,
    max_sweeps: int = 100,
    sweep: Sweep = bregman.sweep,
) -> State:
    """One metric for the pairs that both remember, solved from scratch with the left prior.

    Duals depend on the other pairs of their state, and on one prior: adding those of two states
    would count the prior twice. So the pairs are merged, not the answers, and absorbed duals are
    dropped: what is remembered is a sample, which stands for all pairs that both have seen.

    Parameters
    ----------
    left, right
        Of the same features and units.
    buffer, seed, sweep
        As in `update`.
    tolerance, max_sweeps
        As in `solve`.

    Returns
    -------
    A state with A finite and positive definite; both others are untouched. O(B d^2) a sweep.

    Source: docs/algorithms/itml.md.
    """
    start = replace(
        init(left.prior, left.gamma),
        seen=left.seen + right.seen,
        dropped=left.dropped + right.dropped,
        calls=left.calls + right.calls,
    )
    order = _SweepOrder(seed, start)
    merged, keys = itml_buffer.merge(left, right, buffer, start)
    state = merged
    with np.errstate(all="ignore"):
        for _ in range(max_sweeps if len(state) else 0):
            state, swept = _sweep_once(state, sweep, order)
            if swept.residual <= tolerance:
                break
        state, _, status = _repair(state, order.generator(1))
        state = merged if status == "refused" else state
        return itml_buffer.split_weights(state, keys, left.alone + right.alone)


def shrink(state: State) -> tuple[State, float]:
    """The state to hand out, with A^-1 <- (1 - w) A^-1 + w A_0^-1 and duals times 1 - w; and w.

    A small buffer in a sorted stream is no sample of the stream: A can be far worse than A_0 for
    all pairs and still fit those remembered. So w has the least objective for the reference, a
    uniform sample of all pairs that came. Where all of them are remembered, w = 0 and A as it is.
    Not for streams that drift, in which A is right to differ from what they were. O(d^3 + m d^2).
    """
    if state.is_complete:
        return state, 0.0
    with np.errstate(all="ignore"):
        objectives = _estimate_objectives(state)
        w = float(SHRINKAGES[np.argmin(objectives)])
        if objectives[0] <= min(TOLERATED * objectives.min(), objectives[-1]):
            w = 0.0
        shrunk = _forget(state, w) if w else state
    return shrunk, 0.0 if shrunk is state else w


def _estimate_objectives(state: State) -> Floats:
    """The objective over all pairs that came for each w, from the reference; never NaN."""
    units = np.sqrt(np.diag(state.prior))
    units = np.outer(units, units)
    values, vectors = eigh(state.matrix / units, state.prior / units)
    values = np.maximum(values, np.finfo(np.float64).tiny)
    # A(w) = A_0 V diag(ratios) V^T A_0 with the eigenvectors V of (A, A_0)
    w = SHRINKAGES[:, None]
    ratios = values / (1.0 - w + w * values)
    divergences = np.sum(ratios - 1.0 - np.log(ratios), axis=1)
    pairs, prices = state.reference.constraints, state.gamma * state.reference.weights
    images = pairs.differences @ (state.prior / np.sqrt(np.diag(state.prior)) @ vectors)
    slack = [
        bregman.slack_divergence(bregman.slack_ratios(p, pairs), prices)
        for p in ratios @ (images**2).T
    ]
    objectives: Floats = np.nan_to_num(divergences + slack, nan=np.inf, posinf=np.inf)
    return objectives


def measure(state: State) -> Measures:
    """Residual, gap, objective and drift over the pairs remembered, exactly; O(n d^2 + d^3).

    At given duals A and xi = 1 / (1 / xi_0 - s lambda / gamma) minimise the Lagrangian, so that
    its value is the dual's; the primal's is that of A at the best xi that A allows. In their
    difference everything but the bounds cancels::

        gap = gamma (D(xi_A, xi_0) - D(xi, xi_0)) - sum s lambda (p - xi)

    It is exact up to the drift.
    """
    pairs, s = state.constraints, state.constraints.signs
    p = bregman.compute_squares(state.matrix, pairs.differences)
    prices = state.prices
    tightness = 1.0 - s * state.duals * pairs.bounds / prices  # xi_0 / xi
    slack = 1.0 / np.maximum(tightness, np.finfo(np.float64).eps)
    allowed = bregman.slack_ratios(p, pairs)
    price = bregman.slack_divergence(allowed, prices) - bregman.slack_divergence(slack, prices)
    gap = price - float(np.sum(s * state.duals * (p - slack * pairs.bounds)))
    objective = bregman.objective(
        state.matrix, state.prior, pairs.differences, pairs.similar, pairs.bounds, pairs.bounds,
        prices,
    )  # fmt: skip
    rebuilt, drift = itml_buffer.build_from_duals(state), np.inf
    if rebuilt is not None:
        drift = float(np.linalg.norm(state.matrix - rebuilt) / np.linalg.norm(rebuilt))
    return Measures(_compute_residual(state), gap, objective, drift)


def compute_percentile_bounds(
    distances: Histogram, percentiles: tuple[float, float] = (5.0, 95.0)
) -> tuple[float, float] | None:
    """Upper and lower bound: percentiles of SQUARED distances between random pairs under A_0.

    Returns
    -------
    (upper, lower), upper at least 1e-6 of lower; None where there are no distances, or most of
    them are 0, or too small for a bound.

    Source: Jain, section 1.3. Differs: squared.
    """
    if histogram.count(distances) == 0:
        return None
    upper, lower = (histogram.quantile(distances, p / 100.0) for p in percentiles)
    upper = max(upper, LEAST_UPPER * lower)
    return (upper, lower) if upper > bregman.SMALLEST else None


class _SweepOrder:
    """Random orders of sweeps: functions of (seed, pairs seen, calls)."""

    def __init__(self, seed: int | None, state: State) -> None:
        self.seed, self.place = seed, (state.seen, state.calls)
        self.draws = self.generator(0)

    def generator(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.seed or 0, *self.place, purpose))

    def draw(self, n: int) -> Ints:
        return np.arange(n) if self.seed is None else self.draws.permutation(n)


def _sweep_once(state: State, sweep: Sweep, order: _SweepOrder) -> tuple[State, SweepResult]:
    """The state after a sweep over the pairs remembered, and what it did."""
    drawn = order.draw(len(state))
    swept = sweep(state.matrix, state.duals, state.constraints, state.prices, drawn)
    return replace(state, matrix=swept.matrix, duals=swept.duals), swept


def _compute_residual(state: State) -> float:
    values = bregman.compute_residuals(state.matrix, state.duals, state.constraints, state.prices)
    return float(values.max(initial=0.0))


def _forget(state: State, share: float) -> State:
    """A^-1 <- (1 - rho) A^-1 + rho A_0^-1, with all duals, absorbed ones too, times 1 - rho."""
    inverse = bregman.invert(state.matrix) if itml_buffer.has_duals(state) else None
    if inverse is None:
        return state
    matrix = bregman.invert((1.0 - share) * inverse + share * state.precision)
    if matrix is None:
        return state
    return replace(
        state,
        matrix=matrix,
        absorbed=(1.0 - share) * state.absorbed,
        duals=(1.0 - share) * state.duals,
    )


def _repair(state: State, generator: np.random.Generator) -> tuple[State, float, Status]:
    """The state with A rebuilt from its duals if it has drifted from them; and the drift."""
    x = generator.standard_normal(len(state.matrix))
    rows = state.differences
    y = (state.precision + state.absorbed) @ x
    y += ((rows @ x) * state.constraints.signs * state.duals) @ rows
    error, size = float(np.linalg.norm(state.matrix @ y - x)), float(np.linalg.norm(x))
    rounding = CERTAIN * float(np.linalg.norm(state.matrix)) * float(np.linalg.norm(y))
    is_valid = bregman.is_positive_definite(state.matrix)
    if is_valid and error <= DRIFT * size + rounding:
        return state, error / size, "ok"
    matrix = itml_buffer.build_from_duals(state)
    if matrix is not None and bregman.is_positive_definite(matrix):
        return replace(state, matrix=matrix), error / size, "rebuilt"
    # the duals are less accurate than the metric beside them
    return state, error / size, "ok" if is_valid else "refused"
