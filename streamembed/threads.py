"""Threads: a fair queue, and one BLAS thread wherever state or snapshots are computed.

Nothing here may stay behind where an interrupt breaks off what is going on, whatever line it was
at. So there is no lock to release: a turn is an entry in a queue, made and
taken out by one operation each, and it is taken out twice, in case the interrupt comes just as it
is about to be taken out for the first time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import numpy as np  # noqa: F401  (its BLAS must be loaded before the controller looks for it)
import scipy.linalg  # noqa: F401  (and scipy's own)
from threadpoolctl import ThreadpoolController

from streamembed.errors import ConcurrentUseError

P = ParamSpec("P")
T = TypeVar("T")

_BLAS = [
    library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"
]
# By itself threadpoolctl 3.8 lets only the first thread that has set the number of OpenBLAS set it
# again, and does nothing for others, which would compute with many threads and give other bits.
# Here the users are counted, and it does not matter which of them sets it.
_SETTERS = [getattr(each, "_real_set_num_threads", each.set_num_threads) for each in _BLAS]
# Seconds between two looks at whether it is one's turn: a tenth of the smallest chunk.
PAUSE = 1e-4


# Who has a turn: process, thread, and what tells it from the next one of the same thread.
Turn = tuple[int, int, object]


class FairQueue:
    """A queue for a shared resource, first come, first served.

    A turn that was taken before a fork is not waited for in the child: who took it is not there.
    """

    def __init__(self, waits: bool = True) -> None:
        """Whether a turn ``waits`` for those before it, or is refused while there are any."""
        self._waits = waits
        # of a dict, entries can be made, listed in order and taken out by one operation each
        self._queue: dict[Turn, None] = {}

    def is_own_turn(self) -> bool:
        """Whether this thread has a turn, or waits for one."""
        if not self._queue:
            return False
        here = _process_id, threading.get_ident()
        return here in [turn[:2] for turn in list(self._queue)]

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do the work when its turn has come; at once where this thread has its turn already.

        Where turns do not wait, ConcurrentUseError while any thread has its turn.
        """
        if self._waits and self.is_own_turn():
            return work(*args, **kwargs)
        turn = _process_id, threading.get_ident(), object()
        try:
            try:
                self._queue[turn] = None
                while len(self._queue) > 1 and not self._is_first(turn):
                    if not self._waits:
                        raise ConcurrentUseError(
                            "this engine is learning in another thread, and a stream has one "
                            "order: this call had no effect; let one thread learn, or guard the "
                            "calls with a lock"
                        )
                    time.sleep(PAUSE)
                return work(*args, **kwargs)
            finally:
                self._queue.pop(turn, None)
        finally:
            self._queue.pop(turn, None)

    def _is_first(self, turn: Turn) -> bool:
        """Whether no turn of this process is before this one."""
        here = [each for each in list(self._queue) if each[0] == turn[0]]
        return here[0] == turn


class _BlasThreads:
    """The process's number of BLAS threads: and what it was before a block of one thread."""

    def __init__(self) -> None:
        self._owners: dict[object, None] = {}
        self._previous: list[int] | None = None

    def acquire(self, user: object) -> None:
        """One thread from now on; the first user remembers what it was."""
        if self._previous is None:
            self._previous = [library.num_threads for library in _BLAS]
        self._owners[user] = None
        for set_threads in _SETTERS:
            set_threads(1)

    def release(self, user: object) -> None:
        """The last user to leave restores what it was. Leaving twice is leaving once."""
        self._owners.pop(user, None)
        if self._owners or self._previous is None:
            return
        for set_threads, threads in zip(_SETTERS, self._previous, strict=True):
            set_threads(threads)
        self._previous = None

    def reset(self) -> None:
        """In the child of a fork: users in other threads are not there."""
        if self._owners:
            self._owners.clear()
            self.release(None)


_BLAS_THREADS = _BlasThreads()
_QUEUE = FairQueue()
_process_id = os.getpid()  # kept, for asking the system at every turn would show


def _reset_after_fork() -> None:
    global _process_id
    _process_id = os.getpid()
    _BLAS_THREADS.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run the block with one BLAS thread: two are up to 40 times slower here, and differ in bits.

    The libraries are found once; entering costs a few microseconds, where a fresh
    ``threadpool_limits`` looks through the whole process. Blocks of several threads may overlap:
    the number is that of the process, and the last to leave restores it.
    """
    user = object()
    try:
        try:
            _QUEUE.run(_BLAS_THREADS.acquire, user)
            yield
        finally:
            _QUEUE.run(_BLAS_THREADS.release, user)
    finally:  # in case an interrupt broke the first off
        _QUEUE.run(_BLAS_THREADS.release, user)
