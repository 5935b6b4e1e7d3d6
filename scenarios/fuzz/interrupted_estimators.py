"""Calls of every estimator and of the monitor that `scenarios.fuzz.interrupts` breaks off."""

from __future__ import annotations

import dataclasses
import hashlib
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import streamembed as se
from streamembed import estimators
from streamembed.estimators.estimator import FeatureEstimator
from streamembed.numeric.chunks import PendingParts

__all__ = ["ESTIMATORS", "EstimatorCase", "list_parts"]

POINTS = np.random.default_rng(1).standard_normal((400, 3))
POINTS[::2, 0] += 4.0
LABELS = ["near" if i % 2 else "far" for i in range(400)]
SIMILAR = [i % 3 == 0 for i in range(400)]
DISTANCES = np.linalg.norm(POINTS[:, None] - POINTS[None], axis=2)


def _row(i: int) -> dict[str, Any]:
    """One event: now and then without a number, without a feature, or with one that is late."""
    row = dict(zip("abc", POINTS[i].tolist(), strict=True))
    if i % 5 == 1:
        row["b"] = float("nan")
    if i % 7 == 2:
        del row["c"]
    if i > 30 and i % 4 == 0:
        row["late"] = 1.0
    return row


ROWS = [_row(i) for i in range(400)]
HOLES = POINTS.copy()
HOLES[5::11, 1] = np.nan
DISTANCE_OBJECTS = [{f"e{j:03d}": float(DISTANCES[i, j]) for j in range(i + 1)} for i in range(120)]

Call = Callable[[Any, int, int], object]


@dataclass(frozen=True)
class EstimatorCase:
    """An estimator or monitor, and a call in the middle of its stream.

    Attributes
    ----------
    name : str
    make : callable
        A new one.
    feed : Call
        Gives it the events from one number to another, in one call.
    call : Call
        What is broken off, with the events from ``first`` to ``stop``.
    first, stop, end : int
    by_events : bool
        Whether a call that is broken off may have taken some of its events, and not the others.
    """

    name: str
    make: Callable[[], Any]
    feed: Call
    call: Call
    first: int
    stop: int
    end: int
    by_events: bool = False

    def start(self) -> bytes:
        """As it is before the call, to be restored."""
        made = self.make()
        if self.first:
            self.feed(made, 0, self.first)
        return pickle.dumps(made)

    def restored(self, saved: bytes) -> Any:
        """One as it was saved."""
        return pickle.loads(saved)

    def run(self, model: Any) -> None:
        """The call that is broken off."""
        self.call(model, self.first, self.stop)

    def parts(self, saved: bytes) -> Iterator[tuple[str, int]]:
        """States in the middle of the call that are allowed, and where to go on from them."""
        for stop in range(self.first + 1, self.stop) if self.by_events else ():
            model = self.restored(saved)
            self.feed(model, self.first, stop)
            yield self.digest(model), stop

    def digest(self, model: Any) -> str:
        """Of everything that it saves."""
        hashed = hashlib.sha256()
        for part in list_parts(model):
            hashed.update(part)
        return hashed.hexdigest()

    def ended(self, model: Any, position: int) -> str:
        """The state at the end of the stream, and what it gives from there."""
        self.feed(model, position, self.end)
        given = pickle.dumps(_outputs(model))
        return self.digest(model) + hashlib.sha256(given).hexdigest()


def _outputs(model: Any) -> Any:
    if isinstance(model, se.Monitor):
        return model.alarms, model.notes
    if getattr(model, "metric", None) == "precomputed":
        return model.snapshot().coordinates.tobytes()
    if callable(getattr(model, "metric", None)) or callable(getattr(model, "kernel", None)):
        return model.transform_many(POINTS[100:104].tolist()).tobytes()
    counts = [getattr(model, name, None) for name in ("imputed", "ignored", "drift_detected")]
    place = getattr(model, "transform_many", None) or model.predict_proba_many
    return place(ROWS[100:110]), counts


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


# ---------------------------------------------------------------- calls


def learn_batch(model: Any, first: int, stop: int) -> object:
    return model.learn_many(ROWS[first:stop])


def learn_batch_with_times(model: Any, first: int, stop: int) -> object:
    rows = [{**ROWS[i], "event_time": float(i)} for i in range(first, stop)]
    return model.learn_many(rows)


def learn_single(model: Any, first: int, stop: int) -> object:
    return model.learn_one(ROWS[first])


def learn_batch_with_labels(model: Any, first: int, stop: int) -> object:
    return model.learn_many(ROWS[first:stop], LABELS[first:stop])


def learn_single_with_label(model: Any, first: int, stop: int) -> object:
    return model.learn_one(ROWS[first], LABELS[first])


def pairs(model: Any, first: int, stop: int) -> object:
    after = [ROWS[i + 1] for i in range(first, stop)]
    return model.learn_pairs(ROWS[first:stop], after, SIMILAR[first:stop])


def learn_distance_objects(model: Any, first: int, stop: int) -> object:
    return model.learn_many(DISTANCE_OBJECTS[first:stop])


def objects(model: Any, first: int, stop: int) -> object:
    return model.learn_many([tuple(point) for point in POINTS[first:stop].tolist()])


def points(model: Any, first: int, stop: int) -> object:
    return model.learn(HOLES[first:stop])


def points_labelled(model: Any, first: int, stop: int) -> object:
    return model.learn(HOLES[first:stop], y=LABELS[first:stop])


def learn_points(model: Any, first: int, stop: int) -> object:
    return model.learn(POINTS[first:stop])


def flush(model: Any, first: int, stop: int) -> object:
    return model.flush()


def relayout(model: Any, first: int, stop: int) -> object:
    return model.relayout()


def update(model: Any, first: int, stop: int) -> object:
    return model.update(ROWS[first])


def merge(model: Any, first: int, stop: int) -> object:
    other = model.clone()
    feed = learn_batch_with_labels if hasattr(model, "learn_pairs") else learn_batch
    feed(other, 1, 29)  # the same features
    return model.merge(other)


def measure_distance(a: Any, b: Any) -> float:
    """Distance of two objects."""
    return float(np.linalg.norm(np.subtract(a, b)))


def product(a: Any, b: Any) -> float:
    """Kernel of two objects."""
    return float(np.dot(a, b))


# ---------------------------------------------------------------- cases


SMALL: dict[str, Any] = {"size": 40, "warm_up": 12, "chunk_size": 5}
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
METRICS: dict[str, dict[str, Any]] = {
    "ITML": {"chunk_size": 10, "buffer": 40},
    "EigDML": {"chunk_size": 10, "buffer": 40},
    "MustLinkMetric": {"chunk_size": 10, "diagonal": True},
    "FENN": {"chunk_size": 10},
    "DiscriminantAnalysis": {"chunk_size": 10},
    "ContrastMetric": {"chunk_size": 10},
    "GeometricMeanMetric": {"chunk_size": 10},
}


def _of(name: str, **parameters: Any) -> Callable[[], Any]:
    return lambda: getattr(estimators, name)(**parameters)


def _cases() -> Iterator[EstimatorCase]:
    for name, given in MAPS.items():
        made = _of(name, **given)
        yield EstimatorCase(
            f"{name}, end of the warm-up", made, learn_batch, learn_batch, 8, 19, 31, True
        )
        yield EstimatorCase(f"{name}, learn_many", made, learn_batch, learn_batch, 48, 57, 66, True)
        yield EstimatorCase(f"{name}, learn_one", made, learn_batch, learn_single, 44, 45, 56, True)
        yield EstimatorCase(f"{name}, flush", made, learn_batch, flush, 48, 48, 61, True)
    times = {"memory": "landmarks", "half_life": 20.0, "clock": "event_time"}
    timed, call = _of("DiffusionMap", **SMALL, **times), learn_batch_with_times
    yield EstimatorCase(
        "DiffusionMap, times, end of the warm-up", timed, call, call, 8, 19, 31, True
    )
    yield EstimatorCase("DiffusionMap, times", timed, call, call, 48, 57, 66, True)
    known = _of("DiffusionMap", **{**SMALL, "memory": "all"}, metric="precomputed")
    yield EstimatorCase(
        "DiffusionMap, precomputed",
        known,
        learn_distance_objects,
        learn_distance_objects,
        33,
        37,
        46,
        True,
    )
    yield EstimatorCase(
        "DiffusionMap, precomputed, first",
        known,
        learn_distance_objects,
        learn_distance_objects,
        0,
        14,
        21,
        True,
    )
    called = _of("ClassicalMDS", **SMALL, metric=measure_distance)
    yield EstimatorCase("ClassicalMDS, objects", called, objects, objects, 48, 52, 61, True)
    yield EstimatorCase("ClassicalMDS, first objects", called, objects, objects, 0, 14, 21, True)
    own = _of("KernelPCA", **SMALL, kernel=product)
    yield EstimatorCase("KernelPCA, objects", own, objects, objects, 48, 52, 61, True)
    drawn = _of("LiveMap", **MAPS["LiveMap"])
    yield EstimatorCase("LiveMap, relayout", drawn, learn_batch, relayout, 48, 48, 61, True)
    for name, given in METRICS.items():
        made = _of(name, **given)
        for what, call in (("labels", learn_batch_with_labels), ("pairs", pairs)):
            yield EstimatorCase(
                f"{name}, first {what}", made, learn_batch_with_labels, call, 12, 27, 46
            )
            yield EstimatorCase(f"{name}, {what}", made, learn_batch_with_labels, call, 37, 51, 66)
        yield EstimatorCase(
            f"{name}, learn_one", made, learn_batch_with_labels, learn_single_with_label, 39, 40, 52
        )
        yield EstimatorCase(
            f"{name}, learn_one, first",
            made,
            learn_batch_with_labels,
            learn_single_with_label,
            19,
            20,
            32,
        )
        yield EstimatorCase(f"{name}, flush", made, learn_batch_with_labels, flush, 37, 37, 46)
        yield EstimatorCase(
            f"{name}, first flush", made, learn_batch_with_labels, flush, 13, 13, 26
        )
        if name != "ITML":  # whose answer depends on the order of its pairs
            yield EstimatorCase(f"{name}, merge", made, learn_batch_with_labels, merge, 37, 37, 46)
    spreading = _of("LabelSpreading", size=30, warm_up=12, n_neighbors=5)
    call = learn_batch_with_labels
    yield EstimatorCase("LabelSpreading, the first", spreading, call, call, 8, 19, 31, True)
    yield EstimatorCase("LabelSpreading", spreading, call, call, 44, 51, 66, True)
    for what, given in (("moments", {}), ("svd", {"solver": "svd"}), ("window", {"window": 15})):
        made = _of("PCA", **given)
        yield EstimatorCase(f"PCA, {what}, the first", made, learn_batch, learn_batch, 12, 33, 46)
        yield EstimatorCase(f"PCA, {what}", made, learn_batch, learn_batch, 37, 51, 62)
        yield EstimatorCase(f"PCA, {what}, flush", made, learn_batch, flush, 13, 13, 26)
    yield EstimatorCase("PCA, merge", _of("PCA"), learn_batch, merge, 37, 37, 46)
    detector = _of("EmbeddingDrift", ert=200, n_reference=100)
    yield EstimatorCase(
        "EmbeddingDrift, the first", detector, learn_batch, learn_batch, 44, 56, 131, True
    )
    yield EstimatorCase(
        "EmbeddingDrift, reference", detector, learn_batch, learn_batch, 97, 102, 131, True
    )
    yield EstimatorCase(
        "EmbeddingDrift, learn_many", detector, learn_batch, learn_batch, 117, 132, 141, True
    )
    yield EstimatorCase(
        "EmbeddingDrift, update", detector, learn_batch, update, 119, 120, 131, True
    )
    watching: dict[str, Any] = {"ert": 200, "n_reference": 100, "on_bad_row": "skip"}
    for what, given, feed in (
        ("renew", {}, points),
        ("hold", {"policy": "hold"}, points),
        ("labels", {"labels": True}, points_labelled),
    ):
        monitor = _monitor(**watching, **given)
        yield EstimatorCase(f"Monitor, {what}, reference", monitor, feed, feed, 98, 123, 141)
        yield EstimatorCase(f"Monitor, {what}", monitor, feed, feed, 138, 177, 191)


def _monitor(**parameters: Any) -> Callable[[], Any]:
    return lambda: se.Monitor(**parameters)


ESTIMATORS = list(_cases())
