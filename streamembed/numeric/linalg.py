"""Small dense linear algebra: squared distances, eigenpairs, bases.

Eigenpairs are `numpy.linalg.eigh` of a small symmetric matrix: the whole spectrum at once is 3-4
times faster than asking for a subset at these sizes.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from streamembed.numeric.arrays import Array, Floats


def mix_columns(block: Array, mix: Floats) -> Array:
    """``block @ mix`` in the block's own precision: a float64 mix would promote a float32 block."""
    result: Array = block @ mix.astype(block.dtype, copy=False)
    return result


def symmetrise(matrix: Floats) -> Floats:
    """Return (A + A^T) / 2, the nearest symmetric matrix."""
    return 0.5 * (matrix + matrix.T)


def eigh(matrix: Floats) -> tuple[Floats, Floats]:
    """Ascending eigenvalues and their unit eigenvectors, by the lower triangle.

    `numpy.linalg.eigh` divides and conquers, which is fast and fails now and then where most
    eigenvalues are a few (1 and -1, in a graph of pairs). QR does not; of entries above 1e150 it
    needs them in a unit of their own.
    """
    try:
        values, vectors = np.linalg.eigh(matrix)
    except np.linalg.LinAlgError:
        if not np.isfinite(matrix).all():
            raise
        unit = max(1.0, float(np.abs(matrix).max()))
        values, vectors = scipy.linalg.eigh(matrix / unit, lower=True, driver="ev")
        values *= unit
    return values, vectors


def largest_pairs(matrix: Floats, count: int) -> tuple[Floats, Floats]:
    """The ``count`` largest eigenvalues, ascending, and their unit eigenvectors.

    A subset is what LAPACK has fast; it gives up ("Internal Error") where many eigenvalues are
    equal, as those of points that are far from all others.
    """
    n = len(matrix)
    try:
        values, vectors = scipy.linalg.eigh(
            matrix, subset_by_index=(max(0, n - count), n - 1), check_finite=False
        )
    except np.linalg.LinAlgError:
        values, vectors = eigh(matrix)
        values, vectors = values[n - count :], vectors[:, n - count :]
    return values, vectors


def descending_eigh(matrix: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues in descending order and their unit eigenvectors, of a symmetric matrix.

    Parameters
    ----------
    matrix
        Shape (m, m); only its symmetric part is used.

    Returns
    -------
    values, vectors
        Shapes (m,) and (m, m); ``vectors[:, j]`` belongs to ``values[j]``; signs are LAPACK's.

    Examples
    --------
    >>> import numpy as np
    >>> descending_eigh(np.diag([1.0, 3.0, 2.0]))[0].tolist()
    [3.0, 2.0, 1.0]
    """
    values, vectors = eigh(symmetrise(np.asarray(matrix, dtype=np.float64)))
    return values[::-1], vectors[:, ::-1]


def orthonormal_basis(block: Array) -> Array:
    """An orthonormal basis of the span of ``block``, each column as near to its own as can be.

    Columns that are combinations of the others, up to rounding, are dropped. Where none is, the
    basis is block Z w^(-1/2) Z^T: the plain Z w^(-1/2) would rotate columns that already are
    eigenvectors among each other.

    Parameters
    ----------
    block
        Shape (n, m).

    Returns
    -------
    Shape (n, m') with m' <= m, in the precision of ``block``. O(n m^2).
    """
    scales = np.sqrt(np.einsum("ij,ij->j", block, block))
    block = block[:, scales > 0] / scales[scales > 0]
    if block.shape[1] == 0:
        return block
    values, vectors = descending_eigh(block.T @ block)
    # A squared singular value is known to eps of the largest; a few times that is nothing.
    keep = values > 1e4 * np.finfo(block.dtype).eps * values[0]
    mix = vectors[:, keep] / np.sqrt(values[keep])
    basis = mix_columns(block, mix @ vectors.T if keep.all() else mix)
    # Once more: the Gram matrix has directions of relative size w only to eps / w.
    values, vectors = descending_eigh(basis.T @ basis)
    return mix_columns(basis, (vectors / np.sqrt(values)) @ vectors.T)


def squared_distances(left: Floats, right: Floats, loss: float = 1e-6) -> Floats:
    """Squared Euclidean distances between the rows of two arrays.

    Parameters
    ----------
    left, right
        Shapes (a, d) and (b, d), finite, best centred near the origin.
    loss
        Largest absolute error of the result; 0 for the rounding of the differences alone.

    Returns
    -------
    Shape (a, b), non-negative. One matrix product; where the norms are so large beside the
    distances that the expanded form would lose more than ``loss``, differences are taken one by
    one instead.

    Examples
    --------
    >>> import numpy as np
    >>> squared_distances(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]])).tolist()
    [[25.0]]
    """
    left2 = np.einsum("ij,ij->i", left, left)
    right2 = np.einsum("ij,ij->i", right, right)
    largest = max(left2.max(initial=0.0), right2.max(initial=0.0))
    if largest * np.finfo(np.float64).eps > loss:
        exact: Floats = scipy.spatial.distance.cdist(left, right, "sqeuclidean")
        return exact
    d2 = left @ right.T
    d2 *= -2.0
    d2 += left2[:, None]
    d2 += right2
    return np.maximum(d2, 0.0, out=d2)
