"""Everything that learns from a stream, in small: what `test_laws` asks of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import streamembed as se
from streamembed import estimators
from streamembed.estimators.estimator import FeatureEstimator
from streamembed.numeric.chunks import PendingParts
from tests.metric_ways import WAYS

N = 100
NAMES = ["a", "b", "c"]
RNG = np.random.default_rng(1)
POINTS = RNG.standard_normal((400, 3)) * [1.0, 3.0, 0.2]
LABELS = [f"class {c}" for c in RNG.integers(0, 3, 400)]
POINTS[:, 1] += [5.0 * int(label[-1]) for label in LABELS]
POINTS[170:, 0] += 4.0  # after the reference of a monitor
DISTANCES = np.linalg.norm(POINTS[:N, None] - POINTS[:N], axis=2)
IDS = [f"e{i:03d}" for i in range(400)]
ROWS: list[dict[str, Any]] = [dict(zip(NAMES, row, strict=True)) for row in POINTS.tolist()]
# Events of estimators: now and then without a number, without a feature, or with one that is late.
GAPS = [dict(row) for row in ROWS]
for _i in range(1, 400, 5):
    GAPS[_i]["b"] = float("nan")
for _i in range(2, 400, 7):
    del GAPS[_i]["c"]
for _i in range(32, 400, 4):
    GAPS[_i]["late"] = 1.0

Call = Callable[[Any], object]


@dataclass(frozen=True)
class Subject:
    """One way to learn.

    Attributes
    ----------
    make : callable
    feed : callable
        Gives a model the events from one number to another, in one call.
    read : callable
        All that it shows, as a value of arrays and texts.
    n : int
        Events of the stream.
    steps : mapping
        Calls of other kinds, and the number of events before each.
    table : bool
        Whether it learns tables of points.
    """

    make: Callable[[], Any]
    feed: Callable[[Any, int, int], object]
    read: Callable[[Any], Any]
    n: int = N
    steps: Mapping[int, Call] = field(default_factory=dict)
    table: bool = True

    def learn(self, model: Any, first: int, stop: int) -> None:
        """Events, and the steps that come before ``stop`` or at it."""
        ends = [at for at in sorted(self.steps) if first < at < stop]
        for start, end in zip([first, *ends], [*ends, stop], strict=True):
            self.feed(model, start, end)
            if end in self.steps:
                self.steps[end](model)


def list_parts(value: Any) -> Iterator[bytes]:
    """What is saved of a value, without what two equal values may differ in."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        yield repr(value.tolist()).encode()
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}".encode() + value.tobytes()
    elif isinstance(value, se.Monitor | se.Engine):
        yield value.to_bytes()
    elif isinstance(value, se.Snapshot):
        yield from list_parts((value.position, value.coordinates, value.ids))
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield repr(key).encode()
            yield from list_parts(value[key])
    elif isinstance(value, list | tuple):
        yield f"{len(value)}".encode()
        for part in value:
            yield from list_parts(part)
    elif isinstance(value, PendingParts):  # in one piece, as it is saved
        yield from list_parts(value.__pack__().parts)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type | FeatureEstimator):
        for each in dataclasses.fields(value):
            yield from list_parts(getattr(value, each.name))
    elif type(value).__module__.startswith("streamembed"):
        state = value.__getstate__()
        yield from list_parts(state if isinstance(state, Mapping) else vars(value))
    else:
        yield repr(value).encode()


def digest(value: Any) -> bytes:
    """Of all that is saved of a value."""
    return b"\0".join(list_parts(value))


def _points(engine: se.Engine, first: int, stop: int) -> object:
    return engine.learn(POINTS[first:stop], ids=IDS[first:stop])


def _labelled(engine: se.Engine, first: int, stop: int) -> object:
    return engine.learn(POINTS[first:stop], LABELS[first:stop], IDS[first:stop])


def _timed(engine: se.Engine, first: int, stop: int) -> object:
    times = [float(i - 3 * (i % 4)) for i in range(first, stop)]
    return engine.learn(POINTS[first:stop], times=times)


def _distances(engine: se.Engine, first: int, stop: int) -> object:
    reach = engine.config.window or N
    rows = [DISTANCES[i, max(0, i - reach) : i] for i in range(first, stop)]
    return engine.learn_distances(rows, IDS[first:stop])


def read_engine(engine: se.Engine) -> Any:
    """What an engine shows."""
    return read_snapshot(engine.snapshot()) if engine.ready else (engine.position, engine.pending)


def read_snapshot(snapshot: se.Snapshot) -> Any:
    """What a snapshot shows, new points and their neighbours included."""
    near: Any = None
    if snapshot.feature_names:
        placed = snapshot.transform(POINTS[:5] + 0.1)
        near = snapshot.neighbors(POINTS[:5] + 0.1, k=3)
    else:
        placed = snapshot.transform_distances(DISTANCES[:5, [int(key[1:]) for key in snapshot.ids]])
    metrics = {name: one.matrix for name, one in snapshot.metrics.items()}
    picture = [] if snapshot.picture is None else snapshot.picture.coordinates
    certificate = repr(snapshot.certificate)
    return snapshot.position, snapshot.coordinates, placed, near, metrics, picture, certificate


METRICS = ("itml", "geometric_mean", "fenn")
SMALL: dict[str, Any] = {"size": 30, "warm_up": 12, "chunk_size": 7}
METHODS: dict[str, dict[str, Any]] = {
    "diffusion_map": {},
    "laplacian_eigenmaps": {"n_neighbors": 5},
    "lle": {"n_neighbors": 6},
    "isomap": {"n_neighbors": 5},
    "pca": {},
    "linear_eigenmap": {"n_neighbors": 5},
    "classical_mds": {},
    "kernel_pca": {},
}
MEMORIES: dict[str, dict[str, Any]] = {
    "window": {},
    "landmarks": {"memory": "landmarks", "half_life": 40.0},
    "all": {"memory": "all"},
}
ENGINES: dict[str, tuple[dict[str, Any], Any, dict[int, Call]]] = {
    "gaussian": ({"kernel": "gaussian", "alpha": 0.5}, _points, {80: se.Engine.rescale}),
    "picture": ({"picture": True}, _points, {70: se.Engine.relayout}),
    "flush": ({}, _points, {16: se.Engine.flush, 38: se.Engine.flush}),
    "clock": ({"memory": "landmarks", "half_life": 30.0, "clock": "event_time"}, _timed, {}),
    "metrics": ({"metrics": METRICS, "memory": "landmarks"}, _labelled, {}),
    "generated pairs": ({"metrics": ("eig_dml",)}, _points, {}),
    "late labels": (
        {"metrics": METRICS},
        _points,
        {
            8: lambda model: model.learn_pairs(POINTS[:9], POINTS[9:18], np.arange(9) % 2),
            65: lambda model: model.label(IDS[40:60], LABELS[40:60]),
        },
    ),
}


def _engine(**parameters: Any) -> Callable[[], Any]:
    return lambda: se.Engine(**{**SMALL, **parameters})


def _list_engines() -> Mapping[str, Subject]:
    found = {}
    for method, given in METHODS.items():
        for memory, kept in MEMORIES.items():
            make = _engine(method=method, **given, **kept)
            found[f"Engine, {method}, {memory}"] = Subject(make, _points, read_engine)
            if method in ("diffusion_map", "laplacian_eigenmaps", "classical_mds"):
                name = f"Engine, {method}, {memory}, distances"
                found[name] = Subject(make, _distances, read_engine, table=False)
    for name, (given, feed, steps) in ENGINES.items():
        found[f"Engine, {name}"] = Subject(_engine(**given), feed, read_engine, steps=steps)
    return found


# ---------------------------------------------------------------- estimators and the monitor

MAPS: dict[str, dict[str, Any]] = {
    "DiffusionMap": SMALL,
    "LaplacianEigenmaps": {**SMALL, "n_neighbors": 5},
    "LinearEigenmap": {**SMALL, "n_neighbors": 5},
    "KernelPCA": SMALL,
    "ClassicalMDS": SMALL,
    "Isomap": {**SMALL, "n_neighbors": 5},
    "LocallyLinearEmbedding": {**SMALL, "n_neighbors": 6},
    "LiveMap": {**SMALL, "n_neighbors": 5},
    "UnsupervisedMetric": {"size": 40, "warm_up": 15},
}
AXES: dict[str, dict[str, Any]] = {
    "moments": {},
    "whitened": {"whiten": True, "n_components": 3},
    "window": {"window": 33},
    "window, svd": {"window": 33, "solver": "svd"},
    "half-life": {"half_life": 20.0},
    "svd": {"solver": "svd", "rank": 2},
    "svd, half-life": {"solver": "svd", "half_life": 20.0},
}
MONITORS: dict[str, dict[str, Any]] = {
    "renew": {},
    "hold": {"policy": "hold"},
    "labels": {"labels": True},
}


def _many(model: Any, first: int, stop: int) -> object:
    if stop - first == 1:
        return model.learn_one(GAPS[first])
    return model.learn_many(GAPS[first:stop])


def _many_timed(model: Any, first: int, stop: int) -> object:
    rows = [{**GAPS[i], "event_time": float(i - 3 * (i % 4))} for i in range(first, stop)]
    return model.learn_one(rows[0]) if stop - first == 1 else model.learn_many(rows)


def _many_labelled(model: Any, first: int, stop: int) -> object:
    labels: list[str | None] = [None if i % 11 == 9 else LABELS[i] for i in range(first, stop)]
    if stop - first == 1:
        return model.learn_one(GAPS[first], labels[0])
    return model.learn_many(GAPS[first:stop], labels)


def _watch(model: Any, first: int, stop: int) -> object:
    return model.learn(POINTS[first:stop])


def _watch_labels(model: Any, first: int, stop: int) -> object:
    return model.learn(POINTS[first:stop], y=LABELS[first:stop])


def _placed(model: Any) -> Any:
    return model.transform_many(GAPS[:9]), model.imputed, model.ignored


def _placed_by_metric(model: Any) -> Any:
    return _placed(model), model.metric.matrix, repr(model.metric.certificate)


def _answered(model: Any) -> Any:
    return model.predict_proba_many(GAPS[:9]), model.classes, model.ask(5)


def _alarmed(model: Any) -> Any:
    return repr(model.alarms), repr(model.notes)


def _list_estimators() -> Mapping[str, Subject]:
    found = {}
    for name, given in MAPS.items():
        found[name] = Subject(_estimator(name, given), _many, _placed)
    clock = {"memory": "landmarks", "half_life": 30.0, "clock": "event_time"}
    timed = _estimator("DiffusionMap", {**SMALL, **clock})
    found["DiffusionMap, times"] = Subject(timed, _many_timed, _placed, table=False)
    for name, given in AXES.items():
        found[f"PCA, {name}"] = Subject(_estimator("PCA", given), _many, _placed)
    for name, (cls, given) in WAYS.items():
        make = _estimator(cls.__name__, {"chunk_size": 7, **given})
        steps: dict[int, Call] = {
            3: lambda model: model.learn_pairs(ROWS[:9], ROWS[9:18], [True, False, True] * 3),
            45: lambda model: model.learn_pairs(ROWS[:20], ROWS[20:40], [True, False] * 10),
            52: lambda model: model.flush(),
        }
        found[name] = Subject(make, _many_labelled, _placed_by_metric, steps=steps)
    given = {"size": 30, "warm_up": 12, "n_neighbors": 5}
    spreading = _estimator("LabelSpreading", given)
    found["LabelSpreading"] = Subject(spreading, _many_labelled, _answered)
    detector = _estimator("EmbeddingDrift", {"ert": 200, "n_reference": 100})
    found["EmbeddingDrift"] = Subject(
        detector, _many, lambda model: repr(model.drift_detected), n=240
    )
    for name, given in MONITORS.items():
        feed = _watch_labels if "labels" in given else _watch
        found[f"Monitor, {name}"] = Subject(_monitor(given), feed, _alarmed, n=260)
    return found


def _estimator(name: str, given: Mapping[str, Any]) -> Callable[[], Any]:
    return lambda: getattr(estimators, name)(**given)


def _monitor(given: Mapping[str, Any]) -> Callable[[], Any]:
    return lambda: se.Monitor(ert=200, n_reference=100, **given)


SUBJECTS: dict[str, Subject] = {**_list_engines(), **_list_estimators()}
