"""Points as the kernel sees them: centred and scaled from the caller's units, at one bandwidth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
import scipy

from streamembed.geometry.kernel import choose_bandwidth
from streamembed.numeric.arrays import Bools, Floats, Ints

# Beyond these powers a squared distance over a squared bandwidth leaves the doubles.
SMALLEST_BANDWIDTH, LARGEST_BANDWIDTH = 1e-100, 1e100

EPS = float(np.finfo(np.float64).eps)
# Deviations of n points below n, and at least this many, last bits of the mean are rounding: a
# gap that was filled with a mean of n equal values is off by as much. Below the second all are.
FEWEST_BITS = 8
NEGLIGIBLE = 1e-150
# Squares of scaled values below it are no normal numbers: maps of them would be of rounding alone.
SMALLEST = float(np.sqrt(np.finfo(np.float64).tiny))
# Of the median deviation: a feature that has hardly varied so far would rule the distances as soon
# as it does.
LEAST_SHARE = 0.3
# Values this many times farther from the median than all others are errors, such as a -9999 for "no
# data", where they are few: this share of the values that differ from the median, or two; but of
# few values no more than the last share. Heavy tails have no such gap (docs/decisions.md).
GAP = 8.0
ERRORS, FEWEST_ERRORS, MOST_ERRORS = 0.02, 2.0, 0.04
# Points this many times farther from the centre than from one another are centred again: distances
# have lost three of sixteen digits by then, and inner products six.
FAR = 1e3
MOST_SORTED = 128  # features at once
# Rounding of points that sums over them exceed anyway.
SMALLEST_ROUNDING = 1e-12


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
        """Points (n, d) as the kernel sees them; what is too small for a square is 0."""
        with np.errstate(over="ignore", under="ignore"):
            result: Floats = (points - self.center) / self.scale
        result[np.abs(result) < SMALLEST] = 0.0
        return result

    def with_bandwidth(self, bandwidth: float) -> Self:
        """The same with another one, or the nearest of the bounds of bandwidths."""
        return replace(self, bandwidth=min(max(bandwidth, SMALLEST_BANDWIDTH), LARGEST_BANDWIDTH))


def fit_points(
    points: Floats,
    masses: Floats,
    scaling: str | None,
    bandwidth: float | None,
    least_share: float = 0.0,
    divisors: Floats | float = 1.0,
) -> Scaling:
    """Scaling of weighted points, by means and deviations that a few errors cannot move.

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
    divisors
        What "standard" divides features by besides, (d,), see `Features.divisors`. Medians are
        among those of one divisor: the numbers of a vector are in units of their own.
    """
    center, varies, deviations = _measure_spread(points, masses)
    scale = _choose_divisors(varies, deviations, scaling, least_share, divisors)
    fitted = Scaling(center, scale, 1.0)
    if bandwidth is None:
        scaled = fitted.apply(points)
        bandwidth = choose_bandwidth(
            lambda slots: scipy.spatial.distance.cdist(scaled[slots], scaled), len(scaled)
        )
    return fitted.with_bandwidth(bandwidth)


def compare_divisors(
    points: Floats, scaling: str, least_share: float, divisors: Floats, scale: Floats
) -> Floats:
    """How many times as large as ``scale`` the divisors of these points would be, (d,).

    1 of a feature that does not vary. All points count alike.
    """
    _, varies, deviations = _measure_spread(points, np.ones(len(points)))
    fitted = _choose_divisors(varies, deviations, scaling, least_share, divisors)
    return np.where(varies, fitted / scale, 1.0)


def measure_rounding(scaled: Floats, lengths: Floats) -> float:
    """By what share of ``lengths`` (n,) distances from scaled points (n, d) may be off, at most.

    Two operations have rounded each of two points. Lengths of 0 do not count.
    """
    with np.errstate(over="ignore", under="ignore"):
        errors = 2.0 * EPS * np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    shares = np.divide(errors, lengths, out=np.zeros(len(errors)), where=lengths > 0.0)
    most = float(shares.max(initial=0.0))
    return most if most > SMALLEST_ROUNDING else 0.0


def recenter(scaling: Scaling, points: Floats, masses: Floats) -> Scaling:
    """The same scaling about the medians of the points; itself where its centre is near enough."""
    middle, apart, order, sums = _sort_distances(points, masses)
    half = (sums >= 0.5 * sums[-1]).argmax(axis=0)
    spreads = np.take_along_axis(apart, order, 0)[half, np.arange(points.shape[1])]
    with np.errstate(over="ignore"):
        spread = float(np.linalg.norm(spreads / scaling.scale))
        offset = float((np.abs(middle - scaling.center) / scaling.scale).max(initial=0.0))
    return replace(scaling, center=middle) if offset > FAR * spread else scaling


def _choose_divisors(
    varies: Bools,
    deviations: Floats,
    scaling: str | None,
    least_share: float,
    divisors: Floats | float,
) -> Floats:
    """What features are divided by, (d,), by their standard deviations."""
    varying = deviations[varies]
    if scaling is None or not len(varying):
        return np.ones(len(deviations))
    if scaling == "global":
        unit = varying.max()
        return np.full(len(deviations), unit * np.sqrt(np.mean((varying / unit) ** 2)))
    scale = np.array(np.broadcast_to(divisors, len(deviations)))
    for divisor in np.unique(scale):
        own = scale == divisor
        varying = deviations[own & varies]
        # a feature that does not vary yet may vary later: treat it as one that varies little
        least = least_share * float(np.median(varying)) if len(varying) else 0.0
        scale[own] *= np.maximum(np.where(varies, deviations, least or 1.0), least)[own]
    return scale


def _measure_spread(points: Floats, masses: Floats) -> tuple[Floats, Bools, Floats]:
    """Means of points without their errors, which features vary, and deviations, each (d,).

    Each feature by itself, and some at a time: sorting them takes six times their memory.
    """
    parts = np.array_split(points, points.shape[1] // MOST_SORTED + 1, axis=1)
    center, varies, deviations = zip(*(_measure_part(part, masses) for part in parts), strict=True)
    return np.concatenate(center), np.concatenate(varies), np.concatenate(deviations)


def _measure_part(points: Floats, masses: Floats) -> tuple[Floats, Bools, Floats]:
    """`_measure_spread` of some features."""
    points = _clip_outliers(points, masses)
    shares = (masses / masses.sum())[:, None]
    # from the first point: a constant feature then deviates by exactly 0, however many points sum
    # up
    deviations = points - points[0]
    step = (deviations * shares).sum(axis=0)
    center = points[0] + step
    deviations -= step
    extent = np.abs(deviations).max(axis=0)
    rounding = max(FEWEST_BITS, len(points)) * EPS
    varies = extent > np.maximum(rounding * np.abs(center), NEGLIGIBLE)
    safe = np.where(varies, extent, 1.0)
    return center, varies, safe * np.sqrt(((deviations / safe) ** 2 * shares).sum(axis=0))


def _clip_outliers(points: Floats, masses: Floats) -> Floats:
    """Points (n, d), with the values of errors moved to the farthest others. O(n log n d)."""
    middle, apart, order, sums = _sort_distances(points, masses)
    ascending, total = np.take_along_axis(apart, order, 0), sums[-1]
    errors = np.minimum(np.maximum(ERRORS * total, FEWEST_ERRORS), MOST_ERRORS * total)
    with np.errstate(over="ignore"):
        ends = np.ones(apart.shape, dtype=bool)  # where a gap or the column ends
        ends[:-1] = (ascending[1:] > GAP * ascending[:-1]) & (total - sums[:-1] <= errors)
        reach = ascending[ends.argmax(axis=0), np.arange(points.shape[1])]
        limits = middle + np.where(points > middle, reach, -reach)
    return np.where(apart > reach, limits, points)


def _sort_distances(points: Floats, masses: Floats) -> tuple[Floats, Floats, Ints, Floats]:
    """Medians (d,) and distances from them (n, d); their order, and the masses of all up to each.

    Values that equal the median have no mass.
    """
    order = np.argsort(points, axis=0, kind="stable")
    sums = np.cumsum(masses[order], axis=0)
    half = (sums >= 0.5 * sums[-1]).argmax(axis=0)
    columns = np.arange(points.shape[1])
    middle = points[order[half, columns], columns]
    with np.errstate(over="ignore"):
        apart = np.abs(points - middle)
    order = np.argsort(apart, axis=0, kind="stable")
    weights = np.take_along_axis(masses[:, None] * (apart > 0.0), order, 0)
    return middle, apart, order, np.cumsum(weights, axis=0)


def fit_distances(d: Floats, bandwidth: float | None) -> Scaling:
    """Distances (n, n) are taken as they are; only a bandwidth of None is chosen."""
    sigma = choose_bandwidth(lambda slots: d[slots], len(d)) if bandwidth is None else bandwidth
    return Scaling(np.zeros(0), np.ones(0), 1.0).with_bandwidth(sigma)
