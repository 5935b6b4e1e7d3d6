"""Logs by URI, and files of other formats."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from pyarrow import fs

from streamembed.errors import FileError, LogError, ParameterError
from streamembed.logs.event_log import describe_log, open_log, write_log
from streamembed.logs.log_file import FORMATS
from streamembed.logs.other_formats import describe_conversion
from streamembed.runs.run_folder import check_apart

X = np.random.default_rng(0).normal(size=(50, 2))


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for a bucket: a file system without paths of this machine."""
    remote = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())

    class Servers:
        @staticmethod
        def from_uri(uri: str) -> tuple[Any, str]:
            return remote, uri.partition("://")[2].partition("?")[0].rpartition("@")[2]

    monkeypatch.setattr("streamembed.logs.remote_path.fs.FileSystem", Servers)
    (tmp_path / "bucket").mkdir()
    return tmp_path / "bucket"


@pytest.mark.parametrize("format", FORMATS)
def test_a_remote_log_is_read_like_a_file(bucket: Path, format: str) -> None:
    """The same batches, from any row."""
    write_log(bucket / "log", X, ["a", "b"], format=format, rows_per_batch=16)
    here, there = open_log(bucket / "log"), open_log("s3://key:secret@bucket/log?region=x")
    for start in (0, 20):
        pairs = zip(here.batches(start), there.batches(start), strict=True)
        assert all(np.array_equal(one.points, other.points) for one, other in pairs)
    assert there.n_rows == here.n_rows
    assert [*map(str, describe_log("s3://bucket/log").files)] == ["s3://bucket/log"]
    (bucket / "log").write_bytes((bucket / "log").read_bytes()[:-9])
    with pytest.raises(LogError, match="s3://bucket/log"):
        list(open_log("s3://bucket/log"))


def test_a_remote_folder_is_one_log(bucket: Path) -> None:
    """Its files in the order of their names; it is nowhere that a run could be written to."""
    for name in ("b", "a", "_c"):
        write_log(bucket / name, X, ["a", "b"])
    log = open_log("gs://bucket")
    assert [*map(str, log.paths)] == ["gs://bucket/a", "gs://bucket/b"]
    assert log.folders == ()
    check_apart("run", bucket, [log], folder=True)
    with pytest.raises(LogError, match="gs://bucket/no is missing"):
        open_log("gs://bucket/no")


def test_a_server_that_does_not_answer_is_no_damage(
    bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is its answer a wrong parameter."""

    class Silent(fs.SubTreeFileSystem):
        def get_file_info(self, _: object) -> object:
            raise OSError("curlCode: 7, could not connect")

    silent = Silent(str(bucket), fs.LocalFileSystem())
    servers = "streamembed.logs.remote_path.fs.FileSystem.from_uri"
    monkeypatch.setattr(servers, lambda _: (silent, "x"))
    with pytest.raises(FileError, match=r"s3://x cannot be read \(curlCode: 7"):
        open_log("s3://x")


def test_a_uri_of_this_machine_is_a_path(tmp_path: Path) -> None:
    """And can be sent elsewhere; others are refused."""
    write_log(tmp_path / "a log", X, ["a", "b"])
    log = open_log((tmp_path / "a log").as_uri())
    assert log.paths == (tmp_path / "a log",)
    assert pickle.loads(pickle.dumps(log)).paths == log.paths
    with pytest.raises(ParameterError, match="a URI that Arrow reads"):
        open_log("http://host/log")


def test_the_line_that_converts_a_file_does(tmp_path: Path) -> None:
    """CSV, JSON lines and arrays of numpy, whose names or first bytes say what they are."""
    table = pa.table({"x0": X[:, 0], "x1": X[:, 1]})
    pyarrow.csv.write_csv(table, tmp_path / "1.csv")
    np.save(tmp_path / "2.npy", X)
    rows = "".join(f'{{"x0": {a!r}, "x1": {b!r}}}\n' for a, b in X.tolist())
    (tmp_path / "3.jsonl").write_text(rows)
    for name in ("1.csv", "2.npy", "3.jsonl"):
        with pytest.raises(ParameterError, match="not Arrow or Parquet: convert it: python -c"):
            open_log(tmp_path / name)
        conversion = describe_conversion(name, b"")
        assert conversion is not None
        program = conversion[1].removeprefix('python -c "').removesuffix('"')
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
        (batch,) = open_log((tmp_path / name).with_suffix(".parquet"))
        assert np.array_equal(batch.points, X)
    assert describe_conversion("log", b"\x93NUMPY\x01\x00") is not None
    assert describe_conversion("log", b"nonsense") is None
