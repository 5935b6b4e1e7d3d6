"""Leading pairs of a trial space, and what they lack, without a product with the matrix.

All products with S that are needed are at hand: of trial functions U, and of random probes X that
know nothing of U. With Q the Ritz vectors of U, v one of them, theta its value and R = S v - theta
v, the pair that is given is v' = S v / theta (a step of subspace iteration, for nothing) with
theta' = theta + |R|^2 / theta, and

    S v' - theta' v' = (S R - v v^T S R) / theta - |R|^2 R / theta^2.

The part of S R within the span of Q is (S Q)^T R, exactly. Of the rest, C R with C = (I - P) S (I -
P) and P the projection on Q and the constant, x^T C R is known for every probe x, because S x is:
p standard normal numbers times its norm, so that `bound_norm_ratio` times their root mean square is
below the norm with a chance of `CLAIM` only. C X shows eigenvalues of C in the same way
(`streamembed.spectral.probes`): one of mu adds mu^2 |X^T v|^2 to one direction of its Gram matrix,
the many small ones alike to all, so that the spread of its eigenvalues bounds mu.

Source: docs/algorithms/trial-space.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Self

import numpy as np
import scipy

from streamembed.numeric.arrays import Array, Floats
from streamembed.spectral.operator import CENTRED_CUT, Normalisation
from streamembed.spectral.probes import MISS
from streamembed.spectral.trial_space import FADED, TrialSpace, solve_pencil

# Chance that the norm of a residual is more than its claim.
CLAIM = 1e-4
# A value of S beyond 1 by so much is no rounding: nothing is claimed.
BEYOND_ONE = 1e-3
# Rounding of kept products, in units of the precision.
LOSS = 16.0
# The unit of a centred operator is so many times its largest Ritz value: an eigenvalue that
# is lost and larger than 1 is never within a tolerance, and so is one beyond which bounds end.
UNIT = 4.0
TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, slots=True, eq=False)
class SketchedView:
    """Leading pairs with an upper bound on their residuals, and on the eigenvalues they lack."""

    values: Floats  # (k,): theta', descending
    vectors: Floats  # (n, k): v', unit
    # (r, k): as long as the residuals at least, in any direction, but for a chance of `CLAIM`.
    errors: Floats
    ritz: Floats  # (c,): theta of all
    coupling: Floats  # (c, c): the Gram matrix of R of all
    beyond: float  # no eigenvalue of C is larger, but for a chance of `MISS`
    residuals: Array  # (p, n): C X


@dataclass(frozen=True, slots=True, eq=False)
class KnownProducts:
    """Vectors whose products with S are known, as rows: of trial functions, and of probes."""

    trial: Array  # U, (c, n), of any length
    images: Array  # U S
    draws: Array  # X, (p, n), normal
    draw_images: Array  # X S
    # The least standard deviation of a probe in any direction.
    strength: float
    unit: float = 1.0  # images are in units of it
    rounding: float = 0.0  # by how much the S of these images may differ from the exact one
    floor: float = 0.0  # values below it are rounding
    inner: Floats | None = None  # U S [U^T, X^T], shape (c, c + p), where it is known

    @classmethod
    def of(cls, space: TrialSpace, normal: Normalisation, degrees: Floats) -> Self:
        """Those of a space; ``degrees`` are W m, by which a centred one is freed of its mean."""
        scaling, inner = normal.scaling.astype(space.functions.dtype), None
        functions, images, unit, floor = space.functions[1:], space.images[1:], 1.0, 0.0
        c, strength = space.rank, float((space.drawn / normal.scaling).min())
        if space.is_centred:
            masses, constant = normal.scaling**2, normal.constant
            share = functions.sum(axis=1, keepdims=True) / masses.sum()
            functions, images = functions - share * masses, (images - share * degrees) * scaling
            images -= np.outer(images @ constant, constant)
            norm = space.measure_norm() or float(np.abs(images).max(initial=0.0))
            unit, floor = max(UNIT * norm, TINY), CENTRED_CUT
            images /= unit
        else:
            images, inner = images * scaling, space.inner[:, 1:]
        vectors = functions * (1.0 / scaling)
        parts = vectors[:c], images[:c], vectors[c:], images[c:]
        return cls(*parts, strength, unit, floor=floor, inner=inner)

    def compute_view(self, constant: Floats, count: int) -> SketchedView:
        """The first ``count`` pairs of the trial functions; nothing is claimed of a value beyond 1.

        ``constant`` is v_0, shape (n,): S v_0 = v_0, or S v_0 = 0, where all rows are orthogonal to
        it.
        """
        trial, trial_images = self.trial, self.images
        probes, probe_images = self.draws, self.draw_images
        inner, strength = self.inner, self.strength
        dtype, eps = trial.dtype, LOSS * float(np.finfo(trial.dtype).eps)
        unit = constant.astype(dtype)
        overlap, drawn = (trial @ unit).astype(np.float64), (probes @ unit).astype(np.float64)
        if inner is None:
            inner = np.hstack([_gram(trial, trial_images), _gram(trial, probe_images)])
        inner = inner - np.outer(overlap, np.concatenate([overlap, drawn]))
        ritz, mix = solve_pencil(inner[:, : len(trial)], _gram(trial, trial), overlap, FADED)
        images_gram = _gram(trial_images, trial_images) - np.outer(overlap, overlap)
        coupling = mix.T @ images_gram @ mix - np.diag(ritz**2)
        k = min(count, int(np.count_nonzero(ritz > max(eps, self.floor))))
        shift = mix.T @ overlap  # what Q has been freed of
        turn = mix.astype(dtype)
        # R of the first k
        freed = shift[:k, None].astype(dtype) * unit
        vectors = turn[:, :k].T @ trial - freed
        images = turn[:, :k].T @ trial_images - freed
        residuals = images - ritz[:k, None].astype(dtype) * vectors
        sizes = np.einsum("ij,ij->i", residuals, residuals).astype(np.float64)  # |R|^2
        # a step of iteration makes nothing of a pair whose residual is as long as its value
        k = int(np.argmin(np.append(sizes < ritz[:k] ** 2, False)))
        images, residuals, sizes, theta = images[:k], residuals[:k], sizes[:k], ritz[:k]
        # S R: within, by (S Q)^T R; beyond, by the probes
        within = mix.T @ _gram(trial_images, residuals) - np.outer(shift, residuals @ unit)
        y = mix.T @ (_gram(trial, probes) - np.outer(overlap, drawn))  # Q^T X
        sketch = _gram(probe_images, residuals) - y.T @ within
        within[np.arange(k), np.arange(k)] = 0.0
        rows = np.concatenate([within, bound_norm_ratio(len(probes), CLAIM) / strength * sketch])
        errors = rows / theta
        lengths = np.sqrt(np.einsum("ij,ij->j", errors, errors))
        further = sizes**1.5 / theta**2 + eps
        errors *= (lengths + further) / np.maximum(lengths, 1e-300)
        norms = np.sqrt(1.0 + sizes / theta**2)
        values = theta + sizes / theta
        if values.max(initial=0.0) > 1.0 + BEYOND_ONE:
            errors[:] = 1.0
        # C X: its Gram matrix has a spike for every large eigenvalue that the space lacks
        rest = probe_images - (mix @ y).T.astype(dtype) @ trial_images
        back = mix @ (mix.T @ inner[:, len(trial) :] - ritz[:, None] * y)  # its part in Q
        rest -= back.T.astype(dtype) @ trial
        rest -= (rest @ unit)[:, None] * unit  # all that is left of the constant
        spread = np.linalg.eigvalsh(_gram(rest, rest))
        least = strength * np.sqrt(2.0 * scipy.special.gammaincinv(0.5 * len(probes), MISS))
        beyond = float(np.sqrt(max(spread[-1] - spread[0], 0.0))) / float(least) + eps
        rows = (images / (theta * norms)[:, None].astype(dtype)).astype(np.float64)
        rows -= np.outer(rows @ constant, constant)  # rounding, as is a length that is not 1
        rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
        return SketchedView(
            values,
            rows.T,
            errors=errors / norms,
            ritz=ritz,
            coupling=coupling,
            beyond=beyond,
            residuals=rest,
        )

    def extend(self, columns: Floats, image: Floats, fresh: Floats, its_image: Floats) -> Self:
        """With further columns (n, m) and their product, and with ``fresh`` probes."""
        dtype = self.trial.dtype
        return replace(
            self,
            trial=np.concatenate([self.trial, columns.T.astype(dtype)]),
            images=np.concatenate([self.images, image.T.astype(dtype)]),
            draws=np.ascontiguousarray(fresh.T, dtype=dtype),
            draw_images=np.ascontiguousarray(its_image.T, dtype=dtype),
            strength=1.0,
            inner=None,
        )


def _gram(left: Array, right: Array) -> Floats:
    return (left @ right.T).astype(np.float64)


@cache
def bound_norm_ratio(p: int, chance: float) -> float:
    """By how much a norm may exceed the root mean square of p normal numbers times it.

    As a factor of the root of the sum of their squares.

    Examples
    --------
    >>> round(4.0 * bound_norm_ratio(16, 1e-4), 2)  # of the root mean square
    2.4
    """
    return float(1.0 / np.sqrt(2.0 * scipy.special.gammaincinv(0.5 * p, chance)))
