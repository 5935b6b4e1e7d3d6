"""What an attacker found in runs; each was silent, or an error of Python's, once."""

from __future__ import annotations

import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamembed as se
from scenarios.fuzz_kills import digest
from streamembed.errors import DamagedFileError, InputError, ParameterError
from streamembed.logs import write_log
from streamembed.online import export, verify
from tests.cli.test_cli import call

POINTS = np.random.default_rng(0).standard_normal((400, 3))
SMALL: dict[str, Any] = {"size": 40, "warm_up": 20, "n_components": 2}
LAST = (
    "DELETE FROM records WHERE chain = '{0}' AND number ="
    " (SELECT max(number) FROM records WHERE chain = '{0}')"
)
WHOLE = "DELETE FROM records WHERE chain = '{0}'", "DELETE FROM chains WHERE chain = '{0}'"


def online(folder: Path) -> Path:
    with se.open_run(folder / "run", SMALL, checkpoint_every=40) as run:
        for i in range(12):
            run.learn(POINTS[i * 10 : i * 10 + 10], batch_id=f"b{i}")
    return folder / "run"


def again(run: Path) -> int:
    """Every batch once more; where the run then stands."""
    with se.open_run(run) as opened:
        for i in range(12):
            opened.learn(POINTS[i * 10 : i * 10 + 10], batch_id=f"b{i}")
        return opened.position


def log_of(path: Path, rows: int = 200) -> Path:
    write_log(path, POINTS[:rows], ["x", "y", "z"], labels=["a", "b"] * (rows // 2))
    return path


def replay(log: Path, run: Path, engine: Any = None, **more: Any) -> se.Replayed:
    made = se.Engine(**{**SMALL, **(engine or {})})
    return se.replay(log, made, run, snapshot_every=20, checkpoint_every=20, **more)


def stopped(log: Path, run: Path, after: int, **more: Any) -> None:
    asked = iter([False] * after + [True] * 99)
    with pytest.raises(KeyboardInterrupt):
        replay(log, run, stop=lambda: next(asked), **more)


def execute(run: Path, *statements: str) -> None:
    connection = sqlite3.connect(run / "run.db")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_no_flip_in_an_index_makes_a_batch_unknown(tmp_path: Path) -> None:
    """One bit in the page of the index of facts, and a retry was learned twice."""
    run = online(tmp_path)
    path = run / "run.db"
    connection = sqlite3.connect(path)
    query = "SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_facts_1'"
    (page,) = connection.execute(query).fetchone()
    connection.close()
    whole, start = path.read_bytes(), (page - 1) * 4096
    refused = 0
    for place in range(start, start + 34):
        for bit in (0, 2, 5, 7):
            for left in run.glob("run.db-*"):
                left.unlink()
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                assert again(run) == 120, (place - start, bit)
            except DamagedFileError:
                refused += 1
    assert refused > 60


@pytest.mark.parametrize(
    "statements",
    [
        ["DELETE FROM facts WHERE name = 'batch b11'"],
        ["DELETE FROM facts WHERE name = 'prefix'"],
        [LAST.format("checkpoints")],
        [one.format("operations") for one in WHOLE],
        [one.format("checkpoints") for one in WHOLE],
        ["DELETE FROM manifest"],
    ],
)
def test_what_is_lost_from_a_run_is_never_gone_on_without(
    tmp_path: Path, statements: list[str]
) -> None:
    """Batches were doubled or gone, and `verify` said that all is well."""
    run = online(tmp_path)
    execute(run, *statements)
    with pytest.raises(DamagedFileError):
        again(run)
    assert verify(run).troubles


@pytest.mark.parametrize("chain", ["checkpoints", "events", "timeline", "rejected"])
def test_what_is_lost_from_a_replay_is_never_gone_on_without(tmp_path: Path, chain: str) -> None:
    """It began anew over the old rows, or left them out."""
    odd = POINTS[:200].copy()
    odd[5, 1] = np.nan
    write_log(tmp_path / "log", odd, ["x", "y", "z"])
    stopped(tmp_path / "log", tmp_path / "run", 4)
    execute(tmp_path / "run", *(one.format(chain) for one in WHOLE))
    with pytest.raises(DamagedFileError, match="were lost"):
        replay(tmp_path / "log", tmp_path / "run")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a forked process is killed")
def test_a_kill_while_the_run_is_created_is_no_obstacle(tmp_path: Path) -> None:
    """The file that had no name yet was taken for another run."""
    log_of(tmp_path / "log")
    for kind in ("replay", "online"):
        child = os.fork()
        if child == 0:

            def die(*_: Any) -> None:
                os.kill(os.getpid(), signal.SIGKILL)

            os.replace = die
            if kind == "replay":
                replay(tmp_path / "log", tmp_path / kind)
            else:
                online(tmp_path)
        os.waitpid(child, 0)
    assert replay(tmp_path / "log", tmp_path / "replay").accepted == 200
    assert online(tmp_path) == tmp_path / "run"


@pytest.mark.parametrize("name", ["embedding.parquet", "timeline.parquet", "snapshot.arrow"])
def test_files_of_a_finished_run_are_those_that_were_written(tmp_path: Path, name: str) -> None:
    """Page checksums leave out footers; missing and swapped files were not looked for."""
    run = replay(log_of(tmp_path / "log"), tmp_path / "run").path
    before, whole = digest(run), (run / name).read_bytes()
    rng = np.random.default_rng(1)
    for at in rng.integers(len(whole) - 1500, len(whole), 20).tolist():
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(8))
        (run / name).write_bytes(damaged)
        assert verify(run).troubles, at
    with pytest.raises(DamagedFileError, match=f"{name} is not what was written"):
        export(run, tmp_path / "out")
    (run / name).unlink()
    assert "is missing" in verify(run).troubles[0].what
    replay(tmp_path / "log", run)
    assert digest(run) == before
    assert not verify(run).troubles


def test_a_run_that_grows_is_not_finished(tmp_path: Path) -> None:
    """Readers had the snapshot of one time, the engine of another and the tables of a third."""
    replay(log_of(tmp_path / "log"), tmp_path / "run")
    log_of(tmp_path / "log", 400)
    stopped(tmp_path / "log", tmp_path / "run", 4)
    with se.read_run(tmp_path / "run") as run:
        assert not run.finished
        assert run.engine().position == run.snapshot().position == run.positions[-1] > 200
        assert run.timeline()["position"].to_pylist()[-1] == run.positions[-1]


def pair_log(path: Path, similar: list[bool]) -> Path:
    sides = {f"{c}_1": POINTS[:30, i] for i, c in enumerate("xyz")}
    sides |= {f"{c}_2": POINTS[30:60, i] for i, c in enumerate("xyz")}
    pq.write_table(pa.table({**sides, "similar": similar}), path)
    return path


def test_a_pair_log_belongs_to_the_run(tmp_path: Path) -> None:
    """Another one was accepted, and a deep verification told of damage without it."""
    log, metrics = log_of(tmp_path / "log"), {"metrics": ("itml",)}
    one = pair_log(tmp_path / "one", [True, False] * 15)
    other = pair_log(tmp_path / "other", [False, True] * 15)
    stopped(log, tmp_path / "run", 3, engine=metrics, pairs=one)
    with pytest.raises(ParameterError, match=r"pairs\.similar was"):
        replay(log, tmp_path / "run", metrics, pairs=other)
    replay(log, tmp_path / "run", metrics, pairs=one)
    assert not verify(tmp_path / "run", deep=True, log=log, pairs=one).troubles
    with pytest.raises(ParameterError, match="the pair log of the replay"):
        verify(tmp_path / "run", deep=True, log=log)


def test_batches_without_events_are_exported(tmp_path: Path) -> None:
    """An empty one had ids of no type."""
    with se.open_run(tmp_path / "run", SMALL) as run:
        run.learn(POINTS[:50])
        run.learn(np.zeros((0, 3)))
        run.learn(POINTS[50:60])
    export(tmp_path / "run", tmp_path / "out")
    assert pq.read_metadata(tmp_path / "out" / "embedding.parquet").num_rows == 60


def test_a_causal_replay_is_exported_before_its_end(tmp_path: Path) -> None:
    """Its rows are committed as they are."""
    stopped(log_of(tmp_path / "log"), tmp_path / "run", 4, embed="causal")
    export(tmp_path / "run", tmp_path / "out")
    table = pq.read_table(tmp_path / "out" / "embedding.parquet")
    assert table.num_rows == 100
    assert "snapshot" in table.column_names


def test_a_log_that_stays_damaged_is_told_again(tmp_path: Path) -> None:
    """The second start met the damage before it had begun."""
    (tmp_path / "log").mkdir()
    write_log(tmp_path / "log" / "a.arrow", POINTS[:100], ["x", "y", "z"])
    write_log(tmp_path / "log" / "b.arrow", POINTS[100:200], ["x", "y", "z"])
    path = tmp_path / "log" / "b.arrow"
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + bytes(396) + whole[400:])
    for _ in range(2):
        assert replay(tmp_path / "log", tmp_path / "run").damage is not None
    path.write_bytes(whole)
    mended = replay(tmp_path / "log", tmp_path / "run")
    assert (mended.damage, mended.accepted) == (None, 200)
    clean = replay(tmp_path / "log", tmp_path / "clean")
    assert digest(mended.path) == digest(clean.path)


def test_checkpoints_of_nothing_new_are_none(tmp_path: Path) -> None:
    """They pushed older snapshots out of the history."""
    with se.open_run(tmp_path / "run", SMALL) as run:
        run.learn(POINTS[:50])
        for _ in range(4):
            run.checkpoint()
        run.learn(POINTS[50:60])
    assert se.read_run(tmp_path / "run").positions == [50, 60]


def test_odd_arguments_are_refused_by_name(tmp_path: Path) -> None:
    """They were errors of Python's."""
    with se.open_run(tmp_path / "run", {**SMALL, "metrics": ("fenn",)}) as run:
        run.learn(POINTS[:50], ["a", "b"] * 25)
        with pytest.raises(ParameterError, match="batch_id="):
            run.learn(POINTS[:5], batch_id="\ud800")
        for ids in (5, (i for i in range(3))):
            with pytest.raises(InputError, match="ids="):
                run.label(ids, ["a"])
        assert run.learn(POINTS[50:60], ["a"] * 10).accepted == 10


def test_a_limit_holds_for_a_finished_run_too(tmp_path: Path) -> None:
    """It was finished already, and nobody looked."""
    odd = POINTS[:200].copy()
    odd[::4, 1] = np.nan
    write_log(tmp_path / "log", odd, ["x", "y", "z"])
    replay(tmp_path / "log", tmp_path / "run")
    with pytest.raises(InputError, match="50 of 200 rows"):
        replay(tmp_path / "log", tmp_path / "run", max_rejected="1%")


def test_runs_of_every_kind_are_inspected(tmp_path: Path) -> None:
    """One that is learned into was called an unfinished replay, to be overwritten."""
    told = call("inspect", online(tmp_path)).stdout
    assert told.startswith("run that is learned into: ")
    assert "committed to event 120" in told
    stopped(log_of(tmp_path / "log"), tmp_path / "replay", 4)
    (tmp_path / "replay" / "timeline.parquet").unlink()
    told = call("inspect", tmp_path / "replay").stdout
    assert told.startswith("unfinished replay: 4 snapshots kept, committed to event 100")
