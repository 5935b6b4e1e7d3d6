"""replay-cuts: one log in many layouts, and by hand in many splits; equal bytes."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import streamembed as se
from scenarios.scenario import Expected, Outcome, Scenario
from scenarios.streams import drifting_rings
from streamembed.estimators import DiffusionMap
from streamembed.logs.event_log import write_log
from streamembed.numeric.arrays import Floats

NAMES = [f"x{i:02d}" for i in range(16)]


def engine(size: int) -> se.Engine:
    """The same engine for every layout."""
    return se.Engine(n_components=4, size=size, chunk_size=10)


def run(full: bool) -> Outcome:
    """Three formats, four batch sizes, folders; by hand in random splits; the river face."""
    events, size = (3000, 400) if full else (160, 60)
    points = drifting_rings(events, 0, window=size)
    with tempfile.TemporaryDirectory() as folder:
        logs = _layouts(points, Path(folder) / "logs")
        digests = [
            _digest(se.replay(log, engine(size), Path(folder) / f"run{i}").path / "snapshot.arrow")
            for i, log in enumerate(logs)
        ]
        for sizes in _splits(events):
            by_hand = engine(size)
            for part in np.split(points, sizes):
                by_hand.learn([dict(zip(NAMES, row, strict=True)) for row in part.tolist()])
            digests.append(_save_snapshot(by_hand.snapshot(), Path(folder)))
        digests += [
            _save_snapshot(face.snapshot(), Path(folder))
            for face in _build_estimators(points, size)
        ]
    return Outcome(
        {"layouts and splits": len(digests), "different snapshots": len(set(digests))},
        notes=[f"{events} events; {len(logs)} layouts of the log, the others by hand"],
    )


def _layouts(points: Floats, folder: Path) -> list[Path]:
    """The same rows as files and folders of every format."""
    folder.mkdir()
    logs = []
    for format in ("stream", "file", "parquet"):
        for size in (1, 7, 64, len(points)):
            path = folder / f"{format}-{size}"
            write_log(path, points, NAMES, format=format, rows_per_batch=size)
            logs.append(path)
        parts = folder / f"{format}-parts"
        parts.mkdir()
        for i, part in enumerate(np.array_split(points, 5)):
            write_log(parts / f"{i}", part, NAMES, format=format, rows_per_batch=50)
        logs.append(parts)
    return logs


def _splits(events: int) -> list[list[int]]:
    """Where to cut the calls: nowhere, everywhere, and at random."""
    rng = np.random.default_rng(1)
    return [[], list(range(1, events)), np.sort(rng.choice(events, 40)).tolist()]


def _build_estimators(points: Floats, size: int) -> list[DiffusionMap]:
    """The river estimator, event by event and in mini-batches of a table."""
    one, many = (DiffusionMap(n_components=4, size=size, chunk_size=10) for _ in range(2))
    for row in points.tolist():
        one.learn_one(dict(zip(NAMES, row, strict=True)))
    table = pa.table(dict(zip(NAMES, points.T, strict=True)))
    for start in range(0, len(points), 37):
        many.learn_many(table.slice(start, 37))
    return [one, many]


def _save_snapshot(snapshot: se.Snapshot, folder: Path) -> str:
    snapshot.save(folder / "snapshot")
    return _digest(folder / "snapshot")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


SCENARIO = Scenario(
    id="replay-cuts",
    says="one log in many layouts: byte-identical snapshots",
    run=run,
    expected={"different snapshots": Expected(1, 1, "positions cut chunks, calls do not")},
)
