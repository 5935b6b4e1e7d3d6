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
