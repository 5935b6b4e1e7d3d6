"""The truncated SVD of a matrix whose columns and rows arrive, age and leave.

Symbols: A ~ U diag(sigma) V^T; B = the b columns or rows to append; Q, R = orthonormal
basis and coordinates of one side; primed letters: the SVD of the small core.

`append_columns`, `append_rows`, `remove_columns`, `remove_rows` and `decay` are exact up to the
cut. All but the last write the new matrix as left core right^T with few columns on either side,
and `decompose_product` makes an SVD of that.

Source: docs/algorithms/zha-simon.md; Zha & Simon (1999), SIAM J. Sci. Comput. 21(2), 782-791;
Jain, section 2.2; Brand (2006), Linear Algebra and its Applications 415, 20-30 (removal).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from scipy.linalg import block_diag

from streamembed.numeric.arrays import Floats, Ints

# Singular values below this share of the largest are rounding: a product of k terms is known to
# about k eps = 1e-14 at k = 100, and dropping them costs 1e-13 of the norm.
RANK_CUT = 1e-13


@dataclass(frozen=True, slots=True, eq=False)
class TruncatedSVD:
    """A ~ U diag(sigma) V^T."""

    left: Annotated[Floats, "m k"]  # U, orthonormal columns
    # sigma, positive, descending. k is at most the rank asked for, less where A has less.
    values: Annotated[Floats, "k"]
    # V, orthonormal columns; signs are LAPACK's, U and V flip together.
    right: Annotated[Floats, "n k"]
    # A bound on the norm of each row of A - U diag(sigma) V^T: what the cuts have dropped of it.
    # By its norm, A's singular values differ at most.
    dropped: Annotated[Floats, "m"]

    @property
    def rank(self) -> int:
        """Number of columns; it may fall below the requested rank, and grow again."""
        return len(self.values)


def decompose(matrix: Floats, rank: int) -> TruncatedSVD:
    """The best approximation of ``matrix`` (m, n) by ``rank`` triplets, from scratch.

    A matrix without rows, without columns or of zeros has rank 0, and can be appended to.
    O(m n min(m, n)).

    Examples
    --------
    >>> import numpy as np
    >>> svd = decompose(np.diag([3.0, 1.0, 2.0]), rank=2)
    >>> svd.values.tolist(), svd.dropped.tolist()
    ([3.0, 2.0], [0.0, 1.0, 0.0])
    """
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    return _truncate(left, values, right.T, rank)


def decompose_product(left: Floats, core: Floats, right: Floats, rank: int) -> TruncatedSVD:
    """The best approximation of left core right^T by ``rank`` triplets.

    Parameters
    ----------
    left, core, right
        Shapes (m, p), (p, q) and (n, q). Columns of ``left`` and ``right`` may depend on each
        other, be zero, or differ in size by any factor.

    Notes
    -----
    With left = Q_l R_l and right = Q_r R_r, the SVD of R_l core R_r^T, turned by Q_l and Q_r. The
    factors of a Householder QR are orthonormal whatever the columns are, so that what ``left`` and
    ``right`` have lost of orthogonality does not add up. O(m p^2 + n q^2 + (p + q)^3).
    """
    left_basis, left_core = np.linalg.qr(left)
    right_basis, right_core = np.linalg.qr(right)
    turn_left, values, turn_right = np.linalg.svd(
        left_core @ core @ right_core.T, full_matrices=False
    )
    return _truncate(left_basis @ turn_left, values, right_basis @ turn_right.T, rank)


def _truncate(left: Floats, values: Floats, right: Floats, rank: int) -> TruncatedSVD:
    """The first ``rank`` triplets, fewer where the rest is rounding."""
    largest = values.max(initial=0.0)
    k = min(rank, int(np.count_nonzero(values > RANK_CUT * largest)))
    # shares, as squares of the values could overflow
    rest = left[:, k:] * (values[k:] / (largest or 1.0))
    return TruncatedSVD(
        left[:, :k].copy(),
        values[:k].copy(),
        right[:, :k].copy(),
        largest * np.sqrt(np.einsum("ij,ij->i", rest, rest)),
    )


def append_columns(svd: TruncatedSVD, columns: Floats, rank: int) -> TruncatedSVD:
    """The best approximation of [A, B] by ``rank`` triplets, A being what ``svd`` stands for.

    With (I - U U^T) B = Q R::

        [ diag(sigma)  U^T B ]
        [      0         R   ]  =  U' diag(sigma') V'^T

        [A, B]  =  ([U, Q] U')  diag(sigma')  ([V 0; 0 I] V')^T

    Parameters
    ----------
    columns
        B, shape (m, b); any b, also columns that depend on each other or lie in span(U).
    rank
        The most triplets to keep; where ``svd`` has fewer, the rank grows.

    Returns
    -------
    m rows, n + b columns. O((m + n) (k + b)^2 + (k + b)^3).

    Source: Zha & Simon (1999), section 3; Jain, section 2.2, "Updating Columns".
    Differs: 1. Jain prints the right factor as [V 0; 0 I] V'^T; it is the transpose of the whole
    product. 2. "Best" is of [A, B] with the truncated A, not of the history. 3. A plain QR of
    a rank-deficient (I - U U^T) B returns columns of rounding that are not orthogonal to U: the
    QR is that of [U, B], whose first columns are U again.
    """
    left = np.concatenate([svd.left, columns], axis=1)
    eye = np.eye(columns.shape[1])
    core = block_diag(np.diag(svd.values), eye)
    after = decompose_product(left, core, block_diag(svd.right, eye), rank)
    return replace(after, dropped=svd.dropped + after.dropped)


def append_rows(svd: TruncatedSVD, rows: Floats, rank: int) -> TruncatedSVD:
    """The best approximation of [A; B] by ``rank`` triplets, A being what ``svd`` stands for.

    It is `append_columns` of the transpose. Written out, with (I - V V^T) B^T = Q L^T::

        [ diag(sigma)  0 ]
        [     B V      L ]  =  U' diag(sigma') V'^T

        [A; B]  =  ([U 0; 0 I] U')  diag(sigma')  ([V, Q] V')^T

    ``rows`` is B, shape (b, n). O((m + n) (k + b)^2 + (k + b)^3).

    Source: Zha & Simon (1999), section 3; Jain, section 2.2, "Updating Rows".
    Differs: 1. Jain prints [U 0; 0 I] U'^T; it is U'. 2. Its step 1 calls L^T lower triangular: L
    is. 3. Its step 3 gives B the shape (m, r) of the columns; rows are (r, n). 4. The QR of
    `append_columns`.
    """
    right = np.concatenate([svd.right, rows.T], axis=1)
    eye = np.eye(len(rows))
    core = block_diag(np.diag(svd.values), eye)
    after = decompose_product(block_diag(svd.left, eye), core, right, rank)
    return replace(after, dropped=np.pad(svd.dropped, (0, len(rows))) + after.dropped)


def remove_rows(svd: TruncatedSVD, rows: Ints) -> TruncatedSVD:
    """The SVD of A without some rows, A being what ``svd`` stands for.

    With U_0 the rows of U that stay, U_0 = Q R and R diag(sigma) = U' diag(sigma') V'^T::

        A_0  =  (Q U')  diag(sigma')  (V V')^T

    Parameters
    ----------
    rows
        Indices from 0, of any number; those that stay keep their order.

    Returns
    -------
    At most k triplets: directions that only the removed rows had are dropped. What the cuts have
    dropped of a row leaves with it, and so does the rounding of what was large in it.
    O((m + n) k^2).

    Source: Brand (2006), downdating. Differs: 1. Any rows at once. 2. Brand
    subtracts: a direction of length 1 - |U_i|^2 remains of a row, half of whose digits are lost
    where that row has a direction to itself. Here the rest of U is orthogonalised instead, for
    the same cost up to a factor.

    Examples
    --------
    >>> import numpy as np
    >>> svd = decompose(np.array([[3.0, 0.0], [0.0, 2.0], [4.0, 0.0]]), rank=2)
    >>> remove_rows(svd, np.array([1])).values.tolist()
    [5.0]
    """
    left = np.delete(svd.left, rows, axis=0)
    after = decompose_product(left, np.diag(svd.values), svd.right, svd.rank)
    return replace(after, dropped=np.delete(svd.dropped, rows) + after.dropped)


def remove_columns(svd: TruncatedSVD, columns: Ints) -> TruncatedSVD:
    """The SVD of A without some columns: `remove_rows` of the transpose. O((m + n) k^2)."""
    right = np.delete(svd.right, columns, axis=0)
    after = decompose_product(svd.left, np.diag(svd.values), right, svd.rank)
    return replace(after, dropped=svd.dropped + after.dropped)


def decay(svd: TruncatedSVD, factor: float) -> TruncatedSVD:
    """The SVD of ``factor`` A, ``factor`` > 0: what comes next weighs more. O(m + k)."""
    return replace(svd, values=factor * svd.values, dropped=factor * svd.dropped)
