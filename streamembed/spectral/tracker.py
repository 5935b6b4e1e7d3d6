"""The tracked symmetric low-rank factor: border the new slots, evict the old, refresh.

The factor tracks T = diag(f) W diag(f) ~ U diag(lambda) U^T, where f is the normalisation that
each slot had when it was last filled. Entries of T between slots that stay never change, so that
replacing slots is an exact symmetric border and only the cut of small eigenvalues loses anything.
The true operator S = diag(s/f) T diag(s/f) is restored in the view by an r x r problem. Of centred
maps, which alone are followed in this way, f and s are 1, and the view takes out the mean.

Symbols: W = kernel matrix, U = `Factor.vectors` (n, r), lambda = `Factor.values` (r,),
f = `Factor.scaling` (n,), e = the slots being replaced (b of them), r = the rank now.

Source: docs/algorithms/tracker.md; Jain, section 2.3, for the idea of a bordered update.
Differs: 1. the symmetric conjugate S is tracked, not the Markov matrix, whose singular vectors
are not the eigenfunctions; 2. old rows are renormalised exactly, where the paper leaves them
stale; 3. slots can leave. The first two are its subspace error of 0.08, not the truncation
(docs/algorithms/zha-simon.md measures them apart).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from streamembed.numeric.arrays import Array, Floats, Ints, pad_rows
from streamembed.numeric.linalg import (
    descending_eigh,
    eigh,
    mix_columns,
    nystrom_pairs,
    orthonormal_basis,
    symmetrise,
)

# By precision of the vectors, relative to the first eigenvalue: eigenvalues below the first number
# are rounding, not structure; so are border directions shorter than the second.
RANK_CUT = {np.dtype(np.float64): 1e-13, np.dtype(np.float32): 1e-7}
BORDER_CUT = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-5}
# An evicted direction of which less than this share of its squared length is left is not divided
# by that share, which is known to 1e-16 only: 1e-3 keeps the basis orthonormal to 1e-13.
FAINT = 1e-3
TINY = float(np.finfo(np.float64).tiny)
# Subspace iterations of a sketch: with lambda_r / lambda_k = 0.2, six leave 4e-9.
SKETCH_STEPS = 6


@dataclass(frozen=True, slots=True)
class Cut:
    """How many columns a factor keeps."""

    # Never more, never fewer (unless the operator's own rank is smaller).
    most: int
    least: int
    # In between, eigenvalues above ``level`` times the second one (the first is the constant
    # vector's, whose eigenvalue carries no information). 0 keeps ``most``.
    level: float
    # For matrices that are not positive: the largest in size are kept, with their signs.
    by_magnitude: bool = False

    def sizes(self, values: Floats) -> Floats:
        """What pairs are ordered by, descending."""
        return np.abs(values) if self.by_magnitude else values


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """T ~ U diag(lambda) U^T."""

    # Orthonormal columns, C-contiguous, in the precision of the ring.
    vectors: Annotated[Array, "slots r", "finite"]
    # Positive, descending; with signs, and by size, where the cut is by magnitude.
    values: Annotated[Floats, "r", "finite"]
    # The frozen normalisation f of each slot.
    scaling: Annotated[Floats, "slots", "finite", "positive"]

    @property
    def largest(self) -> float:
        """Of the sizes of its values; 0 where all is zero, and there are none."""
        return abs(float(self.values[0])) if len(self.values) else 0.0

    @property
    def rank(self) -> int:
        """Number of columns; it may fall below the requested rank, and grow again."""
        return len(self.values)


def _count_kept(values: Floats, cut: Cut, dtype: npt.DTypeLike) -> int:
    """How many of the ``values``, in their order, to keep."""
    if len(values) == 0:
        return 0
    values = cut.sizes(values)
    n_real = int(np.count_nonzero(values > RANK_CUT[np.dtype(dtype)] * max(values[0], 0.0)))
    n_wanted = int(np.count_nonzero(values > cut.level * values[min(1, len(values) - 1)]))
    return min(n_real, cut.most, max(n_wanted, cut.least))


def _build_factor(
    values: Floats, vectors: Array, scaling: Floats, cut: Cut, dtype: npt.DTypeLike
) -> Factor:
    """The leading pairs as a factor, in the given precision."""
    if cut.by_magnitude:
        order = np.argsort(-np.abs(values), kind="stable")
        values, vectors = values[order], vectors[:, order]
    n_kept = _count_kept(values, cut, dtype)
    return Factor(vectors[:, :n_kept].astype(dtype, order="C"), values[:n_kept].copy(), scaling)


def decompose(weights: Array, scaling: Floats, cut: Cut) -> Factor:
    """The exact leading pairs of diag(f) W diag(f), from scratch. O(n^3)."""
    full = np.asarray(weights, dtype=np.float64) * np.outer(scaling, scaling)
    values, vectors = descending_eigh(full)
    return _build_factor(values, vectors, scaling, cut, weights.dtype)


def sketch(
    scaling: Floats,
    product: Callable[[Array], Array],
    cut: Cut,
    floor: float,
    dtype: npt.DTypeLike,
    seed: int,
    norm: float = np.inf,
) -> Factor:
    """The leading pairs of diag(s) W diag(s) by subspace iteration from a random block. O(n^2 r).

    Parameters
    ----------
    scaling
        s, shape (n,).
    product, cut, floor, norm
        As in `refresh`, which each of its steps is: the error falls by (lambda_r / lambda_k)^2.
    dtype
        Of the vectors.
    """
    start = np.random.default_rng(seed).standard_normal((len(scaling), cut.most))
    factor = Factor(start.astype(dtype), np.ones(cut.most), scaling)
    for _ in range(SKETCH_STEPS):
        factor = refresh(factor, scaling, product, cut, floor, None, norm)
    return factor


def replace(factor: Factor, slots: Ints, rows: Array, new_scaling: Floats, cut: Cut) -> Factor:
    """The factor after ``slots`` were refilled (or filled for the first time): evict, border, cut.

    Exact but for the cut.

    Parameters
    ----------
    factor
        The factor before, of n slots.
    slots
        e, shape (b,), distinct; those from n on are new.
    rows
        Kernel rows of the refilled slots, shape (b, n'), n' slots in use afterwards.
    new_scaling
        f of the refilled slots, shape (b,), frozen from now on.
    cut
        Which columns to keep.

    Returns
    -------
    A new factor of n' slots. O(n' r^2 + n' b r + (r + 2b)^3).
    """
    b, dtype = len(slots), factor.vectors.dtype
    n = rows.shape[1]
    vectors, scaling = pad_rows(factor.vectors, n), pad_rows(factor.scaling, n)
    scaling[slots] = new_scaling
    vectors, squeeze, stretch = _evict(vectors, slots)

    # (n', b), new in T
    columns = (rows * np.outer(new_scaling, scaling)).T.astype(dtype, order="C")
    corner = symmetrise(columns[slots].astype(np.float64))
    columns[slots] = 0.0
    coordinates = stretch @ (vectors.T @ columns)  # (r, b), in the orthonormal basis U M
    remainder = columns - mix_columns(vectors, stretch @ coordinates)
    sizes, turn, coordinates = _border(remainder, coordinates, vectors, stretch, factor.largest)
    into_rest = turn.T / sizes  # (b, k'): rest @ into_rest has orthonormal columns

    r, extra = factor.rank, len(sizes)
    core = np.zeros((r + b + extra, r + b + extra))  # the lower triangle
    core[:r, :r] = (squeeze * factor.values) @ squeeze.T
    core[r : r + b, :r] = coordinates.T
    core[r : r + b, r : r + b] = corner
    core[r + b :, r : r + b] = sizes[:, None] * turn
    values, mix = eigh(core)
    values, mix = values[::-1], mix[:, ::-1]
    if cut.by_magnitude:
        order = np.argsort(-np.abs(values), kind="stable")
        values, mix = values[order], mix[:, order]
    n_kept = _count_kept(values, cut, dtype)
    mix = mix[:, :n_kept]
    old_mix, new_mix, side_mix = mix[:r], mix[r : r + b], into_rest @ mix[r + b :]
    # U M Z1 + (C - U M A) W Z3 in two products with n' rows
    updated = mix_columns(vectors, stretch @ (old_mix - coordinates @ side_mix))
    updated += mix_columns(columns, side_mix)
    updated[slots] = new_mix
    return Factor(updated, values[:n_kept].copy(), scaling)


def _border(
    remainder: Array, coordinates: Floats, vectors: Array, stretch: Floats, largest: float
) -> tuple[Floats, Floats, Floats]:
    """Singular values and right vectors of the border outside U, and the border inside.

    In float32 the Gram matrix of ``remainder`` is as good as the data. In float64 the border is
    orthogonalised twice, in place (the first pass leaves eps * |C|), and its QR factor is taken,
    so that directions down to 1e-12 are right.
    """
    cut = max(BORDER_CUT[remainder.dtype] * largest, TINY)
    if remainder.dtype == np.float32:
        squares, turn = descending_eigh(remainder.T @ remainder)
        keep = squares > cut**2
        return np.sqrt(squares[keep]), turn[:, keep].T, coordinates
    correction = stretch @ (vectors.T @ remainder)
    remainder -= vectors @ (stretch @ correction)
    _, sizes, right = np.linalg.svd(np.linalg.qr(remainder, mode="r"))
    keep = sizes > cut
    return sizes[keep], right[keep], coordinates + correction


def _evict(vectors: Array, slots: Ints) -> tuple[Array, Floats, Floats]:
    """U without the rows of ``slots``: V, K, M with V M orthonormal, V = (V M) K.

    K and M are G^(1/2) and G^(-1/2) with G = I - Ue^T Ue, for the rows Ue that leave; they differ
    from the identity only in the directions that Ue touches, O(b^2 r). The rest of such a
    direction is 1 - w, known to 1e-16 absolute; where it is nearly nothing that is not enough
    (the null-direction hazard), and V is made orthonormal by Householder QR, O(n r^2).
    """
    leaving_rows = vectors[slots].astype(np.float64)
    vectors[slots] = 0.0
    r = vectors.shape[1]
    overlaps, left_vectors = descending_eigh(leaving_rows @ leaving_rows.T)
    if overlaps[0] > 1.0 - FAINT:
        basis, triangle = np.linalg.qr(vectors)
        return basis, triangle.astype(np.float64), np.eye(r)
    is_touched = overlaps > 1e-15
    left_vectors = left_vectors[:, is_touched] / np.sqrt(overlaps[is_touched])
    directions = leaving_rows.T @ left_vectors  # (r, <= b)
    cosine = np.sqrt(1.0 - overlaps[is_touched])
    squeeze = np.eye(r) + (directions * (cosine - 1.0)) @ directions.T
    stretch = np.eye(r) + (directions * (1.0 / cosine - 1.0)) @ directions.T
    return vectors, squeeze, stretch


def extend(factor: Factor, slots: Ints, rows: Array, new_scaling: Floats) -> Factor:
    """The factor with the rows of ``slots`` filled by Nystrom extension; not orthonormal.

    For chunks so large that the border would cost more than a refresh: call `refresh` next, with
    probes for what the old columns do not determine about the new slots. O(n b r).
    """
    n = rows.shape[1]
    vectors, scaling = pad_rows(factor.vectors, n), pad_rows(factor.scaling, n)
    scaling[slots] = 0.0  # the slots' old content has left: it must not steer the extension
    vectors[slots] = 0.0
    weighted = (rows * scaling).astype(vectors.dtype)  # (b, n)
    vectors[slots] = new_scaling[:, None] * (weighted @ vectors) / factor.values
    scaling[slots] = new_scaling
    return Factor(vectors, factor.values, scaling)


def refresh(
    factor: Factor,
    scaling: Floats,
    product: Callable[[Array], Array],
    cut: Cut,
    floor: float,
    probes: Floats | None = None,
    norm: float = np.inf,
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
    cut
        Which columns to keep.
    floor
        Of `linalg.nystrom_pairs`: the rounding of a product.
    probes
        Further directions, shape (n, p), that the factor may lack.
    norm
        Of S, where it is known.

    Returns
    -------
    Its pairs are the Nystrom pairs of S on the block: the truncation that many borders have
    piled up is gone but for one product's worth. O(n^2 r). By magnitude, where there is no such
    approximation: the Ritz pairs on what one product makes of the block, by a second one.
    """
    dtype = factor.vectors.dtype
    scale = scaling.astype(dtype)[:, None]
    block = factor.vectors * (scaling / factor.scaling).astype(dtype)[:, None]
    if probes is not None:
        block = np.concatenate([block, probes.astype(dtype)], axis=1)
    basis = orthonormal_basis(block)
    image = scale * product(scale * basis)
    if cut.by_magnitude:
        basis = orthonormal_basis(image)
        values, mix = descending_eigh(basis.T @ (scale * product(scale * basis)))
        return _build_factor(values, mix_columns(basis, mix), scaling, cut, dtype)
    values, vectors = nystrom_pairs(basis, image, floor, norm)
    return _build_factor(values, vectors, scaling, cut, dtype)
