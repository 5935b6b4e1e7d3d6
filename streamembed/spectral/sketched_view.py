"""Leading pairs of a trial space, and what they lack, without a product with the matrix.

All products with S that are needed are at hand: of trial functions U, and of random probes X that
know nothing of U. With Q the Ritz vectors of U, v one of them, theta its value and R = S v - theta
v, the pair that is given is v' = S v / theta (a step of subspace iteration, for nothing) with
theta' = theta + |R|^2 / theta, and

    S v' - theta' v' = (S R - v v^T S R) / theta - |R|^2 R / theta^2.

The part of S R within the span of Q is (S Q)^T R, exactly. Of the rest, C R with C = (I - P) S (I -
P) and P the projection on Q and the constant, x^T C R is known for every probe x, because S x is:
p standard normal numbers times its norm, so that `largest_ratio` times their root mean square is
below the norm with a chance of `CLAIM` only. C X shows eigenvalues of C in the same way
(`streamembed.spectral.probes`): one of mu adds mu^2 |X^T v|^2 to one direction of its Gram matrix,
the many small ones alike to all, so that the spread of its eigenvalues bounds mu.

Source: docs/algorithms/trial-space.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy

from streamembed.numeric.arrays import Array, Floats
from streamembed.spectral.probes import MISS
from streamembed.spectral.trial_space import solve_pencil

# Chance that the norm of a residual is more than its claim.
CLAIM = 1e-4
# A value of S beyond 1 by so much is no rounding: nothing is claimed.
BEYOND_ONE = 1e-3
# Rounding of kept products, in units of the precision.
LOSS = 16.0


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
    strength: float  # X is at least so many times as long as standard normal columns


def look(
    trial: Array,
    trial_images: Array,
    probes: Array,
    probe_images: Array,
    constant: Floats,
    strength: float,
    count: int,
    floor: float = 0.0,
    inner: Floats | None = None,
    least: float = 0.0,
) -> SketchedView:
    """The first ``count`` pairs of a trial space; nothing is claimed where a value exceeds 1.

    Parameters
    ----------
    trial, trial_images, probes, probe_images
        U (c, n), S U, X (p, n) and S X, as rows; U of any length, X normal.
    constant
        v_0, shape (n,), S v_0 = v_0; or S v_0 = 0, where all rows are orthogonal to it.
    strength
        The least standard deviation of a probe in any direction.
    floor
        Values up to it are rounding.
    inner
        U S [U^T, X^T], shape (c, c + p), where it is known.
    least
        Squared length of functions that are left out: they have faded, and their images are the
        rounding of what they were.
    """
    dtype, eps = trial.dtype, LOSS * float(np.finfo(trial.dtype).eps)
    unit = constant.astype(dtype)
    overlap, drawn = (trial @ unit).astype(np.float64), (probes @ unit).astype(np.float64)

    def apply(left: Array, right: Array) -> Floats:
        return (left @ right.T).astype(np.float64)

    if inner is None:
        inner = np.concatenate([apply(trial, trial_images), apply(trial, probe_images)], axis=1)
    inner = inner - np.outer(overlap, np.concatenate([overlap, drawn]))
    ritz, mix = solve_pencil(inner[:, : len(trial)], apply(trial, trial), overlap, least)
    images_gram = apply(trial_images, trial_images) - np.outer(overlap, overlap)
    coupling = mix.T @ images_gram @ mix - np.diag(ritz**2)
    k = min(count, int(np.count_nonzero(ritz > max(eps, floor))))
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
    within = mix.T @ apply(trial_images, residuals) - np.outer(shift, residuals @ unit)
    y = mix.T @ (apply(trial, probes) - np.outer(overlap, drawn))  # Q^T X
    sketch = apply(probe_images, residuals) - y.T @ within
    within[np.arange(k), np.arange(k)] = 0.0
    rows = np.concatenate([within, largest_ratio(len(probes), CLAIM) / strength * sketch])
    errors = rows / theta
    lengths = np.sqrt(np.einsum("ij,ij->j", errors, errors))
    further = sizes**1.5 / theta**2 + eps
    errors *= (lengths + further) / np.maximum(lengths, 1e-300)
    norms = np.sqrt(1.0 + sizes / theta**2)
    values = theta + sizes / theta
    if values.max(initial=0.0) > 1.0 + BEYOND_ONE:
        errors[:] = 1.0
    # C X: its Gram matrix has a spike for every large eigenvalue that the space lacks
    coefficients = (mix @ y).T
    rest = probe_images - coefficients.astype(dtype) @ trial_images
    back = mix @ (mix.T @ inner[:, len(trial) :] - ritz[:, None] * y)  # its part in Q
    rest -= back.T.astype(dtype) @ trial
    rest -= (rest @ unit)[:, None] * unit  # all that is left of the constant
    spread = np.linalg.eigvalsh(apply(rest, rest))
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
        strength=strength,
    )


@cache
def largest_ratio(p: int, chance: float) -> float:
    """By how much a norm may exceed the root mean square of p normal numbers times it.

    As a factor of the root of the sum of their squares.

    Examples
    --------
    >>> round(4.0 * largest_ratio(16, 1e-4), 2)  # of the root mean square
    2.4
    """
    return float(1.0 / np.sqrt(2.0 * scipy.special.gammaincinv(0.5 * p, chance)))
