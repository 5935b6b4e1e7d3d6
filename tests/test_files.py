"""Files and folders: what is damaged, hostile, missing, special, or somebody else's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import streamembed as se
from scenarios.fuzz import files
from streamembed.cli import commands
from streamembed.errors import (
    DamagedFileError,
    FileError,
    LogError,
    MissingFileError,
    NotAFileError,
    ParameterError,
    StreamembedError,
)
from streamembed.logs import log_file
from streamembed.logs.event_log import open_log, write_log
from streamembed.runs import run_folder, verify
from streamembed.storage import archive
from tests.sealed import read_sealed, write_sealed

X = np.random.default_rng(0).normal(size=(80, 3))
LOADS: list[Callable[[Path], Any]] = [
    se.Snapshot.load,
    se.Engine.load,
]


def small(**changes: Any) -> se.Engine:
    return se.Engine(**{"size": 60, "warm_up": 50, **changes})


def test_damaged_files_are_refused() -> None:
    """A sample of the fuzz: every one a `DamagedFileError`."""
    result = files.run(150, seed=3)
    assert result.failures == []
    assert result.damaged > 120


@pytest.mark.parametrize("text", ["crc32:00000000", "\x0e\0\0\0crc32:00000000\0"])
def test_strings_that_look_like_the_seal_survive(text: str, tmp_path: Path) -> None:
    """As ids, class labels and feature names, bit for bit; and every flipped byte is found."""
    names = ["a", "b", text]
    ids = [f"i{j}" for j in range(80)]
    ids[70] = text
    y = [text if j % 2 else "other" for j in range(80)]
    engine = small(metrics=("fenn",))
    engine.learn(pa.table(dict(zip(names, X.T, strict=True))), y=y, ids=ids)
    engine.snapshot().save(tmp_path / "s")
    engine.save(tmp_path / "e")
    snapshot, again = se.Snapshot.load(tmp_path / "s"), se.Engine.load(tmp_path / "e")
    assert snapshot.ids.tolist() == ids[20:]
    assert set(snapshot.feature_names) == set(names)
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "e").read_bytes()
    data = (tmp_path / "s").read_bytes()
    rng = np.random.default_rng(0)
    places = {match for match in range(len(data)) if data.startswith(b"crc32:", match)}
    near = {place + shift for place in places for shift in range(-4, 16)}
    for place in sorted(near | set(rng.integers(0, len(data), 200).tolist())):
        changed = bytearray(data)
        changed[min(place, len(data) - 1)] ^= 1 << int(rng.integers(8))
        (tmp_path / "s").write_bytes(changed)
        with pytest.raises(DamagedFileError):
            se.Snapshot.load(tmp_path / "s")


def test_a_snapshot_is_saved_where_nothing_varies(tmp_path: Path) -> None:
    """Points all alike, or a bandwidth that sees no difference: nothing is tracked, all is kept."""
    for points, changes in ((np.ones((60, 2)), {}), (X, {"kernel": "gaussian", "bandwidth": 1e9})):
        engine = small(**changes)
        engine.learn(points)
        snapshot = engine.snapshot()
        snapshot.save(tmp_path / "s")
        loaded = se.Snapshot.load(tmp_path / "s")
        np.testing.assert_array_equal(loaded.coordinates, snapshot.coordinates)
        np.testing.assert_array_equal(loaded.diffusion_distances(), snapshot.diffusion_distances())
        assert loaded.transform(points[:2]).shape == (2, 2)
        loaded.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / "s").read_bytes()


# ------------------------------------------------------------------ what is not there, or no file


@pytest.mark.parametrize("load", LOADS)
def test_missing_files_are_of_the_family_and_of_their_own_kind(
    load: Callable[[Path], Any], tmp_path: Path
) -> None:
    """Whoever catches FileNotFoundError or IsADirectoryError still does."""
    with pytest.raises(MissingFileError, match="cannot be read") as caught:
        load(tmp_path / "nothing")
    assert isinstance(caught.value, (FileNotFoundError, StreamembedError))
    assert caught.value.errno == 2
    with pytest.raises(IsADirectoryError):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotAFileError, match="must be a file"):
        load(tmp_path / "pipe")
    for path in (5, None, "", "\0", "x" * 5000):
        with pytest.raises((ParameterError, FileError)):
            load(path)  # type: ignore[arg-type]


def test_saving_replaces_nothing_but_files(tmp_path: Path) -> None:
    """Not a folder, pipe or device; and nothing is left beside it."""
    engine = small()
    engine.learn(X)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for target in (tmp_path / "pipe", tmp_path / "folder", Path("/dev/null")):
        for one in (engine, engine.snapshot()):
            with pytest.raises(NotAFileError):
                one.save(target)
    with pytest.raises(MissingFileError, match="cannot be written"):
        engine.save(tmp_path / "no" / "folder")
    engine.save(tmp_path / "e")
    engine.save(tmp_path / "e")  # in place of the older one
    long = tmp_path / ("x" * 250)  # a temporary name beside it must not be longer
    engine.save(long)
    assert sorted(tmp_path.iterdir()) == sorted(tmp_path / n for n in ("e", "folder", "pipe", long))


def test_an_error_while_saving_leaves_the_older_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, or Ctrl-C: what was there stays whole, and no temporary file is left."""
    engine = small()
    engine.learn(X)
    engine.save(tmp_path / "e")
    before = (tmp_path / "e").read_bytes()
    for error in (OSError(28, "No space left on device"), KeyboardInterrupt()):

        def fail(*_: object, error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(archive.os, "fsync", fail)
        with pytest.raises((FileError, KeyboardInterrupt)):
            engine.save(tmp_path / "e")
    assert [path.name for path in tmp_path.iterdir()] == ["e"]
    assert (tmp_path / "e").read_bytes() == before


def test_commands_say_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    """Damage is exit code 3, what cannot be read is 4; never a traceback."""
    engine = small()
    engine.learn(X)
    engine.save(tmp_path / "e")
    table, header = read_sealed(tmp_path / "e", "engine")
    write_sealed(tmp_path / "hostile", table, "engine", {**header, "config": {"wings": 2}})
    write_log(tmp_path / "log", X, ["a", "b", "c"])
    for arguments, code in (
        (["inspect", str(tmp_path / "hostile")], 3),
        (["inspect", str(tmp_path / "nothing")], 4),
        (["transform", str(tmp_path / "e"), str(tmp_path / "log"), "-o", str(tmp_path / "o")], 3),
        (["transform", str(tmp_path), str(tmp_path / "log"), "-o", str(tmp_path / "o")], 4),
    ):
        done = CliRunner().invoke(commands.main, arguments)
        assert done.exit_code == code, done.output
        assert isinstance(done.exception, SystemExit)


# ------------------------------------------------------------------ run folders


def test_two_replays_cannot_share_a_run_folder(tmp_path: Path) -> None:
    """The second is refused while the first is at work, and the folder is free afterwards."""
    write_log(tmp_path / "log", X, ["a", "b", "c"])
    refused = []

    def second(_: int) -> None:
        with pytest.raises(ParameterError, match=f"process {os.getpid()}") as e:
            se.replay(tmp_path / "log", small(), tmp_path / "run", overwrite=True)
        refused.append(e)

    se.replay(tmp_path / "log", small(), tmp_path / "run", progress=second)
    assert len(refused) == 3  # at each snapshot, and once all are embedded
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        ".lock",
        "embedding.parquet",
        "rejected.parquet",
        "run.db",
        "snapshot.arrow",
        "timeline.parquet",
    ]
    se.replay(tmp_path / "log", small(), tmp_path / "run", overwrite=True)


def python(source: str, *arguments: str) -> subprocess.Popen[str]:
    """A process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.long
def test_a_killed_replay_leaves_no_lock_and_the_next_goes_on(tmp_path: Path) -> None:
    """kill -9 in mid-run: another configuration is refused by name, the same goes on."""
    write_log(tmp_path / "log", X, ["a", "b", "c"], rows_per_batch=10)
    killed = python(
        """
        import sys, time
        import streamembed as se
        def wait(rows):
            if rows > 60:
                print("now", flush=True)
                time.sleep(60)
        engine = se.Engine(size=60, warm_up=50)
        se.replay(sys.argv[1], engine, sys.argv[2], snapshot_every=10, progress=wait)
        """,
        str(tmp_path / "log"),
        str(tmp_path / "run"),
    )
    assert killed.stdout is not None
    assert killed.stdout.readline() == "now\n"
    with pytest.raises(ParameterError, match=f"process {killed.pid}"):
        se.replay(tmp_path / "log", small(), tmp_path / "run", overwrite=True)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    (tmp_path / "run" / f"embedding.parquet.{killed.pid}.part").touch()
    with pytest.raises(ParameterError, match=r"snapshot_every was 10 and is 100.*--overwrite"):
        se.replay(tmp_path / "log", small(), tmp_path / "run")
    engine = se.Engine(size=60, warm_up=50)
    done = se.replay(tmp_path / "log", engine, tmp_path / "run", snapshot_every=10)
    assert (done.accepted, done.resumed_at) == (80, 50)
    done = se.replay(tmp_path / "log", small(), tmp_path / "run", overwrite=True)
    assert (done.accepted, done.resumed_at) == (80, 0)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    asked = {"picture.parquet", "clusters.parquet", "drift.parquet", "alarms.jsonl"}
    asked |= {"landmarks.arrow"}
    assert names == {*run_folder.FILES, "run.db", ".lock"} - asked


def test_run_folders_that_cannot_be_made_are_refused_by_type(tmp_path: Path) -> None:
    """A file in the way, and what is no path at all."""
    write_log(tmp_path / "log", X, ["a", "b", "c"])
    (tmp_path / "file").touch()
    with pytest.raises(ParameterError, match="it is a file"):
        se.replay(tmp_path / "log", small(), tmp_path / "file")
    with pytest.raises(FileError):
        se.replay(tmp_path / "log", small(), tmp_path / "file" / "below")
    with pytest.raises(FileError):
        se.replay(tmp_path / "log", small(), Path("/proc/nothing/here"))
    for run in (5, None, "\0"):
        with pytest.raises(ParameterError, match="run="):
            se.replay(tmp_path / "log", small(), run)  # type: ignore[arg-type]


# ------------------------------------------------------------------ bombs

# Megabytes of address space: Python with numpy, scipy and pyarrow reserves 1,600, and uses 150.
LIMIT = 2_000


def under_a_limit(source: str, path: Path) -> str:
    """What a process prints that may not take more than `LIMIT`."""
    done = python(
        "import resource, sys\n"
        "import numpy as np, streamembed as se\n"
        "from streamembed.errors import StreamembedError\n"
        "from streamembed.logs.event_log import open_log\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({LIMIT} * 2**20, {LIMIT} * 2**20))\n"
        + textwrap.dedent(source),
        str(path),
    )
    out, said = done.communicate()
    assert done.returncode == 0, said[-2000:]
    return out


def bomb(path: Path, rows: int, group: int) -> None:
    """Constant rows, which Parquet writes in some kilobytes."""
    table = pa.table({"a": np.zeros(group), "b": np.zeros(group)})
    with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
        for _ in range(rows // group):
            writer.write_table(table, row_group_size=group)


def test_a_parquet_bomb_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """Ten million constant rows in row groups of five million: read to the end, batch by batch."""
    bomb(tmp_path / "log.parquet", 10_000_000, 5_000_000)
    assert (tmp_path / "log.parquet").stat().st_size < 200_000
    source = """
        print(sum(len(part) for part in open_log(sys.argv[1])))
    """
    assert under_a_limit(source, tmp_path / "log.parquet") == "10000000\n"


def test_a_log_written_into_a_pipe_waited_for_ever(tmp_path: Path) -> None:
    """A pipe without a reader is refused, as it is by everything that is saved."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotAFileError, match="pipe, device or socket"):
        write_log(tmp_path / "pipe", np.ones((3, 2)), ["x", "y"])


@pytest.mark.parametrize("error", [MemoryError("8.0 GiB"), pa.ArrowMemoryError("malloc failed")])
def test_out_of_memory_was_called_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: MemoryError
) -> None:
    """Of a good file: whoever saves it again has lost what it held."""
    engine = se.Engine(size=60, warm_up=50)
    engine.learn(np.random.default_rng(0).standard_normal((60, 3)))
    engine.save(tmp_path / "engine")
    engine.snapshot().save(tmp_path / "snapshot")
    se.Monitor().save(tmp_path / "monitor")

    def short(*_: object) -> Any:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(archive, "_read_header", short)
        for kind in (se.Engine, se.Snapshot, se.Monitor):
            with pytest.raises(MemoryError):
                kind.load(tmp_path / kind.__name__.lower())  # type: ignore[attr-defined]
    with se.open_run(tmp_path / "run", {"size": 60, "warm_up": 50}) as run:
        run.learn(np.zeros((3, 2)))
    monkeypatch.setattr(archive, "_read_header", short)
    with pytest.raises(MemoryError):
        verify(tmp_path / "run")


def test_a_lack_of_memory_in_arrow_names_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged length asks for as much: the message has the size, and what was read."""
    write_log(tmp_path / "log", np.zeros((9, 2)), ["a", "b"])

    def short(*_: object, **__: object) -> Any:
        raise pa.ArrowMemoryError("malloc of size 1000 failed")

    monkeypatch.setattr(log_file, "_split_valid", short)
    with pytest.raises(LogError, match="malloc of size"):
        list(open_log(tmp_path / "log").batches())
