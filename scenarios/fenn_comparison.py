"""Local metrics and a single label, beside FENN.

`python -m scenarios.fenn_comparison [set ...]`: two runs of ten stratified folds, 5-NN, all
metrics on the same twenty splits; mean and standard error over splits. All ten sets take some
minutes.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.cluster.vq import kmeans2

from scenarios.fenn_table import NEIGHBORS, ROWS, factor, folds, learn_spectrum, load
from streamembed.metrics import fenn
from streamembed.numeric.arrays import Floats, Ints
from streamembed.threads import one_blas_thread

REPEATS, REGIONS = 2, 3
# Labelled points that a temperature is chosen on, as in the estimator.
SAMPLE = 400
COLUMNS = ("euclidean", "fenn", "own region", "ensemble", "one label")


def main(names: list[str]) -> None:
    """A line a data set: the columns, and the differences of local metrics to FENN."""
    print(f"{'':14s}" + "".join(f"{name:>16s}" for name in COLUMNS), flush=True)
    for name in names or list(ROWS):
        points, classes = load(ROWS[name].file)
        splits = [split for seed in range(REPEATS) for split in folds(classes, seed)]
        with one_blas_thread():
            each = np.array([measure_split(points, classes, *s, i) for i, s in enumerate(splits)])
        cells = [_format(each[:, i]) for i in range(len(COLUMNS))]
        print(f"{name:14s}" + "".join(f"{cell:>16s}" for cell in cells))
        paired = [_format(each[:, i] - each[:, 1]) for i in range(len(COLUMNS))]
        print(f"{'  less fenn':14s}" + "".join(f"{cell:>16s}" for cell in paired), flush=True)


def _format(values: Floats) -> str:
    return f"{values.mean():.3f} ± {values.std(ddof=1) / np.sqrt(len(values)):.3f}"


def measure_split(
    points: Floats, classes: Ints, inside: Ints, outside: Ints, seed: int
) -> list[float]:
    """Held-out accuracy of 5-NN, a metric a column."""
    spread = points[inside].std(axis=0)
    points = (points - points[inside].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    training, labels, new = points[inside], classes[inside], points[outside]
    generator = np.random.default_rng((seed, len(points)))
    whole = learn_fenn(training, labels, generator)

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
        own,
        votes.argmax(axis=1),
        answer(single),
    ]
    return [float(np.mean(each == classes[outside])) for each in answers]


def learn_fenn(points: Floats, labels: Ints, generator: np.random.Generator) -> Floats:
    """FENN, its temperature chosen on a sample."""
    spectrum = learn_spectrum(points, labels)
    chosen = generator.permutation(len(points))[:SAMPLE]
    mu, _, _ = fenn.choose_by_cross_validation(points[chosen], labels[chosen], spectrum, NEIGHBORS)
    return fenn.measure(spectrum, mu)[0]


if __name__ == "__main__":
    main(sys.argv[1:])
