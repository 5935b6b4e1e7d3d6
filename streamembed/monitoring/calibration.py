"""The threshold of a monitor: streams without drift are simulated, each with its own reference.

A reference is a sample: what is measured against it is off by what the sample is off. A bootstrap
that holds the reference fixed gives a tenth of the run length that was asked for; so every
simulated stream is judged against a reference that was drawn anew, of the same size.

Source: Cobb, Van Looveren & Klaise (2022), "Sequential multivariate change detection with
calibrated and memoryless false detection rates"; Gandy & Kvaloy (2013) for charts with estimated
parameters; Wu & Apley (2025) for nested bootstraps of control limits; Keriven et al. (2020),
"NEWMA". Differs: three memories at once, clipped scores, a sieve whose coefficients are
uncertain, one unit for all channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.signal import lfilter

from streamembed.monitoring.reference import CHUNK
from streamembed.monitoring.running import MEMORIES, Groups, Null, values, whiten
from streamembed.numeric.arrays import Floats, Ints

__all__ = ["LONGEST", "STREAMS", "Calibration", "calibrate", "dependence"]

STREAMS = 200
LONGEST = 10_000  # events of a simulated stream; beyond, the threshold is extrapolated
CLIP = 0.03
BATCH = 50  # streams that are simulated at once
EULER = 0.5772156649015329
LARGEST_COEFFICIENT = 0.98


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """What a value of a statistic means, and when it is an alarm.

    Attributes
    ----------
    null : Null
    location, slope : (f,)
        Of the Gumbel law of the largest value of each statistic in ``length`` events.
    length : int
        Events of a simulated stream.
    threshold : float
        Log of the equivalent run length from which there is an alarm.
    maxima : (200,)
        Log of the largest equivalent run length of each simulated stream.
    coefficients : (p,)
        Of the serial dependence that was found; 0 where none was.
    later : float
        The largest autocorrelation that is left at two to five events.
    """

    null: Null
    location: Annotated[Floats, "f"]
    slope: Annotated[Floats, "f"]
    length: int
    threshold: float
    maxima: Annotated[Floats, "*"]
    coefficients: Annotated[Floats, "p"]
    later: float

    def log_run_lengths(self, statistics: Floats) -> Floats:
        """Of each statistic the log of the events in which it comes once without drift."""
        found: Floats = np.log(self.length) + (statistics - self.location) / self.slope
        return found

    @property
    def effective(self) -> float:
        """How many independent statistics would alarm as often as these do together."""
        return float(np.exp(np.median(self.maxima) - np.log(self.length) + np.log(np.log(2.0))))


def dependence(scores: Floats, blocks: Ints) -> Floats:
    """Lag-1 autocorrelation of each score, shape (p,), corrected for its bias; 0 where it is none.

    Parameters
    ----------
    blocks
        Which events stand next to each other: those of one block.
    """
    n = len(scores)
    centred = scores - scores.mean(axis=0)
    follows = np.flatnonzero(np.diff(blocks) == 0)
    variances = np.maximum((centred**2).mean(axis=0), 1e-300)
    found = (centred[follows] * centred[follows + 1]).mean(axis=0) / variances
    found = found + (1 + 3 * found) / n
    return np.where(found > 2 / np.sqrt(n), np.minimum(found, LARGEST_COEFFICIENT), 0.0)


def later_dependence(scores: Floats, blocks: Ints, coefficients: Floats) -> float:
    """The largest autocorrelation at two to five events of what the sieve leaves.

    The sieve knows of the event before; what hangs on others alarms too often.
    """
    follows = np.flatnonzero(np.diff(blocks) == 0) + 1
    centred = scores - scores.mean(axis=0)
    left = centred[follows] - coefficients * centred[follows - 1]
    of, at = blocks[follows], np.arange(len(follows))
    variances = np.maximum((left**2).mean(axis=0), 1e-300)
    largest = 0.0
    for lag in range(2, 6):
        kept = at[:-lag][of[:-lag] == of[lag:]]
        found = np.abs((left[kept] * left[kept + lag]).mean(axis=0)) / variances
        largest = max(largest, float(found.max(initial=0.0)))
    return largest


def calibrate(
    scores: Floats, blocks: Ints, groups: Groups, ert: float, seed: tuple[int, ...]
) -> Calibration:
    """Threshold and run lengths of all statistics.

    Parameters
    ----------
    scores
        Of the events that did not make the map, in the order of time, shape (n, p).
    blocks
        See `dependence`.
    ert
        Expected run of events between false alarms; may be infinite.
    seed
        Of the simulation.
    """
    low, high = np.quantile(scores, [CLIP, 1 - CLIP], axis=0)
    clipped = np.clip(scores, low, high)
    coefficients = dependence(clipped, blocks)
    length = int(min(ert, LONGEST)) // CHUNK * CHUNK
    rng = np.random.default_rng(seed)
    simulator = _Simulator(clipped, blocks, coefficients, groups)
    maxima = np.concatenate(
        [simulator.largest(rng, min(BATCH, STREAMS - i), length) for i in range(0, STREAMS, BATCH)]
    )
    location, slope = _gumbel(maxima)
    joint = (np.log(length) + (maxima - location) / slope).max(axis=1)
    mean = clipped.mean(axis=0)
    covariance = (clipped - mean).T @ (clipped - mean) / len(clipped)
    return Calibration(
        Null(low, high, mean, whiten(covariance, groups)),
        location,
        slope,
        length,
        _threshold(joint, length, ert),
        joint,
        coefficients,
        later_dependence(clipped, blocks, coefficients),
    )


def _threshold(joint: Floats, length: int, ert: float) -> float:
    """Exceeded within ``length`` events with the chance of a memoryless alarm."""
    if ert <= LONGEST:
        return float(np.quantile(joint, np.exp(-length / ert)))
    location, slope = _gumbel(joint[:, None])
    if np.isinf(slope[0]):  # nothing varies, and nothing that does not will
        return float(joint.max())
    return float(location[0] + slope[0] * np.log(ert / length))


def _gumbel(maxima: Floats) -> tuple[Floats, Floats]:
    """Location and slope of each column, by probability-weighted moments."""
    ordered = np.sort(maxima, axis=0)
    n = len(ordered)
    weights = np.arange(n) / (n - 1) / n
    slope = (2 * weights @ ordered - ordered.mean(axis=0)) / np.log(2)
    slope = np.maximum(slope, 1e-9)
    varies = ordered[-1] > ordered[0]
    # a statistic of scores that do not vary says nothing
    return ordered.mean(axis=0) - EULER * slope * varies, np.where(varies, slope, np.inf)


class _Simulator:
    """Streams without drift: rows of innovations drawn anew, and filtered where events hang on.

    Rows stay whole, so that scores keep their dependence on each other.
    """

    def __init__(self, scores: Floats, blocks: Ints, coefficients: Floats, groups: Groups) -> None:
        self._groups = groups
        self._coefficients = coefficients
        self._serial = np.flatnonzero(coefficients > 0)
        self._n = len(scores)
        self._rows = scores - scores.mean(axis=0)
        if len(self._serial):
            second = np.flatnonzero(np.diff(blocks) == 0) + 1
            r = coefficients[self._serial]
            before = self._rows[second - 1][:, self._serial]
            innovations = self._rows[second][:, self._serial] - r * before
            self._rows = self._rows[second]
            self._rows[:, self._serial] = innovations / np.sqrt(1 - r**2)

    def largest(self, rng: np.random.Generator, streams: int, length: int) -> Floats:
        """The largest value of every statistic in each of some streams, shape (streams, f)."""
        p = self._rows.shape[1]
        shift = rng.standard_normal(streams)[:, None]
        r = self._coefficients[self._serial]
        uncertain = np.clip(r + shift * np.sqrt((1 - r**2) / self._n), 0.0, LARGEST_COEFFICIENT)
        means = np.empty((streams, length // CHUNK, p))
        center, covariances = np.empty((streams, p)), np.empty((streams, p, p))
        for i in range(streams):
            drawn = self._drawn(rng, length, uncertain[i])
            means[i] = drawn.reshape(-1, CHUNK, p).mean(axis=1)
            own = self._drawn(rng, self._n, uncertain[i])
            center[i] = own.mean(axis=0)
            own -= center[i]
            covariances[i] = own.T @ own / self._n
        z = (means - center[:, None, :]) @ whiten(covariances, self._groups)
        return _largest(z, self._groups)

    def _drawn(self, rng: np.random.Generator, n: int, r: Floats) -> Floats:
        drawn: Floats = self._rows[rng.integers(len(self._rows), size=n)]
        for coefficient, column in zip(r, self._serial, strict=True):
            # scaled, so that the variance stays: the first event comes from the same law
            own = drawn[:, column]
            first = own[:1].copy()
            own = own * np.sqrt(1 - coefficient**2)
            own[0] = first[0]
            drawn[:, column] = lfilter([1.0], [1.0, -coefficient], own)
        return drawn


def _largest(z: Floats, groups: Groups) -> Floats:
    """The largest value of each statistic of streams (s, c, p) of whitened chunks, (s, f)."""
    streams, chunks, p = z.shape
    a = np.array([2.0 / (w + 1) for w in MEMORIES])[:, None, None]
    means = np.zeros((len(MEMORIES), streams, p))
    faded = np.ones_like(a[:, 0, 0])
    found = np.zeros(())
    for t in range(chunks):
        means += a * (z[:, t] - means)
        faded = faded * (1 - a[:, 0, 0]) ** 2
        variances = a[:, 0, 0] / (2 - a[:, 0, 0]) * (1 - faded) / CHUNK
        by_stream = np.swapaxes(means, 0, 1)
        now = values(by_stream, np.broadcast_to(variances, by_stream.shape[:2]), groups)
        found = np.maximum(found, now)
    return found
