"""Kills and failing disks, a little of what `make soak` does; interrupts, growth, other logs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import streamembed as se
from scenarios.fuzz import faults, kills
from streamembed.errors import ParameterError
from streamembed.logs import write_log
from streamembed.runs.run_export import export
from streamembed.runs.run_store import select_retained
from streamembed.runs.verification import verify
from streamembed.storage.database import DATABASE_NAME
from tests.cli.test_cli import call

POINTS = np.random.default_rng(1).standard_normal((300, 3))
SMALL: dict[str, Any] = {"size": 60, "warm_up": 40}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills are of forked processes")
def test_kills_lose_nothing_and_leave_the_same_bytes() -> None:
    """Eight of them, at random instants and within calls; the tally is printed by `make soak`."""
    tally = kills.fuzz(8, 1000)
    assert tally is not None
    assert (tally.kills >= 8, tally.resumed > 0) == (True, True)


@pytest.mark.long
def test_a_failing_disk_loses_nothing() -> None:
    """Every 60th call; all of them by ``python -m scenarios.fuzz.faults``."""
    done = faults.run_with_shim(60)
    if done is None:
        pytest.skip("no C compiler for the shim that makes a disk fail")
    assert done.returncode == 0, done.stderr
    assert "nothing acknowledged was lost" in done.stdout


def log_of(path: Path, rows: int = 300, points: Any = POINTS) -> Path:
    write_log(path, points[:rows], list("abc"), rows_per_batch=23)
    return path


def replay(log: Path, run: Path, **more: Any) -> se.Replayed:
    return se.replay(log, se.Engine(**SMALL), run, snapshot_every=20, **more)


@pytest.mark.parametrize("embed", ["final", "causal"])
def test_a_log_that_has_grown_is_gone_on_with(tmp_path: Path, embed: str) -> None:
    """The files are those of a replay of the whole log; a run that is whole is only read."""
    options = {"embed": embed, "checkpoint_every": 40}
    done = replay(log_of(tmp_path / "log", 170), tmp_path / "run", **options)
    assert (done.accepted, done.resumed_at) == (170, 0)
    again = replay(tmp_path / "log", tmp_path / "run", **options)
    assert (again.accepted, again.resumed_at, again.position) == (170, 170, 170)
    assert again.snapshot is not None
    np.testing.assert_array_equal(again.snapshot.coordinates, done.snapshot.coordinates)  # type: ignore[union-attr]
    log_of(tmp_path / "log")
    grown = replay(tmp_path / "log", tmp_path / "run", **options)
    assert (grown.accepted, grown.resumed_at) == (300, 160)
    with se.read_run(grown.path) as run:
        assert run.snapshot().position == 300
    clean = replay(tmp_path / "log", tmp_path / "clean", **options)
    assert kills.digest(grown.path) == kills.digest(clean.path)
    assert not verify(grown.path).troubles


def test_another_log_is_refused(tmp_path: Path) -> None:
    """Where rows that were learned have changed, or are gone; the column is named."""
    replay(log_of(tmp_path / "log"), tmp_path / "run", checkpoint_every=40)
    changed = POINTS.copy()
    changed[17, 1] += 1e-9
    log_of(tmp_path / "log", points=changed)
    with pytest.raises(ParameterError, match=r"first 300 rows .* differ in points"):
        replay(tmp_path / "log", tmp_path / "run", checkpoint_every=40)
    log_of(tmp_path / "log", 100)
    with pytest.raises(ParameterError, match=r"the log has 100 rows, and .* has learned 300"):
        replay(tmp_path / "log", tmp_path / "run", checkpoint_every=40)


def test_a_replay_is_learned_again_by_a_replay(tmp_path: Path) -> None:
    """Deep checks called sound runs damaged: for another log, left out columns, clusters."""
    run = replay(log_of(tmp_path / "log"), tmp_path / "run").path
    with pytest.raises(ParameterError, match="replay the log into another folder"):
        verify(run, deep=True)
    done = call("verify", run, "--deep")
    assert (done.exit_code, "DAMAGED" in done.output) == (2, False)


def test_stopping_is_asked_for(tmp_path: Path) -> None:
    """At a snapshot: committed, told, and gone on with from there."""
    asked = iter([False, False, True])
    with pytest.raises(KeyboardInterrupt) as told:
        replay(log_of(tmp_path / "log"), tmp_path / "run", stop=lambda: next(asked))
    assert "interrupted at 80 events" in told.value.__notes__[0]
    done = replay(tmp_path / "log", tmp_path / "run")
    clean = replay(tmp_path / "log", tmp_path / "clean")
    assert (done.accepted, done.resumed_at) == (300, 80)
    assert kills.digest(done.path) == kills.digest(clean.path)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_replay_where_it_is_committed(tmp_path: Path, number: int) -> None:
    """With the documented exit code; the same command goes on."""
    points = np.random.default_rng(2).standard_normal((6000, 8))
    write_log(tmp_path / "log", points, list("abcdefgh"), rows_per_batch=500)
    command = [sys.executable, "-m", "streamembed", "replay", str(tmp_path / "log")]
    command += ["--run", str(tmp_path / "run"), "--size", "300", "--snapshot-every", "10"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "run" / DATABASE_NAME).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(number)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 128 + number, told
    with se.read_run(tmp_path / "run") as run:
        assert not run.finished
        position = run.positions[-1] if run.positions else 0
    engine = se.Engine(size=300, on_bad_row="skip")
    done = se.replay(tmp_path / "log", engine, tmp_path / "run", snapshot_every=10)
    assert (done.accepted, done.resumed_at) == (6000, position)


def test_a_run_can_be_forked(tmp_path: Path) -> None:
    """Its last engine begins another; flags of an engine are refused beside it."""
    replay(log_of(tmp_path / "log"), tmp_path / "run", checkpoint_every=40)
    fork = ("replay", tmp_path / "log", "--run", tmp_path / "fork", "--fork", tmp_path / "run")
    done = call(*fork)
    assert "300 events" in done.stdout, done.stderr
    found = se.read_run(tmp_path / "fork")
    assert (found.begun, found.snapshot().position > 300) == (300, True)
    done = call(*fork, "--size", "50", "--overwrite")
    assert (done.exit_code, "--size conflicts with --fork" in done.stderr) == (2, True)


def test_an_unfinished_run_is_exported(tmp_path: Path) -> None:
    """Every committed event by the newest snapshot."""
    asked = iter([False, False, False, True])
    log_of(tmp_path / "log")
    with pytest.raises(KeyboardInterrupt):
        replay(tmp_path / "log", tmp_path / "run", stop=lambda: next(asked))
    files = export(tmp_path / "run", tmp_path / "out")
    assert len(files) == 4
    snapshot = se.Snapshot.load(tmp_path / "out" / "snapshot.arrow")
    table = pq.read_table(tmp_path / "out" / "embedding.parquet")
    assert (table.num_rows, snapshot.position) == (100, 100)
    rows = [dict(zip("abc", row, strict=True)) for row in POINTS[:100].tolist()]
    np.testing.assert_allclose(
        table["diffusion_map_1"].to_numpy(), snapshot.transform(rows)[:, 1], atol=1e-12
    )
    with pytest.raises(ParameterError, match="must be a new folder, or an empty one"):
        export(tmp_path / "run", tmp_path / "out")
    replay(tmp_path / "log", tmp_path / "run")
    with pytest.raises(ParameterError, match="is finished, and its folder has these files"):
        export(tmp_path / "run", tmp_path / "more")


def test_a_configuration_has_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """File, environment, flags: later ones win, and what is unknown is named."""
    log_of(tmp_path / "log")
    file = tmp_path / "my.toml"
    file.write_text('size = 70\nwarm_up = 30\nfeatures = ["a", "c"]\nmetrics = []\n')
    monkeypatch.setenv("STREAMEMBED_WARM_UP", "45")
    flags = ("--config", file, "--n-components", "1")
    replay = ("replay", tmp_path / "log", "--run", tmp_path / "run")
    done = call(*replay, *flags)
    assert done.exit_code == 0, done.stderr
    with se.read_run(tmp_path / "run") as run:
        engine = run.origin["engine"]
        assert (engine["size"], engine["warm_up"], engine["n_components"]) == (70, 45, 1)
        assert run.origin["log"]["features"] == ["a", "c"]
    file.write_text("chunk_sise = 5\n")
    done = call(*replay, *flags)
    assert (done.exit_code, "did you mean 'chunk_size'?" in done.stderr) == (2, True)
    file.write_text("[engine]\nsize = 5\n")
    assert "move its keys to the top level" in call(*replay, *flags).stderr
    file.write_text("size = true\n")
    assert "size = True: the option needs another value" in call(*replay, *flags).stderr
    file.write_text('embed = "causle"\n')
    assert "(from the file of --config)" in call(*replay, *flags).stderr
    file.write_text('method = "difusion_map"\n')
    assert "--method 'difusion_map'" in call(*replay, *flags).stderr
    monkeypatch.setenv("STREAMEMBED_WARM_UP", "soon")
    assert "(from the environment)" in call(*replay).stderr
    monkeypatch.delenv("STREAMEMBED_WARM_UP")
    monkeypatch.setenv("STREAMEMBED_SEDE", "1")
    assert "did you mean 'seed'?" in call(*replay).stderr


@pytest.mark.parametrize("asked", ["soon", "-3", "nans", True, 2.5])
def test_a_cadence_is_events_or_seconds(tmp_path: Path, asked: Any) -> None:
    """And nothing else."""
    with pytest.raises(ParameterError, match="checkpoint_every="):
        se.open_run(tmp_path / "run", checkpoint_every=asked)
    assert not (tmp_path / "run").exists()


def test_a_history_is_thinned_by_age() -> None:
    """About one an octave, the first among them; what is dropped is not wanted later."""
    before: set[int] = set()
    for length in range(1, 300):
        kept = select_retained(length)
        assert kept - {length - 1} <= before
        assert {0, length - 1} <= kept
        assert len(kept) <= 2 + 2 * length.bit_length()
        before = kept
