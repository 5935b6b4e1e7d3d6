"""`replay_partitions`: a log learned by several processes, into a run folder.

The folder holds ``snapshot.arrow`` (the final map), ``landmarks.arrow`` (the merged landmarks that
it is of), ``timeline.parquet`` (a row a round) and ``rejected.parquet`` (rows that could not be
learned, by partition and row), and ``run.db``, from which the same call resumes. All of it is a
function of the log's files and of the parameters: neither the number of workers, nor which of them
was killed when, leaves a trace.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamembed.data.column_roles import Columns
from streamembed.data.features import Features
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import FeatureError, ParameterError, check_path, quote
from streamembed.logs.event_log import EventLog, open_with_choice, parse_choice, warn_of_columns
from streamembed.logs.paths import Location, Paths
from streamembed.methods.options import POSITION, Config
from streamembed.runs import origin
from streamembed.runs import run_folder as runfolder
from streamembed.runs.executor import Executor, open_executor
from streamembed.runs.log_replay import check_clock, replay
from streamembed.runs.partition_plan import Partition, check_divisible, divide_log
from streamembed.runs.partition_root import DAMAGES, REJECTED_SCHEMA, PartitionRoot
from streamembed.runs.partition_round import PartitionSettings, learn_round
from streamembed.runs.partition_sample import compute_agreement, sample_first_events
from streamembed.runs.run_store import (
    FINAL,
    ORIGIN,
    PARTITIONS,
    STATE,
    find_file_error,
    read_batches,
)
from streamembed.storage.archive import replace_file
from streamembed.storage.database import Database
from streamembed.validation import check_choice, check_flag, check_whole

LANDMARKS = "landmarks.arrow"
# Events of a partition between two rounds: about a second, where a merge and a map of 1,000 take as
# long: with 8 partitions they are a tenth of the work.
ROUND_EVERY = 262_144
# Rounds that an executor has at once: the next of a worker waits while it learns one.
TASKS_PER_WORKER = 2
# What the timeline says of it: as of any replay, with rounds in the place of snapshots.
TIMELINE_FIELDS = ("version", "engine", "round_every", "on_bad_row", "embed", "log")


@dataclass(frozen=True, slots=True)
class Partitioned:
    """The result of a replay by several workers.

    Attributes
    ----------
    path : Path
        The run folder.
    partitions : int
    rounds : int
        Times that they were merged.
    learned, rejected : int
        Rows that became events, all of them learned; rejected rows.
    snapshot : Snapshot or None
        The final map; None where there were too few events for one.
    damages : dict of int to str
        Partitions that could not be read to their end, and why.
    resumed_at : int
        Rounds that an earlier call had published; 0 for a new run.
    columns : Columns
        What the columns of the log were used for.
    """

    path: Path
    partitions: int
    rounds: int
    learned: int
    rejected: int
    snapshot: Snapshot | None
    damages: dict[int, str]
    resumed_at: int
    columns: Columns


def replay_partitions(
    log: EventLog | Paths,
    run: Location,
    *,
    workers: int = 2,
    round_every: int | None = None,
    features: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    label: str | None = None,
    time: str | None = None,
    on_bad_row: str = "skip",
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
    executor: Callable[[int], AbstractContextManager[Executor]] = open_executor,
    **parameters: Any,
) -> Partitioned:
    """Learn a log in partitions, each in landmarks of its own, and merge them round by round.

    Partitions are the files of the log, in order; of more than 64 files groups of neighbours; of
    one file whose number of rows is known, 8 ranges of rows. The result is the same bytes for any
    number of workers. Repeat the call to resume after whatever ended the previous one; it ends
    with the same files. A round that is lost with its worker is learned again. Partitions are fixed
    once a run has begun: replay files that came later into a run of their own, and merge the two
    (`streamembed merge`).

    Processes are started by spawn: a program calls this under ``if __name__ == "__main__":``.

    Parameters
    ----------
    log
        Files or folders, as for `replay`, of points.
    run
        The folder to create or to resume.
    workers
        Processes, at least 1; with 1 all is done in this one.
    round_every
        Events of each partition between two maps, rounded up to whole chunks; default: 262,144.
    features, exclude, label, time
        As for `replay`. Ids are not used, nor labels without ``metrics``, nor times without a clock
        of theirs: ``Partitioned.columns`` says what is.
    on_bad_row
        "skip" rejects rows that cannot be learned, "raise" stops at the first.
    overwrite
        Replace an older run.
    progress
        Called with the events learned so far: at first with those of earlier calls, or 0, then
        after every round of a partition.
    executor
        Opens what runs the tasks of a number of workers; default: this process, or a pool of
        processes.
    parameters
        Of an engine: ``memory`` is "landmarks", ``method`` "diffusion_map", no picture,
        and with ``half_life`` the clock is "event_time". ``metrics`` learn from the labels of the
        log; those of all partitions are merged.

    Raises
    ------
    ParameterError
        Other parameters, or unknown ones; the folder holds something else, or a run that differs
        (the message says in what).
    FeatureError
        A log of distances, or without the column of times that the clock needs, or of labels that
        metrics need.
    BadRowError
        Under "raise".
    KeyboardInterrupt
        With a note on how much the run holds.
    StoppedError
        A worker dies again and again.
    FileError, LogError
        As for `replay`; a file that is damaged further on ends its partition there.

    Warns
    -----
    ColumnWarning
        As for `replay`.
    """
    policy = check_choice("on_bad_row", on_bad_row, ("raise", "skip"))
    count = check_whole("workers", workers, 1)
    config = _check_config(parameters)
    if label is not None and not config.metrics:
        raise ParameterError(
            f"label={quote(label)} is for metrics, and none is learned: leave it out, or "
            "name some with metrics=[...]"
        )
    if round_every is None:
        round_every = ROUND_EVERY
    every = check_whole("round_every", round_every, 1, " or None")
    every = -(-every // config.chunks.size) * config.chunks.size
    opened = _open_log(log, parse_choice(features, exclude, None, label, time), config)
    if not isinstance(log, EventLog):
        warn_of_columns(opened)
    check_divisible(opened)
    folder = Path(check_path(run, "run"))
    runfolder.check_apart("run", folder, (opened,), folder=True)
    columns = select_columns(opened, config)
    run_origin = _describe_run(opened, columns, config, every, policy)
    with (
        runfolder.lock_folder(run) as folder,
        runfolder.open_database(folder, check_flag("overwrite", overwrite)) as database,
    ):
        parts = divide_log(opened)
        _begin(folder, database, run_origin, parts)
        settings = PartitionSettings(config, policy, every)
        replay = _PartitionReplay(folder, database, settings, parts, progress)
        resumed_at = replay.root.published
        try:
            replay.run(opened.features, partial(executor, min(count, len(parts))))
        except KeyboardInterrupt as error:
            place = "before anything was learned"
            if events := replay.root.count_learned():
                published = replay.root.published
                rounds = f"{published:,} round{'' if published == 1 else 's'}"
                place = f"at {events:,} events; {folder} holds them and {rounds}"
            error.add_note(f"interrupted {place}; repeat the call to resume")
            raise
        return replay.result(columns, resumed_at)


def select_columns(log: EventLog, config: Config) -> Columns:
    """What the columns of a log are used for: ids and labels are not, nor times without a clock."""
    columns = log.columns
    uses = {"ids": columns.id}
    if not config.metrics:
        uses["labels"] = columns.label
    if config.clock == POSITION:
        uses["times"] = columns.time
    unused = {name: f"{use} are not used" for use, name in uses.items() if name is not None}
    left_out = {**columns.left_out, **unused}
    label = columns.label if config.metrics else None
    time = None if config.clock == POSITION else columns.time
    return replace(columns, id=None, label=label, time=time, left_out=left_out)


def _describe_run(
    log: EventLog, columns: Columns, config: Config, every: int, policy: str
) -> dict[str, Any]:
    description = {"kind": PARTITIONS, **origin.describe_replay(log, config, every, policy, "none")}
    description["round_every"] = description.pop("snapshot_every")
    description["log"]["has_ids"] = False
    if columns.label is None:
        description["log"]["label"] = None
    if columns.time is None:
        description["log"]["event_time"] = None
    return description


def _check_config(parameters: dict[str, Any]) -> Config:
    """The parameters, if partitions of a log can be learned with them."""
    own, whole_log = signature(replay_partitions).parameters, signature(replay).parameters
    for name in parameters:
        if name in whole_log:
            raise ParameterError(
                f"{name}= is for replay, which learns a log as one stream: leave it out, or use "
                "replay; parameters of an engine are given by their names"
            )
    config = Config(**{"memory": "landmarks", **origin.check_parameters(parameters, own)})
    instead = "leave it out, or learn the log as one stream, without workers"
    for name, value in (("memory", "landmarks"), ("method", "diffusion_map")):
        if getattr(config, name) != value:
            raise ParameterError(
                f"{name}={getattr(config, name)!r} must be {value!r} in partitions: {instead}"
            )
    if config.picture:
        raise ParameterError(f"picture=True cannot be learned in partitions: {instead}")
    if config.half_life is not None and config.clock == POSITION:
        raise ParameterError(
            f"half_life={config.half_life:g} counts the events of one stream, and partitions have "
            "no such count in common: set clock='event_time', with half_life in its units"
        )
    return config


def _open_log(log: EventLog | Paths, choice: Any, config: Config) -> EventLog:
    opened = log if isinstance(log, EventLog) else open_with_choice(log, choice)
    check_clock(opened, config)
    if config.metrics and opened.label_type is None:
        raise FeatureError(
            f"the log has no column of labels, from which metrics={config.metrics!r} of partitions "
            "learn: name it with label=..."
        )
    return opened


def _begin(
    folder: Path, database: Database, run_origin: dict[str, Any], parts: Sequence[Partition]
) -> None:
    """Begin a run, or check that the one in the folder began in the same way."""
    now = {**run_origin, "partitions": [part.describe() for part in parts]}
    before = database.read_fact(ORIGIN)
    if before is None:
        with database.commit():
            database.write_fact(ORIGIN, now)
            database.write_fact(STATE, {"finished": False})
        return
    place = f"run={quote(str(folder))}"
    origin.check_same(place, {**before, "partitions": None}, {**run_origin, "partitions": None})
    learned, files = (
        sum(part["files"] for part in plan.get("partitions", [])) for plan in (before, now)
    )
    if learned < files:
        raise ParameterError(
            f"the log has {files:,} files, and {place} was divided from {learned:,}; its "
            "partitions are fixed: replay the new files into a run of their own, and merge the two "
            "(streamembed merge)"
        )
    origin.check_same(place, before, now)


class _PartitionReplay:
    """A replay in partitions, from where its run stands to its end."""

    def __init__(
        self,
        folder: Path,
        database: Database,
        settings: PartitionSettings,
        parts: Sequence[Partition],
        progress: Callable[[int], None] | None,
    ) -> None:
        self._folder, self._database, self._settings = folder, database, settings
        self._parts, self._progress = parts, progress
        self.root = PartitionRoot(database, settings.config)

    def run(
        self, features: Features, open_workers: Callable[[], AbstractContextManager[Executor]]
    ) -> None:
        """Learn what is not learned yet, and write the files, unless they are there."""
        self._report()
        state = self._database.read_fact(STATE)
        if not state["finished"]:
            with open_workers() as executor:
                self._learn(features, executor)
        files = state.get("files", {})
        if not state["finished"] or any(
            find_file_error(self._folder, name, crc) for name, crc in files.items()
        ):
            self._write()

    def _learn(self, features: Features, executor: Executor) -> None:
        """All rounds that are not learned yet."""
        root, settings, agreement, parts = (
            self.root,
            self._settings,
            self.root.agreement,
            self._parts,
        )
        if agreement is None:
            for part in parts:
                executor.submit(partial(sample_first_events, part, settings))
            by_number = dict(executor.receive() for _ in parts)
            summaries = [by_number[part.number] for part in parts]
            agreement = compute_agreement(summaries, settings.config, features)
            root.set_agreement(agreement)
        running: set[int] = set()
        while True:
            for number in root.list_due():
                if number not in running and len(running) < TASKS_PER_WORKER * executor.workers:
                    running.add(number)
                    data = root.read_newest(number)
                    executor.submit(partial(learn_round, parts[number], settings, agreement, data))
            if root.is_due:  # while workers learn the next
                root.publish()
            elif running:
                result = executor.receive()
                running.remove(result.partition)
                root.commit_round(result)
                self._report()
            else:
                return

    def _report(self) -> None:
        if self._progress is not None:
            self._progress(self.root.count_learned())

    def _write(self) -> None:
        folder, database = self._folder, self._database
        database.check_in_place()
        snapshot, merged = self.root.snapshot(), self.root.read_merged()
        run_origin = database.read_fact(ORIGIN)
        metadata = {name: run_origin[name] for name in TIMELINE_FIELDS}
        timeline = _read_table(database, "timeline")
        if timeline is not None:
            timeline = timeline.replace_schema_metadata(origin.to_metadata(metadata, True))
            _write_table(folder / "timeline.parquet", timeline)
        rejected = _read_table(database, "rejected")
        rejected = REJECTED_SCHEMA.empty_table() if rejected is None else rejected
        rejected = rejected.sort_by([("partition", "ascending"), ("offset", "ascending")])
        _write_table(folder / "rejected.parquet", rejected)
        if snapshot is not None and merged is not None:
            snapshot.save(folder / "snapshot.arrow")
            merged.save(folder / LANDMARKS)
        names = ("snapshot.arrow", LANDMARKS, "timeline.parquet", "rejected.parquet")
        paths = [folder / name for name in names]
        files = {path.name: zlib.crc32(path.read_bytes()) for path in paths if path.exists()}
        state: dict[str, Any] = {"finished": True, "files": files, "rejected": rejected.num_rows}
        engine = self.root.engine()
        with database.commit():
            if engine is not None:
                number = database.append(FINAL, engine.position, 0, engine.to_bytes())
                database.keep_only(FINAL, {number})
                state["final"] = number
            database.write_fact(STATE, state)

    def result(self, columns: Columns, resumed_at: int) -> Partitioned:
        """What the run holds."""
        damages = self._database.read_fact(DAMAGES, {})
        return Partitioned(
            path=self._folder,
            partitions=len(self.root.progress),
            rounds=self.root.published,
            learned=self.root.count_learned(),
            rejected=int(self._database.read_fact(STATE)["rejected"]),
            snapshot=self.root.snapshot(),
            damages={int(number): why for number, why in damages.items()},
            resumed_at=resumed_at,
            columns=columns,
        )


def _write_table(path: Path, table: Any) -> None:
    with replace_file(path) as temporary:
        pq.write_table(table, temporary, write_page_checksum=True)


def _read_table(database: Database, chain: str) -> Any:
    """All rows of a chain of tables; None where there are none."""
    batches = list(read_batches(database, chain))
    return pa.Table.from_batches(batches) if batches else None
