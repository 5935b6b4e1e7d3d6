"""Several runs as one: on the command line, and what is refused."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import streamembed as se
from streamembed.cli import commands
from streamembed.errors import ParameterError
from streamembed.logs.event_log import write_log
from streamembed.runs.run_merge import merge_runs
from streamembed.runs.verification import verify

pytestmark = pytest.mark.filterwarnings("ignore::streamembed.errors.ResolutionWarning")
X = np.random.default_rng(0).standard_normal((600, 3))


def run_of(path: Path, points: np.ndarray, **changes: Any) -> Path:
    fixed: dict[str, Any] = {"memory": "landmarks", "size": 40, "scaling": None, "chunk_size": 50}
    with se.open_run(path, {**fixed, **changes}) as run:
        run.learn(points)
    return path


def test_runs_are_merged_into_one_that_learns_on(tmp_path: Path) -> None:
    """Its engine is that of the merged sets; it verifies, and can be opened again."""
    folders = [run_of(tmp_path / str(part), X[part::2]) for part in range(2)]
    done = CliRunner().invoke(
        commands.main, ["merge", *map(str, folders), "-o", str(tmp_path / "both"), "--json"]
    )
    assert done.exit_code == 0
    facts = json.loads(done.stdout)
    assert (facts["events"], facts["runs"]) == (600, 2)
    assert facts["snapshot"]["certificate"]["met"]
    sets = []
    for part, folder in enumerate(folders):
        with se.read_run(folder) as run:
            sets.append(run.engine().landmark_set(part))
    with se.read_run(tmp_path / "both") as run:
        snapshot = run.snapshot()
    merged = se.merge(sets)
    assert sorted(map(tuple, snapshot.points)) == list(map(tuple, merged.points))
    assert snapshot.masses.sum() == pytest.approx(600, rel=1e-12)
    assert not verify(tmp_path / "both").troubles
    with se.open_run(tmp_path / "both") as both:
        assert both.learn(X[:70]).accepted == 70
        assert both.position == 670
    with se.open_run(tmp_path / "both") as both:
        assert both.position == 670


def test_runs_that_differ_are_refused(tmp_path: Path) -> None:
    """With what differs and what to do; nothing is written."""
    one = run_of(tmp_path / "one", X[:200])
    with pytest.raises(ParameterError, match="chunk_size was 50 and is 20"):
        merge_runs([one, run_of(tmp_path / "two", X[200:], chunk_size=20)], tmp_path / "out")
    with pytest.raises(ParameterError, match="one is the other"):
        merge_runs([one, tmp_path / "." / "one"], tmp_path / "out")
    window = run_of(tmp_path / "window", X[:100], memory="window", chunk_size=20)
    with pytest.raises(ParameterError, match="has no landmarks"):
        merge_runs([window], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    told = CliRunner().invoke(
        commands.main, ["merge", str(one), str(tmp_path / "none"), "-o", str(tmp_path / "out")]
    )
    assert told.exit_code == 4


@pytest.mark.parametrize("rows", [1, 300])
@pytest.mark.parametrize("workers", [None, 1])
def test_a_replay_that_was_stopped_is_refused(
    tmp_path: Path, rows: int, workers: int | None
) -> None:
    """It was merged as if its log had ended there once, or said to be in its warm-up."""

    def stop(events: int) -> None:
        if events >= rows:
            raise KeyboardInterrupt

    write_log(tmp_path / "log", X, ["x", "y", "z"], rows_per_batch=100)
    how: dict[str, Any] = {"snapshot_every": 100, "progress": stop}
    engine = se.Engine(memory="landmarks", size=40)
    call = partial(se.replay_partitions, workers=workers, size=40)
    call = partial(se.replay, engine=engine) if workers is None else call
    with pytest.raises(KeyboardInterrupt):
        call(log=tmp_path / "log", run=tmp_path / "run", **how)
    with pytest.raises(ParameterError, match="was stopped: run the same command again to resume"):
        merge_runs([tmp_path / "run"], tmp_path / "out")


def test_a_copy_of_a_run_is_refused(tmp_path: Path) -> None:
    """Its events were counted twice once; the message names both."""
    one = run_of(tmp_path / "one", X[:200])
    other = run_of(tmp_path / "other", X[200:400])
    shutil.copytree(one, tmp_path / "copy")
    told = [str(folder) for folder in (one, other, tmp_path / "copy")]
    done = CliRunner().invoke(commands.main, ["merge", *told, "-o", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert f"runs has '{told[0]}' and '{told[2]}', which hold the same landmarks" in done.stderr
    assert not (tmp_path / "out").exists()


def test_runs_of_other_scalings_are_merged_on_request(tmp_path: Path) -> None:
    """Each engine has scaled by its own events: `--scaling standard` takes it anew of all."""
    folders = [
        str(run_of(tmp_path / str(part), X[part::2] * [1, 10, 100], scaling="standard"))
        for part in range(2)
    ]
    refused = CliRunner().invoke(commands.main, ["merge", *folders, "-o", str(tmp_path / "out")])
    assert refused.exit_code == 2
    assert "fit them again to all landmarks" in refused.stderr
    done = CliRunner().invoke(
        commands.main, ["merge", *folders, "-o", str(tmp_path / "out"), "--scaling", "standard"]
    )
    assert done.exit_code == 0
    assert "600 events of 2 runs" in done.stdout
