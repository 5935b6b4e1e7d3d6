"""Which files a folder has, in which order, and which folders are no logs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import streamembed as se
from streamembed.cli.commands import main
from streamembed.errors import ParameterError, TimeOrderWarning
from streamembed.logs.event_log import open_log
from streamembed.logs.followed_log import follow_log
from streamembed.logs.paths import probe_files

RNG = np.random.default_rng(0)
NUMBERS = range(12)
START = np.datetime64("2024-01-01", "s")
# Marks of tables: files inside their folder.
MARKS = {
    "a Delta table": "_delta_log/00000000000000000000.json",
    "an Iceberg table": "metadata/v1.metadata.json",
    "a Hudi table": ".hoodie/hoodie.properties",
    "a Lance data set": "_versions/1.manifest",
}


def write_part(path: Path, times: Any = None, n: int = 10) -> None:
    """A file of n rows, with times where these are given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {} if times is None else {"event_time": times}
    pq.write_table(pa.table({"x": RNG.normal(size=n), "z": RNG.normal(size=n), **columns}), path)


def minutes(first: int, n: int = 10) -> pa.Array:
    """Timestamps, one a minute."""
    return pa.array(START + 60 * (first + np.arange(n)).astype("timedelta64[s]"))


@pytest.mark.parametrize("name", ["part-{}.parquet", "hour={}/a.parquet", "a=1/hour={}/x{}"])
@pytest.mark.parametrize("door", ["folder", "pattern", "follow", "inspect"])
def test_numbers_in_names_count_by_their_value(tmp_path: Path, name: str, door: str) -> None:
    """Of files and folders, at every level and through every door: 9 before 10."""
    paths = [tmp_path / "log" / name.format(k, k) for k in NUMBERS]
    for k, path in enumerate(paths):
        write_part(path, minutes(10 * k))
    if door == "follow":
        log = follow_log(tmp_path / "log", idle_exit=0).log
        files = log.paths
    elif door == "inspect":
        files = tuple(file.place.address for file in probe_files(tmp_path / "log"))
    elif door == "pattern":
        files = open_log(str(tmp_path / "log" / name.replace("{}", "*"))).paths
    else:
        files = open_log(tmp_path / "log").paths
    assert [*files] == paths


def read_warnings(read: Callable[[], Any]) -> list[str]:
    """What is warned of the order of times."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read()
    return [str(each.message) for each in caught if each.category is TimeOrderWarning]


@pytest.mark.parametrize("kind", [None, pa.timestamp("ns", "UTC"), pa.date64(), pa.int64()])
def test_times_that_fall_between_files_are_warned_of(tmp_path: Path, kind: Any) -> None:
    """With both files, of a folder and of one that is followed; only where a file begins early."""
    for k, first in enumerate((0, 5000, 2000, 9000)):
        times = minutes(first, 3000 if k == 1 else 10)
        times = times if kind is None else times.cast("timestamp[s]").cast(kind, safe=False)
        write_part(tmp_path / f"{k}", times, len(times))
    for read in (
        lambda: list(open_log(tmp_path)),
        lambda: list(follow_log(tmp_path, idle_exit=0).batches()),
    ):
        (message,) = read_warnings(read)
        assert f"from {tmp_path / '1'} to {tmp_path / '2'}" in message
    assert not read_warnings(lambda: list(open_log([tmp_path / name for name in "0213"])))


@pytest.mark.parametrize("case", ["late events", "no order", "text", "nulls"])
def test_other_orders_of_times_are_no_fault_of_files(tmp_path: Path, case: str) -> None:
    """Events late by as much within a file, a log in no order, times that are text, or missing."""
    for k in range(3):
        times = minutes(10 * k).to_numpy().copy()
        if case == "late events":
            times[[4, 9]] -= 180
            times[0] -= 120
        elif case == "no order":
            times = RNG.permutation(minutes(0).to_numpy())
            times[[0, -1]] = times.max(), times.min()
        column = pa.array(times)
        if case == "text":
            column = pa.array([f"{k}"] * 10)[::-1]
        elif case == "nulls" and k:
            column = pa.nulls(10, column.type)
        write_part(tmp_path / f"{k}", column)
    assert not read_warnings(lambda: list(open_log(tmp_path)))


@pytest.mark.filterwarnings("always")
def test_the_command_warns_of_times_that_fall(tmp_path: Path) -> None:
    """On standard error, once."""
    for k, first in enumerate((100, 0)):
        write_part(tmp_path / "log" / f"{k}", minutes(first, 40), 40)
    run = str(tmp_path / "run")
    done = CliRunner().invoke(main, ["replay", str(tmp_path / "log"), "--run", run, "--size", "20"])
    assert done.exit_code == 0
    assert done.stderr.count("warning: event times fall by 8340 from") == 1


@pytest.mark.parametrize("kind", MARKS)
@pytest.mark.parametrize("door", ["open", "inside", "pattern", "follow", "partitions", "transform"])
def test_tables_that_delete_rows_are_no_folders_of_files(
    tmp_path: Path, kind: str, door: str
) -> None:
    """By any door, also from a folder inside; the message names the table, and what to do."""
    table = tmp_path / "events"
    write_part(table / "p=1" / "part-0.parquet")
    mark = table / MARKS[kind]
    mark.parent.mkdir()
    mark.write_text("{}")
    inside = table / "p=1"
    doors: dict[str, Callable[[], object]] = {
        "open": lambda: open_log(table),
        "inside": lambda: probe_files(inside),
        "pattern": lambda: open_log(f"{table}/*/*.parquet"),
        "follow": lambda: follow_log(table, idle_exit=0),
        "partitions": lambda: se.replay_partitions(table, tmp_path / "run"),
        "transform": lambda: se.replay(tmp_path, se.Engine(), tmp_path / "run"),
    }
    if door == "transform":  # a folder of tables
        table.rename(tmp_path / "day=1")
        table = tmp_path / "day=1"
    with pytest.raises(ParameterError, match=f"belongs to {kind} in {table}, .*formats.md"):
        doors[door]()


def test_chosen_files_of_a_table_are_read(tmp_path: Path) -> None:
    """Those that `DeltaTable.file_uris` lists; a folder named like a mark is none without files."""
    write_part(tmp_path / "events" / "part-0.parquet")
    (tmp_path / "events" / "_delta_log").mkdir()
    assert open_log(tmp_path / "events").n_rows == 10
    (tmp_path / "events" / "_delta_log" / "0.json").write_text("{}")
    assert open_log([tmp_path / "events" / "part-0.parquet"]).n_rows == 10


def test_standard_input_is_no_log() -> None:
    with pytest.raises(ParameterError, match="standard input"):
        probe_files(["-"])
