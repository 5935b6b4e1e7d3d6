"""A folder that grows: the files of a replay of the whole folder, whatever came when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamembed as se
from scenarios.fuzz.kills import digest
from streamembed.errors import FeatureError, ParameterError
from streamembed.logs import follow_log, write_log
from streamembed.runs.verification import verify
from tests.cli.test_cli import call

POINTS = np.random.default_rng(5).standard_normal((600, 3))
POINTS[77, 1] = np.nan
POINTS[400:, 0] += 3.0
NAMES = ["x", "y", "z"]
SMALL: dict[str, Any] = {"size": 60, "warm_up": 40}
FLAGS = ("--size", "60", "--warm-up", "40", "--snapshot-every", "20",
         "--monitor", "--n-reference", "200", "--ert", "1000")  # fmt: skip
FORMATS = ("parquet", "stream", "file")


def write(folder: Path, number: int, hidden: bool = False) -> Path:
    """One of six files of a hundred rows, in turn of every format."""
    folder.mkdir(exist_ok=True)
    rows = slice(100 * number, 100 * (number + 1))
    path = folder / f"{'.' if hidden else ''}day-{number}"
    ids = np.arange(600)[rows]
    write_log(path, POINTS[rows], NAMES, ids, format=FORMATS[number % 3], rows_per_batch=30)
    return path


def replay(log: Any, run: Path, **more: Any) -> se.Replayed:
    return se.replay(log, se.Engine(**SMALL), run, snapshot_every=20, **more)


def take(batches: Iterator[Any], rows: int) -> None:
    """Take batches until so many rows have come."""
    while rows:
        rows -= len(next(batches))


def arrive(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_files_are_learned_as_they_come(tmp_path: Path) -> None:
    """Renamed into place; one has a column more."""
    folder = tmp_path / "log"
    write(folder, 0)
    told: list[int] = []

    def come() -> None:
        for number in range(1, 6):
            time.sleep(0.1)
            write(folder, number, hidden=True).rename(folder / f"day-{number}")
        table = pq.read_table(folder / "day-3")
        table = table.append_column("extra", pa.array(["?"] * len(table)))
        pq.write_table(table, folder / ".day-6")
        (folder / ".day-6").rename(folder / "day-6")

    thread = arrive(come)
    log = follow_log(folder, idle_exit=1.5)
    done = replay(log, tmp_path / "run", progress=told.append)
    thread.join()
    assert (done.accepted, done.rejected, done.damage) == (699, 1, None)
    assert told[0] == 40
    whole = replay(folder, tmp_path / "whole")
    assert digest(done.path) == digest(whole.path)
    assert whole.columns == done.columns
    assert "extra" in done.columns.left_out
    assert not verify(done.path).troubles


def test_a_file_with_an_earlier_name_is_an_error(tmp_path: Path) -> None:
    """Its rows would come before those that are learned. What was learned is kept."""
    folder = tmp_path / "log"
    write(folder, 1)
    write(folder, 3)
    log = follow_log(folder, idle_exit=5)
    batches = log.batches()
    take(batches, 200)
    write(folder, 2)
    with pytest.raises(ParameterError, match=r"has .*day-2 in the place of .*day-3, which was"):
        next(batches)
    (folder / "day-2").unlink()
    batches = log.batches()
    take(batches, 200)
    (folder / "day-1").unlink()
    with pytest.raises(ParameterError, match=r"has .*day-3 in the place of .*day-1"):
        next(batches)


def test_a_half_written_file_is_an_error_and_a_new_start_resumes(tmp_path: Path) -> None:
    """As it ends a replay of the folder; then it is whole, and one more has come."""
    folder = tmp_path / "log"
    write(folder, 0)
    data = write(folder, 1).read_bytes()
    (folder / "day-1").write_bytes(data[: len(data) // 2])
    write(folder, 2)
    followed = replay(follow_log(folder, idle_exit=0.05), tmp_path / "run")
    assert followed.damage is not None
    assert "day-1 (Arrow stream) cannot be read to the end" in followed.damage
    whole = replay(folder, tmp_path / "whole")
    assert (followed.accepted, followed.damage) == (whole.accepted, whole.damage)
    write(folder, 1)
    done = replay(follow_log(folder, idle_exit=0.05), tmp_path / "run")
    assert (done.accepted, done.damage) == (299, None)
    assert digest(done.path) == digest(replay(folder, tmp_path / "whole").path)


def test_what_is_no_growing_log_is_refused(tmp_path: Path) -> None:
    """A file, an empty folder, other columns, labels that come late; options without each other."""
    with pytest.raises(ParameterError, match="must be a folder"):
        follow_log(tmp_path / "nothing")
    folder = tmp_path / "log"
    folder.mkdir()
    with pytest.raises(ParameterError, match="none has come"):
        follow_log(folder, idle_exit=0.02)
    with pytest.raises(ParameterError, match="idle_exit=-1 must be"):
        follow_log(folder, idle_exit=-1)
    with pytest.raises(KeyboardInterrupt):
        follow_log(folder, stop=lambda: True)
    write(folder, 0)
    for name, labels, message in (
        (["x", "y", "w"], None, "missing: "),
        (NAMES, ["a"] * 9, "label"),
    ):
        log = follow_log(folder, idle_exit=0.1)
        batches = log.batches()
        take(batches, 100)
        write_log(folder / "day-1", POINTS[:9], name, range(9), labels)
        with pytest.raises(FeatureError, match=message):
            next(batches)
        (folder / "day-1").unlink()
    for flags, message in (
        (["--idle-exit", "3"], "--idle-exit needs --follow"),
        (["--follow", "--workers", "1"], "--follow conflicts with --workers"),
    ):
        done = call("replay", folder, "--run", tmp_path / "run", *flags)
        assert (done.exit_code, message in done.stderr) == (2, True)
    done = call("replay", folder / "day-0", "--run", tmp_path / "run", "--follow")
    assert (done.exit_code, "one LOG, a folder" in done.stderr) == (2, True)


def start(folder: Path, run: Path, *flags: str) -> subprocess.Popen[str]:
    """The command, in a process of its own."""
    words = ("-m", "streamembed", "replay", folder, "--run", run, "--follow", *FLAGS, *flags)
    return subprocess.Popen(
        [sys.executable, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_rows(run: Path, position: int) -> None:
    """Until that event is committed."""
    for _ in range(600):
        if (run / "run.db").exists():
            with se.read_run(run) as reader:
                if reader.positions and reader.positions[-1] >= position:
                    return
        time.sleep(0.05)
    raise AssertionError(f"event {position} was not committed")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals of POSIX")
def test_signals_end_it_and_kills_do_not(tmp_path: Path) -> None:
    """SIGTERM while it waits: a finished run. The same command goes on, after a kill, too.

    Alarms are printed while it waits, not at the end, which may never come.
    """
    folder, run = tmp_path / "log", tmp_path / "run"
    for number in (0, 1):
        write(folder, number)
    for ending, code, events in ((signal.SIGTERM, 0, 199), (signal.SIGKILL, -9, 399)):
        process = start(folder, run)
        wait_for_rows(run, events // 20 * 20)
        process.send_signal(ending)
        process.communicate(timeout=60)
        assert process.returncode == code
        if ending == signal.SIGTERM:
            with se.read_run(run) as reader:
                assert reader.finished
        for number in (2, 3) if events == 199 else (4, 5):
            write(folder, number)
    process = start(folder, run, "--idle-exit", "1")
    assert process.stderr is not None
    while not (line := process.stderr.readline()).startswith("alarm: "):
        assert line, "it ended"
    assert process.poll() is None
    said = process.communicate(timeout=60)[0]
    assert process.returncode == 0
    assert "resumed at" in said
    call("replay", folder, "--run", tmp_path / "whole", *FLAGS)
    assert digest(run) == digest(tmp_path / "whole")
