"""Places of logs: URIs, and files of other formats."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from streamembed.errors import FileError, LogError, ParameterError
from streamembed.logs.event_log import open_log, write_log
from streamembed.logs.followed_log import follow_log
from streamembed.logs.log_file import CONVERSIONS, FORMATS
from streamembed.logs.paths import TABLES
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

    monkeypatch.setattr("streamembed.logs.place.fs.FileSystem", Servers)
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
    assert [*map(str, there.paths)] == ["s3://bucket/log"]
    (bucket / "log").write_bytes((bucket / "log").read_bytes()[:-9])
    with pytest.raises(LogError, match="s3://bucket/log"):
        list(open_log("s3://bucket/log"))


def test_a_remote_folder_is_one_log(bucket: Path) -> None:
    """Its files in the order of their names; it is nowhere that a run could be written to."""
    (bucket / "b=10").mkdir()
    for name in ("b10", "b9", "a", "_c", "b=10/a"):
        write_log(bucket / name, X, ["a", "b"])
    log = open_log("gs://bucket")
    names = ["gs://bucket/a", "gs://bucket/b9", "gs://bucket/b10", "gs://bucket/b=10/a"]
    assert [*map(str, log.paths)] == names
    assert log.folders == ()
    followed = follow_log("gs://bucket", idle_exit=0)
    assert sum(len(batch) for batch in followed.batches()) == 200
    check_apart("run", bucket, log)
    with pytest.raises(LogError, match="gs://bucket/no is missing"):
        open_log("gs://bucket/no")


def test_a_remote_table_is_refused_by_its_uri(bucket: Path) -> None:
    """From its folder and from one inside."""
    (bucket / "events" / "p=1").mkdir(parents=True)
    write_log(bucket / "events" / "p=1" / "log", X, ["a", "b"])
    (bucket / "events" / "_delta_log").mkdir()
    (bucket / "events" / "_delta_log" / "0.json").write_text("{}")
    for uri in ("s3://bucket/events", "s3://bucket/events/p=1"):
        with pytest.raises(ParameterError, match="a Delta table in bucket/events,"):
            open_log(uri)
    assert len(open_log("s3://bucket/events/p=1/log").paths) == 1


def test_a_server_that_does_not_answer_is_no_damage(
    bucket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is its answer a wrong parameter."""

    class Silent(fs.SubTreeFileSystem):
        def get_file_info(self, _: object) -> object:
            raise OSError("curlCode: 7, could not connect")

    silent = Silent(str(bucket), fs.LocalFileSystem())
    servers = "streamembed.logs.place.fs.FileSystem.from_uri"
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


def write_others(folder: Path) -> dict[str, str]:
    """Files that hold X in other formats, and what they are said to be."""
    table = pa.table({"x0": X[:, 0], "x1": X[:, 1]})
    pyarrow.csv.write_csv(table, folder / "1.csv")
    shutil.copy(folder / "1.csv", folder / "text.parquet")
    np.save(folder / "2.npy", X)
    rows = "".join(f'{{"x0": {a!r}, "x1": {b!r}}}\n' for a, b in X.tolist())
    (folder / "3.jsonl").write_text(rows)
    (folder / "json.arrow").write_text(rows)
    pyarrow.orc.write_table(table, folder / "4.orc")
    options = pa.ipc.IpcWriteOptions(use_legacy_format=True)
    with (
        pa.OSFile(str(folder / "old"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema, options=options) as writer,
    ):
        writer.write_table(table)
    return {
        "1.csv": "CSV",
        "text.parquet": "text, such as CSV",
        "2.npy": "an array of numpy",
        "3.jsonl": "JSON lines",
        "json.arrow": "JSON lines",
        "4.orc": "ORC",
        "old": "an Arrow stream of a version before 0.15",
    }


def test_the_line_that_converts_a_file_does(tmp_path: Path) -> None:
    """The error has the first bytes, and the page that it names has the line."""
    page = (Path(__file__).resolve().parents[2] / CONVERSIONS).read_text()
    for name, kind in write_others(tmp_path).items():
        with pytest.raises(ParameterError, match=f"{name} is neither .* begins .*{CONVERSIONS}"):
            open_log(tmp_path / name)
        what = "CSV, text" if "CSV" in kind else kind
        line = page.partition(f"| {what} | `t = ")[2].partition("`")[0]
        table = eval(line, {"pyarrow": pa, "numpy": np, "FILE": str(tmp_path / name)})
        pq.write_table(table, tmp_path / "log")
        (batch,) = open_log(tmp_path / "log")
        assert np.array_equal(batch.points, X)
    for kind, _ in TABLES.values():
        assert f"| {kind} |" in page
