"""Partitions of a log as actors of a Ray cluster; the root stays in the program that calls.

Ray decides where actors run, starts them again, and carries bytes. What is learned, merged and
published is `streamembed.runs.partitioned`, and so the run is the same bytes as of `replay
--workers`.

Needs Ray: ``pip install "streamembed[ray]"``.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from streamembed.errors import ParameterError, StoppedError, check_path, quote, summarise_error
from streamembed.logs.event_log import EventLog
from streamembed.logs.paths import Location, Paths, list_paths
from streamembed.logs.stdin import STDIN
from streamembed.merging.agreement import Agreement
from streamembed.runs.executor import MAX_DEATHS, MAX_ROUNDS_AHEAD, SavedRounds
from streamembed.runs.partition_host import PartitionHost, summarise_or_fail
from streamembed.runs.partition_summary import PartitionSummary
from streamembed.runs.partitioned import Partitioned, replay_partitions
from streamembed.runs.worker_process import RoundResult, WorkerFailure, WorkerTask
from streamembed.validation import check_whole

ray: Any = None
with suppress(ImportError):  # an optional extra
    import ray  # type: ignore[no-redef,import-not-found,import-untyped,unused-ignore]

__all__ = ["replay"]

# What Ray takes for actors and for tasks alike, and what changes nothing of the order of calls.
OPTIONS = {"num_cpus", "num_gpus", "memory", "resources", "runtime_env", "scheduling_strategy"}
# Calls that an actor has before it: one that it works on, and the next.
MAX_PENDING_CALLS = 2
# An actor that cannot be reached is asked so often again, so many seconds later: while it is
# started again Ray lets a call wait, so that a minute of refusals is no restart.
ATTEMPTS, PAUSE = 60, 1.0


def replay(
    log: EventLog | Paths,
    run: Location,
    *,
    workers: int | None = None,
    checkpoints: Location | None = None,
    options: Mapping[str, Any] | None = None,
    **others: Any,
) -> Partitioned:
    """Learn a log in partitions by actors of Ray, and merge their landmarks round by round.

    The files of the run are the same bytes as those of ``streamembed replay --workers N``, and
    either resumes a run of the other. An actor that dies is started again by Ray, on whichever
    machine, and resumes from its last round.

    Connects to the cluster that the program is connected to; else as ``ray.init()`` does, which
    starts one on this machine if it finds none.

    Parameters
    ----------
    log
        Files or folders, by paths that lead to them on every machine of the cluster.
    run
        The folder to create or to resume, on this machine.
    workers
        Actors, at least 1, of which each has one partition or more; default: the CPUs of the
        cluster, at most one for each partition.
    checkpoints
        A folder for the actors' own last rounds; default: that of temporary files of whichever
        machine an actor is on. A folder that all machines share spares an actor that moves to
        another one a round or two. Nothing stays there once the log is learned.
    options
        Where actors go, as for Ray's ``.options()``: ``num_cpus``, ``num_gpus``, ``memory``,
        ``resources``, ``runtime_env``, ``scheduling_strategy``. They are spread over the machines,
        and as any actor of Ray take a CPU to be placed and none to run, unless this says otherwise.
    others
        As for `streamembed.replay_partitions`: ``round_every`` (events of each partition between
        two maps), ``features``, ``exclude``, ``time``, ``on_bad_row``, ``overwrite``, ``progress``,
        and the parameters of an engine.

    Raises
    ------
    ParameterError
        Ray is not installed; other parameters; the folder holds something else, or a run that
        differs.
    FeatureError
        A log of distances, or without the column of times that the clock needs.
    BadRowError
        With ``on_bad_row="raise"``.
    StoppedError
        An actor dies again and again, or cannot be started again.
    FileError, LogError
        As for `streamembed.replay`.
    """
    if ray is None:
        raise ParameterError(
            'streamembed.ray needs Ray: pip install "streamembed[ray]"; without a '
            "cluster, streamembed replay --workers learns by several processes"
        )
    count = None if workers is None else check_whole("workers", workers, 1, " or None")
    folder = (
        None if checkpoints is None else os.path.abspath(check_path(checkpoints, "checkpoints"))
    )
    chosen = dict(options or {})
    if unknown := sorted(chosen.keys() - OPTIONS):
        raise ParameterError(f"options has {quote(unknown)}; it may have {quote(sorted(OPTIONS))}")
    if not ray.is_initialized():
        ray.init()
    if count is None:
        count = max(1, int(ray.cluster_resources().get("CPU", 1)))
    placing = partial(_open_executor, folder=folder, options=chosen)
    return replay_partitions(_to_absolute(log), run, workers=count, placing=placing, **others)


def _to_absolute(log: EventLog | Paths) -> EventLog | list[str]:
    """Paths that mean the same in the folder of an actor."""
    if isinstance(log, EventLog):
        return log
    paths = list_paths(log)
    return [path if Path(path) == STDIN else os.path.abspath(path) for path in paths]


@contextmanager
def _open_executor(
    starts: Sequence[WorkerTask],
    saved: Callable[[], SavedRounds],
    agreement: Agreement | None,
    published: int,
    *,
    folder: str | None,
    options: Mapping[str, Any],
) -> Iterator[RayExecutor]:
    """The actors of a replay, which end with the block."""
    executor = RayExecutor(starts, saved, agreement, published + MAX_ROUNDS_AHEAD, folder, options)
    try:
        yield executor
        executor.remove_checkpoints()
    finally:
        executor.close()


class _RayActor:
    """One actor: what it was asked, and what it has not answered."""

    def __init__(self, index: int, task: WorkerTask, saved: SavedRounds, handle: Any) -> None:
        self.index, self.handle = index, handle
        self.deaths = 0
        self.pending: dict[Any, int] = {}  # partitions by what will be the answer
        # of partitions that have not ended, the last round that was asked for
        self.requested = {part.number: saved[part.number][0] for part in task.parts}

    def request_rounds(self, limit: int) -> None:
        """For the next round of the partition that is behind, if the root is ready for it."""
        while self.requested and len(self.pending) < MAX_PENDING_CALLS:
            number = min(
                self.requested, key=lambda partition: (self.requested[partition], partition)
            )
            if self.requested[number] >= limit:
                return
            self.requested[number] += 1
            answer = self.handle.learn.remote(number, self.requested[number])
            self.pending[answer] = number


class RayExecutor:
    """Executor of actors, each with the partitions of one worker.

    Parameters
    ----------
    starts
        One an actor.
    saved
        What is committed by now.
    agreement
        None where it has to be made; see `begin`.
    limit
        The round that partitions may go to.
    folder
        Of their checkpoints; None for that of temporary files where they are.
    options
        Of Ray.
    """

    def __init__(
        self,
        starts: Sequence[WorkerTask],
        saved: Callable[[], SavedRounds],
        agreement: Agreement | None,
        limit: int,
        folder: str | None,
        options: Mapping[str, Any],
    ) -> None:
        self._starts, self._saved, self._limit = starts, saved, limit
        self._folder, self._options = folder, {"scheduling_strategy": "SPREAD", **options}
        self._actors: list[_RayActor] = []
        if agreement is not None:
            self.begin(agreement)

    def summarise(self) -> dict[int, PartitionSummary]:
        """By tasks, which Ray repeats by itself where one is lost."""
        remote_task = ray.remote(summarise_or_fail).options(**self._options)
        summaries_of: dict[int, PartitionSummary] = {}
        for result in ray.get([remote_task.remote(task) for task in self._starts]):
            if isinstance(result, WorkerFailure):
                raise result.error
            summaries_of.update(result)
        return summaries_of

    def begin(self, agreement: Agreement) -> None:
        """Make the actors, and ask them for their first rounds."""
        saved, name = self._saved(), secrets.token_hex(8)
        kind = ray.remote(PartitionHost).options(
            **{**self._options, "max_restarts": -1, "max_task_retries": 0}
        )
        for index, task in enumerate(self._starts):
            own = {part.number: saved[part.number] for part in task.parts}
            handle = kind.remote(task, agreement, own, self._folder, f"streamembed-{name}-{index}")
            self._actors.append(_RayActor(index, task, own, handle))
        for actor in self._actors:
            actor.request_rounds(self._limit)

    def receive(self) -> RoundResult | None:
        """The next round of whichever partition; None where all are at their ends."""
        # of each actor its first: a later one may be there, where it was asked again after a death
        while owners := {
            next(iter(candidate.pending)): candidate
            for candidate in self._actors
            if candidate.pending
        }:
            (answer, *_), _ = ray.wait(list(owners), num_returns=1)
            actor = owners[answer]
            try:
                result = ray.get(answer)
            except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
                self._recover(actor, error)
                continue
            if isinstance(result, WorkerFailure):
                raise result.error
            number = actor.pending.pop(answer)
            if result is None or result.done:
                actor.requested.pop(number, None)
            actor.request_rounds(self._limit)
            if result is not None:
                assert isinstance(result, RoundResult)
                actor.deaths = 0
                return result
        return None

    def publish(self, count: int) -> None:
        """Let partitions take one more round."""
        self._limit = count + MAX_ROUNDS_AHEAD
        for actor in self._actors:
            actor.request_rounds(self._limit)

    def remove_checkpoints(self) -> None:
        """Remove the actors' checkpoints, where they can be reached."""
        with suppress(ray.exceptions.RayError):
            ray.get([actor.handle.remove_checkpoints.remote() for actor in self._actors])

    def close(self) -> None:
        """End all actors."""
        for actor in self._actors:
            ray.kill(actor.handle)
        self._actors = []

    def _recover(self, actor: _RayActor, error: Exception) -> None:
        """Resume an actor that has died, once Ray has started it again."""
        actor.deaths += 1
        if actor.deaths > MAX_DEATHS:
            raise StoppedError(
                f"worker {actor.index} has died {actor.deaths} times without getting anywhere "
                f"({summarise_error(error)}): is there enough memory? Fix the cause, "
                "then repeat the call to resume"
            ) from error
        every = self._saved()
        saved = {number: every[number] for number in actor.requested}
        self._wait_for(actor, saved)
        actor.pending = {}  # whatever else it had answered, it answers again
        actor.requested = {number: count for number, (count, _) in saved.items()}
        actor.request_rounds(self._limit)

    def _wait_for(self, actor: _RayActor, saved: SavedRounds) -> None:
        """Return once the actor is there again, and stands where the root needs it."""
        for _ in range(ATTEMPTS):
            try:
                ray.get(actor.handle.resume_from.remote(saved))
                return
            except ray.exceptions.ActorUnavailableError:
                time.sleep(PAUSE)
            except ray.exceptions.RayActorError as error:
                raise StoppedError(
                    f"worker {actor.index} cannot be started again ({summarise_error(error)}): "
                    "fix the cause, then repeat the call to resume"
                ) from error
        raise StoppedError(
            f"worker {actor.index} cannot be reached: check the cluster, then repeat the call "
            "to resume"
        )
