"""The figures of a page as pictures for papers, drawn with matplotlib (extra ``pictures``)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamembed.engine.drawing import COLOURS, INK, MARKS
from streamembed.errors import ParameterError, file_error, path_text, shown
from streamembed.numeric.arrays import Floats
from streamembed.report.report_contents import read_contents

__all__ = ["write_prints"]

COLOURED = tuple(colour for colour in COLOURS[:7] if colour != "#000000")
# Of lines: without the colour of alarms and limits.
LINES = (*(one for one in COLOURED if one != "#D55E00"), "#9467BD")
DASHED = ("-", "--", "-.", ":")
ALARM, BLUE, OLIVE, GREY = "#D55E00", "#0072B2", "#A49000", "#b0b0b0"
MOST_NAMED, LONGEST_NAME = 12, 24
# Inches, and dots in each.
SIZE, DOTS = (6.4, 3.6), 200


def write_prints(run: str | os.PathLike[str], output: str | os.PathLike[str]) -> list[Path]:
    """Write each figure that the run has as a PNG.

    Parameters
    ----------
    run
        A run of any kind.
    output
        A folder; it is made where there is none, and pictures in it are replaced.

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
    new_figure = _figures()
    target = Path(path_text(output, "output"))
    if target.resolve().is_relative_to(Path(path_text(run, "run")).resolve()):
        raise ParameterError(f"output={shown(str(target))} must not be in the run: it is read only")
    contents = read_contents(run)
    made = []
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, draw in _drawings(contents):
            figure = new_figure()
            draw(figure.add_subplot())
            path = target / f"{name}.png"
            figure.savefig(path, dpi=DOTS, metadata={"Software": None})
            made.append(path)
    except OSError as error:
        raise file_error(error, target, "written") from error
    return made


def _figures() -> Callable[[], Any]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  (an extra)
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise ParameterError(
            f"--png needs matplotlib ({error}): pip install 'streamembed[pictures]'"
        ) from error

    def new() -> Any:
        figure = Figure(figsize=SIZE, layout="constrained")
        FigureCanvasAgg(figure)
        return figure

    return new


Drawing = Callable[[Any], None]


def _drawings(contents: Mapping[str, Any]) -> list[tuple[str, Drawing]]:
    """The figures that there is something to draw in, by file name."""
    made: list[tuple[str, Drawing]] = []
    drift, history, clouds = contents["drift"], contents["history"], contents["clouds"]
    if drift is not None:
        made.append(("drift", lambda ax: _drift(ax, drift, contents["run"]["kept"])))
    if clouds:
        names = contents["labels"]
        made.append(("cloud", lambda ax: _cloud(ax, clouds[-1], names, "x", "y", 0)))
        if clouds[-1]["axes"][1]:
            made.append(("coordinates", lambda ax: _cloud(ax, clouds[-1], names, "x2", "y2", 1)))
    if history["position"]:
        made.append(("spectrum", lambda ax: _spectrum(ax, history)))
        made.append(("certificate", lambda ax: _certificate(ax, history)))
        made.append(("movement", lambda ax: _movement(ax, history)))
        made.append(("refreshes", lambda ax: _refreshes(ax, history)))
    for metric in contents["metrics"]:
        made.append((f"metric-{metric['name']}", partial(_heat_map, metric=metric)))
    return made


def _floats(values: Sequence[Any]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _plain(name: str) -> str:
    """A text that matplotlib draws as it is, not longer than there is room for."""
    told = name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
    return told.replace("$", r"\$")


def _legend(ax: Any) -> None:
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")


def _drift(ax: Any, drift: Mapping[str, Any], kept: Sequence[int]) -> None:
    ax.axhspan(0, drift["null"], color=GREY, alpha=0.3, lw=0)
    ax.axhline(drift["threshold"], color=ALARM, ls="--", lw=1.5, label="alarm line")
    for stretch in drift["stretches"]:
        ax.axvspan(stretch["start"], stretch["end"], fc="none", ec=GREY, hatch="//", lw=0)
    for i, (channel, line) in enumerate(drift["channels"].items()):
        colour, dash = LINES[i % len(LINES)], DASHED[i % len(DASHED)]
        ax.plot(line["x"], _floats(line["y"]), c=colour, ls=dash, lw=1.2, label=_plain(channel))
    for i, alarm in enumerate(drift["alarms"]):
        first = i == 0
        ax.axvline(alarm["onset"], color=BLUE, ls=":", lw=1.2, label="onset" if first else None)
        mark = {"marker": "v", "ms": 9, "ls": "none", "mfc": ALARM, "mec": INK, "clip_on": False}
        ax.plot([alarm["position"]], [alarm["height"]], **mark, label="alarm" if first else None)
    ax.plot(kept, np.zeros(len(kept)), "|", c=INK, ms=8, label="snapshot kept")
    ax.set(xlabel="event", ylabel="run length, log10 of events", ylim=(0, None))
    ax.set_title(f"asked: one false alarm in {drift['asked']} events", fontsize="medium")
    _legend(ax)


def _cloud(
    ax: Any, cloud: Mapping[str, Any], names: Sequence[str], x: str, y: str, axes: int
) -> None:
    behind = cloud["behind"]
    if behind[x]:
        ax.scatter(
            _floats(behind[x]),
            _floats(behind[y]),
            s=9,
            c=GREY,
            marker="x",
            lw=0.8,
            label="reference",
        )
    xs, ys = _floats(cloud[x]), _floats(cloud[y])
    labels = np.array([-1 if label is None else label for label in cloud["label"]])
    off = np.array(cloud["off"], dtype=np.bool_)
    if (labels < 0).all():
        drawn = ax.scatter(xs, ys, s=10, c=cloud["at"], cmap="cividis", lw=0)
        ax.figure.colorbar(drawn, ax=ax, shrink=0.6, label="event")
    else:
        for label in np.unique(labels).tolist():
            here = labels == label
            colour, mark = GREY, "o"
            name = "no label" if label < 0 else "another label"
            if 0 <= label < len(names):
                colour, mark = COLOURED[label % len(COLOURED)], MARKS[label % len(MARKS)]
                name = names[label]
            for chosen, fill, told in (
                (here & ~off, colour, _plain(name) if label < MOST_NAMED else None),
                (here & off, "none", None),
            ):
                if chosen.any():
                    looks = {"marker": mark, "fc": fill, "ec": colour, "lw": 0.7, "label": told}
                    ax.scatter(xs[chosen], ys[chosen], s=12, **looks)
        _legend(ax)
    called = cloud["axes"][axes]
    if called[1]:
        ax.set(xlabel=called[0], ylabel=called[1])
    else:
        ax.set(xticks=[], yticks=[])
    what = "coordinates" if called[1] else called[0]
    ax.set_title(f"{what} at event {cloud['position']:,}", fontsize="medium")


def _spectrum(ax: Any, history: Mapping[str, Any]) -> None:
    for j, values in enumerate(history["eigenvalues"]):
        looks = {"c": LINES[j % len(LINES)], "ls": DASHED[j % len(DASHED)], "lw": 1.2}
        ax.plot(history["position"], _floats(values), **looks, label=f"{j + 1}")
    ax.set(xlabel="event", ylabel="eigenvalue")
    _legend(ax)


def _certificate(ax: Any, history: Mapping[str, Any]) -> None:
    x = history["position"]
    if "residual" in history:
        ax.semilogy(x, np.maximum(_floats(history["residual"]), 1e-17), c=BLUE, label="residual")
    if "angle_bound" in history:
        bound = np.maximum(_floats(history["angle_bound"]), 1e-17)
        ax.semilogy(x, bound, c=OLIVE, ls="-.", lw=1.2, label="bound of the angle")
    if history["tolerance"] is not None:
        ax.axhline(history["tolerance"], c=ALARM, ls="--", lw=1.5, label="tolerance")
    ax.set(xlabel="event", ylabel="size")
    _legend(ax)


def _movement(ax: Any, history: Mapping[str, Any]) -> None:
    for name, colour, dash in (("movement", BLUE, "-"), ("displacement", OLIVE, "--")):
        if name in history:
            ax.plot(history["position"], _floats(history[name]), c=colour, ls=dash, label=name)
    ax.set(xlabel="event", ylabel="root mean square")
    _legend(ax)


def _refreshes(ax: Any, history: Mapping[str, Any]) -> None:
    for name, colour, dash in (("refreshes", BLUE, "-"), ("epoch", OLIVE, "--")):
        if name in history:
            values = _floats(history[name])
            ax.step(history["position"], values, where="post", c=colour, ls=dash, label=name)
    ax.set(xlabel="event", ylabel="so far")
    _legend(ax)


def _heat_map(ax: Any, metric: Mapping[str, Any]) -> None:
    matrix = np.array([_floats(row) for row in metric["matrix"]])
    size = float(np.nanmax(np.abs(matrix), initial=0.0)) or 1.0
    drawn = ax.imshow(matrix, cmap="PuOr", vmin=-size, vmax=size)
    names = [_plain(name) for name in metric["features"]]
    ax.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize="small")
    ax.set_yticks(range(len(names)), names, fontsize="small")
    ax.figure.colorbar(drawn, ax=ax, shrink=0.8, label="per standard deviation")
    ax.set_title(_plain(metric["name"]), fontsize="medium")
