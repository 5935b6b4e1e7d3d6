"""Side by side, one BLAS thread: ``python -m scenarios.benchmarks.bench [SECTION ...] [--quick]``.

Prints ratios of some sections, or of all; with ``--write`` (what ``make bench`` passes) writes
scenarios/benchmarks/results.md. Gates nothing.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy
from scipy.sparse.linalg import eigsh
from threadpoolctl import threadpool_limits

import streamembed as se
from scenarios import streams
from scenarios.audit import operator
from scenarios.benchmarks import embeddings, graphs, landmarks, layouts, metrics, windows
from scenarios.benchmarks.windows import K, solve_batch
from streamembed.geometry import self_tuning
from streamembed.numeric.arrays import Floats
from streamembed.numeric.linalg import squared_distances

PAGE = Path(__file__).resolve().parent / "results.md"


@dataclass(frozen=True)
class BenchmarkRow:
    """One configuration: milliseconds a chunk, true residuals, and the others' milliseconds."""

    stream: str
    size: int
    chunk: int
    rows_ms: float
    ingest_ms: float
    view_ms: float
    view_residual: float
    certified_ms: float
    certified_residual: float
    batch_ms: float
    warm_ms: float
    sklearn_ms: float | None


def measure_call(call: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def measure_spread(
    points: Floats, size: int, chunk: int, tolerance: float | None, every: int = 1
) -> BenchmarkRun:
    """Fill a window at once, then time updates and snapshots chunk by chunk."""
    engine = se.Engine(
        n_components=K,
        size=size,
        warm_up=size,
        scaling=None,
        tolerance=tolerance,
        chunk_size=chunk,
    )
    engine.learn(points[:size])
    ingest, publish = [], []
    for i, start in enumerate(range(size, len(points) - chunk + 1, chunk)):
        part = points[start : start + chunk]
        ingest.append(measure_call(lambda part=part: engine.learn(part)))  # type: ignore[misc]
        if i % every == every - 1:
            publish.append(measure_call(engine.snapshot))
    ingest_ms = float(np.mean(ingest))
    return BenchmarkRun(
        engine.snapshot(), ingest_ms, float(np.sum(publish)) / len(ingest) + ingest_ms
    )


@dataclass(frozen=True)
class BenchmarkRun:
    """The last snapshot, milliseconds a chunk to learn, and with publishing."""

    snapshot: se.Snapshot
    ingest_ms: float
    total_ms: float


def true_residual(dense: Floats, stationary: Floats, snapshot: se.Snapshot) -> float:
    """max ||S v - lambda v|| / lambda_1 by the dense operator."""
    vectors = snapshot.psi * np.sqrt(stationary)[:, None]
    vectors /= np.linalg.norm(vectors, axis=0)
    errors = dense @ vectors - vectors * snapshot.eigenvalues
    return float(np.linalg.norm(errors, axis=0).max() / snapshot.eigenvalues[0])


def solve_warm(points: Floats, widths: Floats, width: float, start: Floats) -> None:
    """The same, started from the sum of the vectors known, at the tolerance of a certificate."""
    dense, _ = operator(points, widths, width, 0.0)
    eigsh(dense, k=K + 1, v0=start, tol=1e-3)


def sklearn_embedding(points: Floats, bandwidth: float) -> None:
    """scikit-learn's nearest relative, which has neither widths nor out-of-sample points."""
    from sklearn.manifold import SpectralEmbedding  # noqa: PLC0415  (a test dependency)

    SpectralEmbedding(K, affinity="rbf", gamma=bandwidth**-2, random_state=0).fit(points)


def measure_stream(
    name: str, points: Floats, size: int, chunk: int, others: dict[str, float]
) -> BenchmarkRow:
    """One row of the table; ``others`` caches what does not depend on the chunk."""
    plain = measure_spread(points, size, chunk, None)
    certified = measure_spread(points, size, chunk, 3e-3)
    shot = plain.snapshot
    centred, widths, width = shot.points - shot.center, shot.widths, shot.width
    repeats = 15 if size <= 2000 else 3 if size <= 5000 else 1
    holder: list[tuple[Floats, Floats]] = []
    times = [
        measure_call(lambda: holder.append(solve_batch(centred, widths, width)))
        for _ in range(repeats)
    ]
    dense, stationary = holder[-1]
    own, own_stationary = _build_operator(certified.snapshot)
    if "warm" not in others:
        start = (shot.psi * np.sqrt(stationary)[:, None]).sum(axis=1)
        others["warm"] = measure_call(lambda: solve_warm(centred, widths, width, start))
        others["sklearn"] = (
            measure_call(lambda: sklearn_embedding(centred, shot.bandwidth))
            if size <= 5000
            else np.nan
        )
    rows = [measure_call(lambda: _kernel_rows(centred, widths, width, chunk)) for _ in range(9)]
    return BenchmarkRow(
        name,
        size,
        chunk,
        float(np.median(rows)),
        plain.ingest_ms,
        plain.total_ms,
        true_residual(dense, stationary, shot),
        certified.total_ms,
        true_residual(own, own_stationary, certified.snapshot),
        float(np.median(times)),
        others["warm"],
        None if np.isnan(others["sklearn"]) else others["sklearn"],
    )


def _build_operator(snapshot: se.Snapshot) -> tuple[Floats, Floats]:
    """Of the widths that its slots have, which other snapshots' slots need not have."""
    centred = snapshot.points - snapshot.center
    return operator(centred, snapshot.widths, snapshot.width, snapshot.alpha)


def _kernel_rows(points: Floats, widths: Floats, width: float, count: int) -> None:
    d2 = squared_distances(points[:count], points)
    self_tuning.weigh(d2, widths[:count], widths, width, np.float32)


def configurations(quick: bool) -> list[tuple[str, Floats, int, int]]:
    """Stream, its points, window and chunk: about two refresh cycles each, more than a turnover
    of the small windows."""
    table = []
    for size in (500, 2000) if quick else (500, 2000, 5000, 10_000):
        for chunk in (1, 10, 50, 200):
            chunks = max(4, min(size, 10_000) // (2 if size <= 2000 else 4) // chunk)
            # less one: with whole refresh cycles the last snapshot would be at its best
            chunks = max(4, min(chunks, 60 if size > 2000 else 250) - 1)
            points = streams.drifting_rings(size + chunk * chunks, 0, window=size)
            table.append(("drifting-rings", points, size, chunk))
    table.append(("swiss-roll", streams.swiss_roll(2590, 0), 2000, 10))
    for name, load, size in (("letter", streams.letter, 2000), ("digits", streams.digits, 1000)):
        try:
            points = load()[0]
        except streams.MissingDataError as absent:
            print(f"{name} left out: {absent}")
            continue
        table.append((name, points[: size + 590], size, 10))
    return table


HEADER = (
    "| stream | N | chunk | kernel rows ms | learn ms | + view ms | residual | certified ms | "
    "residual | batch ms | batch / learn | batch / view | batch / certified | "
    "warm eigsh / certified | scikit-learn / certified | certified / rows |\n"
    "|---|" + "---:|" * 15
)


def format_row(row: BenchmarkRow) -> str:
    """A row of the table."""
    other = "" if row.sklearn_ms is None else f"{row.sklearn_ms / row.certified_ms:.0f}"
    return (
        f"| {row.stream} | {row.size} | {row.chunk} | {row.rows_ms:.2f} | {row.ingest_ms:.2f} | "
        f"{row.view_ms:.2f} | {row.view_residual:.1e} | {row.certified_ms:.2f} | "
        f"{row.certified_residual:.1e} | {row.batch_ms:.0f} | "
        f"**{row.batch_ms / row.ingest_ms:.1f}** | **{row.batch_ms / row.view_ms:.1f}** | "
        f"**{row.batch_ms / row.certified_ms:.1f}** | {row.warm_ms / row.certified_ms:.1f} | "
        f"{other} | {row.certified_ms / row.rows_ms:.0f} |"
    )


def measure_tolerances(points: Floats, size: int, batch_ms: float) -> list[str]:
    """Tolerances and cadences beside the default."""
    lines = [
        "| drifting-rings, N = 2,000, chunk 10 | ms a chunk | batch / it |",
        "|---|---:|---:|",
    ]
    for tolerance, every in ((3e-3, 1), (1e-3, 1), (1e-3, 10)):
        total = measure_spread(points, size, 10, tolerance, every).total_ms
        cadence = "every chunk" if every == 1 else f"every {every} chunks"
        lines.append(
            f"| certified {tolerance:g}, {cadence} | {total:.2f} | {batch_ms / total:.1f} |"
        )
    return lines


def machine() -> str:
    """What this ran on."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            part.split(":")[1] for part in info.read_text().split("\n") if "model name" in part
        ]
        model = names[0].strip() if names else model
    return (
        f"{model}, one BLAS thread; Python {platform.python_version()}, numpy {np.__version__}, "
        f"scipy {scipy.__version__}"
    )


def measure_default_map(quick: bool) -> Iterator[str]:
    """Windows of the default map against batch solves; latency, memory, transforms."""
    yield from ("## Diffusion maps", "")
    yield (
        "`learn` is the update alone, with its share of refreshes; `+ view` adds a snapshot "
        "with `tolerance=None` after every chunk; `certified` one with `tolerance=3e-3`. "
        "`residual` is the true residual of the last snapshot, by the dense operator, relative "
        "to the first eigenvalue. `batch` is the dense kernel and `scipy.sparse.linalg.eigsh` "
        "for ten components and the constant, given the kernel widths; `warm eigsh` is the "
        "same, started from the known vectors, at tolerance 1e-3; scikit-learn is "
        "`SpectralEmbedding`. Any update must compute at least the kernel rows. "
        "k = 10, d = 16 (digits 50)."
    )
    yield from ("", HEADER)
    rows: list[BenchmarkRow] = []
    others: dict[tuple[str, int], dict[str, float]] = {}
    for name, points, size, chunk in configurations(quick):
        cache = others.setdefault((name, size), {})
        rows.append(measure_stream(name, points, size, chunk, cache))
        yield format_row(rows[-1])
    rings = next(row for row in rows if (row.size, row.chunk) == (2000, 10))
    yield from ("", "## Tolerance and cadence", "")
    yield from measure_tolerances(streams.drifting_rings(4390, 0), 2000, rings.batch_ms)
    yield from ("", "## Latency", "", *windows.measure_latency(quick))
    yield from ("", "## Memory and large windows", "")
    yield (
        "A process each. `start` is CPU seconds to fill the window at once; memory is above the "
        "imports and a window of 60."
    )
    sizes = (2000,) if quick else (10_000, 20_000, 50_000)
    yield from ("", *windows.measure_large_windows(sizes))
    yield from ("", "## Transform", "", *windows.measure_transforms())


def measure_graphs(quick: bool) -> Iterator[str]:
    """Graphs of neighbours."""
    yield from ("## Neighbour graphs", "")
    yield (
        "`LaplacianEigenmaps` with binary weights of 15 neighbours, ten components, chunks of "
        "ten, certified at 3e-3 after each. `it` is `kneighbors_graph` and `eigsh(tol=1e-3)`; "
        "`the rest` is certified less lists, everything but the graph."
    )
    yield from ("", *graphs.eigenmaps(quick))
    if not quick:
        yield from ("", *graphs.measure_large_graph(50_000))


def measure_embeddings(quick: bool) -> Iterator[str]:
    """The other methods."""
    yield from ("## Other embeddings", "")
    yield (
        "A snapshot after every chunk. `refit`: double centring of the dense matrix and "
        "`eigsh(tol=1e-3)`; of 200 landmarks the graph, their paths, scaling and placing. "
        "scikit-learn's estimators on the same window."
    )
    yield from ("", *embeddings.embeddings(500 if quick else 2000), "", *embeddings.principal())


def measure_pictures(quick: bool) -> Iterator[str]:
    """Layouts in the plane."""
    yield from ("## Pictures", "")
    yield (
        "The picture beside the lists of neighbours, median of 30 chunks; all that is counted; "
        "the whole laid out from scratch. Refits of umap-learn where it is installed."
    )
    yield from ("", *layouts.measure_layouts(quick))


def measure_landmarks(quick: bool) -> Iterator[str]:
    """Pace of landmarks."""
    yield from ("## Landmarks", "")
    yield (
        "Streams of 200,000 events, the faster of two runs. Errors: `landmark-stream`. Memory "
        "over a million events: `make soak`."
    )
    yield from ("", *landmarks.measure_pace(50_000 if quick else 200_000))


def measure_metrics(quick: bool) -> Iterator[str]:
    """Metric learners."""
    yield from ("## Metrics", "", *metrics.measure_itml(), "", *metrics.measure_metric_learn())
    yield from ("", *metrics.measure_steps(), "", *metrics.measure_metrics(20 if quick else 200))
    yield from (
        "",
        "Frames and the source's literal update are measured by scenarios: `make scenarios`.",
    )


SECTIONS: dict[str, Callable[[bool], Iterator[str]]] = {
    "default-map": measure_default_map,
    "graphs": measure_graphs,
    "embeddings": measure_embeddings,
    "pictures": measure_pictures,
    "landmarks": measure_landmarks,
    "metrics": measure_metrics,
}


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, and write the page where asked to."""
    parser = argparse.ArgumentParser(prog="scenarios.benchmarks.bench", description=__doc__)
    parser.add_argument(
        "sections", nargs="*", choices=[[], *SECTIONS], metavar="SECTION", help=", ".join(SECTIONS)
    )
    parser.add_argument("--quick", action="store_true", help="N up to 2,000 only")
    parser.add_argument("--write", action="store_true", help="write the page")
    chosen = parser.parse_args(arguments)
    if chosen.write and chosen.sections:
        parser.error("--write writes the whole page: leave the sections out")
    threadpool_limits(limits=1, user_api="blas")
    lines: list[str] = []
    for line in write_page(chosen.sections or list(SECTIONS), chosen.quick):
        print(line, flush=True)
        lines.append(line)
    if chosen.write:
        PAGE.write_text("\n".join(lines))
    return 0


def write_page(sections: list[str], quick: bool) -> Iterator[str]:
    """The page, line by line, as it is measured."""
    yield from ("# Benchmarks", "")
    yield (
        "Generated by `make bench`; do not edit. Everything runs side by side with one BLAS "
        "thread. Read the ratios; milliseconds are those of this machine."
    )
    yield from ("", f"Machine: {machine()}.", "")
    for section in sections:
        yield from SECTIONS[section](quick)
        yield ""


if __name__ == "__main__":
    sys.exit(main())
