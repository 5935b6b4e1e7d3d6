"""Disks that fail: ``python -m scenarios.fuzz.faults``; needs a C compiler and a loader of ELF.

Every write, fsync, rename and open below a run folder fails once, for the n-th call of every n: by
an input or output error, a full disk, a short write. Of learning into a run each call fails in all
three ways; of a replay, which makes five times the calls with the same store, in one of them, in
turn. The process that meets it must say so and go no further, or be untouched by it; what was
acknowledged must be there; and the same again, on a disk that works, must end in the bytes of a run
that met nothing. Exit code 1 where that is not so.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import streamembed as se
from scenarios.fuzz.kills import SMALL, digest, replay, write_run_log
from streamembed.errors import FileError, StoppedError
from streamembed.storage.database import DATABASE_NAME

SOURCE = Path(__file__).with_name("faults.c")
WAYS = {"error": 0, "short": 1, "full": 2}
PARTS = [(0, 60), (60, 110), (110, 200)]


def compile_shim(folder: Path) -> Path | None:
    """The shim as a library; None where nothing here compiles it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    library = folder / "faults.so"
    call = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    return library if done.returncode == 0 else None


def learn(run: Path, acks: Path | None) -> None:
    """Three batches into a run, each acknowledged beside it."""
    import numpy as np  # noqa: PLC0415

    points = np.random.default_rng(3).standard_normal((200, 3))
    with se.open_run(run, SMALL, checkpoint_every=50) as durable_run:
        for number, (start, stop) in enumerate(PARTS):
            durable_run.learn(points[start:stop], batch_id=str(number))
            if acks is not None:
                acks.write_text(str(stop))


def read_final_state(run: Path) -> bytes:
    with se.open_run(run) as durable_run:
        return durable_run.engine.to_bytes()


def meet_fault(work: object, below: Path, n: int, way: int) -> tuple[bool, int]:
    """Whether a process that met the n-th fault went no further, and how many calls it made."""
    pipe_reader, pipe_writer = os.pipe()
    child = os.fork()
    if child == 0:
        shim = ctypes.CDLL(None)
        shim.faults_seen.restype = ctypes.c_long
        shim.faults_arm(os.fsencode(below), ctypes.c_long(n), way)
        code = 0
        try:
            work()  # type: ignore[operator]
        except (OSError, FileError, StoppedError):
            code = 3
        except BaseException as error:
            print(f"call {n}: {type(error).__name__}: {error}", file=sys.stderr)
            code = 1
        count_seen = shim.faults_seen()
        shim.faults_arm(b"", ctypes.c_long(-1), 0)
        os.write(pipe_writer, str(count_seen).encode())
        os._exit(code)
    os.close(pipe_writer)
    status = os.waitpid(child, 0)[1]
    count_seen = int(os.read(pipe_reader, 20) or 0)
    os.close(pipe_reader)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, 3):
        raise AssertionError(f"fault {n} ended with {code}")
    return code == 3, count_seen


def try_all(folder: Path, step: int) -> tuple[int, int]:
    """Every step-th call of both scenarios; number of faults, and of reported errors."""
    log = write_run_log(folder, "points", 1)
    clean = digest(replay(log, folder / "clean", "points").path)
    learn(folder / "well", None)
    well = read_final_state(folder / "well")
    faults = reported = 0
    run, acks = folder / "run", folder / "acks"
    works = {True: lambda: learn(run, acks), False: lambda: replay(log, run, "points")}
    for online, work in works.items():
        shutil.rmtree(run, ignore_errors=True)
        _, calls = meet_fault(work, run, 0, 0)  # none fails
        ways = list(WAYS.values())
        tried = [(n, way) for n in range(1, calls + 1, step) for way in ways]
        if not online:
            tried = [(n, way) for n, way in tried if way == ways[n % len(ways)]]
        for n, way in tried:
            shutil.rmtree(run, ignore_errors=True)
            acks.write_text("0")
            faults += 1
            reported += meet_fault(work, run, n, way)[0]
            if online:
                check(run, int(acks.read_text()), n)
                learn(run, None)
                right = read_final_state(run) == well
            else:
                right = digest(replay(log, run, "points").path) == clean
            if not right:
                raise AssertionError(f"after fault {n} ({way}) the run has other bytes")
    return faults, reported


def check(run: Path, acknowledged: int, n: int) -> None:
    """What was acknowledged is there, and at most one batch more."""
    if not (run / DATABASE_NAME).exists():
        if acknowledged:
            raise AssertionError(f"after fault {n} the run is gone")
        return
    with se.open_run(run, SMALL) as durable_run:
        ends = [0, *(stop for _, stop in PARTS)]
        if durable_run.position not in ends[ends.index(acknowledged) :][:2]:
            raise AssertionError(
                f"fault {n}: {acknowledged} were acknowledged, {durable_run.position} are there"
            )


def run_with_shim(step: int) -> subprocess.CompletedProcess[str] | None:
    """This module in a process with the shim; None where it cannot be compiled."""
    with tempfile.TemporaryDirectory() as folder:
        library = compile_shim(Path(folder))
        if library is None:
            return None
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "scenarios.fuzz.faults", "--step", str(step)],
            env={**os.environ, "LD_PRELOAD": str(library), "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )


def main() -> None:
    """Exit code 1 at the first thing that is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", type=int, default=1, help="try every so many-th call")
    asked = parser.parse_args()
    if not hasattr(ctypes.CDLL(None), "faults_arm"):
        done = run_with_shim(asked.step)
        if done is None:
            print("skipped: no C compiler for the shim that makes a disk fail")
            return
        sys.stdout.write(done.stdout)
        sys.stderr.write(done.stderr)
        sys.exit(done.returncode)
    with tempfile.TemporaryDirectory() as folder:
        faults, reported = try_all(Path(folder), asked.step)
    print(
        f"{faults} faults, {reported} of which ended the process with an error: nothing "
        "acknowledged was lost, all runs went on to the same bytes"
    )


if __name__ == "__main__":
    main()
