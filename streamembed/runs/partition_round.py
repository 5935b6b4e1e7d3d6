"""One round of one partition: a pure function of the rows, the agreement and a checkpoint.

Chunks end at multiples of the chunk size, rounds at multiples of `PartitionSettings.every`, and a
checkpoint holds all that resuming needs. So it does not matter which process learns a round, nor
how often.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from streamembed.data.times import find_late, read_times
from streamembed.errors import LogError, ParameterError, quote
from streamembed.geometry.scaling import Scaling
from streamembed.landmarks import covering
from streamembed.landmarks.covering import Covering
from streamembed.logs.event_log import LogBatch
from streamembed.logs.fingerprint import LogFingerprint
from streamembed.merging import labelled_stream
from streamembed.merging.agreement import MergeSettings
from streamembed.merging.labelled_stream import LabelledStream
from streamembed.methods.options import POSITION, Config
from streamembed.metrics.catalog import STATES
from streamembed.numeric.arrays import Floats
from streamembed.numeric.codec import SAVED_IF_SET
from streamembed.runs.feed import check_rows
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
    offset: int  # rows of the partition that were taken, learned or rejected
    done: bool  # whether it has no others
    damage: str | None  # why it could not be read to its end
    fingerprint: dict[str, int]  # of the rows that were taken
    # What metrics have learned; None without.
    training: LabelledStream | None = field(default=None, metadata=SAVED_IF_SET)

    @classmethod
    def unpack(cls, data: bytes, agreement: MergeSettings) -> PartitionCheckpoint:
        """What `to_bytes` gave, with its points scaled; DamagedFileError for anything else."""
        checkpoint = cls.from_bytes(data)
        support = checkpoint.covering.support
        support = replace(support, scaled=agreement.scaling().apply(support.points))
        return replace(checkpoint, covering=replace(checkpoint.covering, support=support))

    @classmethod
    def create(cls, part: Partition, config: Config) -> PartitionCheckpoint:
        """Of a partition of which nothing was taken."""
        training, n_features = None, len(part.log.feature_names)
        if config.metrics:
            training = labelled_stream.init(config.metrics, n_features, config.seed)
        return cls(covering.init(n_features), 0, False, None, {"rows": part.start}, training)


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
    events = _EventReader(part, settings, agreement, start)
    try:
        with one_blas_thread():
            learned, training = _learn_events(events, settings, agreement.scaling(), start)
    except Exception as error:
        error.add_note(f"in partition {part.number}, from its row {events.offset} on")
        raise
    rejected = tuple(sorted(events.rejected))
    checkpoint = PartitionCheckpoint(
        learned, events.offset, events.done, events.damage, events.read_fingerprint(), training
    )
    packed, position = checkpoint.to_bytes(), learned.position
    return RoundResult(part.number, packed, position, events.done, events.damage, rejected)


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
    before, now = checkpoint.fingerprint, LogFingerprint(part.start)
    place, more = f"partition {part.number} of the log ({part.log.paths[0]})", False
    try:
        for rows in part.batches(0):
            now.update(rows, before["rows"])
            more = part.count_end(rows) > before["rows"]
            if more:
                break
    except LogError:  # behind them, learning notes it
        if now.rows < before["rows"]:
            raise
    try:
        check_rows(now, before, run)
    except ParameterError as error:
        raise ParameterError(f"in {place}: {error}") from None
    if more and checkpoint.done:
        raise ParameterError(
            f"{place} has more rows than the {checkpoint.offset:,} with which it ended in "
            f"run={quote(str(run))}: replay the new rows, as files, into a run of their own, and "
            "merge the two (streamembed merge); or replace the run with overwrite=True"
        )
    return checkpoint.offset


def _learn_events(
    events: _EventReader,
    settings: PartitionSettings,
    scaling: Scaling,
    start: PartitionCheckpoint,
) -> tuple[Covering, LabelledStream | None]:
    config, learned, training = settings.config, start.covering, start.training
    until = (learned.position // settings.every + 1) * settings.every
    while learned.position < until and events.read_batch():
        rows = events.take(config.chunks.size - learned.position % config.chunks.size)
        times = _read_event_times(rows, config)
        learned = covering.update(
            learned, rows.points, scaling, config.size, config.half_life, times
        )
        if training is not None:
            labels = rows.passthrough["label"].to_pylist()
            training = labelled_stream.update(training, config.metrics, rows.points, labels)
    events.read_batch()  # so that no round comes after the last event
    return learned, training


def _read_event_times(rows: EventRows, config: Config) -> Floats | None:
    """Times of rows, (n,); None where masses do not fade by them."""
    is_timed = config.clock != POSITION
    return read_times(rows.passthrough["event_time"], len(rows)) if is_timed else None


class _EventReader:
    """Reads the events of a partition from a checkpoint on, and rejects the rows between them."""

    def __init__(
        self,
        part: Partition,
        settings: PartitionSettings,
        agreement: MergeSettings,
        start: PartitionCheckpoint,
    ) -> None:
        self._part, self._settings, self._scale = part, settings, agreement.scaling().scale
        self.offset, self.done, self.damage = start.offset, start.done, start.damage
        self.rejected: list[tuple[int, str]] = []  # rows of the partition, and why
        self._newest = start.covering.time if start.covering.position else None
        self._source: Iterator[LogBatch] = part.batches(start.offset)
        # the newest batch, those of its events that are not taken, and its bad rows behind these
        self._batch: LogBatch | None = None
        self._rows: EventRows | None = None
        self._bad = deque[tuple[int, str]]()
        self._fingerprint = LogFingerprint.from_dict(start.fingerprint)

    def take(self, wanted: int) -> EventRows:
        """The next ``wanted`` events, at least one, and fewer at the end; after `read_batch`."""
        parts: list[EventRows] = []
        while wanted and self.read_batch():
            assert self._rows is not None
            parts.append(self._rows.slice(0, wanted))
            self._rows = self._rows.slice(len(parts[-1]), len(self._rows))
            wanted -= len(parts[-1])
            self._advance_to(int(parts[-1].numbers[-1]) + 1)
        return EventRows.concatenate(parts)

    def read_batch(self) -> bool:
        """Have events at hand that were not taken; False at the end of the partition."""
        while not self.done and not self._rows:
            self._advance_to(None)  # what was bad behind its last row
            self.read_fingerprint()
            try:
                self._batch = next(self._source, None)
            except LogError as error:
                self.damage, self._batch = str(error), None
            if self._batch is None:
                self.done = True
            else:
                self._rows = self._select_events(self._batch)
        return not self.done

    def _select_events(self, batch: LogBatch) -> EventRows:
        """The rows of a batch that are events; the others are bad."""
        config = self._settings.config
        rows, bad = self._part.read(batch, self._scale)
        times = _read_event_times(rows, config)
        if times is not None:
            faults = find_late(times, self._newest, config.max_skew)
            bad += [(int(rows.numbers[i]), why) for i, why in faults]
            late = [i for i, _ in faults]
            rows, times = rows.drop(late), np.delete(times, late)
            if len(times):
                latest = float(times.max())
                self._newest = latest if self._newest is None else max(self._newest, latest)
        self._bad = deque(sorted(bad))
        return rows

    def read_fingerprint(self) -> dict[str, int]:
        """The fingerprint of the rows that were taken, in all rounds."""
        if self._batch is not None:
            self._fingerprint.update(self._batch, self._part.start + self.offset)
        return self._fingerprint.to_dict()

    def _advance_to(self, row: int | None) -> None:
        """Count the rows before `row`, None for the whole batch, as taken; reject the bad ones."""
        while self._bad and (row is None or self._bad[0][0] < row):
            number, why = self._bad.popleft()
            self.rejected.append((number, why))
            self.offset = max(self.offset, number + 1)
        if row is not None:
            self.offset = max(self.offset, row)
