"""Calls: checked without effect, written down, read back and applied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamembed as se
from streamembed import Call, Command
from streamembed.errors import (
    DamagedFileError,
    DuplicateIdError,
    FeatureError,
    InputError,
    NotReadyError,
    ParameterError,
)

POINTS = np.random.default_rng(0).standard_normal((160, 3))
KINDS = np.array(["a", "b"] * 80)
SMALL: dict[str, Any] = {"size": 60, "warm_up": 40}
METRICS = {**SMALL, "metrics": ("fenn",), "picture": True}


def distances(n: int) -> np.ndarray[Any, Any]:
    return np.asarray(np.linalg.norm(POINTS[:n, None] - POINTS[:n], axis=-1))


def test_calls_do_what_methods_do() -> None:
    """By bytes, too; and checking changes nothing."""
    direct, applied, repeated = (se.Engine(**METRICS) for _ in range(3))
    direct.learn(POINTS[:100], KINDS[:100], ids=range(100))
    direct.learn_pairs(POINTS[:4], POINTS[4:8], [1, 0, 1, 0])
    direct.label([99, 3], ["a", "b"])
    direct.learn(pa.table({"0": [0.0], "1": [1.0], "2": [2.0], "id": [100]}))
    direct.flush()
    direct.rescale()
    direct.relayout()
    checks: list[Callable[[], Call[Any]]] = [
        lambda: applied.check(POINTS[:100], KINDS[:100], ids=range(100)),
        lambda: applied.check_pairs(POINTS[:4], POINTS[4:8], [1, 0, 1, 0]),
        lambda: applied.check_labels([99, 3], ["a", "b"]),
        lambda: applied.check(pa.table({"0": [0.0], "1": [1.0], "2": [2.0], "id": [100]})),
        lambda: Command("flush"),
        lambda: Command("rescale"),
        lambda: Command("relayout"),
    ]
    for check in checks:
        token = applied.state_token
        call = check()
        assert applied.state_token is token
        written = call.to_bytes()
        applied.apply(call)
        read: Call[Any] = Call.from_bytes(written)
        assert (type(read), read.digest, read.rows) == (type(call), call.digest, call.rows)
        repeated.apply(read)
    assert direct.to_bytes() == applied.to_bytes() == repeated.to_bytes()


def test_distance_rows_are_calls() -> None:
    """A square, and a ragged one with a null."""
    rows = [row[:i] for i, row in enumerate(distances(60))]
    ragged: list[Any] = [*rows[:50], None]
    engines = [se.Engine(**SMALL, on_bad_row="skip") for _ in range(2)]
    for given in (distances(60)[:50, :50], ragged):
        first, second = engines
        told = first.learn_distances(given)
        call: Call[Any] = Call.from_bytes(second.check_distances(given).to_bytes())
        assert second.apply(call) == told
        assert first.to_bytes() == second.to_bytes()


def test_times_go_with_the_call() -> None:
    """And a call without them is no call of an engine that needs them."""
    timed: dict[str, Any] = {
        **SMALL,
        "memory": "landmarks",
        "clock": "event_time",
        "half_life": 9.0,
    }
    direct, engine = se.Engine(**timed), se.Engine(**timed)
    direct.learn(POINTS, times=np.arange(160.0))
    engine.apply(Call.from_bytes(engine.check(POINTS, times=np.arange(160.0)).to_bytes()))
    assert direct.to_bytes() == engine.to_bytes()
    with pytest.raises(InputError, match="these rows have none"):
        se.Engine(**timed).apply(se.Engine(**SMALL).check(POINTS))


def test_what_another_call_has_changed_in_between() -> None:
    """The state at `apply` counts: features, ids and the kind of input."""
    engine = se.Engine(**SMALL)
    arrays = engine.check(POINTS[:50])
    frames = engine.check(pa.table({name: POINTS[:50, j] for j, name in enumerate("xyz")}))
    rows = engine.check_distances(distances(5))
    twice = engine.check(POINTS[:50], ids=range(50))
    engine.apply(frames)
    token = engine.state_token
    with pytest.raises(FeatureError, match=r"the call has the features \['0', '1', '2'\]"):
        engine.apply(arrays)
    with pytest.raises(InputError, match="learns points"):
        engine.apply(rows)
    assert engine.state_token is token
    other = se.Engine(**SMALL)
    other.apply(twice)
    with pytest.raises(DuplicateIdError, match="already in the support"):
        other.apply(twice)
    assert other.position == 50


def test_calls_of_engines_with_other_parameters() -> None:
    """They are refused as their methods refuse."""
    plain, metric = se.Engine(**SMALL), se.Engine(**METRICS)
    metric.learn(POINTS[:100])
    plain.learn(POINTS[:100])
    pairs = metric.check_pairs(POINTS[:2], POINTS[2:4], [True, False])
    with pytest.raises(ParameterError, match=r"pairs were given.*metrics=\('itml',\)"):
        plain.apply(pairs)
    with pytest.raises(ParameterError, match=r"labels were given.*metrics=\('fenn',\)"):
        plain.apply(metric.check_labels([99], ["a"]))
    with pytest.raises(ParameterError, match="keeps no picture"):
        plain.apply(Command("relayout"))
    with pytest.raises(NotReadyError, match="nothing to flush"):
        se.Engine(**SMALL).apply(Command("flush"))


def test_what_is_no_call_is_refused() -> None:
    """Bytes, tables, names of other methods, damaged bytes."""
    engine = se.Engine(**SMALL)
    written = engine.check(POINTS).to_bytes()
    with pytest.raises(InputError, match="call is a bytes; it must be a Call"):
        engine.apply(written)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'save' must be flush, rescale or relayout"):
        engine.apply(Command("save"))  # type: ignore[arg-type]
    with pytest.raises(DamagedFileError):
        Call.from_bytes(written[:-40])
