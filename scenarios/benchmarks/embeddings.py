"""The part of the benchmarks on the other embeddings: against refits by hand and scikit-learn."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.csgraph import dijkstra
from scipy.sparse.linalg import eigsh
from scipy.spatial.distance import cdist
from sklearn import decomposition
from sklearn.manifold import Isomap, LocallyLinearEmbedding
from sklearn.neighbors import kneighbors_graph

import streamembed as se
from scenarios import streams
from scenarios.benchmarks.graphs import fastest, milliseconds
from streamembed.estimators import PCA
from streamembed.numeric.arrays import Floats

__all__ = ["embeddings", "principal"]

CHUNK, CHUNKS = 10, 30


@dataclass(frozen=True)
class MethodCase:
    """A method on streams, what a refit is, and scikit-learn's."""

    method: str
    parameters: dict[str, Any]
    n_components: int
    refit: Callable[[Floats], object] | None
    sklearn: Callable[[Floats], object] | None
    streams: tuple[str, ...] = ("swiss-roll", "letter", "digits")

    @property
    def name(self) -> str:
        """The method, and its landmarks."""
        count = self.parameters.get("n_landmarks")
        return f"{self.method}, {count} landmarks" if count else self.method


def _solve_centred(matrix: Floats, k: int) -> None:
    """The leanest refit of scaling and kernel PCA: double centring and `eigsh`."""
    matrix -= matrix.mean(axis=0)
    matrix -= matrix.mean(axis=1)[:, None]
    eigsh(matrix, k=k, which="LA", v0=np.ones(len(matrix)), tol=1e-3)


def _scaling(points: Floats) -> None:
    _solve_centred(-0.5 * cdist(points, points, "sqeuclidean"), 3)


def _kernel(points: Floats) -> None:
    d2 = cdist(points, points, "sqeuclidean")
    _solve_centred(np.exp(-d2 / np.median(d2)), 5)


def _linear(points: Floats) -> None:
    """A refit of the linear eigenmap: the graph, two moments, one small solve."""
    graph = kneighbors_graph(points, 15, mode="distance")
    widths = graph.data.reshape(len(points), 15)[:, 6]
    graph = graph.maximum(graph.T).tocoo()
    graph.data = np.exp(-(graph.data**2) / (widths[graph.row] * widths[graph.col]))
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    centred = points - degrees @ points / degrees.sum()
    moments = centred.T @ (degrees[:, None] * centred)
    moments += 1e-3 * np.trace(moments) / len(moments) * np.eye(len(moments))
    eigh(centred.T @ (graph @ centred), moments)


def _rows(points: Floats) -> None:
    """A refit of landmark Isomap: the graph, the paths from 200 points, scaling, placing."""
    graph = kneighbors_graph(points, 10, mode="distance")
    marks = np.arange(0, len(points), len(points) // 200)
    squares = dijkstra(graph.maximum(graph.T), directed=False, indices=marks) ** 2
    mean = squares[:, marks].mean(axis=0)
    centred = squares[:, marks] - mean - mean[:, None] + mean.mean()
    values, vectors = np.linalg.eigh(-0.5 * centred)
    (squares.T - mean) @ (vectors[:, -2:] / np.sqrt(values[-2:]))


CASES = (
    MethodCase("classical_mds", {}, 3, _scaling, None),
    MethodCase("kernel_pca", {}, 5, _kernel, None),
    MethodCase("linear_eigenmap", {}, 5, _linear, None),
    MethodCase(
        "lle",
        {"n_neighbors": 12},
        3,
        None,
        lambda points: LocallyLinearEmbedding(n_neighbors=12, n_components=3).fit(points),
        ("swiss-roll", "digits"),
    ),
    MethodCase(
        "isomap",
        {"n_neighbors": 10, "n_landmarks": None},
        2,
        None,
        lambda points: Isomap(n_neighbors=10, n_components=2).fit(points),
        ("swiss-roll", "digits"),
    ),
    MethodCase(
        "isomap",
        {"n_neighbors": 10, "n_landmarks": 200},
        2,
        _rows,
        None,
        ("swiss-roll", "digits"),
    ),
)


def _stream(name: str, count: int) -> Floats:
    if name == "swiss-roll":
        return streams.swiss_roll(count, 0)
    if name == "letter":
        return streams.letter()[0][:count]
    points = streams.digits()[0]
    noise = 1e-3 * np.random.default_rng(0).standard_normal((count, points.shape[1]))
    repeated: Floats = np.tile(points, (1 + count // len(points), 1))[:count] + noise
    return repeated


def _measure_pace(
    points: Floats, size: int, case: MethodCase, tolerance: float | None
) -> tuple[float, float]:
    """Milliseconds a chunk, with a snapshot after each; and how often it was met."""
    parameters = dict(case.parameters)
    if case.method == "kernel_pca":
        sample = points[:500]
        parameters["bandwidth"] = float(np.sqrt(np.median(cdist(sample, sample, "sqeuclidean"))))
    engine = se.Engine(
        case.method,
        n_components=case.n_components,
        size=size,
        warm_up=size,
        scaling=None,
        tolerance=tolerance,
        **parameters,
    )
    engine.learn(points[:size])
    engine.snapshot()
    spent, met = [], []
    for start in range(size, len(points) - CHUNK + 1, CHUNK):
        before = time.perf_counter()
        engine.learn(points[start : start + CHUNK])
        snapshot = engine.snapshot()
        spent.append(time.perf_counter() - before)
        met.append(snapshot.certificate.met is not False)
    return 1e3 * float(np.mean(spent)), float(np.mean(met))


def embeddings(size: int) -> list[str]:
    """Every method of the engine that has no part of its own in the benchmarks."""
    lines = [
        f"| N = {size:,}, chunk 10 | stream | plain ms | certified ms | met | refit ms | / plain | "
        "/ certified | scikit-learn / certified |",
        "|---|---|" + "---:|" * 7,
    ]
    for case in CASES:
        for name in case.streams:
            try:
                points = _stream(name, size + CHUNK * CHUNKS)
            except streams.MissingDataError as absent:
                print(f"{name} left out: {absent}")
                continue
            plain, _ = _measure_pace(points, size, case, None)
            certified, met = _measure_pace(points, size, case, 3e-3)
            window, refit, other = points[-size:], case.refit, case.sklearn
            again = fastest(lambda: refit(window.copy()), 3) if refit else np.nan  # noqa: B023
            theirs = milliseconds(lambda: other(window)) if other else np.nan  # noqa: B023
            lines.append(
                f"| {case.name} | {name} | {plain:.1f} | {certified:.1f} | {met:.0%} | "
                f"{_format_number(again, 0)} | {_format_number(again / plain)} | "
                f"{_format_number(again / certified)} | {_format_number(theirs / certified)} |"
            )
    return lines


def _format_number(value: float, digits: int = 1) -> str:
    return "" if np.isnan(value) else f"{value:.{digits}f}"


def principal() -> list[str]:
    """PCA over a window of 2,000, ten rows and new axes, against a refit."""
    lines = [
        "| PCA, window 2,000, five components | d | ms a chunk | scikit-learn's refit ms | / it | "
        "`IncrementalPCA` ms |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for d in (16, 64, 256, 673):
        generator = np.random.default_rng(d)
        points = generator.standard_normal((2300, d)) * np.arange(1.0, d + 1.0) ** -0.7
        model = PCA(5, window=2000)
        model.learn_many(points[:2000])
        model.snapshot()
        spent = []
        for start in range(2000, 2300, CHUNK):
            before = time.perf_counter()
            model.learn_many(points[start : start + CHUNK])
            model.snapshot()
            spent.append(time.perf_counter() - before)
        ours, window = 1e3 * float(np.mean(spent)), points[-2000:]
        refit = fastest(lambda: decomposition.PCA(5).fit(window), 3)  # noqa: B023
        other = decomposition.IncrementalPCA(5).partial_fit(window[:CHUNK])
        incremental = fastest(lambda: other.partial_fit(window[:CHUNK]), 5)  # noqa: B023
        lines.append(
            f"| deviations j^-0.7 | {d} | {ours:.2f} | {refit:.1f} | **{refit / ours:.1f}** | "
            f"{incremental:.1f} |"
        )
    return lines
