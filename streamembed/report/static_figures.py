"""The figures of a page as images for papers, drawn with matplotlib (extra ``pictures``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamembed.engine.drawing import INK, MARKS
from streamembed.errors import ParameterError, build_file_error
from streamembed.numeric.arrays import Floats
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
from streamembed.report.report_contents import check_outside_run, read_contents

GREY = "#b0b0b0"
# Style of the i-th line of a figure of many.
LINE_STYLES: list[dict[str, Any]] = [
    {"c": LINE_COLOURS[i % len(LINE_COLOURS)], "ls": [*DASHES.values()][i % len(DASHES)], "lw": 1.2}
    for i in range(MOST_LINES)
]
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
    drift, history, plots = contents["drift"], contents["history"], contents["scatter_plots"]
    if drift is not None:
        figures.append(("drift", lambda ax: _draw_drift(ax, drift, contents["run"]["kept"])))
    if plots:
        names = contents["labels"]
        figures.append(("cloud", lambda ax: _draw_scatter_plot(ax, plots[-1], names, "x", "y", 0)))
        if plots[-1]["axes"][1]:
            figures.append(
                ("coordinates", lambda ax: _draw_scatter_plot(ax, plots[-1], names, "x2", "y2", 1))
            )
    if history["position"]:
        figures.append(("spectrum", lambda ax: _draw_spectrum(ax, history)))
        figures += [
            (name, partial(_draw_lines, name=name, history=history)) for name in LINE_FIGURES
        ]
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


def _draw_drift(ax: Any, drift: Mapping[str, Any], snapshot_positions: Sequence[int]) -> None:
    ax.axhspan(0, drift["null"], color=GREY, alpha=0.3, lw=0)
    ax.axhline(drift["threshold"], color=ALARM_COLOUR, ls="--", lw=1.5, label="alarm line")
    for interval in drift["unwatched"]:
        ax.axvspan(interval["start"], interval["end"], fc="none", ec=GREY, hatch="//", lw=0)
    for (channel, line), style in zip(drift["channels"].items(), LINE_STYLES, strict=False):
        ax.plot(line["x"], _to_floats(line["y"]), **style, label=_escape_name(channel))
    for i, alarm in enumerate(drift["alarms"]):
        first = i == 0
        ax.axvline(alarm["onset"], color=BLUE, ls=":", lw=1.2, label="onset" if first else None)
        mark = {
            "marker": "v",
            "ms": 9,
            "ls": "none",
            "mfc": ALARM_COLOUR,
            "mec": INK,
            "clip_on": False,
        }
        ax.plot([alarm["position"]], [alarm["height"]], **mark, label="alarm" if first else None)
    ax.plot(
        snapshot_positions,
        np.zeros(len(snapshot_positions)),
        "|",
        c=INK,
        ms=8,
        label="stored snapshot",
    )
    ax.set(xlabel="event", ylabel="run length, log10 of events", ylim=(0, None))
    ax.set_title(f"asked: one false alarm in {drift['asked']} events", fontsize="medium")
    _add_legend(ax)


def _draw_scatter_plot(
    ax: Any, plot: Mapping[str, Any], names: Sequence[str], x: str, y: str, axes: int
) -> None:
    reference = plot["reference"]
    if reference[x]:
        ax.scatter(
            _to_floats(reference[x]),
            _to_floats(reference[y]),
            s=9,
            c=GREY,
            marker="x",
            lw=0.8,
            label="reference",
        )
    xs, ys = _to_floats(plot[x]), _to_floats(plot[y])
    labels = np.array([-1 if label is None else label for label in plot["label"]])
    is_off = np.array(plot["off"], dtype=np.bool_)
    if (labels < 0).all():
        points = ax.scatter(xs, ys, s=10, c=plot["at"], cmap="cividis", lw=0)
        ax.figure.colorbar(points, ax=ax, shrink=0.6, label="event")
    else:
        for label in np.unique(labels).tolist():
            has_label = labels == label
            colour, mark = GREY, "o"
            name = "no label" if label < 0 else "another label"
            if 0 <= label < len(names):
                colour, mark = LABEL_COLOURS[label % len(LABEL_COLOURS)], MARKS[label % len(MARKS)]
                name = names[label]
            for mask, fill, legend_name in (
                (has_label & ~is_off, colour, _escape_name(name) if label < MOST_NAMED else None),
                (has_label & is_off, "none", None),
            ):
                if mask.any():
                    style = {
                        "marker": mark,
                        "fc": fill,
                        "ec": colour,
                        "lw": 0.7,
                        "label": legend_name,
                    }
                    ax.scatter(xs[mask], ys[mask], s=12, **style)
        _add_legend(ax)
    axis_names = plot["axes"][axes]
    if axis_names[1]:
        ax.set(xlabel=axis_names[0], ylabel=axis_names[1])
    else:
        ax.set(xticks=[], yticks=[])
    title = " and ".join(axis_names) if axis_names[1] else axis_names[0]
    ax.set_title(f"{title} at event {plot['position']:,}", fontsize="medium")


def _draw_spectrum(ax: Any, history: Mapping[str, Any]) -> None:
    for j, (values, style) in enumerate(zip(history["eigenvalues"], LINE_STYLES, strict=False)):
        ax.plot(history["position"], _to_floats(values), **style, label=f"eigenvalue_{j}")
    ax.set(xlabel="event", ylabel="eigenvalue")
    _add_legend(ax)


def _draw_lines(ax: Any, name: str, history: Mapping[str, Any]) -> None:
    """Draw one of `LINE_FIGURES`."""
    figure = LINE_FIGURES[name]
    drawstyle = "steps-post" if figure.is_step else "default"
    styles = {"c": BLUE, "ls": "-"}, {"c": OLIVE, "ls": DASHES[figure.dash]}
    for (column, label), style in zip(figure.lines.items(), styles, strict=True):
        if column in history:
            values = _to_floats(history[column])
            values = np.maximum(values, 1e-17) if figure.is_log else values
            ax.plot(history["position"], values, **style, label=label, drawstyle=drawstyle)
    if figure.is_log:
        ax.set_yscale("log")
        if history["tolerance"] is not None:
            ax.axhline(history["tolerance"], c=ALARM_COLOUR, ls="--", lw=1.5, label="tolerance")
    ax.set(xlabel="event", ylabel=figure.label)
    _add_legend(ax)


def _draw_heat_map(ax: Any, metric: Mapping[str, Any]) -> None:
    matrix = np.array([_to_floats(row) for row in metric["matrix"]])
    size = float(np.nanmax(np.abs(matrix), initial=0.0)) or 1.0
    image = ax.imshow(matrix, cmap="PuOr", vmin=-size, vmax=size)
    names = [_escape_name(name) for name in metric["features"]]
    ax.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize="small")
    ax.set_yticks(range(len(names)), names, fontsize="small")
    ax.figure.colorbar(image, ax=ax, shrink=0.8, label="per standard deviation")
    ax.set_title(_escape_name(metric["name"]), fontsize="medium")
