"""Information-theoretic metric learning from a stream of pairs: ITML that remembers duals.

Symbols as in `bregman`: v, s, xi_0, p, lambda, gamma, A, A_0, d; B = size of the buffer; S = sum
of s lambda v v^T over pairs that have left it; rho = share that is forgotten per call; K = sweeps.

Streaming rests on the first optimality condition, which holds after every projection::

    A^-1 = A_0^-1 + S + sum over the buffer of s lambda v v^T

A is a function of the prior and the duals. Rounding can be repaired from it, a pair
can leave the buffer with A untouched (its dual goes into S and stays as it is), and forgetting is
a convex combination of A^-1 and A_0^-1, positive definite in any case.

Source: docs/algorithms/itml.md; Davis, Kulis, Jain, Sra & Dhillon (2007), Information-theoretic
metric learning, ICML; Jain, section 1.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt

from streamembed.errors import InputError, ParameterError
from streamembed.metric_learning import bregman
from streamembed.metric_learning.bregman import Constraints, Sweep, SweepResult
from streamembed.numeric import histogram
from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.numeric.histogram import Histogram
from streamembed.numeric.linalg import symmetrise

# A is computed from scratch from the duals where A (A^-1 x) misses x by this share of it, or, where
# A is ill-conditioned, by more than the accuracy of its inverse.
DRIFT = 1e-10
CERTAIN = 64 * np.finfo(np.float64).eps
# The upper bound is at least this share of the lower one: the 5th percentile of data with
# many duplicates is 0, and no metric makes a distance 0.
LEAST_UPPER = 1e-6

Status = Literal["ok", "rebuilt", "refused", "not converged"]


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What persists between two calls. Memory O(B d + d^2)."""

    # A_0 and its inverse.
    prior: Annotated[Floats, "d d"]
    precision: Annotated[Floats, "d d"]
    absorbed: Annotated[Floats, "d d"]  # S
    matrix: Annotated[Floats, "d d"]  # A, positive definite, exactly symmetric
    # v, s = +1, xi_0 and lambda of the pairs remembered, oldest first.
    differences: Annotated[Floats, "n d"]
    similar: Annotated[Bools, "n"]
    bounds: Annotated[Floats, "n"]
    duals: Annotated[Floats, "n"]
    gamma: float  # price of moving a bound
    # Pairs that came; those of equal points among them; calls of `update`.
    seen: int
    dropped: int
    calls: int

    def __len__(self) -> int:
        return len(self.duals)

    @property
    def constraints(self) -> Constraints:
        """The pairs remembered."""
        return Constraints(self.differences, self.similar, self.bounds)


@dataclass(frozen=True, slots=True)
class Info:
    """The Info of one call."""

    # Pairs that entered the buffer; those of equal points, which no metric moves; those whose dual
    # was absorbed because the buffer was full.
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
    objective: float  # `bregman.objective` of A over the pairs remembered, against the prior
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
        The most pairs remembered, at least 1. Of 4000 pairs of wine the objective after one pass
        is 1.08 times the batch's with 50 of them, 1.05 with 200, 1.001 with 2000.
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
    windows would, makes A indefinite: what other pairs did was done in its presence. 4. Forgetting.
    """
    arriving, dropped = bregman.check_pairs(differences, similar, upper, lower, len(state.matrix))
    order = _SweepOrder(seed, state)
    new, updates, residual, evicted = state, 0, 0.0, 0
    with np.errstate(all="ignore"):  # overflow is refused below
        if forgetting:
            new = _forget(new, forgetting)
        for start in range(0, max(len(arriving), 1), buffer):
            batch = arriving.take(slice(start, start + buffer))
            new, n_leaving = _remember(new, batch, buffer)
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
    state, _ = _remember(start, arriving, max(len(arriving), 1))
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
    would count the prior twice. So the pairs are merged, not the answers. Where they are more than
    the buffer holds, the newest of either stay, in proportion to how many it has seen; absorbed
    duals are dropped.

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
    size = min(buffer, len(left) + len(right))
    total = left.seen + right.seen
    n_right = round(size * right.seen / total) if total else 0
    n_right = min(max(n_right, size - len(left)), len(right))
    counts = size - n_right, n_right
    parts = [
        side.constraints.take(slice(len(side) - count, None))
        for side, count in zip((left, right), counts, strict=True)
    ]
    # the streams ran side by side: the last pairs of each are the newest
    age = np.concatenate([np.arange(count) / max(count, 1) for count in counts])
    pairs = bregman.join(*parts).take(np.argsort(age, kind="stable"))
    start = init(left.prior, left.gamma)
    start = replace(
        start,
        seen=total,
        dropped=left.dropped + right.dropped,
        calls=left.calls + right.calls,
    )
    state, _ = _remember(start, pairs, max(size, 1))
    order = _SweepOrder(seed, state)
    with np.errstate(all="ignore"):
        for _ in range(max_sweeps if size else 0):
            state, swept = _sweep_once(state, sweep, order)
            if swept.residual <= tolerance:
                break
        state, _, status = _repair(state, order.generator(1))
    if status == "refused":
        state, _ = _remember(start, pairs, max(size, 1))
    return state


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
    tightness = 1.0 - s * state.duals * pairs.bounds / state.gamma  # xi_0 / xi
    slack = 1.0 / np.maximum(tightness, np.finfo(np.float64).eps)
    allowed = np.where(s > 0, np.maximum(p / pairs.bounds, 1.0), np.minimum(p / pairs.bounds, 1.0))
    price = bregman.slack_divergence(allowed) - bregman.slack_divergence(slack)
    gap = state.gamma * price - float(np.sum(s * state.duals * (p - slack * pairs.bounds)))
    objective = bregman.objective(
        state.matrix, state.prior, pairs.differences, pairs.similar, pairs.bounds, pairs.bounds,
        state.gamma,
    )  # fmt: skip
    rebuilt, drift = _build_from_duals(state), np.inf
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
    them are 0.

    Source: Jain, section 1.3. Differs: squared.
    """
    if histogram.count(distances) == 0:
        return None
    upper, lower = (histogram.quantile(distances, p / 100.0) for p in percentiles)
    return (max(upper, LEAST_UPPER * lower), lower) if lower > 0 else None


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
    swept = sweep(state.matrix, state.duals, state.constraints, state.gamma, drawn)
    return replace(state, matrix=swept.matrix, duals=swept.duals), swept


def _compute_residual(state: State) -> float:
    values = bregman.compute_residuals(state.matrix, state.duals, state.constraints, state.gamma)
    return float(values.max(initial=0.0))


def _remember(state: State, arriving: Constraints, buffer: int) -> tuple[State, int]:
    """The state with these pairs, no more than ``buffer`` in all, and how many left for them.

    A is untouched: duals of pairs that leave are absorbed, those of new pairs are 0.
    """
    n_evicted = max(len(state) + len(arriving) - buffer, 0)
    constraints = state.constraints
    pairs = bregman.join(constraints.take(slice(n_evicted, None)), arriving)
    duals = np.concatenate([state.duals[n_evicted:], np.zeros(len(arriving))])
    evicted = constraints.take(slice(0, n_evicted))
    return replace(
        state,
        absorbed=state.absorbed + bregman.sum_dual_terms(evicted, state.duals[:n_evicted]),
        differences=pairs.differences,
        similar=pairs.similar,
        bounds=pairs.bounds,
        duals=duals,
    ), n_evicted


def _has_duals(state: State) -> bool:
    """Whether any dual is set; otherwise A is A_0, and must not be rounded."""
    return bool(state.duals.any() or state.absorbed.any())


def _forget(state: State, share: float) -> State:
    """A^-1 <- (1 - rho) A^-1 + rho A_0^-1, with all duals, absorbed ones too, times 1 - rho."""
    inverse = bregman.invert(state.matrix) if _has_duals(state) else None
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


def _build_from_duals(state: State) -> Floats | None:
    """A from the prior and the duals; None where rounding leaves it no inverse."""
    if not _has_duals(state):
        return state.matrix
    pull = bregman.sum_dual_terms(state.constraints, state.duals)
    return bregman.invert(state.precision + state.absorbed + pull)


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
    matrix = _build_from_duals(state)
    if matrix is not None and bregman.is_positive_definite(matrix):
        return replace(state, matrix=matrix), error / size, "rebuilt"
    # the duals are less accurate than the metric beside them
    return state, error / size, "ok" if is_valid else "refused"
