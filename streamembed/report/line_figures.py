"""The line figures of a run's history: one table, which a page and the static figures draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamembed.engine.drawing import COLOURS

ALARM_COLOUR, BLUE, OLIVE = "#D55E00", "#0072B2", "#A49000"
# Without black, which is invisible on the dark page.
LABEL_COLOURS = tuple(colour for colour in COLOURS[:7] if colour != "#000000")
# Without the colour of alarms and limits.
LINE_COLOURS = (*(colour for colour in LABEL_COLOURS if colour != ALARM_COLOUR), "#9467BD")
# Dashes of lines by Bokeh's names, and what matplotlib calls them.
DASHES = {"solid": "-", "dashed": "--", "dotdash": "-.", "dotted": ":", "dashdot": "-."}


@dataclass(frozen=True, slots=True)
class LineFigure:
    """Two lines over stream positions."""

    label: str  # of the y axis
    # Columns of the history and their names: a solid line with dots, and a dashed one.
    lines: Mapping[str, str]
    dash: str = "dashed"  # of the second line
    # Further columns that a tooltip shows, and their names.
    others: Mapping[str, str] = field(default_factory=dict)
    # A logarithmic axis, with the tolerance; steps for lines.
    is_log: bool = False
    is_step: bool = False


LINE_FIGURES = {
    "certificate": LineFigure(
        "size",
        {"residual": "residual", "angle_bound": "angle bound"},
        dash="dotdash",
        others={"met": "tolerance met"},
        is_log=True,
    ),
    "axes": LineFigure(
        "share",
        {"fidelity": "fidelity", "price": "price"},
        others={"epoch": "epoch"},
    ),
    "refreshes": LineFigure("so far", {"refreshes": "refreshes", "epoch": "epoch"}, is_step=True),
}
