"""few-labels: a stream of which few events have a label, beside classifiers of those events."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from river import forest, neighbors
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.semi_supervised import LabelSpreading as RefittedSpreading

from scenarios.scenario import Expected, Outcome, Scenario, standard_error
from scenarios.streams import MissingDataError, table
from streamembed.estimators import LabelSpreading
from streamembed.geometry.scaling import LEAST_SHARE, fit_points
from streamembed.numeric.arrays import Floats, Ints

SETS = (
    *("usps", "digits", "mnist_10k", "segment", "coil20", "arabic_digit", "waveform", "letter"),
    *("keystroke", "outdoor", "gas_drift_partial", "wdbc"),
)
QUICK_SETS = ("digits", "segment")
EVENTS, QUICK_EVENTS, WINDOW, SEEDS = 3000, 1200, 1000, 10
SHARES = 0.01, 0.03
A_CLASS = 1, 3, 10
WARM_UP = 100  # events that settle the scaling of all
CHUNK = 16  # predicted before the labels of their chunk
UNLABELLED = -1
NEAREST, LOGISTIC, SPREADING = "1-NN", "logistic regression", "LabelSpreading"
RAW = NEAREST, LOGISTIC


def run(full: bool) -> Outcome:
    """Shares of labelled events in streams, then labels a class in batch."""
    names, seeds = (SETS, SEEDS) if full else (QUICK_SETS, 1)
    outcome = Outcome(
        notes=[
            f"accuracy, mean ± standard error over {seeds} seeds, which order the rows and choose "
            f"the labels; a window of {WINDOW:,} events of a stream of up to {EVENTS:,}, each "
            f"predicted before its label comes, from the first label on; features scaled as by "
            f"the first {WARM_UP} events",
            "raw: 1-NN and logistic regression refitted on all labels so far",
        ]
    )
    gains = []
    try:
        for name in names:
            for share in SHARES:
                runs = [measure_stream(name, seed, share, full) for seed in range(seeds)]
                scores = {row: np.array([one[row] for one in runs]) for row in runs[0]}
                means = {row: values.mean() for row, values in scores.items()}
                if share == SHARES[0]:
                    gains.append(means[SPREADING] - max(means[row] for row in RAW))
                outcome.notes.append(f"{name}, {share:.0%} labelled: {_describe(scores)}")
            for count in A_CLASS:
                runs = [measure_batch(name, seed, count) for seed in range(seeds)]
                scores = {row: np.array([one[row] for one in runs]) for row in runs[0]}
                outcome.notes.append(f"{name}, {count} labels a class: {_describe(scores)}")
    except MissingDataError as absent:
        outcome.skipped = str(absent)
        return outcome
    outcome.figures["mean gain over raw at 1 %"] = float(np.mean(gains))
    outcome.figures["least gain over raw at 1 %"] = float(min(gains))
    followed, refitted, difference = measure_time()
    outcome.figures["ms an event at 2,000"] = 1e3 * followed
    outcome.figures["accuracy less the refitted one's"] = difference
    outcome.timings["refitted every chunk / followed"] = refitted / followed
    return outcome


def read_stream(name: str, seed: int, count: int) -> tuple[Floats, Ints]:
    """Scaled rows of a set in the order of a seed, and their classes from 0 on."""
    points, labels = table(name)
    order = np.random.default_rng(seed).permutation(len(points))[:count]
    points, classes = points[order], np.unique(labels[order], return_inverse=True)[1]
    first = points[:WARM_UP]
    scaling = fit_points(first, np.ones(len(first)), "standard", 1.0, LEAST_SHARE)
    return scaling.apply(points), classes.astype(np.int64)


def measure_stream(name: str, seed: int, share: float, full: bool) -> dict[str, float]:
    """Accuracy by row where that share of the events has a label."""
    points, classes = read_stream(name, seed, EVENTS if full else QUICK_EVENTS)
    is_labelled = np.random.default_rng([seed, 1]).random(len(points)) < share
    is_labelled[0] = True
    own = LabelSpreading(size=WINDOW, scaling=None, warm_up=WARM_UP)
    others: dict[str, Any] = {
        "ARFClassifier": forest.ARFClassifier(seed=seed),
        "KNNClassifier": neighbors.KNNClassifier(n_neighbors=1),
    }
    fitted: dict[str, Any] = {}
    right = dict.fromkeys((*RAW, *(others if full else ()), SPREADING), 0)
    for start in range(CHUNK, len(points) + CHUNK, CHUNK):
        before = slice(start - CHUNK, start)
        known = [
            int(code) if labelled else None
            for code, labelled in zip(classes[before], is_labelled[before], strict=True)
        ]
        own.learn_many(points[before], known)
        labelled = np.flatnonzero(is_labelled[:start])
        if is_labelled[before].any():
            for row, model in _create_raw().items():
                is_fit = row == NEAREST or len(np.unique(classes[labelled])) > 1
                fitted[row] = (model if is_fit else _create_raw()[NEAREST]).fit(
                    points[labelled], classes[labelled]
                )
        after = slice(start, start + CHUNK)
        if not len(points[after]):
            break
        for row in RAW:
            right[row] += int((fitted[row].predict(points[after]) == classes[after]).sum())
        right[SPREADING] += int((own.predict_many(points[after]) == classes[after]).sum())
        for row in set(others) & set(right):
            for i in range(before.start, start):
                if is_labelled[i]:
                    others[row].learn_one(_to_dict(points[i]), int(classes[i]))
            right[row] += sum(
                others[row].predict_one(_to_dict(point)) == code
                for point, code in zip(points[after], classes[after].tolist(), strict=True)
            )
    return {row: count / (len(points) - CHUNK) for row, count in right.items()}


def measure_batch(name: str, seed: int, count: int) -> dict[str, float]:
    """Accuracy on all other events where each class has so many labels."""
    points, classes = read_stream(name, seed, 1500)
    rng = np.random.default_rng([seed, count])
    chosen = np.concatenate(
        [rng.permutation(np.flatnonzero(classes == code))[:count] for code in np.unique(classes)]
    )
    labels = np.full(len(points), None, dtype=object)
    labels[chosen] = classes[chosen]
    rest = np.setdiff1d(np.arange(len(points)), chosen)
    own = LabelSpreading(scaling=None, warm_up=WARM_UP)
    own.learn_many(points, labels)
    found = {
        row: model.fit(points[chosen], classes[chosen]).predict(points[rest])
        for row, model in _create_raw().items()
    }
    found[SPREADING] = own.predict_many(points[rest])
    return {row: float(np.mean(values == classes[rest])) for row, values in found.items()}


def measure_time() -> tuple[float, float, float]:
    """Seconds an event of a loop at 2,000 events, of one refit a chunk, and how accuracies differ.

    Both have the same 2,000 points of ten classes, of which 3 % have a label.
    """
    points, classes = read_stream("usps", 0, 2400)
    is_labelled = np.random.default_rng(0).random(len(points)) < SHARES[1]
    labels = [int(c) if known else None for c, known in zip(classes, is_labelled, strict=True)]
    rows = [_to_dict(point) for point in points]
    model = LabelSpreading(scaling=None)
    for row, label in zip(rows[:2000], labels, strict=False):
        model.learn_one(row, label)
    right, start = 0, time.perf_counter()
    for row, label, code in zip(rows[2000:], labels[2000:], classes[2000:].tolist(), strict=True):
        right += model.predict_one(row) == code
        model.learn_one(row, label)
    followed = (time.perf_counter() - start) / 400
    targets = np.where(is_labelled, classes, UNLABELLED)
    refitted, others = 0.0, 0
    for first in range(0, 400, 100):  # four refits are enough for a mean
        window = slice(first, first + 2000)
        start = time.perf_counter()
        refit = RefittedSpreading(kernel="knn", n_neighbors=10, alpha=0.9)
        refit.fit(points[window], targets[window])
        refitted += (time.perf_counter() - start) / 4
        after = slice(first + 2000, first + 2100)
        others += int((refit.predict(points[after]) == classes[after]).sum())
    return followed, refitted / CHUNK, (right - others) / 400


def _create_raw() -> dict[str, Any]:
    return {NEAREST: KNeighborsClassifier(1), LOGISTIC: LogisticRegression(max_iter=1000)}


def _to_dict(point: Floats) -> dict[Any, Any]:
    return {f"x{j:03d}": value for j, value in enumerate(point.tolist())}


def _describe(scores: dict[str, np.ndarray]) -> str:
    return "; ".join(
        f"{row} {values.mean():.3f} ± {standard_error(values):.3f}"
        for row, values in scores.items()
    )


SCENARIO = Scenario(
    id="few-labels",
    says="a stream of which few events have a label, beside classifiers of those events",
    run=run,
    expected={
        "mean gain over raw at 1 %": Expected(0.05, 1.0, "the bar of the design"),
        "least gain over raw at 1 %": Expected(-0.04, 1.0, "the bar of the design"),
        "accuracy less the refitted one's": Expected(-0.03, 1.0, "as good as refitting"),
    },
)
