"""A round is a pure task: the same bytes, wherever, whenever and however often it is learned."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scenarios.streams import still_rings
from streamembed.logs.event_log import open_log, write_log
from streamembed.merging.agreement import MergeSettings
from streamembed.methods.options import Config
from streamembed.runs.partition import Partition, PartitionCheckpoint, divide_log, learn_round

NAMES = [f"x{j:02d}" for j in range(16)]
AGREEMENT = MergeSettings(tuple(NAMES), False, (1.0,) * 16, 1.0, None, "position")
CONFIG = Config(size=60, chunk_size=50, warm_up=50, n_components=2, memory="landmarks")


@pytest.fixture
def parts(tmp_path: Path) -> tuple[Partition, ...]:
    """Two partitions of 1,000 and 600 rows; the third row of the second is bad."""
    points = still_rings(1600, 0)
    points[1002, 3] = np.nan
    (tmp_path / "log").mkdir()
    write_log(tmp_path / "log" / "a.arrow", points[:1000], NAMES)
    write_log(tmp_path / "log" / "b.arrow", points[1000:], NAMES)
    return divide_log(open_log(str(tmp_path / "log")))


Round = tuple[int, bytes, list[tuple[int, str]]]


def read(result: Round) -> PartitionCheckpoint:
    return PartitionCheckpoint.from_bytes(result[1])


def learn_all(part: Partition, every: int = 200) -> list[Round]:
    results: list[Round] = []
    while not results or not read(results[-1]).done:
        data = results[-1][1] if results else None
        results.append(learn_round(part, CONFIG, every, AGREEMENT, data))
    return results


def test_rounds_end_at_multiples_and_at_the_end(parts: tuple[Partition, ...]) -> None:
    """No round comes after the last event; each has the rows that were rejected in it."""
    first, second = map(learn_all, parts)
    assert [read(one).covering.position for one in first] == [200, 400, 600, 800, 1000]
    assert [read(one).covering.position for one in second] == [200, 400, 599]
    assert [rejected for _, _, rejected in second] == [[(2, "NaN in 'x03'")], [], []]
    assert [read(one).done for one in second] == [False, False, True]
    assert {number for number, _, _ in second} == {1}


def test_a_round_is_the_same_whenever_it_is_learned(parts: tuple[Partition, ...]) -> None:
    """Alone, again, behind rounds of other partitions: to the byte."""
    first, second = map(learn_all, parts)
    for part, results in zip(reversed(parts), (second, first), strict=True):
        for before, result in reversed([*zip([None, *results], results, strict=False)]):
            data = None if before is None else before[1]
            assert learn_round(part, CONFIG, 200, AGREEMENT, data) == result


def test_only_who_asks_for_a_cluster_imports_one() -> None:
    """Neither the package nor the command that replays by workers brings Ray or Spark."""
    rooms = ("Engine", "open_run", "replay"), ("runs.partitioned", "cli.replay_run")
    program = f"import sys; from streamembed import {', '.join(rooms[0])}\n"
    program += "".join(f"import streamembed.{room}\n" for room in rooms[1])
    program += "print(sorted({'ray', 'pyspark'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
