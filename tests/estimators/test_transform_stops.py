"""A point on its way into the extension: which functions of ours it passes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pandas as pd
import pytest

import streamembed as se
from streamembed.data.batch import Batch
from streamembed.data.table import InputFrame, NumericTable
from streamembed.estimators import DiffusionMap
from streamembed.methods.extension import KernelExtension

MOST = 8
NAMES = ("a", "b", "c")
POINTS = np.random.default_rng(0).standard_normal((120, 3))


def find_stops(call: Callable[[], Any], sources: tuple[Any, ...]) -> list[str]:
    """Functions of the package that have a point among their arguments, up to the kernel."""
    stops: list[str] = []
    kernel = KernelExtension.coordinates.__code__

    def has_point(value: Any) -> bool:
        if isinstance(value, np.ndarray):
            return value.shape == (1, len(NAMES))
        known = isinstance(value, (Batch, NumericTable, InputFrame))
        return known or any(value is source for source in sources)

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or "streamembed" not in code.co_filename or stops[-1:] == ["kernel"]:
            return
        if code is kernel:
            stops.append("kernel")
        elif not code.co_name.startswith(("__", "<")) and any(
            has_point(value) for value in frame.f_locals.values()
        ):
            stops.append(code.co_name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    assert stops.pop() == "kernel"
    return stops


def test_a_point_of_an_estimator() -> None:
    """It is read once, put in order, and placed."""
    model = DiffusionMap(size=100, n_components=2)
    for row in POINTS:
        model.learn_one(dict(zip(NAMES, row.tolist(), strict=True)))
    x = dict(zip(NAMES, POINTS[7].tolist(), strict=True))
    stops = find_stops(lambda: model.transform_one(x), (x,))
    assert len(stops) <= MOST, stops
    assert stops[-1] == "transform"
    assert not {"read", "read_table", "split", "check_table"} & set(stops)


@pytest.fixture(scope="module")
def snapshot() -> se.Snapshot:
    engine = se.Engine(size=100)
    engine.learn(pd.DataFrame(POINTS, columns=NAMES))
    return engine.snapshot()


def test_a_checked_batch_is_not_checked_again(snapshot: se.Snapshot) -> None:
    """It goes from `transform` to the kernel."""
    events = Batch.of_points(POINTS[:1], snapshot.features)
    assert find_stops(lambda: snapshot.transform(events), ()) == ["transform"]


def test_an_array_is_checked_in_place() -> None:
    """The common case of a stream of arrays."""
    engine = se.Engine(size=100)
    engine.learn(POINTS)
    placed = engine.snapshot()
    stops = find_stops(lambda: placed.transform(POINTS[:1]), ())
    assert len(stops) <= MOST, stops
    assert stops == ["transform", "_read", "are_usable"]


def test_the_short_ways_change_nothing(snapshot: se.Snapshot) -> None:
    """The same coordinates as of a data frame; a batch of other features is refused."""
    frame = pd.DataFrame(POINTS[:5], columns=NAMES)
    events = Batch.of_points(POINTS[:5], snapshot.features)
    np.testing.assert_array_equal(snapshot.transform(events), snapshot.transform(frame).to_numpy())
    others = Batch.of_points(POINTS[:5], se.Engine().features or snapshot.features.of_names("xyz"))
    with pytest.raises(se.errors.FeatureError, match="expected"):
        snapshot.transform(others)
