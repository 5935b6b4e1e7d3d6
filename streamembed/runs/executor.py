"""Executors of pure tasks: in this process, or in a pool of processes.

A task is any call that can be pickled and whose result depends on its arguments alone.
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
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

Task = Callable[[], Any]


class Executor:
    """Runs tasks in this process, first come, first served; others run them elsewhere."""

    def __init__(self, workers: int = 1) -> None:
        """``workers`` is the number of tasks at once."""
        self.workers = workers
        self._tasks: deque[Task] = deque()

    def submit(self, task: Task) -> None:
        """Run a task, now or later."""
        self._tasks.append(task)

    def receive(self) -> Any:
        """The result of a task that was submitted, whichever comes first; its error is raised."""
        return self._tasks.popleft()()


def open_executor(workers: int) -> contextlib.AbstractContextManager[Executor]:
    """One worker is this process; several are processes, which end with the block."""
    if workers == 1:
        return contextlib.nullcontext(Executor())
    return contextlib.closing(PoolExecutor(workers))


class PoolExecutor(Executor):
    """Runs tasks in processes, started by spawn; one that is killed ends the pool: BrokenExecutor.

    Tasks and results are files in a temporary folder, and through the pipes of the pool go their
    paths: a worker that is killed within a long message would leave everyone waiting for its rest.
    """

    def __init__(self, workers: int) -> None:
        super().__init__(workers)
        self._folder = Path(tempfile.mkdtemp(prefix="streamembed-"))
        context = multiprocessing.get_context("spawn")
        # workers end when this end is closed, as it is when this process is gone
        self._theirs, self._own = context.Pipe(duplex=False)
        self._pool = ProcessPoolExecutor(
            workers, context, initializer=_start_worker, initargs=(self._theirs, self._folder)
        )
        self._numbers = itertools.count()
        self._running: set[Future[Path]] = set()

    def submit(self, task: Task) -> None:
        path = self._folder / str(next(self._numbers))
        path.write_bytes(pickle.dumps(task))
        self._running.add(self._pool.submit(_run_file, path))

    def receive(self) -> Any:
        future = wait(self._running, return_when=FIRST_COMPLETED).done.pop()
        self._running.remove(future)
        path = future.result()
        result = pickle.loads(path.read_bytes())
        path.unlink()
        return result

    def close(self) -> None:
        """End all processes, whatever they are at."""
        self._own.close()
        self._pool.shutdown(cancel_futures=True)
        self._theirs.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def _start_worker(root: Connection, folder: Path) -> None:
    """In a worker: the root says when to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(root, folder), daemon=True).start()


def _exit_with_parent(root: Connection, folder: Path) -> None:
    """Exit once the parent has ended, however it did: another process may resume the run."""
    with contextlib.suppress(EOFError, OSError):
        root.recv()
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


def _run_file(path: Path) -> Path:
    """In a worker: run the task in a file, and write its result in place of it."""
    path.write_bytes(pickle.dumps(pickle.loads(path.read_bytes())()))
    return path
