"""What kept eigenpairs leave out of diffusion distances, without any further eigenpair.

The diagonal of S^(2t) is that of all pairs: S^(2t)_ii / pi_i = sum_l lambda_l^(2t) psi_l(i)^2. What
the constant and the kept pairs do not account for is left out; its mean under pi is the trace of
S^(2t) less 1 and the kept lambda^(2t).

Source: Coifman & Lafon (2006), section 2.2, who truncate at a relative accuracy of eigenvalues.
Differs: the error is measured, point by point.
"""

from __future__ import annotations

import numpy as np

from streamembed.numeric.arrays import Floats


def measure_truncation(
    weights: Floats, masses: Floats, density: Floats, kept: Floats, doubled_time: int
) -> Floats:
    """sqrt(sum over pairs left out of lambda^(2t) psi(i)^2), shape (n,).

    Parameters
    ----------
    weights
        W, shape (n, n).
    masses, density
        m and a, shape (n,).
    kept
        lambda^t psi of the kept pairs, shape (n, r). Where they are not exact, by their residual,
        sums below 0 are 0.
    doubled_time
        2t, at least 0.

    Notes
    -----
    O(n^2) up to t = 1, and O(n^3 log t) beyond. With 2t odd, eigenvalues below 0 subtract.
    """
    spread = density * (weights @ (masses * density))
    scaling = density * np.sqrt(masses / spread)
    stationary = masses * spread / (masses @ spread)
    operator = weights * np.outer(scaling, scaling)
    if doubled_time == 0:
        diagonal = np.ones(len(masses))
    elif doubled_time == 1:
        diagonal = np.diag(operator)
    else:
        half = np.linalg.matrix_power(operator, doubled_time // 2)
        other = half @ operator if doubled_time % 2 else half
        diagonal = np.einsum("ij,ij->i", half, other)
    squares = diagonal / stationary - 1.0 - np.einsum("ij,ij->i", kept, kept)
    errors: Floats = np.sqrt(np.maximum(squares, 0.0))
    return errors
