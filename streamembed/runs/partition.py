"""A partition of a log: its rows, a sample of the first ones, and its rounds.

Partitions are fixed by the log alone, so that neither the number of workers nor their assignment
changes the result. They agree on a scale by a sample, the rows with the least random numbers by
(seed, partition, position). It is the same for any worker, and the sample of several samples is
that of all their rows.

A round of a partition is a pure function of its rows, the agreement and a checkpoint. Chunks end at
multiples of the chunk size, rounds at multiples of so many events, and a checkpoint holds all that
resuming needs. So it does not matter which process learns a round, nor how often.

Source: docs/algorithms/merge.md; the sample is the bottom-k sketch of Cohen & Kaplan (2007).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np

from streamembed.data.features import Features
from streamembed.data.times import find_late, read_times
from streamembed.errors import LogError, ParameterError, quote
from streamembed.geometry.scaling import fit_points
from streamembed.landmarks import covering
from streamembed.landmarks.covering import Covering
from streamembed.logs.event_log import EventLog, LogBatch
from streamembed.logs.fingerprint import LogFingerprint
from streamembed.merging import labelled_stream
from streamembed.merging.agreement import MergeSettings
from streamembed.merging.labelled_stream import LabelledStream
from streamembed.methods.options import POSITION, Config
from streamembed.metrics.catalog import STATES
from streamembed.numeric.arrays import LARGEST_VALUE, Floats, Ints
from streamembed.numeric.codec import SAVED_IF_SET
from streamembed.runs.feed import check_log_unchanged, split_rows
from streamembed.runs.run_tables import EventRows
from streamembed.storage.saved_object import SavedObject
from streamembed.threads import one_blas_thread

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

    def find_end_row(self, batch: LogBatch) -> int:
        """The row behind the last of a batch that is in the partition."""
        end = batch.offset + len(batch)
        return end if self.stop is None else min(end, self.stop)

    def read(self, rows: LogBatch, scale: Floats) -> tuple[EventRows, list[tuple[int, str]]]:
        """The rows of a batch that may be events, and those that never can, and why.

        Their numbers are those in the partition. Divided by ``scale``, (d,), points can be squared.
        """
        events, rejected = split_rows(rows, self.log.features)
        end = self.find_end_row(rows)
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


def divide_log(log: EventLog) -> tuple[Partition, ...]:
    """The partitions of a log.

    Its files, in order; of more than 64 files, 64 groups of neighbours. A log of one file whose
    number of rows is known is cut into 8 ranges of rows.
    """
    count, most = len(log.paths), MAX_PARTITIONS
    has_ranges = count == 1 and log.n_rows is not None
    if has_ranges:
        count, most = log.n_rows or 0, RANGES_OF_A_FILE
    parts = max(1, min(most, count))
    ranges = enumerate(pairwise(count * part // parts for part in range(parts + 1)))
    if has_ranges:
        return tuple(Partition(number, log, *rows) for number, rows in ranges)
    return tuple(Partition(number, log.select_files(*files), 0, None) for number, files in ranges)


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


def compute_merge_settings(
    samples: Sequence[tuple[Floats, Floats]], config: Config, features: Features
) -> MergeSettings:
    """The scaling that all partitions share, from the ranks and points of their samples, in order.

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


@dataclass(frozen=True, slots=True, eq=False)
class PartitionCheckpoint(SavedObject):
    """A partition between two rounds."""

    _kind: ClassVar[str] = "partition"
    _kinds = STATES
    covering: Covering
    done: bool  # whether it has no others
    damage: str | None  # why it could not be read to its end
    fingerprint: dict[str, int]  # of the rows that were taken, learned or rejected
    # What metrics have learned; None without.
    training: LabelledStream | None = field(default=None, metadata=SAVED_IF_SET)

    @classmethod
    def unpack(cls, data: bytes, agreement: MergeSettings) -> PartitionCheckpoint:
        """What `to_bytes` gave, with its points scaled; DamagedFileError for anything else."""
        checkpoint = cls.from_bytes(data)
        support = checkpoint.covering.support
        support = replace(support, scaled=agreement.scaling().apply(support.points))
        return replace(checkpoint, covering=replace(checkpoint.covering, support=support))

    def count_rows(self, part: Partition) -> int:
        """Rows of the partition that were taken."""
        return self.fingerprint["rows"] - part.start

    @classmethod
    def create(cls, part: Partition, config: Config) -> PartitionCheckpoint:
        """Of a partition of which nothing was taken."""
        training, n_features = None, len(part.log.feature_names)
        if config.metrics:
            training = labelled_stream.init(config.metrics, n_features, config.seed)
        return cls(covering.init(n_features), False, None, {"rows": part.start}, training)


def learn_round(
    part: Partition, config: Config, every: int, agreement: MergeSettings, data: bytes | None
) -> tuple[int, bytes, list[tuple[int, str]]]:
    """Learn the next round of a partition, or what is left of it.

    Parameters
    ----------
    every
        Events of a round, a multiple of the chunk size.
    data
        The checkpoint of the round before, packed; None before the first.

    Returns
    -------
    number
        Of the partition.
    data
        Its checkpoint at the end of the round, packed.
    rejected
        Rows of the partition since the round before, and why.
    """
    start = PartitionCheckpoint.create(part, config)
    if data is not None:
        start = PartitionCheckpoint.unpack(data, agreement)
    try:
        with one_blas_thread():
            checkpoint, rejected = _learn_events(part, config, every, agreement, start)
    except Exception as error:
        error.add_note(f"in partition {part.number}, from its row {start.count_rows(part)} on")
        raise
    return part.number, checkpoint.to_bytes(), rejected


def check_learned(part: Partition, data: bytes, agreement: MergeSettings, run: Path) -> int:
    """How many rows a checkpoint has taken, all of which must still be there.

    Raises
    ------
    ParameterError
        The partition has other rows, or more than those with which it ended.
    LogError
        They cannot be read again.
    """
    checkpoint = PartitionCheckpoint.unpack(data, agreement)
    place = f"partition {part.number} of the log ({part.log.paths[0]})"
    try:
        more = check_log_unchanged(
            part.batches(0), checkpoint.fingerprint, run, part.start, part.stop
        )
    except ParameterError as error:
        raise ParameterError(f"in {place}: {error}") from None
    rows = checkpoint.count_rows(part)
    if more and checkpoint.done:
        raise ParameterError(
            f"{place} has more rows than the {rows:,} with which it ended in "
            f"run={quote(str(run))}: replay the new rows, as files, into a run of their own, and "
            "merge the two (streamembed merge); or replace the run with overwrite=True"
        )
    return rows


def _learn_events(
    part: Partition,
    config: Config,
    every: int,
    agreement: MergeSettings,
    start: PartitionCheckpoint,
) -> tuple[PartitionCheckpoint, list[tuple[int, str]]]:
    """The partition at the end of the round, and the rows of it that were rejected, and why."""
    scaling, learned = agreement.scaling(), start.covering
    training, fingerprint = start.training, LogFingerprint.from_dict(start.fingerprint)
    newest = learned.time if learned.position else None
    until = (learned.position // every + 1) * every
    waiting: list[EventRows] = []  # of a chunk that is not complete
    rejected: list[tuple[int, str]] = []

    def learn_chunk() -> None:
        nonlocal learned, training
        rows = EventRows.concatenate(waiting)
        waiting.clear()
        times = _read_event_times(rows, config)
        learned = covering.update(
            learned, rows.points, scaling, config.size, config.half_life, times
        )
        if training is not None:
            labels = rows.passthrough["label"].to_pylist()
            training = labelled_stream.update(training, config.metrics, rows.points, labels)

    done, damage = True, None
    try:
        for batch in part.batches(start.count_rows(part)):
            rows, bad = part.read(batch, scaling.scale)
            rows, late, newest = _drop_late(rows, newest, config)
            while len(rows) and learned.position < until:
                wanted = config.chunks.size - sum(map(len, waiting))
                waiting.append(rows.slice(0, wanted))
                rows = rows.slice(wanted)
                if len(waiting[-1]) == wanted:
                    learn_chunk()
            # the round ends before the next event, or at the end of the partition
            end = int(rows.numbers[0]) if len(rows) else part.find_end_row(batch) - part.start
            rejected += [row for row in (*bad, *late) if row[0] < end]
            fingerprint.update(batch, part.start + end)
            if len(rows):
                done = False
                break
    except LogError as error:
        damage = str(error)
    if waiting:
        learn_chunk()
    taken = fingerprint.to_dict()
    return PartitionCheckpoint(learned, done, damage, taken, training), sorted(rejected)


def _read_event_times(rows: EventRows, config: Config) -> Floats | None:
    """Times of rows, (n,); None where masses do not fade by them."""
    is_timed = config.clock != POSITION
    return read_times(rows.passthrough["event_time"], len(rows)) if is_timed else None


def _drop_late(
    rows: EventRows, newest: float | None, config: Config
) -> tuple[EventRows, Sequence[tuple[int, str]], float | None]:
    """The rows whose times can be used, the others and why, and the newest time so far."""
    times = _read_event_times(rows, config)
    if times is None:
        return rows, (), newest
    faults = find_late(times, newest, config.max_skew)
    places = [i for i, _ in faults]
    kept = np.delete(times, places)
    if len(kept):
        newest = float(kept.max(initial=kept[0] if newest is None else newest))
    return rows.drop(places), [(int(rows.numbers[i]), why) for i, why in faults], newest
