"""The demo: a real stream with a change to new states, and a stable map that follows it."""

from __future__ import annotations

import pickle
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table
from river import datasets
from scipy.sparse.linalg import eigsh
from scipy.spatial.distance import cdist

from streamembed.drift.alarm import Alarm
from streamembed.drift.monitor import Monitor
from streamembed.engine.engine import Engine
from streamembed.engine.picture import Picture
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import ColumnWarning, ParameterError
from streamembed.layout import forces_numba
from streamembed.logs.event_log import open_log
from streamembed.logs.log_writer import write_log
from streamembed.numeric.arrays import Array, Floats
from streamembed.report.page import write_page
from streamembed.runs.replay_log import replay
from streamembed.threads import one_blas_thread

USUAL_STATE, NEW_STATE = "usual", "new"
# Share of the stream before the change. By then the window of 2,000 has been full for a while.
SHARE_BEFORE_CHANGE = 0.75
STEP_SIZE = 100
# With fewer events, the monitor has none to compare with its reference.
LEAST_MONITORED_EVENTS = 1500
# Paths and extras have brackets, which rich would read as markup, and must not be wrapped.
PLAIN_TEXT: dict[str, Any] = {"markup": False, "soft_wrap": True}


@dataclass(frozen=True)
class DemoStep:
    """A hundred events: their coverage by the snapshot before them, and the snapshot after."""

    snapshot: Snapshot  # after the events
    # Median coverage of the arriving events of each kind, not yet learned; NaN without any.
    usual_coverage: float
    new_coverage: float
    movement: float  # how far the picture moved; NaN at the first one
    # Seconds to learn the events, picture included, and to certify the snapshot.
    learn_seconds: float
    publish_seconds: float


@click.command("demo")
@click.option("--into", default="demo", show_default=True, metavar="DIR", help="Output folder.")
@click.option("--events", default=4000, show_default=True, help="Length of the stream.")
def command(into: str, events: int) -> None:
    """Follow a real stream through a change: map, picture, coverage, certificates."""
    run_demo(Path(into), events, Console(width=None if sys.stdout.isatty() else 100))


def run_demo(folder: Path, events: int, console: Console) -> None:
    """Follow river's Shuttle with default parameters through a change; print it.

    Parameters
    ----------
    folder
        Folder of the log and the report; an existing demo in it is replaced.
    events
        Length of the stream, at most 40,000.
    """
    points, names, labels = load_shuttle(events)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "shuttle.parquet"
    write_log(log, points, names, labels=labels, format="parquet", rows_per_batch=STEP_SIZE)
    change = labels.index(NEW_STATE) if NEW_STATE in labels else len(labels)
    console.print(
        f"{len(points):,} readings of {len(names)} sensors of a space shuttle (river's Shuttle), "
        f"in {log}.\nUp to event {change:,} all are of its usual state; other states, as frequent "
        "as in the data, start only then.\nThe engine has default parameters, keeps a picture, and "
        "never sees the labels.\n",
        **PLAIN_TEXT,
    )
    if not forces_numba.available:
        console.print(
            "without numba the picture takes several times as long: pip install "
            "'streamembed[fast]'\n",
            **PLAIN_TEXT,
        )
    engine = Engine(picture=True)
    with one_blas_thread():
        steps = learn_log(engine, log, np.array(labels))
        if not steps:
            console.print(
                "too few events: the warm-up takes 50, the next step 100; use a larger --events"
            )
            return
        console.print(_tabulate_change(steps, change))
        console.print(_tabulate_refit(engine, steps))
    for line in _summarise_steps(steps, change):
        console.print(line, **PLAIN_TEXT)
    _monitor_log(folder, log, console)
    console.print("\nyour own log:  streamembed replay your-log.parquet --run run/", **PLAIN_TEXT)


def _monitor_log(folder: Path, log: Path, console: Console) -> None:
    """Replay the log with a monitor, which does not see the labels either, and write its report."""
    if (open_log(log).n_rows or 0) < LEAST_MONITORED_EVENTS:
        return
    run, alarms = folder / "run", list[Alarm]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColumnWarning)
        replay(
            log,
            Engine(size=500),
            run,
            snapshot_every=STEP_SIZE,
            overwrite=True,
            monitor=Monitor(),
            on_alarm=lambda alarm: alarms.append(alarm) if alarm.kind == "alarm" else None,
        )
    console.print("\nA monitor set to one false alarm in 10,000 events reports:", **PLAIN_TEXT)
    for alarm in alarms:
        console.print(f"  {alarm.sentence}", **PLAIN_TEXT)
    try:
        console.print(f"report: {write_page(run, folder / 'report.html')}", **PLAIN_TEXT)
    except ParameterError as error:  # without Bokeh
        console.print(f"for a report: {error}", **PLAIN_TEXT)


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


def learn_log(engine: Engine, log: Path, labels: Array) -> list[DemoStep]:
    """Learn the log, a hundred events a step; before, compute their coverage by the last map."""
    steps: list[DemoStep] = []
    previous: Snapshot | None = None
    for points in _read_steps(log):
        kinds = labels[engine.position : engine.position + len(points)]
        start = time.perf_counter()
        engine.learn(points)
        learned = time.perf_counter()
        if not engine.ready:
            continue
        before, snapshot = previous, engine.publish()
        published, previous = time.perf_counter(), snapshot
        if before is None:  # the first map: no earlier one gives a coverage
            continue
        picture, coverage = get_picture(snapshot), before.coverage(points)
        earlier = get_picture(steps[-1].snapshot) if steps else picture
        is_comparable = picture.epoch == earlier.epoch and bool(steps)
        steps.append(
            DemoStep(
                snapshot,
                _compute_median(coverage[kinds == USUAL_STATE]),
                _compute_median(coverage[kinds == NEW_STATE]),
                picture.moved_since(earlier).mean if is_comparable else np.nan,
                learned - start,
                published - learned,
            )
        )
    return steps


def _read_steps(log: Path) -> Iterator[Floats]:
    for batch in open_log(log).batches():
        assert batch.points is not None
        yield from (batch.points[s : s + STEP_SIZE] for s in range(0, len(batch.points), STEP_SIZE))


def get_picture(snapshot: Snapshot) -> Picture:
    """The picture that every snapshot of the demo has."""
    assert snapshot.picture is not None
    return snapshot.picture


def _compute_median(values: Floats) -> float:
    return float(np.median(values)) if len(values) else np.nan


def _tabulate_change(steps: list[DemoStep], change: int) -> Table:
    before = [step for step in steps if step.snapshot.position <= change][-5:]
    after = [step for step in steps if step.snapshot.position > change]
    groups = [before, after[:1], after[-1:]]
    table = Table("", "500 events before", "the next 100", "the last 100")
    for name, field in (("usual", "usual_coverage"), ("never seen before", "new_coverage")):
        table.add_row(
            f"coverage on arrival, {name}",
            *(_format_mean([getattr(step, field) for step in group]) for group in groups),
        )
    movement = ([step.movement for step in group] for group in groups)
    table.add_row(
        "the picture moves, in its radius", *(_format_mean(group, 4) for group in movement)
    )
    residuals = ([step.snapshot.certificate.residual for step in group] for group in groups)
    table.add_row("certified residual", *(_format_mean(group, 5) for group in residuals))
    return table


def _tabulate_refit(engine: Engine, steps: list[DemoStep]) -> Table:
    recent, snapshot = steps[-10:], steps[-1].snapshot
    learn = np.mean([step.learn_seconds for step in recent]) * 1e3 / (STEP_SIZE / 10)
    publish = np.mean([step.publish_seconds for step in recent]) * 1e3
    solve, layout, displacement = _time_refit(engine, snapshot)
    table = Table(f"a window of {len(snapshot.ids):,}, one BLAS thread", "followed", "from scratch")
    table.add_row(
        "ten events into map and picture",
        f"{learn:.0f} ms",
        f"{1e3 * solve:.0f} ms (widths given) + {1e3 * layout:.0f} ms",
    )
    table.add_row("the snapshot and its certificate", f"{publish:.0f} ms", "-")
    table.add_row(
        "the picture moves, in its radius",
        f"{_format_mean([steps[-1].movement], 4)} in {STEP_SIZE} events",
        f"{_format_mean([displacement], 4)}, aligned with the old one",
    )
    return table


def _format_mean(values: list[float], places: int = 2) -> str:
    """Format the mean of the values that are not NaN."""
    present = [value for value in values if not np.isnan(value)]
    return f"{np.mean(present):.{places}f}" if present else "-"


def _time_refit(engine: Engine, snapshot: Snapshot) -> tuple[float, float, float]:
    """Seconds for the batch map and a new layout of the window, and how far the layout moves."""
    start = time.perf_counter()
    _compute_batch_eigenvalues(snapshot)
    solved = time.perf_counter() - start
    refitted = pickle.loads(pickle.dumps(engine))
    start = time.perf_counter()
    refitted.relayout()
    seconds = time.perf_counter() - start
    picture = get_picture(snapshot)
    new_picture = get_picture(refitted.publish())  # aligned with it
    displacement = np.linalg.norm(new_picture.coordinates - picture.coordinates, axis=1)
    return solved, seconds, float(displacement.mean()) / picture.radius


def _compute_batch_eigenvalues(snapshot: Snapshot) -> Array:
    """The dense S of the snapshot's points, and its leading eigenvectors: plain numpy and scipy."""
    scaled = (snapshot.points - snapshot.center) / snapshot.scale
    widths = np.outer(snapshot.widths, snapshot.widths)
    weights = np.exp(-cdist(scaled, scaled, "sqeuclidean") / (snapshot.width * widths))
    roots = np.sqrt(weights.sum(axis=1))  # alpha is 0: the widths follow the density already
    dense = weights / np.outer(roots, roots)
    k = len(snapshot.eigenvalues) + 1
    return np.asarray(eigsh(dense, k, v0=roots)[0])


def _summarise_steps(steps: list[DemoStep], change: int) -> list[str]:
    met = sum(step.snapshot.certificate.met is True for step in steps)
    lines = [f"\n{met} of {len(steps)} certificates are met."]
    before = [step.snapshot for step in steps if step.snapshot.position <= change]
    last = steps[-1].snapshot
    if (
        before
        and before[-1] is not last
        and get_picture(before[-1]).epoch == get_picture(last).epoch
    ):
        movement = get_picture(last).moved_since(get_picture(before[-1]))
        lines.append(
            f"From event {before[-1].position:,} to {last.position:,} the {movement.shared:.0%} of "
            f"the points that stayed moved by {movement.mean:.3f} of the picture's radius."
        )
    if last.certificate.lone:
        lines.append("A few points dominate a component: snapshot.leading_ids lists them.")
    return lines
