"""The root: the newest checkpoint of every partition, and the map of all of them, round by round.

All its state is in the database of the run: a root that opens it resumes there. A round
is published once every partition has come to it, or to its end; what is published is a function of
these checkpoints and of the snapshot before, and so of the log alone.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import pyarrow as pa

from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import DegenerateMapWarning, ResolutionWarning
from streamembed.merging import merged_set
from streamembed.merging.agreement import Agreement
from streamembed.merging.landmark_set import LandmarkSet, from_covering
from streamembed.methods.options import Config
from streamembed.runs.partition_learner import PartitionCheckpoint
from streamembed.runs.recorder import build_timeline_row
from streamembed.runs.run_store import (
    MERGED,
    PARTITION,
    SNAPSHOTS,
    append_snapshot,
    to_ipc_bytes,
)
from streamembed.runs.worker_process import RoundResult
from streamembed.storage.database import Database

# Facts of the database.
AGREEMENT, PUBLISHED = "agreement", "published"
REJECTED_SCHEMA = pa.schema(
    [("partition", pa.int64()), ("offset", pa.int64()), ("reason", pa.string())]
)
# Parameters of an engine that a merged set determines.
MERGED_PARAMETERS = ("memory", "half_life", "clock", "size")


def name_chain(partition: int) -> str:
    """The chain of the checkpoints of a partition: record r - 1 is that of round r."""
    return f"{PARTITION}{partition:05d}"


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """How far a partition is: its last round that is committed, and whether it was its last."""

    round: int
    done: bool


class PartitionRoot:
    """Commits the checkpoints of so many partitions, and publishes rounds."""

    def __init__(self, database: Database, config: Config, partitions: int) -> None:
        self._database = database
        self._config = config
        self.published = int(database.read_fact(PUBLISHED, {"round": 0})["round"])
        agreement = database.read_fact(AGREEMENT)
        self.agreement = None if agreement is None else Agreement.from_dict(agreement)
        ends = database.read_fact("ends", {})
        self._progress = [
            PartitionProgress(database.count_records(name_chain(partition)), str(partition) in ends)
            for partition in range(partitions)
        ]

    def set_agreement(self, agreement: Agreement) -> None:
        """Commit what all sets have in common; once per run."""
        with self._database.commit():
            self._database.write_fact(AGREEMENT, agreement.as_dict())
        self.agreement = agreement

    def read_saved(self) -> dict[int, tuple[int, bytes | None]]:
        """Of each partition its last round that is committed, and its checkpoint."""
        saved: dict[int, tuple[int, bytes | None]] = {}
        for partition, progress in enumerate(self._progress):
            data = None
            if progress.round:
                data = self._database.read(name_chain(partition), progress.round - 1).data
            saved[partition] = progress.round, data
        return saved

    def commit_round(self, result: RoundResult) -> None:
        """Commit a checkpoint, with the rows that were rejected; a known one changes nothing.

        Raises
        ------
        ValueError
            A round was skipped: an executor must deliver the rounds of a partition in order.
        """
        progress = self._progress[result.partition]
        if result.round <= progress.round:
            return
        if result.round > progress.round + 1:
            raise ValueError(
                f"partition {result.partition} sent round {result.round} after {progress.round}"
            )
        database = self._database
        with database.commit():
            database.append(name_chain(result.partition), result.position, 0, result.data)
            if result.rejected:
                rows, why = zip(*result.rejected, strict=True)
                partition_column = [result.partition] * len(rows)
                table = pa.table([partition_column, list(rows), list(why)], schema=REJECTED_SCHEMA)
                database.append("rejected", 0, len(rows), to_ipc_bytes(table))
            if result.done:
                ends = database.read_fact("ends", {})
                database.write_fact("ends", {**ends, str(result.partition): result.round})
        self._progress[result.partition] = PartitionProgress(result.round, result.done)

    @property
    def is_due(self) -> bool:
        """Whether every partition has come to the next round, and not all had ended before it."""
        coming = self.published + 1
        ready = all(progress.done or progress.round >= coming for progress in self._progress)
        return ready and any(progress.round >= coming for progress in self._progress)

    def publish(self) -> Snapshot | None:
        """The map of the next round, committed; None where there are too few events for one."""
        coming, database = self.published + 1, self._database
        sets = self._read_sets(coming)
        before = self.snapshot()
        previous = self.read_merged()  # whose landmarks are reused where these fit
        keep = None if previous is None else previous.keys
        merged = merged_set.merge_disjoint(sets, self._config.size, keep)
        enough = len(merged) >= self._config.n_components + 2
        events = sum(merged.positions.values())
        ready = enough and events >= self._config.warm_up_events
        snapshot = None
        with database.commit():
            if ready:
                engine = self._build_engine(merged, before)
                snapshot = engine.publish(fresh=True)
                table = build_timeline_row(snapshot, engine)
                count = len(merged.positions)
                ended = sum(each.done and each.round < coming for each in self._progress)
                for name, number in (("round", coming), ("partitions", count), ("ended", ended)):
                    table = table.append_column(name, pa.array([number]))
                database.append("timeline", events, 1, to_ipc_bytes(table))
                append_snapshot(database, snapshot)
                number = database.append(MERGED, events, len(merged), merged.to_bytes())
                database.keep_only(MERGED, {number})
            database.write_fact(PUBLISHED, {"round": coming})
            for partition, progress in enumerate(self._progress):
                needed = range(min(coming, progress.round) - 1, progress.round)
                database.keep_only(name_chain(partition), set(needed))
        self.published = coming
        return snapshot

    def _read_sets(self, count: int) -> list[LandmarkSet]:
        agreement, size = self.agreement, self._config.size
        assert agreement is not None
        sets = []
        for partition, progress in enumerate(self._progress):
            data = self._database.read(name_chain(partition), min(count, progress.round) - 1).data
            covering = PartitionCheckpoint.unpack(data, agreement).covering
            sets.append(from_covering(covering, agreement, partition, size))
        return sets

    def _build_engine(self, merged: LandmarkSet, before: Snapshot | None) -> Engine:
        config = self._config.as_dict()
        parameters = {
            name: value for name, value in config.items() if name not in MERGED_PARAMETERS
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResolutionWarning)
            warnings.simplefilter("ignore", DegenerateMapWarning)
            return Engine.of_landmarks(merged, before, **parameters)

    def count_events(self) -> tuple[int, dict[int, str]]:
        """Events of all partitions, and of those that are damaged, why."""
        events, damages = 0, {}
        assert self.agreement is not None
        for partition, (_, data) in self.read_saved().items():
            if data is None:
                continue
            checkpoint = PartitionCheckpoint.unpack(data, self.agreement)
            events += checkpoint.covering.position
            if checkpoint.damage is not None:
                damages[partition] = checkpoint.damage
        return events, damages

    def engine(self) -> Engine | None:
        """The engine of the last round; None before the first."""
        merged = self.read_merged()
        return None if merged is None else self._build_engine(merged, self.snapshot(before=1))

    def read_merged(self) -> LandmarkSet | None:
        """The landmarks of the last round; None before the first."""
        length = self._database.count_records(MERGED)
        if not length:
            return None
        return LandmarkSet.from_bytes(self._database.read(MERGED, length - 1).data)

    def snapshot(self, before: int = 0) -> Snapshot | None:
        """The map of the last round, or the one before, as a reader of the run sees it."""
        number = self._database.count_records(SNAPSHOTS) - 1 - before
        if number < 0:
            return None
        return Snapshot.from_bytes(self._database.read(SNAPSHOTS, number).data)
