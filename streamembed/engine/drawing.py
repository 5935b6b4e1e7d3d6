"""Pictures drawn with matplotlib, in colours that most colour-blind readers can distinguish."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamembed.data.values import is_null
from streamembed.errors import ParameterError, quote
from streamembed.numeric.arrays import Array, Bools, Floats

# Okabe and Ito's colours and three more; classes beyond them begin again with another mark.
COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#D55E00",
    "#A49000",
    "#000000",
    "#6A3D9A",
    "#B15928",
)
MARKS = ("o", "^", "s", "D", "v", "P", "X", "<", ">", "*")
INK, HALO, UNKNOWN = "#222222", "#e3e3e3", "#a8a8a8"
MOST_CLASSES = len(COLOURS) * len(MARKS)
MOST_NAMED = 30
TRUSTED, MOST_HALOS = 1 / 3, 0.2


def find_untrusted(kept: Floats) -> Bools:
    """Points of a picture that keep fewest of their neighbours, (n,), at most a fifth of them."""
    least = np.sort(kept)[int(MOST_HALOS * len(kept))]
    is_untrusted: Bools = kept < min(TRUSTED, least + 1e-9)
    return is_untrusted


def check_axes(ax: Any) -> None:
    """ParameterError unless it is something to draw on, or None."""
    if ax is not None and not hasattr(ax, "scatter"):
        raise ParameterError(f"ax={quote(ax)} must be matplotlib's Axes, or None")


def read_colors(color: Any, n: int, choices: str) -> Array:
    """One value for each of n points; by their age where ``color`` is None.

    ``choices`` say in an error what else it may be.
    """
    try:
        values = np.asarray(np.arange(n) if color is None else color)
    except ValueError:  # ragged
        values = np.zeros(0)
    if values.dtype == object and all(isinstance(value, int | float) for value in values.flat):
        try:
            values = values.astype(np.float64)
        except OverflowError as error:
            raise ParameterError("color has numbers beyond 1e308: scale them") from error
    if values.shape != (n,):
        raise ParameterError(
            f"color has shape {values.shape}; it must be one value for each of the {n} points, "
            f"in the order of ids (labels[ids] where ids are stream positions), {choices}or None"
        )
    return values


def draw_picture(
    places: Floats, kept: Floats, values: Array, ax: Any, halo: bool, new: int, label: str
) -> Any:
    """See `streamembed.engine.picture.Picture.plot`."""
    ax = _new_axes() if ax is None else ax
    x, y = places.T
    size = _choose_size(len(x))
    if halo:
        lost = find_untrusted(kept)
        ax.scatter(x[lost], y[lost], s=6.0 * size, c=HALO, linewidths=0, zorder=1)
    draw_points(places, values, ax, label)
    if new:
        ax.scatter(x[-new:], y[-new:], s=3.0 * size, facecolors="none", edgecolors=INK, zorder=3)
    ax.set_xticks([])
    ax.set_yticks([])
    for side in ax.spines.values():
        side.set_visible(False)
    ax.set_title(f"{kept.mean():.0%} of neighbours kept", fontsize="small", color=INK)
    return ax


def draw_points(points: Floats, values: Array, ax: Any, label: str) -> Any:
    """Points (n, 2) in the colours of their values; numbers on a scale where these have a label."""
    ax = _new_axes() if ax is None else ax
    x, y = points.T
    size = _choose_size(len(x))
    classes = None if label else _name_classes(values)
    if classes is None:
        drawn = ax.scatter(x, y, s=size, c=_to_numbers(values), cmap="cividis", lw=0, zorder=2)
        ax.figure.colorbar(drawn, ax=ax, shrink=0.6, label=label)
    else:
        _draw_classes(ax, x, y, classes, size)
    ax.set_aspect("equal", adjustable="datalim")
    return ax


def _choose_size(n: int) -> float:
    return float(np.clip(12000.0 / n, 4.0, 36.0))


def _name_classes(values: Array) -> list[Any] | None:
    """A name for every point, None where unknown; None for numbers that are no classes."""
    names = [None if _is_unknown(value) else value for value in values.tolist()]
    present = [value for value in names if value is not None]
    if values.dtype.kind in "mM":
        return None
    if all(isinstance(value, (int, float)) for value in present):
        if not all(np.isfinite(value) and value == int(value) for value in present):
            return None
        names = [None if value is None else int(value) for value in names]
    else:
        names = [None if value is None else str(value) for value in names]
    if len(set(names)) <= MOST_CLASSES:
        return names
    if present and not isinstance(present[0], str):
        return None
    raise ParameterError(
        f"color has {len(set(names))} different names; at most {MOST_CLASSES} can be told apart: "
        "give numbers, or fewer names"
    )


def _is_unknown(value: Any) -> bool:
    return is_null(value) or (isinstance(value, float) and np.isnan(value))


def _to_numbers(values: Array) -> Floats:
    """As they go on a scale; what is unknown in the middle."""
    if values.dtype.kind in "mM":
        values = values.astype("datetime64[s]" if values.dtype.kind == "M" else "timedelta64[s]")
        values = values.astype(np.int64)
    numbers = np.array(
        [np.nan if is_null(value) else value for value in values.tolist()], np.float64
    )
    finite = numbers[np.isfinite(numbers)]
    return np.where(np.isfinite(numbers), numbers, np.median(finite) if len(finite) else 0.0)


def _draw_classes(ax: Any, x: Floats, y: Floats, classes: list[Any], size: float) -> None:
    names: list[Any] = sorted({name for name in classes if name is not None})
    column = np.array([names.index(name) if name is not None else -1 for name in classes])
    for number, name in [(-1, "no label"), *enumerate(names)]:
        here = column == number
        if not here.any():
            continue
        mark, colour = MARKS[number // len(COLOURS)], COLOURS[number % len(COLOURS)]
        if number < 0:
            mark, colour = "o", UNKNOWN
        ax.scatter(x[here], y[here], s=size, c=colour, marker=mark, lw=0, zorder=2, label=name)
    if len(names) <= MOST_NAMED:
        legend = ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
        for handle in legend.legend_handles:
            handle.set_sizes([36.0])


def _new_axes() -> Any:
    try:
        from matplotlib import pyplot as plt  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise ParameterError(
            "plot needs matplotlib: install streamembed[pictures], or give ax="
        ) from error
    return plt.subplots(figsize=(8, 6), layout="constrained")[1]
