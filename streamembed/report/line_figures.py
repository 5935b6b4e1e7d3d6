"""The line figures of a run: one table of what is drawn, for the page and for pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

from streamembed.drift.monitor_timeline import ALL_CHANNELS
from streamembed.engine.drawing import COLOURS

ALARM_COLOUR, BLUE, OLIVE = "#D55E00", "#0072B2", "#A49000"
# Without black, which is invisible on the dark page.
LABEL_COLOURS = tuple(colour for colour in COLOURS[:7] if colour != "#000000")
# One for every channel of the monitor, without the colour of alarms and limits.
LINE_COLOURS = (
    *(colour for colour in LABEL_COLOURS if colour != ALARM_COLOUR),
    *("#9467BD", "#B07060", "#808080"),
)
# Dashes of lines and shapes of points, by Bokeh's names.
DASHES = ("solid", "dashed", "dotdash", "dotted", "dashdot")
MARKERS = (
    *("circle", "triangle", "square", "diamond"),
    *("inverted_triangle", "star", "hex", "plus"),
)
# Eigenvalues and channels that are drawn.
MOST_LINES = 12


@dataclass(frozen=True, slots=True)
class Line:
    """A line over stream positions."""

    name: str
    colour: str
    dash: str = "solid"
    marker: str = "circle"


@dataclass(frozen=True, slots=True)
class LineFigure:
    """Lines over stream positions, by the column of the history or the channel of the monitor."""

    title: str
    caption: str
    label: str  # of the y axis
    lines: Mapping[str, Line]
    limit: str = ""  # what a dashed horizontal line is called
    is_log: bool = False
    is_step: bool = False


def list_line_figures(n_eigenvalues: int, channels: Sequence[str]) -> dict[str, LineFigure]:
    """All line figures by name, of a run with so many eigenvalues and these further channels."""
    names = [f"eigenvalue_{j}" for j in range(min(n_eigenvalues, MOST_LINES))]
    return {
        "drift": LineFigure(
            "Timeline",
            "How rare the last values of each channel would be without drift: a point at 6 occurs "
            "once in a million events. Grey band: values expected until one false alarm.",
            "run length, log10 of events",
            _style_lines([*ALL_CHANNELS, *channels]),
            limit="alarm line",
        ),
        "spectrum": LineFigure(
            "Spectrum",
            "The leading eigenvalues of each snapshot: near 1 where the data fall into separate "
            "parts, a jump where the shape changed.",
            "eigenvalue",
            _style_lines(names),
        ),
        "certificate": LineFigure(
            "Certificate",
            "How far each snapshot is from the batch result: the tolerance is met where the "
            "residual is below the dashed line, and not at triangles.",
            "size",
            {
                "residual": Line("residual", BLUE),
                "angle_bound": Line("angle bound", OLIVE, "dotdash"),
            },
            limit="tolerance",
            is_log=True,
        ),
        "axes": LineFigure(
            "Movement of the axes",
            "Fidelity: how far the axes are those of half a window ago (1: nothing moved; an epoch "
            "ends below .95). Price: share of the spread that is not shown because axes are kept "
            "(an epoch ends above .1).",
            "share",
            {"fidelity": Line("fidelity", BLUE), "price": Line("price", OLIVE, "dashed")},
        ),
        "refreshes": LineFigure(
            "Refreshes and epochs",
            "How often the trial functions and the axes were computed again: steep where the data "
            "move fast.",
            "so far",
            {"refreshes": Line("refreshes", BLUE), "epoch": Line("epochs", OLIVE, "dashed")},
            is_step=True,
        ),
    }


def _style_lines(names: Sequence[str]) -> dict[str, Line]:
    looks = zip(names, cycle(LINE_COLOURS), cycle(DASHES), cycle(MARKERS), strict=False)
    return {name: Line(name, *look) for name, *look in looks}
