"""CPU of a server per request, beside the transform: ``python -m scenarios.benchmarks.serving``.

A thousand landmarks, 16 features, 8 components, coverage, too, over the loopback. Counted are CPU
seconds of the server's processes, as the system tells them (Linux), and those of the same transform
in this process; and those of FastAPI, where it is installed. Prints; gates nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import streamembed as se
from streamembed.numeric.arrays import Floats
from streamembed.serving.server_settings import ServerSettings
from streamembed.serving.supervisor import Supervisor
from streamembed.serving.tokens import add_token
from streamembed.threads import one_blas_thread

SETTINGS = {"memory": "landmarks", "size": 1000, "n_components": 8, "on_bad_row": "skip"}
D = 16
BARS = {1: "at most 0.8 ms", 1024: "at most 1.3 times the bare transform"}


def read_cpu_seconds(pids: list[int]) -> float:
    """Seconds of CPU that processes have taken."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure_call(call: Callable[[], object], times: int, clock: Callable[[], float]) -> float:
    """CPU milliseconds of a call, by the clock of the process that does the work."""
    for _ in range(max(2, times // 20)):
        call()
    began = clock()
    for _ in range(times):
        call()
    return 1e3 * (clock() - began) / times


def draw_points(n: int) -> Floats:
    """A curved sheet among 16 features."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 3 * np.pi, n)
    sheet = np.column_stack([angle * np.cos(angle), rng.uniform(0, 8, n), angle * np.sin(angle)])
    turned = sheet @ np.linalg.qr(rng.standard_normal((D, D)))[0][:3]
    return np.asarray(turned + 0.05 * rng.standard_normal((n, D)))


@contextlib.contextmanager
def start_process(arguments: list[str]) -> Iterator[tuple[int, int]]:
    """A Python process until the end, and the number that it printed first; 0 where it failed."""
    process = subprocess.Popen(
        [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    output = process.stdout.readline()
    try:
        yield process.pid, int(output or 0)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def connect_json(port: int, part: Floats) -> Callable[[], object]:
    """The same transform from FastAPI, over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    body = json.dumps({"points": part.tolist()})
    headers = {"Content-Type": "application/json"}

    def ask() -> object:
        connection.request("POST", "/transform", body, headers)
        answer = connection.getresponse().read()
        assert answer.startswith(b'{"coordinates"'), answer[:200]
        return answer

    return ask


def rows(X: Floats, folder: str, times: int) -> None:
    """CPU of requests of one row and of many."""
    settings = ServerSettings(run=folder, port=0, learn=True)
    with (
        contextlib.ExitStack() as stack,
        Supervisor(settings) as server,
        se.connect(f"grpc://127.0.0.1:{server.ports[0]}") as client,
        tempfile.TemporaryDirectory() as other,
    ):
        snapshot, pids = client.snapshot(), [*server.pids.values()]
        path = Path(other) / "snapshot.arrow"
        snapshot.save(path)
        theirs = stack.enter_context(
            start_process(["-m", "scenarios.baselines.http_server", str(path)])
        )
        print(
            "| rows | bare, ms | server, ms | ratio | requests/s, one client | FastAPI, ms | bar |"
        )
        print("| ---: | ---: | ---: | ---: | ---: | ---: | --- |")
        for count in (1, 1024):
            part = X[:count]

            def bare(part: Floats = part) -> object:
                with one_blas_thread():
                    return snapshot.transform_with_coverage(part)

            n = max(100, times // count)
            alone = measure_call(bare, n, time.process_time)
            began = time.perf_counter()

            def transform(part: Floats = part) -> object:
                return client.transform(part)

            served = measure_call(transform, n, lambda: read_cpu_seconds(pids))
            rate = n / (time.perf_counter() - began)
            json_ms = "not installed"
            pid, port = theirs
            if port:
                call = connect_json(port, part)
                spent = measure_call(call, n, lambda: read_cpu_seconds([pid]))  # noqa: B023
                json_ms = f"{spent:.2f}"
            print(
                f"| {count:,} | {alone:.2f} | {served:.2f} | {served / alone:.2f} | {rate:,.0f} "
                f"| {json_ms} | {BARS[count]} |"
            )
        whole = measure_call(lambda: client.learn(X[:10]), 100, lambda: read_cpu_seconds(pids))
        print(f"\nlearn, 10 rows a call, committed: {whole:.2f} ms of the server")


def measure_silent_client(X: Floats, folder: str, count: int) -> None:
    """Latency of one row for a token while another token opens streams and sends nothing."""
    tokens = Path(folder).parent / "tokens"
    noisy, other = (add_token(tokens, name, "read") for name in ("loud", "other"))
    settings = ServerSettings(run=folder, port=0, tokens=str(tokens))
    with Supervisor(settings) as server:
        url = f"grpc://127.0.0.1:{server.ports[0]}"
        with se.connect(url, token=other) as client:
            for _ in range(100):
                client.transform(X[:1])
            before = measure_wait(client, X)
            command = ["-m", "scenarios.baselines.silent_client", url, noisy, str(count)]
            with start_process(command) as (_, opened_streams):
                during = measure_wait(client, X)
            print(
                f"\none row, 99 of 100: {before:.1f} ms; with {opened_streams} silent streams of "
                f"another token {during:.1f} ms: {during / before:.2f} times (at most 2)"
            )


def measure_wait(client: se.Client, X: Floats) -> float:
    """The 99th of 100 times of a request, of 2,000, in milliseconds."""
    spent = np.empty(2000)
    for i in range(len(spent)):
        began = time.perf_counter()
        client.transform(X[i : i + 1])
        spent[i] = time.perf_counter() - began
    return 1e3 * float(np.quantile(spent, 0.99))


def main() -> None:
    """Print a row for each size of request, and the effect of silent clients."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3000, help="requests of one row")
    parser.add_argument("--silent", type=int, default=1000, help="streams that say nothing")
    asked = parser.parse_args()
    X = draw_points(20_000)
    with tempfile.TemporaryDirectory() as folder:
        run = str(Path(folder) / "run")
        with se.open_run(run, SETTINGS) as learning:
            learning.learn(X)
        measure_silent_client(X, run, asked.silent)
        rows(X, run, asked.times)


if __name__ == "__main__":
    main()
