"""Estimators of maps: what all of them take: times of events, functions of two objects."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import streamembed as se
from streamembed import estimators
from streamembed.errors import BadRowError, InputError, ParameterError
from streamembed.estimators import DiffusionMap, KernelPCA, LiveMap, LocallyLinearEmbedding

pytestmark = pytest.mark.filterwarnings("ignore::streamembed.errors.ResolutionWarning")
RNG = np.random.default_rng(0)
POINTS = RNG.standard_normal((120, 2))
TIMES = np.cumsum(RNG.exponential(1.0, 120)) + RNG.exponential(3.0, 120)  # some come late
ROWS = [
    {"a": a, "b": b, "event_time": time}
    for (a, b), time in zip(POINTS.tolist(), TIMES.tolist(), strict=True)
]
TIMED: dict[str, Any] = {
    "memory": "landmarks",
    "size": 30,
    "half_life": 40.0,
    "clock": "event_time",
    "warm_up": 20,
    "chunk_size": 7,
}
OF_OBJECTS = [
    "ClassicalMDS",
    "DiffusionMap",
    "Isomap",
    "KernelPCA",
    "LaplacianEigenmaps",
    "LiveMap",
]


def distance(a: Any, b: Any) -> float:
    return float(np.linalg.norm(np.subtract(a, b)))


# ------------------------------------------------------------------ times


@pytest.mark.parametrize("kind", ["dicts", "pandas", "arrow", "stamps", "one by one"])
def test_events_have_the_times_that_come_with_them(kind: str) -> None:
    """A key or a column, as numbers or timestamps: the masses of an engine that learns the same."""
    model = DiffusionMap(**TIMED)
    table = pa.Table.from_pylist(ROWS)
    if kind == "dicts":
        model.learn_many(ROWS)
    elif kind == "pandas":
        model.learn_many(pd.DataFrame(ROWS))
    elif kind == "arrow":
        model.learn_many(table)
    elif kind == "stamps":
        stamps = pa.array((TIMES * 1e9).astype(int), pa.timestamp("ns", "UTC"))
        model.learn_many(table.set_column(2, "event_time", stamps))
    else:
        for row in ROWS:
            model.learn_one(row)
    engine = se.Engine(**TIMED)
    engine.learn(POINTS, times=TIMES)
    ours, theirs = model.snapshot(), engine.snapshot()
    np.testing.assert_allclose(ours.masses, theirs.masses, rtol=1e-6 if kind == "stamps" else 0)
    np.testing.assert_array_equal(ours.points, theirs.points)
    assert ours.feature_names == ("a", "b")
    placed = model.transform_one({"a": 0.1, "b": 0.2})
    assert model.transform_one({"a": 0.1, "b": 0.2, "event_time": 3.0}) == placed
    assert model.transform_many(table).num_rows == 120
    assert (model.ignored, model.ignored_in_transform) == (0, 0)


@pytest.mark.parametrize("events", [0, 5, 60])
@pytest.mark.parametrize(
    ("time", "says"),
    [
        (None, "row 2: the event time is missing"),
        (float("nan"), "row 2: the event time is missing"),
        ("noon", "the time of row 2 is 'noon'; times must all be numbers"),
        (1e9, "row 2: the event time 1000000000 is more than max_skew=50 beyond the newest"),
        ("absent", "row 2: the event time is missing"),
    ],
)
def test_a_bad_time_is_refused_before_anything_is_learned(
    events: int, time: Any, says: str
) -> None:
    """In the warm-up and after it; the call can be repeated."""
    model = DiffusionMap(**TIMED, max_skew=50.0)
    model.learn_many(ROWS[:events])
    before = pickle.dumps(model)
    rows = [dict(row) for row in ROWS[events : events + 30]]
    rows[2]["event_time"] = time
    if time == "absent":
        del rows[2]["event_time"]
    with pytest.raises(InputError, match=says):
        model.learn_many(rows)
    with pytest.raises(InputError, match=r"row 0|beyond the newest") as raised:
        model.learn_many([*ROWS[:1], rows[2]] if time == 1e9 else rows[2:3])
    assert pickle.dumps(model) == before
    assert isinstance(raised.value, BadRowError) or time == "noon"
    model.learn_many(ROWS[events:])
    engine = se.Engine(**TIMED)
    engine.learn(POINTS, times=TIMES)
    np.testing.assert_array_equal(model.snapshot().masses, engine.snapshot().masses)


# ------------------------------------------------------------------ objects


@pytest.mark.parametrize("name", OF_OBJECTS)
@pytest.mark.parametrize("memory", ["window", "landmarks", "all"])
def test_any_map_of_distances_takes_a_function_of_two(name: str, memory: str) -> None:
    """The same map as that of an engine that is given the distances."""
    model = getattr(estimators, name)(
        metric=distance, memory=memory, size=40, warm_up=20, chunk_size=5
    )
    objects = [tuple(point) for point in POINTS[:70].tolist()]
    for x in objects[:10]:
        model.learn_one(x)
        assert not any(model.transform_one(x).values())
    model.learn_many(objects[10:])
    engine = se.Engine(**model._build_config().as_dict())
    for x in objects:
        rows = [distance(x, objects[i]) for i in engine.distance_row_ids.tolist()]
        engine.learn_distances([rows])
    ours, theirs = model.snapshot(), engine.snapshot()
    np.testing.assert_array_equal(ours.coordinates, theirs.coordinates)
    again = pickle.loads(pickle.dumps(model))
    assert again.transform_one((0.1, 0.2)) == model.transform_one((0.1, 0.2))
    assert np.isfinite(list(model.transform_one((0.1, 0.2)).values())).all()


@pytest.mark.filterwarnings("error")
def test_a_picture_is_not_advised_about_components() -> None:
    """Two values have one component, and seven parts six: a picture has no `n_components`."""
    blobs = np.random.default_rng(0).normal(size=(420, 2))
    for X in (
        np.repeat([[1.0, 1.0], [2.0, 2.0]], 30, axis=0),
        blobs + 30 * np.arange(420)[:, None] % 7,
    ):
        model = LiveMap(warm_up=50, size=420)
        model.learn_many(X)
        assert model.snapshot().picture is not None
    with pytest.raises(ParameterError, match="must be at least 4: n points have at most"):
        LiveMap(warm_up=2)


def test_maps_that_need_coordinates_say_so() -> None:
    """When they are built."""
    for metric in ("precomputed", distance):
        with pytest.raises(ParameterError, match="needs coordinates, which distances do not tell"):
            LocallyLinearEmbedding(metric=metric)
        for kernel in ("polynomial", "cosine", distance):
            with pytest.raises(ParameterError, match=r"metric=.* is for kernel='gaussian'"):
                KernelPCA(kernel=kernel, metric=metric)
    with pytest.raises(ParameterError, match=r"metric='cosin' must be one of .* or a callable"):
        LocallyLinearEmbedding(metric="cosin")
