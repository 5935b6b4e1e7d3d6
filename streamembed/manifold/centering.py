"""The view of a factor of a symmetric matrix, centred in rows and columns.

Symbols: H = symmetric (n, n), m = masses, M = sum(m), p = m / M, J = 1 - 1 p^T, v_0 = sqrt(p),
S = diag(sqrt(m)) J H J^T diag(sqrt(m)) = (1 - v_0 v_0^T) diag(sqrt(m)) H diag(sqrt(m))
(1 - v_0 v_0^T), H ~ U diag(lambda) U^T the tracked factor, v, V = eigenpairs of S.

H itself is tracked: a new point changes one row of it, and every entry of S. The view is centred,
by an r x r problem. Coordinates are V sqrt(v) / sqrt(m): a mass of m counts as m copies of a point.
For H = -D^2 / 2 their distances are D (classical scaling); for a kernel they are principal
components in its feature space.

Source: Gower (1966), "Some distance properties of latent root and vector methods"; Schoelkopf,
Smola & Mueller (1998), "Nonlinear component analysis as a kernel eigenvalue problem", appendix A.
Differs: masses; H need not be positive, so that pairs have signs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamembed.numeric.arrays import Array, Floats
from streamembed.numeric.linalg import descending_eigh
from streamembed.spectral.operator import deflate

# Of the largest square of a direction of the centred factor, below which it is rounding.
NO_DIRECTION = 1e-14
# The same, below which a direction is orthogonal to others to eight digits only.
NEARLY_DEPENDENT = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class CenteredView:
    """A factor of S, and the eigenpairs of S by this factor."""

    values: Floats  # (q,): v, descending, signed
    vectors: Floats  # (n, c): V of the first c, orthonormal and orthogonal to v_0
    root: Floats  # (n, r): F = diag(sqrt(m)) J U, so that S ~ F diag(lambda) F^T
    weights: Floats  # (r,): lambda


def view(vectors: Array, values: Floats, masses: Floats, count: int) -> CenteredView:
    """Eigenpairs of S by the factor, at most ``count`` vectors, of positive value.

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
    is_nonzero = (
        squares > NO_DIRECTION * max(float(squares[0]), 0.0) if len(squares) else squares > 0
    )
    squares, turn = squares[is_nonzero], turn[:, is_nonzero]
    half, whitener = turn * np.sqrt(squares), turn / np.sqrt(squares)
    if len(squares) and squares[-1] < NEARLY_DEPENDENT * squares[0]:  # known to few digits: repeat
        basis = centred @ whitener
        again, right = descending_eigh(basis.T @ basis)
        whitener = whitener @ (right / np.sqrt(again))
        half = centred.T @ (centred @ whitener)
    eigenvalues, mix = descending_eigh(half.T @ (values[:, None] * half))
    n_vectors = min(count, int(np.count_nonzero(eigenvalues > 0.0)))
    leading: Floats = centred @ (whitener @ mix[:, :n_vectors])
    return CenteredView(eigenvalues, deflate(leading, np.sqrt(shares)), centred, values)


def center_rows(rows: Floats, mean_row: Floats, shares: Floats) -> Floats:
    """Rows of H for new objects, shape (b, n), minus the mean row and their own means.

    Parameters
    ----------
    rows
        H between new objects and the support.
    mean_row
        p^T H, shape (n,).
    shares
        p, shape (n,).

    Notes
    -----
    Without the second subtraction a new point keeps an offset that the coordinates do not have;
    without both, the mean of H counts as structure.
    """
    centred: Floats = rows - mean_row
    centred -= (centred @ shares)[:, None]
    return centred
