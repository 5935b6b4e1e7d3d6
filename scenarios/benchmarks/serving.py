"""CPU of a server per request, beside the transform: ``python -m scenarios.benchmarks.serving``.

A thousand landmarks, 16 features, 8 components, coverage, too, over the loopback. Counted are CPU
seconds of the server's process, as the system tells them (Linux), and those of the same transform
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
from streamembed.threads import one_blas_thread

SETTINGS = {"memory": "landmarks", "size": 1000, "n_components": 8, "on_bad_row": "skip"}
D = 16


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
def start_process(arguments: list[str]) -> Iterator[tuple[int, str]]:
    """A Python process until the end, and the line that it printed first; empty if it failed."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.pid, process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def serve(run: str, *flags: str) -> contextlib.AbstractContextManager[tuple[int, str]]:
    """A server of a run: its process id and its address."""
    return start_process(["-m", "streamembed", "serve", run, "--port", "0", "--grace", "1", *flags])


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
    with (
        contextlib.ExitStack() as stack,
        serve(folder, "--learn") as (server, url),
        se.connect(url) as client,
        tempfile.TemporaryDirectory() as other,
    ):
        snapshot, pids = client.snapshot(), [server]
        path = Path(other) / "snapshot.arrow"
        snapshot.save(path)
        theirs = stack.enter_context(
            start_process(["-m", "scenarios.baselines.http_server", str(path)])
        )
        print("| rows | bare, ms | server, ms | ratio | requests/s, one client | FastAPI, ms |")
        print("| ---: | ---: | ---: | ---: | ---: | ---: |")
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
                call = connect_json(int(port), part)
                spent = measure_call(call, n, lambda: read_cpu_seconds([pid]))  # noqa: B023
                json_ms = f"{spent:.2f}"
            print(
                f"| {count:,} | {alone:.2f} | {served:.2f} | {served / alone:.2f} | {rate:,.0f} "
                f"| {json_ms} |"
            )
        whole = measure_call(lambda: client.learn(X[:10]), 100, lambda: read_cpu_seconds(pids))
        print(f"\nlearn, 10 rows a call, committed: {whole:.2f} ms of the server")


def measure_silent_client(X: Floats, folder: str, count: int) -> None:
    """Latency of one row while another client opens streams and sends nothing."""
    with serve(folder) as (_, url), se.connect(url) as client:
        for _ in range(100):
            client.transform(X[:1])
        before = measure_wait(client, X, 2000)
        command = ["-m", "scenarios.baselines.silent_client", url, str(count)]
        with start_process(command) as (_, opened_streams):
            during = measure_wait(client, X, 2000)
        print(
            f"\none row, 99 of 100: {before[1]:.1f} ms; with {opened_streams} silent streams of "
            f"another client {during[1]:.1f} ms: {during[1] / before[1]:.2f} times (at most 2)"
        )


def measure_learner(X: Floats, folder: str) -> None:
    """Latency of one row while another client learns without a pause, and without it, in turn."""
    print("\n| rows a batch | idle, ms | while it learns, ms | ratio | rows learned/s |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for rows_ in (10, 100, 1000):
        times: dict[bool, list[Floats]] = {False: [], True: []}
        with serve(folder, "--learn") as (_, url), se.connect(url) as client:
            measure_wait(client, X, 300)
            learned = 0.0
            for turn in range(6):
                learns = bool(turn % 2)
                command = ["-m", "scenarios.baselines.busy_producer", url, str(rows_)]
                with contextlib.ExitStack() as stack:
                    if learns:
                        stack.enter_context(start_process(command))
                        first, began = client.offset, time.perf_counter()
                    times[learns].append(measure_wait(client, X, 1000))
                    if learns:
                        learned += (client.offset - first) / (time.perf_counter() - began) / 3
        idle, busy = (np.median(times[learns], axis=0) for learns in (False, True))
        print(
            f"| {rows_} | {idle[0]:.2f}, 99 of 100 {idle[1]:.1f} | {busy[0]:.2f}, 99 of 100 "
            f"{busy[1]:.1f} | {busy[0] / idle[0]:.2f} (at most 2.5) | {learned:,.0f} |",
            flush=True,
        )


def measure_wait(client: se.Client, X: Floats, times: int) -> Floats:
    """The median and the 99th of 100 times of a request of one row, in milliseconds."""
    spent = np.empty(times)
    for i in range(times):
        began = time.perf_counter()
        client.transform(X[i : i + 1])
        spent[i] = time.perf_counter() - began
    return 1e3 * np.quantile(spent, [0.5, 0.99])


def main() -> None:
    """Print a row for each size of request, and the effect of silent clients and of a learner."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3000, help="requests of one row")
    parser.add_argument("--silent", type=int, default=300, help="streams that say nothing")
    asked = parser.parse_args()
    X = draw_points(20_000)
    with tempfile.TemporaryDirectory() as folder:
        run = str(Path(folder) / "run")
        with se.open_run(run, SETTINGS) as learning:
            learning.learn(X)
        measure_silent_client(X, run, asked.silent)
        rows(X, run, asked.times)
        measure_learner(X, run)


if __name__ == "__main__":
    main()
