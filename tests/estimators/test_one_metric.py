"""A metric of one name has one answer: an engine's and an estimator's, from the same events."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.datasets import load_wine

import streamembed as se
from streamembed import estimators
from streamembed.engine import call as call_module
from streamembed.estimators import (
    FENN,
    ITML,
    ContrastMetric,
    DiscriminantAnalysis,
    EigDML,
    GeometricMeanMetric,
    MustLinkMetric,
    UnsupervisedMetric,
)
from streamembed.logs.event_log import write_log
from streamembed.metrics import engine_metrics as metrics
from streamembed.metrics.catalog import NAMES, STATES
from streamembed.numeric import codec
from tests.metric_ways import ADDITIVE, DICTS, LABELS, POINTS, WAYS, built, learned

FACES: dict[str, Any] = {
    "itml": ITML,
    "eig_dml": EigDML,
    "contrast": ContrastMetric,
    "geometric_mean": GeometricMeanMetric,
    "must_link": MustLinkMetric,
    "fenn": FENN,
    "discriminant": DiscriminantAnalysis,
}
# Whose metric is a function of sums; the others remember pairs, and learn them chunk by chunk.
SUMS = ("contrast", "geometric_mean", "must_link", "fenn", "discriminant")
WINE, KINDS = load_wine(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(WINE))
WINE, KINDS = WINE[ORDER], KINDS[ORDER]
COUNTED = {
    "source", "labelled", "pairs", "updates", "refused", "refused_events", "by_status", "status",
}  # fmt: skip


def small(**changes: Any) -> se.Engine:
    return se.Engine(**{"metrics": NAMES, "size": 120, "warm_up": 60, **changes})


def same(found: np.ndarray, expected: np.ndarray, scale: np.ndarray, name: str) -> None:
    """Equal to 1e-10 of the largest entry, features in deviations: sums in another order."""
    size = np.outer(scale, scale)
    np.testing.assert_allclose(
        found * size, expected * size, rtol=0, atol=1e-10 * np.abs(expected * size).max(),
        err_msg=name,
    )  # fmt: skip


# ------------------------------------------------------------------ one name, one answer


def test_one_name_had_two_algorithms() -> None:
    """The roster of names is that of the estimators; labelled wine gives both the same."""
    metric_faces = {getattr(estimators, name) for name in estimators.__all__}
    assert set(FACES.values()) <= metric_faces
    assert tuple(FACES) == NAMES
    engine = small()
    engine.learn(WINE, y=KINDS)
    engine.flush()
    for name, metric in engine.snapshot().metrics.items():
        face = FACES[name]()
        face.learn_many(WINE, KINDS)
        face.flush()
        np.testing.assert_array_equal(metric.matrix, face.metric.matrix, err_msg=name)
        np.testing.assert_array_equal(metric.factor, face.metric.factor, err_msg=name)
        assert metric.certificate == face.metric.certificate


@pytest.mark.parametrize("chunk_size", [1, 7, 10, 50, 60, 130])
def test_the_chunks_of_the_map_do_not_matter(chunk_size: int) -> None:
    """Metrics learn fifty labelled rows at a time, counted by labelled rows, gaps or not."""
    y = [None if i % 3 == 0 else int(kind) for i, kind in enumerate(KINDS)]
    engine = small(chunk_size=chunk_size, size=140, warm_up=max(60, chunk_size))
    engine.learn(WINE, y=y)
    seen = engine.learned
    for name, metric in engine.snapshot().metrics.items():
        face = FACES[name]()
        face.learn_many(WINE[:seen], y[:seen])
        np.testing.assert_array_equal(metric.matrix, face.metric.matrix, err_msg=name)


def streams(trial: int) -> tuple[np.ndarray, list[Any], np.ndarray]:
    """Points, labels with gaps, and the scale of the features, of one random stream."""
    rng = np.random.default_rng(trial)
    d, n, n_classes = int(rng.integers(1, 6)), int(rng.integers(60, 150)), int(rng.integers(1, 6))
    units = 10.0 ** rng.integers(-6, 7, d)
    points = rng.standard_normal((n, d)) * units
    classes = rng.integers(0, n_classes, n)
    kind = trial % 6
    if kind == 1:  # few sites, each many times
        points = points[rng.integers(0, int(rng.integers(1, 9)), n)]
    elif kind == 2:  # a constant feature, and a far offset
        points += rng.choice([0.0, 1e3]) * units
        points[:, 0] = 7.1
    elif kind == 3 and d > 1:  # collinear
        points[:, -1] = points[:, 0]
    elif kind == 4:  # a class is one site
        points = (rng.standard_normal((n_classes, d)) * units)[classes]
    elif kind == 5:  # classes of one member
        classes[:] = 0
        classes[:3] = [1, 2, 3]
    labels: list[Any] = [f"class {c}" for c in classes]
    for gap in np.flatnonzero(rng.random(n) < rng.choice([0.0, 0.3, 0.9])).tolist():
        labels[gap] = None
    scale = points.std(axis=0)
    return points, labels, np.where(scale > 0, scale, 1.0)


@pytest.mark.parametrize("start", [0, pytest.param(10, marks=pytest.mark.long)])
def test_random_streams_teach_both_the_same(start: int) -> None:
    """Gaps, duplicates, constants, far units, thin classes; labels and pairs, in any cut."""
    for trial in range(start, start + 10):
        points, labels, scale = streams(trial)
        rng = np.random.default_rng((trial, 1))
        engine = small(size=80, warm_up=30, seed=trial, n_components=1)
        faces = {name: FACES[name](seed=trial) for name in NAMES}
        # the events of whole chunks of the map come before pairs that are given after them
        stop = 30 + 10 * int(rng.integers(0, (len(points) - 30) // 10 + 1))
        pairs = rng.integers(0, len(points), (2, int(rng.integers(0, 70))))
        similar = rng.random(pairs.shape[1]) < 0.5
        for cut in (slice(0, stop), slice(stop, None)):
            engine.learn(points[cut], y=labels[cut])
            for face in faces.values():
                face.learn_many(points[cut], labels[cut])
            if cut.start == 0:
                engine.learn_pairs(points[pairs[0]], points[pairs[1]], similar)
                for face in faces.values():
                    face.learn_pairs(points[pairs[0]], points[pairs[1]], similar)
        engine.flush()
        for name, metric in engine.snapshot().metrics.items():
            faces[name].flush()
            if faces[name].position == 0:
                continue  # not one label: the engine's is the map's own
            same(metric.matrix, faces[name].metric.matrix, scale, f"{name}, stream {trial}")
            assert np.isfinite(metric.factor).all()


# ------------------------------------------------------------------ what waits


@pytest.mark.parametrize("way", ADDITIVE)
def test_thirty_rows_teach_thirty_rows(way: str) -> None:
    """Sums show every event that came, in the warm-up too; reading them changes nothing."""
    for count in (10, 30, 61):
        waiting, whole = built(way, chunk_size=50), built(way, chunk_size=50)
        waiting.learn_many(DICTS[:count], LABELS[:count])
        before = pickle.dumps(waiting)
        metric = waiting.metric
        assert waiting.metric is metric
        assert waiting.pending == count - (50 if count == 61 else 0)
        assert pickle.dumps(waiting) == before
        whole.learn_many(DICTS[:count], LABELS[:count])
        whole.flush()
        assert whole.pending == 0
        np.testing.assert_array_equal(metric.matrix, whole.metric.matrix)
        assert metric.certificate["labelled"] == whole.metric.certificate["labelled"] == count
        assert metric.certificate["status"] == whole.metric.certificate["status"]
        # what is mapped moves with whole chunks, so that it can be compared
        waiting.learn_many(DICTS[count:], LABELS[count:])


def test_sums_of_an_engine_show_labels_that_wait_for_their_chunk() -> None:
    """Thirty labelled rows of whole chunks of the map: metrics of sums have them all."""
    engine = small(warm_up=20, metrics=SUMS)
    engine.learn(WINE[:36], y=KINDS[:36])
    assert engine.pending == 6  # these belong to no snapshot yet
    for name, metric in engine.snapshot().metrics.items():
        face = FACES[name]()
        face.learn_many(WINE[:30], KINDS[:30])
        np.testing.assert_array_equal(metric.matrix, face.metric.matrix, err_msg=name)
        assert metric.certificate["labelled"] == 30


def test_remembered_pairs_wait_for_their_chunk() -> None:
    """Until fifty labels have come the metric is that of the map's own pairs, and says so."""
    engine = small(metrics=("itml", "eig_dml"))
    y = [int(kind) if i < 40 else None for i, kind in enumerate(KINDS)]
    engine.learn(WINE, y=y)
    for name in ("itml", "eig_dml"):
        assert engine.snapshot().metrics[name].certificate["source"] == "generated"
    engine.flush()  # learns the forty as a short chunk
    for name in ("itml", "eig_dml"):
        told = engine.snapshot().metrics[name].certificate
        assert (told["source"], told["labelled"], told["updates"]) == ("labels", 40, 1)
    snapshot = engine.snapshot()
    engine.flush()
    assert engine.snapshot() is snapshot  # nothing waits any more


# ------------------------------------------------------------------ labels


def counted(monkeypatch: pytest.MonkeyPatch, run: Callable[[], Any]) -> int:
    """How many labels were made plain while it ran."""
    lengths: list[int] = []
    real = call_module.list_labels

    def counting(y: Any, n: int) -> Any:
        lengths.append(n)
        return real(y, n)

    monkeypatch.setattr(call_module, "list_labels", counting)
    run()
    return sum(lengths)


def test_labels_stay_with_their_rows_where_others_are_set_aside(tmp_path: Path) -> None:
    """Rows that hold NaN, or an id again, take their labels with them."""
    points = WINE.copy()
    points[[5, 66, 100], 3] = np.nan
    ids = np.arange(len(WINE))
    ids[90] = 89  # within the window: set aside, which is known only when it is learned
    names = [f"f{j:02d}" for j in range(13)]
    write_log(tmp_path / "log", points, names, ids=ids, labels=KINDS.tolist())
    engine = small(on_bad_row="skip")
    done = se.replay(tmp_path / "log", engine, tmp_path / "run")
    stay = np.delete(np.arange(len(WINE)), [5, 66, 90, 100])
    plain = small()
    plain.learn(pa.table({n: WINE[stay, j] for j, n in enumerate(names)}), y=KINDS[stay])
    assert (done.accepted, done.rejected) == (len(stay), 4)
    ours, theirs = engine.snapshot().metrics, plain.snapshot().metrics
    for name in NAMES:
        np.testing.assert_array_equal(ours[name].matrix, theirs[name].matrix)


# ------------------------------------------------------------------ nothing is lost silently


def test_refused_updates_vanished_in_the_engine() -> None:
    """Features that grow by 1e160: the metric stays, and the certificate counts what was lost."""
    points, kinds = WINE[:160].copy(), KINDS[:160]
    points[100:150] *= 1e160
    engine = small(scaling=None, kernel="gaussian", bandwidth=100.0, metrics=("itml", "fenn"))
    face = ITML()
    engine.learn(points[:100], y=kinds[:100])
    face.learn_many(points[:100], kinds[:100])
    before = engine.snapshot().metrics["itml"]
    state = engine._progress.state
    assert state is not None
    assert state.metrics is not None
    taught = metrics.learn_labels(state.metrics, points[100:150], kinds[100:150], 0)
    after = metrics.publish(taught, state.scaling.scale)["itml"]
    np.testing.assert_array_equal(after.matrix, before.matrix)
    told = after.certificate
    assert (told["updates"], told["refused"], told["refused_events"]) == (3, 1, 50)
    assert told["by_status"] == {"ok": 2, "refused": 1}
    again = metrics.learn_labels(taught, points[:50], kinds[:50], 0)
    assert again.course.progress["itml"].totals.by_status["ok"] == 3
    kept = codec.unpack(metrics.Learners, *codec.pack(again), STATES)
    assert metrics.publish(kept, state.scaling.scale)["itml"].certificate["refused"] == 1
    assert face.totals.updates == face.totals.updates == 2


@pytest.mark.filterwarnings("ignore::streamembed.errors.NotLearnedWarning")
def test_a_certificate_had_as_many_shapes_as_makers() -> None:
    """The same keys from an engine, from every estimator and without labels; plain JSON."""
    found = []
    for y in (None, KINDS):
        engine = small()
        engine.learn(WINE, y=y)
        found += list(engine.snapshot().metrics.values())
    for way in WAYS:
        found.append(learned(way).metric)
        early = built(way)
        early.learn_many(POINTS[:3], LABELS[:3])
        found.append(early.metric)
    blind = UnsupervisedMetric(warm_up=100)
    blind.learn_many(WINE)
    found.append(blind.metric)
    for metric in found:
        told = metric.certificate
        assert set(told) >= COUNTED
        assert told["source"] in ("labels", "given", "generated", "features")
        plain = told.as_dict()
        assert json.loads(json.dumps(plain, allow_nan=False)) == plain


# ------------------------------------------------------------------ merging


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("start", range(0, 36, 12))
def test_merged_sums_hung_on_rounding_where_points_repeat(name: str, start: int) -> None:
    """Three workers are one, also where a scatter is 0 and merging leaves a last bit in its place.

    To 1e-6: deviations of a feature 1e3 of them from 0 keep 1e-10 or so, and go through a root.
    """
    for trial in range(start, start + 12):
        points, labels, scale = streams(trial)
        whole = FACES[name]()
        whole.learn_many(points, labels)
        whole.flush()
        edges = [0, len(points) // 3, len(points) // 2, len(points)]
        merged = None
        for begin, end in pairwise(edges):
            part = FACES[name]()
            part.learn_many(points[begin:end], labels[begin:end])
            part.flush()
            if merged is None:
                merged = part
            else:
                merged.merge(part)
        if whole.position == 0:
            continue
        found, expected = merged.metric.matrix, whole.metric.matrix
        size = np.outer(scale, scale)
        largest = np.abs(expected * size).max()
        np.testing.assert_allclose(
            found * size, expected * size, rtol=0, atol=1e-6 * largest, err_msg=f"stream {trial}"
        )
