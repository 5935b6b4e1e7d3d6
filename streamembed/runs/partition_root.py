"""The root: the newest checkpoint of every partition, and the map of all of them, round by round.

All its state is in the database of the run: a root that opens it resumes there. A round
is published once every partition has come to it, or to its end; what is published is a function of
these checkpoints and of the snapshot before, and so of the log alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import itemgetter, or_
from typing import Any

import pyarrow as pa

from streamembed.data.features import Features
from streamembed.engine.engine import Engine
from streamembed.errors import DegenerateMapWarning, ResolutionWarning, format_count
from streamembed.merging import labelled_stream, merged_set
from streamembed.merging.agreement import MergeSettings
from streamembed.merging.labelled_stream import LabelledStream
from streamembed.merging.landmark_set import LandmarkSet, from_covering
from streamembed.methods.options import Config
from streamembed.runs import chains
from streamembed.runs.executor import Executor
from streamembed.runs.origin import select_free_parameters
from streamembed.runs.partition import (
    Partition,
    PartitionCheckpoint,
    check_learned,
    compute_merge_settings,
    learn_round,
    sample_first_events,
)
from streamembed.runs.recorder import build_timeline_row, build_timeline_schema
from streamembed.runs.run_store import (
    Commit,
    RowCounts,
    RunStore,
    append_object,
    load_newest,
    to_ipc_bytes,
)
from streamembed.runs.run_tables import write_tables
from streamembed.storage.database import Database
from streamembed.threads import one_blas_thread

# Facts of the database.
AGREEMENT, PUBLISHED = "agreement", "published"
REJECTED_SCHEMA = pa.schema(
    [("partition", pa.int64()), ("offset", pa.int64()), ("reason", pa.string())]
)
LANDMARKS = "landmarks.arrow"
# Rounds that an executor has at once: the next of a worker waits while it learns one.
TASKS_PER_WORKER = 2
# Rounds that a partition may be ahead of the last published one; bounds the pending checkpoints.
MAX_ROUNDS_AHEAD = 2


def name_chain(partition: int) -> str:
    """The chain of the checkpoints of a partition, one for each of its rounds."""
    return f"{chains.PARTITION}{partition:05d}"


def build_rounds_schema(config: Config) -> Any:
    """Columns of the timeline: those of any run, and of the round."""
    schema = build_timeline_schema(config.n_components, picture=False)
    for name in ("round", "partitions", "ended"):
        schema = schema.append(pa.field(name, pa.int64()))
    return schema


def count_learned(database: Database) -> int:
    """Events learned of all partitions of a run, as far as they are committed."""
    count = len(database.read_fact(chains.ORIGIN, {}).get("partitions", []))
    records = (database.list_records(name_chain(number)) for number in range(count))
    return sum(numbers[-1][1] for numbers in records if numbers)


@dataclass(eq=False)
class PartitionRoot:
    """Has partitions learned from where the run stands, commits them, and publishes rounds."""

    store: RunStore
    config: Config
    every: int  # events of a round
    parts: Sequence[Partition]
    report: Callable[[int], None]

    def __post_init__(self) -> None:
        self.database = database = self.store.database
        self.published = int(database.read_fact(PUBLISHED, {"round": 0})["round"])
        agreement = database.read_fact(AGREEMENT)
        self.agreement = None if agreement is None else MergeSettings.from_dict(agreement)
        # of each partition: rounds as far as they are committed
        self.rounds = [database.count_records(name_chain(part.number)) for part in self.parts]
        # of those that have ended: why they could not be read to their end, None where they were
        self.ends: dict[int, str | None] = {}
        for part in self.parts:
            if (data := self.read_newest(part.number)) is not None:
                self._note_end(part.number, PartitionCheckpoint.from_bytes(data))

    def run(self, features: Features, executor: Executor) -> tuple[int, RowCounts]:
        """Learn what is not learned yet, and write the files, unless they are there.

        Returns
        -------
        rows
            Rows that earlier calls had taken.
        counts
            Those of the run.
        """
        self._report()
        rows = self._check_rows(executor)
        if (final := self.store.load_final()) is not None:
            return rows, final.counts
        self._learn(features, executor)
        return rows, self._finish()

    def _report(self) -> None:
        events, rounds = count_learned(self.database), format_count(self.published, "round")
        self.store.set_interrupt_message(events, rounds)
        self.report(events)

    def _check_rows(self, executor: Executor) -> int:
        """How many rows were taken; ParameterError where the log has others in their place."""
        folder, count = self.store.folder, 0
        for part in self.parts:
            data = self.read_newest(part.number)
            if data is not None and self.agreement is not None:
                executor.submit(partial(check_learned, part, data, self.agreement, folder))
                count += 1
        return sum(executor.receive() for _ in range(count))

    def _fix_merge_settings(self, features: Features, executor: Executor) -> MergeSettings:
        """Fix what partitions agree on, from their first rows; fixed once a round is committed."""
        if self.agreement is None or not any(self.rounds):
            for part in self.parts:
                executor.submit(partial(sample_first_events, part, self.config))
            samples = sorted((executor.receive() for _ in self.parts), key=itemgetter(0))
            pairs = [(ranks, points) for _, ranks, points in samples]
            self.agreement = compute_merge_settings(pairs, self.config, features)
            self.store.write_fact(AGREEMENT, self.agreement.as_dict())
        return self.agreement

    def _learn(self, features: Features, executor: Executor) -> None:
        """All rounds that are not learned yet."""
        agreement = self._fix_merge_settings(features, executor)
        running: set[int] = set()
        while True:
            for number in self.list_due():
                if number not in running and len(running) < TASKS_PER_WORKER * executor.workers:
                    running.add(number)
                    part, data = self.parts[number], self.read_newest(number)
                    executor.submit(
                        partial(learn_round, part, self.config, self.every, agreement, data)
                    )
            if self.is_due:  # while workers learn the next
                self.publish()
            elif running:
                number, data, rejected = executor.receive()
                running.remove(number)
                self.commit_round(number, data, rejected)
                self._report()
            else:
                return

    def _finish(self) -> RowCounts:
        """Write the files, and commit that the run is whole."""
        store = self.store
        self.database.check_not_replaced()
        order = [("partition", "ascending"), ("offset", "ascending")]
        rejected = pa.concat_tables([REJECTED_SCHEMA.empty_table(), *store.read("rejected")])
        rejected, schema = rejected.sort_by(order), build_rounds_schema(self.config)
        write_tables(store.folder / "timeline.parquet", schema, store.read("timeline"))
        write_tables(store.folder / "rejected.parquet", REJECTED_SCHEMA, [rejected])
        snapshot, merged = (
            load_newest(self.database, chain) for chain in (chains.SNAPSHOTS, chains.MERGED)
        )
        if snapshot is not None:
            snapshot.save(store.folder / "snapshot.arrow")
            merged.save(store.folder / LANDMARKS)
        rounds = self.database.count_records("timeline")
        counts = RowCounts(count_learned(self.database), rejected.num_rows, rounds)
        engine = load_newest(self.database, chains.CHECKPOINTS)
        engine = engine or Engine(**self.config.as_dict())
        taken = {"rows": counts.accepted + counts.rejected}
        store.finish(Commit(engine, counts, taken), self.describe_damage())
        return counts

    def list_due(self) -> list[int]:
        """Partitions of which a round may be learned now, those that are behind first."""
        limit = self.published + MAX_ROUNDS_AHEAD
        order = sorted(range(len(self.rounds)), key=self.rounds.__getitem__)
        return [i for i in order if self.rounds[i] < limit and i not in self.ends]

    def read_newest(self, partition: int) -> bytes | None:
        """The newest checkpoint of a partition; None before its first round."""
        rounds = self.rounds[partition]
        return self.database.read(name_chain(partition), rounds - 1).data if rounds else None

    def commit_round(self, partition: int, data: bytes, rejected: list[tuple[int, str]]) -> None:
        """Commit the next checkpoint of a partition, with the rows that were rejected."""
        checkpoint, database = PartitionCheckpoint.from_bytes(data), self.database
        with database.commit():
            database.append(name_chain(partition), checkpoint.covering.position, data)
            if rejected:
                rows, why = zip(*rejected, strict=True)
                columns = [[partition] * len(rows), list(rows), list(why)]
                table = pa.table(columns, schema=REJECTED_SCHEMA)
                database.append("rejected", 0, to_ipc_bytes(table))
        self.rounds[partition] += 1
        self._note_end(partition, checkpoint)

    def _note_end(self, partition: int, checkpoint: PartitionCheckpoint) -> None:
        if checkpoint.done:
            self.ends[partition] = checkpoint.damage

    @property
    def is_due(self) -> bool:
        """Whether every partition has come to the next round, and not all had ended before it."""
        is_there = [rounds > self.published for rounds in self.rounds]
        has_ended = [number in self.ends for number in range(len(self.rounds))]
        return any(is_there) and all(map(or_, is_there, has_ended))

    def publish(self) -> None:
        """Commit the map of the next round, unless there are too few events for one."""
        coming, database = self.published + 1, self.database
        sets, training = self._read_round(coming)
        before = load_newest(database, chains.SNAPSHOTS)
        previous = load_newest(
            database, chains.MERGED
        )  # whose landmarks are reused where these fit
        keep = None if previous is None else previous.keys
        merged = merged_set.merge_disjoint(sets, self.config.size, keep)
        enough = len(merged) >= self.config.n_components + 2
        events = sum(merged.positions.values())
        with database.commit():
            if enough and events >= self.config.warm_up_events:
                own = select_free_parameters(self.config)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ResolutionWarning)
                    warnings.simplefilter("ignore", DegenerateMapWarning)
                    engine = Engine.of_landmarks(merged, before, training, **own)
                snapshot = engine.publish(fresh=True)
                row = build_timeline_row(
                    snapshot,
                    engine.refreshes,
                    build_rounds_schema(self.config),
                    round=coming,
                    partitions=len(merged.positions),
                    ended=sum(rounds < coming for rounds in self.rounds),
                )
                database.append("timeline", events, to_ipc_bytes(row))
                append_object(database, chains.CHECKPOINTS, engine, events)
                append_object(database, chains.SNAPSHOTS, snapshot, events)
                append_object(database, chains.MERGED, merged, events)
            database.write_fact(PUBLISHED, {"round": coming})
            for partition, rounds in enumerate(self.rounds):
                needed = range(min(coming, rounds) - 1, rounds)
                database.keep_only(name_chain(partition), set(needed))
        self.published = coming

    def _read_round(self, count: int) -> tuple[list[LandmarkSet], LabelledStream | None]:
        """Of all partitions at the end of a round: landmarks, and what metrics have learned."""
        agreement, size = self.agreement, self.config.size
        assert agreement is not None
        sets, parts = [], []
        for partition, rounds in enumerate(self.rounds):
            data = self.database.read(name_chain(partition), min(count, rounds) - 1).data
            checkpoint = PartitionCheckpoint.unpack(data, agreement)
            sets.append(from_covering(checkpoint.covering, agreement, partition, size))
            if checkpoint.training is not None:
                parts.append(checkpoint.training)
        names = self.config.metrics
        if not parts:
            return sets, None
        with one_blas_thread():
            merged = reduce(lambda one, two: labelled_stream.merge(one, two, names), parts)
            return sets, labelled_stream.flush(merged, names)

    def describe_damage(self) -> str | None:
        """Why partitions could not be read to their end; None if all were."""
        damages = sorted(self.ends.items())
        text = "; ".join(f"partition {number}: {why}" for number, why in damages if why is not None)
        return text or None
