"""The driver: where it stands in the log, and what may stand between it and the recorder."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamembed as se
from scenarios.fuzz.interrupts import Breaker
from streamembed.data.batch import Rejected
from streamembed.errors import DamagedFileError, ParameterError
from streamembed.logs.event_log import open_log, write_distance_log, write_log
from streamembed.runs.driver import ReplayDriver, ReplayOptions
from streamembed.runs.run_tables import EventRows
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


class Kept:
    """A recorder that keeps all in memory and, beside it, an engine for every snapshot."""

    def __init__(self, engine: se.Engine, folder: Path) -> None:
        self.engine, self.folder = engine, folder
        self.said: list[Any] = []
        self.aside: list[int] = []
        self.saved: list[tuple[int, int, Path]] = []  # what was kept by then
        self.save = True

    def write_events(
        self, position: int, rows: EventRows, embedded: Mapping[str, Any] | None
    ) -> None:
        for i in range(len(rows)):
            at = embedded and np.array([values[i] for values in embedded.values()]).tobytes()
            carried = {name: column[i].as_py() for name, column in rows.passthrough.items()}
            key = None if rows.ids is None else rows.ids[i]
            self.said.append(("event", position + i, int(rows.numbers[i]), key, carried, at))

    def write_snapshot(self, snapshot: se.Snapshot, refreshes: int) -> None:
        values = (snapshot.coordinates.tobytes(), snapshot.eigenvalues.tobytes())
        self.said.append(("snapshot", snapshot.position, *values, refreshes))
        if self.save:
            path = self.folder / f"{snapshot.position}.engine"
            self.engine.save(path)
            self.saved.append((len(self.said), len(self.aside), path))

    def is_commit_due(self, position: int) -> bool:
        return False

    def write_rejected(self, rows: Sequence[Rejected]) -> None:
        self.aside += [row.index for row in rows]

    def commit(self, *told: Any) -> None:
        pass

    def close(self, snapshot: se.Snapshot | None) -> None:
        self.said.append(("closed", None if snapshot is None else snapshot.position))


def drive(taught: se.Engine, log: Path, folder: Path, aside: Sequence[int] = ()) -> Kept:
    """The log from where the engine stands, a snapshot every 40 events."""
    folder.mkdir(exist_ok=True)
    kept = Kept(taught, folder)
    ReplayDriver(taught, open_log(log), kept, ReplayOptions(40), rejected=aside).run()
    return kept


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


@pytest.mark.parametrize("kind", ["points", "distances landmarks"])
@pytest.mark.slow
def test_an_interrupt_anywhere_leaves_offset_and_position_together(
    tmp_path: Path, kind: str
) -> None:
    """Wherever a replay is broken off, the rows before `log_offset` are those that were learned."""
    rows = 110
    if kind == "points":
        write_log(tmp_path / "log", POINTS[:rows], ["x", "y", "z"], IDS[:rows], rows_per_batch=37)
    else:
        write_distance_log(tmp_path / "log", DISTANCES[:rows], IDS[:rows], rows_per_batch=37)
    whole = engine(kind)
    set_aside = drive(whole, tmp_path / "log", tmp_path / "whole").aside
    accepted = np.delete(np.arange(rows), set_aside)

    def run(taught: se.Engine, aside: Sequence[int] = ()) -> None:
        kept = Kept(taught, tmp_path)
        kept.save = False
        log = open_log(tmp_path / "log")
        ReplayDriver(taught, log, kept, ReplayOptions(40), rejected=aside).run()

    counted = Breaker(None)
    assert counted.run(lambda: run(engine(kind))) is None
    whole.save(tmp_path / "whole.engine")
    offsets = set()
    for place in np.random.default_rng(2).choice(counted.count, 12, replace=False).tolist():
        taught = engine(kind)
        broken = Breaker(place + 1)
        broken.run(lambda taught=taught: run(taught))  # type: ignore[misc]
        offset = taught.log_offset
        assert taught.position == (accepted < offset).sum(), broken.where
        again = pickle.loads(pickle.dumps(taught))
        run(again, [row for row in set_aside if row < offset])
        again.save(tmp_path / "again.engine")
        same = (tmp_path / "again.engine").read_bytes() == (tmp_path / "whole.engine").read_bytes()
        assert same, broken.where
        offsets.add(offset)
    assert len(offsets) > 4
