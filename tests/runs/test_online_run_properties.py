"""Random calls into a run, with every kind of bad value: the engine without a run is the oracle."""

from __future__ import annotations

import itertools
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamembed as se
from streamembed.errors import StreamembedError
from streamembed.runs.verification import verify

SEEDS = st.integers(min_value=0, max_value=2**32 - 1)
BAD = (np.nan, np.inf, -np.inf, 1e308, 5e-324, -1e200)
CONFIGS: dict[str, dict[str, Any]] = {
    "points": {"on_bad_row": "skip"},
    "raise": {"on_bad_row": "raise", "chunk_size": 16},
    "metrics": {"on_bad_row": "skip", "metrics": ("fenn", "itml")},
    "landmarks": {"on_bad_row": "skip", "memory": "landmarks", "half_life": 50},
    "picture": {"method": "laplacian_eigenmaps", "n_neighbors": 5, "picture": True},
}


def batch(rng: np.random.Generator, before: Any) -> Any:
    """Mostly points; also none, duplicates, bad values, tiny ones, other widths, ragged rows."""
    kind = str(rng.choice(["points"] * 4 + ["empty", "bad", "again", "tiny", "wide", "ragged"]))
    points: Any = rng.standard_normal((int(rng.integers(1, 30)), 3))
    if kind == "bad":
        points[rng.integers(len(points)), rng.integers(3)] = rng.choice(BAD)
    if kind == "again" and before is not None:
        return before
    if kind == "wide":
        return rng.standard_normal((4, int(rng.choice([1, 2, 4]))))
    if kind == "ragged":
        return [[1.0, 2.0, 3.0], [1.0], []]
    return {"empty": points[:0], "tiny": points * 1e-310}.get(kind, points)


def outcome(call: Any) -> Any:
    """What a call gives, or how it was refused; nothing but errors of the package is expected."""
    try:
        return call()
    except StreamembedError as error:
        return type(error), str(error)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::streamembed.errors.ScalingWarning")
@pytest.mark.parametrize("kind", CONFIGS)
@settings(max_examples=8, deadline=None)
@given(seed=SEEDS)
def test_a_run_is_its_engine_whatever_it_is_given(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    config = {"size": 50, "warm_up": 30, "n_components": 2, **CONFIGS[kind]}
    plain = se.Engine(**config)
    before, keys = None, itertools.count()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        for _ in range(int(rng.integers(2, 5))):
            with se.open_run(path, config, checkpoint_every=int(rng.integers(1, 90))) as run:
                assert run.engine.to_bytes() == plain.to_bytes()
                for _ in range(int(rng.integers(1, 9))):
                    given_ = batch(rng, before)
                    y = None if kind != "metrics" else rng.choice(["a", "b"], len(given_)).tolist()
                    key = str(next(keys))
                    mine = outcome(partial(run.learn, given_, y, batch_id=key))
                    theirs = outcome(partial(plain.learn, given_, y))
                    before = given_
                    assert repr(mine) == repr(theirs)
                if rng.random() < 0.3:
                    assert outcome(run.flush) == outcome(plain.flush)
        sound(plain)
        assert verify(path, deep=True).troubles == ()


def sound(engine: se.Engine) -> None:
    """All that is published is finite, and metrics are positive semidefinite."""
    if not engine.ready:
        return
    snapshot = engine.snapshot()
    assert np.isfinite(snapshot.coordinates).all()
    assert np.isfinite(snapshot.eigenvalues).all()
    for metric in snapshot.metrics.values():
        eigenvalues = np.linalg.eigvalsh(metric.matrix)
        assert eigenvalues.min() >= -1e-9 * max(eigenvalues.max(), 1e-300)
