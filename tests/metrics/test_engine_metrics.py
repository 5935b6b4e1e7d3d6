"""Metrics of an engine: their three sources of pairs, laws of the stream, and bad input."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

import streamembed as se
from streamembed import estimators
from streamembed.data.labels import LabelIndex, label_key, list_labels
from streamembed.errors import (
    BadRowError,
    FeatureError,
    InputError,
    ParameterError,
)
from streamembed.metrics import class_moments, discriminant, eig_dml, geometric_mean, scatter
from streamembed.metrics.catalog import NAMES, PAIR_METRICS

WINE, KINDS = load_wine(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(WINE))
WINE, KINDS = WINE[ORDER], KINDS[ORDER]


def small(**changes: Any) -> se.Engine:
    return se.Engine(**{"metrics": NAMES, "size": 120, "warm_up": 60, **changes})


def matrices(engine: se.Engine) -> dict[str, np.ndarray]:
    return {name: metric.matrix for name, metric in engine.snapshot().metrics.items()}


# ---------------------------------------------------------------- what is learned


def test_every_metric_is_finite_and_positive_semidefinite_after_every_chunk() -> None:
    """From pairs that the map tells apart, with labels, with pairs: at any moment."""
    for source in ("generated", "labels", "pairs"):
        engine = small()
        for start in range(0, 170, 10):
            part = slice(start, start + 10)
            engine.learn(WINE[part], y=KINDS[part] if source == "labels" else None)
            if source == "pairs":
                engine.learn_pairs(WINE[part], WINE[:10], KINDS[part] == KINDS[:10])
            if not engine.ready:
                continue
            for name, matrix in matrices(engine).items():
                assert np.isfinite(matrix).all(), name
                np.testing.assert_allclose(matrix, matrix.T, rtol=0, atol=1e-12 * abs(matrix).max())
                scale = np.sqrt(np.diag(matrix)) + 1e-300
                values = np.linalg.eigvalsh(matrix / np.outer(scale, scale))
                assert values.min() > -1e-10, name  # of a matrix with a diagonal of ones


def test_the_source_of_pairs_is_told() -> None:
    """The map's own until something better comes; classes only from labels."""
    engine = small()
    engine.learn(WINE)
    told = {name: metric.certificate for name, metric in engine.snapshot().metrics.items()}
    assert all(told[name]["source"] == "generated" for name in PAIR_METRICS)
    assert all(told[name]["pairs"] > 50 for name in PAIR_METRICS)
    assert told["fenn"]["status"] == "no class"
    engine.learn(WINE[:100], y=KINDS[:100])
    told = {name: metric.certificate for name, metric in engine.snapshot().metrics.items()}
    assert all(told[name]["source"] == "labels" for name in NAMES)
    assert told["fenn"]["n_classes"] == 3
    engine.learn_pairs(WINE[:60], WINE[60:120], KINDS[:60] == KINDS[60:120])
    told = {name: metric.certificate for name, metric in engine.snapshot().metrics.items()}
    assert all(told[name]["source"] == "given" for name in NAMES)


def test_metrics_of_labels_are_those_of_the_moments() -> None:
    """FENN and discriminant analysis see every labelled point once, in the caller's units."""
    engine = small(metrics=("fenn", "discriminant"))
    engine.learn(WINE[:170], y=KINDS[:170])
    of_classes = scatter.update(scatter.init(13), WINE[:170], KINDS[:170])
    expected = discriminant.compute_metric(of_classes)[0]
    found = matrices(engine)["discriminant"]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * abs(expected).max())


def test_given_pairs_reach_the_cores_fifty_at_a_time() -> None:
    """The engine's metric is the core's on raw differences, or on them in deviations."""
    engine = small(metrics=("eig_dml", "geometric_mean"))
    engine.learn(WINE[:60])
    left, right = WINE[:100], WINE[60:160]
    similar = KINDS[:100] == KINDS[60:160]
    engine.learn_pairs(left, right, similar)
    differences = left - right
    state, sums = eig_dml.init(13), class_moments.init_sums(13)
    for part in (slice(0, 50), slice(50, 100)):
        d, s = differences[part], similar[part]
        state = eig_dml.update(state, d[s], d[~s], eig_dml.EigDMLLearner())
        sums = class_moments.update_sums(sums, d, s)
    scale = np.concatenate([left, right]).std(axis=0)
    means = class_moments.average_pairs(sums, scale)
    geometric = geometric_mean.geometric_mean_metric(means)[0] / np.outer(scale, scale)
    expected = {"eig_dml": state.matrix, "geometric_mean": geometric}
    for name, matrix in matrices(engine).items():
        np.testing.assert_allclose(matrix, expected[name], rtol=1e-9, atol=1e-15)


def test_a_metric_transforms_raw_points() -> None:
    """Distances after the transform are those of the metric, in the caller's units."""
    engine = small(metrics=("geometric_mean",))
    engine.learn(WINE, y=KINDS)
    metric = engine.snapshot().metrics["geometric_mean"]
    places = metric.transform(WINE[:20])
    direct = np.array([[(a - b) @ metric.matrix @ (a - b) for b in WINE[:20]] for a in WINE[:20]])
    d2 = ((places[:, None] - places[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(d2, direct, rtol=1e-6, atol=1e-8 * direct.max())
    np.testing.assert_allclose(metric.squared_distances(WINE[:20], WINE[:20]), d2, atol=1e-9)


# ---------------------------------------------------------------- laws


def test_metrics_without_labels_are_rescaled_with_their_features() -> None:
    """The same in the new units, and measured again with the next chunk."""
    points = WINE * np.where(np.arange(len(WINE)) < 60, 1.0, 3.0)[:, None]
    engine = small()
    engine.learn(points)
    before = engine.snapshot()
    engine.rescale()
    after = engine.snapshot()
    np.testing.assert_array_equal(before.metrics["fenn"].matrix, after.metrics["fenn"].matrix)
    ratio = before.scale / after.scale
    for name in PAIR_METRICS:
        wanted = before.metrics[name].matrix * np.outer(ratio, ratio)
        np.testing.assert_allclose(after.metrics[name].matrix, wanted, rtol=1e-9)
    engine.learn(points)
    assert engine.snapshot().metrics["itml"].certificate["measured"] > before.position


def test_rescaling_maps_metrics_of_labels() -> None:
    """Distances between raw points stay as they are, and learning goes on."""
    points = WINE * np.where(np.arange(len(WINE)) < 60, 1.0, 3.0)[:, None]
    engine = small()
    engine.learn(points, y=KINDS)
    before = matrices(engine)
    engine.rescale()
    after = matrices(engine)
    for name in ("itml", "eig_dml", "must_link", "fenn", "discriminant"):
        np.testing.assert_allclose(
            after[name], before[name], rtol=1e-6, atol=1e-9 * np.abs(before[name]).max()
        )
    engine.learn(points, y=KINDS)
    assert all(np.isfinite(matrix).all() for matrix in matrices(engine).values())


# ---------------------------------------------------------------- bad input


def test_wrong_metrics_are_named() -> None:
    """Which, what it was, what it must be."""
    for metrics, says in (
        (("umap",), "metrics='umap' must be one of 'itml'"),
        ("itml", "metrics='itml' must be a tuple of names"),
        (("itml", "itml"), "must not repeat a name"),
    ):
        with pytest.raises(ParameterError, match=says):
            se.Engine(metrics=metrics)


def test_labels_are_checked() -> None:
    """As many as rows, of a plain kind; none without metrics; a null is unknown."""
    with pytest.raises(ParameterError, match="this engine learns no metrics"):
        se.Engine().learn(WINE, y=KINDS)
    engine = small()
    with pytest.raises(InputError, match="y has 3 entries; it must have 178"):
        engine.learn(WINE, y=[1, 2, 3])
    with pytest.raises(InputError, match="y is a str; it must be a list"):
        engine.learn(WINE, y="abcd")
    with pytest.raises(InputError, match="the label of row 0 is a tuple"):
        engine.learn(WINE[:1], y=[(1, 2)])
    assert engine.position == 0
    assert list_labels(np.array([1.0, np.nan]), 2) == [1.0, None]
    assert list_labels(np.array(["a", None], dtype=object), 2) == ["a", None]
    labels = LabelIndex()
    found, _ = labels.encode_labels([1, True, "1", None, 1.0, "1"])
    assert found.tolist() == [0, 1, 2, -1, 0, 2]
    engine.learn(WINE, y=[None] * len(WINE))
    assert engine.snapshot().metrics["itml"].certificate["source"] == "generated"


def test_pairs_are_checked() -> None:
    """As many of each, learned by somebody, usable; nothing is learned of a refused call."""
    with pytest.raises(ParameterError, match="this engine learns no metrics"):
        se.Engine().learn_pairs(WINE[:2], WINE[:2], [True, False])
    engine = small()
    engine.learn(WINE[:60])
    before = matrices(engine)
    bad = WINE[:2].copy()
    bad[1, 3] = np.nan
    for left, right, similar, error, says in (
        (WINE[:3], WINE[:2], [True, False], InputError, "X1 has 3 points and X2 has 2"),
        (WINE[:2], WINE[:2], [True], InputError, "similar has 1 entries; it must have 2"),
        (WINE[:2], WINE[:2], [0.5, 1.0], InputError, "similar has .* must be True or False"),
        (WINE[:2], WINE[:2, :4], [True, True], FeatureError, "X2 has 4 columns"),
        (
            bad,
            WINE[:2],
            [True, True],
            BadRowError,
            "rows of X1 .*NaN in '3'.*fix or drop these pairs",
        ),
        (WINE[:2], bad, [True, True], BadRowError, "rows of X2 .*NaN in '3'"),
        (WINE[:2], {"a": 1.0}, [True, True], InputError, "X2 is a dict"),
    ):
        with pytest.raises(error, match=says):
            engine.learn_pairs(left, right, similar)
    for name, matrix in matrices(engine).items():
        np.testing.assert_array_equal(matrix, before[name])


# ---------------------------------------------------------------- without labels


def test_every_metric_without_labels_starts_from_the_weights() -> None:
    """Beside noise: those of predictable features are 1, of the others a tenth."""
    rng = np.random.default_rng(0)
    centres = 4.0 * rng.standard_normal((8, 5))
    groups = centres[rng.integers(0, 8, 600)] + rng.standard_normal((600, 5))
    points = np.column_stack([groups, rng.standard_normal((600, 4))])
    engine = se.Engine(metrics=PAIR_METRICS, size=600, warm_up=600)
    engine.learn(points)
    snapshot = engine.snapshot()
    for name, metric in snapshot.metrics.items():
        weights = np.array(metric.certificate["feature_weights"])
        assert (weights[:5] == 1.0).all(), name
        assert (weights[5:] < 0.3).all(), name
        # pairs of the embedding move the metric by a twentieth
        diagonal = np.diag(metric.matrix) * snapshot.scale**2
        assert (diagonal[5:] < 0.35 * diagonal[:5].mean()).all(), name


# ---------------------------------------------------------------- labels without end


def test_labels_of_an_engine_are_bounded_and_counted() -> None:
    """Numbers to predict, given as labels, grew the state by 136 bytes an event.

    The first 1,000 are classes; later events are learned as points, and counted.
    """
    rng = np.random.default_rng(0)
    points = rng.standard_normal((3000, 2))
    labels = rng.standard_normal(3000)
    engine = se.Engine(
        memory="landmarks",
        size=20,
        warm_up=20,
        chunk_size=500,
        metrics=("fenn",),
        kernel="gaussian",
        bandwidth=9.0,
    )
    sizes = []
    for start in range(0, 3000, 500):
        engine.learn(points[start : start + 500], labels[start : start + 500])
        assert len(engine._progress.labels.known) == min(1000, start + 500)
        sizes.append(len(engine.to_bytes()))
    assert engine.unlearned == 2000
    assert engine.position == 3000
    assert sizes[-1] <= 1.01 * sizes[1]  # support and factor may differ by a few rows
    engine.learn(points[:2], [labels[0], labels[2999]])
    assert engine.unlearned == 2001
    restored = pickle.loads(pickle.dumps(engine))
    assert restored.unlearned == 2001


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, True, False),
        (0, False, False),
        (1, 1.0, True),
        (1, np.int8(1), True),
        (1.5, np.float64(1.5), True),
        (True, np.bool_(True), True),
        ("a", np.str_("a"), True),
        ("1", 1, False),
        (2**53, float(2**53), True),
    ],
)
def test_one_equality_of_labels(one: Any, other: Any, same: bool) -> None:
    """Numbers are equal by value, booleans are no numbers, numpy's scalars are Python's."""
    assert (label_key(one) == label_key(other)) is same
    assert len({label_key(one), label_key(other)}) == (1 if same else 2)


# ------------------------------------------------------------------ names of columns

TURNED = (3, 12, 0, 7, 1, 10, 2, 11, 4, 9, 5, 8, 6)  # not in the order of their names
FRAME = pd.DataFrame(WINE, columns=[f"f{j}" for j in TURNED])


def test_learned_metrics_take_frames_by_name() -> None:
    """Features are kept sorted by name, and the frame was taken by position."""
    engine = small()
    engine.learn(FRAME, y=KINDS)
    face = estimators.GeometricMeanMetric()
    face.learn_many(FRAME, KINDS)
    order = sorted(FRAME.columns)
    for metric in [*engine.snapshot().metrics.values(), face.metric]:
        assert metric.feature_names == tuple(order)
        by_place = metric.transform(FRAME[order].to_numpy())
        np.testing.assert_array_equal(metric.transform(FRAME), by_place)
        with pytest.raises(FeatureError, match="lacks the features"):
            metric.transform(FRAME[order[1:]])


@pytest.mark.filterwarnings("ignore::streamembed.errors.NotLearnedWarning")
def test_estimators_name_the_columns_of_their_metric_from_the_first_event() -> None:
    """The identity, metrics that show what waits, and that of pairs of the map too."""
    for face in (estimators.ITML(), estimators.FENN()):
        face.learn_many([{"b": 1.0, "a": 2.0, "c": "text"}] * 3, [0, 1, 0])
        names = face.metric.feature_names
        assert names is not None
        assert len(names) == face.metric.n_features
        assert {"a", "b"} <= set(names)
    model = estimators.UnsupervisedMetric(warm_up=40, size=60)
    model.learn_many(FRAME)
    assert model.metric.feature_names == tuple(sorted(FRAME.columns))
