"""The view of a factor of a symmetric matrix whose mean is taken out of rows and columns.

Symbols: H = symmetric (n, n), m = masses, M = sum(m), p = m / M, J = 1 - 1 p^T, v_0 = sqrt(p),
S = diag(sqrt(m)) J H J^T diag(sqrt(m)) = (1 - v_0 v_0^T) diag(sqrt(m)) H diag(sqrt(m))
(1 - v_0 v_0^T), H ~ U diag(lambda) U^T the tracked factor, v, V = eigenpairs of S.

H itself is tracked: a new point changes one row of it, and every entry of S. The mean is taken out
in the view, by an r x r problem. Coordinates are V sqrt(v) / sqrt(m): with masses those of a point
that is there m times. For H = -D^2 / 2 their distances are D (classical scaling); for a kernel
they are principal components in its feature space.

Source: Gower (1966), "Some distance properties of latent root and vector methods"; Schoelkopf,
Smola & Mueller (1998), "Nonlinear component analysis as a kernel eigenvalue problem", appendix A.
Differs: masses; H need not be positive, so that pairs have signs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamembed.numeric.arrays import Array, Floats
from streamembed.numeric.linalg import descending_eigh

__all__ = ["View", "center_rows", "deflate", "view"]

# Of the largest square of a direction of the centred factor, below which it is rounding.
NOTHING = 1e-14
# The same, below which a direction is not orthogonal to others by more than eight digits.
FAINT = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A factor of S, and the eigenpairs of what it says S is.

    Attributes
    ----------
    values : (q,)
        v, descending, signed.
    vectors : (n, c)
        V of the first c, orthonormal and orthogonal to v_0.
    root : (n, r)
        F = diag(sqrt(m)) J U, so that S ~ F diag(lambda) F^T.
    weights : (r,)
        lambda.
    """

    values: Floats
    vectors: Floats
    root: Floats
    weights: Floats


def view(vectors: Array, values: Floats, masses: Floats, count: int) -> View:
    """Eigenpairs of S as the factor has them, at most ``count`` vectors, of positive value.

    Parameters
    ----------
    vectors, values
        U and lambda, shapes (n, r) and (r,); U need not be orthonormal.
    masses
        m, shape (n,), positive.

    Returns
    -------
    O(n r^2).
    """
    root = np.sqrt(masses)
    shares = masses / masses.sum()
    centred = root[:, None] * (vectors - shares @ vectors)
    squares, turn = descending_eigh(centred.T @ centred)
    real = squares > NOTHING * max(float(squares[0]), 0.0) if len(squares) else squares > 0
    squares, turn = squares[real], turn[:, real]
    half, into = turn * np.sqrt(squares), turn / np.sqrt(squares)
    if len(squares) and squares[-1] < FAINT * squares[0]:  # known to few digits: once more
        basis = centred @ into
        again, right = descending_eigh(basis.T @ basis)
        into = into @ (right / np.sqrt(again))
        half = centred.T @ (centred @ into)
    found, mix = descending_eigh(half.T @ (values[:, None] * half))
    keep = min(count, int(np.count_nonzero(found > 0.0)))
    chosen: Floats = centred @ (into @ mix[:, :keep])
    return View(found, deflate(chosen, np.sqrt(shares)), centred, values)


def deflate(block: Floats, constant: Floats) -> Floats:
    """``block`` (n, c) without its part along v_0."""
    rest: Floats = block - np.outer(constant, constant @ block)
    return rest


def center_rows(rows: Floats, mean_row: Floats, shares: Floats) -> Floats:
    """Rows of H for new things, shape (b, n), less the mean row and their own means.

    Parameters
    ----------
    rows
        H between new things and the support.
    mean_row
        p^T H, shape (n,).
    shares
        p, shape (n,).

    Notes
    -----
    Without the second half of it a new point keeps an offset that is none of the coordinates'; with
    neither half, the mean of H is taken for structure.
    """
    rest: Floats = rows - mean_row
    rest -= (rest @ shares)[:, None]
    return rest
