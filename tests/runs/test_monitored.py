"""A replay with a monitor: the same snapshots, alarms that survive interrupts, flags."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import streamembed as se
from streamembed.errors import ParameterError
from streamembed.logs import write_log
from tests.cli.test_cli import call

POINTS = np.random.default_rng(0).standard_normal((900, 3))
POINTS[600:, 1] += 1.5
CONFIG: dict[str, Any] = {"size": 100, "warm_up": 60}
FILES = ("snapshot.arrow", "embedding.parquet", "rejected.parquet")
MORE = ("drift.parquet", "alarms.jsonl")


def log_of(folder: Path, rows: int = 900) -> Path:
    path = folder / "log"
    if not path.exists():
        points = POINTS.copy()
        points[77, 0] = np.nan
        labels = ["a" if p > 0 else "b" for p in POINTS[:, 0]]
        write_log(path, points[:rows], ["x", "y", "z"], labels=labels[:rows], rows_per_batch=130)
    return path


def monitor() -> se.Monitor:
    return se.Monitor(ert=1_000, n_reference=200)


def replay(log: Path, run: Path, watcher: se.Monitor | None, **more: Any) -> se.Replayed:
    return se.replay(log, se.Engine(**CONFIG), run, monitor=watcher, **more)


@pytest.mark.parametrize("embed", ["final", "causal"])
def test_snapshots_are_those_of_a_replay_without(tmp_path: Path, embed: str) -> None:
    """And the alarms those of a monitor without a replay."""
    log, found = log_of(tmp_path), list[se.Alarm]()
    replay(log, tmp_path / "plain", None, embed=embed)
    watcher = monitor()
    replay(log, tmp_path / "watched", watcher, embed=embed, on_alarm=found.append)
    for name in FILES:
        same = (tmp_path / "plain" / name).read_bytes()
        assert (tmp_path / "watched" / name).read_bytes() == same
    alone = monitor()
    alone.learn(np.delete(POINTS, 77, axis=0))
    assert [a.position for a in alone.alarms] == [a.position for a in watcher.alarms]
    assert tuple(found) == watcher.records
    assert any(599 < alarm.position < 640 for alarm in found)
    lines = (tmp_path / "watched" / "alarms.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        json.loads(json.dumps(a.as_dict())) for a in found
    ]
    counted = pq.read_table(tmp_path / "watched" / "timeline.parquet")["alarms"].to_pylist()
    assert sum(counted) == len(watcher.alarms) < len(found)
    kinds = pq.read_table(tmp_path / "watched" / "drift.parquet")["kind"].drop_null().to_pylist()
    assert kinds == [alarm.kind for alarm in found]
    assert pq.read_table(tmp_path / "watched" / "drift.parquet").equals(watcher.timeline())


def test_a_log_that_grows_is_watched_on(tmp_path: Path) -> None:
    log = log_of(tmp_path, 500)
    replay(log, tmp_path / "run", monitor())
    for path in sorted(log.rglob("*")) if log.is_dir() else [log]:
        path.unlink()
    log.rmdir() if log.is_dir() else None
    watcher, whole = monitor(), monitor()
    replay(log_of(tmp_path), tmp_path / "run", watcher)
    replay(log, tmp_path / "whole", whole)
    assert watcher.to_bytes() == whole.to_bytes()
    for name in MORE:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_another_monitor_is_another_run(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    replay(log, tmp_path / "run", monitor())
    with pytest.raises(ParameterError, match=r"monitor was .* and is None"):
        replay(log, tmp_path / "run", None)
    with pytest.raises(ParameterError, match=r"monitor\.ert was 1000\.0 and is 5000\.0"):
        replay(log, tmp_path / "run", se.Monitor(ert=5_000, n_reference=200))
    learned = monitor()
    learned.learn(POINTS[:50])
    with pytest.raises(ParameterError, match=r"monitor\.crc"):
        replay(log, tmp_path / "run", learned)
    with pytest.raises(ParameterError, match="must be a Monitor"):
        replay(log, tmp_path / "other", "yes")  # type: ignore[arg-type]
    endless = se.Monitor(ert=math.inf, n_reference=200)
    replay(log, tmp_path / "endless", endless)
    replay(log, tmp_path / "endless", se.Monitor(ert=math.inf, n_reference=200))


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Flags, exit codes, a saved reference."""
    log, run = log_of(tmp_path), tmp_path / "run"
    flags = ["--size", "100", "--warm-up", "60"]
    watched = [*flags, "--monitor", "--ert", "1000", "--n-reference", "200"]
    done = call("replay", log, "--run", run, *watched)
    assert done.exit_code == 0
    assert "alarm: Mean of 'y' shifted by +" in done.stderr
    assert "expected without drift" in done.stdout
    assert "--n-reference 200 is below 500" in done.stdout
    again = call("replay", log, "--run", run, *watched, "--fail-on-alarm")
    assert again.exit_code == 0  # nothing came
    again = call("replay", log, "--run", tmp_path / "failed", *watched, "--fail-on-alarm", "--json")
    assert again.exit_code == 5
    told = json.loads(again.stdout)["monitor"]
    assert (told["ert"], len(told["alarms"]) > 0) == (1000.0, True)
    early = tmp_path / "early"
    assert call("replay", log_of(tmp_path), "--run", early, *flags, "--size", "300").exit_code == 0
    saved = call("replay", log, "--run", tmp_path / "saved", *flags, "--monitor", "--reference",
                 early / "snapshot.arrow", "--policy", "hold")  # fmt: skip
    assert saved.exit_code == 0, saved.stderr
    short = call("replay", log, "--run", tmp_path / "short", *flags, "--monitor", "--fail-on-alarm")
    assert (short.exit_code, "899 of 1,000 events" in short.stderr) == (2, True)
    for bad, words in (
        (["--ert", "500"], "needs --monitor"),
        (["--fail-on-alarm"], "needs --monitor"),
        (["--monitor", "--ert", "5"], "--ert 5.0 must be"),
        (["--monitor", "--n-reference", "10"], "--n-reference 10 must be"),
        (["--monitor", "--reference", tmp_path / "no.arrow"], "no.arrow"),
    ):
        refused = call("replay", log, "--run", tmp_path / "bad", *flags, *bad)
        assert refused.exit_code in (2, 4), refused.stderr
        assert words in refused.stderr
        assert not (tmp_path / "bad").exists()
