"""Tasks of Ray: the bytes of the process run, whoever is killed when; one cluster for all."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenarios.streams import still_rings
from streamembed import ray as on_ray
from streamembed.errors import ParameterError
from streamembed.logs.event_log import write_log
from streamembed.runs.executor import Task
from streamembed.runs.log_replay import Replayed
from streamembed.runs.partitioned import replay_partitions

ROOT = Path(__file__).resolve().parents[2]
NAMES = [f"x{j:02d}" for j in range(16)]
FILES = ("snapshot.arrow", "landmarks.arrow", "timeline.parquet", "rejected.parquet")
FIXED: dict[str, Any] = {
    "size": 60,
    "n_components": 3,
    "chunk_size": 50,
    "scaling": "standard",
    "kernel": "gaussian",
    "snapshot_every": 200,
}
# That a process dies before a round, and after it; four times in a row of one round: 1 in 20,000.
CHANCE = 0.043
NEEDED = pytest.mark.skipif(on_ray.ray is None, reason="Ray is not installed: the extra [ray]")
pytestmark = pytest.mark.filterwarnings("ignore::streamembed.errors.ResolutionWarning")


def test_without_ray_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And how to go without."""
    monkeypatch.setattr(on_ray, "ray", None)
    with pytest.raises(ParameterError, match=r'pip install "streamembed\[ray\]"; without a clus'):
        on_ray.replay(tmp_path, tmp_path / "run")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Ray on this machine, two workers at a time."""
    on_ray.ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        _node_ip_address="127.0.0.1",
        runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
    )
    yield
    on_ray.ray.shutdown()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of 1,000, 600 and 400 rows, two of them bad."""
    folder = tmp_path_factory.mktemp("log")
    points = still_rings(2000, 0)
    points[[30, 1500], 3] = np.nan
    for name, rows in (("a", slice(1000)), ("b", slice(1000, 1600)), ("c", slice(1600, 2000))):
        write_log(folder / f"{name}.arrow", points[rows], NAMES)
    return folder


@pytest.fixture(scope="module")
def expected(log: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What `replay --workers` gives, of one process as of several."""
    run = tmp_path_factory.mktemp("plain") / "run"
    replay_partitions(str(log), run, workers=1, **FIXED)
    return files_of(run)


def files_of(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in FILES}


def replayed(log: Path, run: Path, **changes: Any) -> Replayed:
    return on_ray.replay(log, run, **{"workers": 2, **FIXED, **changes})


@NEEDED
@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_tasks_give_the_bytes_of_processes(
    log: Path, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tasks at once of three partitions; paths are those of the folder of the caller."""
    monkeypatch.chdir(log.parent)
    done = replayed(Path(log.name), tmp_path / "run")
    assert (done.partitions, done.learned, done.rejected) == (3, 1998, 2)
    assert files_of(tmp_path / "run") == expected
    again = replayed(log, tmp_path / "run", workers=None)  # nothing is left to be done
    assert (again.resumed_at, again.learned) == (2000, 1998)


def die(_: Task) -> Any:
    """A process that is killed by the system whatever it is to run."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_times(task: Task) -> Any:
    """The task, in a process that may be killed by the system before it or after it."""
    chances = np.random.default_rng().random(2)  # of its own each time, or it would always die
    if chances[0] < CHANCE:
        os.kill(os.getpid(), signal.SIGKILL)
    result = task()
    if chances[1] < CHANCE:
        os.kill(os.getpid(), signal.SIGKILL)
    return result


@NEEDED
@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    "repeat", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 10))]
)
def test_kill_9_of_tasks_at_any_moment(
    repeat: int,
    log: Path,
    expected: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One in twelve processes of rounds: Ray learns these again, to the same bytes."""
    monkeypatch.setattr(on_ray, "run_task", die_at_times)
    done = replayed(log, tmp_path / f"run{repeat}")
    assert done.learned == 1998
    assert files_of(tmp_path / f"run{repeat}") == expected


@NEEDED
@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_a_run_goes_on_with_tasks_and_the_other_way_round(
    log: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    """The root that ended in the middle leaves a run that anybody ends with the same bytes."""

    class Ended(BaseException):
        pass

    for name, first, second in (("a", replayed, here), ("b", here, replayed)):
        told: list[int] = []

        def end(count: int, told: list[int] = told) -> None:
            told.append(count)
            if len(told) == 4:
                raise Ended

        with pytest.raises(Ended):
            first(log, tmp_path / name, progress=end)
        done = second(log, tmp_path / name)
        assert done.learned == 1998
        assert files_of(tmp_path / name) == expected


def here(log: Path, run: Path, **changes: Any) -> Replayed:
    return replay_partitions(str(log), run, workers=1, **FIXED, **changes)


@NEEDED
@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block of Python on its page, one after the other."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "guides" / "ray.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec("\n".join(blocks), names)
    assert names["done"].snapshot.certificate.met
    assert names["same"]
