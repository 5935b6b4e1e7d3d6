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

from streamembed.drift.monitor_timeline import ALL_CHANNELS
from streamembed.errors import ParameterError
from streamembed.report.history import MOST_LINES
from streamembed.report.line_figures import (
    ALARM_COLOUR,
    BLUE,
    DASHES,
    LABEL_COLOURS,
    LINE_COLOURS,
    LINE_FIGURES,
    OLIVE,
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

MARKERS = ("circle", "triangle", "square", "diamond", "inverted_triangle", "star", "hex", "plus")
TOOLS = "pan,box_zoom,wheel_zoom,reset,save"
SCATTER_TOOLS = "tap,box_select,lasso_select,pan,box_zoom,wheel_zoom,reset,save"
SCATTER_COLUMNS = (
    *("x", "y", "x2", "y2", "id", "at", "time", "label", "coverage", "off"),
    *("colour", "marker", "fill"),
)
FONT = "system-ui, sans-serif"


@dataclass(frozen=True, slots=True)
class PageFigures:
    """The figures of one page."""

    document: str  # Bokeh's JSON of all figures
    names: tuple[str, ...]  # names of the figures; each is the id of its element


def require_bokeh() -> None:
    """Raise an error if Bokeh is missing.

    Raises
    ------
    ParameterError
        Bokeh is missing; the message says how to install it.
    """
    if MISSING_BOKEH:
        raise ParameterError(
            f"a page needs Bokeh ({MISSING_BOKEH}): pip install 'streamembed[report]', or use "
            "--png DIR for pictures without a page"
        )


def get_script() -> str:
    """Bokeh's script for plots only: no widgets, no fonts, no formulas."""
    require_bokeh()
    parts: list[str] = Resources(mode="inline", components=["bokeh"]).js_raw
    return parts[0]


def get_palettes() -> dict[str, Any]:
    """The colours and shapes of points, lines and cells."""
    require_bokeh()
    styles = [
        [LINE_COLOURS[i % len(LINE_COLOURS)], [*DASHES][i % len(DASHES)]] for i in range(MOST_LINES)
    ]
    return {
        "labels": list(LABEL_COLOURS),
        "markers": list(MARKERS),
        "numbers": list(Cividis256),
        "signs": list(PuOr11),
        "lines": dict(zip(ALL_CHANNELS, styles, strict=False)),
        "eigenvalues": styles,
    }


def draw_figures(
    contents: Mapping[str, Any], n_components: int, metrics: Sequence[str]
) -> PageFigures:
    """Draw all figures of a page.

    Parameters
    ----------
    contents
        See `streamembed.report.report_contents.read_contents`.
    n_components
        Number of eigenvalues of the engine.
    metrics
        Names of the metrics that it learns.
    """
    require_bokeh()
    channels = (contents.get("drift") or {}).get("channels", ())
    other_channels = tuple(channel for channel in channels if channel not in ALL_CHANNELS)
    return _draw_figures(min(n_components, MOST_LINES), len(metrics), other_channels)


@cache
def _draw_figures(lines: int, metrics: int, channels: tuple[str, ...]) -> PageFigures:
    """Cached: the figures depend on these arguments only, and take a second."""
    figures = [
        _draw_drift((*ALL_CHANNELS, *channels)),
        *_draw_scatter_plots(),
        _draw_spectrum(lines),
        *map(_draw_lines, LINE_FIGURES),
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
    return PageFigures(text, tuple(str(plot.name) for plot in figures))


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


def _create_history_figure(name: str, y: str, height: int = 260, **options: Any) -> Any:
    plot = _create_figure(name, "event", y, height, **options)
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0")
    position = _create_source(f"{name}:shown", "x")
    plot.vspan(x="x", source=position, line_width=1.5, line_alpha=0.7, tags=["ink"])
    epochs = _create_source(f"{name}:epochs", "x")
    plot.vspan(x="x", source=epochs, line_dash="dotted", line_alpha=0.35, tags=["ink"])
    return plot


def _add_tooltips(
    target: Any, renderers: Sequence[Any], tooltips: Sequence[tuple[str, str]]
) -> None:
    target.add_tools(HoverTool(renderers=list(renderers), tooltips=list(tooltips)))


def _draw_drift(channels: Sequence[str]) -> Any:
    plot = _create_history_figure(
        "drift", "run length, log10 of events", 340, y_range=Range1d(start=0, end=8)
    )
    null = _create_source("drift:null", "y0", "y1")
    plot.hstrip(y0="y0", y1="y1", source=null, fill_color="#8a8a8a", fill_alpha=0.18, line_width=0)
    unwatched = _create_source("drift:unwatched", "x0", "x1")
    plot.vstrip(
        *("x0", "x1"),
        source=unwatched,
        fill_alpha=0.0,
        line_width=0,
        hatch_pattern="/",
        hatch_alpha=0.35,
        hatch_color="#8a8a8a",
    )
    threshold = _create_source("drift:threshold", "y")
    plot.hspan(y="y", source=threshold, line_dash="dashed", line_width=2, line_color=ALARM_COLOUR)
    dot_renderers, lines = [], get_palettes()["lines"]
    for i, channel in enumerate(channels):
        source = _create_source(f"drift:{channel}", "x", "y", "channel", "memory", "once")
        colour, dash = lines.get(channel, (LABEL_COLOURS[0], "dotted"))
        plot.line(
            *("x", "y"),
            source=source,
            line_color=colour,
            line_dash=dash,
            line_width=1.8,
            name=f"line:{channel}",
        )
        dots = plot.scatter(
            *("x", "y"),
            source=source,
            marker=MARKERS[i % len(MARKERS)],
            size=4,
            color=colour,
            name=f"dots:{channel}",
        )
        dot_renderers.append(dots)
    _add_tooltips(
        plot,
        dot_renderers,
        [("channel", "@channel"), ("to event", "@x{0,0}"), ("once in", "@once")],
    )
    onset = _create_source("drift:onsets", "x", "y")
    plot.vspan(x="x", source=onset, line_dash="dashed", line_color=BLUE, line_width=1.5)
    plot.scatter("x", "y", source=onset, marker="diamond", size=13, color=BLUE, name="onset")
    marks = _create_source("drift:alarms", "x", "y", "sentence", "channel", "once")
    alarms = plot.scatter(
        *("x", "y"),
        source=marks,
        marker="inverted_triangle",
        size=17,
        fill_color=ALARM_COLOUR,
        line_width=1.5,
        name="alarms",
        tags=["ink"],
    )
    _add_tooltips(plot, [alarms], [("alarm", "@channel at @x{0,0}"), ("once in", "@once")])
    ticks = _create_source("drift:snapshots", "x", "y")
    plot.scatter("x", "y", source=ticks, marker="dash", angle=1.5708, size=12, tags=["ink"])
    return plot


def _draw_scatter_plots() -> list[Any]:
    """Draw two views of the same points: a selection in one applies to the other."""
    source = _create_source("scatter", *SCATTER_COLUMNS)
    reference = _create_source("reference", "x", "y", "x2", "y2", "id", "fill")
    halos = _create_source("halos", "x", "y")
    plots = []
    for name, x, y in (("scatter-main", "x", "y"), ("scatter-other", "x2", "y2")):
        plot = _create_figure(name, "", "", 440, SCATTER_TOOLS, match_aspect=False)
        if name == "scatter-main":
            plot.scatter("x", "y", source=halos, size=17, color="#8a8a8a", alpha=0.3, line_width=0)
        crosses = plot.scatter(
            *(x, y),
            source=reference,
            marker="x",  # a shape that no label has
            size=6,
            line_color="#8a8a8a",
            line_alpha="fill",
        )
        crosses.selection_glyph = crosses.nonselection_glyph = None
        points = plot.scatter(
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
        tooltips = [("id", "@id"), ("event", "@at{0,0}"), ("label", "@label")]
        _add_tooltips(plot, [points], [*tooltips, ("time", "@time"), ("coverage", "@coverage")])
        plots.append(plot)
    return plots


def _draw_spectrum(count: int) -> Any:
    plot = _create_history_figure("spectrum", "eigenvalue")
    names = [f"e{j}" for j in range(count)]
    source = _create_source("spectrum", "x", *names)
    line_styles = get_palettes()["eigenvalues"]
    for name, (colour, dash) in zip(names, line_styles, strict=False):
        plot.line("x", name, source=source, line_color=colour, line_dash=dash, line_width=1.8)
        last = plot.scatter("x", name, source=source, size=4, color=colour)
        _add_tooltips(plot, [last], [("event", "@x{0,0}"), (f"eigenvalue_{name[1:]}", f"@{name}")])
    return plot


def _draw_lines(name: str) -> Any:
    """Draw one of `LINE_FIGURES`."""
    figure = LINE_FIGURES[name]
    first, second = figure.lines
    columns = {**figure.lines, **figure.others}
    dots: dict[str, Any] = {"size": 4}
    if figure.is_log:
        plot = _create_history_figure(name, figure.label, y_axis_type="log")
        limit = {"line_dash": "dashed", "line_width": 2, "line_color": ALARM_COLOUR}
        plot.hspan(y="y", source=_create_source(f"{name}:tolerance", "y"), **limit)
        dots = {"size": 7, "marker": "marker"}
        source = _create_source(name, "x", *columns, "marker")
    else:
        plot = _create_history_figure(name, figure.label)
        source = _create_source(name, "x", *columns)
    draw = partial(plot.step, mode="after") if figure.is_step else plot.line
    draw(x="x", y=first, source=source, line_color=BLUE, line_width=1.8)
    points = plot.scatter("x", first, source=source, color=BLUE, name=f"{name}:dots", **dots)
    draw(x="x", y=second, source=source, line_color=OLIVE, line_dash=figure.dash, line_width=1.8)
    tooltips = [(label, f"@{column}") for column, label in columns.items()]
    _add_tooltips(plot, [points], [("event", "@x{0,0}"), *tooltips])
    return plot


def _draw_heat_map(name: str) -> Any:
    plot = _create_figure(name, "", "", 380, "reset,save", x_range=["-"], y_range=["-"])
    cells = _create_source(name, "row", "column", "value", "colour", "text", "ink")
    rectangles = plot.rect("column", "row", 1, 1, source=cells, color="colour", line_color=None)
    plot.text(
        *("column", "row", "text"),
        source=cells,
        text_align="center",
        text_baseline="middle",
        text_font_size="11px",
        text_font=FONT,
        text_color="ink",
    )
    _add_tooltips(plot, [rectangles], [("features", "@row, @column"), ("entry", "@value")])
    plot.xaxis.major_label_orientation = 0.9
    plot.grid.visible = False
    return plot


def _draw_run_lengths() -> Any:
    plot = _create_figure(
        "run-lengths", "run length without drift, log10 of events", "streams", 220
    )
    source = _create_source("run-lengths", "left", "right", "count")
    plot.quad(
        top="count",
        bottom=0,
        left="left",
        right="right",
        source=source,
        fill_color="#56B4E9",
        line_color=BLUE,
    )
    target = _create_source("run-lengths:asked", "x")
    plot.vspan(x="x", source=target, line_dash="dashed", line_width=2, line_color=ALARM_COLOUR)
    return plot
