"""Damaged files: ``python -m scenarios.fuzz.files --files 3000 --seed 0``.

Saved files of which bytes were flipped, zeroed, cut, moved, put in or appended. Every one of them
must be a `DamagedFileError`, without a warning. Exit code 1 where one is not.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import streamembed as se
from streamembed.errors import DamagedFileError

LOADERS: dict[str, Callable[[Path], Any]] = {
    "snapshot": se.Snapshot.load,
    "engine": se.Engine.load,
}
SMALL: dict[str, Any] = {"size": 24, "warm_up": 12, "chunk_size": 4, "n_components": 2}
METRICS = ("itml", "eig_dml", "fenn", "contrast", "geometric_mean", "must_link", "discriminant")


@dataclass
class FileCounts:
    """Counts of a run.

    Attributes
    ----------
    damaged : int
        Number of files.
    failures : list of str
        What was no `DamagedFileError`: what was done to which file, and what came of it.
    """

    damaged: int = 0
    failures: list[str] = field(default_factory=list)


def save_all(folder: Path) -> dict[Path, str]:
    """Files of every kind, by path, and what they hold."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    frame = pa.table(dict(zip("abc", X.T, strict=True)))
    engines = {name: se.Engine(**SMALL) for name in ("plain", "named", "fresh", "far", "warming")}
    engines["taught"] = se.Engine(**SMALL, metrics=METRICS)
    engines["landmarks"] = se.Engine(memory="landmarks", **SMALL)
    engines["graph"] = se.Engine("laplacian_eigenmaps", **SMALL)
    engines["radius"] = se.Engine("laplacian_eigenmaps", weights="heat", radius=1.0, **SMALL)
    for name in ("classical_mds", "kernel_pca", "lle", "isomap", "linear_eigenmap"):
        engines[name] = se.Engine(name, **SMALL)
    engines["rows"] = se.Engine("isomap", n_landmarks=8, **SMALL)
    engines["picture"] = se.Engine(picture=True, **SMALL)
    engines["lists"] = se.Engine(picture=True, kernel="gaussian", **SMALL)
    alike = (
        "picture",
        "lists",
        "plain",
        "graph",
        "radius",
        "rows",
        "classical_mds",
        "kernel_pca",
        "lle",
        "isomap",
        "linear_eigenmap",
    )
    for name in alike:
        engines[name].learn(X)
    engines["named"].learn(frame, ids=[f"k{i}" for i in range(30)])
    engines["warming"].learn(X[:5], ids=[f"k{i}" for i in range(5)])
    engines["taught"].learn(X, y=rng.integers(0, 3, 30))
    engines["landmarks"].learn(X)
    engines["far"].learn_distances(np.linalg.norm(X[:23, None] - X[:23], axis=2))
    files: dict[Path, str] = {}
    for name, engine in engines.items():
        engine.save(folder / f"{name}.engine")
        files[folder / f"{name}.engine"] = "engine"
        if engine.ready:
            engine.snapshot().save(folder / f"{name}.snapshot")
            files[folder / f"{name}.snapshot"] = "snapshot"
    return files


def damage(data: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """The bytes after an accident."""
    n = len(data)
    start, stop = sorted(rng.integers(0, n, 2).tolist())
    changed = bytearray(data)
    kind = str(rng.choice(["flip", "cut", "zero", "append", "insert", "delete", "move"]))
    if kind == "flip":
        for place in rng.integers(0, n, rng.integers(1, 4)).tolist():
            changed[place] ^= 1 << int(rng.integers(8))
    elif kind == "cut":
        del changed[start:]
    elif kind == "zero":
        changed[start:stop] = bytes(stop - start)
    elif kind == "append":
        changed += rng.bytes(int(rng.integers(1, 200)))
    elif kind == "insert":
        changed[start:start] = rng.bytes(1)
    elif kind == "delete":
        del changed[start]
    else:
        changed[start:stop] = changed[start:stop][::-1]
    return f"{kind} at {start} to {stop}", bytes(changed)


def _load(load: Callable[[Path], Any], path: Path) -> tuple[Any, str | None]:
    """The object, if it is loaded, and what happened; None where it is refused as it should be."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return load(path), "loaded"
    except DamagedFileError:
        return None, None
    except Exception as error:
        return None, f"{type(error).__name__}: {str(error)[:150]}"


def run(count: int, seed: int) -> FileCounts:
    """Try ``count`` damaged files."""
    result = FileCounts()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = save_all(folder)
        target = folder / "changed"
        saved = [(path, kind, path.read_bytes()) for path, kind in files.items()]
        for number in range(count):
            rng = np.random.default_rng((seed, number))
            path, kind, data = saved[rng.integers(len(saved))]
            change, changed = damage(data, rng)
            if changed == data:
                continue
            target.write_bytes(changed)
            result.damaged += 1
            if (outcome := _load(LOADERS[kind], target)[1]) is not None:
                result.failures.append(
                    f"file {number} of seed {seed}, {path.name}, {change}: {outcome}"
                )
    return result


def main(arguments: list[str] | None = None) -> int:
    """Try the files and print those that were not refused."""
    parser = argparse.ArgumentParser(prog="scenarios.fuzz.files", description=__doc__)
    parser.add_argument("--files", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    result = run(chosen.files, chosen.seed)
    for failure in result.failures:
        print(failure)
    print(f"{result.damaged} damaged files, {len(result.failures)} failures")
    return int(bool(result.failures))


if __name__ == "__main__":
    sys.exit(main())
