"""The driver: where it stands in the log, and what may stand between it and the recorder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamembed as se
from streamembed.errors import DamagedFileError, ParameterError
from streamembed.logs.event_log import write_log
from tests.sealed import read_sealed, write_sealed

RNG = np.random.default_rng(11)
N = 330
POINTS = RNG.standard_normal((N, 3))
POINTS[RNG.choice(N, 30, replace=False), 1] = np.nan
IDS = [f"e{i}" for i in range(N)]
for repeated in (17, 44, 101, 102, 260, 329):
    IDS[repeated] = IDS[repeated - 1]
PLACES = RNG.standard_normal((N, 2))
DISTANCES: list[Any] = [np.linalg.norm(PLACES[:t] - PLACES[t], axis=1) for t in range(N)]
for null in (5, 61, 62, 200, 329):
    DISTANCES[null] = None
DISTANCES[90] = -np.ones(90)

ENGINES: dict[str, dict[str, Any]] = {
    "points": {},
    "landmarks": {"memory": "landmarks", "half_life": 90},
    "metrics": {"metrics": ("itml", "discriminant")},
    "distances window": {},
    "distances landmarks": {"memory": "landmarks"},
    "distances all": {"memory": "all"},
}


def engine(kind: str) -> se.Engine:
    fixed = {
        "size": 60,
        "chunk_size": 10,
        "n_components": 2,
        "kernel": "gaussian",
        "bandwidth": 2.0,
    }
    return se.Engine(**{**fixed, **ENGINES[kind]})


def test_every_log_is_counted_from_its_own_first_row(tmp_path: Path) -> None:
    """And an engine that reads none stands at 0."""
    taught = engine("points")
    taught.learn(np.random.default_rng(2).standard_normal((71, 3)))
    assert taught.log_offset == 0
    for rows in (50, 23):
        write_log(
            tmp_path / "log", np.random.default_rng(3).standard_normal((rows, 3)), list("012")
        )
        se.replay(tmp_path / "log", taught, tmp_path / "run", overwrite=True)
        assert taught.log_offset == rows
    taught.learn(np.random.default_rng(4).standard_normal((7, 3)))
    assert taught.log_offset == 23


@pytest.mark.parametrize("value", [-1, 2.5, True, "7", None])
def test_the_offset_is_checked(tmp_path: Path, value: Any) -> None:
    """Where it is set, and in a file."""
    taught = engine("points")
    with pytest.raises(ParameterError, match="log_offset="):
        taught.log_offset = value
    taught.save(tmp_path / "engine")
    table, header = read_sealed(tmp_path / "engine", "engine")
    write_sealed(tmp_path / "engine", table, "engine", {**header, "log_offset": value})
    with pytest.raises(DamagedFileError, match="log_offset"):
        se.Engine.load(tmp_path / "engine")
