"""Online runs: what was acknowledged is there, once, whatever happened."""

from __future__ import annotations

import multiprocessing
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamembed as se
from streamembed.errors import (
    FileError,
    InputError,
    MissingFileError,
    NotReadyError,
    ParameterError,
    StoppedError,
)
from streamembed.runs.verification import verify
from streamembed.storage import database
from streamembed.storage.database import Database

POINTS = np.random.default_rng(0).standard_normal((400, 3))
LABELS = np.random.default_rng(0).choice(["a", "b"], 400).tolist()
SMALL: dict[str, Any] = {"size": 60, "warm_up": 40, "n_components": 2}


def bytes_of(engine: se.Engine) -> bytes:
    return engine.to_bytes()


def test_a_run_is_an_engine_that_stays(tmp_path: Path) -> None:
    """Calls of every kind, in several sittings, lead to the bytes of one engine without a run."""
    config = {**SMALL, "metrics": ("fenn",), "on_bad_row": "skip", "picture": True}
    plain = se.Engine(**config)
    odd = POINTS.copy()
    odd[[7, 120], 1] = np.nan
    ids = [f"e{i}" for i in range(400)]
    ids[55] = ids[50]
    for start in range(0, 400, 50):
        rows = slice(start, start + 50)
        with se.open_run(tmp_path / "run", config, checkpoint_every=120) as run:
            mine = run.learn(odd[rows], LABELS[rows], ids=ids[rows])
            theirs = plain.learn(odd[rows], LABELS[rows], ids=ids[rows])
            assert mine == theirs
            if start == 100:
                for one in (run, plain):
                    one.learn_pairs(odd[:4], odd[10:14], [True, False, True, False])
                    one.label(["e101"], ["b"])
                    one.flush()
                    one.relayout()
                    one.rescale()
            assert (run.position, run.ready) == (plain.position, True)
            assert bytes_of(run.engine) == bytes_of(plain)
    found = se.read_run(tmp_path / "run")
    assert found.kind == "online"
    assert found.rejected()["reason"].to_pylist() == [
        *("NaN in '1'", "duplicate id"),
        "NaN in '1'",
    ]
    assert not verify(tmp_path / "run", deep=True).troubles


def test_a_run_that_is_not_finished_has_no_file(tmp_path: Path) -> None:
    """`find_file` of an online run was a KeyError."""
    with se.open_run(tmp_path / "run", SMALL) as run:
        run.learn(np.arange(8.0)[:, None])
    with se.read_run(tmp_path / "run") as reader:
        assert reader.find_file("embedding.parquet") is None


def test_pairs_that_were_acknowledged_are_not_learned_twice(tmp_path: Path) -> None:
    """A second call of the name, in the next process, changes nothing; other pairs are refused."""
    config, similar = {**SMALL, "metrics": ("itml",)}, np.arange(60) % 2 == 0
    for _ in range(2):
        with se.open_run(tmp_path / "run", config) as run:
            run.learn(POINTS[:60], batch_id="events")
            run.learn_pairs(POINTS[:60], POINTS[60:120], similar, batch_id="pairs")
            learned = bytes_of(run.engine)
    twin = se.Engine(**config)
    twin.learn(POINTS[:60])
    twin.learn_pairs(POINTS[:60], POINTS[60:120], similar)
    assert bytes_of(twin) == learned
    with se.open_run(tmp_path / "run") as run:
        with pytest.raises(InputError, match="with other rows"):
            run.learn_pairs(POINTS[:60], POINTS[60:120], ~similar, batch_id="pairs")
        assert (bytes_of(run.engine), run.position) == (learned, 60)


def test_a_batch_that_was_acknowledged_is_not_learned_twice(tmp_path: Path) -> None:
    """A producer that heard nothing tries again, in this process or the next."""
    with se.open_run(tmp_path / "run", SMALL) as run:
        first = run.learn(POINTS[:60], batch_id="one")
        assert run.learn(POINTS[:60], batch_id="one") == first
        assert run.learn(POINTS[60:80], batch_id="two").accepted == 20
    with se.open_run(tmp_path / "run") as run:
        assert run.learn(POINTS[:60], batch_id="one") == first
        assert run.position == 80
        with pytest.raises(InputError, match="batch_id='two' was learned before, and with other"):
            run.learn(POINTS[61:81], batch_id="two")
        with pytest.raises(ParameterError, match="batch_id=''"):
            run.learn(POINTS, batch_id="")
        with pytest.raises(ParameterError, match="batch_id=7"):
            run.learn(POINTS, batch_id=7)  # type: ignore[arg-type]


def test_another_engine_or_another_kind_of_run_is_refused(tmp_path: Path) -> None:
    """By the value that differs; without parameters a run goes on by itself."""
    with se.open_run(tmp_path / "run", se.Engine(**SMALL)) as run:
        run.learn(POINTS[:80])
    with (
        pytest.raises(ParameterError, match=r"engine\.size was 60 and is 70"),
        se.open_run(tmp_path / "run", {**SMALL, "size": 70}),
    ):
        pass
    far = se.Engine(**SMALL)
    far.learn(POINTS[:10])
    with (
        pytest.raises(ParameterError, match="engine has learned 10 events"),
        se.open_run(tmp_path / "run", far),
    ):
        pass
    with se.open_run(tmp_path / "run") as run:
        assert run.position == 80
    se.logs.write_log(tmp_path / "log", POINTS, list("abc"))
    se.replay(tmp_path / "log", se.Engine(**SMALL), tmp_path / "replayed")
    with (
        pytest.raises(ParameterError, match="is a replay of a log"),
        se.open_run(tmp_path / "replayed"),
    ):
        pass
    with pytest.raises(ParameterError, match="online run"):
        se.replay(tmp_path / "log", se.Engine(**SMALL), tmp_path / "run")
    with pytest.raises(MissingFileError, match=r"holds no run\.db"):
        se.read_run(tmp_path)
    with pytest.raises(MissingFileError, match="does not exist"):
        se.read_run(tmp_path / ("x" * 300))


def test_an_engine_that_has_learned_can_begin_a_run(tmp_path: Path) -> None:
    """Its bytes are kept as the beginning."""
    engine = se.Engine(**SMALL)
    engine.learn(POINTS[:100])
    with se.open_run(tmp_path / "run", engine) as run:
        run.learn(POINTS[100:200])
    engine = se.Engine(**SMALL)
    engine.learn(POINTS[:200])
    with se.open_run(tmp_path / "run") as run:
        assert bytes_of(run.engine) == bytes_of(engine)
    assert not verify(tmp_path / "run", deep=True).troubles


def test_one_writes_and_others_read(tmp_path: Path) -> None:
    """A second writer is refused; a reader sees what was committed, while it is written."""
    with se.open_run(tmp_path / "run", SMALL, checkpoint_every=50) as run:
        reader = se.read_run(tmp_path / "run")
        with pytest.raises(NotReadyError, match="no snapshot yet"):
            reader.snapshot()
        run.learn(POINTS[:100])
        assert reader.positions == [100]
        run.learn(POINTS[100:200])
        assert reader.positions == [100, 200]
        assert reader.timeline()["position"].to_pylist() == [100, 200]
        np.testing.assert_array_equal(reader.snapshot().coordinates, run.snapshot().coordinates)
        assert reader.snapshot(100).position == 100
        assert bytes_of(reader.engine()) == bytes_of(run.engine)
        with pytest.raises(ParameterError, match=r"must be one of \[100, 200\]"):
            reader.snapshot(150)
        with pytest.raises(ParameterError, match="another writer"), se.open_run(tmp_path / "run"):
            pass
    with pytest.raises(StoppedError, match="is closed"):
        run.learn(POINTS)
    with pytest.raises(StoppedError, match="opened for reading"), reader._database.commit():
        pass


def test_a_run_is_open_without_a_block(tmp_path: Path) -> None:
    """`open_run` gave an object that could not learn, and nothing was opened or locked."""
    run = se.open_run(tmp_path / "run", SMALL)
    assert isinstance(run, se.Run)
    assert run.learn(POINTS[:60]).accepted == 60
    with pytest.raises(ParameterError, match="another writer"):
        se.open_run(tmp_path / "run")
    with run as same:
        assert same is run
    run.close()
    with pytest.raises(StoppedError, match="is closed"):
        run.learn(POINTS[60:80])
    with se.open_run(tmp_path / "run") as again:
        assert again.position == 60
        again.learn(POINTS[60:80])
        again.__exit__(KeyError, KeyError(), None)
    assert se.read_run(tmp_path / "run").snapshot().position == 80


def test_an_engine_that_learns_past_its_run_stops_it(tmp_path: Path) -> None:
    """It was committed with the next checkpoint, and the run was damaged for ever."""
    with se.open_run(tmp_path / "run", SMALL) as run:
        run.learn(POINTS[:60])
        run.engine.learn(POINTS[:5])
        with pytest.raises(StoppedError, match="its engine was changed past the run"):
            run.learn(POINTS[60:80])
    with se.open_run(tmp_path / "run") as run:
        assert run.position == 60
    assert not verify(tmp_path / "run", deep=True).troubles


def test_after_an_error_of_the_disk_nothing_more_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read on, and opened again it holds what was acknowledged."""

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    with se.open_run(tmp_path / "run", SMALL) as run:
        run.learn(POINTS[:60])
        before = bytes_of(run.engine)
        with monkeypatch.context() as patch:
            patch.setattr(Database, "append", full)
            with pytest.raises(FileError, match="No space left"):
                run.learn(POINTS[60:80])
        with pytest.raises(StoppedError, match="refuses to write after an error"):
            run.learn(POINTS[80:100])
        assert run.snapshot().position == 80
    with se.open_run(tmp_path / "run") as run:
        assert bytes_of(run.engine) == before


def _read(folder: str, told: Any) -> None:
    """Read until told to stop: positions ascend, and snapshots are whole."""
    seen = count = 0
    while not told.is_set():
        with se.read_run(folder) as reader:
            position = reader.snapshot().position
            assert position >= seen
            assert reader.timeline()["position"].to_pylist()[-1] >= seen
            seen, count = position, count + 1
    assert count > 0


def test_readers_see_no_torn_state(tmp_path: Path) -> None:
    """Three processes read while one writes."""
    context = multiprocessing.get_context("fork")
    told = context.Event()
    with se.open_run(tmp_path / "run", SMALL, checkpoint_every=10) as run:
        run.learn(POINTS[:60])
        readers = [
            context.Process(target=_read, args=(str(tmp_path / "run"), told)) for _ in range(3)
        ]
        for reader in readers:
            reader.start()
        for i in range(60, 400, 10):
            run.learn(POINTS[i : i + 10])
        told.set()
        for reader in readers:
            reader.join(60)
    assert [reader.exitcode for reader in readers] == [0, 0, 0]


@pytest.mark.parametrize("seed", range(3))
def test_no_flipped_bit_is_silent(tmp_path: Path, seed: int) -> None:
    """Over the database and the files beside it: found, or without any effect."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "LARGEST_BLOB", 20_000)  # some records are files
        with se.open_run(tmp_path / "run", SMALL, checkpoint_every=100) as run:
            for i in range(0, 400, 50):
                run.learn(POINTS[i : i + 50], batch_id=str(i))
            expected = bytes_of(run.engine)
    files = [tmp_path / "run" / "run.db", *(tmp_path / "run" / "parts").iterdir()]
    assert len(files) > 2
    rng = np.random.default_rng(seed)
    found = harmless = 0
    for _ in range(25):
        path = files[int(rng.integers(len(files)))]
        whole = path.read_bytes()
        at, bit = int(rng.integers(len(whole))), int(rng.integers(8))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        if verify(tmp_path / "run").troubles:
            found += 1
        else:
            with se.read_run(tmp_path / "run") as reader:
                assert bytes_of(reader.engine()) == expected
            harmless += 1
        path.write_bytes(whole)
    assert found > harmless
    assert not verify(tmp_path / "run", deep=True).troubles


def test_a_lost_record_is_seen(tmp_path: Path) -> None:
    """Of whatever chain, in the middle or at the end; and one that was moved."""
    with se.open_run(tmp_path / "run", SMALL, checkpoint_every=100) as run:
        for i in range(0, 400, 50):
            run.learn(POINTS[i : i + 50])
    clean = (tmp_path / "run" / "run.db").read_bytes()
    for chain, number in (("operations", 3), ("operations", 7), ("checkpoints", 3), ("facts", 0)):
        connection = sqlite3.connect(tmp_path / "run" / "run.db")
        statement = f"DELETE FROM records WHERE chain = '{chain}' AND number = {number}"
        if chain == "facts":
            statement = "UPDATE records SET data = CAST('{}' AS BLOB) WHERE chain = 'fact origin'"
        connection.execute(statement)
        connection.commit()
        connection.close()
        troubles = verify(tmp_path / "run").troubles
        assert troubles, chain
        assert chain.rstrip("s") in troubles[0].what
        assert "restore" in troubles[0].remedy
        (tmp_path / "run" / "run.db").write_bytes(clean)


def test_opening_reads_as_much_of_a_long_run_as_of_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every reader read a fact of every batch: 300 ms where 100,000 had been served."""
    steps: list[int] = []
    connect = database.connect

    def count_steps(path: Path, mode: str) -> sqlite3.Connection:
        connection = connect(path, mode)
        connection.set_progress_handler(lambda: steps.append(1), 1)  # an instruction of SQLite
        return connection

    counts = []
    with se.open_run(tmp_path / "run", SMALL) as run:
        run.learn(POINTS[:60], batch_id="first")
        for n in (2, 200):
            for i in range(n):
                run.learn(POINTS[i : i + 1], batch_id=f"served a {n} {i}")
            steps.clear()
            with monkeypatch.context() as patched:
                patched.setattr(database, "connect", count_steps)
                with se.read_run(tmp_path / "run") as reader:
                    assert reader.positions == [60]
            counts.append(len(steps))
        assert len(run.batch_ids("served a 200 ")) == 200
    assert counts[0] > 50
    assert counts[1] < counts[0] + 20
