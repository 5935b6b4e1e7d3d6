"""Bounds on squared distances, and projections of a metric onto them by Bregman's method.

Symbols: v = difference of a pair, (d,); s = +1 for a similar pair, -1 for a dissimilar one; xi_0 =
its bound, squared; A = the metric, (d, d), positive definite; p = v^T A v; lambda >= 0 = the dual
of the bound; gamma = price of moving the bound; xi = the bound as moved; A_0 = the prior;
D(A, A_0) = tr(A A_0^-1) - log det(A A_0^-1) - d.

The problem: min D(A, A_0) + gamma D(diag xi, diag xi_0) subject to s (p - xi) <= 0 for each pair.
Of its optimality conditions two hold after every projection, and they make xi superfluous::

    A^-1 = A_0^-1 + sum s lambda v v^T           1 / xi = 1 / xi_0 - s lambda / gamma

Source: docs/algorithms/itml.md; Davis, Kulis, Jain, Sra & Dhillon (2007), Information-theoretic
metric learning, ICML, algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigvalsh
from scipy.linalg.blas import dsymv, dsyr
from scipy.linalg.lapack import dpotrf, dpotri

from streamembed.errors import FeatureError, InputError, ParameterError
from streamembed.numeric.arrays import Array, Bools, Floats, Ints
from streamembed.numeric.linalg import symmetrise

# Squared lengths and squared distances below this have no finite inverse: such a pair is of equal
# points, and no metric can move it.
SMALLEST = 1e-300
# Eigenvalues below this share of the largest keep fewer than 4 digits.
CONDITION = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Constraints:
    """Bounds on the squared distances of pairs, oldest first."""

    differences: Floats  # (n, d): v, no row 0
    similar: Bools  # (n,): True: p must stay below the bound; False: above
    bounds: Floats  # (n,): xi_0, positive, squared

    def __len__(self) -> int:
        return len(self.bounds)

    @property
    def signs(self) -> Floats:
        """s, shape (n,)."""
        return np.where(self.similar, 1.0, -1.0)

    def take(self, chosen: Array | slice) -> Constraints:
        """The constraints selected by index, mask or slice."""
        return Constraints(self.differences[chosen], self.similar[chosen], self.bounds[chosen])


@dataclass(frozen=True, slots=True, eq=False)
class SweepResult:
    """The result of a sweep."""

    matrix: Floats  # (d, d): A, exactly symmetric; the same bits as before where nothing changed
    duals: Floats  # (n,): lambda
    updates: int  # projections that changed something
    residual: float  # the largest residual, each before its own projection; see `compute_residuals`


# (matrix, duals, constraints, gamma, order) -> Swept; arguments are not written to.
Sweep = Callable[[Floats, Floats, Constraints, "float | Floats", Ints], SweepResult]


def empty(n_features: int) -> Constraints:
    """No constraints on ``n_features`` features."""
    return Constraints(np.zeros((0, n_features)), np.zeros(0, np.bool_), np.zeros(0))


def check_pairs(
    differences: npt.ArrayLike,
    similar: npt.ArrayLike,
    upper: float,
    lower: float,
    n_features: int,
) -> tuple[Constraints, int]:
    """The constraints of these pairs, and how many were dropped as pairs of equal points.

    Parameters
    ----------
    differences
        v, shape (n, d); n = 0 is fine.
    similar
        Shape (n,), of truth values.
    upper, lower
        xi_0 of similar and of dissimilar pairs, on squared distances.

    Raises
    ------
    FeatureError
        d is not ``n_features``.
    InputError
        Differences are not two-dimensional, not finite or too large to square; ``similar`` does not
        fit.
    ParameterError
        A bound is not positive and finite, or upper is above lower.
    """
    v = np.ascontiguousarray(differences, dtype=np.float64)
    if v.ndim != 2:
        raise InputError(f"differences have shape {v.shape}; they must be (n, {n_features})")
    if v.shape[1] != n_features:
        raise FeatureError(f"differences have {v.shape[1]} features; the metric has {n_features}")
    flags = np.asarray(similar)
    if flags.shape != (len(v),) or not np.isin(flags, (0, 1)).all():
        raise InputError(
            f"similar, of shape {flags.shape}, must be True or False for each of the {len(v)} pairs"
        )
    with np.errstate(over="ignore"):
        squares = np.einsum("ij,ij->i", v, v)
    if not np.isfinite(squares).all():
        raise InputError(
            "differences have NaN, infinities or values too large to square; drop such pairs"
        )
    for name, bound in (("upper", upper), ("lower", lower)):
        if not (np.ndim(bound) == 0 and SMALLEST < bound < np.inf):
            raise ParameterError(f"{name}={bound} must be a positive squared distance")
    check_bounds(upper, lower)
    is_distinct = squares >= SMALLEST
    distinct_similar = flags.astype(np.bool_)[is_distinct]
    bounds = np.where(distinct_similar, float(upper), float(lower))
    return Constraints(v[is_distinct], distinct_similar, bounds), int(
        np.count_nonzero(~is_distinct)
    )


def check_bounds(upper: float, lower: float) -> None:
    """Refuse an upper bound of similar pairs above the lower one of dissimilar pairs."""
    if upper > lower:
        raise ParameterError(
            f"upper={upper} must be at most lower={lower}: similar pairs could be farther apart "
            "than dissimilar ones; swap them"
        )


def join(first: Constraints, second: Constraints) -> Constraints:
    """Both, the first ones being the older."""
    return Constraints(
        np.concatenate([first.differences, second.differences]),
        np.concatenate([first.similar, second.similar]),
        np.concatenate([first.bounds, second.bounds]),
    )


def step(p: float, dual: float, sign: float, bound: float, gamma: float) -> tuple[float, float]:
    """The projection onto one bound: its change of the dual, and its residual.

    Parameters
    ----------
    p
        v^T A v, at least `SMALLEST`.
    dual, sign, bound, gamma
        lambda, s, xi_0, gamma.

    Returns
    -------
    alpha, residual
        After lambda - alpha and A + beta (A v)(A v)^T with beta = s alpha / (1 - s alpha p), the
        bound holds, or lambda is 0. alpha is 0 where both were optimal already. p becomes
        p / (1 - s alpha p), which is positive: A stays positive definite.

    Source: Davis et al. (2007), algorithm 1, steps 3.3-3.6. Differs: 1 / xi follows from the dual,
    xi is not stored. The dual then cannot drift from the bound in a stream of any length.
    """
    violation = sign * (1.0 / p - (1.0 / bound - sign * dual / gamma))
    alpha = min(dual, gamma / (gamma + 1.0) * violation)
    return alpha, abs(alpha) * p * (1.0 + 1.0 / gamma)


def sweep(
    matrix: Floats, duals: Floats, constraints: Constraints, gamma: float | Floats, order: Ints
) -> SweepResult:
    """A projection onto each bound in the given order, in numpy and BLAS.

    Parameters
    ----------
    matrix
        A, shape (d, d), exactly symmetric, positive definite.
    duals
        lambda, shape (n,).
    gamma
        Of all constraints, or of each, shape (n,).
    order
        Indices of constraints; any number of them.

    Returns
    -------
    The arguments are untouched. O(d^2) a constraint, in two BLAS calls.
    """
    triangle = np.array(matrix, order="F")
    signs, bounds = constraints.signs.tolist(), constraints.bounds.tolist()
    dual, gammas = duals.tolist(), np.broadcast_to(gamma, duals.shape).tolist()
    rows = list(constraints.differences)
    updates, worst = 0, 0.0
    for i in order.tolist():
        v = rows[i]
        image = dsymv(1.0, triangle, v)  # reads the upper triangle only
        p = float(v @ image)
        if not p >= SMALLEST:
            continue
        change, residual = step(p, dual[i], signs[i], bounds[i], gammas[i])
        signed_change = signs[i] * change
        denominator = 1.0 - signed_change * p  # 0 where p should grow by more than 1e16 times
        if change == 0.0 or not denominator > 0.0:
            continue
        dual[i] -= change
        worst = max(worst, residual)
        updates += 1
        triangle = dsyr(signed_change / denominator, image, a=triangle, overwrite_a=1)
    result = np.triu(triangle)
    result += np.triu(result, 1).T
    return SweepResult(np.ascontiguousarray(result), np.array(dual), updates, worst)


def compute_residuals(
    matrix: Floats, duals: Floats, constraints: Constraints, gamma: float | Floats
) -> Floats:
    """How far each constraint is from optimal at A, as a share of its bound. Shape (n,), O(n d^2).

    |p / xi - 1|, as it would be if it were exceeded; less where the dual is so small that
    it would be 0 before the bound is reached. All 0: A is the optimum.
    """
    p = compute_squares(matrix, constraints.differences)
    s = constraints.signs
    violation = s * (1.0 - p * (1.0 / constraints.bounds - s * duals / gamma))
    return np.abs(np.minimum(duals * p * (1.0 + 1.0 / gamma), violation))


def compute_squares(matrix: Floats, differences: Floats) -> Floats:
    """p of every row, at least `SMALLEST`."""
    p: Floats = np.maximum(np.einsum("ij,ij->i", differences @ matrix, differences), SMALLEST)
    return p


def is_positive_definite(matrix: Floats) -> bool:
    """Whether A is finite and has a Cholesky factor, whatever the units of its features."""
    diagonal = np.diag(matrix)
    if not (np.isfinite(matrix).all() and (diagonal > 0).all()):
        return False
    units = np.sqrt(diagonal)
    try:
        np.linalg.cholesky(matrix / units / units[:, None])
    except np.linalg.LinAlgError:
        return False
    return True


def invert(matrix: Floats) -> Floats | None:
    """The inverse, exactly symmetric; None where the matrix is not positive definite."""
    diagonal = np.diag(matrix)
    if not (np.isfinite(matrix).all() and (diagonal > 0).all()):
        return None
    units = np.sqrt(diagonal)
    triangle, failed = dpotrf(matrix / units / units[:, None], lower=0, clean=1)
    if failed:
        return None
    half, failed = dpotri(triangle, lower=0)
    upper = np.triu(half) / units / units[:, None]
    result: Floats = upper + np.triu(upper, 1).T
    return result if not failed and is_positive_definite(result) else None


def sum_dual_terms(pairs: Constraints, duals: Floats) -> Floats:
    """sum s lambda v v^T, the part of the duals in A^-1; exactly symmetric. O(n d^2)."""
    rows = pairs.differences
    return symmetrise(rows.T @ (rows * (pairs.signs * duals)[:, None]))


def slack_ratios(p: Floats, constraints: Constraints) -> Floats:
    """xi / xi_0 of the bounds nearest to xi_0 that squared distances p allow."""
    ratios = p / constraints.bounds
    return np.where(constraints.similar, np.maximum(ratios, 1.0), np.minimum(ratios, 1.0))


def slack_divergence(ratios: Floats, gamma: float | Floats) -> float:
    """Gamma D(diag xi, diag xi_0) of the ratios xi / xi_0, at least `SMALLEST`."""
    ratios = np.maximum(ratios, SMALLEST)
    return float(np.sum(gamma * (ratios - 1.0 - np.log(ratios))))


def objective(
    matrix: Floats,
    prior: Floats,
    differences: Floats,
    similar: Bools,
    upper: float | Floats,
    lower: float | Floats,
    gamma: float | Floats,
) -> float:
    """D(A, A_0) + gamma D(diag xi, diag xi_0) at the best xi for A: what ITML minimises.

    Parameters
    ----------
    matrix, prior
        A and A_0, shape (d, d), positive definite.
    differences, similar
        Shapes (n, d) and (n,).
    upper, lower, gamma
        Bounds on squared distances and the price of moving them, one or (n,) each.

    Returns
    -------
    0 where A = A_0 and every bound holds; positive elsewhere. O(n d^2 + d^3).

    Source: Davis et al. (2007), eq. 3.4. Differs: xi is the nearest to xi_0 that A allows: every A
    has an objective, feasible or not.
    """
    p = compute_squares(matrix, differences)
    pairs = Constraints(differences, similar, np.where(similar, upper, lower))
    ratios = slack_ratios(p, pairs)
    return divergence(matrix, prior) + slack_divergence(ratios, gamma)


def divergence(matrix: Floats, prior: Floats) -> float:
    """D(A, A_0), exact to rounding also where A is near A_0; O(d^3)."""
    units = np.sqrt(np.diag(prior))
    units = np.outer(units, units)
    values = eigvalsh(matrix / units, prior / units)
    if values[0] > CONDITION * values[-1]:
        return float(np.sum(values - 1.0 - np.log(values)))
    # the small ones are rounding of the large ones; determinants are more accurate
    return float(np.sum(values - 1.0)) - _compute_log_det(matrix) + _compute_log_det(prior)


def _compute_log_det(matrix: Floats) -> float:
    """log det A of a positive definite matrix, whatever the units of its features."""
    units = np.sqrt(np.diag(matrix))
    factor = np.linalg.cholesky(matrix / units / units[:, None])
    return 2.0 * float(np.sum(np.log(np.diag(factor)) + np.log(units)))
