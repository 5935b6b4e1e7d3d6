"""metrics-online: 5-NN accuracy under each metric while labels arrive, test-then-train."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from scenarios.scenario import Expected, Outcome, Scenario
from scenarios.streams import MissingDataError, table
from streamembed.estimators import (
    FENN,
    ITML,
    ContrastMetric,
    DiscriminantAnalysis,
    EigDML,
    GeometricMeanMetric,
    MustLinkMetric,
)
from streamembed.metrics import fenn
from streamembed.numeric.arrays import Floats, Ints
from streamembed.threads import one_blas_thread

BATCH, NEIGHBORS, ORDERS, MOST = 10, 5, 12, 500
SETS = ("wine", "iris", "glass", "ionosphere", "balance_scale", "wdbc", "segment", "letter")
QUICK = ("wine", "iris")
EUCLID = "Euclidean"
METRICS: dict[str, Callable[[], Any]] = {
    "GeometricMeanMetric": GeometricMeanMetric,
    "FENN": FENN,
    'FENN(mu="cv")': lambda: FENN(mu="cv"),
    "DiscriminantAnalysis": DiscriminantAnalysis,
    "ITML": ITML,
    "EigDML": EigDML,
    "MustLinkMetric": MustLinkMetric,
    "MustLinkMetric(rank=2)": lambda: MustLinkMetric(rank=2),
    "MustLinkMetric(diagonal=True)": lambda: MustLinkMetric(diagonal=True),
    "ContrastMetric": ContrastMetric,
}


def run(full: bool) -> Outcome:
    """Eight sets and twelve orders of at most 500 rows each (quick: two sets, two orders)."""
    names, orders = (SETS, ORDERS) if full else (QUICK, 2)
    try:
        data = {name: table(name) for name in names}
    except MissingDataError as absent:
        return Outcome(skipped=str(absent))
    outcome = Outcome()
    euclid: dict[str, Floats] = {}
    gains: dict[str, dict[str, Floats]] = {metric: {} for metric in METRICS}
    with one_blas_thread():
        for name, (points, labels) in data.items():
            streams = [shuffle(points, labels, seed) for seed in range(orders)]
            euclid[name] = np.array([measure(X, y, None) for X, y in streams])
            for metric, make in METRICS.items():
                own = np.array([measure(X, y, make()) for X, y in streams])
                gains[metric][name] = 100 * (own - euclid[name])
    for metric, sets in gains.items():
        means = [float(gain.mean()) for gain in sets.values()]
        outcome.figures[f"mean gain {metric}"] = float(np.mean(means))
        if metric == "GeometricMeanMetric":
            outcome.figures["worst set of GeometricMeanMetric"] = min(means)
    outcome.notes += [
        f"5-NN accuracy of the next {BATCH} rows among all rows before them, in percent; metrics: "
        f"gains over it in points, paired, mean ± standard error over {orders} orders. At most "
        f"{MOST:,} rows, features divided by their standard deviations over the set.",
        f"{EUCLID}: " + ", ".join(f"{name} {100 * own.mean():.1f}" for name, own in euclid.items()),
        *[
            f"{metric}: " + ", ".join(f"{name} {_write(gain)}" for name, gain in sets.items())
            for metric, sets in gains.items()
        ],
    ]
    return outcome


def shuffle(points: Floats, labels: Ints, seed: int, most: int = MOST) -> tuple[Floats, Ints]:
    """A random order of at most so many rows, of features standardised over the set."""
    order = np.random.default_rng((seed, len(points))).permutation(len(points))[:most]
    spread = points.std(axis=0)
    scaled = (points - points.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return scaled[order], labels[order]


def measure(X: Floats, y: Ints, model: Any) -> float:
    """The share of rows whose class the rows before them name, under the metric of these rows."""
    hits = 0
    for start in range(0, len(X), BATCH):
        inside, outside = slice(0, start), slice(start, start + BATCH)
        if start >= 2 * BATCH:
            before, now = _transform(X[inside], X[outside], model)
            answers = fenn.vote(before, y[inside], now, NEIGHBORS)
            hits += int(np.count_nonzero(answers == y[outside]))
        if model is not None:
            model.learn_many(X[outside], y[outside])
    return hits / (len(X) - 2 * BATCH)


def _transform(before: Floats, now: Floats, model: Any) -> tuple[Floats, Floats]:
    if model is None or not model.ready:
        return before, now
    metric = model.metric
    return metric.transform(before), metric.transform(now)


def _write(gain: Floats) -> str:
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    return f"{gain.mean():+.1f} ± {error:.1f}"


SCENARIO = Scenario(
    id="metrics-online",
    says="5-NN accuracy under each metric while labels arrive, beside the Euclidean distance",
    run=run,
    expected={
        "worst set of GeometricMeanMetric": Expected(-1.5, 100.0, "the metric to take by default"),
    },
)
