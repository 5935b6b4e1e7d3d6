"""features-beside-noise: metrics learned without labels, on real sets beside noise.

The weights of `UnsupervisedMetric`, and the engine's ITML of pairs of the embedding.
Noise of eight independent features, four features of one factor, which are noise that looks like
structure, and none.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from scenarios.scenario import Expected, Outcome, Scenario
from scenarios.streams import MissingDataError, table
from scenarios.unsupervised_table import learn_without_labels
from streamembed.estimators import UnsupervisedMetric
from streamembed.numeric.arrays import Floats, Ints
from streamembed.threads import one_blas_thread

# Rows of each set, and draws of these; four fifths are learned from.
SETS = ("iris", "glass", "segment", "letter")
MORE = ("wine", "balance_scale", "car", "yeast", "keystroke", "outdoor", "elec2", "tic_tac_toe")
ROWS, LEARNED, DRAWS, QUICK_DRAWS = 750, 0.8, 12, 2
KS = (1, 3, 5, 9)
CASES = ("noise", "known", "correlated", "clean", "noise_pairs", "clean_pairs")


def run(full: bool) -> Outcome:
    """Points of k-NN, mean over four k, over Euclidean distance of standardised features."""
    outcome = Outcome()
    means: dict[str, list[float]] = {case: [] for case in CASES}
    most_clean: list[float] = []
    most_clean_pairs: list[float] = []
    with one_blas_thread():
        for name in (*SETS, *MORE) if full else SETS:
            try:
                points, labels = table(name)
            except MissingDataError as absent:
                return Outcome(skipped=str(absent))
            draws = range(DRAWS if full else QUICK_DRAWS)
            each = np.array([_measure_draw(points, labels, seed) for seed in draws])
            mean, error = each.mean(axis=0), each.std(axis=0, ddof=1) / np.sqrt(len(each))
            told = [f"{m:+.2f} ± {e:.2f}" for m, e in zip(mean, error, strict=True)]
            outcome.notes.append(
                f"{name}, {len(each)} draws: beside 8 noise features {told[0]} (without them "
                f"{told[1]}), beside 4 of one factor {told[2]}, without noise {told[3]}; with "
                f"pairs beside 8 noise features {told[4]}, without noise {told[5]}"
            )
            for case, value in zip(CASES, mean.tolist(), strict=True):
                means[case].append(value)
            most_clean.append(mean[3] + 2.0 * error[3])
            most_clean_pairs.append(mean[5] + 2.0 * error[5])
    outcome.figures["share_of_the_possible"] = float(
        np.mean(means["noise"]) / np.mean(means["known"])
    )
    outcome.figures["share_with_pairs"] = float(
        np.mean(means["noise_pairs"]) / np.mean(means["known"])
    )
    outcome.figures["clean_with_pairs"] = float(np.mean(means["clean_pairs"]))
    outcome.figures["least_clean_with_pairs"] = min(most_clean_pairs)
    outcome.figures["least_beside_correlated"] = min(means["correlated"])
    outcome.figures["least_without_noise"] = float(min(most_clean))
    return outcome


def _measure_draw(points: Floats, labels: Ints, seed: int) -> list[float]:
    """The gains of one draw, in the order of `CASES`."""
    rng = np.random.default_rng((seed, ROWS))
    rows = rng.permutation(len(points))[:ROWS]
    clean, own = points[rows], labels[rows]
    cut = int(LEARNED * len(rows))
    noise = rng.standard_normal((len(rows), 8))
    factor = 2.0 * rng.standard_normal((len(rows), 1)) + rng.standard_normal((len(rows), 4))

    def gain(added: Floats, with_pairs: bool = False) -> float:
        both = np.column_stack([clean, added])
        if with_pairs:
            metric = learn_without_labels(both[:cut], seed)
        else:
            model = UnsupervisedMetric(size=cut, warm_up=cut, seed=seed)
            model.learn_many(both[:cut])
            metric = model.metric
        return score(metric.transform(both)) - score(standardise(both))

    def standardise(both: Floats) -> Floats:
        spread = both[:cut].std(axis=0)
        scaled: Floats = both / np.where(spread > 0, spread, 1.0)
        return scaled

    def score(mapped: Floats) -> float:
        return _measure_held_out(mapped, own, cut)

    known = score(standardise(clean)) - score(standardise(np.column_stack([clean, noise])))
    none = noise[:, :0]
    return [
        gain(noise),
        known,
        gain(factor),
        gain(none),
        gain(noise, with_pairs=True),
        gain(none, with_pairs=True),
    ]


def _measure_held_out(points: Floats, labels: Ints, cut: int) -> float:
    """Per cent of the last rows that k nearest of the first name right, mean over k."""
    near = cKDTree(points[:cut]).query(points[cut:], max(KS))[1]
    votes = labels[:cut][near][:, :, None] == np.arange(labels.max() + 1)
    right = [votes[:, :k].sum(axis=1).argmax(axis=1) == labels[cut:] for k in KS]
    return 100.0 * float(np.mean(right))


__all__ = ["SCENARIO", "run"]

SCENARIO = Scenario(
    id="features-beside-noise",
    says="real sets beside noise: what metrics gain that are learned without labels",
    run=run,
    expected={
        "share_of_the_possible": Expected(0.6, 2.0, "of what leaving the noise out gives"),
        "share_with_pairs": Expected(0.5, 2.0, "ITML of pairs of the embedding"),
        "clean_with_pairs": Expected(-0.5, np.inf, "points, the mean over sets"),
        "least_clean_with_pairs": Expected(-1.5, np.inf, "the worst set, and two standard errors"),
        "least_beside_correlated": Expected(-1.0, np.inf, "points: noise like structure"),
        "least_without_noise": Expected(0.0, np.inf, "points, and two standard errors"),
    },
)
