"""The tracked symmetric low-rank factor: border the new slots, evict the old, refresh.

What is tracked is T = diag(f) W diag(f) ~ U diag(lambda) U^T, where f is the normalisation that
each slot had when it was last filled. Entries of T between slots that stay never change, so that
replacing slots is an exact symmetric border and only the cut to rank r loses anything. The true
operator S = diag(s/f) T diag(s/f) is restored in the view by an r x r problem.

Symbols: W = kernel matrix, U = `Factor.vectors` (n, r), lambda = `Factor.values` (r,),
f = `Factor.scaling` (n,), e = the slots being replaced (b of them), r = the rank.

Source: docs/algorithms/tracker.md; Jain, section 2.3, for the idea of a bordered update.
Differs: 1. the symmetric conjugate S is tracked, not the Markov matrix, whose singular vectors
are not the eigenfunctions; 2. old rows are renormalised exactly, where the paper leaves them stale
(its subspace error of 0.08 is that, not the truncation); 3. slots can leave.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from streamembed.core.arrays import Array, Floats, Ints
from streamembed.core.linalg import (
    descending_eigh,
    nystrom_pairs,
    orthonormal_basis,
    symmetric,
)

__all__ = ["Factor", "decompose", "extend", "refresh", "replace", "sketch"]

# Eigenvalues below this share of the first are rounding, not structure (float64 core).
RANK_CUT = 1e-13
# An evicted direction of which less than this share of its squared length is left is not divided
# by that share, which is known to 1e-16 only: 1e-3 keeps the basis orthonormal to 1e-13.
FAINT = 1e-3
# Subspace iterations of a sketch: with lambda_r / lambda_k = 0.2, six leave 4e-9.
SKETCH_STEPS = 6


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """T ~ U diag(lambda) U^T.

    Attributes
    ----------
    vectors : (n, r)
        Orthonormal columns.
    values : (r,)
        Positive, descending.
    scaling : (n,)
        The frozen normalisation f of each slot.
    """

    vectors: Floats
    values: Floats
    scaling: Floats

    @property
    def rank(self) -> int:
        """Columns kept; it may fall below what was asked for, and grow again."""
        return len(self.values)


def _cut(values: Floats, rank: int) -> int:
    """How many of the descending ``values`` to keep."""
    return min(rank, int(np.count_nonzero(values > RANK_CUT * max(values[0], 0.0))))


def decompose(weights: Array, scaling: Floats, rank: int) -> Factor:
    """The exact leading pairs of diag(f) W diag(f), from scratch. O(n^3)."""
    full = np.asarray(weights, dtype=np.float64) * np.outer(scaling, scaling)
    values, vectors = descending_eigh(full)
    keep = _cut(values, rank)
    return Factor(np.ascontiguousarray(vectors[:, :keep]), values[:keep].copy(), scaling)


def sketch(
    scaling: Floats,
    product: Callable[[Floats], Floats],
    rank: int,
    cut: float,
    seed: int,
) -> Factor:
    """The leading pairs of diag(s) W diag(s) by subspace iteration from a random block. O(n^2 r).

    Parameters
    ----------
    scaling
        s, shape (n,).
    product, cut
        As in `refresh`, which each of its steps is: the error falls by (lambda_r / lambda_k)^2.
    """
    start = np.random.default_rng(seed).standard_normal((len(scaling), rank))
    factor = Factor(start, np.ones(rank), scaling)
    for _ in range(SKETCH_STEPS):
        factor = refresh(factor, scaling, product, rank, cut)
    return factor


def replace(factor: Factor, slots: Ints, rows: Array, arriving: Floats, rank: int) -> Factor:
    """The factor after ``slots`` were refilled (or filled for the first time): evict, border, cut.

    Exact but for the cut to ``rank``.

    Parameters
    ----------
    factor
        The factor before, of n slots.
    slots
        e, shape (b,), distinct; those from n on are new.
    rows
        Kernel rows of the refilled slots, shape (b, n'), n' slots in use afterwards.
    arriving
        f of the refilled slots, shape (b,), frozen from now on.
    rank
        r, the most columns to keep.

    Returns
    -------
    A new factor of n' slots. O(n' r^2 + n' b r + (r + 2b)^3).
    """
    n, b = rows.shape[1], len(slots)
    scaling = np.concatenate([factor.scaling, np.zeros(n - len(factor.scaling))])
    scaling[slots] = arriving
    vectors = np.concatenate([factor.vectors, np.zeros((n - len(factor.vectors), factor.rank))])
    vectors, squeeze, stretch = _evict(vectors, slots)

    columns = (rows * np.multiply.outer(arriving, scaling)).T  # (n', b): new columns of T
    corner = symmetric(columns[slots])
    columns[slots] = 0.0
    inside = stretch @ (vectors.T @ columns)  # (r, b), coordinates in the orthonormal U G^(-1/2)
    rest = columns - vectors @ (stretch @ inside)
    again = stretch @ (vectors.T @ rest)  # orthogonalised twice: the first pass leaves eps * |C|
    rest -= vectors @ (stretch @ again)
    inside += again
    _, sizes, turn = np.linalg.svd(np.linalg.qr(rest, mode="r"))
    keep = sizes > 1e-12 * factor.values[0]
    sizes, turn = sizes[keep], turn[keep]
    into_rest = turn.T / sizes  # (b, k'): rest @ into_rest has orthonormal columns

    r, extra = factor.rank, len(sizes)
    core = np.zeros((r + b + extra, r + b + extra))
    core[:r, :r] = (squeeze * factor.values) @ squeeze.T
    core[:r, r : r + b] = inside
    core[r : r + b, :r] = inside.T
    core[r : r + b, r : r + b] = corner
    core[r + b :, r : r + b] = sizes[:, None] * turn
    core[r : r + b, r + b :] = core[r + b :, r : r + b].T
    values, mix = descending_eigh(core)
    kept = _cut(values, rank)
    old, new, side = mix[:r, :kept], mix[r : r + b, :kept], into_rest @ mix[r + b :, :kept]
    # U G^(-1/2) Z1 + (C - U G^(-1/2) A) W3 in two products with n' rows
    updated = vectors @ (stretch @ (old - inside @ side)) + columns @ side
    updated[slots] = new
    return Factor(updated, values[:kept].copy(), scaling)


def _evict(vectors: Floats, slots: Ints) -> tuple[Floats, Floats, Floats]:
    """What is left of U without the rows of ``slots``: V, K, M with V M orthonormal, V = (V M) K.

    K and M are G^(1/2) and G^(-1/2) with G = I - Ue^T Ue, for the rows Ue that leave; they differ
    from the identity only in the directions that Ue touches, O(b^2 r). What is left of such a
    direction is 1 - w, known to 1e-16 absolute; where it is nearly nothing that is not enough
    (the null-direction hazard), and V is made orthonormal by Householder QR, O(n r^2).
    """
    leaving = vectors[slots]
    vectors[slots] = 0.0
    r = vectors.shape[1]
    shared, left = descending_eigh(leaving @ leaving.T)
    if shared[0] > 1.0 - FAINT:
        basis, triangle = np.linalg.qr(vectors)
        return basis, triangle, np.eye(r)
    touched = shared > 1e-15
    directions = leaving.T @ (left[:, touched] / np.sqrt(shared[touched]))  # (r, <= b)
    cosine = np.sqrt(1.0 - shared[touched])
    squeeze = np.eye(r) + (directions * (cosine - 1.0)) @ directions.T
    stretch = np.eye(r) + (directions * (1.0 / cosine - 1.0)) @ directions.T
    return vectors, squeeze, stretch


def extend(factor: Factor, slots: Ints, rows: Array, arriving: Floats) -> Factor:
    """The factor with the rows of ``slots`` filled by Nystrom extension; not orthonormal.

    For chunks so large that the border would cost more than a refresh: call `refresh` next, with
    probes for what the old columns cannot say about the new slots. O(n b r).
    """
    n = rows.shape[1]
    scaling = np.concatenate([factor.scaling, np.zeros(n - len(factor.scaling))])
    scaling[slots] = 0.0  # the slots' old content has left: it must not steer the extension
    vectors = np.concatenate([factor.vectors, np.zeros((n - len(factor.vectors), factor.rank))])
    vectors[slots] = 0.0
    weighted = rows.astype(np.float64) * scaling  # (b, n)
    vectors[slots] = arriving[:, None] * (weighted @ vectors) / factor.values
    scaling[slots] = arriving
    return Factor(vectors, factor.values, scaling)


def refresh(
    factor: Factor,
    scaling: Floats,
    product: Callable[[Floats], Floats],
    rank: int,
    cut: float,
    probes: Floats | None = None,
) -> Factor:
    """The factor of the true operator S again, by one product with a block of width r.

    Parameters
    ----------
    factor
        A factor whose span is near the leading one; its columns need not be orthonormal.
    scaling
        s, shape (n,), the exact normalisation now: it becomes the frozen one.
    product
        V -> W V, for V of shape (n, m).
    rank
        The most columns to keep.
    cut
        Of `linalg.nystrom_pairs`.
    probes
        Further directions to look into, shape (n, p): what the factor may have missed.

    Returns
    -------
    Its pairs are the Nystrom pairs of S on the block: the truncation that many borders have
    piled up is gone but for one product's worth. O(n^2 r).
    """
    block = (scaling / factor.scaling)[:, None] * factor.vectors
    if probes is not None:
        block = np.concatenate([block, probes], axis=1)
    basis = orthonormal_basis(block)
    image = scaling[:, None] * product(scaling[:, None] * basis)
    values, vectors = nystrom_pairs(basis, image, cut)
    keep = _cut(values, rank)
    return Factor(np.ascontiguousarray(vectors[:, :keep]), values[:keep].copy(), scaling)
