"""The root: the newest checkpoint of every partition, and the map of all of them, round by round.

All that it knows is in the database of the run: whoever opens that goes on where it stood. A round
is published once every partition has come to it, or to its end; what is published is a function of
these checkpoints and of the snapshot before, and so of the log alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import DegenerateMapWarning, ResolutionWarning
from streamembed.merging import merged_set
from streamembed.merging.agreement import Agreement
from streamembed.merging.landmark_set import LandmarkSet, of_covering
from streamembed.methods.options import Config
from streamembed.runs.checkpoint_writer import MERGED, PARTITION, SNAPSHOTS, packed
from streamembed.runs.partition_learner import Checkpoint
from streamembed.runs.recorder import timeline_of
from streamembed.runs.worker_process import Progressed
from streamembed.storage.database import Database, thinned

__all__ = ["REJECTED", "Root"]

# Facts of the database.
AGREEMENT, PUBLISHED = "agreement", "published"
REJECTED = pa.schema([("partition", pa.int64()), ("offset", pa.int64()), ("reason", pa.string())])
# Of the parameters of an engine, what a merged set has settled.
SETTLED = ("memory", "half_life", "clock", "size")


def chain_of(partition: int) -> str:
    """The chain of the checkpoints of a partition: record r - 1 is that of round r."""
    return f"{PARTITION}{partition:05d}"


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a partition is: its last round that is committed, and whether it was its last."""

    round: int
    done: bool


class Root:
    """Keeps what partitions send, and publishes.

    Parameters
    ----------
    database
        Of the run.
    config
    partitions
        How many there are.
    """

    def __init__(self, database: Database, config: Config, partitions: int) -> None:
        self._database = database
        self._config = config
        self.published = int(database.fact(PUBLISHED, {"round": 0})["round"])
        told = database.fact(AGREEMENT)
        self.agreement = None if told is None else Agreement.from_dict(told)
        ends = database.fact("ends", {})
        self._standing = [
            Standing(database.length(chain_of(one)), str(one) in ends) for one in range(partitions)
        ]

    def agree(self, agreement: Agreement) -> None:
        """What all sets have in common, once and for all."""
        with self._database.commit():
            self._database.note(AGREEMENT, agreement.as_dict())
        self.agreement = agreement

    def saved(self) -> dict[int, tuple[int, bytes | None]]:
        """Of each partition its last round that is committed, and its checkpoint."""
        found: dict[int, tuple[int, bytes | None]] = {}
        for one, standing in enumerate(self._standing):
            data = None
            if standing.round:
                data = self._database.read(chain_of(one), standing.round - 1).data
            found[one] = standing.round, data
        return found

    def take(self, told: Progressed) -> None:
        """Commit a checkpoint, with the rows that were rejected; a known one changes nothing.

        Raises
        ------
        ValueError
            A round was left out: whoever places partitions is to hand theirs on in order.
        """
        standing = self._standing[told.partition]
        if told.round <= standing.round:
            return
        if told.round > standing.round + 1:
            raise ValueError(
                f"partition {told.partition} told of round {told.round} after {standing.round}"
            )
        database = self._database
        with database.commit():
            database.append(chain_of(told.partition), told.position, 0, told.data)
            if told.rejected:
                rows, why = zip(*told.rejected, strict=True)
                which = [told.partition] * len(rows)
                table = pa.table([which, list(rows), list(why)], schema=REJECTED)
                database.append("rejected", 0, len(rows), packed(table))
            if told.done:
                ends = database.fact("ends", {})
                database.note("ends", {**ends, str(told.partition): told.round})
        self._standing[told.partition] = Standing(told.round, told.done)

    @property
    def is_due(self) -> bool:
        """Whether every partition has come to the next round, and not all had ended before it."""
        coming = self.published + 1
        ready = all(one.done or one.round >= coming for one in self._standing)
        return ready and any(one.round >= coming for one in self._standing)

    def publish(self) -> Snapshot | None:
        """The map of the next round, committed; None where there are too few events for one."""
        coming, database = self.published + 1, self._database
        sets = self._sets(coming)
        before = self.snapshot()
        found = self._merge(sets)
        enough = len(found) >= self._config.n_components + 2
        events = sum(found.positions.values())
        ready = enough and events >= self._config.warm_up_events
        snapshot = None
        gone = []
        with database.commit():
            if ready:
                engine = self._engine_of(found, before)
                snapshot = engine.publish()
                table = timeline_of(snapshot, engine)
                count = len(found.positions)
                table = table.append_column("round", pa.array([coming]))
                ended = sum(one.done and one.round < coming for one in self._standing)
                table = table.append_column("partitions", pa.array([count]))
                table = table.append_column("ended", pa.array([ended]))
                database.append("timeline", events, 1, packed(table))
                database.append(SNAPSHOTS, events, len(snapshot.ids), snapshot.to_bytes())
                gone += database.keep_only(SNAPSHOTS, thinned(database.length(SNAPSHOTS)))
                number = database.append(MERGED, events, len(found), found.to_bytes())
                gone += database.keep_only(MERGED, {number})
            database.note(PUBLISHED, {"round": coming})
            for one, standing in enumerate(self._standing):
                needed = range(min(coming, standing.round) - 1, standing.round)
                gone += database.keep_only(chain_of(one), set(needed))
        for path in gone:
            path.unlink(missing_ok=True)
        self.published = coming
        return snapshot

    def _sets(self, count: int) -> list[LandmarkSet]:
        """The landmarks of every partition as of a round, or of its end."""
        agreement, size = self.agreement, self._config.size
        assert agreement is not None
        found = []
        for one, standing in enumerate(self._standing):
            data = self._database.read(chain_of(one), min(count, standing.round) - 1).data
            kept = Checkpoint.unpack(data, agreement).covering
            found.append(of_covering(kept, agreement, one, size))
        return found

    def _merge(self, sets: Sequence[LandmarkSet]) -> LandmarkSet:
        """All as one; few of them with the landmarks of the round before where these fit."""
        before = self.merged()
        keep = None if before is None else before.keys
        return merged_set.merged(list(sets), self._config.size, keep)

    def _engine_of(self, found: LandmarkSet, before: Snapshot | None) -> Engine:
        told = self._config.as_dict()
        parameters = {name: value for name, value in told.items() if name not in SETTLED}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResolutionWarning)
            warnings.simplefilter("ignore", DegenerateMapWarning)
            return Engine.of_landmarks(found, before, **parameters)

    def ends(self) -> tuple[int, dict[int, str]]:
        """Events of all partitions, and of those that are damaged, why."""
        events, damages = 0, {}
        assert self.agreement is not None
        for one, (_, data) in self.saved().items():
            if data is None:
                continue
            kept = Checkpoint.unpack(data, self.agreement)
            events += kept.covering.position
            if kept.damage is not None:
                damages[one] = kept.damage
        return events, damages

    def engine(self) -> Engine | None:
        """The engine of the last round; None before the first."""
        found = self.merged()
        return None if found is None else self._engine_of(found, self.snapshot(before=1))

    def merged(self) -> LandmarkSet | None:
        """The landmarks of the last round; None before the first."""
        length = self._database.length(MERGED)
        if not length:
            return None
        return LandmarkSet.from_bytes(self._database.read(MERGED, length - 1).data)

    def snapshot(self, before: int = 0) -> Snapshot | None:
        """The map of the last round, or the one before, as whoever opens the run reads it."""
        number = self._database.length(SNAPSHOTS) - 1 - before
        if number < 0:
            return None
        return Snapshot.from_bytes(self._database.read(SNAPSHOTS, number).data)
