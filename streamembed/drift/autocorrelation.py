"""How much the events of a reference depend on each other, by the autocorrelation of their scores.

What a monitor watches are means of scores. Dependence multiplies the variance of a mean by the
integrated autocorrelation: 1 + 2 (r_1 + r_2 + ...), r_k being the autocorrelation at lag k; for an
AR(1) of coefficient r it is (1 + r) / (1 - r). The calibration models r_1 alone, and its thresholds
hold up to an AR(1) of coefficient .5 (docs/decisions/0019). Beyond, alarms come too often.

Source: Geyer (1992), "Practical Markov chain Monte Carlo", for the integrated autocorrelation.
Differs: the sum has ten lags, those of a chunk. For an AR(1) of .8 these have nine tenths of it,
and longer sums scatter too much in references of 500 events. What cancels itself out within fifty
lags, as a short season does, counts as no dependence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from streamembed.drift.calibration import CLIP, LARGEST_COEFFICIENT
from streamembed.drift.reference import CHUNK
from streamembed.drift.running_statistics import Groups
from streamembed.numeric.arrays import Bools, Floats

__all__ = ["Dependence", "measure"]

LAGS = CHUNK
LARGEST_STRIDE = 50  # and lags within which a season may cancel itself out
# Of an AR(1) of .5; and three standard deviations of the estimate of the first from n events, times
# the root of n.
MODELLED, MODELLED_LAG_1 = 3.0, 0.5
CHANCE = 3 * MODELLED * math.sqrt(2 * (2 * LAGS + 1))
# Measured alarms, as multiples of the rate that was asked for: 2.6 for an AR(1) of .7, whose
# integrated autocorrelation over ten lags is 5.5; 4 to 19 for AR(1) of .8 (8.1) and above, a Markov
# chain and changing volatility; 85 where r_1 is 0 and r_2 is .7, which is not modelled.
STRONG = 7.0


@dataclass(frozen=True, slots=True)
class Dependence:
    """Of the score that depends most on earlier events.

    Attributes
    ----------
    channel : str
    lag_1 : float
        Its autocorrelation at lag 1.
    integrated : float
        1 + twice the sum of its autocorrelations at lags 1 to 10; 1 for independent events.
    allowed : float
        What the calibration allows for, with what chance may add to it.
    stride : int
        Of every so many events one depends on the last such one no more than an AR(1) of .5 does.
    """

    channel: str
    lag_1: float
    integrated: float
    allowed: float
    stride: int

    @property
    def note(self) -> str | None:
        """What it does to the rate of alarms; None where the rate holds."""
        if self.integrated <= self.allowed:
            return None
        is_modelled = self.lag_1 >= MODELLED_LAG_1 and self.integrated <= STRONG
        times = "3 times" if is_modelled else "10 times (or more)"
        return (
            f"events are autocorrelated (in {self.channel!r} {self.lag_1:.2f} at lag 1; integrated "
            f"over {LAGS} lags {self.integrated:.1f}, where the thresholds allow for "
            f"{self.allowed:.1f}): false alarms come about {times} as often as you ask for; "
            f"watch one event in {self.stride}"
        )


def measure(scores: Floats, makes_map: Bools, groups: Groups) -> Dependence:
    """The dependence in a whole reference.

    Parameters
    ----------
    scores
        Of all its events in the order of time, shape (n, p).
    makes_map
        Which of them made the map, shape (n,): their scores are of another mean and width.
    """
    rows = np.empty_like(scores)
    for half in (makes_map, ~makes_map):
        own = np.clip(scores[half], *np.quantile(scores[half], [CLIP, 1 - CLIP], axis=0))
        own -= own.mean(axis=0)
        deviations = own.std(axis=0)
        rows[half] = own / np.where(deviations > 1e-12, deviations, np.inf)
    n = len(rows)
    lags = range(1, LARGEST_STRIDE + 1)
    r = np.array([np.einsum("ij,ij->j", rows[:-lag], rows[lag:]) / n for lag in lags])
    weights = 1 - np.array(lags) / (LARGEST_STRIDE + 1)
    accumulates = 1 + 2 * weights @ r > MODELLED
    integrated = 1 + 2 * np.minimum(r[:LAGS].sum(axis=0), np.where(accumulates, np.inf, 0.0))
    first = np.clip(r[0], 0.0, LARGEST_COEFFICIENT)
    allowed = np.minimum((1 + first) / (1 - first), MODELLED) + CHANCE / math.sqrt(n)
    j = int((integrated - allowed).argmax())
    strides = (k for k in lags[1:] if 1 + 2 * r[k - 1 :: k, j].sum() <= MODELLED)
    return Dependence(
        str(np.repeat(groups.names, groups.sizes)[j]),
        float(r[0, j]),
        float(integrated[j]),
        float(allowed[j]),
        next(strides, LARGEST_STRIDE),
    )
