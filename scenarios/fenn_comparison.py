"""Xing's column of FENN's Table 2, local metrics and a single label, beside FENN.

`python -m scenarios.fenn_comparison [set ...]`: two runs of ten stratified folds, 5-NN, all
metrics on the same twenty splits; mean and standard error over splits. All ten sets take some
minutes.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.cluster.vq import kmeans2

from scenarios.fenn_table import NEIGHBORS, ROWS, factor, folds, learn_spectrum, load
from streamembed.metrics import eig_dml, fenn
from streamembed.metrics.must_link import RootsLearner
from streamembed.numeric.arrays import Floats, Ints
from streamembed.threads import one_blas_thread

REPEATS, REGIONS = 2, 3
# Labelled points that a temperature is chosen on, as in the estimator.
SAMPLE = 400
# Pairs of either kind, and steps; of the optimum on these pairs at most 1e-3 is missing then.
PAIRS, STEPS, TOLERANCE = 2000, 4000, 1e-3
COLUMNS = ("euclidean", "fenn", "xing", "own region", "ensemble", "one label")


def main(names: list[str]) -> None:
    """A line a data set: the columns, and the differences of Xing and local metrics to FENN."""
    print(f"{'':14s}" + "".join(f"{name:>16s}" for name in COLUMNS), " gap of xing", flush=True)
    for name in names or list(ROWS):
        points, classes = load(ROWS[name].file)
        splits = [split for seed in range(REPEATS) for split in folds(classes, seed)]
        with one_blas_thread():
            each = np.array([measure_split(points, classes, *s, i) for i, s in enumerate(splits)])
        cells = [_format(each[:, i]) for i in range(len(COLUMNS))]
        print(f"{name:14s}" + "".join(f"{cell:>16s}" for cell in cells), f"{each[:, -1].max():.1e}")
        paired = [_format(each[:, i] - each[:, 1]) for i in range(len(COLUMNS))]
        print(f"{'  less fenn':14s}" + "".join(f"{cell:>16s}" for cell in paired), flush=True)


def _format(values: Floats) -> str:
    return f"{values.mean():.3f} ± {values.std(ddof=1) / np.sqrt(len(values)):.3f}"


def measure_split(
    points: Floats, classes: Ints, inside: Ints, outside: Ints, seed: int
) -> list[float]:
    """Held-out accuracy of 5-NN, a metric a column; last, the gap of Xing's problem."""
    spread = points[inside].std(axis=0)
    points = (points - points[inside].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    training, labels, new = points[inside], classes[inside], points[outside]
    generator = np.random.default_rng((seed, len(points)))
    whole = learn_fenn(training, labels, generator)
    xing, gap = learn_xing(training, labels, generator)

    def answer(metric: Floats, rows: Floats = new) -> Ints:
        root = factor(metric)
        return fenn.vote(training @ root, labels, rows @ root, NEIGHBORS)

    centres, region = kmeans2(training, REGIONS, minit="++", rng=generator)
    own, ballots = np.zeros(len(new), dtype=np.int64), []
    nearest = ((new[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    for number in range(REGIONS):
        rows, known = training[region == number], labels[region == number]
        is_enough = len(np.unique(known)) > 1 and len(rows) >= 3 * points.shape[1]
        local = learn_fenn(rows, known, generator) if is_enough else whole
        ballots.append(answer(local))
        own[nearest == number] = ballots[-1][nearest == number]
    votes = np.array(
        [np.bincount(ballot, minlength=labels.max() + 1) for ballot in np.transpose(ballots)]
    )
    spectrum = learn_spectrum(training, np.zeros_like(labels))
    single = fenn.measure(spectrum, fenn.choose_by_heat_capacity(spectrum.energies))[0]
    answers = [
        answer(np.eye(points.shape[1])),
        answer(whole),
        answer(xing),
        own,
        votes.argmax(axis=1),
        answer(single),
    ]
    return [*(float(np.mean(each == classes[outside])) for each in answers), gap]


def learn_fenn(points: Floats, labels: Ints, generator: np.random.Generator) -> Floats:
    """FENN, its temperature chosen on a sample."""
    spectrum = learn_spectrum(points, labels)
    chosen = generator.permutation(len(points))[:SAMPLE]
    mu, _, _ = fenn.choose_by_cross_validation(points[chosen], labels[chosen], spectrum, NEIGHBORS)
    return fenn.measure(spectrum, mu)[0]


def learn_xing(
    points: Floats, labels: Ints, generator: np.random.Generator
) -> tuple[Floats, float]:
    """The metric of Xing et al., eq. (2) of FENN's paper, on drawn pairs, and its gap."""
    first, second = generator.integers(len(points), size=(2, 60 * PAIRS))
    first, second = first[first != second], second[first != second]
    similar = labels[first] == labels[second]
    close, far = (np.flatnonzero(kind)[:PAIRS] for kind in (similar, ~similar))
    settings = RootsLearner(buffer=PAIRS, steps=STEPS, step_cap=STEPS, tolerance=TOLERANCE)
    state = eig_dml.update(
        eig_dml.init(points.shape[1]),
        points[first[close]] - points[second[close]],
        points[first[far]] - points[second[far]],
        settings,
    )
    return state.matrix, eig_dml.measure(state, settings)["gap"]


if __name__ == "__main__":
    main(sys.argv[1:])
