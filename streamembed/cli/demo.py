"""The demo: replay a real log, and compare the embedding with the batch result."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from river import datasets
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.logs.reader import write_log
from streamembed.numeric.arrays import Array, Floats
from streamembed.runs.run import Replayed, replay
from streamembed.threads import one_blas_thread

__all__ = ["command"]

WINDOW, WARM_UP, COMPONENTS, NEIGHBOURS = 1000, 200, 5, 5
# They learn from the labels of the log, chunk by chunk.
METRICS = ("geometric_mean", "fenn")
# Paths and extras have brackets, which rich would take for markup, and are not to be broken.
PLAIN: dict[str, Any] = {"markup": False, "soft_wrap": True}
# Okabe & Ito's colours, told apart by most colour-blind readers, with a marker each.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#444444")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@click.command("demo")
@click.option("--into", default="demo", show_default=True, metavar="DIR", help="Output folder.")
@click.option("--events", default=2310, show_default=True, help="Number of rows to use.")
def command(into: str, events: int) -> None:
    """Replay a real data set and compare the embedding with the batch result."""
    run(Path(into), events, Console(width=None if sys.stdout.isatty() else 100))


def run(folder: Path, events: int, console: Console) -> None:
    """Write river's ImageSegments as an Arrow log, replay it, compare and draw.

    Parameters
    ----------
    folder
        Where the log, the run and the picture go; an existing demo there is replaced.
    events
        Rows of the data to use, at most 2,310.
    """
    points, names, labels = _segments(events)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "segments.arrow"
    write_log(log, points, names, labels=labels, format="file", rows_per_batch=500)
    console.print(
        f"{len(points)} image segments (river's ImageSegments) written to {log}; their "
        f"{len(names)} features replayed through a window of {WINDOW}:\n",
        **PLAIN,
    )
    engine = Engine(n_components=COMPONENTS, size=WINDOW, warm_up=WARM_UP, metrics=METRICS)
    start = time.perf_counter()
    done = replay(log, engine, folder / "run", overwrite=True)
    seconds = time.perf_counter() - start
    if done.snapshot is None:
        console.print(
            f"the warm-up takes {WARM_UP} events, but there are only {len(points)}: nothing to show"
        )
        return
    recent = np.array(labels, dtype=object)[done.snapshot.ids]
    console.print(_comparison(done.snapshot, recent, seconds, len(points), done))
    picture = folder / "embedding.png"
    if _draw(picture, done.snapshot, recent, folder / "run" / "timeline.parquet"):
        console.print(f"\nthe picture: {picture}; the run: {folder / 'run'}", **PLAIN)
    else:
        console.print("\nfor a picture: pip install 'streamembed[pictures]'", **PLAIN)


def _segments(events: int) -> tuple[Floats, list[str], list[str]]:
    """The first rows of the data, in their own (mixed) order; names and labels."""
    rows = [(x, str(y)) for x, y in datasets.ImageSegments().take(events)]  # type: ignore[no-untyped-call]
    names = sorted(rows[0][0])
    points = np.array([[float(x[name]) for name in names] for x, _ in rows])
    return points, names, [label for _, label in rows]


def _comparison(
    snapshot: Snapshot, labels: Array, seconds: float, events: int, done: Replayed
) -> Table:
    """The short table: learned beside batch."""
    start = time.perf_counter()
    with one_blas_thread():
        dense, values, vectors = _batch(snapshot)
    batch_seconds = time.perf_counter() - start
    ours = snapshot.psi * np.sqrt(snapshot.stationary)[:, None]
    errors = np.linalg.norm(dense @ ours - ours * snapshot.eigenvalues, axis=0)
    outside = ours - vectors @ (vectors.T @ ours)
    certificate = snapshot.certificate
    scaled = (snapshot.points - snapshot.center) / snapshot.scale
    table = Table("the last snapshot", "streamed", "batch, same points", title_justify="left")
    for j, (mine, true) in enumerate(zip(snapshot.eigenvalues, values, strict=True), 1):
        table.add_row(f"eigenvalue {j}", f"{mine:.6f}", f"{true:.6f}")
    table.add_row(
        "residual: claimed, true",
        f"{certificate.residual:.2e}, {errors.max() / snapshot.eigenvalues[0]:.2e}",
        f"tolerance 3e-3, {'met' if certificate.met else 'NOT met'}",
    )
    table.add_row(
        "sine of the angle: bound, true",
        f"{certificate.angle_bound:.2e}, {np.linalg.norm(outside, 2):.2e}",
        "",
    )
    table.add_row(
        f"label agreement of {NEIGHBOURS} neighbours",
        f"{_agreement(snapshot.coordinates, labels):.1%} in {COMPONENTS} coordinates",
        f"{_agreement(scaled, labels):.1%} in all {scaled.shape[1]} features",
    )
    for name, metric in snapshot.metrics.items():
        table.add_row(
            f"the same, metric {name.replace('_', ' ')}",
            f"{_agreement(metric.transform(snapshot.points), labels):.1%} on its training data",
            "",
        )
    table.add_row(
        "milliseconds, one BLAS thread",
        f"{1e3 * seconds / max(events / 10, 1):.1f} per chunk of ten, whole replay",
        f"{1e3 * batch_seconds:.0f} per dense solve",
    )
    table.add_row("certificates met", _met(done), "")
    return table


def _met(done: Replayed) -> str:
    met = pq.read_table(done.path / "timeline.parquet", columns=["met"])["met"].to_pylist()
    return f"{sum(met)} of {len(met)}"


def _batch(snapshot: Snapshot) -> tuple[Floats, Floats, Floats]:
    """Plain numpy on the snapshot's own points: S, its leading eigenvalues and eigenvectors."""
    scaled = (snapshot.points - snapshot.center) / snapshot.scale
    widths = np.outer(snapshot.widths, snapshot.widths)
    weights = np.exp(-cdist(scaled, scaled, "sqeuclidean") / (snapshot.width * widths))
    degrees = weights.sum(axis=1)  # alpha is 0: the widths follow the density already
    dense = weights / np.sqrt(np.outer(degrees, degrees))
    values, vectors = np.linalg.eigh(dense)
    chosen = slice(-2, -2 - len(snapshot.eigenvalues), -1)
    return dense, values[chosen], vectors[:, chosen]


def _agreement(points: Floats, labels: Array) -> float:
    """Share of nearest neighbours, oneself apart, that have the same label."""
    _, near = cKDTree(points).query(points, NEIGHBOURS + 1)
    return float(np.mean(labels[near[:, 1:]] == labels[:, None]))


def _draw(path: Path, snapshot: Snapshot, labels: Array, timeline: Path) -> bool:
    """Embedding, eigenvalues and certificates as one PNG; False without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  (an extra)
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ModuleNotFoundError:
        return False
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    FigureCanvasAgg(figure)
    places = figure.add_gridspec(2, 2, height_ratios=(2, 1))
    left, right = figure.add_subplot(places[0, 0]), figure.add_subplot(places[0, 1])
    _draw_map(left, snapshot, labels, 0)
    _draw_map(right, snapshot, labels, 2)
    left.legend(frameon=False, markerscale=1.6, handletextpad=0.2)
    _draw_spectrum(figure.add_subplot(places[1, 0]), snapshot)
    _draw_timeline(figure.add_subplot(places[1, 1]), timeline)
    figure.suptitle(
        f"{len(snapshot.ids):,} image segments after {snapshot.position:,} events", fontsize=13
    )
    figure.savefig(path, dpi=130)
    return True


def _draw_map(axes: Any, snapshot: Snapshot, labels: Array, first: int) -> None:
    for label, colour, marker in zip(sorted(set(labels)), COLOURS, MARKERS, strict=False):
        chosen = labels == label
        x, y = snapshot.psi[chosen, first : first + 2].T
        axes.scatter(x, y, s=16, c=colour, marker=marker, alpha=0.7, linewidths=0, label=label)
    axes.set(xlabel=f"component {first + 1}", ylabel=f"component {first + 2}")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_spectrum(axes: Any, snapshot: Snapshot) -> None:
    k = len(snapshot.eigenvalues)
    bars = axes.bar(range(1, k + 1), snapshot.eigenvalues, color=COLOURS[0], width=0.6)
    axes.bar_label(bars, fmt="%.2f", padding=2, fontsize=8)
    axes.set(title="eigenvalues", xlabel="component", ylim=(0, 1.12), xticks=range(1, k + 1))
    axes.spines[["top", "right"]].set_visible(False)


def _draw_timeline(axes: Any, timeline: Path) -> None:
    table = pq.read_table(timeline, columns=["position", "residual"])
    axes.semilogy(table["position"], table["residual"], color=COLOURS[0], marker=".", linewidth=1)
    axes.axhline(3e-3, color=COLOURS[5], linestyle="--", linewidth=1)
    axes.annotate(
        "tolerance",
        (1, 3e-3),
        xycoords=axes.get_yaxis_transform(),
        ha="right",
        va="bottom",
        fontsize=8,
        color=COLOURS[5],
    )
    axes.set(title="certified residual", xlabel="events", ylim=(1e-5, 1e-2))
    axes.spines[["top", "right"]].set_visible(False)
