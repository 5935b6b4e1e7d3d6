"""A process of a server, reader or writer: ``python -m streamembed.serving.worker 5 reader``.

Its parent sends commands over the connection of this number, and receives an answer for each. The
process ends where the connection does, because the parent has ended.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

from streamembed.errors import ParameterError, StreamembedError, summarise_error
from streamembed.serving.authentication import Authentication
from streamembed.serving.channel import receive_message, send_message
from streamembed.serving.counters import RequestCounters, share_counters
from streamembed.serving.ingest_writer import IngestWriter
from streamembed.serving.latest_snapshot import LatestSnapshot
from streamembed.serving.server_settings import ServerSettings, check_port_free
from streamembed.serving.service import Service
from streamembed.serving.tokens import Token

# Seconds to send the last answers, once no call is open.
SHUTDOWN_TIMEOUT = 1.0
# Seconds between two looks at the run.
REFRESH_INTERVAL = 0.5


def _parse_tokens(values: Any) -> list[Token] | None:
    return None if values is None else [Token(*fields) for fields in values]


class ReaderProcess:
    """Answers Flight calls; never learns, and never writes to the run.

    Parameters
    ----------
    socket
        Path of the writer's socket; None without a writer.
    is_restart
        Whether it replaces an ended process: then it waits while the run cannot be read.
    """

    def __init__(
        self,
        settings: ServerSettings,
        port: int,
        socket: str | None,
        tokens: list[Token] | None,
        is_restart: bool,
    ) -> None:
        self._counters = RequestCounters()
        self._stop = threading.Event()
        self._follower = LatestSnapshot(settings.run)
        try:
            self._follower.refresh()
        except StreamembedError:
            if not is_restart:
                raise
        self._authentication = Authentication(
            self._counters, settings.max_streams, settings.idle, tokens
        )
        parts = self._follower, self._authentication, self._counters, socket
        self.service = Service(settings, port, *parts)
        self.port: int = self.service.port
        close_idle = partial(self._authentication.close_idle, self.port)
        for action, interval in (
            (self._follower.refresh, REFRESH_INTERVAL),
            (close_idle, min(settings.idle / 4, 5.0)),
        ):
            task = threading.Thread(target=repeat, args=(action, interval, self._stop), daemon=True)
            task.start()

    def status(self) -> dict[str, Any]:
        """What its parent shows."""
        served, summary = self._follower.current, {}
        if served is not None:
            snapshot = served.snapshot
            summary = {
                "epoch": snapshot.frame.epoch,
                "position": snapshot.position,
                "age": max(0.0, time.time() - served.written_at),
                "residual": snapshot.certificate.residual,
                "met": bool(snapshot.certificate.met),
                "resolution": snapshot.resolution,
                "mass": float(snapshot.masses.sum()),
            }
        return {
            "ready": self.service.ready,
            "drain": self.service.is_drain_requested,
            "open": self._authentication.n_open,
            "snapshot": summary,
        }

    def update(self, message: dict[str, Any]) -> None:
        """Apply new ports of all readers, or new tokens."""
        if "ports" in message:
            self.service.ports = message["ports"]
        if "tokens" in message:
            self._authentication.tokens = _parse_tokens(message["tokens"])

    def drain(self, grace: float) -> int:
        """Refuse new calls and wait for the open ones; returns how many are still open."""
        self._authentication.draining = True
        until = time.monotonic() + grace
        while self._authentication.n_open and time.monotonic() < until:
            time.sleep(0.02)
        n_open = self._authentication.n_open
        self._stop.set()
        if not n_open:
            end = threading.Thread(target=self.service.shutdown, daemon=True)
            end.start()
            end.join(SHUTDOWN_TIMEOUT)
        return n_open


class WriterProcess:
    """Learns the events that readers send."""

    port = 0

    def __init__(self, settings: ServerSettings, socket: str) -> None:
        self._writer = IngestWriter(settings.run, socket, settings.checkpoint_every, _exit_soon)

    def status(self) -> dict[str, Any]:
        """What its parent shows."""
        return {"ready": True, "waiting": self._writer.waiting}

    def update(self, message: dict[str, Any]) -> None:
        """Ignore it: the writer needs no ports and no tokens."""

    def drain(self, grace: float) -> int:
        """Commit all received events; returns 0, for no call is cut off."""
        self._writer.drain()
        return 0


def repeat(action: Callable[[], None], interval: float, stop: threading.Event) -> None:
    """Repeat an action until ``stop`` is set; an error is printed once, and the action repeated."""
    last_error = ""
    while not stop.wait(interval):
        try:
            action()
            last_error = ""
        except Exception as error:  # such as too many open files, or a run that is damaged
            if summarise_error(error) != last_error:
                last_error = summarise_error(error)
                print(f"streamembed: {last_error}", file=sys.stderr, flush=True)


def _exit_soon(reason: str) -> None:
    """End this process after its answer is sent: only another process can open the run again."""
    threading.Timer(0.2, os._exit, (1,)).start()


def limit_memory(extra: int) -> None:
    """Make allocations fail beyond the present memory of this process plus ``extra`` bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if _HAS_PROC else 0
    if pages:
        limit = pages * resource.getpagesize() + extra
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


_HAS_PROC = Path("/proc/self/statm").exists()


def main(number: str, kind: str) -> None:
    """Start a reader or the writer, and run the commands of the parent until it ends."""
    parent = Connection(int(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when this process ends
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if kind == "reader":
        # pyarrow sends clients the traceback of errors that it raises itself
        sys.tracebacklimit = 0
    message, _ = receive_message(parent)
    settings = ServerSettings(**message["settings"])
    port, socket, tokens = message["port"], message["socket"], _parse_tokens(message["tokens"])
    share_counters(*message["counters"])
    try:
        worker: ReaderProcess | WriterProcess
        if kind == "reader":
            worker = ReaderProcess(settings, port, socket, tokens, message["again"])
        else:
            worker = WriterProcess(settings, socket)
    except StreamembedError as error:
        send_message(parent, {"failed": type(error).__name__, "message": summarise_error(error)})
        os._exit(1)
    except (OSError, ValueError, pa.ArrowException) as error:
        reason = _explain_failure(error, settings, port)
        send_message(parent, {"failed": "ParameterError", "message": reason})
        os._exit(1)
    if kind == "reader":
        limit_memory(settings.max_memory)
    gc.freeze()  # the collector skips the imported modules
    with contextlib.suppress(OSError, EOFError):
        send_message(parent, {"port": worker.port})
        _run_commands(worker, parent)
    worker.drain(settings.grace)
    os._exit(0)


def _explain_failure(error: BaseException, settings: ServerSettings, port: int) -> str:
    """The reason that Flight does not give: the port is in use, or the certificate not valid."""
    try:
        check_port_free(settings.host, port)
    except ParameterError as reason:
        return summarise_error(reason)
    if settings.tls is not None:
        return "--tls needs the files of a certificate and of its key, both PEM"
    return f"the server cannot start at {settings.host}:{port} ({summarise_error(error)})"


def _run_commands(worker: ReaderProcess | WriterProcess, parent: Connection) -> None:
    while True:
        message, _ = receive_message(parent)
        answer: dict[str, Any] = {}
        if message["do"] == "status":
            answer = worker.status()
        elif message["do"] == "update":
            worker.update(message)
        else:
            answer = {"left": worker.drain(message["grace"])}
        send_message(parent, {**answer, "id": message["id"]})
        if message["do"] == "drain":
            os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
