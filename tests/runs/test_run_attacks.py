"""What an attacker found in runs; each was silent, or an error of Python's, once."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import streamembed as se
from scenarios.fuzz.kills import digest
from streamembed.errors import (
    DamagedFileError,
    DeniedFileError,
    InputError,
    ParameterError,
    StoppedError,
)
from streamembed.logs import write_log
from streamembed.runs import export, run_folder, verify
from streamembed.storage import database
from streamembed.storage.database import DATABASE_NAME, Database
from tests.cli.test_cli import call

POINTS = np.random.default_rng(0).standard_normal((400, 3))
SMALL: dict[str, Any] = {"size": 40, "warm_up": 20, "n_components": 2}
LAST = (
    "DELETE FROM records WHERE chain = '{0}' AND number ="
    " (SELECT max(number) FROM records WHERE chain = '{0}')"
)
WHOLE = "DELETE FROM records WHERE chain = '{0}'"


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
    """One bit in the page of the index of names, and a retry was learned twice."""
    run = online(tmp_path)
    path = run / "run.db"
    connection = sqlite3.connect(path)
    query = "SELECT rootpage FROM sqlite_master WHERE name = 'names'"
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
    "statement",
    [
        LAST.format("operations"),
        "DELETE FROM records WHERE chain = 'fact committed'",
        LAST.format("checkpoints"),
        WHOLE.format("operations"),
        WHOLE.format("checkpoints"),
        "DELETE FROM lengths",
    ],
)
def test_what_is_lost_from_a_run_is_never_gone_on_without(tmp_path: Path, statement: str) -> None:
    """Batches were doubled or gone, and `verify` said that all is well."""
    run = online(tmp_path)
    execute(run, statement)
    with pytest.raises(DamagedFileError):
        again(run)
    assert verify(run).troubles


@pytest.mark.parametrize("chain", ["checkpoints", "timeline", "rejected"])
def test_what_is_lost_from_a_replay_is_never_gone_on_without(tmp_path: Path, chain: str) -> None:
    """It began anew over the old rows, or left them out."""
    odd = POINTS[:200].copy()
    odd[5, 1] = np.nan
    write_log(tmp_path / "log", odd, ["x", "y", "z"])
    stopped(tmp_path / "log", tmp_path / "run", 4)
    execute(tmp_path / "run", WHOLE.format(chain))
    with pytest.raises(DamagedFileError, match=r"(is|were) lost"):
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
    fault = f"{name} is not what was written"
    with se.read_run(run) as reader, pytest.raises(DamagedFileError, match=fault):
        reader.find_file(name)
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
        damage = replay(tmp_path / "log", tmp_path / "run").damage
        with se.read_run(tmp_path / "run") as reader:  # it was called unfinished, without checksums
            assert (reader.finished, reader.damage) == (True, damage)
        assert damage is not None
        assert "embedding.parquet" in verify(tmp_path / "run").checked
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
            with pytest.raises(InputError, match=r"^ids is "):
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
    """An online run was called an unfinished replay, to be overwritten."""
    told = call("inspect", online(tmp_path)).stdout
    assert told.startswith("online run: ")
    assert "120 events, 0 rejected" in told.splitlines()[0]
    stopped(log_of(tmp_path / "log"), tmp_path / "replay", 4)
    (tmp_path / "replay" / "timeline.parquet").unlink()
    told = call("inspect", tmp_path / "replay").stdout
    assert told.startswith("unfinished replay: 100 events, 0 rejected; 5 snapshots, ")


def learn(run: Any, number: int) -> None:
    run.learn(POINTS[number * 30 : number * 30 + 30], batch_id=str(number))


def contents(run: Path) -> tuple[int, list[str]]:
    """Where a sound run stands, and its batches."""
    assert not verify(run, deep=True).troubles
    with se.open_run(run) as opened:
        return opened.position, sorted(opened.batch_ids())


def test_a_writer_removed_the_lock_of_another(tmp_path: Path) -> None:
    """When it ended, so that a third could come."""
    run = tmp_path / "run"
    with ExitStack() as stack:
        with suppress(StoppedError), se.open_run(run, SMALL):
            (run / ".lock").unlink()
            stack.enter_context(se.open_run(run))
        with pytest.raises(ParameterError, match="another writer"), se.open_run(run):
            pass


def digest_of(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_a_run_that_is_put_back_goes_on(tmp_path: Path) -> None:
    """Nothing was learned while its folder was away."""
    run = tmp_path / "run"
    with se.open_run(run, SMALL) as opened:
        learn(opened, 0)
        run.rename(tmp_path / "away")
        with pytest.raises(StoppedError):
            learn(opened, 1)
        (tmp_path / "away").rename(run)
        learn(opened, 1)
    assert contents(run) == (60, ["0", "1"])


def test_commits_and_readers_of_its_own_stop_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints of the write-ahead log, and readers that come and go, change its files too."""
    connect = database.connect

    def often(path: Path, mode: str) -> sqlite3.Connection:
        connection = connect(path, mode)
        connection.execute("PRAGMA wal_autocheckpoint=3")
        return connection

    monkeypatch.setattr(database, "connect", often)
    run = tmp_path / "run"
    with se.open_run(run, SMALL, checkpoint_every=60) as opened:
        for number in range(12):
            learn(opened, number)
            with se.read_run(run) as reader:
                assert reader.kind == "online"
            assert not verify(run).troubles
    assert contents(run)[0] == 360


def test_a_folder_deleted_at_the_end_of_a_block_was_told_of_a_call(tmp_path: Path) -> None:
    """Only the exit was running, so there is no call of which nothing is committed."""
    run = se.open_run(tmp_path / "run", SMALL)
    learn(run, 0)
    shutil.rmtree(run.path)
    with pytest.raises(StoppedError, match="nothing since the last commit is written"), run:
        pass


@pytest.mark.parametrize("replaced", [False, True])
def test_a_replay_ended_well_in_a_folder_that_was_gone(tmp_path: Path, replaced: bool) -> None:
    """It stops, and writes no table into what is there now."""
    write_log(tmp_path / "log", POINTS, list("abc"), rows_per_batch=50)
    run, other = tmp_path / "run", online(tmp_path / "other")
    before = digest_of(other)

    def take_away(rows: int) -> None:
        if rows >= 200 and not (tmp_path / "gone").exists():
            run.rename(tmp_path / "gone")
            if replaced:
                other.rename(run)

    with pytest.raises(StoppedError, match="was removed or replaced"):
        se.replay(tmp_path / "log", se.Engine(**SMALL), run, progress=take_away)
    assert (digest_of(run) if replaced else not run.exists()) == (before if replaced else True)
    se.replay(tmp_path / "log", se.Engine(**SMALL), tmp_path / "gone")


def test_a_run_follows_no_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path is that of when it was opened, for large records too."""
    monkeypatch.setattr(database, "LARGEST_BLOB", 500)
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with se.open_run("run", SMALL) as run:
        learn(run, 0)
        monkeypatch.chdir(tmp_path / "there")
        learn(run, 1)
    assert contents(tmp_path / "here" / "run") == (60, ["0", "1"])
    assert not any((tmp_path / "there").iterdir())


def test_a_batch_that_leads_to_another_event_is_found(tmp_path: Path) -> None:
    """Its checksums are right, as where another program has made it."""
    run = online(tmp_path)
    with database.Database.open(run, writes=True) as store, store.commit():
        last = store.read("operations", store.count_records("operations") - 1)
        store.append("operations", last.position, last.data)
    (trouble,) = verify(run, deep=True).troubles
    assert "batch 12" in trouble.what
    assert "leads to event 130, not 120" in trouble.what
    with pytest.raises(DamagedFileError, match="leads to event 130, not 120"):
        se.open_run(run)


def test_the_report_of_the_database_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its raw text was the message; a sentence says whose report it is."""
    run = online(tmp_path)
    report = "On tree page 313 cell 0: invalid page number"
    with monkeypatch.context() as patched:
        patched.setattr(database.Database, "check", lambda _: [report])
        (trouble,) = verify(run).troubles
    assert trouble.what == (
        "database: SQLite reports of its structure: 'On tree page 313 cell 0: invalid page number'"
    )
    (run / DATABASE_NAME).write_bytes(bytes(5000))
    with pytest.raises(DamagedFileError, match='SQLite reports "file is not a database"'):
        se.open_run(run)


def test_a_file_beside_that_cannot_be_read_was_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one that is lost is."""
    monkeypatch.setattr(database, "LARGEST_BLOB", 500)
    run = online(tmp_path)

    def denied(self: Path) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    with database.Database.open(run) as store:
        with monkeypatch.context() as patched:
            patched.setattr(Path, "read_bytes", denied)
            with pytest.raises(DeniedFileError):
                store.read("operations", 0)
        (run / database.PARTS / "operations-00000000").unlink()
        with pytest.raises(DamagedFileError, match="is lost"):
            store.read("operations", 0)


FULL_DISK = """
import resource, shutil, signal, sys
import streamembed as se
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log, run = sys.argv[1:]
for limit in range(12288, 65536, 4096):
    shutil.rmtree(run, ignore_errors=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        se.replay(log, se.Engine(size=40, warm_up=20), run)
    except OSError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 24, resource.RLIM_INFINITY))
        print(error)
"""


def test_a_first_write_that_failed_was_called_a_failed_read(tmp_path: Path) -> None:
    """SQLite makes files beside the database when it is first read, and the disk is full."""
    arguments = [log_of(tmp_path / "log"), tmp_path / "run"]
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, *map(str, arguments)], capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) > 5, done.stderr
    assert not [line for line in lines if "cannot be read" in line]


def test_a_commit_reads_the_lengths_of_chains_once(tmp_path: Path) -> None:
    """However many records it has; they were read and written for each."""
    statements: list[str] = []
    with Database.create(tmp_path) as database:
        database._connection.set_trace_callback(statements.append)
        with database.commit():
            for number in range(5):
                assert database.append("a", 0, b"data") == number
                database.write_fact("b", number)
            assert database.count_records("a") == 5
        asked = [line.split()[0] for line in statements if "lengths" in line]
        assert asked == ["SELECT", "UPDATE"]
        assert (database.count_records("a"), database.read_fact("b")) == (5, 4)


@pytest.mark.parametrize("winner", [0, 1])
def test_writers_without_locks_see_the_records_of_each_other(
    tmp_path: Path, winner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the system has none, the second commit fails: its last record is not the run's."""
    monkeypatch.setattr(run_folder, "fcntl", None)
    run = tmp_path / "run"
    with suppress(StoppedError), se.open_run(run, SMALL) as one:
        learn(one, 0)
        with se.open_run(run) as other:
            writers = one, other
            learn(writers[winner], 1)
            with pytest.raises(StoppedError, match="another writer has written"):
                learn(writers[1 - winner], 2)
            with pytest.raises(StoppedError, match="another writer has written"):
                learn(writers[1 - winner], 3)
            if winner == 0:
                learn(one, 4)
    assert contents(run) == ((90, ["0", "1", "4"]) if winner == 0 else (60, ["0", "1"]))
