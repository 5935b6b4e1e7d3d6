"""Replaying a log into a run folder: what is left, layout after layout, and what goes wrong."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamembed as se
from streamembed.errors import BadRowError, FeatureError, ParameterError
from streamembed.logs.event_log import open_log, write_log

NAMES = ["x", "y", "z"]
POINTS = np.random.default_rng(0).standard_normal((437, 3))
POINTS[[5, 120, 121, 300], 1] = np.nan, np.inf, 1e300, np.nan
IDS = [f"e{i}" for i in range(437)]
IDS[200] = "e199"  # a duplicate within the window
BAD = [5, 120, 121, 200, 300]
STABLE = ("snapshot.arrow", "embedding.parquet", "timeline.parquet", "rejected.parquet")


def engine(**changes: Any) -> se.Engine:
    return se.Engine(**{"size": 120, "chunk_size": 10, "n_components": 3, **changes})


def written(folder: Path, format: str, rows: int, parts: int = 1) -> Path:
    """The same rows as one file, or as a folder of several."""
    if parts == 1:
        write_log(folder, POINTS, NAMES, ids=IDS, format=format, rows_per_batch=rows)
        return folder
    folder.mkdir()
    for i, chosen in enumerate(np.array_split(np.arange(len(POINTS)), parts)):
        ids = [IDS[j] for j in chosen]
        path = folder / f"{i}"
        write_log(path, POINTS[chosen], NAMES, ids=ids, format=format, rows_per_batch=rows)
    return folder


LAYOUTS = [("stream", 7, 1), ("stream", 500, 1), ("file", 64, 1), ("parquet", 100, 1)]
LAYOUTS += [("file", 33, 5), ("parquet", 9, 3), ("stream", 1, 2)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> se.Replayed:
    """The reference: one stream, batches of 50."""
    folder = tmp_path_factory.mktemp("reference")
    return se.replay(written(folder / "log", "stream", 50), engine(), folder / "run")


def test_a_run_counts_what_it_did(run: se.Replayed) -> None:
    """432 of 437 rows are events; 430 make whole chunks."""
    assert (run.accepted, run.learned, run.rejected) == (432, 430, 5)
    assert run.damage is None
    assert run.snapshot is not None
    assert run.snapshot.position == 430


@pytest.mark.parametrize(("format", "rows", "parts"), LAYOUTS)
def test_layouts_leave_no_trace(
    run: se.Replayed, tmp_path: Path, format: str, rows: int, parts: int
) -> None:
    """All files but the database are equal to the byte."""
    other = se.replay(written(tmp_path / "log", format, rows, parts), engine(), tmp_path / "run")
    for name in STABLE:
        assert (other.path / name).read_bytes() == (run.path / name).read_bytes(), name
    with se.read_run(other.path) as reader:
        assert reader.origin["engine"] == {**engine().config.as_dict(), "metrics": []}
        assert reader.finished


def test_a_replay_is_learning(run: se.Replayed) -> None:
    """The final snapshot is that of an engine taught by hand, row by row."""
    by_hand = engine(on_bad_row="skip")
    for i in range(len(POINTS)):
        by_hand.learn([dict(zip(NAMES, POINTS[i].tolist(), strict=True))], ids=[IDS[i]])
    found = se.Snapshot.load(run.path / "snapshot.arrow")
    np.testing.assert_array_equal(found.coordinates, by_hand.snapshot().coordinates)
    np.testing.assert_array_equal(found.ids, by_hand.snapshot().ids)


def test_the_embedding_has_every_event(run: se.Replayed) -> None:
    """In stream order, with ids; the events of the unfinished chunk are not learned, and null."""
    table = pq.read_table(run.path / "embedding.parquet")
    good = [i for i in range(437) if i not in BAD]
    assert table["position"].to_pylist() == list(range(432))
    assert table["id"].to_pylist() == [IDS[i] for i in good]
    assert table["learned"].to_pylist() == [True] * 430 + [False] * 2
    assert table["diffusion_map_0"].null_count == table["coverage"].null_count == 2
    coordinates = np.column_stack([table[f"diffusion_map_{j}"].to_numpy() for j in range(3)])
    assert np.isfinite(coordinates[:430]).all()
    coverage = table["coverage"].to_numpy()[:430]
    assert ((coverage > 0) & (coverage <= 1)).all()


def test_coordinates_may_be_as_of_when_an_event_was_learned(tmp_path: Path) -> None:
    """Those of the first snapshot that had learned it: every hundredth position, and the end."""
    by_hand = engine()
    log = written(tmp_path / "log", "stream", 50)
    done = se.replay(log, engine(), tmp_path / "run", embed="causal")
    table = pq.read_table(done.path / "embedding.parquet")
    assert table["snapshot"].to_pylist()[:52] == [50] * 50 + [100] * 2
    assert table["snapshot"].null_count == table["epoch"].null_count == 2
    timeline = pq.read_table(done.path / "timeline.parquet")
    epochs = dict(zip(timeline["position"].to_pylist(), timeline["epoch"].to_pylist(), strict=True))
    rows = zip(table["snapshot"].to_pylist(), table["epoch"].to_pylist(), strict=True)
    assert all(epochs.get(position) == epoch for position, epoch in rows)
    found = np.column_stack([table[f"diffusion_map_{j}"].to_numpy() for j in range(3)])
    good = np.delete(np.arange(437), BAD)
    before = 0
    for position in (50, 100, 200, 300, 400, 430):
        chosen = good[before:position]
        by_hand.learn(pa.table(dict(zip(NAMES, POINTS[chosen].T, strict=True))), ids=None)
        snapshot = by_hand.snapshot()
        assert snapshot.position == position
        named = dict(zip("xyz", POINTS[chosen].T, strict=True))
        expected = snapshot.transform(pa.table(named))
        np.testing.assert_allclose(found[before:position], expected, rtol=1e-9, atol=1e-12)
        before = position


def test_rejected_rows_say_where_and_why(run: se.Replayed) -> None:
    """Offset in the log, id, reason, in the order of the log."""
    rows = pq.read_table(run.path / "rejected.parquet").to_pylist()
    assert [row["offset"] for row in rows] == BAD
    assert [row["id"] for row in rows] == [IDS[i] for i in BAD]
    reasons = [row["reason"] for row in rows]
    assert reasons[:2] == ["NaN in 'y'", "infinite value in 'y'"]
    assert reasons[3] == "duplicate id"


def test_the_first_bad_row_can_stop_the_replay(tmp_path: Path) -> None:
    """The error names the row; what was learned is written, and a mended log is resumed."""
    log = written(tmp_path / "log", "stream", 60)
    with pytest.raises(BadRowError, match=r"also row 5 \(NaN in 'y'\), .*\(0\)") as refused:
        se.replay(log, engine(), tmp_path / "run", max_rejected=0)
    assert refused.value.rows[0][0] == 5
    good, ids = np.random.default_rng(1).standard_normal((300, 3)), np.arange(300)
    ids[234] = 233
    write_log(tmp_path / "ids", good, NAMES, ids=ids, rows_per_batch=60)
    cadence = {"snapshot_every": 100, "checkpoint_every": 100}
    with pytest.raises(BadRowError, match=r"also row 234 \(duplicate id\)"):
        se.replay(tmp_path / "ids", engine(), tmp_path / "run2", max_rejected=0, **cadence)
    assert pq.read_metadata(tmp_path / "run2" / "embedding.parquet").num_rows >= 230
    write_log(tmp_path / "ids", good, NAMES, ids=np.arange(300), rows_per_batch=60)
    done = se.replay(tmp_path / "ids", engine(), tmp_path / "run2", max_rejected=0, **cadence)
    assert (done.resumed_at, done.accepted) == (200, 300)


def test_a_damaged_log_is_learned_up_to_the_damage(tmp_path: Path) -> None:
    """Whole batches before the cut are learned, the run is whole, and the damage is told."""
    log = written(tmp_path / "log", "stream", 50)
    data = log.read_bytes()
    log.write_bytes(data[: int(0.7 * len(data))])
    done = se.replay(log, engine(), tmp_path / "run")
    assert done.damage is not None
    assert "log" in done.damage
    assert 200 <= done.accepted <= 320
    assert done.snapshot is not None
    assert sorted(path.name for path in done.path.iterdir()) == sorted((*STABLE, "run.db", ".lock"))


def test_a_log_shorter_than_the_warm_up_has_no_snapshot(tmp_path: Path) -> None:
    """Its events are written as not learned; there is no snapshot file, and no error."""
    write_log(tmp_path / "log", POINTS[10:40], NAMES)
    done = se.replay(tmp_path / "log", engine(), tmp_path / "run")
    assert (done.snapshot, done.accepted, done.learned, done.snapshots) == (None, 30, 0, 0)
    assert not (done.path / "snapshot.arrow").exists()
    table = pq.read_table(done.path / "embedding.parquet")
    assert table["learned"].to_pylist() == [False] * 30


def test_the_engine_goes_on_after_a_replay(tmp_path: Path) -> None:
    """Replayed in two logs, one after the other: the same as one log."""
    good = np.delete(POINTS, BAD, axis=0)
    write_log(tmp_path / "a", good[:203], NAMES)
    write_log(tmp_path / "b", good[203:], NAMES)
    write_log(tmp_path / "c", good, NAMES)
    parts, whole = engine(), engine()
    se.replay(tmp_path / "a", parts, tmp_path / "run_a")
    se.replay(tmp_path / "b", parts, tmp_path / "run_b")
    se.replay([tmp_path / "c"], whole, tmp_path / "run_c")
    np.testing.assert_array_equal(parts.snapshot().coordinates, whole.snapshot().coordinates)


def test_a_run_folder_is_not_overwritten_by_chance(tmp_path: Path) -> None:
    """A folder that holds something is refused, unless that was asked for."""
    log = written(tmp_path / "log", "stream", 100)
    se.replay(log, engine(), tmp_path / "run")
    with pytest.raises(ParameterError, match=r"is not empty.* was 100 and is 200"):
        se.replay(log, engine(), tmp_path / "run", snapshot_every=200)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").touch()
    with pytest.raises(ParameterError, match=r"is not empty.* overwrite=True"):
        se.replay(log, engine(), tmp_path / "other")
    se.replay(log, engine(), tmp_path / "run", overwrite=True)
    with pytest.raises(ParameterError, match="is, contains or lies in"):
        se.replay(log, engine(), log)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("opened", [False, True])
def test_a_run_is_not_written_where_its_log_is_read(
    tmp_path: Path, overwrite: bool, opened: bool
) -> None:
    """Its own log was deleted or polluted once: by name, through links; none is touched.

    A folder beside the log is none of its business; one below its folder was accepted once.
    """
    folder = tmp_path / "d"
    folder.mkdir()
    written(folder / "embedding.parquet", "parquet", 100)
    (tmp_path / "symbolic").symlink_to(folder)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "a").symlink_to(folder / "embedding.parquet")
    before = contents(tmp_path)
    file = folder / "embedding.parquet"
    cases = [
        (file, folder),
        (folder, folder),
        (folder, tmp_path / "symbolic"),
        (tmp_path / "links", folder),
        (tmp_path / "links" / "a", tmp_path / "links"),
        (folder, tmp_path),
        (folder, folder / "below" / "run"),
    ]
    for log, run in cases:
        source = open_log(log) if opened else log
        with pytest.raises(ParameterError, match=r"run=.*choose") as caught:
            se.replay(source, engine(), run, overwrite=overwrite)
        assert "from which the log is read" in str(caught.value), (log, run)
        assert contents(tmp_path) == before, (log, run)
    se.replay(file, engine(), folder / "run", overwrite=overwrite)
    se.replay(folder, engine(), folder / ".." / "run", overwrite=overwrite)


def test_an_interrupted_replay_leaves_a_whole_run(tmp_path: Path) -> None:
    """Ctrl-C comes through, after the files are finished; the snapshot was missing once."""
    log = written(tmp_path / "log", "stream", 50)

    def stop(rows: int) -> None:
        if rows >= 250:
            raise KeyboardInterrupt

    taught = engine()
    with pytest.raises(KeyboardInterrupt):
        se.replay(log, taught, tmp_path / "run", progress=stop)
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == sorted((*STABLE, "run.db", ".lock"))
    with se.read_run(tmp_path / "run") as reader:
        assert not reader.finished
    assert pq.read_metadata(tmp_path / "run" / "embedding.parquet").num_rows == taught.position
    found = se.Snapshot.load(tmp_path / "run" / "snapshot.arrow")
    np.testing.assert_array_equal(found.coordinates, taught.snapshot().coordinates)


@pytest.mark.parametrize(("events", "learned"), [(0, 0), (2, 0), (6, 0), (7, 7), (9, 7)])
def test_a_short_log_after_another(tmp_path: Path, events: int, learned: int) -> None:
    """Events that waited before are not counted as its own: `learned` was negative once."""
    good = np.delete(POINTS, BAD, axis=0)
    taught = engine()
    taught.learn(pa.table(dict(zip(NAMES, good[:203].T, strict=True))))
    write_log(tmp_path / "log", good[203 : 203 + events], NAMES)
    done = se.replay(tmp_path / "log", taught, tmp_path / "run")
    assert (done.accepted, done.learned, done.position) == (events, learned, 203 + events)
    assert done.snapshots == (learned > 0)
    table = pq.read_table(done.path / "embedding.parquet")
    assert table["position"].to_pylist() == list(range(203, 203 + events))
    assert table["learned"].to_pylist() == [True] * learned + [False] * (events - learned)


def test_a_log_with_other_features_is_refused(tmp_path: Path) -> None:
    """Columns were mixed up silently once."""
    taught = engine()
    taught.learn(pa.table(dict(zip("abc", POINTS[130:230].T, strict=True))))
    log = written(tmp_path / "log", "stream", 100)
    for given in (log, open_log(log)):
        with pytest.raises(FeatureError):
            se.replay(given, taught, tmp_path / "run")
    with pytest.raises(ParameterError, match="pass them to open_log"):
        se.replay(open_log(log), engine(), tmp_path / "run", features=["x"])
    assert not (tmp_path / "run").exists()
    assert taught.position == 100


def test_features_known_by_place_keep_their_place(tmp_path: Path) -> None:
    """An engine taught arrays has "9" before "10", a log has not; they were mixed up once."""
    points = np.random.default_rng(2).standard_normal((200, 12)) * np.arange(1, 13)
    taught, whole = engine(scaling=None), engine(scaling=None)
    taught.learn(points[:100])
    whole.learn(points)
    write_log(tmp_path / "log", points[100:], [str(j) for j in range(12)])
    done = se.replay(tmp_path / "log", taught, tmp_path / "run")
    assert done.snapshot is not None
    np.testing.assert_array_equal(done.snapshot.coordinates, whole.snapshot().coordinates)


def test_many_rejected_rows_leave_no_trace_of_the_batches(tmp_path: Path) -> None:
    """Pages of the file ended where the log's batches did, once there were enough of them."""
    points = np.full((9000, 3), np.nan)
    points[::90] = np.random.default_rng(3).standard_normal((100, 3))
    ids = [f"{i:07d}" * 40 for i in range(9000)]
    found = set()
    for rows in (70, 1000, 9000):
        write_log(tmp_path / "log", points, NAMES, ids=ids, rows_per_batch=rows)
        done = se.replay(tmp_path / "log", engine(), tmp_path / "run", overwrite=True)
        assert done.rejected == 8900
        found.add((done.path / "rejected.parquet").read_bytes())
    assert len(found) == 1


# -------------------------------------------------------------------------------- labels and times


def labelled(good: np.ndarray, chosen: np.ndarray, **changes: Any) -> pa.Table:
    """Some of the rows with a label, sometimes null, and a time."""
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    columns: dict[str, Any] = dict(zip(NAMES, good[chosen].T, strict=True))
    columns["label"] = pa.array([None if i % 7 == 0 else f"l{i % 5}" for i in chosen])
    times = [start + datetime.timedelta(seconds=int(i)) for i in chosen]
    columns["event_time"] = pa.array(times, pa.timestamp("us", "UTC"))
    return pa.table({**columns, **changes})


def test_labels_and_times_are_carried_through(tmp_path: Path) -> None:
    """To every event its own, nulls too, and how the log was cut leaves no trace in the bytes."""
    everything = np.arange(len(POINTS))
    found = set()
    for parts in (1, 3, 20):
        folder = tmp_path / f"{parts}"
        folder.mkdir()
        for i, chosen in enumerate(np.array_split(everything, parts)):
            table = labelled(POINTS, chosen)
            if i % 2:  # dictionaries are decoded
                table = table.set_column(3, "label", table["label"].dictionary_encode())
            pq.write_table(table, folder / f"{i:02}", row_group_size=[500, 7, 30][i % 3])
        done = se.replay(folder, engine(), tmp_path / f"run{parts}")
        found.add((done.path / "embedding.parquet").read_bytes())
    assert len(found) == 1
    table = pq.read_table(done.path / "embedding.parquet")
    good = [i for i in range(437) if i not in (5, 120, 121, 300)]
    expected = labelled(POINTS, np.array(good))
    for name in ("label", "event_time"):
        assert table[name].type == expected[name].type
        assert table[name].to_pylist() == expected[name].to_pylist()


@pytest.mark.parametrize(
    "label",
    [
        pa.array([0.5] * 437),
        pa.array([[1, 2], None, []] * 145 + [None] * 2),
        pa.array([{"a": 1}] * 437),
        pa.array([b"0123456789abcdef"] * 437, pa.uuid()),
        pa.array([True] * 437),
        pa.nulls(437),
    ],
)
def test_labels_may_be_of_any_type(tmp_path: Path, label: Any) -> None:
    """That Parquet can hold: lists, structs and nothing but nulls among them."""
    pq.write_table(labelled(POINTS, np.arange(437), label=label), tmp_path / "log")
    done = se.replay(tmp_path / "log", engine(), tmp_path / "run")
    found = pq.read_table(done.path / "embedding.parquet")["label"]
    assert found.type == label.type
    assert found.to_pylist()[:5] == label.to_pylist()[:5]


# ------------------------------------------------------------------------- vectors and patterns


def write_vectors(path: Path, points: np.ndarray, **columns: Any) -> None:
    """One fixed-size list column and others."""
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), points.shape[1])
    table = pa.table({"embedding": vectors, **columns})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=33)


def test_a_vector_column_is_learned_as_an_array(tmp_path: Path) -> None:
    """By place, "10" after "9": the state is that of the numpy array, and goes on with arrays."""
    points = np.random.default_rng(4).standard_normal((200, 12)) * np.arange(1, 13)
    write_vectors(tmp_path / "log", points[:150])
    taught, whole = engine(), engine()
    done = se.replay(tmp_path / "log", taught, tmp_path / "run")
    whole.learn(points[:150])
    assert done.snapshot is not None
    assert done.snapshot.feature_names == tuple(str(j) for j in range(12))
    np.testing.assert_array_equal(done.snapshot.coordinates, whole.snapshot().coordinates)
    for one in (taught, whole):
        one.learn(points[150:])
    np.testing.assert_array_equal(taught.snapshot().coordinates, whole.snapshot().coordinates)
    found = se.Snapshot.load(done.path / "snapshot.arrow").transform(points[:3])
    np.testing.assert_array_equal(found, done.snapshot.transform(points[:3]))


def test_all_events_are_embedded_by_the_last_snapshot(run: se.Replayed) -> None:
    """Those of the support as they are in it, all others by its transform; nothing is left over."""
    snapshot = se.Snapshot.load(run.path / "snapshot.arrow")
    table = pq.read_table(run.path / "embedding.parquet")
    found = np.column_stack([table[f"diffusion_map_{j}"].to_numpy() for j in range(3)])[:430]
    np.testing.assert_array_equal(found[-120:], snapshot.coordinates)
    assert table["id"].to_pylist()[310:430] == snapshot.ids.tolist()
    good = np.delete(np.arange(437), BAD)[:310]
    expected = snapshot.transform(pa.table(dict(zip("xyz", POINTS[good].T, strict=True))))
    np.testing.assert_allclose(found[:310], expected, rtol=1e-9, atol=1e-12)
    assert {path.name for path in run.path.iterdir()} == {*STABLE, "run.db", ".lock"}
    with pytest.raises(ParameterError, match="embed='first'"):
        se.replay(written(run.path.parent / "x", "file", 50), engine(), run.path, embed="first")


def test_the_timeline_has_a_row_a_snapshot(run: se.Replayed) -> None:
    """Positions, eigenvalues, certificates, frames, refreshes; no time of a clock."""
    table = pq.read_table(run.path / "timeline.parquet")
    assert table["position"].to_pylist() == [50, 100, 200, 300, 400, 430]
    assert run.snapshots == 6
    assert run.snapshot is not None
    last = table.slice(5).to_pylist()[0]
    assert last["eigenvalue_0"] == run.snapshot.eigenvalues[0]
    assert last["residual"] == run.snapshot.certificate.residual
    assert all(table["met"].to_pylist())
    assert table["resolution"].to_pylist() == [0.0] * 6  # every event has a slot of its own
    assert "seconds" not in table.column_names


def test_snapshots_fit_the_chunks(tmp_path: Path) -> None:
    """snapshot_every is rounded up to whole chunks, and the result says to what."""
    log = written(tmp_path / "log", "stream", 100)
    for wrong in (0, 2.5, -10):
        with pytest.raises(ParameterError, match=f"snapshot_every={wrong} must be"):
            se.replay(log, engine(), tmp_path / "run", snapshot_every=wrong)
    for asked in (15, 20):
        taught = engine()
        done = se.replay(log, taught, tmp_path / "run", snapshot_every=asked, overwrite=True)
        positions = pq.read_table(done.path / "timeline.parquet")["position"].to_pylist()
        assert positions == [50, *range(60, 421, 20), 430]
        assert done.snapshot_every == 20
    done = se.replay(log, engine(chunk_size=32), tmp_path / "run", overwrite=True)
    assert done.snapshot_every == 128
