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

# Of a column that is left of a Lanczos step, relative to the first: the rest is rounding.
NEGLIGIBLE = 1e-14
TINY = float(np.finfo(np.float64).tiny)


def estimate_negative_trace(
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
    >>> trace = estimate_negative_trace(lambda block: values[:, None] * block, x, 400, 4)
    >>> bool(abs(trace / np.maximum(-values, 0.0).sum() - 1.0) < 0.1)
    True
    >>> positive = np.abs(values)
    >>> bool(estimate_negative_trace(lambda block: positive[:, None] * block, x, 400, 4) < 1e-12)
    True
    """
    lengths = np.linalg.norm(starts, axis=0)
    if dimension <= 0 or not lengths.any():
        return 0.0
    current, previous = starts / np.maximum(lengths, TINY), np.zeros_like(starts)
    off_diagonal = np.zeros(starts.shape[1])
    matrices = np.zeros((starts.shape[1], steps, steps))
    for step in range(steps):
        following = apply(current) - off_diagonal * previous
        matrices[:, step, step] = np.einsum("ij,ij->j", current, following)
        following -= matrices[:, step, step] * current
        off_diagonal = np.linalg.norm(following, axis=0)
        off_diagonal[off_diagonal <= NEGLIGIBLE] = 0.0
        if step + 1 < steps:
            matrices[:, step, step + 1] = matrices[:, step + 1, step] = off_diagonal
        previous = current
        current = np.divide(following, off_diagonal, where=off_diagonal > 0, out=0.0 * following)
    thetas, vectors = np.linalg.eigh(matrices)
    negative = np.einsum("cj,cj->c", vectors[:, 0] ** 2, np.maximum(-thetas, 0.0))
    weights = lengths**2
    return float(dimension * (weights @ negative) / weights.sum())
