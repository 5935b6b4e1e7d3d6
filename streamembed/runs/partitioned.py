"""`replay_partitions`: a log learned by several processes, into a run folder.

The folder holds ``snapshot.arrow`` (the final map), ``landmarks.arrow`` (the merged landmarks that
it is of), ``timeline.parquet`` (a row a round) and ``rejected.parquet`` (rows that could not be
learned, by partition and row), and ``run.db``, from which the same call resumes. All of it is a
function of the log's files and of the parameters: neither the number of workers, nor which of them
was killed when, leaves a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from inspect import signature
from pathlib import Path
from typing import Any

from streamembed.errors import FeatureError, ParameterError, StoppedError, check_path
from streamembed.logs.event_log import EventLog, open_with_choice, parse_choice, warn_of_columns
from streamembed.logs.paths import Location, Paths
from streamembed.methods.options import POSITION, Config
from streamembed.metrics.learner import NOT_MERGED
from streamembed.runs import chains, origin
from streamembed.runs import run_folder as runfolder
from streamembed.runs.executor import Executor, open_executor
from streamembed.runs.log_replay import Replayed, check_clock, compute_snapshot_interval
from streamembed.runs.partition import divide_log
from streamembed.runs.partition_root import PartitionRoot
from streamembed.runs.run_store import RunStore, load_newest
from streamembed.validation import check_flag, check_whole

# Events of a partition between two rounds: about a second, where a merge and a map of 1,000 take as
# long: with 8 partitions they are a tenth of the work.
SNAPSHOT_EVERY = 262_144


def replay_partitions(
    log: EventLog | Paths,
    run: Location,
    *,
    workers: int = 2,
    snapshot_every: int | None = None,
    features: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    label: str | None = None,
    time: str | None = None,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
    executor: Callable[[int], AbstractContextManager[Executor]] = open_executor,
    **parameters: Any,
) -> Replayed:
    """Learn a log in partitions, each in landmarks of its own, and merge them round by round.

    Partitions are the files of the log, in order; of more than 64 files groups of neighbours; of
    one file whose number of rows is known, 8 ranges of rows. The result is the same bytes for any
    number of workers. Repeat the call to resume after whatever ended the previous one; it ends
    with the same files. The partitions of a run are fixed when it begins: replay files that come
    later into a run of their own, and merge the two (`streamembed merge`).

    Processes are started by spawn: a program calls this under ``if __name__ == "__main__":``.

    Parameters
    ----------
    log
        Files or folders, as for `replay`, of points.
    run
        The folder to create or to resume.
    workers
        Processes, at least 1; with 1 all is done in this one.
    snapshot_every
        Events of each partition between two maps, rounded up to whole chunks; default: 262,144.
    features, exclude, label, time
        As for `replay`. Ids are not used, nor labels without ``metrics``, nor times without a clock
        of theirs: ``Replayed.columns`` says what is.
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
    KeyboardInterrupt
        With a note on how much the run holds.
    StoppedError
        A worker was killed: repeat the call to resume.
    FileError, LogError
        As for `replay`; a file that is damaged further on ends its partition there.

    Warns
    -----
    ColumnWarning
        As for `replay`.
    """
    count = check_whole("workers", workers, 1)
    config = _check_config(parameters)
    if "itml" in config.metrics:
        raise ParameterError(f"metrics={config.metrics!r}: {NOT_MERGED}")
    every = SNAPSHOT_EVERY if snapshot_every is None else snapshot_every
    every = compute_snapshot_interval(config.chunks.size, every)
    opened = _open_log(log, parse_choice(features, exclude, None, label, time), config)
    if not isinstance(log, EventLog):
        warn_of_columns(opened)
    opened = drop_unused_columns(opened, config)
    runfolder.check_apart("run", Path(check_path(run, "run")), opened)
    parts = divide_log(opened)
    run_origin = {
        "kind": chains.PARTITIONS,
        **origin.describe_replay(opened, config, every, "none"),
        "partitions": [part.describe() for part in parts],
    }
    with RunStore.claim(run, overwrite=check_flag("overwrite", overwrite)) as store:
        store.begin(run_origin)
        root = PartitionRoot(store, config, every, parts, progress or (lambda _: None))
        try:
            with executor(min(count, len(parts))) as workers_of_call:
                rows, counts = root.run(opened.features, workers_of_call)
        except BrokenExecutor as error:
            raise StoppedError(
                "a worker was killed; repeat the command to resume; if none could start (the error "
                'is above): a script must call this under if __name__ == "__main__":, since every '
                "worker imports it"
            ) from error
        return Replayed(
            **asdict(counts),
            path=store.folder,
            learned=counts.accepted,
            position=counts.accepted,
            snapshot=load_newest(store.database, chains.SNAPSHOTS),
            damage=root.describe_damage(),
            columns=opened.columns,
            snapshot_every=every,
            resumed_at=rows,
            partitions=len(parts),
        )


def drop_unused_columns(log: EventLog, config: Config) -> EventLog:
    """The log with the columns that partitions use: no ids, labels for metrics, times for a clock.

    The columns of the others are left out.
    """
    columns = log.columns
    unused = {"id": columns.id}
    types: dict[str, Any] = {"id_type": None}
    if not config.metrics:
        unused["label"], types["label_type"] = columns.label, None
    if config.clock == POSITION:
        unused["time"], types["event_time_type"] = columns.time, None
    reasons = {name: f"{role}s are not used" for role, name in unused.items() if name is not None}
    roles: dict[str, Any] = dict.fromkeys(unused)
    columns = replace(columns, **roles, left_out={**columns.left_out, **reasons})
    return replace(log, columns=columns, **types)


def _check_config(parameters: dict[str, Any]) -> Config:
    """The parameters, if partitions of a log can be learned with them."""
    own = signature(replay_partitions).parameters
    config = Config(**{"memory": "landmarks", **origin.check_parameters(parameters, own)})
    instead = "leave it out, or learn the log as one stream, without workers"
    for name, value in (("memory", "landmarks"), ("method", "diffusion_map"), ("picture", False)):
        if getattr(config, name) != value:
            raise ParameterError(
                f"{name}={getattr(config, name)!r} must be {value!r} in partitions: {instead}"
            )
    if config.half_life is not None and config.clock == POSITION:
        raise ParameterError(
            f"half_life={config.half_life:g} counts the events of one stream, and partitions have "
            "no such count in common: set clock='event_time', with half_life in its units"
        )
    return config


def _open_log(log: EventLog | Paths, choice: Any, config: Config) -> EventLog:
    opened = log if isinstance(log, EventLog) else open_with_choice(log, choice)
    check_clock(opened, config)
    if opened.kind != "points":
        raise FeatureError(
            "the log contains distances, and landmarks of different partitions have none to one "
            "another: only points can be learned by several workers"
        )
    if config.metrics and opened.label_type is None:
        raise FeatureError(
            f"the log has no column of labels, from which metrics={config.metrics!r} of partitions "
            "learn: name it with label=..."
        )
    return replace(opened, metric=config.metric)
