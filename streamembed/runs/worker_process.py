"""What a worker does: its partitions in turn, round by round, a checkpoint of each after each.

The same steps are taken by a process of its own (`work`) and by the root itself where there is one
worker: `Tasks` knows nothing of processes. Nothing that a worker sends hangs on when it sends it.
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
from streamembed.runs.partition_learner import Checkpoint, Learner, Settings, first_events
from streamembed.runs.partition_plan import Part
from streamembed.runs.partition_summary import Summary, summarise
from streamembed.threads import one_blas_thread

__all__ = ["Failed", "Progressed", "Start", "Tasks", "portable", "summaries", "work"]


@dataclass(frozen=True, slots=True)
class Start:
    """What a worker is told first.

    Attributes
    ----------
    parts : tuple of Part
        Its partitions.
    settings : Settings
    """

    parts: tuple[Part, ...]
    settings: Settings


@dataclass(frozen=True, slots=True)
class Progressed:
    """A partition has come to the end of a round.

    Attributes
    ----------
    partition, round : int
    data : bytes
        Its checkpoint, packed.
    position : int
        Events learned.
    done : bool
    rejected : tuple of (int, str)
        Rows of the partition since the round before, and why.
    """

    partition: int
    round: int
    data: bytes
    position: int
    done: bool
    rejected: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """A worker cannot go on: the error of this package that says why."""

    error: Exception


class Tasks:
    """The partitions of one worker.

    Parameters
    ----------
    start
    agreement
    saved
        Of each partition, the last round that the root has, 0 before the first, and the checkpoint.
    """

    def __init__(
        self,
        start: Start,
        agreement: Agreement,
        saved: Mapping[int, tuple[int, bytes | None]],
    ) -> None:
        self._every = start.settings.every
        self._rounds = {part.number: saved[part.number][0] for part in start.parts}
        self._learners: dict[int, Learner] = {}
        width = len(agreement.features)
        for part in start.parts:
            data = saved[part.number][1]
            from_ = Checkpoint.first(width) if data is None else Checkpoint.unpack(data, agreement)
            if from_.done:
                del self._rounds[part.number]
                continue
            self._learners[part.number] = Learner(part, start.settings, agreement, from_)

    def next_round(self) -> int | None:
        """The round that comes next: that of the partition that is behind; None for no other."""
        return min(self._rounds.values()) + 1 if self._rounds else None

    def step(self) -> Progressed:
        """Take the partition that is behind, the first of these, through its next round."""
        number = min(self._rounds, key=lambda one: (self._rounds[one], one))
        count = self._rounds[number] + 1
        with one_blas_thread():
            found, rejected = self._learners[number].advance(count * self._every)
        self._rounds[number] = count
        if found.done:
            del self._rounds[number], self._learners[number]
        position = found.covering.position
        return Progressed(number, count, found.pack(), position, found.done, tuple(rejected))


def summaries(start: Start) -> dict[int, Summary]:
    """Of the first events of each partition of a worker."""
    chosen, found = start.settings, {}
    count = max(chosen.warm_up, chosen.size)
    for part in start.parts:
        points = first_events(part, chosen.timed, count)
        found[part.number] = summarise(points, part.number, chosen.seed, chosen.warm_up)
    return found


def work(connection: Connection, start: Start) -> None:
    """A worker in a process of its own: it ends with its partitions, or when the root is gone.

    Receives an agreement, or None where it is to summarise first, what was saved, and how many
    rounds it may go; sends summaries, and `Progressed` or `Failed`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the root says when to stop
    threading.Thread(target=_end_with_the_root, daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            _work(connection, start)
        except Exception as error:
            connection.send(Failed(portable(error)))


def _end_with_the_root() -> None:
    """However it ended: nobody is left to send to, and the run may be gone on with."""
    root = multiprocessing.parent_process()
    assert root is not None
    root.join()
    os._exit(0)


def _work(connection: Connection, start: Start) -> None:
    agreement, saved, limit = connection.recv()
    if agreement is None:
        connection.send(summaries(start))
        agreement = connection.recv()
    tasks = Tasks(start, agreement, saved)
    while (coming := tasks.next_round()) is not None:
        while coming > limit:
            limit = connection.recv()
        connection.send(tasks.step())


def portable(error: Exception) -> Exception:
    """The error, if it is one of this package that can be sent; else what it says."""
    if isinstance(error, StreamembedError):
        with contextlib.suppress(Exception):
            if type(pickle.loads(pickle.dumps(error))) is type(error):
                return error
    return RuntimeError(f"a worker failed: {type(error).__name__}: {error}")


def dealt(parts: Sequence[Part], workers: int) -> list[tuple[Part, ...]]:
    """Partitions by worker, in turn: none has two more than another."""
    return [tuple(parts[worker::workers]) for worker in range(min(workers, len(parts)))]
