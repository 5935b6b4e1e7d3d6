"""A running server: everything that one process needs to serve a run, from start to drain."""

from __future__ import annotations

import ctypes
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa

from streamembed.errors import ParameterError, summarise_error
from streamembed.runs.run_reader import read_run
from streamembed.serving.batch_learner import BatchLearner
from streamembed.serving.server_settings import ServerSettings
from streamembed.serving.service import Service

# Seconds between two looks at the run, and the largest share of the time that they take.
REFRESH_INTERVAL, MAX_SHARE = 0.5, 0.1
# Seconds to send the last answers, once no call is open.
SHUTDOWN_TIMEOUT = 1.0
# Seconds that a thread may run while others wait: with Python's 5 ms a transform would wait as long
# for the thread that learns.
SWITCH_INTERVAL = 0.0005
# glibc's M_ARENA_MAX, M_TRIM_THRESHOLD and M_MMAP_THRESHOLD: one arena, which keeps its pages. Each
# arena counts as memory, and a large transform would give its pages back after each tile.
ALLOCATION = {-8: 1, -1: 1 << 28, -3: 1 << 25}

# Bytes of address space that a thread reserves for its stack; every open call has a thread.
STACK_SIZE = 1 << 23


@contextmanager
def start_server(settings: ServerSettings) -> Iterator[Service]:
    """Serve a run until the end of the block.

    Raises
    ------
    StreamembedError
        The server cannot start.
    """
    stop = threading.Event()
    with ExitStack() as stack:
        read_run(settings.run).close()  # learning into a folder without a run would begin one
        learner = None
        if settings.learn:
            learner = stack.enter_context(BatchLearner(settings.run, settings.checkpoint_every))
        try:
            service = Service(settings, learner)
        except pa.ArrowException as error:
            raise ParameterError(
                f"the server cannot start at {settings.host}:{settings.port} "
                f"({summarise_error(error)}); --tls needs the files of a certificate and of "
                "its key, both PEM"
            ) from error
        stack.callback(_shut_down, service)
        stack.callback(stop.set)
        arguments = service.refresh, REFRESH_INTERVAL, stop
        threading.Thread(target=repeat, args=arguments, daemon=True).start()
        yield service


def _shut_down(service: Service) -> None:
    """Stop listening. A thread does it: it would wait for ever for a call that stays open."""
    end = threading.Thread(target=service.shutdown, daemon=True)
    end.start()
    end.join(SHUTDOWN_TIMEOUT)


def repeat(action: Callable[[], None], interval: float, stop: threading.Event) -> None:
    """Repeat an action until ``stop`` is set; an error is printed once, and the action repeated."""
    last_error, pause = "", interval
    while not stop.wait(pause):
        began = time.monotonic()
        try:
            action()
            last_error = ""
        except Exception as error:  # such as too many open files, or a run that is damaged
            if summarise_error(error) != last_error:
                last_error = summarise_error(error)
                print(f"streamembed: {last_error}", file=sys.stderr, flush=True)
        pause = max(interval, (time.monotonic() - began) / MAX_SHARE)


def tune_process() -> None:
    """Prepare this process to serve; call it before `start_server`."""
    # pyarrow sends clients the traceback of errors that it raises itself
    sys.tracebacklimit = 0
    sys.setswitchinterval(SWITCH_INTERVAL)
    if sys.platform == "linux":
        set_option = getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)
        for option, value in ALLOCATION.items():
            set_option(option, value)


def limit_memory(settings: ServerSettings) -> None:
    """Make allocations fail beyond the present memory, the limit, and stacks of open calls."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return
    present = int(statm.read_text().split()[0]) * resource.getpagesize()
    limit = present + (settings.max_memory_mib << 20) + settings.max_streams * STACK_SIZE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
