"""Maps as pictures: ``python -m scenarios.gallery`` (``make picture``).

Three files of docs/images. default-maps.png: six real sets as they stand at the end of their
streams, in two coordinates of three maps, a colour for each class. embedding-gallery.png: every
method on the sets of the scenario of that name. cities.png: the maps of the scenario `cities`.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

import streamembed as se
from scenarios import cities, embedding_gallery
from scenarios.default_maps import EVENTS, WINDOW, principal
from scenarios.embedding_gallery import METHODS, NEED_POINTS, SETS, Embedded, Stream
from scenarios.streams import DataAbsent, table
from streamembed.numeric.arrays import Floats
from streamembed.threads import one_blas_thread

matplotlib.use("Agg")
from matplotlib import patheffects
from matplotlib import pyplot as plt
from matplotlib.colors import ListedColormap

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
DEFAULTS = ("digits", "aedes_sex", "waveform", "segment", "usps", "coil20")
TITLES = ("diffusion map (default)", "Laplacian eigenmaps", "PCA")

# Of points both make the same map, so that they share a column; words have none of PCA.
COLUMNS = {
    "ClassicalMDS": "PCA, ClassicalMDS",
    "KernelPCA": "KernelPCA",
    "Isomap": "Isomap",
    "LocallyLinearEmbedding": "LocallyLinear-\nEmbedding",
    "LaplacianEigenmaps": "Laplacian-\nEigenmaps",
    "DiffusionMap": "DiffusionMap",
}
ROWS = {
    "roll": "a roll\n(by its length)",
    "digits": "8 × 8 digits\n(by the digit)",
    "cars": "three toy cars\n(by the pose)",
    "words": "word distances\n(by the length)",
}
# Ten colours that the colour-blind can tell apart: Tol's "muted", and grey.
MUTED = ListedColormap(
    ["#332288", "#88CCEE", "#44AA99", "#117733", "#999933"]
    + ["#DDCC77", "#CC6677", "#882255", "#AA4499", "#999999"]
)
COLOURS: dict[str, Any] = {"roll": "viridis", "digits": MUTED, "cars": "twilight", "words": "viridis_r"}
INK, PALE = "#333333", "#bbbbbb"


def main() -> int:
    """Draw all; exit code 1 where the data are not on this machine."""
    IMAGES.mkdir(exist_ok=True)
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        draw_cities(IMAGES / "cities.png")
        try:
            draw_methods(IMAGES / "embedding-gallery.png", dict(embedding_gallery.streams(True)))
            draw_defaults(IMAGES / "default-maps.png")
        except DataAbsent as absent:
            print(absent)
            return 1
    return 0


def draw_defaults(target: Path) -> None:
    """Three maps with default parameters."""
    figure, axes = plt.subplots(len(DEFAULTS), 3, figsize=(9.0, 3.0 * len(DEFAULTS)))
    for row, name in zip(axes, DEFAULTS, strict=True):
        points, labels = table(name)
        points, labels = points[-EVENTS:], labels[-EVENTS:]
        n = min(WINDOW, int(0.6 * len(points)))
        for axis, title, shown in zip(row, TITLES, _maps(points, n), strict=True):
            colours = plt.get_cmap("tab20" if labels.max() > 9 else "tab10")
            axis.scatter(*shown.T, c=labels[-n:], s=7, cmap=colours, linewidths=0)
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_title(f"{name}: {title}", fontsize=9)
    figure.tight_layout()
    _save(figure, target, 90)


def _maps(points: Floats, n: int) -> list[Floats]:
    """Two coordinates of each map, for the last ``n`` points."""
    shown = []
    for method in ("diffusion_map", "laplacian_eigenmaps"):
        engine = se.Engine(method, size=n)
        engine.learn(points)
        if engine.pending:
            engine.flush()
        shown.append(engine.snapshot().coordinates)
    shown.append(principal(points[-n:], points[-1:])[0][:, :2])
    return shown


def draw_methods(target: Path, streams: dict[str, Stream]) -> None:
    """Every method on every set, at the end of its stream."""
    figure, axes = plt.subplots(len(SETS), len(COLUMNS), figsize=(9.6, 6.9))
    for row, name in zip(axes, SETS, strict=True):
        row[0].set_ylabel(ROWS[name], fontsize=9, color=INK, labelpad=8)
        for axis, method in zip(row, COLUMNS, strict=True):
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_color("#dddddd")
            if streams[name].points is None and method in NEED_POINTS:
                axis.text(0.5, 0.5, "needs points", ha="center", va="center", fontsize=8, color=PALE)
                axis.spines[:].set_visible(False)
                continue
            found = embedding_gallery.embed(streams[name], method)
            _scatter(axis, found, name)
    for axis, title in zip(axes[0], COLUMNS.values(), strict=True):
        axis.set_title(title, fontsize=9, color=INK)
    figure.subplots_adjust(0.065, 0.01, 0.995, 0.93, wspace=0.05, hspace=0.05)
    _save(figure, target, 130)


def _scatter(axis: Any, found: Embedded, name: str) -> None:
    """The map, standing as the colours run from left to right, in a square that fits it."""
    shown, shade = found.coordinates, found.shade
    axis.scatter(*shown.T, c=shade, s=4, cmap=COLOURS[name], linewidths=0, rasterized=True)
    axis.set_box_aspect(1)
    axis.margins(0.07)
    if name != "digits":
        return
    halo = [patheffects.withStroke(linewidth=1.6, foreground="white")]
    for digit in np.unique(shade):
        x, y = np.median(shown[shade == digit], axis=0)
        text = axis.text(x, y, str(digit), fontsize=7, color=MUTED(int(digit)), weight="bold")
        text.set(ha="center", va="center", path_effects=halo)


def draw_cities(target: Path) -> None:
    """Europe with its names, north up; and the world, which is round."""
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10.4, 5.6), gridspec_kw={"width_ratios": [1.45, 1]}
    )
    _draw_europe(left, cities.learn(cities.EUROPE, 2))
    _draw_world(right, cities.learn(cities.EUROPE | cities.ELSEWHERE, 3))
    figure.subplots_adjust(0.01, 0.02, 0.99, 0.92, wspace=0.02)
    _save(figure, target, 110)


# Where a name goes that would run into another: right, left, above or below its city.
SIDES = {
    "Vienna": "left",
    "Prague": "left",
    "Oslo": "right",
    "Bergen": "left",
    "Dublin": "left",
    "Copenhagen": "right",
    "Hamburg": "left",
    "Amsterdam": "left",
    "Paris": "left",
    "London": "left",
    "Lisbon": "left",
    "Milan": "left",
    "Bordeaux": "left",
    "Lyon": "left",
    "Zagreb": "left",
    "Munich": "left",
    "Naples": "right",
    "Stockholm": "right",
    "Edinburgh": "left",
}
OFFSETS = {
    "right": (5, 0, "left", "center"),
    "left": (-5, 0, "right", "center"),
}


def _draw_europe(axis: Any, mapped: cities.Mapped) -> None:
    """Dots where the distances put the cities, rings where the projection has them."""
    truth = cities.projected(mapped.degrees)
    shown = cities.turned(mapped.snapshot.coordinates, truth)
    axis.scatter(*shown.T, s=16, color="#0072B2", linewidths=0, zorder=3)
    for name, (x, y) in zip(mapped.names, shown, strict=True):
        right, up, across, along = OFFSETS[SIDES.get(name, "right")]
        label = axis.annotate(name, (x, y), (right, up), textcoords="offset points")
        label.set(fontsize=8, color=INK, ha=across, va=along)
    low, high = shown.min(axis=0), shown.max(axis=0)
    axis.plot([low[0], low[0] + 1000], [low[1] - 100] * 2, color=INK, linewidth=1.2)
    axis.text(low[0] + 500, low[1] - 60, "1,000 km", ha="center", fontsize=8, color=INK)
    axis.set(aspect="equal", xlim=(low[0] - 300, high[0] + 560), ylim=(low[1] - 200, high[1] + 200))
    axis.set_title("Europe from its distances alone", fontsize=11, color=INK)
    axis.axis("off")


def _draw_world(axis: Any, mapped: cities.Mapped) -> None:
    """Three coordinates, seen from above the Atlantic, with the sphere's outline."""
    globe = cities.directions(mapped.degrees)
    shown = mapped.snapshot.coordinates
    size = np.linalg.norm(globe - globe.mean(axis=0)) / np.linalg.norm(shown - shown.mean(axis=0))
    shown = cities.turned(shown * size, globe)
    eye = cities.directions(np.array([[25.0, 10.0]]))[0]
    east = np.cross([0.0, 0.0, 1.0], eye) / np.linalg.norm(np.cross([0.0, 0.0, 1.0], eye))
    flat = shown @ np.column_stack([east, np.cross(eye, east)])
    near = shown @ eye > 0
    axis.add_patch(plt.Circle((0, 0), 1.0, facecolor="#f4f7fa", edgecolor=PALE, linewidth=0.8))
    axis.scatter(*flat[~near].T, s=8, color=PALE, linewidths=0)
    axis.scatter(*flat[near].T, s=14, color="#0072B2", linewidths=0, zorder=3)
    for name, place, front in zip(mapped.names, flat, near, strict=True):
        if front and name in cities.ELSEWHERE:
            label = axis.annotate(name, place, (4, 0), textcoords="offset points", va="center")
            label.set(fontsize=7.5, color=INK)
    axis.set(aspect="equal", xlim=(-1.25, 1.35), ylim=(-1.3, 1.3))
    axis.set_title("The world, in three coordinates: a globe", fontsize=11, color=INK)
    axis.axis("off")


def _save(figure: Any, target: Path, dpi: int) -> None:
    figure.savefig(target, dpi=dpi, pil_kwargs={"optimize": True})
    plt.close(figure)
    print(f"wrote {target.name}")


if __name__ == "__main__":
    sys.exit(main())
