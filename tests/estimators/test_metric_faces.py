"""The river faces of metrics: laws that all of them keep."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from streamembed import estimators
from streamembed.errors import NotLearnedWarning, NotReadyError
from streamembed.estimators.metric_estimator import MetricEstimator
from tests.metric_ways import ADDITIVE, CONTRACT, DICTS, LABELS, POINTS, WAYS, built, learned


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
def test_labels_are_only_names(way: str) -> None:
    """Strings, ints, bools, numpy's: renaming changes nothing, bit for bit."""
    matrix = learned(way).metric.matrix
    for rename in (int, lambda c: np.int64(9 - int(c)), lambda c: f"class {c}"):
        model = built(way)
        model.learn_many(POINTS, [rename(label) for label in LABELS])
        assert np.array_equal(model.metric.matrix, matrix)
    assert model.classes == tuple(dict.fromkeys(f"class {label}" for label in LABELS))


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
        assert metric.certificate["status"] == "unfitted"
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
