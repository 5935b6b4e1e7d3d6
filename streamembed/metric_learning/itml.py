"""Information-theoretic metric learning from a stream of pairs: ITML with a memory of duals.

Symbols as in `bregman`: v, s, xi_0, p, lambda, gamma, A, A_0, d; B = size of the buffer; S = sum
of s lambda v v^T over pairs that have left it; rho = share that is forgotten a call; K = sweeps.

What makes it stream is the first optimality condition, which holds after every projection::

    A^-1 = A_0^-1 + S + sum over the buffer of s lambda v v^T

A is a function of the prior and the duals. Rounding can be repaired from it (`rebuild`), a pair
can leave the buffer with A untouched (its dual goes into S and stays as it is), and forgetting is
a convex combination of A^-1 and A_0^-1, positive definite whatever happened before.

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
from streamembed.metric_learning.bregman import Constraints, Sweep
from streamembed.numeric import histogram
from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.numeric.histogram import Histogram
from streamembed.numeric.linalg import symmetric

__all__ = [
    "Info",
    "Measures",
    "State",
    "init",
    "measure",
    "merge",
    "percentile_bounds",
    "rebuild",
    "solve",
    "update",
]

# A is computed anew from the duals where A (A^-1 x) misses x by this share of it, or, where A is
# ill-conditioned, by more than its inverse can be known.
DRIFT = 1e-10
CERTAIN = 64 * np.finfo(np.float64).eps
# The upper bound is at least this share of the lower one: the 5th percentile of data with
# many duplicates is 0, and no metric makes a distance 0.
LEAST_UPPER = 1e-6

Status = Literal["ok", "rebuilt", "refused", "not converged"]


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What persists between two calls. Memory O(B d + d^2).

    Attributes
    ----------
    prior, precision : (d, d)
        A_0 and its inverse.
    absorbed : (d, d)
        S.
    matrix : (d, d)
        A, positive definite, exactly symmetric.
    differences, similar, bounds, duals : (n, d), (n,), (n,), (n,)
        v, s = +1, xi_0 and lambda of the pairs remembered, oldest first.
    gamma : float
        Price of moving a bound.
    seen, dropped, calls : int
        Pairs that came; those of equal points among them; calls of `update`.
    """

    prior: Annotated[Floats, "d d"]
    precision: Annotated[Floats, "d d"]
    absorbed: Annotated[Floats, "d d"]
    matrix: Annotated[Floats, "d d"]
    differences: Annotated[Floats, "n d"]
    similar: Annotated[Bools, "n"]
    bounds: Annotated[Floats, "n"]
    duals: Annotated[Floats, "n"]
    gamma: float
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
    """What one call did.

    Attributes
    ----------
    added, dropped, evicted : int
        Pairs that came into the buffer; those of equal points, which no metric moves; those whose
        dual was absorbed to make room.
    sweeps, updates : int
        Sweeps done, and projections among them that moved A.
    residual : float
        Of `update`: the largest met during the last sweep, before its projection; 0 without one.
        Of `solve`: the largest at the end. As a share of the bound (`bregman.residuals`).
    drift : float
        How far A was from what its duals say, relative, as a probe at a random vector sees it.
    status : str
        ``ok``. ``rebuilt``: the drift showed, and A was computed anew from the duals.
        ``refused``: A left the range of double precision, and the state is the one passed in;
        bounds or features differ by too many decades: scale them. ``not converged``: `solve` used
        up its sweeps; take more, or a smaller gamma.
    """

    added: int
    dropped: int
    evicted: int
    sweeps: int
    updates: int
    residual: float
    drift: float
    status: Status


@dataclass(frozen=True, slots=True)
class Measures:
    """How near A is to the optimum for the pairs remembered.

    Attributes
    ----------
    residual : float
        Largest of `bregman.residuals`; 0 at the optimum.
    gap : float
        What the objective exceeds the least by, at most: primal minus dual, absolute. With
        absorbed pairs: of the problem in which their duals stay as they are.
    objective : float
        `bregman.objective` of A over the pairs remembered, against the prior.
    drift : float
        ||A - A'|| / ||A'|| (Frobenius), A' being computed anew from the duals; infinite where
        those are not known well enough to have an inverse.
    """

    residual: float
    gap: float
    objective: float
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
        The prior is not (d, d), finite, symmetric and positive definite, or gamma not positive.

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
    if not (np.isfinite(gamma) and gamma > 0):
        raise ParameterError(f"gamma={gamma} must be positive and finite: try 0.1")
    A = symmetric(A)
    inverse = bregman.inverse(A) if bregman.positive_definite(A) else None
    if inverse is None:
        raise ParameterError(
            "prior is not positive definite; add a ridge, such as 1e-6 of its mean diagonal"
        )
    d, none = len(A), bregman.empty(len(A))
    return State(
        A, inverse, np.zeros((d, d)), A.copy(), none.differences, none.similar, none.bounds,
        np.zeros(0), float(gamma), seen=0, dropped=0, calls=0,
    )  # fmt: skip


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
        Of these pairs, shapes (b, d) and (b,); b = 0 sweeps what is remembered. More pairs than
        the buffer holds are taken in pieces, so that each is swept.
    upper, lower
        Bounds on the SQUARED distances of similar and of dissimilar pairs; `percentile_bounds`.
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
        `itml_fast.sweeper("numba")` is faster; the answer differs in the last bits.

    Returns
    -------
    The new state, A finite and positive definite, and what was done; the old state is untouched.
    O(K (n + b) d^2 + d^3).

    Raises
    ------
    InputError, FeatureError
        Differences are not finite, not of d features, or ``similar`` does not fit.
    ParameterError
        A bound is not positive, upper is above lower, or an option is out of range.

    Source: Davis et al. (2007), algorithm 1, over a buffer. Differs: 1. bounds are squared; the
    usual percentile defaults are not, and are compared with squared distances. 2. random order.
    3. Pairs that leave keep their dual. To take s lambda v v^T out of A^-1 instead, as exact
    windows would, makes A indefinite: what other pairs did was done in its presence. 4. Forgetting.
    """
    _check_options(buffer, sweeps, forgetting, seed)
    fresh, dropped = bregman.check_pairs(differences, similar, upper, lower, len(state.matrix))
    order = _Order(seed, state)
    new, updates, residual, evicted = state, 0, 0.0, 0
    with np.errstate(all="ignore"):  # what overflows is refused below
        if forgetting:
            new = _forget(new, forgetting)
        for start in range(0, max(len(fresh), 1), buffer):
            piece = fresh.taken(slice(start, start + buffer))
            new, left = _remember(new, piece, buffer)
            evicted += left
            for _ in range(sweeps):
                swept = sweep(new.matrix, new.duals, new.constraints, new.gamma, order.of(len(new)))
                new = replace(new, matrix=swept.matrix, duals=swept.duals)
                updates, residual = updates + swept.updates, swept.residual
        new, drift, status = _repair(new, order.generator(1))
    added = len(fresh)
    if status == "refused":
        return state, Info(0, dropped, 0, sweeps, 0, residual, drift, status)
    new = replace(
        new, seen=state.seen + added + dropped, dropped=state.dropped + dropped,
        calls=state.calls + 1,
    )  # fmt: skip
    return new, Info(added, dropped, evicted, sweeps, updates, residual, drift, status)


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
        Largest residual to stop at, in (0, 1); see `bregman.residuals`.
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
    if not 0 < tolerance < 1:
        raise ParameterError(f"tolerance={tolerance} must be in (0, 1)")
    _check_options(1, max_sweeps, 0.0, seed)
    start = init(np.eye(width) if prior is None else prior, gamma)
    fresh, dropped = bregman.check_pairs(differences, similar, upper, lower, len(start.matrix))
    order = _Order(seed, start)
    state, _ = _remember(start, fresh, max(len(fresh), 1))
    state = replace(state, seen=len(fresh) + dropped, dropped=dropped, calls=1)
    status: Status = "ok"
    done, updates, drift = 0, 0, 0.0
    residual = _residual(state)
    while residual > tolerance and done < max_sweeps and status != "refused":
        with np.errstate(all="ignore"):
            swept = sweep(state.matrix, state.duals, state.constraints, gamma, order.of(len(state)))
            state = replace(state, matrix=swept.matrix, duals=swept.duals)
            done, updates = done + 1, updates + swept.updates
            if swept.residual <= tolerance or done == max_sweeps:
                state, drift, status = _repair(state, order.generator(1))
                residual = _residual(state)
    if status == "refused":
        state = replace(start, seen=state.seen, dropped=dropped, calls=1)
    elif residual > tolerance:
        status = "not converged"
    return state, Info(len(fresh), dropped, 0, done, updates, residual, drift, status)


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
    """One metric for the pairs that both remember, solved anew from the left one's prior.

    Duals belong to the pairs that they met, and to one prior: adding those of two states would
    count the prior twice. So the pairs are merged, not the answers. Where they are more than the
    buffer holds, the newest of either stay, in proportion to how many it has seen; what had been
    absorbed of pairs before is left out.

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
    room = min(buffer, len(left) + len(right))
    total = left.seen + right.seen
    of_right = round(room * right.seen / total) if total else 0
    of_right = min(max(of_right, room - len(left)), len(right))
    counts = room - of_right, of_right
    parts = [
        one.constraints.taken(slice(len(one) - count, None))
        for one, count in zip((left, right), counts, strict=True)
    ]
    # both streams ran side by side: what each saw last is last
    age = np.concatenate([np.arange(count) / max(count, 1) for count in counts])
    pairs = bregman.join(*parts).taken(np.argsort(age, kind="stable"))
    start = init(left.prior, left.gamma)
    start = replace(
        start,
        seen=total,
        dropped=left.dropped + right.dropped,
        calls=left.calls + right.calls,
    )
    state, _ = _remember(start, pairs, max(room, 1))
    order = _Order(seed, state)
    with np.errstate(all="ignore"):
        for _ in range(max_sweeps if room else 0):
            swept = sweep(
                state.matrix, state.duals, state.constraints, state.gamma, order.of(len(state))
            )
            state = replace(state, matrix=swept.matrix, duals=swept.duals)
            if swept.residual <= tolerance:
                break
        state, _, status = _repair(state, order.generator(1))
    if status == "refused":
        state, _ = _remember(start, pairs, max(room, 1))
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
    p = bregman.square(state.matrix, pairs.differences)
    tightness = 1.0 - s * state.duals * pairs.bounds / state.gamma  # xi_0 / xi
    moved = 1.0 / np.maximum(tightness, np.finfo(np.float64).eps)
    allowed = np.where(s > 0, np.maximum(p / pairs.bounds, 1.0), np.minimum(p / pairs.bounds, 1.0))
    price = bregman.slack_divergence(allowed) - bregman.slack_divergence(moved)
    gap = state.gamma * price - float(np.sum(s * state.duals * (p - moved * pairs.bounds)))
    objective = bregman.objective(
        state.matrix, state.prior, pairs.differences, pairs.similar, pairs.bounds, pairs.bounds,
        state.gamma,
    )  # fmt: skip
    again, drift = _from_duals(state), np.inf
    if again is not None:
        drift = float(np.linalg.norm(state.matrix - again) / np.linalg.norm(again))
    return Measures(_residual(state), gap, objective, drift)


def rebuild(state: State) -> State:
    """The state with A computed anew from the prior and the duals; O(n d^2 + d^3).

    Where their sum is not positive definite in double precision, A is known better than they are,
    and the state comes back as it is. So it does where no dual is set and A is the prior.
    """
    matrix = _from_duals(state)
    return state if matrix is None else replace(state, matrix=matrix)


def percentile_bounds(
    distances: Histogram, percentiles: tuple[float, float] = (5.0, 95.0)
) -> tuple[float, float] | None:
    """Upper and lower bound: percentiles of SQUARED distances between random pairs under A_0.

    Returns
    -------
    (upper, lower), upper at least 1e-6 of lower; None where there are no distances, or most of
    them are 0, and no bound can be told.

    Source: Jain, section 1.3. Differs: squared.
    """
    if histogram.count(distances) == 0:
        return None
    upper, lower = (histogram.quantile(distances, p / 100.0) for p in percentiles)
    return (max(upper, LEAST_UPPER * lower), lower) if lower > 0 else None


def _check_options(buffer: int, sweeps: int, forgetting: float, seed: int | None) -> None:
    for name, value, least in (
        ("buffer", buffer, 1),
        ("sweeps", sweeps, 0),
        ("seed", seed or 0, 0),
    ):
        if isinstance(value, bool) or int(value) != value or value < least:
            raise ParameterError(f"{name}={value} must be a whole number of at least {least}")
    if not 0 <= forgetting < 1:
        raise ParameterError(f"forgetting={forgetting} must be in [0, 1): try 0.005")


class _Order:
    """Orders of sweeps, and probes: functions of (seed, pairs seen, calls)."""

    def __init__(self, seed: int | None, state: State) -> None:
        self.seed, self.place = seed, (state.seen, state.calls)
        self.draws = self.generator(0)

    def generator(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng((self.seed or 0, *self.place, purpose))

    def of(self, n: int) -> Ints:
        return np.arange(n) if self.seed is None else self.draws.permutation(n)


def _residual(state: State) -> float:
    values = bregman.residuals(state.matrix, state.duals, state.constraints, state.gamma)
    return float(values.max(initial=0.0))


def _remember(state: State, fresh: Constraints, buffer: int) -> tuple[State, int]:
    """The state with these pairs, no more than ``buffer`` in all, and how many left for them.

    A is untouched: duals of pairs that leave are absorbed, those of new pairs are 0.
    """
    leaving = max(len(state) + len(fresh) - buffer, 0)
    old = state.constraints
    pairs = bregman.join(old.taken(slice(leaving, None)), fresh)
    duals = np.concatenate([state.duals[leaving:], np.zeros(len(fresh))])
    gone = old.taken(slice(0, leaving))
    return replace(
        state,
        absorbed=state.absorbed + bregman.pull(gone, state.duals[:leaving]),
        differences=pairs.differences,
        similar=pairs.similar,
        bounds=pairs.bounds,
        duals=duals,
    ), leaving


def _set(state: State) -> bool:
    """Whether anything was learned: else A is A_0, and is not to be rounded."""
    return bool(state.duals.any() or state.absorbed.any())


def _forget(state: State, share: float) -> State:
    """A^-1 <- (1 - rho) A^-1 + rho A_0^-1, with all duals, absorbed ones too, times 1 - rho."""
    inverse = bregman.inverse(state.matrix) if _set(state) else None
    if inverse is None:
        return state
    matrix = bregman.inverse((1.0 - share) * inverse + share * state.precision)
    if matrix is None:
        return state
    return replace(
        state,
        matrix=matrix,
        absorbed=(1.0 - share) * state.absorbed,
        duals=(1.0 - share) * state.duals,
    )


def _from_duals(state: State) -> Floats | None:
    """A from the prior and the duals; None where rounding leaves it no inverse."""
    if not _set(state):
        return state.matrix
    pull = bregman.pull(state.constraints, state.duals)
    return bregman.inverse(state.precision + state.absorbed + pull)


def _repair(state: State, generator: np.random.Generator) -> tuple[State, float, Status]:
    """The state with A as its duals say, where a probe shows that it is not; and the probe."""
    x = generator.standard_normal(len(state.matrix))
    rows = state.differences
    y = (state.precision + state.absorbed) @ x
    y += ((rows @ x) * state.constraints.signs * state.duals) @ rows
    miss, size = float(np.linalg.norm(state.matrix @ y - x)), float(np.linalg.norm(x))
    blur = CERTAIN * float(np.linalg.norm(state.matrix)) * float(np.linalg.norm(y))
    sound = bregman.positive_definite(state.matrix)
    if sound and miss <= DRIFT * size + blur:
        return state, miss / size, "ok"
    matrix = _from_duals(state)
    if matrix is not None and bregman.positive_definite(matrix):
        return replace(state, matrix=matrix), miss / size, "rebuilt"
    # the duals are known less well than the metric that was kept beside them
    return state, miss / size, "ok" if sound else "refused"
