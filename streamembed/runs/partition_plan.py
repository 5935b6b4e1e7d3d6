"""How a log is divided into partitions, and what these agree on by a sample of first events.

Partitions are fixed by the log alone, so that neither the number of workers nor their assignment
changes the result. A sample has the rows with the least random numbers by (seed, partition,
position). It is the same for any worker, and the sample of several samples is that of all their
rows.

Source: docs/algorithms/merge.md; the sample is the bottom-k sketch of Cohen & Kaplan (2007).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from streamembed.data.features import Features
from streamembed.errors import FeatureError, LogError
from streamembed.geometry.scaling import fit_points
from streamembed.logs.event_log import EventLog, LogBatch
from streamembed.merging.agreement import MergeSettings
from streamembed.methods.options import Config
from streamembed.numeric.arrays import LARGEST_VALUE, Floats, Ints
from streamembed.runs.feed import read_points
from streamembed.runs.run_tables import EventRows

# Rows by which features are scaled: deviations are known to 2 %.
SCALED = 1000
# Of a log of more files, neighbours go together.
MAX_PARTITIONS = 64
# Of one file whose number of rows is known.
RANGES_OF_A_FILE = 8


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a log."""

    number: int
    log: EventLog  # its files
    start: int  # first row of these files
    stop: int | None  # the row behind the last; None for their end

    def batches(self, row: int) -> Iterator[LogBatch]:
        """Batches from a row of the partition on, the last of them perhaps too long."""
        for batch in self.log.batches(self.start + row):
            if self.stop is not None and batch.offset >= self.stop:
                return
            yield batch

    def count_end(self, batch: LogBatch) -> int:
        """The row behind the last of a batch that is in the partition."""
        end = batch.offset + len(batch)
        return end if self.stop is None else min(end, self.stop)

    def read(self, rows: LogBatch, scale: Floats) -> tuple[EventRows, list[tuple[int, str]]]:
        """The rows of a batch that may be events, and those that never can, and why.

        Their numbers are those in the partition. Divided by ``scale``, (d,), points can be squared.
        """
        events, rejected = read_points(rows, self.log.features, self.log.feature_names)
        end = self.count_end(rows)
        events = events.slice(0, int(np.searchsorted(events.numbers, end)))
        events = replace(events, numbers=events.numbers - self.start)
        bad = [(row.index - self.start, row.reason) for row in rejected if row.index < end]
        limit = np.minimum(scale, 1.0) * LARGEST_VALUE
        far = np.flatnonzero((np.abs(events.points) > limit).any(axis=1)).tolist()
        what = "too far from the first events"
        return events.drop(far), bad + [(number, what) for number in events.numbers[far].tolist()]

    def describe(self) -> dict[str, object]:
        """What a run stores of it, JSON-ready: no path, for files may be moved."""
        return {
            "files": len(self.log.paths),
            "rows": self.log.n_rows,
            "start": self.start,
            "stop": self.stop,
        }


def check_divisible(log: EventLog) -> None:
    """Refuse a log that has no partitions.

    Raises
    ------
    FeatureError
        A log of distances.
    """
    if log.kind != "points":
        raise FeatureError(
            "the log contains distances, and landmarks of different partitions have none to one "
            "another: only points can be learned by several workers"
        )


def divide_log(log: EventLog) -> tuple[Partition, ...]:
    """The partitions of a log.

    Its files, in order; of more than 64 files, 64 groups of neighbours. A log of one file whose
    number of rows is known is cut into 8 ranges of rows.
    """
    count = len(log.paths)
    if count == 1 and log.n_rows is not None:
        pieces = max(1, min(RANGES_OF_A_FILE, log.n_rows))
        cuts = [log.n_rows * piece // pieces for piece in range(pieces + 1)]
        return tuple(
            Partition(number, log, start, stop)
            for number, (start, stop) in enumerate(pairwise(cuts))
        )
    parts = min(MAX_PARTITIONS, count)
    cuts = [count * part // parts for part in range(parts + 1)]
    return tuple(
        Partition(number, log.select_files(start, stop), 0, None)
        for number, (start, stop) in enumerate(pairwise(cuts))
    )


def sample_first_events(part: Partition, config: Config) -> tuple[int, Floats, Floats]:
    """The number of a partition, and a sample of its first events.

    Returns
    -------
    number
    ranks : (k,)
        Random numbers by seed, partition and position, ascending.
    points : (k, d)
        These rows, raw; k is at most 1,000 or the warm-up.
    """
    points = _read_first_events(part, max(config.warm_up_events, config.size))
    ranks = np.random.default_rng((config.seed, part.number)).random(len(points))
    least = _find_least(ranks, config)
    return part.number, ranks[least], points[least]


def compute_agreement(
    samples: Sequence[tuple[Floats, Floats]], config: Config, features: Features
) -> MergeSettings:
    """What all partitions scale by, from the ranks and points of their samples, in order.

    The bandwidth of a gaussian kernel is the median distance to the 7th neighbour among exactly
    ``warm_up`` rows: it shrinks as their number grows.
    """
    ranks, points = (np.concatenate(arrays) for arrays in zip(*samples, strict=True))
    points = points[_find_least(ranks, config)]
    scale, bandwidth = np.ones(len(features.names)), config.fixed_bandwidth or 1.0
    if len(points):  # without, no row can be learned, and they are still reported as rejected
        scaling, least = config.scaling, config.least_share
        masses = np.ones(len(points))
        scale = fit_points(points, masses, scaling, 1.0, least, features.divisors).scale
        few = points[: config.warm_up_events] / scale
        bandwidth = fit_points(few, np.ones(len(few)), None, config.fixed_bandwidth).bandwidth
    return MergeSettings(
        features.names,
        features.ordered,
        tuple(scale.tolist()),
        None if config.has_widths else bandwidth,
        config.half_life,
        config.clock,
        features.metric,
    )


def _read_first_events(part: Partition, count: int) -> Floats:
    """The first ``count`` rows of a partition that may be events, (n, d); fewer if it ends."""
    anywhere = np.ones(len(part.log.feature_names))
    batches, n_rows = [np.zeros((0, len(anywhere)))], 0
    try:
        for rows in part.batches(0):
            batches.append(part.read(rows, anywhere)[0].points)
            n_rows += len(batches[-1])
            if n_rows >= count:
                break
    except LogError:
        pass  # learning it notes the damage
    return np.concatenate(batches)[:count]


def _find_least(ranks: Floats, config: Config) -> Ints:
    """The places of the least ranks, ascending: of a warm-up, or 1,000."""
    return np.argsort(ranks, kind="stable")[: max(config.warm_up_events, SCALED)]
