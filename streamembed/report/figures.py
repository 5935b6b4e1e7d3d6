"""The empty figures of a page: named Bokeh models, whose sources the page fills.

The page finds models by name: ``drift:coverage`` is a source of the figure ``drift``. Model ids are
numbered from scratch for every page, so that the same run gives the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from streamembed.errors import ParameterError
from streamembed.report.line_figures import (
    ALARM_COLOUR,
    BLUE,
    LABEL_COLOURS,
    MARKERS,
    LineFigure,
    list_line_figures,
)

try:
    from bokeh.core.json_encoder import serialize_json
    from bokeh.document import Document
    from bokeh.models import ColumnDataSource, HoverTool, NumeralTickFormatter, Range1d
    from bokeh.palettes import Cividis256, PuOr11
    from bokeh.plotting import figure
    from bokeh.resources import Resources

    MISSING_BOKEH = ""
except ImportError as error:  # an extra: `require_bokeh` says how to install it
    MISSING_BOKEH = str(error)

TOOLS = "pan,box_zoom,wheel_zoom,reset,save"
SCATTER_TOOLS = "tap,box_select,lasso_select,pan,box_zoom,wheel_zoom,reset,save"
SCATTER_COLUMNS = (
    *("x", "y", "x2", "y2", "id", "at", "time", "label", "kept", "coverage", "off"),
    *("colour", "marker", "fill"),
)
FONT = "system-ui, sans-serif"


@dataclass(frozen=True, slots=True)
class PageFigures:
    """The figures of one page."""

    document: str  # Bokeh's JSON of all figures
    names: tuple[str, ...]  # names of the figures; each is the id of its element
    lines: Mapping[str, LineFigure]  # those of lines


def require_bokeh() -> None:
    """ParameterError, which says how to install it, if Bokeh is missing."""
    if MISSING_BOKEH:
        raise ParameterError(
            f"a page needs Bokeh ({MISSING_BOKEH}): pip install 'streamembed[report]'"
        )


def get_script() -> str:
    """Bokeh's script for plots only: no widgets, no fonts, no formulas."""
    parts: list[str] = Resources(mode="inline", components=["bokeh"]).js_raw
    return parts[0]


def get_palettes() -> dict[str, Any]:
    """The colours and shapes of points and cells."""
    return {
        "labels": list(LABEL_COLOURS),
        "markers": list(MARKERS),
        "numbers": list(Cividis256),
        "signs": list(PuOr11),
    }


def draw_figures(contents: Mapping[str, Any]) -> PageFigures:
    """Draw all figures of a page, for what `streamembed.report.report_contents` collects."""
    figures = contents["figures"]
    return _draw_figures(
        figures["eigenvalues"],
        len(figures["metrics"]),
        tuple(figures["channels"]),
        figures["kept"],
    )


@cache
def _draw_figures(
    eigenvalues: int, metrics: int, channels: tuple[str, ...], kept: bool
) -> PageFigures:
    """Cached: the figures depend on these arguments only, and take a second."""
    lines = list_line_figures(eigenvalues, channels)
    figures = [
        *_draw_scatter_plots(kept),
        *(_draw_lines(name, figure) for name, figure in lines.items()),
        *(_draw_heat_map(f"metric-{i}") for i in range(metrics)),
        _draw_run_lengths(),
    ]
    document = Document(title="report")
    with document.models.freeze():
        for plot in figures:
            document.add_root(plot)
    text = serialize_json(document.to_json())
    new_ids: dict[str, str] = {}
    for model_id in re.findall(r'"id":"(p\d+)"', text):
        new_ids.setdefault(model_id, f"m{len(new_ids)}")
    text = re.sub(r'"id":"(p\d+)"', lambda match: f'"id":"{new_ids[match[1]]}"', text)
    return PageFigures(text, tuple(str(plot.name) for plot in figures), lines)


def _create_source(name: str, *columns: str) -> Any:
    return ColumnDataSource(data={column: [] for column in columns}, name=name)


def _create_figure(
    name: str, x: str, y: str, height: int, tools: str = TOOLS, **options: Any
) -> Any:
    plot = figure(
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
        **options,
    )
    plot.toolbar.logo = None
    for axis in plot.axis:
        axis.axis_label_text_font_style = "normal"
        axis.axis_label_text_font = axis.major_label_text_font = FONT
        axis.axis_label_text_font_size = axis.major_label_text_font_size = "12px"
    return plot


def _add_tooltips(
    target: Any, renderers: Sequence[Any], tooltips: Sequence[tuple[str, str]]
) -> None:
    target.add_tools(HoverTool(renderers=list(renderers), tooltips=list(tooltips)))


def _draw_lines(name: str, figure: LineFigure) -> Any:
    """Draw one of `list_line_figures`, with the limit, the snapshot that is shown, and epochs."""
    height, scale = 340 if name == "drift" else 260, "log" if figure.is_log else "linear"
    plot = _create_figure(name, "event", figure.label, height, y_axis_type=scale)
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0")
    plot.xaxis.ticker.min_interval = 1  # events are whole numbers
    if name == "drift":
        plot.y_range = Range1d(start=0, end=8)
        _add_bands(plot)
    for kind, dash, alpha in (("shown", "solid", 0.7), ("epochs", "dotted", 0.35)):
        source = _create_source(f"{name}:{kind}", "x")
        style = {"line_width": 1.5, "line_dash": dash, "line_alpha": alpha}
        plot.vspan(x="x", source=source, tags=["ink"], **style)
    limit = {"line_dash": "dashed", "line_width": 2, "line_color": ALARM_COLOUR}
    plot.hspan(y="y", source=_create_source(f"{name}:limit", "y"), **limit)
    draw = partial(plot.step, mode="after") if figure.is_step else plot.line
    for key, line in figure.lines.items():
        source = _create_source(f"{name}:{key}", "x", "y", "note", "marker")
        style = {"line_color": line.colour, "line_dash": line.dash, "line_width": 1.8}
        draw(x="x", y="y", source=source, name=f"line:{key}", **style)
        style = {"marker": "marker", "size": 5, "color": line.colour}
        dots = plot.scatter("x", "y", source=source, name=f"dots:{key}", **style)
        _add_tooltips(plot, [dots], [("event", "@x{0,0}"), (line.name, "@y"), ("", "@note")])
    if name == "drift":
        _add_alarms(plot)
    return plot


def _add_bands(plot: Any) -> None:
    """What is expected until a false alarm, and where the monitor does not watch."""
    null = _create_source("drift:null", "y0", "y1")
    plot.hstrip(y0="y0", y1="y1", source=null, fill_color="#8a8a8a", fill_alpha=0.18, line_width=0)
    unwatched = _create_source("drift:unwatched", "x0", "x1")
    hatch = {"hatch_pattern": "/", "hatch_alpha": 0.35, "hatch_color": "#8a8a8a"}
    plot.vstrip("x0", "x1", source=unwatched, fill_alpha=0.0, line_width=0, **hatch)


def _add_alarms(plot: Any) -> None:
    """Alarms, their onsets, and the positions of stored snapshots."""
    onset = _create_source("drift:onsets", "x", "y")
    plot.vspan(x="x", source=onset, line_dash="dashed", line_color=BLUE, line_width=1.5)
    plot.scatter("x", "y", source=onset, marker="diamond", size=13, color=BLUE, name="onset")
    marks = _create_source("drift:alarms", "x", "y", "sentence", "channel", "once")
    style = {"marker": "inverted_triangle", "size": 17, "fill_color": ALARM_COLOUR}
    style |= {"line_width": 1.5, "tags": ["ink"]}
    alarms = plot.scatter("x", "y", source=marks, name="alarms", **style)
    _add_tooltips(plot, [alarms], [("alarm", "@channel at @x{0,0}"), ("once in", "@once")])
    ticks = _create_source("drift:snapshots", "x", "y")
    plot.scatter("x", "y", source=ticks, marker="dash", angle=1.5708, size=12, tags=["ink"])


def _draw_scatter_plots(kept: bool) -> list[Any]:
    """Draw two views of the same points: a selection in one applies to the other.

    ``kept`` says whether events have kept columns.
    """
    source = _create_source("scatter", *SCATTER_COLUMNS)
    reference = _create_source("reference", "x", "y", "x2", "y2", "id", "fill")
    halos = _create_source("halos", "x", "y")
    plots = []
    for name, x, y in (("scatter-main", "x", "y"), ("scatter-other", "x2", "y2")):
        plot = _create_figure(name, "", "", 440, SCATTER_TOOLS, match_aspect=True)
        if name == "scatter-main":
            plot.scatter("x", "y", source=halos, size=17, color="#8a8a8a", alpha=0.3, line_width=0)
        # a shape that no label has
        style = {"marker": "x", "size": 6, "line_color": "#8a8a8a", "line_alpha": "fill"}
        crosses = plot.scatter(x, y, source=reference, **style)
        crosses.selection_glyph = crosses.nonselection_glyph = None
        style = {"marker": "marker", "size": 8, "line_width": 1.4}
        style |= {"fill_color": "colour", "line_color": "colour"}
        alphas = {"fill_alpha": "fill", "line_alpha": 0.9, "nonselection_alpha": 0.12}
        points = plot.scatter(x, y, source=source, name=f"{name}:points", **style, **alphas)
        tooltips = [("", "@kept")] if kept else []
        tooltips += [("id", "@id"), ("event", "@at{0,0}"), ("label", "@label")]
        _add_tooltips(plot, [points], [*tooltips, ("time", "@time"), ("coverage", "@coverage")])
        plots.append(plot)
    return plots


def _draw_heat_map(name: str) -> Any:
    plot = _create_figure(name, "", "", 380, "reset,save", x_range=["-"], y_range=["-"])
    cells = _create_source(name, "row", "column", "value", "colour", "text", "ink")
    rectangles = plot.rect("column", "row", 1, 1, source=cells, color="colour", line_color=None)
    style = {"text_align": "center", "text_baseline": "middle", "text_font_size": "11px"}
    style |= {"text_font": FONT, "text_color": "ink"}
    plot.text("column", "row", "text", source=cells, **style)
    _add_tooltips(plot, [rectangles], [("features", "@row, @column"), ("entry", "@value")])
    plot.xaxis.major_label_orientation = 0.9
    plot.grid.visible = False
    return plot


def _draw_run_lengths() -> Any:
    plot = _create_figure(
        "run-lengths", "run length without drift, log10 of events", "streams", 220
    )
    source = _create_source("run-lengths", "left", "right", "count")
    colours = {"fill_color": "#56B4E9", "line_color": BLUE}
    plot.quad(left="left", right="right", top="count", bottom=0, source=source, **colours)
    target = _create_source("run-lengths:asked", "x")
    plot.vspan(x="x", source=target, line_dash="dashed", line_width=2, line_color=ALARM_COLOUR)
    return plot
