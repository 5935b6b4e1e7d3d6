"""The running statistics of a monitor: exponential means of whitened scores, at three memories."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np

from streamembed.drift.reference import CHUNK
from streamembed.numeric.arrays import Array, Floats, Ints

MEMORIES = (4, 16, 64)  # chunks: 40, 160 and 640 events
RIDGE = 1e-2  # of a correlation matrix: correlated scores may decorrelate


@dataclass(frozen=True, slots=True)
class ChannelGroups:
    """Channels of a vector of scores."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]  # scores of each, in their order

    @property
    def starts(self) -> tuple[int, ...]:
        """First column of each."""
        return tuple(int(stop) for stop in np.cumsum((0, *self.sizes[:-1])))

    @property
    def slices(self) -> tuple[slice, ...]:
        """The columns of each."""
        return tuple(slice(a, a + n) for a, n in zip(self.starts, self.sizes, strict=True))

    @property
    def columns(self) -> tuple[Ints, Ints]:
        """Statistics of each channel, shape (f, 6), and their memories; some occur twice."""
        return _index_statistics(self)

    @property
    def labels(self) -> tuple[tuple[str, int, str], ...]:
        """Channel, memory in events and form of each statistic, as `compute_statistics` has them.

        The form is "norm" or "max": the shift of all scores of a channel, or of a single one.
        """
        several = [name for name, size in zip(self.names, self.sizes, strict=True) if size > 1]
        forms = [(name, "norm") for name in self.names] + [(name, "max") for name in several]
        return tuple((name, w * CHUNK, form) for w in MEMORIES for name, form in forms)


@lru_cache
def _index_statistics(groups: ChannelGroups) -> tuple[Ints, Ints]:
    labels = groups.labels
    rows = []
    for name in groups.names:
        own = [i for i, label in enumerate(labels) if label[0] == name]
        rows.append([*own, *own[:1] * (2 * len(MEMORIES) - len(own))])
    columns = np.array(rows)
    return columns, np.array([label[1] for label in labels])[columns]


@dataclass(frozen=True, slots=True, eq=False)
class NullModel:
    """The distribution of scores without drift."""

    # Scores are clipped to these.
    low: Annotated[Floats, "p"]
    high: Annotated[Floats, "p"]
    mean: Annotated[Floats, "p"]
    whitening: Annotated[Floats, "p p"]  # Block-diagonal, a block a channel

    def whiten_chunks(self, scores: Floats, chunk: int = CHUNK) -> Floats:
        """Means of chunks, shape (c, p), of the scores of their events, shape (chunk * c, p)."""
        clipped = np.clip(scores, self.low, self.high)
        means = clipped.reshape(-1, chunk, clipped.shape[1]).mean(axis=1)
        z: Floats = np.matmul((means - self.mean)[:, None, :], self.whitening)[:, 0, :]
        return z


@dataclass(frozen=True, slots=True, eq=False)
class RunningMeans:
    """State of the exponential means."""

    carried: Annotated[Floats, "w p"]  # (1 - a) v of each memory
    chunks: int  # so far


def init_means(p: int) -> RunningMeans:
    """The state before the first chunk."""
    return RunningMeans(np.zeros((len(MEMORIES), p)), 0)


def whiten(covariance: Array, groups: ChannelGroups) -> Floats:
    """Symmetric whitening of each channel, shape (..., p, p), of covariances of that shape.

    Of the correlations, with a ridge of 1e-2; a constant score has weight 0.
    """
    whitening = np.zeros(covariance.shape)
    for part in groups.slices:
        own = covariance[..., part, part]
        deviations = np.sqrt(np.maximum(np.diagonal(own, axis1=-2, axis2=-1), 0.0))
        varies = deviations > 1e-12
        inverse = np.where(varies, 1.0 / np.where(varies, deviations, 1.0), 0.0)
        correlations = own * inverse[..., :, None] * inverse[..., None, :]
        values_, vectors = np.linalg.eigh(correlations)
        roots = 1.0 / np.sqrt(np.maximum(values_, 0.0) + RIDGE)
        inner = (vectors * roots[..., None, :]) @ np.swapaxes(vectors, -1, -2)
        whitening[..., part, part] = inverse[..., :, None] * inner * varies[..., None, :]
    return whitening


def update_means(before: RunningMeans, z: Floats) -> tuple[RunningMeans, Floats, Floats]:
    """The exponential means after each of some chunks.

    Returns
    -------
    The state after them, the means (c, 3, p), and their variances without drift (c, 3), where a
    chunk's mean of whitened scores has variance 1 / 10.
    """
    c, p = z.shape
    means, carried = np.empty((c, len(MEMORIES), p)), before.carried
    a = np.array([2.0 / (w + 1) for w in MEMORIES])
    for mean, chunk in zip(means, z, strict=True):
        np.multiply(a[:, None], chunk, out=mean)
        mean += carried
        carried = (1 - a)[:, None] * mean
    t = before.chunks + 1.0 + np.arange(c)[:, None]
    variances = a / (2 - a) * (1 - (1 - a) ** (2 * t)) / CHUNK
    return RunningMeans(carried, before.chunks + c), means, variances


def compute_statistics(means: Array, variances: Array, groups: ChannelGroups) -> Floats:
    """Every statistic, shape (..., 3 f), of means (..., 3, p) and variances (..., 3).

    ||v||**2 / (dim sigma**2) of each channel, then max v_j**2 / sigma**2 of each that has several
    scores.
    """
    squares = means * means
    starts = list(groups.starts)
    several = [i for i, size in enumerate(groups.sizes) if size > 1]
    norms = np.add.reduceat(squares, starts, axis=-1) / np.array(groups.sizes)
    largest = np.maximum.reduceat(squares, starts, axis=-1)[..., several]
    both = np.concatenate([norms, largest], axis=-1) / variances[..., None]
    return both.reshape(*both.shape[:-2], -1)
