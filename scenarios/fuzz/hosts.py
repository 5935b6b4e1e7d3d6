"""What a host does to a run that is open: ``python -m scenarios.fuzz.hosts``.

Its lock file is removed and a second writer comes; its folder is deleted, moved, or replaced by
another; memory runs out at any line; the clock jumps; the folder cannot be written to. Whatever was
acknowledged must be there once, in a run that opens again with the bytes of an engine that learned
just that; a call that cannot keep this must raise, and not call a good file damaged. Exit code 1 at
the first that does not; the trial and the seed are printed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import streamembed as se
from scenarios.fuzz.interrupts import Breaker
from scenarios.fuzz.kills import SMALL, digest, replay, write_run_log
from streamembed.errors import StoppedError
from streamembed.runs import run_folder as runfolder
from streamembed.runs import verify
from streamembed.storage import database

POINTS = np.random.default_rng(11).standard_normal((400, 3))
STEP = 20  # events of a batch
NOBODY = 65534


def learn_batches(batches: list[int]) -> bytes:
    """An engine that learned these batches, in their order."""
    engine = se.Engine(**SMALL)
    for number in batches:
        engine.learn(slice_rows(number))
    return engine.to_bytes()


def slice_rows(number: int) -> Any:
    return POINTS[number * STEP : (number + 1) * STEP]


def learn(run: Any, number: int) -> None:
    run.learn(slice_rows(number), batch_id=str(number))


def check(folder: Path, acknowledged: list[int], *perhaps: int) -> str | None:
    """What is wrong with a run that acknowledged so many batches, and perhaps one more."""
    if troubles := verify(folder).troubles:
        return f"verify found {troubles[0].what}"
    with se.open_run(folder, SMALL) as run:
        names = sorted(map(int, run.batch_ids()))
        wanted = [acknowledged, *([*acknowledged, more] for more in perhaps)]
        match = next((expected for expected in wanted if sorted(expected) == names), None)
        if match is None:
            return f"{acknowledged} were acknowledged, {names} are there"
        if run.engine.to_bytes() != learn_batches(match):
            return "the engine has other bytes than its batches lead to"
    return None


def files(folder: Path) -> dict[str, bytes]:
    """Everything in a folder but the index of SQLite, which says nothing of its own."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".db-shm"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def run_in_child(work: Callable[[], object]) -> int:
    """Do it in a process that ends at once, as if it was killed; its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        with suppress(BaseException):
            try:
                work()
                code = 0
            except BaseException:
                traceback.print_exc()
                raise
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_after(folder: Path, batches: int) -> None:
    """Leave the run of a process that was killed."""

    def work() -> None:
        with se.open_run(folder, SMALL, checkpoint_every=60) as run:
            for number in range(batches):
                learn(run, number)
            os.kill(os.getpid(), signal.SIGKILL)

    assert run_in_child(work) == -signal.SIGKILL


# ------------------------------------------------------------------------------- trials


def try_writers(folder: Path, rng: np.random.Generator) -> str | None:
    """Two writers to one run: the lock file was removed, or the system has no locks."""
    run, acknowledged, left = folder / "run", [], list(range(20))
    unlocked = bool(rng.random() < 0.5)
    stopped = 0
    with ExitStack() as stack:
        if unlocked:
            stack.enter_context(mock.patch.object(runfolder, "fcntl", None))
        writers = [stack.enter_context(_open(run))]
        for _ in range(int(rng.integers(0, 4))):
            acknowledged.append(left.pop(0))
            learn(writers[0], acknowledged[-1])
        if not unlocked:
            (run / database.LOCK).unlink()
        writers.append(stack.enter_context(_open(run)))
        for _ in range(int(rng.integers(2, 9))):
            number = left.pop(0)
            try:
                learn(writers[int(rng.integers(2))], number)
                acknowledged.append(number)
            except StoppedError:
                stopped += 1
    return check(run, acknowledged)


@contextmanager
def _open(run: Path) -> Iterator[Any]:
    """A run which may refuse to commit its engine when it is closed."""
    with suppress(StoppedError), se.open_run(run, SMALL, checkpoint_every=60) as online:
        yield online


def _take_away(run: Path, other: Path, how: int) -> str:
    """Delete a run, move it, replace it by another, or delete one of its files."""
    moved = run.with_name("gone")
    if how == 0:
        shutil.rmtree(run)
    elif how in (1, 2):
        run.rename(moved)
        if how == 2:
            other.rename(run)
    elif how == 3:
        run.rename(moved)
        run.symlink_to(other)
    else:
        (run / (database.DATABASE_NAME if how == 4 else f"{database.DATABASE_NAME}-wal")).unlink()
    return ("deleted", "moved", "replaced", "a link", "without run.db", "without a WAL")[how]


def try_place(folder: Path, rng: np.random.Generator) -> str | None:
    """The folder of an open run is not there any more, or is that of another run."""
    run, other = folder / "run", folder / "other"
    die_after(other, 5)
    before, how = files(other), int(rng.integers(6))
    count, at = int(rng.integers(1, 8)), ""
    with suppress(StoppedError), se.open_run(run, SMALL, checkpoint_every=60) as online:
        for number in range(count):
            learn(online, number)
        at = _take_away(run, other, how)
        for number in (count, count - 1):  # new, and acknowledged before
            with suppress(StoppedError):
                learn(online, number)
                return f"batch {number} was acknowledged into a folder that is {at}"
    if how in (2, 3):
        if files(run) != before:
            return f"the run that was put there has other bytes ({at})"
        other = run
    return check(other, [*range(5)]) or (
        check(folder / "gone", [*range(count)]) if how in (1, 2, 3) else None
    )


def try_memory(folder: Path, rng: np.random.Generator) -> str | None:
    """Memory is short at some line of opening, learning and closing, and of loading files."""
    run = folder / "run"
    with se.open_run(run, SMALL, checkpoint_every=60) as online:
        for number in range(4):
            learn(online, number)
        online.engine.save(folder / "engine")
        online.snapshot().save(folder / "snapshot")
    se.Monitor().save(folder / "monitor")
    acknowledged = [*range(4)]

    def learn_more() -> None:
        with se.open_run(run) as online:
            number = len(acknowledged)
            learn(online, number)
            acknowledged.append(number)

    loads: list[Callable[[], object]] = [
        lambda: se.Engine.load(folder / "engine"),
        lambda: se.Snapshot.load(folder / "snapshot"),
        lambda: se.Monitor.load(folder / "monitor"),
        lambda: verify(run),
    ]
    calls = [learn_more, *loads]
    for call in (learn_more, calls[int(rng.integers(len(calls)))]):
        places = Breaker(None)
        saved, acknowledged_before = folder / "saved", [*acknowledged]
        shutil.copytree(run, saved)
        places.run(call)
        if call is learn_more:
            shutil.rmtree(run)
            saved.rename(run)
            acknowledged[:] = acknowledged_before
        else:
            shutil.rmtree(saved)
        for place in rng.integers(1, places.count, 4).tolist():
            error = Breaker(place, MemoryError).run(call)
            if error is not None and not isinstance(error, MemoryError):
                return f"{type(error).__name__} for a MemoryError at place {place}"
            next_one = len(acknowledged)
            if (wrong := check(run, acknowledged, next_one)) is not None:
                return f"{wrong} after a MemoryError at place {place}"
            with se.open_run(run) as online:
                acknowledged[:] = range(len(online.batch_ids()))
    return None


def try_clock(folder: Path, rng: np.random.Generator) -> str | None:
    """Clocks that jump leave no trace: only how often is committed depends on them."""
    log = write_run_log(folder, "points", 1)
    clean = digest(replay(log, folder / "clean", "points").path)
    real, monotonic = time.time, time.monotonic

    def jumps(clock: Callable[[], float]) -> Callable[[], float]:
        return lambda: clock() + float(rng.normal()) * 1e6

    with mock.patch("time.time", jumps(real)), mock.patch("time.monotonic", jumps(monotonic)):
        done = se.replay(log, se.Engine(**SMALL), folder / "run", snapshot_every=20)
        with se.open_run(folder / "online", SMALL) as online:
            for number in range(5):
                learn(online, number)
    if digest(done.path) != clean:
        return "the files of a replay differ"
    return check(folder / "online", [*range(5)])


def try_denied(folder: Path, rng: np.random.Generator) -> str | None:
    """A folder that cannot be written to is refused with its reason, is as it was, and is read."""
    os.chmod(folder, 0o755)
    run, log = folder / "run", write_run_log(folder, "points", 1)
    with se.open_run(run, SMALL) as online:
        learn(online, 0)
        learn(online, 1)
    before = files(run)
    (folder / "empty").mkdir()
    for path in (run, folder / "empty"):
        os.chmod(path, 0o555)

    def work() -> None:
        if os.getuid() == 0:
            os.setuid(NOBODY)  # whom permissions are for
        calls: list[Callable[[], object]] = [
            lambda: se.open_run(run),
            lambda: replay(log, folder / "empty", "points"),
            lambda: replay(log, run, "points"),
        ]
        for call in calls:
            try:
                call()
            except PermissionError:
                pass
            else:
                raise AssertionError("a folder that cannot be written to was written to")
        assert not verify(run).troubles
        with se.read_run(run) as reader:
            assert reader.engine().position == 2 * STEP

    code = run_in_child(work)
    for path in (run, folder / "empty"):
        os.chmod(path, 0o755)
    if code:
        return "a folder that cannot be written to is not refused with its reason, or not read"
    return "it has other bytes" if files(run) != before else check(run, [0, 1])


TRIALS: dict[str, Callable[[Path, np.random.Generator], str | None]] = {
    "writers": try_writers,
    "place": try_place,
    "memory": try_memory,
    "clock": try_clock,
    "denied": try_denied,
}


def fuzz(rounds: int, seed: int, names: tuple[str, ...] = tuple(TRIALS)) -> list[str]:
    """So many rounds of each trial; what went wrong, a line each."""
    wrong = []
    for number in range(seed, seed + rounds):
        for name in names:
            rng = np.random.default_rng([number, list(TRIALS).index(name)])
            folder = Path(tempfile.mkdtemp())
            try:
                problem = TRIALS[name](folder, rng)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            if problem is not None:
                wrong.append(f"{name}, seed {number}: {problem}")
    return wrong


def main(arguments: list[str] | None = None) -> None:
    """Exit code 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trial", choices=list(TRIALS), action="append", help="only this one")
    asked = parser.parse_args(arguments)
    wrong = fuzz(asked.rounds, asked.seed, tuple(asked.trial or TRIALS))
    for line, count in Counter(wrong).items():
        print(line, f"({count})" if count > 1 else "")
    if wrong:
        sys.exit(1)
    print(f"{asked.rounds} rounds of {len(asked.trial or TRIALS)} trials: nothing is wrong")


if __name__ == "__main__":
    main()
