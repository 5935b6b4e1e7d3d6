"""The separation of far pairs under a metric: the smallest squared distance.

Symbols: q = squared distances of n far pairs under a metric A, tr(A H) = d; w = weights,
G(w) = sum w delta delta^T; lambda = lambda_max(G(w), H). The smallest q is concave in A.

Source: docs/algorithms/eig-dml.md; Phillips, Metric Learning, section 17.3.
"""

from __future__ import annotations

import numpy as np

from streamembed.numeric.arrays import Floats

# Far pairs below this share of the largest weight add nothing to G; what is left is normalised,
# so that the bound remains one.
ACTIVE = 1e-10
# The sharpest soft minimum, as a share of the mean q: below, q is rounding.
LEAST = 1e-12


def soft_minimum(values: Floats, sigma: float) -> tuple[float, Floats]:
    """A smooth function between min q and min q + sigma log n, and its gradient.

    f_sigma = q_min - sigma log((1/n) sum exp(-(q - q_min) / sigma)), finite for every sigma > 0.

    Parameters
    ----------
    values
        q, shape (n,), n at least 1.
    sigma
        In units of q.

    Returns
    -------
    f_sigma and alpha (n,), which sums to 1.

    Source: Phillips, section 17.3, g_sigma. Differs: shifted by q_min; without it every term
    underflows once q / sigma exceeds 745, which sigma = d 1e-5 does on any data.

    Examples
    --------
    >>> import numpy as np
    >>> value, weights = soft_minimum(np.array([1.0, 1.0, 9.0]), 1e-3)
    >>> weights.tolist(), value > 1.0
    ([0.5, 0.5, 0.0], True)
    """
    sigma = min(max(sigma, np.finfo(np.float64).tiny), np.finfo(np.float64).max)
    least = float(values.min())
    with np.errstate(over="ignore", under="ignore"):
        shifted = (least - values) / sigma
        weights = np.exp(shifted)
        value = least - sigma * float(np.log1p(np.expm1(shifted).mean()))
    return value, weights / weights.sum()


def compute_softmin_weights(values: Floats, smoothing: float) -> Floats:
    """Weights of the soft minimum, sigma relative to the smallest value; negligible ones are 0."""
    scale = max(float(values.min()), LEAST * float(values.mean()))
    with np.errstate(over="ignore", under="ignore"):
        _, weights = soft_minimum(values, smoothing * scale)
    weights[weights < ACTIVE * weights.max()] = 0.0
    normalised: Floats = weights / weights.sum()
    return normalised


def bound_smallest(top: float, weights: Floats) -> float:
    """min q <= sum alpha q = <G(alpha), A> <= d lambda, for any alpha of sum 1: weak duality."""
    total = float(weights.sum())
    return top / total if total > 0 else np.inf
