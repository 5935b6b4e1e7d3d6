"""The channel of pairs: has the correlation of two of many features changed?

With more than 16 features the channels of events watch 16 axes, which hide one pair among hundreds.
So every stretch of the stream is searched for it: Fisher's z of the correlation of normal scores,
over all pairs.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr, ndtri

from streamembed.drift.change_tests import LARGEST_CORRELATION, compute_normal_scores, correlate
from streamembed.drift.reference import MAX_FEATURES
from streamembed.numeric.arrays import Floats

MOST_FEATURES = 128  # the correlations of more cost more than all other channels
MIN_EVENTS = 100


def is_searched(d: int) -> bool:
    """Whether pairs of d features are searched."""
    return MAX_FEATURES < d <= MOST_FEATURES


def compare_pairs(
    before: Floats, now: Floats, interval: int, integrated: float
) -> tuple[float, Floats]:
    """Log of the events in which such a change of a pair is expected once, and z of each, (d, d).

    The halves of the reference are compared as well: where its pairs scatter more than those of
    normal scores do, as with heavy common shocks, every z is divided by how much more.

    Parameters
    ----------
    before, now
        Points of the reference and of the stretch, shapes (n, d) and (m, d).
    interval
        Events between two searches.
    integrated
        Integrated autocorrelation time.
    """
    d = before.shape[1]
    ordered = np.sort(before, axis=0)
    old, new = compute_normal_scores(ordered, before), compute_normal_scores(ordered, now)
    upper = np.triu_indices(d, 1)
    half = len(old) // 2
    halves = _compute_z(old[:half], old[half:], integrated)[upper]
    usual = float(ndtri(1 - math.log(2) / (2 * len(halves))))  # median of the largest
    z = _compute_z(old, new, integrated) / max(1.0, float(np.abs(halves).max()) / usual)
    largest = float(np.abs(z[upper]).max())
    log_p = min(math.log(2 * len(halves)) + float(log_ndtr(-largest)), 0.0)
    return math.log(interval) - log_p, z


def _compute_z(a: Floats, b: Floats, integrated: float) -> Floats:
    n, m = len(a) / integrated, len(b) / integrated
    if min(n, m) < MIN_EVENTS / 10:
        return np.zeros((a.shape[1], a.shape[1]))
    then, now = (np.clip(correlate(x), -LARGEST_CORRELATION, LARGEST_CORRELATION) for x in (a, b))
    z: Floats = (np.arctanh(now) - np.arctanh(then)) / np.sqrt(1 / (n - 3) + 1 / (m - 3))
    return z
