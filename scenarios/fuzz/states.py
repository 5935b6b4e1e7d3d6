"""Saved states: ``python -m scenarios.fuzz.states [--states N] [--seed S]``.

Every stream is drawn from its seed: an engine, an estimator or a monitor, its parameters, and data
of a kind that is hard on arithmetic. At every chunk the state goes through a file: it must load,
and be saved in the same bytes. The stream goes on with what was loaded, and must end as one that
was learned in a single call. A failure prints the seed that repeats it. Exit code 1.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import tempfile
import warnings
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

import streamembed as se
from streamembed import estimators
from streamembed.errors import NotReadyError
from streamembed.methods.engine_parameters import METHODS
from streamembed.numeric.arrays import Floats
from streamembed.runs import verify
from tests.laws.subjects import list_parts

METRICS = ("itml", "eig_dml", "fenn", "contrast", "geometric_mean", "must_link", "discriminant")
OF_POINTS = ("pca", "kernel_pca", "lle", "linear_eigenmap")
MAPS = ("DiffusionMap", "LaplacianEigenmaps", "LinearEigenmap", "KernelPCA", "ClassicalMDS",
    "Isomap", "LocallyLinearEmbedding", "LiveMap")  # fmt: skip
LEARNERS = ("ITML", "EigDML", "MustLinkMetric", "FENN", "DiscriminantAnalysis", "ContrastMetric",
    "GeometricMeanMetric", "UnsupervisedMetric", "PCA", "EmbeddingDrift")  # fmt: skip
UNITS = (1.0, 1.0, 1.0, 1e-3, 1e6, 1e150, 1e75, 1e-75, 1e-150, 1e-300)

Draw = np.random.Generator
# Yields its parameters, then what is saved; takes what was loaded.
Stream = Generator[Any, Any, None]


@dataclass
class StateCounts:
    """Number of streams and states of a run, and what did not load, with its seed."""

    streams: int = 0
    states: int = 0
    failures: list[str] = field(default_factory=list)


def draw_points(rng: Draw, n: int) -> Floats:
    """Phases of a stream in some unit: noise, sites, sites far apart, ties, rest and return."""
    d = int(rng.choice([1, 2, 3, 5, 70], p=[0.15, 0.3, 0.3, 0.2, 0.05]))
    sites = rng.normal(size=(int(rng.integers(1, 5)), d))
    far = rng.random(len(sites)) < 0.3
    sites[far] *= 10.0 ** rng.integers(2, 16)
    jitter = float(rng.choice([0.0, 0.0, 1e-12, 1e-7, 1e-2]))
    phases: list[Floats] = []
    while sum(map(len, phases)) < n:
        m = int(rng.integers(1, n))
        kind = rng.choice(["noise", "sparse", "sites", "site", "lattice", "zero"])
        if kind in ("sites", "site"):
            at = rng.integers(0, len(sites), m if kind == "sites" else 1)
            phases.append(sites[at] + jitter * rng.normal(size=(m, d)))
        elif kind == "lattice":
            phases.append(rng.integers(0, 3, (m, d)).astype(np.float64))
        else:
            share = {"noise": 1.0, "sparse": 0.1, "zero": 0.0}[str(kind)]
            phases.append(rng.normal(size=(m, d)) * (rng.random((m, d)) < share))
    points: Floats = np.concatenate(phases)[:n]
    points[:, rng.random(d) < 0.1] = 1.0
    points = points * (rng.choice(UNITS) / max(1.0, np.abs(points).max()))
    points[rng.random(n) < 0.02] = rng.choice([np.nan, np.inf, 0.0, -0.0])
    return points


def draw_times(rng: Draw, n: int, given: dict[str, Any]) -> list[float] | None:
    """Event times with long gaps, where the engine has such a clock."""
    times: list[float] = np.cumsum(rng.exponential(size=n) ** 8).tolist()
    return times if "clock" in given else None


def draw_engine(rng: Draw, size: int) -> dict[str, Any]:
    """Parameters of an engine."""
    method = str(rng.choice([*METHODS, "diffusion_map", "diffusion_map"]))
    given: dict[str, Any] = {
        "method": method,
        "n_components": int(rng.choice([1, 2, 3])),
        "memory": str(rng.choice(["window", "window", "landmarks", "all"])),
        "size": size,
        "warm_up": int(rng.integers(8, min(size, 60) + 1)),
        "scaling": [None, "standard", "global"][int(rng.integers(3))],
        "picture": bool(rng.random() < 0.3) and method != "pca",
        "seed": int(rng.integers(100)),
        "on_bad_row": "skip",
        "tolerance": float(rng.choice([3e-3, 1e-6])),
    }
    if given["memory"] == "landmarks" and rng.random() < 0.6:
        given["half_life"] = float(rng.choice([0.01, 5.0, 100.0]))
        if rng.random() < 0.3:
            given["clock"] = "event_time"
    if method == "diffusion_map":
        given["alpha"] = float(rng.choice([0.0, 0.5, 1.0]))
        if rng.random() < 0.5:
            given.update(kernel="gaussian")
            if rng.random() < 0.6:
                given["bandwidth"] = float(rng.choice([1e-2, 1.0, 8.0, 50.0]))
    elif method == "kernel_pca":
        given["kernel"] = str(rng.choice(["gaussian", "polynomial", "cosine"]))
    elif method in ("laplacian_eigenmaps", "linear_eigenmap"):
        given["weights"] = str(rng.choice(["self_tuning", "binary", "heat"]))
        if given["weights"] != "self_tuning" and rng.random() < 0.3:
            given["radius"] = float(rng.choice([0.1, 3.0]))
    return given


def run_engine(rng: Draw) -> Stream:
    """Everything that an engine saves, at every chunk."""
    size = int(rng.choice([20, 30, 60, 120, 260], p=[0.3, 0.3, 0.2, 0.1, 0.1]))
    given, step = draw_engine(rng, size), 1
    n = 80 if size < 200 else 330
    points, far = draw_points(rng, n), given["method"] not in OF_POINTS and rng.random() < 0.15
    given["chunk_size"] = step = int(rng.choice([1, 10, 10]))
    stride = max(step, n // 40)
    times = draw_times(rng, n, given)
    labels = [None if rng.random() < 0.5 else str(i) for i in rng.integers(0, 3, n)]
    if far:
        given["scaling"], points = None, np.nan_to_num(points, nan=1.0, posinf=1.0)
        with np.errstate(over="ignore"):
            d = np.minimum(cdist(points, points), 1e150)
    elif rng.random() < 0.4:
        count = int(rng.integers(1, 3))
        given["metrics"] = tuple(rng.choice(METRICS, count, replace=False).tolist())
    taught = bool(given.get("metrics")) and rng.random() < 0.6

    def learn(engine: se.Engine, start: int, stop: int) -> None:
        if far:
            held = given["size"] if given["memory"] == "window" else None
            rows = [d[i, max(0, i - held if held else 0) : i + 1] for i in range(start, stop)]
            engine.learn_distances([row[:-1] for row in rows])
        else:
            y = labels[start:stop] if taught else None
            engine.learn(points[start:stop], y=y, times=times[start:stop] if times else None)

    if far:
        given.pop("clock", None)
    engine, whole = se.Engine(**given), se.Engine(**given)
    pairs = se.PairGenerator(seed=given["seed"])
    yield given
    for start in range(0, n, stride):
        learn(engine, start, min(n, start + stride))
        engine = yield engine
        if engine.ready:
            snapshot = yield engine.snapshot()
            if not far and len(snapshot.ids) > 10:
                pairs.draw(snapshot)
                pairs = yield pairs
            if not far and given["memory"] == "landmarks" and given["method"] == "diffusion_map":
                yield engine.landmark_set()
    learn(whole, 0, n)
    if whole.to_bytes() != engine.to_bytes():
        raise AssertionError("the stream in one call ends otherwise")


def run_estimator(rng: Draw) -> Stream:
    """An estimator, or a monitor, at every ten events."""
    n, name = 150, str(rng.choice([*MAPS, *LEARNERS, "Monitor"]))
    points = draw_points(rng, n)
    points[np.abs(points) > 1e70] *= 1e-80  # estimators take no values beyond 1e75
    given: dict[str, Any] = {"seed": int(rng.integers(100))}
    if name in MAPS:
        size, step = int(rng.choice([20, 40])), int(rng.choice([1, 10]))
        given.update(size=size, warm_up=14, chunk_size=step)
    elif name in ("EmbeddingDrift", "Monitor"):
        given.update(ert=200, n_reference=100)
    elif name == "PCA":
        choices: list[dict[str, Any]] = [{}, {"solver": "svd"}, {"window": 15}]
        given = choices[int(rng.integers(3))]
    model: Any = se.Monitor(**given, on_bad_row="skip") if name == "Monitor" else None
    model = model or getattr(estimators, name)(**given)
    yield name, given
    labels = rng.integers(0, 3, n).astype(str).tolist()
    rows = [dict(zip(map(str, range(len(x))), x.tolist(), strict=True)) for x in points]
    rows = [{k: v for k, v in row.items() if np.isfinite(v)} for row in rows]
    for start in range(0, n, 10):
        part = slice(start, start + 10)
        if name == "Monitor":
            model.learn(points[part])
        elif hasattr(model, "learn_pairs") and rng.random() < 0.3:
            model.learn_pairs(rows[part], rows[part][::-1], rng.random(10) < 0.5)
        elif hasattr(model, "learn_pairs"):
            model.learn_many(rows[part], labels[part])
        else:
            model.learn_many(rows[part])
        model = yield model
        for read in ("axes", "metric"):
            if getattr(model, "ready", True) and hasattr(getattr(model, read, None), "to_bytes"):
                yield getattr(model, read)


def run_folder(rng: Draw) -> Stream:
    """A durable run, closed and opened again at every call."""
    given = draw_engine(rng, 30)
    yield "run", given
    points, times = draw_points(rng, 80), draw_times(rng, 80, given)
    with tempfile.TemporaryDirectory() as name:
        for start in range(0, 80, 16):
            with se.open_run(Path(name) / "run", given) as run:
                stop = start + 16
                run.learn(points[start:stop], times=times[start:stop] if times else None)
            found = verify(Path(name) / "run")
            if found.troubles:
                raise AssertionError(str(found.troubles))
            with se.read_run(Path(name) / "run") as reader, suppress(NotReadyError):
                yield reader.engine()


def reload(value: Any) -> Any:
    """The value from a file; AssertionError where that holds other bytes."""
    if hasattr(value, "to_bytes"):
        data = value.to_bytes()
        loaded = type(value).from_bytes(data)
        if loaded.to_bytes() != data:
            raise AssertionError(f"{type(value).__name__}: other bytes")
        return loaded
    loaded = pickle.loads(pickle.dumps(value))
    if b"".join(list_parts(loaded)) != b"".join(list_parts(value)):
        raise AssertionError(f"{type(value).__name__}: other parts")
    return loaded


def run(states: int, seed: int = 0, streams: int | None = None) -> StateCounts:
    """Try that many states, or as many streams."""
    counts = StateCounts()
    while counts.states < states if streams is None else counts.streams < streams:
        now = seed + counts.streams
        rng = np.random.default_rng(now)
        draw = (run_engine, run_engine, run_engine, run_estimator)[int(rng.integers(4))]
        draw = run_folder if rng.random() < 0.02 else draw
        counts.streams += 1
        stream: Stream = draw(rng)
        given: Any = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                given = next(stream)
                value = next(stream)
                while True:
                    counts.states += 1
                    value = stream.send(reload(value))
            except StopIteration:
                pass
            except Exception as error:
                what = f"{type(error).__name__}: {str(error)[:200]}"
                counts.failures.append(f"--seed {now} --streams 1, {given}: {what}")
                print(counts.failures[-1], flush=True)
        if counts.streams % 100 == 0:
            print(f"{counts.states} states of {counts.streams} streams", flush=True)
    return counts


def main(arguments: list[str] | None = None) -> int:
    """Try the states and print those that did not load."""
    parser = argparse.ArgumentParser(prog="scenarios.fuzz.states", description=__doc__)
    parser.add_argument("--states", type=int, default=20_000)
    parser.add_argument("--streams", type=int)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    counts = run(chosen.states, chosen.seed, chosen.streams)
    print(f"{counts.states} states of {counts.streams} streams, {len(counts.failures)} failures")
    return int(bool(counts.failures))


if __name__ == "__main__":
    sys.exit(main())
