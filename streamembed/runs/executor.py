"""A crew: who works on the partitions. The root itself, or processes that may be killed."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Protocol

from streamembed.errors import StoppedError
from streamembed.merging.agreement import Agreement
from streamembed.runs.partition_summary import Summary
from streamembed.runs.worker_process import Failed, Progressed, Start, Tasks, summaries, work

__all__ = ["AHEAD", "PATIENCE", "Alone", "Crew", "Placing", "Saved", "Several", "crew_of"]

# Of a partition: its last round that is committed, and its checkpoint.
Saved = Mapping[int, tuple[int, bytes | None]]
# Rounds that a worker may be ahead of the last published one: so many checkpoints wait at most.
AHEAD = 2
# A worker that dies so often without having sent anything in between dies for a reason.
PATIENCE = 3


class Crew(Protocol):
    """Whoever takes partitions through their rounds."""

    def summaries(self) -> dict[int, Summary]:
        """Of the first events of all partitions."""
        ...

    def begin(self, agreement: Agreement) -> None:
        """Start to learn, where the agreement was made of the summaries."""
        ...

    def receive(self) -> Progressed | None:
        """What comes next, of any partition; None where nothing more does."""
        ...

    def publish(self, count: int) -> None:
        """The root has published that round."""
        ...


# Who works where: what `crew_of` does, of the same arguments.
Placing = Callable[
    [Sequence[Start], Callable[[], Saved], Agreement | None, int], AbstractContextManager[Crew]
]


@contextmanager
def crew_of(
    starts: Sequence[Start],
    saved: Callable[[], Saved],
    agreement: Agreement | None,
    published: int,
) -> Iterator[Crew]:
    """One worker is the root itself; several are processes, which end with the block.

    Parameters
    ----------
    starts
        One a worker.
    saved
        What is committed by now.
    agreement
        None where it has to be made; see `Crew.begin`.
    published
        The last round that the root has published.
    """
    if len(starts) == 1:
        yield Alone(starts[0], saved, agreement)
        return
    crew = Several(starts, saved, agreement, published + AHEAD)
    try:
        yield crew
    finally:
        crew.close()


class Alone:
    """The root works itself."""

    def __init__(
        self, start: Start, saved: Callable[[], Saved], agreement: Agreement | None
    ) -> None:
        self._start, self._saved = start, saved
        self._tasks: Tasks | None = None
        if agreement is not None:
            self.begin(agreement)

    def summaries(self) -> dict[int, Summary]:
        return summaries(self._start)

    def begin(self, agreement: Agreement) -> None:
        self._tasks = Tasks(self._start, agreement, self._saved())

    def receive(self) -> Progressed | None:
        assert self._tasks is not None
        return None if self._tasks.next_round() is None else self._tasks.step()

    def publish(self, count: int) -> None:
        """Nobody waits for it."""


class _Worker:
    """One process, and the pipe to it."""

    def __init__(self, start: Start, agreement: Agreement | None, saved: Saved, limit: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.start = start
        self.connection: Connection
        self.connection, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=work, args=(theirs, start), daemon=True, name="streamembed worker"
        )
        self.process.start()
        theirs.close()  # or its end would not be seen here
        own = {part.number: saved[part.number] for part in start.parts}
        self.tell((agreement, own, limit))

    def tell(self, what: object) -> None:
        """Send, unless it is gone, which is noticed where it is waited for."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(what)


class Several:
    """Processes, started by spawn; one that dies is replaced, and goes on from what is committed.

    Parameters as those of `crew_of`; ``limit`` is the round that workers may go to.
    """

    def __init__(
        self,
        starts: Sequence[Start],
        saved: Callable[[], Saved],
        agreement: Agreement | None,
        limit: int,
    ) -> None:
        self._saved, self._agreement, self._limit = saved, agreement, limit
        self._deaths: dict[int, int] = {}
        self._workers: list[_Worker | None] = []
        for start in starts:
            self._workers.append(_Worker(start, agreement, saved(), limit))

    def summaries(self) -> dict[int, Summary]:
        found: dict[int, Summary] = {}
        for index in range(len(self._workers)):
            found.update(self._summaries_of(index))
        return found

    def _summaries_of(self, index: int) -> dict[int, Summary]:
        while True:
            worker = self._workers[index]
            assert worker is not None
            try:
                told = worker.connection.recv()
            except (EOFError, OSError):
                self._replace(index)
                continue
            if isinstance(told, Failed):
                raise told.error
            assert isinstance(told, dict)
            return told

    def begin(self, agreement: Agreement) -> None:
        self._agreement = agreement
        for worker in self._workers:
            assert worker is not None
            worker.tell(agreement)

    def receive(self) -> Progressed | None:
        while any(worker is not None for worker in self._workers):
            ready = wait([one.connection for one in self._workers if one is not None])
            index, worker = next(
                (index, one)
                for index, one in enumerate(self._workers)
                if one is not None and one.connection in ready
            )
            try:
                told = worker.connection.recv()
            except (EOFError, OSError):  # gone, between two messages or within one
                worker.process.join()
                if worker.process.exitcode == 0:
                    self._workers[index] = None
                else:
                    self._replace(index)
                continue
            if isinstance(told, Failed):
                raise told.error
            assert isinstance(told, Progressed)
            self._deaths[index] = 0
            return told
        return None

    def _replace(self, index: int) -> None:
        """A new process for a worker that died."""
        dead = self._workers[index]
        assert dead is not None
        dead.process.join()
        dead.connection.close()
        if dead.process.exitcode == 1:  # what goes wrong in its work it tells; this is Python's
            raise StoppedError(
                f"worker {index} could not be started (exit code 1; the error is above): a script "
                'must call this under if __name__ == "__main__":, for every worker begins by '
                "importing it"
            )
        self._deaths[index] = self._deaths.get(index, 0) + 1
        if self._deaths[index] > PATIENCE:
            raise StoppedError(
                f"worker {index} has died {self._deaths[index]} times without getting anywhere "
                f"(exit code {dead.process.exitcode}): is there enough memory? Mend the cause; the "
                "same command again goes on"
            )
        self._workers[index] = _Worker(dead.start, self._agreement, self._saved(), self._limit)

    def publish(self, count: int) -> None:
        self._limit = count + AHEAD
        for worker in self._workers:
            if worker is not None:
                worker.tell(self._limit)

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            if worker is not None:
                worker.connection.close()
                worker.process.kill()
                worker.process.join()
        self._workers = []
