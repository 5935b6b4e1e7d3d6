"""A worker: learns its partitions in turn, round by round, with a checkpoint after each round.

A separate process (`run_worker`) and, with one worker, the root itself take the same steps:
`PartitionRounds` knows nothing of processes. What a worker sends does not depend on when it sends.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from streamembed.errors import StreamembedError
from streamembed.merging.agreement import Agreement
from streamembed.runs.partition_learner import (
    PartitionCheckpoint,
    PartitionLearner,
    PartitionSettings,
    read_first_events,
)
from streamembed.runs.partition_plan import Partition
from streamembed.runs.partition_summary import PartitionSummary, summarise_partition
from streamembed.threads import one_blas_thread


@dataclass(frozen=True, slots=True)
class WorkerTask:
    """The partitions and settings of a worker."""

    parts: tuple[Partition, ...]
    settings: PartitionSettings


@dataclass(frozen=True, slots=True)
class RoundResult:
    """A partition has come to the end of a round."""

    partition: int
    round: int
    data: bytes  # its checkpoint, packed
    position: int  # events learned
    done: bool
    rejected: tuple[tuple[int, str], ...]  # rows of the partition since the round before, and why


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """A worker has failed: the error of this package that says why."""

    error: Exception


class PartitionRounds:
    """The partitions of one worker.

    Parameters
    ----------
    saved
        Of each partition, the last round that the root has, 0 before the first, and the checkpoint.
    """

    def __init__(
        self,
        task: WorkerTask,
        agreement: Agreement,
        saved: Mapping[int, tuple[int, bytes | None]],
    ) -> None:
        self._every = task.settings.every
        self._rounds = {part.number: saved[part.number][0] for part in task.parts}
        self._learners: dict[int, PartitionLearner] = {}
        width = len(agreement.features)
        for part in task.parts:
            data = saved[part.number][1]
            checkpoint = PartitionCheckpoint.create(width)
            if data is not None:
                checkpoint = PartitionCheckpoint.unpack(data, agreement)
            if checkpoint.done:
                del self._rounds[part.number]
                continue
            self._learners[part.number] = PartitionLearner(
                part, task.settings, agreement, checkpoint
            )

    def next_round(self) -> int | None:
        """The round that comes next: that of the partition that is behind; None for no other."""
        return min(self._rounds.values()) + 1 if self._rounds else None

    def step(self) -> RoundResult:
        """Take the partition that is behind, the first of these, through its next round."""
        number = min(self._rounds, key=lambda partition: (self._rounds[partition], partition))
        count = self._rounds[number] + 1
        with one_blas_thread():
            checkpoint, rejected = self._learners[number].advance(count * self._every)
        self._rounds[number] = count
        if checkpoint.done:
            del self._rounds[number], self._learners[number]
        position = checkpoint.covering.position
        return RoundResult(
            number, count, checkpoint.pack(), position, checkpoint.done, tuple(rejected)
        )


def summarise_task(task: WorkerTask) -> dict[int, PartitionSummary]:
    """Of the first events of each partition of a worker."""
    config, summaries = task.settings.config, {}
    warm_up = config.warm_up_events
    for part in task.parts:
        points = read_first_events(part, task.settings.timed, max(warm_up, config.size))
        summaries[part.number] = summarise_partition(points, part.number, config.seed, warm_up)
    return summaries


def run_worker(connection: Connection, task: WorkerTask) -> None:
    """A worker in a process of its own: it ends with its partitions, or when the root is gone.

    Receives an agreement, or None where it is to summarise first, what was saved, and how many
    rounds it may go; sends summaries, and `RoundResult` or `WorkerFailure`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the root says when to stop
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            _run_rounds(connection, task)
        except Exception as error:
            connection.send(WorkerFailure(to_portable_error(error)))


def _exit_with_parent() -> None:
    """However it ended: there is no receiver, and another process may resume the run."""
    root = multiprocessing.parent_process()
    assert root is not None
    root.join()
    os._exit(0)


def _run_rounds(connection: Connection, task: WorkerTask) -> None:
    agreement, saved, limit = connection.recv()
    if agreement is None:
        connection.send(summarise_task(task))
        agreement = connection.recv()
    tasks = PartitionRounds(task, agreement, saved)
    while (coming := tasks.next_round()) is not None:
        while coming > limit:
            limit = connection.recv()
        connection.send(tasks.step())


def to_portable_error(error: Exception) -> Exception:
    """The error, if it is one of this package that can be sent; else what it says."""
    if isinstance(error, StreamembedError):
        with contextlib.suppress(Exception):
            if type(pickle.loads(pickle.dumps(error))) is type(error):
                return error
    return RuntimeError(f"a worker failed: {type(error).__name__}: {error}")


def assign_partitions(parts: Sequence[Partition], workers: int) -> list[tuple[Partition, ...]]:
    """Partitions by worker, in turn: none has two more than another."""
    return [tuple(parts[worker::workers]) for worker in range(min(workers, len(parts)))]
