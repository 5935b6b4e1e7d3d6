"""What an actor does, without a cluster: the same rounds, wherever and whenever it is made anew."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from scenarios.streams import still_rings
from streamembed.errors import BadRowError
from streamembed.logs.event_log import open_log, write_log
from streamembed.merging.agreement import Agreement
from streamembed.methods.options import Config
from streamembed.runs.partition_host import PartitionHost, summarise_or_fail
from streamembed.runs.partition_learner import PartitionSettings
from streamembed.runs.partition_plan import divide_log
from streamembed.runs.worker_process import PartitionRounds, RoundResult, WorkerFailure, WorkerTask

NAMES = [f"x{j:02d}" for j in range(16)]
AGREEMENT = Agreement(tuple(NAMES), False, (1.0,) * 16, 1.0, None, "position")
SAVED: dict[int, tuple[int, bytes | None]] = {0: (0, None), 1: (0, None)}
CONFIG = Config(size=60, chunk_size=50, warm_up=50, n_components=2, memory="landmarks")
Made = Callable[..., PartitionHost]


@pytest.fixture
def start(tmp_path: Path) -> WorkerTask:
    """Two partitions of 1,000 and 600 rows; the third row of the second is bad."""
    points = still_rings(1600, 0)
    points[1002, 3] = np.nan
    (tmp_path / "log").mkdir()
    write_log(tmp_path / "log" / "a.arrow", points[:1000], NAMES)
    write_log(tmp_path / "log" / "b.arrow", points[1000:], NAMES)
    settings = PartitionSettings(CONFIG, "skip", 200)
    return WorkerTask(divide_log(open_log(str(tmp_path / "log"))), settings)


@pytest.fixture
def made(start: WorkerTask, tmp_path: Path) -> Made:
    """Makes an actor's own object, in the same folder each time."""

    def make(saved: dict[int, tuple[int, bytes | None]] = SAVED) -> PartitionHost:
        return PartitionHost(start, AGREEMENT, saved, str(tmp_path), "own")

    return make


def expected(start: WorkerTask) -> dict[tuple[int, int], RoundResult]:
    """What a worker gives that nothing happens to."""
    tasks, found = PartitionRounds(start, AGREEMENT, SAVED), {}
    while tasks.next_round() is not None:
        told = tasks.step()
        found[told.partition, told.round] = told
    return found


def test_rounds_are_those_of_a_process(start: WorkerTask, made: Made, tmp_path: Path) -> None:
    """To the byte, in any order of the partitions; behind the last there is none."""
    actor, plain = made(), expected(start)
    assert sorted(plain) == [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 1), (1, 2), (1, 3)]
    assert plain[1, 1].rejected == ((2, "NaN in 'x03'"),)
    for key in ((1, 1), (1, 2), (0, 1), (1, 3), (0, 2), (0, 3), (0, 4), (0, 5)):
        assert actor.learn(*key) == plain[key]
    assert actor.learn(1, 4) is None
    assert plain[1, 3].done
    assert len([*(tmp_path / "own").iterdir()]) == 4  # the last two of each
    actor.remove_checkpoints()
    assert not (tmp_path / "own").exists()


@pytest.mark.parametrize("died", range(1, 6))
@pytest.mark.parametrize("behind", [0, 1, 2])
def test_an_actor_made_anew_goes_on(died: int, behind: int, start: WorkerTask, made: Made) -> None:
    """After any round, up to two of which the root never got; it gives these again."""
    plain, known = expected(start), max(died - behind, 0)
    first = made()
    for count in range(1, died + 1):
        first.learn(0, count)
    second = made()  # as Ray does, with what it was made of
    root = {0: (known, plain[0, known].data if known else None)}
    second.resume_from(root)
    for count in range(known + 1, 6):
        assert second.learn(0, count) == plain[0, count]
    assert second.learn(0, 6) is None


@pytest.mark.parametrize("loss", ["all", "newest", "damaged"])
def test_what_its_disk_has_lost_the_root_has(
    loss: str, start: WorkerTask, made: Made, tmp_path: Path
) -> None:
    """On another machine, or of damaged files, it goes on from the root's bytes."""
    plain, first = expected(start), made()
    for count in (1, 2, 3):
        first.learn(0, count)
    files = sorted((tmp_path / "own").iterdir())
    assert [path.name for path in files] == ["00000-000000002.arrow", "00000-000000003.arrow"]
    for path in files if loss == "all" else files[-1:]:
        if loss == "damaged":
            path.write_bytes(path.read_bytes()[:-40])
        else:
            path.unlink()
    second = made()
    second.resume_from({0: (3, plain[0, 3].data)})
    assert second.learn(0, 4) == plain[0, 4]


def test_an_older_round_that_is_lost_is_learned_again(
    start: WorkerTask, made: Made, tmp_path: Path
) -> None:
    """Where nobody told it what the root has: from what it was made of."""
    plain, first = expected(start), made()
    for count in (1, 2, 3):
        first.learn(0, count)
    min((tmp_path / "own").iterdir()).unlink()
    second = made()
    assert second.learn(0, 2) == plain[0, 2]
    assert second.learn(0, 3) == plain[0, 3]
    assert second.learn(0, 4) == plain[0, 4]


def test_own_rounds_are_gone_on_with(start: WorkerTask, made: Made) -> None:
    """Nothing is learned twice: the next round needs no row before the newest checkpoint."""
    plain, first = expected(start), made()
    for count in (1, 2, 3):
        first.learn(0, count)
    second = made()
    assert second._tasks[0].next_round() == 4
    start.parts[0].log.paths[0].write_bytes(b"")  # it can read no more
    assert second.learn(0, 3) == plain[0, 3]
    assert second.learn(0, 2) == plain[0, 2]


def test_errors_are_answers(start: WorkerTask, tmp_path: Path) -> None:
    """Of this package as they are: Ray would wrap them."""
    strict = PartitionSettings(CONFIG, "raise", 200)
    actor = PartitionHost(WorkerTask(start.parts, strict), AGREEMENT, SAVED, str(tmp_path), "own")
    told = actor.learn(1, 1)
    assert isinstance(told, WorkerFailure)
    assert isinstance(told.error, BadRowError)
    found = summarise_or_fail(start)
    assert isinstance(found, dict)
    assert sorted(found) == [0, 1]


def test_only_who_asks_for_a_cluster_imports_one() -> None:
    """Neither the package nor the command that replays by workers brings Ray or Spark."""
    rooms = ("Engine", "open_run", "replay"), ("runs.partitioned", "cli.replay")
    program = f"import sys; from streamembed import {', '.join(rooms[0])}\n"
    program += "".join(f"import streamembed.{room}\n" for room in rooms[1])
    program += "print(sorted({'ray', 'pyspark'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
