"""Summaries of the first events of partitions, and the agreement that is computed from them.

Both parts of a summary merge exactly: moments by the formula of Chan, Golub and LeVeque in the
order of the partitions, and a sample of the rows with the least hashes of (seed, partition,
position), which is the same for any worker.

Source: docs/algorithms/merge.md; the sample is the bottom-k sketch of Cohen & Kaplan (2007).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from streamembed.data.features import Features
from streamembed.geometry.kernel import choose_bandwidth
from streamembed.geometry.scaling import LEAST_SHARE, choose_divisors
from streamembed.merging.agreement import Agreement
from streamembed.methods.options import Config
from streamembed.numeric import moments
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.moments import FeatureMoments
from streamembed.runs.partition_plan import Partition
from streamembed.runs.partition_round import PartitionSettings, read_first_events


@dataclass(frozen=True, slots=True, eq=False)
class PartitionSummary:
    """Of some events."""

    spread: FeatureMoments  # Count, mean and squares of each feature
    # (k,): hashes of the rows of the sample, ascending, uint64.
    ranks: np.ndarray[tuple[int], np.dtype[np.uint64]]
    sample: Floats  # (k, d): these rows, raw


def summarise_first_events(
    part: Partition, settings: PartitionSettings
) -> tuple[int, PartitionSummary]:
    """The number of a partition, and a summary of its first events."""
    warm_up, seed = settings.config.warm_up_events, settings.config.seed
    points = read_first_events(part, settings.timed, max(warm_up, settings.config.size))
    return part.number, summarise_partition(points, part.number, seed, warm_up)


def summarise_partition(points: Floats, partition: int, seed: int, size: int) -> PartitionSummary:
    """Of the first events of a partition, (n, d), with a sample of at most ``size`` of them."""
    spread = moments.update(moments.init(points.shape[1]), points)
    ranks = np.array([_rank(seed, partition, at) for at in range(len(points))], dtype=np.uint64)
    order = np.argsort(ranks, kind="stable")[:size]
    return PartitionSummary(spread, ranks[order], points[order])


def merge_summaries(left: PartitionSummary, right: PartitionSummary, size: int) -> PartitionSummary:
    """Of both, where ``left`` is of the earlier partitions."""
    ranks = np.concatenate([left.ranks, right.ranks])
    order: Ints = np.argsort(ranks, kind="stable")[:size]
    sample = np.concatenate([left.sample, right.sample])
    return PartitionSummary(moments.merge(left.spread, right.spread), ranks[order], sample[order])


def compute_agreement(
    summaries: Sequence[PartitionSummary], config: Config, features: Features
) -> Agreement:
    """What all partitions scale by, from their summaries in order.

    The bandwidth of a gaussian kernel is the median distance to the 7th neighbour among exactly
    ``warm_up`` rows: it shrinks as their number grows.
    """
    whole, size = summaries[0], config.warm_up_events
    for other in summaries[1:]:
        whole = merge_summaries(whole, other, size)
    spread = whole.spread

    def build(scale: tuple[float, ...], bandwidth: float | None) -> Agreement:
        return Agreement(
            features.names, features.ordered, scale, bandwidth, config.half_life, config.clock
        )

    if not spread.counts.any():  # no row can be learned, and they are still reported as rejected
        units = (1.0,) * len(features.names)
        bandwidth = None if config.has_widths else config.fixed_bandwidth or 1.0
        return build(units, bandwidth)
    least = LEAST_SHARE if config.rescales else 0.0
    deviations = np.sqrt(spread.squares / spread.counts)
    count = float(spread.counts.max())
    scale = choose_divisors(spread.means, deviations, count, config.scaling, least)
    bandwidth = None
    if not config.has_widths:
        bandwidth = config.fixed_bandwidth
        if bandwidth is None:
            scaled = (whole.sample - spread.means) / scale
            bandwidth = choose_bandwidth(lambda slots: cdist(scaled[slots], scaled), len(scaled))
    return build(tuple(scale.tolist()), bandwidth)


def _rank(seed: int, partition: int, position: int) -> int:
    text = f"{seed}|{partition}|{position}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
