"""The river faces of metrics: laws that all of them keep."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from streamembed import estimators
from streamembed.errors import NotLearnedWarning, NotReadyError
from streamembed.estimators.metric_estimator import MetricEstimator
from streamembed.metrics.mahalanobis import Mahalanobis
from tests.metric_ways import ADDITIVE, CONTRACT, DICTS, LABELS, NAMES, POINTS, WAYS, built, learned


def flat(state: Any) -> Any:
    """A state bit for bit, without the identities of objects that pickles tell apart."""
    if isinstance(state, np.ndarray):
        return state.dtype.str, state.shape, state.tobytes()
    if is_dataclass(state):
        return [flat(getattr(state, field.name)) for field in fields(state)]
    if isinstance(state, dict):
        return [(key, flat(value)) for key, value in state.items()]
    return [flat(part) for part in state] if isinstance(state, (list, tuple)) else state


def test_the_roster_is_complete() -> None:
    """Every metric estimator is tried in every way of learning that it has."""
    found = {getattr(estimators, name) for name in estimators.__all__}
    found = {cls for cls in found if issubclass(cls, MetricEstimator)}
    assert found == set(CONTRACT) == {cls for cls, _ in WAYS.values()}


@pytest.mark.parametrize("cls", CONTRACT)
def test_names_and_defaults_are_those_of_the_contract(cls: Any) -> None:
    """DESIGN section 4; all have a chunk size and a seed."""
    found = {name: p.default for name, p in inspect.signature(cls).parameters.items()}
    assert found == {**CONTRACT[cls], "chunk_size": 50, "seed": 0}


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=3, deadline=None)
@given(cuts=st.lists(st.integers(1, 89), max_size=6), gaps=st.booleans())
def test_many_is_one_by_one(way: str, cuts: list[int], gaps: bool) -> None:
    """Any split gives the same state, bit for bit, with pairs among the points and with gaps."""
    rows, labels = [dict(row) for row in DICTS], list(LABELS)
    if gaps:
        for i in range(0, 90, 4):
            del rows[i][NAMES[i % 3]]
        labels[31] = None  # type: ignore[call-overload]
    one, many = built(way), built(way)
    similar = [i % 3 == 0 for i in range(45)]
    for i, (row, label) in enumerate(zip(rows, labels, strict=True)):
        one.learn_one(row, label)
        if i == 44:
            for j in range(20):
                one.learn_pairs([rows[j]], [rows[j + 20]], similar[j : j + 1])
    ends = sorted({*cuts, 45, 90})
    for start, stop in zip([0, *ends], ends, strict=False):
        many.learn_many(rows[start:stop], labels[start:stop])
        if stop == 45:
            many.learn_pairs(rows[:20], rows[20:40], similar[:20])
    assert pickle.dumps(one) == pickle.dumps(many)
    assert np.array_equal(one.metric.matrix, many.metric.matrix)


@pytest.mark.parametrize("way", WAYS)
def test_a_pickled_estimator_goes_on_where_it_stopped(way: str) -> None:
    """From the warm-up, and from the middle of a chunk, bit for bit."""
    for events in (7, 45):
        going = built(way)
        going.learn_many(DICTS[:events], LABELS[:events])
        loaded = pickle.loads(pickle.dumps(going))
        for model in (going, loaded):
            model.learn_many(DICTS[events:], LABELS[events:])
        assert flat(going.__getstate__()) == flat(loaded.__getstate__())
        assert going.transform_one(DICTS[0]) == loaded.transform_one(DICTS[0])


@pytest.mark.parametrize("way", WAYS)
def test_reading_changes_nothing(way: str) -> None:
    """Pickles are equal before and after; the metric is one object until more is learned."""
    model = built(way)
    model.learn_many(DICTS, LABELS)
    before = pickle.dumps(model)
    first = model.metric
    model.transform_one(DICTS[3])
    model.transform_many(pl.DataFrame(DICTS))
    assert model.metric.certificate["status"] != "untaught"
    assert pickle.dumps(model) == before
    assert model.metric is first
    model.learn_one(DICTS[0], LABELS[0])  # the 91st event ends the 13th chunk
    assert model.metric is not first
    assert isinstance(model.metric, Mahalanobis)


@pytest.mark.parametrize("way", WAYS)
def test_transformed_points_have_the_metrics_distances(way: str) -> None:
    """In d coordinates, whatever the rank; and the metric is no longer where it started."""
    model = learned(way)
    model.flush()  # `metric` shows what waits, points are mapped by whole chunks
    placed = model.transform_many(POINTS)
    assert placed.shape == (90, 4)
    # squares of roots of eigenvalues: half the digits where the matrix is of low rank
    np.testing.assert_allclose(
        cdist(placed, placed), model.metric.distances(POINTS, POINTS), rtol=1e-6, atol=1e-6
    )
    one = model.transform_one(dict(enumerate(POINTS[5])))
    np.testing.assert_allclose(list(one.values()), placed[5], rtol=1e-9, atol=1e-9)
    assert list(one) == [f"{model.prefix}_{j}" for j in range(4)]
    scale = POINTS.std(axis=0)
    standard = model.metric.matrix * np.outer(scale, scale)
    assert np.abs(standard / np.trace(standard) - np.eye(4) / 4).max() > 0.02


@pytest.mark.parametrize("way", WAYS)
def test_coordinates_do_not_flip(way: str) -> None:
    """A chunk more moves points by a fraction of their spread: no axis turns over."""
    model = built(way, chunk_size=5)
    model.learn_many(POINTS[:85], LABELS[:85])
    before = model.transform_many(POINTS)
    model.learn_many(POINTS[85:], LABELS[85:])
    after = model.transform_many(POINTS)
    assert np.linalg.norm(after - before) < 0.5 * np.linalg.norm(before - before.mean(axis=0))


@pytest.mark.parametrize("way", WAYS)
def test_units_do_not_matter(way: str) -> None:
    """Features in other units: the same distances, as the metric is in the caller's own."""
    units = np.array([1e6, 1.0, 1e-4, 1e3])
    model, other = learned(way), built(way)
    other.learn_many(POINTS * units, LABELS)
    expected = model.metric.distances(POINTS, POINTS)
    # near-tied eigenvectors of 13 calls of 10 Frank-Wolfe steps amplify rounding
    found = other.metric.distances(POINTS * units, POINTS * units)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6 * expected.max())


@pytest.mark.parametrize("way", WAYS)
def test_labels_are_only_names(way: str) -> None:
    """Strings, ints, bools, numpy's: renaming changes nothing, bit for bit."""
    matrix = learned(way).metric.matrix
    for rename in (int, lambda c: np.int64(9 - int(c)), lambda c: f"class {c}"):
        model = built(way)
        model.learn_many(POINTS, [rename(label) for label in LABELS])
        assert np.array_equal(model.metric.matrix, matrix)
    assert model.classes == tuple(dict.fromkeys(f"class {label}" for label in LABELS))


@pytest.mark.parametrize("way", WAYS)
def test_the_order_of_features_does_not_matter(way: str) -> None:
    """By name, bit for bit; the matrix is in the order of ``feature_names``."""
    model, turned = built(way), built(way)
    model.learn_many(DICTS, LABELS)
    turned.learn_many([dict(reversed(row.items())) for row in DICTS], LABELS)
    assert pickle.dumps(model) == pickle.dumps(turned)
    assert model.feature_names == ("w", "x", "y", "z")
    assert np.array_equal(model.metric.matrix, learned(way).metric.matrix)


FRAMES = {
    "pandas": (pd.DataFrame(DICTS, index=range(100, 190)), pd.Series(LABELS)),
    "polars": (pl.DataFrame(DICTS), pl.Series(LABELS)),
    "table": (pa.Table.from_pylist(DICTS), pa.chunked_array([LABELS[:50], LABELS[50:]])),
    "record batch": (pa.RecordBatch.from_pylist(DICTS), pa.array(LABELS)),
    "array": (POINTS, np.array(LABELS)),
    "dicts": (DICTS, LABELS),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_every_kind_of_frame_is_learned_and_given_back(kind: str) -> None:
    """The same metric from each, and coordinates in the caller's own kind."""
    X, y = FRAMES[kind]
    model = built("GeometricMeanMetric")
    model.learn_many(X, y)
    assert np.array_equal(model.metric.matrix, learned("GeometricMeanMetric").metric.matrix)
    out = model.transform_many(X)
    assert type(out) is type(X)
    expected = learned("GeometricMeanMetric").transform_many(POINTS)
    if kind == "dicts":
        found = np.array([list(row.values()) for row in out])
    elif kind == "record batch":
        found = np.column_stack([column.to_numpy() for column in out.columns])
    else:
        found = out.to_pandas().to_numpy() if kind == "table" else np.asarray(out)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    if kind == "pandas":
        assert out.index.equals(X.index)
        assert list(out.columns) == [f"geometric_mean_metric_{j}" for j in range(4)]


@pytest.mark.parametrize("way", WAYS)
def test_the_cold_start_is_the_identity(way: str) -> None:
    """Before the first chunk points stay where they are; before the first event there is none.

    Metrics of sums show what came, in the warm-up too.
    """
    model = built(way)
    with pytest.raises(NotReadyError, match="features are unknown"):
        _ = model.metric
    assert list(model.transform_one(DICTS[0]).values()) == POINTS[0].tolist()
    model.learn_many(DICTS[:20], LABELS[:20])
    assert not model.ready
    if way in ADDITIVE:
        assert not np.array_equal(model.metric.matrix, np.eye(4))
        assert model.metric.certificate["status"] in ("measured", "guarded", "exact")
    else:
        with pytest.warns(NotLearnedWarning, match=r"nothing yet: .* identity .*chunk_size=7\)"):
            metric = model.metric
        assert np.array_equal(metric.matrix, np.eye(4))
        assert metric.certificate["status"] == "untaught"
    found = np.array([list(row.values()) for row in model.transform_many(DICTS)])
    assert np.array_equal(found, POINTS)
    model.learn_one(DICTS[20], LABELS[20])  # 21 events: three chunks of seven, 20 or more
    assert model.ready
    assert not np.array_equal(model.metric.matrix, np.eye(4))


def test_waiting_events_do_not_move_a_metric_of_remembered_pairs() -> None:
    """Until the chunk is whole; `flush` learns a short one, even in the warm-up."""
    model = built("EigDML", chunk_size=30)
    model.learn_many(DICTS[:40], LABELS[:40])
    assert (model.position, model.pending) == (40, 10)
    before = model.metric
    model.learn_one(DICTS[40], LABELS[40])
    assert model.metric is before
    model.flush()
    assert (model.position, model.pending) == (41, 0)
    assert model.metric is not before
    short = built("GeometricMeanMetric")
    short.learn_many(DICTS[:6], LABELS[:6])
    short.flush()
    assert short.ready
    assert short.metric.certificate["status"] == "measured"


def test_missing_values_become_means() -> None:
    """Of what was seen up to the end of the chunk; unknown features are counted and ignored."""
    model, plain = (built("GeometricMeanMetric", chunk_size=30) for _ in range(2))
    odd, filled = ([dict(row) for row in DICTS] for _ in range(2))
    strange = [None, float("nan"), "text", float("inf"), 1e300, "absent"]
    left = [row["x"] for i, row in enumerate(DICTS[:60]) if not 50 <= i < 56]
    for i, value in enumerate(strange):
        if value == "absent":
            del odd[50 + i]["x"]
        else:
            odd[50 + i]["x"] = value  # type: ignore[assignment]
        filled[50 + i]["x"] = float(np.mean(left))
    odd[70]["new"] = 3.0
    model.learn_many(odd, LABELS)
    plain.learn_many(filled, LABELS)
    assert (model.imputed, model.ignored) == (6, 1)
    # the deviation that features are divided by is that of the values that were there
    np.testing.assert_allclose(model.metric.matrix, plain.metric.matrix, rtol=0.05)
    assert model.transform_one({}).keys() == model.transform_one(DICTS[0]).keys()
    assert (model.imputed_in_transform, model.ignored_in_transform) == (4, 0)
    means = {name: np.mean([row[name] for row in DICTS]) for name in NAMES}
    means["x"] = np.mean([row["x"] for i, row in enumerate(DICTS) if not 50 <= i < 56])
    assert model.transform_one({}) == pytest.approx(model.transform_one(means), rel=1e-9)


@pytest.mark.parametrize("way", WAYS)
def test_memory_is_flat(way: str) -> None:
    """The pickle does not grow by 1 % in three times the events."""
    points = np.random.default_rng(1).standard_normal((3600, 3))
    labels = (points[:, 0] > 0).tolist()
    model = built(way, chunk_size=40, **({"buffer": 200} if "buffer" in CONTRACT_OF[way] else {}))
    model.learn_many(points[:1200], labels[:1200])
    before = len(pickle.dumps(model))
    model.learn_many(points[1200:], labels[1200:])
    # the histogram of ITML's bounds meets a new bucket, of 16 bytes, every few hundred events
    assert len(pickle.dumps(model)) <= 1.01 * before + 1500


CONTRACT_OF = {way: CONTRACT[cls] for way, (cls, _) in WAYS.items()}
