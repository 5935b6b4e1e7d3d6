"""Two symmetric matrices at once: whitened by one, diagonal for the other, in fair units.

Symbols: D = the matrix that is whitened, (d, d), positive semidefinite; s = sqrt(diag D);
B = the basis, (d, r), with B^T D B = I.

Features in different units make D look singular when it is not: of 30 true directions of the
wdbc data (condition 1e12 as they come, 2e5 after scaling) a relative cut drops nine. So D is
divided by s s^T first, and its rank is judged there.

Source: docs/algorithms/fenn.md, "Scaling".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamembed.numeric.arrays import Floats
from streamembed.numeric.linalg import descending_eigh

# Eigenvalues of the scaled matrix below this share of the largest are no directions: entries of a
# covariance are known to about 1e-15, or 1e-11 where it was summed far from the origin.
RANK_CUT = 1e-10

# Whitening multiplies the rounding of the entries by up to 1 / RANK_CUT: a share of D nearer to
# 0 than this cannot be distinguished from 0.
SHARE_FLOOR = float(np.finfo(np.float64).eps) / RANK_CUT

# Loadings this near to the largest count as equal to it when a sign is chosen.
SIGN_TIE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Whitening:
    """A basis in which a symmetric positive semidefinite matrix D is the identity."""

    basis: Floats  # (d, r): B, with B^T D B = I; r is the rank of D
    scale: Floats  # (d,): s, square roots of the diagonal of D; 0 where a feature is constant

    @property
    def rank(self) -> int:
        """Number of directions."""
        return int(self.basis.shape[1])

    @property
    def n_constant(self) -> int:
        """Features without any spread."""
        return int(np.count_nonzero(self.scale == 0))


def whiten(matrix: Floats) -> Whitening:
    """A basis B with B^T D B = I on the range of D, its rank judged on D / (s s^T).

    Parameters
    ----------
    matrix
        D, shape (d, d), symmetric positive semidefinite up to rounding. Rows of zeros (constant
        features) and rank deficiency (more features than points) are fine; D = 0 has rank 0.

    Returns
    -------
    The basis in descending order of the eigenvalues of the scaled matrix, zero in constant
    features. O(d^3).

    Examples
    --------
    >>> import numpy as np
    >>> whitening = whiten(np.diag([4.0, 0.0, 1e-12]))
    >>> whitening.rank, whitening.n_constant
    (2, 1)
    """
    scale = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    values, vectors = descending_eigh(inverse[:, None] * matrix * inverse)
    keep = values > RANK_CUT * values.max(initial=0.0)
    return Whitening(inverse[:, None] * vectors[:, keep] / np.sqrt(values[keep]), scale)


def generalised_eigh(numerator: Floats, denominator: Floats) -> tuple[Floats, Floats, Whitening]:
    """Eigenpairs of N u = v D u on the range of D, ascending, with u^T D u = 1.

    Parameters
    ----------
    numerator, denominator
        N and D, shapes (d, d), symmetric; D positive semidefinite.

    Returns
    -------
    values, vectors, whitening
        Shapes (r,) ascending and (d, r), with vectors^T D vectors = I; signs by `fix_signs`; and
        the whitening of D. O(d^3).
    """
    whitening = whiten(denominator)
    basis = whitening.basis
    values, turn = descending_eigh(basis.T @ numerator @ basis)
    return values[::-1], fix_signs(basis @ turn[:, ::-1], whitening.scale), whitening


def fix_signs(vectors: Floats, scale: Floats) -> Floats:
    """The columns, each turned so that its largest loading is positive.

    Loadings are compared in units of ``scale`` (d,), so that the choice does not depend on the
    units of the features; of loadings that tie (within 1e-6) the first feature decides.

    Examples
    --------
    >>> import numpy as np
    >>> fix_signs(np.array([[1.0], [-3.0]]), np.ones(2)).ravel().tolist()
    [-1.0, 3.0]
    """
    loadings = np.abs(vectors) * scale[:, None]
    ties = loadings >= (1.0 - SIGN_TIE) * loadings.max(axis=0, initial=0.0)
    deciding = np.take_along_axis(vectors, np.argmax(ties, axis=0)[None], axis=0)
    return vectors * np.where(deciding < 0, -1.0, 1.0)


def scaled_identity(spread: Floats) -> Floats:
    """diag(1 / spread_jj) / m over the m features that vary: Euclidean distance, standardised.

    The default of a metric where nothing can be learned; <spread, A> = 1. Where no feature
    varies it is I / d.

    Examples
    --------
    >>> import numpy as np
    >>> np.diag(scaled_identity(np.diag([4.0, 0.0, 1.0]))).tolist()
    [0.125, 0.0, 0.5]
    """
    variances = np.maximum(np.diag(spread), 0.0)
    varies = variances > np.finfo(np.float64).tiny
    if not varies.any():
        return np.eye(len(variances)) / max(len(variances), 1)
    inverse = np.divide(1.0, variances, out=np.zeros_like(variances), where=varies)
    return np.diag(inverse / np.count_nonzero(varies))
