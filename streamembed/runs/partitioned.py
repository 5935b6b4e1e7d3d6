"""`replay_partitions`: a log learned by several processes, into a run folder.

The folder holds ``snapshot.arrow`` (the final map), ``landmarks.arrow`` (the merged landmarks that
it is of), ``timeline.parquet`` (a row a round) and ``rejected.parquet`` (rows that could not be
learned, by partition and row), and ``run.db``, from which the same call goes on. All of it is a
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
from streamembed.errors import ColumnWarning, FeatureError, ParameterError, path_text, shown, warn
from streamembed.logs.event_log import EventLog, describe_doubts, open_with_choice, parse_choice
from streamembed.logs.paths import Location, Paths
from streamembed.methods.options import POSITION, Config
from streamembed.runs import origin
from streamembed.runs import run_folder as runfolder
from streamembed.runs.checkpoint_writer import PARTITIONS
from streamembed.runs.executor import Placing, crew_of
from streamembed.runs.partition_learner import Settings
from streamembed.runs.partition_plan import divide
from streamembed.runs.partition_root import REJECTED, Root, chain_of
from streamembed.runs.partition_scaling import agree
from streamembed.runs.replay_log import replay
from streamembed.runs.resume import FINAL, ORIGIN, STATE, wrong
from streamembed.runs.worker_process import Start, dealt
from streamembed.storage.archive import replacing
from streamembed.storage.database import Database
from streamembed.validation import flag, one_of, whole

__all__ = ["ROUND_EVERY", "Partitioned", "columns_of", "replay_partitions"]

LANDMARKS = "landmarks.arrow"
# Events of a partition between two rounds: about a second, where a merge and a map of 1,000 take as
# long: with 8 partitions they are a tenth of the work.
ROUND_EVERY = 262_144
# What the timeline says of it: as of any replay, with rounds in the place of snapshots.
SHOWN = ("version", "engine", "round_every", "on_bad_row", "embed", "log")


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
        Rounds that an earlier call had published; 0 where it began anew.
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
    placing: Placing = crew_of,
    **parameters: Any,
) -> Partitioned:
    """Learn a log in partitions, each in landmarks of its own, and merge them round by round.

    Partitions are the files of the log, in order; of more than 64 files groups of neighbours; of
    one file whose number of rows is known, 8 ranges of rows. The result is the same bytes for any
    number of workers. The same call again goes on after whatever ended the one before, and ends
    with the same files. A worker that dies is replaced, and goes on from its last round.

    Processes are started by spawn: a program calls this under ``if __name__ == "__main__":``.

    Parameters
    ----------
    log
        Files or folders, as for `replay`; not standard input, and of points.
    run
        The folder to create, or to go on with.
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
        Who works on the partitions; default: this process, or processes of this machine.
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
    policy = one_of("on_bad_row", on_bad_row, ("raise", "skip"))
    count = whole("workers", workers, 1)
    config = _config_of(parameters)
    asked = ROUND_EVERY if round_every is None else whole("round_every", round_every, 1, " or None")
    every = -(-asked // config.chunk_size) * config.chunk_size
    opened = _open(log, parse_choice(features, exclude, None, None, time), config)
    if not isinstance(log, EventLog) and (warning := describe_doubts(opened)) is not None:
        warn(warning, ColumnWarning)
    parts = divide(opened)
    folder = Path(path_text(run, "run"))
    runfolder.apart("run", folder, (opened,), folder=True)
    columns = columns_of(opened, config)
    told = _told(opened, columns, config, every, policy)
    told["partitions"] = [part.told() for part in parts]
    with (
        runfolder.taken(run) as folder,
        _opened(folder, told, flag("overwrite", overwrite)) as kept,
    ):
        root = Root(kept, config, len(parts))
        begun = root.published
        advanced = _counted(progress, kept, len(parts))
        advanced()
        state = kept.fact(STATE)
        if state["finished"]:
            if any(wrong(folder, name, crc) for name, crc in state["files"].items()):
                _write(folder, kept, root, told)
        else:
            settings = _settings_of(config, policy, every)
            starts = [Start(some, settings) for some in dealt(parts, count)]
            try:
                _learn(root, starts, opened, config, advanced, placing)
                _write(folder, kept, root, told)
            except KeyboardInterrupt as error:
                error.add_note(_held(folder, root, _committed(kept, len(parts))))
                raise
        return _result(folder, kept, root, columns, len(parts), begun)


def columns_of(log: EventLog, config: Config) -> Columns:
    """What the columns of a log are used for: ids and labels are not, nor times without a clock."""
    columns = log.columns
    uses = {"ids": columns.id, "labels": columns.label}
    if config.clock == POSITION:
        uses["times"] = columns.time
    unused = {name: f"{use} are not used" for use, name in uses.items() if name is not None}
    left_out = {**columns.left_out, **unused}
    time = None if config.clock == POSITION else columns.time
    return replace(columns, id=None, label=None, time=time, left_out=left_out)


def _told(
    log: EventLog, columns: Columns, config: Config, every: int, policy: str
) -> dict[str, Any]:
    """How the run comes about, JSON-ready."""
    told = {"kind": PARTITIONS, **origin.describe(log, config, every, policy, "none")}
    told["round_every"] = told.pop("snapshot_every")
    told["log"] |= {"has_ids": False, "label": None}
    if columns.time is None:
        told["log"]["event_time"] = None
    return told


def _committed(database: Database, partitions: int) -> int:
    """Events of all partitions as of their newest checkpoints."""
    found = (database.numbers(chain_of(one)) for one in range(partitions))
    return sum(numbers[-1][1] for numbers in found if numbers)


def _held(folder: Path, root: Root, events: int) -> str:
    """What a run holds that was broken off."""
    rounds = f"{root.published:,} round{'' if root.published == 1 else 's'}"
    told = f"at {events:,} events; {folder} holds them and {rounds}"
    return (
        f"interrupted {told if events else 'before anything was learned'}; the same again goes on"
    )


def _counted(
    progress: Callable[[int], None] | None, database: Database, partitions: int
) -> Callable[[], None]:
    """What tells the progress, of every partition, also those of which nothing was heard yet."""

    def tell() -> None:
        if progress is not None:
            progress(_committed(database, partitions))

    return tell


def _config_of(parameters: dict[str, Any]) -> Config:
    """The parameters, if partitions of a log can be learned with them."""
    own, whole_log = signature(replay_partitions).parameters, signature(replay).parameters
    for name in parameters:
        if name in whole_log:
            raise ParameterError(
                f"{name}= is for replay, which learns a log as one stream: leave it out, or use "
                "replay; parameters of an engine are given by their names"
            )
    config = Config(**{"memory": "landmarks", **origin.checked(parameters, own)})
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


def _settings_of(config: Config, on_bad_row: str, every: int) -> Settings:
    """What workers must know of the parameters."""
    return Settings(
        config.size,
        config.chunk_size,
        config.half_life,
        config.clock != POSITION,
        config.max_skew,
        config.warm_up_events,
        config.seed,
        on_bad_row,
        every,
    )


def _open(log: EventLog | Paths, choice: Any, config: Config) -> EventLog:
    opened = log if isinstance(log, EventLog) else open_with_choice(log, choice)
    if config.clock != POSITION and opened.event_time_type is None:
        raise FeatureError(
            "the log has no column of times, by which masses are to fade (clock='event_time'): "
            "name a column of timestamps or numbers with time= (--time)"
        )
    return opened


@contextmanager
def _opened(folder: Path, told: dict[str, Any], overwrite: bool) -> Iterator[Database]:
    """The database of the run: a new one, or that of a run which came about in the same way."""
    with runfolder.opened(folder, overwrite) as database:
        before = database.fact(ORIGIN)
        if before is None:
            with database.commit():
                database.note(ORIGIN, told)
                database.note(STATE, {"finished": False})
        else:
            now = {**told, "version": before.get("version")}
            origin.must_be_same(f"run={shown(str(folder))}", before, now)
        yield database


def _learn(
    root: Root,
    starts: Sequence[Start],
    log: EventLog,
    config: Config,
    advanced: Callable[[], None],
    placing: Placing,
) -> None:
    """Take all partitions to their ends, and publish every round."""
    with placing(starts, root.saved, root.agreement, root.published) as crew:
        if root.agreement is None:
            found = crew.summaries()
            made = [found[number] for number in sorted(found)]
            agreement = agree(made, config, log.feature_names, log.ordered)
            root.agree(agreement)
            crew.begin(agreement)
        while True:
            while root.is_due:
                root.publish()
                crew.publish(root.published)
            told = crew.receive()
            if told is None:
                return
            root.take(told)
            advanced()


def _write(folder: Path, database: Database, root: Root, told: dict[str, Any]) -> None:
    """The files of the run, and that it is finished."""
    database.must_be_here()
    snapshot, found = root.snapshot(), root.merged()
    shown_of = {name: told[name] for name in SHOWN}
    timeline = _table(database, "timeline")
    if timeline is not None:
        timeline = timeline.replace_schema_metadata(origin.pack(shown_of, True))
        _write_table(folder / "timeline.parquet", timeline)
    rejected = _table(database, "rejected")
    rejected = REJECTED.empty_table() if rejected is None else rejected
    rejected = rejected.sort_by([("partition", "ascending"), ("offset", "ascending")])
    _write_table(folder / "rejected.parquet", rejected)
    if snapshot is not None and found is not None:
        snapshot.save(folder / "snapshot.arrow")
        found.save(folder / LANDMARKS)
    names = ("snapshot.arrow", LANDMARKS, "timeline.parquet", "rejected.parquet")
    paths = [folder / name for name in names]
    files = {path.name: zlib.crc32(path.read_bytes()) for path in paths if path.exists()}
    state: dict[str, Any] = {"finished": True, "files": files, "rejected": rejected.num_rows}
    engine, gone = root.engine(), []
    with database.commit():
        if engine is not None:
            number = database.append(FINAL, engine.position, 0, engine.to_bytes())
            gone = database.keep_only(FINAL, {number})
            state["final"] = number
        database.note(STATE, state)
    for path in gone:
        path.unlink(missing_ok=True)


def _write_table(path: Path, table: Any) -> None:
    with replacing(path) as temporary:
        pq.write_table(table, temporary, write_page_checksum=True)


def _table(database: Database, chain: str) -> Any:
    """All rows of a chain of tables; None where there are none."""
    parts = [pa.ipc.open_stream(pa.py_buffer(one.data)).read_all() for one in database.chain(chain)]
    return pa.concat_tables(parts) if parts else None


def _result(
    folder: Path, database: Database, root: Root, columns: Columns, count: int, begun: int
) -> Partitioned:
    learned, damages = root.ends()
    rejected = int(database.fact(STATE)["rejected"])
    snapshot = root.snapshot()
    rounds = root.published
    return Partitioned(folder, count, rounds, learned, rejected, snapshot, damages, begun, columns)
