"""The summary of a replay or a merge: its last snapshot, the verdict on it, rejected rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from streamembed.engine import diagnostics
from streamembed.engine.axis_messages import describe_frame
from streamembed.engine.snapshot import Snapshot
from streamembed.metric_learning.metric_certificate import MetricCertificate

VERDICTS = {True: "met", False: "NOT met", None: "an estimate"}


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


def format_certificate(snapshot: Snapshot) -> str:
    """Format the eigenvalues of a snapshot, and its residual."""
    values = (f"{value:.4f}" if value >= 1e-3 else f"{value:.3g}" for value in snapshot.eigenvalues)
    return f"eigenvalues {', '.join(values)}; {format_residual(snapshot)}"


def format_axes(snapshot: Snapshot) -> str:
    """Format the epoch of a snapshot's axes, which are lost, and what is not shown."""
    return f"axes: {describe_frame(snapshot.frame, len(snapshot.eigenvalues))}"


def list_axes_warnings(epochs: list[int], final: Snapshot | None) -> Iterator[str]:
    """What the epochs of a timeline, and its last snapshot, say of its axes, if it is a problem."""
    count = len(set(epochs)), len(epochs)
    if diagnostics.are_axes_unstable(*count):
        yield diagnostics.describe_unstable_axes(*count, final)


def count_reasons(run: Path) -> list[tuple[str, int]]:
    """Count the reasons of rejected rows, the most frequent first."""
    reasons = pq.read_table(run / "rejected.parquet", columns=["reason"])["reason"]
    return Counter(reasons.to_pylist()).most_common()


def format_all_rejected(run: Path, rejected: int) -> str:
    """Format the error for a log of which every row is rejected."""
    reason, count = count_reasons(run)[0]
    return (
        f"all {rejected:,} rows of the log are rejected, most often with the reason: {reason} "
        f"({count:,}); {run / 'rejected.parquet'} lists them: fix the log, or exclude columns "
        "with --exclude, then replay it with --overwrite"
    )


def describe_metrics(snapshot: Snapshot) -> dict[str, Any]:
    """The certificates of its metrics, JSON-ready."""
    return {name: metric.certificate.as_dict() for name, metric in snapshot.metrics.items()}


def format_metrics(snapshot: Snapshot) -> list[str]:
    """What its metrics were learned from, a line each."""
    return [
        f"metric {name}: {_format_metric(metric.certificate)}"
        for name, metric in snapshot.metrics.items()
    ]


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
