"""The truncated SVD that grows by columns and rows.

Symbols: A ~ U diag(sigma) V^T; B = the b columns or rows to append; Q, R = orthonormal
basis and coordinates of the part of B outside span(U); primed letters: the SVD of the small core.

`append_columns` and `append_rows` are exact up to the cut.

Source: docs/algorithms/zha-simon.md; Zha & Simon (1999), SIAM J. Sci. Comput. 21(2), 782-791;
Jain, section 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamembed.numeric.arrays import Floats

# Singular values, and new directions, below this share of the largest are rounding: a product of
# k terms is known to about k eps = 1e-14 at k = 100, and dropping them costs 1e-13 of the norm.
RANK_CUT = 1e-13


@dataclass(frozen=True, slots=True, eq=False)
class TruncatedSVD:
    """A ~ U diag(sigma) V^T."""

    left: Floats  # (m, k): U, orthonormal columns
    # (k,): sigma, positive, descending. k is at most the rank asked for, less where A has less.
    values: Floats
    right: Floats  # (n, k): V, orthonormal columns; signs are LAPACK's, U and V flip together

    @property
    def rank(self) -> int:
        """Number of columns; it may fall below the requested rank, and grow again."""
        return len(self.values)


def _truncate(left: Floats, values: Floats, right: Floats, rank: int) -> TruncatedSVD:
    """The first ``rank`` triplets, fewer where the rest is rounding."""
    k = min(rank, int(np.count_nonzero(values > RANK_CUT * values.max(initial=0.0))))
    return TruncatedSVD(left[:, :k].copy(), values[:k].copy(), right[:, :k].copy())


def decompose(matrix: Floats, rank: int) -> TruncatedSVD:
    """The best approximation of ``matrix`` (m, n) by ``rank`` triplets, from scratch.

    A matrix without rows, without columns or of zeros has rank 0, and can be appended to.
    O(m n min(m, n)).

    Examples
    --------
    >>> import numpy as np
    >>> decompose(np.diag([3.0, 1.0, 2.0]), rank=2).values.tolist()
    [3.0, 2.0]
    """
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    return _truncate(left, values, right.T, rank)


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
    m rows, n + b columns. O((m + n) (k + b) k + m b^2 + (k + b)^3).

    Source: Zha & Simon (1999), section 3; Jain, section 2.2, "Updating Columns".
    Differs: 1. Jain prints the right factor as [V 0; 0 I] V'^T; it is the transpose of the whole
    product. 2. "Best" is of [A, B] with the truncated A, not of the history. 3. A plain QR of
    a rank-deficient (I - U U^T) B returns columns of rounding that are not orthogonal to U;
    directions below `RANK_CUT` are dropped instead and the others orthogonalised twice.
    """
    inside = svd.left.T @ columns  # (k, b)
    rest = columns - svd.left @ inside
    basis = _complement_basis(
        svd.left, rest, np.append(svd.values[:1], np.linalg.norm(columns)).max()
    )

    k, b = svd.rank, columns.shape[1]
    core = np.zeros((k + basis.shape[1], k + b))
    core[:k, :k] = np.diag(svd.values)
    core[:k, k:] = inside
    core[k:, k:] = basis.T @ rest
    small_left, values, small_right = np.linalg.svd(core, full_matrices=False)
    small = _truncate(small_left, values, small_right.T, rank)
    left = svd.left @ small.left[:k] + basis @ small.left[k:]
    right = np.concatenate([svd.right @ small.right[:k], small.right[k:]])
    return TruncatedSVD(left, small.values, right)


def _complement_basis(left: Floats, rest: Floats, scale: float) -> Floats:
    """Orthonormal basis (m, b') of the columns of ``rest``, orthogonal to ``left``; b' <= b."""
    basis, triangle = np.linalg.qr(rest)
    turn, sizes, _ = np.linalg.svd(triangle, full_matrices=False)
    basis = basis @ turn[:, sizes > RANK_CUT * scale]
    # Of span(U), eps * |B| is left in rest: in a direction of size 1e-13 |B| that is a part in 1e3.
    basis -= left @ (left.T @ basis)
    return np.linalg.qr(basis)[0]


def append_rows(svd: TruncatedSVD, rows: Floats, rank: int) -> TruncatedSVD:
    """The best approximation of [A; B] by ``rank`` triplets, A being what ``svd`` stands for.

    It is `append_columns` of the transpose. Written out, with (I - V V^T) B^T = Q L^T::

        [ diag(sigma)  0 ]
        [     B V      L ]  =  U' diag(sigma') V'^T

        [A; B]  =  ([U 0; 0 I] U')  diag(sigma')  ([V, Q] V')^T

    ``rows`` is B, shape (b, n). O((m + n) (k + b) k + n b^2 + (k + b)^3).

    Source: Zha & Simon (1999), section 3; Jain, section 2.2, "Updating Rows".
    Differs: 1. Jain prints [U 0; 0 I] U'^T; it is U'. 2. Its step 1 calls L^T lower triangular: L
    is. 3. Its step 3 gives B the shape (m, r) of the columns; rows are (r, n). 4. The guards of
    `append_columns`.
    """
    turned = append_columns(TruncatedSVD(svd.right, svd.values, svd.left), rows.T, rank)
    return TruncatedSVD(turned.right, turned.values, turned.left)
