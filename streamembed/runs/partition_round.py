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

import numpy as np

from streamembed.data.labels import Label
from streamembed.data.times import find_late, read_times
from streamembed.errors import BadRowError, LogError, ParameterError, quote
from streamembed.geometry.scaling import Scaling
from streamembed.landmarks import covering
from streamembed.landmarks.covering import Covering
from streamembed.logs.event_log import LogBatch
from streamembed.logs.fingerprint import LogFingerprint
from streamembed.merging import labelled_stream
from streamembed.merging.agreement import Agreement
from streamembed.merging.labelled_stream import LabelledStream
from streamembed.methods.options import POSITION, Config
from streamembed.metrics.catalog import STATES
from streamembed.numeric import codec
from streamembed.numeric.arrays import LARGEST_VALUE, Floats
from streamembed.numeric.codec import SAVED_IF_SET
from streamembed.runs.event_rows import EventRows
from streamembed.runs.feed import check_rows, read_points
from streamembed.runs.partition_plan import Partition
from streamembed.storage import archive
from streamembed.threads import one_blas_thread

KIND = "partition"


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """The parameters of a worker."""

    config: Config  # of the engine
    on_bad_row: str  # "skip" or "raise"
    every: int  # events of a round, a multiple of the chunk size

    @property
    def timed(self) -> bool:
        """Whether masses fade by event times."""
        return self.config.clock != POSITION


@dataclass(frozen=True, slots=True, eq=False)
class PartitionCheckpoint:
    """A partition between two rounds."""

    covering: Covering
    offset: int  # rows of the partition that were taken, learned or rejected
    done: bool  # whether it has no others
    damage: str | None  # why it could not be read to its end
    fingerprint: dict[str, int]  # of the rows that were taken
    # What metrics have learned; None without.
    training: LabelledStream | None = field(default=None, metadata=SAVED_IF_SET)

    def pack(self) -> bytes:
        """As bytes with a checksum."""
        arrays, header = codec.pack(self)
        return archive.seal(archive.to_table(arrays), KIND, header)

    @classmethod
    def unpack(cls, data: bytes, agreement: Agreement) -> PartitionCheckpoint:
        """What `pack` gave, with its points scaled; DamagedFileError for anything else."""
        table, header = archive.unseal(data, KIND, "a checkpoint of the run")
        with archive.raise_damaged("a checkpoint of the run", KIND):
            checkpoint: PartitionCheckpoint = codec.unpack(
                cls, archive.unpack(table), header, STATES
            )
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
    part: Partition, settings: PartitionSettings, agreement: Agreement, data: bytes | None
) -> RoundResult:
    """Learn the next round of a partition, or what is left of it.

    Parameters
    ----------
    data
        The checkpoint of the round before, packed; None before the first.

    Raises
    ------
    BadRowError
        Under "raise", at the first row that cannot be learned.
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
    if rejected and settings.on_bad_row == "raise":
        row, why = rejected[0]
        raise BadRowError(
            f"row {row} of partition {part.number} of the log cannot be learned ({why}): "
            "fix the log, or reject such rows with on_bad_row='skip'",
            ((row, why),),
        )
    checkpoint = PartitionCheckpoint(
        learned, events.offset, events.done, events.damage, events.read_fingerprint(), training
    )
    packed, position = checkpoint.pack(), learned.position
    return RoundResult(part.number, packed, position, events.done, events.damage, rejected)


def check_learned(part: Partition, data: bytes, agreement: Agreement, run: Path) -> int:
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
    while learned.position < until and not events.done:
        wanted = config.chunks.size - learned.position % config.chunks.size
        points, times, labels = events.take(wanted)
        if len(points):
            learned = covering.update(
                learned, points, scaling, config.size, config.half_life, times
            )
            if training is not None:
                training = labelled_stream.update(training, config.metrics, points, labels)
    events.read_batch()  # so that no round comes after the last event
    return learned, training


def read_first_events(part: Partition, count: int) -> Floats:
    """The first ``count`` rows of a partition that may be events, (n, d); fewer if it ends."""
    anywhere = np.ones(len(part.log.feature_names))
    batches, n_rows = [np.zeros((0, len(anywhere)))], 0
    try:
        for rows in part.batches(0):
            batches.append(_read_rows(part, rows, anywhere)[0].points)
            n_rows += len(batches[-1])
            if n_rows >= count:
                break
    except LogError:
        pass  # learning it notes the damage
    return np.concatenate(batches)[:count]


def _read_rows(
    part: Partition, rows: LogBatch, scale: Floats
) -> tuple[EventRows, deque[tuple[int, str]]]:
    """The rows of a batch that may be events of a partition, and those that never can, and why.

    Their numbers are those in the partition. Divided by ``scale``, (d,), points can be squared.
    """
    events, rejected = read_points(rows, part.log.features, part.log.feature_names)
    end = part.count_end(rows)
    events = events.slice(0, int(np.searchsorted(events.numbers, end)))
    events = replace(events, numbers=events.numbers - part.start)
    bad = [(row.index - part.start, row.reason) for row in rejected if row.index < end]
    limit = np.minimum(scale, 1.0) * LARGEST_VALUE
    far = np.flatnonzero((np.abs(events.points) > limit).any(axis=1))
    bad += [(number, "too far from the first events") for number in events.numbers[far].tolist()]
    return events.drop(far.tolist()), deque(sorted(bad))


class _EventReader:
    """Reads the events of a partition from a checkpoint on, and rejects the rows between them."""

    def __init__(
        self,
        part: Partition,
        settings: PartitionSettings,
        agreement: Agreement,
        start: PartitionCheckpoint,
    ) -> None:
        self._part, self._settings, self._scale = part, settings, agreement.scaling().scale
        self.offset, self.done, self.damage = start.offset, start.done, start.damage
        self.rejected: list[tuple[int, str]] = []  # rows of the partition, and why
        self._newest = start.covering.time if start.covering.position else None
        self._source: Iterator[LogBatch] = part.batches(start.offset)
        # the newest batch, its events, of which the first are taken, and its bad rows
        self._batch: LogBatch | None = None
        self._rows: EventRows | None = None
        self._bad = deque[tuple[int, str]]()
        self._fingerprint = LogFingerprint.from_dict(start.fingerprint)
        self._taken = 0

    def take(self, wanted: int) -> tuple[Floats, Floats | None, list[Label | None]]:
        """The next ``wanted`` events, fewer at the end; times and labels, where these count."""
        labels: list[Label | None] = []
        points, times = [np.zeros((0, len(self._part.log.feature_names)))], [np.zeros(0)]
        while wanted and self.read_batch():
            assert self._rows is not None
            rows = self._rows.slice(self._taken, min(len(self._rows), self._taken + wanted))
            self._taken += len(rows)
            end = int(rows.numbers[-1]) + 1
            if self._settings.timed:
                row_times = read_times(rows.passthrough["event_time"], len(rows))
                late_rows = find_late(row_times, self._newest, self._settings.config.max_skew)
                late = [i for i, _ in late_rows]
                self.rejected += [(int(rows.numbers[i]), why) for i, why in late_rows]
                rows, row_times = rows.drop(late), np.delete(row_times, late)
                times.append(row_times)
                if len(row_times):
                    newest = float(row_times.max())
                    self._newest = newest if self._newest is None else max(self._newest, newest)
            points.append(rows.points)
            if self._settings.config.metrics:
                labels += rows.passthrough["label"].to_pylist()
            wanted -= len(rows)
            self._advance_to(end)
        joined: Floats = np.concatenate(points)
        return joined, np.concatenate(times) if self._settings.timed else None, labels

    def read_batch(self) -> bool:
        """Have rows at hand that were not taken; False at the end of the partition."""
        while not self.done and (self._rows is None or self._taken == len(self._rows)):
            self._advance_to(None)  # what was bad behind its last row
            self.read_fingerprint()
            try:
                batch = next(self._source, None)
            except LogError as error:
                self.damage, batch = str(error), None
            if batch is None:
                self.done = True
                break
            self._rows, self._bad = _read_rows(self._part, batch, self._scale)
            self._batch, self._taken = batch, 0
        return not self.done

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
