"""A running server: everything that one process needs to serve a run, from start to drain."""

from __future__ import annotations

import ctypes
import resource
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pyarrow as pa

from streamembed.errors import MissingFileError, ParameterError, StreamembedError, summarise_error
from streamembed.serving import server_metrics
from streamembed.serving.authentication import Authentication
from streamembed.serving.batch_learner import BatchLearner
from streamembed.serving.server_metrics import ServerMetrics
from streamembed.serving.server_settings import LOOPBACK, ServerSettings, check_port
from streamembed.serving.service import Service
from streamembed.serving.tokens import Token, read_tokens

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


class Server:
    """A running server of a run; a context manager.

    Attributes
    ----------
    port, metrics_port : int or None
        Where it listens; ``metrics_port`` is None without metrics.

    Raises
    ------
    StreamembedError
        The server cannot start.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self.metrics_port: int | None = None
        folder = Path(settings.run)
        if not folder.exists():
            remedy = "; make a run with streamembed.open_run" * settings.learn
            raise MissingFileError(f"{folder} does not exist{remedy}")
        if not (folder / "run.db").exists():
            raise MissingFileError(f"{folder} has no run.db: it is not a run folder")
        check_port("--port", settings.host, settings.port)
        if settings.metrics_port is not None:
            check_port("--metrics-port", LOOPBACK, settings.metrics_port)
            if server_metrics.MISSING:
                raise ParameterError(
                    "--metrics-port needs prometheus_client: pip install 'streamembed[serve]'"
                )
        self._metrics = ServerMetrics(self._read_gauges)
        self._authentication = Authentication(
            settings.max_streams, self._read_tokens(), self._metrics.count_request
        )
        self._learner: BatchLearner | None = None
        self._stop = threading.Event()

    def _read_tokens(self) -> list[Token] | None:
        return None if self._settings.tokens is None else read_tokens(self._settings.tokens)

    def __enter__(self) -> Self:
        settings = self._settings
        with ExitStack() as stack:
            if settings.learn:
                learner = BatchLearner(settings.run, settings.checkpoint_every)
                self._learner = stack.enter_context(learner)
            try:
                parts = settings, self._learner, self._authentication, self._metrics
                self._service = Service(*parts)
            except pa.ArrowException as error:
                raise ParameterError(
                    f"the server cannot start at {settings.host}:{settings.port} "
                    f"({summarise_error(error)}); --tls needs the files of a certificate and of "
                    "its key, both PEM"
                ) from error
            stack.callback(self._shut_down)
            if settings.metrics_port is not None:
                self.metrics_port, close = self._metrics.listen(LOOPBACK, settings.metrics_port)
                stack.callback(close)
            arguments = self._service.refresh, REFRESH_INTERVAL, self._stop
            threading.Thread(target=repeat, args=arguments, daemon=True).start()
            self._resources = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._authentication.draining = True
        self._resources.close()

    @property
    def port(self) -> int:
        """Port of the Flight service."""
        return int(self._service.port)

    @property
    def failure(self) -> BaseException | None:
        """Why the run has stopped to learn, after which the server must be started again."""
        return None if self._learner is None else self._learner.failure

    def reload_tokens(self) -> None:
        """Read the file of tokens again; if it is not valid, the previous tokens stay in use."""
        try:
            self._authentication.tokens = self._read_tokens()
        except StreamembedError as error:
            print(f"streamembed: the tokens are unchanged: {error}", file=sys.stderr)

    @property
    def n_open(self) -> int:
        """Number of open calls."""
        return self._authentication.n_open

    def drain(self) -> None:
        """Refuse new calls, and wait for the open ones for as long as the settings say."""
        self._authentication.draining = True
        until = time.monotonic() + self._settings.grace
        while self.n_open and time.monotonic() < until:
            time.sleep(0.02)

    def _shut_down(self) -> None:
        """Stop listening. A thread does it: it would wait for ever for a call that stays open."""
        self._stop.set()
        end = threading.Thread(target=self._service.shutdown, daemon=True)
        end.start()
        end.join(SHUTDOWN_TIMEOUT)

    def _read_gauges(self) -> dict[str, float]:
        service = self._service
        gauges = {
            "ready": float(service.ready),
            "streams_open": self.n_open,
            "queue_batches": self._learner.waiting if self._learner else 0,
        }
        if (served := service.served) is not None:
            snapshot = served.snapshot
            gauges |= {
                "snapshot_epoch": snapshot.frame.epoch,
                "snapshot_position": snapshot.position,
                "snapshot_age_seconds": max(0.0, time.time() - served.written_at),
                "certificate_residual": snapshot.certificate.residual,
                "certificate_met": float(bool(snapshot.certificate.met)),
                "resolution": snapshot.resolution,
                "mass_total": float(snapshot.masses.sum()),
            }
        return gauges


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
    """Prepare this process to serve; call it before `Server`."""
    # pyarrow sends clients the traceback of errors that it raises itself
    sys.tracebacklimit = 0
    sys.setswitchinterval(SWITCH_INTERVAL)
    if sys.platform == "linux":
        set_option = getattr(ctypes.CDLL(None), "mallopt", lambda *_: 0)
        for option, value in ALLOCATION.items():
            set_option(option, value)


def limit_memory(settings: ServerSettings) -> None:
    """Make allocations fail beyond the present memory, `max_memory`, and stacks of open calls."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return
    present = int(statm.read_text().split()[0]) * resource.getpagesize()
    limit = present + settings.max_memory + settings.max_streams * STACK_SIZE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
