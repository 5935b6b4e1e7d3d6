"""The frozen reference of a monitor: its map, and the scores of events against it.

The map is fitted to every other block of the reference's events; the others calibrate the scores.
The functions of a map are wider on the events that it is fitted to than on others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import ndtri

from streamembed.geometry.scaling import Scaling, fit_points
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.numeric.linalg import largest_pairs

CHUNK = 10  # events of which the mean score is taken
BLOCKS = 50  # consecutive ones of which the events go to the map, or to the calibration
MAX_FEATURES = 16
MAX_COMPONENTS = 64  # of vectors
MAX_LABEL_SCORES = 64  # numbers of the labels' score
FARTHEST = 8.0  # standard deviations of a feature
OUTSIDE = 1e6  # deviations; scaled points are clipped to this
FLOOR = 1e-12  # of the mean kernel weight
MIN_EIGENVALUE = 1e-3
PER_SCORE = 10  # calibration events that the whitening needs for each score
# Of the usual bandwidth: narrower, a map of many dimensions falls apart into single events, and
# false alarms come at once (docs/algorithms/monitor.md).
BANDWIDTH_FACTOR = 1.5


@dataclass(frozen=True, slots=True, eq=False)
class LabelReference:
    """The reference of the label scores."""

    means: Annotated[Floats, "c d"]  # of the standardised features, by class
    projection: Annotated[Floats, "s q"]  # from the scores of all classes to the watched ones

    def compute_scores(self, features: Floats, classes: Ints) -> Floats:
        """Shape (n, q); an event without a class of the reference has zeros before projection."""
        n, c, d = len(features), *self.means.shape
        known = np.flatnonzero((classes >= 0) & (classes < c))
        own = classes[known]
        parts = np.zeros((n, c, d))
        parts[known, own] = features[known] - self.means[own]
        member = np.zeros((n, c))
        member[known, own] = 1.0
        flat = np.concatenate([parts.reshape(n, c * d), member[:, :-1]], axis=1)
        return _multiply_rows(flat, self.projection)


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceMap:
    """A diffusion map of m points (gaussian kernel, alpha = 1), and the scale of features."""

    kernel: Scaling  # of the kernel
    points: Annotated[Floats, "m d"]  # scaled
    weights: Annotated[Floats, "m"]  # 1 / q, the kernel mass around each point
    psi: Annotated[Floats, "m k"]  # diffusion coordinates; eigenvalues are above 1e-3
    features: Scaling  # by standard deviations; 1 where a feature is constant
    # Leading axes of the standardised features, where there are more than 16.
    axes: Annotated[Floats, "d r"] | None
    # Of vectors, in their place: weights of the points in leading components of the squared kernel.
    components: Annotated[Floats, "m c"] | None

    def standardise(self, points: Floats) -> Floats:
        """Features in standard deviations, clipped to eight."""
        return np.clip(self.features.apply(points), -FARTHEST, FARTHEST)

    def compute_scores(self, points: Floats) -> Floats:
        """Coverage, coordinates and features of events, shape (n, 1 + k + r).

        coverage = log10 mean_j k(x, z_j), coordinates = sum_j p_j(x) psi_j with p_j in proportion
        to k(x, z_j) / q_j, or 0 where coverage is at its floor; features of vectors are
        sum_j k(x, z_j)**2 c_j. Rows are computed in tens, so that the bits do not depend on the
        size of a call.
        """
        tall = len(points)
        points = np.pad(points, ((0, -tall % CHUNK), (0, 0)))
        scaled = np.clip(self.kernel.apply(points), -OUTSIDE, OUTSIDE)
        d2 = _multiply_rows(scaled, self.points.T)
        d2 *= -2.0
        d2 += np.einsum("ij,ij->i", scaled, scaled)[:, None]
        d2 += np.einsum("ij,ij->i", self.points, self.points)
        np.maximum(d2, 0.0, out=d2)
        d2 *= -1.0 / self.kernel.bandwidth**2
        kernel = np.exp(d2, out=d2)
        mass = np.einsum("ij->i", kernel) / len(self.points)
        inside = mass > FLOOR
        if self.components is not None:
            features = _multiply_rows(kernel * kernel, self.components)
        else:
            features = self.standardise(points)
        if self.axes is not None:
            features = _multiply_rows(features, self.axes)
        kernel *= self.weights
        shares = np.einsum("ij->i", kernel)
        coordinates = _multiply_rows(kernel, self.psi)
        coordinates /= np.where(inside, shares, 1.0)[:, None]
        coordinates[~inside] = 0.0
        coverage = np.log10(np.maximum(mass, FLOOR))
        return np.concatenate([coverage[:, None], coordinates, features], axis=1)[:tall]


def _multiply_rows(rows: Floats, matrix: Array) -> Floats:
    """``rows @ matrix``, ten rows a product."""
    n, short = len(rows), -len(rows) % CHUNK
    if short:
        rows = np.concatenate([rows, np.zeros((short, rows.shape[1]))])
    products = np.matmul(rows.reshape(len(rows) // CHUNK, CHUNK, rows.shape[1]), matrix)
    result: Floats = products.reshape(len(rows), matrix.shape[1])[:n]
    return result


def fit(
    points: Floats,
    n_coordinates: int,
    scaling: str | None = "standard",
    bandwidth: float | None = None,
    divisors: Floats | float = 1.0,
    is_vector: bool = False,
) -> ReferenceMap:
    """Fit the map to these events, shape (n, d).

    Parameters
    ----------
    n_coordinates
        At most; fewer where the spectrum has fewer above 1e-3.
    divisors
        See `Features.divisors`: the numbers of a vector weigh as one feature.
    is_vector
        Whether components of the kernel take the place of features.
    """
    masses = np.ones(len(points))
    kernel_scaling = fit_points(points, masses, scaling, bandwidth, divisors=divisors)
    if bandwidth is None:
        kernel_scaling = kernel_scaling.with_bandwidth(BANDWIDTH_FACTOR * kernel_scaling.bandwidth)
    scaled = np.clip(kernel_scaling.apply(points), -OUTSIDE, OUTSIDE)
    features = fit_points(points, masses, "standard", 1.0)
    kernel = np.exp(-cdist(scaled, scaled, "sqeuclidean") / kernel_scaling.bandwidth**2)
    psi = _decompose_walk(kernel, n_coordinates)
    axes = components = None
    if is_vector:
        components = _decompose_kernel(kernel * kernel, MAX_COMPONENTS)
    elif points.shape[1] > MAX_FEATURES:
        tall = np.clip(features.apply(points), -FARTHEST, FARTHEST) / divisors
        _, _, right = np.linalg.svd(tall - tall.mean(axis=0), full_matrices=False)
        axes = np.ascontiguousarray((_fix_signs(right[:MAX_FEATURES].T).T / divisors).T)
    scaled = np.ascontiguousarray(scaled)
    weights = 1.0 / kernel.sum(axis=1)
    return ReferenceMap(kernel_scaling, scaled, weights, psi, features, axes, components)


def _decompose_kernel(kernel: Floats, count: int) -> Floats:
    """Weights of the points in the leading components of a kernel, shape (m, c).

    Squared differences of the components are those of the events in the kernel's own space: their
    sum over two means is the maximum mean discrepancy, but for the components that are left out.

    Source: Scholkopf, Smola & Muller (1998), kernel principal components; Gretton et al. (2012),
    "A kernel two-sample test".
    """
    centred = kernel - kernel.mean(axis=0)
    centred -= centred.mean(axis=1)[:, None]
    values, vectors = largest_pairs((centred + centred.T) / 2, min(count, len(kernel) - 1))
    used = np.flatnonzero(values > FLOOR * len(kernel))[::-1]
    return np.ascontiguousarray(_fix_signs(vectors[:, used] / np.sqrt(values[used])))


def _decompose_walk(kernel: Floats, count: int) -> Floats:
    """Leading eigenvectors of the walk (alpha = 1) on a kernel, without the constant.

    The constant is deflated in closed form: dividing by a computed one fails where the graph is
    disconnected.
    """
    q = kernel.sum(axis=1)
    walk = kernel / np.outer(q, q)
    root = np.sqrt(walk.sum(axis=1))
    symmetric = walk / np.outer(root, root)
    first = root / np.linalg.norm(root)
    symmetric -= np.outer(first, first)
    n = len(kernel)
    eigenvalues, vectors = largest_pairs(symmetric, min(count, n - 1))
    used = np.flatnonzero(eigenvalues > MIN_EIGENVALUE)[::-1]
    psi = vectors[:, used] / first[:, None]
    return np.ascontiguousarray(_fix_signs(psi))


def _fix_signs(columns: Floats) -> Floats:
    """The columns with their largest entry positive."""
    largest = np.abs(columns).argmax(axis=0)
    return columns * np.where(columns[largest, np.arange(columns.shape[1])] < 0, -1.0, 1.0)


def compute_spread_scores(scores: Floats, ordered: Floats) -> Floats:
    """How far out scores lie among those of the calibration, ``ordered``: 0 on average, from -1 on.

    Of the first scores, where more are given than are ordered.

    Squares of their normal scores detect a score whose mean stays and whose width changes.

    Source: Klotz (1962), "Nonparametric tests for scale".
    """
    return compute_normal_scores(ordered, scores[:, : ordered.shape[1]]) ** 2 - 1.0


def compute_normal_scores(ordered: Floats, points: Floats) -> Floats:
    """Normal quantiles of the ranks of points (m, d) in columns of sorted ones (n, d).

    Ties lie halfway, and all ranks in (0, 1).
    """
    columns = np.ascontiguousarray(points.T)
    ranks = np.empty(columns.shape)
    for rank, known, own in zip(ranks, np.ascontiguousarray(ordered.T), columns, strict=True):
        below = known.searchsorted(own)
        is_tied = (known.take(below, mode="clip") == own).any()
        np.add(below, known.searchsorted(own, "right") if is_tied else below, out=rank)
    scores: Floats = ndtri((ranks.T + 1) / (2 * (len(ordered) + 1)))
    return scores


def fit_labels(features: Floats, classes: Ints, count: int, most: int, seed: int) -> LabelReference:
    """Fit the label reference to standardised features and the classes below ``count``."""
    means = np.zeros((count, features.shape[1]))
    for own in range(count):
        if (classes == own).any():
            means[own] = features[classes == own].mean(axis=0)
    width = means.size + max(count - 1, 0)
    most = max(1, min(MAX_LABEL_SCORES, most))
    if width <= most:
        return LabelReference(means, np.eye(width))
    rng = np.random.default_rng([seed, width])
    return LabelReference(means, rng.standard_normal((width, most)) / np.sqrt(width))
