"""The parent: starts readers and the writer, starts again what died, and ends them in order.

It holds no data of a client and none of the run, and imports neither Arrow nor numpy: whatever is
sent to a reader, the parent is not there to be harmed.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from streamembed import errors
from streamembed.errors import MissingFileError, ServerError, StreamembedError
from streamembed.serving.counters import added
from streamembed.serving.server_settings import Settings, must_be_free
from streamembed.serving.tokens import Token, read_tokens
from streamembed.storage.database import NAME, tidy

__all__ = ["Supervisor"]

# Seconds: between two looks at the processes; for an answer; for a process to begin.
EVERY, PATIENCE, START = 0.1, 5.0, 120.0
# Between two attempts to start one again, at first and at most.
PAUSE, LONGEST_PAUSE = 0.5, 30.0
# Of processes: one BLAS thread; few arenas, of which each counts as memory.
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": "268435456",
    "MALLOC_MMAP_THRESHOLD_": "33554432",
}
# Unless the environment says otherwise: what gRPC logs of its clients is nothing for a terminal.
LOG = {"GRPC_VERBOSITY": "NONE"}


class Child:
    """One process, and the line to it; used by several threads."""

    def __init__(self, kind: str, told: dict[str, Any]) -> None:
        command = [sys.executable, "-m", "streamembed.serving.worker", kind]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**LOG, **os.environ, **ENVIRONMENT},
            text=True,
            start_new_session=True,  # Ctrl-C in a terminal is for the parent
        )
        self._lock = threading.Lock()
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._asked = 0
        self.port: int | None = None  # once it answers
        self._send(told)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def _send(self, told: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(told) + "\n")
            self._process.stdin.flush()
        except OSError:  # it has died, which is seen elsewhere
            pass

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(json.loads(line))
        self._answers.put(None)

    def begun(self, patience: float) -> bool:
        """Whether it answers by now.

        Raises
        ------
        StreamembedError
            What it says why it cannot; or that it died.
        """
        if self.port is not None:
            return True
        try:
            told = self._answers.get(timeout=patience)
        except queue.Empty:
            return False
        if told is None:
            raise ServerError(f"a process of the server ended at once ({self.end()})", "internal")
        if "failed" in told:
            kind: type[StreamembedError] = getattr(errors, told["failed"])
            raise kind(told["message"])
        self.port = told["port"]
        return True

    def ask(self, told: dict[str, Any], patience: float = PATIENCE) -> dict[str, Any] | None:
        """Its answer; None where it has died, or takes too long."""
        with self._lock:
            self._asked += 1
            self._send({**told, "id": self._asked})
            until = time.monotonic() + patience
            while True:
                try:
                    answer = self._answers.get(timeout=max(0.0, until - time.monotonic()))
                except queue.Empty:
                    return None
                if answer is None:
                    self._answers.put(None)  # for whoever asks next
                    return None
                if answer["id"] == self._asked:  # and not that of a question nobody waited for
                    return answer

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def end(self) -> str:
        """How it ended, once it has."""
        code = self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    def kill(self) -> None:
        """At once, where it has not ended; what it held is free."""
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for end in (self._process.stdin, self._process.stdout):
            if end is not None:
                with contextlib.suppress(OSError):  # what was to be said to it, and it is not there
                    end.close()


class Place:
    """A reader or the writer: the process that is it now, those that were, and the next.

    Parameters
    ----------
    name, kind
        What the log calls it, and "reader" or "writer".
    port
        Where it listens; once it does, every process of this place listens there.
    told
        What its first line says, by the port and by whether one died before.
    """

    def __init__(
        self, name: str, kind: str, port: int, told: Callable[[int, bool], dict[str, Any]]
    ) -> None:
        self.name, self.kind, self.port = name, kind, port
        self._told = told
        self._past: dict[str, Any] = {}
        self._pause, self._not_before = PAUSE, 0.0
        self.status: dict[str, Any] = {}
        self.restarts = 0
        self.child: Child | None = Child(kind, told(port, False))

    def begun(self, patience: float) -> bool:
        """Whether its process answers; StreamembedError where it cannot."""
        assert self.child is not None
        if not self.child.begun(patience):
            return False
        self.port = self.child.port or 0
        return True

    @property
    def up(self) -> Child | None:
        """The process, where it answers."""
        child = self.child
        return child if child is not None and child.port is not None and child.is_alive() else None

    def look(self) -> bool:
        """Start it again where it has died; whether it has just begun to answer."""
        if self.child is None:
            if time.monotonic() >= self._not_before:
                self.child = Child(self.kind, self._told(self.port, True))
            return False
        had_begun = self.child.port is not None
        try:
            began = not had_begun and self.begun(0.0)
        except StreamembedError as error:
            self._lose(str(error))
            return False
        if began:
            self._pause = PAUSE
        elif not self.child.is_alive():
            self._lose(self.child.end())
        return began

    def _lose(self, why: str) -> None:
        print(f"streamembed: {self.name} has ended ({why}); another is started", file=sys.stderr)
        if self.child is not None:
            self.child.kill()
        self.child = None
        self.restarts += 1
        self._past = self.counts()
        self.status = {}
        self._not_before = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)

    def ask(self, told: dict[str, Any], patience: float = PATIENCE) -> dict[str, Any]:
        """What its process answers; nothing where there is none."""
        return ((child := self.up) and child.ask(told, patience)) or {}

    def counts(self) -> dict[str, Any]:
        """Of all processes that this place has had, as far as they told."""
        found: dict[str, Any] = added(self._past, self.status.get("counts", {}))
        return found


class Supervisor:
    """A server, from its start to its end; a context manager.

    Parameters
    ----------
    settings
        How it serves.

    Raises
    ------
    StreamembedError
        Why it cannot begin.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        _must_be_a_run(settings)
        self._tokens = self._read_tokens()
        for i in range(settings.readers if settings.port else 1):
            must_be_free(settings.host, settings.port and settings.port + i)
        self._folder = tempfile.TemporaryDirectory(prefix="streamembed-")  # of mode 0700
        self._socket = str(Path(self._folder.name) / "writer") if settings.learn else None
        self._places: list[Place] = []
        self._lock = threading.Lock()  # of what places hold
        self.draining = False

    def _read_tokens(self) -> list[Token] | None:
        return None if self._settings.tokens is None else read_tokens(self._settings.tokens)

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _begin(self) -> None:
        settings = self._settings
        if self._socket is not None:
            self._places.append(Place("the writer", "writer", 0, self._told))
        for i in range(settings.readers):
            port = settings.port and settings.port + i
            self._places.append(Place(f"reader {i}", "reader", port, self._told))
        until = time.monotonic() + START
        for place in self._places:
            if not place.begun(max(0.1, until - time.monotonic())):
                raise ServerError(f"{place.name} has not begun in {START:g} seconds", "internal")
        self._tell({"ports": self.ports})

    def _told(self, port: int, again: bool) -> dict[str, Any]:
        """What a process is told first."""
        return {
            "settings": self._settings.to_json(),
            "port": port,
            "socket": self._socket,
            "tokens": self._plain_tokens(),
            "again": again,
        }

    def _plain_tokens(self) -> list[list[str]] | None:
        """As JSON has them."""
        if self._tokens is None:
            return None
        return [[one.name, one.role, one.hash] for one in self._tokens]

    @property
    def _readers(self) -> list[Place]:
        return [place for place in self._places if place.kind == "reader"]

    @property
    def ports(self) -> list[int]:
        """Where readers listen."""
        return [place.port for place in self._readers]

    @property
    def pids(self) -> dict[str, int]:
        """The processes that there are, by what they are called."""
        children = {place.name: place.child for place in self._places}
        return {name: child.pid for name, child in children.items() if child is not None}

    def run(self, stop: Callable[[], bool], renew: Callable[[], bool]) -> int:
        """Keep all of them going until it is to end, and drain; how many calls were cut off.

        Parameters
        ----------
        stop
            Asked again and again whether it is to end. A client that may write can ask for it, too.
        renew
            Whether the tokens are to be read again.
        """
        asked = 0.0
        while not stop():
            if renew():
                self.renew_tokens()
            with self._lock:
                for place in self._places:
                    if place.look() and place.kind == "reader":
                        place.ask({"do": "tell", "ports": self.ports})
            if time.monotonic() - asked >= 1.0:
                asked = time.monotonic()
                self._ask_all()
                if any(place.status.get("drain") for place in self._readers):
                    break
            time.sleep(EVERY)
        return self.drain()

    def renew_tokens(self) -> None:
        """Read the file again; where it is not in order, what was read before goes on counting."""
        try:
            self._tokens = self._read_tokens()
        except StreamembedError as error:
            print(f"streamembed: tokens stay as they were: {error}", file=sys.stderr)
            return
        self._tell({"tokens": self._plain_tokens()})

    def _tell(self, told: dict[str, Any]) -> None:
        with self._lock:
            for place in self._places:
                place.ask({"do": "tell", **told})

    def _ask_all(self) -> None:
        with self._lock:
            for place in self._places:
                place.status = place.ask({"do": "status"})

    def status(self) -> dict[str, Any]:
        """What is known of all processes now, added up."""
        if not self.draining:
            self._ask_all()
        with self._lock:
            counts: dict[str, Any] = {}
            for place in self._places:
                counts = added(counts, place.counts())
            readers = [place.status for place in self._readers]
            snapshots = [one["snapshot"] for one in readers if one.get("snapshot")]
            writers = [place.status for place in self._places if place.kind == "writer"]
            is_up = any(one.get("ready") for one in readers) and all(writers)
            return {
                "ready": is_up and not self.draining,
                "counts": counts,
                "open": sum(one.get("open", 0) for one in readers),
                "waiting": sum(one.get("waiting", 0) for one in writers),
                "restarts": sum(place.restarts for place in self._places),
                "snapshot": min(snapshots, key=lambda one: one["position"], default={}),
            }

    def drain(self) -> int:
        """Let nobody in, wait for who is, and commit; how many calls were cut off."""
        self.draining = True
        grace = self._settings.grace
        left: list[int] = []

        def end(place: Place) -> None:
            told = place.ask({"do": "drain", "grace": grace}, grace + PATIENCE)
            left.append(told.get("left", 0))

        threads = [threading.Thread(target=end, args=(place,)) for place in self._readers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for place in self._places:  # readers first: what they have taken is learned
            if place.kind == "writer":
                place.ask({"do": "drain", "grace": grace}, START)
        return sum(left)

    def _end(self) -> None:
        for place in self._places:
            if place.child is not None:
                place.child.kill()
        self._folder.cleanup()
        tidy(Path(self._settings.run))


def _must_be_a_run(settings: Settings) -> None:
    folder = Path(settings.run)
    if not folder.exists():
        remedy = ": streamembed.open_run makes one, and says how it learns"
        raise MissingFileError(f"{folder} does not exist{remedy * settings.learn}")
    if not (folder / NAME).exists():
        raise MissingFileError(f"{folder} holds no {NAME}: it is no run, or has no store")
