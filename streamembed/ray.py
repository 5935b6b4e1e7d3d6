"""Partitions of a log as tasks of a Ray cluster; the root stays in the program that calls.

Ray decides where tasks run, runs those that are lost again, and carries bytes. What is learned,
merged and published is `streamembed.runs.partitioned`, and so the run is the same bytes as of
`replay --workers`.

Needs Ray: ``pip install "streamembed[ray]"``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any

from streamembed.errors import ParameterError, StoppedError, quote, summarise_error
from streamembed.logs.event_log import EventLog
from streamembed.logs.paths import Location, Paths, normalise_paths
from streamembed.logs.place import is_uri
from streamembed.runs.executor import Executor, Task
from streamembed.runs.log_replay import Replayed
from streamembed.runs.partitioned import replay_partitions
from streamembed.validation import check_whole

ray: Any = None
with suppress(ImportError):  # an optional extra
    import ray  # type: ignore[no-redef,import-not-found,import-untyped,unused-ignore]

__all__ = ["replay"]

# Times that Ray runs a lost task again.
MAX_LOSSES = 3
# What of Ray's options changes nothing of the result.
OPTIONS = {"num_cpus", "num_gpus", "memory", "resources", "runtime_env", "scheduling_strategy"}


def replay(
    log: EventLog | Paths,
    run: Location,
    *,
    workers: int | None = None,
    options: Mapping[str, Any] | None = None,
    **others: Any,
) -> Replayed:
    """Learn a log in partitions by tasks of Ray, and merge their landmarks round by round.

    The files of the run are the same bytes as those of ``streamembed replay --workers N``, and
    either resumes a run of the other. A round whose process or machine is lost is learned again by
    Ray, on whichever machine.

    Connects to the cluster that the program is connected to; else as ``ray.init()`` does, which
    starts one on this machine if it finds none.

    Parameters
    ----------
    log
        Files or folders, by paths that lead to them on every machine of the cluster.
    run
        The folder to create or to resume, on this machine.
    workers
        Rounds of different partitions at once, at least 1, each of which takes a CPU; default: the
        CPUs of the cluster.
    options
        Where tasks go, as for Ray's ``.options()``: ``num_cpus``, ``num_gpus``, ``memory``,
        ``resources``, ``runtime_env``, ``scheduling_strategy``. They are spread over the machines,
        unless this says otherwise.
    others
        As for `streamembed.replay_partitions`: ``snapshot_every`` (events of each partition
        between two maps), ``features``, ``exclude``, ``label``, ``time``,
        ``overwrite``, ``progress``, and the parameters of an engine.

    Raises
    ------
    ParameterError
        Ray is not installed; other parameters; the folder holds something else, or a run that
        differs.
    FeatureError
        A log of distances, or without the column of times that the clock needs.
    StoppedError
        Ray has lost the processes of a round four times.
    FileError, LogError
        As for `streamembed.replay`.
    """
    if ray is None:
        raise ParameterError(
            'streamembed.ray needs Ray: pip install "streamembed[ray]"; without a '
            "cluster, streamembed replay --workers learns by several processes"
        )
    count = None if workers is None else check_whole("workers", workers, 1, " or None")
    chosen = dict(options or {})
    if unknown := sorted(chosen.keys() - OPTIONS):
        raise ParameterError(f"options has {quote(unknown)}; it may have {quote(sorted(OPTIONS))}")
    if not ray.is_initialized():
        ray.init()
    if count is None:
        count = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def open_executor(workers: int) -> closing[RayExecutor]:
        return closing(RayExecutor(workers, chosen))

    if not isinstance(log, EventLog):  # paths that mean the same on every machine
        log = [path if is_uri(path) else os.path.abspath(path) for path in normalise_paths(log)]
    return replay_partitions(log, run, workers=count, executor=open_executor, **others)


def run_task(task: Task) -> Any:
    """The result of a task: what a process of the cluster does."""
    return task()


class RayExecutor(Executor):
    """Runs tasks on a cluster, which runs those whose process is lost again.

    Parameters
    ----------
    options
        Of Ray.
    """

    def __init__(self, workers: int, options: Mapping[str, Any]) -> None:
        super().__init__(workers)
        chosen = {"scheduling_strategy": "SPREAD", "max_retries": MAX_LOSSES, **options}
        self._remote = ray.remote(run_task).options(**chosen)
        self._running: list[Any] = []

    def submit(self, task: Task) -> None:
        self._running.append(self._remote.remote(task))

    def receive(self) -> Any:
        (answer,), self._running = ray.wait(self._running, num_returns=1)
        try:
            return ray.get(answer)
        except ray.exceptions.RayTaskError as error:  # the task itself failed
            raise error.cause from None
        except ray.exceptions.RayError as error:
            raise StoppedError(
                f"workers have died {MAX_LOSSES + 1} times without getting anywhere "
                f"({summarise_error(error)}): is there enough memory? Fix the cause, then repeat "
                "the call to resume"
            ) from error

    def close(self) -> None:
        """Cancel what runs; called at the end of a replay."""
        for answer in self._running:
            ray.cancel(answer, force=True)
