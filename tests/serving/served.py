"""A server as its user starts it, and small runs for it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.flight as fl

import streamembed as se
from streamembed.serving.tokens import add_token

X = np.random.default_rng(0).standard_normal((400, 3))
SMALL: dict[str, Any] = {"size": 60, "warm_up": 40, "on_bad_row": "skip"}
PROGRAM = "from streamembed.cli import main; main()"


def made(folder: Path, n: int = 200, **more: Any) -> Path:
    """A run that has learned n events, as points without names."""
    with se.open_run(folder / "run", {**SMALL, **more}) as run:
        run.learn(X[:n])
    return folder / "run"


@dataclass
class Server:
    """A process that serves.

    Attributes
    ----------
    web : str
        Where /metrics is.
    """

    process: subprocess.Popen[str]
    url: str
    web: str
    said: list[str] = field(default_factory=list)

    def client(self, token: str | None = None, **more: Any) -> se.Client:
        """A client of it."""
        return se.connect(self.url, token=token, **more)

    def flight(self) -> Any:
        """A plain client of Flight."""
        return fl.FlightClient(self.url)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)


@contextlib.contextmanager
def serving(run: Path, *flags: Any) -> Iterator[Server]:
    """Start a server with any free ports, and end it."""
    arguments = ["serve", run, "--port", 0, "--metrics-port", 0, *flags]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    if not (url := process.stdout.readline().strip()):
        raise AssertionError(process.communicate()[1])
    server = Server(process, url, process.stderr.readline().strip())
    lines = process.stderr
    listener = threading.Thread(target=lambda: server.said.extend(lines))
    listener.start()
    try:
        yield server
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        listener.join()
        process.stdout.close()
        process.stderr.close()


def tokens_in(folder: Path) -> tuple[Path, str, str]:
    """A file of tokens, and one that may read, and one that may write."""
    path = folder / "tokens"
    return path, add_token(path, "ann", "read"), add_token(path, "ben", "write")


def bearer(token: str | None, *more: tuple[bytes, bytes], timeout: float | None = 20.0) -> Any:
    """Options of a call with a token."""
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    return fl.FlightCallOptions(headers=[*headers, *more], timeout=timeout)
