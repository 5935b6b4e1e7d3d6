"""two-circles: the source's experiment (Jain, 2.4), literal update against engine and batch."""

from __future__ import annotations

import time

import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.sparse.linalg import eigsh
from scipy.spatial.distance import cdist

import streamembed as se
from scenarios.audit import operator
from scenarios.scenario import Expected, Outcome, Scenario
from scenarios.streams import two_circles
from streamembed.numeric import svd
from streamembed.numeric.arrays import Floats, Ints
from streamembed.threads import one_blas_thread

# nine components and the constant: the ten columns that the design compares
K, BANDWIDTH, CHUNK = 9, 0.2, 10


def run(full: bool) -> Outcome:
    """1,600 points at once, then 40 times 10 (quick: 320, then 8 times 10)."""
    first, total = (1600, 2000) if full else (320, 400)
    points, labels = two_circles(total, 0)
    with one_blas_thread():
        truth, batch_seconds = _batch(points)
        literal, literal_seconds = _literal(points, first)
        engine, engine_seconds = _engine(points, first)
    snapshot = engine.snapshot()
    literal_sine = _sine(truth, literal)
    our_sine = _sine(truth, np.column_stack([np.ones(total), snapshot.psi]))
    ours_kmeans = _agreement(snapshot.coordinates, labels)
    batch_kmeans = _agreement(truth[:, 1:], labels)
    figures = {
        "literal_sine": literal_sine,
        "engine_sine": our_sine,
        "literal_over_engine": literal_sine / max(our_sine, 1e-15),
        "engine_kmeans": ours_kmeans,
        "batch_kmeans": batch_kmeans,
        "kmeans_loss": batch_kmeans - ours_kmeans,
        "literal_kmeans": _agreement(literal[:, 1:], labels),
        "raw_kmeans": _agreement(points, labels),
        "met": float(bool(snapshot.certificate.met)),
    }
    chunks = (total - first) // CHUNK
    timings = {
        "batch every chunk / engine": batch_seconds * chunks / engine_seconds,
        "batch every chunk / literal": batch_seconds * chunks / literal_seconds,
    }
    notes = [
        "the source reports 27.5 s in batch mode and 6.4 s incrementally (4.3 times), on "
        "another machine, and high approximation errors on other data",
        "k-means on the raw points cannot separate the circles; the source's figure shows that "
        "the diffusion distance can",
    ]
    return Outcome(figures, timings, notes)


def _batch(points: Floats) -> tuple[Floats, float]:
    """Leading psi with the constant first, and the seconds of one batch solve."""
    start = time.perf_counter()
    dense, stationary = operator(points, BANDWIDTH, 1.0, 1.0)
    _, vectors = eigsh(dense, k=K + 1, v0=np.ones(len(points)))
    seconds = time.perf_counter() - start
    return vectors[:, ::-1] / np.sqrt(stationary)[:, None], seconds


def _literal(points: Floats, first: int) -> tuple[Floats, float]:
    """Jain's box 2.3: its estimate of the same columns, and the seconds of the chunks.

    Literal, and wrong: old entries of the Markov matrix keep the row sums of their own time, and
    its left singular vectors are no eigenvectors (docs/algorithms/zha-simon.md).
    """
    weights = np.exp(-(cdist(points[:first], points[:first], "sqeuclidean") / BANDWIDTH**2))
    degrees = weights.sum(axis=1)
    laplacian = weights / np.outer(degrees, degrees)
    sums = laplacian.sum(axis=1)
    markov = svd.decompose(laplacian / sums[:, None], K + 1)
    start = time.perf_counter()
    for old in range(first, len(points), CHUNK):
        stop = old + CHUNK
        rows = np.exp(-(cdist(points[old:stop], points[:stop], "sqeuclidean") / BANDWIDTH**2))
        degrees = np.append(degrees + rows[:, :old].sum(axis=0), rows.sum(axis=1))
        laplacian = rows / np.outer(degrees[old:], degrees)
        sums = np.append(sums + laplacian[:, :old].sum(axis=0), laplacian.sum(axis=1))
        markov = svd.append_columns(markov, (laplacian[:, :old] / sums[:old]).T, K + 1)
        markov = svd.append_rows(markov, laplacian / sums[old:, None], K + 1)
    return markov.left, time.perf_counter() - start


def _engine(points: Floats, first: int) -> tuple[se.Engine, float]:
    """The engine with a certified snapshot after every chunk, and seconds of the chunks."""
    engine = se.Engine(
        n_components=K,
        memory="all",
        kernel="gaussian",  # the source's
        bandwidth=BANDWIDTH,
        scaling=None,
        warm_up=first,
        chunk_size=CHUNK,
    )
    engine.learn(points[:first])
    start = time.perf_counter()
    for position in range(first, len(points), CHUNK):
        engine.learn(points[position : position + CHUNK])
        engine.snapshot()
    return engine, time.perf_counter() - start


def _sine(left: Floats, right: Floats) -> float:
    """Sine of the largest angle between two subspaces of equal width."""
    left_basis, right_basis = np.linalg.qr(left)[0], np.linalg.qr(right)[0]
    return float(np.linalg.norm(right_basis - left_basis @ (left_basis.T @ right_basis), 2))


def _agreement(coordinates: Floats, labels: Ints) -> float:
    """Share of labels that two-means on the first three coordinates finds, at best of 10 starts."""
    best, assignment = np.inf, labels
    for seed in range(10):
        data = coordinates[:, :3]
        centres, assigned = kmeans2(data, 2, seed=seed, minit="++")
        spread = float(((data - centres[assigned]) ** 2).sum())
        if spread < best:
            best, assignment = spread, assigned
    share = float(np.mean(assignment == labels))
    return max(share, 1.0 - share)


SCENARIO = Scenario(
    id="two-circles",
    says="the source's experiment: literal Zha-Simon update, this engine and batch, side by side",
    run=run,
    expected={
        "literal_sine": Expected(1e-2, 1.0, "the staleness of the old rows is real"),
        "engine_sine": Expected(0.0, 2e-2, "residual 3e-3 over the gap after ten components"),
        "literal_over_engine": Expected(30.0, np.inf, "the bar of the design"),
        "kmeans_loss": Expected(-1.0, 0.01, "k-means finds the circles as well as from batch"),
        "met": Expected(1.0, 1.0, "the final snapshot is certified"),
    },
)
