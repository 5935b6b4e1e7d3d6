"""What coordinates are called: one name wherever they come out, and another for each estimator."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from river import compose

import streamembed as se
from streamembed import estimators
from streamembed.errors import ColumnWarning, FeatureError
from streamembed.estimators import (
    PCA,
    DiffusionMap,
)
from streamembed.logs import open_log
from streamembed.sklearn import OnlineTransformer

POINTS = np.random.default_rng(0).standard_normal((90, 3))
FRAME = pd.DataFrame(POINTS, columns=["a", "b", "c"], index=range(500, 590))
KINDS = {
    "pandas": FRAME,
    "polars": pl.from_pandas(FRAME),
    "table": pa.Table.from_pandas(FRAME, preserve_index=False),
    "batch": pa.RecordBatch.from_pandas(FRAME, preserve_index=False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_snapshot_gives_back_what_came(kind: str) -> None:
    """The same numbers as of dicts, in the caller's kind, named after the method."""
    engine = se.Engine(size=80, warm_up=40, picture=True)
    engine.learn(KINDS[kind])
    snapshot, X = engine.snapshot(), KINDS[kind]
    assert snapshot.picture is not None
    expected = snapshot.transform(FRAME.to_dict("records"))
    assert type(expected) is np.ndarray
    with_coverage, coverage = snapshot.transform_with_coverage(X)
    assert type(coverage) is np.ndarray
    shown = {
        "diffusion_map": (snapshot.transform(X), with_coverage),
        "live_map": (snapshot.picture.transform(X),),
    }
    for prefix, found in shown.items():
        for one in found:
            assert type(one) is type(X)
            table = pa.table(one) if kind != "pandas" else pa.Table.from_pandas(one)
            assert table.column_names[:2] == [f"{prefix}_0", f"{prefix}_1"]
    np.testing.assert_array_equal(np.asarray(snapshot.transform(FRAME)), expected)
    assert snapshot.transform(FRAME).index.equals(FRAME.index)


@pytest.mark.parametrize(
    "name",
    sorted(
        set(estimators.__all__) - {"LocallyLinearEmbedding", "EmbeddingDrift", "LabelSpreading"}
    ),
)
def test_a_face_is_called_after_its_class(name: str) -> None:
    """Keys, columns and what scikit-learn hears are one list; all are text."""
    model: Any = getattr(estimators, name)()
    learns = model._supervised
    y = [bool(v) for v in POINTS[:, 0] > 0]
    model.learn_many(FRAME, y) if learns else model.learn_many(FRAME)
    keys = list(model.transform_one(dict(FRAME.iloc[0])))
    assert keys == [f"{model.prefix}_{j}" for j in range(len(keys))]
    assert model.prefix.replace("_", "") == name.lower()
    assert list(model.transform_many(FRAME).columns) == keys
    assert model.transform_many(KINDS["batch"]).schema.names == keys


def suspicious() -> pd.DataFrame:
    return FRAME.assign(customer_id=7.0, n=range(90), label=1)


@pytest.mark.parametrize("name", ["DiffusionMap", "PCA", "UnsupervisedMetric", "FENN"])
@pytest.mark.parametrize("many", [True, False])
def test_suspicious_columns_are_left_out_with_one_warning(name: str, many: bool) -> None:
    """By name, of frames and dicts alike; they do not count as ignored, nor in transform."""
    model: Any = getattr(estimators, name)()
    X, y = suspicious(), [bool(v) for v in POINTS[:, 0] > 0]

    def learn(rows: slice) -> None:
        if many:
            model.learn_many(X[rows], y[rows]) if model._supervised else model.learn_many(X[rows])
            return
        for row, label in zip(X[rows].to_dict("records"), y[rows], strict=True):
            model.learn_one(row, label) if model._supervised else model.learn_one(row)

    with pytest.warns(ColumnWarning) as told:
        learn(slice(0, 60))
    assert len(told) == 1
    message = str(told[0].message)
    for part in ("'customer_id' (named like an id)", "'label' (named like a target)", "rename"):
        assert part in message
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnWarning)
        learn(slice(60, None))
        model.transform_many(X)
        model.transform_one(X.to_dict("records")[0])
    assert model._observed_names == ("a", "b", "c", "n")
    assert (model.ignored, model.ignored_in_transform) == (0, 0)
    twin: Any = getattr(estimators, name)()
    few = X[["a", "b", "c", "n"]]
    twin.learn_many(few, y) if twin._supervised else twin.learn_many(few)
    np.testing.assert_array_equal(model.transform_many(X), twin.transform_many(few))


@pytest.mark.parametrize("cut", [1, 2, 7, 90])
@pytest.mark.parametrize("name", ["DiffusionMap", "PCA", "FENN", "EmbeddingDrift"])
def test_the_first_event_decides_about_a_y(name: str, cut: int) -> None:
    """However the stream is cut; beside an x of the first event it is a coordinate."""
    kind: Any = getattr(estimators, name)
    for first, names in (({"a": 1.0, "y": 1.0}, ("a", "x")), ({"x": 1.0}, ("a", "x", "y"))):
        model = kind()
        rows: list[Any] = [first, *({"a": a, "x": b, "y": c} for a, b, c in POINTS.tolist())]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ColumnWarning)
            for i in range(0, 91, cut):
                y = [len(row) == 2 or row.get("a", 1) > 0 for row in rows[i : i + cut]]
                also = (y,) if model._supervised else ()
                model.learn_many(rows[i : i + cut], *also)
        assert model._names == names
        assert model.ignored == 0


@pytest.mark.parametrize("silent", ["empty", "text", "null", "nan", "only an id"])
@pytest.mark.parametrize("name", sorted({*estimators.__all__} - {"LabelSpreading"}))
def test_the_warm_up_begins_with_the_first_number(name: str, silent: str) -> None:
    """Of events before it nothing is learned: a map ignored every feature for ever, PCA raised."""
    event: dict[str, Any] = {
        "empty": {},
        "text": {"a": "offline", "text": "t"},
        "null": dict.fromkeys("abc"),
        "nan": dict.fromkeys("abc", float("nan")),
        "only an id": {"user_id": 3, "a": "offline"},
    }[silent]
    kind: Any = getattr(estimators, name)
    model, twin = kind(), kind()
    y = [bool(v) for v in POINTS[:, 0] > 0]
    numbers = FRAME.to_dict("records")

    def learn(model: Any, rows: list[Any], labels: list[bool], many: bool = False) -> None:
        if many:
            model.learn_many(rows, *((labels,) if model._supervised else ()))
            return
        for row, label in zip(rows, labels, strict=True):
            model.learn_one(row, *((label,) if model._supervised else ()))

    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always", ColumnWarning)
        learn(model, [event] * 30, [True, False] * 15)
        learn(model, [event] * 30 + numbers[:7], [True] * 30 + y[:7], many=True)
    about = [str(one.message).split(" in ")[0] for one in given]
    assert about == {
        "empty": [],
        "only an id": [about[0] if about else "", "no usable number so far"],
    }.get(silent, ["no usable number so far"])
    learn(model, numbers[7:], y[7:])
    learn(twin, numbers, y)
    assert model._observed_names == ("a", "b", "c")
    assert (model.imputed, model.ignored) == (0, 0)
    np.testing.assert_array_equal(model.transform_many(FRAME), twin.transform_many(FRAME))


@pytest.mark.parametrize("many", [True, False])
def test_times_of_events_without_a_number_are_no_times_of_others(many: bool) -> None:
    """They are left behind with their events."""
    timed: dict[str, Any] = {"clock": "event_time", "memory": "landmarks", "half_life": 20.0}
    rows: list[Any] = [{"event_time": i, "a": "offline"} for i in range(9)]
    rows += [{"event_time": 9 + i, **row} for i, row in enumerate(FRAME.to_dict("records"))]
    model, twin = DiffusionMap(warm_up=40, **timed), DiffusionMap(warm_up=40, **timed)
    if many:
        model.learn_many(rows)
    else:
        for row in rows:
            model.learn_one(row)
    twin.learn_many(rows[9:])
    np.testing.assert_array_equal(model.snapshot().masses, twin.snapshot().masses)


@pytest.mark.parametrize("many", [True, False], ids=["frames", "dicts"])
@pytest.mark.parametrize("name", ["DiffusionMap", "EmbeddingDrift", "PCA", "UnsupervisedMetric"])
def test_a_feature_that_is_text_throughout_the_warm_up_is_named(name: str, many: bool) -> None:
    """It became a constant and an imputation an event without a word; now one warning is due."""
    X = FRAME.assign(city=["Rome", "Oslo", "Lima"] * 30)
    X.loc[500:510, "a"] = None  # gaps are no reason
    model: Any = getattr(estimators, name)()

    def learn(rows: slice) -> None:
        if many:
            model.learn_many(X[rows])
            return
        for row in X[rows].to_dict("records"):
            model.learn_one(row)

    with pytest.warns(ColumnWarning) as told:
        learn(slice(0, 60))
    assert len(told) == 1
    message = str(told[0].message)
    assert "no usable number so far in 'city': values" in message
    assert "preprocessing.OneHotEncoder" in message
    assert "compose.SelectType(numbers.Number)" in message
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnWarning)
        learn(slice(60, None))
        chosen = compose.SelectType(float) | PCA()
        for row in X[20:].to_dict("records"):
            chosen.learn_one(row)


@pytest.mark.parametrize("name", ["ITML", "GeometricMeanMetric", "FENN", "MustLinkMetric"])
def test_a_metric_names_the_text_that_it_ignores(name: str) -> None:
    """It was counted in `ignored` alone, where other estimators warn of the same dicts."""
    X = FRAME.assign(city=["Rome", "Oslo", "Lima"] * 30).to_dict("records")
    y = [bool(v) for v in POINTS[:, 0] > 0]
    model: Any = getattr(estimators, name)()
    with pytest.warns(ColumnWarning) as told:
        model.learn_many(X[:60], y[:60])
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnWarning)
        model.learn_many(X[60:], y[60:])
    message = str(told[0].message)
    assert "no usable number so far in 'city' (ignored): values" in message
    assert model.feature_names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("name", "size", "limit"),
    [
        ("PCA", 1e90, "1e75"),
        ("ITML", 1e90, "1e75"),
        ("GeometricMeanMetric", 1e90, "1e75"),
        ("UnsupervisedMetric", 1e90, "1e75"),
        ("DiffusionMap", 1e160, "1e150"),
        ("EmbeddingDrift", 1e160, "1e150"),
    ],
)
def test_values_beyond_the_limit_are_to_be_scaled(name: str, size: float, limit: str) -> None:
    """The message said that they are no numbers, with advice for text alone."""
    Z = POINTS * [1.0, size, 1.0]
    model: Any = getattr(estimators, name)()
    with pytest.warns(
        ColumnWarning,
        match=f"no usable number so far in '1'.*: values beyond {limit} are missing .scale",
    ):
        model.learn_many(Z, POINTS[:, 0] > 0) if model._supervised else model.learn_many(Z)


@pytest.mark.parametrize("way", ["many", "one", "river", "sklearn fit", "fit_transform", "flush"])
@pytest.mark.parametrize(
    "name", ["DiffusionMap", "LiveMap", "EmbeddingDrift", "PCA", "UnsupervisedMetric", "FENN"]
)
def test_warnings_point_to_the_line_of_the_user(name: str, way: str) -> None:
    """They pointed to files of this package, or of scikit-learn."""
    kind: Any = getattr(estimators, name)
    model, y = kind(), [bool(v) for v in POINTS[:, 0] > 0]
    X, adapter = suspicious(), OnlineTransformer(kind())
    also = (y,) if model._supervised else ()
    calls: dict[str, Any] = {
        "many": lambda: model.learn_many(X, *also),
        "one": lambda: [
            model.learn_one(x, *also[:1] and (label,))
            for x, label in zip(X.to_dict("records"), y, strict=True)
        ],
        "river": lambda: compose.Pipeline(model).learn_many(X, *also),
        "sklearn fit": lambda: adapter.fit(X, y),
        "fit_transform": lambda: adapter.fit_transform(X, y),
        "flush": lambda: (model.learn_many(X[:15], *also and (y[:15],)), model.flush()),
    }
    if way == "flush" and name not in ("PCA", "FENN"):
        pytest.skip("nothing waits, or a flush of fewer events than the warm-up is refused")
    with pytest.warns(ColumnWarning) as told:
        calls[way]()
    assert {one.filename for one in told} == {__file__}


def test_warnings_of_engines_and_metrics_point_there_too(tmp_path: Path) -> None:
    """Also where `functools` or a context manager stands between, and for logs."""
    X = suspicious()
    pq.write_table(pa.Table.from_pandas(X), tmp_path / "log.parquet")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        open_log(tmp_path / "log.parquet")
        se.replay(tmp_path / "log.parquet", se.Engine(size=60, warm_up=50), tmp_path / "run")
        se.Engine(n_components=1_000)
        se.Engine(size=60).learn(X.to_dict("records"))
        PCA(n_components=9).learn_many(POINTS)
        engine = se.Engine(size=60, warm_up=50)
        engine.learn(np.zeros((60, 3)))
        engine.snapshot()
    assert {one.category.__name__ for one in told} >= {
        "ColumnWarning",
        "CostWarning",
        "DegenerateMapWarning",
    }
    assert {one.filename for one in told} == {__file__}


def test_a_warning_made_an_error_loses_nothing() -> None:
    """What was learned before it was told is learned."""
    model = DiffusionMap(warm_up=40)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnWarning)
        with pytest.raises(ColumnWarning):
            model.learn_many(suspicious())
        assert model.engine.position == 90
        model.learn_many(suspicious())
    assert model.engine.position == 180


@pytest.mark.parametrize("vector", [[1.0, 2.0], np.ones(3)])
def test_a_vector_under_one_name_is_refused(vector: Any) -> None:
    """It was one missing value: a map gave zeros for ever."""
    for model in (estimators.DiffusionMap(), estimators.EmbeddingDrift()):
        with pytest.raises(FeatureError, match=r"'embedding' is a sequence.*dict\(enumerate"):
            model.learn_one({"embedding": vector, "latency": 1.0})
