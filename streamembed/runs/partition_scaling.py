"""The agreement of all partitions, computed once from summaries of their first events."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.spatial.distance import cdist

from streamembed.data.features import Features
from streamembed.geometry.kernel import choose_bandwidth
from streamembed.geometry.scaling import LEAST_SHARE, choose_divisors
from streamembed.merging.agreement import Agreement
from streamembed.methods.options import Config
from streamembed.runs.partition_summary import PartitionSummary, merge_summaries


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
            bandwidth = choose_bandwidth(cdist(scaled, scaled))
    return build(tuple(scale.tolist()), bandwidth)
