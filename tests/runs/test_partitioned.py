"""A log in partitions: the same bytes for any number of workers, whoever is killed when."""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import streamembed as se
from scenarios.streams import still_rings
from streamembed.cli import commands
from streamembed.data.features import Features
from streamembed.errors import FeatureError, ParameterError, StoppedError
from streamembed.geometry.scaling import fit_points
from streamembed.landmarks import covering
from streamembed.logs.event_log import EventLog, open_log, write_distance_log, write_log
from streamembed.methods.options import Config
from streamembed.report.report_contents import read_contents
from streamembed.runs import partitioned as run_of_partitions
from streamembed.runs.executor import PoolExecutor
from streamembed.runs.log_replay import Replayed
from streamembed.runs.partition import compute_merge_settings, divide_log, sample_first_events
from streamembed.runs.partitioned import SNAPSHOT_EVERY, replay_partitions
from streamembed.runs.verification import verify
from streamembed.storage.database import Database

pytestmark = pytest.mark.filterwarnings("ignore::streamembed.errors.ResolutionWarning")
NAMES = [f"x{j:02d}" for j in range(16)]
X = still_rings(2000, 0)
FILES = ("snapshot.arrow", "landmarks.arrow", "timeline.parquet", "rejected.parquet")
FIXED: dict[str, Any] = {
    "size": 60,
    "n_components": 3,
    "chunk_size": 50,
    "scaling": None,
    "kernel": "gaussian",
    "bandwidth": 1.0,
    "snapshot_every": 200,
}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two files of 1,100 and 900 rows, two of them bad."""
    folder = tmp_path / "log"
    folder.mkdir()
    points = X.copy()
    points[[30, 1500], 3] = np.nan
    write_log(folder / "a.arrow", points[:1100], NAMES)
    write_log(folder / "b.parquet", points[1100:], NAMES, format="parquet")
    return folder


def replayed(log: Path, run: Path, **changes: Any) -> Replayed:
    return replay_partitions([str(log)], run, **{"workers": 1, **FIXED, **changes})


def files_of(run: Path) -> dict[str, bytes]:
    return {name: (run / name).read_bytes() for name in FILES}


# ---------------------------------------------------------------- how a log is divided


def test_partitions_are_files_or_ranges_of_rows(log: Path, tmp_path: Path) -> None:
    """Each row is in one of them, in order; a stream of one file is one partition."""
    two = divide_log(open_log(str(log)))
    assert [part.log.paths[0].name for part in two] == ["a.arrow", "b.parquet"]
    eight = divide_log(open_log(str(log / "b.parquet")))
    assert [(part.start, part.stop) for part in eight] == [
        (900 * i // 8, 900 * (i + 1) // 8) for i in range(8)
    ]
    for parts, first in ((two, 0), (eight, 1100)):
        at = first
        for part in parts:
            rows = [
                batch.points[: None if part.stop is None else part.stop - batch.offset]
                for batch in part.batches(0)
            ]
            found = np.concatenate(rows)
            np.testing.assert_array_equal(found[:, 0], X[at : at + len(found), 0])
            at += len(found)
        assert at == 2000
    assert len(divide_log(open_log(str(log / "a.arrow")))) == 1  # nobody knows how long a stream is
    many = tmp_path / "many"
    many.mkdir()
    for number in range(70):
        write_log(many / f"{number:03d}.arrow", X[:1], NAMES)
    parts = divide_log(open_log(str(many)))
    assert len(parts) == 64
    assert [path for part in parts for path in part.log.paths] == sorted(many.iterdir())


def test_what_cannot_be_divided_is_refused(tmp_path: Path, log: Path) -> None:
    """Distances, what a cover cannot learn; the message says what to do."""
    write_distance_log(tmp_path / "d.arrow", [[], [1.0], [1.0, 2.0]])
    with pytest.raises(FeatureError, match="only points can be learned by several workers"):
        replayed(tmp_path / "d.arrow", tmp_path / "run")
    with pytest.raises(ParameterError, match="half_life=100 counts the events of one stream"):
        replayed(log, tmp_path / "run", half_life=100)
    with pytest.raises(ParameterError, match=r"memory='window' must be 'landmarks'"):
        replayed(log, tmp_path / "run", memory="window")
    with pytest.raises(ParameterError, match=r"method='pca' must be"):
        replayed(log, tmp_path / "run", method="pca", kernel="self_tuning", bandwidth="auto")
    with pytest.raises(ParameterError, match=r"picture=True must be False.*without workers"):
        replayed(log, tmp_path / "run", picture=True)
    with pytest.raises(ParameterError, match="workers=0"):
        replayed(log, tmp_path / "run", workers=0)
    with pytest.raises(FeatureError, match="no column of times"):
        replayed(log, tmp_path / "run", half_life=100, clock="event_time")
    assert not (tmp_path / "run" / "snapshot.arrow").exists()


def test_unknown_parameters_are_named_with_the_nearest(log: Path, tmp_path: Path) -> None:
    """They were a bare TypeError once."""
    for name, says in (
        ("sizze", "'sizze' is no parameter of an engine: did you mean 'size'?"),
        ("worker", "did you mean 'workers'?"),
        ("id", "'id' is no parameter of an engine"),
    ):
        with pytest.raises(ParameterError) as refused:
            replayed(log, tmp_path / "run", **{name: 3})
        assert says in str(refused.value)
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------- the agreement


@pytest.mark.parametrize("scaling", [None, "standard", "global"])
def test_the_agreement_is_that_of_all_first_events(scaling: str | None, tmp_path: Path) -> None:
    """Its divisors are those of one engine; its bandwidth comes of exactly `warm_up` rows."""
    points = X[:600] * np.arange(1, 17)
    config = Config(memory="landmarks", kernel="gaussian", scaling=scaling, warm_up=80, size=200)
    points[7, 3] = -9999.0  # one "no data" sets no divisor
    parts = divide_log(write_files(tmp_path / "log", *np.split(points, 3)))
    samples = [sample_first_events(part, config)[1:] for part in parts]
    features = Features(tuple(NAMES), False)
    found = compute_merge_settings(samples, config, features)
    expected = fit_points(points, np.ones(600), scaling, 1.0).scale
    np.testing.assert_allclose(found.scale, expected, rtol=1e-12)
    assert found.scale[3] < 20.0
    order = np.argsort(np.concatenate([ranks for ranks, _ in samples]))
    few = np.concatenate([sampled for _, sampled in samples])[order][:80]
    assert len(few) == 80
    scaled = few / found.scale
    d = np.sort(np.sqrt(((scaled[:, None] - scaled[None]) ** 2).sum(axis=2)), axis=1)
    # distances by products of centred points, and by differences
    assert found.bandwidth == pytest.approx(float(np.median(d[:, 7])), rel=1e-9)
    nothing = compute_merge_settings([(np.zeros(0), X[:0])], config, features)
    assert (nothing.scale, nothing.bandwidth) == ((1.0,) * 16, 1.0)


def write_files(folder: Path, *parts: np.ndarray) -> EventLog:
    """A log of a file each."""
    folder.mkdir()
    for number, part in enumerate(parts):
        write_log(folder / f"{number}.arrow", part, NAMES)
    return open_log(str(folder))


# ---------------------------------------------------------------- what comes of it


def test_a_run_of_partitions_holds_the_merge_of_their_covers(log: Path, tmp_path: Path) -> None:
    """Of the last round: sets learned by hand, merged with the landmarks of the round before."""
    done = replayed(log, tmp_path / "run")
    assert (done.partitions, done.snapshots, done.learned, done.rejected) == (2, 6, 1998, 2)
    assert done.snapshot is not None
    assert done.snapshot.certificate.met
    found = se.LandmarkSet.load(tmp_path / "run" / "landmarks.arrow")
    assert found.mass == pytest.approx(1998, rel=1e-12)
    assert dict(found.positions) == {0: 1099, 1: 899}
    rows = [np.delete(X[:1100], 30, axis=0), np.delete(X[1100:], 400, axis=0)]
    for part, points in enumerate(rows):
        held = covering.init(16)
        scaling = found.agreement.scaling()
        for start in range(0, len(points), 50):
            held = covering.update(held, points[start : start + 50], scaling, 60, None)
        own = {tuple(point) for point in held.support.points}
        kept = found.points[found.keys[:, 0] == part]
        assert {tuple(point) for point in kept} <= own
    timeline = pq.read_table(tmp_path / "run" / "timeline.parquet").to_pydict()
    assert timeline["round"] == [1, 2, 3, 4, 5, 6]
    assert timeline["position"] == [400, 800, 1200, 1600, 1899, 1998]
    assert timeline["ended"] == [0, 0, 0, 0, 0, 1]
    rejected = pq.read_table(tmp_path / "run" / "rejected.parquet").to_pylist()
    assert [(row["partition"], row["offset"]) for row in rejected] == [(0, 30), (1, 400)]


def test_a_run_of_partitions_is_read_like_any_other(log: Path, tmp_path: Path) -> None:
    """Inspected, verified, its engine taken, shown as a page that says what it lacks."""
    run = tmp_path / "run"
    done = replayed(log, run)
    assert not verify(run).troubles
    assert done.snapshot is not None
    with se.read_run(run) as reader:
        assert reader.kind == "partitions"
        assert reader.snapshot().to_bytes() == done.snapshot.to_bytes()
        engine = reader.engine()
        assert reader.timeline().num_rows == 6
    assert engine.snapshot().to_bytes() == done.snapshot.to_bytes()
    told = CliRunner().invoke(commands.main, ["inspect", str(run)])
    assert told.output.startswith("run: 1,998 events, 2 rejected; 6 snapshots, all certificates")
    with pytest.raises(ParameterError, match="into another folder, and compare"):
        verify(run, deep=True)
    told_of = read_contents(run)
    assert told_of["run"]["accepted"] == 1998
    assert len(told_of["scatter_plots"][-1]["at"]) == len(done.snapshot.ids)
    assert "positions and labels are not kept" in told_of["notes"][0]
    (run / "landmarks.arrow").write_bytes(b"ARROW1")
    assert any("landmarks.arrow" in one.what for one in verify(run).troubles)


def test_the_same_call_again_reads_and_another_is_refused(log: Path, tmp_path: Path) -> None:
    """As any replay: what differs is named."""
    replayed(log, tmp_path / "run")
    before = files_of(tmp_path / "run")
    again = replayed(log, tmp_path / "run", workers=2)
    assert (again.resumed_at, again.learned, again.rejected) == (2000, 1998, 2)
    assert files_of(tmp_path / "run") == before
    with pytest.raises(ParameterError, match="size was 60 and is 50"):
        replayed(log, tmp_path / "run", size=50)
    with pytest.raises(ParameterError, match=r"was learned in partitions"):
        se.replay(str(log), se.Engine(), tmp_path / "run")
    with pytest.raises(ParameterError, match="snapshot_every was 200 and is 300"):
        replayed(log, tmp_path / "run", snapshot_every=300)
    assert replayed(log, tmp_path / "run", size=50, overwrite=True).learned == 1998


def test_a_short_log_and_a_damaged_one(tmp_path: Path, log: Path) -> None:
    """Too few events for a map; a partition that ends early, and says why."""
    write_log(tmp_path / "short.arrow", X[:3], NAMES)
    done = replayed(tmp_path / "short.arrow", tmp_path / "run")
    assert (done.learned, done.snapshot, done.snapshots) == (3, None, 0)
    data = (log / "a.arrow").read_bytes()
    (log / "a.arrow").write_bytes(data[: len(data) * 2 // 3])
    cut = replayed(log, tmp_path / "cut")
    assert re.match(r"partition 0: .*a\.arrow", str(cut.damage))
    assert 899 <= cut.learned < 1998


def test_event_times_are_the_clock_of_all_partitions(tmp_path: Path) -> None:
    """The mass is that of the definition, of partitions that saw other times."""
    times = np.arange(2000.0)
    folder = tmp_path / "log"
    folder.mkdir()
    for part, rows in enumerate((slice(0, 1500), slice(1500, 2000))):
        columns = {**dict(zip(NAMES, X[rows].T, strict=True)), "at": times[rows]}
        pq.write_table(pa.table(columns), folder / f"{part}.parquet")
    done = replayed(
        folder, tmp_path / "run", half_life=300, clock="event_time", max_skew=10, time="at"
    )
    assert done.rejected == 0
    assert done.snapshot is not None
    expected = math.fsum(2.0 ** (-(1999 - t) / 300) for t in times.tolist())
    assert done.snapshot.masses.sum() == pytest.approx(expected, rel=1e-12)


def test_axes_are_kept_from_round_to_round(tmp_path: Path) -> None:
    """After the best rotation coordinates at fixed points move by a tenth at most.

    Without it by less than a half: columns keep their signs and their order. Where pairs of equal
    eigenvalues, which rings have, have turned farther than the certificate lets them be held, the
    epoch says so.
    """
    comparable = 0
    for seed in range(3):
        log, held_out = tmp_path / f"{seed}.parquet", still_rings(9000, seed)[8000:]
        write_log(log, still_rings(8000, seed), NAMES, format="parquet")
        fixed = {**FIXED, "size": 200, "chunk_size": 125, "snapshot_every": 250, "n_components": 4}
        done = replay_partitions(str(log), tmp_path / f"run{seed}", workers=1, **fixed)
        assert done.snapshots == 4
        with se.read_run(tmp_path / f"run{seed}") as reader:
            kept = [reader.snapshot(at) for at in reader.positions]
        table = pa.table(dict(zip(NAMES, held_out.T, strict=True)))
        placed = [
            np.column_stack([column.to_numpy() for column in one.transform(table).columns])
            for one in kept
        ]
        for before, after, old, new in zip(kept, kept[1:], placed, placed[1:], strict=False):
            left, _, right = np.linalg.svd(new.T @ old)
            size = np.linalg.norm(old)
            assert np.linalg.norm(new @ (left @ right) - old) / size < 0.1
            assert before.frame.epoch <= after.frame.epoch
            if before.frame.epoch == after.frame.epoch:
                assert np.linalg.norm(new - old) / size < 0.5
                comparable += 1
    assert comparable


# ---------------------------------------------------------------- crashes


class Killed(BaseException):
    """What ends a root in the middle."""


@contextlib.contextmanager
def killed_after(commit: int) -> Iterator[None]:
    """The process ends once that commit is done, counted from 1."""
    count, plain = 0, Database.commit

    @contextlib.contextmanager
    def counted(self: Database) -> Iterator[None]:
        nonlocal count
        count += 1
        with plain(self):
            yield
        if count == commit:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "commit", counted)
        yield


def test_a_root_killed_at_any_step_ends_with_the_same_bytes(log: Path, tmp_path: Path) -> None:
    """After each commit: the run begun, agreed, four checkpoints, two maps, the end."""
    assert kill_everywhere(log, tmp_path, 600) == 9


@pytest.mark.long
def test_a_root_killed_at_fifty_steps_ends_with_the_same_bytes(log: Path, tmp_path: Path) -> None:
    """The same with rounds of 50 events, 65 times."""
    assert kill_everywhere(log, tmp_path, 50) == 65


def kill_everywhere(log: Path, folder: Path, every: int) -> int:
    """How many commits there were; the same bytes came of a run that was killed after each."""
    fixed = {"snapshot_every": every, "chunk_size": 25}
    replayed(log, folder / "whole", **fixed)
    expected = files_of(folder / "whole")
    for commit in range(1, 1000):
        run = folder / f"{commit}"
        with killed_after(commit), contextlib.suppress(Killed):
            replayed(log, run, **fixed)
            return commit - 1
        replayed(log, run, **fixed)
        assert files_of(run) == expected, commit
    raise AssertionError("it never ends")


def test_progress_counts_what_was_learned_before(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At first, and of partitions that are not heard of again; an interrupt says what is held."""
    told: list[int] = []

    def stop(events: int) -> None:
        told.append(events)
        if len(told) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as broken:
        replayed(log, tmp_path / "run", progress=stop)
    assert told == [0, 200, 400, 600]
    held = f"interrupted at 600 events; {tmp_path / 'run'} holds them and 1 round; repeat the call"
    assert broken.value.__notes__ == [f"{held} to resume"]
    replayed(log, tmp_path / "run", progress=told.append)
    assert told[4:6] == [600, 800]
    assert told == sorted(told)
    assert told[-1] == 1998
    replayed(log, tmp_path / "run", progress=told.append)
    assert told[-2:] == [1998, 1998]

    def never(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_of_partitions.PartitionRoot, "_learn", never)
    done = CliRunner().invoke(commands.main, [*flags(log, tmp_path / "new"), "--workers=1"])
    assert done.exit_code == 130
    assert f"interrupted at 0 events; {tmp_path / 'new'} holds them and 0 rounds" in done.stderr


def list_workers() -> list[Any]:
    """The processes of a pool."""
    return [child for child in multiprocessing.active_children() if child.pid is not None]


def test_workers_leave_no_trace_nor_do_their_deaths(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed worker ends the call; repeated by two processes, the bytes of one."""
    replayed(log, tmp_path / "one")
    plain, received = PoolExecutor.receive, []

    def receive(self: PoolExecutor) -> Any:
        result = plain(self)
        received.append(result)
        if len(received) == 5:
            list_workers()[0].kill()
        return result

    monkeypatch.setattr(PoolExecutor, "receive", receive)
    with pytest.raises(StoppedError, match="a worker was killed; repeat the command to resume"):
        replayed(log, tmp_path / "two", workers=2)
    assert not list_workers()
    done = replayed(log, tmp_path / "two", workers=2)
    assert done.learned == 1998
    assert done.resumed_at > 0
    assert files_of(tmp_path / "two") == files_of(tmp_path / "one")
    assert not list_workers()


def flags(log: Path, run: Path) -> list[str]:
    told = {name: value for name, value in FIXED.items() if name != "scaling"}
    listed = [f"--{name.replace('_', '-')}={value}" for name, value in told.items()]
    return ["replay", str(log), "--run", str(run), "--memory=landmarks", "--scaling=none", *listed]


def test_the_command_line(log: Path, tmp_path: Path) -> None:
    """`--workers`, and what cannot go with it."""
    done = CliRunner().invoke(
        commands.main, [*flags(log, tmp_path / "run"), "--workers=1", "--json"]
    )
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert (len(facts["partitions"]), facts["snapshots"], facts["learned"]) == (2, 6, 1998)
    replayed(log, tmp_path / "python")
    assert files_of(tmp_path / "run") == files_of(tmp_path / "python")
    shown = CliRunner().invoke(commands.main, [*flags(log, tmp_path / "run"), "--workers=1"])
    assert "learned in 2 partitions, 6 rounds" in shown.output
    for flag in ("--monitor", "--embed=causal", "--max-rejected=5"):
        refused = CliRunner().invoke(
            commands.main, [*flags(log, tmp_path / "other"), "--workers=1", flag]
        )
        assert refused.exit_code == 2
        assert f"{flag.split('=')[0]} conflicts with --workers" in refused.stderr
    shown = CliRunner().invoke(commands.main, ["replay", "-h"])
    assert f"with --workers {SNAPSHOT_EVERY}]" in " ".join(shown.output.split())


def test_landmarks_are_the_memory_of_workers(log: Path, tmp_path: Path) -> None:
    """Without a flag; the window of the command's default was refused once."""
    plain = [one for one in flags(log, tmp_path / "run") if not one.startswith("--memory")]
    done = CliRunner().invoke(commands.main, [*plain, "--workers=1"])
    assert done.exit_code == 0, done.output
    given = [*flags(log, tmp_path / "other"), "--memory=window", "--workers=1"]
    refused = CliRunner().invoke(commands.main, given)
    assert refused.exit_code == 2
    assert "--memory 'window' must be 'landmarks' in partitions" in refused.stderr


@pytest.mark.long
@pytest.mark.parametrize("seed", range(50))
def test_kill_9_at_any_moment_ends_with_the_same_bytes(
    seed: int, log: Path, tmp_path: Path
) -> None:
    """Root or worker, by the system, at a random moment of a run of processes; 50 times."""
    replayed(log, tmp_path / "whole")
    rng = random.Random(seed)
    program = [sys.executable, "-m", "streamembed"]
    command = [*program, *flags(log, tmp_path / "run"), "--workers=2"]
    for _ in range(2):
        root = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        time.sleep(rng.uniform(1.0, 8.0))
        own = Path(f"/proc/{root.pid}/task/{root.pid}/children").read_text().split()
        victim = rng.choice([root.pid, *map(int, own)])
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        root.communicate()
    subprocess.run(command, check=True, capture_output=True)
    assert files_of(tmp_path / "run") == files_of(tmp_path / "whole")
