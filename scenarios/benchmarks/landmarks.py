"""The landmark part of the benchmarks: pace in the engine and from a log to a run."""

from __future__ import annotations

import tempfile
import time
import warnings
from pathlib import Path

import streamembed as se
from scenarios.streams import FEATURES, drifting_rings, still_rings, swiss_roll
from streamembed.landmarks import absorption
from streamembed.logs.event_log import write_log
from streamembed.numeric.arrays import Floats

__all__ = ["measure_pace"]

CHUNK, EVERY = 256, 2560


def measure_pace(events: int) -> list[str]:
    """Events a second, and what finding the nearest landmark takes of it.

    The faster of two runs: what else the machine does slows one down, and speeds none up.
    """
    lines = [
        "| 16 dimensions, chunks of 256 | landmarks | events/s | with a snapshot every "
        "2,560 | nearest, of the time | log to run |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    streams = {
        "rings": still_rings(events, 0),
        "swiss": swiss_roll(events, 0),
        "drift": drifting_rings(events, 0, window=events // 4),
    }
    for name, points in streams.items():
        for size, half_life in ((500, None), (1000, None), (1000, 5000.0)):
            learned, engine = _learn(points, size, half_life, events)
            learned = max(learned, _learn(points, size, half_life, events)[0])
            with_snapshots = max(_learn(points, size, half_life, EVERY)[0] for _ in range(2))
            search = _measure_nearest(engine, points)
            run = max(_measure_replay(points, size, half_life) for _ in range(2))
            fading = "" if half_life is None else f", half-life {half_life:.0f}"
            lines.append(
                f"| {name}{fading} | {size} | **{learned:,.0f}** | "
                f"{with_snapshots:,.0f} | {search * learned / events:.0%} | **{run:,.0f}** |"
            )
    return lines


def _engine(size: int, half_life: float | None) -> se.Engine:
    return se.Engine(
        n_components=8,
        memory="landmarks",
        size=size,
        half_life=half_life,
        chunk_size=CHUNK,
        scaling=None,
    )


def _learn(
    points: Floats, size: int, half_life: float | None, every: int
) -> tuple[float, se.Engine]:
    """Events a second of a new engine."""
    engine = _engine(size, half_life)
    start = time.perf_counter()
    for first in range(0, len(points), every):
        engine.learn(points[first : first + every])
        if every < len(points):
            _snapshot_without_warnings(engine)
    return len(points) / (time.perf_counter() - start), engine


def _snapshot_without_warnings(engine: se.Engine) -> se.Snapshot:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", se.errors.ResolutionWarning)
        return engine.snapshot()


def _measure_nearest(engine: se.Engine, points: Floats) -> float:
    """Seconds that the search for the nearest landmark takes of all these events."""
    support = _snapshot_without_warnings(engine).points.copy()
    start = time.perf_counter()
    for first in range(0, len(points), CHUNK):
        absorption.PointGeometry(support, points[first : first + CHUNK], len(support)).nearest()
    return time.perf_counter() - start


def _measure_replay(points: Floats, size: int, half_life: float | None) -> float:
    """Events a second from an Arrow stream on disk to a run folder."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        write_log(log, points, [f"x{j:02d}" for j in range(FEATURES)])
        engine = _engine(size, half_life)
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", se.errors.ResolutionWarning)
            se.replay(log, engine, Path(folder) / "run", snapshot_every=EVERY)
        return len(points) / (time.perf_counter() - start)
