"""Serial dependence of events: how many to average so that their means depend on each other little.

The calibration models means of blocks of k events as an AR(1). A score is a function of events with
a mixture of decays: at k = 1 the model holds up to a coefficient of .4; means of two events or more
are nearer to linear, and it holds up to .7 (docs/algorithms/monitor.md).

The autocorrelations are those of ranks, so that neither units nor heavy tails matter. They are of
each feature, of its square (volatility shows in nothing else), of the distance from the centre and,
of up to eight features, of products of pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy
from scipy.fft import next_fast_len

from streamembed.numeric.arrays import Floats

LARGEST_SINGLE, LARGEST_MEAN = 0.4, 0.7  # autocorrelation of successive events, and means of blocks
CHECKED = 4  # successive means
FEW_BLOCKS = 200  # of a reference: fewer are noted
MAX_PRODUCTS = 8  # features of which products of pairs are looked at
LARGEST_BIAS = 0.3  # of a lag's correlation


@dataclass(frozen=True, slots=True)
class Dependence:
    """Serial dependence of the events of a reference.

    Attributes
    ----------
    block : int
        Events that are averaged: 1, or an even number.
    lag_1, lag_block : float
        Largest autocorrelation of successive events, and of events ``block`` apart.
    integrated : float
        Largest integrated autocorrelation time, 1 + 2 (r_1 + r_2 + ...); 1 for independent events.
    is_modelled : bool
        Whether means of so many events depend on each other as little as the calibration needs.
    changed_at : int
        Event of the reference at which it changes itself; -1 for none.
    """

    block: int
    lag_1: float
    lag_block: float
    integrated: float
    is_modelled: bool
    changed_at: int = -1

    @property
    def chunk_size(self) -> int:
        """Events of a chunk."""
        return choose_rows_per_chunk(self.block) * self.block

    def notes(self, n: int) -> list[str]:
        """What a user should know about a reference of n events."""
        notes = []
        if self.block > 1:
            notes.append(
                f"events are autocorrelated ({self.lag_1:.2f} at lag 1, {self.lag_block:.2f} at "
                f"lag {self.block}; integrated time {self.integrated:.1f}): means of "
                f"{self.block} events are watched, and changes are seen later"
            )
        if self.block > 1 and (not self.is_modelled or n // self.block < FEW_BLOCKS):
            notes.append(
                f"the reference of {n:,} events has {n // self.block:,} independent blocks of "
                "events, too few to guarantee the rate of false alarms: "
                f"n_reference={FEW_BLOCKS * self.block} would have {FEW_BLOCKS}"
            )
        if self.changed_at >= 0:
            notes.append(
                f"the reference itself changes at about event {self.changed_at:,}: it holds events "
                "before and after a change"
            )
        return notes


def measure(points: Floats, usual: int = 1, enough: int = 0) -> Dependence:
    """Measure the dependence of events in time order, shape (n, d).

    Parameters
    ----------
    usual, enough
        Events of a block at least, as a longer sample of the stream has shown, where there are
        fewer than ``enough`` events or no block is long enough.
    """
    n = len(points)
    r = autocorrelate(_build_columns(points))
    integrated = sum_autocorrelations(zero_insignificant_lags(r, n))
    # the mean, which is subtracted, varies: that lowers r by about integrated / n
    r += (1 - r) * np.minimum(integrated / n, LARGEST_BIAS)
    largest = max(n // (4 * CHECKED) // 2 * 2, 2)
    block, is_modelled = largest, False
    for k in (1, *range(2, largest + 1, 2)):
        own = _autocorrelate_means(r, k)[1 : CHECKED + 1].max(axis=1, initial=0.0)
        c = LARGEST_SINGLE if k == 1 else LARGEST_MEAN
        powers = np.arange(2, len(own) + 1)
        if own[0] <= c and (own[1:] <= c**powers + 3 / math.sqrt(n / k)).all():
            block, is_modelled = k, True
            break
    if n < enough or not is_modelled:
        block = max(block, usual)
    lags = np.abs(r).max(axis=1, initial=0.0)
    return Dependence(
        block,
        float(lags[1]),
        float(lags[min(block, len(lags) - 1)]),
        float(integrated.max(initial=1.0)),
        is_modelled,
    )


def choose_rows_per_chunk(block: int) -> int:
    """Events of a chunk, or means of blocks of them: few, where they are long in coming."""
    return 10 if block <= 2 else 5


def _build_columns(points: Floats) -> Floats:
    """Standardised columns whose autocorrelations are looked at, shape (n, q)."""
    n, d = points.shape
    varying = points[:, (points != points[0]).any(axis=0)]
    u = (scipy.stats.rankdata(varying, axis=0) - 0.5) / n - 0.5
    squares = u**2
    parts = [u, squares, scipy.stats.rankdata(squares.sum(axis=1, keepdims=True), axis=0)]
    if d <= MAX_PRODUCTS:
        first, second = np.triu_indices(u.shape[1], 1)
        parts.append(u[:, first] * u[:, second])
    columns = np.concatenate(parts, axis=1)
    columns -= columns.mean(axis=0)
    deviations = columns.std(axis=0)
    varies = deviations > 1e-9
    scaled: Floats = columns[:, varies] / deviations[varies]
    return scaled


def autocorrelate(columns: Floats) -> Floats:
    """Autocorrelations of standardised columns (n, q) at lags 0 to n / 4, shape (n / 4 + 1, q)."""
    n = len(columns)
    lags = n // 4
    size = next_fast_len(n + lags + 1, real=True)
    power = np.abs(np.fft.rfft(columns, size, axis=0)) ** 2
    r: Floats = np.fft.irfft(power, size, axis=0)[: lags + 1]
    return r / (n - np.arange(lags + 1))[:, None]


def zero_insignificant_lags(r: Floats, n: int) -> Floats:
    """The same, with zeros from the first lag on that n events do not tell from zero."""
    below = r < 2 / math.sqrt(n)
    ends = np.where(below.any(axis=0), below.argmax(axis=0), len(r))
    return np.where(np.arange(len(r))[:, None] < ends, r, 0.0)


def sum_autocorrelations(r: Floats) -> Floats:
    """Integrated autocorrelation times, by which a number of events is divided, of cut lags."""
    times: Floats = np.maximum(2 * r.sum(axis=0) - 1, 1.0)
    return times


def _autocorrelate_means(r: Floats, k: int) -> Floats:
    """Autocorrelations of means of k events, at lags 0 to 4 blocks, of those of single events."""
    weights = k - np.abs(np.arange(1 - k, k))
    rows = []
    for lag in range(min(CHECKED, (len(r) - k) // k) + 1):
        around = np.abs(lag * k + np.arange(1 - k, k))
        rows.append(weights @ r[around])
    variances = np.maximum(rows[0], 1e-3 * k)
    return np.array(rows) / variances
