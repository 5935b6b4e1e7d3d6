"""Logs of many columns: ``python -m scenarios.fuzz.columns --columns 2000``.

A log of 60 rows is replayed and transformed with d, 2 d and 3 d columns, in every format and for
every way to choose among the columns. The last d columns must cost as many steps as the d before
them, within a tenth; where the steps are quadratic in the columns they cost up to 5/3. Steps are
calls, and comparisons of names: these are counted, not seconds, so that a log gives the same figure
on every machine. Exit code 1 where the columns cost more.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa

import streamembed as se
from streamembed.data import table
from streamembed.data.column_roles import (
    ColumnCandidates,
    ColumnChoice,
    Columns,
    choose_event_columns,
)
from streamembed.engine.snapshot import Snapshot
from streamembed.logs import event_log
from streamembed.logs.log_file import LogFile
from streamembed.logs.log_writer import open_writer
from streamembed.logs.paths import probe_files
from streamembed.runs.log_transform import transform_log

__all__ = ["CHOICES", "LARGEST", "Name", "count_steps", "growth", "open_log", "replay", "slope"]

LARGEST = 1.1
ROWS = 60
Use = Callable[[Path, dict[str, Any]], None]
BESIDE = 0.5  # columns of text for each feature
CHOICES: dict[str, Callable[[list[str]], dict[str, Any]]] = {
    "nothing": lambda names: {},
    "names": lambda names: {"features": names},
    "few names": lambda names: {"features": names[:2]},
    "a pattern": lambda names: {"features": ["c*"]},
    "excluded names": lambda names: {"exclude": names[2:]},
    "an excluded pattern": lambda names: {"exclude": ["c*[13579]"]},
}


class Name(str):
    """A name of a column that counts its comparisons, which `tuple.index` makes out of sight."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        """As that of str."""
        Name.compared += 1
        return str.__eq__(self, other)


def count_steps(call: Callable[[], Any]) -> int:
    """Calls of functions, and comparisons of `Name`, that a call makes in this thread."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before, Name.compared = sys.getprofile(), 0
    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(before)
    return calls + Name.compared


@contextmanager
def count_names() -> Iterator[None]:
    """Names of logs are `Name` until it is decided which are features: these are saved as text."""
    as_text = table.to_feature_name

    def probe(paths: Any) -> tuple[LogFile, ...]:
        return tuple(
            replace(file, columns=tuple((Name(name), kind) for name, kind in file.columns or ()))
            for file in probe_files(paths)
        )

    def feature_name(name: Any) -> str:
        return name if isinstance(name, Name) else as_text(name)

    def plain_layout(found: ColumnCandidates, choice: ColumnChoice) -> Columns:
        layout = choose_event_columns(found, choice)
        return replace(layout, features=tuple(map(str, layout.features)))

    with (
        mock.patch("streamembed.logs.event_log.probe_files", probe),
        mock.patch("streamembed.logs.event_log.choose_event_columns", plain_layout),
        mock.patch("streamembed.data.table.to_feature_name", feature_name),
    ):
        yield


def write_log_file(folder: Path, columns: int, format: str) -> tuple[Path, list[str]]:
    """A log of so many columns, and the names of its features."""
    rng = np.random.default_rng(columns)
    names = [f"c{j}" for j in range(columns - int(BESIDE * columns))]
    data = {name: rng.standard_normal(ROWS) for name in names}
    data |= {f"text{j}": pa.array(["a"] * ROWS) for j in range(columns - len(names))}
    written = pa.table(data)
    path = folder / f"{columns}.{format}"
    with open_writer(str(path), written.schema, format) as writer:
        writer.write_table(written)
    return path, names


def growth(choice: str, format: str, columns: int, use: Use) -> float:
    """Steps of the last third of the columns beside those of the second."""
    with tempfile.TemporaryDirectory() as place, count_names(), warnings.catch_warnings():
        warnings.simplefilter("ignore")

        def steps(d: int) -> int:
            log, names = write_log_file(Path(place), d, format)
            return count_steps(lambda: use(log, CHOICES[choice](names)))

        return slope(steps, columns)


def slope(steps: Callable[[int], int], d: int) -> float:
    """1 where steps are linear in d, up to 5/3 where they are quadratic."""
    steps(10)  # the first of all pays for what is imported late
    first, second, third = (steps(times * d) for times in (1, 2, 3))
    return (third - second) / (second - first)


def open_log(log: Path, chosen: dict[str, Any]) -> None:
    """What each column is for."""
    event_log.open_log(log, **chosen)


def replay(log: Path, chosen: dict[str, Any]) -> None:
    """A replay, and a transform of the same log."""
    run = log.with_suffix(".run")
    se.replay(log, se.Engine(), run, **chosen)
    snapshot = Snapshot.load(run / "snapshot.arrow")
    log_table = event_log.open_log(log, snapshot.feature_names)
    log_table = replace(log_table, feature_names=tuple(map(Name, log_table.feature_names)))
    transform_log(snapshot, log_table, log.with_suffix(".out.parquet"))


def main(arguments: list[str] | None = None) -> int:
    """Print the ratios; 1 where one is too large."""
    parser = argparse.ArgumentParser(prog="scenarios.fuzz.columns", description=__doc__)
    parser.add_argument("--columns", type=int, default=2000)
    asked = parser.parse_args(arguments)
    worst = 0.0
    for choice in CHOICES:
        for format in ("stream", "file", "parquet"):
            ratio = growth(choice, format, asked.columns, replay)
            print(f"{choice}, {format}: {ratio:.2f} times the steps up to {3 * asked.columns}")
            worst = max(worst, ratio)
    return int(worst > LARGEST)


if __name__ == "__main__":
    sys.exit(main())
