"""What an alarm names of vectors: a group, a repeated event, another encoder; never a feature."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import fisher_exact
from sklearn.linear_model import Ridge

import streamembed as se
from scenarios.benchmarks import drift_regions
from scenarios.streams import MissingDataError
from streamembed.drift import reference
from streamembed.drift.regions import find_copies, score_novelty
from streamembed.numeric.arrays import Floats, Ints

D, N_REFERENCE = 40, 500


def draw(n: int, shares: tuple[float, ...], seed: int = 0) -> tuple[Floats, Ints]:
    """Vectors of groups of those shares, and the group of each."""
    centres = 3.0 * np.random.default_rng(99).standard_normal((5, D)) / np.sqrt(D)
    rng = np.random.default_rng(seed)
    group = rng.choice(len(shares), n, p=shares)
    return centres[group] + 0.3 * rng.standard_normal((n, D)), group


USUAL = (0.3, 0.3, 0.3, 0.1)


def watch(after: Floats, before: int = 800) -> se.Monitor:
    """A monitor of events without a change, and these."""
    monitor = se.Monitor(n_reference=N_REFERENCE)
    monitor.learn(np.concatenate([draw(before, USUAL)[0], after]))
    return monitor


def test_a_group_that_grows_is_named() -> None:
    """Eleven of thirteen alarms of topics named nothing, and two a feature "304"."""
    after, group = draw(400, (0.1, 0.2, 0.2, 0.5), 1)
    alarm = watch(after).alarms[0]
    found = alarm.explanation
    assert found is not None
    assert (found.kind, found.names) == ("region", ())
    own = group[np.array(found.members) - 800] == 3
    assert own.mean() >= 0.9
    assert found.before < 0.15 < 0.2 < found.after
    assert found.p < 0.01
    assert len(set(found.exemplars)) == 3
    assert set(found.exemplars) <= set(found.members)
    assert min(found.members) >= alarm.onset
    assert "A group of events became more frequent around event 8" in alarm.sentence
    assert f"Most typical: '{found.exemplars[0]}', " in alarm.sentence
    record = json.loads(json.dumps(alarm.as_dict()))
    assert record["explanation"]["exemplars"] == list(found.exemplars)


def test_a_new_group_is_named() -> None:
    """At most 1 % of the reference."""
    found = watch(draw(400, (0.25, 0.25, 0.2, 0.1, 0.2), 2)[0]).alarms[0].explanation
    assert found is not None
    assert (found.kind, found.before <= 0.01) == ("new region", True)


def test_a_new_group_among_many_is_found() -> None:
    """Sixteen whitened axes of twenty groups found none of these within 1,300 events."""
    for seed in (0, 4):
        rng = np.random.default_rng(seed)
        centres = 2.0 * rng.standard_normal((21, 64)) / np.sqrt(64)
        group = rng.integers(20, size=2000)
        is_new = (np.arange(2000) >= 700) & (rng.random(2000) < 0.12)
        group[is_new] = 20
        monitor = se.Monitor(n_reference=N_REFERENCE)
        alarm = monitor.learn(centres[group] + 0.3 * rng.standard_normal((2000, 64)))[0]
        assert 700 < alarm.position <= 1500
        assert alarm.explanation is not None
        assert alarm.explanation.kind == "new region"
        assert is_new[np.array(alarm.explanation.members)].mean() >= 0.9


def test_features_of_vectors_are_components_of_the_squared_kernel() -> None:
    """The distance of two means is the maximum mean discrepancy: all 39 are kept."""
    points = draw(40, USUAL)[0]
    made = reference.fit(points, 4, is_vector=True)
    features = made.compute_scores(points)[:, 1 + made.psi.shape[1] :]
    squares = cdist(made.points, made.points, "sqeuclidean")
    kernel = np.exp(-2.0 * squares / made.kernel.bandwidth**2)
    sides = np.repeat([1 / 15, -1 / 25], [15, 25])
    np.testing.assert_allclose(((sides @ features) ** 2).sum(), sides @ kernel @ sides, rtol=1e-9)


def test_numbers_of_a_vector_have_one_unit() -> None:
    """Scaled one by one, the borders of images hid the groups."""
    points = draw(600, USUAL)[0] * np.geomspace(1.0, 1e-3, D)
    found = []
    for scaling in ("standard", None):
        monitor = se.Monitor(n_reference=N_REFERENCE, scaling=scaling)
        monitor.learn(points)
        found.append(monitor._get_reference().map.points)
    np.testing.assert_array_equal(*found)


def test_equal_vectors_have_no_components() -> None:
    """A reference of one value: the first other one is an alarm, as of constant features."""
    monitor = se.Monitor(n_reference=N_REFERENCE)
    monitor.learn(np.ones((700, D)))
    assert monitor.learn(draw(100, USUAL)[0])[0].channel == "features"


@pytest.mark.parametrize("name", ["rotated", "rounded", "scaled", "shifted", "cut off"])
def test_another_encoder_is_named(name: str) -> None:
    """All groups at once: no group has become more frequent."""
    after = draw(400, USUAL, 3)[0]
    if name == "rotated":
        after = after @ np.linalg.qr(np.random.default_rng(0).standard_normal((D, D)))[0]
    others = {"rounded": np.round(after), "scaled": 1.4 * after, "shifted": after + 0.2}
    others["cut off"] = np.where(np.arange(D) < 27, after, 0.0)
    after = others.get(name, after)
    alarm = watch(after).alarms[0]
    assert alarm.explanation is not None
    assert alarm.explanation.kind == "encoder"
    assert "as if another encoder made the vectors, around event" in alarm.sentence


def test_a_rounding_is_named_under_cosine() -> None:
    """Lengths differ, so that all values differ: 0 of 12 streams were named."""
    rng = np.random.default_rng(4)
    topics, topic = rng.standard_normal((6, 48)), rng.integers(0, 5, 2500)
    stream = 2.0 * topics[topic] + rng.standard_normal((2500, 48))
    stream[800:] = np.round(stream[800:])
    monitor = se.Monitor(metric="cosine", n_reference=N_REFERENCE)
    monitor.learn(stream)
    assert monitor.alarms[0].explanation is not None
    assert monitor.alarms[0].explanation.kind == "encoder"


def test_near_copies_of_one_event_are_no_encoder() -> None:
    """Spreads of all features shrink; 10 of 16 streams were named so."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        after, _ = draw(400, USUAL, 20 + seed)
        is_copy = rng.random(400) < 0.4
        after[is_copy] = after[0] + 0.02 * rng.standard_normal((is_copy.sum(), D))
        alarm = watch(after).alarms[0]
        assert alarm.explanation is not None
        assert alarm.explanation.kind in ("region", "new region")
        assert is_copy[np.array(alarm.explanation.members) - 800].mean() >= 0.9


def test_copies_of_other_lengths_are_one_event_under_cosine() -> None:
    """Rounding tells them apart: five of five streams were named "new region"."""
    after, _ = draw(200, USUAL, 13)
    after[:] = after[0] * np.random.default_rng(0).uniform(0.5, 2.0, (200, 1))
    for kind in (np.float64, np.float32):
        monitor = se.Monitor(metric="cosine", n_reference=N_REFERENCE)
        monitor.learn(np.concatenate([draw(800, USUAL)[0], after]).astype(kind))
        found = monitor.alarms[0].explanation
        assert found is not None
        assert (found.kind, len(found.members) >= 50) == ("repeated event", True)


def test_a_repeated_event_is_named_and_left_out_of_a_reference() -> None:
    """It was swallowed while a reference was collected, and then scored 0, the most normal."""
    stream = draw(1500, USUAL, 4)[0]
    stream[200:350] = stream[200]
    stream[900:1050] = stream[200]
    monitor = se.Monitor(n_reference=N_REFERENCE)
    monitor.learn(stream)
    first, second = monitor.alarms[:2]
    assert (first.channel, first.onset, first.position) == ("repeated", 201, N_REFERENCE)
    for alarm, onset in ((first, 201), (second, 900)):
        found = alarm.explanation
        assert found is not None
        assert found.kind == "repeated event"
        assert (min(found.members), len(found.members) > 100) == (onset, True)
    assert not find_copies(monitor.reference[0]).any()
    assert monitor.state == "watching"


def test_a_usual_value_stays_in_the_reference() -> None:
    """A value that comes all the time is no alarm, and a note says so."""
    stream = draw(1200, USUAL, 5)[0]
    stream[np.random.default_rng(5).random(1200) < 0.3] = stream[0]
    monitor = se.Monitor(n_reference=N_REFERENCE)
    assert monitor.learn(stream) == ()
    assert any("one event is 3" in note for note in monitor.notes)


def test_names_of_features_are_kept() -> None:
    """Features that the caller named are named; and what no later explanation names, stays."""
    stream = draw(1300, USUAL, 6)[0]
    stream[800:, 7] += 1.0
    monitor = se.Monitor(n_reference=N_REFERENCE)
    monitor.learn(pd.DataFrame(stream, columns=[f"f{j:02}" for j in range(D)]))
    assert monitor.alarms[0].explanation is not None
    assert monitor.alarms[0].explanation.names == ("f07",)


def test_the_shares_of_a_group_are_those_of_its_test() -> None:
    """Fisher's exact test of before and after, times 2 or 256, of 12 sizes and 2 windows."""
    found = watch(draw(400, (0.1, 0.2, 0.2, 0.5), 8)[0]).alarms[0].explanation
    assert found is not None
    a, b = round(found.after * found.events), round(found.before * N_REFERENCE)
    table = [[a - 1, found.events - a], [b, N_REFERENCE - b]]
    p = min(1.0, 2 * fisher_exact(table, "greater").pvalue)
    assert 2 <= found.p / p <= 256 * 12 * 2


def test_a_group_that_is_not_compact_is_named() -> None:
    """Its events are nowhere near each other, and lie on one side, as topics of sentences do."""
    rng = np.random.default_rng(3)
    stream = rng.standard_normal((1400, 200))
    is_own = rng.random(1400) < np.where(np.arange(1400) < 800, 0.1, 0.4)
    stream[is_own, :3] += 2.5
    monitor = se.Monitor(n_reference=N_REFERENCE)
    monitor.learn(stream)
    found = monitor.alarms[0].explanation
    assert found is not None
    assert found.kind == "region"
    assert is_own[np.array(found.members)].mean() >= 0.8


def test_novelty_is_predicted_without_the_event_itself() -> None:
    """As ridge regressions without each of the events, of fixed mean and penalty, predict it."""
    rng = np.random.default_rng(0)
    old, new = rng.standard_normal((40, 5)), rng.standard_normal((20, 5)) + 0.5
    scores = score_novelty(old, new)
    points = np.concatenate([old, new])
    points -= points.mean(axis=0)
    penalty = 10 * (points**2).sum() / 5
    for i in range(60):
        left = np.delete(np.arange(60), i)
        ridge = Ridge(alpha=penalty).fit(points[left], (left >= 40) - 1 / 3)
        assert scores[i] == pytest.approx(ridge.predict(points[[i]])[0], abs=1e-12)
    assert np.isfinite(score_novelty(np.ones((5, 3)), np.ones((2, 3)))).all()  # of equal points


def test_the_benchmark_draws_what_it_says() -> None:
    """A group of words from 10 to 30 %."""
    try:
        points, is_own, at = drift_regions.make_stream("group from 10 to 30 %", "glove_100d_10k", 0)
    except MissingDataError as error:
        pytest.skip(str(error))
    assert len(points) == drift_regions.BEFORE + drift_regions.AFTER
    assert abs(is_own[:at].mean() - 0.1) < 0.03
    assert abs(is_own[at:].mean() - 0.3) < 0.03


def test_a_number_beside_a_vector_weighs_as_much_as_it() -> None:
    """A shift of it is found as soon as without the vector; it took four times as long."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        vectors, latency = rng.standard_normal((2400, 64)), rng.standard_normal(2400)
        latency[2000:] += 1.5
        names = [f"embedding[{j}]" for j in range(64)]
        columns = dict(zip(names, vectors.T, strict=True))
        monitor = se.Monitor(n_reference=1000)
        monitor.learn(pa.table({**columns, "latency": latency}))
        [alarm] = [alarm for alarm in monitor.alarms if alarm.onset >= 1900]
        assert alarm.position <= 2040
        assert alarm.explanation is not None
        assert alarm.explanation.names == ("latency",)
