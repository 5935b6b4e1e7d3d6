"""Progress of a replay: a bar on a terminal, lines at even times in a pipe.

Both count the rows of the log that the engine has taken, and say how fast they go and how long the
rest will take at that speed; a log whose length is not known has no rest.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

__all__ = ["INTERVAL", "Lines", "duration", "watch"]

# Seconds between two lines in a pipe: ten thousand lines of a log file a day.
INTERVAL = 10.0


@contextmanager
def watch(total: int | None, quiet: bool) -> Iterator[Callable[[int], None] | None]:
    """What to call with the rows taken so far; None where nothing is to be said.

    Parameters
    ----------
    total
        Rows of the log; None where nobody knows before it ends.
    quiet
        Say nothing.
    """
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar(Console(stderr=True)) as bar:
            task = bar.add_task("replay", total=total)
            yield lambda rows: bar.update(task, completed=rows)
    else:
        lines = Lines(total)
        yield lines.advance
        lines.close()


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )


class Rate(ProgressColumn):
    """Rows a second, of late."""

    def render(self, task: Task) -> Text:
        """Nothing before there are two times to compare."""
        return Text("" if task.speed is None else f"{task.speed:,.0f} rows/s")


class Lines:
    """A line on standard error every ten seconds, however fast the rows come, and one at the end.

    Parameters
    ----------
    total
        Rows of the log, or None.
    clock
        Seconds, of any beginning.
    """

    def __init__(self, total: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._clock = clock
        self._start = self._then = clock()
        self._due = self._start + INTERVAL
        self._rows = self._before = 0  # now, and when the last line was written

    def advance(self, rows: int) -> None:
        """So many rows are taken."""
        self._rows = rows
        now = self._clock()
        if now < self._due:
            return
        speed = (rows - self._before) / (now - self._then)
        click.echo(self._line(speed), err=True)
        self._then, self._before = now, rows
        self._due += INTERVAL * (1 + (now - self._due) // INTERVAL)

    def _line(self, speed: float) -> str:
        told = f"{self._rows:,} rows"
        if self._total:
            told = f"{self._rows:,} of {self._total:,} rows ({self._rows / self._total:.0%})"
        told += f", {speed:,.0f} rows/s"
        if self._total and speed:
            told += f", {duration((self._total - self._rows) / speed)} left"
        return told

    def close(self) -> None:
        """All rows are taken: how long that took."""
        seconds = self._clock() - self._start
        speed = f", {self._rows / seconds:,.0f} rows/s" if seconds else ""
        click.echo(f"{self._rows:,} rows in {duration(seconds)}{speed}", err=True)


def duration(seconds: float) -> str:
    """Seconds in the two largest units that matter.

    Examples
    --------
    >>> duration(2.34), duration(59.7), duration(125), duration(7500)
    ('2.3 s', '1 min 0 s', '2 min 5 s', '2 h 5 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
