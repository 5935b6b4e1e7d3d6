"""The truncated SVD that grows by columns and rows, and the diffusion map built on it literally.

Symbols: A ~ U diag(sigma) V^T; B = what is appended, b columns or rows of it; Q, R = orthonormal
basis and coordinates of the part of B outside span(U); primed letters: the SVD of the small core.

`append_columns` and `append_rows` are exact up to the cut. The `literal_*` functions are the
source's incremental diffusion map as printed: a baseline to measure against, not to use.

Source: docs/algorithms/zha-simon.md; Zha & Simon (1999), SIAM J. Sci. Comput. 21(2), 782-791;
Jain, sections 2.2 and 2.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamembed.core.arrays import Floats
from streamembed.core.kernel import gaussian

__all__ = [
    "LiteralMap",
    "TruncatedSVD",
    "append_columns",
    "append_rows",
    "decompose",
    "literal_coordinates",
    "literal_init",
    "literal_span",
    "literal_update",
]

# Singular values, and new directions, below this share of the largest are rounding: a product of
# k terms is known to about k eps = 1e-14 at k = 100, and what is dropped costs 1e-13 of the norm.
RANK_CUT = 1e-13


@dataclass(frozen=True, slots=True, eq=False)
class TruncatedSVD:
    """A ~ U diag(sigma) V^T.

    Attributes
    ----------
    left : (m, k)
        U, orthonormal columns.
    values : (k,)
        sigma, positive, descending. k is at most the rank asked for, less where A has less.
    right : (n, k)
        V, orthonormal columns; signs are LAPACK's, U and V flip together.
    """

    left: Floats
    values: Floats
    right: Floats

    @property
    def rank(self) -> int:
        """Columns kept; it may fall below what was asked for, and grow again."""
        return len(self.values)


def _cut(left: Floats, values: Floats, right: Floats, rank: int) -> TruncatedSVD:
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
    return _cut(left, values, right.T, rank)


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
    product. 2. "Best" is of [A, B] with the A that was kept, not of the history. 3. A plain QR of
    a rank-deficient (I - U U^T) B returns columns of rounding that are not orthogonal to U;
    directions below `RANK_CUT` are dropped instead and the others orthogonalised twice.
    """
    inside = svd.left.T @ columns  # (k, b)
    rest = columns - svd.left @ inside
    basis = _outside_basis(svd.left, rest, np.append(svd.values[:1], np.linalg.norm(columns)).max())

    k, b = svd.rank, columns.shape[1]
    core = np.zeros((k + basis.shape[1], k + b))
    core[:k, :k] = np.diag(svd.values)
    core[:k, k:] = inside
    core[k:, k:] = basis.T @ rest
    small_left, values, small_right = np.linalg.svd(core, full_matrices=False)
    small = _cut(small_left, values, small_right.T, rank)
    left = svd.left @ small.left[:k] + basis @ small.left[k:]
    right = np.concatenate([svd.right @ small.right[:k], small.right[k:]])
    return TruncatedSVD(left, small.values, right)


def _outside_basis(left: Floats, rest: Floats, scale: float) -> Floats:
    """Orthonormal basis (m, b') of the columns of ``rest``, orthogonal to ``left``; b' <= b."""
    basis, triangle = np.linalg.qr(rest)
    turn, sizes, _ = np.linalg.svd(triangle, full_matrices=False)
    basis = basis @ turn[:, sizes > RANK_CUT * scale]
    # Of span(U), eps * |B| is left in rest: in a direction of size 1e-13 |B| that is a part in 1e3.
    basis -= left @ (left.T @ basis)
    clean: Floats = np.linalg.qr(basis)[0]
    return clean


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


@dataclass(frozen=True, slots=True, eq=False)
class LiteralMap:
    """The state of the source's incremental diffusion map over N points.

    Attributes
    ----------
    svd : TruncatedSVD
        Of the stale Markov matrix M, (N, N).
    degrees : (N,)
        D, row sums of W over all N points: exact.
    sums : (N,)
        D^(alpha), row sums of L^(alpha): the entries between old points are those of their time.
    bandwidth, alpha : float
        sigma of exp(-d^2 / sigma^2), and the power of the density that is divided out.
    """

    svd: TruncatedSVD
    degrees: Floats
    sums: Floats
    bandwidth: float
    alpha: float


def literal_init(distances: Floats, bandwidth: float, alpha: float, rank: int) -> LiteralMap:
    """The state after the first N points, in batch: here nothing is stale yet.

    ``distances`` are unsquared, shape (N, N); ``rank`` triplets of M are kept. O(N^3).

    Source: Jain, eq. (4), (6), (7).
    """
    weights = gaussian(distances**2, bandwidth)
    degrees = weights.sum(axis=1)
    laplacian = weights / np.outer(degrees, degrees) ** alpha
    sums = laplacian.sum(axis=1)
    return LiteralMap(decompose(laplacian / sums[:, None], rank), degrees, sums, bandwidth, alpha)


def literal_update(state: LiteralMap, rows: Floats, rank: int) -> LiteralMap:
    """The state after p more points, by the letter of the source; its errors are kept.

    Parameters
    ----------
    rows
        Unsquared distances of the new points to all, themselves last: shape (p, N + p), the
        transpose of the box's T. O(N (p + k) k + N p^2 + (k + p)^3).

    Notes
    -----
    Literal, and wrong: a new point changes the degree of every old point, hence *every* entry of
    L^(alpha) and of M. The box computes the new rows R and columns C only ("by storing the
    previous values of row sum"), with the sums of now, so that old entries of M keep the sums of
    their own time, a row of M no longer sums to 1 and M has no diffusion. Also literal, and wrong:
    M is not symmetric, so its left singular vectors are not the right eigenvectors of eq. (8).

    Source: Jain, section 2.3, steps 1-6. Differs: D and W are not stored, for no later step
    reads them; the SVD update is the corrected one above.
    """
    old = len(state.degrees)
    weights = gaussian(rows**2, state.bandwidth)
    degrees = np.append(state.degrees + weights[:, :old].sum(axis=0), weights.sum(axis=1))
    laplacian = weights / np.outer(degrees[old:], degrees) ** state.alpha
    sums = np.append(state.sums + laplacian[:, :old].sum(axis=0), laplacian.sum(axis=1))
    wider = append_columns(state.svd, (laplacian[:, :old] / sums[:old]).T, rank)
    svd = append_rows(wider, laplacian / sums[old:, None], rank)
    return LiteralMap(svd, degrees, sums, state.bandwidth, state.alpha)


def literal_coordinates(state: LiteralMap, n_components: int, diffusion_time: float) -> Floats:
    """sigma_l^t u_l for l = 1 .. n_components, in the place of the lambda_l^t psi_l of eq. (8).

    Literal (step 7, "use U, S"), and wrong: singular for eigen. The first triplet is left out as
    the trivial one, though u_0 is not constant. Columns have unit length, shape (N, n_components).

    Differs: the box takes the SVD of M^t and then appends rows of M; here it is always M, and
    sigma is raised to t, which is the box itself at t = 1.
    """
    chosen = slice(1, 1 + n_components)
    coordinates: Floats = state.svd.left[:, chosen] * state.svd.values[chosen] ** diffusion_time
    return coordinates


def literal_span(state: LiteralMap, count: int) -> Floats:
    """Orthonormal basis of what the literal map puts for psi_0 .. psi_(count-1): (N, count).

    Compare by the largest angle with the batch right eigenvectors, the constant one included.
    """
    return state.svd.left[:, :count]
