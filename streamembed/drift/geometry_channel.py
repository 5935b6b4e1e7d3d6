"""Snapshot channels: has the shape of the data changed from one stretch of the stream to the next?

Two figures of a sample of events that do not depend on signs and rotations of a map: its spectrum,
at the reference's scaling and bandwidth, and the metric of the differences of its neighbours. Their
distribution without a change is estimated from pairs of disjoint parts of the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Annotated

import numpy as np
from scipy.linalg import eigvalsh
from scipy.spatial.distance import cdist
from scipy.special import log_ndtr, ndtri

from streamembed.drift.reference import ReferenceMap, deflate_walk
from streamembed.numeric.arrays import Floats, Ints

CHANNELS = ("spectrum", "metric")
N_EIGENVALUES = 8
MIN_EIGENVALUE = 1e-6  # of an eigenvalue
FLOOR = 1e-2  # of a metric's eigenvalues, relative to their mean
SAMPLE = 200  # events of a comparison
N_SPLITS = 40  # pairs of disjoint parts of the reference, and parts, at least
BLOCK = 20  # events that are drawn together, because neighbours in time are not independent
HIGH_QUANTILE = 0.95  # quantile of the splits whose distance from the mean counts as 1.64 sd
SHARED_REFERENCE_SD = 1.35  # sd of one comparison: all share one reference


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Figures of one sample."""

    # Logs of the leading eigenvalues of the walk, the constant left out.
    logs: Annotated[Floats, "*"]
    # Mean square differences of neighbours, weighted by the kernel, floored.
    scatter: Annotated[Floats, "r r"]


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceGeometry:
    """Figures of the reference, and distances of samples of it from each other."""

    own: Shape
    # Of both distances, spectrum and metric, without a change.
    mean: Annotated[Floats, "2"]
    sd: Annotated[Floats, "2"]


def measure_shape(reference: ReferenceMap, points: Floats) -> Shape:
    """Figures of events, shape (n, d) in the caller's units; at most 200 of them are used."""
    chosen = np.linspace(0, len(points) - 1, min(SAMPLE, len(points))).astype(np.int64)
    return _measure_scaled(
        reference.scale_points(points[chosen]),
        _project_features(reference, points[chosen]),
        reference,
    )


def _project_features(reference: ReferenceMap, points: Floats) -> Floats:
    features = reference.standardise(points)
    return features if reference.axes is None else features @ reference.axes


def _measure_scaled(scaled: Floats, features: Floats, reference: ReferenceMap) -> Shape:
    kernel = np.exp(-cdist(scaled, scaled, "sqeuclidean") / reference.bandwidth**2)
    symmetric, _ = deflate_walk(kernel)
    # not a subset: LAPACK fails on the many equal eigenvalues of points far from all others
    values = eigvalsh(symmetric, driver="ev")[: -N_EIGENVALUES - 1 : -1]
    logs = np.full(N_EIGENVALUES, np.log(MIN_EIGENVALUE))
    logs[: len(values)] = np.log(np.maximum(values, MIN_EIGENVALUE))
    pairs = kernel - np.diag(np.diagonal(kernel))
    laplacian = np.diag(pairs.sum(axis=1)) - pairs
    scatter = features.T @ laplacian @ features / max(pairs.sum() / 2, 1e-300)
    return Shape(logs, _floor_eigenvalues(scatter))


def _floor_eigenvalues(scatter: Floats) -> Floats:
    """The same with no eigenvalue below a hundredth of their mean."""
    values, vectors = np.linalg.eigh((scatter + scatter.T) / 2)
    least = max(FLOOR * float(values.mean()), 1e-12)
    floored: Floats = (vectors * np.maximum(values, least)) @ vectors.T
    return floored


def compute_distances(a: Shape, b: Shape) -> Floats:
    """Distances of two samples in spectrum and metric, shape (2,).

    mean_k |log lambda_k^B / lambda_k^A|, and the log of the log-det divergence of the metrics,
    which are the inverses of the scatters.
    """
    spectrum = float(np.abs(a.logs - b.logs).mean())
    ratio = np.linalg.solve(a.scatter, b.scatter)
    sign, logdet = np.linalg.slogdet(ratio)
    divergence = float(np.trace(ratio) - logdet - len(ratio)) if sign > 0 else np.inf
    return np.array([spectrum, np.log(min(max(divergence, 1e-12), 1e12))])


def fit_geometry(
    reference: ReferenceMap, points: Floats, seed: tuple[int, ...]
) -> ReferenceGeometry:
    """The figures of a reference, from all its events, shape (n, d) in the caller's units."""
    scaled, features = reference.scale_points(points), _project_features(reference, points)
    rng = np.random.default_rng(seed)
    blocks = np.arange(len(points)) // BLOCK
    count = int(blocks[-1]) + 1
    size = min(SAMPLE, len(points) // 2)
    half = max(1, min(-(-size // BLOCK), count // 2))

    def of(rows: Ints) -> Shape:
        return _measure_scaled(scaled[rows], features[rows], reference)

    parts = count // half
    rounds = -(-N_SPLITS // min(parts, parts * (parts - 1) // 2))
    pairs = []
    for _ in range(rounds):
        order = rng.permutation(count)[: parts * half].reshape(parts, half)
        shapes = [of(np.flatnonzero(np.isin(blocks, own))[:size]) for own in order]
        pairs += [compute_distances(a, b) for a, b in combinations(shapes, 2)]
    table = np.array(pairs)
    own = np.linspace(0, len(points) - 1, size).astype(np.int64)
    mean = table.mean(axis=0)
    # heavy tails are skewed: their high end counts
    high = (np.quantile(table, HIGH_QUANTILE, axis=0) - mean) / ndtri(HIGH_QUANTILE)
    sd = np.maximum(np.maximum(table.std(axis=0), high), 1e-9)
    return ReferenceGeometry(of(own), mean, sd)


def compute_scores(geometry: ReferenceGeometry, now: Shape) -> Floats:
    """Both distances in standard deviations of what they are without a change, shape (2,)."""
    return (compute_distances(geometry.own, now) - geometry.mean) / geometry.sd


def compute_run_lengths(z: Floats, period: int) -> Floats:
    """Log of the events in which a score this high occurs once, at one comparison a period."""
    values: Floats = np.log(period) - log_ndtr(-z / SHARED_REFERENCE_SD)
    return values
