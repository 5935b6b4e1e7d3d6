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
from scenarios.streams import MissingDataError, table, words
from streamembed.estimators import PCA
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.threads import one_blas_thread

# By the names of the estimators, in the order of the picture; the parameters are their defaults.
METHODS: dict[str, dict[str, Any]] = {
    "PCA": {},
    "ClassicalMDS": {"method": "classical_mds"},
    "KernelPCA": {"method": "kernel_pca"},
    "Isomap": {"method": "isomap", "n_neighbors": 10, "n_landmarks": None},
    "LocallyLinearEmbedding": {"method": "lle", "n_neighbors": 12},
    "LaplacianEigenmaps": {"method": "laplacian_eigenmaps", "diffusion_time": 0.0},
    "DiffusionMap": {"method": "diffusion_map", "diffusion_time": 1.0},
}
NEED_POINTS = ("PCA", "LocallyLinearEmbedding")
SETS = ("roll", "digits", "cars", "words")
# Neighbours that a map may keep or lose.
NEAREST = 15
# Windows, and parts of a stream, which is half as long again: what a snapshot follows, once the
# window is full.
WINDOW, QUICK_WINDOW, MOMENTS, QUICK_MOMENTS = 800, 150, 12, 3
# Equal distances can be broken either way: this much noise, beside grey levels of 0 to 16.
APART = 1e-6
# The toy cars among the objects of coil20, of each of which there are 72 images, 5 degrees apart;
# noise of the camera that sees every image again and again, beside grey levels of 0 to 1; window.
CARS, HALF_TURN, CAMERA, CAR_WINDOW = (2, 5, 18), 36, 0.06, 400
# Laplacian eigenmaps: the neighbour whose distance is a point's width, and the least share of the
# median width; see docs/algorithms/laplacian-eigenmaps.md.
SCALE_NEIGHBOR, LEAST_WIDTH = 7, 0.1


@dataclass(frozen=True, eq=False)
class GalleryStream:
    """Events in their order: points, or a table of distances.

    Attributes
    ----------
    points, distances : (t, d), (t, t)
        One is None.
    shade : (t,)
        What to colour events by; no method sees it.
    window, moments : int
        Events that a map is made of, which are also the warm-up, and parts of the stream.
    """

    points: Floats | None
    distances: Floats | None
    shade: Array
    window: int
    moments: int

    def parts(self) -> Iterator[slice]:
        """What is learned from one snapshot to the next."""
        step = -(-len(self.shade) // self.moments)
        for start in range(0, len(self.shade), step):
            yield slice(start, min(start + step, len(self.shade)))


@dataclass(frozen=True, eq=False)
class GalleryMaps:
    """The last streaming map, and the batch map of the same window.

    Attributes
    ----------
    coordinates, batch : (n, 2)
        Of the events that have a place in the map, oldest first.
    distances : (n, n)
        Between these, as the method saw them.
    shade : (n,)
        Of these.
    met : list of bool
        Whether the certificate was, at every snapshot.
    bound : float
        The certificate's, on the sine of the largest angle; 1 where it gives none.
    """

    coordinates: Floats
    batch: Floats
    distances: Floats
    shade: Array
    met: list[bool]
    bound: float = 1.0


def edit_distances(word: str, others: list[str]) -> Floats:
    """Levenshtein distances of a word to others: insert, delete or change one letter.

    Examples
    --------
    >>> edit_distances("kitten", ["sitting", "kitten", ""]).tolist()
    [3.0, 0.0, 6.0]
    """
    width = max(map(len, others), default=0)
    letters = np.zeros((len(others), width), dtype=np.int64)
    for i, other in enumerate(others):
        letters[i, : len(other)] = list(map(ord, other))
    row = np.tile(np.arange(width + 1.0), (len(others), 1))
    for i, letter in enumerate(word):
        change = row[:, :-1] + (letters != ord(letter))
        row = np.concatenate([np.full((len(others), 1), i + 1.0), row[:, 1:] + 1.0], axis=1)
        np.minimum(row[:, 1:], change, out=row[:, 1:])
        # insertions to the right, one after the other, are a running minimum
        steps = np.arange(width + 1.0)
        row = np.minimum.accumulate(row - steps, axis=1) + steps
    ends = np.array([len(other) for other in others], dtype=np.int64)
    result: Floats = row[np.arange(len(others)), ends]
    return result


def run(full: bool) -> Outcome:
    """Follow every stream by every method; hold the last map against a batch map of its window.

    ``off`` is the Procrustes error, min ||Y R - B|| / ||B|| over rotations and reflections, of the
    streaming map Y and the batch map B, both centred; no scale is fitted. ``kept`` is the share of
    an event's 15 nearest in the window that are among its 15 nearest in the map.
    """
    outcome = Outcome()
    met: dict[str, list[bool]] = {method: [] for method in METHODS}
    losses, ratios = [], []
    with one_blas_thread():
        try:
            sets = dict(streams(full))
        except MissingDataError as absent:
            return Outcome(skipped=str(absent))
        for name, stream in sets.items():
            for method in METHODS:
                if stream.points is None and method in NEED_POINTS:
                    continue
                maps = embed(stream, method)
                met[method] += maps.met
                off = procrustes(maps.coordinates, maps.batch)
                kept, of_batch = (
                    kept_share(maps.distances, shown) for shown in (maps.coordinates, maps.batch)
                )
                losses.append(of_batch - kept)
                ratios.append(off / maps.bound)
                outcome.figures[f"{name}_{method}_off"] = off
                outcome.figures[f"{name}_{method}_kept"] = kept
    outcome.figures |= {f"{method}_met_share": float(np.mean(met[method])) for method in METHODS}
    outcome.figures |= {"off_over_angle_bound": max(ratios), "kept_loss_to_batch": max(losses)}
    outcome.notes = [
        "cars: 216 images of three toy cars on a turntable, each seen again and again by a noisy "
        "camera",
        "words: edit distances of frequent English words; PCA and LocallyLinearEmbedding need "
        "points",
        "two coordinates keep what they can: Isomap unrolls the roll, and only there is most of it "
        "two-dimensional",
    ]
    return outcome


def streams(full: bool) -> Iterator[tuple[str, GalleryStream]]:
    """The sets by name, as in `SETS`.

    Raises
    ------
    MissingDataError
        All but the roll are in the data folder.
    """
    window, moments = (WINDOW, MOMENTS) if full else (QUICK_WINDOW, QUICK_MOMENTS)
    count = window + window // 2
    rng = np.random.default_rng(0)
    points, along = datasets.make_swiss_roll(count, noise=0.1, random_state=0)
    yield "roll", GalleryStream(points, None, along, window, moments)
    points, labels = table("digits")
    points = points[:count] + APART * rng.standard_normal((count, points.shape[1]))
    yield "digits", GalleryStream(points, None, labels[:count], window, moments)
    chosen = words()[:count]
    apart = np.array([edit_distances(word, chosen) for word in chosen])
    lengths = np.array([len(word) for word in chosen])
    window = min(window, CAR_WINDOW)
    yield "cars", _cars(window + window // 2, window, moments, rng)
    yield "words", GalleryStream(None, apart, lengths, len(chosen) * 2 // 3, moments)


def _cars(count: int, window: int, moments: int, rng: np.random.Generator) -> GalleryStream:
    """Toy cars in any order, all again and again; shade: the pose, up to a half turn."""
    points, labels = table("coil20")
    cars = np.flatnonzero(np.isin(labels, CARS))
    rounds = -(-count // len(cars))
    order_of_cars = np.concatenate([rng.permutation(cars) for _ in range(rounds)])[:count]
    points = points[order_of_cars] + CAMERA * rng.standard_normal((count, points.shape[1]))
    return GalleryStream(points, None, order_of_cars % HALF_TURN, window, moments)


def embed(stream: GalleryStream, method: str) -> GalleryMaps:
    """What a method makes of a stream."""
    window = slice(len(stream.shade) - stream.window, None)
    shade = stream.shade[window]
    points = None if stream.points is None else stream.points[window]
    if points is not None:
        distances = cdist(points, points)
    else:
        assert stream.distances is not None
        distances = stream.distances[window, window]
    if method == "PCA":
        assert points is not None
        coordinates, met = _follow_axes(stream)
        batch = decomposition.PCA(2, svd_solver="full").fit_transform(points)
        return GalleryMaps(coordinates, batch, distances, shade, met)
    snapshot, met = _follow(stream, method)
    bound = snapshot.certificate.angle_bound
    if method != "Isomap":
        batch = _batch(method, points, distances, snapshot)
        return GalleryMaps(snapshot.coordinates, batch, distances, shade, met, bound)
    here = _largest_part(distances, snapshot.n_neighbors)  # the others have zeros
    points, distances = None if points is None else points[here], distances[np.ix_(here, here)]
    batch = _paths(points, distances, snapshot.n_neighbors)
    return GalleryMaps(snapshot.coordinates[here], batch, distances, shade[here], met, bound)


def _follow(stream: GalleryStream, method: str) -> tuple[se.Snapshot, list[bool]]:
    """The last snapshot of an engine with default parameters, and which of all were certified."""
    size = stream.window
    engine = se.Engine(size=size, warm_up=size, scaling=None, axes="eigen", **METHODS[method])
    met = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", se.errors.DegenerateMapWarning)
        warnings.simplefilter("ignore", se.errors.CostWarning)
        for part in stream.parts():
            if stream.points is not None:
                engine.learn(stream.points[part])
            else:
                assert stream.distances is not None
                engine.learn_distances(
                    [
                        stream.distances[t, max(0, t - size) : t]
                        for t in range(part.start, part.stop)
                    ]
                )
            if part.stop == len(stream.shade) and engine.pending:
                engine.flush()
            if engine.ready:
                met.append(bool(engine.snapshot().certificate.met))
        return engine.snapshot(), met


def _follow_axes(stream: GalleryStream) -> tuple[Floats, list[bool]]:
    """The same of principal components."""
    assert stream.points is not None
    model = PCA(n_components=2, window=stream.window)
    met = []
    for part in stream.parts():
        model.learn_many(stream.points[part])
        met.append(bool(model.snapshot().met))
    return model.snapshot().transform(stream.points[-stream.window :]), met


def _batch(method: str, points: Floats | None, distances: Floats, snapshot: se.Snapshot) -> Floats:
    """The map of the window from scratch, by scikit-learn where it has it, or else by `eigh`.

    The diffusion map is that of the widths the slots have, as its definition says.
    """
    squares, k = distances**2, snapshot.n_neighbors
    if method == "ClassicalMDS":
        return _centred(-0.5 * squares)
    if method == "KernelPCA":
        gamma = snapshot.bandwidth**-2
        if points is None:  # indefinite: scikit-learn refuses it
            return _centred(np.exp(-gamma * squares))
        solver = decomposition.KernelPCA(2, kernel="rbf", gamma=gamma, eigen_solver="dense")
        return np.asarray(solver.fit_transform(points))
    if method == "LocallyLinearEmbedding":
        linear = manifold.LocallyLinearEmbedding(n_neighbors=k, eigen_solver="dense")
        return np.asarray(linear.fit_transform(points))
    if method == "DiffusionMap":
        weights = np.exp(-squares / (snapshot.width * np.outer(snapshot.widths, snapshot.widths)))
        psi, values = _walk(weights)
        return psi * values
    widths = np.sort(distances, axis=1)[:, SCALE_NEIGHBOR]
    widths = np.maximum(widths, LEAST_WIDTH * np.median(widths))
    return _walk(np.exp(-squares / np.outer(widths, widths)) * _graph(distances, k))[0]


def _paths(points: Floats | None, distances: Floats, k: int) -> Floats:
    """Isomap of one part of a graph."""
    if points is not None:
        solver = manifold.Isomap(n_neighbors=k, eigen_solver="dense")
        return np.asarray(solver.fit_transform(points))
    # equally near words are many, and scikit-learn does not take the older
    lengths = shortest_path(np.where(_graph(distances, k), distances, 0.0), directed=False)
    return _centred(-0.5 * lengths**2)


def _centred(matrix: Floats) -> Floats:
    """Two coordinates of a symmetric matrix whose mean is taken out."""
    rows = matrix.mean(axis=1)
    values, vectors = np.linalg.eigh(matrix - rows - rows[:, None] + rows.mean())
    coordinates: Floats = vectors[:, :-3:-1] * np.sqrt(values[:-3:-1])
    return coordinates


def _walk(weights: Floats) -> tuple[Floats, Floats]:
    """psi and lambda of a random walk, without the constant; the mean of pi psi^2 is 1."""
    degrees = weights.sum(axis=1)
    root = np.sqrt(degrees)
    values, vectors = np.linalg.eigh(weights / np.outer(root, root))
    psi: Floats = vectors[:, -2:-4:-1] * np.sqrt(degrees.sum()) / root[:, None]
    return psi, values[-2:-4:-1]


def _nearest(distances: Floats, k: int) -> Ints:
    """The k nearest of everybody; of equally near ones the older."""
    apart = distances.copy()
    np.fill_diagonal(apart, np.inf)
    return np.argsort(apart, axis=1, kind="stable")[:, :k]


def _graph(distances: Floats, k: int) -> Array:
    """Whether either is among the k nearest of the other."""
    joined = np.zeros(distances.shape, dtype=bool)
    joined[np.arange(len(distances))[:, None], _nearest(distances, k)] = True
    return joined | joined.T


def _largest_part(distances: Floats, k: int) -> Ints:
    labels = connected_components(_graph(distances, k))[1]
    return np.flatnonzero(labels == np.bincount(labels).argmax())


def procrustes(source: Floats, truth: Floats) -> float:
    """min ||Y R - B|| / ||B|| over rotations and reflections R, both sides centred.

    Examples
    --------
    >>> import numpy as np
    >>> square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> round(procrustes(square[:, ::-1] + 7.0, square), 12), procrustes(1.5 * square, square)
    (0.0, 0.5)
    """
    source, truth = source - source.mean(axis=0), truth - truth.mean(axis=0)
    left, _, right = np.linalg.svd(source.T @ truth)
    return float(np.linalg.norm(source @ (left @ right) - truth) / np.linalg.norm(truth))


def kept_share(distances: Floats, coordinates: Floats) -> float:
    """Share of the nearest in the data that are among the nearest in the map."""
    both = np.zeros(distances.shape, dtype=np.int64)
    for apart in (distances, cdist(coordinates, coordinates)):
        both[np.arange(len(both))[:, None], _nearest(apart, NEAREST)] += 1
    return float(np.count_nonzero(both == 2) / (NEAREST * len(both)))


# Of ``off``: the residual that is tolerated, over the gap behind the second eigenvalue, beside the
# first one; gaps are 0.016 (150 words by Isomap, the roll by a graph) to 12. A wrong map is off by
# about 1. What the gap of each map allows is `off_over_angle_bound`.
LARGEST_OFF = {
    method: Expected(0, 0.2, "residual 3e-3 over the smallest gap, 0.016") for method in METHODS
} | {"PCA": Expected(0, 0.03, "residual 1e-3 over a gap of 0.03")}
SCENARIO = Scenario(
    id="embedding-gallery",
    says="every method on a roll, on images and on words: streaming maps against batch maps",
    run=run,
    expected={
        **{
            f"{name}_{method}_off": bound
            for name in SETS
            for method, bound in LARGEST_OFF.items()
            if name != "words" or method not in NEED_POINTS
        },
        **{
            f"{method}_met_share": Expected(1.0, 1.0, "every snapshot is certified")
            for method in METHODS
        },
        "off_over_angle_bound": Expected(
            0, 2**0.5, "an angle turns two columns by the root of 2 of its sine at most"
        ),
        "kept_loss_to_batch": Expected(-1, 0.02, "neighbours are kept as well as in batch maps"),
    },
)
