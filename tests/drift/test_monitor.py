"""The monitor: its laws, its alarms, what it refuses."""

from __future__ import annotations

import itertools
import json
import math
import re
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import streamembed as se
from scenarios.drift_streams import DEPENDENT, NULLS, serial
from streamembed.drift import monitor_timeline
from streamembed.drift.calibration import average_blocks
from streamembed.drift.missing_channel import MissingRows, watch
from streamembed.errors import (
    BadRowError,
    FeatureError,
    InputError,
    NotReadyError,
    ParameterError,
)
from streamembed.numeric.arrays import Floats

QUICK: dict[str, Any] = {"ert": 500, "n_reference": 200}


def points(n: int, seed: int = 0, d: int = 3) -> Floats:
    return np.random.default_rng(seed).standard_normal((n, d))


def moved(n: int, by: float, seed: int = 1, d: int = 3) -> Floats:
    return points(n, seed, d) + by * np.eye(d)[0]


@pytest.mark.long
def test_an_alarm_names_what_has_changed() -> None:
    """Ranked first, onset within 50 events, ids of its own."""
    right = near = tried = 0
    for seed in range(5):
        made = se.Monitor(seed=seed)
        names = ["height", "width", "depth"]
        before = pd.DataFrame(points(1400, seed), columns=names)
        if made.learn(before):
            continue  # a false alarm, one in 25
        after = pd.DataFrame(points(300, seed + 100), columns=names)
        after["width"] += 1.0
        alarms = made.learn(after)
        alarm = alarms[0]
        tried += 1
        right += alarm.features[0][0] == "width" and "'width' shifted by +" in alarm.sentence
        near += abs(alarm.onset - 1400) <= 50
        assert 1400 < alarm.position <= 1500
        assert len(alarm.events) == 10
        assert all(alarm.onset <= number < alarm.position for _, number, _ in alarm.events)
        assert json.loads(json.dumps(alarm.as_dict()))["channel"] == alarm.channel
    assert tried >= 4
    assert right == tried
    assert near == tried


def test_policies() -> None:
    """renew takes the new as normal; hold says away, and back; stop watches no more."""
    away = np.concatenate([points(400), moved(900, 3.0), points(1500, 5), moved(300, 3.0, 7)])
    renewed = se.Monitor(**QUICK)
    alarms = renewed.learn(away)
    assert alarms[0].position <= 420
    assert {"relearning", "watching"} <= set(renewed.timeline()["state"].to_pylist())

    held = se.Monitor(**{**QUICK, "ert": 20_000}, policy="hold")
    assert len(held.learn(away[:1300])) == 1
    assert (held.is_alarmed, held.state) == (True, "watching")
    held.learn(away[1300:2800])
    assert held.records[-1].kind in ("recovered", "explained")
    assert "recovered" in [record.kind for record in held.records]
    assert not held.is_alarmed
    assert len(held.learn(away[2800:])) == 1
    assert held.is_alarmed

    stopped = se.Monitor(**QUICK, policy="stop")
    assert len(stopped.learn(away)) == 1
    assert (stopped.state, stopped.position) == ("stopped", len(away))


def test_a_held_monitor_goes_on_watching() -> None:
    """After the first alarm nothing was said: 8 sd in another feature gave ()."""
    held = se.Monitor(ert=10_000, n_reference=500, policy="hold")
    held.learn(points(700))
    (first,) = held.learn(moved(900, 1.5))
    other = moved(400, 1.5, 9) + np.array([0.0, 8.0, 0.0])
    (second,) = held.learn(other)
    assert (first.reference, second.reference > 0) == (0, True)
    assert 1600 < second.position <= 1650
    assert second.explanation is not None
    assert (second.explanation.kind, second.explanation.names) == ("mean", ("1",))
    held.learn(points(700, 11))
    assert [r.kind for r in held.records if r.kind == "recovered"] == ["recovered"]
    assert not held.is_alarmed


def test_a_held_monitor_is_home_after_each_excursion() -> None:
    """Home that was left soon after a return was barred from then on: 100 of 120 were not seen."""
    held = se.Monitor(ert=10_000, n_reference=500, policy="hold")
    held.learn(points(700))
    for seed in range(4):
        held.learn(moved(350, 2.5, 10 + seed))
        assert held.is_alarmed
        held.learn(points(350, 20 + seed))
        assert not held.is_alarmed
    assert [r.kind for r in held.records].count("recovered") == 4


def test_a_user_decides_what_is_home() -> None:
    """acknowledge() and reset() are records, are saved, and do nothing when said twice."""
    held = se.Monitor(ert=10_000, n_reference=200, policy="hold")
    held.learn(points(300))
    assert held.acknowledge() is None
    assert held.reset() is None
    held.learn(moved(500, 3.0))
    assert held.is_alarmed
    again = se.Monitor.from_bytes(held.to_bytes())
    record = held.acknowledge()
    assert record is not None
    assert (record.kind, held.is_alarmed, held.acknowledge()) == ("acknowledged", False, None)
    record = again.reset()
    assert record is not None
    assert (record.kind, again.is_alarmed, again.reset()) == ("reset", False, None)
    assert len(again.learn(moved(50, 3.0, 5))) == 1  # still away from home
    assert held.learn(moved(50, 3.0, 5)) == ()
    assert held.records[-1].kind == "acknowledged"
    early = se.Monitor(ert=10_000, n_reference=200, policy="hold")
    early.learn(np.concatenate([points(300), moved(60, 3.0)]))
    assert early.state == "relearning"
    assert early.acknowledge() is not None
    early.learn(moved(500, 3.0, 6))
    assert not early.is_alarmed
    for call in (se.Monitor().acknowledge, se.Monitor(policy="stop").reset):
        with pytest.raises(ParameterError, match="needs policy='hold'"):
            call()


def test_what_is_acknowledged_while_a_reference_is_collected_has_a_home() -> None:
    """reset() was a bare StopIteration, and after a return the stream was away for ever."""
    held = se.Monitor(ert=10_000, n_reference=200, policy="hold")
    held.learn(np.concatenate([points(300), moved(20, 3.0)]))
    assert held.state == "relearning"
    assert held.acknowledge() is not None
    assert held.reset() is None
    held.learn(points(500, 5))
    assert "returned" in [record.kind for record in held.records]
    assert (held.state, held.is_alarmed) == ("watching", False)


def test_units_and_the_order_of_columns_do_not_matter() -> None:
    """x -> a x + c, column by column, and columns in another order: the same run lengths."""
    stream = np.concatenate([points(400), moved(100, 0.5)])
    names = np.array(["a", "b", "c"])

    def lengths(values: Floats, order: list[int], orders: bool = True) -> Any:
        made = se.Monitor(ert=1e6, n_reference=200)
        made.learn(pd.DataFrame(values[:, order], columns=names[order] if orders else None))
        return np.log(made.timeline()["run_length"].drop_null().to_numpy())

    plain = lengths(stream, [0, 1, 2])
    np.testing.assert_allclose(lengths(stream * [1e6, 1e-3, 7.0] + [3.0, -9.0, 0.0], [0, 1, 2]),
                               plain, atol=1e-6)  # fmt: skip
    np.testing.assert_array_equal(lengths(stream, [2, 0, 1]), plain)


def test_one_far_event_is_no_alarm_and_ten_are() -> None:
    """Scores are clipped; a chunk that lies outside is seen by coverage."""
    for far in (1e3, 1e100):
        made = se.Monitor(ert=10_000, n_reference=500)
        stream = points(800)
        stream[700] = far
        assert made.learn(stream) == ()
        (alarm,) = made.learn(np.full((10, 3), far))
        assert alarm.run_length > 10_000
        assert math.isfinite(alarm.features[0][1])


ODD = {
    "duplicates": np.random.default_rng(0).permutation(np.repeat(points(20), 20, axis=0)),
    "all the same": np.full((400, 3), 7.0),
    "a constant feature": points(400) * [1.0, 0.0, 1.0],
    "two islands": points(400) + 1e4 * (np.arange(400) % 2)[:, None],
    "tiny": points(400) * 1e-300,
    "huge": points(400) * 1e140,
    "whole numbers": np.round(points(400)),
    "one feature": points(400, d=1),
    "more features than events": points(400, d=500),
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_references_are_watched_without_a_nan(kind: str) -> None:
    """Run lengths are numbers for whatever comes after them; a NaN would mean silence."""
    made = se.Monitor(ert=1_000, n_reference=200, policy="hold")
    d = ODD[kind].shape[1]
    made.learn(ODD[kind])
    made.learn(points(120, 3, d))
    made.learn(np.full((30, d), 1e149))
    told = made.timeline()
    told = told.filter(pa.compute.is_null(told["kind"]))
    told = told.filter(pa.compute.is_valid(told["channel"]))
    assert told.num_rows > 0
    assert np.isfinite(told["run_length"].to_numpy()).all()
    assert made.alarms  # the last thirty are like nothing before


def test_a_rare_label_that_comes_more_often_is_an_alarm() -> None:
    """From .02 to .08: a label rarer than the scores that are clipped."""
    for seed in (1, 2, 3):
        rng = np.random.default_rng([seed, 3])
        labels = rng.random(3000) < np.where(np.arange(3000) < 2000, 0.02, 0.08)
        monitor = se.Monitor(labels=True, seed=seed)
        alarms = monitor.learn(rng.standard_normal((3000, 4)), y=labels.tolist())
        first = next(alarm.position for alarm in alarms if alarm.channel == "labels")
        assert 2000 < first < 2600
        assert not any("other label" in alarm.sentence for alarm in alarms)  # of two the rest


def test_labels_are_watched_on_request() -> None:
    """Two classes change places: silent without labels, seen with them; permuted ones are noise."""
    rng = np.random.default_rng(0)
    labels = rng.choice(["a", "b"], 1200)
    X = points(1200) + np.where(labels == "a", 1.0, -1.0)[:, None]
    swapped = labels.copy()
    swapped[800:] = np.where(labels[800:] == "a", "b", "a")
    config: dict[str, Any] = {"ert": 5_000, "n_reference": 600}
    assert se.Monitor(**config).learn(X, y=swapped) == ()
    assert se.Monitor(**config, labels=True).learn(X, y=labels) == ()
    (alarm,) = se.Monitor(**config, labels=True).learn(X, y=swapped)
    assert (alarm.channel, alarm.onset // 50) == ("labels", 16)


def test_of_a_snapshot() -> None:
    """Watches from the first event on; landmarks and distances are refused."""
    engine = se.Engine(size=400, warm_up=300)
    engine.learn(pd.DataFrame(points(600), columns=["a", "b", "c"]))
    made = se.Monitor.of(engine.snapshot(), ert=1_000)
    assert (made.state, made.position) == ("watching", 0)
    assert made.learn(pd.DataFrame(points(100, 2), columns=["a", "b", "c"])) == ()
    (alarm,) = made.learn(pd.DataFrame(moved(60, 2.0), columns=["a", "b", "c"]))
    assert (alarm.features[0][0], alarm.onset // 20) == ("a", 5)
    sparse = se.Engine(memory="landmarks", size=200, warm_up=100)
    sparse.learn(points(900))
    with pytest.raises(InputError, match="landmarks"):
        se.Monitor.of(sparse.snapshot())
    apart = se.Engine(size=150, warm_up=100)
    apart.learn_distances(np.linalg.norm(points(150)[:, None] - points(150), axis=2))
    with pytest.raises(InputError, match="no points"):
        se.Monitor.of(apart.snapshot())
    with pytest.raises(InputError, match="must be a Snapshot"):
        se.Monitor.of(engine)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"ert": 99}, "ert=99 must be"),
        ({"ert": math.nan}, "ert=nan must be"),
        ({"ert": "often"}, "ert='often'"),
        ({"n_reference": 99}, "n_reference=99 must be"),
        ({"n_coordinates": 0}, "n_coordinates=0"),
        ({"policy": "forget"}, "policy='forget' must be one of"),
        ({"labels": 1}, "labels=1 must be"),
        ({"scaling": "max"}, "scaling='max'"),
        ({"bandwidth": -1}, "bandwidth=-1"),
        ({"seed": -1}, "seed=-1"),
        ({"on_bad_row": "drop"}, "on_bad_row='drop'"),
    ],
)
def test_parameters_are_checked(parameters: dict[str, Any], told: str) -> None:
    with pytest.raises(ParameterError) as refused:
        se.Monitor(**parameters)
    assert told in str(refused.value)


def test_nothing_is_half_applied() -> None:
    """Bad rows, other features, ids of another kind: an error, and the same bytes as before."""
    made = se.Monitor(**QUICK)
    made.learn(points(250))
    before = made.to_bytes()
    bad = points(20)
    bad[3, 1] = np.nan
    with pytest.raises(BadRowError, match="nothing was watched"):
        made.learn(bad)
    with pytest.raises(FeatureError):
        made.learn(points(5, d=4))
    with pytest.raises(InputError, match="one kind"):
        made.learn(points(5), ids=list("abcde"))
    with pytest.raises(InputError):
        made.learn("points")
    assert made.to_bytes() == before
    skipping = se.Monitor(**QUICK, on_bad_row="skip")
    skipping.learn(bad)
    assert (skipping.position, skipping.rejected) == (19, 1)
    assert skipping.learn([]) == ()


def rows_of(ends: Any, phase: str, logs: Floats) -> Floats:
    return monitor_timeline.build_rows(ends, phase, np.stack([logs, 0 * logs], axis=1))


def test_the_timeline_is_bounded_and_keeps_the_strongest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor_timeline, "MAX_STRETCHES", 16)
    rng = np.random.default_rng(0)
    logs = rng.standard_normal((3000, 6))
    ends = 10 * np.arange(1, 3001)
    kept = monitor_timeline.MonitorTimeline()
    at = 0
    while at < 3000:
        stop = at + int(rng.integers(1, 200))
        kept = kept.append(rows_of(ends[at:stop], "watching", logs[at:stop]))
        at = stop
    assert len(kept.rows) <= 16
    np.testing.assert_array_equal(kept.rows[:, 4:10].max(axis=0), logs.max(axis=0))
    assert kept.rows[-1, 0] == 30_000
    once = monitor_timeline.MonitorTimeline().append(rows_of(ends, "watching", logs))
    assert kept.rows.tobytes() == once.rows.tobytes()
    assert kept.length == once.length


def test_state_is_bounded() -> None:
    """Beside the reference and the events that are looked back at."""
    made = se.Monitor(ert=math.inf, n_reference=200)
    made.learn(points(3000))
    size = len(made.to_bytes())
    made.learn(points(20_000))
    assert len(made.to_bytes()) < 1.5 * size


def test_what_never_changed_and_does() -> None:
    """Equal rows are no drift; another value is, however small; words that are true."""
    flat = se.Monitor(n_reference=300)
    assert flat.learn(np.ones((900, 3))) == ()
    (alarm,) = flat.learn(np.full((30, 3), 2.0))
    assert (alarm.onset, alarm.position, alarm.channel) == (900, 910, "features")
    stream = np.c_[points(900), np.full(900, 0.1)]
    stream[600:, 3] = 0.1 + 1e-9
    found = se.Monitor(ert=10_000, n_reference=300).learn(
        pd.DataFrame(stream, columns=list("abcd"))
    )
    assert found[0].position == 610
    assert "'d' changed from one constant value to another, 0.1 to 0.1" in found[0].sentence
    for at in (600, 605):  # the chunk of the change may have events from before
        moved_on = np.c_[points(900), np.where(np.arange(900) < at, 7.0, 9.0)]
        first = se.Monitor(n_reference=300).learn(moved_on)[0]
        assert first.explanation is not None
        found = first.explanation
        assert (found.kind, found.before, found.after) == ("value", 7.0, 9.0)
        assert "changed from one constant value to another, 7 to 9" in first.sentence
    dead = pd.DataFrame(points(900), columns=list("abc"))
    dead.loc[600:, ["a", "b"]] = 0.0
    words = [alarm.sentence for alarm in se.Monitor(n_reference=300).learn(dead)]
    assert any("2 features, 'a' among them, became constant" in one for one in words)


def test_a_rare_flag_that_stays_raised_is_an_alarm() -> None:
    """Flags rarer than the scores that are clipped, with nothing beside them."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        stream = (rng.random((1300, 4)) < 0.005).astype(float)
        stream[1100:, 0] = 1.0
        alarms = se.Monitor(seed=seed).learn(stream)
        assert [alarm.onset // 50 for alarm in alarms] == [22]


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_a_third_value_of_a_flag_is_named(share: float) -> None:
    """It was nothing, or a rate of the higher value that fell."""
    rng = np.random.default_rng(0)
    stream = np.c_[points(1900), rng.random(1900) < 0.3]
    stream[1500:, 3] = np.where(rng.random(400) < share, 2.0, stream[1500:, 3])
    monitor = se.Monitor()
    monitor.learn(stream)
    explanation = monitor.alarms[0].explanation
    assert explanation is not None
    assert (explanation.kind, explanation.names, explanation.before) == ("rate", ("3",), 0.0)
    assert explanation.after == pytest.approx(share, abs=0.1)
    assert "Rate of a new value of '3' changed from 0 to" in monitor.alarms[0].sentence


def test_many_features_that_hardly_ever_change_are_no_drift() -> None:
    """The border of pictures: each of 400 pixels once in a thousand events, not all in 500."""
    rng = np.random.default_rng(7)
    chances, fresh, said = [], [], []
    for seed in range(3):
        pixels = np.where(rng.random((1500, 400)) < 0.001, rng.random((1500, 400)), 0.0)
        stream = np.c_[rng.standard_normal((1500, 2)), pixels]
        monitor = se.Monitor(ert=10_000, n_reference=500, policy="stop", seed=seed)
        said += [alarm.sentence for alarm in monitor.learn(stream)]
        reference = monitor._get_reference()
        chances.append(reference.chance)
        fresh.append((stream[500:, reference.constant] != 0.0).any(axis=1).mean())
    assert not [one for one in said if "that were constant" in one]
    # 3,000 events, of which a fifth have such a pixel
    assert np.mean(chances) == pytest.approx(np.mean(fresh), rel=0.2)
    assert np.mean(fresh) > 50 / 500


def test_labels_that_come_later_in_the_same_call_leave_no_trace() -> None:
    """Only those of the reference count, however the stream is cut."""
    X, y = points(600, d=2), ["a", "b"] * 150 + ["c", "a"] * 150
    config: dict[str, Any] = {"ert": 500, "n_reference": 200, "labels": True, "policy": "hold"}
    one, two = se.Monitor(**config), se.Monitor(**config)
    alarms = one.learn(X, y=y)
    assert two.learn(X[:250], y=y[:250]) + two.learn(X[250:], y=y[250:]) == alarms
    assert one.to_bytes() == two.to_bytes()
    with pytest.raises(InputError, match="needs labels"):
        one.learn(X)
    unlabelled = se.Monitor(**config)
    unlabelled.learn(X, y=[None] * 600)
    assert "they are not watched" in unlabelled.notes[0]


def test_a_stream_that_moves_slowly_is_watched() -> None:
    """Of a random walk the reference grew to 16 of its size, and an alarm died."""
    walk = np.cumsum(np.random.default_rng(0).normal(size=(4000, 1)), axis=0)
    made = se.Monitor(ert=1000, n_reference=150)
    for alarm in made.learn(walk):
        assert 0 <= alarm.onset < alarm.position
    assert 150 < made.alarms[0].position < 1000
    assert any("too few to guarantee" in note for note in made.notes)


def test_a_few_outliers_are_named_so() -> None:
    """One event in forty is far out: no change of the spread of most features."""
    rng = np.random.default_rng(0)
    stream = rng.standard_normal((3500, 8))
    far = np.arange(1500, 3500, 40)
    stream[far] = 12 * np.sign(rng.standard_normal((len(far), 8)))
    monitor = se.Monitor(ert=10_000, policy="stop")
    (alarm,) = monitor.learn(stream)
    assert alarm.explanation is not None
    assert alarm.explanation.kind == "outliers"
    named = [number for _, number, _ in alarm.events[: alarm.explanation.events]]
    assert set(named) <= set(far.tolist())
    assert f"{len(named)} outliers around event" in alarm.sentence
    assert "open the events: " + ", ".join(map(str, named)) in alarm.sentence


def test_outliers_in_a_row_are_named_when_events_after_them_are_like_the_reference() -> None:
    """At the alarm they are half of the events since the onset; 200 events later a few of many."""
    stream = np.random.default_rng(0).uniform(0, 10, (2_300, 3))
    stream[2_000:2_005, 0] = 1e6
    monitor = se.Monitor()
    monitor.learn(stream)
    assert monitor.alarm is not None
    assert monitor.alarm.sentence.startswith("5 outliers around event 2,000")
    assert {number for _, number, _ in monitor.alarm.events[:5]} == set(range(2_000, 2_005))


def test_a_sentence_says_how_many_events_are_since_the_onset() -> None:
    """A window that shows a change best may have begun before it."""
    stream = np.random.default_rng(2).standard_normal((3_000, 3))
    stream[:, 1] += np.clip((np.arange(3_000) - 1_500) / 1_500, 0, 1)
    monitor = se.Monitor(n_reference=500)
    monitor.learn(stream)
    alarm = next(record for record in monitor.records if record.position == 2_580)
    assert alarm.explanation is not None
    assert (alarm.onset, alarm.explanation.events) == (2_490, 500)
    assert "estimated from the last 500 events, 90 of them since then)" in alarm.sentence


def test_a_second_rise_of_missing_values_is_an_alarm() -> None:
    """The share before it is that of the rows before it, and not that of the first rise."""
    rng = np.random.default_rng(0)
    stream, i = rng.standard_normal((6_000, 3)), np.arange(6_000)
    is_raised = ((i >= 1_500) & (i < 2_000)) | (i >= 5_000)
    stream[is_raised & (rng.random(6_000) < 0.3), 1] = np.nan
    whole, cut = (se.Monitor(n_reference=500, on_bad_row="skip") for _ in range(2))
    whole.learn(stream)
    for at in range(0, 6_000, 37):
        cut.learn(stream[at : at + 37])
    assert cut.to_bytes() == whole.to_bytes()
    shares = [
        a.explanation.before for a in whole.alarms if a.explanation and a.channel == "missing"
    ]
    assert shares == [0, 0]


def test_a_share_of_missing_values_that_stays_is_no_alarm() -> None:
    """At most one stream in a hundred of 20,000 rows may alarm; bursts count as one row."""
    line, alarms = math.log(10_000 / 0.025), 0
    for seed, rate in enumerate(np.tile([0.0005, 0.003, 0.02, 0.2, 0.5], 8)):
        rng = np.random.default_rng(seed)
        rejected = np.repeat(rng.random(4200 if seed % 2 else 21_000) < rate, 5 if seed % 2 else 1)
        positions = np.cumsum(~np.append(True, rejected))
        *_, is_alarm = watch(MissingRows(), rejected, positions, 1000, line)
        alarms += is_alarm
    assert alarms <= 2


def test_one_event_raises_no_alarm() -> None:
    """An event beyond the clipped scores, whatever the channel, is not enough; a few are named."""
    rng = np.random.default_rng(0)
    stream = rng.standard_normal((3000, 3))
    stream[1500:2500:250] = 50.0
    assert se.Monitor(ert=20_000).learn(stream) == ()


@pytest.mark.parametrize("seed", [4, 6, 15])
def test_one_event_raises_no_alarm_among_rare_flags(seed: int) -> None:
    """Without an event a stream of flags stays near the line, though nothing else is unusual."""
    stream = (np.random.default_rng([seed, 7]).random((1120, 20)) < 0.003).astype(float)
    assert se.Monitor(seed=seed, ert=2_000).learn(stream) == ()


@pytest.mark.parametrize("name", DEPENDENT)
def test_streams_that_depend_on_their_past_are_noted(name: str) -> None:
    """The note was missing for AR(1) .7 to .98, a Markov chain and changing volatility."""
    made = watched(DEPENDENT[name])
    assert made.calibration["block"] > 1
    assert "means of" in made.notes[0] or "provisional" in made.notes[0]


@pytest.mark.parametrize("name", ["gaussian", "t3", "waveform", "rare flag"])
def test_independent_events_are_watched_one_by_one(name: str) -> None:
    made = watched(NULLS[name])
    assert (made.calibration["block"], made.notes) == (1, ())


def watched(draw: Any, seed: int = 0, n_reference: int = 1000) -> se.Monitor:
    """A monitor that has just made its first reference."""
    made = se.Monitor(ert=200, n_reference=n_reference, policy="stop", seed=seed)
    made.learn(draw(np.random.default_rng([seed, 16]), n_reference))
    return made


def test_a_block_is_as_long_as_the_dependence() -> None:
    """Volatility shows in squares alone, alternating events in what is behind lag 1."""
    assert 4 <= watched(serial(0.9, 3)).calibration["block"] <= 10
    assert watched(serial(-0.9, 3)).calibration["block"] > 1
    assert watched(DEPENDENT["log-volatility AR(1) 0.99"]).calibration["block"] > 10


def test_blocks_end_where_a_stretch_does() -> None:
    """Means of a block never join events of two stretches; a remainder is left out."""
    scores = np.arange(22.0)[:, None]
    stretches = np.repeat([0, 2, 4], [10, 10, 2])
    rows, own = average_blocks(scores, stretches, 4)
    np.testing.assert_array_equal(rows[:, 0], [1.5, 5.5, 11.5, 15.5])
    np.testing.assert_array_equal(own, [0, 0, 2, 2])


def test_a_named_season_is_no_drift() -> None:
    """A sine of period 400 is no dependence once it has a name."""
    rng = np.random.default_rng(3)

    def draw(n: int) -> Floats:
        wave = np.sin(2 * np.pi * np.arange(n) / 400)[:, None]
        return 1.5 * wave + 0.5 * rng.standard_normal((n, 3))

    named = se.Monitor(ert=5000, n_reference=1000, period=400)
    stream = draw(4000)
    assert len(named.learn(stream[:3000])) <= 1
    assert named.calibration["block"] == 1
    stream[3000:, 1] += 1.0
    alarms = named.learn(stream[3000:])
    assert alarms[0].explanation is not None
    assert alarms[0].position < 3200
    again = se.Monitor(ert=5000, n_reference=1000, period=400)
    for start in range(0, 4000, 37):
        again.learn(stream[start : start + 37])
    assert again.to_bytes() == named.to_bytes()
    with pytest.raises(ParameterError, match="two periods, 1,200"):
        se.Monitor(n_reference=1000, period=600)


def test_what_is_like_a_reference_that_was_left_has_returned() -> None:
    """Away and back, twice: home, and the last other reference that was left."""
    made = se.Monitor(ert=20_000, n_reference=500)
    made.learn(np.concatenate([points(800), moved(900, 2.0), points(900, 5)]))
    kinds = [r.kind for r in made.records if r.kind != "explained"]
    assert kinds == ["alarm", "alarm", "returned"]
    assert next(r for r in made.records if r.kind == "returned").reference == 0
    assert len(made.reference[0]) == 500
    made.learn(np.concatenate([moved(900, 2.0, 6), points(700, 7)]))
    assert [r.reference for r in made.records if r.kind == "returned"] == [0, 1, 0]


def test_a_change_while_events_are_collected_is_told() -> None:
    """A shift of 1 sd soon after an alarm: an alarm or a cut, never silence."""
    told = 0
    for seed in range(3):
        made = se.Monitor(ert=5000, n_reference=500)
        made.learn(np.concatenate([points(700, seed), moved(60, 2.0, seed + 10)]))
        n = len(made.records)
        made.learn(moved(600, 2.0, seed + 20) + np.array([0.0, 1.0, 0.0]))
        told += any(record.kind in ("alarm", "cut") for record in made.records[n:])
    assert told == 3


def test_a_stream_that_never_stands_still_comes_to_an_end() -> None:
    """Regimes of 100 to 300 events: in finite time."""
    for length in (100, 300):
        made = se.Monitor(ert=2000, n_reference=200)
        parts = [points(length, i) + 3.0 * (i % 3) for i in range(18)]
        made.learn(np.concatenate(parts))
        assert made.position == 18 * length


def test_a_change_in_one_feature_is_not_of_all() -> None:
    """Whatever the units and the order of the columns; and one of all is not of one."""
    rng = np.random.default_rng(4)
    stream = rng.standard_normal((1500, 8))
    stream[1200:, 5] *= 4.0
    both = []
    for scale, order in ((1.0, np.arange(8)), (10.0 ** rng.integers(-6, 7, 8), rng.permutation(8))):
        made = se.Monitor(ert=10_000, n_reference=1000, policy="renew")
        table = pd.DataFrame((stream * scale)[:, order], columns=[f"f{j}" for j in order])
        made.learn(table[sorted(table.columns)])
        both.append([(r.explanation.kind, r.explanation.names) for r in made.records
                     if r.explanation is not None])  # fmt: skip
    assert both[0] == both[1]
    assert set(both[0]) == {("spread", ("f5",))}
    wide = rng.standard_normal((1600, 8))
    wide[1200:] *= 1.5
    made = se.Monitor(ert=10_000, n_reference=1000)
    made.learn(wide)
    (alarm,) = made.alarms
    assert alarm.revision == 2
    assert alarm.explanation is not None
    assert alarm.explanation.kind == "all"
    assert re.search(r"Spreads of most features changed by a factor of 1\.[45] ", alarm.sentence)


@pytest.mark.parametrize(("d", "changed"), [(8, 2), (26, 6)])
def test_a_change_in_a_quarter_of_the_features_is_not_of_most(d: int, changed: int) -> None:
    """ "All features shifted" was said of two of eight, with a mean that was none of theirs."""
    rng = np.random.default_rng(d)
    stream = rng.standard_normal((1700, d))
    stream[1200:, :changed] += 1.0
    made = se.Monitor(n_reference=1000)
    made.learn(stream)
    assert len(made.alarms) == 1
    for record in made.records:
        assert record.explanation is not None
        assert record.explanation.kind == "mean"
        assert int(record.explanation.names[0]) < changed
    others = "1 other feature" if changed == 2 else f"{changed - 1} other features"
    assert f"{others} changed, too" in made.records[-1].sentence


@pytest.mark.parametrize("seed", range(2))
def test_a_slow_stream_is_watched_again_after_an_alarm(seed: int) -> None:
    """Dependence looked like a change, every hundred events: 29 cuts, and hardly any watching."""
    rng = np.random.default_rng(seed)
    stream = np.concatenate([serial(0.98, 3)(rng, 7000), np.zeros((7000, 1))], axis=1)
    stream[4000:] += [4.0, 0.0, 0.0, 1.0]  # the constant one underflowed the binomial law
    made = se.Monitor(ert=2000, n_reference=1000)
    watched_events = 0
    for start in range(0, len(stream), 100):
        made.learn(stream[start : start + 100])
        watched_events += 100 * (start >= 4000 and made.state == "watching")
    assert made.alarms
    assert [record.kind for record in made.records].count("cut") <= 1
    assert watched_events >= 1500


def test_an_alarm_is_not_explained_from_beyond_a_cut() -> None:
    """Of 120 events by 2 sd and 100 without, it said +1.1 sd, and one feature more."""
    monitor = se.Monitor(ert=10_000, n_reference=500)
    other = moved(300, 0.0, 2) + np.array([0.0, 2.0, 0.0])
    monitor.learn(np.concatenate([points(700), moved(120, 2.0), other]))
    assert [r.kind for r in monitor.records] == ["alarm", "explained", "cut"]
    explanation = monitor.alarms[0].explanation
    assert explanation is not None
    assert (explanation.names, explanation.after > 1.6) == (("0",), True)


def test_a_cut_counts_from_the_cut_before() -> None:
    """Regimes of 130 events behind an alarm: each record tells since when events were collected."""
    made = se.Monitor(**QUICK)
    parts = [points(400), *(moved(130, 4.0 + 4.0 * (i % 2), i) for i in range(6))]
    made.learn(np.concatenate(parts))
    cuts = [record for record in made.records if record.kind == "cut"]
    assert len(cuts) >= 2
    for before, cut in itertools.pairwise(cuts):
        if not any(before.position < alarm.position <= cut.position for alarm in made.alarms):
            assert f"since {before.onset:,} were collected" in cut.sentence


def test_the_note_says_what_was_found() -> None:
    """Autocorrelations, what is watched instead, and that the rate is not guaranteed."""
    made = watched(DEPENDENT["AR(1) 0.9"])
    note = next(note for note in made.notes if "autocorrelated" in note)
    assert re.search(r"autocorrelated \(0\.[89]\d at lag 1, 0\.\d\d at lag \d+; integrated", note)
    assert f"means of {made.calibration['block']} events are watched" in note
    blocks = 1000 // made.calibration["block"]
    assert any(f"{blocks} independent blocks" in note for note in made.notes)
    long = watched(DEPENDENT["AR(1) 0.9"], n_reference=4000)
    assert not any("independent blocks" in note for note in long.notes)
    assert se.Monitor.from_bytes(made.to_bytes()).notes == made.notes


def test_an_anomaly_score_is_calibrated() -> None:
    """Without drift 5 % of the events have a score of .95 or more; a far event has the highest."""
    shares = []
    for seed in range(4):
        made = se.Monitor(ert=math.inf, n_reference=1000, seed=seed)
        made.learn(points(1000, seed))
        before = made.to_bytes()
        shares.append((made.score(points(2000, seed + 50)) >= 0.95).mean())
        assert made.score([[50.0, 0.0, 0.0]])[0] == 500 / 501
        assert made.to_bytes() == before
    assert 0.03 < np.mean(shares) < 0.07
    made.learn(points(500, 99))
    assert abs(np.nanmean(made.timeline()["score"].to_numpy(zero_copy_only=False)) - 0.5) < 0.1
    with pytest.raises(NotReadyError):
        se.Monitor().score(points(3))


def test_a_rare_value_that_comes_more_often_is_no_outlier() -> None:
    """Without its strongest events the rise of a rate was not significant."""
    named = set()
    for seed in (3, 17):
        rng = np.random.default_rng(seed)
        stream = rng.standard_normal((1_500, 8))
        stream[:, 0] = rng.random(1_500) < np.where(np.arange(1_500) < 1_000, 0.02, 0.08)
        monitor = se.Monitor()
        monitor.learn(stream)
        named |= {a.explanation.kind for a in monitor.alarms if a.explanation and a.revision == 2}
    assert named == {"rate"}


def test_events_after_a_stop_are_not_kept() -> None:
    """One call and calls of an event each had other bytes: events waited for nothing."""
    points = np.random.default_rng(0).standard_normal((600, 3))
    points[400:] += 3.0
    whole, single = (se.Monitor(ert=500, n_reference=200, policy="stop") for _ in range(2))
    whole.learn(points)
    for i in range(600):
        single.learn(points[i : i + 1])
    assert whole.state == "stopped"
    assert whole.to_bytes() == single.to_bytes()


def test_calls_leave_no_trace_of_rejected_rows() -> None:
    """A share of missing values that rises is an alarm, in its place among the others."""
    rng = np.random.default_rng(0)
    stream = np.concatenate([points(1200), moved(800, 1.0)])
    stream[rng.random(2000) < np.where(np.arange(2000) < 900, 0.02, 0.5), 1] = np.nan
    whole, at = se.Monitor(**QUICK, on_bad_row="skip"), 0
    whole.learn(stream)
    assert [a.channel == "missing" for a in whole.alarms].count(True) == 1
    numbers = [record.number for record in whole.records if record.kind == "alarm"]
    assert numbers == sorted(set(numbers))
    cut = se.Monitor(**QUICK, on_bad_row="skip")
    while at < len(stream):
        stop = at + int(rng.choice([1, 7, 30, 160]))
        cut.learn(stream[at:stop])
        at = stop
        if rng.random() < 0.1:
            cut = se.Monitor.from_bytes(cut.to_bytes())
    assert cut.records == whole.records
    assert cut.to_bytes() == whole.to_bytes()
    assert cut.notes == whole.notes
    silent = se.Monitor(on_bad_row="skip")
    silent.learn(np.full((50, 3), np.nan))
    assert "all 50 rows so far were rejected" in silent.notes[0]
