"""One round of a filter of fixed gain, and the Ritz pairs of the result.

Symbols: S = a sparse walk's operator (n, n), P = diag(q^-1/2) S diag(q^1/2) = the walk, V = a block
(n, m), Psi = diag(q^-1/2) V, T_d = Chebyshev polynomial.

Source: Zhou & Saad (2007), "A Chebyshev-Davidson algorithm for large symmetric eigenproblems", for
the recurrence. Differs: they damp all up to the last Ritz value of the block, which leaves the
polynomial little growth where eigenvalues crowd near 1. Here ``high`` is placed so that T_d is the
same gain at the last wanted value, whatever the block's last value is.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from streamembed.numeric.arrays import Array, Bools, Floats
from streamembed.numeric.linalg import descending_eigh
from streamembed.spectral.neighbor_walk import Parts, Walk

# What [low, high] is wide at least: T_d at 1 would otherwise bring up float32's rounding of what
# was deflated.
LEAST_WIDTH = 0.5
# Share of a column's length that must be its own for Cholesky; squared, below which it is rounding.
OWN, ROUNDING = 1e-4, 1e-11
# And below which Cholesky's columns are orthonormal to less than 1e-12.
CLEAR = 0.1
# Share of a column that is left without the eigenvalue 1, below which it is rounding to 1e-12.
DEFLATED = 1e-4
# Squared residuals below this are computed from the residuals: as differences of squares, which are
# known to some 1e-15, they would be off by more than a hundred thousandth.
CANCELLED = 1e-10


def amplify(
    walk: Walk,
    block: Array,
    target: float,
    low: float,
    degree: int,
    gain: float,
) -> Array:
    """T_degree(P) Psi, T being ``gain`` at ``target`` and below 1 between there and ``low``.

    Parameters
    ----------
    walk
        P.
    block
        Psi, shape (n, m), without the eigenvalue 1.
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
    apply = walk.bind(block.dtype, 2.0 * step)
    previous: Array = block
    current: Array = kind(0.5) * apply(block)
    current -= (step * centre) * block
    for _ in range(degree - 1):
        following: Array = apply(current)
        following -= (kind(2.0) * step * centre) * current
        following -= previous
        previous, current = current, following
    return current


def deflate_ritz_pairs(walk: Walk, parts: Parts, block: Floats) -> tuple[Floats, Floats, Floats]:
    """Ritz pairs of a block without the eigenvalue 1, and the products of their residuals.

    Parameters
    ----------
    walk, parts
        S, and the parts whose eigenvalue 1 is taken out.
    block
        V, shape (n, m), any columns.

    Returns
    -------
    values, vectors, products
        Shapes (c,), (n, c) and (c, c): descending, orthonormal, and E^T E of
        E = S V - V diag(values), float64. c < m where columns are combinations of others, up to
        rounding. O(n m (K + m)).
    """
    basis, before = parts.deflate(block), _measure_columns(block)
    lengths = _measure_columns(basis)
    if (lengths < DEFLATED * before).any():
        # what is left of such a column has a part in it again; or is nothing but that
        basis, before = parts.deflate(basis), lengths
        lengths = _measure_columns(basis)
    if not (is_real := lengths > DEFLATED * before).all():
        basis, lengths = basis[:, is_real], lengths[is_real]
    basis /= lengths
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
    image = walk.apply(basis)
    half = solve_triangular(lower, basis.T @ image, lower=True)
    values, mix = descending_eigh(solve_triangular(lower, half.T, lower=True))
    mix = solve_triangular(lower, mix, lower=True, trans="T")
    vectors = basis @ mix
    if (np.diag(lower) < CLEAR).any():  # orthonormal to the square of what Cholesky leaves
        turn = 1.5 * np.eye(len(mix)) - 0.5 * (vectors.T @ vectors)
        vectors, mix = vectors @ turn, mix @ turn
    products = mix.T @ (image.T @ image) @ mix - np.diag(values**2)
    if (products.diagonal() < CANCELLED).any():
        errors = image @ mix - vectors * values
        products = errors.T @ errors
    return values, vectors, products


def _measure_columns(block: Floats) -> Floats:
    """The length of every column."""
    lengths: Floats = np.sqrt(np.einsum("ij,ij->j", block, block))
    return lengths
