"""The flags and arguments: one flag a parameter of the engine, and what several commands take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import click

from streamembed.errors import MissingFileError, ParameterError
from streamembed.methods.options import Config

__all__ = ["HELP", "columns_options", "engine_options", "existing", "features_option"]

HELP = {
    "method": "diffusion_map, laplacian_eigenmaps, classical_mds, pca, kernel_pca, isomap or lle.",
    "n_components": "Number of coordinates.",
    "memory": "window: the last SIZE events; landmarks: SIZE that stand for all; all: every event.",
    "size": "Events in the window, or number of landmarks.",
    "half_life": "Events after which a landmark's mass has halved, or none.",
    "clock": "What masses fade by: position, or event_time, the column of times.",
    "max_skew": "Event times: a row so far beyond the newest before it is rejected, or none.",
    "kernel": "self_tuning: a width for every point; gaussian: one; polynomial, cosine.",
    "n_neighbors": "Self-tuning: the neighbour that gives a point its width; graphs: joined.",
    "width": "Self-tuning: factor of the squared width, or auto.",
    "weights": "Of a graph of neighbours: self_tuning, binary or heat.",
    "radius": "Graphs: join all within this distance in scaled units, or none for neighbours.",
    "bandwidth": "Gaussian: kernel width in scaled units, or auto.",
    "alpha": "Density correction, 0 to 2, or auto: 0 self-tuning, 1 gaussian.",
    "diffusion_time": "Diffusion time t of the coordinates lambda**t psi.",
    "degree": "Polynomial: its degree.",
    "coef0": "Polynomial: what is added to products of points.",
    "gamma": "Polynomial: what these are multiplied by, or none for 1 / features.",
    "reg": "Locally linear embedding: ridge of the weights.",
    "n_landmarks": "Isomap: paths from so many points only, or none for all.",
    "rank": "Rank of the tracked factor, or auto.",
    "tolerance": "Largest residual of a certified snapshot, or none.",
    "chunk_size": "Events per update.",
    "warm_up": "Events before the first snapshot, or none for the default.",
    "scaling": "standard: by mean and deviation; global: one divisor for all; none: as they are.",
    "metrics": "Metrics to learn, such as itml,eig_dml.",
    "picture": "Keep a picture in the plane, too: a layout of neighbours that keeps still.",
    "spread": "Of the picture: attraction, 1 as t-SNE, 4 as UMAP.",
    "on_bad_row": "raise: stop at a row that cannot be learned; skip: reject it and go on.",
    "seed": "Random seed.",
}


class _OrNone(click.ParamType[Any]):
    """A number, or one of a few words; "none" is None."""

    def __init__(self, kind: type, words: tuple[str, ...]) -> None:
        self.kind = kind
        self.words = words
        self.name = "|".join((*words, *([] if kind is str else [kind.__name__])))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, the word, or None for "none"."""
        if value is None or not isinstance(value, str):
            return value
        if value in self.words:
            return None if value == "none" else value
        try:
            return self.kind(value)
        except ValueError:
            self.fail(f"{value!r} is not a number, nor {' or '.join(self.words)}", param, ctx)


class _Names(click.ParamType[Any]):
    """Names with commas between them."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """A tuple of them."""
        if not isinstance(value, str):
            return tuple(value)
        return tuple(name.strip() for name in value.split(",") if name.strip())


def engine_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """A flag for every parameter of `Config`, so that none is forgotten."""
    special: dict[str, Any] = {
        "bandwidth": _OrNone(float, ("auto",)),
        "alpha": _OrNone(float, ("auto",)),
        "width": _OrNone(float, ("auto",)),
        "radius": _OrNone(float, ("none",)),
        "gamma": _OrNone(float, ("none",)),
        "n_landmarks": _OrNone(int, ("none",)),
        "half_life": _OrNone(float, ("none",)),
        "max_skew": _OrNone(float, ("none",)),
        "rank": _OrNone(int, ("auto",)),
        "tolerance": _OrNone(float, ("none",)),
        "warm_up": _OrNone(int, ("none",)),
        "scaling": _OrNone(str, ("none", "standard", "global")),
        "metrics": _Names(),
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


def features_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--features",
        type=_Names(),
        callback=lambda _context, _parameter, value: None if value is None else list(value),
        metavar="NAMES",
        help="Feature columns: a,b or patterns 'x*,y?'.  [default: numeric columns that do not "
        "look like ids, times or targets]",
    )(command)


def columns_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What the columns of a log are for."""
    for flag, name, what in (
        ("--time", "time_column", "Column of times.  [default: event_time]"),
        ("--label", "label_column", "Column of labels.  [default: label]"),
        ("--id", "id_column", "Column of ids.  [default: id]"),
    ):
        command = click.option(flag, name, metavar="NAME", help=what)(command)
    command = click.option(
        "--exclude",
        type=_Names(),
        callback=lambda _context, _parameter, value: None if value is None else list(value),
        metavar="NAMES",
        help="Columns to leave out: a,b or patterns 'x*,y?'.",
    )(command)
    return features_option(command)


def existing(paths: tuple[str, ...]) -> list[str]:
    """The paths, if each is there, and none is a run folder; - is standard input."""
    for path in paths:
        is_pattern = any(sign in path for sign in "*?[")
        if path != "-" and not is_pattern and not Path(path).exists():
            raise MissingFileError(f"{path} does not exist")
        if (Path(path) / "timeline.parquet").exists():
            raise ParameterError(
                f"{path} is a run folder; it must be a log: name the log, or one file of the run, "
                f"such as {Path(path) / 'embedding.parquet'}"
            )
    return list(paths)
