"""Options and arguments: one option per engine parameter, and those that commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import click

from streamembed.errors import MissingFileError, ParameterError
from streamembed.methods.options import Config

HELP = {
    "method": "diffusion_map, laplacian_eigenmaps, classical_mds, pca, kernel_pca, isomap or lle.",
    "n_components": "Number of coordinates.",
    "memory": "window: the last SIZE events; landmarks: SIZE representatives; all: every event.",
    "size": "Events in the window, or number of landmarks.",
    "half_life": "Events after which a landmark's mass halves, or none.",
    "clock": "What masses decay by: position, or event_time, the time column.",
    "max_skew": "Event times: reject a row this far beyond the newest, or none.",
    "kernel": "self_tuning: a width per point; gaussian: one width; polynomial; cosine.",
    "n_neighbors": "Self-tuning: the neighbour that sets a width; graphs: neighbours to join.",
    "width": "Self-tuning: factor of the squared width, or auto.",
    "weights": "Weights of a neighbour graph: self_tuning, binary or heat.",
    "radius": "Graphs: join points within this scaled distance, or none for n_neighbors.",
    "bandwidth": "Gaussian: kernel width in scaled units, or auto.",
    "alpha": "Density correction, 0 to 2, or auto: 0 self-tuning, 1 gaussian.",
    "diffusion_time": "Diffusion time t of the coordinates lambda**t psi.",
    "degree": "Polynomial: its degree.",
    "coef0": "Polynomial: constant added to the dot product.",
    "gamma": "Polynomial: factor of the dot product, or none for 1 / features.",
    "reg": "Locally linear embedding: ridge of the weights.",
    "n_landmarks": "Isomap: compute paths from this many points, or none for all.",
    "rank": "Rank of the tracked factor, or auto.",
    "tolerance": "Largest residual of a certified snapshot, or none.",
    "chunk_size": "Events per update.",
    "warm_up": "Events before the first snapshot, or none for the default.",
    "scaling": "standard: by mean and deviation; global: one divisor for all; none: unscaled.",
    "metrics": "Metrics to learn, such as itml,eig_dml.",
    "picture": "Also keep a picture in the plane: a stable layout of neighbours.",
    "spread": "Picture: attraction, 1 as t-SNE, 4 as UMAP.",
    "on_bad_row": "raise: stop at a row that cannot be learned; skip: reject it and continue.",
    "seed": "Random seed.",
}


class _NumberOrWord(click.ParamType[Any]):
    """A number, or one of a few words; "none" is None."""

    def __init__(self, kind: type, words: tuple[str, ...]) -> None:
        self.kind = kind
        self.words = words
        self.name = "|".join((*words, *([] if kind is str else [kind.__name__])))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, the word, or None for "none"."""
        if value is None or not isinstance(value, str):
            return value
        if value in self.words:
            return None if value == "none" else value
        try:
            return self.kind(value)
        except ValueError:
            self.fail(f"{value!r} must be a number or {' or '.join(self.words)}", param, ctx)


class _CommaSeparatedNames(click.ParamType[Any]):
    """Comma-separated names."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a tuple of names."""
        if not isinstance(value, str):
            return tuple(value)
        return tuple(name.strip() for name in value.split(",") if name.strip())


def add_engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for every parameter of `Config`."""
    special: dict[str, Any] = {
        "bandwidth": _NumberOrWord(float, ("auto",)),
        "alpha": _NumberOrWord(float, ("auto",)),
        "width": _NumberOrWord(float, ("auto",)),
        "radius": _NumberOrWord(float, ("none",)),
        "gamma": _NumberOrWord(float, ("none",)),
        "n_landmarks": _NumberOrWord(int, ("none",)),
        "half_life": _NumberOrWord(float, ("none",)),
        "max_skew": _NumberOrWord(float, ("none",)),
        "rank": _NumberOrWord(int, ("auto",)),
        "tolerance": _NumberOrWord(float, ("none",)),
        "warm_up": _NumberOrWord(int, ("none",)),
        "scaling": _NumberOrWord(str, ("none", "standard", "global")),
        "metrics": _CommaSeparatedNames(),
    }
    for parameter in reversed(fields(Config)):
        assert parameter.default is not MISSING
        default = "skip" if parameter.name == "on_bad_row" else parameter.default
        command = click.option(
            "--" + parameter.name.replace("_", "-"),
            parameter.name,
            type=special.get(parameter.name, type(default)),
            is_flag=isinstance(default, bool),
            default=default,
            show_default="none" if default is None or default == () else True,
            help=HELP[parameter.name],
        )(command)
    return command


def add_features_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--features",
        type=_CommaSeparatedNames(),
        callback=lambda _context, _parameter, value: None if value is None else list(value),
        metavar="NAMES",
        help="Feature columns: a,b or patterns 'x*,y?'.  [default: numeric columns that do not "
        "look like ids, times or targets]",
    )(command)


def add_columns_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that assign roles to the columns of a log."""
    for flag, name, what in (
        ("--time", "time_column", "Time column.  [default: event_time]"),
        ("--label", "label_column", "Label column.  [default: label]"),
        ("--id", "id_column", "Id column.  [default: id]"),
    ):
        command = click.option(flag, name, metavar="NAME", help=what)(command)
    command = click.option(
        "--exclude",
        type=_CommaSeparatedNames(),
        callback=lambda _context, _parameter, value: None if value is None else list(value),
        metavar="NAMES",
        help="Columns to exclude: a,b or patterns 'x*,y?'.",
    )(command)
    return add_features_option(command)


def check_logs_exist(paths: tuple[str, ...]) -> list[str]:
    """Return the paths if each exists and none is a run folder; - is standard input."""
    for path in paths:
        is_pattern = any(sign in path for sign in "*?[")
        if path != "-" and not is_pattern and not Path(path).exists():
            raise MissingFileError(f"{path} does not exist")
        if (Path(path) / "timeline.parquet").exists():
            raise ParameterError(
                f"{path} is a run folder; it must be a log: pass the log, or one file of the run, "
                f"such as {Path(path) / 'embedding.parquet'}"
            )
    return list(paths)
