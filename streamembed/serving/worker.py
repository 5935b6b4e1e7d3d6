"""A process of a server: a reader, or the writer. ``python -m streamembed.serving.worker reader``.

Its parent says what to do on standard input, a line of JSON each, and gets a line back on standard
output. Where that input ends, the parent is gone, and so goes this. What is printed by anything
else goes to standard error.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa

from streamembed.errors import ParameterError, StreamembedError, said
from streamembed.serving.authentication import Gate
from streamembed.serving.counters import Counts
from streamembed.serving.ingest_writer import Learning
from streamembed.serving.latest_snapshot import Follower
from streamembed.serving.server_settings import Settings, must_be_free
from streamembed.serving.service import Service
from streamembed.serving.tokens import Token

__all__ = ["Reader", "WriterProcess", "main"]

# Seconds that answers on their way out have, once no call is open.
LAST = 1.0


@dataclass(frozen=True, slots=True)
class Start:
    """What a process is told first.

    Attributes
    ----------
    settings : Settings
    port : int
        Of a reader.
    socket : str or None
        Where the writer listens.
    tokens : list of Token, or None
    again : bool
        Whether it takes the place of one that died: then it waits for a run that cannot be read.
    """

    settings: Settings
    port: int
    socket: str | None
    tokens: list[Token] | None
    again: bool


def _tokens(told: Any) -> list[Token] | None:
    return None if told is None else [Token(*one) for one in told]


class Reader:
    """Answers calls of Flight; never learns, and never writes."""

    def __init__(self, start: Start) -> None:
        settings = start.settings
        self._counts = Counts()
        self._stop = threading.Event()
        self._follower = Follower(settings.run)
        try:
            self._follower.look()
        except StreamembedError:
            if not start.again:
                raise
        self._gate = Gate(self._counts, settings.max_streams, settings.idle, start.tokens)
        parts = self._follower, self._gate, self._counts, start.socket
        self.service = Service(settings, start.port, *parts)
        self.port: int = self.service.port
        watches = (self._follower.watch, (self._stop,)), (self._gate.watch, (self.port, self._stop))
        for watch, arguments in watches:
            threading.Thread(target=watch, args=arguments, daemon=True).start()

    def status(self) -> dict[str, Any]:
        """What its parent shows."""
        now, told = self._follower.current, {}
        if now is not None:
            one = now.snapshot
            told = {
                "epoch": one.frame.epoch,
                "position": one.position,
                "age": max(0.0, time.time() - now.stamp),
                "residual": one.certificate.residual,
                "met": bool(one.certificate.met),
                "resolution": one.resolution,
                "mass": float(one.masses.sum()),
            }
        return {
            "ready": self.service.ready,
            "drain": self.service.drain_asked,
            "open": self._gate.n_open,
            "counts": self._counts.told(),
            "snapshot": told,
        }

    def tell(self, told: dict[str, Any]) -> None:
        """What changed: ports of all readers, or tokens."""
        if "ports" in told:
            self.service.ports = told["ports"]
        if "tokens" in told:
            self._gate.tokens = _tokens(told["tokens"])

    def drain(self, grace: float) -> int:
        """Let nobody in, and wait for those who are; how many are left."""
        self._gate.draining = True
        until = time.monotonic() + grace
        while self._gate.n_open and time.monotonic() < until:
            time.sleep(0.02)
        left = self._gate.n_open
        self._stop.set()
        if not left:
            end = threading.Thread(target=self.service.shutdown, daemon=True)
            end.start()
            end.join(LAST)
        return left


class WriterProcess:
    """Learns what readers hand to it."""

    port = 0

    def __init__(self, start: Start) -> None:
        assert start.socket is not None
        settings = start.settings
        self._learning = Learning(settings.run, start.socket, settings.checkpoint_every, _die_soon)

    def status(self) -> dict[str, Any]:
        """What its parent shows."""
        return {
            "ready": True,
            "counts": self._learning.counts.told(),
            "waiting": self._learning.waiting,
        }

    def tell(self, told: dict[str, Any]) -> None:
        """Nothing that it needs to know."""

    def drain(self, grace: float) -> int:
        """Commit all that was put."""
        self._learning.drain()
        return 0


def _die_soon(why: str) -> None:
    """After the answer that says so: the run can be opened again, by another process only."""
    threading.Timer(0.2, os._exit, (1,)).start()


def limit_memory(more: int) -> None:
    """Allocations fail beyond what this process has now and so many bytes more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if _HAS_PROC else 0
    if pages:
        limit = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


_HAS_PROC = Path("/proc/self/statm").exists()


def _say(sink: TextIO, told: dict[str, Any]) -> None:
    sink.write(json.dumps(told) + "\n")
    sink.flush()


def main(kind: str) -> None:
    """Begin as told, and do what is asked until the parent is gone, or says so."""
    sink = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when this ends
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if kind == "reader":
        sys.tracebacklimit = 0  # or pyarrow sends clients tracebacks of the errors it raises itself
    told = json.loads(sys.stdin.readline())
    start = Start(
        Settings.from_json(told["settings"]),
        told["port"],
        told["socket"],
        _tokens(told["tokens"]),
        told["again"],
    )
    try:
        made: Reader | WriterProcess = Reader(start) if kind == "reader" else WriterProcess(start)
    except StreamembedError as error:
        _say(sink, {"failed": type(error).__name__, "message": said(error)})
        os._exit(1)
    except (OSError, ValueError, pa.ArrowException) as error:
        _say(sink, {"failed": "ParameterError", "message": _why(error, start)})
        os._exit(1)
    if kind == "reader":
        limit_memory(start.settings.max_memory)
    gc.freeze()  # what was imported is not looked through again
    _say(sink, {"port": made.port})
    _obey(made, sink, start.settings.grace)


def _why(error: BaseException, start: Start) -> str:
    """What Flight does not say: the port was taken meanwhile, or the certificate is none."""
    settings = start.settings
    try:
        must_be_free(settings.host, start.port)
    except ParameterError as known:
        return said(known)
    if settings.tls is not None:
        return "the files of --tls must be a certificate and its key, both PEM"
    return f"{settings.host}:{start.port} cannot be served at ({said(error)})"


def _obey(made: Reader | WriterProcess, sink: TextIO, grace: float) -> None:
    for line in sys.stdin:
        told = json.loads(line)
        if told["do"] == "status":
            _say(sink, {**made.status(), "id": told["id"]})
        elif told["do"] == "tell":
            made.tell(told)
            _say(sink, {"id": told["id"]})
        else:
            left = made.drain(told["grace"])
            _say(sink, {"left": left, "id": told["id"]})
            os._exit(0)
    made.drain(grace)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
