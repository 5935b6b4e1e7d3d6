"""Weights of features without labels: how well the others predict each.

Symbols: Z (n, d) = points as the kernel sees them; w (d,) = weights; x_ij = mean of feature j over
the k points nearest to point i in the other features, under sum_l w_l (z_il - z_ml)^2;
R2_j = 1 - k/(k + 1) mean_i (z_ij - x_ij)^2 / var_j.

Structure that shows in nearest neighbours is shared by several features: a feature that the others
know nothing of is noise beside it, or independent of it. k/(k + 1) makes R2 0 on average for such
a feature, so that R2 over its standard error is a test. Its weight falls to a tenth, and no lower:
without labels noise and an independent feature that matters look alike. And it falls only if
what stays becomes more predictable for it, also where each feature's closest relative is left out,
for one feature written twice is no structure; and if it is more predictable than normal variables
of the same correlations, for noise that is correlated with itself is none either.

Source: own (docs/algorithms/unsupervised.md has the measurements).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import scipy

from streamembed.numeric.arrays import Array, Bools, Floats

NEIGHBORS = 10
# Points of a sample, and features up to which they are tested: O(n^2 d) a round.
LARGEST_SAMPLE, MOST_FEATURES = 600, 128
# Rounds of weights: what falls changes the neighbours of the rest.
ROUNDS = 3
# From z = R2 / se on a weight rises, to 1 at z = 1 + RISE; while rounds go on it stays above the
# first floor, and at the end above the second.
CHANCE, RISE, SEARCH_FLOOR, FLOOR = 1.0, 3.0, 0.02, 0.1
# A feature is predicted above both.
CLEAR, LEAST_R2 = 3.0, 0.02
# The whole of a fall of weights needs this gain of R2, relative; and this many standard errors:
# none of it up to the first, all from the second on.
GAIN, LEAST_T, FULL_T = 0.02, 2.0, 4.0
# The same against normal samples, of which so many are drawn: their standard error is estimated
# with a margin, and t of normal data itself was above 1 in one of 200 draws.
SURROGATES, LEAST_BEYOND, FULL_BEYOND = 8, 1.0, 2.0
# Of distances: equal ones are told apart at random, or the same few points would be neighbours
# of many.
JITTER = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class FeatureWeights:
    """Weights of features, and what they rest on."""

    weights: Annotated[Floats, "d"]  # on squared distances
    r2: Annotated[Floats, "d"]  # of each from the others, all weighing the same
    share: float  # of the fall that the gate lets through


def init_feature_weights(n_features: int) -> FeatureWeights:
    """Before anything was measured: every feature weighs 1."""
    return FeatureWeights(np.ones(n_features), np.zeros(n_features), 0.0)


def weigh_features(points: Floats, seed: tuple[int, ...]) -> FeatureWeights:
    """How much each feature is worth beside the others.

    Parameters
    ----------
    points
        Z, shape (n, d), in an order that does not depend on slots; a sample of 600 counts.
    seed
        Of the sample, and of the order of equal distances.

    Notes
    -----
    All weigh 1 with fewer than three features, or more than 128. O(n^2 d), ten times.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> centres = 4.0 * rng.standard_normal((8, 5))
    >>> points = rng.standard_normal((300, 7))
    >>> points[:, :5] += centres[rng.integers(0, 8, 300)]  # eight groups, in five of seven features
    >>> points /= points.std(axis=0)
    >>> weigh_features(points, (0,)).weights.round(2).tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0, 0.1, 0.1]
    """
    none = init_feature_weights(points.shape[1])
    generator = np.random.default_rng(seed)
    if len(points) > LARGEST_SAMPLE:
        points = points[np.sort(generator.choice(len(points), LARGEST_SAMPLE, replace=False))]
    prepared = _prepare(points, generator)
    if prepared is None:
        return none
    varies = prepared.varies
    weights, r2, share = _weigh(prepared, generator)
    all_weights, all_r2 = none.weights.copy(), none.r2.copy()
    all_weights[varies], all_r2[varies] = weights, r2
    return FeatureWeights(all_weights, all_r2, share)


@dataclass(frozen=True, slots=True, eq=False)
class _Sample:
    """Centred points whose features all vary."""

    points: Floats  # (n, d)
    deviations: Floats  # (d,)
    varies: Bools  # of all features, which these are
    jitter: Floats  # (n, n): of distances, in units of their mean

    def take(self, chosen: Bools) -> _Sample:
        """Some of the features."""
        return _Sample(self.points[:, chosen], self.deviations[chosen], self.varies, self.jitter)

    def explain(self, metric: Floats, left_out: Array | None = None) -> Floats:
        """e (n, d), the mean of which is R2; feature j from the others but ``left_out[j]``.

        Nearest are those under the metric (d, d), without the rows and columns of what is left out.
        """
        points, share = self.points, NEIGHBORS / (NEIGHBORS + 1.0)
        mapped = points @ metric
        squares = np.einsum("ij,ij->i", mapped, points)
        whole = squares[:, None] + squares - 2.0 * (mapped @ points.T)
        whole += self.jitter * max(float(whole.mean()), np.finfo(float).tiny)
        np.fill_diagonal(whole, np.inf)
        explained = np.empty(points.shape)
        for j in range(points.shape[1]):
            removed = [j] if left_out is None else [j, int(left_out[j])]
            steps = [np.subtract.outer(points[:, column], points[:, column]) for column in removed]
            rest = whole.copy()
            for column, step in zip(removed, steps, strict=True):
                rest -= 2.0 * step * np.subtract.outer(mapped[:, column], mapped[:, column])
                for other, second in zip(removed, steps, strict=True):
                    rest += metric[column, other] * step * second
            near = np.argpartition(rest, NEIGHBORS - 1, axis=1)[:, :NEIGHBORS]
            error = points[:, j] - points[:, j][near].mean(axis=1)
            explained[:, j] = (points[:, j] ** 2 - share * error**2) / self.deviations[j] ** 2
        return explained


def _prepare(points: Floats, generator: np.random.Generator) -> _Sample | None:
    """Features that vary; None where they, or the points, are too few, or features too many."""
    if len(points) < 3 * NEIGHBORS:
        return None
    # deviations of equal values are rounding; squares of the smallest doubles are 0
    varies = (points.max(axis=0) > points.min(axis=0)) & (points.std(axis=0) ** 2 > 0.0)
    if not 3 <= np.count_nonzero(varies) <= MOST_FEATURES:
        return None
    jitter = JITTER * generator.random((len(points), len(points)))
    kept = points[:, varies]
    return _Sample(kept - kept.mean(axis=0), kept.std(axis=0), varies, jitter)


def _weigh(sample: _Sample, generator: np.random.Generator) -> tuple[Floats, Floats, float]:
    """Weights (d,), R2 (d,) and the share of their fall that the gate lets through."""
    one = np.ones(sample.points.shape[1])
    before = evidence = sample.explain(np.diag(one))
    r2 = before.mean(axis=0)
    for _ in range(ROUNDS):
        weights = np.clip((_compute_t_statistics(evidence) - CHANCE) / RISE, SEARCH_FLOOR, 1.0)
        evidence = sample.explain(np.diag(weights))
    weights = np.clip((_compute_t_statistics(evidence) - CHANCE) / RISE, FLOOR, 1.0)
    if (weights == 1.0).all() or not (weights == 1.0).any():
        return one, r2, 0.0
    after = sample.explain(np.diag(weights))
    structure = _find_predictable(after)
    share = _score_gain(after, before, structure)
    if share > 0.0:
        correlations = np.abs(np.corrcoef(sample.points, rowvar=False))
        np.fill_diagonal(correlations, -1.0)
        relatives = correlations.argmax(axis=1)
        after = sample.explain(np.diag(weights), relatives)
        chosen = _find_predictable(after) & (weights == 1.0)
        if np.count_nonzero(chosen) < 2:
            return one, r2, 0.0
        share = min(share, _score_gain(after, sample.explain(np.diag(one), relatives), chosen))
    if share > 0.0:
        share = min(share, _score_structure(sample.take(structure), generator))
    return 1.0 - share * (1.0 - weights), r2, share


def _compute_t_statistics(explained: Floats) -> Floats:
    """R2 over its standard error, (d,)."""
    errors = explained.std(axis=0) / np.sqrt(len(explained))
    means = explained.mean(axis=0)
    result: Floats = np.divide(means, errors, out=np.full(len(means), np.inf), where=errors > 0)
    return result


def _find_predictable(explained: Floats) -> Bools:
    """Features that the others predict."""
    clear: Bools = (_compute_t_statistics(explained) > CLEAR) & (explained.mean(axis=0) > LEAST_R2)
    return clear


def _score_gain(after: Floats, before: Floats, chosen: Bools) -> float:
    """How clearly the chosen features are more predictable after than before, in [0, 1]."""
    if not chosen.any():
        return 0.0
    now, then = after[:, chosen].mean(axis=0).sum(), before[:, chosen].mean(axis=0).sum()
    gain = now / max(then, LEAST_R2 * np.count_nonzero(chosen)) - 1.0
    steps = (after - before)[:, chosen].sum(axis=1)
    error = float(steps.std()) / np.sqrt(len(steps))
    t = float(steps.mean()) / error if error > 0.0 else 0.0
    by_gain = np.clip(gain / GAIN, 0.0, 1.0)
    return float(min(by_gain, np.clip((t - LEAST_T) / (FULL_T - LEAST_T), 0.0, 1.0)))


def _score_structure(sample: _Sample, generator: np.random.Generator) -> float:
    """How clearly features predict each other beyond what their correlations explain, in [0, 1].

    Compared with samples of a Gaussian copula of the same correlations, all as normal scores.
    """
    n, d = sample.points.shape

    def explain(points: Floats) -> tuple[Floats, Floats]:
        scores = scipy.special.ndtri((scipy.stats.rankdata(points, axis=0) - 0.5) / n)
        scores -= scores.mean(axis=0)
        of_scores = replace(sample, points=scores, deviations=scores.std(axis=0))
        return scores, of_scores.explain(np.eye(d))

    scores, explained = explain(sample.points)
    values, vectors = np.linalg.eigh(np.corrcoef(scores, rowvar=False))
    root = (vectors * np.sqrt(np.maximum(values, 0.0))).T
    normal = [
        float(explain(generator.standard_normal((n, d)) @ root)[1].mean())
        for _ in range(SURROGATES)
    ]
    steps = explained.mean(axis=1) - np.mean(normal)
    t = float(steps.mean() / np.sqrt(steps.var() / n + np.var(normal, ddof=1)))
    return float(np.clip((t - LEAST_BEYOND) / (FULL_BEYOND - LEAST_BEYOND), 0.0, 1.0))
