"""One round of one partition: a pure function of the rows, the agreement and a checkpoint.

Chunks end at multiples of the chunk size, rounds at multiples of `PartitionSettings.every`, and a
checkpoint holds all that resuming needs. So it does not matter which process learns a round, nor
how often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from streamembed.data.times import find_late, read_times
from streamembed.errors import LogError, ParameterError, quote
from streamembed.landmarks import covering
from streamembed.landmarks.covering import Covering
from streamembed.logs.fingerprint import LogFingerprint
from streamembed.merging import labelled_stream
from streamembed.merging.agreement import MergeSettings
from streamembed.merging.labelled_stream import LabelledStream
from streamembed.methods.options import POSITION, Config
from streamembed.metrics.catalog import STATES
from streamembed.numeric.arrays import Floats
from streamembed.numeric.codec import SAVED_IF_SET
from streamembed.runs.feed import check_log
from streamembed.runs.partition_plan import Partition
from streamembed.runs.run_tables import EventRows
from streamembed.storage.saved_object import SavedObject
from streamembed.threads import one_blas_thread


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """The parameters of a worker."""

    config: Config  # of the engine
    every: int  # events of a round, a multiple of the chunk size


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


@dataclass(frozen=True, slots=True)
class RoundResult:
    """A partition at the end of a round."""

    partition: int
    data: bytes  # its checkpoint, packed
    position: int  # events learned
    done: bool
    damage: str | None  # why it could not be read to its end
    rejected: tuple[tuple[int, str], ...]  # rows of the partition since the round before, and why


def learn_round(
    part: Partition, settings: PartitionSettings, agreement: MergeSettings, data: bytes | None
) -> RoundResult:
    """Learn the next round of a partition, or what is left of it.

    Parameters
    ----------
    data
        The checkpoint of the round before, packed; None before the first.
    """
    start = PartitionCheckpoint.create(part, settings.config)
    if data is not None:
        start = PartitionCheckpoint.unpack(data, agreement)
    try:
        with one_blas_thread():
            checkpoint, rejected = _learn_events(part, settings, agreement, start)
    except Exception as error:
        error.add_note(f"in partition {part.number}, from its row {start.count_rows(part)} on")
        raise
    position, done, damage = checkpoint.covering.position, checkpoint.done, checkpoint.damage
    return RoundResult(part.number, checkpoint.to_bytes(), position, done, damage, rejected)


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
        more = check_log(part.batches(0), checkpoint.fingerprint, run, part.start, part.stop)
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
    settings: PartitionSettings,
    agreement: MergeSettings,
    start: PartitionCheckpoint,
) -> tuple[PartitionCheckpoint, tuple[tuple[int, str], ...]]:
    """The partition at the end of the round, and the rows of it that were rejected, and why."""
    config, scaling, learned = settings.config, agreement.scaling(), start.covering
    training, fingerprint = start.training, LogFingerprint.from_dict(start.fingerprint)
    newest = learned.time if learned.position else None
    until = (learned.position // settings.every + 1) * settings.every
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
            end = int(rows.numbers[0]) if len(rows) else part.count_end(batch) - part.start
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
    return PartitionCheckpoint(learned, done, damage, taken, training), tuple(sorted(rejected))


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
