"""Maps as pictures: ``python -m scenarios.pictures.gallery`` (``make picture``).

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
from scenarios import cities
from scenarios.default_maps import EVENTS, WINDOW, principal
from scenarios.pictures import embedding_gallery
from scenarios.pictures.embedding_gallery import NEED_POINTS, SETS, GalleryMaps, GalleryStream
from scenarios.streams import MissingDataError, table
from streamembed.numeric.arrays import Floats
from streamembed.threads import one_blas_thread

matplotlib.use("Agg")
from matplotlib import patheffects
from matplotlib import pyplot as plt
from matplotlib.colors import LinearSegmentedColormap, ListedColormap
from matplotlib.patches import Circle

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
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
    "digits": "small digits\n(by the digit)",
    "cars": "toy cars, turning\n(by the half turn)",
    "words": "word distances\n(by their length)",
}
# Ten colours that the colour-blind can tell apart: Tol's "muted", and grey.
MUTED_CODES = (
    *("332288", "88CCEE", "44AA99", "117733", "999933"),
    *("DDCC77", "CC6677", "882255", "AA4499", "999999"),
)
MUTED = ListedColormap([f"#{code}" for code in MUTED_CODES])
# A pose comes back to where it was.
POSES = LinearSegmentedColormap.from_list(
    "poses", ["#332288", "#44AA99", "#DDAA33", "#CC3366", "#332288"]
)
COLOURS: dict[str, Any] = {"roll": "viridis", "digits": MUTED, "cars": POSES, "words": "viridis_r"}
INK, PALE, DOTS = "#333333", "#bbbbbb", "#0072B2"
GRATICULE: dict[str, Any] = {"color": "#e4e4e4", "linewidth": 0.7, "zorder": 1, "clip_on": True}


def main() -> int:
    """Draw all; exit code 1 where the data are not on this machine."""
    IMAGES.mkdir(exist_ok=True)
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        draw_cities(IMAGES / "cities.png")
        try:
            draw_methods(IMAGES / "embedding-gallery.png", dict(embedding_gallery.streams(True)))
            draw_defaults(IMAGES / "default-maps.png")
        except MissingDataError as absent:
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


def draw_methods(target: Path, streams: dict[str, GalleryStream]) -> None:
    """Every method on every set, at the end of its stream."""
    figure, axes = plt.subplots(len(SETS), len(COLUMNS), figsize=(9.6, 6.9))
    for row, name in zip(axes, SETS, strict=True):
        row[0].set_ylabel(ROWS[name], fontsize=9, color=INK, labelpad=8)
        for axis, method in zip(row, COLUMNS, strict=True):
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_color("#dddddd")
            if streams[name].points is None and method in NEED_POINTS:
                axis.text(
                    0.5, 0.5, "needs points", ha="center", va="center", fontsize=8, color=PALE
                )
                axis.spines[:].set_visible(False)
                continue
            maps = embedding_gallery.embed(streams[name], method)
            _scatter(axis, maps, name)
    for axis, title in zip(axes[0], COLUMNS.values(), strict=True):
        axis.set_title(title, fontsize=9, color=INK)
    figure.subplots_adjust(0.065, 0.01, 0.995, 0.93, wspace=0.05, hspace=0.05)
    _save(figure, target, 112)


def _scatter(axis: Any, maps: GalleryMaps, name: str) -> None:
    """The map in a square that fits it; digits are named where their medians are."""
    shown, shade = maps.coordinates, maps.shade
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
        1, 2, figsize=(10.4, 5.4), gridspec_kw={"width_ratios": [1.3, 1]}
    )
    _draw_europe(left, cities.learn(cities.EUROPE, 2))
    _draw_world(right, cities.learn(cities.EUROPE | cities.ELSEWHERE, 3))
    figure.subplots_adjust(0.01, 0.02, 0.99, 0.92, wspace=0.02)
    figure.text(0.285, 0.95, "Europe, from nothing but distances", ha="center", color=INK)
    figure.text(0.76, 0.95, "The world, in three coordinates", ha="center", color=INK)
    _save(figure, target, 110)


# Names that stand on the left of their city, where they would run into another.
LEFTWARD = frozenset(
    {
        "Beijing",
        "Bergen",
        "Bordeaux",
        "Copenhagen",
        "Dublin",
        "Edinburgh",
        "Hamburg",
        "Helsinki",
        "Lisbon",
    }
    | {
        "London",
        "Lyon",
        "Milan",
        "Munich",
        "Paris",
        "Prague",
        "Riga",
        "Vienna",
        "Vilnius",
        "Zagreb",
    }
)


def _draw_europe(axis: Any, mapped: cities.CityMap) -> None:
    """Where the distances put the cities, turned to the north, on the projection's parallels."""
    truth = cities.project(mapped.degrees)
    shown = cities.align(mapped.snapshot.coordinates, truth)
    for line in _graticule(10.0):
        axis.plot(*cities.project(line, mapped.degrees).T, **GRATICULE)
    axis.scatter(*shown.T, s=16, color=DOTS, linewidths=0, zorder=3)
    for name, place in zip(mapped.names, shown, strict=True):
        _name(axis, name, place, 8, name in LEFTWARD)
    low, high = shown.min(axis=0), shown.max(axis=0)
    axis.plot([high[0] - 700, high[0] + 300], [low[1] - 60] * 2, color=INK, linewidth=1.2)
    _name(axis, "1,000 km", (high[0] + 300, low[1] - 60), 8, False)
    axis.set(aspect="equal", xlim=(low[0] - 300, high[0] + 650), ylim=(low[1] - 200, high[1] + 200))
    axis.axis("off")


def _draw_world(axis: Any, mapped: cities.CityMap) -> None:
    """Three coordinates as seen from above the Arabian Sea, around the sphere's own centre."""
    globe, shown = cities.directions(mapped.degrees), mapped.snapshot.coordinates
    shown = shown - cities.fit_centre(shown)
    left, _, right = np.linalg.svd(shown.T @ globe)
    shown = shown @ (left @ right) / np.linalg.norm(shown, axis=1).mean()
    eye = cities.directions(np.array([[20.0, 65.0]]))[0]
    sideways = cities.compute_tangents(eye)
    axis.add_patch(Circle((0, 0), 1.0, facecolor="#f4f7fa", edgecolor=PALE, linewidth=0.8))
    for line in _graticule(30.0):
        here = cities.directions(line)
        axis.plot(*np.where((here @ eye > 0)[:, None], here @ sideways, np.nan).T, **GRATICULE)
    for name, place in zip(mapped.names, shown, strict=True):
        if place @ eye <= 0:
            continue
        europe = name in cities.EUROPE
        axis.scatter(*(place @ sideways), s=5 if europe else 16, color=DOTS, linewidths=0, zorder=3)
        if not europe:
            _name(axis, name, place @ sideways, 8, False)
    axis.set(aspect="equal", xlim=(-1.1, 1.3), ylim=(-1.1, 1.1))
    axis.axis("off")


def _graticule(step: float) -> list[Floats]:
    """Parallels and meridians: degrees north and east, a line each."""
    norths, easts = np.linspace(-80.0, 80.0, 161), np.linspace(-180.0, 180.0, 361)
    lines = [np.column_stack([norths, np.full(161, east)]) for east in easts[: -1 : int(step)]]
    parallels = np.arange(-90.0 + step, 90.0, step)
    return lines + [np.column_stack([np.full(361, north), easts]) for north in parallels]


def _name(axis: Any, name: str, place: Any, size: float, leftward: bool) -> None:
    """A name beside its place, readable on lines."""
    shift, side = (-5, "right") if leftward else (5, "left")
    label = axis.annotate(name, place, (shift, 0), textcoords="offset points", zorder=4)
    halo = patheffects.withStroke(linewidth=2.0, foreground="white", alpha=0.85)
    label.set(fontsize=size, color=INK, ha=side, va="center", path_effects=[halo])


def _save(figure: Any, target: Path, dpi: int) -> None:
    figure.savefig(target, dpi=dpi, pil_kwargs={"optimize": True})
    plt.close(figure)
    print(f"wrote {target.name}")


if __name__ == "__main__":
    sys.exit(main())
