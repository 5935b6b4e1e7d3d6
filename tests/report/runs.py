"""Small runs of every kind that a report may meet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import streamembed as se
from streamembed.logs.event_log import write_distance_log, write_log

ATTACK = (
    "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
    "\"'&$$x$$ {{state}}"
)
NAMES = ["height", "wbf", "age"]
SMALL: dict[str, Any] = {"n_components": 3, "size": 60, "warm_up": 40}
EVERY: dict[str, Any] = {"snapshot_every": 40, "checkpoint_every": 40}
_RNG = np.random.default_rng(5)
CLASSES = _RNG.integers(0, 3, 240)
POINTS = _RNG.standard_normal((3, 3))[CLASSES] * 4 + 0.5 * _RNG.standard_normal((240, 3))
IDS = [f"e{i}" for i in range(240)]


def replayed(folder: Path, **more: Any) -> Path:
    """Finished, with labels, times of days, ids that are texts, and metrics."""
    names = more.pop("names", NAMES)
    labels, ids = more.pop("labels", [f"class {i}" for i in CLASSES]), more.pop("ids", IDS)
    points, stop = more.pop("points", POINTS), more.pop("stop", None)
    write_log(folder / "log", points, names, ids=ids, labels=labels)
    engine = se.Engine(**{**SMALL, **more})
    try:
        se.replay(folder / "log", engine, folder / "run", **EVERY, stop=stop)
    except KeyboardInterrupt:
        assert stop is not None
    return folder / "run"


def unfinished(folder: Path, **more: Any) -> Path:
    """Stopped at its third snapshot."""
    asked = iter([False, False, *[True] * 9])
    return replayed(folder, stop=lambda: next(asked), **more)


def learned(folder: Path) -> Path:
    """By a program, with labels that came with the events and later."""
    with se.open_run(folder / "run", {**SMALL, "metrics": ("fenn",)}, checkpoint_every=60) as run:
        run.learn(POINTS[:100], [None, *CLASSES[1:100].tolist()])
        run.learn(POINTS[100:200], ids=None)
        run.label([150], [2])
    return folder / "run"


def cold(folder: Path) -> Path:
    """Nothing but a few events: no snapshot yet."""
    with se.open_run(folder / "run", SMALL) as run:
        run.learn(POINTS[:10])
    return folder / "run"


def distances(folder: Path) -> Path:
    """Of objects without coordinates."""
    rows = [np.linalg.norm(POINTS[:t] - POINTS[t], axis=1) for t in range(120)]
    write_distance_log(folder / "log", rows)
    se.replay(folder / "log", se.Engine(**SMALL), folder / "run", **EVERY)
    return folder / "run"


def bad_rows(folder: Path) -> Path:
    """Some rows have no value."""
    points = POINTS.copy()
    points[[60, 61, 130], [0, 1, 2]] = np.nan
    return replayed(folder, points=points)


def moving(folder: Path) -> Path:
    """Far jumps: epochs change."""
    points = POINTS + 40.0 * (np.arange(240) // 80)[:, None] * np.array([1.0, -1.0, 0.3])
    return replayed(folder, points=points, labels=None)


KINDS: dict[str, Callable[[Path], Path]] = {
    "finished": lambda folder: replayed(folder, picture=True, metrics=("itml",)),
    "unfinished": unfinished,
    "causal-free": lambda folder: unfinished(folder, labels=None, ids=None),
    "online": learned,
    "cold": cold,
    "distances": distances,
    "landmarks": lambda folder: replayed(folder, memory="landmarks", size=50),
    "one component": lambda folder: replayed(folder, n_components=1),
    "two components": lambda folder: replayed(folder, n_components=2, tolerance=None),
    "graph": lambda folder: replayed(folder, method="laplacian_eigenmaps", picture=True),
    "bad rows": bad_rows,
    "moving": moving,
}
SHORT = ("online", "distances", "moving", "one component")
HOSTILE_NAMES = ["height</script>", "<img src=x onerror=window.hacked=1>", "$$\\alpha$$"]


def hostile(folder: Path) -> Path:
    """Names, ids and labels that would like to be markup."""
    ids = [f"{i}{ATTACK}" for i in range(240)]
    labels = [f"{c}{ATTACK}" for c in CLASSES]
    more: dict[str, Any] = {"names": HOSTILE_NAMES, "metrics": ("itml",)}
    return replayed(folder, ids=ids, labels=labels, **more)
