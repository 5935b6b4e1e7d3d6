"""never-taught-again: a classifier fitted on the first map is asked through the last one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

import streamembed as se
from scenarios.scenario import Expected, Outcome, Scenario
from scenarios.streams import MissingDataError, table

# Shuffled, so that nothing changes along the stream; the last has features with heavy tails.
SETS = (
    "usps",
    "mnist_10k",
    "letter",
    "waveform",
    "arabic_digit",
    "weather",
    "aedes_sex",
    "gas_drift_partial",
)
HEAVY_TAILS = ("gas_drift_partial",)
QUICK_SETS = ("weather", "waveform")
WINDOW, HELD_OUT, NEIGHBORS = 1000, 500, 5
TURNOVERS, QUICK_TURNOVERS = 2, 1
SNAPSHOTS = 10  # a turnover
SEEDS = 10
MAPS: dict[str, dict[str, Any]] = {
    "2 components": {"n_components": 2},
    "5 components": {"n_components": 5},
    "10 components": {"n_components": 10},
    "5 components, signs only": {"n_components": 5, "axes": "eigen"},
    "10 components, signs only": {"n_components": 10, "axes": "eigen"},
    "linear_eigenmap, 5 components": {"method": "linear_eigenmap", "n_components": 5},
    "linear_eigenmap, 10 components": {"method": "linear_eigenmap", "n_components": 10},
    "laplacian_eigenmaps, 5 components": {"method": "laplacian_eigenmaps", "n_components": 5},
    "laplacian_eigenmaps, 5 components, t = 0": {
        "method": "laplacian_eigenmaps",
        "n_components": 5,
        "diffusion_time": 0.0,
    },
}
QUICK_MAPS = ("5 components", "10 components")


@dataclass(frozen=True)
class Steadiness:
    """One stream: what a classifier of the first map is worth at the end.

    Attributes
    ----------
    fresh, stale : float
        Accuracy on held-out points of a classifier fitted on the last, and on the first snapshot.
    r2 : float
        Of held-out points' last coordinates as a prediction of their first ones.
    epochs : int
        That began in between.
    price : float
        Of the last snapshot.
    """

    fresh: float
    stale: float
    r2: float
    epochs: int
    price: float


def run(full: bool) -> Outcome:
    """Two turnovers of a window of 1,000 at ten seeds; quick: one turnover of two sets, one."""
    sets, seeds = (SETS, SEEDS) if full else (QUICK_SETS, 1)
    turnovers = TURNOVERS if full else QUICK_TURNOVERS
    outcome = Outcome(
        notes=[
            f"window of {WINDOW:,}, {turnovers} turnovers, {seeds} seeds of {', '.join(sets)}",
            f"loss is accuracy ({NEIGHBORS}-NN, {HELD_OUT} held-out points) of a classifier fitted "
            "on the last map minus that of one fitted on the first, both asked through the last",
        ]
    )
    for name, parameters in MAPS.items():
        if not full and name not in QUICK_MAPS:
            continue
        runs: dict[str, list[Steadiness]] = {}
        for stream in sets:
            try:
                points, labels = table(stream)
            except MissingDataError as absent:
                outcome.skipped = str(absent)
                return outcome
            runs[stream] = [
                measure(points, labels, seed, turnovers, parameters) for seed in range(seeds)
            ]
        _report(outcome, name, runs)
    return outcome


def measure(
    points: np.ndarray, labels: np.ndarray, seed: int, turnovers: int, parameters: dict[str, Any]
) -> Steadiness:
    """Learn a shuffled stream, and compare its map after the first window with the last."""
    order = np.random.default_rng(seed).permutation(len(points))
    held, stream = order[:HELD_OUT], order[HELD_OUT:]
    events = stream[np.arange((turnovers + 1) * WINDOW) % len(stream)]
    engine = se.Engine(size=WINDOW, seed=seed, **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine.learn(points[events[:WINDOW]])
        first = engine.snapshot()
        for part in np.split(events[WINDOW:], turnovers * SNAPSHOTS):
            engine.learn(points[part])
            last = engine.snapshot()
    before, after = first.transform(points[held]), last.transform(points[held])
    scores = []
    for snapshot in (last, first):
        classifier = KNeighborsClassifier(NEIGHBORS)
        classifier.fit(snapshot.coordinates, labels[events[snapshot.ids]])
        scores.append(classifier.score(after, labels[held]))
    spread = ((before - before.mean(axis=0)) ** 2).sum()
    return Steadiness(
        fresh=scores[0],
        stale=scores[1],
        r2=float(1.0 - ((after - before) ** 2).sum() / spread),
        epochs=last.frame.epoch - first.frame.epoch,
        price=last.frame.price,
    )


def _report(outcome: Outcome, name: str, runs: dict[str, list[Steadiness]]) -> None:
    """Means over all streams, with the standard error over them; and without heavy tails."""
    everything = [one for of_set in runs.values() for one in of_set]
    light = [one for key, of_set in runs.items() if key not in HEAVY_TAILS for one in of_set]
    for label, chosen in (("loss", everything), ("loss without heavy tails", light)):
        losses = np.array([one.fresh - one.stale for one in chosen])
        outcome.figures[f"{name}: {label}"] = float(losses.mean())
        if len(losses) > 1:
            error = float(losses.std(ddof=1) / np.sqrt(len(losses)))
            outcome.figures[f"{name}: {label}, standard error"] = error
    outcome.figures[f"{name}: accuracy, fitted last"] = float(
        np.mean([r.fresh for r in everything])
    )
    outcome.figures[f"{name}: R2 of the first coordinates"] = float(
        np.mean([one.r2 for one in everything])
    )
    outcome.figures[f"{name}: epochs begun"] = float(np.mean([r.epochs for r in everything]))
    outcome.figures[f"{name}: price"] = float(np.mean([one.price for one in everything]))


SCENARIO = Scenario(
    id="never-taught-again",
    says="a classifier fitted once still works when every event of its map has left the window",
    run=run,
    expected={
        "5 components: loss without heavy tails": Expected(-0.03, 0.02, "the promise of the frame"),
        "10 components: loss without heavy tails": Expected(-0.03, 0.02, "likewise"),
        "5 components: R2 of the first coordinates": Expected(0.9, 1.0, "axes are kept"),
        "5 components: epochs begun": Expected(0.0, 0.3, "nothing changes along these streams"),
        "5 components: price": Expected(0.0, 0.1, "the bound at which an epoch ends"),
    },
)
