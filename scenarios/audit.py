"""A snapshot against the dense answer on its own support, restated here from the formulas."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import eigsh
from scipy.spatial.distance import cdist

import streamembed as se
from streamembed.numeric.arrays import Floats

__all__ = ["Audit", "AuditSummary", "BatchMap", "audit", "batch_map", "operator", "summary"]


# A tenth of the default tolerance: below, the bound on rounding is most of what is claimed.
NEGLIGIBLE_RESIDUAL = 3e-4


@dataclass(frozen=True)
class Audit:
    """The truth about one snapshot.

    Attributes
    ----------
    claim, residual : float
        What the certificate says, and max ||S v - lambda v|| / lambda_1 by the dense operator.
    eigenvalue_error : float
        max |lambda_i - true lambda_i|, i = 1..k: large where a leading pair was missed.
    met : bool
        What the certificate says.
    """

    claim: float
    residual: float
    eigenvalue_error: float
    met: bool


@dataclass(frozen=True)
class AuditSummary:
    """Worst cases over many audits."""

    residual: float
    eigenvalue_error: float
    honest_share: float
    lowest_claim: float
    highest_claim: float
    unmet: int


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


def audit(snapshot: se.Snapshot) -> Audit:
    """The dense answer for the snapshot's points, and how far the snapshot is from it. O(N^3)."""
    k = len(snapshot.eigenvalues)
    scaled = (snapshot.points - snapshot.center) / snapshot.scale
    dense, stationary = operator(scaled, snapshot.widths, snapshot.width, snapshot.alpha)
    n = len(dense)
    truth = scipy.linalg.eigh(dense, eigvals_only=True, subset_by_index=[n - k - 1, n - 2])[::-1]
    vectors = snapshot.psi * np.sqrt(stationary)[:, None]
    vectors /= np.linalg.norm(vectors, axis=0)
    errors = dense @ vectors - vectors * snapshot.eigenvalues
    return Audit(
        claim=snapshot.certificate.residual,
        residual=float(np.linalg.norm(errors, axis=0).max() / snapshot.eigenvalues[0]),
        eigenvalue_error=float(np.abs(snapshot.eigenvalues - truth).max()),
        met=bool(snapshot.certificate.met),
    )


def summary(audits: Iterable[Audit]) -> AuditSummary:
    """Worst residual and eigenvalue error; claims as multiples of the true residual."""
    all_of_them = list(audits)
    ratios = np.array([each.claim / each.residual for each in all_of_them])
    residuals = np.array([each.residual for each in all_of_them])
    is_honest = (ratios >= 0.5) & (ratios <= 3.0)
    return AuditSummary(
        residual=max(each.residual for each in all_of_them),
        eigenvalue_error=max(each.eigenvalue_error for each in all_of_them),
        honest_share=float(np.mean(is_honest | (residuals < NEGLIGIBLE_RESIDUAL))),
        lowest_claim=float(ratios.min()),
        highest_claim=float(ratios.max()),
        unmet=sum(not each.met for each in all_of_them),
    )


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
