"""Progress of a replay: a bar on a terminal, lines at regular times in a pipe.

Both count the rows of the log that the engine has read, with the speed and, if the length of the
log is known, the time left at that speed. The speed excludes rows of an earlier call and the time
until processes have started. A number below the last begins the second pass over the log, in which
all events are embedded by the last snapshot.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from streamembed.cli.terminal_text import echo

# Seconds between two lines in a pipe: ten thousand lines of a log file a day.
INTERVAL = 10.0
# Seconds between two looks of the bar on a terminal, and its characters.
REFRESH, BAR_WIDTH = 0.2, 20


@contextmanager
def show_progress(
    total: int | None, quiet: bool, reports_start: bool = False
) -> Iterator[Callable[[int], None] | None]:
    """Yield a callback for the number of rows read so far; None when quiet.

    Parameters
    ----------
    total
        Rows of the log; None if unknown before it ends.
    quiet
        Print nothing.
    reports_start
        Whether the first call reports where the replay starts, and the second that rows arrive:
        speeds are measured from there.
    """
    if quiet:
        yield None
        return
    lines = ProgressLines(total, reports_start=reports_start, in_place=sys.stderr.isatty())
    yield lines.advance
    lines.close()


class ProgressLines:
    """A line on standard error every ten seconds, at any speed, and one at the end.

    On a terminal the line has a bar and is written over the one before.

    Parameters
    ----------
    total
        Rows of the log, or None.
    clock
        Seconds, from any origin.
    reports_start
        As in `show_progress`.
    in_place
        Whether it is a terminal.
    """

    def __init__(
        self,
        total: int | None,
        clock: Callable[[], float] = time.monotonic,
        reports_start: bool = False,
        in_place: bool = False,
    ) -> None:
        self._total = total
        self._clock = clock
        self._start_calls = 2 if reports_start else 0  # calls that report the start
        self._in_place = in_place
        self._interval = REFRESH if in_place else INTERVAL
        self._begin(embeds=False)

    def _begin(self, embeds: bool) -> None:
        self._embeds = embeds  # whether this is the second pass
        self._start = self._last_time = self._speed_time = self._clock()
        self._next_time = self._start + self._interval
        self._rows = self._last_rows = 0  # now, and at the last line
        # at the start, and from where the total speed is measured
        self._first_rows = self._speed_rows = 0

    def advance(self, rows: int) -> None:
        """Report that ``rows`` rows are read."""
        if rows < self._rows:
            self.close()
            self._begin(embeds=True)
        self._rows = rows
        now = self._clock()
        if self._start_calls:
            self._first_rows = rows if self._start_calls == 2 else self._first_rows
            self._speed_rows, self._speed_time = self._last_rows, self._last_time = rows, now
            self._start_calls -= 1
        if now < self._next_time:
            return
        seconds = now - self._last_time
        line = self._format_line((rows - self._last_rows) / seconds if seconds else None)
        if self._in_place:  # what is written next begins at the start of the line
            share = rows / self._total if self._total else 0.0
            line = f"[{'#' * int(BAR_WIDTH * share):<{BAR_WIDTH}}] {line}"
            line = f"{line[: shutil.get_terminal_size().columns - 1]}\x1b[K\r"
        click.echo(line, err=True, nl=not self._in_place)
        if not self._in_place or seconds >= INTERVAL:  # speeds are those of ten seconds
            self._last_time, self._last_rows = now, rows
        self._next_time += self._interval * (1 + (now - self._next_time) // self._interval)

    def _format_line(self, speed: float | None) -> str:
        line = f"{self._rows:,} rows"
        if self._total:
            line = f"{self._rows:,} of {self._total:,} rows ({self._rows / self._total:.0%})"
        line += " embedded" if self._embeds else ""
        if speed is not None:
            line += f", {speed:,.0f} rows/s"
        if self._total and speed:
            line += f", {format_duration((self._total - self._rows) / speed)} left"
        return line

    def close(self) -> None:
        """Report the total time and speed; of a short second pass, nothing."""
        now = self._clock()
        if self._embeds and now - self._start < INTERVAL:
            return
        new_rows, elapsed = self._rows - self._first_rows, format_duration(now - self._start)
        if self._first_rows and not new_rows:
            echo(f"no new rows: {self._rows:,} were read before", err=True)
            return
        if not new_rows:  # the run is complete, or all of its log is in the next pass
            return
        verb = " embedded" if self._embeds else ""
        line = f"{new_rows:,} {'new ' if self._first_rows else ''}rows{verb} in {elapsed}"
        rows, seconds = self._rows - self._speed_rows, now - self._speed_time
        line += f", {rows / seconds:,.0f} rows/s" if rows and seconds else ""
        echo(line, err=True)


def format_duration(seconds: float) -> str:
    """Seconds in the two largest units that matter.

    Examples
    --------
    >>> format_duration(2.34), format_duration(59.7), format_duration(125), format_duration(7500)
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
