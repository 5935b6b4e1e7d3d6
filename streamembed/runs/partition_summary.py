"""What partitions say of their first events, for a root to make an agreement of it.

Both parts of a summary merge exactly: moments by the formula of Chan, Golub and LeVeque in the
order of the partitions, and a sample of the rows with the least hashes of (seed, partition,
position), which is the same for any worker.

Source: docs/algorithms/merge.md; the sample is the bottom-k sketch of Cohen & Kaplan (2007).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from streamembed.numeric import moments
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.moments import FeatureMoments


@dataclass(frozen=True, slots=True, eq=False)
class PartitionSummary:
    """Of some events.

    Attributes
    ----------
    spread : Spread
        Count, mean and squares of each feature.
    ranks : (k,)
        Hashes of the rows of the sample, ascending, uint64.
    sample : (k, d)
        These rows, raw.
    """

    spread: FeatureMoments
    ranks: np.ndarray[tuple[int], np.dtype[np.uint64]]
    sample: Floats


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


def _rank(seed: int, partition: int, position: int) -> int:
    text = f"{seed}|{partition}|{position}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
