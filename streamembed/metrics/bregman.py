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

from dataclasses import dataclass, fields
from typing import Annotated, Self

import numpy as np
from scipy.linalg import eigvalsh
from scipy.linalg.blas import dsymv, dsyr
from scipy.linalg.lapack import dpotrf, dpotri

from streamembed.numeric.arrays import Array, Bools, Floats, Ints
from streamembed.numeric.linalg import symmetrise

# Squared lengths and squared distances below this have no finite inverse: such a pair is of equal
# points, and no metric can move it.
SMALLEST = 1e-300
# Eigenvalues below this share of the largest keep fewer than 4 digits.
CONDITION = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Constraints:
    """Pairs with the bounds on their squared distances, oldest first."""

    differences: Annotated[Floats, "n d"]  # v, no row 0
    similar: Annotated[Bools, "n"]  # True: p must stay below the bound; False: above
    bounds: Annotated[Floats, "n"]  # xi_0, positive, squared
    prices: Annotated[Floats, "n"]  # gamma
    duals: Annotated[Floats, "n"]  # lambda

    def __len__(self) -> int:
        return len(self.bounds)

    @property
    def signs(self) -> Floats:
        """s, shape (n,)."""
        return np.where(self.similar, 1.0, -1.0)

    @property
    def dual_sum(self) -> Floats:
        """sum s lambda v v^T, the part of the duals in A^-1; exactly symmetric. O(n d^2)."""
        rows = self.differences
        return symmetrise(rows.T @ (rows * (self.signs * self.duals)[:, None]))

    def take(self, chosen: Array | slice) -> Self:
        """The pairs selected by index, mask or slice."""
        return type(self)(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def joined(self, newer: Self) -> Self:
        """These and newer ones."""
        return type(self)(
            *(
                np.concatenate([getattr(self, field.name), getattr(newer, field.name)])
                for field in fields(self)
            )
        )


def build_pairs(
    differences: Floats, similar: Bools, upper: float, lower: float, gamma: float
) -> Constraints:
    """Pairs with a dual of 0; those of equal points are left out.

    Parameters
    ----------
    differences, similar
        v and whether the pair is similar, shapes (n, d) and (n,).
    upper, lower
        xi_0 of similar and of dissimilar pairs, on squared distances.
    """
    n = len(differences)
    bounds = np.where(similar, float(upper), float(lower))
    pairs = Constraints(differences, similar, bounds, np.full(n, float(gamma)), np.zeros(n))
    return pairs.take(np.einsum("ij,ij->i", differences, differences) >= SMALLEST)


def compute_dual_step(p: float, dual: float, sign: float, bound: float, gamma: float) -> float:
    """The projection onto one bound, as the change of its dual.

    Parameters
    ----------
    p
        v^T A v, at least `SMALLEST`.
    dual, sign, bound, gamma
        lambda, s, xi_0, gamma.

    Returns
    -------
    alpha: after lambda - alpha and A + beta (A v)(A v)^T with beta = s alpha / (1 - s alpha p), the
    bound holds, or lambda is 0. It is 0 where both were optimal already. p becomes
    p / (1 - s alpha p), which is positive: A stays positive definite.

    Source: Davis et al. (2007), algorithm 1, steps 3.3-3.6. Differs: 1 / xi follows from the dual,
    xi is not stored. The dual then cannot drift from the bound in a stream of any length.
    """
    violation = sign * (1.0 / p - (1.0 / bound - sign * dual / gamma))
    return min(dual, gamma / (gamma + 1.0) * violation)


def sweep(matrix: Floats, pairs: Constraints, order: Ints) -> tuple[Floats, Floats]:
    """A and the duals after a projection onto each bound in the given order.

    Parameters
    ----------
    matrix
        A, shape (d, d), exactly symmetric, positive definite.
    order
        Indices of pairs; any number of them.

    Returns
    -------
    A, (d, d), exactly symmetric, and lambda, (n,); the arguments are untouched. O(d^2) a pair, in
    two BLAS calls.
    """
    triangle = np.array(matrix, order="F")
    signs, bounds, prices = pairs.signs.tolist(), pairs.bounds.tolist(), pairs.prices.tolist()
    duals, rows = pairs.duals.tolist(), list(pairs.differences)
    for i in order.tolist():
        v = rows[i]
        image = dsymv(1.0, triangle, v)  # reads the upper triangle only
        p = float(v @ image)
        if not p >= SMALLEST:
            continue
        change = compute_dual_step(p, duals[i], signs[i], bounds[i], prices[i])
        signed_change = signs[i] * change
        denominator = 1.0 - signed_change * p  # 0 where p should grow by more than 1e16 times
        if change == 0.0 or not denominator > 0.0:
            continue
        duals[i] -= change
        triangle = dsyr(signed_change / denominator, image, a=triangle, overwrite_a=1)
    result = np.triu(triangle)
    result += np.triu(result, 1).T
    return np.ascontiguousarray(result), np.array(duals)


def compute_residuals(matrix: Floats, pairs: Constraints) -> Floats:
    """How far each pair is from optimal at A, as a share of its bound. Shape (n,), O(n d^2).

    |p / xi - 1|, as it would be if it were exceeded; less where the dual is so small that
    it would be 0 before the bound is reached. All 0: A is the optimum.
    """
    p, s = compute_squares(matrix, pairs.differences), pairs.signs
    violation = s * (1.0 - p * (1.0 / pairs.bounds - s * pairs.duals / pairs.prices))
    return np.abs(np.minimum(pairs.duals * p * (1.0 + 1.0 / pairs.prices), violation))


def compute_squares(matrix: Floats, differences: Floats) -> Floats:
    """v^T A v of every row v, at least `SMALLEST`."""
    p: Floats = np.maximum(np.einsum("ij,ij->i", differences @ matrix, differences), SMALLEST)
    return p


def invert(matrix: Floats) -> Floats | None:
    """The inverse, exactly symmetric; None where either is not positive definite."""
    factored = _factor(matrix)
    if factored is None:
        return None
    triangle, units = factored
    half, failed = dpotri(triangle, lower=0)
    upper = np.triu(half) / units / units[:, None]
    result: Floats = upper + np.triu(upper, 1).T
    return None if failed or _factor(result) is None else result


def objective(matrix: Floats, prior: Floats, pairs: Constraints) -> float:
    """D(A, A_0) + gamma D(diag xi, diag xi_0) at the best xi for A: what ITML minimises.

    0 where A = A_0 and every bound holds; positive elsewhere. O(n d^2 + d^3).

    Source: Davis et al. (2007), eq. 3.4. Differs: xi is the nearest to xi_0 that A allows: every A
    has an objective, feasible or not.
    """
    ratios = compute_squares(matrix, pairs.differences) / pairs.bounds
    limited = np.where(pairs.similar, np.maximum(ratios, 1.0), np.minimum(ratios, 1.0))
    limited = np.maximum(limited, SMALLEST)
    slack = float(np.sum(pairs.prices * (limited - 1.0 - np.log(limited))))
    return divergence(matrix, prior) + slack


def divergence(matrix: Floats, prior: Floats) -> float:
    """D(A, A_0), exact to rounding also where A is near A_0; O(d^3)."""
    units = np.sqrt(np.diag(prior))
    units = np.outer(units, units)
    values = eigvalsh(matrix / units, prior / units)
    if values[0] > CONDITION * values[-1]:
        return float(np.sum(values - 1.0 - np.log(values)))
    # the small ones are rounding of the large ones; determinants are more accurate
    return float(np.sum(values - 1.0)) - _compute_log_det(matrix) + _compute_log_det(prior)


def _factor(matrix: Floats) -> tuple[Floats, Floats] | None:
    """The Cholesky factor of the matrix in units of its diagonal's roots, and these; or None."""
    diagonal = np.diag(matrix)
    if not (np.isfinite(matrix).all() and (diagonal > 0).all()):
        return None
    units = np.sqrt(diagonal)
    triangle, failed = dpotrf(matrix / units / units[:, None], lower=0, clean=1)
    return None if failed else (triangle, units)


def _compute_log_det(matrix: Floats) -> float:
    """log det A, whatever the units of its features; -inf where it is not positive definite."""
    factored = _factor(matrix)
    if factored is None:
        return -np.inf
    triangle, units = factored
    return 2.0 * float(np.sum(np.log(np.diag(triangle)) + np.log(units)))
