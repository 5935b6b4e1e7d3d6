"""What changed between two snapshots: in numbers and in words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import streamembed as se
from streamembed.engine import diagnostics
from streamembed.engine.axis_messages import describe_hidden_spread, describe_lost_axes
from streamembed.engine.snapshot import Frame
from streamembed.errors import FeatureError, InputError

RNG = np.random.default_rng(0)
POINTS = RNG.standard_normal((600, 3)) * [4.0, 2.0, 1.0]


def snapshots(points: np.ndarray, *stops: int) -> list[se.Snapshot]:  # type: ignore[type-arg]
    engine = se.Engine("pca", n_components=2, size=200, scaling=None)
    found = []
    for stop in stops:
        engine.learn(points[engine.position : stop])
        found.append(engine.snapshot())
    return found


def test_a_still_stream_has_hardly_changed() -> None:
    """Half of the events are shared, every coordinate is its own, what is new was covered."""
    one, other = snapshots(POINTS, 300, 400)
    found = other.compare(one)
    assert (found.positions, found.shared, found.share) == ((300, 400), 100, 0.5)
    assert found.same_epoch
    assert (found.epochs, found.frame) == (0, other.frame)
    assert "axes: one epoch since event 50, fidelity 0.99" in repr(found)
    assert min(found.correlations) > 0.95
    assert found.movement < 0.2
    assert found.covered > 0.5
    assert found.gone == found.come == ()
    assert one.compare(other) == found


def test_movement_is_after_the_best_rotation() -> None:
    """By brute force over angles and both reflections."""
    one, other = snapshots(POINTS, 300, 350)
    found = other.compare(one)
    _, here, there = np.intersect1d(other.ids, one.ids, return_indices=True)
    a, b = one.coordinates[there], other.coordinates[here]
    a, b = a - a.mean(axis=0), b - b.mean(axis=0)
    best = np.inf
    for angle in np.linspace(0, 2 * np.pi, 3600):
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        for mirror in (1.0, -1.0):
            moved = b @ turn * [1.0, mirror]
            best = min(best, float(np.sqrt(((moved - a) ** 2).sum() / (a**2).sum())))
    assert found.movement == pytest.approx(best, abs=1e-3)


def test_another_direction_is_a_component_that_came() -> None:
    """And one that went; the new events are like nothing there was."""
    points = POINTS.copy()
    points[300:] = points[300:, [2, 1, 0]] * [1.0, 1.0, 3.0] + [0.0, 0.0, 40.0]
    one, other = snapshots(points, 300, 400)
    found = other.compare(one)
    assert found.covered < 0.1
    assert found.gone
    assert found.come
    assert not found.same_epoch
    said = repr(found)
    assert "components gone" in said
    assert f"another epoch, since event {other.frame.since}" in said
    assert other.frame.lost
    assert describe_lost_axes(found.lost) in said
    assert "cannot be compared" not in said


def test_what_is_not_shown_is_said() -> None:
    """The same words in a comparison, and among the problems of a snapshot."""
    one, other = snapshots(POINTS, 300, 400)
    found = other.compare(one)
    frame = Frame(3, 3000, (1, 3), (0, 3000, 0, 3000), 0.9, 0.07, ())
    hidden = "7 % of the spread of components 0 and 1 is not shown: axes have been kept since event"
    assert f"; {hidden} 3,000\n" in repr(replace(found, frame=frame))
    said = repr(replace(found, frame=frame, epochs=2, lost=(1, 3)))
    assert (
        "axes: another epoch, 2 epochs later, since event 3,000; axes 1 and 3 are lost; "
        f"{hidden} 3,000\n"
    ) in said
    assert describe_hidden_spread(frame, 1).startswith("7 % of the spread of component 0 is")
    assert diagnostics.describe_price(other) is None


def test_what_shares_nothing_says_so() -> None:
    """No events in both: only the coverage is left."""
    one, other = snapshots(POINTS, 200, 600)
    found = other.compare(one)
    assert (found.shared, found.gone, found.come) == (0, (), ())
    assert np.isnan(found.movement)
    assert "correlation" not in repr(found)
    assert found.covered > 0.5


def test_other_things_are_refused() -> None:
    """Each with what it must be."""
    (one,) = snapshots(POINTS, 300)
    with pytest.raises(InputError, match="Snapshot"):
        one.compare(None)  # type: ignore[arg-type]
    (narrow,) = snapshots(POINTS[:, :2], 300)
    with pytest.raises(FeatureError, match="same engine"):
        one.compare(narrow)
    engine = se.Engine(size=200)
    engine.learn(POINTS[:300])
    with pytest.raises(InputError, match="method"):
        one.compare(engine.snapshot())
