"""The river face: all of river's checks, and laws that they do not ask for."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from river import checks, compose, datasets, preprocessing

from streamembed import estimators
from streamembed.errors import FeatureError, NotReadyError
from streamembed.estimators import DiffusionMap
from streamembed.estimators.map_estimator import MapEstimator

ROSTER = estimators.__all__
MODELS = {
    f"{name}-{i}": getattr(estimators, name)(**params)
    for name in ROSTER
    if name != "LabelSpreading"  # a classifier, checked in its own file
    for i, params in enumerate(getattr(estimators, name)._unit_test_params())
}
CHECKS = [(name, check) for name, model in MODELS.items() for check in checks.yield_checks(model)]


OF_EVERY_FACE = (
    "check_learn_many_matches_learn_one",
    "check_transform_many_matches_transform_one",
    "check_transform_one",
    "check_emerging_features",
)


def is_long(name: str, check: Any) -> bool:
    """Further settings; growth, of all but one: `test_memory_is_flat` looks at that, too.

    And of the other maps, what they have of it; of the two
    slowest all but the least.
    """
    grows = check.__name__ == "check_bounded_memory_growth" and name != "DiffusionMap-0"
    inherits = isinstance(MODELS[name], MapEstimator) and name != "DiffusionMap-0"
    inherited = inherits and check.__name__ not in OF_EVERY_FACE
    twin = name in ("Isomap-0", "LiveMap-0") and check.__name__ != "check_transform_one"
    return grows or inherited or twin or not name.endswith("-0")


POINTS = np.random.default_rng(0).standard_normal((90, 4))
NAMES = ["w", "x", "y", "z"]
DICTS = [dict(zip(NAMES, row, strict=True)) for row in POINTS.tolist()]


def small(**changes: Any) -> DiffusionMap:
    return DiffusionMap(**{"warm_up": 20, "chunk_size": 7, "size": 40, **changes})


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_skipped(name: str) -> None:
    """The skip list is empty, and the checks that vanish without pandas are there."""
    model = MODELS[name]
    assert model._unit_test_skips() == set()
    yielded = {check.__name__ for check in checks.yield_checks(model)}
    assert "check_learn_many_matches_learn_one" in yielded
    assert "check_transform_many_matches_transform_one" in yielded
    assert len([1 for owner, _ in CHECKS if owner == name]) >= 28


@pytest.mark.filterwarnings("ignore::streamembed.errors.ScalingWarning")
@pytest.mark.parametrize(
    ("name", "check"),
    [
        pytest.param(
            name,
            check,
            id=f"{name}-{check.__name__}",
            marks=pytest.mark.long if is_long(name, check) else [],
        )
        for name, check in CHECKS
    ],
)
def test_rivers_checks(name: str, check: Any) -> None:
    """Each of river's own checks."""
    check(MODELS[name].clone())


@pytest.mark.parametrize("name", MODELS)
def test_the_checks_see_real_output(name: str) -> None:
    """On a stream of classes, output is neither zero nor the input by event 20."""
    model = MODELS[name].clone()
    for x, y in datasets.Phishing().take(20):
        model.learn_one(*((x, y) if model._supervised else (x,)))
    out = list(model.transform_one(x).values())
    assert any(out)
    assert out != list(dict(sorted(x.items())).values())


FRAMES = {
    "pandas": pd.DataFrame(DICTS, index=range(100, 190)),
    "polars": pl.DataFrame(DICTS),
    "table": pa.Table.from_pylist(DICTS),
    "record batch": pa.RecordBatch.from_pylist(DICTS),
    "dicts": DICTS,
}


@pytest.mark.parametrize("name", ["DiffusionMap", "EmbeddingDrift", "PCA", "UnsupervisedMetric"])
def test_names_after_arrays_were_all_imputed(name: str) -> None:
    """Dicts of other features were learned as events without a value; now nothing is."""
    model = getattr(estimators, name)()
    model.learn_many(np.concatenate([POINTS] * 3))
    before = pickle.dumps(model)
    named = [{f"feature {key}": value for key, value in row.items()} for row in DICTS[:3]]
    with pytest.raises(FeatureError, match="learned from arrays"):
        model.learn_one(named[0])
    with pytest.raises(FeatureError, match="learned from arrays"):
        model.learn_many(named)
    assert pickle.dumps(model) == before


def test_the_cold_start_is_zeros_of_the_final_width() -> None:
    """Keys are stable from the first event on."""
    model = small(n_components=3)
    assert model.transform_one(DICTS[0]) == {f"diffusion_map_{j}": 0.0 for j in range(3)}
    assert not model.transform_many(POINTS).any()
    assert not model.ready
    with pytest.raises(NotReadyError, match="20 events and 0 have arrived"):
        model.snapshot()
    model.learn_many(DICTS)
    assert model.ready
    assert model.snapshot() is model.engine.snapshot()


def test_missing_values_are_imputed_by_running_means() -> None:
    """Absent, null, NaN, text, infinities become the mean so far; unknown features are counted."""
    model, plain = small(), small()
    odd = [dict(row) for row in DICTS]
    means = {name: np.mean([row[name] for row in DICTS[:50]]) for name in NAMES}
    filled = [dict(row) for row in DICTS]
    for i, value in enumerate([None, float("nan"), "text", float("inf"), 1e300, "absent"]):
        if value == "absent":
            del odd[50 + i]["x"]
        else:
            odd[50 + i]["x"] = value
        filled[50 + i]["x"] = means["x"]
    odd[60]["new"] = 3.0
    model.learn_many(odd)
    plain.learn_many(filled)
    assert (model.imputed, model.ignored) == (6, 1)
    np.testing.assert_allclose(model.snapshot().points, plain.snapshot().points, atol=1e-12)
    assert model.imputed_in_transform == 0
    assert list(model.transform_one({})) == ["diffusion_map_0", "diffusion_map_1"]
    model.transform_many([{**DICTS[0], "new": 1.0}, {**DICTS[1], "x": None}])
    assert (model.imputed_in_transform, model.ignored_in_transform) == (len(NAMES) + 1, 1)
    assert (model.imputed, model.ignored) == (6, 1)


def test_it_works_in_a_union_and_with_frames() -> None:
    """`+` fuses it with the raw features; mini-batches go through pipelines of pandas frames."""
    union = compose.Select("w") + small()
    for row in DICTS:
        union.learn_one(row)
    assert set(union.transform_one(DICTS[0])) == {"w", "diffusion_map_0", "diffusion_map_1"}
    pipeline = preprocessing.StandardScaler() | small()
    pipeline.learn_many(FRAMES["pandas"])
    assert pipeline.transform_many(FRAMES["pandas"]).shape == (90, 2)


def test_neither_pandas_nor_scikit_learn_is_needed() -> None:
    """With both made unimportable, everything imports, learns and transforms."""
    program = """
        import sys

        class Hiding:
            def __init__(self, finder):
                self.finder = finder

            def __getattr__(self, name):
                return getattr(self.finder, name)

            def find_spec(self, name, *where):
                hidden = name.split(".")[0] in ("pandas", "sklearn", "polars", "matplotlib")
                return None if hidden else self.finder.find_spec(name, *where)

        sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
        import streamembed.cli.commands, streamembed.cli.demo
        from streamembed.estimators import DiffusionMap, EigDML
        from river import datasets
        metric = EigDML(chunk_size=5)
        for x, y in datasets.Phishing().take(40):
            metric.learn_one(x, y)
        assert metric.metric.certificate["mass"] > 0
        model = DiffusionMap(warm_up=20)
        for x, _ in datasets.Phishing().take(40):
            model.learn_one(x)
        assert any(model.transform_one(x).values())
        import pyarrow
        model.learn_many(pyarrow.Table.from_pylist([x]))
        print("fine")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "fine\n", done.stderr


def test_features_of_the_warm_up_are_the_schema() -> None:
    """A feature that emerges during the warm-up is part of it, one after it is not."""
    model = small()
    for i, row in enumerate(DICTS[:30]):
        model.learn_one({name: row[name] for name in (NAMES if i >= 10 else NAMES[:2])})
    assert model.engine.feature_names == ("w", "x", "y", "z")
