"""What the kernel sees of points in the caller's units: centred, scaled, at one bandwidth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from streamembed.geometry.kernel import choose_bandwidth
from streamembed.numeric.arrays import Floats

__all__ = ["Scaling", "fit_distances", "fit_points"]

# Deviations below this share of the mean, or below the second in themselves, are rounding.
ROUNDING = 8 * float(np.finfo(np.float64).eps)
NOTHING = 1e-150


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """What the kernel sees: (x - center) / scale, at this bandwidth.

    Attributes
    ----------
    center, scale : (d,)
        In the caller's units; the scale is 1 where a feature is constant, or nothing is scaled.
    bandwidth : float
        sigma of exp(-d2 / sigma**2), in scaled units.
    """

    center: Floats
    scale: Floats
    bandwidth: float

    def apply(self, points: Floats) -> Floats:
        """Points (n, d) as the kernel sees them."""
        with np.errstate(over="ignore", under="ignore"):
            result: Floats = (points - self.center) / self.scale
        return result


def fit_points(
    points: Floats, masses: Floats, standardise: bool, bandwidth: float | None
) -> Scaling:
    """Scaling of weighted points.

    Parameters
    ----------
    points, masses
        Shapes (n, d) and (n,).
    standardise
        Whether features are divided by their standard deviation.
    bandwidth
        None to choose it from the scaled points.
    """
    shares = (masses / masses.sum())[:, None]
    center = (points * shares).sum(axis=0)
    scale = np.ones(points.shape[1])
    if standardise:
        extent = np.abs(points - center).max(axis=0)
        varies = extent > np.maximum(ROUNDING * np.abs(center), NOTHING)
        safe = np.where(varies, extent, 1.0)
        squares = (((points - center) / safe) ** 2 * shares).sum(axis=0)
        scale = np.where(varies, safe * np.sqrt(squares), 1.0)
    if bandwidth is None:
        scaled = Scaling(center, scale, 1.0).apply(points)
        bandwidth = choose_bandwidth(cdist(scaled, scaled))
    return Scaling(center, scale, bandwidth)


def fit_distances(d: Floats, bandwidth: float | None) -> Scaling:
    """Distances (n, n) are taken as they are; only a bandwidth of None is chosen."""
    chosen = choose_bandwidth(d) if bandwidth is None else bandwidth
    return Scaling(np.zeros(0), np.ones(0), chosen)
