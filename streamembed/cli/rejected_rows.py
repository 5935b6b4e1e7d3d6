"""Rejected rows of a replay: why, and what to say where no row was accepted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

__all__ = ["none_accepted", "reasons_in"]


def reasons_in(run: Path) -> list[tuple[str, int]]:
    """Why rows were rejected and how often, the most frequent first."""
    reasons = pq.read_table(run / "rejected.parquet", columns=["reason"])["reason"]
    return Counter(reasons.to_pylist()).most_common()


def none_accepted(run: Path, rejected: int) -> str:
    """What to say of a log of which every row was rejected."""
    reason, count = reasons_in(run)[0]
    return (
        f"all {rejected:,} rows of the log are rejected, most often because of: {reason} "
        f"({count:,}); {run / 'rejected.parquet'} lists them: fix the log, or leave out columns "
        "with --exclude, then replay it with --overwrite"
    )
