"""The learner of one partition: takes the cover of a worker through its rows, and nothing else.

What is learned is a function of the rows of the partition, the agreement and the parameters: chunks
end at multiples of the chunk size, and a checkpoint holds all that resuming needs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from streamembed.data import batch
from streamembed.data.times import find_late, read_times
from streamembed.errors import BadRowError, LogError
from streamembed.landmarks import covering
from streamembed.landmarks.covering import Covering
from streamembed.logs.event_log import LogBatch
from streamembed.merging.agreement import Agreement
from streamembed.methods.options import POSITION, Config
from streamembed.numeric import codec
from streamembed.numeric.arrays import LARGEST_VALUE, Floats, Ints
from streamembed.runs.partition_plan import Partition
from streamembed.storage import archive

KIND = "partition"


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """The parameters of a worker."""

    config: Config  # of the engine
    on_bad_row: str  # "skip" or "raise"
    every: int  # events between two rounds

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

    def pack(self) -> bytes:
        """As bytes with a checksum."""
        arrays, header = codec.pack(self)
        return archive.seal(archive.to_table(arrays), KIND, header)

    @classmethod
    def unpack(cls, data: bytes, agreement: Agreement) -> PartitionCheckpoint:
        """What `pack` gave, with its points scaled; DamagedFileError for anything else."""
        table, header = archive.unseal(data, KIND, "a checkpoint of the run")
        with archive.raise_damaged("a checkpoint of the run", KIND):
            checkpoint: PartitionCheckpoint = codec.unpack(cls, archive.unpack(table), header)
            support = checkpoint.covering.support
            support = replace(support, scaled=agreement.scaling().apply(support.points))
        return replace(checkpoint, covering=replace(checkpoint.covering, support=support))

    @classmethod
    def create(cls, n_features: int) -> PartitionCheckpoint:
        """Of a partition of which nothing was taken."""
        return cls(covering.init(n_features), 0, False, None)


@dataclass(slots=True)
class _CheckedRows:
    """Checked rows of a batch: those that may be events, and those that never can."""

    numbers: Ints  # rows of the partition, ascending
    points: Floats
    times: Floats | None
    bad: deque[tuple[int, str]]


def _check_rows(part: Partition, rows: LogBatch, timed: bool) -> _CheckedRows:
    """The rows of a batch that belong to a partition."""
    n = len(rows) if part.stop is None else min(len(rows), part.stop - rows.offset)
    faults = {at: why for at, why in rows.faults.items() if at < n}
    nulls = rows.nulls[:n]
    read = batch.check_table(rows.points[:n], part.log.features, nulls, faults, None, "skip")
    first = rows.offset - part.start
    times = None
    if timed:
        times = read_times(rows.event_times, len(rows))[read.kept]
    bad = deque((first + row.index, row.reason) for row in read.rejected)
    return _CheckedRows(first + read.kept, read.points, times, bad)


def _reject_far_rows(rows: _CheckedRows, scale: Floats) -> _CheckedRows:
    """Without rows that are beyond what can be squared, where they are scaled."""
    limit = np.minimum(scale, 1.0) * LARGEST_VALUE
    if (np.abs(rows.points).max(axis=0, initial=0.0) <= limit).all():
        return rows
    near = (np.abs(rows.points) <= limit).all(axis=1)
    far = [(int(number), "too far from the first events") for number in rows.numbers[~near]]
    times = None if rows.times is None else rows.times[near]
    return _CheckedRows(
        rows.numbers[near], rows.points[near], times, deque(sorted([*rows.bad, *far]))
    )


def read_first_events(part: Partition, timed: bool, count: int) -> Floats:
    """The first ``count`` rows of a partition that may be events, (n, d); fewer if it ends."""
    batches, n_rows = [np.zeros((0, len(part.log.feature_names)))], 0
    try:
        for rows in part.batches(0):
            batches.append(_check_rows(part, rows, timed).points)
            n_rows += len(batches[-1])
            if n_rows >= count:
                break
    except LogError:
        pass  # the learner raises it
    return np.concatenate(batches)[:count]


class PartitionLearner:
    """Takes a partition from one checkpoint to the next."""

    def __init__(
        self,
        part: Partition,
        settings: PartitionSettings,
        agreement: Agreement,
        saved: PartitionCheckpoint,
    ) -> None:
        self._part = part
        self._settings = settings
        self._scaling = agreement.scaling()
        self._covering, self._offset = saved.covering, saved.offset
        self._done, self._damage = saved.done, saved.damage
        self._newest = saved.covering.time if saved.covering.position else None
        self._source: Iterator[LogBatch] = part.batches(saved.offset)
        self._rows: _CheckedRows | None = None  # of which the first are taken
        self._taken = 0

    def advance(self, until: int) -> tuple[PartitionCheckpoint, list[tuple[int, str]]]:
        """Learn up to a position, a multiple of the chunk size, or to the end of the partition.

        Returns
        -------
        The checkpoint, and the rows that were rejected, as (row of the partition, reason).

        Raises
        ------
        BadRowError
            Under "raise", at the first row that cannot be learned.
        """
        rejected: list[tuple[int, str]] = []
        settings, config = self._settings, self._settings.config
        while not self._done and self._covering.position < until:
            position = self._covering.position
            wanted = (position // config.chunks.size + 1) * config.chunks.size - position
            points, times = self._take(wanted, rejected)
            if len(points):
                self._covering = covering.update(
                    self._covering, points, self._scaling, config.size, config.half_life, times
                )
        if self._covering.position == until:  # so that no round comes after the last event
            self._read_rows(rejected)
        rejected.sort()
        if rejected and settings.on_bad_row == "raise":
            row, why = rejected[0]
            raise BadRowError(
                f"row {row} of partition {self._part.number} of the log cannot be learned ({why}): "
                "fix the log, or reject such rows with on_bad_row='skip'",
                ((row, why),),
            )
        return PartitionCheckpoint(self._covering, self._offset, self._done, self._damage), rejected

    def _take(self, wanted: int, rejected: list[tuple[int, str]]) -> tuple[Floats, Floats | None]:
        """The next ``wanted`` events; fewer at the end."""
        points, times = [np.zeros((0, len(self._part.log.feature_names)))], [np.zeros(0)]
        while wanted and self._read_rows(rejected):
            rows = self._rows
            assert rows is not None
            start, stop = self._taken, min(len(rows.numbers), self._taken + wanted)
            selected = slice(start, stop)
            usable = np.ones(stop - start, dtype=bool)
            if rows.times is not None:
                late_rows = find_late(
                    rows.times[selected], self._newest, self._settings.config.max_skew
                )
                usable[[i for i, _ in late_rows]] = False
                rejected += [(int(rows.numbers[start + i]), why) for i, why in late_rows]
                usable_times = rows.times[selected][usable]
                times.append(usable_times)
                if len(usable_times):
                    newest = float(usable_times.max())
                    self._newest = newest if self._newest is None else max(self._newest, newest)
            points.append(rows.points[selected][usable])
            wanted -= int(usable.sum())
            self._taken = stop
            self._collect_rejected(int(rows.numbers[stop - 1]) + 1, rows, rejected)
        joined: Floats = np.concatenate(points)
        return joined, np.concatenate(times) if self._settings.timed else None

    def _read_rows(self, rejected: list[tuple[int, str]]) -> bool:
        """Have rows at hand that were not taken; False at the end of the partition."""
        while self._rows is None or self._taken == len(self._rows.numbers):
            if self._rows is not None:  # what was bad behind its last row
                self._collect_rejected(None, self._rows, rejected)
            try:
                rows = next(self._source, None)
            except LogError as error:
                self._damage, rows = str(error), None
            if rows is None:
                self._done, self._rows = True, None
                return False
            read = _check_rows(self._part, rows, self._settings.timed)
            self._rows, self._taken = _reject_far_rows(read, self._scaling.scale), 0
        return True

    def _collect_rejected(
        self, row: int | None, rows: _CheckedRows, rejected: list[tuple[int, str]]
    ) -> None:
        """Rows before that one are taken, None for the whole batch: collect the bad ones."""
        while rows.bad and (row is None or rows.bad[0][0] < row):
            number, why = rows.bad.popleft()
            rejected.append((number, why))
            self._offset = max(self._offset, number + 1)
        if row is not None:
            self._offset = max(self._offset, row)
