"""The progress bar of a replay."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click


@contextmanager
def show_progress(total: int | None, hidden: bool) -> Iterator[Callable[[int], None]]:
    """Yield a callback for the number of rows read so far, which draws a bar on a terminal.

    A number below the last begins the second pass over the log, in which all events are embedded
    by the last snapshot: it has its own bar.

    Parameters
    ----------
    total
        Rows of the log; None if unknown before it ends.
    hidden
        Draw nothing.
    """
    bars: list[Any] = []

    def advance(rows: int) -> None:
        if hidden or not sys.stderr.isatty():
            return
        if not bars or rows < bars[-1].pos:
            close()
            label = "embedded" if bars else "learned"
            # without a length, click draws a bar only for an iterable
            bar = click.progressbar(itertools.count(), total, label, show_pos=True, file=sys.stderr)
            bars.append(bar)
        bars[-1].update(rows - bars[-1].pos)

    def close() -> None:
        if bars:
            bars[-1].render_finish()

    try:
        yield advance
    finally:
        close()


def format_speed(rows: int, seconds: float) -> str:
    """How many rows were read in these seconds.

    Examples
    --------
    >>> format_speed(12_000, 125.0)
    '12,000 rows in 2 min 5 s, 96 rows/s'
    """
    return f"{rows:,} rows in {format_duration(seconds)}, {rows / seconds:,.0f} rows/s"


def format_duration(seconds: float) -> str:
    """Seconds in the two largest units that matter.

    Examples
    --------
    >>> format_duration(2.34), format_duration(59.7), format_duration(125), format_duration(7500)
    ('2.3 s', '1 min 0 s', '2 min 5 s', '2 h 5 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
