"""Pictures drawn with matplotlib, in colours that most colour-blind readers can distinguish."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from streamembed.errors import ParameterError
from streamembed.numeric.arrays import Array, Floats

__all__ = ["draw"]

# Okabe and Ito's colours; classes beyond them begin again with another mark.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#A49000")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")
INK, HALO = "#222222", "#d9d9d9"
# Numbers with more different values than there are names for classes are drawn as numbers.
MOST_CLASSES = len(COLOURS) * len(MARKS)
MOST_NAMED = 24
TRUSTED = 1 / 3


class Shown(Protocol):
    """A picture, as far as it is drawn."""

    coordinates: Floats

    @property
    def kept(self) -> Floats: ...


def draw(picture: Shown, values: Array, ax: Any, halo: bool, new: int) -> Any:
    """See `streamembed.engine.picture.Picture.plot`."""
    if ax is None:
        ax = _new_axes()
    x, y = picture.coordinates.T
    size = float(np.clip(12000.0 / len(x), 4.0, 36.0))
    if halo:
        lost = picture.kept < TRUSTED
        ax.scatter(x[lost], y[lost], s=6.0 * size, c=HALO, linewidths=0, zorder=1)
    if values.dtype.kind == "f" or len(np.unique(values)) > MOST_CLASSES:
        drawn = ax.scatter(x, y, s=size, c=values.astype(float), cmap="cividis", lw=0, zorder=2)
        ax.figure.colorbar(drawn, ax=ax, shrink=0.6)
    else:
        for number, name in enumerate(np.unique(values)):
            here = values == name
            mark, colour = MARKS[number // len(COLOURS)], COLOURS[number % len(COLOURS)]
            ax.scatter(x[here], y[here], s=size, c=colour, marker=mark, lw=0, zorder=2, label=name)
        if len(np.unique(values)) <= MOST_NAMED:
            ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")
    if new:
        ax.scatter(x[-new:], y[-new:], s=3.0 * size, facecolors="none", edgecolors=INK, zorder=3)
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
    for side in ax.spines.values():
        side.set_visible(False)
    ax.set_title(f"{picture.kept.mean():.0%} of neighbours kept", fontsize="small", color=INK)
    return ax


def _new_axes() -> Any:
    try:
        from matplotlib import pyplot as plt  # noqa: PLC0415  (an extra)
    except ImportError as error:
        raise ParameterError(
            "plot needs matplotlib: install streamembed[pictures], or give ax="
        ) from error
    return plt.subplots(figsize=(7, 6))[1]
