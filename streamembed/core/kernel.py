"""Distances to affinities: the Gaussian kernel and the rule that chooses its bandwidth."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from streamembed.core.arrays import Array, Floats

__all__ = ["choose_bandwidth", "gaussian", "gaussian_rows", "squared_distances"]

# The neighbour whose distance sets the scale: Zelnik-Manor & Perona (2004), "Self-tuning
# spectral clustering", found 7 to serve from images to text, and so do the scenarios here.
NEIGHBOUR = 7


def squared_distances(left: Floats, right: Floats, loss: float = 1e-6) -> Floats:
    """Squared Euclidean distances between the rows of two arrays.

    Parameters
    ----------
    left, right
        Shapes (a, d) and (b, d), finite, best centred near the origin.
    loss
        What the result may be off by, absolute; 0 for the rounding of the differences alone.

    Returns
    -------
    Shape (a, b), non-negative. One matrix product; where the norms are so large beside the
    distances that the expanded form would lose more than ``loss``, differences are taken one by
    one instead.

    Examples
    --------
    >>> import numpy as np
    >>> squared_distances(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]])).tolist()
    [[25.0]]
    """
    left2 = np.einsum("ij,ij->i", left, left)
    right2 = np.einsum("ij,ij->i", right, right)
    largest = max(left2.max(initial=0.0), right2.max(initial=0.0))
    if largest * np.finfo(np.float64).eps > loss:
        exact: Floats = cdist(left, right, "sqeuclidean")
        return exact
    d2 = left @ right.T
    d2 *= -2.0
    d2 += left2[:, None]
    d2 += right2
    return np.maximum(d2, 0.0, out=d2)


def gaussian(d2: Array, bandwidth: float) -> Array:
    """exp(-d2 / bandwidth**2), in the dtype of ``d2``; 0 where that is no normal number.

    Denormal weights are nothing beside the 1 on the diagonal, and a product with a matrix of which
    8 % were denormal was measured 14 times slower.

    Source: Jain, eq. (4). Differs: section 1.1 of the same paper prints the heat weight with a
    positive exponent; the sign here is minus.

    Examples
    --------
    >>> import numpy as np
    >>> gaussian(np.array([0.0]), 2.0).tolist()
    [1.0]
    """
    with np.errstate(over="ignore", under="ignore"):
        scaled = d2 * d2.dtype.type(-1.0 / bandwidth**2)
        weights: Array = np.exp(scaled, out=scaled)
        weights[weights < np.finfo(weights.dtype).tiny] = 0.0
    return weights


def gaussian_rows(
    left: Floats, right: Floats, bandwidth: float, dtype: npt.DTypeLike = np.float64
) -> Array:
    """Kernel rows between two sets of points: shape (a, b), values in [0, 1].

    The distances are always computed in float64; ``dtype`` is that of the exponential and of
    the result (float32 costs a relative error of 1e-7 d2 / bandwidth**2 and a third of the time).
    Whatever the bandwidth, d2 / bandwidth**2 is as exact as that dtype.
    """
    single = np.dtype(dtype) == np.float32
    with np.errstate(over="ignore", under="ignore"):
        loss = float(np.finfo(np.float32).eps) * bandwidth**2 if single else 0.0
        d2 = squared_distances(left, right, loss) / bandwidth**2
        return gaussian(d2.astype(dtype, copy=False), 1.0)


def choose_bandwidth(d: Floats) -> float:
    """The median distance of a point to its 7th nearest neighbour, among the warm-up points.

    A kernel of this width joins a point to its own neighbourhood and no further, whatever the
    shape of the whole; the median pairwise distance, the other usual rule, grows with the
    diameter and glues rings and rolls together (docs/decisions/0003 measures both).

    Parameters
    ----------
    d
        Unsquared distances between the points, as the kernel will see them, shape (n, n). With
        fewer than 8 points the farthest neighbour is taken.

    Returns
    -------
    Positive. Where more than half of those distances are zero (duplicates), the median of the
    positive ones; where no two points differ, 1.0: every width then gives the same kernel.

    Examples
    --------
    >>> import numpy as np
    >>> choose_bandwidth(np.zeros((20, 20)))
    1.0
    """
    neighbour = min(NEIGHBOUR, len(d) - 1)
    nearest = np.partition(d, neighbour, axis=1)[:, neighbour]
    chosen = float(np.median(nearest))
    if chosen > 0:
        return chosen
    positive = d[d > 0]
    return float(np.median(positive)) if positive.size else 1.0
