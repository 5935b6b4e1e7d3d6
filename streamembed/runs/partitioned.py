"""`replay_partitions`: a log learned by several processes, into a run folder.

The folder holds ``snapshot.arrow`` (the final map), ``landmarks.arrow`` (the merged landmarks that
it is of), ``timeline.parquet`` (a row a round) and ``rejected.parquet`` (rows that could not be
learned, by partition and row), and ``run.db``, from which the same call resumes. All of it is a
function of the log's files and of the parameters: neither the number of workers, nor which of them
was killed when, leaves a trace.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamembed.data.column_roles import Columns
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import ColumnWarning, FeatureError, ParameterError, check_path, quote, warn
from streamembed.logs.event_log import EventLog, describe_doubts, open_with_choice, parse_choice
from streamembed.logs.paths import Location, Paths
from streamembed.methods.options import POSITION, Config
from streamembed.runs import origin
from streamembed.runs import run_folder as runfolder
from streamembed.runs.executor import ExecutorFactory, open_executor
from streamembed.runs.partition_learner import PartitionSettings
from streamembed.runs.partition_plan import divide_log
from streamembed.runs.partition_root import REJECTED_SCHEMA, PartitionRoot, name_chain
from streamembed.runs.partition_summary import compute_agreement
from streamembed.runs.replay_log import replay
from streamembed.runs.run_store import (
    FINAL,
    ORIGIN,
    PARTITIONS,
    STATE,
    find_file_error,
    read_batches,
)
from streamembed.runs.worker_process import WorkerTask, assign_partitions
from streamembed.storage.archive import replace_file
from streamembed.storage.database import Database
from streamembed.validation import check_choice, check_flag, check_whole

LANDMARKS = "landmarks.arrow"
# Events of a partition between two rounds: about a second, where a merge and a map of 1,000 take as
# long: with 8 partitions they are a tenth of the work.
ROUND_EVERY = 262_144
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
    time: str | None = None,
    on_bad_row: str = "skip",
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
    placing: ExecutorFactory = open_executor,
    **parameters: Any,
) -> Partitioned:
    """Learn a log in partitions, each in landmarks of its own, and merge them round by round.

    Partitions are the files of the log, in order; of more than 64 files groups of neighbours; of
    one file whose number of rows is known, 8 ranges of rows. The result is the same bytes for any
    number of workers. Repeat the call to resume after whatever ended the previous one; it ends
    with the same files. A worker that dies is replaced, and resumes from its last round.

    Processes are started by spawn: a program calls this under ``if __name__ == "__main__":``.

    Parameters
    ----------
    log
        Files or folders, as for `replay`; not standard input, and of points.
    run
        The folder to create or to resume.
    workers
        Processes, at least 1; with 1 all is done in this one.
    round_every
        Events of each partition between two maps, rounded up to whole chunks; default: 262,144.
    features, exclude, time
        As for `replay`. Ids and labels are not used: ``Partitioned.columns`` says what is.
    on_bad_row
        "skip" rejects rows that cannot be learned, "raise" stops at the first.
    overwrite
        Replace an older run.
    progress
        Called with the events learned so far: at first with those of earlier calls, or 0, then
        after every round of a partition.
    placing
        Opens the executor of the partitions; default: this process, or a pool of processes.
    parameters
        Of an engine: ``memory`` is "landmarks", ``method`` "diffusion_map", no metrics, no picture,
        and with ``half_life`` the clock is "event_time".

    Raises
    ------
    ParameterError
        Other parameters, or unknown ones; the folder holds something else, or a run that differs
        (the message says in what).
    FeatureError
        A log of distances, or without the column of times that the clock needs.
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
        As for `replay`: columns were left out because of their looks.
    """
    policy = check_choice("on_bad_row", on_bad_row, ("raise", "skip"))
    count = check_whole("workers", workers, 1)
    config = _check_config(parameters)
    if round_every is None:
        round_every = ROUND_EVERY
    every = check_whole("round_every", round_every, 1, " or None")
    every = -(-every // config.chunks.size) * config.chunks.size
    opened = _open_log(log, parse_choice(features, exclude, None, None, time), config)
    if not isinstance(log, EventLog) and (warning := describe_doubts(opened)) is not None:
        warn(warning, ColumnWarning)
    parts = divide_log(opened)
    folder = Path(check_path(run, "run"))
    runfolder.check_apart("run", folder, (opened,), folder=True)
    columns = select_columns(opened, config)
    run_origin = _describe_run(opened, columns, config, every, policy)
    run_origin["partitions"] = [part.describe() for part in parts]
    with (
        runfolder.lock_folder(run) as folder,
        _open_database(folder, run_origin, check_flag("overwrite", overwrite)) as database,
    ):
        root = PartitionRoot(database, config, len(parts))
        resumed_at = root.published

        def report() -> None:
            if progress is not None:
                progress(_count_committed(database, len(parts)))

        report()
        state = database.read_fact(STATE)
        if state["finished"]:
            if any(find_file_error(folder, name, crc) for name, crc in state["files"].items()):
                _write(folder, database, root, run_origin)
        else:
            settings = PartitionSettings(config, policy, every)
            starts = [WorkerTask(group, settings) for group in assign_partitions(parts, count)]
            try:
                _learn(root, starts, opened, config, report, placing)
                _write(folder, database, root, run_origin)
            except KeyboardInterrupt as error:
                place = "before anything was learned"
                if events := _count_committed(database, len(parts)):
                    rounds = f"{root.published:,} round{'' if root.published == 1 else 's'}"
                    place = f"at {events:,} events; {folder} holds them and {rounds}"
                error.add_note(f"interrupted {place}; repeat the call to resume")
                raise
        return _result(folder, database, root, columns, len(parts), resumed_at)


def select_columns(log: EventLog, config: Config) -> Columns:
    """What the columns of a log are used for: ids and labels are not, nor times without a clock."""
    columns = log.columns
    uses = {"ids": columns.id, "labels": columns.label}
    if config.clock == POSITION:
        uses["times"] = columns.time
    unused = {name: f"{use} are not used" for use, name in uses.items() if name is not None}
    left_out = {**columns.left_out, **unused}
    time = None if config.clock == POSITION else columns.time
    return replace(columns, id=None, label=None, time=time, left_out=left_out)


def _describe_run(
    log: EventLog, columns: Columns, config: Config, every: int, policy: str
) -> dict[str, Any]:
    description = {"kind": PARTITIONS, **origin.describe_replay(log, config, every, policy, "none")}
    description["round_every"] = description.pop("snapshot_every")
    description["log"] |= {"has_ids": False, "label": None}
    if columns.time is None:
        description["log"]["event_time"] = None
    return description


def _count_committed(database: Database, partitions: int) -> int:
    records = (database.list_records(name_chain(partition)) for partition in range(partitions))
    return sum(numbers[-1][1] for numbers in records if numbers)


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
    instead = "leave it out, or learn the log as one stream: se.replay, or without --workers"
    for name, value in (("memory", "landmarks"), ("method", "diffusion_map")):
        if getattr(config, name) != value:
            raise ParameterError(
                f"{name}={getattr(config, name)!r} (--{name}) must be {value!r} in partitions: "
                f"{instead}"
            )
    for name in ("metrics", "picture"):
        if getattr(config, name):
            raise ParameterError(
                f"{name}={getattr(config, name)!r} cannot be learned in partitions: {instead}"
            )
    if config.half_life is not None and config.clock == POSITION:
        raise ParameterError(
            f"half_life={config.half_life:g} counts the events of one stream, and partitions have "
            "no such count in common: set clock='event_time' (--clock), with half_life in its units"
        )
    return config


def _open_log(log: EventLog | Paths, choice: Any, config: Config) -> EventLog:
    opened = log if isinstance(log, EventLog) else open_with_choice(log, choice)
    if config.clock != POSITION and opened.event_time_type is None:
        raise FeatureError(
            "the log has no column of times, by which masses are to fade (clock='event_time'): "
            "name a column of timestamps or numbers with time= (--time)"
        )
    return opened


@contextmanager
def _open_database(folder: Path, run_origin: dict[str, Any], overwrite: bool) -> Iterator[Database]:
    """The database of the run: a new one, or that of a run which came about in the same way."""
    with runfolder.open_database(folder, overwrite) as database:
        before = database.read_fact(ORIGIN)
        if before is None:
            with database.commit():
                database.write_fact(ORIGIN, run_origin)
                database.write_fact(STATE, {"finished": False})
        else:
            now = {**run_origin, "version": before.get("version")}
            origin.check_same(f"run={quote(str(folder))}", before, now)
        yield database


def _learn(
    root: PartitionRoot,
    starts: Sequence[WorkerTask],
    log: EventLog,
    config: Config,
    report: Callable[[], None],
    placing: ExecutorFactory,
) -> None:
    with placing(starts, root.read_saved, root.agreement, root.published) as executor:
        if root.agreement is None:
            by_partition = executor.summarise()
            summaries = [by_partition[number] for number in sorted(by_partition)]
            agreement = compute_agreement(summaries, config, log.features)
            root.set_agreement(agreement)
            executor.begin(agreement)
        while True:
            while root.is_due:
                root.publish()
                executor.publish(root.published)
            result = executor.receive()
            if result is None:
                return
            root.commit_round(result)
            report()


def _write(
    folder: Path, database: Database, root: PartitionRoot, run_origin: dict[str, Any]
) -> None:
    database.check_in_place()
    snapshot, merged = root.snapshot(), root.read_merged()
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
    engine = root.engine()
    with database.commit():
        if engine is not None:
            number = database.append(FINAL, engine.position, 0, engine.to_bytes())
            database.keep_only(FINAL, {number})
            state["final"] = number
        database.write_fact(STATE, state)


def _write_table(path: Path, table: Any) -> None:
    with replace_file(path) as temporary:
        pq.write_table(table, temporary, write_page_checksum=True)


def _read_table(database: Database, chain: str) -> Any:
    """All rows of a chain of tables; None where there are none."""
    batches = list(read_batches(database, chain))
    return pa.Table.from_batches(batches) if batches else None


def _result(
    folder: Path,
    database: Database,
    root: PartitionRoot,
    columns: Columns,
    count: int,
    resumed_at: int,
) -> Partitioned:
    learned, damages = root.count_events()
    return Partitioned(
        path=folder,
        partitions=count,
        rounds=root.published,
        learned=learned,
        rejected=int(database.read_fact(STATE)["rejected"]),
        snapshot=root.snapshot(),
        damages=damages,
        resumed_at=resumed_at,
        columns=columns,
    )
