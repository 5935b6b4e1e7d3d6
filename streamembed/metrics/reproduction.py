"""Metrics of pairs that an embedding separates, as far as they hold on the other half of events.

A sample of the support, and each half of it, has a map and pairs of its own: the walk on its graph
of neighbours, at a long diffusion time. A metric is learned from the pairs of each. The trace-free
logarithms of the halves' metrics must agree: their cosine is the share s that reproduces
(`streamembed.pairs.metric_shrinkage`). And each, shrunk by s, must do better than plain distance
with the events of the other half: tell its pairs apart, and predict each of its features from
nearest neighbours in the others (`streamembed.pairs.predictability`). A metric that fails either is
not used; nor is any where features predict each other no better than their correlations say: noise
that is correlated with itself reproduces.

Source: Jain, section 1.3; docs/algorithms/unsupervised.md. Differs: 1. a map at a long diffusion
time on the self-tuning graph; 2. the halves, without which it is unknown what pairs mean. Halves of
the pairs of one map would not do: both have that map's mistakes, and on a uniform grid, where there
is nothing to learn, agree to .6. Nor would their pairs without the features: one kind of map judged
them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from streamembed.geometry import neighbors
from streamembed.metrics import itml
from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.numeric.ranks import rank_columns
from streamembed.pairs import metric_shrinkage, pair_memory, predictability, thresholds
from streamembed.pairs.pair_memory import Pairs

# Pairs and bounds on squared distances -> the metric (d, d).
Fit = Callable[[Pairs, tuple[float, float]], Floats]

# Points of a map, and pairs drawn of it, of which one in ten is clear.
N_POINTS, N_CANDIDATES = 500, 4000
# Standard errors by which features must be predicted better than by plain distance.
LEAST_T = 2.0

Status = Literal[
    "ok",
    "not measured",
    "weights alone",
    "nothing learned",
    "nothing reproduces",
    "no better than plain distance",
]


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Points, and pairs of them that their own map separates."""

    points: Floats  # (n, d)
    pairs: Pairs
    bounds: tuple[float, float]  # on squared distances of similar and dissimilar pairs
    seed: tuple[int, ...]


def draw_samples(
    points: Floats, arrivals: Ints, position: int, seed: int
) -> tuple[Sample, Sample, Sample] | None:
    """A sample of the support and of its halves; None where one has too few pairs, or of one kind.

    Parameters
    ----------
    points
        Of the support in the order of arrival, in the space in which pairs are judged, (N, d).
    arrivals
        Arrival positions, shape (N,): they decide which event is in which half.
    position
        Events learned: with the seed, it determines the draws.

    Notes
    -----
    At most 500 points of each count. O(500^2 d) a map.
    """
    first = metric_shrinkage.split_halves(arrivals, seed)
    samples = []
    for part, chosen in enumerate((np.ones(len(points), dtype=bool), first, ~first)):
        sample = _draw(points, arrivals, chosen, (seed, position, part))
        if sample is None:
            return None
        samples.append(sample)
    return samples[0], samples[1], samples[2]


def _draw(
    points: Floats, arrivals: Ints, chosen: Bools, seed: tuple[int, int, int]
) -> Sample | None:
    members = np.flatnonzero(chosen)
    if len(members) > N_POINTS:
        generator = np.random.default_rng(seed)
        members = np.sort(generator.choice(members, N_POINTS, replace=False))
    own, d = points[members], points.shape[1]
    if len(own) < d + 2:
        return None
    state = thresholds.update(
        pair_memory.init(d),
        thresholds.weight_columns(*neighbors.embed_self_tuning(own, d)),
        own,
        arrivals[members],
        np.ones(len(own)),
        seed[1],
        thresholds.PairSettings(candidates=N_CANDIDATES, decay=1.0, seed=seed[0] + seed[2]),
    )
    bounds = itml.compute_percentile_bounds(state.inputs)
    if bounds is None or not state.pairs.has_both_kinds:
        return None
    return Sample(own, state.pairs, bounds, seed)


def learn(samples: tuple[Sample, Sample, Sample], fit: Fit) -> tuple[Floats, float, Status]:
    """The metric of a sample, as far as its halves support it; that share; and why it is that.

    Of determinant 1; the identity where the share is 0.
    """
    whole, first, second = (fit(sample.pairs, sample.bounds) for sample in samples)
    plain = np.eye(samples[0].points.shape[1])
    share = metric_shrinkage.compute_factor(first, second)
    if share == 0.0:
        return plain, 0.0, "nothing reproduces"
    for matrix, other in ((first, samples[2]), (second, samples[1])):
        shrunk = metric_shrinkage.temper(matrix, share)
        if _measure_separation(shrunk, other.pairs) <= _measure_separation(plain, other.pairs):
            return plain, 0.0, "no better than plain distance"
        if predictability.compare_metric(other.points, shrunk, other.seed) <= LEAST_T:
            return plain, 0.0, "no better than plain distance"
    if not predictability.has_structure(samples[0].points, samples[0].seed):
        return plain, 0.0, "no better than plain distance"
    return metric_shrinkage.temper(whole, share), share, "ok"


def _measure_separation(matrix: Floats, pairs: Pairs) -> float:
    """The share of similar and dissimilar pairs, taken together, that the distance has in order."""
    d2 = np.einsum("ij,ij->i", pairs.differences @ matrix, pairs.differences)
    n_far = int(np.count_nonzero(~pairs.similar))
    ranks = rank_columns(d2[:, None])[~pairs.similar].sum() - 0.5 * n_far * (n_far + 1)
    return float(ranks / (n_far * (len(d2) - n_far)))
