"""Coordinates of new points beside those of a support: classical scaling, kernel PCA, lle, Isomap.

Nothing of a walk is in these: rows of a centred matrix, weights that rebuild a point, or shortest
paths over its neighbours place it. Coverage is how near its neighbours are, beside a typical
point's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from streamembed.errors import BadRowError, InputError
from streamembed.manifold import barycentric, centred, geodesics
from streamembed.methods.extension import FARTHEST, TILE, sampled
from streamembed.numeric.arrays import Floats
from streamembed.numeric.linalg import squared_distances

__all__ = [
    "BarycentricExtension",
    "CentredExtension",
    "GeodesicExtension",
    "nearness",
    "reach_of",
    "typical_reach",
]


@dataclass(frozen=True, slots=True, eq=False)
class CentredExtension:
    """Coordinates of new points in a space of centred rows: classical scaling and kernel PCA.

    y(x) = (h(x) - mean row - its own mean) diag(m) Y / v. At a point of the support these are its
    coordinates, and new points of the same space keep their distances.

    Attributes
    ----------
    points : (N, d)
        As the rows see them.
    center, scale : (d,)
        Of the caller's units.
    rows : callable
        (points (b, d), squared distances (b, N)) -> rows of H, shape (b, N).
    mean_row, shares : (N,)
        p^T H, and p = m / M.
    targets : (N, k)
        diag(m) Y / v.
    n_neighbors : int
        Coverage looks at the distance to this neighbour, ...
    typical : float
        ... relative to that of a typical point.
    """

    points: Floats
    center: Floats
    scale: Floats
    rows: Callable[[Floats, Floats], Floats]
    mean_row: Floats
    shares: Floats
    targets: Floats
    n_neighbors: int
    typical: float

    def coordinates(self, points: Floats) -> Floats:
        """Shape (n, k), of points (n, d) in the caller's units. O(N (d + k))."""
        return self.with_coverage(points)[0]

    def with_coverage(self, points: Floats) -> tuple[Floats, Floats]:
        """`coordinates`, and coverage, shape (n,): 1 up to the reach of a typical point."""
        coordinates = np.empty((len(points), self.targets.shape[1]))
        coverage = np.empty(len(points))
        for start in range(0, len(points), TILE):
            tile = slice(start, start + TILE)
            with np.errstate(over="ignore", under="ignore"):
                scaled = (points[tile] - self.center) / self.scale
                d2 = np.minimum(squared_distances(scaled, self.points, 0.0), FARTHEST)
            coordinates[tile] = self._place(self.rows(scaled, d2))
            coverage[tile] = self._coverage(d2)
        return coordinates, coverage

    def from_distances(self, d: Floats) -> tuple[Floats, Floats]:
        """Both, by unsquared distances to the support, shape (n, N); all must be finite."""
        if not np.isfinite(d).all():
            raise BadRowError(
                "a distance is inf, which this method cannot place: give all distances to the "
                "support"
            )
        coordinates = np.empty((len(d), self.targets.shape[1]))
        coverage, nothing = np.empty(len(d)), np.zeros((len(d), 0))
        for start in range(0, len(d), TILE):
            tile = slice(start, start + TILE)
            d2 = np.minimum(d[tile] ** 2, FARTHEST)
            coordinates[tile] = self._place(self.rows(nothing[tile], d2))
            coverage[tile] = self._coverage(d2)
        return coordinates, coverage

    def _place(self, rows: Floats) -> Floats:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            placed = centred.center_rows(rows, self.mean_row, self.shares) @ self.targets
        result: Floats = np.nan_to_num(placed, nan=0.0)
        return result

    def _coverage(self, d2: Floats) -> Floats:
        return nearness(d2, self.n_neighbors, self.typical)


@dataclass(frozen=True, slots=True, eq=False)
class BarycentricExtension:
    """Coordinates of new points by the weights that rebuild them from their neighbours.

    Attributes
    ----------
    points : (N, d)
        As distances see them.
    center, scale : (d,)
        Of the caller's units.
    targets : (N, k)
        Coordinates.
    n_neighbors, reg : int, float
        K and the ridge.
    typical : float
        As in `CentredExtension`.
    """

    points: Floats
    center: Floats
    scale: Floats
    targets: Floats
    n_neighbors: int
    reg: float
    typical: float

    def coordinates(self, points: Floats) -> Floats:
        """Shape (n, k), of points (n, d) in the caller's units. O(N d + K^3)."""
        with np.errstate(over="ignore", under="ignore"):
            scaled = (points - self.center) / self.scale
        return barycentric.extend(scaled, self.points, self.targets, self.n_neighbors, self.reg)

    def with_coverage(self, points: Floats) -> tuple[Floats, Floats]:
        """`coordinates`, and coverage, shape (n,): 1 up to the reach of a typical point."""
        coverage = np.empty(len(points))
        for start in range(0, len(points), TILE):
            tile = slice(start, start + TILE)
            with np.errstate(over="ignore", under="ignore"):
                scaled = (points[tile] - self.center) / self.scale
                d2 = np.minimum(squared_distances(scaled, self.points, 0.0), FARTHEST)
            coverage[tile] = nearness(d2, self.n_neighbors, self.typical)
        return self.coordinates(points), coverage

    def from_distances(self, d: Floats) -> tuple[Floats, Floats]:
        """Distances to the support do not say how neighbours lie to one another."""
        raise InputError(
            "locally linear embedding has no transform of distances: its weights come from "
            "coordinates; use transform"
        )


@dataclass(frozen=True, slots=True, eq=False)
class GeodesicExtension:
    """Coordinates of new points by their shortest paths: over their neighbours to all others.

    Attributes
    ----------
    points, center, scale, mean_row, shares, targets, n_neighbors, typical
        As in `CentredExtension`.
    lengths : (N, N)
        Of shortest paths; inf between parts.
    radius : float
        Neighbours are all within it, and the nearest; 0 where there are n_neighbors of them.
    """

    points: Floats
    center: Floats
    scale: Floats
    lengths: Floats
    mean_row: Floats
    shares: Floats
    targets: Floats
    n_neighbors: int
    radius: float
    typical: float

    def coordinates(self, points: Floats) -> Floats:
        """Shape (n, k), of points (n, d) in the caller's units. O(N (d + K + k)); 0 apart."""
        return self.with_coverage(points)[0]

    def with_coverage(self, points: Floats) -> tuple[Floats, Floats]:
        """`coordinates`, and coverage, shape (n,): 1 up to the reach of a typical point."""
        coordinates = np.empty((len(points), self.targets.shape[1]))
        coverage = np.empty(len(points))
        for start in range(0, len(points), TILE):
            tile = slice(start, start + TILE)
            with np.errstate(over="ignore", under="ignore"):
                scaled = (points[tile] - self.center) / self.scale
                d2 = np.minimum(squared_distances(scaled, self.points, 0.0), FARTHEST)
            coordinates[tile] = self._place(np.sqrt(d2))
            coverage[tile] = nearness(d2, self.n_neighbors, self.typical)
        return coordinates, coverage

    def from_distances(self, d: Floats) -> tuple[Floats, Floats]:
        """Both, by unsquared distances to the support, shape (n, N); inf is no neighbour."""
        coordinates = np.empty((len(d), self.targets.shape[1]))
        coverage = np.empty(len(d))
        for start in range(0, len(d), TILE):
            tile = slice(start, start + TILE)
            coordinates[tile] = self._place(d[tile])
            d2 = np.minimum(d[tile] ** 2, FARTHEST)
            coverage[tile] = nearness(d2, self.n_neighbors, self.typical)
        return coordinates, coverage

    def _place(self, d: Floats) -> Floats:
        most = d.shape[1] if self.radius else min(self.n_neighbors, d.shape[1])
        near = np.argpartition(d, most - 1, axis=1)[:, :most] if most < d.shape[1] else None
        if near is None:
            near = np.broadcast_to(np.arange(d.shape[1]), d.shape)
        d_near = np.take_along_axis(d, near, axis=1)
        if self.radius:
            nearest = d_near.min(axis=1, keepdims=True)
            far = (d_near > self.radius) & (d_near > nearest)
            near = np.where(far, -1, near)
        lengths = geodesics.extend(d_near, near.astype(np.int32), self.lengths)
        reached = np.isfinite(lengths) | (self.shares == 0)
        joined = reached.all(axis=1)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            known = np.where(np.isfinite(lengths), np.minimum(lengths, np.sqrt(FARTHEST)), 0.0)
            rows = -0.5 * known**2
            placed = centred.center_rows(rows, self.mean_row, self.shares) @ self.targets
        placed[~joined] = 0.0
        result: Floats = np.nan_to_num(placed, nan=0.0)
        return result


def nearness(d2: Floats, n_neighbors: int, typical: float) -> Floats:
    """min(1, typical / distance to the n-th neighbour), of squared distances (b, N)."""
    k = min(n_neighbors, d2.shape[1])
    reaches = np.sqrt(np.partition(d2, k - 1, axis=1)[:, k - 1])
    coverage: Floats = np.ones(len(d2))
    np.divide(typical, reaches, out=coverage, where=reaches > typical)
    return coverage


def typical_reach(points: Floats, n_neighbors: int) -> float:
    """The median distance of points (N, d) to the n-th nearest other."""
    with np.errstate(over="ignore", under="ignore"):
        d2 = squared_distances(points[sampled(len(points))], points, 0.0)
    return reach_of(np.minimum(d2, FARTHEST), n_neighbors)


def reach_of(d2: Floats, n_neighbors: int) -> float:
    """The same of squared distances (b, N) that include the points themselves."""
    k = min(n_neighbors, d2.shape[1] - 1)
    return float(np.median(np.sqrt(np.partition(d2, k, axis=1)[:, k])))
