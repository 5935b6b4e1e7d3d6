"""The slow truth: each algorithm restated from its source in the clearest way there is.

Imports nothing from streamembed. Everything is dense, float64 and O(n^3); nothing is reused from
one question to the next.

Symbols: W_ij = exp(-||x_i - x_j||^2 / bandwidth^2), m = masses, q = W m, a = q^(-alpha),
delta_i = a_i sum_j W_ij a_j m_j, P_ij = a_i W_ij a_j m_j / delta_i, pi = m delta / sum(m delta).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.optimize
from scipy.spatial.distance import cdist

__all__ = [
    "DiffusionMap",
    "LandmarkCover",
    "align_signs",
    "diffusion_coordinates",
    "diffusion_distances",
    "diffusion_map",
    "effective_points",
    "enough_weight",
    "largest_angle_sine",
    "new_width",
    "nystrom_extension",
    "reach",
    "self_tuning_coverage",
    "self_tuning_extension",
    "self_tuning_widths",
    "true_residual",
]


@dataclass(frozen=True)
class DiffusionMap:
    """A whole diffusion map; index 0 is the constant, the others follow in descending order.

    Attributes
    ----------
    W, P, S : (n, n)
        Kernel, Markov matrix, and its symmetric conjugate diag(sqrt(pi)) P diag(1 / sqrt(pi)).
    masses, degrees, density : (n,)
        m, q = W m and a = q^(-alpha).
    pi : (n,)
        Stationary measure of P, sum 1.
    eigenvalues : (n,)
        Of S and of P alike: S V = V diag(eigenvalues), P psi = psi diag(eigenvalues).
    V, psi : (n, n)
        Orthonormal columns; V / sqrt(pi), so that sum_i pi_i psi_ij^2 = 1 and psi_0 = 1.
    bandwidth : float or (n,)
        Of the kernel.
    """

    W: np.ndarray
    P: np.ndarray
    S: np.ndarray
    masses: np.ndarray
    degrees: np.ndarray
    density: np.ndarray
    pi: np.ndarray
    eigenvalues: np.ndarray
    V: np.ndarray
    psi: np.ndarray
    bandwidth: float | np.ndarray


def diffusion_map(points, bandwidth, alpha=1.0, masses=None, width=1.0) -> DiffusionMap:
    """Jain (4)-(7), with masses: P_ij = a_i W_ij a_j m_j / delta_i, and all its eigenpairs.

    ``bandwidth`` is one for all points, or a width s for each: exp(-d2 / (width s_i s_j)).

    The constant has eigenvalue 1, which a disconnected graph has several times. To put it first
    without a doubt, what is solved is S + v_0 v_0^T with v_0 = sqrt(pi): there it has the
    eigenvalue 2, alone, and every other pair is as it was.
    """
    points = np.asarray(points, dtype=np.float64)
    m = np.ones(len(points)) if masses is None else np.asarray(masses, dtype=np.float64)
    s = np.broadcast_to(np.asarray(bandwidth, dtype=np.float64), len(points))
    W = np.exp(-(cdist(points, points) ** 2) / (width * np.outer(s, s)))
    q = W @ m
    a = q**-alpha
    delta = a * (W @ (a * m))
    P = np.diag(a / delta) @ W @ np.diag(a * m)
    pi = m * delta / np.sum(m * delta)
    s = np.sqrt(m / delta) * a
    S = np.diag(s) @ W @ np.diag(s)
    constant = np.sqrt(pi)
    values, vectors = scipy.linalg.eigh((S + S.T) / 2 + np.outer(constant, constant))
    values, vectors = values[::-1].copy(), vectors[:, ::-1].copy()
    values[0] -= 1.0
    vectors[:, 0] *= np.sign(vectors[:, 0].sum())
    psi = vectors / np.sqrt(pi)[:, None]
    return DiffusionMap(W, P, S, m, q, a, pi, values, vectors, psi, bandwidth)


def diffusion_coordinates(result: DiffusionMap, n_components, t) -> np.ndarray:
    """Psi_t(i) = (lambda_1^t psi_1(i), ..., lambda_k^t psi_k(i)), shape (n, k); psi_0 is left out.

    The Gaussian kernel is positive definite: eigenvalues below 0 are rounding and count as 0.
    """
    chosen = slice(1, 1 + n_components)
    return result.psi[:, chosen] * np.maximum(result.eigenvalues[chosen], 0.0) ** t


def diffusion_distances(result: DiffusionMap, t) -> np.ndarray:
    """D_ij with D_ij^2 = sum_l (P^t[i, l] - P^t[j, l])^2 / pi_l, unsquared; t is a whole number."""
    power = np.linalg.matrix_power(result.P, t)
    weighted = power / np.sqrt(result.pi)
    return cdist(weighted, weighted)


def nystrom_extension(result: DiffusionMap, points, new, n_components, t) -> np.ndarray:
    """Psi_t at new points: psi_l(x) = (1 / lambda_l) sum_j p(x, j) psi_l(j).

    p(x, j) = w(x, x_j) a_j m_j / sum_i w(x, x_i) a_i m_i; the density a(x) of the new point itself
    cancels. Shape (n_new, n_components).
    """
    d = cdist(np.asarray(new, dtype=np.float64), np.asarray(points, dtype=np.float64))
    weights = np.exp(-(d**2) / result.bandwidth**2) * result.density * result.masses
    p = weights / weights.sum(axis=1, keepdims=True)
    chosen = slice(1, 1 + n_components)
    values = result.eigenvalues[chosen]
    return (p @ result.psi[:, chosen]) / values * values**t


def reach(d, k) -> float:
    """The k-th smallest positive distance of a row; the largest of fewer; 0 without any."""
    positive = sorted(one for one in d if 0.0 < one < np.inf)
    return float(positive[min(k, len(positive)) - 1]) if positive else 0.0


def enough_weight(k, others) -> float:
    """What the weights of a point to so many others are at least, in all: k / 2, or a quarter."""
    return min(k / 2, others / 4)


def _widened(s, d, widths, width, least) -> float:
    """The smallest s' >= s with sum_j exp(-d_j^2 / (width s' s_j)) >= least, by bisection."""

    def weights(log) -> float:
        return float(np.exp(-(d**2) / (width * np.exp(log) * widths)).sum())

    low = high = np.log(s)
    if weights(low) >= least:
        return float(s)
    while weights(high) < least:
        high += 1.0
    return float(np.exp(scipy.optimize.brentq(lambda log: weights(log) - least, low, high)))


def self_tuning_widths(d, k, width=2.0) -> np.ndarray:
    """s of every point, from all distances between them, (n, n): at least a tenth of the median.

    Those with too little weight are widened all at once, as the others' widths were before.
    """
    n = len(d)
    r = np.array([reach(np.delete(d[i], i), k) for i in range(n)])
    if not r.any():
        return np.ones(n)
    s = np.maximum(r, 0.1 * np.median(r[r > 0]))
    least = enough_weight(k, n - 1)
    others = [np.arange(n) != i for i in range(n)]
    return np.array([_widened(s[i], d[i, o], s[o], width, least) for i, o in enumerate(others)])


def new_width(d, widths, k, width, least) -> float:
    """s of a new point at distances d from a support: by the rule of its points, or that of one."""
    if d.min() == 0.0:
        return float(widths[np.argmin(d)])
    start = max(reach(d, k), least)
    return _widened(start, d, widths, width, enough_weight(k, len(d)))


def self_tuning_extension(result: DiffusionMap, d, k, width, least, n_components, t) -> np.ndarray:
    """Psi_t of new things at distances d, (n_new, n); ``result.bandwidth`` are the widths.

    psi_l(x) = (1 / lambda_l) sum_j p(x, j) psi_l(j), p(x, j) as in `nystrom_extension` with
    w(x, x_j) = exp(-d^2 / (width s_x s_j)).
    """
    s = result.bandwidth
    chosen = slice(1, 1 + n_components)
    values = result.eigenvalues[chosen]
    rows = []
    for row in d:
        weights = np.exp(-(row**2) / (width * new_width(row, s, k, width, least) * s))
        p = weights * result.density * result.masses
        rows.append((p / p.sum()) @ result.psi[:, chosen] / values * values**t)
    return np.array(rows)


def self_tuning_coverage(d, among, widths, masses, width) -> np.ndarray:
    """min(1, c(x) / median c), c(x) = sum_i m_i exp(-d_i^2 / (width s_i^2)): without a width of x.

    ``d`` (n_new, n) are the distances of new things, ``among`` (n, n) those of the support.
    """

    def near(rows) -> np.ndarray:
        return np.exp(-(rows**2) / (width * widths**2)) @ masses

    return np.minimum(1.0, near(d) / np.median(near(among)))


def effective_points(psi, pi, masses) -> np.ndarray:
    """Events that carry each column: (sum_i share_i)^2 / sum_i (share_i^2 / m_i), pi psi^2 each."""
    shares = pi[:, None] * psi**2
    return shares.sum(axis=0) ** 2 / (shares**2 / masses[:, None]).sum(axis=0)


def true_residual(S, vectors, values) -> float:
    """max_i ||S v_i - lambda_i v_i|| / max_i |lambda_i|, every v_i scaled to unit length first."""
    vectors = np.asarray(vectors, dtype=np.float64)
    unit = vectors / np.linalg.norm(vectors, axis=0)
    rest = np.asarray(S, dtype=np.float64) @ unit - unit * values
    return float(np.linalg.norm(rest, axis=0).max() / np.abs(values).max())


def largest_angle_sine(A, B) -> float:
    """||(I - Q_A Q_A^T) Q_B||_2: sine of the largest angle from span(B) to span(A), both full rank.

    Of equal widths it is the sine between the two subspaces; of a narrower B, from B to A.
    """
    basis_a, _ = np.linalg.qr(np.asarray(A, dtype=np.float64))
    basis_b, _ = np.linalg.qr(np.asarray(B, dtype=np.float64))
    return float(np.linalg.norm(basis_b - basis_a @ (basis_a.T @ basis_b), ord=2))


def align_signs(A, B) -> np.ndarray:
    """A with each column turned so that its inner product with that column of B is not negative."""
    A, B = np.asarray(A), np.asarray(B)
    return A * np.where(np.sum(A * B, axis=0) < 0, -1.0, 1.0)


class LandmarkCover:
    """The rule of docs/algorithms/landmarks.md, one event after the other, nothing kept but points.

    ``size`` landmarks as a list of [event, point, mass, born]; every distance is computed anew.
    """

    def __init__(self, size, half_life=None):
        self.size = size
        self.half_life = half_life
        self.seen = 0
        self.landmarks = []

    def learn(self, chunk):
        """A chunk: first those within the radius as it was, then the novel ones in their order."""
        c = len(chunk)
        for landmark in self.landmarks:
            landmark[2] *= 1.0 if self.half_life is None else 2.0 ** (-c / self.half_life)
        weight = [
            1.0 if self.half_life is None else 2.0 ** (-(c - 1 - i) / self.half_life)
            for i in range(c)
        ]
        # those that held their slots for long, as the chunk begins
        old = [each for each in self.landmarks if self.seen - each[3] > 10 * self.size]
        radius2 = self.radius2() if len(self.landmarks) == self.size else 0.0
        novel = []
        for i, point in enumerate(chunk):
            d2 = self.to_all(point)
            if len(d2) and d2.min() <= radius2:
                self.landmarks[int(d2.argmin())][2] += weight[i]
            else:
                novel.append(i)
        for i in novel:
            self.take(self.seen + i, chunk[i], weight[i], old)
        self.seen += c

    def take(self, event, point, weight, old):
        """A novel event gets a slot, the stale or the closest make room; or it is not so novel."""
        d2 = self.to_all(point)
        if len(self.landmarks) < self.size:
            if len(d2) and d2.min() == 0.0:
                self.landmarks[int(d2.argmin())][2] += weight
            else:
                self.landmarks.append([event, point, weight, event])
            return
        radius2 = self.radius2()
        if d2.min() <= radius2:
            self.landmarks[int(d2.argmin())][2] += weight
            return
        pairs = [self.to_all(each[1], skip=each) for each in self.landmarks]
        nearest = [row.min() for row in pairs]
        first = int(np.argmin(nearest))
        second = int(pairs[first].argmin())
        leaving = self.landmarks[first]
        if self.landmarks[second][2] <= leaving[2]:
            leaving = self.landmarks[second]
        mean = np.mean([each[2] for each in self.landmarks])
        held = [each for each in old if any(each is one for one in self.landmarks)]
        if held:
            lightest = min(held, key=lambda each: each[2])
            if lightest[2] < 0.02 * mean:
                leaving = lightest
        row = self.to_all(leaving[1], skip=leaving)
        heirs = np.argsort(row)[: min(8, self.size - 1)]
        share = np.exp(-(row[heirs] - row[heirs].min()) / radius2)
        for heir, part in zip(heirs, share / share.sum(), strict=True):
            self.landmarks[int(heir)][2] += part * leaving[2]
        slot = next(i for i, each in enumerate(self.landmarks) if each is leaving)
        self.landmarks[slot] = [event, point, weight, event]

    def to_all(self, point, skip=None):
        """Squared distances to every landmark, inf to the one that is left out."""
        row = np.array([np.sum((point - each[1]) ** 2) for each in self.landmarks])
        for i, each in enumerate(self.landmarks):
            if each is skip:
                row[i] = np.inf
        return row

    def radius2(self):
        """Squared distance of the closest pair."""
        return min(self.to_all(each[1], skip=each).min() for each in self.landmarks)
