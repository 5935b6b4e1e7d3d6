"""Locally linear embedding: every point from its neighbours, and the smoothest map that keeps it.

Each point is written as a weighted mean of its neighbours. The coordinates are those that the same
weights reconstruct best: the bottom of a sparse positive operator, whose wanted eigenvalues are
1e-10 to 1e-5 of its largest. No polynomial reaches these. A few steps of inverse iteration with new
factors do, from the previous vectors, which are near.

Symbols: n = points, K = neighbours, x_i = a point, w_ij = weights with sum_j w_ij = 1, W = (n, n)
of them, m_i = masses, D = diag(m), B = D^1/2 (I - W) D^-1/2, M = B^T B, v and mu with M v = mu v,
v_0 = sqrt(m) / ||sqrt(m)|| with M v_0 = 0, Z = D^-1/2 V = coordinates, with Z^T D Z = I.

Source: Roweis & Saul (2000), "Nonlinear dimensionality reduction by locally linear embedding";
Saul & Roweis (2003), "Think globally, fit locally", sections 3, 5.1 and 6.1, for the ridge and for
new points. Differs: 1. The first eigenvector, the constant, is no coordinate: it is deflated. 2.
Masses: (I - W)^T D (I - W) v = mu D v, as a symmetric problem. 3. A point without a neighbour has
no row in I - W: it is a part of its own, with mu = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import scipy
from scipy.sparse import csr_array, eye_array

from streamembed.geometry.lists import Slots
from streamembed.geometry.pairwise import CELLS
from streamembed.numeric.arrays import Array, Floats, Ints, pad

# Columns beyond the wanted ones: guards. Every solve draws the last of them again, to find a part
# that arrived whole and is in no older column.
GUARDS = 7
# Beside M's diagonal, which is at least 1: far above the rounding of its factors, 1e-14, and as
# small as the least values that are wanted; where masses or weights make M large, this share of it.
SHIFT, LEAST_SHIFT = 1e-10, 1e-13
# Steps at least: on 500 digits single chunks are off by a sine of 0.02 after one, 0.001 after two.
# At most, from random columns: they took 2 to 4 on rolls and images.
LEAST, COLD = 2, 24
# Of the tolerance, for random columns: their slow modes are farther than their residual says.
COLD_SHARE = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class BottomPairs:
    """The bottom of M without v_0: what persists from one solve to the next."""

    # Orthonormal, orthogonal to v_0, by slot: the wanted columns first, then guards.
    vectors: Annotated[Floats, "slots m"]
    values: Annotated[Floats, "m"]  # mu, ascending, at least 0


@dataclass(frozen=True, slots=True, eq=False)
class SolveReport:
    """The report of a solve."""

    errors: Floats  # (n, c): M v - mu v of the wanted columns, absolute
    # (c,): their norms relative to mu of the column after the wanted ones: with a gap there, about
    # the sine of the angle. 0.1 to 1 where that mu is 0 up to rounding: then these columns are any
    # of a larger null space, of parts or of duplicates.
    relative: Floats
    steps: int  # of inverse iteration
    met: bool  # whether all of ``relative`` is within the tolerance
    # (n,) or (n, m) -> (M + shift)^-1 of it, by the factors of this solve.
    inverse: Callable[[Floats], Floats]
    # A bound on the norm of M, and what is added to its diagonal before it is factorised.
    norm: float
    shift: float


def compute_weights(
    points: Floats, near: Slots, slots: Ints | None = None, reg: float = 1e-3
) -> Floats:
    """Weights by which the neighbours of some slots reconstruct their points.

    argmin over w of ||x_i - sum_j w_ij x_j||^2 + reg tr(C) ||w||^2 with sum_j w_ij = 1; C is the
    Gram matrix of the differences to the K neighbours.

    Parameters
    ----------
    points
        Shape (n, d), finite.
    near
        Lists of all slots, shape (n, K); -1 is no neighbour.
    slots
        Shape (b,); None for all.
    reg
        Ridge, positive, as a share of tr(C); absolute where all neighbours are duplicates.

    Returns
    -------
    Shape (b, K), in the order of the lists, 0 at -1; every row sums to 1, or to 0 where there is no
    neighbour. The same bits whichever slots are computed together. O(b K^2 (K + d)).

    Notes
    -----
    Not changed by rotation, shift or scale, up to rounding. Masses do not affect the weights.

    Examples
    --------
    >>> import numpy as np
    >>> line = np.array([[0.0], [1.0], [3.0]])
    >>> near = np.array([[1, 2], [0, 2], [1, 0]], dtype=np.int32)
    >>> compute_weights(line, near, np.array([1]), reg=1e-9).round(6).tolist()
    [[0.666667, 0.333333]]
    """
    if slots is None:
        return compute_weights_between(points, points, near, reg)
    return compute_weights_between(points[slots], points, near[slots], reg)


def compute_weights_between(new: Floats, points: Floats, near: Slots, reg: float = 1e-3) -> Floats:
    """As `compute_weights`, of points ``new`` (b, d) whose neighbours ``near`` (b, K) are slots."""
    weights = np.zeros(near.shape)
    k = near.shape[1]
    step = max(1, CELLS // max(1, k * max(k, points.shape[1])))
    for start in range(0, len(near) if k else 0, step):
        part = slice(start, start + step)
        weights[part] = _solve_weights(points[near[part]] - new[part, None], near[part] >= 0, reg)
    return weights


def _solve_weights(differences: Floats, is_neighbor: Array, reg: float) -> Floats:
    """Weights (b, K) of the differences (b, K, d) to neighbours, which are written over."""
    differences[~is_neighbor] = 0.0
    # no square over- or underflows
    size: Floats = np.abs(differences).max(axis=(1, 2), initial=0.0)
    differences /= np.where(size > 0, size, 1.0)[:, None, None]
    gram = differences @ differences.transpose(0, 2, 1)
    trace = np.einsum("bii->b", gram)
    diagonal = np.arange(gram.shape[1])
    gram[:, diagonal, diagonal] += (reg * np.where(trace > 0, trace, 1.0))[:, None]
    # an empty entry has a row and a column of its own: its weight is exactly 0
    weights = np.asarray(np.linalg.solve(gram, is_neighbor[:, :, None] * 1.0)[:, :, 0], np.float64)
    weights /= np.where(is_neighbor.any(axis=1), weights.sum(axis=1), 1.0)[:, None]
    return weights


def build_alignment(
    near: Slots, weights: Floats, masses: Floats | None = None
) -> tuple[csr_array, csr_array]:
    """B and M = B^T B of reconstruction weights: sparse, M symmetric to the last bit.

    Parameters
    ----------
    near, weights
        Shape (n, K), as `compute_weights` takes and gives them.
    masses
        m, positive, shape (n,); None for 1.

    Returns
    -------
    B, M
        Shape (n, n): B v_0 = 0. O(n K^2).

    Notes
    -----
    A mass of m is m copies of a point that are reconstructed alike and share the point's weight in
    others: the copies add only eigenvalues 1 to the spectrum. The lists of data with duplicates
    would give another result: the nearest of a copy are the other copies.

    Examples
    --------
    >>> import numpy as np
    >>> near = np.array([[1], [0]], dtype=np.int32)
    >>> B, M = build_alignment(near, np.ones((2, 1)))
    >>> B.toarray().tolist(), M.toarray().tolist()
    ([[1.0, -1.0], [-1.0, 1.0]], [[2.0, -2.0], [-2.0, 2.0]])
    """
    n = len(near)
    is_neighbor = near >= 0
    is_entry = np.column_stack([is_neighbor.any(axis=1), is_neighbor])
    columns = np.column_stack([np.arange(n, dtype=np.int32), near])
    entries = np.column_stack([np.ones(n), -weights])
    if masses is not None:
        root = np.sqrt(masses)
        entries *= root[:, None] / root[columns]
    starts = np.concatenate([[0], np.cumsum(np.count_nonzero(is_entry, axis=1))]).astype(np.int32)
    B = csr_array((entries[is_entry], columns[is_entry], starts), shape=(n, n))
    B.sort_indices()
    # sums run over the rows of B in their order, for an entry and its mirror image alike
    M = csr_array(B.T.tocsr() @ B)
    # turned over, which it does not change, its rows come sorted: faster than to sort them
    return B, csr_array(M.tocsc().T)


def interpolate_refilled(vectors: Floats, slots: Ints, near: Slots, weights: Floats) -> Floats:
    """Columns as a start after ``slots`` were refilled: their rows come from their neighbours.

    Parameters
    ----------
    vectors
        Before, shape (n', m).
    slots
        Shape (b,), distinct; those from n' on are new.
    near, weights
        Of all slots, afterwards, shape (n, K).

    Returns
    -------
    Shape (n, m): at a refilled slot the mean over the neighbours that stayed, then the weighted
    mean; 0 where none did.
    """
    n = len(near)
    result = pad(vectors, n)
    is_unchanged = np.ones(n + 1, dtype=bool)  # the last for the slot -1
    is_unchanged[slots], is_unchanged[-1] = False, False
    is_known = is_unchanged[near[slots]]
    shares = is_known / np.maximum(is_known.sum(axis=1, keepdims=True), 1)
    result[slots] = np.einsum("bk,bkm->bm", shares, result[near[slots]])
    result[slots] = np.einsum("bk,bkm->bm", weights[slots], result[near[slots]])
    return result


def solve(
    B: csr_array,
    M: csr_array,
    start: Floats | None,
    count: int,
    generator: np.random.Generator,
    masses: Floats | None = None,
    tolerance: float = 1e-2,
    max_steps: int = 4,
) -> tuple[BottomPairs, SolveReport]:
    """The ``count`` least eigenpairs of M beside v_0: argmin of ||B V||^2 with V^T [v_0 V] = [0 I].

    Parameters
    ----------
    B, M
        Of `build_alignment`.
    start
        Columns near the solution, shape (n, m'), of `interpolate_refilled`; None for random ones.
    count
        Wanted columns, at least 1.
    generator
        For random columns: all without a start, else the missing ones and the last guard.
    masses
        Those of `build_alignment`.
    tolerance
        Of `SolveReport.relative`; a tenth of it without a start.
    max_steps
        At least 1; two are always made where it allows. Without a start at least 24.

    Returns
    -------
    bottom, report
        min(count + 7, n - 1) columns: fewer than wanted where there are no more. With several
        parts the first values are 0 up to rounding. Signs are arbitrary. The cost is that of the
        factors; a step is O(fill m + n m^2).

    Notes
    -----
    Ritz values are those of (B V)^T (B V): in V^T M V rounding would hide values of 1e-10 of M. One
    QR of all columns makes them orthogonal to each other and to v_0, to 1e-15.
    """
    n = M.shape[0]
    width = max(0, min(count + GUARDS, n - 1))
    count = min(count, width)
    block = np.zeros((n, 0)) if start is None else start[:, :width]
    if from_random := block.shape[1] < count:
        max_steps, tolerance = max(max_steps, COLD), COLD_SHARE * tolerance
    elif count < width:
        block = block[:, : width - 1]
    block = np.hstack([block, generator.standard_normal((n, width - block.shape[1]))])
    root = np.ones(n) if masses is None else np.sqrt(masses)
    constant = root / np.linalg.norm(root)
    norm = float(np.asarray(abs(M).sum(axis=1)).max(initial=0.0)) or 1.0
    least = float(np.finfo(np.float64).eps) * norm  # of mu, what rounding hides
    shift = max(SHIFT, LEAST_SHIFT * norm)
    if not width:
        no_report = SolveReport(block, np.zeros(0), 0, True, np.zeros_like, norm, shift)
        return BottomPairs(block, np.zeros(0)), no_report
    factors = _factorise(M, shift)
    block = _orthonormalise(constant, block)
    steps, is_met = 0, False
    while True:
        block = _orthonormalise(constant, factors.solve(block))
        values, block, errors = _compute_ritz_pairs(B, block, count)
        next_value = float(values[min(count, width - 1)])
        relative = np.linalg.norm(errors, axis=0) / max(next_value, least)
        is_met = bool((relative <= tolerance).all())
        steps += 1
        if steps >= max_steps or (is_met and steps >= LEAST):
            break
    if from_random:
        is_met = bool((relative <= tolerance / COLD_SHARE).all())
    return BottomPairs(block, values), SolveReport(
        errors, relative, steps, is_met, factors.solve, norm, shift
    )


def _factorise(M: csr_array, shift: float) -> scipy.sparse.linalg.SuperLU:
    """The factors of M + shift I, which is positive definite: no pivots are needed."""
    return scipy.sparse.linalg.splu(
        (M + shift * eye_array(M.shape[0])).tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )


def _orthonormalise(constant: Floats, block: Floats) -> Floats:
    """An orthonormal basis of the block's columns without the constant: both to the last digit."""
    return np.linalg.qr(np.column_stack([constant, block]))[0][:, 1:]


def _compute_ritz_pairs(B: csr_array, basis: Floats, count: int) -> tuple[Floats, Floats, Floats]:
    """Values (m,) ascending, vectors (n, m), and M v - mu v of the first ``count``."""
    image = B @ basis
    values, rotation = np.linalg.eigh(image.T @ image)
    values = np.maximum(values, 0.0)
    vectors = basis @ rotation
    errors = B.T @ (image @ rotation[:, :count]) - vectors[:, :count] * values[:count]
    return values, vectors, errors


def extend(
    new: Floats, support: Floats, coordinates: Floats, n_neighbors: int, reg: float = 1e-3
) -> Floats:
    """Coordinates of new points: of their nearest in the support, by reconstruction weights.

    Parameters
    ----------
    new
        Shape (b, d).
    support, coordinates
        Shapes (n, d) and (n, k).
    n_neighbors
        K; a smaller support is taken whole. A point of the support that equals a new one is
        among them.
    reg
        As in `compute_weights`.

    Returns
    -------
    Shape (b, k): what scikit-learn's ``transform`` gives. Which of equally near points are taken is
    not specified. O(b n d).
    """
    n, k = len(support), min(n_neighbors, len(support))
    result = np.empty((len(new), coordinates.shape[1]))
    step = max(1, CELLS // max(1, n))
    for start in range(0, len(new), step):
        part = slice(start, start + step)
        d2 = scipy.spatial.distance.cdist(new[part], support, "sqeuclidean")
        near = np.argpartition(d2, k - 1, axis=1)[:, :k].astype(np.int32)
        weights = compute_weights_between(new[part], support, near, reg)
        result[part] = np.einsum("bk,bkm->bm", weights, coordinates[near])
    return result
