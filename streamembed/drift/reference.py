"""The frozen reference of a monitor: its map, and what it says of an event, its scores.

Every other block of the reference's events makes the map; the others calibrate what is made of the
scores. Events that made a map are not like others to it: its functions are wider on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.spatial.distance import cdist

from streamembed.geometry.scaling import Scaling, fit_points
from streamembed.numeric.arrays import Array, Bools, Floats, Ints
from streamembed.numeric.linalg import largest_pairs

__all__ = [
    "BLOCK",
    "CHUNK",
    "PER_SCORE",
    "Labels",
    "Reference",
    "deflated",
    "fit",
    "fit_labels",
    "makes_map",
    "spread",
]

CHUNK = 10  # events of which the mean score is taken
BLOCK = 50  # events of the reference that go to the map, or to the calibration, together
MOST_FEATURES = 16
MOST_LABELS = 64  # numbers of the labels' score
FARTHEST = 8.0  # standard deviations of a feature
OUTSIDE = 1e6  # deviations beyond which a point is as far as can be
FLOOR = 1e-12  # of the mean kernel weight
LEAST_EIGENVALUE = 1e-3
PER_SCORE = 10  # calibration events that the whitening needs for each score
# Of the usual bandwidth: narrower, a map of many dimensions falls apart into single events, and
# false alarms come at once (docs/decisions/0019).
WIDER = 1.5


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """What the labels of an event are compared with.

    Attributes
    ----------
    means : (C, d)
        Of the standardised features, by class.
    projection : (d C + C - 1, q)
        From the score of all classes to what is watched.
    """

    means: Annotated[Floats, "c d"]
    projection: Annotated[Floats, "s q"]

    def scores(self, features: Floats, classes: Ints) -> Floats:
        """Shape (n, q); an event without a class of the reference has zeros before projection."""
        n, c, d = len(features), *self.means.shape
        known = np.flatnonzero((classes >= 0) & (classes < c))
        own = classes[known]
        parts = np.zeros((n, c, d))
        parts[known, own] = features[known] - self.means[own]
        member = np.zeros((n, c))
        member[known, own] = 1.0
        flat = np.concatenate([parts.reshape(n, c * d), member[:, :-1]], axis=1)
        return _products(flat, self.projection)


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A diffusion map of m points (gaussian kernel, alpha = 1), and the scale of features.

    Attributes
    ----------
    center, scale : (d,)
        The kernel sees (x - center) / scale.
    bandwidth : float
    points : (m, d)
        As the kernel sees them.
    weights : (m,)
        1 / q, the kernel mass around each point.
    psi : (m, k)
        Diffusion coordinates; eigenvalues are above 1e-3.
    eigenvalues : (k,)
    mean, sd : (d,)
        Of the features; 1 where one does not vary.
    axes : (d, r) or None
        Leading axes of the standardised features, where there are more than 16.
    """

    center: Annotated[Floats, "d"]
    scale: Annotated[Floats, "d"]
    bandwidth: float
    points: Annotated[Floats, "m d"]
    weights: Annotated[Floats, "m"]
    psi: Annotated[Floats, "m k"]
    eigenvalues: Annotated[Floats, "k"]
    mean: Annotated[Floats, "d"]
    sd: Annotated[Floats, "d"]
    axes: Annotated[Floats, "d r"] | None

    @property
    def scaling(self) -> Scaling:
        """What the kernel sees of points in the caller's units."""
        return Scaling(self.center, self.scale, self.bandwidth)

    def scaled(self, points: Floats) -> Floats:
        """Points as the kernel sees them; nothing is farther than can be told."""
        return np.clip(self.scaling.apply(points), -OUTSIDE, OUTSIDE)

    def standardised(self, points: Floats) -> Floats:
        """Features in standard deviations, at most eight of them."""
        with np.errstate(over="ignore"):
            return np.clip((points - self.mean) / self.sd, -FARTHEST, FARTHEST)

    def scores(self, points: Floats) -> Floats:
        """Coverage, coordinates and features of events, shape (n, 1 + k + r).

        coverage = log10 mean_j k(x, z_j), coordinates = sum_j p_j(x) psi_j with p_j in proportion
        to k(x, z_j) / q_j, or 0 where coverage is at its floor. Every ten rows are computed by
        themselves, so that the bits do not hang on how many come at once.
        """
        tall = len(points)
        whole = -(-tall // CHUNK) * CHUNK
        points = np.concatenate([points, np.zeros((whole - tall, points.shape[1]))])
        scaled = self.scaled(points)
        d2 = _products(scaled, self.points.T)
        d2 *= -2.0
        d2 += np.einsum("ij,ij->i", scaled, scaled)[:, None]
        d2 += np.einsum("ij,ij->i", self.points, self.points)
        np.maximum(d2, 0.0, out=d2)
        d2 *= -1.0 / self.bandwidth**2
        kernel = np.exp(d2, out=d2)
        mass = np.einsum("ij->i", kernel) / len(self.points)
        inside = mass > FLOOR
        kernel *= self.weights
        shares = np.einsum("ij->i", kernel)
        coordinates = _products(kernel, self.psi)
        coordinates /= np.where(inside, shares, 1.0)[:, None]
        coordinates[~inside] = 0.0
        coverage = np.log10(np.maximum(mass, FLOOR))
        features = self.standardised(points)
        if self.axes is not None:
            features = _products(features, self.axes)
        return np.concatenate([coverage[:, None], coordinates, features], axis=1)[:tall]


def _products(rows: Floats, matrix: Array) -> Floats:
    """``rows @ matrix``, ten rows a product."""
    n, short = len(rows), -len(rows) % CHUNK
    if short:
        rows = np.concatenate([rows, np.zeros((short, rows.shape[1]))])
    made = np.matmul(rows.reshape(-1, CHUNK, rows.shape[1]), matrix)
    found: Floats = made.reshape(len(rows), -1)[:n]
    return found


def makes_map(n: int, block: int = BLOCK) -> Bools:
    """Which of n events of a reference make the map."""
    chosen: Bools = np.arange(n) // block % 2 == 0
    return chosen


def fit(
    points: Floats,
    n_coordinates: int,
    scaling: str | None = "standard",
    bandwidth: float | None = None,
) -> Reference:
    """The map of these events, shape (n, d).

    Parameters
    ----------
    n_coordinates
        At most; fewer where the spectrum has fewer above 1e-3.
    """
    of = fit_points(points, np.ones(len(points)), scaling, bandwidth)
    if bandwidth is None:
        of = of.of_bandwidth(WIDER * of.bandwidth)
    scaled = np.clip(of.apply(points), -OUTSIDE, OUTSIDE)
    normal = fit_points(points, np.ones(len(points)), "standard", 1.0)
    kernel = np.exp(-cdist(scaled, scaled, "sqeuclidean") / of.bandwidth**2)
    eigenvalues, psi = _decomposed(kernel, n_coordinates)
    axes = None
    if points.shape[1] > MOST_FEATURES:
        tall = np.clip(normal.apply(points), -FARTHEST, FARTHEST)
        _, _, right = np.linalg.svd(tall - tall.mean(axis=0), full_matrices=False)
        axes = np.ascontiguousarray(_signed(right[:MOST_FEATURES].T))
    return Reference(
        of.center,
        of.scale,
        of.bandwidth,
        np.ascontiguousarray(scaled),
        1.0 / kernel.sum(axis=1),
        psi,
        eigenvalues,
        normal.center,
        normal.scale,
        axes,
    )


def deflated(kernel: Floats) -> tuple[Floats, Floats]:
    """The symmetric conjugate of the walk (alpha = 1) on a kernel, and its constant vector.

    The constant is taken out in closed form: dividing by a computed one fails where parts are
    separate.
    """
    q = kernel.sum(axis=1)
    walk = kernel / np.outer(q, q)
    root = np.sqrt(walk.sum(axis=1))
    symmetric = walk / np.outer(root, root)
    first = root / np.linalg.norm(root)
    symmetric -= np.outer(first, first)
    return symmetric, first


def _decomposed(kernel: Floats, count: int) -> tuple[Floats, Floats]:
    """Leading eigenpairs of the walk on a kernel, without the constant."""
    symmetric, first = deflated(kernel)
    n = len(kernel)
    eigenvalues, vectors = largest_pairs(symmetric, min(count, n - 1))
    kept = np.flatnonzero(eigenvalues > LEAST_EIGENVALUE)[::-1]
    psi = vectors[:, kept] / first[:, None]
    return eigenvalues[kept], np.ascontiguousarray(_signed(psi))


def _signed(columns: Floats) -> Floats:
    """The largest entry of every column positive."""
    largest = np.abs(columns).argmax(axis=0)
    return columns * np.where(columns[largest, np.arange(columns.shape[1])] < 0, -1.0, 1.0)


def spread(scores: Floats, ordered: Floats) -> Floats:
    """Whether scores are where those of the calibration end: mean 0, in [-1/2, 1].

    6 (u - 1/2)**2 - 1/2 of their rank u among ``ordered``, the calibration's scores, sorted by
    column: it sees a score whose mean stays and whose width changes.
    """
    n = len(ordered)
    own, known = np.ascontiguousarray(scores.T), np.ascontiguousarray(ordered.T)
    before = _below(own, known)
    behind = before.copy()
    tied = np.take_along_axis(known, np.minimum(before, n - 1), axis=1) == own
    for i in np.flatnonzero(tied.any(axis=1)):
        behind[i, tied[i]] = known[i].searchsorted(own[i, tied[i]], "right")
    ranks = (before + behind).T
    u = (0.5 * ranks + 0.5) / (n + 1)
    found: Floats = 6.0 * (u - 0.5) ** 2 - 0.5
    return found


def _below(own: Floats, known: Floats) -> Ints:
    """How many entries of each row of ``known`` (s, n), which ascends, are less than each of
    ``own`` (s, m).

    One binary search for all rows, a quarter of the time of one a row.
    """
    s, n = known.shape
    flat, first = known.ravel(), np.arange(0, s * n, n)[:, None]
    at = np.repeat(first, own.shape[1], axis=1)
    looked, there = np.empty_like(at), np.empty(own.shape)
    step, left = 0, n
    while left > 0:
        step = max(left // 2, 1)
        np.take(flat, np.add(at, step - 1, out=looked), out=there, mode="clip")
        at += np.multiply(there < own, step, out=looked)
        left = left - step if left > 1 else 0
    found: Ints = at - first
    return found


def fit_labels(features: Floats, classes: Ints, count: int, most: int, seed: int) -> Labels:
    """What labels are compared with, of standardised features and the classes below ``count``."""
    means = np.zeros((count, features.shape[1]))
    for own in range(count):
        if (classes == own).any():
            means[own] = features[classes == own].mean(axis=0)
    width = means.size + max(count - 1, 0)
    most = max(1, min(MOST_LABELS, most))
    if width <= most:
        return Labels(means, np.eye(width))
    rng = np.random.default_rng([seed, width])
    return Labels(means, rng.standard_normal((width, most)) / np.sqrt(width))
