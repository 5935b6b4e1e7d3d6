"""What metric estimators are told wrongly: parameters, labels, tables, numbers; and reservoirs."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from streamembed import Engine, estimators
from streamembed.errors import ColumnWarning, FeatureError, InputError
from streamembed.estimators import ITML, EigDML, GeometricMeanMetric
from streamembed.estimators.metric_estimator import MetricEstimator
from streamembed.pairs import reservoir
from tests.metric_ways import WAYS, built

METRICS = [
    cls
    for cls in (getattr(estimators, name) for name in estimators.__all__)
    if issubclass(cls, MetricEstimator)
]
ALL = [(cls, params) for cls in METRICS for params in cls._unit_test_params()]
IDS = [f"{cls.__name__}-{i}" for i, (cls, _) in enumerate(ALL)]
GENERATOR = np.random.default_rng(0)
LABELS = GENERATOR.integers(0, 3, 60)
POINTS = GENERATOR.standard_normal((60, 4)) + LABELS[:, None] * [0.0, 1.0, 2.0, 3.0]


def test_a_prior_of_another_width_is_refused() -> None:
    """As soon as the features are known, and again at every call after."""
    model = ITML(prior=np.eye(3), chunk_size=20)
    model.learn_many(POINTS[:19], LABELS[:19])
    before = pickle.dumps(model)
    for _ in range(2):
        with pytest.raises(FeatureError, match=r"prior has shape \(3, 3\), but the stream has 4"):
            model.learn_many(POINTS[19:], LABELS[19:])
        assert pickle.dumps(model) == before


def test_a_warm_up_begins_with_the_first_number() -> None:
    """Numbers written as text are told of; events before the first number do not count."""
    model = EigDML(chunk_size=5)
    with pytest.warns(ColumnWarning, match="no usable number so far in 'a', 'b'"):
        model.learn_many([{"a": "1.5", "b": None}] * 30, LABELS[:30])
    assert (model.position, model.feature_names) == (0, ())
    model.learn_many([{"b": 2.0}] + [{"a": "1.5", "b": None}] * 18, LABELS[:19])
    assert (model.position, model.ready) == (19, False)
    model.learn_one({"b": 3.0}, 1)
    assert (model.ready, model.feature_names) == (True, ("b",))
    assert (model.ignored, model.imputed) == (18, 18)


CALLS: list[tuple[str, Any, Any, Any]] = [
    ("y has 59 entries; it must have 60", InputError, POINTS, LABELS[:59]),
    ("y has shape", InputError, POINTS, LABELS[:, None]),
    ("y is a NoneType; it must be a list", InputError, POINTS, None),
    ("y is a str; it must be a list", InputError, POINTS, "abc"),
    ("is not hashable", InputError, POINTS, [[1]] * 60),
    ("X has 3 columns; this metric has 4", FeatureError, POINTS[:, :3], LABELS),
    (
        "this metric learned from arrays",
        FeatureError,
        pd.DataFrame(POINTS, columns=list("abcd")),
        0,
    ),
    ("X has shape", FeatureError, POINTS[0], LABELS),
    ("duplicate column names", FeatureError, pa.table([[1.0], [2.0]], names=["0", "0"]), [1]),
    ("differ in length", FeatureError, [[1.0], [1.0, 2.0]], [1, 2]),
    ("X is a dict", InputError, {"a": 1.0}, [1]),
    ("X is a int", InputError, 7, [1]),
]


@pytest.mark.parametrize(("message", "error", "X", "y"), CALLS)
def test_a_refused_call_changes_nothing(message: str, error: Any, X: Any, y: Any) -> None:
    """Tables and labels that do not fit: the state is what it was, to the byte."""
    model = EigDML(chunk_size=7)
    model.learn_many(POINTS, LABELS)
    before = pickle.dumps(model)
    with pytest.raises(error, match=message):
        model.learn_many(X, np.zeros(60) if isinstance(y, int) else y)
    assert pickle.dumps(model) == before


def test_refused_pairs_change_nothing() -> None:
    """Lengths that differ, answers that are none."""
    model = EigDML(chunk_size=7)
    model.learn_many(POINTS, LABELS)
    before = pickle.dumps(model)
    for X1, X2, similar, message in (
        (POINTS[:5], POINTS[:4], [True] * 5, "X1 has 5 rows and X2 has 4"),
        (POINTS[:5], POINTS[:5], [True] * 4, "similar has 4 entries; it must have 5"),
        (POINTS[:2], POINTS[:2], [1, -1], r"similar has -1 in row 1; .*similar=\(y == 1\)"),
        (POINTS[:2], POINTS[:2], ["yes", "no"], "similar has 'yes'"),
        (POINTS[:2], POINTS[:2, :3], [True, False], "X2 has 3 columns"),
    ):
        with pytest.raises(InputError, match=message):
            model.learn_pairs(X1, X2, similar)
    assert pickle.dumps(model) == before


def test_labels_that_are_none_are_counted() -> None:
    """None, NaN, NaT and NA, in lists, series and arrays: not learned, and no event."""
    labels: list[Any] = LABELS.tolist()
    plain, model = GeometricMeanMetric(chunk_size=10), GeometricMeanMetric(chunk_size=10)
    keep = [i for i in range(60) if i not in (3, 20, 40, 41)]
    plain.learn_many(POINTS[keep], LABELS[keep])
    for i, missing in zip((3, 20, 40, 41), (None, float("nan"), pd.NA, pd.NaT), strict=True):
        labels[i] = missing
    model.learn_many(POINTS, labels)
    assert model.unlabelled == 4
    assert model.position == 56
    assert np.array_equal(model.metric.matrix, plain.metric.matrix)
    for y in (pd.Series(labels[:30], dtype="Int64"), pa.array([*LABELS[:29].tolist(), None])):
        model.learn_many(POINTS[:30], y)
    model.learn_pairs(POINTS[:2], POINTS[2:4], [None, True])
    assert model.unlabelled == 4 + 2 + 1 + 1
    model.learn_one({"0": 1.0}, None)
    assert model.unlabelled == 9


def streams() -> dict[str, tuple[Any, Any]]:
    """Streams that something is wrong with."""
    y, few = LABELS.tolist(), POINTS[:6]
    return {
        "one class": (POINTS, [0] * 60),
        "a point a class": (POINTS, list(range(60))),
        "one point of a class": (POINTS, [1, *[0] * 59]),
        "constant features": (POINTS * [1, 0, 1, 0] + [0, 3, 0, 1e9], y),
        "nothing varies": (np.ones((60, 3)), y),
        "duplicates of other classes": (np.repeat(few, 10, axis=0), list(range(10)) * 6),
        "more features than points": (GENERATOR.standard_normal((60, 90)), y),
        "far units": (POINTS * [1e9, 1e-9, 1, 1e3] + [1e12, 0, 0, 0], y),
        "huge": (POINTS * 1e70, y),
        "huge from the middle": (np.vstack([POINTS[:30], POINTS[30:] * 1e70]), y),
        "constant, then huge": (np.vstack([POINTS[:30] * 0, POINTS[30:] * 1e70]), y),
        "tiny": (POINTS * 1e-70, y),
        "nothing": (POINTS * 1e-160, y),
        "collinear": (np.column_stack([POINTS[:, 0]] * 5), y),
        "classes are points": (np.column_stack([y, y, y]).astype(float), y),
        "one feature": (POINTS[:, :1], y),
        "one missing": (np.where([True, False, True, True], POINTS, np.nan), y),
    }


def fine(model: Any, X: Any) -> None:
    """The metric is finite and positive semidefinite, and so are points under it."""
    matrix = model.metric.matrix
    assert np.isfinite(matrix).all()
    size = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    size[size == 0] = 1.0
    values = np.linalg.eigvalsh(matrix / size / size[:, None])
    assert values[0] >= -1e-12 * max(values[-1], 1.0)
    assert np.isfinite(model.transform_many(X)).all()


@pytest.mark.filterwarnings("ignore::streamembed.errors.NotLearnedWarning")
@pytest.mark.parametrize(("cls", "params"), ALL, ids=IDS)
def test_the_metric_stays_one(cls: Any, params: Any) -> None:
    """After every call, whatever comes: labels, and pairs of one kind or of equal points."""
    for name, (X, y) in streams().items():
        model = cls(**params)
        for i in range(0, 60, 10):
            model.learn_many(X[i : i + 10], y[i : i + 10])
            fine(model, X)
        assert model.refused == 0 or name == "huge from the middle"
    for similar in ([True] * 30, [False] * 30, [True, False] * 15):
        for second in (POINTS[30:], POINTS[:30]):
            model = cls(**params)
            for i in range(0, 30, 6):
                model.learn_pairs(POINTS[i : i + 6], second[i : i + 6], similar[i : i + 6])
                fine(model, POINTS)


@pytest.mark.parametrize("value", [0.3, 1e9])
@pytest.mark.parametrize("with_pairs", [False, True], ids=["labels", "pairs"])
@pytest.mark.parametrize("way", WAYS)
def test_a_constant_feature_weighs_nothing(way: str, with_pairs: bool, value: float) -> None:
    """Also one that varies in its last bit: the metric is that of the exact constant."""
    is_odd = np.random.default_rng(1).random(60) < 0.5
    matrices = []
    for other in (value, np.nextafter(value, np.inf)):
        X, model = np.column_stack([POINTS, np.where(is_odd, other, value)]), built(way)
        if with_pairs:
            model.learn_pairs(X, np.roll(X, 1, axis=0), np.roll(LABELS, 1) == LABELS)
        else:
            model.learn_many(X, LABELS)
        model.flush()
        matrices.append(model.metric.matrix)
    np.testing.assert_array_equal(matrices[1][-1], 0.0)
    np.testing.assert_allclose(matrices[1], matrices[0], rtol=1e-9, atol=1e-12)


def test_what_leaves_the_doubles_is_refused_and_counted() -> None:
    """Features that grow by 1e70 under a settled scale: the metric stays, the stream goes on."""
    model = ITML(chunk_size=1)
    model.learn_many(POINTS[:30], LABELS[:30])
    model.learn_many(POINTS[30:45] * 1e70, LABELS[30:45])
    assert model.refused > 0
    fine(model, POINTS)
    assert model.position == 45
    model.learn_many(POINTS[45:], LABELS[45:])
    fine(model, POINTS)


def test_statuses_say_what_is_missing() -> None:
    """With one class, or one kind of pairs, the fallback is told by the info."""
    X, one = POINTS, [0] * 60
    expected = {
        "FENN": "one class",
        "DiscriminantAnalysis": "one class",
        "ContrastMetric": "no far pairs",
        "GeometricMeanMetric": "no far pairs",
        "EigDML": "no far pairs",
        "MustLinkMetric": "no far pairs",
        "ITML": "no far pairs",
    }
    for cls in METRICS:
        model = cls()
        model.learn_many(X, one)
        assert model.metric.certificate["status"] == expected[cls.__name__], cls
    fallback = GeometricMeanMetric()
    fallback.learn_many(X, one)
    fallback.flush()
    np.testing.assert_allclose(fallback.metric.matrix, np.diag(1 / X.var(axis=0)), rtol=1e-9)
    same = ITML()
    same.learn_many(np.ones((60, 2)), LABELS)
    assert same.metric.certificate["status"] == "no bounds"
    assert same.metric.certificate["n_unbounded"] > 0
    dropped = EigDML()
    dropped.learn_pairs(X[:50], X[:50], [False] * 50)
    assert dropped.metric.certificate["n_dropped"] == 50


# ------------------------------------------------------------------ reservoirs


def test_reservoirs_are_uniform() -> None:
    """Each of 200 points is among the 20 remembered in a tenth of 400 streams."""
    points = np.arange(200.0)[:, None]
    counts = np.zeros(200)
    for seed in range(400):
        generator = np.random.default_rng(seed)
        held = reservoir.init(20)
        for start in range(0, 200, 50):
            part = slice(start, start + 50)
            held, _ = reservoir.update(held, points[part], np.zeros(50, dtype=np.int64), generator)
        counts[held.samples[0][:, 0].astype(int)] += 1
    assert counts.sum() == 400 * 20
    # binomial of 400 at 0.1: deviation 6; 200 of them stay within 4.5 deviations
    assert np.abs(counts - 40).max() < 27
    assert abs(counts[:100].sum() - 4000) < 4.5 * 45


def test_partners_are_of_the_kind_they_are_said_to_be() -> None:
    """One alike and one not for each point, from before it, dissimilar ones by class size."""
    generator = np.random.default_rng(0)
    classes = generator.choice(3, 3000, p=[0.6, 0.3, 0.1])
    points = (1000.0 * classes + np.arange(3000) / 10)[:, None]
    held, pairs = reservoir.update(reservoir.init(5000), points, classes, generator)
    own, other = points[pairs.owners, 0], points[pairs.owners, 0] - pairs.differences[:, 0]
    assert np.array_equal((own // 1000 == other // 1000), pairs.similar)
    # partners came before: their fraction of the thousand is smaller
    assert (other % 1000 < own % 1000).all()
    kinds = np.bincount((other // 1000).astype(int)[~pairs.similar & (own < 1000)], minlength=3)
    assert abs(kinds[1] / kinds[1:].sum() - 0.75) < 0.04  # deviation .010
    assert np.bincount(pairs.owners, minlength=3000)[100:].min() == 2
    assert held.seen.tolist() == np.bincount(classes).tolist()


def test_samples_and_merged_reservoirs() -> None:
    """As many of each class; merged ones in proportion to what was seen, capacities kept."""
    generator = np.random.default_rng(0)
    parts = []
    for offset, n in ((0.0, 300), (1000.0, 100)):
        points = offset + np.arange(n, dtype=float)[:, None]
        classes = np.arange(n) % 2
        parts.append(reservoir.update(reservoir.init(40), points, classes, generator)[0])
    points, classes = reservoir.sample(parts[0], 30)
    assert points.shape == (30, 1)
    assert np.bincount(classes).tolist() == [15, 15]
    moved = reservoir.renumber(parts[1], np.array([1, 2]), 3)
    merged = reservoir.merge(parts[0], moved, generator)
    assert merged.seen.tolist() == [150, 200, 50]
    assert [len(part) for part in merged.samples] == [40, 40, 40]
    assert np.count_nonzero(merged.samples[1] >= 1000) == 10  # 50 of 200
    assert (merged.samples[2] >= 1000).all()


# ------------------------------------------------------------------ pairs, here and in engines


@pytest.mark.parametrize(
    "similar",
    [
        [True, False, True],
        [1, 0, 1],
        [1.0, 0.0, 1.0],
        np.array([True, False, True]),
        np.array([1, 0, 1], dtype=np.int8),
        np.array([1, 0, 1], dtype=np.float32),
        pd.Series([1.0, 0.0, 1.0]),
        pd.Series([True, False, True], dtype="boolean"),
        pa.array([1, 0, 1]),
    ],
    ids=str,
)
def test_answers_have_one_rule_in_engines_and_estimators(similar: Any) -> None:
    """Booleans, or numbers that are exactly 0 or 1."""
    engine, face = Engine(metrics=("geometric_mean",), size=50), GeometricMeanMetric()
    engine.learn(POINTS)
    engine.learn_pairs(POINTS[:3], POINTS[3:6], similar)
    face.learn_pairs(POINTS[:3], POINTS[3:6], similar)
    plain = GeometricMeanMetric()
    plain.learn_pairs(POINTS[:3], POINTS[3:6], [True, False, True])
    assert face.metric == plain.metric == engine.snapshot().metrics["geometric_mean"]


@pytest.mark.parametrize("missing", [None, float("nan"), np.nan, pd.NA, pa.scalar(None)])
def test_missing_answers_are_refused_by_engines_and_counted_by_estimators(missing: Any) -> None:
    """Strict there, lenient here."""
    face = ITML()
    face.learn_pairs(POINTS[:2], POINTS[2:4], [missing, True])
    assert (face.unlabelled, face.position) == (1, 1)
    with pytest.raises(InputError, match="similar has None or NaN in row 0: drop such"):
        Engine(metrics=("itml",)).learn_pairs(POINTS[:2], POINTS[2:4], [missing, True])


FRAME = pd.DataFrame(POINTS[:3], columns=list("abcd"))


@pytest.mark.parametrize(
    ("X1", "X2", "says"),
    [
        (POINTS[:3], POINTS[:3, :2], "X1 has the features .*both ends"),
        (FRAME, FRAME.drop(columns="b"), r"X1 has the features .*'b'.* and X2 has \['a', 'c'"),
        (FRAME, FRAME.rename(columns={"b": "X"}), r"X2 has \['X', 'a'"),
        (FRAME, POINTS[:3], "X2 has no feature names, but X1 has"),
        (POINTS[:3], FRAME, "X1 has no feature names, but X2 has"),
        (POINTS[:3], FRAME.to_dict("records"), "X1 has no feature names, but X2 has"),
        (POINTS[:3], POINTS[0], "X2 has shape"),
        ({"a": 1.0}, FRAME, "X1 is a dict"),
    ],
)
def test_ends_of_pairs_have_the_same_features(X1: Any, X2: Any, says: str) -> None:
    """A fresh estimator took 13 columns against 3, and a frame against an array."""
    model = ITML()
    before = pickle.dumps(model)
    with pytest.raises(InputError, match=says):
        model.learn_pairs(X1, X2, [True, False, True])
    assert pickle.dumps(model) == before
