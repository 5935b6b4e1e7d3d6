"""ITML that remembers nothing but the metric: the fallback where no buffer fits.

Symbols: v, s, p, A, d as in `bregman`; y = the bound that is violated; eta = step; q = p after it.

It solves another problem than `itml`, one pair at a time: min D(A', A) + eta/2 (q - y)^2. The old
metric is all the memory there is, so that the step has to be small, and the bounds are not met:
its objective is 1.6 to 7.7 times the batch's where a buffer of 50 pairs is at 1.04 to 1.08.
Use it where d^2 numbers are all that may be kept.

Source: docs/algorithms/itml.md; Jain, Kulis, Dhillon & Grauman (2008), Online metric learning and
fast similarity search, NIPS 21.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from streamembed.errors import InputError, ParameterError
from streamembed.metrics import bregman
from streamembed.numeric.arrays import Floats

__all__ = ["Info", "root", "update"]


@dataclass(frozen=True, slots=True)
class Info:
    """What one call did.

    Attributes
    ----------
    updates : int
        Pairs that violated their bound.
    dropped : int
        Pairs of equal points: no metric moves them.
    status : str
        ``ok``; ``refused``: the metric would have left the range of double precision and is the
        one passed in; its rate is too large, or the bounds cannot be met.
    """

    updates: int
    dropped: int
    status: Literal["ok", "refused"]


def root(p: float, y: float, eta: float) -> float:
    """q of the step: the positive root of eta p q^2 - (eta y p - 1) q - p = 0, between p and y.

    Source: Jain et al. (2008), eq. 2. Differs: there the root is printed with a difference that
    cancels for small eta; here it is (c + D) / (2 eta p) or its conjugate, with c = eta y p - 1.
    """
    c = eta * y * p - 1.0
    spread = float(np.hypot(c, 2.0 * np.sqrt(eta) * p))
    return (c + spread) / (2.0 * eta * p) if c > 0 else 2.0 * p / (spread - c)


def update(
    matrix: Floats,
    differences: npt.ArrayLike,
    similar: npt.ArrayLike,
    upper: float,
    lower: float,
    rate: float = 0.1,
) -> tuple[Floats, Info]:
    """The metric after one step for each pair that violates its bound.

    Parameters
    ----------
    matrix
        A, shape (d, d), positive definite.
    differences, similar, upper, lower
        As `itml.update`: bounds are on squared distances.
    rate
        eta = rate / lower^2, positive. No one value suits all data: 0.01 was best on letter and
        segment, 1 on wine and wdbc.

    Returns
    -------
    A, shape (d, d), symmetric, positive definite, and what was done; the argument is untouched.
    O(d^2) a pair and O(d^3) a call.

    Raises
    ------
    InputError, FeatureError, ParameterError
        As `itml.update`; a matrix that is not (d, d) and finite; a rate that is not positive.

    Source: Jain et al. (2008), algorithm 1. Differs: 1. the stable `root`, and the step written by
    it, 1 + eta (q - y) p = p / q, so that A stays positive definite at any rate. 2. Only violated
    bounds move A. 3. The rate is relative to the bounds.

    Examples
    --------
    >>> import numpy as np
    >>> A, info = update(np.eye(2), [[3.0, 0.0]], [True], upper=1.0, lower=4.0)
    >>> bool(1.0 / 9.0 < A[0, 0] < 1.0), info.updates
    (True, 1)
    """
    if np.ndim(matrix) != 2 or matrix.shape[0] != matrix.shape[1] or not np.isfinite(matrix).all():
        raise InputError(f"matrix, of shape {np.shape(matrix)}, must be (d, d) and finite")
    if not (np.isfinite(rate) and rate > 0):
        raise ParameterError(f"rate={rate} must be positive: 0.1 is a good start")
    pairs, dropped = bregman.check_pairs(differences, similar, upper, lower, len(matrix))
    eta = rate / lower**2
    A, updates = matrix.copy(), 0
    with np.errstate(all="ignore"):
        for v, near, y in zip(pairs.differences, pairs.similar, pairs.bounds, strict=True):
            image = A @ v
            p = float(v @ image)
            if not p >= bregman.SMALLEST or (p <= y if near else p >= y):
                continue
            q = root(p, float(y), eta)
            image *= np.sqrt(abs(eta * (q - y) * q / p))
            A -= np.copysign(1.0, q - y) * np.outer(image, image)
            updates += 1
    if not bregman.is_positive_definite(A):
        return matrix.copy(), Info(0, dropped, "refused")
    return A, Info(updates, dropped, "ok")
