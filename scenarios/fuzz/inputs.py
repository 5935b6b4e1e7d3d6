"""Hostile calls of everything public: ``python -m scenarios.fuzz.inputs --calls 20000 --seed 0``.

Every call takes each of its arguments from a zoo: valid ones, and values of every kind that
a caller may pass by mistake. The outcome must be success, or an error of the StreamembedError
family; never a warning, never a changed object after an error. Each call is a function of the seed
and its own number, so that one alone can be repeated (``--only``). Exit code 1 where a call broke
the rule.
"""

from __future__ import annotations

import argparse
import inspect
import os
import pickle
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import streamembed as se
from scenarios.fuzz import hostile
from scenarios.fuzz.hostile import NAMES, D
from streamembed import estimators
from streamembed.errors import ColumnWarning, ResolutionWarning, StreamembedError
from streamembed.estimators.map_estimator import MapEstimator

READERS = ["transform", "coverage", "transform_with_coverage", "transform_distances"]
READERS += ["coverage_distances"]
HOSTILE = 0.3  # of the arguments; the others are valid
SMALL: dict[str, Any] = {"size": 30, "warm_up": 12, "chunk_size": 4, "n_components": 2}
METRICS = ("itml", "eig_dml", "fenn", "contrast", "geometric_mean", "must_link", "discriminant")


@dataclass
class InputCounts:
    """Counts of a run.

    Attributes
    ----------
    calls, refused : int
        Made, and those among them that ended in an error of the family.
    failures : dict
        What went wrong, by the number of the call.
    """

    calls: int = 0
    refused: int = 0
    failures: dict[int, str] = field(default_factory=dict)


class EngineCollection:
    """Everything that calls are made of: arguments of every kind, and objects to call."""

    def __init__(self, folder: Path) -> None:
        """Make the objects once; every call takes a copy."""
        self.folder = folder
        rng = np.random.default_rng(0)
        X = rng.normal(size=(40, D))
        y = rng.integers(0, 3, 40)
        frame = pa.table(dict(zip(NAMES, X.T, strict=True)))
        plain, named, warming = se.Engine(**SMALL), se.Engine(**SMALL), se.Engine(**SMALL)
        landmarks = se.Engine(memory="landmarks", **SMALL)
        skipping = se.Engine(on_bad_row="skip", **SMALL)
        taught = se.Engine(**SMALL, metrics=METRICS)
        far = se.Engine(**SMALL)
        plain.learn(X)
        named.learn(frame, ids=[f"k{i}" for i in range(40)])
        warming.learn(X[:5])
        landmarks.learn(X)
        skipping.learn(X, ids=np.arange(40))
        taught.learn(X, y=y)
        far.learn_distances(np.linalg.norm(X[:22, None] - X[:22], axis=2))
        engines = {
            "fresh": se.Engine(**SMALL),
            "plain": plain,
            "named": named,
            "warming": warming,
            "landmarks": landmarks,
            "skipping": skipping,
            "taught": taught,
            "distances": far,
        }
        others = ("EmbeddingDrift", "LabelSpreading")  # they have no transform to call
        names = [name for name in estimators.__all__ if name not in others]
        self.estimators = [getattr(estimators, name) for name in names]
        models: dict[str, Any] = {}
        for kind in self.estimators:
            for state, events in (("fresh", 0), ("warm", 40)):
                parameters = next(iter(kind._unit_test_params()))
                model = kind(**parameters)
                for row, label in zip(X[:events].tolist(), y.tolist(), strict=False):
                    x = dict(zip(NAMES, row, strict=True))
                    _ = model.learn_one(x, label) if model._supervised else model.learn_one(x)
                models[f"{kind.__name__} {state}"] = model
        far_model = estimators.DiffusionMap(metric="precomputed", **SMALL)
        for i in range(14):
            far_model.learn_one({**{j: float(i - j) for j in range(i)}, i: 0.0})
        models["precomputed"] = far_model
        self.subjects: dict[str, bytes] = {
            f"{group} {name}": pickle.dumps(random_call)
            for group, members in (
                ("engine", engines),
                ("model", models),
                ("snapshot", {n: e.snapshot() for n, e in engines.items() if e.ready}),
                ("metric", dict(taught.snapshot().metrics)),
            )
            for name, random_call in members.items()
        }
        os.mkfifo(folder / "pipe")

    def subject(self, rng: np.random.Generator, group: str) -> tuple[str, Any]:
        """A fresh copy of one of the objects."""
        names = [name for name in self.subjects if name.startswith(group)]
        name = names[rng.integers(len(names))]
        return name, pickle.loads(self.subjects[name])


class RandomCall:
    """One call: draws its arguments, and says what came of it."""

    def __init__(self, zoo: EngineCollection, seed: int, number: int) -> None:
        self.zoo = zoo
        self.rng = np.random.default_rng((seed, number))
        self.told = ""

    def one(self, choices: list[Any]) -> Any:
        """One of them."""
        return choices[self.rng.integers(len(choices))]

    def draw(self, valid: list[Any], hostile: Callable[[], list[Any]]) -> Any:
        """A valid value, or some hostile one."""
        if self.rng.random() >= HOSTILE:
            return self.one(valid)
        return self.one(hostile())

    def table(self, named: bool = False) -> Any:
        """Points."""
        return self.draw(hostile.points(self.rng, named), lambda: hostile.tables(self.rng))

    def column(self, *valid: Any) -> Any:
        """Labels or ids of four rows, or none."""
        return self.draw([None, *valid], lambda: hostile.columns(self.rng))

    def scalar(self, *valid: Any) -> Any:
        """A parameter."""
        return self.draw(list(valid), hostile.scalars)

    def point(self) -> Any:
        """A dict of one point."""
        rows = [row for row in hostile.tables(self.rng) if isinstance(row, list) and row]
        own = dict(zip(NAMES, self.rng.normal(size=D).tolist(), strict=True))
        return self.draw([own], lambda: [*hostile.scalars(), *[self.one(row) for row in rows]])

    def target(self) -> Any:
        """A file to write."""
        (self.zoo.folder / "out").mkdir(exist_ok=True)
        paths = [p for p in hostile.paths(self.zoo.folder) if not isinstance(p, bytes)]
        return self.draw([self.zoo.folder / "out" / "file"], lambda: paths)

    def way(self) -> str:
        """What to call."""
        weights = np.array(list(WAYS.values()), dtype=np.float64)
        return str(self.rng.choice(list(WAYS), p=weights / weights.sum()))

    def make(self, way: str) -> None:
        """Call it, warnings being errors."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ResolutionWarning)
            warnings.simplefilter("ignore", ColumnWarning)
            getattr(self, way)()

    # ------------------------------------------------------------------ what is called

    def engine(self) -> Any:
        """Parameters of an engine; one that is made learns a little."""
        choices = {
            "method": ("diffusion_map",),
            "n_components": (1, 2, np.int64(3)),
            "memory": ("window", "landmarks", "all"),
            "size": (20, 30),
            "half_life": (None, None, 50.0),
            "bandwidth": ("auto", 1.0, np.float32(0.7)),
            "alpha": (0, 1.0, Fraction(1, 2)),
            "diffusion_time": (0, 1, Decimal("0.5")),
            "rank": ("auto", 8),
            "tolerance": (None, 1e-2),
            "chunk_size": (1, 5),
            "warm_up": (None, 12),
            "scaling": ("standard", None),
            "metrics": ((), ["itml"], ("fenn", "must_link")),
            "on_bad_row": ("raise", "skip"),
            "seed": (0, np.uint8(3)),
        }
        few = self.rng.permutation(list(choices))[:3].tolist()
        engine = se.Engine(**{**SMALL, **{name: self.scalar(*choices[name]) for name in few}})
        engine.learn(self.rng.normal(size=(20, D)))
        engine.save(self.zoo.folder / "out-engine")
        return engine.snapshot() if engine.ready else None

    def learn(self) -> Any:
        """Points, labels and ids into an engine; the bytes must not change where it refuses."""
        name, engine = self.zoo.subject(self.rng, "engine")
        named, way = "named" in name, self.rng.integers(5)
        self.told = name
        before = self._bytes(engine)
        try:
            if way < 3:
                ids = [None] if "k" not in name else [[f"n{i}" for i in range(4)]]
                y = self.column([0, 1, 0, 1]) if "taught" in name else None
                return engine.learn(self.table(named), y=y, ids=self.column(*ids))
            if way == 3:
                similar = self.column([True, False, True, False])
                return engine.learn_pairs(self.table(named), self.table(named), similar)
            rows = self.draw(
                [self.rng.random((1, 22))], lambda: hostile.draw_distance_rows(self.rng)
            )
            return engine.learn_distances(rows, self.column(None))
        except StreamembedError:
            if self._bytes(engine) != before:
                raise AssertionError("a refused call changed the engine") from None
            raise

    def _bytes(self, engine: se.Engine) -> bytes:
        path = self.zoo.folder / "state"
        engine.save(path)
        return path.read_bytes()

    def snapshot(self) -> Any:
        """Reading, moving and writing of snapshots."""
        name, snapshot = self.zoo.subject(self.rng, "snapshot")
        self.told = name
        method = self.one([*READERS, "save"])
        if method == "save":
            return snapshot.save(self.target())
        if method.endswith("distances"):
            rows = self.draw(
                [np.ones((2, len(snapshot.ids)))], lambda: hostile.draw_distance_rows(self.rng)
            )
            return getattr(snapshot, method)(rows)
        return getattr(snapshot, method)(self.table("named" in name))

    def metric(self) -> Any:
        """A metric, made or used."""
        name, metric = self.zoo.subject(self.rng, "metric")
        self.told = name
        way = self.rng.integers(5)
        if way == 0:
            matrices = [np.eye(2), np.diag([2.0, 0.0]), [[1, 0], [0, 1]]]
            matrix = self.draw(matrices, lambda: [*hostile.tables(self.rng), *hostile.scalars()])
            certificate = self.scalar(None, {"status": "ok"})
            return se.Mahalanobis.of(matrix, self.scalar(None, 1, 2), certificate)
        if way == 1:
            return metric.unscaled(self.scalar(1.0, [1.0, 2.0, 3.0]))
        X, Y = self.table(), self.table()
        if way == 2:
            return metric.transform(X)
        return metric.distances(X, Y) if way == 3 else metric.squared_distances(X, Y)

    def generator(self) -> Any:
        """The generator of pairs."""
        names = (
            "n_components",
            "diffusion_time",
            "percentiles",
            "similar_below",
            "dissimilar_above",
            "candidates",
        )
        few = self.rng.permutation([*names, "seed"])[:2].tolist()
        generator = se.PairGenerator(**{name: self.one(hostile.scalars()) for name in few})
        return generator.draw(
            self.draw([self.zoo.subject(self.rng, "snapshot")[1]], hostile.scalars)
        )

    def estimator(self) -> Any:
        """A river estimator: built, fitted, queried."""
        if self.rng.random() < 0.2:
            kind = self.one(self.zoo.estimators)
            own = next(iter(kind._unit_test_params()))
            names = list(inspect.signature(kind).parameters)
            few = self.rng.permutation(names)[:2].tolist() if names else []
            self.told = kind.__name__
            return kind(**{**own, **{name: self.one(hostile.scalars()) for name in few}})
        name, model = self.zoo.subject(self.rng, "model")
        self.told = name
        supervised = model._supervised
        before = pickle.dumps(model)
        way = self.rng.integers(6)
        try:
            if way == 0:
                y = [self.scalar(0, 1, "a", None)] if supervised else []
                return model.learn_one(self.point(), *y)
            if way == 1:
                y = [self.column([0, 1, 0, 1])] if supervised else []
                return model.learn_many(self.table(True), *y)
            if way == 2:
                return model.transform_one(self.point())
            if way == 3:
                return model.transform_many(self.table(True))
            if way == 4 and supervised:
                similar = self.column([True, False, True, False])
                return model.learn_pairs(self.table(True), self.table(True), similar)
            return model.snapshot() if hasattr(model, "snapshot") else model.metric
        except StreamembedError:
            if not isinstance(model, MapEstimator) and pickle.dumps(model) != before:
                raise AssertionError("a refused call changed the estimator") from None
            raise


WAYS = {
    "engine": 2,
    "learn": 6,
    "snapshot": 3,
    "metric": 2,
    "generator": 1,
    "estimator": 5,
}


def call(zoo: EngineCollection, seed: int, number: int) -> tuple[bool, str | None]:
    """Make one call; whether it was refused, and what went wrong, None where nothing did."""
    random_call = RandomCall(zoo, seed, number)
    way = random_call.way()
    try:
        random_call.make(way)
    except StreamembedError as error:
        try:
            str(error)
        except Exception as broken:
            return True, f"{way} {random_call.told}: its message fails: {broken!r}"
        return True, None
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        last = [f for f in frames if "fuzz_inputs" not in f.filename][:1] + frames[-3:]
        where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(last))
        message = str(error).split("\n")[0][:160]
        return False, f"{way} [{random_call.told}] {type(error).__name__}: {message} ({where})"
    return False, None


def run(count: int, seed: int) -> InputCounts:
    """Make ``count`` calls."""
    result = InputCounts()
    with tempfile.TemporaryDirectory() as folder:
        zoo = EngineCollection(Path(folder))
        for number in range(count):
            refused, failure = call(zoo, seed, number)
            result.calls += 1
            result.refused += refused
            if failure is not None:
                result.failures[number] = failure
    return result


def main(arguments: list[str] | None = None) -> int:
    """Make the calls and print what broke the rule."""
    parser = argparse.ArgumentParser(prog="scenarios.fuzz.inputs", description=__doc__)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="repeat one call, with its traceback")
    chosen = parser.parse_args(arguments)
    if chosen.only is not None:
        with tempfile.TemporaryDirectory() as folder:
            random_call = RandomCall(EngineCollection(Path(folder)), chosen.seed, chosen.only)
            random_call.make(random_call.way())
        return 0
    result = run(chosen.calls, chosen.seed)
    for number, failure in result.failures.items():
        print(f"call {number} of seed {chosen.seed}: {failure}")
    print(f"{result.calls} calls, {result.refused} refused, {len(result.failures)} failures")
    return int(bool(result.failures))


if __name__ == "__main__":
    sys.exit(main())
