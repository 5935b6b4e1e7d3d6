"""A cover without a map has the landmarks and masses of an engine, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import streamembed as se
from scenarios.streams import drifting_rings
from streamembed.geometry.scaling import Scaling
from streamembed.landmarks import covering
from streamembed.landmarks.covering import Covering
from streamembed.numeric import codec


@pytest.mark.parametrize("half_life", [None, 300.0])
def test_a_cover_is_the_cover_of_an_engine(half_life: float | None) -> None:
    """Slots, births, masses and nearest neighbours, after every chunk, bit for bit."""
    points = drifting_rings(3000, 0, window=500)
    engine = se.Engine(
        memory="landmarks",
        size=60,
        half_life=half_life,
        scaling=None,
        kernel="gaussian",
        bandwidth=5.0,
        chunk_size=50,
        warm_up=50,
    )
    held = covering.init(points.shape[1])
    for start in range(0, len(points), 50):
        engine.learn(points[start : start + 50])
        state = engine._progress.state
        assert state is not None
        assert state.cover is not None
        scaling = Scaling(state.scaling.center, state.scaling.scale, 1.0)
        held = covering.update(held, points[start : start + 50], scaling, 60, half_life)
        assert held.position == engine.learned
        for name in ("points", "scaled", "births", "masses"):
            ours, theirs = getattr(held.support, name), getattr(state.support, name)
            assert ours.tobytes() == theirs.tobytes(), name
        assert held.cover.nearest.tobytes() == state.cover.nearest.tobytes()
        assert held.cover.nearest_d2.tobytes() == state.cover.nearest_d2.tobytes()


def test_a_cover_is_kept_to_the_bit() -> None:
    """But for what its points are scaled to, which whoever loads it computes."""
    points = np.random.default_rng(0).standard_normal((200, 3))
    scaling = Scaling(np.zeros(3), np.ones(3), 1.0)
    held = covering.update(covering.init(3), points, scaling, 20, 50.0)
    arrays, numbers = codec.pack(held)
    again = codec.unpack(Covering, arrays, numbers)
    assert codec.pack(again)[1] == numbers
    for name, array in codec.pack(again)[0].items():
        assert array.tobytes() == arrays[name].tobytes()


def test_stale_ones_are_light_and_old() -> None:
    """Beside the mean mass of their own cover."""
    masses = np.array([1.0, 0.001, 0.001, 5.0])
    ages = np.array([5000, 5000, 50, 5000])
    assert covering.find_stale(masses, ages, 100).tolist() == [False, True, False, False]
    assert covering.find_stale(masses[:0], ages[:0], 100).tolist() == []
