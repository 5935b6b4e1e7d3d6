"""Dense diffusion maps, restated here from the formulas."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import eigsh
from scipy.spatial.distance import cdist

from streamembed.numeric.arrays import Floats

__all__ = ["BatchMap", "batch_map", "operator"]


def operator(
    points: Floats, widths: float | Floats, width: float, alpha: float
) -> tuple[Floats, Floats]:
    """S, shape (n, n), and the stationary measure, shape (n,), dense and in float64.

    W = exp(-d2 / (width s_i s_j)) of ``widths`` s, one for all or one each, shape (n,).
    """
    scales = width * np.multiply.outer(widths, widths)
    weights = np.exp(-cdist(points, points, "sqeuclidean") / scales)
    density = weights.sum(axis=1) ** -alpha
    laplacian = weights * np.outer(density, density)
    delta = laplacian.sum(axis=1)
    return laplacian / np.sqrt(np.outer(delta, delta)), delta / delta.sum()


@dataclass(frozen=True)
class BatchMap:
    """A weighted batch diffusion map (alpha = 1), and its eigenfunctions at other points."""

    points: Floats
    weights: Floats  # masses times density correction
    psi: Floats
    eigenvalues: Floats
    bandwidth: float

    def extended(self, points: Floats) -> Floats:
        """psi at new points, shape (n, k): the average of P over the map's own points."""
        result = np.empty((len(points), len(self.eigenvalues)))
        for start in range(0, len(points), 256):
            rows = np.exp(
                cdist(points[start : start + 256], self.points, "sqeuclidean")
                / -(self.bandwidth**2)
            )
            rows *= self.weights
            result[start : start + 256] = rows @ self.psi / rows.sum(axis=1)[:, None]
        return result / self.eigenvalues


def batch_map(points: Floats, masses: Floats, bandwidth: float, k: int) -> BatchMap:
    """The map of weighted points, from scratch: float32 kernel, k components and the constant."""
    n = len(points)
    kernel = np.empty((n, n), dtype=np.float32)
    for start in range(0, n, 256):
        d2 = cdist(points[start : start + 256], points, "sqeuclidean")
        kernel[start : start + 256] = np.exp(d2 / -(bandwidth**2))
    kernel[kernel < np.finfo(np.float32).tiny] = 0.0
    density = 1.0 / (kernel @ masses.astype(np.float32)).astype(np.float64)
    spread = density * (kernel @ (masses * density).astype(np.float32))
    stationary = masses * spread / (masses * spread).sum()
    scaling = (np.sqrt(masses) * density / np.sqrt(spread)).astype(np.float32)
    kernel *= scaling
    kernel *= scaling[:, None]
    values, vectors = eigsh(kernel, k=k + 1, which="LA", v0=np.ones(n, np.float32), tol=1e-6)
    order = np.argsort(-values)[1:]
    psi = vectors[:, order].astype(np.float64) / np.sqrt(stationary)[:, None]
    return BatchMap(points, masses * density, psi, values[order].astype(np.float64), bandwidth)
