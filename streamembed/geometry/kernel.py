"""Distances to affinities: the Gaussian kernel and the rule that chooses its bandwidth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from streamembed.numeric.arrays import Array, Floats, Ints

# The neighbour whose distance sets the scale: Zelnik-Manor & Perona (2004), "Self-tuning
# spectral clustering", found 7 to serve from images to text, and so do the scenarios here.
NEIGHBOUR = 7
ROWS = 256  # of distances at a time
LARGEST_ENTRY = 1e300
# Of a polynomial kernel.
LARGEST_DEGREE, LARGEST_COEFFICIENT = 20, 1e6


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


def polynomial_rows(left: Floats, right: Floats, degree: int, coef0: float, gamma: float) -> Floats:
    """(gamma x y + coef0)**degree between two sets of points: shape (a, b).

    Source: Schoelkopf, Smola & Mueller (1998), section 4; parameters are scikit-learn's. Differs:
    nothing is larger than 1e300, in either direction, so that sums stay finite.
    """
    limit = LARGEST_ENTRY ** (1.0 / degree)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        products = np.nan_to_num(gamma * (left @ right.T) + coef0, nan=0.0)
        rows: Floats = np.clip(products, -limit, limit) ** degree
    return rows


def cosine_rows(left: Floats, right: Floats) -> Floats:
    """x y / (||x|| ||y||) between two sets of points: shape (a, b); 0 where a point is 0."""
    units = []
    for points in (left, right):
        largest = np.abs(points).max(axis=1, initial=0.0)[:, None]
        shrunk = np.divide(points, largest, out=np.zeros_like(points), where=largest > 0)
        lengths = np.linalg.norm(shrunk, axis=1)[:, None]
        units.append(np.divide(shrunk, lengths, out=np.zeros_like(shrunk), where=lengths > 0))
    rows: Floats = units[0] @ units[1].T
    return rows


def choose_bandwidth(read_rows: Callable[[Ints], Floats], n: int) -> float:
    """The median distance of a point to its 7th nearest neighbour, among the warm-up points.

    A kernel of this width joins a point to its own neighbourhood and no further, whatever the
    shape of the whole; the median pairwise distance, the other usual rule, grows with the
    diameter and glues rings and rolls together (docs/decisions.md measures both).

    Parameters
    ----------
    read_rows
        Of the n points: slots -> their unsquared distances to all, as the kernel will see them,
        shape (b, n). With fewer than 8 points the farthest neighbour is taken.

    Returns
    -------
    Positive. Where more than half of those distances are zero (duplicates), the median of the
    positive ones; where no two points differ, 1.0: every width then gives the same kernel.

    Examples
    --------
    >>> import numpy as np
    >>> choose_bandwidth(lambda slots: np.zeros((len(slots), 20)), 20)
    1.0
    """
    neighbour = min(NEIGHBOUR, n - 1)
    parts = [np.arange(i, min(i + ROWS, n)) for i in range(0, n, ROWS)]
    nearest = [np.partition(read_rows(part), neighbour, axis=1)[:, neighbour] for part in parts]
    bandwidth = float(np.median(np.concatenate(nearest)))
    if bandwidth > 0:
        return bandwidth
    rows = (read_rows(part) for part in parts)
    positive = np.concatenate([part[part > 0] for part in rows])
    return float(np.median(positive)) if positive.size else 1.0


@dataclass(frozen=True, slots=True)
class KernelFunction:
    """A kernel by its name and numbers: gaussian, polynomial or cosine."""

    kernel: str
    degree: int
    coef0: float
    gamma: float | None

    def gamma_of(self, n_features: int) -> float:
        """What products are multiplied by: 1 / n_features unless it was given."""
        return 1.0 / max(n_features, 1) if self.gamma is None else self.gamma

    def between(self, left: Floats, right: Floats) -> Floats:
        """Rows of the kernel of inner products between points, shape (a, b)."""
        if self.kernel == "cosine":
            return cosine_rows(left, right)
        return polynomial_rows(left, right, self.degree, self.coef0, self.gamma_of(left.shape[1]))
