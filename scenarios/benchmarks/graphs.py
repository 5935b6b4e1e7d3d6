"""Benchmarks of graphs: neighbour lists and both graph methods."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import eigsh
from sklearn.manifold import SpectralEmbedding
from sklearn.neighbors import kneighbors_graph

import streamembed as se
from scenarios import streams
from streamembed.errors import DegenerateMapWarning
from streamembed.geometry.lists import NeighborLists
from streamembed.geometry.pairwise import PointDistances
from streamembed.numeric.arrays import Floats

__all__ = ["eigenmaps", "measure_large_graph"]

K, CHUNK, CHUNKS, NEIGHBORS, TOLERANCE = 10, 10, 59, 15, 3e-3
GRAPH: dict[str, Any] = {
    "method": "laplacian_eigenmaps",
    "n_neighbors": NEIGHBORS,
    "weights": "binary",
}
ROW = "|---|---:|"


def milliseconds(call: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def fastest(call: Callable[[], object], repeats: int) -> float:
    """Of several calls: what else the machine does slows a call down, and speeds none up."""
    return min(milliseconds(call) for _ in range(repeats))


def connectivity(points: Floats) -> csr_array:
    """scikit-learn's graph, either-or."""
    directed = csr_array(kneighbors_graph(points, NEIGHBORS))
    return csr_array(((directed + directed.T) > 0).astype(float))


def normalise(graph: csr_array) -> csr_array:
    """S of the walk on a graph."""
    scale = diags_array(1.0 / np.sqrt(graph.sum(axis=1)))
    return csr_array(scale @ graph @ scale)


def solve(graph: csr_array, components: int) -> Floats:
    """The first values of the walk on a graph, ascending, with their vectors, by Lanczos."""
    walk = normalise(graph)
    values: Floats = eigsh(walk, k=components + 1, v0=np.ones(walk.shape[0]), tol=1e-3)[0]
    return values


@dataclass(frozen=True)
class Pace:
    """Milliseconds a chunk to learn and to certify, how often it was met, and the engine."""

    learn: float
    certified: float
    met: float
    engine: se.Engine


def measure_pace(points: Floats, size: int, components: int = K, **parameters: Any) -> Pace:
    """Fill a window, then learn chunks of ten and publish after each."""
    settings: dict[str, Any] = {"scaling": None, "warm_up": size, "tolerance": TOLERANCE}
    engine = se.Engine(n_components=components, size=size, **(settings | parameters))
    learn, publish, met = [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateMapWarning)
        engine.learn(points[:size])
        engine.snapshot()
        for start in range(size, len(points) - CHUNK + 1, CHUNK):
            part = points[start : start + CHUNK]
            learn.append(milliseconds(lambda part=part: engine.learn(part)))  # type: ignore[misc]
            publish.append(milliseconds(engine.snapshot))
            met.append(bool(engine.snapshot().certificate.met))
    return Pace(
        float(np.mean(learn)), float(np.mean(learn) + np.mean(publish)), float(np.mean(met)), engine
    )


def measure_lists(points: Floats, size: int) -> float:
    """Milliseconds a chunk to keep the lists alone."""
    window, arrivals = points[:size].copy(), np.arange(size)
    lists, spent = NeighborLists.build(PointDistances(window), arrivals, NEIGHBORS), []
    for start in range(size, len(points) - CHUNK + 1, CHUNK):
        slots = np.arange(start, start + CHUNK) % size
        window[slots], arrivals[slots] = points[start : start + CHUNK], slots + start
        before = time.perf_counter()
        lists = lists.replace(slots, PointDistances(window), arrivals)
        spent.append(time.perf_counter() - before)
    return 1e3 * float(np.mean(spent))


def eigenmaps(quick: bool) -> list[str]:
    """Graph maps certified after every chunk, against the same from scratch."""
    lines = [
        "| stream | N | learn ms | certified ms | met | graph + eigsh ms | it / certified | "
        "eigsh / the rest | `SpectralEmbedding` / certified | lists ms | "
        "`kneighbors_graph` / lists |",
        "|---|" + "---:|" * 10,
    ]
    for size in (500, 2000) if quick else (500, 2000, 5000):
        count = size + CHUNK * CHUNKS
        of: dict[str, Callable[[int], Floats]] = {
            "rings": lambda count: streams.still_rings(count, 0),
            "swiss-roll": lambda count: streams.swiss_roll(count, 0),
            "letter": lambda count: streams.letter()[0][:count],
        }
        for name, load in of.items():
            try:
                points = load(count)
            except streams.MissingDataError as absent:
                print(f"{name} left out: {absent}")
                continue
            pace = measure_pace(points, size, **GRAPH)
            window, repeats = pace.engine.snapshot().points.copy(), 3 if size < 5000 else 1
            graph = connectivity(window)
            neighbors = fastest(lambda window=window: connectivity(window), repeats)  # type: ignore[misc]
            alone = fastest(lambda graph=graph: solve(graph, K), repeats)  # type: ignore[misc]
            other = fastest(
                lambda window=window: SpectralEmbedding(  # type: ignore[misc]
                    K, affinity="nearest_neighbors", n_neighbors=NEIGHBORS, random_state=0
                ).fit(window),
                repeats,
            )
            lists = measure_lists(points, size)
            lines.append(
                f"| {name} | {size} | {pace.learn:.1f} | {pace.certified:.1f} | {pace.met:.0%} | "
                f"{neighbors + alone:.0f} | **{(neighbors + alone) / pace.certified:.1f}** | "
                f"{alone / (pace.certified - lists):.1f} | {other / pace.certified:.1f} | "
                f"{lists:.2f} | {neighbors / lists:.0f} |"
            )
    return lines


def measure_large_graph(size: int) -> list[str]:
    """A graph window of many points, five components, against a cold solve."""
    points = streams.swiss_roll(size + CHUNK * 20, 0)
    pace = measure_pace(points, size, components=5, **GRAPH)
    window = pace.engine.snapshot().points.copy()
    cold = milliseconds(lambda: solve(connectivity(window), 5))
    begun = milliseconds(
        lambda: se.Engine("laplacian_eigenmaps", n_components=5, size=size, warm_up=size).learn(
            window
        )
    )
    return [
        f"| swiss-roll, N = {size:,}, chunk 10, 5 components | ms a chunk | of a cold solve |",
        ROW + "---:|",
        f"| learn | {pace.learn:.0f} | 1 / {cold / pace.learn:.0f} |",
        f"| learn and certify ({pace.met:.0%} met) | {pace.certified:.0f} | "
        f"1 / {cold / pace.certified:.0f} |",
        f"| cold: `kneighbors_graph` and `eigsh(tol=1e-3)` | {cold:.0f} | |",
        f"| cold: a new engine | {begun:.0f} | |",
    ]
