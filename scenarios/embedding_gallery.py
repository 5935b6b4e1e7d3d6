"""embedding-gallery: every method on a roll, on images and on words, streaming against batch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse.csgraph import connected_components, shortest_path
from scipy.spatial.distance import cdist
from sklearn import datasets, decomposition, manifold

import streamembed as se
from scenarios.scenario import Expected, Outcome, Scenario
from scenarios.streams import DataAbsent, table, words
from scenarios.word_distances import edit_distances
from streamembed.estimators import PCA
from streamembed.numeric.arrays import Array, Floats
from streamembed.threads import one_blas_thread

__all__ = ["KEPT", "METHODS", "SETS", "Embedded", "Stream", "embed", "streams"]

# By the names of the estimators, in the order of the picture; parameters are their defaults.
METHODS: dict[str, dict[str, Any]] = {
    "PCA": {},
    "ClassicalMDS": {"method": "classical_mds"},
    "KernelPCA": {"method": "kernel_pca"},
    "Isomap": {"method": "isomap", "n_neighbors": 10},
    "LocallyLinearEmbedding": {"method": "lle", "n_neighbors": 12},
    "LaplacianEigenmaps": {"method": "laplacian_eigenmaps"},
    "DiffusionMap": {"method": "diffusion_map"},
}
NEED_POINTS = ("PCA", "LocallyLinearEmbedding")
SETS = ("roll", "digits", "cars", "words")
# What counts as near, in the share of neighbours that a map keeps.
KEPT = 15
WINDOW, EVENTS, QUICK_WINDOW, QUICK_EVENTS = 800, 1200, 200, 300
# Snapshots of a stream.
MOMENTS = 6
# The toy cars among the objects of coil20, which has 72 images of each, 5 degrees apart; and the
# noise of the camera, which sees every image again and again: of grey levels from 0 to 1.
CARS, POSES, CAMERA = (2, 5, 18), 72, 0.03
# Laplacian eigenmaps: the neighbour whose distance is a point's width, and the least share of the
# median width; see docs/algorithms/laplacian-eigenmaps.md.
SCALE_NEIGHBOR, LEAST_WIDTH = 7, 0.1
# Equal distances can be broken by either side: this much noise, beside grey levels of 1 to 16.
APART = 1e-6


@dataclass(frozen=True, eq=False)
class Stream:
    """Events in their order: points, or a table of distances; what to colour them by."""

    points: Floats | None
    distances: Floats | None
    shade: Array


@dataclass(frozen=True, eq=False)
class Embedded:
    """The last streaming map, the batch map of the same window, and what was certified before.

    Attributes
    ----------
    coordinates, batch : (n, 2)
        Of ``shown``: the events of the window, oldest first, that have a place in the map.
    distances : (n, n)
        Between these, as the methods see them.
    met : list of bool
        At every snapshot.
    """

    coordinates: Floats
    batch: Floats
    distances: Floats
    shown: Array
    met: list[bool]

    @property
    def off(self) -> float:
        """How far the streaming map is from the batch map, relative to the size of that one."""
        return procrustes(self.coordinates, self.batch)

    @property
    def kept(self) -> tuple[float, float]:
        """Share of the nearest neighbours that are so in the map: streaming, batch."""
        return tuple(_kept(self.distances, map_) for map_ in (self.coordinates, self.batch))  # type: ignore[return-value]


def run(full: bool) -> Outcome:
    """Every method follows every stream; its last map is held against a batch map of the window."""
    outcome = Outcome()
    window = WINDOW if full else QUICK_WINDOW
    met: dict[str, list[bool]] = {}
    losses = []
    with one_blas_thread():
        for name, stream in streams(full):
            for method in METHODS:
                if stream.points is None and method in NEED_POINTS:
                    continue
                found = embed(stream, method, window)
                met.setdefault(method, []).extend(found.met)
                kept, of_batch = found.kept
                losses.append(of_batch - kept)
                outcome.figures[f"{name}_{method}_off"] = found.off
                outcome.figures[f"{name}_{method}_kept"] = kept
    return outcome


def streams(full: bool) -> Iterator[tuple[str, Stream]]:
    """The sets of `SETS`, in that order.

    Raises
    ------
    DataAbsent
        All but the roll are in the data folder.
    """
    count = EVENTS if full else QUICK_EVENTS
    rng = np.random.default_rng(0)
    points, along = datasets.make_swiss_roll(count, noise=0.1, random_state=0)
    yield "roll", Stream(points, None, along)
    points, labels = table("digits")
    points = points[:count] + APART * rng.standard_normal((count, points.shape[1]))
    yield "digits", Stream(points, None, labels[:count])
    points, labels = table("coil20")
    cars = np.flatnonzero(np.isin(labels, CARS))
    seen = np.concatenate([rng.permutation(cars) for _ in range(-(-count // len(cars)))])[:count]
    points = points[seen] + CAMERA * rng.standard_normal((count, points.shape[1]))
    yield "cars", Stream(points, None, seen % POSES)
    chosen = words()[:count]
    distances = np.array([edit_distances(word, chosen) for word in chosen])
    yield "words", Stream(None, distances, np.array([len(word) for word in chosen]))


def embed(stream: Stream, method: str, window: int) -> Embedded:
    if method == "PCA":
        assert stream.points is not None
        return _principal(stream.points, window)
    engine = se.Engine(size=window, scaling=None, **METHODS[method])
    events = len(stream.shade)
    met = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", se.errors.DegenerateMapWarning)
        for part in _parts(events):
            if stream.points is not None:
                engine.learn(stream.points[part])
            else:
                assert stream.distances is not None
                d = stream.distances
                engine.learn_distances([d[t, max(0, t - window) : t] for t in part])
            if engine.ready:
                met.append(bool(engine.snapshot().certificate.met))
        snapshot = engine.snapshot()
    here = slice(events - window, events)
    points = None if stream.points is None else stream.points[here]
    if stream.distances is None:
        assert points is not None
        distances = cdist(points, points)
    else:
        distances = stream.distances[here, here]
    shown = np.arange(window)
    if method == "Isomap":
        shown = _largest_part(distances, snapshot.n_neighbors)
        distances = distances[np.ix_(shown, shown)]
        points = None if points is None else points[shown]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        batch = _batch(method, points, distances, snapshot)
    return Embedded(snapshot.coordinates[shown], batch, distances, shown, met)


def _parts(events: int) -> Iterator[range]:
    """What is learned between snapshots; whole chunks."""
    step = events // MOMENTS
    for start in range(0, events, step):
        yield range(start, start + step)


def _principal(points: Floats, window: int) -> Embedded:
    model = PCA(n_components=2, window=window)
    met = []
    for part in _parts(len(points)):
        model.learn_many(points[part])
        met.append(bool(model.snapshot().met))
    last = points[-window:]
    batch = decomposition.PCA(2, svd_solver="full").fit_transform(last)
    shown = np.arange(window)
    return Embedded(model.snapshot().transform(last), batch, cdist(last, last), shown, met)


def _batch(method: str, points: Floats | None, distances: Floats, snapshot: se.Snapshot) -> Floats:
    """The map of the window from scratch, by scikit-learn wherever it has the method."""
    squares = distances**2
    if method == "ClassicalMDS":
        return _centred(-0.5 * squares)
    if method == "KernelPCA":
        gamma = snapshot.bandwidth**-2
        if points is None:
            return _centred(np.exp(-gamma * squares))
        return decomposition.KernelPCA(2, kernel="rbf", gamma=gamma, eigen_solver="dense").fit_transform(points)
    k = snapshot.n_neighbors
    if method == "LocallyLinearEmbedding":
        return manifold.LocallyLinearEmbedding(n_neighbors=k, n_components=2, eigen_solver="dense").fit_transform(points)
    if method == "Isomap":
        if points is None:
            lengths = shortest_path(np.where(_graph(distances, k), distances, 0.0), directed=False)
            return _centred(-0.5 * lengths**2)
        return manifold.Isomap(n_neighbors=k, eigen_solver="dense").fit_transform(points)
    if method == "LaplacianEigenmaps":
        widths = np.sort(distances, axis=1)[:, SCALE_NEIGHBOR]
        widths = np.maximum(widths, LEAST_WIDTH * np.median(widths))
        weights = np.exp(-squares / np.outer(widths, widths)) * _graph(distances, k)
    else:
        widths = snapshot.widths
        weights = np.exp(-squares / (snapshot.width * np.outer(widths, widths)))
    degrees = weights.sum(axis=1)
    root = np.sqrt(degrees)
    values, vectors = np.linalg.eigh(weights / np.outer(root, root))
    psi = vectors[:, -2:-4:-1] * np.sqrt(degrees.sum()) / root[:, None]
    return psi * values[-2:-4:-1] if method == "DiffusionMap" else psi


def _centred(matrix: Floats) -> Floats:
    """Leading coordinates of a symmetric matrix once its mean is taken out, by a dense solve."""
    rows = matrix.mean(axis=1)
    values, vectors = np.linalg.eigh(matrix - rows - rows[:, None] + rows.mean())
    coordinates: Floats = vectors[:, :-3:-1] * np.sqrt(values[:-3:-1])
    return coordinates


def _graph(distances: Floats, k: int) -> Array:
    """Who is among the k nearest of whom, either way; of equally near ones the older."""
    n = len(distances)
    apart = distances + np.diag(np.full(n, np.inf))
    near = np.argsort(apart, axis=1, kind="stable")[:, :k]
    joined = np.zeros((n, n), dtype=bool)
    joined[np.arange(n)[:, None], near] = True
    return joined | joined.T


def _largest_part(distances: Floats, k: int) -> Array:
    labels = connected_components(_graph(distances, k))[1]
    return np.flatnonzero(labels == np.bincount(labels).argmax())


def procrustes(given: Floats, truth: Floats) -> float:
    """min ||given R - truth|| / ||truth|| over rotations and reflections R, both centred."""
    given, truth = given - given.mean(axis=0), truth - truth.mean(axis=0)
    left, _, right = np.linalg.svd(given.T @ truth)
    return float(np.linalg.norm(given @ (left @ right) - truth) / np.linalg.norm(truth))


def _kept(distances: Floats, coordinates: Floats) -> float:
    near = [
        np.argsort(d + np.diag(np.full(len(d), np.inf)), axis=1, kind="stable")[:, :KEPT]
        for d in (distances, cdist(coordinates, coordinates))
    ]
    return float(np.mean([len(np.intersect1d(*both)) for both in zip(*near, strict=True)]) / KEPT)


