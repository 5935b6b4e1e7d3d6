"""Damaged and hostile files: ``python -m scenarios.fuzz.files --files 3000 --seed 0``.

*Damaged* files are saved ones of which bytes were flipped, zeroed, cut, moved, put in or appended.
Every one of them must be a `DamagedFileError`, without a warning. *Hostile* ones were taken apart,
changed where it hurts (a part missing, of another shape or kind, an index out of its range) and
sealed again, so that no checksum tells. They are a `DamagedFileError`, or they are loaded; then
their use may raise, but must not crash the process. Exit code 1 where one is neither.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import streamembed as se
from streamembed.errors import DamagedFileError
from streamembed.storage import archive

LOADERS: dict[str, Callable[[Path], Any]] = {
    "snapshot": se.Snapshot.load,
    "engine": se.Engine.load,
}
SMALL: dict[str, Any] = {"size": 24, "warm_up": 12, "chunk_size": 4, "n_components": 2}
METRICS = ("itml", "eig_dml", "fenn", "contrast", "geometric_mean", "must_link", "discriminant")
# Arrays of which any number of rows may be kept.
SAMPLES = ("samples", "recent", "labelled")
# What stands for a value of another kind.
WRONG: list[Any] = [None, "x", -1, {}, [[]], float("nan"), float("inf"), 10**30]


@dataclass
class FileCounts:
    """Counts of a run.

    Attributes
    ----------
    damaged, hostile : int
        Number of files.
    failures : list of str
        What was no `DamagedFileError`: what was done to which file, and what came of it.
    """

    damaged: int = 0
    hostile: int = 0
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


def list_hostile_files(path: Path, kind: str) -> Iterator[tuple[str, Any, Any, str, str]]:
    """What was changed, and the table, header, kind and version to seal instead of those saved."""
    table, header = archive.unseal(path.read_bytes(), kind, path, lambda *both: both)
    version = str(archive.VERSION)
    yield "the header is a list", table, [1], kind, version
    yield "the header is empty", table, {}, kind, version
    for wrong in ("abc", "", "999", "1", "1.5", "-"):
        yield f"version {wrong!r}", table, header, kind, wrong
    yield "another kind", table, header, "pony", version
    for name in table.column_names:
        yield f"without the column {name}", table.drop_columns([name]), header, kind, version
        texts = pa.array(["x"] * table.num_rows)
        index = table.column_names.index(name)
        if name not in ("ids", "name"):
            yield f"{name} is text", table.set_column(index, name, texts), header, kind, version
    if table.num_rows:
        yield "no rows", table.slice(0, 0), header, kind, version
    for change, changed in _headers(header, kind):
        yield change, table, changed, kind, version
    for change, other in _arrays(table, kind):
        yield change, other, header, kind, version


def _headers(header: dict[str, Any], kind: str) -> Iterator[tuple[str, Any]]:
    """Headers without one of their parts, or with one of another kind."""
    for place in _places(header):
        changed = copy.deepcopy(header)
        inside = changed
        for key in place[:-1]:
            inside = inside[key]
        change = ".".join(map(str, place))
        if "parameters" not in place:
            del inside[place[-1]]
            yield f"without {change}", copy.deepcopy(changed)
        for wrong in WRONG:
            inside[place[-1]] = wrong
            yield f"{change} is {wrong!r}", copy.deepcopy(changed)
    if kind != "snapshot":
        name = "config" if kind == "engine" else "parameters"
        yield "unknown parameter", {**header, name: {**header[name], "wings": 2}}


def _places(header: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Keys of a header, and of the dicts within, but for what a snapshot's metrics tell."""
    for key, value in header.items():
        yield (*above, key)
        free = key == "parameters" or (key == "metrics" and "state" not in above)
        if isinstance(value, dict) and not free:
            yield from _places(value, (*above, key))


def _arrays(table: Any, kind: str) -> Iterator[tuple[str, Any]]:
    """Arrays that a file cannot have."""
    if kind == "snapshot":
        for index, name in enumerate(table.column_names):
            column = table.column(index).combine_chunks()
            again = pa.array([column[0].as_py()] * len(column), column.type)
            for change, other in (
                ("null", pa.nulls(len(column), column.type)),
                ("all the same", again if name == "ids" else pa.nulls(len(column))),
                ("floats", pa.array(np.full(len(column), np.nan))),
            ):
                yield f"{name} {change}", table.set_column(index, name, other)
        return
    arrays = archive.unpack(table)
    for name, array in arrays.items():
        yield f"without the array {name}", {key: a for key, a in arrays.items() if key != name}
        changes: list[tuple[str, Any]] = [("complex", np.zeros(array.shape, dtype=np.complex128))]
        if array.dtype != object:
            changes.append(("of one more axis", array[None]))
        if array.size and not any(part in name for part in SAMPLES):
            changes.append(("cut", array[:-1]))
        if array.dtype.kind == "f" and array.size:
            changes.append(("NaN", np.full_like(array, np.nan)))
            changes.append(("text", array.astype(str).astype(object).ravel()))
        for change, other in changes:
            yield f"{name} {change}", {**arrays, name: other}


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


def _use(loaded: Any) -> None:
    """Use what values were changed of; only a crash of the process is a failure."""
    with warnings.catch_warnings(), suppress(Exception):
        warnings.simplefilter("ignore")
        snapshot = loaded.snapshot() if isinstance(loaded, se.Engine) else loaded
        if isinstance(loaded, se.Engine):
            loaded.learn(np.random.default_rng(0).normal(size=(8, 3)))
        snapshot.transform(np.zeros((2, 3)))


def _seal(path: Path, table: Any, header: Any, kind: str, version: str) -> None:
    """A saved file of anything."""
    usual = archive.VERSION
    try:
        archive.VERSION = version  # type: ignore[assignment]
        path.write_bytes(archive.seal(table, kind, header))
    finally:
        archive.VERSION = usual


def run(count: int, seed: int, every: int = 1) -> FileCounts:
    """Try ``count`` damaged files, and one in ``every`` of the hostile ones."""
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
        number = 0
        for path, kind, _ in saved:
            for change, table, header, other, version in list_hostile_files(path, kind):
                number += 1
                if number % every:
                    continue
                if isinstance(table, dict):
                    table = archive.to_table(table)
                json.dumps(header)
                _seal(target, table, header, other, version)
                result.hostile += 1
                loaded, outcome = _load(LOADERS[kind], target)
                if loaded is not None:
                    _use(loaded)
                elif outcome is not None:
                    result.failures.append(f"{path.name}, {change}: {outcome}")
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
    print(
        f"{result.damaged} damaged and {result.hostile} hostile files, "
        f"{len(result.failures)} failures"
    )
    return int(bool(result.failures))


if __name__ == "__main__":
    sys.exit(main())
