"""Metrics of pairs that an embedding separates: what a metric is until labels or pairs come.

Two random halves of the support each have a map of their own, the walk on the graph of their
neighbours at a long diffusion time, and pairs that it puts clearly together or apart. A metric
learns from the pairs of both. How well the halves agree is the cosine between what either says of
the features: the mean of delta delta^T over its dissimilar pairs, less that over its similar ones,
without its trace.

Symbols: z = points with features weighed (`streamembed.pairs.predictability`); M = the metric that
is learned from pairs of z; s = `SHARE`; A = (1 - s) I + s M d / tr M.

Source: Jain, section 1.3; docs/algorithms/unsupervised.md. Differs: 1. a map at a long diffusion
time on the self-tuning graph; 2. weighed features are the prior, and A stays near to it: the pairs
are guesses, and with s = 1 a metric lost up to 5 points of k-NN (ITML on letter).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from streamembed.geometry.lists import NeighborLists
from streamembed.geometry.pairwise import PointDistances
from streamembed.metrics.examples import DISSIMILAR, SIMILAR, Examples
from streamembed.metrics.learner import MetricLearner
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.codec import Count
from streamembed.pairs import thresholds
from streamembed.spectral import neighbor_walk

# Points of a half's map at most, and pairs drawn of it, of which one in ten is clear.
N_POINTS, N_CANDIDATES = 500, 4000
N_NEIGHBORS = 20  # that are joined in a half's map
# Updates of a learner with the pairs, so that one that sweeps or steps is near to its answer.
N_ROUNDS = 10
# s: of .02, .05 and .1 the largest with which no metric lost 1.5 points of k-NN on any of twelve
# data sets.
SHARE = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class GeneratedMetrics:
    """What metrics learned from pairs of the embedding, of features as they were weighed."""

    matrices: dict[str, Annotated[Floats, "d d"]]  # A, by name of the metric
    pairs: Count
    agreement: float  # of the halves, in [-1, 1]


def learn(
    points: Floats, learners: dict[str, MetricLearner], seed: tuple[int, ...]
) -> GeneratedMetrics | None:
    """The metrics of a support's points, z (N, d), in the order of arrival.

    None where a half has no pair of either kind. O(500^2 d) a half, and what the learners take.
    """
    generator = np.random.default_rng(seed)
    n, d = points.shape
    halves = np.array_split(generator.permutation(n), 2)
    parts, directions = [], []
    for half in halves:
        part = _generate(points[np.sort(half[:N_POINTS])], generator)
        if not ((part.codes == SIMILAR).any() and (part.codes == DISSIMILAR).any()):
            return None
        parts.append(part)
        far, near = (_average(part, code) for code in (DISSIMILAR, SIMILAR))
        directions.append(far - near - np.trace(far - near) / d * np.eye(d))
    lengths = [float(np.linalg.norm(one)) for one in directions]
    agreement = float(np.sum(directions[0] * directions[1])) / (lengths[0] * lengths[1] or 1.0)
    examples = Examples.joined(parts)
    matrices = {name: _fit(learner, examples) for name, learner in learners.items()}
    return GeneratedMetrics(matrices, len(examples), min(max(agreement, -1.0), 1.0))


def _generate(points: Floats, generator: np.random.Generator) -> Examples:
    """The pairs of these points that their map separates."""
    n, d = points.shape
    no_pairs = Examples.empty(d, 0, 0)
    if n < d + 2:
        return no_pairs
    lists = NeighborLists.build(PointDistances(points), np.arange(n), N_NEIGHBORS)
    pairs = neighbor_walk.embed_lists(lists.nearest, "self_tuning", 1.0, d)
    coordinates = thresholds.weight_columns(*pairs)
    drawn = thresholds.draw_pairs(coordinates, points, N_CANDIDATES, generator)
    codes: Ints = np.where(drawn.similar, SIMILAR, DISSIMILAR)
    return Examples(points[drawn.left], points[drawn.right], codes, 0, 0)


def _average(part: Examples, code: int) -> Floats:
    """The mean of delta delta^T over the pairs of a kind."""
    steps = (part.first - part.second)[part.codes == code]
    mean: Floats = steps.T @ steps / len(steps)
    return mean


def _fit(learner: MetricLearner, examples: Examples) -> Floats:
    """A; the identity where the learner has no answer."""
    d = examples.first.shape[1]
    plain, no_more = np.eye(d), Examples.empty(d, len(examples), 0)
    with np.errstate(all="ignore"):
        state, _ = learner.update(learner.init(examples, np.ones(d)), examples)
        for _ in range(N_ROUNDS):
            state, _ = learner.update(state, no_more)
        matrix = learner.compute_metric(state, np.ones(d)).matrix
        learned = matrix * (d / np.trace(matrix))
    return (1.0 - SHARE) * plain + SHARE * learned if np.isfinite(learned).all() else plain
