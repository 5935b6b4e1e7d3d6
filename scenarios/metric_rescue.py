"""metric-rescue: noise features are added; does a metric learned without labels remove them?"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from scenarios.scenario import Expected, Outcome, Scenario
from scenarios.streams import MissingDataError, digits, two_circles
from scenarios.unsupervised_table import learn_without_labels
from streamembed.geometry import neighbors
from streamembed.numeric.arrays import Floats, Ints
from streamembed.threads import one_blas_thread

N, BLOBS_APART, VOTERS = 1000, 1.93, 5
LITTLE = 0.01  # of points: what the noise may take before there is something to rescue
NAMES = ("euclid", "oracle", "metric", "map", "map_by_metric", "weighed")


def run(full: bool) -> Outcome:
    """k-NN (5, leave-one-out) on the points and in their diffusion map, with and without metric.

    Four blobs in 2 standardised features, and two circles, beside 2, 8 and 18 features of noise;
    in full also ten components of the digits beside 10 and 40 of noise.
    """
    seeds = range(6 if full else 1)
    cases = [("blobs", 8), ("circles", 2), ("circles", 8)]
    if full:
        cases += [("blobs", 2), ("blobs", 18), ("circles", 18), ("digits", 10), ("digits", 40)]
    outcome = Outcome()
    with one_blas_thread():
        for kind, noise in cases:
            try:
                each = [_figures(*add_noise(kind, noise, seed), seed) for seed in seeds]
            except MissingDataError as absent:
                outcome.notes.append(f"{kind} beside {noise}: left out, {absent}")
                continue
            mean = dict(zip(NAMES, np.mean(each, axis=0).tolist(), strict=True))
            name = f"{kind}_{noise}"
            outcome.figures[f"{name}_gain"] = mean["metric"] - mean["euclid"]
            outcome.figures[f"{name}_map_gain"] = mean["map_by_metric"] - mean["map"]
            verdict = _verdict(mean["euclid"], mean["metric"], mean["oracle"])
            outcome.notes.append(
                f"{kind} beside {noise} noise features: k-NN {mean['euclid']:.3f}, under the "
                f"metric {mean['metric']:.3f}, without the noise {mean['oracle']:.3f}: {verdict}; "
                f"in the embedding {mean['map']:.3f}, under the metric "
                f"{mean['map_by_metric']:.3f}; {mean['weighed']:.2f} of the fall of weights"
            )
    outcome.notes.append(
        "features that the others do not predict weigh a tenth: where structure is in two features "
        "only, each of them is predicted by one other, and nothing tells them from noise"
    )
    gains = [
        v for name, v in outcome.figures.items() if name.endswith("gain") and "map" not in name
    ]
    outcome.figures["least_gain"] = min(gains)
    return outcome


def _verdict(without: float, under: float, clean: float) -> str:
    """How much of what the noise cost the metric recovers, in words."""
    lost = clean - without
    if lost < LITTLE:
        return "little to recover"
    share = (under - without) / lost
    if share >= 0.5:
        return "recovered"
    return "partly recovered" if share >= 0.05 else "not recovered"


def add_noise(kind: str, noise: int, seed: int) -> tuple[Floats, Ints, int]:
    """Standardised points with ``noise`` Gaussian features behind, labels, clean features."""
    rng = np.random.default_rng((seed, N))
    if kind == "blobs":
        labels = rng.integers(0, 4, N)
        corners = BLOBS_APART * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
        clean = corners[labels] + rng.standard_normal((N, 2))
    elif kind == "circles":
        clean, labels = two_circles(N, seed)
    else:
        points, labels = digits()
        chosen = rng.permutation(len(points))[:N]
        clean, labels = points[chosen, :10], labels[chosen]
    points = np.column_stack([clean, rng.standard_normal((N, noise))])
    return points / points.std(axis=0), labels.astype(np.int64), clean.shape[1]


def _figures(points: Floats, labels: Ints, clean: int, seed: int) -> list[float]:
    """In the order of `NAMES`."""
    metric = learn_without_labels(points, seed)
    better = metric.transform(points)
    return [
        measure_accuracy(points, labels),
        measure_accuracy(points[:, :clean], labels),
        measure_accuracy(better, labels),
        measure_accuracy(_map(points), labels),
        measure_accuracy(_map(better), labels),
        float(metric.certificate["weighed"]),
    ]


def _map(points: Floats) -> Floats:
    """Three diffusion coordinates of the neighbour graph's map."""
    psi, eigenvalues = neighbors.embed_self_tuning(points, 3)
    return psi * eigenvalues


def measure_accuracy(points: Floats, labels: Ints) -> float:
    """Share of points whose five nearest others name their label."""
    near = cKDTree(points).query(points, VOTERS + 1)[1][:, 1:]
    votes = (labels[near][:, :, None] == np.arange(labels.max() + 1)).sum(axis=1)
    return float(np.mean(votes.argmax(axis=1) == labels))


SCENARIO = Scenario(
    id="metric-rescue",
    says="noise features beside blobs, circles and digits: what an unlabelled metric recovers",
    run=run,
    expected={
        "least_gain": Expected(-0.01, 1.0, "two features with structure: nothing, and no harm"),
    },
)
