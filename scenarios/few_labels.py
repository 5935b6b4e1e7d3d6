"""few-labels: a stream of which few events have a label, beside classifiers of those events."""

from __future__ import annotations

import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
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
QUESTION_SETS = SETS[:8]
QUICK_SETS = ("digits", "segment")
EVENTS, QUICK_EVENTS, WINDOW, SEEDS = 2000, 1200, 1000, 10
PEER_SEEDS, QUESTION_SEEDS = 3, 3
BATCH, HELD_OUT = 1500, 300
SHARES = 0.01, 0.03
A_CLASS = 1, 3, 10
WARM_UP = 100  # events that settle the scaling of all
CHUNK = 16  # predicted before the labels of their chunk
ASKED_EVERY = 4  # chunks that the dearer rows predict
UNLABELLED = -1
NEAREST, LOGISTIC, SPREADING = "1-NN", "logistic regression", "LabelSpreading"
FOREST, NEIGHBORS, REFITTED = "ARFClassifier", "KNNClassifier", "scikit-learn's spreading"
RAW = NEAREST, LOGISTIC
# Share of the accuracy with ten labels a class that questions are to reach.
ENOUGH = 0.9

Scores = dict[tuple[str, str, str], list[float]]  # set, setting, row


def run(full: bool) -> Outcome:
    """Shares of labelled events in streams, labels a class in batch, questions."""
    seeds = SEEDS if full else 1
    outcome = Outcome(
        notes=[
            f"accuracy, mean ± standard error over {seeds} seeds, which order the rows and choose "
            f"the labels; a window of {WINDOW:,} events of a stream of up to {EVENTS:,}, each "
            "predicted before its label comes, from the first label on; features scaled as by "
            f"the first {WARM_UP} events",
            "raw: 1-NN and logistic regression refitted on all labels so far; river's classifiers "
            f"learn the same labels (KNNClassifier of one neighbour); {REFITTED} is refitted on "
            "the window and all labelled events; the last three run on the first "
            f"{PEER_SEEDS} seeds, and predict one chunk of {ASKED_EVERY}",
        ]
    )
    scores: Scores = defaultdict(list)
    try:
        for seed in range(seeds):
            for key, accuracy in measure(seed, full):
                scores[key].append(accuracy)
        needed = measure_questions(full)
    except MissingDataError as absent:
        outcome.skipped = str(absent)
        return outcome
    gains = compute_gains(scores, f"{SHARES[0]:.0%}")
    outcome.figures["mean gain over raw at 1 %"] = float(np.mean(gains))
    outcome.figures["least gain over raw at 1 %"] = float(min(gains))
    ratios = {name: asked / drawn for name, (asked, drawn) in needed.items()}
    outcome.figures["labels asked for / drawn"] = float(np.mean(list(ratios.values())))
    followed, refitted, difference = measure_time()
    outcome.figures["ms an event at 2,000"] = 1e3 * followed
    outcome.figures["accuracy less the refitted one's"] = difference
    outcome.timings["refitted every event / followed"] = refitted / followed
    outcome.notes += [
        f"{name}, {setting}: {_describe(scores, name, setting)}"
        for name, setting in dict.fromkeys(key[:2] for key in scores)
    ]
    outcome.notes += [
        f"{name}: {asked:.0f} labels asked for, {drawn:.0f} drawn"
        for name, (asked, drawn) in needed.items()
    ]
    return outcome


def compute_gains(scores: Scores, setting: str) -> list[float]:
    """Of each set, the accuracy less that of the better of the raw rows, means over seeds."""
    means = {key: float(np.mean(values)) for key, values in scores.items()}
    names = dict.fromkeys(name for name, _, _ in scores)
    return [
        means[name, setting, SPREADING] - max(means[name, setting, row] for row in RAW)
        for name in names
    ]


def measure(seed: int, full: bool) -> Iterator[tuple[tuple[str, str, str], float]]:
    """The accuracy of every row in every setting, of one seed."""
    for name in SETS if full else QUICK_SETS:
        for share in SHARES:
            for row, accuracy in measure_stream(name, seed, share, full).items():
                yield (name, f"{share:.0%}", row), accuracy
        for count in A_CLASS:
            for row, accuracy in measure_batch(name, seed, count).items():
                yield (name, f"{count} a class", row), accuracy


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
    river: dict[str, Any] = {
        FOREST: forest.ARFClassifier(seed=seed),
        NEIGHBORS: neighbors.KNNClassifier(n_neighbors=1),
    }
    raw: dict[str, Any] = {}
    right, asked = defaultdict[str, int](int), defaultdict[str, int](int)

    def count(row: str, found: Any, truth: Ints) -> None:
        right[row] += int((np.asarray(found) == truth).sum())
        asked[row] += len(truth)

    for start in range(CHUNK, len(points), CHUNK):
        before, after = slice(start - CHUNK, start), slice(start, start + CHUNK)
        known = [
            int(code) if labelled else None
            for code, labelled in zip(classes[before], is_labelled[before], strict=True)
        ]
        own.learn_many(points[before], known)
        labelled = np.flatnonzero(is_labelled[:start])
        if is_labelled[before].any():
            raw = _fit_raw(points[labelled], classes[labelled])
        for row, model in raw.items():
            count(row, model.predict(points[after]), classes[after])
        count(SPREADING, own.predict_many(points[after]), classes[after])
        if seed >= PEER_SEEDS:
            continue
        for i in labelled[labelled >= before.start]:
            for model in river.values():
                model.learn_one(_to_dict(points[i]), int(classes[i]))
        if start // CHUNK % ASKED_EVERY == 0:
            for row, model in river.items():
                answers = [model.predict_one(_to_dict(point)) for point in points[after]]
                count(row, answers, classes[after])
            kept = np.union1d(labelled, np.arange(max(0, start - WINDOW), start))
            targets = np.where(is_labelled[kept], classes[kept], UNLABELLED)
            count(REFITTED, _refit(points[kept], targets, points[after]), classes[after])
    return {row: right[row] / asked[row] for row in asked}


def measure_batch(name: str, seed: int, count: int) -> dict[str, float]:
    """Accuracy on all other events where each class has so many labels."""
    points, classes = read_stream(name, seed, BATCH)
    rng = np.random.default_rng([seed, count])
    chosen = np.concatenate(
        [rng.permutation(np.flatnonzero(classes == code))[:count] for code in np.unique(classes)]
    )
    labels = np.full(len(points), None, dtype=object)
    labels[chosen] = classes[chosen]
    rest = np.setdiff1d(np.arange(len(points)), chosen)
    own = LabelSpreading(scaling=None, warm_up=WARM_UP)
    own.learn_many(points, labels)
    raw = _fit_raw(points[chosen], classes[chosen])
    found = {row: model.predict(points[rest]) for row, model in raw.items()}
    found[SPREADING] = own.predict_many(points[rest])
    return {row: float(np.mean(values == classes[rest])) for row, values in found.items()}


def measure_questions(full: bool) -> dict[str, tuple[float, float]]:
    """By set, labels asked for and labels drawn that are enough, means over seeds."""
    needed: dict[str, tuple[float, float]] = {}
    for name in QUESTION_SETS if full else QUICK_SETS:
        runs = [count_questions(name, seed) for seed in range(QUESTION_SEEDS if full else 1)]
        asked, drawn = np.mean(runs, axis=0).tolist()
        needed[name] = asked, drawn
    return needed


def count_questions(name: str, seed: int) -> tuple[int, int]:
    """Labels asked for one by one, and labels drawn, until held-out events are as right as that."""
    points, classes = read_stream(name, seed, BATCH)
    rng = np.random.default_rng([seed, 2])
    learned, held_out = slice(HELD_OUT, None), slice(HELD_OUT)
    codes = classes[learned].tolist()

    def learn() -> LabelSpreading:
        model = LabelSpreading(scaling=None, warm_up=WARM_UP)
        model.learn_many(points[learned])
        return model

    def is_right(model: LabelSpreading) -> float:
        return float(np.mean(model.predict_many(points[held_out]) == classes[held_out]))

    order = rng.permutation(len(codes))
    by_class = [order[classes[learned][order] == code][:10] for code in np.unique(classes)]
    ten = learn()
    ten.label(np.concatenate(by_class).tolist(), [codes[i] for i in np.concatenate(by_class)])
    enough = ENOUGH * is_right(ten)
    counts = []
    for is_asked in (True, False):
        model = learn()
        for count in range(len(codes)):
            event = model.ask(1)[0] if is_asked else int(order[count])
            model.label([event], [codes[event]])
            if is_right(model) >= enough:
                break
        counts.append(count + 1)
    return counts[0], counts[1]


def measure_time() -> tuple[float, float, float]:
    """Seconds an event of a loop at 2,000 events, of one refit, and how accuracies differ.

    Both have the same 2,000 points of ten classes, of which 3 % have a label; refits between the
    events of the loop.
    """
    points, classes = read_stream("usps", 0, 2400)
    is_labelled = np.random.default_rng(0).random(len(points)) < SHARES[1]
    labels = [int(c) if known else None for c, known in zip(classes, is_labelled, strict=True)]
    targets = np.where(is_labelled, classes, UNLABELLED)
    rows = [_to_dict(point) for point in points]
    model = LabelSpreading(scaling=None)
    for row, label in zip(rows[:2000], labels, strict=False):
        model.learn_one(row, label)
    seconds, right = np.zeros(2), np.zeros(2)
    for first in range(0, 400, 40):  # ten refits are enough for a mean
        after = slice(first + 2000, first + 2040)
        start = time.perf_counter()
        for row, label, code in zip(rows[after], labels[after], classes[after], strict=True):
            right[0] += model.predict_one(row) == code
            model.learn_one(row, label)
        middle = time.perf_counter()
        window = slice(first, first + 2000)
        found = _refit(points[window], targets[window], points[after])
        seconds += middle - start, time.perf_counter() - middle
        right[1] += (found == classes[after]).sum()
    return float(seconds[0]) / 400, float(seconds[1]) / 10, float(right[0] - right[1]) / 400


def _fit_raw(points: Floats, classes: Ints) -> dict[str, Any]:
    """The raw rows on labelled events; one class is no question for a regression."""
    nearest = KNeighborsClassifier(1).fit(points, classes)
    if len(np.unique(classes)) == 1:
        return dict.fromkeys(RAW, nearest)
    return {
        NEAREST: nearest,
        LOGISTIC: LogisticRegression(max_iter=1000).fit(points, classes),
    }


def _refit(points: Floats, targets: Ints, asked: Floats) -> Ints:
    """Classes of points by scikit-learn's spreading over others."""
    model = RefittedSpreading(kernel="knn", n_neighbors=10, alpha=0.9)
    with warnings.catch_warnings():  # it warns of 30 steps, and of events that no label reaches
        warnings.simplefilter("ignore")
        found: Ints = model.fit(points, targets).predict(asked)
    return found


def _to_dict(point: Floats) -> dict[Any, Any]:
    return {f"x{j:03d}": value for j, value in enumerate(point.tolist())}


def _describe(scores: Scores, name: str, setting: str) -> str:
    rows = {key[2]: values for key, values in scores.items() if key[:2] == (name, setting)}
    return "; ".join(
        f"{row} {np.mean(values):.3f} ± {standard_error(values):.3f}"
        for row, values in rows.items()
    )


SCENARIO = Scenario(
    id="few-labels",
    says="a stream of which few events have a label, beside classifiers of those events",
    run=run,
    expected={
        "mean gain over raw at 1 %": Expected(0.05, 1.0, "the bar of the design"),
        "least gain over raw at 1 %": Expected(-0.04, 1.0, "the bar of the design"),
        "labels asked for / drawn": Expected(0.0, 0.7, "the bar of the design"),
        "accuracy less the refitted one's": Expected(-0.03, 1.0, "as good as refitting"),
    },
)
