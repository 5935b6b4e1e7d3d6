"""Executors: take partitions through their rounds, in this process or in a pool of processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Protocol

from streamembed.errors import StoppedError
from streamembed.merging.agreement import Agreement
from streamembed.runs.partition_summary import PartitionSummary
from streamembed.runs.worker_process import (
    PartitionRounds,
    RoundResult,
    WorkerFailure,
    WorkerTask,
    run_worker,
    summarise_task,
)

# Of a partition: its last round that is committed, and its checkpoint.
SavedRounds = Mapping[int, tuple[int, bytes | None]]
# Rounds that a worker may be ahead of the last published one; bounds the pending checkpoints.
MAX_ROUNDS_AHEAD = 2
# Deaths of a worker without a result in between, after which the run stops.
MAX_DEATHS = 3


class Executor(Protocol):
    """Takes partitions through their rounds."""

    def summarise(self) -> dict[int, PartitionSummary]:
        """Of the first events of all partitions."""
        ...

    def begin(self, agreement: Agreement) -> None:
        """Start to learn, where the agreement was made of the summaries."""
        ...

    def receive(self) -> RoundResult | None:
        """The next round of any partition; None at the end of all."""
        ...

    def publish(self, count: int) -> None:
        """The root has published that round."""
        ...


# Opens an executor: `open_executor`, or a function of the same arguments.
ExecutorFactory = Callable[
    [Sequence[WorkerTask], Callable[[], SavedRounds], Agreement | None, int],
    AbstractContextManager[Executor],
]


@contextmanager
def open_executor(
    starts: Sequence[WorkerTask],
    saved: Callable[[], SavedRounds],
    agreement: Agreement | None,
    published: int,
) -> Iterator[Executor]:
    """One worker is the root itself; several are processes, which end with the block.

    Parameters
    ----------
    starts
        One a worker.
    saved
        What is committed by now.
    agreement
        None where it has to be made; see `Executor.begin`.
    published
        The last round that the root has published.
    """
    if len(starts) == 1:
        yield InProcessExecutor(starts[0], saved, agreement)
        return
    executor = PoolExecutor(starts, saved, agreement, published + MAX_ROUNDS_AHEAD)
    try:
        yield executor
    finally:
        executor.close()


class InProcessExecutor:
    """The root takes the rounds itself."""

    def __init__(
        self, start: WorkerTask, saved: Callable[[], SavedRounds], agreement: Agreement | None
    ) -> None:
        self._start, self._saved = start, saved
        self._tasks: PartitionRounds | None = None
        if agreement is not None:
            self.begin(agreement)

    def summarise(self) -> dict[int, PartitionSummary]:
        return summarise_task(self._start)

    def begin(self, agreement: Agreement) -> None:
        self._tasks = PartitionRounds(self._start, agreement, self._saved())

    def receive(self) -> RoundResult | None:
        assert self._tasks is not None
        return None if self._tasks.next_round() is None else self._tasks.step()

    def publish(self, count: int) -> None:
        """No effect: there is no worker to notify."""


class _Worker:
    """One process, and the pipe to it."""

    def __init__(
        self, start: WorkerTask, agreement: Agreement | None, saved: SavedRounds, limit: int
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self.start = start
        self.connection: Connection
        self.connection, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=run_worker, args=(theirs, start), daemon=True, name="streamembed worker"
        )
        self.process.start()
        theirs.close()  # or its end would not be seen here
        own = {part.number: saved[part.number] for part in start.parts}
        self.send((agreement, own, limit))

    def send(self, message: object) -> None:
        """Send a message; a dead process is noticed in `receive`."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(message)


class PoolExecutor:
    """Processes, started by spawn; one that dies is replaced, and resumes from the last commit.

    Parameters as those of `open_executor`; ``limit`` is the round that workers may go to.
    """

    def __init__(
        self,
        starts: Sequence[WorkerTask],
        saved: Callable[[], SavedRounds],
        agreement: Agreement | None,
        limit: int,
    ) -> None:
        self._saved, self._agreement, self._limit = saved, agreement, limit
        self._deaths: dict[int, int] = {}
        self._workers: list[_Worker | None] = []
        for start in starts:
            self._workers.append(_Worker(start, agreement, saved(), limit))

    def summarise(self) -> dict[int, PartitionSummary]:
        summaries: dict[int, PartitionSummary] = {}
        for index in range(len(self._workers)):
            while (message := self._receive_from(index)) is None:
                self._replace(index)
            summaries.update(message)
        return summaries

    def _receive_from(self, index: int) -> Any:
        """The next message of a worker; None where it has died, perhaps within a message."""
        worker = self._workers[index]
        assert worker is not None
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join()
            return None
        if isinstance(message, WorkerFailure):
            raise message.error
        return message

    def begin(self, agreement: Agreement) -> None:
        self._agreement = agreement
        for worker in self._workers:
            assert worker is not None
            worker.send(agreement)

    def receive(self) -> RoundResult | None:
        while any(worker is not None for worker in self._workers):
            ready = wait([worker.connection for worker in self._workers if worker is not None])
            index, worker = next(
                (index, candidate)
                for index, candidate in enumerate(self._workers)
                if candidate is not None and candidate.connection in ready
            )
            message = self._receive_from(index)
            if message is not None:
                assert isinstance(message, RoundResult)
                self._deaths[index] = 0
                return message
            if worker.process.exitcode == 0:
                self._workers[index] = None
            else:
                self._replace(index)
        return None

    def _replace(self, index: int) -> None:
        dead = self._workers[index]
        assert dead is not None
        dead.process.join()
        dead.connection.close()
        if dead.process.exitcode == 1:  # errors of its work are sent; this is Python's
            raise StoppedError(
                f"worker {index} could not be started (exit code 1; the error is above): a script "
                'must call this under if __name__ == "__main__":, for every worker begins by '
                "importing it"
            )
        self._deaths[index] = self._deaths.get(index, 0) + 1
        if self._deaths[index] > MAX_DEATHS:
            raise StoppedError(
                f"worker {index} has died {self._deaths[index]} times without getting anywhere "
                f"(exit code {dead.process.exitcode}): is there enough memory? Fix the cause, "
                "then repeat the command to resume"
            )
        self._workers[index] = _Worker(dead.start, self._agreement, self._saved(), self._limit)

    def publish(self, count: int) -> None:
        self._limit = count + MAX_ROUNDS_AHEAD
        for worker in self._workers:
            if worker is not None:
                worker.send(self._limit)

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            if worker is not None:
                worker.connection.close()
                worker.process.kill()
                worker.process.join()
        self._workers = []
