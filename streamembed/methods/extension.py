"""Eigenfunctions at new points, where every point of the support has a kernel width of its own.

Symbols: w_i = exp(-d(x, x_i)^2 / (c s_x s_i)), p_i = m_i a_i w_i / sum_j m_j a_j w_j = P(x, x_i);
psi_j(x) = sum_i p_i psi_j(x_i) / lambda_j. s_x is chosen like the width of a slot
(`streamembed.geometry.self_tuning`); at a point of the support it is that slot's, so that the
extension there is its row of P.

Coverage asks how near the support is, and must not use s_x, which grows with the distance: it is
the sum of m_i exp(-d^2 / (c s_i^2)), relative to a typical point's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np

from streamembed.geometry import self_tuning
from streamembed.geometry.self_tuning import WidthRule
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.linalg import squared_distances
from streamembed.spectral import neighbor_walk

# Largest error of an exponent: far below the residual of any certificate.
LOSS = 1e-10
# Squared distances below this share of the squared norms are taken by differences: whether a point
# is one of the support must not be a matter of rounding.
SAME = 1e-10
# Largest squared distance: beyond it, distances are not finite and no point is the nearest.
FARTHEST = 1e307
# Points whose coverage is computed for a typical one (error: docs/algorithms/diffusion-map.md).
SAMPLE = 256
# Rows per tile: bounds the memory at N * 256 doubles however many points are asked for.
TILE = 256


class Extension(Protocol):
    """Coordinates and coverage of new points, or of objects by their distances."""

    def coordinates(self, points: Floats) -> Floats:
        """Of points (n, d) in the caller's units, shape (n, k)."""

    def with_coverage(self, points: Floats) -> tuple[Floats, Floats]:
        """Coordinates, and coverage, shape (n,)."""

    def from_distances(self, d: Floats) -> tuple[Floats, Floats]:
        """Both, by unsquared distances to the support, shape (n, N)."""


@dataclass(frozen=True, slots=True, eq=False)
class _TiledExtension:
    """The part that extensions share: points, their scaling, and tiles of distances.

    Attributes
    ----------
    points : (N, d)
        X, as the kernel sees them.
    squares : (N,)
        Of their norms.
    fused : (d + 1, N)
        [-2 X | squares], transposed: one product gives squared distances.
    finest : float
        A squared distance that distinguishes points: exponents are exact to a share of it.
    center, scale : (d,)
        Of the caller's units.
    """

    points: Floats
    squares: Floats
    fused: Floats
    finest: float
    center: Floats
    scale: Floats

    @property
    def n_columns(self) -> int:
        """Coordinates."""
        raise NotImplementedError

    def coordinates(self, points: Floats) -> Floats:
        """lambda^t psi(x), shape (n, k), for points (n, d) in the caller's units. O(N (d + k))."""
        result = np.empty((len(points), self.n_columns))
        for start in range(0, len(points), TILE):
            tile = slice(start, start + TILE)
            result[tile] = self._coordinates(self._squared(points[tile]))
        return result

    def with_coverage(self, points: Floats) -> tuple[Floats, Floats]:
        """`coordinates`, and coverage, shape (n,), by the same distances."""
        coordinates = np.empty((len(points), self.n_columns))
        coverage = np.empty(len(points))
        for start in range(0, len(points), TILE):
            tile = slice(start, start + TILE)
            d2 = self._squared(points[tile])
            coordinates[tile], coverage[tile] = self._coordinates(d2), self._coverage(d2)
        return coordinates, coverage

    def from_distances(self, d: Floats) -> tuple[Floats, Floats]:
        """Coordinates (n, k) and coverage (n,) of objects by their distances (n, N).

        Distances are unsquared, as the kernel sees them; where one is inf, that support point has
        no weight; one of each row must be finite.
        """
        coordinates = np.empty((len(d), self.n_columns))
        coverage = np.empty(len(d))
        for start in range(0, len(d), TILE):
            tile = slice(start, start + TILE)
            d2 = d[tile] ** 2
            coordinates[tile], coverage[tile] = self._coordinates(d2), self._coverage(d2)
        return coordinates, coverage

    def _squared(self, points: Floats) -> Floats:
        """Squared distances to the support, shape (b, N), finite; 0 exactly where points agree."""
        n, d = points.shape
        augmented = np.empty((n, d + 1))
        with np.errstate(over="ignore", under="ignore"):
            scaled = augmented[:, :d]
            np.subtract(points, self.center, out=scaled)
            scaled /= self.scale
            norms = np.einsum("ij,ij->i", scaled, scaled)
            largest = max(float(norms.max()), float(self.squares.max()))
            if not largest * float(np.finfo(np.float64).eps) <= LOSS * self.finest:
                return np.minimum(squared_distances(scaled, self.points, 0.0), FARTHEST)
            augmented[:, d] = 1.0
            d2: Floats = augmented @ self.fused
            d2 += norms[:, None]
        close = np.flatnonzero(d2.min(axis=1) <= SAME * (norms + largest))
        row, column = np.nonzero(d2[close] <= SAME * (norms[close, None] + self.squares))
        if len(row):
            differences = scaled[close[row]] - self.points[column]
            d2[close[row], column] = np.einsum("ij,ij->i", differences, differences)
        return d2

    def _coordinates(self, d2: Floats) -> Floats:
        raise NotImplementedError

    def _coverage(self, d2: Floats) -> Floats:
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class SelfTuningExtension(_TiledExtension):
    """Everything about a support that the coordinates of a new point need.

    Attributes
    ----------
    widths : (N,)
        s.
    least : float
        No width is less.
    rule : Rule
        k and c.
    targets : (N, k + 2)
        [m a lambda^(t-1) psi | m a | 1].
    masses : (N,)
        m.
    typical : float
        Coverage of a typical point, before it is divided by this.
    """

    widths: Floats
    least: float
    rule: WidthRule
    targets: Floats
    masses: Floats
    typical: float

    @property
    def n_columns(self) -> int:
        """Coordinates."""
        return int(self.targets.shape[1]) - 2

    @classmethod
    def of(
        cls,
        points: Floats,
        typical: float,
        least: float,
        rule: WidthRule,
        targets: Floats,
        **parts: Any,
    ) -> Self:
        """Prepare the extension of a snapshot; see the attributes.

        ``targets`` are without the last column. A ``typical`` of 0 stands for the median coverage
        of these points.
        """
        squares = np.einsum("ij,ij->i", points, points)
        finest = rule.width * least**2
        targets = np.column_stack([targets, np.ones(len(points))])
        extension = cls(
            points=points,
            squares=squares,
            fused=fuse(points, squares),
            finest=finest,
            least=least,
            rule=rule,
            targets=targets,
            typical=typical or 1.0,
            **parts,
        )
        if typical:
            return extension
        rows = sample_rows(len(points))
        with np.errstate(over="ignore", under="ignore"):
            d2 = squared_distances(points[rows], points, LOSS * finest)
        sums = sum_coverage(d2, extension.widths, extension.masses, extension.rule)
        return replace(extension, typical=float(np.median(sums)))

    def _coordinates(self, d2: Floats) -> Floats:
        """Weighted means of the targets; ``d2`` (b, N) may be inf, but not all of a row."""
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
                sums[too_few] = self._weigh_far(d2[too_few], widths[too_few]) @ self.targets
        result: Floats = sums[:, :-2] / sums[:, -2:-1]
        return result

    def _weigh_far(self, d2: Floats, widths: Floats) -> Floats:
        """Weights of points that have too few with their own width, relative to the largest."""
        widths = self_tuning.raise_widths(widths, d2, self.widths, self.rule)
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
        reaches: Floats = np.sqrt(reach2)
        return reaches

    def _coverage(self, d2: Floats) -> Floats:
        sums = sum_coverage(d2, self.widths, self.masses, self.rule)
        coverage: Floats = np.minimum(1.0, sums / self.typical)
        return coverage


@dataclass(frozen=True, slots=True, eq=False)
class GraphExtension(_TiledExtension):
    """The same for a graph of neighbours: psi(x) = sum w psi / (lambda sum w).

    Neighbours of x are its own nearest, and all points that would have it among theirs; or all
    within the radius. A point of the support has the coordinates that it has there.

    Attributes
    ----------
    reaches2 : (N,)
        Squared distance of each point to the last of its neighbours.
    weights : str
        See `streamembed.spectral.neighbor_walk.WEIGHTS`.
    widths : (N,)
        s, where weights are exp(-d2 / (c s_i s_j)).
    least, width : float
        No width is less; c.
    n_neighbors : int
        K.
    radius2 : float
        Squared; 0 where neighbours are joined.
    targets, support : (N, k)
        Coordinates by psi / lambda, and those of the support.
    masses : (N,)
        m.
    typical : float
        Median of ``reaches2``; of the degrees where there is a radius.
    """

    reaches2: Floats
    weights: str
    widths: Floats
    least: float
    width: float
    n_neighbors: int
    radius2: float
    targets: Floats
    support: Floats
    masses: Floats
    typical: float

    @property
    def n_columns(self) -> int:
        """Coordinates."""
        return int(self.targets.shape[1])

    def _coordinates(self, d2: Floats) -> Floats:
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
            index = min(neighbor_walk.SCALE_NEIGHBOR, d2.shape[1]) - 1
            widths = np.sqrt(np.partition(np.minimum(d2, FARTHEST), index, axis=1)[:, index])
            widths = np.maximum(widths, self.least)[:, None]
        # shifted by the largest, so that a point however far has neighbours
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            exponents = np.where(is_neighbor, -(d2 / widths) / (self.width * self.widths), -np.inf)
            weights: Floats = np.exp(exponents - exponents.max(axis=1)[:, None])
        return np.where(is_neighbor, weights, 0.0)

    def _coverage(self, d2: Floats) -> Floats:
        if self.radius2:
            counts = (d2 <= self.radius2) @ self.masses
            return np.minimum(1.0, counts / self.typical)
        index = min(self.n_neighbors, d2.shape[1]) - 1
        last = np.partition(d2, index, axis=1)[:, index]
        with np.errstate(over="ignore", under="ignore"):
            coverage: Floats = np.exp(np.minimum(1.0 - last / self.typical, 0.0))
        return coverage


def fuse(points: Floats, squares: Floats) -> Floats:
    """[-2 X | squares], transposed, C-contiguous."""
    return np.ascontiguousarray(np.column_stack([-2.0 * points, squares]).T)


def sum_coverage(d2: Floats, widths: Floats, masses: Floats, rule: WidthRule) -> Floats:
    """sum_i m_i exp(-d2 / (c s_i^2)), shape (b,), of squared distances (b, N)."""
    with np.errstate(under="ignore", over="ignore"):
        sums: Floats = np.exp(-(d2 / widths) / (rule.width * widths)) @ masses
    return sums


def sample_rows(n: int) -> Ints:
    """The rows whose coverage gives the typical one: evenly spaced, all of a small support."""
    return np.unique(np.linspace(0, n - 1, min(n, SAMPLE)).astype(np.int64))
