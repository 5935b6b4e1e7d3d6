"""Executors of pure tasks: in this process, or in a pool of processes.

A task is any call that can be pickled and whose result depends on its arguments alone. So one that
is lost with its process is run again, and nobody can tell.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import pickle
import shutil
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from streamembed.errors import StoppedError, StreamembedError

Task = Callable[[], Any]
# Losses of a pool without a result in between, after which the run stops.
MAX_LOSSES = 3
# Of the pool's folder: there once a worker has started.
STARTED = "started"


class Executor(Protocol):
    """Runs tasks, in any order."""

    workers: int  # tasks at once

    def submit(self, task: Task) -> None:
        """Run a task, now or later."""
        ...

    def receive(self) -> Any:
        """The result of a task that was submitted, whichever comes first; its error is raised."""
        ...


@contextlib.contextmanager
def open_executor(workers: int) -> Iterator[Executor]:
    """One worker is this process; several are processes, which end with the block."""
    if workers == 1:
        yield SerialExecutor()
        return
    with contextlib.closing(PoolExecutor(workers)) as executor:
        yield executor


class SerialExecutor:
    """Runs tasks in this process, first come, first served."""

    workers = 1

    def __init__(self) -> None:
        self._tasks: deque[Task] = deque()

    def submit(self, task: Task) -> None:
        self._tasks.append(task)

    def receive(self) -> Any:
        return self._tasks.popleft()()


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """A task has failed: its error, as one that can be sent."""

    error: Exception


def run_task(task: Task) -> Any:
    """The result of a task, or a `TaskFailure`."""
    try:
        return task()
    except Exception as error:
        if isinstance(error, StreamembedError):
            with contextlib.suppress(Exception):
                if type(pickle.loads(pickle.dumps(error))) is type(error):
                    return TaskFailure(error)
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        message = f"a worker failed: {type(error).__name__}: {error}{notes}"
        return TaskFailure(RuntimeError(message))


class PoolExecutor:
    """Runs tasks in processes, started by spawn; a pool that has lost one is made again.

    Tasks and results are files in a temporary folder, and through the pipes of the pool go their
    paths: a worker that is killed within a long message would leave everyone waiting for its rest.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._folder = Path(tempfile.mkdtemp(prefix="streamembed-"))
        # workers end when this end is closed, as it is when this process is gone
        self._theirs, self._own = multiprocessing.get_context("spawn").Pipe(duplex=False)
        self._numbers = itertools.count()
        self._running: dict[Future[None], Path] = {}
        self._losses = 0
        self._pool = self._open_pool()

    def submit(self, task: Task) -> None:
        path = self._folder / str(next(self._numbers))
        path.write_bytes(pickle.dumps(task))
        self._send(path)

    def receive(self) -> Any:
        while True:
            (future, *_), _ = wait(self._running, return_when=FIRST_COMPLETED)
            try:
                future.result()
            except BrokenProcessPool as error:
                self._replace_pool(error)
                continue
            self._losses = 0
            path = self._running.pop(future)
            result = pickle.loads(_name_result(path).read_bytes())
            path.unlink()
            _name_result(path).unlink()
            if isinstance(result, TaskFailure):
                raise result.error
            return result

    def close(self) -> None:
        """End all processes, whatever they are at."""
        self._own.close()
        self._pool.shutdown(cancel_futures=True)
        self._theirs.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _open_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(
            self.workers,
            multiprocessing.get_context("spawn"),
            initializer=_start_worker,
            initargs=(self._theirs, self._folder),
        )

    def _send(self, path: Path) -> None:
        while True:
            try:
                self._running[self._pool.submit(_run_file, path)] = path
                return
            except BrokenProcessPool as error:
                self._replace_pool(error)

    def _replace_pool(self, error: BrokenProcessPool) -> None:
        """Another pool runs the tasks that are without a result."""
        self._losses += 1
        self._pool.shutdown()
        if self._losses > 1 and not (self._folder / STARTED).exists():
            raise StoppedError(
                "workers could not be started (the error is above): a script must call this under "
                'if __name__ == "__main__":, for every worker begins by importing it'
            ) from error
        if self._losses > MAX_LOSSES:
            raise StoppedError(
                f"workers have died {self._losses} times without getting anywhere: is there enough "
                "memory? Fix the cause, then repeat the command to resume"
            ) from error
        lost = [future for future in self._running if future.exception() is not None]
        paths = [self._running.pop(future) for future in lost]
        self._pool = self._open_pool()
        for path in paths:
            self._send(path)


def _start_worker(root: Connection, folder: Path) -> None:
    """In a worker: the root says when to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_root, args=(root, folder), daemon=True).start()
    with contextlib.suppress(FileNotFoundError):  # the root is closing
        (folder / STARTED).touch()


def _end_with_root(root: Connection, folder: Path) -> None:
    """However it ended: there is no receiver, and another process may resume the run."""
    with contextlib.suppress(EOFError, OSError):
        root.recv()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _run_file(path: Path) -> None:
    """In a worker: run the task in a file, and write its result beside it."""
    result = run_task(pickle.loads(path.read_bytes()))
    _name_result(path).write_bytes(pickle.dumps(result))


def _name_result(task: Path) -> Path:
    return task.with_suffix(".result")
