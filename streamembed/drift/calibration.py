"""The threshold of a monitor: streams without drift are simulated, each with its own reference.

A reference is a sample, and its sampling error is in all that is measured against it. A bootstrap
with a fixed reference gives a tenth of the requested run length; so every simulated stream has a
newly drawn reference of the same size.

Source: Cobb, Van Looveren & Klaise (2022), "Sequential multivariate change detection with
calibrated and memoryless false detection rates"; Gandy & Kvaloy (2013) for charts with estimated
parameters; Wu & Apley (2025) for nested bootstraps of control limits; Keriven et al. (2020),
"NEWMA". Differs: several memories at once, clipped scores, a sieve whose coefficients are
uncertain, one unit for all channels. Where events depend on each other beyond what the sieve
models, means of blocks of them take their place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.sparse import csr_array

from streamembed.drift.dependence import choose_rows_per_chunk
from streamembed.drift.reference import CHUNK
from streamembed.drift.running_statistics import (
    ChannelGroups,
    NullModel,
    compute_statistics,
    init_means,
    update_means,
    whiten,
)
from streamembed.numeric.arrays import Array, Floats, Ints

N_STREAMS = 200
MAX_LENGTH = 5_000  # events of a simulated stream; beyond, the threshold is extrapolated
CLIP = 0.03  # of the scores at either end
# Of the range of a score whose usual value is more frequent than that: its standard deviation is no
# less than that of a flag at the limit, so that an event weighs no more than one of such a flag.
LEAST_DEVIATION = float(np.sqrt(CLIP * (1 - CLIP)))
STREAM_BATCH = 100  # streams that are simulated at once
FILTERED_CHUNKS = 8  # chunks of these at once
EULER = 0.5772156649015329
LARGEST_COEFFICIENT = 0.98


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """The null distribution of the statistics, and the threshold of an alarm."""

    null: NullModel
    # Of the Gumbel law of the largest value of each statistic in ``length`` events.
    location: Annotated[Floats, "f"]
    slope: Annotated[Floats, "f"]
    length: int  # rows of a simulated stream: means of ``block`` events
    block: int
    threshold: float  # log of the equivalent run length from which there is an alarm
    # Log of the largest equivalent run length of each simulated stream.
    maxima: Annotated[Floats, "*"]
    coefficients: Annotated[Floats, "p"]  # of the measured serial dependence; 0 where there is none

    def log_run_lengths(self, statistics: Floats) -> Floats:
        """For each statistic the log of the events in which it occurs once without drift."""
        logs: Floats = np.log(self.length * self.block) + (statistics - self.location) / self.slope
        return logs


def estimate_autocorrelations(scores: Floats, blocks: Ints) -> Floats:
    """Lag-1 autocorrelation of each score, shape (p,), bias-corrected; 0 where not significant.

    Parameters
    ----------
    blocks
        Block number of each event: events of one block are consecutive.
    """
    n = len(scores)
    centred = scores - scores.mean(axis=0)
    follows = np.flatnonzero(np.diff(blocks) == 0)
    variances = np.maximum((centred**2).mean(axis=0), 1e-300)
    estimates = (centred[follows] * centred[follows + 1]).mean(axis=0) / variances
    estimates = estimates + (1 + 3 * estimates) / n
    return np.where(estimates > 2 / np.sqrt(n), np.minimum(estimates, LARGEST_COEFFICIENT), 0.0)


def average_blocks(scores: Floats, stretches: Ints, block: int) -> tuple[Floats, Ints]:
    """Means of successive events of a stretch, and the stretch of each; no remainders."""
    starts = np.flatnonzero(np.diff(stretches, prepend=stretches[0] - 1))
    stops = np.append(starts[1:], len(stretches))
    firsts = np.concatenate(
        [np.arange(a, b - block + 1, block) for a, b in zip(starts, stops, strict=True)]
    )
    rows: Floats = scores[firsts[:, None] + np.arange(block)].mean(axis=1)
    return rows, stretches[firsts]


def calibrate(
    scores: Floats,
    blocks: Ints,
    groups: ChannelGroups,
    ert: float,
    seed: tuple[int, ...],
    block: int = 1,
    streams: int = N_STREAMS,
    fitted: Floats | float = 0.0,
) -> Calibration:
    """Calibrate the threshold and the run lengths of all statistics.

    Parameters
    ----------
    scores
        Of the events that the map is not fitted to, in time order, shape (n, p).
    blocks
        See `estimate_autocorrelations`.
    ert
        Expected run of events between false alarms; may be infinite.
    seed
        Of the simulation.
    block
        Events that are averaged, once they are clipped: the means would have no bound.
    streams
        Simulated streams.
    fitted
        Means of components over the events that the map is fitted to, as many: centred components
        have no more than their own error there, so that the mean is that of both halves. Components
        are bounded, and not clipped.
    """
    ends = np.quantile(scores, [CLIP, 1 - CLIP], axis=0)
    is_rare = ends[0] == ends[1]  # all values but the usual one
    low, high = np.where(is_rare, [scores.min(axis=0), scores.max(axis=0)], ends)
    own = slice(*groups.components)
    low[own], high[own] = scores[:, own].min(axis=0), scores[:, own].max(axis=0)
    least = is_rare * LEAST_DEVIATION * (high - low) / np.sqrt(block)
    clipped, blocks = average_blocks(np.clip(scores, low, high), blocks, block)
    chunk = choose_rows_per_chunk(block)
    ert /= block
    coefficients = estimate_autocorrelations(clipped, blocks)
    length = max(int(min(ert, MAX_LENGTH)) // chunk, 1) * chunk
    rng = np.random.default_rng(seed)
    simulator = _Simulator(clipped, blocks, coefficients, groups, least, chunk)
    maxima = np.concatenate(
        [
            simulator.draw_maxima(rng, min(STREAM_BATCH, streams - i), length)
            for i in range(0, streams, STREAM_BATCH)
        ]
    )
    location, slope = _fit_gumbel(maxima)
    joint = (np.log(length) + (maxima - location) / slope).max(axis=1)
    mean = clipped.mean(axis=0)
    covariance = (clipped - mean).T @ (clipped - mean) / len(clipped)
    mean[own] = (mean[own] + fitted) / 2
    return Calibration(
        null=NullModel(low, high, mean, whiten(covariance, groups, least)),
        location=location,
        slope=slope,
        length=length,
        block=block,
        threshold=_compute_threshold(joint, length, ert) + float(np.log(block)),
        maxima=joint + np.log(block),
        coefficients=coefficients,
    )


def _compute_threshold(joint: Floats, length: int, ert: float) -> float:
    """Exceeded within ``length`` events with the probability of a memoryless alarm."""
    if ert <= MAX_LENGTH:
        return float(np.quantile(joint, np.exp(-length / ert)))
    location, slope = _fit_gumbel(joint[:, None])
    if np.isinf(slope[0]):  # no statistic varies
        return float(joint.max())
    return float(location[0] + slope[0] * np.log(ert / length))


def _fit_gumbel(maxima: Floats) -> tuple[Floats, Floats]:
    """Location and slope of each column, by probability-weighted moments."""
    ordered = np.sort(maxima, axis=0)
    n = len(ordered)
    weights = np.arange(n) / (n - 1) / n
    slope = (2 * weights @ ordered - ordered.mean(axis=0)) / np.log(2)
    slope = np.maximum(slope, 1e-9)
    varies = ordered[-1] > ordered[0]
    # a statistic of constant scores carries no information
    return ordered.mean(axis=0) - EULER * slope * varies, np.where(varies, slope, np.inf)


class _Simulator:
    """Streams without drift: resampled innovations, filtered where there is autocorrelation.

    Rows stay whole, so that scores keep their dependence on each other.
    """

    def __init__(
        self,
        scores: Floats,
        blocks: Ints,
        coefficients: Floats,
        groups: ChannelGroups,
        least: Floats,
        chunk: int = CHUNK,
    ) -> None:
        self._groups, self._chunk, self._n = groups, chunk, len(scores)
        self._least = least
        self._serial = serial = np.flatnonzero(coefficients > 0)
        self._coefficients = r = coefficients[serial]
        rows = scores - scores.mean(axis=0)
        if len(r):
            second = np.flatnonzero(np.diff(blocks) == 0) + 1
            innovations = rows[second][:, serial] - r * rows[second - 1][:, serial]
            rows = rows[second]
            rows[:, serial] = innovations / np.sqrt(1 - r**2)
        # half the memory; the rounding is far below the sampling error of 200 streams
        self._rows: Array = rows.astype(np.float32)

    def draw_maxima(self, rng: np.random.Generator, streams: int, length: int) -> Array:
        """The largest value of every statistic in each of some streams, shape (streams, f)."""
        shift, r = rng.standard_normal(streams)[:, None], self._coefficients
        uncertain = np.clip(r + shift * np.sqrt((1 - r**2) / self._n), 0.0, LARGEST_COEFFICIENT)
        uncertain = uncertain.astype(np.float32)
        means = np.empty((streams, length // self._chunk, self._rows.shape[1]), np.float32)
        ends = np.empty((*means.shape[:2], len(r)), np.float32)
        for i in range(streams):
            means[i], ends[i] = self._draw_chunks(rng, length // self._chunk, uncertain[i])
        own = self._draw_references(rng, uncertain)
        center = own.mean(axis=1, keepdims=True)
        own -= center
        covariances = (np.swapaxes(own, 1, 2) @ own).astype(np.float64) / self._n
        if len(r):
            first = self._rows[rng.integers(len(self._rows), size=streams)][:, self._serial]
            means[..., self._serial] += _compute_carry_over(ends, first, uncertain, self._chunk)
        part = slice(*self._groups.components)  # their mean is that of two halves
        center[..., part] = (center + np.roll(center, 1, axis=0))[..., part] / 2
        means -= center
        whitening = whiten(covariances, self._groups, self._least).astype(np.float32)
        return _compute_maxima(means, whitening, self._groups)

    def _draw_chunks(self, rng: np.random.Generator, count: int, r: Array) -> tuple[Array, Array]:
        """Means of chunks without predecessors; of serial scores also their last events."""
        which = rng.integers(len(self._rows), size=(count, self._chunk), dtype=np.int32)
        stops = np.arange(0, which.size + 1, self._chunk, dtype=np.int32)
        drawn_rows = np.ones(which.size, np.float32), which.ravel(), stops
        sums: Array = csr_array(drawn_rows, shape=(count, len(self._rows))) @ self._rows
        event, total = np.zeros((2, count, len(r)), np.float32)
        if len(r):
            scaled = self._rows[:, self._serial] * np.sqrt(1 - r**2)
            for column in which.T:
                event = r * event + scaled[column]
                total += event
            sums[:, self._serial] = total
        return sums / self._chunk, event

    def _draw_references(self, rng: np.random.Generator, r: Array) -> Array:
        """A simulated reference, n consecutive events, for every stream; shape (s, n, p)."""
        drawn: Array = self._rows[rng.integers(len(self._rows), size=(len(r), self._n))]
        if self._serial.size:
            serial = drawn[..., self._serial]
            # scaled, so that the variance stays: the first event comes from the same law
            serial[:, 1:] *= np.sqrt(1 - r**2)[:, None]
            for t in range(1, self._n):
                serial[:, t] += r * serial[:, t - 1]
            drawn[..., self._serial] = serial
        return drawn


def _compute_carry_over(ends: Array, first: Array, r: Array, chunk: int = CHUNK) -> Array:
    """What events before each chunk add to its mean, shape (s, c, p): they fade as r, r**2, ... .

    Parameters
    ----------
    ends : (s, c, p)
        Last events of chunks without predecessors.
    first : (s, p)
        The events before the first chunks.
    r : (s, p)
    """
    gain = sum(r**k for k in range(1, chunk + 1)) / chunk
    added, fades, before = np.empty_like(ends), r**chunk, first
    for t in range(ends.shape[1]):
        added[:, t] = gain * before
        before = fades * before + ends[:, t]
    return added


def _compute_maxima(centred: Array, whitening: Array, groups: ChannelGroups) -> Array:
    """The largest value of each statistic of streams of chunk means (s, c, p), shape (s, f)."""
    streams, chunks, p = centred.shape
    z = np.empty((chunks, p, streams), centred.dtype)
    for part in groups.slices:
        z[:, part] = np.moveaxis(centred[..., part] @ whitening[..., part, part], 0, -1)
    running, maxima = init_means(groups.count, p, streams, dtype=z.dtype.type), np.zeros(())
    for t in range(0, chunks, FILTERED_CHUNKS):
        running, means, variances = update_means(running, z[t : t + FILTERED_CHUNKS])
        own = compute_statistics(means, variances, groups).max(axis=0)
        maxima = np.maximum(maxima, own)
    return maxima.T
