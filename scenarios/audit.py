"""A snapshot against the dense answer on its own support, restated here from the formulas."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.spatial.distance import cdist

import streamembed as se
from streamembed.core.arrays import Floats

__all__ = ["Audit", "Summary", "audit", "operator", "summary"]


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
class Summary:
    """Worst cases over many audits."""

    residual: float
    eigenvalue_error: float
    honest_share: float
    lowest_claim: float
    highest_claim: float
    unmet: int


def operator(points: Floats, bandwidth: float, alpha: float) -> tuple[Floats, Floats]:
    """S, shape (n, n), and the stationary measure, shape (n,), dense and in float64."""
    weights = np.exp(-cdist(points, points, "sqeuclidean") / bandwidth**2)
    density = weights.sum(axis=1) ** -alpha
    laplacian = weights * np.outer(density, density)
    delta = laplacian.sum(axis=1)
    return laplacian / np.sqrt(np.outer(delta, delta)), delta / delta.sum()


def audit(snapshot: se.Snapshot) -> Audit:
    """The dense answer for the snapshot's points, and how far the snapshot is from it. O(N^3)."""
    k = len(snapshot.eigenvalues)
    scaled = (snapshot.points - snapshot.center) / snapshot.scale
    dense, stationary = operator(scaled, snapshot.bandwidth, snapshot.alpha)
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


def summary(audits: Iterable[Audit]) -> Summary:
    """Worst residual and eigenvalue error; claims as multiples of the true residual."""
    all_of_them = list(audits)
    ratios = np.array([each.claim / each.residual for each in all_of_them])
    return Summary(
        residual=max(each.residual for each in all_of_them),
        eigenvalue_error=max(each.eigenvalue_error for each in all_of_them),
        honest_share=float(np.mean((ratios >= 0.5) & (ratios <= 3.0))),
        lowest_claim=float(ratios.min()),
        highest_claim=float(ratios.max()),
        unmet=sum(not each.met for each in all_of_them),
    )
