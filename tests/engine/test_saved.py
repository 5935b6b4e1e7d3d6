"""A saved engine is loaded again, and no other: what is sealed and does not fit is damage."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamembed as se
from streamembed.errors import DamagedFileError
from streamembed.methods.engine_parameters import METHODS
from streamembed.storage import archive
from tests.sealed import read_sealed, write_sealed

POINTS = np.random.default_rng(0).standard_normal((133, 3))


@pytest.mark.parametrize(
    "points",
    [np.ones((60, 2)), np.tile([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], (20, 1))],
    ids=["one point", "three points"],
)
def test_landmarks_of_few_different_points_could_not_be_loaded(
    points: np.ndarray, tmp_path: Path
) -> None:
    """Equal points share a landmark: a support may have fewer than there are components."""
    engine = se.Engine(memory="landmarks", size=200, n_components=3)
    engine.learn(points)
    engine.save(tmp_path / "engine")
    loaded = se.Engine.load(tmp_path / "engine")
    assert np.array_equal(loaded.snapshot().coordinates, engine.snapshot().coordinates)


def test_saving_takes_two_copies_of_what_is_saved() -> None:
    """Five of a checkpoint, of Arrow and of Python, were in memory at once."""
    points = np.random.default_rng(0).standard_normal((500, 768))
    archive.to_table({"points": points[:1]})  # imports what it needs
    tracemalloc.start()
    before = pa.default_memory_pool().max_memory()
    data = archive.seal(archive.to_table({"points": points}), "engine", {})
    of_arrow = pa.default_memory_pool().max_memory() - before
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(data) >= points.nbytes
    assert peak + of_arrow < 2.5 * points.nbytes


def edited(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> None:
    """The file with its arrays and its header changed, under a seal that fits."""
    table, header = read_sealed(path, "engine")
    arrays = archive.unpack(table)
    change(arrays, header)
    write_sealed(path, archive.to_table(arrays), "engine", header)


def half_precision(arrays: dict[str, Any], header: dict[str, Any]) -> None:
    degrees = "progress.state.map.degrees"
    arrays[degrees] = arrays[degrees].astype(np.float16)


def another_memory(arrays: dict[str, Any], header: dict[str, Any]) -> None:
    header["config"]["memory"] = "all"


def swapped_births(arrays: dict[str, Any], header: dict[str, Any]) -> None:
    arrays["progress.state.support.births"] = arrays["progress.state.support.births"][::-1].copy()


def events_that_do_not_wait(arrays: dict[str, Any], header: dict[str, Any]) -> None:
    header["progress"]["waiting"]["count"] = -1


def repeated_ids(arrays: dict[str, Any], header: dict[str, Any]) -> None:
    arrays["progress.state.support.ids"][:2] = 7


@pytest.mark.parametrize(
    "change",
    [
        half_precision,
        another_memory,
        swapped_births,
        events_that_do_not_wait,
        repeated_ids,
    ],
)
def test_sealed_states_that_do_not_fit_were_loaded(
    change: Callable[[dict[str, Any], dict[str, Any]], None], tmp_path: Path
) -> None:
    """Some gave certificates that were met and wrong, others raw errors with the next chunk."""
    path = tmp_path / "engine"
    engine = se.Engine(size=90)
    engine.learn(POINTS)
    engine.save(path)
    edited(path, lambda arrays, header: None)
    assert se.Engine.load(path).position == 133  # the seal is not what is refused below
    edited(path, change)
    with pytest.raises(DamagedFileError):
        se.Engine.load(path)


@pytest.mark.parametrize("unit", [1e-101, 1e101])
@pytest.mark.parametrize(
    "method",
    [*METHODS],
)
def test_data_in_any_unit_are_loaded(method: str, unit: float, tmp_path: Path) -> None:
    """A bandwidth chosen beyond the bounds of given ones was saved, and then refused."""
    engine = se.Engine(method, size=40, scaling=None, n_components=1)
    engine.learn(np.random.default_rng(0).standard_normal((50, 3)) * unit)
    engine.save(tmp_path / "engine")
    engine.snapshot().save(tmp_path / "snapshot")
    loaded = se.Snapshot.load(tmp_path / "snapshot")
    np.testing.assert_array_equal(loaded.coordinates, engine.snapshot().coordinates)
    assert se.Engine.load(tmp_path / "engine").position == 50
