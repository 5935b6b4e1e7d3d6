"""The driver: where it stands in the log, and what may stand between it and the recorder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamembed as se
from scenarios.fuzz.interrupts import Breaker
from scenarios.fuzz.kills import digest
from streamembed.errors import DamagedFileError, ParameterError
from streamembed.logs.event_log import write_log
from streamembed.runs.verification import verify
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


@pytest.mark.filterwarnings("ignore::streamembed.errors.ResolutionWarning")
@pytest.mark.parametrize("embed", ["final", "causal"])
@pytest.mark.parametrize("places", [3, pytest.param(150, marks=pytest.mark.long)])
def test_an_interrupt_anywhere_is_followed_by_the_same_files(
    tmp_path: Path, places: int, embed: str
) -> None:
    """Whatever line a watched replay is broken off at, the same call again completes it.

    And the engine has learned the rows before its `log_offset`.
    """
    watched = np.concatenate([POINTS, POINTS + np.array([0.0, 0.0, 4.0])])[:500]
    write_log(tmp_path / "log", watched, ["x", "y", "z"], rows_per_batch=37)

    def run(name: str, taught: se.Engine | None = None) -> tuple[bytes, bytes]:
        taught, monitor = taught or engine("landmarks"), se.Monitor(ert=200, n_reference=100)
        given: dict[str, Any] = {"snapshot_every": 40, "checkpoint_every": 80, "embed": embed}
        se.replay(tmp_path / "log", taught, tmp_path / name, monitor=monitor, **given)
        return taught.to_bytes(), monitor.to_bytes()

    whole, counted = run("whole"), Breaker(None)
    assert b"alarm" in (tmp_path / "whole" / "alarms.jsonl").read_bytes()
    counted.run(lambda: run("counted"))
    generator = np.random.default_rng([places, embed == "causal"])
    for place in generator.choice(counted.count, places, replace=False).tolist():
        broken, taught = Breaker(place + 1), engine("landmarks")
        broken.run(lambda taught=taught: run("run", taught))  # type: ignore[misc]
        assert taught.position == np.isfinite(watched[: taught.log_offset]).all(axis=1).sum()
        assert run("run") == whole, broken.where
        assert digest(tmp_path / "run") == digest(tmp_path / "whole"), broken.where
        assert verify(tmp_path / "run").troubles == (), broken.where
        shutil.rmtree(tmp_path / "run")
