"""Progress of a replay: a bar on a terminal, lines at even times in a pipe.

Both count the rows of the log that the engine has taken, and say how fast they go and how long the
rest will take at that speed; a log whose length is not known has no rest. What an earlier call has
taken, and the time until processes are at work, are no part of the speed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

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
def watch(
    total: int | None, quiet: bool, tells_start: bool = False
) -> Iterator[Callable[[int], None] | None]:
    """What to call with the rows taken so far; None where nothing is to be said.

    Parameters
    ----------
    total
        Rows of the log; None where nobody knows before it ends.
    quiet
        Say nothing.
    tells_start
        Whether the first call says where it begins, and the second that rows have begun to come:
        speeds are counted from there.
    """
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar(Console(stderr=True)) as bar:
            task = bar.add_task("replay", total=total)
            calls = count(0 if tells_start else 1)

            def advance(rows: int) -> None:
                if next(calls):
                    bar.update(task, completed=rows)  # the first is where its speed begins
                else:
                    bar.reset(task, total=total, completed=rows)

            yield advance
    else:
        lines = Lines(total, tells_start=tells_start)
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
    tells_start
        As in `watch`.
    """

    def __init__(
        self,
        total: int | None,
        clock: Callable[[], float] = time.monotonic,
        tells_start: bool = False,
    ) -> None:
        self._total = total
        self._clock = clock
        self._start = self._then = self._since = clock()
        self._due = self._start + INTERVAL
        self._rows = self._before = 0  # now, and when the last line was written
        self._first = self._counted = 0  # at the start, and where the speed of all is counted from
        self._untold = 2 if tells_start else 0  # calls that begin something

    def advance(self, rows: int) -> None:
        """So many rows are taken."""
        self._rows = rows
        now = self._clock()
        if self._untold:
            self._first = rows if self._untold == 2 else self._first
            self._counted, self._since = self._before, self._then = rows, now
            self._untold -= 1
        if now < self._due:
            return
        seconds = now - self._then
        click.echo(self._line((rows - self._before) / seconds if seconds else None), err=True)
        self._then, self._before = now, rows
        self._due += INTERVAL * (1 + (now - self._due) // INTERVAL)

    def _line(self, speed: float | None) -> str:
        told = f"{self._rows:,} rows"
        if self._total:
            told = f"{self._rows:,} of {self._total:,} rows ({self._rows / self._total:.0%})"
        if speed is not None:
            told += f", {speed:,.0f} rows/s"
        if self._total and speed:
            told += f", {duration((self._total - self._rows) / speed)} left"
        return told

    def close(self) -> None:
        """All rows are taken: how long that took."""
        now = self._clock()
        more, took = self._rows - self._first, duration(now - self._start)
        if self._first and not more:
            click.echo(f"no more rows: {self._rows:,} were taken before", err=True)
            return
        told = f"{more:,} more rows in {took}" if self._first else f"{more:,} rows in {took}"
        rows, seconds = self._rows - self._counted, now - self._since
        told += f", {rows / seconds:,.0f} rows/s" if rows and seconds else ""
        click.echo(told, err=True)


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
