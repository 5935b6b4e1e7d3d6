"""The channel of pairs: has the correlation of two of many features changed?

With more than 16 features the channels of events watch 16 axes, which hide one pair among hundreds.
So every stretch of the stream is searched for it, over all pairs of features of which no value
makes up more than half of the reference: in sparse ones a correlation is that of a few events.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy.special import log_ndtr

from streamembed.drift.monitor_state import CalibratedReference
from streamembed.drift.reference import MAX_FEATURES, compute_normal_scores
from streamembed.numeric.arrays import Floats, Ints

MOST_FEATURES = 128  # the correlations of more cost more than all other channels
MOST_EQUAL = 0.5  # of the reference: the share of a feature's most frequent value
MIN_EVENTS = 10
LARGEST_CORRELATION = 0.99


def is_searched(d: int) -> bool:
    """Whether pairs of d features are searched."""
    return MAX_FEATURES < d <= MOST_FEATURES


@lru_cache(maxsize=2)
def _fit(reference: CalibratedReference) -> tuple[Ints, Floats, Floats, Floats]:
    """Features whose pairs are searched, their sorted values, and `_correlate` of them."""
    points = reference.deseasonalise(reference.events)
    ordered, n = np.sort(points, axis=0), len(points)
    behind = round(MOST_EQUAL * n)
    features = np.flatnonzero((ordered[behind:] != ordered[: n - behind]).all(axis=0))
    ordered = ordered[:, features]
    scores = compute_normal_scores(ordered, points[:, features])
    return features, ordered, *_correlate(scores)


def search(reference: CalibratedReference, points: Floats) -> float | None:
    """Search a stretch of the stream, prepared points (m, d), for a pair that has changed.

    Returns
    -------
    Log of the events in which a pair changes as much once; None where there is none to search.
    """
    features, ordered, then, then_variance = _fit(reference)
    time = reference.dependence.integrated
    n, m = len(ordered) / time - 3, len(points) / time - 3
    if not len(then) or min(n, m) < MIN_EVENTS:
        return None
    now, variance = _correlate(compute_normal_scores(ordered, points[:, features]))
    z = np.abs(now - then) / np.sqrt(then_variance / n + variance / m)
    log_p = math.log(2 * len(z)) + float(log_ndtr(-z.max()))
    return math.log(reference.pair_search_interval) - min(log_p, 0.0)


def _correlate(x: Floats) -> tuple[Floats, Floats]:
    """Fisher's z of each pair of columns, and its variance times the number of events.

    The variance is of the influence of each event, whatever the distribution: common shocks make
    it larger than 1, that of normal scores.

    Source: Steiger & Hakstian (1982), "The asymptotic distribution of elements of a correlation
    matrix".
    """
    x = x - x.mean(axis=0)
    sd = x.std(axis=0)
    x = x / np.where(sd > 1e-12, sd, np.inf)
    squares, n = x * x, len(x)
    upper = np.triu_indices(x.shape[1], 1)
    r = np.clip((x.T @ x / n)[upper], -LARGEST_CORRELATION, LARGEST_CORRELATION)
    fourth = (squares**2).mean(axis=0)
    both = (squares.T @ squares / n)[upper]
    third = (squares * x).T @ x / n
    odd = (third + third.T)[upper]
    variance = both - r * odd + r * r / 4 * (fourth[upper[0]] + fourth[upper[1]] + 2 * both)
    return np.arctanh(r), np.maximum(variance / (1 - r * r) ** 2, 1.0)
