"""The summary of a replay or a merge: the verdict, its last snapshot, and what is off with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from streamembed.engine import diagnostics
from streamembed.engine.axis_messages import describe_frame
from streamembed.engine.snapshot import Snapshot
from streamembed.metric_learning.metric_certificate import MetricCertificate
from streamembed.runs.run_reader import read_run
from streamembed.runs.run_summary import RunSummary, summarise_run

VERDICTS = {True: "met", False: "NOT met", None: "an estimate"}
MOST_REASONS = 3  # of rejected rows


def read_summary(run: Path) -> RunSummary:
    """The summary of a run that was just written."""
    with read_run(run) as reader:
        return summarise_run(reader)


def format_summary(run: Path, snapshot: Snapshot | None, tolerance: float | None) -> Iterator[str]:
    """The lines of a summary for people."""
    summary = read_summary(run)
    yield f"{summary.verdict}; in {run}"
    if summary.reasons:
        reasons = [f"{reason} ({count:,})" for reason, count in summary.reasons[:MOST_REASONS]]
        others = len(summary.reasons) - MOST_REASONS
        rest = f", and {others} other reasons" if others > 0 else ""
        yield f"rejected: {', '.join(reasons)}{rest}; see rejected.parquet"
    if snapshot is None:
        if summary.events:
            yield "the log ended during the warm-up: there is no snapshot (see --warm-up)"
        return
    values = (f"{value:.4f}" if value >= 1e-3 else f"{value:.3g}" for value in snapshot.eigenvalues)
    yield f"eigenvalues {', '.join(values)}; {format_residual(snapshot)}"
    yield format_axes(snapshot)
    for name, metric in snapshot.metrics.items():
        yield f"metric {name}: {_format_metric(metric.certificate)}"
    if (picture := snapshot.picture) is not None:
        yield f"picture: {picture.kept.mean():.0%} of neighbours kept, {picture.age} chunks old"
    yield from diagnostics.describe_all(snapshot, tolerance)
    yield from list_axes_warnings(list(summary.epochs), snapshot)


def _format_metric(certificate: MetricCertificate) -> str:
    source = certificate["source"]
    if certificate.taught is False:
        return "nothing learned yet: the log has no labels and no pairs"
    if source == "generated":
        summary = f"from {certificate['pairs']} generated pairs"
        share = certificate["reproduced"]
        return summary + (f"; reproducibility {share:.0%}" if share is not None else "")
    summary = f"from {certificate['pairs']} given pairs" if source == "given" else "from labels"
    return summary + (f"; {certificate['status']}" if certificate["status"] else "")


def describe_snapshot(snapshot: Snapshot | None) -> dict[str, Any]:
    """Facts of the last snapshot, JSON-ready; none without one."""
    if snapshot is None:
        return {}
    return {
        "eigenvalues": snapshot.eigenvalues.tolist(),
        "resolution": snapshot.resolution,
        "certificate": asdict(snapshot.certificate),
        "frame": asdict(snapshot.frame),
    }


def format_residual(snapshot: Snapshot) -> str:
    """Format the residual of a snapshot, and whether it meets the tolerance."""
    certificate = snapshot.certificate
    age = certificate.bound_age
    aged = f", its bound {age:,} events old" if age else ""
    return f"residual {certificate.residual:.1e}, {VERDICTS[certificate.met]}{aged}"


def format_axes(snapshot: Snapshot) -> str:
    """Format the epoch of a snapshot's axes, which are lost, and what is not shown."""
    return f"axes: {describe_frame(snapshot.frame, len(snapshot.eigenvalues))}"


def list_axes_warnings(epochs: list[int], final: Snapshot | None) -> Iterator[str]:
    """What the epochs of a timeline, and its last snapshot, say of its axes, if it is a problem."""
    count = len(set(epochs)), len(epochs)
    if diagnostics.are_axes_unstable(*count):
        yield diagnostics.describe_unstable_axes(*count, final)


def format_all_rejected(run: Path, summary: RunSummary) -> str:
    """Format the error for a log of which every row is rejected."""
    reason, count = summary.reasons[0]
    return (
        f"all {summary.rejected:,} rows of the log are rejected, most often with the reason: "
        f"{reason} ({count:,}); {run / 'rejected.parquet'} lists them: fix the log, or exclude "
        "columns with --exclude, then replay it with --overwrite"
    )


def describe_metrics(snapshot: Snapshot) -> dict[str, Any]:
    """The certificates of its metrics, JSON-ready."""
    return {name: metric.certificate.as_dict() for name, metric in snapshot.metrics.items()}
