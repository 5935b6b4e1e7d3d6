"""The live map of a drifting stream beside pictures from scratch, animated (``make picture``).

Digits come class after class: a window of 400 sees four or five at a time, and none of its first
points is left at the end. On the right the same window is laid out from scratch for every frame,
turned and shifted onto the frame before. Needs the extras ``pictures`` and ``test``.
"""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from PIL import Image
from sklearn.datasets import load_digits

import streamembed as se
from scenarios.live_map import read_picture
from scenarios.pictures.gallery import IMAGES
from streamembed.engine.drawing import COLOURS
from streamembed.layout import measures
from streamembed.numeric.arrays import Floats, Ints

__all__ = ["drifting_digits", "main"]

WINDOW, EVERY, LINGER = 400, 20, 500
MILLISECONDS = 110
INK = "#222222"


def drifting_digits() -> tuple[Floats, Ints]:
    """Points (1797, 64) and labels: class after class, each over a stretch of the stream."""
    points, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    when = labels * len(labels) / 10 + rng.uniform(0, LINGER, len(labels))
    order = np.argsort(when)
    return points[order], labels[order]


class Panel:
    """Half of a frame: a view that follows its points slowly, so that they are seen to move."""

    def __init__(self, ax: Any, title: str) -> None:
        self.ax, self.title = ax, title
        self.centre: Floats | None = None
        self.half = 0.0

    def draw(self, places: Floats, labels: Ints) -> None:
        """The points of a frame."""
        low, high = np.percentile(places, [1, 99], axis=0)
        centre, half = 0.5 * (low + high), 0.62 * float((high - low).max())
        if self.centre is None:
            self.centre, self.half = centre, half
        self.centre = 0.9 * self.centre + 0.1 * centre
        self.half = max(0.95 * self.half, half)
        self.ax.clear()
        colors = [COLOURS[label] for label in labels]
        self.ax.scatter(*places.T, s=9, c=colors, lw=0)
        for label in np.unique(labels):
            if (labels == label).sum() > 12:
                at = np.median(places[labels == label], axis=0)
                caption = self.ax.text(
                    *at, str(label), fontsize=15, color=INK, ha="center", va="center"
                )
                caption.set_path_effects([withStroke(linewidth=3, foreground="white")])
        self.ax.set_xlim(self.centre[0] - self.half, self.centre[0] + self.half)
        self.ax.set_ylim(self.centre[1] - self.half, self.centre[1] + self.half)
        self.ax.set_xticks([])
        self.ax.set_yticks([])
        self.ax.set_title(self.title, fontsize=10, color=INK)


def frames() -> list[Image.Image]:
    """One image every `EVERY` events."""
    points, labels = drifting_digits()
    engine = se.Engine(
        "laplacian_eigenmaps", picture=True, size=WINDOW, tolerance=None, scaling="global"
    )
    figure = Figure(figsize=(7.2, 3.9), dpi=80)
    canvas: Any = FigureCanvasAgg(figure)
    axes = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.01, right=0.99, bottom=0.02, top=0.92, wspace=0.03)
    live = Panel(axes[0], "followed: the live map")
    again = Panel(axes[1], "laid out from scratch, and aligned")
    images, before = [], None
    for position in range(0, len(points), EVERY):
        engine.learn(points[position : position + EVERY])
        if position + EVERY < WINDOW:
            continue
        picture = read_picture(engine)
        other = pickle.loads(pickle.dumps(engine))
        other.relayout()
        fresh = read_picture(other)
        ids = picture.ids.astype(np.int64)
        places = fresh.coordinates
        if before is not None:
            _, here, there = np.intersect1d(ids, before[0], return_indices=True)
            onto = np.zeros_like(places)
            onto[here] = before[1][there]
            places = measures.align(places, onto, here)
        before = ids, places
        live.draw(picture.coordinates, labels[ids])
        again.draw(places, labels[ids])
        canvas.draw()
        images.append(Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB"))
    return images


def main(path: Path = IMAGES / "live-map.webp") -> None:
    """Write the animation."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        images = frames()
    images[0].save(
        path, save_all=True, append_images=images[1:], duration=MILLISECONDS, loop=0, quality=60
    )
    print(f"wrote {path.name}: {len(images)} frames, {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
