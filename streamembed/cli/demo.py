"""The demo: a real stream with a change to new states, replayed with a monitor and a picture."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow.parquet as pq
from river import datasets

from streamembed.cli.terminal_text import echo
from streamembed.drift.alarm import Alarm
from streamembed.drift.monitor import Monitor
from streamembed.engine.engine import Engine
from streamembed.errors import ColumnWarning, ParameterError, build_file_error
from streamembed.logs.log_writer import write_log
from streamembed.numeric import compilation
from streamembed.numeric.arrays import Floats
from streamembed.report.page import write_page
from streamembed.runs.log_replay import Replayed, replay

USUAL_STATE, NEW_STATE = "usual", "new"
# Share of the stream before the change. By then the window of 2,000 has been full for a while.
SHARE_BEFORE_CHANGE = 0.75
LEAST_EVENTS, MOST_EVENTS = 200, 40_000
STEP_SIZE = 100


@click.command("demo")
@click.option(
    "-o", "--output", default="demo", show_default=True, metavar="DIR", help="Output folder."
)
@click.option(
    "--events",
    type=click.IntRange(LEAST_EVENTS, MOST_EVENTS),
    default=4000,
    show_default=True,
    help="Length of the stream.",
)
def command(output: str, events: int) -> None:
    """Replay a real stream with a change: map, picture, certificates, alarms, report."""
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise build_file_error(error, folder, "used as a folder") from error
    points, names, labels = load_shuttle(events)
    log, run = folder / "shuttle.parquet", folder / "run"
    write_log(log, points, names, labels=labels, format="parquet", rows_per_batch=STEP_SIZE)
    echo(f"{events:,} readings of {len(names)} sensors of a space shuttle (river's Shuttle): {log}")
    echo(
        f"Up to event {labels.index(NEW_STATE):,} all are of its usual state; other states, as "
        "frequent as in the data, start only then. An earlier alarm is false, or of a change "
        "within the usual state."
    )
    echo("The engine has default parameters and keeps a picture; no label is read.")
    if not compilation.is_available():
        echo("without numba the picture takes several times as long: install streamembed[fast]")
    records: dict[tuple[str, int], Alarm] = {}  # of an alarm the newest explanation

    def keep(record: Alarm) -> None:
        kind = "alarm" if record.kind == "explained" else record.kind
        records[kind, record.number] = record

    options: dict[str, Any] = {
        "snapshot_every": STEP_SIZE,
        "overwrite": True,
        "monitor": Monitor(n_reference=min(1000, events // 2)),
        "on_alarm": keep,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColumnWarning)
        result = replay(log, Engine(picture=True), run, **options)
    _print_result(result, [*records.values()])
    try:
        echo(f"report: {write_page(run, folder / 'report.html')}")
    except ParameterError as error:  # without Bokeh
        echo(f"for a report: {error}")
    echo("your own log:  streamembed replay your-log.parquet --run run/")


def _print_result(result: Replayed, records: list[Alarm]) -> None:
    met = pq.read_table(result.path / "timeline.parquet", columns=["met"])["met"].to_pylist()
    echo(f"{sum(map(bool, met))} of {len(met)} certificates are met.")
    snapshot = result.snapshot
    if snapshot is not None and snapshot.picture is not None:
        kept = snapshot.picture.kept.mean()
        echo(f"The picture keeps {kept:.0%} of the neighbours of {len(snapshot.ids):,} points.")
    echo("A monitor set to one false alarm in 10,000 events reports:")
    for record in records:
        echo(f"  {record.sentence}")


def load_shuttle(events: int) -> tuple[Floats, list[str], list[str]]:
    """Points, feature names and labels of so many events, of one state before the change."""
    before = int(SHARE_BEFORE_CHANGE * events)
    rows: list[tuple[dict[str, float], str]] = []
    for x, strange in datasets.Shuttle():
        if len(rows) >= events:
            break
        if not strange or len(rows) >= before:
            rows.append((x, NEW_STATE if strange else USUAL_STATE))
    names = list(rows[0][0])
    points = np.array([[float(x[name]) for name in names] for x, _ in rows])
    return points, names, [label for _, label in rows]
