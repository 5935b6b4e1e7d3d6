"""How many eigenvalues of a sparse operator lie above a value: a proof that none was missed.

By Sylvester's law of inertia x I - S = L D L^T has as many negative eigenvalues as D has negative
entries, and these are the eigenvalues of S above x. No vector is involved, so that nothing can hide
from it: not a copy of a multiple eigenvalue, which Lanczos loses, nor a mode that lies on a few
points.

Source: Parlett (1998), "The Symmetric Eigenvalue Problem", section 3.3. Differs: the factors are
those of SuperLU without pivoting, and their difference from x I - S is bounded afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array, csr_array, eye_array
from scipy.sparse.linalg import splu

from streamembed.numeric.arrays import Floats

# The factors may be those of an operator that is off by so much in norm: a count is then right but
# for eigenvalues as near to x. Near the top of a spectrum they are off by 1e-14 to 1e-9, in the
# middle of one, where pivots of both signs meet, by up to 1e-7.
LARGEST_SLACK = 1e-6


# Eigenvalues of parts are 1 up to rounding.
NEARLY_ONE = 1e-9


@dataclass(frozen=True, slots=True)
class Inertia:
    """The result of a count, for published values."""

    # Eigenvalues above ``cut`` that are not among the published ones; None where the count does not
    # decide it.
    missed: int | None
    # x: where ``missed`` is 0, no eigenvalue but the first ``covered`` published ones, and those
    # that were deflated, is larger.
    cut: float
    covered: int  # published values above ``cut``


def count_above(operator: csr_array, x: float, slack: float = LARGEST_SLACK) -> int | None:
    """How many eigenvalues of a symmetric sparse S are larger than ``x``.

    Parameters
    ----------
    operator
        S, shape (n, n), float64.
    x
        Not within ``slack`` of an eigenvalue of S.
    slack
        Largest error of the factors, in norm.

    Returns
    -------
    None where the factors needed pivots, or are off by more than that. The cost is that of the
    fill, which grows with the dimension of the data: 20 to 100 entries a row.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> count_above(csr_array([[0.0, 1.0], [1.0, 0.0]]), 0.5)
    1
    """
    n = operator.shape[0]
    shifted = (x * eye_array(n) - operator).tocsc()
    try:
        factors = splu(
            shifted,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
    except RuntimeError:  # a pivot is exactly 0
        return None
    if not np.array_equal(factors.perm_r, factors.perm_c):
        return None
    pivots = factors.U.diagonal()
    if not _bound_slack(factors.L, factors.U.tocsr(), pivots) <= slack:  # nor where it is NaN
        return None
    return int(np.count_nonzero(pivots < 0))


def count_missing(
    operator: csr_array, values: Floats, deflated: int, error: float, allowance: float
) -> Inertia:
    """Whether a larger eigenvalue of S is missing among published ones.

    Parameters
    ----------
    operator
        S, shape (n, n).
    values
        Published Ritz values, descending, shape (k,), of orthonormal columns that are orthogonal to
        the deflated ones; further ones (guards) may not be among them.
    deflated
        How many eigenvectors beside these are known exactly: v_0, and those of parts that are not
        in ``values``.
    error
        Spectral norm of the published columns' residual block, or a bound on it.
    allowance
        By how much a missing eigenvalue may exceed the last published one without being counted:
        the tolerance.

    Returns
    -------
    ``cut`` is in the widest gap among the values, no higher than ``allowance`` above the last.

    Notes
    -----
    S has at least as many eigenvalues above the cut as there are Ritz values and deflated ones
    (Courant & Fischer), so that equal counts are a proof whatever the residuals are: ``missed``
    is 0, and the angle between the covered columns and the true ones is at most asin(error / (the
    last covered value - cut)). A larger count is a proof of the contrary where the cut is
    further than ``error`` from both its neighbours, so that every published column has an
    eigenvalue of its own on its side of the cut; a gap of more than two residuals is wide
    enough for that. Elsewhere an eigenvalue above the cut may be that of a column just below: then
    ``missed`` is None, and a further round of the block may decide it. An eigenvalue within 1e-6 of
    the cut may be counted on either side.
    """
    last = float(values[-1])
    if last >= 1.0 - NEARLY_ONE:  # nothing is larger
        return Inertia(0, 1.0, 0)
    upper = np.append(1.0, values[:-1])
    middle = np.minimum(0.5 * (upper + values), last + allowance)
    distances = np.minimum(middle - values, upper - middle)
    covered = int(np.argmax(distances))
    cut = float(middle[covered])
    if distances[covered] <= 0.0:  # no gap to count in
        return Inertia(None, cut, covered)
    count = count_above(operator, cut)
    if count is None or count < covered + deflated:
        return Inertia(None, cut, covered)
    n_missing = count - covered - deflated
    if n_missing and distances[covered] <= error + LARGEST_SLACK:
        return Inertia(None, cut, covered)
    return Inertia(n_missing, cut, covered)


def _bound_slack(lower: csc_array, upper: csr_array, pivots: Floats) -> float:
    """A bound on the norm of x I - S - L D L^T: the rounding of L U, and of U against D L^T.

    The largest row sum of n eps |L| |U| + |L| |U - D L^T|, for the difference is symmetric.
    """
    n = len(pivots)
    lower.sort_indices()
    upper.sort_indices()
    if not np.array_equal(lower.indices, upper.indices):  # an entry that is 0 by chance
        return np.inf
    # the columns of L are the rows of L^T, and lie as those of U do
    rows = np.repeat(pivots, np.diff(upper.indptr))
    entries = n * np.finfo(np.float64).eps * np.abs(upper.data)
    entries += np.abs(upper.data - rows * lower.data)
    starts = upper.indptr[:-1]  # no row is empty: its pivot is there
    sums = np.add.reduceat(entries, starts)
    lower.data = np.abs(lower.data)
    return float((lower @ sums).max())
