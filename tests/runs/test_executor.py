"""A pool of processes: a result a task, and an error where one is killed."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from concurrent.futures import BrokenExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamembed.errors import BadRowError
from streamembed.runs.executor import Executor, PoolExecutor, Task

BIG = 1 << 20  # bytes, many times what a pipe holds


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(error: Exception) -> None:
    error.add_note("a note")
    raise error


def run_all(executor: Any, tasks: list[Task]) -> list[Any]:
    for task in tasks:
        executor.submit(task)
    return [executor.receive() for _ in tasks]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_every_task_has_one_result(folder: Path) -> None:
    """Of two processes; large results are whole."""
    tasks: list[Task] = [partial(bytes, BIG + number) for number in range(8)]
    with closing(PoolExecutor(2)) as executor:
        found = [len(one) for one in run_all(executor, tasks)]
    assert sorted(found) == [BIG + number for number in range(8)]
    assert not [*folder.glob("streamembed-*")]
    assert [len(one) for one in run_all(Executor(), tasks)] == sorted(found)


def test_a_worker_that_is_killed_ends_the_pool(folder: Path) -> None:
    """No process stays, and no file."""
    with (
        closing(PoolExecutor(2)) as executor,
        pytest.raises(BrokenExecutor),
    ):
        run_all(executor, [os.getpid, os.getpid, die, partial(time.sleep, 600)])
    assert not [*folder.glob("streamembed-*")]


def test_errors_of_tasks_are_raised_as_they_are() -> None:
    """With their notes; the pool goes on."""
    with closing(PoolExecutor(1)) as executor:
        executor.submit(partial(fail, BadRowError("row 3", ((3, "why"),))))
        with pytest.raises(BadRowError, match="row 3"):
            executor.receive()
        executor.submit(partial(fail, KeyError("name")))
        with pytest.raises(KeyError, match="name") as caught:
            executor.receive()
        assert caught.value.__notes__ == ["a note"]
        executor.submit(partial(int, "5"))
        assert executor.receive() == 5
