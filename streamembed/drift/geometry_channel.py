"""The second clock: has the shape of the data changed, from one stretch of the stream to the next?

Two figures of a sample of events, in which signs and rotations of a map play no part: its spectrum,
at the reference's scaling and bandwidth, and the metric that its neighbours teach. What they are
without a change is learned from pairs of disjoint parts of the reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Annotated

import numpy as np
from scipy.linalg import eigvalsh
from scipy.spatial.distance import cdist
from scipy.special import log_ndtr, ndtri

from streamembed.drift.reference import Reference, deflated
from streamembed.numeric.arrays import Floats, Ints

__all__ = ["CHANNELS", "Geometry", "Shape", "distances", "learn", "run_lengths", "scores", "shape"]

CHANNELS = ("spectrum", "metric")
N_EIGENVALUES = 8
LEAST = 1e-6  # of an eigenvalue
FLOOR = 1e-2  # of a metric's eigenvalues, relative to their mean
SAMPLE = 200  # events of a comparison
SPLITS = 40  # pairs of disjoint parts of the reference, and parts, at least
BLOCK = 20  # events that are drawn together, for neighbours in time are not independent
HIGH = 0.95  # quantile of the splits whose distance from the mean counts as 1.64 sd
WIDER = 1.35  # sd of one comparison: all share one reference


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """Figures of one sample.

    Attributes
    ----------
    logs : (8,)
        Logs of the leading eigenvalues of the walk, the constant left out.
    scatter : (r, r)
        Mean square differences of neighbours, weighted by the kernel, floored.
    """

    logs: Annotated[Floats, "*"]
    scatter: Annotated[Floats, "r r"]


@dataclass(frozen=True, slots=True, eq=False)
class Geometry:
    """The reference's figures, and how far samples of it are from each other.

    Attributes
    ----------
    own : Shape
    mean, sd : (2,)
        Of both distances, spectrum and metric, without a change.
    """

    own: Shape
    mean: Annotated[Floats, "2"]
    sd: Annotated[Floats, "2"]


def shape(reference: Reference, points: Floats) -> Shape:
    """Figures of events, shape (n, d) in the caller's units; at most 200 are looked at."""
    chosen = np.linspace(0, len(points) - 1, min(SAMPLE, len(points))).astype(np.int64)
    return _shape(reference.scaled(points[chosen]), _flat(reference, points[chosen]), reference)


def _flat(reference: Reference, points: Floats) -> Floats:
    features = reference.standardised(points)
    return features if reference.axes is None else features @ reference.axes


def _shape(scaled: Floats, features: Floats, reference: Reference) -> Shape:
    kernel = np.exp(-cdist(scaled, scaled, "sqeuclidean") / reference.bandwidth**2)
    symmetric, _ = deflated(kernel)
    # not a subset: LAPACK gives up on the many equal ones of points that are far from all others
    found = eigvalsh(symmetric, driver="ev")[: -N_EIGENVALUES - 1 : -1]
    logs = np.full(N_EIGENVALUES, np.log(LEAST))
    logs[: len(found)] = np.log(np.maximum(found, LEAST))
    pairs = kernel - np.diag(np.diagonal(kernel))
    laplacian = np.diag(pairs.sum(axis=1)) - pairs
    scatter = features.T @ laplacian @ features / max(pairs.sum() / 2, 1e-300)
    return Shape(logs, _floored(scatter))


def _floored(scatter: Floats) -> Floats:
    """The same with no eigenvalue below a hundredth of their mean."""
    values, vectors = np.linalg.eigh((scatter + scatter.T) / 2)
    least = max(FLOOR * float(values.mean()), 1e-12)
    floored: Floats = (vectors * np.maximum(values, least)) @ vectors.T
    return floored


def distances(a: Shape, b: Shape) -> Floats:
    """How far two samples are apart in spectrum and metric, shape (2,).

    mean_k |log lambda_k^B / lambda_k^A|, and the log of the log-det divergence of the metrics,
    which are the inverses of the scatters.
    """
    spectrum = float(np.abs(a.logs - b.logs).mean())
    ratio = np.linalg.solve(a.scatter, b.scatter)
    sign, logdet = np.linalg.slogdet(ratio)
    divergence = float(np.trace(ratio) - logdet - len(ratio)) if sign > 0 else np.inf
    return np.array([spectrum, np.log(min(max(divergence, 1e-12), 1e12))])


def learn(reference: Reference, points: Floats, seed: tuple[int, ...]) -> Geometry:
    """The figures of a reference, from all its events, shape (n, d) in the caller's units."""
    scaled, features = reference.scaled(points), _flat(reference, points)
    rng = np.random.default_rng(seed)
    blocks = np.arange(len(points)) // BLOCK
    count = int(blocks[-1]) + 1
    size = min(SAMPLE, len(points) // 2)
    half = max(1, min(-(-size // BLOCK), count // 2))

    def of(rows: Ints) -> Shape:
        return _shape(scaled[rows], features[rows], reference)

    parts = count // half
    rounds = -(-SPLITS // min(parts, parts * (parts - 1) // 2))
    found = []
    for _ in range(rounds):
        order = rng.permutation(count)[: parts * half].reshape(parts, half)
        shapes = [of(np.flatnonzero(np.isin(blocks, own))[:size]) for own in order]
        found += [distances(a, b) for a, b in combinations(shapes, 2)]
    table = np.array(found)
    own = np.linspace(0, len(points) - 1, size).astype(np.int64)
    mean = table.mean(axis=0)
    # heavy tails are skewed: their high end counts
    high = (np.quantile(table, HIGH, axis=0) - mean) / ndtri(HIGH)
    sd = np.maximum(np.maximum(table.std(axis=0), high), 1e-9)
    return Geometry(of(own), mean, sd)


def scores(geometry: Geometry, now: Shape) -> Floats:
    """Both distances in standard deviations of what they are without a change, shape (2,)."""
    found: Floats = (distances(geometry.own, now) - geometry.mean) / geometry.sd
    return found


def run_lengths(z: Floats, period: int) -> Floats:
    """Log of the events in which a score this high comes once, of one look every ``period``."""
    found: Floats = np.log(period) - log_ndtr(-z / WIDER)
    return found
