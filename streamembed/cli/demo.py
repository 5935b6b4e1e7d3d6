"""The demo: a real stream into which a state comes that was never seen, and a map that holds."""

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

__all__ = ["command"]

USUAL, NEW = "usual", "new"
# Of the stream: what comes before the change. By then the window of 2,000 has been full for a time.
BEFORE = 0.75
EVERY = 100
# Events without which a monitor has nothing to watch behind its reference.
WATCHED = 1500
# Paths and extras have brackets, which rich would take for markup, and are not to be broken.
PLAIN: dict[str, Any] = {"markup": False, "soft_wrap": True}
# Okabe & Ito's colours, told apart by most colour-blind readers.
HELD, CAME, STRANGE, INK = "#0072B2", "#b0b0b0", "#D55E00", "#333333"


@dataclass(frozen=True)
class Step:
    """A hundred events: how they looked to the snapshot before them, and the snapshot after.

    Attributes
    ----------
    snapshot
        After the events.
    usual, new
        Median coverage of the arriving events of each kind, not yet learned; NaN without any.
    moved
        How far the picture moved; NaN at the first one.
    learn, publish
        Seconds to learn the events, picture included, and to certify the snapshot.
    """

    snapshot: Snapshot
    usual: float
    new: float
    moved: float
    learn: float
    publish: float


@click.command("demo")
@click.option("--into", default="demo", show_default=True, metavar="DIR", help="Output folder.")
@click.option("--events", default=4000, show_default=True, help="Length of the stream.")
def command(into: str, events: int) -> None:
    """Follow a real stream through a change: map, picture, coverage, certificates."""
    run(Path(into), events, Console(width=None if sys.stdout.isatty() else 100))


def run(folder: Path, events: int, console: Console) -> None:
    """Follow river's Shuttle with default parameters, through a change; print and draw it.

    Parameters
    ----------
    folder
        Where the log and the picture go; an existing demo there is replaced.
    events
        Length of the stream, at most 40,000.
    """
    points, names, labels = _shuttle(events)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "shuttle.parquet"
    write_log(log, points, names, labels=labels, format="parquet", rows_per_batch=EVERY)
    change = labels.index(NEW) if NEW in labels else len(labels)
    console.print(
        f"{len(points):,} readings of {len(names)} sensors of a space shuttle (river's Shuttle), "
        f"in {log}.\nUp to event {change:,} all are of its usual state; others, as frequent as in "
        "the data, come only then.\nThe engine has default parameters, keeps a picture, and never "
        "sees the labels.\n",
        **PLAIN,
    )
    if not forces_numba.available:
        console.print(
            "without numba the picture takes several times as long: pip install "
            "'streamembed[fast]'\n",
            **PLAIN,
        )
    engine = Engine(picture=True)
    with one_blas_thread():
        steps = _follow(engine, log, np.array(labels))
        if not steps:
            console.print("the warm-up takes 50 events, and a look at the next 100: use more")
            return
        console.print(_report(steps, change))
        console.print(_against_a_refit(engine, steps))
    for line in _said(steps, change):
        console.print(line, **PLAIN)
    picture = folder / "demo.png"
    if _draw(picture, steps, np.array(labels), change):
        console.print(f"\nthe picture: {picture}", **PLAIN)
    else:
        console.print("\nfor a picture: pip install 'streamembed[pictures]'", **PLAIN)
    _watch(folder, log, console)
    console.print("\nyour own log:  streamembed replay your-log.parquet --run run/", **PLAIN)


def _watch(folder: Path, log: Path, console: Console) -> None:
    """The same log as a run with a monitor, which sees no labels either, and its report."""
    if (open_log(log).n_rows or 0) < WATCHED:
        return
    run, alarms = folder / "run", list[Alarm]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ColumnWarning)
        replay(
            log,
            Engine(size=500),
            run,
            snapshot_every=EVERY,
            overwrite=True,
            monitor=Monitor(),
            on_alarm=alarms.append,
        )
    console.print("\nA monitor, asked for one false alarm in 10,000 events, says:", **PLAIN)
    for alarm in alarms:
        console.print(f"  {alarm.sentence}", **PLAIN)
    try:
        console.print(f"the report: {write_page(run, folder / 'report.html')}", **PLAIN)
    except ParameterError as error:  # without Bokeh
        console.print(f"for a report: {error}", **PLAIN)


def _shuttle(events: int) -> tuple[Floats, list[str], list[str]]:
    """Rows in their own order; those of other states are left out before the change."""
    before = int(BEFORE * events)
    rows: list[tuple[dict[str, float], str]] = []
    for x, strange in datasets.Shuttle():
        if len(rows) >= events:
            break
        if not strange or len(rows) >= before:
            rows.append((x, NEW if strange else USUAL))
    names = list(rows[0][0])
    points = np.array([[float(x[name]) for name in names] for x, _ in rows])
    return points, names, [label for _, label in rows]


def _follow(engine: Engine, log: Path, labels: Array) -> list[Step]:
    """Learn the log, a hundred events at a time; look at them first, once there is a map."""
    steps: list[Step] = []
    known: Snapshot | None = None
    for points in _hundreds(log):
        kinds = labels[engine.position : engine.position + len(points)]
        start = time.perf_counter()
        engine.learn(points)
        learned = time.perf_counter()
        if not engine.ready:
            continue
        before, snapshot = known, engine.publish()
        done, known = time.perf_counter(), snapshot
        if before is None:  # the first map: nothing was there to look at
            continue
        picture, covered = _picture(snapshot), before.coverage(points)
        earlier = _picture(steps[-1].snapshot) if steps else picture
        still = picture.epoch == earlier.epoch and bool(steps)
        steps.append(
            Step(
                snapshot,
                _median(covered[kinds == USUAL]),
                _median(covered[kinds == NEW]),
                picture.moved_since(earlier).mean if still else np.nan,
                learned - start,
                done - learned,
            )
        )
    return steps


def _hundreds(log: Path) -> Iterator[Floats]:
    """The points of a log, the last of them apart if they are fewer."""
    for batch in open_log(log).batches():
        assert batch.points is not None
        yield from (batch.points[s : s + EVERY] for s in range(0, len(batch.points), EVERY))


def _picture(snapshot: Snapshot) -> Picture:
    assert snapshot.picture is not None
    return snapshot.picture


def _median(values: Floats) -> float:
    return float(np.median(values)) if len(values) else np.nan


def _report(steps: list[Step], change: int) -> Table:
    """What the stream looked like before the change, at it and after it."""
    before = [step for step in steps if step.snapshot.position <= change][-5:]
    after = [step for step in steps if step.snapshot.position > change]
    shown = [before, after[:1], after[-1:]]
    table = Table("", "500 events before", "the next 100", "the last 100")
    for name, field in (("usual", "usual"), ("never seen before", "new")):
        table.add_row(
            f"coverage as they come, {name}",
            *(_number([getattr(step, field) for step in some]) for some in shown),
        )
    moved = ([step.moved for step in some] for some in shown)
    table.add_row("the picture moves, in its radius", *(_number(some, 4) for some in moved))
    residuals = ([step.snapshot.certificate.residual for step in some] for some in shown)
    table.add_row("certified residual", *(_number(some, 5) for some in residuals))
    return table


def _against_a_refit(engine: Engine, steps: list[Step]) -> Table:
    """What ten events take, and the same window from scratch."""
    recent, snapshot = steps[-10:], steps[-1].snapshot
    learn = np.mean([step.learn for step in recent]) * 1e3 / (EVERY / 10)
    publish = np.mean([step.publish for step in recent]) * 1e3
    solve, layout, away = _refit(engine, snapshot)
    table = Table(f"a window of {len(snapshot.ids):,}, one BLAS thread", "followed", "from scratch")
    table.add_row(
        "ten events into map and picture",
        f"{learn:.0f} ms",
        f"{1e3 * solve:.0f} ms (widths given) + {1e3 * layout:.0f} ms",
    )
    table.add_row("the snapshot and its certificate", f"{publish:.0f} ms", "-")
    table.add_row(
        "the picture moves, in its radius",
        f"{_number([steps[-1].moved], 4)} in {EVERY} events",
        f"{_number([away], 4)}, turned onto the old one",
    )
    return table


def _number(values: list[float], places: int = 2) -> str:
    """The mean of those that are there."""
    there = [value for value in values if not np.isnan(value)]
    return f"{np.mean(there):.{places}f}" if there else "-"


def _refit(engine: Engine, snapshot: Snapshot) -> tuple[float, float, float]:
    """Seconds for the batch map and for a new layout of the window, and how far that one moves."""
    start = time.perf_counter()
    _batch(snapshot)
    solved = time.perf_counter() - start
    other = pickle.loads(pickle.dumps(engine))
    start = time.perf_counter()
    other.relayout()
    seconds = time.perf_counter() - start
    picture, fresh = _picture(snapshot), _picture(other.publish())  # turned onto it, not onto more
    away = np.linalg.norm(fresh.coordinates - picture.coordinates, axis=1)
    return solved, seconds, float(away.mean()) / picture.radius


def _batch(snapshot: Snapshot) -> Array:
    """The dense S of the snapshot's points, and its leading eigenvectors: plain numpy and scipy."""
    scaled = (snapshot.points - snapshot.center) / snapshot.scale
    widths = np.outer(snapshot.widths, snapshot.widths)
    weights = np.exp(-cdist(scaled, scaled, "sqeuclidean") / (snapshot.width * widths))
    roots = np.sqrt(weights.sum(axis=1))  # alpha is 0: the widths follow the density already
    dense = weights / np.outer(roots, roots)
    k = len(snapshot.eigenvalues) + 1
    return np.asarray(eigsh(dense, k, v0=roots)[0])


def _said(steps: list[Step], change: int) -> list[str]:
    """The same in words."""
    met = sum(step.snapshot.certificate.met is True for step in steps)
    lines = [f"\n{met} of {len(steps)} certificates are met."]
    held = [step.snapshot for step in steps if step.snapshot.position <= change]
    last = steps[-1].snapshot
    if held and held[-1] is not last and _picture(held[-1]).epoch == _picture(last).epoch:
        since = _picture(last).moved_since(_picture(held[-1]))
        lines.append(
            f"From event {held[-1].position:,} to {last.position:,} the {since.shared:.0%} of the "
            f"points that stayed moved by {since.mean:.3f} of the picture's radius."
        )
    if last.certificate.lone:
        lines.append("A component is carried by few points: snapshot.leading_ids names them.")
    return lines


def _draw(path: Path, steps: list[Step], labels: Array, change: int) -> bool:
    """Three moments in one frame, coverage, movement; False without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  (an extra)
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ModuleNotFoundError:
        return False
    figure = Figure(figsize=(12, 7), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    places = figure.add_gridspec(2, 6, height_ratios=(2, 1))
    moments = _moments(steps, change)
    known = _picture(moments[0]).ids
    for j, snapshot in enumerate(moments):
        axes = figure.add_subplot(places[0, 2 * j : 2 * j + 2])
        _draw_map(axes, _picture(snapshot), labels, known)
        axes.set_title(f"after {snapshot.position:,} events", fontsize=11)
        axes.set(**_limits(moments))
        if j == 0:
            axes.legend(frameon=False, loc="lower left", handletextpad=0.2, fontsize=9)
    _draw_coverage(figure.add_subplot(places[1, :3]), steps, change)
    _draw_movement(figure.add_subplot(places[1, 3:]), steps, change)
    figure.suptitle("readings of a space shuttle: the live map, as it is, not aligned", fontsize=13)
    figure.savefig(path, dpi=110)
    return True


def _moments(steps: list[Step], change: int) -> list[Snapshot]:
    """At the change, a third of the way on, and at the end."""
    at = [abs(step.snapshot.position - change) for step in steps]
    first = int(np.argmin(at))
    return [steps[j].snapshot for j in (first, first + (len(steps) - first) // 3, -1)]


def _limits(moments: list[Snapshot]) -> dict[str, Any]:
    """One frame for all."""
    every = np.concatenate([_picture(one).coordinates for one in moments])
    low, high = every.min(axis=0), every.max(axis=0)
    middle, half = (low + high) / 2, 0.54 * float((high - low).max())
    x, y = ((m - half, m + half) for m in middle.tolist())
    return {"xlim": x, "ylim": y, "aspect": "equal"}


def _draw_map(axes: Any, picture: Picture, labels: Array, known: Array) -> None:
    strange, held = labels[picture.ids] == NEW, np.isin(picture.ids, known)
    for chosen, colour, marker, size, label in (
        (~strange & ~held, CAME, "o", 5, None),
        (~strange & held, HELD, "o", 5, "there at the change"),
        (strange, STRANGE, "^", 20, None),
    ):
        x, y = picture.coordinates[chosen].T
        axes.scatter(x, y, s=size, c=colour, marker=marker, linewidths=0, label=label)
    axes.scatter([], [], s=8, c=CAME, label="usual, came later")
    axes.scatter([], [], s=20, c=STRANGE, marker="^", label="never seen before")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("#cccccc")


def _draw_coverage(axes: Any, steps: list[Step], change: int) -> None:
    positions = [step.snapshot.position for step in steps]
    usual, new = [step.usual for step in steps], [step.new for step in steps]
    axes.plot(positions, usual, color=HELD, marker="o", ms=3, lw=1, label="usual")
    axes.plot(positions, new, color=STRANGE, marker="^", ms=4, lw=1, label="never seen before")
    axes.axvline(change, color=INK, lw=0.8, ls=":")
    axes.legend(frameon=False, fontsize=9, loc="center left")
    axes.set(title="coverage of events as they come, median", xlabel="events", ylim=(0, 1.08))
    axes.spines[["top", "right"]].set_visible(False)


def _draw_movement(axes: Any, steps: list[Step], change: int) -> None:
    positions = [step.snapshot.position for step in steps]
    moved = [step.moved for step in steps]
    axes.semilogy(positions, moved, color=HELD, marker="o", ms=3, lw=1)
    axes.axvline(change, color=INK, lw=0.8, ls=":")
    size = len(steps[-1].snapshot.ids)
    full = [p for p, step in zip(positions, steps, strict=True) if len(step.snapshot.ids) == size]
    axes.axvspan(positions[0], full[0], color="#f2f2f2", lw=0)
    axes.annotate(
        "the window fills", (0.5 * (positions[0] + full[0]), 0.06), ha="center", fontsize=9,
        xycoords=axes.get_xaxis_transform(), color=INK,
    )  # fmt: skip
    axes.set(title="a hundred events move the picture, of its radius", xlabel="events")
    axes.spines[["top", "right"]].set_visible(False)
