"""Samples of the first events of partitions, and the agreement that is computed from them.

A sample has the rows with the least hashes of (seed, partition, position). It is the same for any
worker, and samples merge exactly.

Source: docs/algorithms/merge.md; the sample is the bottom-k sketch of Cohen & Kaplan (2007).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamembed.data.features import Features
from streamembed.geometry.scaling import fit_points
from streamembed.merging.agreement import Agreement
from streamembed.methods.options import Config
from streamembed.numeric.arrays import Floats
from streamembed.runs.partition_plan import Partition
from streamembed.runs.partition_round import PartitionSettings, read_first_events

# Rows by which features are scaled: deviations are known to 2 %.
SCALED = 1000


@dataclass(frozen=True, slots=True, eq=False)
class PartitionSample:
    """Of some events."""

    # (k,): hashes of the rows, ascending, uint64.
    ranks: np.ndarray[tuple[int], np.dtype[np.uint64]]
    points: Floats  # (k, d): these rows, raw


def sample_first_events(
    part: Partition, settings: PartitionSettings
) -> tuple[int, PartitionSample]:
    """The number of a partition, and a sample of its first events."""
    warm_up, seed = settings.config.warm_up_events, settings.config.seed
    points = read_first_events(part, settings.timed, max(warm_up, settings.config.size))
    return part.number, sample_partition(points, part.number, seed, max(warm_up, SCALED))


def sample_partition(points: Floats, partition: int, seed: int, size: int) -> PartitionSample:
    """Of the first events of a partition, (n, d): at most ``size`` of them."""
    ranks = np.array([_rank(seed, partition, at) for at in range(len(points))], dtype=np.uint64)
    return merge_samples([PartitionSample(ranks, points)], size)


def merge_samples(samples: Sequence[PartitionSample], size: int) -> PartitionSample:
    """Of all, at most ``size`` rows."""
    ranks = np.concatenate([each.ranks for each in samples])
    points = np.concatenate([each.points for each in samples])
    order = np.argsort(ranks, kind="stable")[:size]
    return PartitionSample(ranks[order], points[order])


def compute_agreement(
    samples: Sequence[PartitionSample], config: Config, features: Features
) -> Agreement:
    """What all partitions scale by, from their samples.

    The bandwidth of a gaussian kernel is the median distance to the 7th neighbour among exactly
    ``warm_up`` rows: it shrinks as their number grows.
    """
    points = merge_samples(samples, max(config.warm_up_events, SCALED)).points
    scale, bandwidth = np.ones(len(features.names)), config.fixed_bandwidth or 1.0
    if len(points):  # without, no row can be learned, and they are still reported as rejected
        scaling, least = config.scaling, config.least_share
        scale = fit_points(points, np.ones(len(points)), scaling, 1.0, least).scale
        few = points[: config.warm_up_events] / scale
        bandwidth = fit_points(few, np.ones(len(few)), None, config.fixed_bandwidth).bandwidth
    return Agreement(
        features.names,
        features.ordered,
        tuple(scale.tolist()),
        None if config.has_widths else bandwidth,
        config.half_life,
        config.clock,
    )


def _rank(seed: int, partition: int, position: int) -> int:
    text = f"{seed}|{partition}|{position}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
