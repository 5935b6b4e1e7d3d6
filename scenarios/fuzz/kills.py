"""kill -9 at random instants, and inside commits: ``python -m scenarios.fuzz.kills``.

A process replays a log, or learns into a run, and is killed; another goes on, and is killed again,
until one comes to the end. What it leaves must be, byte for byte, what an undisturbed one leaves;
and of the batches that were acknowledged none may be lost and none learned twice. Exit code 1 where
that is not so; the seed is printed.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import streamembed as se
from streamembed.logs import follow_log, write_distance_log, write_log
from streamembed.runs.run_folder import FILES
from streamembed.runs.verification import verify
from streamembed.storage import database

N = 400
SMALL: dict[str, Any] = {"size": 60, "warm_up": 40, "chunk_size": 10, "n_components": 2}
KINDS: dict[str, dict[str, Any]] = {
    "points": {},
    "causal": {"embed": "causal"},
    "picture": {"engine": {"picture": True, "method": "laplacian_eigenmaps", "n_neighbors": 5}},
    "landmarks": {"engine": {"memory": "landmarks", "half_life": 90, "metrics": ("fenn",)}},
    "distances": {"distances": True},
    "followed": {"followed": True},  # a folder; the undisturbed replay is of all of it at once
}
# Where a process may kill itself: calls of these, counted together.
HOOKS = ((os, "replace"), (os, "fsync"), (database.Database, "append"), (database, "sync_folder"))


@dataclass
class Tally:
    """What was tried."""

    kills: int = 0
    runs: int = 0
    resumed: int = 0


def write_run_log(folder: Path, kind: str, seed: int) -> Path:
    """A log with rows that cannot be learned among the others."""
    rng = np.random.default_rng(seed)
    path = folder / "log"
    points = rng.standard_normal((N, 3))
    if KINDS[kind].get("distances"):
        rows: list[Any] = [np.linalg.norm(points[:t] - points[t], axis=1) for t in range(N)]
        rows[77] = None
        write_distance_log(path, rows, rows_per_batch=37)
        return path
    points[rng.choice(N, 9, replace=False), 1] = np.nan
    labels = rng.choice(["a", "b"], N).tolist()
    ids = [f"e{i}" for i in range(N)]
    if KINDS[kind].get("followed"):
        path.mkdir()
        for number in range(4):
            part = slice(number * N // 4, (number + 1) * N // 4)
            file = path / f"{number}"
            write_log(file, points[part], ["x", "y", "z"], ids[part], labels[part])
    else:
        write_log(path, points, ["x", "y", "z"], ids, labels, rows_per_batch=37)
    return path


def replay(log: Path, run: Path, kind: str, whole: bool = False) -> se.Replayed:
    """The replay that is killed, with a commit at every snapshot; ``whole`` is without a wait."""
    chosen = KINDS[kind]
    engine = se.Engine(**{**SMALL, **chosen.get("engine", {})})
    embed = chosen.get("embed", "final")
    follows = chosen.get("followed") and not whole
    source = follow_log(log, idle_exit=0.01) if follows else log
    return se.replay(source, engine, run, snapshot_every=20, embed=embed, checkpoint_every=20)


def digest(run: Path) -> str:
    """Of all files that must be the same."""
    found = hashlib.sha256()
    for name in FILES:
        path = run / name
        found.update(name.encode() + (path.read_bytes() if path.exists() else b"none"))
    return found.hexdigest()


def run_until_killed(work: Callable[[], object], rng: np.random.Generator, longest: float) -> bool:
    """Run it in a process that is killed, at an instant or within a call; whether it was."""
    at, hook = rng.uniform(0, longest), int(rng.integers(1, 60))
    inside = bool(rng.random() < 0.5)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if inside:
                _arm(hook)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    if not inside:
        deadline = time.monotonic() + at
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return _was_killed(status)
            time.sleep(0.001)
        os.kill(child, signal.SIGKILL)
    return _was_killed(os.waitpid(child, 0)[1])


def _was_killed(status: int) -> bool:
    if os.WIFSIGNALED(status):
        return True
    if os.WEXITSTATUS(status):
        raise AssertionError(f"the process ended with {os.WEXITSTATUS(status)}")
    return False


def _arm(hook: int) -> None:
    """Die before or after the n-th call of the hooks."""
    left = [hook]

    def armed(call: Callable[..., Any]) -> Callable[..., Any]:
        def calls(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            found = call(*args, **kwargs)
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return calls

    for home, name in HOOKS:
        setattr(home, name, armed(getattr(home, name)))


def try_replay(folder: Path, kind: str, seed: int, tally: Tally) -> str | None:
    """One log, killed until it is whole; what is wrong, if anything is."""
    rng = np.random.default_rng([seed, 1])
    log = write_run_log(folder, kind, seed)
    began = time.monotonic()
    clean = digest(replay(log, folder / "clean", kind, whole=True).path)
    longest = time.monotonic() - began
    tally.runs += 1
    run = folder / "run"
    for _ in range(int(rng.integers(3, 9))):
        if not run_until_killed(lambda: replay(log, run, kind), rng, longest):
            break
        tally.kills += 1
    done = replay(log, run, kind)
    tally.resumed += done.resumed_at > 0
    if troubles := verify(run).troubles:
        return f"verify found {troubles[0].what} ({kind})"
    same = digest(run) == clean
    return None if same else f"the files of the run differ ({kind})"


def try_online(folder: Path, seed: int, tally: Tally) -> str | None:
    """Batches into a run, killed until all are acknowledged; what is wrong, if anything is."""
    rng = np.random.default_rng([seed, 2])
    points = np.random.default_rng(seed).standard_normal((N, 3))
    labels = np.random.default_rng(seed).choice(["a", "b"], N).tolist()
    engine = {**SMALL, "metrics": ("fenn",)}
    cuts = [0, *sorted(rng.choice(np.arange(1, N), 30, replace=False).tolist()), N]
    parts = list(itertools.pairwise(cuts))
    began = time.monotonic()

    def learn(run: Path, acks: Path | None) -> None:
        with se.open_run(run, engine, checkpoint_every=100) as durable_run:
            for number, (start, stop) in enumerate(parts):
                rows = slice(start, stop)
                durable_run.learn(points[rows], labels[rows], batch_id=str(number))
                if acks is not None:
                    with acks.open("a") as file:
                        file.write(f"{stop}\n")

    learn(folder / "clean", None)
    longest = time.monotonic() - began
    with se.open_run(folder / "clean") as durable_run:
        clean = durable_run.engine.to_bytes()
    run, acks = folder / "run", folder / "acks"
    acks.touch()
    tally.runs += 1
    for _ in range(int(rng.integers(3, 9))):
        if not run_until_killed(lambda: learn(run, acks), rng, longest):
            break
        tally.kills += 1
        done = max([0, *map(int, acks.read_text().split())])
        if not (run / database.DATABASE_NAME).exists():
            if done:
                return f"event {done} was acknowledged and the run is missing"
            continue
        with se.open_run(run, engine) as durable_run:  # may be of before its parameters were kept
            if durable_run.position < done:
                return f"event {done} was acknowledged and event {durable_run.position} is the last"
            if durable_run.position not in cuts:
                return f"the run stands at {durable_run.position}, within a batch"
            tally.resumed += durable_run.position > 0
    learn(run, acks)
    with se.open_run(run) as durable_run:
        if durable_run.engine.to_bytes() != clean:
            return "the engine has other bytes"
    return None


def main(arguments: list[str] | None = None) -> None:
    """Exit code 1 at the first thing that is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, add_help=True)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    tally = fuzz(asked.kills, asked.seed)
    if tally is None:
        sys.exit(1)
    print(
        f"{tally.kills} kills of {tally.runs} runs, {tally.resumed} of which went on: 0 lost, 0 "
        "doubled, all byte-identical"
    )


def fuzz(kills: int, seed: int) -> Tally | None:
    """So many kills at least; None where one left something wrong."""
    tally, number = Tally(), seed
    while tally.kills < kills:
        kinds = [*KINDS, "online"]
        kind = kinds[number % len(kinds)]
        folder = Path(tempfile.mkdtemp())
        try:
            online = kind == "online"
            wrong = (
                try_online(folder, number, tally)
                if online
                else try_replay(folder, kind, number, tally)
            )
        except (AssertionError, OSError, ValueError, sqlite3.Error) as error:
            wrong = f"{type(error).__name__}: {error}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if wrong is not None:
            print(f"seed {number}: {wrong}")
            return None
        number += 1
    return tally


if __name__ == "__main__":
    main()
