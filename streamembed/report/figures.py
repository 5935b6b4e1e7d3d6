"""The figures of a page, empty: Bokeh's models, by name, whose sources the page fills.

Page and models know one another by names: ``drift:coverage`` is a source of the figure ``drift``.
Their ids are counted anew for every page, so that the same run gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from streamembed.engine.drawing import COLOURS
from streamembed.errors import ParameterError
from streamembed.report.history import MOST_LINES
from streamembed.report.monitor_section import CHANNELS

try:
    from bokeh.core.json_encoder import serialize_json
    from bokeh.document import Document
    from bokeh.models import ColumnDataSource, HoverTool, NumeralTickFormatter, Range1d
    from bokeh.palettes import Cividis256, PuOr11
    from bokeh.plotting import figure
    from bokeh.resources import Resources

    MISSING = ""
except ImportError as error:  # an extra: whoever asks for a page is told how to install it
    MISSING = str(error)

__all__ = [
    "COLOURS_OF_LABELS",
    "DASHES",
    "MARKERS",
    "Drawn",
    "draw",
    "need_bokeh",
    "palettes",
    "script",
]

# Without black, which the dark page has no room for.
COLOURS_OF_LABELS = tuple(colour for colour in COLOURS[:7] if colour != "#000000")
# Without the colour of alarms and limits.
COLOURS_OF_LINES = (*(one for one in COLOURS_OF_LABELS if one != "#D55E00"), "#9467BD")
MARKERS = ("circle", "triangle", "square", "diamond", "inverted_triangle", "star", "hex", "plus")
DASHES = ("solid", "dashed", "dotdash", "dotted", "dashdot")
TOOLS = "pan,box_zoom,wheel_zoom,reset,save"
CLOUD_TOOLS = "tap,box_select,lasso_select,pan,box_zoom,wheel_zoom,reset,save"
COLUMNS_OF_CLOUD = (
    *("x", "y", "x2", "y2", "id", "at", "time", "label", "coverage", "off"),
    *("colour", "marker", "fill"),
)
FONT = "system-ui, sans-serif"


@dataclass(frozen=True, slots=True)
class Drawn:
    """The figures of one page.

    Attributes
    ----------
    document : str
        Bokeh's JSON of all of them.
    names : tuple of str
        Of the figures, each that of the element it is drawn in.
    """

    document: str
    names: tuple[str, ...]


def need_bokeh() -> None:
    """Refuse where Bokeh is missing.

    Raises
    ------
    ParameterError
        It says how to install it.
    """
    if MISSING:
        raise ParameterError(
            f"a page needs Bokeh ({MISSING}): pip install 'streamembed[report]', or --png DIR for "
            "pictures without a page"
        )


def script() -> str:
    """Bokeh's own script, of the plots alone: no widgets, no fonts, no formulas."""
    need_bokeh()
    parts: list[str] = Resources(mode="inline", components=["bokeh"]).js_raw
    return parts[0]


def palettes() -> dict[str, Any]:
    """The colours and shapes that the page gives to points and cells."""
    need_bokeh()
    return {
        "labels": list(COLOURS_OF_LABELS),
        "markers": list(MARKERS),
        "numbers": list(Cividis256),
        "signs": list(PuOr11),
        "lines": {
            channel: [COLOURS_OF_LINES[i % len(COLOURS_OF_LINES)], DASHES[i % len(DASHES)]]
            for i, channel in enumerate(CHANNELS)
        },
        "eigenvalues": [
            [COLOURS_OF_LINES[i % len(COLOURS_OF_LINES)], DASHES[i % len(DASHES)]]
            for i in range(MOST_LINES)
        ],
    }


def draw(contents: Mapping[str, Any], n_components: int, metrics: Sequence[str]) -> Drawn:
    """All figures of a page.

    Parameters
    ----------
    contents
        See `streamembed.report.report_contents.read_contents`.
    n_components
        Of the engine: how many eigenvalues there are.
    metrics
        Names of those that it learns.
    """
    need_bokeh()
    found = (contents.get("drift") or {}).get("channels", ())
    more = tuple(channel for channel in found if channel not in CHANNELS)
    return _draw(min(n_components, MOST_LINES), len(metrics), more)


@cache
def _draw(lines: int, metrics: int, channels: tuple[str, ...]) -> Drawn:
    """What figures there are hangs on these alone; drawing them takes a second."""
    made = [
        _drift((*CHANNELS, *channels)),
        *_clouds(),
        _spectrum(lines),
        _certificate(),
        _movement(),
        _refreshes(),
        *(_heat_map(f"metric-{i}") for i in range(metrics)),
        _run_lengths(),
    ]
    document = Document(title="report")
    with document.models.freeze():
        for one in made:
            document.add_root(one)
    text = serialize_json(document.to_json())
    number: dict[str, str] = {}
    for found in re.findall(r'"id":"(p\d+)"', text):
        number.setdefault(found, f"m{len(number)}")
    text = re.sub(r'"id":"(p\d+)"', lambda match: f'"id":"{number[match[1]]}"', text)
    return Drawn(text, tuple(str(one.name) for one in made))


def _source(name: str, *columns: str) -> Any:
    return ColumnDataSource(data={column: [] for column in columns}, name=name)


def _figure(name: str, x: str, y: str, height: int, tools: str = TOOLS, **more: Any) -> Any:
    made = figure(
        name=f"figure-{name}",
        height=height,
        sizing_mode="stretch_width",
        tools=tools,
        active_drag=None,
        active_scroll=None,
        toolbar_location="above",
        x_axis_label=x or None,
        y_axis_label=y or None,
        min_border=8,
        **more,
    )
    made.toolbar.logo = None
    for axis in made.axis:
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font = axis.major_label_text_font = FONT
        axis.axis_label_text_font_size = axis.major_label_text_font_size = "12px"
    return made


def _over_time(name: str, y: str, height: int = 260, **more: Any) -> Any:
    """A figure over stream positions, with a line where the shown snapshot is."""
    made = _figure(name, "event", y, height, **more)
    made.xaxis.formatter = NumeralTickFormatter(format="0,0")
    shown = _source(f"{name}:shown", "x")
    made.vspan(x="x", source=shown, line_width=1.5, line_alpha=0.7, tags=["ink"])
    epochs = _source(f"{name}:epochs", "x")
    made.vspan(x="x", source=epochs, line_dash="dotted", line_alpha=0.35, tags=["ink"])
    return made


def _hover(target: Any, renderers: Sequence[Any], tooltips: Sequence[tuple[str, str]]) -> None:
    target.add_tools(HoverTool(renderers=list(renderers), tooltips=list(tooltips)))


def _drift(channels: Sequence[str]) -> Any:
    made = _over_time("drift", "run length, log10 of events", 340, y_range=Range1d(start=0, end=8))
    null = _source("drift:null", "y0", "y1")
    made.hstrip(y0="y0", y1="y1", source=null, fill_color="#8a8a8a", fill_alpha=0.18, line_width=0)
    away = _source("drift:away", "x0", "x1")
    made.vstrip(
        *("x0", "x1"),
        source=away,
        fill_alpha=0.0,
        line_width=0,
        hatch_pattern="/",
        hatch_alpha=0.35,
        hatch_color="#8a8a8a",
    )
    alarm = _source("drift:threshold", "y")
    made.hspan(y="y", source=alarm, line_dash="dashed", line_width=2, line_color="#D55E00")
    drawn, lines = [], palettes()["lines"]
    for i, channel in enumerate(channels):
        source = _source(f"drift:{channel}", "x", "y", "channel", "memory", "once")
        colour, dash = lines.get(channel, (COLOURS_OF_LABELS[0], "dotted"))
        made.line(
            *("x", "y"),
            source=source,
            line_color=colour,
            line_dash=dash,
            line_width=1.8,
            name=f"line:{channel}",
        )
        dots = made.scatter(
            *("x", "y"),
            source=source,
            marker=MARKERS[i % len(MARKERS)],
            size=4,
            color=colour,
            name=f"dots:{channel}",
        )
        drawn.append(dots)
    _hover(made, drawn, [("channel", "@channel"), ("to event", "@x{0,0}"), ("once in", "@once")])
    onset = _source("drift:onsets", "x", "y")
    made.vspan(x="x", source=onset, line_dash="dashed", line_color="#0072B2", line_width=1.5)
    made.scatter("x", "y", source=onset, marker="diamond", size=13, color="#0072B2", name="onset")
    marks = _source("drift:alarms", "x", "y", "sentence", "channel", "once")
    alarms = made.scatter(
        *("x", "y"),
        source=marks,
        marker="inverted_triangle",
        size=17,
        fill_color="#D55E00",
        line_width=1.5,
        name="alarms",
        tags=["ink"],
    )
    _hover(made, [alarms], [("alarm", "@channel at @x{0,0}"), ("once in", "@once")])
    ticks = _source("drift:snapshots", "x", "y")
    made.scatter("x", "y", source=ticks, marker="dash", angle=1.5708, size=12, tags=["ink"])
    return made


def _clouds() -> list[Any]:
    """Two views of the same points: what is chosen in one is chosen in the other."""
    source = _source("cloud", *COLUMNS_OF_CLOUD)
    behind = _source("behind", "x", "y", "x2", "y2", "id", "fill")
    halos = _source("halos", "x", "y")
    made = []
    for name, x, y in (("cloud-main", "x", "y"), ("cloud-other", "x2", "y2")):
        one = _figure(name, "", "", 440, CLOUD_TOOLS, match_aspect=False)
        if name == "cloud-main":
            one.scatter("x", "y", source=halos, size=17, color="#8a8a8a", alpha=0.3, line_width=0)
        grey = one.scatter(
            *(x, y),
            source=behind,
            marker="x",  # a shape that no label has
            size=6,
            line_color="#8a8a8a",
            line_alpha="fill",
        )
        grey.selection_glyph = grey.nonselection_glyph = None
        points = one.scatter(
            *(x, y),
            source=source,
            marker="marker",
            size=8,
            fill_color="colour",
            line_color="colour",
            fill_alpha="fill",
            line_alpha=0.9,
            line_width=1.4,
            nonselection_alpha=0.12,
            name=f"{name}:points",
        )
        told = [("id", "@id"), ("event", "@at{0,0}"), ("label", "@label")]
        _hover(one, [points], [*told, ("time", "@time"), ("coverage", "@coverage")])
        made.append(one)
    return made


def _spectrum(count: int) -> Any:
    made = _over_time("spectrum", "eigenvalue")
    names = [f"e{j}" for j in range(count)]
    source = _source("spectrum", "x", *names)
    looks = palettes()["eigenvalues"]
    for name, (colour, dash) in zip(names, looks, strict=False):
        made.line("x", name, source=source, line_color=colour, line_dash=dash, line_width=1.8)
        last = made.scatter("x", name, source=source, size=4, color=colour)
        _hover(made, [last], [("event", "@x{0,0}"), (f"eigenvalue {name[1:]}", f"@{name}")])
    return made


def _certificate() -> Any:
    made = _over_time("certificate", "size", y_axis_type="log")
    source = _source("certificate", "x", "residual", "angle", "met", "marker")
    limit = _source("certificate:tolerance", "y")
    made.hspan(y="y", source=limit, line_dash="dashed", line_width=2, line_color="#D55E00")
    made.line("x", "residual", source=source, line_color="#0072B2", line_width=1.8)
    dots = made.scatter(
        "x", "residual", source=source, marker="marker", size=7, color="#0072B2", name="residuals"
    )
    made.line(
        "x", "angle", source=source, line_color="#A49000", line_dash="dotdash", line_width=1.8
    )
    told = [("event", "@x{0,0}"), ("residual", "@residual"), ("bound of the angle", "@angle")]
    _hover(made, [dots], [*told, ("tolerance met", "@met")])
    return made


def _movement() -> Any:
    made = _over_time("movement", "root mean square")
    source = _source("movement", "x", "displacement", "movement", "epoch")
    made.line("x", "movement", source=source, line_color="#0072B2", line_width=1.8)
    dots = made.scatter("x", "movement", source=source, size=4, color="#0072B2")
    made.line(
        "x", "displacement", source=source, line_color="#A49000", line_dash="dashed", line_width=1.8
    )
    told = [("event", "@x{0,0}"), ("movement", "@movement"), ("displacement", "@displacement")]
    _hover(made, [dots], [*told, ("epoch", "@epoch")])
    return made


def _refreshes() -> Any:
    made = _over_time("refreshes", "so far")
    source = _source("refreshes", "x", "refreshes", "epoch")
    made.step("x", "refreshes", source=source, mode="after", line_color="#0072B2", line_width=1.8)
    dots = made.scatter("x", "refreshes", source=source, size=4, color="#0072B2")
    made.step(
        *("x", "epoch"),
        source=source,
        mode="after",
        line_color="#A49000",
        line_dash="dashed",
        line_width=1.8,
    )
    told = [("event", "@x{0,0}"), ("refreshes", "@refreshes"), ("epoch", "@epoch")]
    _hover(made, [dots], told)
    return made


def _heat_map(name: str) -> Any:
    made = _figure(name, "", "", 380, "reset,save", x_range=["-"], y_range=["-"])
    cells = _source(name, "row", "column", "value", "colour", "told", "ink")
    drawn = made.rect("column", "row", 1, 1, source=cells, color="colour", line_color=None)
    made.text(
        *("column", "row", "told"),
        source=cells,
        text_align="center",
        text_baseline="middle",
        text_font_size="11px",
        text_font=FONT,
        text_color="ink",
    )
    _hover(made, [drawn], [("features", "@row, @column"), ("entry", "@value")])
    made.xaxis.major_label_orientation = 0.9
    made.grid.visible = False
    return made


def _run_lengths() -> Any:
    made = _figure("run-lengths", "run length without drift, log10 of events", "streams", 220)
    source = _source("run-lengths", "left", "right", "count")
    made.quad(
        top="count",
        bottom=0,
        left="left",
        right="right",
        source=source,
        fill_color="#56B4E9",
        line_color="#0072B2",
    )
    asked = _source("run-lengths:asked", "x")
    made.vspan(x="x", source=asked, line_dash="dashed", line_width=2, line_color="#D55E00")
    return made
