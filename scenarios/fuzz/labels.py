"""Spread labels against dense solves: ``python -m scenarios.fuzz.labels [--streams N]``.

Every stream is drawn from its seed: points (some equal, some without values), a window, neighbours,
a damping, and how labels come: few, none, all, of one class, of any class for equal points, late,
taken back, of a class that comes at the end. At random moments the certificate must be true of the
system of the events in the graph, restated here; a failure prints its seed. Exit code 1.
"""

from __future__ import annotations

import argparse
import sys
import warnings

import numpy as np

from streamembed.errors import ColumnWarning
from streamembed.estimators import LabelSpreading
from streamembed.manifold.label_spreading import LabelGraph
from streamembed.numeric.arrays import Floats
from streamembed.spectral.adjacency import LEAST_SCALE, SCALE_NEIGHBOR, VANISHED

__all__ = ["check", "run"]

LABELLED = {"few": 0.05, "none": 0.0, "all": 1.0, "one class": 0.2, "contradictory": 0.5}
Given = dict[int, str | None]


def run(streams: int, seed: int = 0) -> tuple[int, list[str]]:
    """Snapshots of so many streams from ``seed`` on, and what is wrong."""
    snapshots, wrong = 0, list[str]()
    for number in range(seed, seed + streams):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ColumnWarning)
            try:
                faults = _follow(number)
            except Exception as error:  # whatever it is, the fuzz names the seed and goes on
                faults = [[f"raised {error!r}"]]
        snapshots += len(faults)
        wrong += [f"seed {number}: {fault}" for found in faults for fault in found]
    return snapshots, wrong


def _follow(seed: int) -> list[list[str]]:
    """The faults of every snapshot of a stream."""
    rng = np.random.default_rng(seed)
    n, d, c = int(rng.integers(2, 300)), int(rng.integers(1, 6)), int(rng.integers(1, 5))
    truth = rng.integers(c, size=n)
    points = 3.0 * rng.standard_normal((c, d))[truth] + rng.standard_normal((n, d))
    if rng.random() < 0.4:
        points = np.round(points * rng.choice([0.0, 0.2, 1.0]))  # equal ones, and ties
    points *= 10.0 ** rng.integers(-9, 10)
    points[rng.random((n, d)) < rng.choice([0.0, 0.1])] = np.nan
    points[1:][rng.random(n - 1) < rng.choice([0.0, 0.1])] = np.nan
    how, late = str(rng.choice(list(LABELLED))), float(rng.choice([0.0, 0.3]))
    others = {"contradictory": rng.integers(c, size=n), "one class": np.zeros_like(truth)}
    truth = others.get(how, truth)
    truth[n - n // 8 :] += c * int(rng.random() < 0.3)  # classes that nothing showed before
    size = int(rng.choice([5, 20, 60, 120]))
    model = LabelSpreading(
        n_neighbors=int(rng.choice([1, 3, 10, 30])),
        size=size,
        damping=float(rng.choice([0.1, 0.5, 0.9, 0.99, 0.999])),
        scaling=[None, "standard", "global"][int(rng.integers(3))],
        warm_up=int(rng.integers(2, size + 1)),
    )
    given, faults = Given(), list[list[str]]()
    while (at := model.position) < n:
        rows = slice(at, min(n, at + int(rng.choice([1, 2, 7, 16, 50]))))
        share = LABELLED[how] * (1.0 - late)
        labels = [f"c{code}" if rng.random() < share else None for code in truth[rows]]
        model.learn_many(points[rows], labels)
        if model.position == at:  # rows without a number before the first event
            points, truth, n = points[rows.stop :], truth[rows.stop :], n - rows.stop
            continue
        given.update(zip(range(at, model.position), labels[-(model.position - at) :], strict=True))
        if rng.random() < late:
            event = int(rng.integers(model.position))
            label = None if rng.random() < 0.2 else f"c{truth[event]}"
            if not model.label([event], [label]):
                given[event] = label
        if rng.random() < 0.3 or model.position >= n:
            faults.append(check(model, given, whole=bool(rng.random() < 0.5)))
    return faults


def check(model: LabelSpreading, given: Given, whole: bool) -> list[str]:
    """What is not true of a classifier that was given these labels; ``whole``: of every event."""
    graph, known = model._get_scored_stream(whole)[1].graph, model.classes
    position, size = int(graph.positions.max()) + 1, int(model.size)
    faults: list[str] = []
    if graph.positions[graph.window].tolist() != list(range(max(0, position - size), position)):
        faults.append("the window has other events than the newest")
    labels = [known[code] if code >= 0 else None for code in graph.classes.tolist()]
    if labels != [given[event] for event in graph.positions.tolist()]:
        faults.append("an event has another label than was given")
    if any(label is not None for event, label in given.items() if event >= position):
        faults.append("a label waits")
    operator = np.eye(len(graph.points)) - model.damping * build_walk(graph, model.n_neighbors)
    right = (graph.classes[:, None] == np.arange(len(known))).astype(np.float64)
    norms = np.maximum(np.linalg.norm(right, axis=0), 1.0)
    residuals = np.linalg.norm(right - operator @ graph.scores, axis=0) / norms
    error = np.linalg.norm(np.linalg.solve(operator, right) - graph.scores, axis=0) / norms
    claimed = graph.residual
    if not np.isclose(residuals.max(initial=0.0), claimed, rtol=1e-6, atol=1e-12):
        faults.append(f"residual {residuals.max(initial=0.0):.3g}, claimed {claimed:.3g}")
    if error.max(initial=0.0) > claimed / (1.0 - model.damping) + 1e-9:
        faults.append(f"error {error.max():.3g} beyond the bound of {claimed:.3g}")
    if not whole and not model.certificate["met"]:
        faults.append(f"not met: {claimed:.3g}")
    return faults


def build_walk(graph: LabelGraph, n_neighbors: int) -> Floats:
    """S of the points of a graph, dense; of equally near ones the older are neighbours."""
    points, n = graph.points, len(graph.points)
    d2 = np.array([np.einsum("ij,ij->i", points - point, points - point) for point in points])
    np.fill_diagonal(d2, np.inf)
    near = np.array([np.lexsort((graph.positions, row))[: min(n_neighbors, n - 1)] for row in d2])
    listed = np.take_along_axis(d2, near, 1)
    widths = np.sqrt(listed[:, :SCALE_NEIGHBOR][:, -1:].sum(axis=1))
    positive = widths[widths > 0.0]
    if len(positive):
        widths = np.maximum(widths, LEAST_SCALE * np.median(positive))
    else:  # every point has as many equal ones
        widths[:] = np.median(np.sqrt(listed[listed > 0.0])) if listed.any() else 1.0
    weights = np.zeros((n, n))
    i, j = np.repeat(np.arange(n), near.shape[1]), near.ravel()
    with np.errstate(under="ignore"):
        edges = np.exp(-d2[i, j] / (widths[i] * widths[j]))
    weights[i, j] = weights[j, i] = np.maximum(edges, VANISHED)
    roots = np.sqrt(np.maximum(weights.sum(axis=1), VANISHED))
    walk: Floats = weights / roots / roots[:, None]
    return walk


def main(arguments: list[str] | None = None) -> int:
    """Run the fuzz and print its counts."""
    parser = argparse.ArgumentParser(prog="scenarios.fuzz.labels", description=__doc__)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    snapshots, wrong = run(chosen.streams, chosen.seed)
    print(*wrong, f"{chosen.streams} streams, {snapshots} snapshots: {len(wrong)} wrong", sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
