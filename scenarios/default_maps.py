"""default-maps: is a map made with default parameters worth looking at, on twenty real sets?"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from sklearn.manifold import SpectralEmbedding

import streamembed as se
from scenarios.scenario import Expected, Outcome, Scenario
from scenarios.streams import MissingDataError, table
from streamembed.estimators import LiveMap
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
WINDOW, EVENTS, DRAWS = 1000, 4000, 10
QUICK_WINDOW, QUICK_EVENTS = 400, 1200
VOTERS = 5
COORDINATES = {"plane": "2-d", "ten": "10-d"}
ENGINES: dict[str, dict[str, Any]] = {
    "self_tuning": {},
    "gaussian": {"kernel": "gaussian"},
    "laplacian_eigenmaps": {"method": "laplacian_eigenmaps"},
}
# Pictures have two coordinates: of the estimator, and of an engine with default parameters.
PICTURES = ("LiveMap", "Engine(picture=True)")
ROWS = (
    *PICTURES,
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
    small sets. Held-out points are placed by the extension of each map, those of a live map by
    `Picture.transform`; scikit-learn's SpectralEmbedding and UMAP are fitted to the window, with
    the held-out points among it where they cannot place new ones. An engine makes a map in two
    coordinates, another one that in ten; UMAP is fitted twice, too. Of the other maps the two are
    the first of the ten. UMAP is measured where it is installed. Means are over ten draws of what
    is held out; their standard errors are over the draws, those of differences over the sets.
    """
    outcome = Outcome()
    names = CHOOSING + CONFIRMING if full else QUICK
    sizes = [full] * len(names)
    try:
        if full:
            with ProcessPoolExecutor() as pool:
                measured = list(pool.map(measure_set, names, sizes))
        else:
            measured = list(map(measure_set, names, sizes))
    except MissingDataError as absent:
        return Outcome(skipped=str(absent))
    results = dict(zip(names, measured, strict=True))
    groups = {"choosing": CHOOSING, "confirming": CONFIRMING} if full else {"quick": QUICK}
    for group, members in groups.items():
        part = {name: results[name] for name in members}
        outcome.notes += _table(group, part)
        outcome.figures[f"{group}_2d"] = _mean(part, "plane", "self_tuning")[0]
        outcome.figures[f"{group}_10d"] = _mean(part, "ten", "self_tuning")[0]
        outcome.figures[f"{group}_graph_2d"] = _mean(part, "plane", "laplacian_eigenmaps")[0]
        outcome.figures[f"{group}_live_map_2d"] = _mean(part, "plane", "LiveMap")[0]
    if full:
        outcome.notes += _table("all", results)
        outcome.notes += _compare("plane", "LiveMap", results)
        outcome.notes += _compare("ten", "self_tuning", results)
    every = list(results.values())
    again = [float(np.mean(scores.again)) for scores in every]
    outcome.figures |= {
        "least_2d": min(outcome.figures[f"{group}_2d"] for group in groups),
        "least_10d": min(outcome.figures[f"{group}_10d"] for group in groups),
        "least_live_map_2d": min(outcome.figures[f"{group}_live_map_2d"] for group in groups),
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
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for draw in range(DRAWS if full else 1):
            rng = np.random.default_rng((draw, n))
            held_out = np.sort(rng.choice(tail, tail - n, replace=False)) + len(points) - tail
            retained = np.setdiff1d(np.arange(len(points)), held_out)
            window = points[retained[-n:]]
            planes, tens = _learn_maps(points[retained], points[held_out], n, result)
            tens["PCA"] = principal(window, points[held_out])
            if full:
                tens |= _fit_other_libraries(window, points[held_out])
            for key, (inside, outside) in tens.items():
                planes.setdefault(key, (inside[:, :2], outside[:, :2]))
            known, true = labels[retained[-n:]], labels[held_out]
            for scores, maps in ((result.plane, planes), (result.ten, tens)):
                for key, (inside, outside) in maps.items():
                    score = _score_neighbours(inside, known, outside, true)
                    scores.setdefault(key, []).append(score)
            result.batch_loss.append(result.ten["batch"][-1] - result.ten["self_tuning"][-1])
    return result


def _learn_maps(
    events: Floats, held_out: Floats, n: int, result: NeighbourScores
) -> tuple[dict[str, tuple[Floats, Floats]], dict[str, tuple[Floats, Floats]]]:
    """Coordinates of window and held-out points in a stream, two and ten; and the batch kernel."""
    planes, tens = {}, {}
    for name, changes in ENGINES.items():
        is_default = name == "self_tuning"
        plane = _learn(events, size=n, n_components=2, picture=is_default, **changes).snapshot()
        planes[name] = plane.coordinates, plane.transform(held_out)
        if plane.picture is not None:
            placed = plane.picture.transform(held_out)
            planes["Engine(picture=True)"] = plane.picture.coordinates, placed
        engine = _learn(events, size=n, n_components=10, **changes)
        snapshot = engine.snapshot()
        tens[name] = snapshot.coordinates, snapshot.transform(held_out)
        degenerate = int(bool(plane.certificate.lone))
        if name == "gaussian":
            result.gaussian_lone |= degenerate
            continue
        result.met += [bool(plane.certificate.met), bool(snapshot.certificate.met)]
        if not is_default:
            continue
        result.lone |= int(bool(snapshot.certificate.lone))
        result.lone_of_two |= degenerate
        result.again.append(engine.refilled / (len(events) / engine.config.chunks.size))
        engine.rescale()
        batch = engine.snapshot()
        tens["batch"] = batch.coordinates, batch.transform(held_out)
    model = LiveMap(size=n)
    model.learn_many(events)
    if model.engine.pending:
        model.flush()
    planes["LiveMap"] = model.picture.coordinates, model.transform_many(held_out)
    return planes, tens


def _learn(events: Floats, **parameters: Any) -> se.Engine:
    """An engine that has learned all events."""
    engine = se.Engine(**parameters)
    engine.learn(events)
    if engine.pending:
        engine.flush()
    return engine


def _scaling(window: Floats) -> Scaling:
    """As the engine's, at the end."""
    return fit_points(window, np.ones(len(window)), "standard", 1.0, LEAST_SHARE)


def principal(window: Floats, held_out: Floats) -> tuple[Floats, Floats]:
    """Ten principal components, of features scaled as the engine scales them."""
    scaling = _scaling(window)
    axes = np.linalg.svd(scaling.apply(window), full_matrices=False)[2][:10].T
    return scaling.apply(window) @ axes, scaling.apply(held_out) @ axes


def _fit_other_libraries(window: Floats, held_out: Floats) -> dict[str, tuple[Floats, Floats]]:
    """What other libraries make of the same points, scaled alike."""
    scaling = _scaling(window)
    inside, outside = scaling.apply(window), scaling.apply(held_out)
    both, n = np.concatenate([inside, outside]), len(inside)
    maps = {}
    for key, affinity in (("rbf", "rbf"), ("kNN", "nearest_neighbors")):
        placed = SpectralEmbedding(10, affinity=affinity, random_state=0).fit_transform(both)
        maps[f"SpectralEmbedding {key}"] = placed[:n], placed[n:]
    if importlib.util.find_spec("umap") is not None:
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
        line = f"{group}, {key}: {_write(_mean(results, 'plane', key))} in 2-d"
        if key in first.ten:
            line += f", {_write(_mean(results, 'ten', key))} in 10-d"
        if key in first.ten and key != "self_tuning":
            better = [
                name
                for name, scores in results.items()
                if np.mean(scores.ten[key]) > np.mean(scores.ten["self_tuning"]) + 0.01
            ]
            line += f"; ahead of self_tuning in 10-d on {', '.join(better) or 'none'}"
        lines.append(line)
    return lines


def _compare(which: str, one: str, results: dict[str, NeighbourScores]) -> list[str]:
    """How far one map is ahead of every other, in two or in ten coordinates."""
    each = [getattr(scores, which) for scores in results.values()]
    lines = []
    for key in ROWS:
        if key == one or key not in each[0]:
            continue
        ahead = np.array([np.mean(scores[one]) - np.mean(scores[key]) for scores in each])
        measured = float(ahead.mean()), float(ahead.std(ddof=1) / np.sqrt(len(ahead)))
        lines.append(
            f"{one} less {key}, {COORDINATES[which]}: {_write(measured)} over sets, above .01 on "
            f"{np.count_nonzero(ahead > 0.01)} of {len(ahead)}, below -.01 on "
            f"{np.count_nonzero(ahead < -0.01)}"
        )
    return lines


def _write(measured: tuple[float, float]) -> str:
    """A mean with its standard error, if there is one."""
    mean, error = measured
    return f"{mean:.3f}" + (f" ± {error:.3f}" if error else "")


SCENARIO = Scenario(
    id="default-maps",
    says="maps with default parameters on real sets: whether neighbours in them share a class",
    run=run,
    expected={
        "least_2d": Expected(0.59, 1.0, "measured .623 ± .004; .51 with one width for all points"),
        "least_10d": Expected(0.79, 1.0, "measured .815 ± .003; of the default before .786"),
        "least_live_map_2d": Expected(0.76, 1.0, "measured .786 ± .009; UMAP has .757"),
        "degenerate_maps": Expected(0, 0, "maps of which one of two components has few points"),
        "lone_components": Expected(
            0, 1, "maps of which any of ten components has few points: segment, 9.7 of 1,000 once"
        ),
        "met": Expected(0.99, 1.0, "certified at 3e-3"),
        "loss_to_batch_10d": Expected(-0.05, 0.02, "beside the same kernel made from scratch"),
        "filled_again": Expected(0, 2, "slots of drifted widths, a chunk of ten, mean over sets"),
        "filled_again_most": Expected(0, 6, "the set that drifts most"),
    },
)
