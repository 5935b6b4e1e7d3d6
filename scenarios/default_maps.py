"""default-maps: is a map made with default parameters worth looking at, on twenty real sets?"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from sklearn.manifold import SpectralEmbedding

import streamembed as se
from scenarios.scenario import Expected, Outcome, Scenario
from scenarios.streams import MissingDataError, table
from streamembed.geometry.scaling import LEAST_SHARE, Scaling, fit_points
from streamembed.numeric.arrays import Floats, Ints
from streamembed.threads import one_blas_thread

# Sets by which the default was chosen, and sets that were looked at once afterwards.
CHOOSING = (
    "digits",
    "segment",
    "letter",
    "usps",
    "outdoor",
    "gas_drift_partial",
    "aedes_sex",
    "elec2",
    "arabic_digit",
    "waveform",
)
CONFIRMING = (
    "coil20",
    "mnist_10k",
    "weather",
    "keystroke",
    "interchanging_rbf",
    "yeast",
    "ionosphere",
    "pbmc68k_pca50",
    "car",
    "olivetti",
)
QUICK = ("aedes_sex", "keystroke", "waveform")
FIRST_ROWS = {"interchanging_rbf": 4500}
WINDOW, EVENTS, DRAWS, UMAP_DRAWS = 1000, 4000, 5, 2
QUICK_WINDOW, QUICK_EVENTS = 400, 1200
VOTERS = 5
ENGINES: dict[str, dict[str, Any]] = {
    "self_tuning": {},
    "gaussian": {"kernel": "gaussian"},
    "laplacian_eigenmaps": {"method": "laplacian_eigenmaps"},
}
ROWS = (
    "self_tuning",
    "gaussian",
    "laplacian_eigenmaps",
    "PCA",
    "SpectralEmbedding rbf",
    "SpectralEmbedding kNN",
    "UMAP",
)


@dataclass
class NeighbourScores:
    """Of one set: shares of held-out points whose neighbours name their class, by map and draw."""

    plane: dict[str, list[float]] = field(default_factory=dict)
    ten: dict[str, list[float]] = field(default_factory=dict)
    lone: int = 0
    lone_of_two: int = 0
    gaussian_lone: int = 0
    met: list[bool] = field(default_factory=list)
    batch_loss: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)


def run(full: bool) -> Outcome:
    """5-NN among held-out points, in two and in ten coordinates of a map with default parameters.

    The last 1.25 N rows of each set have a fifth held out at random; all other rows are learned in
    their order, so that the window ends with the other four fifths, N = 1,000 or what is left of
    small sets. Held-out points are placed by extension; scikit-learn's SpectralEmbedding and UMAP
    are fitted to the window, with the held-out points among it where they cannot place new ones.
    Means are over five draws of what is held out; of UMAP, if it is installed, over two.
    """
    outcome = Outcome()
    names = CHOOSING + CONFIRMING if full else QUICK
    results: dict[str, NeighbourScores] = {}
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            try:
                results[name] = measure_set(name, full)
            except MissingDataError as absent:
                outcome.skipped = str(absent)
                return outcome
    groups = {"choosing": CHOOSING, "confirming": CONFIRMING} if full else {"quick": QUICK}
    for group, members in groups.items():
        part = {name: results[name] for name in members}
        outcome.notes += _table(group, part)
        outcome.figures[f"{group}_2d"] = _mean(part, "plane", "self_tuning")[0]
        outcome.figures[f"{group}_10d"] = _mean(part, "ten", "self_tuning")[0]
        outcome.figures[f"{group}_graph_2d"] = _mean(part, "plane", "laplacian_eigenmaps")[0]
    every = list(results.values())
    again = [float(np.mean(scores.again)) for scores in every]
    outcome.figures |= {
        "least_2d": min(outcome.figures[f"{group}_2d"] for group in groups),
        "least_10d": min(outcome.figures[f"{group}_10d"] for group in groups),
        "degenerate_maps": sum(scores.lone_of_two for scores in every),
        "lone_components": sum(scores.lone for scores in every),
        "degenerate_maps_gaussian": sum(scores.gaussian_lone for scores in every),
        "met": float(np.mean([met for scores in every for met in scores.met])),
        "loss_to_batch_10d": float(
            np.mean([loss for scores in every for loss in scores.batch_loss])
        ),
        "filled_again": float(np.mean(again)),
        "filled_again_most": max(again),
    }
    return outcome


def measure_set(name: str, full: bool) -> NeighbourScores:
    """What one set gives, over several draws of the points that are held out."""
    window_size, events = (WINDOW, EVENTS) if full else (QUICK_WINDOW, QUICK_EVENTS)
    points, labels = table(name)
    most = FIRST_ROWS.get(name, len(points))
    points, labels = points[:most][-events:], labels[:most][-events:]
    n = min(window_size, int(0.6 * len(points)))
    tail = int(1.25 * n)
    result = NeighbourScores()
    for draw in range(DRAWS if full else 1):
        rng = np.random.default_rng((draw, n))
        held_out = np.sort(rng.choice(tail, tail - n, replace=False)) + len(points) - tail
        retained = np.setdiff1d(np.arange(len(points)), held_out)
        window = points[retained[-n:]]
        maps = dict(_engines(points[retained], points[held_out], n, result))
        maps["PCA"] = principal(window, points[held_out])
        if full:
            maps |= _fit_other_libraries(window, points[held_out], umap=draw < UMAP_DRAWS)
        planes = {key: maps.pop(f"{key}, plane") for key in ENGINES}
        for key, (inside, outside) in maps.items():
            labels_inside, true = labels[retained[-n:]], labels[held_out]
            near, far = planes.get(key, (inside[:, :2], outside[:, :2]))
            plane = _score_neighbours(near, labels_inside, far, true)
            result.plane.setdefault(key, []).append(plane)
            result.ten.setdefault(key, []).append(
                _score_neighbours(inside, labels_inside, outside, true)
            )
        exact, new = maps.pop("batch")
        batch = _score_neighbours(exact, labels[retained[-n:]], new, labels[held_out])
        result.batch_loss.append(batch - result.ten["self_tuning"][-1])
    return result


def _engines(
    events: Floats, held_out: Floats, n: int, result: NeighbourScores
) -> dict[str, tuple[Floats, Floats]]:
    """Coordinates of window and held-out points: in a stream, and the batch kernel."""
    maps = {}
    for name, changes in ENGINES.items():
        engine = se.Engine(size=n, n_components=10, **changes)
        engine.learn(events)
        if engine.pending:
            engine.flush()
        snapshot = engine.snapshot()
        maps[name] = snapshot.coordinates, snapshot.transform(held_out)
        flat = se.Engine(size=n, n_components=2, **changes)
        flat.learn(events)
        if flat.pending:
            flat.flush()
        last = flat.snapshot()
        maps[f"{name}, plane"] = last.coordinates, last.transform(held_out)
        lone = snapshot.certificate.lone
        degenerate = int(any(j < 2 for j in lone))
        if name == "gaussian":
            result.gaussian_lone |= degenerate
            continue
        result.met.append(bool(snapshot.certificate.met))
        if name != "self_tuning":
            continue
        result.lone |= int(bool(lone))
        result.lone_of_two |= degenerate
        result.again.append(engine.refilled / (len(events) / engine.config.chunk_size))
        engine.rescale()
        batch = engine.snapshot()
        maps["batch"] = batch.coordinates, batch.transform(held_out)
    return maps


def _scaling(window: Floats) -> Scaling:
    """As the engine's, at the end."""
    return fit_points(window, np.ones(len(window)), "standard", 1.0, LEAST_SHARE)


def principal(window: Floats, held_out: Floats) -> tuple[Floats, Floats]:
    """Ten principal components, of features scaled as the engine scales them."""
    scaling = _scaling(window)
    axes = np.linalg.svd(scaling.apply(window), full_matrices=False)[2][:10].T
    return scaling.apply(window) @ axes, scaling.apply(held_out) @ axes


def _fit_other_libraries(
    window: Floats, held_out: Floats, umap: bool
) -> dict[str, tuple[Floats, Floats]]:
    """What other libraries make of the same points, scaled alike."""
    scaling = _scaling(window)
    inside, outside = scaling.apply(window), scaling.apply(held_out)
    both, n = np.concatenate([inside, outside]), len(inside)
    maps = {}
    for key, affinity in (("rbf", "rbf"), ("kNN", "nearest_neighbors")):
        placed = SpectralEmbedding(10, affinity=affinity, random_state=0).fit_transform(both)
        maps[f"SpectralEmbedding {key}"] = placed[:n], placed[n:]
    if umap and importlib.util.find_spec("umap") is not None:
        library: Any = importlib.import_module("umap")
        two, ten = (library.UMAP(n_components=k, random_state=0).fit(inside) for k in (2, 10))
        maps["UMAP"] = (
            np.concatenate([two.embedding_, ten.embedding_[:, 2:]], axis=1),
            np.concatenate([two.transform(outside), ten.transform(outside)[:, 2:]], axis=1),
        )
    return maps


def _score_neighbours(inside: Floats, labels_inside: Ints, outside: Floats, true: Ints) -> float:
    """Share of new points whose nearest five name their class; of ties the smaller code."""
    near = labels_inside[cKDTree(inside).query(outside, VOTERS)[1]]
    votes = (near[:, :, None] == np.arange(labels_inside.max() + 1)).sum(axis=1)
    return float(np.mean(votes.argmax(axis=1) == true))


def _mean(results: dict[str, NeighbourScores], which: str, key: str) -> tuple[float, float]:
    """Mean over sets, and its standard error by the draws."""
    each = np.array([getattr(scores, which)[key] for scores in results.values()])
    draws = each.mean(axis=0)
    error = float(draws.std(ddof=1) / np.sqrt(len(draws))) if len(draws) > 1 else 0.0
    return float(draws.mean()), error


def _table(group: str, results: dict[str, NeighbourScores]) -> list[str]:
    """Lines of the results: each map's mean, and the sets on which the default loses to it."""
    lines = []
    first = next(iter(results.values()))
    for key in ROWS:
        if key not in first.plane:
            continue
        two, ten = (
            f"{mean:.3f}" + (f" ± {error:.3f}" if error else "")
            for mean, error in (_mean(results, which, key) for which in ("plane", "ten"))
        )
        line = f"{group}, {key}: {two} in 2-d, {ten} in 10-d"
        if key != "self_tuning":
            better = [
                name
                for name, scores in results.items()
                if np.mean(scores.ten[key]) > np.mean(scores.ten["self_tuning"]) + 0.01
            ]
            line += f"; ahead of self_tuning in 10-d on {', '.join(better) or 'none'}"
        lines.append(line)
    return lines


SCENARIO = Scenario(
    id="default-maps",
    says="maps with default parameters on real sets: whether neighbours in them share a class",
    run=run,
    expected={
        "least_2d": Expected(0.59, 1.0, "the bar; .541 with one width for all points"),
        "least_10d": Expected(0.78, 1.0, "the bar; choosing sets have .83"),
        "degenerate_maps": Expected(0, 0, "maps of which one of two components has few points"),
        "lone_components": Expected(0, 0, "maps of which any of ten components has few points"),
        "met": Expected(0.99, 1.0, "certified at 3e-3"),
        "loss_to_batch_10d": Expected(-0.05, 0.02, "beside the same kernel made from scratch"),
        "filled_again": Expected(0, 2, "slots of drifted widths, a chunk of ten, mean over sets"),
        "filled_again_most": Expected(0, 6, "the set that drifts most"),
    },
)
