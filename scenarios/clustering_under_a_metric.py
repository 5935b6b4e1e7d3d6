"""clustering-under-a-metric: k-means and HDBSCAN under metrics, map and picture.

Source: Jain, section 1.4, who names clustering as a use of a learned metric and measures none.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.metrics import adjusted_rand_score

import streamembed as se
from scenarios.metrics_online import shuffle
from scenarios.scenario import Expected, Outcome, Scenario
from scenarios.streams import MissingDataError, table
from streamembed.errors import DegenerateMapWarning
from streamembed.estimators import FENN, ITML, EigDML
from streamembed.numeric.arrays import Floats, Ints
from streamembed.threads import one_blas_thread

ROWS, DRAWS = 600, 10
SETS = ("iris", "wine", "wdbc", "balance_scale", "digits", "segment", "usps", "letter")
QUICK = ("iris", "wine")
SPACES = ("Euclidean", "ITML", "FENN", "EigDML", "map", "picture")
SMALLEST = 0.03  # of the points, a cluster of HDBSCAN


def run(full: bool) -> Outcome:
    """Eight sets and ten draws of 600 rows (quick: two sets, one draw)."""
    names, draws = (SETS, DRAWS) if full else (QUICK, 1)
    try:
        data = {name: table(name) for name in names}
    except MissingDataError as absent:
        return Outcome(skipped=str(absent))
    outcome = Outcome()
    scores: dict[tuple[str, str], list[Floats]] = {}  # a set each, by draw
    with one_blas_thread():
        for points, labels in data.values():
            of_set: dict[tuple[str, str], list[float]] = {}
            for seed in range(draws):
                for key, score in measure(points, labels, seed):
                    of_set.setdefault(key, []).append(score)
            for key, values in of_set.items():
                scores.setdefault(key, []).append(np.array(values))
    for (method, space), sets in scores.items():
        outcome.figures[f"{method} {space}"] = float(np.mean([each.mean() for each in sets]))
        if full:
            each = [f"{name} {_write(values)}" for name, values in zip(names, sets, strict=True)]
            outcome.notes.append(f"{method}, {space}: " + ", ".join(each))
    for space in ("ITML", "FENN"):
        gain = outcome.figures[f"k-means {space}"] - outcome.figures["k-means Euclidean"]
        outcome.figures[f"gain of {space}"] = gain
    outcome.notes.append(
        f"adjusted Rand index of the half without labels, mean ± standard error over {draws} draws "
        f"of at most {ROWS} rows; metrics learn labels of the other half, map and picture none; "
        "k-means is given the number of classes, HDBSCAN has min_cluster_size 3 % of the points"
    )
    return outcome


def measure(points: Floats, labels: Ints, seed: int) -> Iterator[tuple[tuple[str, str], float]]:
    """Adjusted Rand indices of a draw, by method and space."""
    X, y = shuffle(points, labels, seed, ROWS)
    known = np.arange(len(X)) < len(X) // 2
    for space, Z in map_points(X, y, known).items():
        means = KMeans(len(np.unique(y)), n_init=4, random_state=seed).fit_predict(Z)
        dense = HDBSCAN(min_cluster_size=max(5, int(SMALLEST * len(Z))), copy=True).fit_predict(Z)
        for method, found in (("k-means", means), ("HDBSCAN", dense)):
            yield (method, space), float(adjusted_rand_score(y[~known], found[~known]))


def map_points(X: Floats, y: Ints, known: np.ndarray) -> dict[str, Floats]:
    """The points in every space of `SPACES`."""
    spaces = {"Euclidean": X}
    for name, model in (("ITML", ITML()), ("FENN", FENN()), ("EigDML", EigDML())):
        model.learn_many(X[known], y[known])
        model.flush()
        spaces[name] = model.metric.transform(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateMapWarning)  # of maps that fall apart
        engine = se.Engine(size=len(X), n_components=10, picture=True)
        engine.learn(X)
        if engine.pending:
            engine.flush()
        snapshot = engine.snapshot()
    assert snapshot.picture is not None
    return {**spaces, "map": snapshot.coordinates, "picture": snapshot.picture.coordinates}


def _write(values: Floats) -> str:
    return f"{values.mean():.2f} ± {values.std(ddof=1) / np.sqrt(len(values)):.2f}"


SCENARIO = Scenario(
    id="clustering-under-a-metric",
    says="k-means and HDBSCAN under Euclidean distance, learned metrics, map and picture",
    run=run,
    expected={
        "gain of ITML": Expected(0.0, 1.0, "labels of half of the points help k-means"),
        "gain of FENN": Expected(0.0, 1.0, "the same; .14 was measured for both"),
    },
)
