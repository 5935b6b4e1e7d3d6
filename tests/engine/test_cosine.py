"""metric="cosine": what is learned, placed, watched, replayed and saved are unit vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamembed as se
from streamembed import estimators
from streamembed.data import batch
from streamembed.errors import BadRowError, FeatureError, InputError, ParameterError
from streamembed.methods.engine_parameters import METHODS

rng = np.random.default_rng(0)
POINTS = (rng.standard_normal((260, 12)) + rng.integers(0, 3, (260, 1))) * rng.uniform(
    0.01, 100, (260, 1)
)
POWERS = 2.0 ** rng.integers(-300, 300, (260, 1))
EXACT = 1e-12  # unit vectors of factors that are no powers of two differ in their last bits


def unit(points: Any) -> Any:
    """The plain formula."""
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def learned(method: str, points: Any = POINTS, **changes: Any) -> se.Engine:
    engine = se.Engine(method, metric="cosine", size=120, **changes)
    engine.learn(points)
    return engine


@pytest.mark.parametrize("method", METHODS)
def test_the_map_is_that_of_unit_vectors(method: str) -> None:
    """For every method, also of new points; rows multiplied by powers of two give the same bits."""
    snapshot, same = learned(method).snapshot(), learned(method, POINTS * POWERS).snapshot()
    plain = se.Engine(method, size=120, scaling=None)
    plain.learn(unit(POINTS))
    np.testing.assert_allclose(snapshot.points, unit(POINTS[-120:]), atol=EXACT)
    np.testing.assert_allclose(
        snapshot.certificate.residual, plain.snapshot().certificate.residual, rtol=0.1
    )
    np.testing.assert_array_equal(snapshot.coordinates, same.coordinates)
    new = POINTS[:9]
    np.testing.assert_array_equal(snapshot.transform(new), snapshot.transform(new * POWERS[:9]))
    np.testing.assert_array_equal(snapshot.coverage(new), snapshot.coverage(new * 2.0**70))


def test_neighbours_are_those_of_cosine() -> None:
    """Brute force over the window."""
    snapshot = learned("diffusion_map").snapshot()
    near, _ = snapshot.neighbors(POINTS[:20], 5, space="features")
    cosines = unit(POINTS[:20]) @ unit(POINTS[-120:]).T
    brute = np.argsort(-cosines, axis=1)[:, :5]
    np.testing.assert_array_equal(near, snapshot.ids[brute])


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.integers(0, 5))
def test_unit_vectors_do_not_depend_on_the_call(cuts: list[int], seed: int) -> None:
    """A row has the same bits alone and among others, in any memory order."""
    points = np.random.default_rng(seed).standard_normal((sum(cuts), 7)) * 1e-200
    whole = batch.read(points, metric="cosine").points
    ends = np.cumsum(cuts)[:-1]
    parts = [batch.read(part, metric="cosine").points for part in np.split(points, ends)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    np.testing.assert_array_equal(
        batch.read(np.asfortranarray(points), metric="cosine").points, whole
    )
    np.testing.assert_allclose(np.linalg.norm(whole, axis=1), 1.0, atol=EXACT)


def test_vectors_of_zeros_are_bad_rows() -> None:
    """They are refused, or rejected, with the reason; and nothing else of the call is lost."""
    points = POINTS.copy()
    points[[3, 200]] = 0.0
    with pytest.raises(BadRowError, match=r"row 3: a vector of zeros has no direction"):
        learned("diffusion_map", points)
    engine = learned("diffusion_map", points, on_bad_row="skip")
    assert (engine.position, engine.rejected) == (258, 2)
    with pytest.raises(BadRowError, match="zeros"):
        engine.snapshot().transform(points[:4])
    monitor = se.Monitor(n_reference=200, metric="cosine", on_bad_row="skip")
    monitor.learn(points)
    assert (monitor.position, monitor.rejected) == (258, 2)


def test_parameters_that_do_not_go_with_it() -> None:
    """A divisor for all has no effect; distances are no vectors."""
    assert se.Engine(metric="cosine").config.scaling is None
    for kind in (se.Engine, se.Monitor):
        with pytest.raises(ParameterError, match="scaling='global' has no effect"):
            kind(metric="cosine", scaling="global")
    with pytest.raises(ParameterError, match="learn_distances takes distances"):
        se.Engine(metric="precomputed")
    with pytest.raises(InputError, match="metric='cosine' needs vectors"):
        se.Engine(metric="cosine").learn_distances([[0.0]])


def test_a_monitor_compares_directions() -> None:
    """Lengths do not count, neither of events nor of a snapshot's."""
    monitor = se.Monitor(n_reference=200, metric="cosine")
    monitor.learn(POINTS)
    np.testing.assert_array_equal(monitor.score(POINTS[:9]), monitor.score(POINTS[:9] * 2.0**9))
    own = se.Monitor.of(learned("diffusion_map").snapshot())
    assert own.parameters["metric"] == "cosine"
    np.testing.assert_array_equal(own.score(POINTS[:9]), own.score(POINTS[:9] * 2.0**9))
    with pytest.raises(ParameterError, match="metric='euclidean' must be 'cosine'"):
        se.Monitor.of(learned("diffusion_map").snapshot(), metric="euclidean")


@pytest.mark.parametrize("kind", [estimators.DiffusionMap, estimators.Isomap, estimators.LiveMap])
def test_estimators_of_maps(kind: Any) -> None:
    """As the engine; a row alone as one among many."""
    one, other = (kind(metric="cosine", size=120, warm_up=60) for _ in range(2))
    one.learn_many(POINTS)
    for row in POINTS * POWERS:
        other.learn_one(dict(enumerate(row)))
    np.testing.assert_array_equal(one.transform_many(POINTS[:5]), other.transform_many(POINTS[:5]))
    assert one.transform_one(dict(enumerate(POINTS[0]))) == other.transform_one(
        dict(enumerate(POINTS[0] * 4))
    )


def test_a_metric_of_float32_vectors_may_be_off_at_an_object_itself() -> None:
    """1 - a·a is 1e-7 there, of either sign."""
    vectors = unit(POINTS).astype(np.float32)
    model = estimators.Isomap(metric=lambda a, b: 1 - float(a @ b), size=60, warm_up=30)
    model.learn_many([*vectors[:80], vectors[79]])
    assert len(model.snapshot().coordinates) == 60


def test_a_run_replays_saves_merges_and_watches(tmp_path: Path) -> None:
    """From a log: rows of zeros are rejected, and every file knows the metric."""
    points = POINTS.copy()
    points[7] = 0.0
    pq.write_table(
        pa.table(dict(zip("abcdefghijkl", points.T, strict=True))), tmp_path / "l.parquet"
    )
    run = se.replay(
        tmp_path / "l.parquet",
        se.Engine(metric="cosine", size=120),
        tmp_path / "run",
        monitor=se.Monitor(n_reference=150, metric="cosine"),
    )
    assert (run.accepted, run.rejected) == (259, 1)
    reader = se.read_run(tmp_path / "run")
    snapshot = reader.snapshot()
    assert snapshot.features.metric == "cosine"
    kept = unit(np.delete(points, 7, axis=0))
    np.testing.assert_allclose(snapshot.points, kept[snapshot.ids], atol=EXACT)
    events = np.concatenate([rows.points for _, rows in reader.events()])
    np.testing.assert_allclose(events, kept, atol=EXACT)
    engine = se.Engine(metric="cosine", memory="landmarks", size=240)
    engine.learn(POINTS)
    again = se.Engine.of_landmarks(engine.landmark_set())
    assert again.config.metric == "cosine"
    engine.save(tmp_path / "engine")
    loaded = se.Engine.load(tmp_path / "engine")
    for each in (engine, loaded):
        each.learn(POINTS[:30])
    np.testing.assert_array_equal(engine.snapshot().coordinates, loaded.snapshot().coordinates)


def test_a_vector_and_a_number_have_no_common_length() -> None:
    """A latency in milliseconds would be all of it."""
    names = [*(f"embedding[{j}]" for j in range(12)), "latency"]
    table = pa.table(dict(zip(names, np.column_stack([POINTS, POINTS[:, :1]]).T, strict=True)))
    for learner in (se.Engine(metric="cosine"), se.Monitor(metric="cosine")):
        with pytest.raises(FeatureError, match="a vector and other columns"):
            learner.learn(table)


@pytest.mark.parametrize("method", ["diffusion_map", "laplacian_eigenmaps", "lle"])
def test_a_row_of_another_length_is_the_point_of_the_support(method: str) -> None:
    """Rounding made a new point of it, up to 15 % of the map away."""
    rows = np.random.default_rng(0).standard_normal((300, 16))
    engine = se.Engine(method, size=200, metric="cosine")
    engine.learn(rows)
    snapshot = engine.snapshot()
    learned = snapshot.transform(rows[100:])
    for same in (3.0 * rows[100:], snapshot.points, 1e-3 * rows[100:]):
        np.testing.assert_allclose(snapshot.transform(same), learned, rtol=0, atol=1e-12)
