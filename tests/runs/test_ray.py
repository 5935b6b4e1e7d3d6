"""Actors of Ray: the bytes of the process run, whoever is killed when; one cluster for all."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenarios.streams import still_rings
from streamembed import ray as on_ray
from streamembed.errors import BadRowError, ParameterError, StoppedError
from streamembed.logs.event_log import write_log
from streamembed.runs.partitioned import Partitioned, replay_partitions

ROOT = Path(__file__).resolve().parents[2]
NAMES = [f"x{j:02d}" for j in range(16)]
FILES = ("snapshot.arrow", "landmarks.arrow", "timeline.parquet", "rejected.parquet")
FIXED: dict[str, Any] = {
    "size": 60,
    "n_components": 3,
    "chunk_size": 50,
    "scaling": "standard",
    "kernel": "gaussian",
    "round_every": 200,
}
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
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Ray on this machine, two workers at a time."""
    folder = tmp_path_factory.mktemp("temporary")
    variables = {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}
    on_ray.ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        _node_ip_address="127.0.0.1",
        runtime_env={"env_vars": variables},
    )
    yield
    on_ray.ray.shutdown()
    assert [*folder.glob("streamembed-*")] == []  # of runs that ended well, nothing is left


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


def replayed(log: Path, run: Path, **changes: Any) -> Partitioned:
    return on_ray.replay(log, run, **{"workers": 2, **FIXED, **changes})


@NEEDED
@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_actors_give_the_bytes_of_processes(
    log: Path, expected: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two actors with three partitions; paths are those of the folder of the caller."""
    monkeypatch.chdir(log.parent)
    done = replayed(Path(log.name), tmp_path / "run")
    assert (done.partitions, done.learned, done.rejected) == (3, 1998, 2)
    assert files_of(tmp_path / "run") == expected
    again = replayed(log, tmp_path / "run", workers=None)  # nothing is left to be done
    assert (again.resumed_at, again.learned) == (done.rounds, 1998)


def end_process(_: Any) -> None:
    """An actor runs this, and is no more."""
    os._exit(1)


@NEEDED
@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("shared", [False, True])
def test_killed_actors_leave_no_trace(
    shared: bool,
    log: Path,
    expected: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One ends while it is asked, one is killed by Ray; both are started again: the same bytes."""
    begin, receive, leave = (
        getattr(on_ray.RayExecutor, name) for name in ("begin", "receive", "remove_checkpoints")
    )
    received: list[Any] = []
    processes: list[list[int]] = []

    def look(self: on_ray.RayExecutor) -> None:
        found = [one.handle.__ray_call__.remote(lambda _: os.getpid()) for one in self._actors]
        processes.append(on_ray.ray.get(found))

    def begun(self: on_ray.RayExecutor, agreement: Any) -> None:
        begin(self, agreement)
        look(self)

    def killing(self: on_ray.RayExecutor) -> Any:
        received.append(receive(self))
        if len(received) == 2:
            self._actors[1].handle.__ray_call__.remote(end_process)
        if len(received) == 5:
            on_ray.ray.kill(self._actors[0].handle, no_restart=False)
        return received[-1]

    def left(self: on_ray.RayExecutor) -> None:
        look(self)
        leave(self)

    monkeypatch.setattr(on_ray.RayExecutor, "begin", begun)
    monkeypatch.setattr(on_ray.RayExecutor, "receive", killing)
    monkeypatch.setattr(on_ray.RayExecutor, "remove_checkpoints", left)
    folder = tmp_path / "checkpoints" if shared else None
    done = replayed(log, tmp_path / "run", checkpoints=folder)
    first, last = processes
    assert not {*first} & {*last}
    assert done.learned == 1998
    assert files_of(tmp_path / "run") == expected
    if folder is not None:
        assert [*folder.iterdir()] == []


@NEEDED
@pytest.mark.ray
@pytest.mark.long
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("seed", range(10))
def test_kill_9_of_actors_at_any_moment(
    seed: int,
    log: Path,
    expected: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the system, three times a run, some with the loss of their checkpoints; 10 of 10."""
    rng, receive = random.Random(seed), on_ray.RayExecutor.receive
    moments = sorted(rng.sample(range(1, 10), 3))
    received: list[Any] = []
    killed: list[int] = []

    def killing(self: on_ray.RayExecutor) -> Any:
        received.append(receive(self))
        if len(received) in moments:
            victim = rng.choice(self._actors).handle
            with contextlib.suppress(on_ray.ray.exceptions.RayActorError):  # it is dead already
                process = on_ray.ray.get(victim.__ray_call__.remote(lambda _: os.getpid()))
                os.kill(process, signal.SIGKILL)
                killed.append(process)
            if rng.random() < 0.5:
                for path in (tmp_path / "kept").glob("*/*"):
                    path.unlink(missing_ok=True)
        return received[-1]

    monkeypatch.setattr(on_ray.RayExecutor, "receive", killing)
    replayed(log, tmp_path / "run", checkpoints=tmp_path / "kept", options={"num_cpus": 1})
    assert killed
    assert files_of(tmp_path / "run") == expected


@NEEDED
@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_a_run_goes_on_with_actors_and_the_other_way_round(
    log: Path, expected: dict[str, bytes], tmp_path: Path
) -> None:
    """The root that ended in the middle leaves a run that anybody ends with the same bytes."""

    class Ended(BaseException):
        pass

    kept = {"checkpoints": tmp_path / "kept"}
    for name, first, second, more in (("a", replayed, here, kept), ("b", here, replayed, {})):
        told: list[int] = []

        def end(count: int, told: list[int] = told) -> None:
            told.append(count)
            if len(told) == 4:
                raise Ended

        with pytest.raises(Ended):
            first(log, tmp_path / name, progress=end, **more)
        done = second(log, tmp_path / name)
        assert done.learned == 1998
        assert files_of(tmp_path / name) == expected


def here(log: Path, run: Path, **changes: Any) -> Partitioned:
    return replay_partitions(str(log), run, workers=1, **FIXED, **changes)


@NEEDED
@pytest.mark.ray
@pytest.mark.usefixtures("cluster")
def test_errors_come_as_they_are(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of actors and of parameters; an actor that always dies ends the replay."""
    with pytest.raises(ParameterError, match="options has \\['max_concurrency'\\]; it may have"):
        replayed(log, tmp_path / "bad", options={"max_concurrency": 2})
    with pytest.raises(BadRowError, match="row 30 of partition 0"):
        replayed(log, tmp_path / "bad", on_bad_row="raise", checkpoints=tmp_path / "kept")
    ask = on_ray._RayActor.request_rounds

    def dying(self: Any, limit: int) -> None:
        if self.index == 0:
            self.handle.__ray_call__.remote(end_process)
        ask(self, limit)

    monkeypatch.setattr(on_ray._RayActor, "request_rounds", dying)
    with pytest.raises(StoppedError, match="worker 0 has died 4 times"):
        replayed(log, tmp_path / "dead", checkpoints=tmp_path / "kept")


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
