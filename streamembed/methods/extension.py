"""The extension of coordinates to new points: what all have in common, and those of walks.

Symbols: w_i = exp(-d(x, x_i)^2 / (c s_x s_i)), p_i = m_i a_i w_i / sum_j m_j a_j w_j = P(x, x_i);
psi_j(x) = sum_i p_i psi_j(x_i) / lambda_j. s_x is the bandwidth, or chosen like the width of a slot
(`streamembed.geometry.self_tuning`); at a point of the support it is that slot's, so that the
extension there is its row of P.

Coverage asks how near the support is, and must not use s_x, which grows with the distance: it is
the sum of m_i exp(-d^2 / (c s_i^2)), relative to a typical point's.

Source: docs/algorithms/diffusion-map.md; Coifman & Lafon (2006), "Geometric harmonics".
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from functools import cached_property

import numpy as np

from streamembed.geometry import self_tuning
from streamembed.geometry.self_tuning import WidthRule
from streamembed.methods.snapshot_contents import SnapshotContents
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.linalg import squared_distances
from streamembed.spectral import adjacency

# Largest error of an exponent: far below the residual of any certificate.
LOSS = 1e-10
# Squared distances below this share of the squared norms are taken by differences: whether a point
# is one of the support must not be a matter of rounding.
SAME = 1e-10
# Largest squared distance: beyond it, distances are not finite and no point is the nearest.
FARTHEST = 1e307
# Sizes of the support beyond which a point is as far as this: farther off, rounding would decide
# which points are its nearest; half of the digits are left for that, and half for the limit.
FAR = 1e8
# Points whose coverage is computed for a typical one (error: docs/algorithms/diffusion-map.md).
SAMPLE = 256
EPS = float(np.finfo(np.float64).eps)
# Rows per tile: bounds the memory at N * 256 doubles however many points are asked for.
TILE = 256


class Extension(abc.ABC):
    """Coordinates and coverage of new points, or of objects by their distances, tile by tile.

    Parameters
    ----------
    snapshot
        Whose points these are.
    targets
        What weights of the support's points are applied to, shape (N, k) or (N, k + 2), for k
        coordinates.
    typical
        What the coverage of a point is relative to; 0 where that follows from the points.
    """

    def __init__(self, snapshot: SnapshotContents, targets: Floats, typical: float = 0.0) -> None:
        self.center, self.scale = snapshot.center, snapshot.scale
        # (N, d): as distances see them
        self.points: Floats = (snapshot.points - self.center) / self.scale
        self.targets, self.typical = targets, typical
        # squared distance up to which a point is one of the support: a row of another length is it
        self.same = 0.0
        if snapshot.metric == "cosine":
            sizes = ((snapshot.points / self.scale) ** 2).sum(axis=1)
            self.same = (4 * EPS) ** 2 * float(sizes.max(initial=0.0))

    @property
    def n_columns(self) -> int:
        """k."""
        return int(self.targets.shape[1])

    def coordinates(self, points: Floats) -> Floats:
        """Shape (n, k), of points (n, d) in the caller's units."""
        result = np.empty((len(points), self.n_columns))
        for start in range(0, len(points), TILE):
            tile = slice(start, start + TILE)
            result[tile] = self._compute_coordinates(*self._measure(points[tile]))
        return result

    def coordinates_and_coverage(self, points: Floats) -> tuple[Floats, Floats]:
        """`coordinates`, and coverage, shape (n,), by the same distances."""
        return self._extend(points, self._measure)

    def coordinates_from_distances(self, d: Floats) -> tuple[Floats, Floats]:
        """Coordinates (n, k) and coverage (n,) of objects by their distances (n, N).

        Distances are unsquared, as the kernel sees them; where one is inf, that support point has
        no weight; one of each row must be finite.
        """
        return self._extend(d, self._measure_distances)

    def _extend(
        self, rows: Floats, measure: Callable[[Floats], tuple[Floats, Floats]]
    ) -> tuple[Floats, Floats]:
        coordinates, coverage = np.empty((len(rows), self.n_columns)), np.empty(len(rows))
        for start in range(0, len(rows), TILE):
            tile = slice(start, start + TILE)
            measured = measure(rows[tile])
            coordinates[tile] = self._compute_coordinates(*measured)
            coverage[tile] = self._compute_coverage(*measured)
        return coordinates, coverage

    def _measure(self, points: Floats) -> tuple[Floats, Floats]:
        """Points as distances see them (b, d), and finite squared distances (b, N)."""
        with np.errstate(over="ignore", under="ignore"):
            scaled = (points - self.center) / self.scale
            d2 = squared_distances(scaled * self._shrink(scaled), self.points, 0.0)
        if self.same:
            d2[d2 <= self.same] = 0.0
        return scaled, np.minimum(d2, FARTHEST)

    def _shrink(self, scaled: Floats) -> Floats:
        """What far points (b, d) are multiplied by to be at `FAR`; 1 for all others, (b, 1)."""
        sizes = np.abs(scaled).max(axis=1, initial=0.0)[:, None]
        limit = FAR * float(np.abs(self.points).max(initial=0.0))
        factors: Floats = np.ones(sizes.shape)
        np.divide(limit, sizes, out=factors, where=(sizes > limit) & (limit > 0.0))
        return factors

    def _measure_distances(self, d: Floats) -> tuple[Floats, Floats]:
        """The same of objects without coordinates; where a distance is inf, its square is."""
        with np.errstate(over="ignore"):
            d2 = np.minimum(d**2, FARTHEST)
        return np.zeros((len(d), 0)), np.where(np.isfinite(d), d2, np.inf)

    @abc.abstractmethod
    def _compute_coordinates(self, scaled: Floats, d2: Floats) -> Floats:
        """Coordinates (b, k) by what was measured."""

    @abc.abstractmethod
    def _compute_coverage(self, scaled: Floats, d2: Floats) -> Floats:
        """Coverage (b,) by what was measured."""


class _FusedExtension(Extension):
    """Squared distances by one product, exact where it cancels: for many points one by one.

    ``finest`` is a squared distance that distinguishes points: exponents are exact to a share of
    it.
    """

    def __init__(
        self, snapshot: SnapshotContents, targets: Floats, typical: float, finest: float
    ) -> None:
        super().__init__(snapshot, targets, typical)
        self.finest, self.masses, self.widths = finest, snapshot.masses, snapshot.widths
        # (d + 1, N): [-2 X | squares], transposed: one product gives squared distances
        self.squares = np.einsum("ij,ij->i", self.points, self.points)
        self.fused = np.ascontiguousarray(np.column_stack([-2.0 * self.points, self.squares]).T)
        self.largest = float(self.squares.max())

    def _measure(self, points: Floats) -> tuple[Floats, Floats]:
        """Squares are finite, and 0 exactly where points agree."""
        n, d = points.shape
        augmented = np.empty((n, d + 1))
        with np.errstate(over="ignore", under="ignore"):
            scaled = augmented[:, :d]
            np.subtract(points, self.center, out=scaled)
            scaled /= self.scale
            norms = np.einsum("ij,ij->i", scaled, scaled)
            largest = max(float(norms.max()), self.largest)
            if not largest * EPS <= LOSS * self.finest:
                return super()._measure(points)
            augmented[:, d] = 1.0
            d2 = augmented @ self.fused
            d2 += norms[:, None]
        close = np.flatnonzero(d2.min(axis=1) <= SAME * (norms + largest))
        row, column = np.nonzero(d2[close] <= SAME * (norms[close, None] + self.squares))
        if len(row):
            differences = scaled[close[row]] - self.points[column]
            exact = np.einsum("ij,ij->i", differences, differences)
            d2[close[row], column] = np.where(exact <= self.same, 0.0, exact)
        return scaled, d2


class KernelExtension(_FusedExtension):
    """Eigenfunctions under a kernel: of one width for all, or of one for every point."""

    def __init__(self, snapshot: SnapshotContents) -> None:
        # [m a lambda^(t-1) psi | m a | 1]
        weights = snapshot.masses * snapshot.density_weights
        targets = weights[:, None] * compute_nystrom_coefficients(snapshot)
        targets = np.column_stack([targets, weights, np.ones(len(weights))])
        self.has_widths = snapshot.kernel != "gaussian"
        typical = snapshot.typical_coverage
        if not self.has_widths:
            typical = float(np.median(snapshot.degrees))
        super().__init__(snapshot, targets, typical, snapshot.width * snapshot.least_width**2)
        self.least = snapshot.least_width  # no width is less
        self.rule = WidthRule(snapshot.n_neighbors, snapshot.width)

    @property
    def n_columns(self) -> int:
        """k."""
        return int(self.targets.shape[1]) - 2

    def coordinates(self, points: Floats) -> Floats:
        """Shape (n, k); of one point by the shortest way."""
        placed = self._place_one(points[0]) if len(points) == 1 else None
        return _FusedExtension.coordinates(self, points) if placed is None else placed

    def _place_one(self, point: Floats) -> Floats | None:
        """Shape (1, k); None for points that need a closer look.

        Those are points of the support, or nearly so, and those that are far from it.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            scaled = (point - self.center) / self.scale
            norm = float(scaled @ scaled)
            largest = max(norm, self.largest)
            if not largest * EPS <= LOSS * self.finest:
                return None
            d2 = np.append(scaled, 1.0) @ self.fused
            d2 += norm
            if not d2.min() > SAME * (norm + largest):
                return None
            width = self.least
            if self.has_widths:
                k = min(self.rule.n_neighbors, len(d2))
                width = max(math.sqrt(np.partition(d2, k - 1)[k - 1]), width)
            d2 /= self.widths
            d2 *= -1.0 / (self.rule.width * width)
            sums = np.exp(d2, out=d2) @ self.targets
        if not sums[-1] >= self_tuning.required_weight(self.rule, len(d2)):
            return None
        result: Floats = (sums[:-2] / sums[-2])[None]
        return result

    def _compute_coordinates(self, scaled: Floats, d2: Floats) -> Floats:
        """Weighted means of the targets; ``d2`` (b, N) may be inf, but not all of a row."""
        if not self.has_widths:
            sums = self._weigh_far(d2, np.full(len(d2), self.least)) @ self.targets
            return sums[:, :-2] / sums[:, -2:-1]
        nearest = d2.argmin(axis=1)
        lowest = d2[np.arange(len(d2)), nearest]
        widths = np.maximum(self._measure_reaches(d2, lowest), self.least)
        is_support = lowest == 0.0
        widths[is_support] = self.widths[nearest[is_support]]
        with np.errstate(over="ignore", under="ignore"):
            weights = d2 / self.widths
            weights /= (-self.rule.width * widths)[:, None]
            sums = np.exp(weights, out=weights) @ self.targets
            enough = self_tuning.required_weight(self.rule, len(self.widths))
            too_few = np.flatnonzero(~is_support & (sums[:, -1] < enough))
            if len(too_few):
                near_d2 = d2[too_few]
                raised = self_tuning.raise_widths(widths[too_few], near_d2, self.widths, self.rule)
                sums[too_few] = self._weigh_far(near_d2, raised) @ self.targets
        return sums[:, :-2] / sums[:, -2:-1]

    def _weigh_far(self, d2: Floats, widths: Floats) -> Floats:
        """Weights relative to the largest, so that a point however far has some."""
        with np.errstate(over="ignore", under="ignore"):
            exponents = d2 / (-self.rule.width * widths)[:, None] / self.widths
            largest = exponents.max(axis=1)
            is_lost = largest == -np.inf  # so far off that no point is nearer than another
            exponents[is_lost], largest[is_lost] = np.where(d2[is_lost] < np.inf, 0.0, -np.inf), 0.0
            weights: Floats = np.exp(exponents - largest[:, None])
        return weights

    def _measure_reaches(self, d2: Floats, lowest: Floats) -> Floats:
        """The distance to the k-th nearest point that is not the same; to the farthest of fewer."""
        k = min(self.rule.n_neighbors, d2.shape[1])
        others = d2
        if (lowest == 0.0).any():
            others = np.where(d2 > 0.0, d2, np.inf)
        reach2 = np.partition(others, k - 1, axis=1)[:, k - 1]
        few = ~np.isfinite(reach2)
        if few.any():
            reach2[few] = np.where(others[few] < np.inf, others[few], 0.0).max(axis=1)
        return np.sqrt(reach2)

    def _compute_coverage(self, scaled: Floats, d2: Floats) -> Floats:
        sums = sum_coverage(d2, self.widths, self.masses, self.rule)
        return np.minimum(1.0, sums / self._typical)

    @cached_property
    def _typical(self) -> float:
        """Or the median of these points, when it is asked for: it costs as much as a chunk."""
        if self.typical:
            return self.typical
        d2 = sample_distances(self.points, LOSS * self.finest)
        return float(np.median(sum_coverage(d2, self.widths, self.masses, self.rule)))


class GraphExtension(_FusedExtension):
    """The same for a graph of neighbours: psi(x) = sum w psi / (lambda sum w).

    Neighbours of x are its own nearest, and all points that would have it among theirs; or all
    within the radius. A point of the support has the coordinates that it has there.
    """

    def __init__(self, snapshot: SnapshotContents) -> None:
        # (N,): squared distance of each point to the last of its neighbours
        self.reaches2 = snapshot.reaches**2
        positive = self.reaches2[self.reaches2 > 0]
        typical = float(np.median(positive)) if len(positive) else 1.0
        if snapshot.radius:
            typical = float(np.median(snapshot.degrees)) or 1.0
        finest = float(positive.min()) if len(positive) else 1.0
        super().__init__(snapshot, compute_nystrom_coefficients(snapshot), typical, finest)
        # squared; 0 where neighbours are joined
        self.radius2, self.n_neighbors = snapshot.radius**2, snapshot.n_neighbors
        # weights are exp(-d2 / (width s_i s_j)), no s below the least, if they are not equal
        self.weights, self.width = snapshot.kernel, snapshot.width
        self.least, self.support = snapshot.least_width, snapshot.coordinates

    def _compute_coordinates(self, scaled: Floats, d2: Floats) -> Floats:
        weights = self._weigh(d2) * self.masses
        sums = weights.sum(axis=1)
        result = np.zeros((len(d2), self.n_columns))
        # there may be no point within a radius: 0, as for an isolated point
        np.divide(weights @ self.targets, sums[:, None], out=result, where=sums[:, None] > 0.0)
        nearest = d2.argmin(axis=1)
        is_support = d2[np.arange(len(d2)), nearest] == 0.0
        result[is_support] = self.support[nearest[is_support]]
        return result

    def _weigh(self, d2: Floats) -> Floats:
        """Weights of the neighbours, 0 elsewhere, shape (b, N)."""
        if self.radius2:
            is_neighbor, widths = d2 <= self.radius2, np.zeros(0)
        else:
            last = np.partition(d2, min(self.n_neighbors, d2.shape[1]) - 1, axis=1)
            is_neighbor = (d2 <= last[:, [min(self.n_neighbors, d2.shape[1]) - 1]]) | (
                d2 <= self.reaches2
            )
            is_neighbor &= d2 < np.inf
        if self.weights == "binary":
            return is_neighbor.astype(np.float64)
        if self.weights == "heat":
            widths = self.widths[0]
        else:
            index = min(adjacency.SCALE_NEIGHBOR, self.n_neighbors, d2.shape[1]) - 1
            widths = np.sqrt(np.partition(np.minimum(d2, FARTHEST), index, axis=1)[:, index])
            widths = np.maximum(widths, self.least)[:, None]
        # shifted by the largest, so that a point however far has neighbours
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            exponents = np.where(is_neighbor, -(d2 / widths) / (self.width * self.widths), -np.inf)
            weights: Floats = np.exp(exponents - exponents.max(axis=1)[:, None])
        return np.where(is_neighbor, weights, 0.0)

    def _compute_coverage(self, scaled: Floats, d2: Floats) -> Floats:
        if self.radius2:
            return np.minimum(1.0, ((d2 <= self.radius2) @ self.masses) / self.typical)
        index = min(self.n_neighbors, d2.shape[1]) - 1
        last = np.partition(d2, index, axis=1)[:, index]
        with np.errstate(over="ignore", under="ignore"):
            coverage: Floats = np.exp(np.minimum(1.0 - last / self.typical, 0.0))
        return coverage


def compute_nystrom_coefficients(snapshot: SnapshotContents) -> Floats:
    """lambda**(t - 1) psi of all carried pairs, turned as coordinates are, shape (N, k)."""
    values = snapshot.carried_eigenvalues
    is_positive = values > 0
    safe = np.where(is_positive, values, 1.0)
    powers = np.where(is_positive, safe ** (snapshot.diffusion_time - 1.0), 0.0)
    return (snapshot.carried_psi * powers) @ snapshot.rotation


def sum_coverage(d2: Floats, widths: Floats, masses: Floats, rule: WidthRule) -> Floats:
    """sum_i m_i exp(-d2 / (c s_i^2)), shape (b,), of squared distances (b, N)."""
    with np.errstate(under="ignore", over="ignore"):
        sums: Floats = np.exp(-(d2 / widths) / (rule.width * widths)) @ masses
    return sums


def sample_distances(points: Floats, loss: float) -> Floats:
    """Squared distances of those of `sample_rows` to all."""
    with np.errstate(over="ignore", under="ignore"):
        return squared_distances(points[sample_rows(len(points))], points, loss)


def sample_rows(n: int) -> Ints:
    """The rows whose coverage gives the typical one: evenly spaced, all of a small support."""
    return np.unique(np.linspace(0, n - 1, min(n, SAMPLE)).astype(np.int64))
