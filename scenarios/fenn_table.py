"""fenn-table: Table 2 of the FENN paper, ten data sets, from moments learned as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scenarios.scenario import Expected, Outcome, Scenario
from scenarios.streams import MissingDataError, table
from streamembed.metrics import fenn, scatter
from streamembed.numeric.arrays import Floats, Ints
from streamembed.threads import one_blas_thread

NEIGHBORS, FOLDS, CHUNK = 5, 10, 50


@dataclass(frozen=True)
class FennDataset:
    """A data set of the table: the paper's accuracy (one run), the one of our study, and repeats.

    ``study`` is an earlier measurement of the corrected method, from other code, three repeats.
    """

    file: str
    paper: float
    study: float
    repeats: int
    quick: bool


ROWS = {
    "balance-scale": FennDataset("balance_scale", 0.947, 0.947, 3, False),
    "glass": FennDataset("glass", 0.710, 0.712, 3, True),
    "ionosphere": FennDataset("ionosphere", 0.846, 0.843, 3, True),
    "tic-tac-toe": FennDataset("tic_tac_toe", 0.900, 0.910, 3, False),
    "segment": FennDataset("segment", 0.975, 0.973, 3, False),
    "iris": FennDataset("iris", 0.960, 0.964, 3, True),
    "wine": FennDataset("wine", 0.994, 0.989, 3, True),
    "wdbc": FennDataset("wdbc", 0.967, 0.970, 3, False),
    "car": FennDataset("car", 0.986, 0.994, 3, False),
    "waveform": FennDataset("waveform", 0.849, 0.845, 1, False),
}


def run(full: bool) -> Outcome:
    """All ten rows, three repeats of ten folds (quick: the four smallest, one repeat)."""
    names = [name for name, row in ROWS.items() if full or row.quick]
    try:
        data = {name: load(ROWS[name].file) for name in names}
    except MissingDataError as absent:
        return Outcome(skipped=str(absent))
    outcome = Outcome({"rows": float(len(names))})
    with one_blas_thread():
        for name in names:
            row = ROWS[name]
            points, classes = data[name]
            repeats = row.repeats if full else 1
            each = np.array([accuracies(points, classes, seed) for seed in range(repeats)])
            cv, hot, plain = each.mean(axis=0)
            outcome.figures[name] = float(cv)
            outcome.notes.append(
                f"{name}: {cv:.3f} (paper {row.paper:.3f}, study {row.study:.3f}); mu by heat "
                f"capacity {hot:.3f}; Euclidean distance, standardised {plain:.3f}"
            )
    short = {name: ROWS[name].paper - outcome.figures[name] for name in names}
    outcome.figures["glass_short"] = short.pop("glass")
    outcome.figures["short_of_paper"] = max(short.values())
    outcome.notes += [
        "glass has 214 points in 6 classes: one run of ten folds has a standard deviation of .02, "
        "the paper's too; the mean of ten runs is .686 here, below the paper's figure",
        "the paper does not say how it codes tic-tac-toe: b 1, o 2, x 3 (factor codes) here; with "
        "o -1, b 0, x 1 every metric is near 1",
    ]
    return outcome


def load(file: str) -> tuple[Floats, Ints]:
    """Features and class indices; tic-tac-toe in factor codes."""
    points, classes = table(file)
    if file == "tic_tac_toe":
        points = np.choose((points + 1.0).astype(np.int64), [2.0, 1.0, 3.0])
    return points, classes


def accuracies(points: Floats, classes: Ints, seed: int) -> tuple[float, float, float]:
    """Held-out shares found by 5-NN: mu by cross-validation, by heat capacity, and no metric."""
    hits = np.zeros(3)
    for inside, outside in folds(classes, seed):
        training, labels = points[inside], classes[inside]
        spectrum = learn_spectrum(training, labels)
        mu, _, _ = fenn.choose_by_cross_validation(training, labels, spectrum, NEIGHBORS)
        spread = training.std(axis=0)
        metrics = [
            fenn.solve_metric(spectrum, mu)[0],
            fenn.solve_metric(spectrum, fenn.choose_by_heat_capacity(spectrum.energies))[0],
            np.diag(1.0 / np.where(spread > 0, spread, 1.0) ** 2),
        ]
        centre = training.mean(axis=0)
        for i, metric in enumerate(metrics):
            root = factor(metric)
            answers = fenn.vote(
                (training - centre) @ root, labels, (points[outside] - centre) @ root, NEIGHBORS
            )
            hits[i] += np.count_nonzero(answers == classes[outside])
    cv, hot, plain = hits / len(points)
    return float(cv), float(hot), float(plain)


def learn_spectrum(points: Floats, classes: Ints) -> fenn.Spectrum:
    """The spectrum of moments that came chunk by chunk."""
    moments = scatter.init(points.shape[1])
    for start in range(0, len(points), CHUNK):
        chunk = slice(start, start + CHUNK)
        moments = scatter.update(moments, points[chunk], classes[chunk])
    return fenn.compute_spectrum(scatter.compute_scatters(moments))


def factor(metric: Floats) -> Floats:
    """A root of the metric, (d, d), taken with the metric's diagonal scaled to 1."""
    scale = np.sqrt(np.diag(metric))
    unit = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(metric / np.outer(unit, unit))
    root: Floats = unit[:, None] * vectors * np.sqrt(np.maximum(values, 0.0))
    return root


def folds(classes: Ints, seed: int) -> Iterator[tuple[Ints, Ints]]:
    """Ten stratified folds: indices inside, in the order of a stream that is shuffled, and out."""
    shuffled = np.random.default_rng((seed, len(classes))).permutation(len(classes))
    dealt = shuffled[np.argsort(classes[shuffled], kind="stable")]
    fold = np.empty(len(classes), dtype=np.int64)
    fold[dealt] = np.arange(len(classes)) % FOLDS
    for number in range(FOLDS):
        yield shuffled[fold[shuffled] != number], np.flatnonzero(fold == number)


SCENARIO = Scenario(
    id="fenn-table",
    says="5-NN under the FENN metric on the ten data sets of its paper (Table 2)",
    run=run,
    expected={
        "short_of_paper": Expected(-1.0, 0.015, "the bar of the design; worst row except glass"),
        "glass_short": Expected(-1.0, 0.06, "paper and quick size are one run each, sd .02"),
    },
)
