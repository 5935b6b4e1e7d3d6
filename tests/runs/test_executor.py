"""A pool of processes: what is lost is run again, whatever is killed when."""

from __future__ import annotations

import os
import signal
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from streamembed.errors import BadRowError, StoppedError
from streamembed.runs.executor import PoolExecutor, SerialExecutor, Task

BIG = 1 << 20  # bytes, many times what a pipe holds


def die_once(marker: Path, result: Any) -> Any:
    """Killed by the system at first; then what it was asked for."""
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return result


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
    """Of two processes, of which three tasks each kill one; large results are whole."""
    tasks: list[Task] = [partial(bytes, BIG + number) for number in range(8)]
    tasks += [partial(die_once, folder / f"died{number}", number) for number in range(3)]
    expected = [BIG + number for number in range(8)] + [0, 1, 2]
    with closing(PoolExecutor(2)) as executor:
        found = [one if isinstance(one, int) else len(one) for one in run_all(executor, tasks)]
    assert sorted(found) == sorted(expected)
    assert not [*folder.glob("streamembed-*")]
    plain = run_all(SerialExecutor(), tasks)
    assert [one if isinstance(one, int) else len(one) for one in plain] == expected


def test_a_task_that_always_dies_ends_the_run(folder: Path) -> None:
    """And says what to do; others that come to an end do not count as its own."""
    message = r"workers have died 4 times.*memory\?"
    with closing(PoolExecutor(2)) as executor, pytest.raises(StoppedError, match=message):
        run_all(executor, [os.getpid, os.getpid, die])
    assert not [*folder.glob("streamembed-*")]


def test_errors_of_tasks_are_raised_as_they_are() -> None:
    """Those of this package; others as what they say."""
    with closing(PoolExecutor(2)) as executor:
        executor.submit(partial(fail, BadRowError("row 3", ((3, "why"),))))
        with pytest.raises(BadRowError, match="row 3"):
            executor.receive()
        executor.submit(partial(fail, KeyError("name")))
        with pytest.raises(RuntimeError, match=r"a worker failed: KeyError: 'name' \(a note\)"):
            executor.receive()
        executor.submit(partial(int, "5"))
        assert executor.receive() == 5
