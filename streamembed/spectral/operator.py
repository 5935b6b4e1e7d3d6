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
from streamembed.spectral.certificate import NEGLIGIBLE

# Eigenvalues below this are rounding, by the precision of weights; ...
RANK_CUT = {np.dtype(np.float64): 1e-13, np.dtype(np.float32): 1e-6}
# ... and of the norm of a centred matrix, those below this.
CENTRED_CUT = 1e-11


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
        constant = self.constant
        inverse = np.divide(1.0, constant, out=np.zeros_like(constant), where=constant > 0)
        return vectors * inverse[:, None]


def weigh_equally(masses: Floats) -> Normalisation:
    """Every event that has a mass weighs the same: that of centred methods."""
    return Normalisation(np.ones_like(masses), np.sqrt(masses), masses / masses.sum())


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """S, through products with W; or S without its mean, J diag(s) W diag(s) J, in a unit.

    Source of the centred one: Gower (1966), "Some distance properties of latent root and vector
    methods"; Schoelkopf, Smola & Mueller (1998), "Nonlinear component analysis as a kernel
    eigenvalue problem", appendix A. Differs: masses; W need not be positive.
    """

    product: Callable[[Array], Array]  # (n, m) -> W @ block, in ``dtype``
    normal: Normalisation
    dtype: np.dtype  # that of the weights
    rounding: float  # by how much the S that is applied may differ in norm from the exact one
    is_centred: bool = False
    unit: float = 1.0  # what is applied is in units of it
    floor: float = NEGLIGIBLE  # see `certificate.certify`

    @property
    def least_value(self) -> float:
        """Eigenvalues below it are rounding of the centring, or of the precision."""
        return CENTRED_CUT if self.is_centred else RANK_CUT[self.dtype]

    def apply(self, block: Floats) -> Floats:
        """S @ block, shape (n, m): for a block without v_0 the deflated operator's, too."""
        scale, constant = self.normal.scaling.astype(self.dtype)[:, None], self.normal.constant
        if self.is_centred:
            block = deflate(block, constant)
        image = (scale * self.product(scale * block.astype(self.dtype))).astype(np.float64)
        return deflate(image, constant) / self.unit if self.is_centred else image


def deflate(block: Floats, constant: Floats) -> Floats:
    """``block`` (n, m) without its part along v_0, so that eigenvalue 1 is the next one's own."""
    return block - np.outer(constant, constant @ block)
