"""Samples of the first events of partitions, and the agreement that is computed from them.

A sample has the rows with the least random numbers by (seed, partition, position). It is the same
for any worker, and the sample of several samples is that of all their rows.

Source: docs/algorithms/merge.md; the sample is the bottom-k sketch of Cohen & Kaplan (2007).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamembed.data.features import Features
from streamembed.geometry.scaling import fit_points
from streamembed.merging.agreement import Agreement
from streamembed.methods.options import Config
from streamembed.numeric.arrays import Floats, Ints
from streamembed.runs.partition_plan import Partition
from streamembed.runs.partition_round import PartitionSettings, read_first_events

# Rows by which features are scaled: deviations are known to 2 %.
SCALED = 1000


def sample_first_events(part: Partition, settings: PartitionSettings) -> tuple[int, Floats, Floats]:
    """The number of a partition, and a sample of its first events.

    Returns
    -------
    number
    ranks : (k,)
        Random numbers by seed, partition and position, ascending.
    points : (k, d)
        These rows, raw; k is at most 1,000 or the warm-up.
    """
    config = settings.config
    points = read_first_events(part, max(config.warm_up_events, config.size))
    ranks = np.random.default_rng((config.seed, part.number)).random(len(points))
    least = _find_least(ranks, config)
    return part.number, ranks[least], points[least]


def compute_agreement(
    samples: Sequence[tuple[Floats, Floats]], config: Config, features: Features
) -> Agreement:
    """What all partitions scale by, from the ranks and points of their samples, in order.

    The bandwidth of a gaussian kernel is the median distance to the 7th neighbour among exactly
    ``warm_up`` rows: it shrinks as their number grows.
    """
    ranks, points = (np.concatenate(arrays) for arrays in zip(*samples, strict=True))
    points = points[_find_least(ranks, config)]
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


def _find_least(ranks: Floats, config: Config) -> Ints:
    """The places of the least ranks, ascending: of a warm-up, or 1,000."""
    return np.argsort(ranks, kind="stable")[: max(config.warm_up_events, SCALED)]
