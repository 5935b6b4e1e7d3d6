"""What coordinates are called: one name wherever they come out, and another for each estimator."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from river import compose

import streamembed as se
from streamembed import estimators
from streamembed.errors import ColumnWarning, FeatureError
from streamembed.estimators import PCA, DiffusionMap, GeometricMeanMetric, KernelPCA
from streamembed.estimators.unsupervised_pipeline import UnsupervisedPipeline
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


def test_axes_give_back_what_came() -> None:
    """Principal axes read frames, too."""
    model = PCA(n_components=2)
    model.learn_many(FRAME)
    placed = model.snapshot().transform(FRAME)
    pd.testing.assert_frame_equal(placed, model.transform_many(FRAME))
    there = model.inverse_transform_many(placed)
    assert list(there.columns) == ["a", "b", "c"]
    one = model.inverse_transform_one(model.transform_one(dict(FRAME.iloc[0])))
    np.testing.assert_allclose(list(one.values()), there.iloc[0], atol=1e-12)
    back = model.inverse_transform_many(placed.to_numpy())
    np.testing.assert_allclose(back, there, atol=1e-12)


@pytest.mark.parametrize(
    "name", sorted(set(estimators.__all__) - {"LocallyLinearEmbedding", "EmbeddingDrift"})
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


def test_two_methods_side_by_side_do_not_collide() -> None:
    """In river's union every coordinate stays."""
    union = DiffusionMap(warm_up=40) + KernelPCA(warm_up=40) + PCA() + DiffusionMap("lle")
    for row in FRAME.to_dict("records"):
        union.learn_one(row)
    assert sorted(union.transform_one(row)) == [
        *("diffusion_map_0", "diffusion_map_1", "kernel_pca_0", "kernel_pca_1"),
        *("lle_0", "lle_1", "pca_0", "pca_1"),
    ]
    assert union.transform_many(FRAME).shape == (90, 8)
    fast = DiffusionMap(warm_up=40, size=50) | compose.Prefixer("fast_")
    assert sorted(fast.transform_one(row)) == ["fast_diffusion_map_0", "fast_diffusion_map_1"]


def test_scikit_learn_hears_the_same_names() -> None:
    """With pandas output, too."""
    face = OnlineTransformer(GeometricMeanMetric()).set_output(transform="pandas")
    placed = face.fit(FRAME, POINTS[:, 0] > 0).transform(FRAME)
    names = [f"geometric_mean_metric_{j}" for j in range(3)]
    assert list(placed.columns) == face.get_feature_names_out().tolist() == names


def doubtful() -> pd.DataFrame:
    return FRAME.assign(customer_id=7.0, n=range(90), label=1)


@pytest.mark.parametrize("name", ["DiffusionMap", "PCA", "UnsupervisedMetric", "FENN"])
@pytest.mark.parametrize("many", [True, False])
def test_a_river_face_says_what_it_learns_that_may_be_no_feature(name: str, many: bool) -> None:
    """Once, by name and by value; frames and dicts alike; nothing is refused."""
    model: Any = getattr(estimators, name)()
    X, y = doubtful(), [bool(v) for v in POINTS[:, 0] > 0]

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
    for part in (
        "'customer_id' (named like an id)",
        "'label' (named like a target)",
        "'n' (whole numbers that ascend, like ids or times)",
        "compose.Discard",
    ):
        assert part in message
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnWarning)
        learn(slice(60, None))
    plain: Any = getattr(estimators, name)()
    plain.learn_many(POINTS, y) if plain._supervised else plain.learn_many(POINTS)


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
    assert "may be none: 'city' (no number so far); they" in message
    assert "preprocessing.OneHotEncoder" in message
    assert "compose.SelectType(numbers.Number)" in message
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnWarning)
        learn(slice(60, None))
        chosen = compose.SelectType(float) | PCA()
        for row in X[20:].to_dict("records"):
            chosen.learn_one(row)


def test_a_warning_made_an_error_loses_nothing() -> None:
    """What was learned before it was told is learned."""
    model = DiffusionMap(warm_up=40)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnWarning)
        with pytest.raises(ColumnWarning):
            model.learn_many(doubtful())
    assert model.engine.position == 90
    model.learn_many(doubtful())
    assert model.engine.position == 180


def test_the_other_doors_know_the_rule_too() -> None:
    """scikit-learn's face warns, the pipeline of metrics refuses as the engine does."""
    with pytest.warns(ColumnWarning, match="customer_id"):
        OnlineTransformer(PCA()).fit(doubtful())
    with pytest.raises(FeatureError, match="customer_id"):
        UnsupervisedPipeline.of(doubtful())
    names = ["a", "b", "c"]
    assert UnsupervisedPipeline.of(doubtful(), features=names).metric.matrix.shape == (3, 3)
