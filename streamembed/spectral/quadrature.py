"""The negative part of the trace of a symmetric operator, by stochastic Lanczos quadrature.

Source: Golub & Meurant (2010), "Matrices, Moments and Quadrature"; Ubaru, Chen & Saad (2017), "Fast
estimation of tr(f(A)) via stochastic Lanczos quadrature". With T = V diag(theta) V^T the matrix of
a few Lanczos steps from x, x^T f(A) x ~ ||x||^2 sum_i V_1i^2 f(theta_i). Differs: f(t) = max(-t, 0)
is not smooth, but is 0 on every Ritz value of a positive operator, so that none is seen there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamembed.numeric.arrays import Floats

__all__ = ["negative_trace"]

# Of a column that is left of a Lanczos step, relative to the first: the rest is rounding.
NOTHING = 1e-14
TINY = float(np.finfo(np.float64).tiny)


def negative_trace(
    apply: Callable[[Floats], Floats], starts: Floats, dimension: int, steps: int
) -> float:
    """Sum of the sizes of the negative eigenvalues of A, estimated. ``steps`` products.

    Parameters
    ----------
    apply
        (n, c) -> A @ (n, c), of norm 1 at most.
    starts
        Standard normal columns in the space on which A acts, shape (n, c).
    dimension
        Of that space.

    Examples
    --------
    >>> values = np.linspace(-1.0, 1.0, 400)
    >>> x = np.random.default_rng(0).standard_normal((400, 4))
    >>> found = negative_trace(lambda block: values[:, None] * block, x, 400, 4)
    >>> bool(abs(found / np.maximum(-values, 0.0).sum() - 1.0) < 0.1)
    True
    >>> bool(negative_trace(lambda block: abs(values)[:, None] * block, x, 400, 4) < 1e-12)
    True
    """
    lengths = np.linalg.norm(starts, axis=0)
    if dimension <= 0 or not lengths.any():
        return 0.0
    now, before = starts / np.maximum(lengths, TINY), np.zeros_like(starts)
    beside = np.zeros(starts.shape[1])
    matrices = np.zeros((starts.shape[1], steps, steps))
    for step in range(steps):
        following = apply(now) - beside * before
        matrices[:, step, step] = np.einsum("ij,ij->j", now, following)
        following -= matrices[:, step, step] * now
        beside = np.linalg.norm(following, axis=0)
        beside[beside <= NOTHING] = 0.0
        if step + 1 < steps:
            matrices[:, step, step + 1] = matrices[:, step + 1, step] = beside
        before, now = now, np.divide(following, beside, where=beside > 0, out=0.0 * following)
    thetas, vectors = np.linalg.eigh(matrices)
    negative = np.einsum("cj,cj->c", vectors[:, 0] ** 2, np.maximum(-thetas, 0.0))
    weights = lengths**2
    return float(dimension * (weights @ negative) / weights.sum())
