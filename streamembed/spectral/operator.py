"""The operator that a normalisation makes of a symmetric matrix, and its leading pairs.

Symbols: W = kernel matrix, m = masses, q = W m = degrees, a = q^(-alpha),
delta = a (W (m a)), s = sqrt(m) a / sqrt(delta), S = diag(s) W diag(s) with spectrum in [0, 1],
pi = m delta / sum(m delta) = stationary measure, v_0 = sqrt(pi) with S v_0 = v_0,
psi = v / sqrt(pi).

Source: Jain, section 2.1; Coifman & Lafon (2006). Differs: eigenpairs are those of the symmetric
conjugate S, whence right eigenvectors psi of P with sum(pi psi^2) = 1; an SVD of the Markov matrix
itself (Jain, 2.3) gives singular vectors, which are not the psi of eq. (8).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from streamembed.numeric.arrays import Array, Floats
from streamembed.numeric.linalg import descending_eigh, mix_columns
from streamembed.spectral.tracker import Factor

# Of S, positive semidefinite or not: it is similar to the Markov matrix P.
LARGEST_EIGENVALUE = 1.0
# Eigenvalues of the r x r problem below this are rounding, by the precision of the factor.
RANK_CUT = {np.dtype(np.float64): 1e-13, np.dtype(np.float32): 1e-6}
# Directions below this share of the first are lost in the rounding of a product with W.
ROUNDING_FLOOR = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}
# Squared length of a pair's vector may be off by this: a float32 factor is orthonormal to 1e-4.
UNEVEN = 1e-2
# Vectors of eigenvalues below this are off by more than 1e-6 in length and angles to one another.
FAINT = 1e-10


@dataclass(frozen=True, slots=True, eq=False)
class Normalisation:
    """Everything that turns W into S and v into psi."""

    density: Floats  # (n,): a = q^(-alpha)
    scaling: Floats  # (n,): s: S = diag(s) W diag(s)
    stationary: Floats  # (n,): pi, positive, sum 1

    @property
    def constant(self) -> Floats:
        """v_0 = sqrt(pi), the unit eigenvector of eigenvalue 1 that every S has."""
        return np.sqrt(self.stationary)

    def eigenfunctions(self, vectors: Floats) -> Floats:
        """psi = v / sqrt(pi), shape (n, c); 0 where a point has no share in the walk."""
        constant = self.constant[:, None]
        return np.divide(vectors, constant, out=np.zeros_like(vectors), where=constant > 0)


def compute_density_weights(degrees: Floats, alpha: float) -> Floats:
    """a = q^(-alpha): alpha 1 takes the sampling density out of the map, 0 leaves it in."""
    return degrees**-alpha


def normalise(density: Floats, masses: Floats, spread: Floats) -> Normalisation:
    """The normalisation that belongs to ``spread`` = W (m a).

    Parameters
    ----------
    density, masses
        a and m, shape (n,), positive.
    spread
        W (m a), shape (n,), exact or estimated: it is at least m a, because W has a unit
        diagonal, and is raised to that where an estimate falls below.
    """
    delta = density * np.maximum(spread, masses * density)
    weight = masses * delta
    return Normalisation(density, np.sqrt(masses) * density / np.sqrt(delta), weight / weight.sum())


def estimate_product(factor: Factor, x: Floats) -> Floats:
    """W x as the factor T = diag(f) W diag(f) ~ U diag(lambda) U^T gives it. O(n r)."""
    vectors = factor.vectors
    inside = (x / factor.scaling).astype(vectors.dtype) @ vectors
    estimate: Floats = (vectors @ (factor.values * inside).astype(vectors.dtype)) / factor.scaling
    return estimate


def compute_root(factor: Factor, normal: Normalisation) -> Array:
    """F with S ~ F F^T: the factor under another normalisation than its own, shape (n, r)."""
    vectors = factor.vectors
    root: Array = vectors * (normal.scaling / factor.scaling).astype(vectors.dtype)[:, None]
    root *= np.sqrt(factor.values).astype(vectors.dtype)
    return root


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """S, through products with W."""

    product: Callable[[Array], Array]  # (n, m) -> W @ block, in ``dtype``
    normal: Normalisation
    dtype: np.dtype  # that of the weights
    rounding: float  # by how much the S that is applied may differ in norm from the exact one

    def apply(self, block: Floats) -> Floats:
        """S @ block, shape (n, m): for a block without v_0 the deflated operator's, too."""
        scale = self.normal.scaling.astype(self.dtype)[:, None]
        image = scale * self.product(scale * block.astype(self.dtype))
        return image.astype(np.float64)


def deflate(block: Floats, constant: Floats) -> Floats:
    """``block`` (n, m) without its part along v_0, so that eigenvalue 1 is the next one's own."""
    return block - np.outer(constant, constant @ block)


def leading_pairs(
    factor: Array, normal: Normalisation, count: int, margin: float = 0.0
) -> tuple[Floats, Floats]:
    """The leading pairs of F F^T with the constant vector deflated.

    Parameters
    ----------
    factor
        F, shape (n, r), from `compute_root`.
    count
        How many pairs at most; fewer come back where the rank does not suffice.
    margin
        More than ``count`` vectors where the next values are less than this below the last but one.

    Returns
    -------
    values, vectors
        Descending, shapes (c,) and (n, c); orthonormal, and orthogonal to v_0. With a ``margin``
        there are as many values as F has, at most (n, c) vectors for the first of them. O(n r^2).
    """
    constant = normal.constant
    overlap = (constant.astype(factor.dtype) @ factor).astype(np.float64)
    values, mix = descending_eigh(factor.T @ factor - np.outer(overlap, overlap))
    values = values[: int(np.count_nonzero(values > RANK_CUT[factor.dtype]))]
    n_kept = min(count, len(values))
    if margin and n_kept == count:
        is_close = values > values[max(count - 2, 0)] - margin
        n_kept = max(count, int(np.count_nonzero(is_close)))
    mixed = mix[:, :n_kept] / np.sqrt(values[:n_kept])
    vectors = deflate(mix_columns(factor, mixed).astype(np.float64), constant)
    # a pair that is rounding after all is left shorter or longer than 1; so may be those after it
    lengths = np.einsum("ij,ij->j", vectors, vectors)
    n_real = int(np.argmax(np.append(np.abs(lengths - 1.0) > UNEVEN, True)))
    if n_real < n_kept or not margin:
        values = values[:n_real]
    vectors = vectors[:, :n_real]
    if factor.dtype == np.float64 and n_real and values[n_real - 1] < FAINT:
        vectors, triangle = np.linalg.qr(vectors)
        vectors *= np.where(np.diag(triangle) < 0, -1.0, 1.0)
    return values, vectors
