"""Logs of distances: rows that refer to rows of the log, into engines that hold some of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import streamembed as se
from streamembed.logs.event_log import write_distance_log

N = 237
POINTS = np.random.default_rng(0).standard_normal((N, 3))
D = np.linalg.norm(POINTS[:, None] - POINTS, axis=2)
IDS = [f"e{i}" for i in range(N)]
SIZE = 60
MEMORIES = ("window", "landmarks", "all")
STABLE = ("snapshot.arrow", "embedding.parquet", "rejected.parquet")


def engine(memory: str, **changes: Any) -> se.Engine:
    """With a bandwidth for which 60 landmarks are enough."""
    given = {
        "memory": memory,
        "chunk_size": 10,
        "size": SIZE,
        "n_components": 3,
        "kernel": "gaussian",
        "bandwidth": 4.0,
        **changes,
    }
    return se.Engine(**given)


def rows_of(n: int = N, last: int = N) -> list[Any]:
    """Distances to the rows before, no more than the last so many."""
    return [D[t, max(0, t - last) : t] for t in range(n)]


def replayed(folder: Path, rows: list[Any], taught: se.Engine, **options: Any) -> se.Replayed:
    """The rows as a log, and its run, in a folder."""
    folder.mkdir(exist_ok=True)
    ids = options.pop("ids", None)
    every = options.pop("snapshot_every", None)
    write_distance_log(folder / "log", rows, ids, **options)
    run, log = folder / "run", folder / "log"
    return se.replay(log, taught, run, snapshot_every=every, embed="causal")


def by_hand(memory: str, good: list[int], ids: list[str] | None = None) -> se.Engine:
    """An engine taught the rows of the log that are good, one by one, in its own terms."""
    taught = engine(memory)
    for i, t in enumerate(good):
        before = good[max(0, i - SIZE) : i] if memory == "window" else good[:i]
        taught.learn_distances([D[t, before]], None if ids is None else [ids[t]])
    return taught


def reasons(run: se.Replayed) -> dict[int, str]:
    """Why rows were set aside, by their offset in the log."""
    rows = pq.read_table(run.path / "rejected.parquet").to_pylist()
    return {row["offset"]: row["reason"] for row in rows}


def spoilt() -> tuple[list[Any], list[str], dict[int, str]]:
    """Rows, ids and what is wrong with some of them."""
    rows, ids = rows_of(), list(IDS)
    rows[3] = None
    for bad, value in ((55, np.nan), (56, -1.0), (57, np.inf), (120, np.nan)):
        rows[bad] = rows[bad].copy()
        rows[bad][-10] = value  # to a row that is learned
    rows[130] = D[130, :131]
    ids[140] = "e139"
    return (
        rows,
        ids,
        {
            3: "null in 'distances'",
            55: "NaN",
            56: "negative",
            57: "must be finite",
            120: "NaN",
            130: "it has 131 distances, but only 130 rows precede it",
            140: "duplicate id",
        },
    )


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_replay_is_learning(tmp_path: Path, memory: str) -> None:
    """The final snapshot is that of an engine taught by hand, row by row."""
    done = replayed(tmp_path / "x", rows_of(), engine(memory), ids=IDS)
    assert (done.accepted, done.learned, done.rejected) == (N, 230, 0)
    assert done.snapshot is not None
    expected = by_hand(memory, list(range(N)), IDS).snapshot()
    np.testing.assert_array_equal(done.snapshot.coordinates, expected.coordinates)
    np.testing.assert_array_equal(done.snapshot.ids, expected.ids)


@pytest.mark.parametrize("memory", MEMORIES)
def test_rows_set_aside_count_in_the_log_only(tmp_path: Path, memory: str) -> None:
    """Later rows hold a distance to them, which is dropped; reasons say what was wrong."""
    rows, ids, wrong = spoilt()
    done = replayed(tmp_path / "x", rows, engine(memory), ids=ids)
    found = reasons(done)
    assert sorted(found) == sorted(wrong)
    assert all(wrong[row] in found[row] for row in wrong), found
    expected = by_hand(memory, [t for t in range(N) if t not in wrong], ids).snapshot()
    assert done.snapshot is not None
    np.testing.assert_array_equal(done.snapshot.coordinates, expected.coordinates)
    np.testing.assert_array_equal(done.snapshot.ids, expected.ids)
    table = pq.read_table(done.path / "embedding.parquet")
    assert table["id"].to_pylist() == [ids[t] for t in range(N) if t not in wrong]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("memory", MEMORIES)
def test_any_rows_may_be_missing(tmp_path: Path, memory: str, seed: int) -> None:
    """Whichever rows are set aside, one in three of them, the rest is as if they never were."""
    rng = np.random.default_rng(seed)
    bad = set(rng.choice(N, N // 3, replace=False).tolist())
    rows = [None if t in bad else row for t, row in enumerate(rows_of())]
    done = replayed(tmp_path / "x", rows, engine(memory), rows_per_batch=int(rng.integers(1, 60)))
    assert sorted(reasons(done)) == sorted(bad)
    expected = by_hand(memory, [t for t in range(N) if t not in bad]).snapshot()
    assert done.snapshot is not None
    np.testing.assert_array_equal(done.snapshot.coordinates, expected.coordinates)


def test_rows_may_reach_back_no_further_than_the_window(tmp_path: Path) -> None:
    """Distances to older rows are not looked at: with or without them the run is the same."""
    found = set()
    for k, last in enumerate((SIZE, SIZE + 1, N)):
        rows = rows_of(last=last)
        if last == N:
            rows[100] = rows[100].copy()
            rows[100][:40] = np.nan
        done = replayed(tmp_path / f"{k}", rows, engine("window"))
        assert done.rejected == 0
        found.add(tuple((done.path / name).read_bytes() for name in STABLE))
    assert len(found) == 1


def test_a_row_must_reach_back_to_the_window(tmp_path: Path) -> None:
    """Past the rows that were set aside, too; a reason says how far it reaches and how far it must.

    Rows that reach no further than the window are of no use once one of them is set aside.
    """
    rows = rows_of(last=SIZE + 1)
    rows[70] = None
    rows[100] = rows[100][2:]
    done = replayed(tmp_path / "a", rows, engine("window"))
    found = reasons(done)
    assert found.pop(70) == "null in 'distances'"
    assert found.pop(100) == "it covers only the last 59 rows; it must cover the last 61"
    assert sorted(found) == list(range(101, N))  # none reaches 62 rows back, or more
    rows = rows_of(last=SIZE)
    rows[100] = rows[100][1:]
    done = replayed(tmp_path / "b", rows, engine("window"))
    assert list(reasons(done)) == list(range(100, N))
    assert reasons(done)[100].endswith("the last 60")


def test_a_row_must_reach_back_to_every_landmark(tmp_path: Path) -> None:
    """Else it is set aside; a log whose rows do reach is learned whole."""
    rows = rows_of()
    rows[150] = rows[150][-100:]
    done = replayed(tmp_path / "x", rows, engine("landmarks"), ids=IDS)
    before = by_hand("landmarks", list(range(150)), IDS)
    oldest = before.support_ids.tolist()[0]
    assert reasons(done) == {
        150: f"it covers only the last 100 rows; it must cover the last {150 - int(oldest[1:])}"
    }
    expected = by_hand("landmarks", [t for t in range(N) if t != 150], IDS).snapshot()
    assert done.snapshot is not None
    np.testing.assert_array_equal(done.snapshot.coordinates, expected.coordinates)


# ---------------------------------------------------------------------------------- the embedding


def embedded(run: se.Replayed) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates and coverage of every event that was learned, NaN for null."""
    table = pq.read_table(run.path / "embedding.parquet")
    table = table.filter(table["learned"])
    coordinates = [table[f"diffusion_map_{j}"].to_numpy() for j in range(3)]
    return np.column_stack(coordinates), table["coverage"].to_numpy()


def test_an_event_has_the_coordinates_of_its_slot(tmp_path: Path) -> None:
    """Those of the first snapshot that has learned it, and the coverage that it has there."""
    done = replayed(tmp_path / "x", rows_of(), engine("all"))
    coordinates, coverage = embedded(done)
    before = 0
    taught = engine("all", scaling=None)
    for position in (50, 100, 200, 230):
        taught.learn(POINTS[before:position])
        snapshot = taught.snapshot()
        expected, covered = snapshot.transform_with_coverage(POINTS[before:position])
        found = coordinates[before:position]
        for j in range(3):  # signs are settled by the frame, alike for points and distances
            np.testing.assert_allclose(found[:, j], expected[:, j], atol=5e-3)
        np.testing.assert_allclose(coverage[before:position], covered, rtol=1e-6)
        before = position


def test_an_event_has_the_coordinates_of_its_own_slot(tmp_path: Path) -> None:
    """As of the snapshot that learned it; one that was merged into a landmark has none."""
    done = replayed(tmp_path / "x", rows_of(), engine("landmarks"), snapshot_every=20)
    coordinates, coverage = embedded(done)
    merged = before = 0
    for position in (50, *range(60, 221, 20), 230):
        taught = by_hand("landmarks", list(range(position)))
        snapshot, support = taught.snapshot(), taught.support_positions.tolist()
        for t in range(before, position):
            if t in support:
                own = snapshot.coordinates[support.index(t)]
                np.testing.assert_array_equal(coordinates[t], own)
                continue
            assert np.isnan(coordinates[t]).all()
            assert np.isnan(coverage[t])
            merged += 1
        before = position
    assert merged > 50


@pytest.mark.parametrize("memory", MEMORIES)
def test_labels_and_ids_are_carried(tmp_path: Path, memory: str) -> None:
    """Beside events that have coordinates and those that wait."""
    (tmp_path / "x").mkdir()
    write_distance_log(tmp_path / "log", rows_of(), None, [f"l{t}" for t in range(N)])
    done = se.replay(tmp_path / "log", engine(memory), tmp_path / "run")
    table = pq.read_table(done.path / "embedding.parquet")
    assert table["id"].to_pylist() == list(range(N))
    assert table["label"].to_pylist() == [f"l{t}" for t in range(N)]


# --------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("memory", MEMORIES)
def test_the_engine_goes_on_with_another_log(tmp_path: Path, memory: str) -> None:
    """What it has learned counts as the rows before the first, set aside or not in the logs."""
    rows = rows_of()
    rows[80] = rows[160] = None
    good = [t for t in range(N) if t not in (80, 160)]
    taught = engine(memory)
    replayed(tmp_path / "a", rows[:103], taught)
    # of row 80 the second log knows nothing
    later = [None if row is None else np.delete(row, 80) for row in rows[103:]]
    done = replayed(tmp_path / "b", later, taught)
    assert list(reasons(done)) == [160 - 103]
    expected = by_hand(memory, good).snapshot()
    assert done.snapshot is not None
    np.testing.assert_array_equal(done.snapshot.coordinates, expected.coordinates)
    table = pq.read_table(done.path / "embedding.parquet")
    assert table["position"].to_pylist() == list(range(102, 235))
