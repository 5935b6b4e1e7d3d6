"""CPU of a server per request, beside the bare transform: ``python -m scenarios.serve_bench``.

A thousand landmarks, 16 features, 8 components, coverage, too, over the loopback. Counted are CPU
seconds of the server's processes, as the system tells them (Linux), and those of the same transform
in this process. Prints; gates nothing.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import streamembed as se
from streamembed.numeric.arrays import Floats
from streamembed.serving.settings import Settings
from streamembed.serving.supervisor import Supervisor
from streamembed.threads import one_blas_thread

SETTINGS = {"memory": "landmarks", "size": 1000, "n_components": 8, "on_bad_row": "skip"}
D = 16
BARS = {1: "at most 0.8 ms", 1024: "at most 1.3 times the bare transform"}


def cpu_of(pids: list[int]) -> float:
    """Seconds of CPU that processes have taken."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def each(call: Callable[[], object], times: int, clock: Callable[[], float]) -> float:
    """CPU milliseconds of a call, by the clock of whoever does the work."""
    for _ in range(max(2, times // 20)):
        call()
    began = clock()
    for _ in range(times):
        call()
    return 1e3 * (clock() - began) / times


def points(n: int) -> Floats:
    """A curved sheet among 16 features."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 3 * np.pi, n)
    sheet = np.column_stack([angle * np.cos(angle), rng.uniform(0, 8, n), angle * np.sin(angle)])
    turned = sheet @ np.linalg.qr(rng.standard_normal((D, D)))[0][:3]
    return np.asarray(turned + 0.05 * rng.standard_normal((n, D)))


def main() -> None:
    """Print a row for each size of request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3000, help="requests of one row")
    times = parser.parse_args().times
    X = points(20_000)
    with tempfile.TemporaryDirectory() as folder:
        with se.open_run(folder, SETTINGS) as run:
            run.learn(X)
        settings = Settings(run=folder, port=0, learn=True)
        with Supervisor(settings) as server, se.connect(f"grpc://127.0.0.1:{server.ports[0]}") as c:
            snapshot, pids = c.snapshot(), [*server.pids.values()]
            print("| rows | bare, ms | server, ms | ratio | requests/s, one client | bar |")
            print("| ---: | ---: | ---: | ---: | ---: | --- |")
            for rows in (1, 1024):
                part = X[:rows]

                def bare(part: Floats = part) -> object:
                    with one_blas_thread():
                        return snapshot.transform_with_coverage(part)

                n = max(100, times // rows)
                alone = each(bare, n, time.process_time)
                began = time.perf_counter()
                served = each(lambda part=part: c.transform(part), n, lambda: cpu_of(pids))  # type: ignore[misc]
                rate = n / (time.perf_counter() - began)
                print(
                    f"| {rows:,} | {alone:.2f} | {served:.2f} | {served / alone:.2f} | {rate:,.0f} "
                    f"| {BARS[rows]} |"
                )
            whole = each(lambda: c.learn(X[:10]), 100, lambda: cpu_of(pids))
            print(f"\nlearn, 10 rows a call, committed: {whole:.2f} ms of the server")


if __name__ == "__main__":
    main()
