"""Kills of a server while it learns: ``python -m scenarios.fuzz.served_kills``.

Two producers learn batches without a pause, and a third client transforms. The server is killed by
SIGKILL at a random time and started again at the same port. Afterwards each acknowledged batch must
be in the run once, with no event beside those that were sent, and its engine must have the bytes of
one that learned the same batches in the same order. Exit code 1 otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

import streamembed as se
from streamembed.runs import verify
from streamembed.serving.tokens import add_token

SETTINGS: dict[str, Any] = {"size": 200, "warm_up": 50}
ROWS = 20  # of a batch


def draw_batch(producer: int, number: int) -> Any:
    """The rows of a batch."""
    return np.random.default_rng((producer, number)).standard_normal((ROWS, 4))


class Server:
    """A server at one port that is killed and started again."""

    def __init__(self, run: Path, tokens: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"grpc://127.0.0.1:{port}"
        arguments = ["serve", run, "--learn", "--tokens", tokens, "--port", port, "--grace", 1]
        self._command = [sys.executable, "-m", "streamembed", *map(str, arguments)]
        self._start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise SystemExit("the server did not start")

    def restart(self) -> None:
        """Kill it, and start it again."""
        self._process.kill()
        self._process.wait()
        self._start()

    def stop(self) -> int:
        """Its exit code."""
        self._process.terminate()
        return self._process.wait()


def main() -> None:
    """Kill, start again, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    folder = Path(tempfile.mkdtemp())
    run, tokens = folder / "run", folder / "tokens"
    with se.open_run(run, SETTINGS):
        pass
    secrets = [add_token(tokens, f"p{i}", "write") for i in range(2)]
    server, stop = Server(run, tokens), threading.Event()
    acknowledged, answered = [0, 0], [0]

    def learn(producer: int) -> None:
        with se.connect(server.url, token=secrets[producer], patience=300.0) as client:
            while not stop.is_set():
                learned = client.learn(draw_batch(producer, acknowledged[producer]))
                assert learned.accepted == ROWS
                acknowledged[producer] += 1

    def transform() -> None:
        with se.connect(server.url, token=secrets[0], patience=300.0) as client:
            while not stop.is_set():
                with contextlib.suppress(se.errors.NotReadyError):
                    answered[0] += bool(client.transform(draw_batch(0, 0)).valid.all())

    threads = [threading.Thread(target=learn, args=(i,)) for i in range(2)]
    threads.append(threading.Thread(target=transform))
    for thread in threads:
        thread.start()
    for _ in range(asked.kills):
        time.sleep(float(rng.uniform(0.05, 1.0)))
        server.restart()
    stop.set()
    for thread in threads:
        thread.join()
    code = server.stop()
    failures = [] if code == 143 else [f"exit code {code}"]
    with se.open_run(run) as opened:
        names = [name for name in opened.batch_ids() if name.startswith("served ")]
        sent = {
            f"served p{i} {k * ROWS} {(k + 1) * ROWS}"
            for i in range(2)
            for k in range(acknowledged[i])
        }
        if set(names) != sent:
            failures.append(f"batches differ: {sorted(set(names) ^ sent)[:5]}")
        if opened.position != ROWS * sum(acknowledged):
            failures.append(f"{opened.position} events, not {ROWS * sum(acknowledged)}")
    if verify(run, deep=True).troubles:
        failures.append("verify finds damage")
    print(
        f"{asked.kills} kills, seed {asked.seed}: {sum(acknowledged)} batches acknowledged, "
        f"{answered[0]} transforms answered; {failures or 'all batches are there, each once'}"
    )
    shutil.rmtree(folder)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
