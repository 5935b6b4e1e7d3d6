"""Eigenfunctions at new points: one fused product, a shifted exponential, one product more.

Symbols: w_i = exp(-||x - x_i||^2 / sigma^2), p_i = m_i a_i w_i / sum_j m_j a_j w_j = P(x, x_i);
psi_j(x) = sum_i p_i psi_j(x_i) / lambda_j. The exponents are computed as [2X/sigma^2 | -||x_i||^2 /
sigma^2] [x; 1] (the term ||x||^2 cancels in the ratio) and shifted by their maximum, so that a
point however far has finite coordinates: those of its nearest support point, extended.

Source: docs/algorithms/diffusion-map.md; Coifman & Lafon (2006), "Geometric harmonics".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy

from streamembed.methods.extension import EPS, LOSS, Extension
from streamembed.numeric.arrays import Floats


@dataclass(frozen=True, slots=True, eq=False)
class GaussianExtension(Extension):
    """Eigenfunctions under a Gaussian kernel of one width.

    ``targets`` are [m a lambda^(t-1) psi | m a | m]; ``typical`` is the median of the degrees.
    """

    bandwidth2: float  # sigma^2
    # (N, d + 1): [2 X / sigma^2 | -||x_i||^2 / sigma^2]; None where sigma is so small beside the
    # extent that this form would cancel: differences are then taken one by one.
    exponents: Floats | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Prepare the product."""
        squares = np.einsum("ij,ij->i", self.points, self.points)
        with np.errstate(over="ignore"):
            if squares.max(initial=0.0) * EPS <= LOSS * self.bandwidth2:
                columns = [2.0 * self.points / self.bandwidth2, -squares / self.bandwidth2]
                object.__setattr__(self, "exponents", np.column_stack(columns))

    @property
    def n_columns(self) -> int:
        """k."""
        return int(self.targets.shape[1]) - 2

    def _measure(self, points: Floats) -> tuple[Floats, Floats]:
        """Kernel sums (b, k + 2), and the logarithms (b,) of what they were divided by."""
        if self.exponents is None:
            return self._measure_exactly(points)
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
        return weights @ self.targets, shift - squares

    def _measure_exactly(self, points: Floats) -> tuple[Floats, Floats]:
        """The same by the differences themselves."""
        with np.errstate(over="ignore", under="ignore"):
            scaled = (points - self.center) / self.scale
            d2 = scipy.spatial.distance.cdist(scaled, self.points, "sqeuclidean")
            exponents = d2 / -self.bandwidth2
            shift = exponents.max(axis=1)
            # so far away that every square overflows: no point is the nearest, all weigh alike
            exponents = np.where(np.isfinite(shift)[:, None], exponents - shift[:, None], 0.0)
            weights = np.exp(exponents)
        return weights @ self.targets, shift

    def _measure_distances(self, d: Floats) -> tuple[Floats, Floats]:
        with np.errstate(over="ignore", under="ignore"):
            exponents = d**2 / -self.bandwidth2
            shift = exponents.max(axis=1)
            return np.exp(exponents - shift[:, None]) @ self.targets, shift

    def _place(self, sums: Floats, logs: Floats) -> Floats:
        return sums[:, :-2] / sums[:, -2:-1]

    def _cover(self, sums: Floats, logs: Floats) -> Floats:
        """min(1, q(x) / median q)."""
        with np.errstate(under="ignore"):
            mass = sums[:, -1] * np.exp(np.minimum(logs, 0.0))
        return np.minimum(1.0, mass / self.typical)
