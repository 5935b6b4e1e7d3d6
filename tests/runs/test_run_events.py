"""`RunReader.events`: the events of any run, from its log, its copy or its calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamembed as se
from streamembed.errors import LogError, ParameterError
from streamembed.logs import write_log
from streamembed.runs.verification import verify

RNG = np.random.default_rng(3)
N = 9000  # more than two row groups
POINTS = RNG.standard_normal((N, 4))
POINTS[[7, 4100, 8999], 2] = np.nan
IDS = np.arange(N) + 1000
LABELS = RNG.choice(["a", "b"], N).tolist()
ACCEPTED = np.delete(np.arange(N), [7, 4100, 8999])
SMALL: dict[str, Any] = {"size": 100, "warm_up": 80, "chunk_size": 100}


def write(path: Path, rows: int = N, points: Any = POINTS) -> Path:
    write_log(path, points[:rows], list("wxyz"), IDS[:rows], LABELS[:rows], format="file")
    return path


def replay(log: Any, run: Path, **more: Any) -> se.Replayed:
    return se.replay(log, se.Engine(**SMALL), run, snapshot_every=1000, **more)


def read(run: Path, **more: Any) -> tuple[np.ndarray, np.ndarray, list[Any], list[Any]]:
    """Positions, points, ids and labels of all events."""
    with se.read_run(run) as reader:
        parts = list(reader.events(**more))
    positions = np.concatenate([at + np.arange(len(rows)) for at, rows in parts])
    points = np.concatenate([rows.points for _, rows in parts])
    ids = [key for _, rows in parts for key in rows.ids.tolist()]
    labels = [label for _, rows in parts for label in rows.passthrough["label"].to_pylist()]
    return positions, points, ids, labels


def check(run: Path, count: int, **more: Any) -> None:
    positions, points, ids, labels = read(run, **more)
    accepted = ACCEPTED[:count]
    assert positions.tolist() == list(range(count))
    np.testing.assert_array_equal(points, POINTS[accepted])
    assert ids == IDS[accepted].tolist()
    assert labels == [LABELS[row] for row in accepted]


def test_events_of_a_log_are_read_from_it(tmp_path: Path) -> None:
    """Finished or stopped, where the log is or where it went; nothing of it is copied."""
    log = write(tmp_path / "log")
    done = replay(log, tmp_path / "run")
    check(done.path, len(ACCEPTED))
    asked = iter([False] * 4 + [True])
    with pytest.raises(KeyboardInterrupt):
        replay(log, tmp_path / "stopped", stop=lambda: next(asked))
    check(tmp_path / "stopped", 4000)
    log.rename(tmp_path / "elsewhere")
    with pytest.raises(LogError, match=r"which cannot be read again: .*log is missing"):
        read(tmp_path / "run")
    check(tmp_path / "run", len(ACCEPTED), log=tmp_path / "elsewhere")
    assert "events" not in verify(done.path).checked


def test_a_log_with_other_rows_is_an_error(tmp_path: Path) -> None:
    """Its events are not those of the run; a log that has grown has them."""
    log = write(tmp_path / "log", 8000)
    run = replay(log, tmp_path / "run").path
    write(log)
    check(run, 7998)
    other = POINTS.copy()
    other[5000, 0] += 1e-9
    write(log, points=other)
    with pytest.raises(ParameterError, match=r"the first 8,000 rows .* differ in points"):
        read(run)
    write(log, 7000)
    with pytest.raises(ParameterError, match=r"the log has 7,000 rows, and .* has learned 8,000"):
        read(run)


def test_events_of_calls_are_read_from_them(tmp_path: Path) -> None:
    """Without the rows that were not learned."""
    settings = {**SMALL, "on_bad_row": "skip"}
    with se.open_run(tmp_path / "run", settings) as run:
        for rows in (slice(0, 300), slice(300, 301), slice(301, 700)):
            run.learn(POINTS[rows], ids=IDS[rows])
    with se.read_run(tmp_path / "run") as reader:
        parts = list(reader.events())
    assert [position for position, _ in parts] == [0, 299, 300]
    np.testing.assert_array_equal(
        np.concatenate([rows.points for _, rows in parts]), POINTS[ACCEPTED[:699]]
    )


def test_a_log_that_changes_before_the_end_stops_the_replay(tmp_path: Path) -> None:
    """Its rows are read twice: nothing is written of rows that were never learned."""
    log = write(tmp_path / "log")
    other = POINTS + 1.0

    def change(rows: int) -> None:
        if rows == N:
            (tmp_path / "log").unlink()
            write(log, points=other)

    with pytest.raises(ParameterError, match="differ in points"):
        replay(log, tmp_path / "run", progress=change)
    assert not (tmp_path / "run" / "embedding.parquet").exists()
    log.unlink()
    write(log)
    assert replay(log, tmp_path / "run").accepted == len(ACCEPTED)
