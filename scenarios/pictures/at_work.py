"""The picture "at work": the engine on two drifting rings (``make picture``).

Three moments of one stream, in the plane and in the embedding, and below them the residual that
each snapshot certified. Needs the extra ``pictures``.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

import streamembed as se
from scenarios.streams import two_circles
from streamembed.numeric.arrays import Floats

__all__ = ["Moment", "draw", "main", "record"]

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "at-work.png"
EVENTS, WINDOW, TOLERANCE = 4000, 1000, 3e-3
MOMENTS = (1000, 2500, 4000)
# Across the noise of a ring, and on to the other one.
NEIGHBOURS = 40
# Round rings have two equal eigenvalues, whose axes may turn at will: these are half as wide again
# as high, so that the longer way round leads.
WIDE = 1.5
SLIDE = 0.375  # to the right in WINDOW events
SECTORS = 6
# Okabe and Ito's colours, which most colour-blind readers can distinguish: one for each sector.
COLOURS = ("#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7")
INK, PALE = "#222222", "#c8c8c8"


@dataclass(frozen=True)
class Moment:
    """A snapshot with what the engine does not know: ring and sector of every point."""

    snapshot: se.Snapshot
    outer: np.ndarray[Any, np.dtype[np.bool_]]
    sector: np.ndarray[Any, np.dtype[np.int64]]


def drifting(n: int) -> tuple[Floats, Floats, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Two rings sliding to the right: points (n, 2), their angles (n,), and whether outer (n,)."""
    points, labels = two_circles(n, seed=0)
    angle = np.arctan2(points[:, 1], points[:, 0]) % (2 * np.pi)
    points[:, 0] = WIDE * points[:, 0] + SLIDE * np.arange(n) / WINDOW
    return points, angle, labels == 0


def record(events: int = EVENTS) -> tuple[Floats, list[Moment], Floats]:
    """The stream, its moments, and (position, residual) of every snapshot, shape (s, 2)."""
    points, angle, outer = drifting(events)
    sector = (angle / (2 * np.pi) * SECTORS).astype(np.int64) % SECTORS
    engine = se.Engine(size=WINDOW, n_neighbors=NEIGHBOURS, scaling="global", tolerance=TOLERANCE)
    moments, residuals = [], []
    for start in range(0, events, 20):
        engine.learn(points[start : start + 20])
        if not engine.ready:
            continue
        snapshot = engine.snapshot()
        residuals.append((snapshot.position, snapshot.certificate.residual))
        if snapshot.position in MOMENTS:
            moments.append(Moment(snapshot, outer[snapshot.ids], sector[snapshot.ids]))
    return points, moments, np.array(residuals)


def draw(path: Path, points: Floats, moments: list[Moment], residuals: Floats) -> None:
    """Write the figure as a PNG on an opaque white ground, so that it reads on any page."""
    figure = Figure(figsize=(9.6, 7.4), dpi=100, layout="constrained", facecolor="white")
    canvas: Any = FigureCanvasAgg(figure)
    places = figure.add_gridspec(3, len(moments), height_ratios=(1.6, 2.6, 1.3))
    for column, moment in enumerate(moments):
        above: Any = figure.add_subplot(places[0, column])
        above.scatter(*points[: moment.snapshot.position : 2].T, s=1.5, c=PALE, linewidths=0)
        _scatter(above, moment.snapshot.points, moment)
        above.set(xlim=(-1.8, 3.3), ylim=(-1.4, 1.4), aspect="equal")
        above.set_title(f"after {moment.snapshot.position:,} events", color=INK, fontsize=12)
        below: Any = figure.add_subplot(places[1, column])
        _scatter(below, moment.snapshot.psi, moment)
        below.set(xlim=(-2.1, 2.1), ylim=(-2.1, 2.1), aspect="equal", xlabel="component 0")
        for axes, label in ((above, "input space"), (below, "component 1")):
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color(PALE)
            if column == 0:
                axes.set_ylabel(label, color=INK, fontsize=11)
    _draw_residuals(figure.add_subplot(places[2, :]), residuals)
    canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    image.quantize(64).save(path, optimize=True)  # a palette takes a third of the bytes


def _scatter(axes: Any, places: Floats, moment: Moment) -> None:
    for ring, marker, size in ((moment.outer, "o", 9), (~moment.outer, "^", 11)):
        for sector, colour in enumerate(COLOURS):
            chosen = ring & (moment.sector == sector)
            axes.scatter(*places[chosen].T, s=size, c=colour, marker=marker, linewidths=0)


def _draw_residuals(axes: Any, residuals: Floats) -> None:
    axes.plot(*residuals.T, color=COLOURS[0], linewidth=1.2)
    axes.axhline(TOLERANCE, color=COLOURS[4], linestyle="--", linewidth=1.4)
    axes.annotate(
        "tolerance",
        (0.995, TOLERANCE),
        xycoords=axes.get_yaxis_transform(),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        va="bottom",
        color=COLOURS[4],
    )
    for moment in MOMENTS[:-1]:
        axes.axvline(moment, color=PALE, linewidth=1, zorder=0)
    axes.set(xlim=(0, EVENTS), ylim=(0, 1.35 * TOLERANCE))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel("events learned", color=INK)
    axes.set_ylabel("certified residual", color=INK, fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)


def main(arguments: list[str] | None = None) -> None:
    """Record the stream and write the picture."""
    parser = argparse.ArgumentParser(prog="scenarios.pictures.at_work", description=__doc__)
    parser.add_argument("--output", type=Path, default=PICTURE, help="default: docs/images")
    chosen = parser.parse_args(arguments)
    draw(chosen.output, *record())
    print(f"wrote {chosen.output.name}: {chosen.output.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
