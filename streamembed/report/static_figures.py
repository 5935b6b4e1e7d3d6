"""The figures of a page as images for papers, drawn with matplotlib (extra ``pictures``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamembed.engine.drawing import INK
from streamembed.errors import ParameterError, build_file_error
from streamembed.numeric.arrays import Floats, Ints
from streamembed.report.line_figures import (
    ALARM_COLOUR,
    BLUE,
    DASHES,
    LABEL_COLOURS,
    MARKERS,
    LineFigure,
    list_line_figures,
)
from streamembed.report.report_contents import check_outside_run, read_contents

GREY = "#b0b0b0"
# Labels in a legend, and characters of each.
MOST_NAMED, LONGEST_NAME = 12, 24
# Inches, and dots in each.
SIZE, DOTS_PER_INCH = (6.4, 3.6), 200


def write_static_figures(run: str | os.PathLike[str], output: str | os.PathLike[str]) -> list[Path]:
    """Write each figure that the run has as a PNG.

    Parameters
    ----------
    run
        A run of any kind.
    output
        A folder, created if missing; existing images in it are replaced.

    Returns
    -------
    The files; the same run gives the same bytes.

    Raises
    ------
    ParameterError
        matplotlib is not installed, or ``output`` is in the run.
    MissingFileError, DamagedFileError, FileError
        The run cannot be read, or a file cannot be written.
    """
    new_figure = _load_figure_factory()
    target = check_outside_run(run, output)
    contents = read_contents(run)
    paths = []
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, draw in _list_figures(contents):
            figure = new_figure()
            draw(figure.add_subplot())
            path = target / f"{name}.png"
            figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None})
            paths.append(path)
    except OSError as error:
        raise build_file_error(error, target, "written") from error
    return paths


def _load_figure_factory() -> Callable[[], Any]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  (an extra)
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise ParameterError(
            f"--png needs matplotlib ({error}): pip install 'streamembed[pictures]'"
        ) from error

    def create_figure() -> Any:
        figure = Figure(figsize=SIZE, layout="constrained")
        FigureCanvasAgg(figure)
        return figure

    return create_figure


DrawFunction = Callable[[Any], None]


def _list_figures(contents: Mapping[str, Any]) -> list[tuple[str, DrawFunction]]:
    figures: list[tuple[str, DrawFunction]] = []
    plots, drawn = contents["scatter_plots"], contents["figures"]
    lines = list_line_figures(drawn["eigenvalues"], drawn["channels"])
    drift = lines.pop("drift")
    if contents["drift"] is not None:
        figures.append(("drift", partial(_draw_drift, figure=drift, contents=contents)))
    for plane, name in enumerate(("cloud", "coordinates")):
        if plots and plots[-1]["axes"][plane]:
            draw = partial(_draw_scatter_plot, plot=plots[-1], contents=contents, plane=plane)
            figures.append((name, draw))
    history = contents["history"]
    if history["position"]:
        data = {key: (history["position"], y) for key, y in history["columns"].items()}
        for name, figure in lines.items():
            limit = history["tolerance"] if figure.limit else None
            figures.append((name, partial(_draw_lines, figure=figure, data=data, limit=limit)))
    for metric in contents["metrics"]:
        figures.append((f"metric-{metric['name']}", partial(_draw_heat_map, metric=metric)))
    return figures


def _to_floats(values: Sequence[Any]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _escape_name(name: str) -> str:
    """Escape text for matplotlib, and shorten it to the space of a legend."""
    shortened = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
    return shortened.replace("$", r"\$")


def _add_legend(ax: Any) -> None:
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")


def _draw_lines(
    ax: Any, figure: LineFigure, data: Mapping[str, Sequence[Any]], limit: float | None
) -> None:
    """Draw the lines of a figure; ``data`` has the x and y of each."""
    drawstyle = "steps-post" if figure.is_step else "default"
    for key, line in figure.lines.items():
        if key in data:
            x, y = map(_to_floats, data[key])
            y = np.maximum(y, 1e-17) if figure.is_log else y
            style = {"c": line.colour, "ls": DASHES[line.dash], "lw": 1.2, "drawstyle": drawstyle}
            ax.plot(x, y, **style, label=_escape_name(line.name))
    if limit is not None:
        ax.axhline(limit, c=ALARM_COLOUR, ls="--", lw=1.5, label=figure.limit)
    if figure.is_log:
        ax.set_yscale("log")
    ax.set(xlabel="event", ylabel=figure.label)
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.set_title(figure.title, fontsize="medium")
    _add_legend(ax)


def _draw_drift(ax: Any, figure: LineFigure, contents: Mapping[str, Any]) -> None:
    drift, kept = contents["drift"], contents["run"]["kept"]
    ax.axhspan(0, drift["null"], color=GREY, alpha=0.3, lw=0)
    for interval in drift["unwatched"]:
        ax.axvspan(interval["start"], interval["end"], fc="none", ec=GREY, hatch="//", lw=0)
    for i, alarm in enumerate(drift["alarms"]):
        onset, mark = ("onset", "alarm") if i == 0 else (None, None)
        ax.axvline(alarm["onset"], color=BLUE, ls=":", lw=1.2, label=onset)
        style = {"marker": "v", "ms": 9, "ls": "none", "mfc": ALARM_COLOUR, "mec": INK}
        ax.plot([alarm["position"]], [alarm["height"]], **style, clip_on=False, label=mark)
    ax.plot(kept, np.zeros(len(kept)), "|", c=INK, ms=8, label="stored snapshot")
    data = {channel: (line["x"], line["y"]) for channel, line in drift["channels"].items()}
    _draw_lines(ax, figure, data, drift["threshold"])
    ax.set_ylim(0, None)
    ax.set_title(f"asked: one false alarm in {drift['asked']} events", fontsize="medium")


def _draw_scatter_plot(
    ax: Any, plot: Mapping[str, Any], contents: Mapping[str, Any], plane: int
) -> None:
    x, y = ("x2", "y2") if plane else ("x", "y")
    xs, ys = _to_floats(plot[x]), _to_floats(plot[y])
    reference = _to_floats(plot["reference"][x]), _to_floats(plot["reference"][y])
    if len(reference[0]):
        ax.scatter(*reference, s=9, c=GREY, marker="x", lw=0.8, label="reference")
    labels = np.array([-1 if label is None else label for label in plot["label"]])
    if (labels < 0).all():
        points = ax.scatter(
            xs, ys, s=10, c=_to_floats(plot["at"]), cmap="cividis", lw=0, plotnonfinite=True
        )
        ax.figure.colorbar(points, ax=ax, shrink=0.6, label="event", format="{x:,.0f}")
    else:
        _scatter_by_label(ax, xs, ys, labels, plot, contents)
        _add_legend(ax)
    names = plot["axes"][plane]
    if plot["equal"][plane]:
        ax.set_aspect("equal", adjustable="datalim")
    if names[1]:
        ax.set(xlabel=names[0], ylabel=names[1])
    else:
        ax.set(xticks=[], yticks=[])
    title = " and ".join(names) if names[1] else names[0]
    ax.set_title(f"{title} at event {plot['position']:,}", fontsize="medium")


def _scatter_by_label(
    ax: Any,
    xs: Floats,
    ys: Floats,
    labels: Ints,
    plot: Mapping[str, Any],
    contents: Mapping[str, Any],
) -> None:
    names, is_off = contents["labels"], np.array(plot["off"], dtype=np.bool_)
    present = [label for label in np.unique(labels).tolist() if 0 <= label < len(names)]
    named = present[:MOST_NAMED]
    hidden = contents["n_labels"] - len(names) if labels.max() >= len(names) else 0
    more = len(present) - len(named) + hidden
    for label in np.unique(labels).tolist():
        colour, mark = GREY, "o"
        name = "no label" if label < 0 else None
        if 0 <= label < len(names):
            colour = LABEL_COLOURS[label % len(LABEL_COLOURS)]
            mark = [*MARKERS.values()][label % len(MARKERS)]
            name = _escape_name(names[label]) if label in named else None
        for is_hollow in (False, True):
            chosen = (labels == label) & (is_off == is_hollow)
            if chosen.any():
                fill = "none" if is_hollow else colour
                style = {"s": 12, "marker": mark, "fc": fill, "ec": colour, "lw": 0.7}
                ax.scatter(xs[chosen], ys[chosen], **style, label=name)
                name = None  # once in the legend
    if more:
        ax.plot([], [], ls="none", label=f"{more:,} more")


def _draw_heat_map(ax: Any, metric: Mapping[str, Any]) -> None:
    matrix = np.array([_to_floats(row) for row in metric["matrix"]])
    size = float(np.nanmax(np.abs(matrix), initial=0.0)) or 1.0
    image = ax.imshow(matrix, cmap="PuOr", vmin=-size, vmax=size)
    names = [_escape_name(name) for name in metric["features"]]
    ax.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize="small")
    ax.set_yticks(range(len(names)), names, fontsize="small")
    ax.figure.colorbar(image, ax=ax, shrink=0.8, label="per standard deviation")
    ax.set_title(_escape_name(metric["name"]), fontsize="medium")
