"""The driver: where it stands in the log, and what may stand between it and the recorder."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamembed as se
from scenarios.fuzz.interrupts import Breaker
from streamembed.data.batch import Rejected
from streamembed.errors import DamagedFileError, ParameterError
from streamembed.logs.event_log import EventLog, open_log, write_distance_log, write_log
from streamembed.runs.driver import ReplayDriver
from streamembed.runs.run_store import Commit, RowCounts
from streamembed.runs.run_tables import EventRows
from tests.sealed import read_sealed, write_sealed

RNG = np.random.default_rng(11)
N = 330
POINTS = RNG.standard_normal((N, 3))
POINTS[RNG.choice(N, 30, replace=False), 1] = np.nan
IDS = [f"e{i}" for i in range(N)]
for repeated in (17, 44, 101, 102, 260, 329):
    IDS[repeated] = IDS[repeated - 1]
LABELS = RNG.choice(["a", "b"], N).tolist()
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


def write(path: Path, kind: str) -> None:
    if kind.startswith("distances"):
        write_distance_log(path, DISTANCES, IDS, format="file", rows_per_batch=23)
    else:
        labels = LABELS if kind == "metrics" else None
        write_log(path, POINTS, ["x", "y", "z"], IDS, labels, format="file", rows_per_batch=23)


class Kept:
    """A recorder that keeps all in memory and, beside it, an engine for every snapshot."""

    def __init__(self, engine: se.Engine, folder: Path) -> None:
        self.engine, self.folder, self.store = engine, folder, self
        self.said: list[Any] = []
        self.aside: list[int] = []
        self.known: list[int] = []  # rows that were rejected before
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

    def read_rejected(self, stop: int) -> list[int]:
        return self.known

    def is_due(self, position: int) -> bool:
        return False

    def write_rejected(self, rows: Sequence[Rejected]) -> None:
        self.aside += [row.index for row in rows]

    def commit(self, *told: Any) -> None:
        pass

    def close(self, snapshot: se.Snapshot | None, rest: Iterable[Any]) -> None:
        for events in rest:
            self.write_events(*events)
        self.said.append(("closed", None if snapshot is None else snapshot.position))


def drive(taught: se.Engine, log: Path, folder: Path, aside: Sequence[int] = ()) -> Kept:
    """The log from where the engine stands, a snapshot every 40 events."""
    folder.mkdir(exist_ok=True)
    kept = Kept(taught, folder)
    run(taught, open_log(log), kept, aside)
    return kept


def run(taught: se.Engine, log: EventLog, kept: Kept, aside: Sequence[int]) -> None:
    kept.known = list(aside)
    start = Commit(taught, RowCounts(), {"rows": taught.log_offset})
    ReplayDriver(log, kept, start, 40).run()


@pytest.mark.parametrize("kind", ENGINES)
def test_an_engine_goes_on_at_its_row(tmp_path: Path, kind: str) -> None:
    """Half a log, saved and loaded, and the rest from `log_offset` on: the bytes of one go."""
    write(tmp_path / "log", kind)
    undisturbed = engine(kind)
    se.replay(tmp_path / "log", undisturbed, tmp_path / "whole")
    undisturbed.save(tmp_path / "undisturbed")
    assert undisturbed.log_offset == N

    def stop(rows: int) -> None:
        if rows >= N / 2 and rows % 23 == 0:  # between two batches
            raise KeyboardInterrupt

    half = engine(kind)
    with pytest.raises(KeyboardInterrupt):
        se.replay(tmp_path / "log", half, tmp_path / "half", progress=stop)
    assert half.pending > 0
    assert half.log_offset == 184  # eight batches of 23
    half.save(tmp_path / "saved")
    aside = pa.parquet.read_table(tmp_path / "half" / "rejected.parquet")["offset"].to_pylist()
    loaded = se.Engine.load(tmp_path / "saved")
    assert loaded.log_offset == half.log_offset
    drive(loaded, tmp_path / "log", tmp_path / "rest", aside)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "undisturbed").read_bytes()


@pytest.mark.parametrize("kind", ENGINES)
def test_a_checkpoint_fits_between_driver_and_sink(tmp_path: Path, kind: str) -> None:
    """From the engine of every due snapshot on, the sink is told just what it was told before."""
    write(tmp_path / "log", kind)
    first = drive(engine(kind), tmp_path / "log", tmp_path / "first")
    assert first.aside == sorted(set(first.aside))
    assert len(first.saved) > 6
    for said, set_aside, path in first.saved[:-1:4]:
        loaded = se.Engine.load(path)
        assert loaded.pending == 0
        known = first.aside[:set_aside]
        again = drive(loaded, tmp_path / "log", tmp_path / "again", known)
        assert again.said == first.said[said:], path.name
        assert known + again.aside == first.aside, path.name


def test_a_second_interrupt_comes_through_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the run is being finished: nothing is said of a whole run, and no file stands there."""
    write(tmp_path / "log", "points")

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pa.parquet.ParquetWriter, "close", stop)
    with pytest.raises(KeyboardInterrupt) as caught:
        se.replay(tmp_path / "log", engine("points"), tmp_path / "run", progress=stop)
    assert not getattr(caught.value, "__notes__", [])
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [".lock", "run.db"]


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


def test_a_log_shorter_than_what_was_taken_is_refused(tmp_path: Path) -> None:
    """It is not the log that the engine has read."""
    taught = engine("points")
    write_log(tmp_path / "log", np.random.default_rng(5).standard_normal((80, 3)), list("xyz"))
    se.replay(tmp_path / "log", taught, tmp_path / "run")
    write_log(tmp_path / "log", np.random.default_rng(6).standard_normal((79, 3)), list("xyz"))
    with pytest.raises(ParameterError, match="start=80 must be at most 79"):
        drive(taught, tmp_path / "log", tmp_path / "rest")


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

    def replay(taught: se.Engine, aside: Sequence[int] = ()) -> None:
        kept = Kept(taught, tmp_path)
        kept.save = False
        run(taught, open_log(tmp_path / "log"), kept, aside)

    counted = Breaker(None)
    assert counted.run(lambda: replay(engine(kind))) is None
    whole.save(tmp_path / "whole.engine")
    offsets = set()
    for place in np.random.default_rng(2).choice(counted.count, 12, replace=False).tolist():
        taught = engine(kind)
        broken = Breaker(place + 1)
        broken.run(lambda taught=taught: replay(taught))  # type: ignore[misc]
        offset = taught.log_offset
        assert taught.position == (accepted < offset).sum(), broken.where
        again = pickle.loads(pickle.dumps(taught))
        replay(again, [row for row in set_aside if row < offset])
        again.save(tmp_path / "again.engine")
        same = (tmp_path / "again.engine").read_bytes() == (tmp_path / "whole.engine").read_bytes()
        assert same, broken.where
        offsets.add(offset)
    assert len(offsets) > 4
