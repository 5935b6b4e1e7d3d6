"""The slow truth about max-min metrics and must-link metrics, restated from their sources.

Imports nothing from streamembed. Outer products are built one by one, points are whitened, roots
and inverses are taken by eigendecomposition, and nothing is reused.

Symbols: delta = difference of a pair; H = mean over close pairs; X_tau = delta delta^T of a far
pair, X~_tau = H^(-1/2) X_tau H^(-1/2); M = the whitened metric, tr M = d; A = H^(-1/2) M H^(-1/2).
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.optimize

__all__ = [
    "best_diagonal",
    "blog_rank_one",
    "dual_bound",
    "frank_wolfe",
    "mean_outer",
    "orthogonal_optimum",
    "power",
    "roots",
    "smallest",
    "smoothed",
    "two_pairs_by_hand",
]


def mean_outer(differences) -> np.ndarray:
    """(1/n) sum delta delta^T, outer product by outer product."""
    total = np.zeros((differences.shape[1], differences.shape[1]))
    for delta in differences:
        total += np.outer(delta, delta)
    return total / len(differences)


def power(matrix, exponent) -> np.ndarray:
    """A power of a symmetric positive definite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    return vectors @ np.diag(values**exponent) @ vectors.T


def smallest(A, far) -> float:
    """min over the far pairs of delta^T A delta: squared."""
    return min(float(delta @ A @ delta) for delta in far)


def roots(A, far) -> float:
    """Mean over the far pairs of sqrt(delta^T A delta)."""
    return float(np.mean([np.sqrt(delta @ A @ delta) for delta in far]))


def smoothed(A, far, sigma) -> float:
    """f_sigma = -sigma log((1/n) sum exp(-q / sigma)), for a sigma that does not underflow."""
    q = np.array([delta @ A @ delta for delta in far])
    return float(-sigma * np.log(np.mean(np.exp(-q / sigma))))


def top_eigenvalue(matrix, H) -> float:
    """Largest lambda of matrix u = lambda H u."""
    return float(scipy.linalg.eigh(matrix, H, eigvals_only=True)[-1])


def dual_bound(alpha, far, H) -> float:
    """d lambda_max(sum alpha X_tau, H), not below min q of any A with tr(A H) = d.

    For min q <= sum alpha q = <G, A> <= lambda_max(G, H) <H, A>, alpha in the simplex.
    """
    G = sum(a * np.outer(delta, delta) for a, delta in zip(alpha, far, strict=True))
    return len(H) * top_eigenvalue(G, H)


def frank_wolfe(H, far, steps, smoothing) -> list[np.ndarray]:
    """Section 17.3 corrected, in whitened coordinates: A after every step, from A_0 = H^-1.

    Vertices d v v^T, gamma = 2 / (t + 2), sigma = smoothing * min q, exponentials shifted.
    """
    d = len(H)
    half = power(H, -0.5)
    whitened = [half @ np.outer(delta, delta) @ half for delta in far]
    M = np.eye(d)
    metrics = []
    for t in range(1, steps + 1):
        q = np.array([np.sum(X * M) for X in whitened])
        alpha = np.exp(-(q - q.min()) / (smoothing * q.min()))
        alpha /= alpha.sum()
        G = sum(a * X for a, X in zip(alpha, whitened, strict=True))
        v = np.linalg.eigh(G)[1][:, -1]
        gamma = 2 / (t + 2)
        M = (1 - gamma) * M + gamma * d * np.outer(v, v)
        metrics.append(half @ M @ half)
    return metrics


def orthogonal_optimum(H, far) -> tuple[float, np.ndarray]:
    """max min q and its alpha where the z = H^(-1/2) delta are mutually orthogonal.

    Every q_i = a_i |z_i|^2 with sum a_i = d is best when all are equal: d / sum 1 / |z_i|^2; the
    same weights, normalised, are the dual answer.
    """
    inverse = 1 / np.array([float(delta @ np.linalg.inv(H) @ delta) for delta in far])
    return len(H) / inverse.sum(), inverse / inverse.sum()


def two_pairs_by_hand(angle) -> float:
    """max min q for d = 2, H = I and two unit pairs at this angle: 1 + cos(angle) of the acute one.

    The bisector of the two lines is an eigenvector by symmetry: q = a cos^2 + b sin^2 of half the
    angle with a + b = 2, largest at a = 2, b = 0.
    """
    acute = min(angle, np.pi - angle)
    return 1 + float(np.cos(acute))


def blog_rank_one(S, D) -> tuple[float, np.ndarray]:
    """min tr(M S) subject to tr(M D) >= 1: least eigenvalue of (S, D), and u u^T / (u^T D u)."""
    values, vectors = scipy.linalg.eigh(S, D)
    u = vectors[:, 0]
    return float(values[0]), np.outer(u, u) / float(u @ D @ u)


def best_diagonal(allowance, far) -> float:
    """max mean sqrt(sum w delta^2), w >= 0, sum w allowance = d, by a general solver."""
    d = len(allowance)

    def loss(x):
        return -np.mean(np.sqrt(far**2 @ (d * x / allowance)))

    def slope(x):
        q = far**2 @ (d * x / allowance)
        return -(0.5 / np.sqrt(q)) @ (far**2 * d / allowance) / len(far)

    found = scipy.optimize.minimize(
        loss,
        np.full(d, 1 / d),
        jac=slope,
        method="SLSQP",
        bounds=[(0, 1)] * d,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    return -float(found.fun)
