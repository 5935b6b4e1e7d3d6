"""The part of the benchmarks on pictures: what they cost beside the lists of neighbours."""

from __future__ import annotations

import importlib
import importlib.util
import time
import warnings
from typing import Any
from unittest import mock

import numpy as np

import streamembed as se
from scenarios import streams
from scenarios.benchmarks.graphs import milliseconds
from streamembed.geometry.lists import NeighborLists
from streamembed.geometry.pairwise import PointDistances
from streamembed.layout import layout
from streamembed.layout.layout import Layout
from streamembed.numeric import compilation
from streamembed.numeric.arrays import Floats

__all__ = ["measure_layouts"]

CHUNK, NEIGHBORS, SPREAD = 10, 15, 1.5


def measure_following(
    points: Floats, size: int, begin: Layout, lists: NeighborLists
) -> tuple[float, float]:
    """Milliseconds a chunk: the lists, and the picture beside them."""
    window, arrivals = points[:size].copy(), np.arange(size)
    picture, spent = begin, []
    for start in range(size, len(points) - CHUNK + 1, CHUNK):
        slots = np.arange(start, start + CHUNK) % size
        window[slots], arrivals[slots] = (
            points[start : start + CHUNK],
            np.arange(start, start + CHUNK),
        )
        clock = time.perf_counter()
        after = lists.replace(slots, PointDistances(window), arrivals)
        between = time.perf_counter()
        picture = layout.update(
            picture, lists, after, slots, arrivals, (start, start + CHUNK), SPREAD
        )
        spent.append((between - clock, time.perf_counter() - between))
        lists = after
    each = 1e3 * np.median(np.array(spent[1:]), axis=0)
    return float(each[0]), float(each[1])


def measure_layouts(quick: bool) -> list[str]:
    """Letter, in windows of four sizes; umap-learn's refit where it is installed."""
    lines = [
        "| letter, chunk 10 | lists ms | picture beside them ms | without numba ms | "
        "laid out ms | counted ms | one new point ms | umap-learn / lists and picture |",
        "|---|" + "---:|" * 7,
    ]
    _measure_reading(np.random.default_rng(0).standard_normal((200, 3)), 100)  # compiles
    for size in (500, 1000) if quick else (500, 1000, 2000, 5000, 10000):
        try:
            points = streams.letter()[0][: size + 30 * CHUNK]
        except streams.MissingDataError as absent:
            print(f"letter left out: {absent}")
            return lines
        arrivals = np.arange(size)
        lists = NeighborLists.build(PointDistances(points[:size]), arrivals, NEIGHBORS)
        clock = time.perf_counter()
        begin = layout.init(lists, True, points[:size, :2], arrivals, SPREAD)
        laid_out = 1e3 * (time.perf_counter() - clock)
        kept_lists, beside = measure_following(points, size, begin, lists)
        plain = np.nan
        if compilation.is_available() and size <= 5000:
            with mock.patch.object(compilation, "is_available", return_value=False):
                plain = measure_following(points[: size + 8 * CHUNK], size, begin, lists)[1]
        counted, placed = _measure_reading(points, size) if size <= 2000 else (np.nan, np.nan)
        refit = _measure_refit(points[:size]) if size <= 2000 else np.nan
        cells = [f"{value:.1f}" for value in (plain, laid_out, counted, placed)]
        cells = ["" if value == "nan" else value for value in cells]
        ratio = "" if np.isnan(refit) else f"**{refit / (kept_lists + beside):.0f}**"
        lines.append(
            f"| N = {size:,} | {kept_lists:.1f} | **{beside:.1f}** | "
            f"{cells[0]} | {cells[1]} | {cells[2]} | {cells[3]} | {ratio} |"
        )
    return lines


def _measure_reading(points: Floats, size: int) -> tuple[float, float]:
    """Milliseconds of counting what is kept and balanced, and of placing one point."""
    engine = se.Engine("laplacian_eigenmaps", size=size, scaling=None, tolerance=None, picture=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine.learn(points[:size])
        picture = engine.snapshot().picture
    assert picture is not None
    counted = milliseconds(lambda: (picture.kept, picture.balance))
    picture.transform(points[:1])
    placed = min(milliseconds(lambda: picture.transform(points[-1:])) for _ in range(20))
    return counted, placed


def _measure_refit(points: Floats) -> float:
    """Milliseconds of a cold fit of umap-learn; NaN where it is not installed."""
    if importlib.util.find_spec("umap") is None:
        return np.nan
    umap: Any = importlib.import_module("umap")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = umap.UMAP(n_neighbors=NEIGHBORS, random_state=0)
        model.fit(points[:200])  # compiles
        return milliseconds(lambda: umap.UMAP(n_neighbors=NEIGHBORS, random_state=0).fit(points))
