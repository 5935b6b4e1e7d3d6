"""Labels that come late: learned as labels that come in time, once, of events that are held."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import streamembed as se
from streamembed.errors import InputError, ParameterError
from streamembed.metrics.catalog import NAMES

X = np.random.default_rng(0).normal(size=(160, 3)) * [1.0, 5.0, 0.2]
KINDS = (np.arange(160) * 7) % 3


def small(**changes: Any) -> se.Engine:
    return se.Engine(
        **{"size": 100, "warm_up": 40, "chunk_size": 10, "metrics": ("fenn",), **changes}
    )


def matrix(engine: se.Engine, name: str = "fenn") -> np.ndarray:
    return engine.snapshot().metrics[name].matrix


@pytest.mark.parametrize("memory", ["window", "all", "landmarks"])
def test_late_labels_teach_what_labels_in_time_teach(memory: str) -> None:
    """The same metrics to the bit, where all are held and come in the same order."""
    late, timely = small(metrics=NAMES, memory=memory), small(metrics=NAMES, memory=memory)
    late.learn(X[:95])
    before = late.snapshot()
    assert late.label(np.arange(95), KINDS[:95]) == se.Labelled(95, 0, ())
    timely.learn(X[:95], y=KINDS[:95])
    for engine in (late, timely):
        engine.flush()
    for name in NAMES:
        np.testing.assert_array_equal(matrix(late, name), matrix(timely, name), err_msg=name)
    np.testing.assert_array_equal(before.coordinates, small_of(memory).snapshot().coordinates)


def small_of(memory: str) -> se.Engine:
    engine = small(metrics=NAMES, memory=memory)
    engine.learn(X[:95])
    return engine


def test_events_that_have_left_are_named() -> None:
    """In the order of the call; ids that never came cannot be told from them."""
    engine = small()
    engine.learn(X, ids=[f"e{j}" for j in range(160)])
    done = engine.label(["e3", "e70", "nobody", "e159"], [1, 2, 3, None])
    assert done == se.Labelled(1, 0, ("e3", "nobody"))
    assert len(engine._progress.labelled) == 1
    landmarks = small(memory="landmarks", size=40)
    landmarks.learn(X)
    done = landmarks.label(np.arange(160), KINDS)
    assert done.learned == 40
    assert set(landmarks.support_positions.tolist()).isdisjoint(done.not_held)


@pytest.mark.parametrize("memory", ["window", "landmarks"])
def test_what_is_remembered_is_bounded_by_the_support(memory: str) -> None:
    """Positions of labelled events go with their events."""
    engine = small(memory=memory, size=50)
    engine.learn(X, y=KINDS)
    held = engine._progress.labelled
    assert set(held.tolist()) == set(engine.support_positions.tolist())
    assert len(small_of("window")._progress.labelled) == 0


def test_of_two_events_of_one_id_the_later_is_meant() -> None:
    """The pending one, where the window is about to lose the other."""
    engine = small(size=40)
    ids = [f"e{j}" for j in range(40)]
    engine.learn(X[:40], ids=ids)
    engine.learn(X[40:41], ids=["e0"])
    engine.label(["e0"], ["late"])
    assert engine._progress.list_labelled_positions().tolist() == [40]


def test_wrong_calls_change_nothing() -> None:
    """Refused by type, with what to try."""
    with pytest.raises(
        ParameterError, match="learns no metrics: leave them out, or create it with metrics="
    ):
        se.Engine().label([0], ["a"])
    engine = small()
    assert engine.label([], []) == se.Labelled(0, 0, ())
    assert engine.label([0], ["a"]) == se.Labelled(0, 0, (0,))
    engine.learn(X[:60])
    before = engine.to_bytes()
    for ids, y, says in (
        (3, "a", r"ids is 3; .*pass \[id\]"),
        (None, ["a"], "ids is None"),
        (["e1"], ["a"], "ids are strings in this call, but events are known by positions"),
        ([1, None], ["a", "b"], "ids has None in row 1"),
        ([1, 2], ["a"], "y has 1 entries; it must have 2"),
        ([1], [object()], "labels must be strings, numbers or booleans"),
    ):
        with pytest.raises(InputError, match=says):
            engine.label(ids, y)
    assert engine.to_bytes() == before
