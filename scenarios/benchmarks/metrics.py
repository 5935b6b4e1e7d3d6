"""The metric part of the benchmarks: updates a second, steps, and what metrics add to a chunk."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import streamembed as se
from scenarios.streams import MissingDataError, drifting_rings, labelled_pairs, table
from streamembed.metrics import eig_dml, itml, itml_numba
from streamembed.metrics.catalog import PAIR_METRICS
from streamembed.numeric import compilation
from streamembed.numeric.arrays import Bools, Floats

__all__ = ["measure_itml", "measure_metric_learn", "measure_metrics", "measure_steps"]

# updates a second at d = 16, 64, 256: the bars
BARS = {16: 100_000, 64: 40_000, 256: 10_000}


def _pairs(d: int, count: int) -> tuple[Floats, Bools]:
    """Differences of which the similar ones are shorter in half of the features."""
    rng = np.random.default_rng(d)
    similar = np.arange(count) % 2 == 0
    differences = rng.standard_normal((count, d))
    differences[similar, : d // 2] *= 0.3
    return differences, similar


def measure_itml() -> list[str]:
    """Projections a second of the streaming update, by numpy and by numba where it is installed."""
    lines = ["| ITML, updates a second | d | numpy | numba | bar |", "|---|---:|---:|---:|---:|"]
    for d, bar in BARS.items():
        differences, similar = _pairs(d, 1000)
        d2 = np.einsum("ij,ij->i", differences, differences)
        upper, lower = np.quantile(d2, [0.05, 0.95]).tolist()
        paces = []
        for backend in ("numpy", "numba") if compilation.is_available() else ("numpy",):
            sweep = itml_numba.get_sweep(backend)
            state = itml.init(np.eye(d))
            state, _ = itml.update(state, differences, similar, upper, lower, sweep=sweep)
            nothing = differences[:0], similar[:0]
            start = time.perf_counter()
            state, _ = itml.update(state, *nothing, upper, lower, sweeps=20, sweep=sweep)
            paces.append(20 * len(differences) / (time.perf_counter() - start))
        fast = f"{paces[1]:,.0f}" if len(paces) > 1 else "not installed"
        lines.append(f"| 1,000 pairs remembered | {d} | **{paces[0]:,.0f}** | {fast} | {bar:,} |")
    return lines


def measure_steps() -> list[str]:
    """Milliseconds of a Frank-Wolfe step with 1,000 far pairs."""
    lines = ["| Eig-DML | d | ms a step |", "|---|---:|---:|"]
    for d in BARS:
        differences, similar = _pairs(d, 2000)
        settings = eig_dml.EigDMLSettings(steps=50, tolerance=0.0)
        state = eig_dml.init(d)
        state, _ = eig_dml.update(state, differences[similar], differences[~similar], settings)
        start = time.perf_counter()
        eig_dml.update(state, differences[:0], differences[:0], settings)
        lines.append(f"| 1,000 far pairs | {d} | {1e3 * (time.perf_counter() - start) / 50:.3f} |")
    return lines


def measure_metrics(chunks: int) -> list[str]:
    """What metrics add to a chunk of ten in a window of 2,000."""
    points = drifting_rings(2000 + 10 * chunks, 0, window=2000)
    labels = np.random.default_rng(0).integers(3, size=len(points))
    lines = [
        "| window of 2,000, d = 16, chunks of ten | ms a chunk | added |",
        "|---|---:|---:|",
    ]
    plain = 0.0
    kinds: dict[str, tuple[tuple[str, ...], bool]] = {
        "no metrics": ((), False),
        "ITML, generated pairs": (("itml",), False),
        "Eig-DML, generated pairs": (("eig_dml",), False),
        "all five, generated pairs": (PAIR_METRICS, False),
        "ITML, labels": (("itml",), True),
        "FENN, labels": (("fenn",), True),
    }
    for name, (metrics, labelled) in kinds.items():
        engine = se.Engine(size=2000, warm_up=2000, scaling=None, metrics=metrics, n_components=10)
        engine.learn(points[:2000], y=labels[:2000] if labelled else None)
        start = time.perf_counter()
        for first in range(2000, len(points), 10):
            part = slice(first, first + 10)
            engine.learn(points[part], y=labels[part] if labelled else None)
        each = 1e3 * (time.perf_counter() - start) / chunks
        plain = plain or each
        lines.append(f"| {name} | {each:.2f} | {each - plain:.2f} |")
    return lines


def measure_metric_learn() -> list[str]:
    """The same constraints through metric-learn, where it is installed and runs."""
    try:
        from metric_learn.itml import _BaseITML  # noqa: PLC0415  (nothing needs it)

        points, labels = table("letter")
    except (ImportError, MissingDataError) as missing:
        return [f"metric-learn was left out: {missing}."]
    close, far = labelled_pairs(points, labels, 500)
    d = close.shape[1]
    ends = np.concatenate([close, far])
    upper, lower = np.quantile(np.einsum("ij,ij->i", ends, ends), [0.05, 0.95]).tolist()
    pairs = np.stack([ends, np.zeros_like(ends)], axis=1)
    kinds = np.repeat([1, -1], 500)

    class Shimmed(_BaseITML):  # type: ignore[misc]
        """Version 0.7 uses an option that scikit-learn has removed, for input checks only."""

        def _prepare_inputs(self, X, y=None, **_):  # type: ignore[no-untyped-def]
            return X, y

    start = time.perf_counter()
    theirs = Shimmed(gamma=0.1, max_iter=200, tol=0.0, prior="identity")
    theirs._fit(pairs, kinds, bounds=np.array([upper, lower]))
    seconds = time.perf_counter() - start
    lines = [
        "| 1,000 constraints of letter, 200 sweeps in one order | seconds | times | difference |",
        "|---|---:|---:|---:|",
        f"| metric-learn 0.7 | {seconds:.2f} | 1 | |",
    ]
    matrix = theirs.components_.T @ theirs.components_
    for backend in ("numpy", "numba") if compilation.is_available() else ("numpy",):
        sweep = itml_numba.get_sweep(backend)
        options: dict[str, Any] = {"gamma": 0.1, "tolerance": 1e-300, "seed": None, "sweep": sweep}
        itml.solve(ends, kinds > 0, upper, lower, max_sweeps=1, **options)
        start = time.perf_counter()
        state, _ = itml.solve(ends, kinds > 0, upper, lower, max_sweeps=200, **options)
        ours = time.perf_counter() - start
        apart = np.abs(state.matrix - matrix).max() / np.abs(matrix).max()
        lines.append(f"| ours, {backend} | {ours:.3f} | {seconds / ours:.0f} | {apart:.0e} |")
    return [*lines, "", f"d = {d}, gamma = 0.1; the bar with numba is 25 times, and 1e-8."]
