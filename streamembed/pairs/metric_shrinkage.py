"""Shrinking a learned metric towards the identity by how well it reproduces on half the events.

Symbols: A = the metric learned from all events, A_1 and A_2 = from two halves, (d, d), positive
definite; L = log A - (tr log A / d) I, the trace-free logarithm; s = the shrink factor.

A metric learned from pairs that an unlabelled embedding separates may be noise. Two halves of the
events, each with an embedding and pairs of its own, make two metrics; where they stretch the same
directions, s is near 1 and A stays; where they do not, s is 0 and A becomes the identity. Halves of
the pairs of one embedding would not do: they share its noise, and reproduce it (measured on the
page: s up to .6 on a uniform grid, where there is nothing to learn).

Source: docs/algorithms/unsupervised.md (own; measured there).
"""

from __future__ import annotations

import numpy as np

from streamembed.errors import InputError
from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.numeric.linalg import descending_eigh

# Eigenvalues below this share of the largest are raised to it: rounding would choose their
# logarithm.
FLOOR = 1e-12
# A trace-free logarithm shorter than this is rounding: the metric is a multiple of the identity.
FLAT = 1e-10
# 2^64 over the golden ratio: consecutive seeds are far apart.
GOLDEN = 0x9E3779B97F4A7C15


def compute_trace_free_log(matrix: Floats) -> Floats:
    """L = log A - (tr log A / d) I, shape (d, d), symmetric; the same for every multiple of A.

    Raises
    ------
    InputError
        A is not a finite square matrix with a positive eigenvalue.
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"the metric has shape {matrix.shape}; it must be (d, d)")
    if not np.isfinite(matrix).all():
        raise InputError("the metric has NaN or infinities; it must be finite")
    values, vectors = descending_eigh(matrix)
    if len(values) == 0 or values[0] <= 0:
        raise InputError("the metric has no positive eigenvalue; it must be positive definite")
    logs = np.log(np.maximum(values / values[0], FLOOR))
    result: Floats = (vectors * (logs - logs.mean())) @ vectors.T
    return 0.5 * (result + result.T)


def compute_factor(first: Floats, second: Floats) -> float:
    """s = max(0, cosine between the trace-free logarithms of A_1 and A_2), in [0, 1].

    0 where either is a multiple of the identity.

    Examples
    --------
    >>> import numpy as np
    >>> compute_factor(np.diag([1.0, 4.0]), np.diag([1.0, 9.0]))
    1.0
    >>> compute_factor(np.diag([1.0, 4.0]), np.diag([9.0, 1.0]))
    0.0
    """
    logs = [compute_trace_free_log(matrix) for matrix in (first, second)]
    norms = [float(np.linalg.norm(log)) for log in logs]
    if min(norms) <= FLAT:
        return 0.0
    cosine = float(np.sum((logs[0] / norms[0]) * (logs[1] / norms[1])))
    return min(max(cosine, 0.0), 1.0)


def temper(matrix: Floats, s: float) -> Floats:
    """exp(s L), shape (d, d), of determinant 1: the identity for s = 0.

    Examples
    --------
    >>> import numpy as np
    >>> temper(np.diag([1.0, 16.0]), 0.5).round(12).tolist()
    [[0.5, 0.0], [0.0, 2.0]]
    """
    log = compute_trace_free_log(matrix)
    if s == 0.0:
        return np.eye(len(log))
    values, vectors = descending_eigh(log)
    result: Floats = (vectors * np.exp(s * values)) @ vectors.T
    return 0.5 * (result + result.T)


def split_halves(positions: Ints, seed: int) -> Bools:
    """Which events of a stream belong to the first half, shape (n,).

    Of the positions 2 k and 2 k + 1 one goes to either half, by a coin drawn from (seed, k): the
    halves are of one size at every moment, and periods of the stream do not fall into one of them.

    Parameters
    ----------
    positions
        Stream positions, int64, non-negative.

    Examples
    --------
    >>> import numpy as np
    >>> first = split_halves(np.arange(1000), seed=0)
    >>> int(first.sum()), bool(np.any(first[::2])), bool(np.any(first[1::2]))
    (500, True, True)
    """
    # splitmix64 (Steele et al., 2014): every bit of the result depends on every bit of the input
    mixed = (positions // 2).astype(np.uint64) + np.uint64((seed * GOLDEN) % 2**64)
    for shift, factor_ in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor_)
    coin = (mixed ^ (mixed >> np.uint64(31))) & np.uint64(1)
    first: Bools = coin.astype(np.int64) == positions % 2
    return first
