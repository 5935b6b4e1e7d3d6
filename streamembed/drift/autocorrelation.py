"""Serial dependence of the events of a reference, by the autocorrelation of their scores.

A monitor watches means of scores. Dependence multiplies the variance of a mean by the
integrated autocorrelation: 1 + 2 (r_1 + r_2 + ...), r_k being the autocorrelation at lag k; for an
AR(1) of coefficient r it is (1 + r) / (1 - r). The calibration models r_1 alone, and its thresholds
hold up to an AR(1) of coefficient .5 (docs/decisions/0019). Beyond, alarms can come too often.

Source: Geyer (1992), "Practical Markov chain Monte Carlo", for the integrated autocorrelation.
Differs: the sum has ten lags, those of a chunk. For an AR(1) of .8 these have nine tenths of it,
and longer sums scatter too much in references of 500 events. What cancels out within fifty
lags, as a short season does, counts as no dependence. The stride takes as many lags as a reference
of n events can show, n / 10, and of these Geyer's monotone sequence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from streamembed.drift.calibration import CLIP, LARGEST_COEFFICIENT
from streamembed.drift.reference import CHUNK
from streamembed.drift.running_statistics import ChannelGroups
from streamembed.numeric.arrays import Bools, Floats

LAGS = CHUNK
SEASON_LAGS = 50  # within which a season may cancel itself out
MAX_LAGS = 1000  # for the stride; of n events the first n / LAG_EVENTS are good enough
LAG_EVENTS = 10
# Of an AR(1) of .5; and three standard deviations of the estimate of the first from n events, times
# the root of n.
MODELLED = 3.0
CHANCE = 3 * MODELLED * math.sqrt(2 * (2 * LAGS + 1))


@dataclass(frozen=True, slots=True)
class Autocorrelation:
    """Autocorrelation of the score that depends most on earlier events."""

    channel: str
    lag_1: float  # its autocorrelation at lag 1
    # 1 + twice the sum of its autocorrelations at lags 1 to 10; 1 for independent events.
    integrated: float
    allowed: float  # bound of ``integrated`` that the calibration covers, plus sampling error
    # Thinned to every stride-th event, the stream depends on its past no more than an AR(1) of .5,
    # as far as the reference shows; above `largest_stride` where it shows none.
    stride: int

    @property
    def is_noted(self) -> bool:
        """Whether the dependence exceeds what the calibration covers."""
        return self.integrated > self.allowed

    def note(self, n: int) -> str | None:
        """Effect on the false-alarm rate of a reference of n events; None where the rate holds."""
        if not self.is_noted:
            return None
        most = largest_stride(n)
        remedy = (
            f"watch at most one event in {self.stride} (a reference of {n:,} then takes "
            f"{n * self.stride:,} events of the stream)"
            if self.stride <= most
            else f"watch fewer than one event in {most} (a reference of {n:,} then takes more than "
            f"{n * most:,} events of the stream); a longer reference shows how many"
        )
        return (
            f"events are autocorrelated (in {self.channel!r} {self.lag_1:.2f} at lag 1; integrated "
            f"over {LAGS} lags {self.integrated:.1f}, where the thresholds allow for "
            f"{self.allowed:.1f}): false alarms can come several times as often as you ask for; "
            f"{remedy}"
        )


def largest_stride(n: int) -> int:
    """Largest stride that a reference of n events can show: with at least two lags."""
    return min(n // LAG_EVENTS, MAX_LAGS) // 2


def measure(scores: Floats, makes_map: Bools, groups: ChannelGroups) -> Autocorrelation:
    """Measure the dependence in a whole reference.

    Parameters
    ----------
    scores
        Of all its events in time order, shape (n, p).
    makes_map
        Which of them the map is fitted to, shape (n,): their scores differ in mean and width.
    """
    rows = np.empty_like(scores)
    for half in (makes_map, ~makes_map):
        own = np.clip(scores[half], *np.quantile(scores[half], [CLIP, 1 - CLIP], axis=0))
        own -= own.mean(axis=0)
        deviations = own.std(axis=0)
        rows[half] = own / np.where(deviations > 1e-12, deviations, np.inf)
    n = len(rows)
    lags = range(1, SEASON_LAGS + 1)
    r = np.array([np.einsum("ij,ij->j", rows[:-lag], rows[lag:]) / n for lag in lags])
    weights = 1 - np.array(lags) / (SEASON_LAGS + 1)
    accumulates = 1 + 2 * weights @ r > MODELLED
    integrated = 1 + 2 * np.minimum(r[:LAGS].sum(axis=0), np.where(accumulates, np.inf, 0.0))
    first = np.clip(r[0], 0.0, LARGEST_COEFFICIENT)
    allowed = np.minimum((1 + first) / (1 - first), MODELLED) + CHANCE / math.sqrt(n)
    j = int((integrated - allowed).argmax())
    return Autocorrelation(
        str(np.repeat(groups.names, groups.sizes)[j]),
        float(r[0, j]),
        float(integrated[j]),
        float(allowed[j]),
        _compute_stride(rows[:, j]),
    )


def _compute_stride(scores: Floats) -> int:
    """Smallest stride with an integrated autocorrelation of at most that of an AR(1) of .5.

    Centring a short reference lowers all autocorrelations, so that a sum of many falls short or is
    negative: its terms do not increase, and those below zero do not count.
    """
    most = largest_stride(len(scores))
    n = len(scores)
    lags = range(1, 2 * most + 1)
    r = np.array([np.einsum("i,i", scores[:-lag], scores[lag:]) for lag in lags]) / n
    for stride in range(2, most + 1):
        own = r[stride - 1 :: stride]
        if 1 + 2 * np.maximum(np.minimum.accumulate(own), 0.0).sum() <= MODELLED:
            return stride
    return most + 1
