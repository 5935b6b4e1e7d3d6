"""What is said of axes that were lost, or that were kept at a price."""

from __future__ import annotations

import numpy as np

import streamembed as se
from streamembed.engine import diagnostics
from streamembed.engine.axis_messages import describe_frame, describe_lost_axes, name_components
from streamembed.engine.snapshot import Frame
from streamembed.runs.summary import describe_snapshot


def take_snapshot(frame: Frame) -> se.Snapshot:
    """A snapshot of five components that says to have this frame."""
    engine = se.Engine(size=60, warm_up=60, n_components=5)
    engine.learn(np.random.default_rng(0).standard_normal((60, 6)))
    snapshot = engine.snapshot()
    object.__setattr__(snapshot, "frame", frame)
    return snapshot


def test_a_price_is_a_hint() -> None:
    """From half of what ends an epoch; with what to do."""
    snapshot = take_snapshot(Frame(1, 3000, (), (3000,) * 5, 0.99, 0.05, ()))
    hint = 'kept axes hide 5 % of the spread: axes="eigen" shows all of it, and its axes turn'
    assert hint in diagnostics.describe_all(snapshot)
    words = (
        "5 % of the spread of components 0 to 4 is not shown: axes have been kept since event 3,000"
    )
    assert (
        describe_snapshot(snapshot)["axes"] == f"epoch 1 since event 3,000, fidelity 0.99; {words}"
    )


def test_axes_that_were_lost_often_are_named() -> None:
    """Those of the last snapshot; nothing is said of a run whose axes were kept."""
    snapshot = take_snapshot(Frame(11, 3000, (1, 3), (0, 3000, 0, 3000), 0.9, 0.0, ()))
    message = diagnostics.describe_unstable_axes(12, 12, snapshot)
    assert message.startswith("12 snapshots have 12 epochs: axes are kept within each")
    assert "(axes 1 and 3 are lost, since event 3,000)" in message
    assert "are lost" not in diagnostics.describe_unstable_axes(12, 12)
    assert diagnostics.are_axes_unstable(12, 12)
    assert not diagnostics.are_axes_unstable(1, 12)


def test_axes_and_components_count_from_0() -> None:
    """One, two and more of them."""
    assert describe_lost_axes(()) == ""
    assert describe_lost_axes((0,)) == "axis 0 is lost"
    assert [name_components(n) for n in (1, 2, 3)] == [
        "component 0",
        "components 0 and 1",
        "components 0 to 2",
    ]
    assert describe_frame(Frame(0, 50, (), (50, 50), 1.0, 0.004, ()), 2) == (
        "epoch 0 since event 50, fidelity 1.00"
    )
