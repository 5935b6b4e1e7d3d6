"""Rejected rows of a replay: their reasons, and the error if no row is accepted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq


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
