"""live-map: does a picture that is followed stay as good as a refit, and where it is?

Six sets of which every window is drawn alike, each in ten orders, and two that drift, in the order
that they have; for three turnovers and more. What is measured is the picture of the last window,
against pictures of the same window from scratch: the engine's own, and those of umap-learn and
openTSNE where they are installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

import streamembed as se
from scenarios.scenario import Expected, Outcome, Scenario, standard_error
from scenarios.streams import MissingDataError, standardise, table
from streamembed.layout import measures
from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.threads import one_blas_thread

# Window of each set, and how many of them its stream has; the last two come in their own order.
SETS = {
    "digits": (1000, 3),
    "coil20": (1000, 3),
    "segment": (1000, 3),
    "usps": (2000, 3),
    "letter": (2000, 3),
    "mnist_10k": (2000, 3),
}
DRIFTING = {"gas_drift_partial": (1000, 6), "aedes_sex": (1000, 4)}
# Tables of which only the motion is measured: most have no clusters, or grow out of few sites.
TABLES = (
    "arabic_digit",
    "car",
    "elec2",
    "interchanging_rbf",
    "keystroke",
    "outdoor",
    "sea",
    "waveform",
    "weather",
    "yeast",
)
TABLE_WINDOW, TABLE_TURNS = 1000, 3
MOTION = ("a chunk moves", "refit moves", "warm refit moves")
QUICK_SETS = {"digits": (400, 3), "segment": (400, 3)}
QUICK_DRIFTING = {"gas_drift_partial": (400, 6)}
IMAGES = ("digits", "coil20", "usps", "mnist_10k")
NEIGHBOURS, VOTERS, CHUNK = 15, 5, 10
ORDERS, QUICK_ORDERS = 10, 2
# Copies of a set that is shorter than its stream are off by this share of its deviation.
NOISE = 0.02
LIBRARIES = ("umap-learn", "openTSNE")


def load_stream(name: str, events: int, order: int = 0) -> tuple[Floats, Ints]:
    """Points and labels of a set: images over their range, tables standardised; in a random order.

    The drifting sets keep their order; gas sensors by the logarithm of their responses.
    """
    points, labels = table(name)
    if name in IMAGES:
        points = (points - points.min()) / (points.max() - points.min())
    elif name == "gas_drift_partial":
        points = standardise(np.sign(points) * np.log1p(np.abs(points)))
    else:
        points = standardise(points)
    rng = np.random.default_rng(order)
    if name not in DRIFTING:
        permuted = rng.permutation(len(points))
        points, labels = points[permuted], labels[permuted]
    copies, noise = [points], NOISE * float(points.std())
    while sum(map(len, copies)) < events:
        copies.append(points + noise * rng.standard_normal(points.shape))
    return np.concatenate(copies)[:events], np.tile(labels, len(copies))[:events]


def build_engine(window: int, **parameters: Any) -> se.Engine:
    """An engine with a picture; the points are scaled already."""
    return se.Engine(
        method="laplacian_eigenmaps",
        picture=True,
        size=window,
        tolerance=None,
        scaling=None,
        **parameters,
    )


def read_picture(engine: se.Engine) -> se.Picture:
    """The picture of an engine that keeps one."""
    picture = engine.publish().picture
    assert picture is not None
    return picture


def accuracy(places: Floats, labels: Ints) -> float:
    """Share of points whose nearest five in the plane, themselves apart, name their class."""
    return float(match_own_class(places, labels).mean())


def match_own_class(places: Floats, labels: Ints) -> Bools:
    """Whether the nearest five name a point's class, of ties the smaller code; shape (n,)."""
    near = labels[cKDTree(places).query(places, VOTERS + 1)[1][:, 1:]]
    votes = (near[:, :, None] == np.arange(labels.max() + 1)).sum(axis=1)
    result: Bools = votes.argmax(axis=1) == labels
    return result


def measure_kept_neighbours(places: Floats, points: Floats) -> float:
    """Share of the nearest fifteen in the data that are among the nearest fifteen in the plane."""
    near = cKDTree(points).query(points, NEIGHBOURS + 1)[1]
    true = np.array([row[row != i][:NEIGHBOURS] for i, row in enumerate(near)], dtype=np.int32)
    return float(measures.measure_kept(places, true, None).mean())


def measure_displacement(places: Floats, onto: Floats, align: bool) -> float:
    """Mean distance of the same points in two pictures, in radii of the second."""
    if align:
        places = measures.align(places, onto, np.arange(len(onto)))
    steps = np.sqrt(((places - onto) ** 2).sum(axis=1))
    return float(steps.mean() / measures.compute_radius(onto))


def measure_centre_distance(
    places: Floats, labels: Ints, earlier: Floats, earlier_labels: Ints
) -> float:
    """Mean distance of class centres in two pictures, unaligned, in radii of the earlier."""
    steps = [
        places[labels == one].mean(axis=0) - earlier[earlier_labels == one].mean(axis=0)
        for one in np.unique(earlier_labels)
        if (labels == one).any()
    ]
    return float(
        np.sqrt((np.array(steps) ** 2).sum(axis=1)).mean() / measures.compute_radius(earlier)
    )


@dataclass
class LiveMapScores:
    """Scores of a data set, of the window at the end unless an attribute states otherwise."""

    accuracy: float
    kept: float
    cold_accuracy: float
    cold_kept: float
    chunk: float
    worst_chunk: float
    half_turn: float
    centres: float
    radius: float
    seconds: float
    points: Floats
    labels: Ints
    earlier: tuple[Floats, Floats]


def follow_stream(name: str, window: int, turns: int, order: int) -> LiveMapScores:
    """A set's stream through an engine with a picture, and through one that starts over."""
    points, labels = load_stream(name, window * turns, order)
    engine = build_engine(window)
    engine.learn(points[: window * (turns - 1)])
    start = read_picture(engine)
    half, moves, seconds = start, [], 0.0
    for position in range(window * (turns - 1), len(points), CHUNK):
        if position == window * turns - window // 2:
            half = read_picture(engine)
        clock = time.thread_time()
        engine.learn(points[position : position + CHUNK])
        seconds += time.thread_time() - clock
        moved = read_picture(engine)
        moves.append(float(moved.moved[:-CHUNK].mean() / moved.radius))
    end = read_picture(engine)
    ids_now, then = end.ids.astype(np.int64), start.ids.astype(np.int64)
    shared = np.isin(ids_now, half.ids)
    before = half.coordinates[np.isin(half.ids, ids_now)]
    engine.relayout()
    cold = read_picture(engine)
    return LiveMapScores(
        accuracy(end.coordinates, labels[ids_now]),
        float(end.kept.mean()),
        accuracy(cold.coordinates, labels[ids_now]),
        float(cold.kept.mean()),
        float(np.mean(moves)),
        max(moves),
        measure_displacement(end.coordinates[shared], before, align=True),
        measure_centre_distance(end.coordinates, labels[ids_now], start.coordinates, labels[then]),
        end.radius,
        seconds / len(moves),
        points[ids_now],
        labels[ids_now],
        (points[ids_now - CHUNK], points[ids_now - window // 2]),
    )


# ---------------------------------------------------------------------- refits


def refit_library(library: str, points: Floats, init: Floats | None = None) -> Floats:
    """The picture of another library, from scratch, or from an earlier picture."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if library == "umap-learn":
            umap: Any = importlib.import_module("umap")
            begin = "spectral" if init is None else init
            fitted: Floats = umap.UMAP(
                n_neighbors=NEIGHBOURS, random_state=0, init=begin
            ).fit_transform(points)
            return np.asarray(fitted, dtype=np.float64)
        tsne: Any = importlib.import_module("openTSNE")
        return np.asarray(tsne.TSNE(random_state=0, n_jobs=1).fit(points), dtype=np.float64)


def list_installed_libraries() -> list[str]:
    """The libraries that there are."""
    modules = {"umap-learn": "umap", "openTSNE": "openTSNE"}
    return [name for name in LIBRARIES if importlib.util.find_spec(modules[name]) is not None]


def compare_with_library(library: str, scores: LiveMapScores) -> dict[str, float]:
    """Scores of a refit by a library, ours beside them; how far refits lie from each other."""
    n = len(scores.points)
    clock = time.thread_time()
    places = refit_library(library, scores.points)
    seconds = time.thread_time() - clock
    theirs = accuracy(places, scores.labels), measure_kept_neighbours(places, scores.points)
    measured = {
        f"{library} accuracy": theirs[0],
        f"{library} kept": theirs[1],
        f"accuracy against {library}": scores.accuracy - theirs[0],
        f"kept against {library}": scores.kept - theirs[1],
        f"{library} / a chunk": seconds / scores.seconds,
    }
    if library == "umap-learn":
        chunk, half = scores.earlier
        for count, points in ((CHUNK, chunk), (n // 2, half)):
            earlier = refit_library(library, points)
            moved = measure_displacement(places[: n - count], earlier[count:], align=True)
            measured["refit moves" if count == CHUNK else "refit moves in half a turn"] = moved
            if count == CHUNK:
                began = np.concatenate([earlier[count:], earlier[-count:]])
                warm = refit_library(library, scores.points, began)
                moved = measure_displacement(warm[: n - count], earlier[count:], align=True)
                measured["warm refit moves"] = moved
    return measured


def measure_order(
    name: str, window: int, turns: int, order: int, libraries: list[str]
) -> dict[str, float]:
    """All that is measured of one order of a set, by name."""
    with one_blas_thread():
        scores = follow_stream(name, window, turns, order)
        measured = {
            "accuracy": scores.accuracy,
            "accuracy from scratch": scores.cold_accuracy,
            "accuracy, ageing": scores.accuracy - scores.cold_accuracy,
            "kept": scores.kept,
            "kept from scratch": scores.cold_kept,
            "kept, ageing": scores.kept - scores.cold_kept,
            "a chunk moves": scores.chunk,
            "a chunk moves at worst": scores.worst_chunk,
            "a hundredth of the window moves": scores.chunk * window / (100 * CHUNK),
            "half a turn moves": scores.half_turn,
            "class centres move in a turn": scores.centres,
            "ms a chunk": 1e3 * scores.seconds,
        }
        for library in libraries:
            measured |= compare_with_library(library, scores)
    return measured


def measure_motion(name: str, libraries: list[str]) -> dict[str, float]:
    """How far the points of a table move in a chunk, and in a refit."""
    measured = measure_order(name, TABLE_WINDOW, TABLE_TURNS, 0, libraries)
    return {what: value for what, value in measured.items() if what in MOTION}


def report_motion(outcome: Outcome, motion: dict[str, dict[str, float]]) -> None:
    """The range over tables, and a line a table."""
    for what in next(iter(motion.values())):
        values = [each[what] for each in motion.values()]
        outcome.figures[f"{what}, other tables, least"] = min(values)
        outcome.figures[f"{what}, other tables, most"] = max(values)
    for name, each in motion.items():
        parts = "; ".join(f"{what} {value:.4g}" for what, value in each.items())
        outcome.notes.append(f"{name}, one order: {parts}")


# ---------------------------------------------------------------------- the scenario


def run(full: bool) -> Outcome:
    """Follow every set in every order, and compare."""
    outcome, libraries = Outcome(), list_installed_libraries() if full else []
    sets, drifting = (SETS, DRIFTING) if full else (QUICK_SETS, QUICK_DRIFTING)
    orders = ORDERS if full else QUICK_ORDERS
    jobs = [
        (name, *size, order, libraries) for name, size in sets.items() for order in range(orders)
    ]
    jobs += [(name, *size, 0, libraries) for name, size in drifting.items()]
    motion: dict[str, dict[str, float]] = {}
    refits = [name for name in libraries if name == "umap-learn"]
    try:
        if full:
            with ProcessPoolExecutor() as pool:
                measured = list(pool.map(measure_order, *zip(*jobs, strict=True)))
                moves = pool.map(measure_motion, TABLES, [refits] * len(TABLES))
                motion = dict(zip(TABLES, moves, strict=True))
        else:
            measured = [measure_order(*job) for job in jobs]
    except MissingDataError as absent:
        return Outcome(skipped=str(absent))
    results: dict[str, list[dict[str, float]]] = {name: [] for name in {**sets, **drifting}}
    for job, each in zip(jobs, measured, strict=True):
        results[job[0]].append(each)
    report_scores(outcome, results, list(sets), list(drifting), libraries)
    if motion:
        report_motion(outcome, motion)
    if full and len(libraries) < len(LIBRARIES):
        missing = sorted(set(LIBRARIES) - set(libraries))
        outcome.notes.append(f"not installed, so not compared: {', '.join(missing)}")
    return outcome


def report_scores(
    outcome: Outcome,
    results: dict[str, list[dict[str, float]]],
    sets: list[str],
    drifting: list[str],
    libraries: list[str],
) -> None:
    """Figures over all sets, and a line a set: means over orders, with standard errors."""
    means = {
        name: {what: float(np.mean([each[what] for each in orders])) for what in orders[0]}
        for name, orders in results.items()
    }
    still = [means[name] for name in sets]
    figures = outcome.figures
    figures["kept, ageing, worst"] = min(each["kept, ageing"] for each in still)
    figures["kept, ageing, worst under drift"] = min(
        means[name]["kept, ageing"] for name in drifting
    )
    figures["accuracy, ageing, worst"] = min(each["accuracy, ageing"] for each in still)
    figures["motion a hundredth of the window, worst set"] = max(
        each["a hundredth of the window moves"] for each in still
    )
    figures["motion in half a turn, worst set"] = max(each["half a turn moves"] for each in still)
    figures["class centres in a turn, worst set"] = max(
        each["class centres move in a turn"] for each in still
    )
    for library in libraries:
        for what in ("accuracy", "kept"):
            each_set = [each[f"{what} against {library}"] for each in still]
            figures[f"{what} against {library}, worst"] = min(each_set)
            figures[f"{what} against {library}, mean"] = float(np.mean(each_set))
            figures[f"{what} against {library}, standard error"] = standard_error(each_set)
        for name in results:
            outcome.timings[f"{name}: {library} / a chunk"] = means[name][f"{library} / a chunk"]
    for name, orders in results.items():
        parts = []
        for what in orders[0]:
            values = [each[what] for each in orders]
            error = f" ± {standard_error(values):.2g}" if len(values) > 1 else ""
            parts.append(f"{what} {np.mean(values):.4g}{error}")
        count = f"{len(orders)} orders" if len(orders) > 1 else "its own order"
        outcome.notes.append(f"{name}, {count}: {'; '.join(parts)}")


LIVE = "a refit of the same window, which has all its steps for it"
STILL = "a tenth of what a refit moves, or less"
SCENARIO = Scenario(
    "live-map",
    "is a picture that is followed as good as a refit, and still where it was?",
    run,
    {
        "kept, ageing, worst": Expected(-0.04, 1.0, LIVE),
        "kept, ageing, worst under drift": Expected(-0.05, 1.0, LIVE),
        "accuracy, ageing, worst": Expected(-0.05, 1.0, LIVE),
        "motion a hundredth of the window, worst set": Expected(0.0, 0.004, STILL),
        "motion in half a turn, worst set": Expected(0.0, 0.15, STILL),
        "class centres in a turn, worst set": Expected(0.0, 0.15, STILL),
    },
)
