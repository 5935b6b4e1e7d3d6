"""Calls that another engine checked, or that nobody did: refused whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from streamembed import Call, Engine
from streamembed.errors import (
    DamagedFileError,
    FeatureError,
    InputError,
    ParameterError,
)
from streamembed.storage import archive
from tests.sealed import unseal

X = np.random.default_rng(0).standard_normal((60, 3))
SMALL: dict[str, Any] = {"size": 30, "warm_up": 20}


def edited(call: Call[Any], change: Callable[[dict[str, Any], dict[str, Any]], Any]) -> bytes:
    """The call with other contents, sealed again as an attacker would."""
    table, header = unseal(call.to_bytes(), "operation")
    arrays = archive.unpack(table)
    change(arrays, header)
    return archive.seal(archive.to_table(arrays), "operation", header)


def test_a_checked_call_cannot_be_changed() -> None:
    """Once a NaN in its points went into the engine, and into its bytes."""
    call = Engine(**SMALL).check(X)
    for each in (call, Call.from_bytes(call.to_bytes())):
        with pytest.raises(ValueError, match="read-only"):
            each.points[0] = np.nan
    assert repr(call) == "<Points of 60 rows>"


def test_times_are_for_an_engine_that_fades_by_them() -> None:
    """Once accepted, and the engine's own bytes could not be loaded."""
    by_time = Engine(**SMALL, memory="landmarks", clock="event_time", half_life=5.0)
    call, engine = by_time.check(X[:5], times=np.arange(5.0)), Engine(**SMALL)
    with pytest.raises(ParameterError, match="times"):
        engine.apply(call)
    engine.learn(X[:3])
    assert Engine.from_bytes(engine.to_bytes()).position == 3


def test_calls_of_other_parameters_are_refused_as_learn_refuses() -> None:
    """Labels without metrics, rows left out, arrays where names are known, ids of another kind."""
    metric = Engine(**SMALL, metrics=("fenn",))
    with pytest.raises(ParameterError, match="labels"):
        Engine(**SMALL).apply(metric.check(X[:5], y=[0, 1, 0, 1, 0]))
    bad = X.copy()
    bad[3, 1] = np.nan
    with pytest.raises(ParameterError, match="1 bad rows"):
        Engine(**SMALL).apply(Engine(**SMALL, on_bad_row="skip").check(bad))
    engine = Engine(**SMALL)
    call = engine.check(X)
    engine.learn(pd.DataFrame(X[:30], columns=["0", "1", "2"]))
    with pytest.raises(FeatureError):
        engine.apply(call)
    late = metric.check_labels([1, 2], [0, 1])
    metric.learn(X[:5], ids=list("abcde"))
    with pytest.raises(InputError, match="known by strings"):
        metric.apply(late)


EDITS: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {
    "fewer labels": lambda _, facts: facts.update(labels=[0] * 45),
    "a label that is a list": lambda _, facts: facts.update(labels=[0] * 50 + [[1]] + [0] * 9),
    "NaN": lambda arrays, _: arrays.update(points=np.where(X > 2, np.nan, X)),
    "fewer names": lambda _, facts: facts.update(features=[["0", "1"], True]),
    "names that are none": lambda _, facts: facts.update(features=[[1, None, {}], True]),
    "no names": lambda _, facts: facts.pop("features"),
    "no points": lambda arrays, _: arrays.pop("points"),
    "rows in another order": lambda arrays, _: arrays.update(kept=np.arange(60)[::-1].copy()),
    "fewer rows kept": lambda arrays, _: arrays.update(kept=np.arange(59)),
    "fewer ids": lambda arrays, _: arrays.update(ids=np.arange(59)),
    "ids of another type": lambda arrays, _: arrays.update(ids=np.arange(60.0)),
    "float32": lambda arrays, _: arrays.update(points=X.astype(np.float32)),
    "a field of no call": lambda _, facts: facts.update(n=60),
}


@pytest.mark.parametrize("change", EDITS.values(), ids=EDITS)
def test_an_edited_call_is_damaged(change: Callable[[Any, Any], Any]) -> None:
    """Once these were half applied, with errors from inside, or made engines that do not load."""
    call = Engine(**SMALL, metrics=("fenn",)).check(X, y=[0] * 60)
    with pytest.raises(DamagedFileError):
        Call.from_bytes(edited(call, change))
