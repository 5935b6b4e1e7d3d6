"""Points as the kernel sees them: centred and scaled from the caller's units, at one bandwidth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from scipy.spatial.distance import cdist

from streamembed.geometry.kernel import choose_bandwidth
from streamembed.numeric.arrays import Bools, Floats

# Beyond these powers a squared distance over a squared bandwidth leaves the doubles.
SMALLEST_BANDWIDTH, LARGEST_BANDWIDTH = 1e-100, 1e100

EPS = float(np.finfo(np.float64).eps)
# Deviations of n points below n, and at least this many, last bits of the mean are rounding: a
# gap that was filled with a mean of n equal values is off by as much. Below the second all are.
FEWEST_BITS = 8
NEGLIGIBLE = 1e-150
# Of the median deviation: a feature that has hardly varied so far would rule the distances as soon
# as it does (docs/decisions/0012).
LEAST_SHARE = 0.3


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """The input scaling of the kernel: (x - center) / scale, at this bandwidth."""

    # In the caller's units; the scale is 1 where nothing is scaled.
    center: Annotated[Floats, "d"]
    scale: Annotated[Floats, "d"]
    # sigma of exp(-d2 / sigma**2), in scaled units; where every point has a width s of its own,
    # sqrt(c) times the median of them when the scaling was fitted: nothing is computed from it.
    bandwidth: float

    def apply(self, points: Floats) -> Floats:
        """Points (n, d) as the kernel sees them."""
        with np.errstate(over="ignore", under="ignore"):
            result: Floats = (points - self.center) / self.scale
        return result

    def of_bandwidth(self, bandwidth: float) -> Self:
        """The same with another one, or the nearest of the bounds of bandwidths."""
        return replace(self, bandwidth=min(max(bandwidth, SMALLEST_BANDWIDTH), LARGEST_BANDWIDTH))


def fit_points(
    points: Floats,
    masses: Floats,
    scaling: str | None,
    bandwidth: float | None,
    least_share: float = 0.0,
) -> Scaling:
    """Scaling of weighted points.

    Parameters
    ----------
    points, masses
        Shapes (n, d) and (n,).
    scaling
        "standard": features are divided by their standard deviations; "global": all by one, the
        root mean square of these; None: by nothing.
    bandwidth
        None to choose it from the scaled points.
    least_share
        Of the median deviation, which no divisor is below: usually 0 or `LEAST_SHARE`. With 0,
        features that do not vary are left as they are.
    """
    shares = (masses / masses.sum())[:, None]
    # from the first point: a constant feature then deviates by exactly 0, however many points sum
    # up
    deviations = points - points[0]
    step = (deviations * shares).sum(axis=0)
    center = points[0] + step
    scale = np.ones(points.shape[1])
    if scaling is not None:
        deviations -= step
        extent = np.abs(deviations).max(axis=0)
        varies = _find_varying(center, extent, len(points))
        safe = np.where(varies, extent, 1.0)
        squares = ((deviations / safe) ** 2 * shares).sum(axis=0)
        scale = _choose_divisors(safe * np.sqrt(squares), varies, scaling, least_share)
    fitted = Scaling(center, scale, 1.0)
    if bandwidth is None:
        scaled = fitted.apply(points)
        bandwidth = choose_bandwidth(lambda slots: cdist(scaled[slots], scaled), len(scaled))
    return fitted.of_bandwidth(bandwidth)


def choose_divisors(
    center: Floats, deviations: Floats, count: float, scaling: str | None, least_share: float
) -> Floats:
    """What features are divided by, (d,), where only means and deviations of points are known.

    As `fit_points`, but a feature varies where its deviation, and not its largest one, is more
    than rounding.
    """
    if scaling is None:
        return np.ones(len(center))
    varies = _find_varying(center, deviations, count)
    return _choose_divisors(deviations, varies, scaling, least_share)


def _find_varying(center: Floats, extent: Floats, count: float) -> Bools:
    """Which features of ``count`` points vary by more than the rounding of their mean."""
    rounding = max(FEWEST_BITS, count) * EPS
    return extent > np.maximum(rounding * np.abs(center), NEGLIGIBLE)


def _choose_divisors(deviations: Floats, varies: Bools, scaling: str, least_share: float) -> Floats:
    """What features are divided by, of their standard deviations."""
    varying = deviations[varies]
    if not len(varying):
        return np.ones(len(deviations))
    if scaling == "global":
        largest = varying.max()
        return np.full(len(deviations), largest * np.sqrt(np.mean((varying / largest) ** 2)))
    # a feature that does not vary yet may vary later: treat it as one that varies little
    least = least_share * float(np.median(varying)) or 1.0
    divisors = np.where(varies, deviations, least)
    return np.maximum(divisors, least) if least_share else divisors


def fit_distances(d: Floats, bandwidth: float | None) -> Scaling:
    """Distances (n, n) are taken as they are; only a bandwidth of None is chosen."""
    sigma = choose_bandwidth(lambda slots: d[slots], len(d)) if bandwidth is None else bandwidth
    return Scaling(np.zeros(0), np.ones(0), 1.0).of_bandwidth(sigma)
