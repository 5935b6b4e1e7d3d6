"""The running statistics of a monitor: exponential means of whitened scores, at some memories."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated

import numpy as np

from streamembed.drift.reference import CHUNK
from streamembed.numeric.arrays import Array, Floats

# Chunks: 40, 160 and 640 events; of vectors, whose new groups are slow to see, also 2,560.
MEMORIES = (4, 16, 64, 256)
FORMS = ("norm", "max")  # the shift of all scores of a channel, and of a single one
RIDGE = 1e-2  # of a correlation matrix: correlated scores may decorrelate


@dataclass(frozen=True, slots=True)
class ChannelGroups:
    """Channels of a vector of scores."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]  # scores of each, in their order
    # First and last column, exclusive, of components of a kernel: they are scaled by one deviation,
    # not whitened, so that the norm of their means is that of the kernel's space. (0, 0): there are
    # none.
    components: tuple[int, int] = (0, 0)

    @property
    def starts(self) -> list[int]:
        """First column of each."""
        return list(accumulate((0, *self.sizes[:-1])))

    @property
    def slices(self) -> tuple[slice, ...]:
        """The columns of each."""
        return tuple(slice(a, a + n) for a, n in zip(self.starts, self.sizes, strict=True))

    @property
    def count(self) -> int:
        """Memories: one more of vectors."""
        return len(MEMORIES) - (self.components == (0, 0))

    def locate(self, index: int) -> tuple[int, str, slice]:
        """Memory, as an index, form and columns of a statistic of `compute_statistics`."""
        memory, form, channel = np.unravel_index(index, (self.count, len(FORMS), len(self.names)))
        return int(memory), FORMS[form], self.slices[channel]


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

    carried: Annotated[Array, "w p"]  # (1 - a) v of each memory; of the type of the scores
    chunks: int = 0  # so far


def init_means(count: int, *shape: int, dtype: type = np.float64) -> RunningMeans:
    """The state before the first chunk, of so many memories, and of scores of this shape."""
    return RunningMeans(np.zeros((count, *shape), dtype))


def whiten(covariance: Array, groups: ChannelGroups, least: Floats) -> Floats:
    """Symmetric whitening of each channel, shape (..., p, p), of covariances of that shape.

    Of the correlations, with a ridge of 1e-2; no deviation counts as less than ``least``, shape
    (p,), and a score that never varies has weight 0. Components share one deviation.
    """
    whitening = np.zeros(covariance.shape)
    for part in groups.slices:
        own = covariance[..., part, part]
        variances = np.maximum(np.diagonal(own, axis1=-2, axis2=-1), least[part] ** 2)
        if (part.start, part.stop) == groups.components:
            variances = np.maximum(variances.mean(axis=-1, keepdims=True), 1e-24)
            whitening[..., part, part] = np.eye(own.shape[-1]) / np.sqrt(variances[..., None])
            continue
        varies = variances > 1e-24
        inverse = np.where(varies, 1.0 / np.sqrt(np.where(varies, variances, 1.0)), 0.0)
        correlations = own * inverse[..., :, None] * inverse[..., None, :]
        np.einsum("...ii->...i", correlations)[...] = 1.0
        values_, vectors = np.linalg.eigh(correlations)
        roots = 1.0 / np.sqrt(np.maximum(values_, 0.0) + RIDGE)
        inner = (vectors * roots[..., None, :]) @ np.swapaxes(vectors, -1, -2)
        whitening[..., part, part] = inverse[..., :, None] * inner
    return whitening


def update_means(before: RunningMeans, z: Array) -> tuple[RunningMeans, Array, Floats]:
    """The exponential means after each of some chunks.

    Parameters
    ----------
    z
        Means of chunks of whitened scores, shape (c, p), or (c, p, s) of streams side by side.

    Returns
    -------
    The state after them, the means (c, w, p) or (c, w, p, s), and their variances without drift
    (c, w), where a chunk's mean of whitened scores has variance 1 / 10.
    """
    means, carried = np.empty((len(z), *before.carried.shape), z.dtype), before.carried
    a = 2.0 / (np.array(MEMORIES[: len(carried)]) + 1)
    t = before.chunks + 1.0 + np.arange(len(z))[:, None]
    variances = a / (2 - a) * (1 - (1 - a) ** (2 * t)) / CHUNK
    new = a.astype(z.dtype).reshape(-1, *[1] * (z.ndim - 1))
    for mean, chunk in zip(means, z, strict=True):
        np.multiply(new, chunk, out=mean)
        mean += carried
        carried = (1 - new) * mean
    return RunningMeans(carried, before.chunks + len(z)), means, variances


def compute_statistics(means: Array, variances: Array, groups: ChannelGroups) -> Array:
    """Every statistic, shape (..., f), of means (..., w, p) and variances (..., w).

    For each memory ||v||**2 / (dim sigma**2) of every channel, then max v_j**2 / sigma**2. Means
    (..., w, p, s) of streams side by side have statistics (..., f, s).
    """
    axis = variances.ndim
    behind = [1] * (means.ndim - axis)
    squares = means * means / variances.reshape(*variances.shape, *behind).astype(means.dtype)
    largest = np.maximum.reduceat(squares, groups.starts, axis=axis)
    sums = np.add.reduceat(squares, groups.starts, axis=axis)
    sizes = np.array(groups.sizes, means.dtype).reshape(-1, *behind[1:])
    both = np.concatenate([sums / sizes, largest], axis=axis)
    return both.reshape(*both.shape[: axis - 1], -1, *both.shape[axis + 1 :])
