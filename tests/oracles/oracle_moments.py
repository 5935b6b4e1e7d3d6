"""The slow truth of the rooms scatter, fenn and contrast: pairs one by one, textbook formulas.

Imports nothing from streamembed. Loops over points and pairs wherever a source writes a sum.

Symbols: X (n, d) points, y (n,) labels, N classes of n_c points, delta = x - y.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

__all__ = [
    "boltzmann_metric",
    "class_moments",
    "contrast_matrix",
    "discriminants",
    "energies",
    "free_energy",
    "geometric_mean",
    "inverse_root",
    "pair_sums",
    "within_and_dissimilar",
    "within_and_dissimilar_from_covariances",
]


def class_moments(X, y, weights=None):
    """By label: mass, mean and scatter sum_i w_i (x_i - m)(x_i - m)^T, one point at a time."""
    X = np.asarray(X, dtype=np.float64)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
    found = {}
    for label in np.unique(y):
        mass, total = 0.0, np.zeros(X.shape[1])
        for i in np.flatnonzero(y == label):
            mass += w[i]
            total += w[i] * X[i]
        mean = total / mass
        scatter = np.zeros((X.shape[1], X.shape[1]))
        for i in np.flatnonzero(y == label):
            scatter += w[i] * np.outer(X[i] - mean, X[i] - mean)
        found[int(label)] = mass, mean, scatter
    return found


def within_and_dissimilar(X, y):
    """Inaba et al. (5) and (6) as printed, over all ordered pairs: (X_S, X_D), both twice ours."""
    X = np.asarray(X, dtype=np.float64)
    labels, counts = np.unique(y, return_counts=True)
    size = {int(label): int(count) for label, count in zip(labels, counts, strict=True)}
    N = len(labels)
    similar = np.zeros((X.shape[1], X.shape[1]))
    dissimilar = similar.copy()
    for i in range(len(X)):
        for j in range(len(X)):
            product = np.outer(X[i] - X[j], X[i] - X[j])
            if y[i] == y[j]:
                similar += product / size[int(y[i])] ** 2
            else:
                dissimilar += product / (size[int(y[i])] * size[int(y[j])])
    return similar / N, dissimilar / (N * (N - 1))


def within_and_dissimilar_from_covariances(X, y):
    """Inaba et al. 3.2: X_S = mean of the C_c, X_D = X_S + N / (N - 1) C_m; N classes."""
    X = np.asarray(X, dtype=np.float64)
    labels = np.unique(y)
    within = np.zeros((X.shape[1], X.shape[1]))
    for c in labels:
        within += np.atleast_2d(np.cov(X[y == c], rowvar=False, bias=True)) / len(labels)
    means = np.array([X[y == c].mean(axis=0) for c in labels])
    between = np.atleast_2d(np.cov(means, rowvar=False, bias=True))
    return within, within + len(labels) / (len(labels) - 1) * between


def discriminants(X, y):
    """Phillips 17.2: eigenpairs of Sigma_W^-1 Sigma_B, values descending; Sigma_W; Sigma_B."""
    X = np.asarray(X, dtype=np.float64)
    n, mean = len(X), np.asarray(X).mean(axis=0)
    within = np.zeros((X.shape[1], X.shape[1]))
    between = within.copy()
    for label in np.unique(y):
        members = X[y == label]
        centre = members.mean(axis=0)
        between += len(members) / n * np.outer(centre - mean, centre - mean)
        for x in members:
            within += np.outer(x - centre, x - centre) / n
    values, vectors = np.linalg.eig(np.linalg.inv(within) @ between)
    order = np.argsort(-values.real)
    return values.real[order], vectors.real[:, order], within, between


def inverse_root(A):
    """A^-1/2, symmetric, by the eigenvectors of A."""
    values, vectors = scipy.linalg.eigh(A)
    return vectors @ np.diag(values**-0.5) @ vectors.T


def energies(within, dissimilar):
    """Eigenvalues of X_D^-1/2 X_S X_D^-1/2, ascending, with orthonormal eigenvectors in columns."""
    root = inverse_root(dissimilar)
    return scipy.linalg.eigh(root @ within @ root)


def free_energy(S, hamiltonian, mu):
    """Inaba et al. (17): tr(S H) - mu H(S), von Neumann entropy in nats."""
    values = np.linalg.eigvalsh(S)
    positive = values[values > 1e-300]
    return float(np.trace(S @ hamiltonian) + mu * np.sum(positive * np.log(positive)))


def boltzmann_metric(within, dissimilar, mu):
    """X_D^-1/2 S X_D^-1/2 with S = sum_i lambda_i u_i u_i^T, lambda by eq. (14) as printed."""
    E, u = energies(within, dissimilar)
    weights = np.exp(-E / mu) / np.sum(np.exp(-E / mu))
    S = sum(weights[i] * np.outer(u[:, i], u[:, i]) for i in range(len(E)))
    root = inverse_root(dissimilar)
    return root @ S @ root


def pair_sums(X, y, weights=None):
    """Sums of delta delta^T over unordered pairs of equal and of different label, and counts."""
    X = np.asarray(X, dtype=np.float64)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64)
    close = np.zeros((X.shape[1], X.shape[1]))
    far = close.copy()
    n_close = n_far = 0.0
    for i in range(len(X)):
        for j in range(i + 1, len(X)):
            product = w[i] * w[j] * np.outer(X[i] - X[j], X[i] - X[j])
            if y[i] == y[j]:
                close += product
                n_close += w[i] * w[j]
            else:
                far += product
                n_far += w[i] * w[j]
    return close, far, n_close, n_far


def contrast_matrix(close, far, alpha):
    """Phillips 17.3: what is inverted, alpha I + C - F of the two means."""
    return alpha * np.eye(len(close)) + close - far


def geometric_mean(C, F, t):
    """C^-1/2 (C^1/2 F C^1/2)^t C^-1/2 by matrix functions."""
    root = scipy.linalg.sqrtm(C)
    inverse = np.linalg.inv(root)
    return inverse @ scipy.linalg.fractional_matrix_power(root @ F @ root, t) @ inverse
