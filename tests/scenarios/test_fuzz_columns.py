"""Twice the columns, twice the steps: nothing on the way of a table is quadratic in its columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from scenarios.fuzz.columns import (
    CHOICES,
    LARGEST,
    Name,
    count_steps,
    growth,
    open_log,
    replay,
    slope,
)
from streamembed.data import batch
from streamembed.data.features import Features
from streamembed.data.table import InputFrame


@pytest.mark.parametrize("choice", CHOICES)
def test_the_steps_to_open_a_log_are_linear_in_its_columns(choice: str) -> None:
    """Whichever way the columns are chosen."""
    assert growth(choice, "stream", 100, open_log) < LARGEST


def test_the_steps_of_a_replay_are_linear_in_its_columns() -> None:
    """And those of a transform."""
    assert growth("nothing", "stream", 100, replay) < LARGEST


def test_the_steps_of_a_frame_are_linear_in_its_columns() -> None:
    """Also where its columns come in another order than the engine's."""

    def steps(d: int) -> int:
        names = tuple(Name(f"c{j:03d}") for j in reversed(range(d)))
        frame = InputFrame(dict(zip(names, map(pa.array, np.ones((d, 1))), strict=True)))
        order = Features(tuple(map(Name, sorted(names))), False)
        return count_steps(lambda: batch.read(frame, None, order))

    assert slope(steps, 100) < LARGEST
