"""The part of the benchmarks on windows of the default map: latency, memory, transforms.

Milliseconds are CPU time: what else the machine does makes no chunk slower. Only a single transform
is too short for that clock.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse.linalg import eigsh

import streamembed as se
from scenarios import streams
from scenarios.audit import operator
from scenarios.benchmarks.graphs import milliseconds
from streamembed.errors import DegenerateMapWarning
from streamembed.numeric.arrays import Floats

__all__ = [
    "measure_large_windows",
    "measure_latency",
    "measure_transforms",
]

ROOT = Path(__file__).resolve().parents[2]
K, CHUNK, TOLERANCE = 10, 10, 3e-3
TURNOVERS = 1.2
LARGE_CHUNKS, LONGEST = 20, 300  # of large windows; seconds
# Above it, four dense matrices of a batch take more than most machines have.
LARGEST_BATCH = 10_000

STREAMS: dict[str, Callable[[int, int], Floats]] = {
    "rings": lambda count, size: streams.drifting_rings(count, 0, window=size),
    "swiss-roll": lambda count, size: streams.swiss_roll(count, 0),
    "letter": lambda count, size: streams.letter()[0][:count],
    "digits": lambda count, size: streams.digits()[0][:count],
}


def create_engine(size: int, **parameters: Any) -> se.Engine:
    """An engine of the default map whose warm-up fills its window."""
    settings: dict[str, Any] = {"scaling": None, "tolerance": TOLERANCE, "n_components": K}
    return se.Engine(size=size, warm_up=size, **(settings | parameters))


def measure_cpu(call: Callable[[], object]) -> float:
    """CPU milliseconds of one call."""
    start = time.process_time()
    call()
    return 1e3 * (time.process_time() - start)


@dataclass(frozen=True)
class WindowRun:
    """A window that was filled, and then updated chunk by chunk, in CPU milliseconds."""

    start: float
    learn: Floats  # (chunks,)
    publish: Floats  # (chunks,), or (0,) without snapshots
    certificates: list[se.Certificate]
    levels: list[str]  # `Snapshot.refinement`


def follow(engine: se.Engine, points: Floats, size: int, snapshots: bool = True) -> WindowRun:
    """Fill the window, then learn its chunks one by one, with or without a snapshot of each."""
    step, learn, publish = engine.config.chunks.size, [], []
    certificates, levels = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateMapWarning)
        start = measure_cpu(lambda: engine.learn(points[:size]))
        for first, end in pairwise(range(size, len(points) + 1, step)):
            learn.append(measure_cpu(partial(engine.learn, points[first:end])))
            if snapshots:
                publish.append(measure_cpu(engine.snapshot))
                certificates.append(engine.snapshot().certificate)
                levels.append(engine.snapshot().refinement)
    return WindowRun(start, np.array(learn), np.array(publish), certificates, levels)


def measure_latency(quick: bool) -> list[str]:
    """The slowest chunk beside the median one, in 1.2 turnovers."""
    lines = [
        f"| learn ten, {TURNOVERS} turnovers | N | chunks | median ms | slowest ms | "
        "slowest / median |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    rows = [("rings", size) for size in ((500, 2000) if quick else (500, 2000, 5000, 10_000))]
    for name, size in [*rows, ("swiss-roll", 2000), ("letter", 2000)]:
        try:
            points = STREAMS[name](size + int(TURNOVERS * size), size)
        except streams.MissingDataError as absent:
            print(f"{name} left out: {absent}")
            continue
        learn = follow(create_engine(size), points, size, snapshots=False).learn
        median, slowest = float(np.median(learn)), float(learn.max())
        lines.append(
            f"| {name} | {size} | {len(learn)} | {median:.2f} | {slowest:.1f} | "
            f"**{slowest / median:.1f}** |"
        )
    return lines


def read_peak_memory() -> float:
    """Peak resident megabytes of this process, from Linux; 0 elsewhere.

    Not ``ru_maxrss``, which begins at the peak of the process that started this one.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return 0.0
    line = next(line for line in status.read_text().split("\n") if line.startswith("VmHWM"))
    return float(line.split()[1]) / 1024.0


def solve_batch(points: Floats, widths: float | Floats, width: float) -> tuple[Floats, Floats]:
    """Kernel and `eigsh`, of widths that it need not look for: what the engine is compared with."""
    dense, stationary = operator(points, widths, width, 0.0)
    eigsh(dense, k=K + 1, v0=np.ones(len(points)))
    return dense, stationary


def run_process(call: str) -> Any:
    """What a function of this module returns in a process of its own, JSON-ready."""
    program = f"""
import json
from threadpoolctl import threadpool_limits
from scenarios.benchmarks import windows
threadpool_limits(limits=1, user_api="blas")
print(json.dumps(windows.{call}))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        check=True,
        cwd=ROOT,
        timeout=LONGEST,
    )
    return json.loads(done.stdout)


def fill_large_window(size: int) -> dict[str, float]:
    """One large window: seconds to fill it, milliseconds a chunk, and peak memory."""
    points = streams.drifting_rings(size + LARGE_CHUNKS * CHUNK, 0, window=size)
    follow(create_engine(60), points[:80], 60)
    before = read_peak_memory()
    run = follow(create_engine(size), points, size)
    return {
        "start": run.start / 1e3,
        "learn": float(run.learn.mean()),
        "certified": float(run.learn.mean() + run.publish.mean()),
        "met": float(np.mean([bool(each.met) for each in run.certificates])),
        "megabytes": read_peak_memory() - before,
    }


def measure_batch_memory(size: int) -> float:
    """Peak megabytes of a batch solve."""
    points = streams.drifting_rings(size, 0, window=size)
    solve_batch(points[:60], 0.6, 1.0)
    before = read_peak_memory()
    solve_batch(points, 0.6, 1.0)
    return read_peak_memory() - before


def measure_large_windows(sizes: tuple[int, ...]) -> list[str]:
    """Start, milliseconds a chunk and peak memory, in a process each."""
    lines = [
        f"| rings, {LARGE_CHUNKS} chunks of ten | start s | learn ms | certified ms | met | "
        "peak memory, MB | of a batch solve, MB |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for size in sizes:
        try:
            create_engine(size)
            run = run_process(f"fill_large_window({size})")
        except (se.errors.ParameterError, subprocess.SubprocessError) as refused:
            lines.append(f"| N = {size:,} | left out: {describe(refused)} | | | | | |")
            continue
        batch = (
            f"{run_process(f'measure_batch_memory({size})'):,.0f}" if size <= LARGEST_BATCH else ""
        )
        lines.append(
            f"| N = {size:,} | {run['start']:.1f} | {run['learn']:.2f} | {run['certified']:.2f} | "
            f"{run['met']:.0%} | **{run['megabytes']:,.0f}** | {batch} |"
        )
    return lines


def describe(refused: Exception) -> str:
    """Why a window could not be measured, in a few words."""
    if isinstance(refused, subprocess.TimeoutExpired):
        return f"more than {LONGEST} s"
    if isinstance(refused, subprocess.CalledProcessError):
        return f"its process ended with {refused.returncode}"
    return str(refused).partition(":")[0]


def time_transforms() -> dict[str, tuple[float, float]]:
    """By kernel, microseconds of one point, and of a point in a batch of 1,024."""
    points = streams.still_rings(3100, 0)
    point, block = points[2000:2001].copy(), points[2000:3024].copy()
    times = {}
    for kernel in ("self_tuning", "gaussian"):
        engine = create_engine(2000, kernel=kernel)
        engine.learn(points[:2000])
        snapshot = engine.snapshot()
        alone = [milliseconds(partial(snapshot.transform, point)) for _ in range(2050)][50:]
        batched = [milliseconds(partial(snapshot.transform, block)) for _ in range(20)]
        each = 1e3 * float(np.median(batched)) / len(block)
        times[kernel] = 1e3 * float(np.median(alone)), each
    return times


def measure_transforms() -> list[str]:
    """Microseconds of one point, and of a point in a batch."""
    lines = [
        "| `snapshot.transform`, N = 2,000, d = 16, k = 10, us a point | one point | "
        "in a batch of 1,024 |",
        "|---|---:|---:|",
    ]
    for kernel, (alone, batched) in run_process("time_transforms()").items():
        lines.append(f"| {kernel} | **{alone:.1f}** | {batched:.1f} |")
    return lines
