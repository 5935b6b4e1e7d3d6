"""The stream of the demo, followed: ``python -m scenarios.pictures.shuttle FILE`` (``make demo``).

Coverage and movement, and a picture of the live map through the change.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from streamembed.cli.demo import NEW_STATE, STEP_SIZE, USUAL_STATE, load_shuttle
from streamembed.engine.engine import Engine
from streamembed.engine.picture import Picture
from streamembed.engine.snapshot import Snapshot
from streamembed.logs.event_log import open_log
from streamembed.logs.log_writer import write_log
from streamembed.numeric.arrays import Array, Floats
from streamembed.threads import one_blas_thread

EVENTS = 4000
# Okabe & Ito's colours, which most colour-blind readers can distinguish.
RETAINED_COLOUR, ADDED_COLOUR, NEW_COLOUR, LINE_COLOUR = "#0072B2", "#b0b0b0", "#D55E00", "#333333"


@dataclass(frozen=True)
class DemoStep:
    """A hundred events: their coverage by the snapshot before them, and the snapshot after."""

    snapshot: Snapshot  # after the events
    # Median coverage of the arriving events of each kind, not yet learned; NaN without any.
    usual_coverage: float
    new_coverage: float
    movement: float  # how far the picture moved; NaN at the first one


def main(path: Path, events: int = EVENTS) -> None:
    """Learn the stream of the demo, a hundred events a step; print and draw it."""
    points, names, labels = load_shuttle(events)
    with tempfile.TemporaryDirectory() as folder, one_blas_thread():
        log = Path(folder) / "shuttle.parquet"
        write_log(log, points, names, labels=labels, format="parquet", rows_per_batch=STEP_SIZE)
        engine, change = Engine(picture=True), labels.index(NEW_STATE)
        steps = learn_log(engine, log, np.array(labels))
    for line in _summarise_steps(steps, change):
        print(line)
    draw(path, steps, np.array(labels), change)
    print(f"picture: {path}")


def learn_log(engine: Engine, log: Path, labels: Array) -> list[DemoStep]:
    """Learn the log, a hundred events a step; before, compute their coverage by the last map."""
    steps: list[DemoStep] = []
    previous: Snapshot | None = None
    for points in _read_steps(log):
        kinds = labels[engine.position : engine.position + len(points)]
        engine.learn(points)
        if not engine.ready:
            continue
        before, previous = previous, engine.publish()
        snapshot = previous
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


def _summarise_steps(steps: list[DemoStep], change: int) -> list[str]:
    met = sum(step.snapshot.certificate.met is True for step in steps)
    lines = [f"{met} of {len(steps)} certificates are met."]
    after = next((step for step in steps if step.snapshot.position > change), steps[-1])
    lines.append(
        f"median coverage on arrival, after the change: usual {after.usual_coverage:.2f}, never "
        f"seen before {after.new_coverage:.2f}"
    )
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


def draw(path: Path, steps: list[DemoStep], labels: Array, change: int) -> None:
    """Draw three moments in one frame, coverage, movement."""
    figure = Figure(figsize=(12, 7), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 6, height_ratios=(2, 1))
    moments = _select_moments(steps, change)
    initial_ids = get_picture(moments[0]).ids
    for j, snapshot in enumerate(moments):
        axes = figure.add_subplot(grid[0, 2 * j : 2 * j + 2])
        _draw_map(axes, get_picture(snapshot), labels, initial_ids)
        axes.set_title(f"after {snapshot.position:,} events", fontsize=11)
        axes.set(**_compute_limits(moments))
        if j == 0:
            axes.legend(frameon=False, loc="lower left", handletextpad=0.2, fontsize=9)
    _draw_coverage(figure.add_subplot(grid[1, :3]), steps, change)
    _draw_movement(figure.add_subplot(grid[1, 3:]), steps, change)
    figure.suptitle("readings of a space shuttle: the live map, without any alignment", fontsize=13)
    figure.savefig(path, dpi=110)


def _select_moments(steps: list[DemoStep], change: int) -> list[Snapshot]:
    at = [abs(step.snapshot.position - change) for step in steps]
    first = int(np.argmin(at))
    return [steps[j].snapshot for j in (first, first + (len(steps) - first) // 3, -1)]


def _compute_limits(moments: list[Snapshot]) -> dict[str, Any]:
    coordinates = np.concatenate([get_picture(snapshot).coordinates for snapshot in moments])
    low, high = coordinates.min(axis=0), coordinates.max(axis=0)
    middle, half = (low + high) / 2, 0.54 * float((high - low).max())
    x, y = ((m - half, m + half) for m in middle.tolist())
    return {"xlim": x, "ylim": y, "aspect": "equal"}


def _draw_map(axes: Any, picture: Picture, labels: Array, initial_ids: Array) -> None:
    is_new, is_retained = labels[picture.ids] == NEW_STATE, np.isin(picture.ids, initial_ids)
    for mask, colour, marker, size, label in (
        (~is_new & ~is_retained, ADDED_COLOUR, "o", 5, None),
        (~is_new & is_retained, RETAINED_COLOUR, "o", 5, "present at the change"),
        (is_new, NEW_COLOUR, "^", 20, None),
    ):
        x, y = picture.coordinates[mask].T
        axes.scatter(x, y, s=size, c=colour, marker=marker, linewidths=0, label=label)
    axes.scatter([], [], s=8, c=ADDED_COLOUR, label="usual, added later")
    axes.scatter([], [], s=20, c=NEW_COLOUR, marker="^", label="never seen before")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color("#cccccc")


def _draw_coverage(axes: Any, steps: list[DemoStep], change: int) -> None:
    positions = [step.snapshot.position for step in steps]
    usual, new = [step.usual_coverage for step in steps], [step.new_coverage for step in steps]
    axes.plot(positions, usual, color=RETAINED_COLOUR, marker="o", ms=3, lw=1, label="usual")
    axes.plot(positions, new, color=NEW_COLOUR, marker="^", ms=4, lw=1, label="never seen before")
    axes.axvline(change, color=LINE_COLOUR, lw=0.8, ls=":")
    axes.legend(frameon=False, fontsize=9, loc="center left")
    axes.set(title="coverage of events on arrival, median", xlabel="events", ylim=(0, 1.08))
    axes.spines[["top", "right"]].set_visible(False)


def _draw_movement(axes: Any, steps: list[DemoStep], change: int) -> None:
    positions = [step.snapshot.position for step in steps]
    movement = [step.movement for step in steps]
    axes.semilogy(positions, movement, color=RETAINED_COLOUR, marker="o", ms=3, lw=1)
    axes.axvline(change, color=LINE_COLOUR, lw=0.8, ls=":")
    size = len(steps[-1].snapshot.ids)
    full = [p for p, step in zip(positions, steps, strict=True) if len(step.snapshot.ids) == size]
    axes.axvspan(positions[0], full[0], color="#f2f2f2", lw=0)
    axes.annotate(
        "the window fills", (0.5 * (positions[0] + full[0]), 0.06), ha="center", fontsize=9,
        xycoords=axes.get_xaxis_transform(), color=LINE_COLOUR,
    )  # fmt: skip
    axes.set(title="movement of the picture per hundred events, in its radius", xlabel="events")
    axes.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
