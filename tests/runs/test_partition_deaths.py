"""Workers that die at bad moments, roots that end before them, rows that nobody can use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamembed as se
from streamembed.errors import ParameterError
from streamembed.logs import write_log
from streamembed.runs.log_replay import Replayed
from streamembed.runs.partitioned import replay_partitions

pytestmark = pytest.mark.filterwarnings("ignore::streamembed.errors.ResolutionWarning")
FILES = ("snapshot.arrow", "landmarks.arrow", "timeline.parquet", "rejected.parquet")
FIXED: dict[str, Any] = {"size": 50, "chunk_size": 50, "snapshot_every": 200, "scaling": None}
X = np.random.default_rng(0).standard_normal((1000, 2))


def logged(folder: Path, *parts: np.ndarray) -> Path:
    folder.mkdir()
    for number, part in enumerate(parts):
        write_log(folder / f"{number}.parquet", part, ["x", "y"], format="parquet")
    return folder


def replayed(log: Path, run: Path, **changes: Any) -> Replayed:
    return replay_partitions(log, run, **{"workers": 1, **FIXED, **changes})


def files_of(run: Path) -> list[bytes]:
    return [(run / name).read_bytes() for name in FILES]


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked at in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_root(number: int, tmp_path: Path) -> None:
    """However it ends, and whatever they are doing; nothing stays in the temporary folder."""
    code = (
        "import os, time, sys\n"
        "from functools import partial\n"
        "from streamembed.runs.executor import PoolExecutor\n"
        "pool = PoolExecutor(2)\n"
        "for _ in range(3): pool.submit(os.getpid)\n"
        "print(pool.receive(), flush=True)\n"
        "for _ in range(2): pool.submit(partial(time.sleep, 600))\n"
        "time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *sys.path])}
    environment["TMPDIR"] = str(tmp_path)
    root = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert root.stdout is not None
    pid = int(root.stdout.readline())
    time.sleep(0.2)
    assert not is_gone(pid)
    root.send_signal(number)
    root.wait()
    root.stdout.close()
    wait_for(lambda: is_gone(pid) and not [*tmp_path.iterdir()])


def test_a_script_without_a_guard_is_told_of_it(tmp_path: Path) -> None:
    """Every worker imports it, and would begin the same replay."""
    log = logged(tmp_path / "log", X[:500], X[500:])
    script = tmp_path / "script.py"
    script.write_text(
        f"import streamembed as se\nse.replay_partitions({str(log)!r}, "
        f"{str(tmp_path / 'run')!r}, workers=2)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'if __name__ == "__main__":' in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("kernel", ["self_tuning", "gaussian"])
@pytest.mark.parametrize("scaling", ["standard", "global", None])
def test_a_row_out_of_reach_is_rejected(kernel: str, scaling: str | None, tmp_path: Path) -> None:
    """Its distance, in units of the first events, has no square; where it has, it is an event."""
    points = 1e-12 * X
    points[700] = 1e149
    log = logged(tmp_path / "log", points)
    done = replayed(log, tmp_path / "run", kernel=kernel, scaling=scaling, snapshot_every=100)
    far = 0 if scaling is None else 1
    assert (done.learned, done.rejected) == (1000 - far, far)
    assert done.snapshot is not None
    assert np.isfinite(done.snapshot.coordinates).all()


def test_a_log_that_has_changed_is_another_log(tmp_path: Path) -> None:
    """Other data in any row, the same files in another order, more rows, or fewer."""
    log = tmp_path / "log"
    log.mkdir()
    points = X.copy()
    for number, rows in enumerate((slice(500), slice(500, 1000))):
        write_log(log / f"{number}.arrow", points[rows], ["x", "y"])
    replayed(log, tmp_path / "run")
    kept = files_of(tmp_path / "run")
    (log / "0.arrow").rename(log / "9.arrow")
    with pytest.raises(ParameterError, match=r"in partition 0 .*1\.arrow\).*differ in points"):
        replayed(log, tmp_path / "run")
    (log / "9.arrow").rename(log / "0.arrow")
    assert replayed(log, tmp_path / "run").resumed_at == 1000
    points[990, 1] += 1e-9
    for stop, message in (
        (1000, "in partition 1 .*first 500 rows of the log are not those"),
        (900, "in partition 1 .*the log has 400 rows"),
    ):
        write_log(log / "1.arrow", points[500:stop], ["x", "y"])
        with pytest.raises(ParameterError, match=message):
            replayed(log, tmp_path / "run")
    write_log(log / "1.arrow", np.concatenate([X[500:], X[:3]]), ["x", "y"])
    with pytest.raises(ParameterError, match=r"more rows than the 500 .*streamembed merge"):
        replayed(log, tmp_path / "run")
    (log / "1.arrow").unlink()
    with pytest.raises(ParameterError, match="partitions"):
        replayed(log, tmp_path / "run")
    assert files_of(tmp_path / "run") == kept


def test_a_log_that_changes_before_its_first_round_is_sampled_again(tmp_path: Path) -> None:
    """What partitions agree on would be computed from rows that are gone."""
    log = logged(tmp_path / "log", X[:500], X[500:])

    class Stopped(BaseException):
        pass

    def stop(*_: Any) -> None:
        raise Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamembed.runs.partitioned.PartitionRoot.list_due", stop)
        with pytest.raises(Stopped):
            replayed(log, tmp_path / "run", scaling="standard")
    write_log(log / "1.parquet", 2 * X[500:], ["x", "y"], format="parquet")
    replayed(log, tmp_path / "run", scaling="standard")
    replayed(log, tmp_path / "fresh", scaling="standard")
    for name in ("snapshot.arrow", "timeline.parquet"):
        resumed, fresh = (tmp_path / run / name for run in ("run", "fresh"))
        assert resumed.read_bytes() == fresh.read_bytes(), name


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    """Before 0 of the clock, too: a partition without events has no time of its own."""
    times = np.arange(1000.0) - 20_000
    changes = {"time": "t", "clock": "event_time", "half_life": 100.0}
    found = []
    for extra in (False, True):
        folder = tmp_path / f"log{extra}"
        folder.mkdir()
        for number in range(2):
            half = slice(500 * number, 500 * number + 500)
            table = np.column_stack([X[half], times[half]])
            write_log(folder / f"{number}.parquet", table, ["x", "y", "t"], format="parquet")
        if extra:
            none = np.zeros((0, 3))
            write_log(folder / "2.parquet", none, ["x", "y", "t"], format="parquet")
        replayed(folder, tmp_path / f"run{extra}", **changes)
        found.append(se.LandmarkSet.load(tmp_path / f"run{extra}" / "landmarks.arrow"))
    plain, more = found
    assert more.time == plain.time == times[-1]
    assert more.masses.tobytes() == plain.masses.tobytes()
