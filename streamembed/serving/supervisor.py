"""The parent process: starts readers and the writer, restarts those that end, shuts all down.

It holds no data of clients or of the run, and imports neither Arrow nor numpy: nothing that a
client sends to a reader can harm it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any, Self

from streamembed import errors
from streamembed.errors import MissingFileError, ServerError, StreamembedError
from streamembed.serving.channel import receive_message, send_message
from streamembed.serving.server_settings import ServerSettings, check_port_free
from streamembed.serving.tokens import Token, read_tokens
from streamembed.storage.database import DATABASE_NAME

# Seconds: between two checks of the processes; for an answer; for a process to start.
POLL_INTERVAL, TIMEOUT, START_TIMEOUT = 0.1, 5.0, 120.0
# Seconds between two attempts to restart a process, at first and at most.
PAUSE, MAX_PAUSE = 0.5, 30.0
# Environment of the processes: one BLAS thread; one arena, because each counts as memory.
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": "268435456",
    "MALLOC_MMAP_THRESHOLD_": "33554432",
}
# Unless set by the user: gRPC's log of its clients does not belong in a terminal.
LOG_ENVIRONMENT = {"GRPC_VERBOSITY": "NONE"}


class WorkerProcess:
    """One process and the connection to it; used by several threads."""

    def __init__(self, kind: str, start_message: dict[str, Any]) -> None:
        self._connection, connection = Pipe()
        with connection:
            number = connection.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "streamembed.serving.worker", str(number), kind],
                stdin=subprocess.DEVNULL,
                stdout=2,  # whatever it prints goes to standard error
                pass_fds=[number],
                env={**LOG_ENVIRONMENT, **os.environ, **ENVIRONMENT},
                start_new_session=True,  # Ctrl-C in a terminal is for the parent
            )
        self._lock = threading.Lock()
        self._request_id = 0
        self.port: int | None = None  # None until it answers
        with contextlib.suppress(OSError):  # it has ended already: `wait_until_ready` tells
            send_message(self._connection, start_message)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def wait_until_ready(self, timeout: float) -> bool:
        """Whether it answers within a timeout.

        Raises
        ------
        StreamembedError
            The error that it reports; ServerError where it ended.
        """
        if self.port is not None:
            return True
        try:
            if not self._connection.poll(timeout):
                return False
            answer, _ = receive_message(self._connection)
        except (OSError, EOFError):
            reason = self.wait_until_ended()
            raise ServerError(
                f"a process of the server ended at its start ({reason})", "internal"
            ) from None
        if "failed" in answer:
            kind: type[StreamembedError] = getattr(errors, answer["failed"])
            raise kind(answer["message"])
        self.port = answer["port"]
        return True

    def request(self, message: dict[str, Any], timeout: float = TIMEOUT) -> dict[str, Any] | None:
        """Send a message; returns the answer, or None after its end or the timeout."""
        with self._lock, contextlib.suppress(OSError, EOFError):
            self._request_id += 1
            until = time.monotonic() + timeout
            send_message(self._connection, {**message, "id": self._request_id})
            while self._connection.poll(max(0.0, until - time.monotonic())):
                answer, _ = receive_message(self._connection)
                if answer["id"] == self._request_id:  # not of a request that timed out
                    return answer
        return None

    def is_alive(self) -> bool:
        """Whether it is running."""
        return self._process.poll() is None

    def wait_until_ended(self) -> str:
        """Wait for its end; returns its signal or exit code as text."""
        code = self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def kill(self) -> None:
        """End it at once, and close the connection."""
        self._process.kill()
        self._process.wait()
        self._connection.close()


class WorkerSlot:
    """A reader or the writer: its current process, which is replaced where it ends.

    Parameters
    ----------
    name, kind
        Its name in the log, and "reader" or "writer".
    port
        Where it listens; all processes of the slot listen at the port of the first one.
    build_start_message
        Builds the first message to a process from the name, the port, and whether it is a restart.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        port: int,
        build_start_message: Callable[[str, int, bool], dict[str, Any]],
    ) -> None:
        self.name, self.kind, self.port = name, kind, port
        self._build_start_message = build_start_message
        self._pause, self._not_before = PAUSE, 0.0
        self.status: dict[str, Any] = {}
        self.restarts = 0
        self.process: WorkerProcess | None = WorkerProcess(
            kind, build_start_message(name, port, False)
        )

    def wait_until_ready(self, timeout: float) -> bool:
        """Whether its process answers within a timeout; StreamembedError where it fails."""
        assert self.process is not None
        if not self.process.wait_until_ready(timeout):
            return False
        self.port = self.process.port or 0
        return True

    @property
    def running(self) -> WorkerProcess | None:
        """The process, if it is ready and running."""
        process = self.process
        if process is None or process.port is None or not process.is_alive():
            return None
        return process

    def restart_if_ended(self) -> bool:
        """Restart an ended process; returns whether a process has become ready in this call."""
        if self.process is None:
            if time.monotonic() >= self._not_before:
                message = self._build_start_message(self.name, self.port, True)
                self.process = WorkerProcess(self.kind, message)
            return False
        was_ready = self.process.port is not None
        try:
            has_started = not was_ready and self.wait_until_ready(0.0)
        except StreamembedError as error:
            self._discard(str(error))
            return False
        if has_started:
            self._pause = PAUSE
        elif not self.process.is_alive():
            self._discard(self.process.wait_until_ended())
        return has_started

    def _discard(self, reason: str) -> None:
        print(f"streamembed: {self.name} has ended ({reason}); restarting it", file=sys.stderr)
        if self.process is not None:
            self.process.kill()
        self.process = None
        self.restarts += 1
        self.status = {}
        self._not_before = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, MAX_PAUSE)

    def request(self, message: dict[str, Any], timeout: float = TIMEOUT) -> dict[str, Any]:
        """The answer of its process; empty where none answers."""
        return ((process := self.running) and process.request(message, timeout)) or {}


class Supervisor:
    """A running server; a context manager.

    Raises
    ------
    StreamembedError
        The server cannot start.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        _check_run(settings)
        self._tokens = self._read_tokens()
        for i in range(settings.readers if settings.port else 1):
            check_port_free(settings.host, settings.port and settings.port + i)
        self._temporary = tempfile.TemporaryDirectory(prefix="streamembed-")  # of mode 0700
        self.folder = self._temporary.name  # of the counters
        self._socket = str(Path(self.folder) / "socket") if settings.learn else None
        self._slots: list[WorkerSlot] = []
        self._lock = threading.Lock()  # guards the contents of the slots
        self.draining = False

    def _read_tokens(self) -> list[Token] | None:
        return None if self._settings.tokens is None else read_tokens(self._settings.tokens)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _start(self) -> None:
        settings = self._settings
        if self._socket is not None:
            self._slots.append(WorkerSlot("the writer", "writer", 0, self._build_start_message))
        for i in range(settings.readers):
            port = settings.port and settings.port + i
            self._slots.append(WorkerSlot(f"reader {i}", "reader", port, self._build_start_message))
        until = time.monotonic() + START_TIMEOUT
        for slot in self._slots:
            if not slot.wait_until_ready(max(0.1, until - time.monotonic())):
                raise ServerError(
                    f"{slot.name} has not started within {START_TIMEOUT:g} seconds", "internal"
                )
        self._broadcast({"ports": self.ports})

    def _build_start_message(self, name: str, port: int, is_restart: bool) -> dict[str, Any]:
        return {
            "settings": asdict(self._settings),
            "counters": [self.folder, name],
            "port": port,
            "socket": self._socket,
            "tokens": self._encode_tokens(),
            "again": is_restart,
        }

    def _encode_tokens(self) -> list[list[str]] | None:
        if self._tokens is None:
            return None
        return [[token.name, token.role, token.hash] for token in self._tokens]

    @property
    def _readers(self) -> list[WorkerSlot]:
        return [slot for slot in self._slots if slot.kind == "reader"]

    @property
    def ports(self) -> list[int]:
        """Ports of the readers."""
        return [slot.port for slot in self._readers]

    @property
    def pids(self) -> dict[str, int]:
        """Process ids by the names of the slots."""
        processes = {slot.name: slot.process for slot in self._slots}
        return {name: process.pid for name, process in processes.items() if process is not None}

    def run(self, stop: Callable[[], bool], must_reload: Callable[[], bool]) -> int:
        """Serve until stopped, then drain; returns the number of calls that were cut off.

        Parameters
        ----------
        stop
            Called repeatedly; True ends the server. A client with role write can end it, too.
        must_reload
            Called repeatedly; True reads the tokens again.
        """
        refreshed = 0.0
        while not stop():
            if must_reload():
                self.reload_tokens()
            with self._lock:
                for slot in self._slots:
                    if slot.restart_if_ended() and slot.kind == "reader":
                        slot.request({"do": "update", "ports": self.ports})
            if time.monotonic() - refreshed >= 1.0:
                refreshed = time.monotonic()
                self._refresh_status()
                if any(slot.status.get("drain") for slot in self._readers):
                    break
            time.sleep(POLL_INTERVAL)
        return self.drain()

    def reload_tokens(self) -> None:
        """Read the file of tokens again; if it is not valid, the previous tokens stay in use."""
        try:
            self._tokens = self._read_tokens()
        except StreamembedError as error:
            print(f"streamembed: the tokens are unchanged: {error}", file=sys.stderr)
            return
        self._broadcast({"tokens": self._encode_tokens()})

    def _broadcast(self, message: dict[str, Any]) -> None:
        with self._lock:
            for slot in self._slots:
                slot.request({"do": "update", **message})

    def _refresh_status(self) -> None:
        with self._lock:
            for slot in self._slots:
                slot.status = slot.request({"do": "status"})

    def status(self) -> dict[str, Any]:
        """Readiness and gauges of all processes together; `folder` has their counters."""
        if not self.draining:
            self._refresh_status()
        with self._lock:
            readers = [slot.status for slot in self._readers]
            snapshots = [status["snapshot"] for status in readers if status.get("snapshot")]
            writers = [slot.status for slot in self._slots if slot.kind == "writer"]
            is_ready = any(status.get("ready") for status in readers) and all(writers)
            return {
                "ready": is_ready and not self.draining,
                "open": sum(status.get("open", 0) for status in readers),
                "waiting": sum(status.get("waiting", 0) for status in writers),
                "restarts": sum(slot.restarts for slot in self._slots),
                "snapshot": min(snapshots, key=lambda snapshot: snapshot["position"], default={}),
            }

    def drain(self) -> int:
        """Refuse new calls, wait for open ones, and commit; returns the number cut off."""
        self.draining = True
        grace = self._settings.grace
        cut_off: list[int] = []

        def end(slot: WorkerSlot) -> None:
            answer = slot.request({"do": "drain", "grace": grace}, grace + TIMEOUT)
            cut_off.append(answer.get("left", 0))

        threads = [threading.Thread(target=end, args=(slot,)) for slot in self._readers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for slot in self._slots:  # readers first: the events that they received are learned
            if slot.kind == "writer":
                slot.request({"do": "drain", "grace": grace}, START_TIMEOUT)
        return sum(cut_off)

    def _end(self) -> None:
        for slot in self._slots:
            if slot.process is not None:
                slot.process.kill()
        self._temporary.cleanup()


def _check_run(settings: ServerSettings) -> None:
    folder = Path(settings.run)
    if not folder.exists():
        remedy = "; make a run with streamembed.open_run"
        raise MissingFileError(f"{folder} does not exist{remedy * settings.learn}")
    if not (folder / DATABASE_NAME).exists():
        raise MissingFileError(f"{folder} has no {DATABASE_NAME}: it is not a run folder")
