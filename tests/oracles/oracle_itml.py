"""The slow truth about ITML, quantiles and Mahalanobis distances, from their sources.

Imports nothing from streamembed. Metrics are moved by inverting their inverse, bounds are kept
beside their duals, optima are found by a general solver on the dual, and nothing is reused.

Symbols: v = difference of a pair; s = +1 similar, -1 dissimilar; xi = bound on v^T A v, xi_0 as
asked for; lam = dual; A_0 = prior; gamma = price of moving bounds.
"""

from __future__ import annotations

import numpy as np
import scipy.optimize

__all__ = [
    "divergence",
    "dual_optimum",
    "from_duals",
    "literal_sweeps",
    "objective",
    "one_similar",
    "quantile",
    "squared_distances",
]


def divergence(A, B) -> float:
    """D(A, B) = tr(A B^-1) - log det(A B^-1) - d."""
    ratio = A @ np.linalg.inv(B)
    return float(np.trace(ratio) - np.linalg.slogdet(ratio)[1] - len(A))


def objective(A, prior, differences, similar, upper, lower, gamma) -> float:
    """D(A, A_0) + gamma sum (xi/xi_0 - log(xi/xi_0) - 1), every xi as near to xi_0 as A allows."""
    total = divergence(A, prior)
    for v, near in zip(differences, similar, strict=True):
        p = float(v @ A @ v)
        ratio = max(p, upper) / upper if near else min(p, lower) / lower
        total += gamma * (ratio - np.log(ratio) - 1)
    return float(total)


def from_duals(prior, differences, similar, lam) -> np.ndarray:
    """(A_0^-1 + sum s lam v v^T)^-1, outer product by outer product."""
    inverse = np.linalg.inv(prior)
    for v, near, dual in zip(differences, similar, lam, strict=True):
        inverse = inverse + (1 if near else -1) * dual * np.outer(v, v)
    return np.linalg.inv(inverse)


def literal_sweeps(prior, differences, similar, upper, lower, gamma, sweeps):
    """Algorithm 1 of Davis et al. in the given order: A, lam and xi after some sweeps."""
    A = np.array(prior)
    lam = np.zeros(len(differences))
    xi = np.where(similar, upper, lower).astype(float)
    for _ in range(sweeps):
        for i, v in enumerate(differences):
            s = 1.0 if similar[i] else -1.0
            p = float(v @ A @ v)
            alpha = min(lam[i], s * gamma / (gamma + 1) * (1 / p - 1 / xi[i]))
            beta = s * alpha / (1 - s * alpha * p)
            xi[i] = gamma * xi[i] / (gamma + s * alpha * xi[i])
            lam[i] -= alpha
            A = A + beta * (A @ np.outer(v, v) @ A)
    return A, lam, xi


def dual_optimum(prior, differences, similar, upper, lower, gamma):
    """The optimal A and the least objective, by L-BFGS-B on the dual: no projections at all.

    max over lam >= 0 of log det(A_0^-1 + sum s lam v v^T) + gamma sum log(1 - s lam xi_0 / gamma).
    """
    s = np.where(similar, 1.0, -1.0)
    xi_0 = np.where(similar, upper, lower)
    inverse = np.linalg.inv(prior)

    def negative(lam):
        precision = inverse + (differences.T * (s * lam)) @ differences
        slack = 1 - s * lam * xi_0 / gamma
        if np.linalg.eigvalsh(precision)[0] <= 0 or slack.min() <= 0:
            return 1e10, np.zeros_like(lam)
        A = np.linalg.inv(precision)
        p = np.einsum("ij,jk,ik->i", differences, A, differences)
        value = np.linalg.slogdet(precision)[1] + gamma * np.log(slack).sum()
        return -value, -(s * p - s * xi_0 / slack)

    found = scipy.optimize.minimize(
        negative,
        np.zeros(len(differences)),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, None)] * len(differences),
        options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-10},
    )
    A = from_duals(prior, differences, similar, found.x)
    return A, objective(A, prior, differences, similar, upper, lower, gamma)


def one_similar(v, upper) -> np.ndarray:
    """A_0 = I, one similar pair beyond its bound, no slack: A^-1 = I + (1/u - 1/p) v v^T, p = v.v.

    The multiplier is that of A^-1: p' = v^T A v = u needs lam = 1/u - 1/p, by Sherman-Morrison.
    """
    return np.linalg.inv(np.eye(len(v)) + (1 / upper - 1 / float(v @ v)) * np.outer(v, v))


def quantile(values, p) -> float:
    """The smallest value that at least the share p of them does not exceed."""
    ordered = sorted(values)
    for rank, value in enumerate(ordered, start=1):
        if rank >= p * len(ordered):
            return value
    return ordered[-1]


def squared_distances(matrix, X, Y) -> np.ndarray:
    """(x - y)^T A (x - y), pair by pair."""
    return np.array([[(x - y) @ matrix @ (x - y) for y in Y] for x in X])
