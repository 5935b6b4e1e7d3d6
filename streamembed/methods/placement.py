"""Coordinates of new points beside those of a support: classical scaling, kernel PCA, lle, Isomap.

Nothing of a walk is in these: rows of a centred matrix, weights that reconstruct a point, or
shortest paths over its neighbours place it. Coverage is how near its neighbours are, beside a
typical point's.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from streamembed.errors import BadRowError, InputError
from streamembed.geometry import kernel
from streamembed.geometry.kernel import KernelFunction
from streamembed.layout.forces import compute_affinities
from streamembed.layout.placing import place_outside
from streamembed.manifold import barycentric, geodesics
from streamembed.methods.extension import FARTHEST, Extension, sample_distances
from streamembed.methods.snapshot_contents import SnapshotContents
from streamembed.numeric.arrays import Floats

# Neighbours of points that are added to a picture together: some 5 MB for each.
MOST_PLACES = 2000


class _NeighborExtension(Extension):
    """Coverage by the distance to a neighbour, relative to a ``typical`` point's: 1 up to that."""

    def __init__(
        self, snapshot: SnapshotContents, targets: Floats, n_neighbors: int, typical: float = 0.0
    ) -> None:
        super().__init__(snapshot, targets, typical)
        self.n_neighbors = n_neighbors  # coverage looks at the distance to this one

    def _compute_coverage(self, scaled: Floats, d2: Floats) -> Floats:
        return compute_coverage(d2, self.n_neighbors, self._typical)

    @cached_property
    def _typical(self) -> float:
        """Or the median distance of these points, when it is asked for."""
        if self.typical:
            return self.typical
        d2 = np.minimum(sample_distances(self.points, 0.0), FARTHEST)
        return measure_neighbor_distance(d2, self.n_neighbors)


class CentredExtension(_NeighborExtension):
    """Coordinates of new points in a space of centred rows: classical scaling and kernel PCA.

    y(x) = (h(x) - mean row - its own mean) diag(m) Y / v. At a point of the support these are its
    coordinates, and new points of the same space keep their distances. O(N (d + k)) a point.
    """

    def __init__(self, snapshot: SnapshotContents) -> None:
        masses = snapshot.masses
        targets = compute_dual(snapshot, masses)
        super().__init__(snapshot, targets, snapshot.n_neighbors, snapshot.typical_coverage)
        # (N,): p^T H, and p = m / M
        self.mean_row, self.shares = snapshot.degrees / masses.sum(), masses / masses.sum()
        self.kernel, self.bandwidth = snapshot.kernel, snapshot.bandwidth
        numbers = snapshot.degree, snapshot.coef0, snapshot.gamma
        self.function = KernelFunction(snapshot.kernel, *numbers)

    def coordinates_from_distances(self, d: Floats) -> tuple[Floats, Floats]:
        """Coordinates and coverage by unsquared distances, shape (n, N); all must be finite."""
        if not np.isfinite(d).all():
            raise BadRowError(
                "a distance is inf, which this method cannot place: give all distances to the "
                "support"
            )
        return Extension.coordinates_from_distances(self, d)

    def _compute_coordinates(self, scaled: Floats, d2: Floats) -> Floats:
        if self.kernel == "distance":
            rows = -0.5 * d2
        elif self.kernel == "gaussian":
            rows = kernel.gaussian(d2 / self.bandwidth**2, 1.0)
        else:
            rows = self.function.between(scaled, self.points)
        return project(rows, self.mean_row, self.shares, self.targets)


class LinearExtension(_NeighborExtension):
    """Coordinates of new points by linear functions of their features. O(d k) a point.

    y(x) = (x - mean) loadings, with the mean under the stationary measure; coverage takes
    distances, O(N d).
    """

    def __init__(self, snapshot: SnapshotContents) -> None:
        targets = self._scale_loadings(snapshot)
        super().__init__(snapshot, targets, snapshot.n_neighbors, snapshot.typical_coverage)
        # (k,): what the functions are at the mean
        self.offset = snapshot.stationary @ (self.points @ self.targets)

    def _scale_loadings(self, snapshot: SnapshotContents) -> Floats:
        """In scaled units, shape (d, k)."""
        return snapshot.feature_loadings * snapshot.scale[:, None]

    def coordinates(self, points: Floats) -> Floats:
        """Shape (n, k), of points (n, d) in the caller's units, without distances."""
        with np.errstate(over="ignore", under="ignore"):
            return self._compute_coordinates((points - self.center) / self.scale, self.offset)

    def coordinates_from_distances(self, d: Floats) -> tuple[Floats, Floats]:
        """Distances do not tell the features that coordinates are functions of."""
        raise InputError(
            "a linear map has no transform of distances: its coordinates are functions of the "
            "features; use transform"
        )

    def _compute_coordinates(self, scaled: Floats, d2: Floats) -> Floats:
        return scaled @ self.targets - self.offset


class ScalingExtension(LinearExtension):
    """Classical scaling of one more point: y(x) = sum_i m_i h(x, x_i) y_i / v, h centred.

    Of points it is linear, as |x|^2 is in all h(x, x_i): a difference of squares would lose the
    digits of points that are far away.
    """

    def __init__(self, snapshot: SnapshotContents) -> None:
        self.by_distances = CentredExtension(snapshot)
        super().__init__(snapshot)

    def _scale_loadings(self, snapshot: SnapshotContents) -> Floats:
        centred = self.by_distances
        loadings: Floats = (centred.points - centred.shares @ centred.points).T @ centred.targets
        return loadings

    def coordinates_from_distances(self, d: Floats) -> tuple[Floats, Floats]:
        """Coordinates and coverage by unsquared distances, shape (n, N); all must be finite."""
        return self.by_distances.coordinates_from_distances(d)


class BarycentricExtension(_NeighborExtension):
    """Coordinates of new points by the weights that reconstruct them from their neighbours.

    A point of the support has the coordinates that it has there. O(N d + K^3) a point.
    """

    def __init__(self, snapshot: SnapshotContents) -> None:
        super().__init__(snapshot, snapshot.coordinates, snapshot.n_neighbors)
        self.reg = snapshot.reg  # the ridge

    def coordinates_from_distances(self, d: Floats) -> tuple[Floats, Floats]:
        """Distances to the support do not determine how neighbours lie to one another."""
        raise InputError(
            "locally linear embedding has no transform of distances: its weights come from "
            "coordinates; use transform"
        )

    def _compute_coordinates(self, scaled: Floats, d2: Floats) -> Floats:
        near = scaled * self._shrink(scaled)
        coordinates = barycentric.extend(
            near, self.points, self.targets, self.n_neighbors, self.reg
        )
        nearest = d2.argmin(axis=1)
        is_support = d2[np.arange(len(d2)), nearest] == 0.0
        coordinates[is_support] = self.targets[nearest[is_support]]  # the ridge would move them
        return coordinates


class PictureExtension(_NeighborExtension):
    """Places of new points in a picture: the best of their neighbours' places, brought to rest.

    For rho and gamma see `streamembed.layout.forces`.
    """

    def __init__(
        self, snapshot: SnapshotContents, places: Floats, n_neighbors: int, rho: float, gamma: float
    ) -> None:
        super().__init__(snapshot, places, n_neighbors, 1.0)
        self.rho, self.gamma = rho, gamma

    def _compute_coordinates(self, scaled: Floats, d2: Floats) -> Floats:
        k = min(self.n_neighbors, d2.shape[1])
        neighbors = np.argpartition(d2, k - 1, axis=1)[:, :k]
        near_d2 = np.take_along_axis(d2, neighbors, 1)
        order = np.lexsort((neighbors, near_d2))
        neighbors = np.take_along_axis(neighbors, order, 1)
        near_d2 = np.take_along_axis(near_d2, order, 1)
        places, step = np.empty((len(neighbors), 2)), max(1, MOST_PLACES // k)
        for start in range(0, len(neighbors), step):
            tile = slice(start, start + step)
            p = compute_affinities(near_d2[tile])
            places[tile] = place_outside(self.targets, neighbors[tile], p, self.rho, self.gamma)
        return places


class GeodesicExtension(_NeighborExtension):
    """Coordinates of new points by their shortest paths: over their neighbours to all others.

    0 for points that are no neighbours of the part that has coordinates. O(N (d + K + k)) a point.
    """

    def __init__(self, snapshot: SnapshotContents) -> None:
        masses = snapshot.masses * (snapshot.stationary > 0)
        ends = slice(None) if snapshot.lengths.shape[1] == len(masses) else masses > 0
        targets = compute_dual(snapshot, masses)[ends]
        super().__init__(snapshot, targets, snapshot.n_neighbors, snapshot.typical_coverage)
        # (N, w): of shortest paths, to all points or to landmarks; inf between parts
        self.lengths = snapshot.lengths
        # (w,): as in `CentredExtension`
        self.mean_row = snapshot.degrees[ends] / masses.sum()
        self.shares = snapshot.stationary[ends]
        # neighbours are all within it, and the nearest; 0 where there are n_neighbors
        self.radius = snapshot.radius

    def _compute_coordinates(self, scaled: Floats, d2: Floats) -> Floats:
        d = np.sqrt(d2)
        neighbors = np.broadcast_to(np.arange(d.shape[1]), d.shape)
        if not self.radius and self.n_neighbors < d.shape[1]:
            neighbors = np.argpartition(d, self.n_neighbors - 1, axis=1)[:, : self.n_neighbors]
        d_near = np.take_along_axis(d, neighbors, axis=1)
        if self.radius:
            nearest = d_near.min(axis=1, keepdims=True)
            is_far = (d_near > self.radius) & (d_near > nearest)
            neighbors = np.where(is_far, -1, neighbors)
        lengths = geodesics.extend(d_near, neighbors.astype(np.int32), self.lengths)
        # where several are equally near, the graph joins some of them alone
        nearest = d2.argmin(axis=1)
        is_support = d2[np.arange(len(d2)), nearest] == 0.0
        lengths[is_support] = self.lengths[nearest[is_support]]
        is_connected = (np.isfinite(lengths) | (self.shares == 0)).all(axis=1)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            finite = np.where(np.isfinite(lengths), np.minimum(lengths, np.sqrt(FARTHEST)), 0.0)
            rows = -0.5 * finite**2
        coordinates = project(rows, self.mean_row, self.shares, self.targets)
        coordinates[~is_connected] = 0.0
        return coordinates / self._shrink(scaled)  # far from the support, they are proportional


def compute_dual(snapshot: SnapshotContents, masses: Floats) -> Floats:
    """diag(m) Y / v, 0 for the columns that are none, turned as coordinates are."""
    values = snapshot.carried_eigenvalues
    safe = np.where(values > 0, values, np.inf)
    columns = snapshot.carried_psi * np.sqrt(np.maximum(values, 0.0) / float(masses.sum()))
    return (masses[:, None] * columns / safe) @ snapshot.rotation


def project(rows: Floats, mean_row: Floats, shares: Floats, targets: Floats) -> Floats:
    """Coordinates of new objects by rows of H (b, n), centred; 0 for what leaves the doubles.

    Rows lose the mean row p^T H (n,), and then their own means by the ``shares`` p (n,). Without
    the second subtraction a new point keeps an offset that the coordinates do not have; without
    both, the mean of H counts as structure.

    Source: Gower (1966), "Some distance properties of latent root and vector methods"; Schoelkopf,
    Smola & Mueller (1998), "Nonlinear component analysis as a kernel eigenvalue problem", app. A.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        centred = rows - mean_row
        centred -= (centred @ shares)[:, None]
        return np.nan_to_num(centred @ targets, nan=0.0)


def compute_coverage(d2: Floats, n_neighbors: int, typical: float) -> Floats:
    """min(1, typical / distance to the n-th neighbour), of squared distances (b, N)."""
    k = min(n_neighbors, d2.shape[1])
    reaches = np.sqrt(np.partition(d2, k - 1, axis=1)[:, k - 1])
    coverage: Floats = np.ones(len(d2))
    np.divide(typical, reaches, out=coverage, where=reaches > typical)
    return coverage


def measure_neighbor_distance(d2: Floats, n_neighbors: int) -> float:
    """The median distance to the n-th nearest other, by squared distances (b, N) of some to all."""
    k = min(n_neighbors, d2.shape[1] - 1)
    return float(np.median(np.sqrt(np.partition(d2, k, axis=1)[:, k])))
