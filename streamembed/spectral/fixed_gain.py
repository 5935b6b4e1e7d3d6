"""One round of a filter of fixed gain, and the Ritz pairs of the result.

Symbols: S = a sparse walk's operator (n, n), V = a block (n, m), T_d = Chebyshev polynomial.

Source: Zhou & Saad (2007), "A Chebyshev-Davidson algorithm for large symmetric eigenproblems", for
the recurrence. Differs: they damp all up to the last Ritz value of the block, which leaves the
polynomial little growth where eigenvalues crowd near 1. Here ``high`` is placed so that T_d is the
same gain at the last wanted value, whatever the block's last value is.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array

from streamembed.numeric.arrays import Array, Bools, Floats
from streamembed.numeric.linalg import descending_eigh
from streamembed.spectral.neighbor_walk import Parts

# What [low, high] is wide at least: T_d at 1 would otherwise bring up float32's rounding of what
# was deflated.
LEAST_WIDTH = 0.5
# Share of a column's length that must be its own for Cholesky; squared, below which it is rounding.
OWN, ROUNDING = 1e-4, 1e-11
# And below which Cholesky's columns are orthonormal to less than 1e-12.
CLEAR = 0.1


def amplify(
    operator: csr_array, block: Array, target: float, low: float, degree: int, gain: float
) -> Array:
    """T_degree(S) V, with S mapped so that T is ``gain`` at ``target`` and below 1 from ``low`` on.

    Parameters
    ----------
    operator
        S, shape (n, n), in the precision of the block.
    block
        V, shape (n, m), without the eigenvalue 1.
    target
        The last wanted eigenvalue.
    low
        Lower bound on all eigenvalues; those below it would be raised too.

    Returns
    -------
    Shape (n, m). O(n (K + 1) m degree).

    Notes
    -----
    [low, high] goes to [-1, 1] and ``target`` to x = cosh(arccosh(gain) / degree).
    """
    low = max(-1.0, min(low, target - LEAST_WIDTH))
    x = float(np.cosh(np.arccosh(gain) / degree))
    high = (2.0 * target + low * (x - 1.0)) / (x + 1.0)
    high = max(high, low + LEAST_WIDTH)
    kind = block.dtype.type  # a float64 scalar would promote a float32 block
    centre, step = kind(0.5 * (high + low)), kind(2.0 / (high - low))
    previous: Array = block
    current: Array = step * (operator @ block - centre * block)
    for _ in range(degree - 1):
        following: Array = operator @ current
        following -= centre * current
        following *= kind(2.0) * step
        following -= previous
        previous, current = current, following
    return current


def compute_ritz_pairs(
    operator: csr_array, parts: Parts, block: Array
) -> tuple[Floats, Floats, Floats]:
    """Ritz pairs of a block without the eigenvalue 1, and the products of their residuals.

    Parameters
    ----------
    operator
        S, shape (n, n), float64.
    parts
        Whose eigenvalue 1 is taken out.
    block
        Shape (n, m), any columns.

    Returns
    -------
    values, vectors, products
        Shapes (c,), (n, c) and (c, c): descending, orthonormal, and E^T E of
        E = S V - V diag(values), float64. c < m where columns are combinations of others, up to
        rounding. O(n m (K + m)).
    """
    basis = parts.deflate(block.astype(np.float64))
    lengths = np.sqrt(np.einsum("ij,ij->j", basis, basis))
    is_real = lengths > 0
    basis = basis[:, is_real] / lengths[is_real]
    if basis.shape[1] == 0:
        return np.zeros(0), basis, np.zeros((0, 0))
    gram = basis.T @ basis
    try:
        lower = np.linalg.cholesky(gram)
        independent: Bools = np.diag(lower) > OWN
    except np.linalg.LinAlgError:
        independent = np.zeros(1, dtype=np.bool_)
    if not independent.all():
        sizes, turn = descending_eigh(gram)
        sizes, turn = sizes[sizes > ROUNDING], turn[:, sizes > ROUNDING]
        basis = parts.deflate(basis @ (turn / np.sqrt(sizes)))
        basis, _ = np.linalg.qr(basis)  # amplified columns are no longer orthogonal to the digit
        lower = np.eye(basis.shape[1])
    image = operator @ basis
    half = solve_triangular(lower, basis.T @ image, lower=True)
    values, mix = descending_eigh(solve_triangular(lower, half.T, lower=True))
    mix = solve_triangular(lower, mix, lower=True, trans="T")
    vectors = basis @ mix
    if (np.diag(lower) < CLEAR).any():  # orthonormal to the square of what Cholesky leaves
        turn = 1.5 * np.eye(len(mix)) - 0.5 * (vectors.T @ vectors)
        vectors, mix = vectors @ turn, mix @ turn
    errors = image @ mix - vectors * values
    return values, vectors, errors.T @ errors
