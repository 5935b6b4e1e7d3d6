"""New rows of a matrix without its mean.

Symbols: H = symmetric (n, n), m = masses, M = sum(m), p = m / M. Coordinates of centred methods are
eigenvectors V sqrt(v) / sqrt(m) of S = diag(sqrt(m)) J H J^T diag(sqrt(m)), J = 1 - 1 p^T
(`streamembed.spectral.operator`). For H = -D^2 / 2 their distances are D (classical scaling); for a
kernel they are principal components in its feature space.

Source: Gower (1966), "Some distance properties of latent root and vector methods"; Schoelkopf,
Smola & Mueller (1998), "Nonlinear component analysis as a kernel eigenvalue problem", appendix A.
"""

from __future__ import annotations

from streamembed.numeric.arrays import Floats


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
