"""The monitor as a detector of river; river's own checks: tests/estimators/test_river.py."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from river import base, linear_model, preprocessing

import streamembed as se
from streamembed.errors import BadRowError, FeatureError
from streamembed.estimators import DiffusionMap, EmbeddingDrift

POINTS = np.random.default_rng(0).standard_normal((500, 2))
POINTS[400:, 0] += 3.0


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_it_detects_what_the_monitor_does(metric: str) -> None:
    """One by one, in a pipeline and in batches."""
    plain = se.Monitor(ert=1_000, n_reference=200, metric=metric)
    plain.learn(POINTS)
    rows = [{"0": a, "1": b} for a, b in POINTS.tolist()]
    single = EmbeddingDrift(ert=1_000, n_reference=200, metric=metric)
    hits = []
    for t, x in enumerate(rows):
        single.update(x)
        if single.drift_detected:
            hits.append(t + 1)
    assert isinstance(single, base.DriftDetector)
    assert hits == [alarm.position for alarm in plain.alarms] == [hits[0]]
    assert single.alarm == plain.alarms[0]
    piped = EmbeddingDrift(ert=1_000, n_reference=200, metric=metric)
    model = piped | preprocessing.StandardScaler() | linear_model.LogisticRegression()
    for x in rows:
        model.learn_one(x, x["0"] > 0)
        model.predict_one(x)
    assert piped.monitor.alarms == plain.alarms
    batches = EmbeddingDrift(ert=1_000, n_reference=200, metric=metric)
    detected = []
    for start in range(0, 500, 100):
        batches.learn_many(POINTS[start : start + 100])
        detected.append(batches.drift_detected)
    assert detected == [False, False, False, False, True]


def test_numbers() -> None:
    """As any detector of one number; of points they are refused."""
    detector = EmbeddingDrift(ert=1_000, n_reference=200)
    for value in POINTS[:, 0].tolist():
        detector.update(value)
    assert detector.alarm is not None
    points = EmbeddingDrift()
    points.update({"a": 1.0})
    with pytest.raises(FeatureError, match="no dict"):
        points.update(3.0)


def test_a_gap_of_a_constant_feature_is_that_constant() -> None:
    """The mean of so many equal values was off by a last bit: a monitor saw the feature change."""
    rng = np.random.default_rng(6)
    watch = EmbeddingDrift(ert=100_000, n_reference=300)
    model = DiffusionMap(memory="all", warm_up=50, tolerance=None)
    for i in range(700):
        x = {"a": rng.standard_normal(), "b": rng.standard_normal(), "c": -0.7}
        if i > 400 and i % 7 == 3:
            del x["c"]
        watch.update(x)
        model.learn_one(x)
        assert all(alarm.channel == "missing" for alarm in watch.monitor.alarms)
    assert set(model.snapshot().points[:, 2]) == {-0.7}


def test_a_rise_of_missing_values_is_an_alarm() -> None:
    """Dicts without a key, one by one, and arrays with NaN in batches."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((1_600, 2))
    points[rng.random(1_600) < np.where(np.arange(1_600) < 1_200, 0.02, 0.5), 1] = np.nan
    detector, hits = EmbeddingDrift(ert=2_000, n_reference=300), []
    for t, (a, b) in enumerate(points.tolist()):
        detector.update({"a": a} if np.isnan(b) else {"a": a, "b": b})
        if detector.drift_detected and detector.alarm.channel == "missing":
            hits.append(t)
    assert len(hits) == 1
    assert 1_200 < hits[0] < 1_260
    batches = EmbeddingDrift(ert=2_000, n_reference=300)
    for start in range(0, 1_600, 100):
        batches.learn_many(points[start : start + 100])
    alarms = [(alarm.channel, alarm.position) for alarm in batches.monitor.alarms]
    assert alarms == [(alarm.channel, alarm.position) for alarm in detector.monitor.alarms]


@pytest.mark.parametrize("kind", [EmbeddingDrift, DiffusionMap])
@pytest.mark.parametrize("at", [3, 100])
def test_a_vector_of_zeros_has_no_direction(kind: type, at: int) -> None:
    """It is refused at the door, early or late; among the first rows it fed them all again once."""
    plain, other = (kind(metric="cosine") for _ in range(2))
    for i, (a, b) in enumerate(POINTS[:150].tolist()):
        plain.learn_one({"a": a, "b": b})
        if i == at:
            with pytest.raises(BadRowError, match=r"zeros has no direction.*leave them out"):
                other.learn_one({"a": 0.0, "b": 0.0})
            with pytest.raises(BadRowError, match=r"row 1: a vector of zeros"):
                other.learn_many(pd.DataFrame({"a": [1.0, 0.0], "b": [2.0, 0.0]}))
        other.learn_one({"a": a, "b": b})
    assert pickle.dumps(plain) == pickle.dumps(other)
