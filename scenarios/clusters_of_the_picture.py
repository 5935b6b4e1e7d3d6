"""clusters-of-the-picture: do ids of clusters persist, and what do they say about classes?

Four sets, in streams that stay as they are and in streams in which a class appears and another
leaves. A picture every hundred events, whose clusters are chained.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score

import streamembed as se
from scenarios.scenario import Expected, Outcome, Scenario
from scenarios.streams import MissingDataError, table
from streamembed.engine.clusters import Clusters
from streamembed.errors import DegenerateMapWarning
from streamembed.numeric.arrays import Floats, Ints
from streamembed.threads import one_blas_thread

SETS, QUICK = ("letter", "digits", "segment", "usps"), ("digits",)
DRAWS = 10
EVERY = 100  # events from picture to picture
WINDOW, EVENTS, CHANGE = 1000, 4000, 1500
QUICK_WINDOW, QUICK_EVENTS, QUICK_CHANGE = 400, 1500, 700


@dataclass
class Stream:
    """Events in order; from ``change`` on with the class ``appearing``, and without another."""

    points: Floats
    labels: Ints
    change: int
    appearing: int


def run(full: bool) -> Outcome:
    """Four sets, ten draws of 4,000 events, window 1,000 (quick: one set, one draw of 1,500)."""
    names, draws = (SETS, DRAWS) if full else (QUICK, 1)
    try:
        data = {name: table(name) for name in names}
    except MissingDataError as absent:
        return Outcome(skipped=str(absent))
    outcome = Outcome()
    window, events, change = (
        (WINDOW, EVENTS, CHANGE) if full else (QUICK_WINDOW, QUICK_EVENTS, QUICK_CHANGE)
    )
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateMapWarning)  # of coordinates, which are not used
        for name, (points, labels) in data.items():
            figures: dict[str, list[float]] = {}
            for seed in range(draws):
                still = draw_stream(points, labels, seed, events, None)
                drifting = draw_stream(points, labels, seed, events, change)
                measured = measure_ids(still, window) | measure_drift(drifting, window)
                for figure, value in measured.items():
                    figures.setdefault(figure, []).append(value)
            for figure, values in figures.items():
                outcome.figures[f"{name}: {figure}"] = _mean(values)
            if full:
                each = [f"{figure} {_write(np.array(v))}" for figure, v in figures.items()]
                outcome.notes.append(f"{name}: " + ", ".join(each))
    outcome.notes.append(
        f"mean ± standard error over {draws} draws of {events} events, window {window}, a picture "
        f"every {EVERY} events; ids: of points that are in clusters of two pictures in a row, the "
        "share with one id in both (in clusters: among those that are in a cluster in the later, "
        "too); matched: of clusters of each picture by itself, matched with those of the one "
        "before; drift: points of the appearing class, purity and recall, when an id that began "
        "after it has most of its points from it"
    )
    return outcome


def draw_stream(points: Floats, labels: Ints, seed: int, events: int, change: int | None) -> Stream:
    """Permutations of the set, one after another; without a class before and another after."""
    rng = np.random.default_rng((seed, len(points)))
    appearing, leaving = rng.choice(np.unique(labels), 2, replace=False)
    passes = 2 * events // len(points) + 2
    order = np.concatenate([rng.permutation(len(points)) for _ in range(passes)])
    if change is None:
        order = order[:events]
        return Stream(points[order], labels[order], events, -1)
    before = order[labels[order] != appearing][:change]
    after = order[labels[order] != leaving][change:events]
    order = np.concatenate([before, after])
    return Stream(points[order], labels[order], change, int(appearing))


def read_pictures(stream: Stream, window: int) -> Iterator[se.Picture]:
    """From a full window on."""
    engine = se.Engine("laplacian_eigenmaps", tolerance=None, picture=True, size=window)
    for start in range(0, len(stream.points), EVERY):
        engine.learn(stream.points[start : start + EVERY])
        if engine.position >= window:
            picture = engine.snapshot().picture
            assert picture is not None
            yield picture


def measure_ids(stream: Stream, window: int) -> dict[str, float]:
    """Shares of points that keep their id, ARI, and events for a thousand events of the stream."""
    chained: list[Clusters] = []
    single: list[Clusters] = []
    for picture in read_pictures(stream, window):
        chained.append(picture.clusters(chained[-1] if chained else None))
        single.append(picture.clusters())
    labels = stream.labels
    pairs = [_pair(*two) for two in pairwise(chained)]
    changes = sum(len(clusters.events) for clusters in chained[1:])
    length = chained[-1].position - chained[0].position
    return {
        "ids": _mean(np.mean(was == now) for was, now in pairs),
        "ids in clusters": _mean(np.mean((was == now)[now >= 0]) for was, now in pairs),
        "matched": _mean(_share_matched(*two) for two in pairwise(single)),
        "ARI": _mean(adjusted_rand_score(labels[c.ids], c.labels) for c in chained),
        "ARI unchained": _mean(adjusted_rand_score(labels[c.ids], c.labels) for c in single),
        "clusters": _mean(len(c.sizes) for c in chained),
        "changes in 1,000 events": 1000 * changes / length,
    }


def measure_drift(stream: Stream, window: int) -> dict[str, float]:
    """When a class that appears has an id of its own; NaN where it has none."""
    clusters: Clusters | None = None
    begun: dict[int, str] = {}
    pairs = []
    found = {
        "points": np.nan,
        "events": np.nan,
        "purity": np.nan,
        "recall": np.nan,
        "birth": np.nan,
    }
    for picture in read_pictures(stream, window):
        earlier, clusters = clusters, picture.clusters(clusters)
        if earlier is None:
            continue
        pairs.append(_pair(earlier, clusters))
        if clusters.position <= stream.change:
            continue
        begun |= {e.cluster: e.kind for e in clusters.events if e.kind in ("birth", "split")}
        is_new = stream.labels[clusters.ids] == stream.appearing
        for label in begun:
            inside = clusters.labels == label
            purity = float(is_new[inside].mean()) if inside.any() else 0.0
            if np.isnan(found["points"]) and purity > 0.5:
                found = {
                    "points": float(
                        (stream.labels[stream.change : clusters.position] == stream.appearing).sum()
                    ),
                    "events": float(clusters.position - stream.change),
                    "purity": purity,
                    "recall": float(inside[is_new].mean()),
                    "birth": float(begun[label] == "birth"),
                }
    drift = {f"drift: {name}": value for name, value in found.items()}
    return {
        "drift: has an id": float(not np.isnan(found["points"])),
        **drift,
        "drift: ids in clusters": _mean(np.mean((was == now)[now >= 0]) for was, now in pairs),
    }


def _pair(earlier: Clusters, later: Clusters) -> tuple[Ints, Ints]:
    """Labels of points that were in a cluster and are still there, in both."""
    _, here, there = np.intersect1d(later.ids, earlier.ids, return_indices=True)
    was, now = earlier.labels[there], later.labels[here]
    return was[was >= 0], now[was >= 0]


def _share_matched(earlier: Clusters, later: Clusters) -> float:
    """The share in clusters of both that the best assignment of the clusters puts together."""
    was, now = _pair(earlier, later)
    was, now = was[now >= 0], now[now >= 0]
    if not len(was):
        return np.nan
    shared = np.zeros((was.max() + 1, now.max() + 1))
    np.add.at(shared, (was, now), 1)
    return float(shared[linear_sum_assignment(shared, maximize=True)].sum() / len(was))


def _mean(values: Iterable[float]) -> float:
    collected = [value for value in values if not np.isnan(value)]
    return float(np.mean(collected)) if collected else np.nan


def _write(values: Floats) -> str:
    counted = values[~np.isnan(values)]
    if len(counted) < 2:
        return "not measured"
    return f"{counted.mean():.3g} ± {counted.std(ddof=1) / np.sqrt(len(counted)):.2g}"


SCENARIO = Scenario(
    id="clusters-of-the-picture",
    says="ids of clusters persist; a class that appears gets one of its own",
    run=run,
    expected={
        "digits: ids in clusters": Expected(0.93, 1.0, ".969 in the quick size, .991 in the full"),
        "digits: ARI": Expected(0.6, 1.0, ".67 in the quick size, .80 in the full"),
    },
)
