"""Eigenfunctions at new points: one fused product, a shifted exponential, one product more.

Symbols: w_i = exp(-||x - x_i||^2 / sigma^2), p_i = m_i a_i w_i / sum_j m_j a_j w_j = P(x, x_i);
psi_j(x) = sum_i p_i psi_j(x_i) / lambda_j. The exponents are computed as [2X/sigma^2 | -||x_i||^2 /
sigma^2] [x; 1] (the term ||x||^2 cancels in the ratio) and shifted by their maximum, so that a
point however far has finite coordinates: those of its nearest support point, extended.

Source: docs/algorithms/diffusion-map.md; Coifman & Lafon (2006), "Geometric harmonics".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.spatial.distance import cdist

from streamembed.numeric.arrays import Floats

# Largest error of a fused exponent: far below the residual of any certificate.
LOSS = 1e-10
# Rows per tile: bounds the memory at N * 256 doubles however many points are asked for.
TILE = 256


@dataclass(frozen=True, slots=True, eq=False)
class GaussianExtension:
    """Everything about a support that the coordinates of a new point need."""

    points: Floats  # (N, d): X, as the kernel sees them
    # (N, d + 1): [2 X / sigma^2 | -||x_i||^2 / sigma^2]; None where sigma is so small beside the
    # extent that this form would cancel: differences are then taken one by one.
    exponents: Floats | None
    targets: Floats  # (N, k + 2): [m a lambda^(t-1) psi | m a | m]
    bandwidth2: float  # sigma^2
    typical: float  # median of the support's degrees
    # (d,): of the caller's units.
    center: Floats
    scale: Floats

    @classmethod
    def of(
        cls,
        points: Floats,
        bandwidth: float,
        targets: Floats,
        typical: float,
        center: Floats,
        scale: Floats,
    ) -> Self:
        """Prepare the extension of a snapshot; see the attributes."""
        squares = np.einsum("ij,ij->i", points, points)
        bandwidth2 = bandwidth**2
        exponents = None
        with np.errstate(over="ignore"):
            if squares.max(initial=0.0) * np.finfo(np.float64).eps <= LOSS * bandwidth2:
                exponents = np.column_stack([2.0 * points / bandwidth2, -squares / bandwidth2])
        return cls(
            points,
            exponents,
            targets,
            bandwidth2,
            typical,
            center,
            scale,
        )

    def coordinates(self, points: Floats) -> Floats:
        """lambda^t psi(x), shape (n, k), for points (n, d) in the caller's units. O(N (d + k))."""
        k = self.targets.shape[1] - 2
        result = np.empty((len(points), k))
        for start in range(0, len(points), TILE):
            sums, _, _ = self._sums(points[start : start + TILE])
            result[start : start + TILE] = sums[:, :k] / sums[:, k : k + 1]
        return result

    def from_distances(self, d: Floats) -> tuple[Floats, Floats]:
        """Coordinates (n, k) and coverage (n,) of objects by their distances (n, N).

        Distances are unsquared, as the kernel sees them; where one is inf, that support point has
        no weight; one of each row must be finite.
        """
        k = self.targets.shape[1] - 2
        coordinates, coverage = np.empty((len(d), k)), np.empty(len(d))
        for start in range(0, len(d), TILE):
            tile = slice(start, start + TILE)
            with np.errstate(over="ignore", under="ignore"):
                exponents = d[tile] ** 2 / -self.bandwidth2
                shift = exponents.max(axis=1)
                sums = np.exp(exponents - shift[:, None]) @ self.targets
                coverage[tile] = np.minimum(1.0, sums[:, -1] * np.exp(shift) / self.typical)
            coordinates[tile] = sums[:, :k] / sums[:, k : k + 1]
        return coordinates, coverage

    def with_coverage(self, points: Floats) -> tuple[Floats, Floats]:
        """`coordinates`, and min(1, q(x) / median q), shape (n,), by the same products."""
        k = self.targets.shape[1] - 2
        coordinates, coverage = np.empty((len(points), k)), np.empty(len(points))
        for start in range(0, len(points), TILE):
            tile = slice(start, start + TILE)
            sums, shift, squares = self._sums(points[tile])
            coordinates[tile] = sums[:, :k] / sums[:, k : k + 1]
            with np.errstate(under="ignore"):
                mass = sums[:, -1] * np.exp(np.minimum(shift - squares, 0.0))
            coverage[tile] = np.minimum(1.0, mass / self.typical)
        return coordinates, coverage

    def _sums(self, points: Floats) -> tuple[Floats, Floats, Floats]:
        """Shifted kernel sums (n, k + 2), the shift (n,) and ||x||^2 / sigma^2 (n,).

        Without the fused form the shift is -d^2 / sigma^2 itself, and the last are 0.
        """
        if self.exponents is None:
            return self._exact_sums(points)
        n, d = points.shape
        augmented = np.empty((n, d + 1))
        with np.errstate(over="ignore", under="ignore"):
            np.subtract(points, self.center, out=augmented[:, :d])
            augmented[:, :d] /= self.scale
            augmented[:, d] = 1.0
            exponents = augmented @ self.exponents.T
            shift = exponents.max(axis=1)
            exponents -= shift[:, None]
            weights = np.exp(exponents, out=exponents)
            squares = np.einsum("ij,ij->i", augmented[:, :d], augmented[:, :d]) / self.bandwidth2
        return weights @ self.targets, shift, squares

    def _exact_sums(self, points: Floats) -> tuple[Floats, Floats, Floats]:
        """`_sums` by the differences themselves."""
        with np.errstate(over="ignore", under="ignore"):
            scaled = (points - self.center) / self.scale
            exponents = cdist(scaled, self.points, "sqeuclidean") / -self.bandwidth2
            shift = exponents.max(axis=1)
            # so far away that every square overflows: no point is the nearest, all weigh alike
            exponents = np.where(np.isfinite(shift)[:, None], exponents - shift[:, None], 0.0)
            weights = np.exp(exponents)
        return weights @ self.targets, shift, np.zeros(len(points))
