"""The metric part of the benchmarks: updates a second, steps, and what metrics add to a chunk."""

from __future__ import annotations

import time

import numpy as np

import streamembed as se
from scenarios.baselines import itml_batch
from scenarios.streams import MissingDataError, drifting_rings, labelled_pairs, table
from streamembed.metrics import bregman, eig_dml, itml
from streamembed.metrics.catalog import PAIR_METRICS
from streamembed.metrics.itml import ITMLLearner
from streamembed.numeric.arrays import Bools, Floats

__all__ = ["measure_itml", "measure_metric_learn", "measure_metrics", "measure_steps"]

DIMENSIONS = (16, 64, 256)


def _pairs(d: int, count: int) -> tuple[Floats, Bools]:
    """Differences of which the similar ones are shorter in half of the features."""
    rng = np.random.default_rng(d)
    similar = np.arange(count) % 2 == 0
    differences = rng.standard_normal((count, d))
    differences[similar, : d // 2] *= 0.3
    return differences, similar


def measure_itml() -> list[str]:
    """Projections a second of the streaming update."""
    lines = ["| ITML, updates a second | d | here |", "|---|---:|---:|"]
    for d in DIMENSIONS:
        differences, similar = _pairs(d, 1000)
        d2 = np.einsum("ij,ij->i", differences, differences)
        upper, lower = np.quantile(d2, [0.05, 0.95]).tolist()
        pairs = bregman.build_pairs(differences, similar, upper, lower, 0.1)
        memory = ITMLLearner().learn(itml.init(np.eye(d)), pairs)
        assert memory is not None
        start = time.perf_counter()
        ITMLLearner(sweeps=20).learn(memory, pairs.take(slice(0)))
        pace = 20 * len(differences) / (time.perf_counter() - start)
        lines.append(f"| 1,000 pairs remembered | {d} | **{pace:,.0f}** |")
    return lines


def measure_steps() -> list[str]:
    """Milliseconds of a Frank-Wolfe step with 1,000 far pairs."""
    lines = ["| Eig-DML | d | ms a step |", "|---|---:|---:|"]
    for d in DIMENSIONS:
        differences, similar = _pairs(d, 2000)
        settings = eig_dml.EigDMLLearner(steps=50)
        state = eig_dml.init(d)
        state = eig_dml.update(state, differences[similar], differences[~similar], settings)
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
    ours_pairs = bregman.build_pairs(ends, kinds > 0, upper, lower, 0.1)
    start = time.perf_counter()
    ours_matrix, _, _ = itml_batch.solve(ours_pairs, tolerance=0.0, max_sweeps=200, seed=None)
    ours = time.perf_counter() - start
    apart = np.abs(ours_matrix - matrix).max() / np.abs(matrix).max()
    lines.append(f"| ours | {ours:.3f} | {seconds / ours:.0f} | {apart:.0e} |")
    return [*lines, "", f"d = {d}, gamma = 0.1."]
