"""Progress: at even times, with what is left."""

from __future__ import annotations

import io
import sys

import pytest

from streamembed.cli import progress_bar


class Clock:
    """Seconds that pass only when somebody says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def told(
    capsys: pytest.CaptureFixture[str], total: int | None, speeds: list[float], step: float = 1.0
) -> list[str]:
    """The lines about rows that come with these speeds, each for a step of seconds."""
    clock, rows = Clock(), 0.0
    lines = progress_bar.ProgressLines(total, clock)
    for speed in speeds:
        clock.now += step
        rows += step * speed
        lines.advance(int(rows))
    lines.close()
    return capsys.readouterr().err.splitlines()


def test_lines_come_at_even_times(capsys: pytest.CaptureFixture[str]) -> None:
    """They came at 1, 2, 4, 8, ... batches once: never again in the second half of a log."""
    assert told(capsys, 4000, [100.0] * 40) == [
        "1,000 of 4,000 rows (25%), 100 rows/s, 30 s left",
        "2,000 of 4,000 rows (50%), 100 rows/s, 20 s left",
        "3,000 of 4,000 rows (75%), 100 rows/s, 10 s left",
        "4,000 of 4,000 rows (100%), 100 rows/s, 0.0 s left",
        "4,000 rows in 40 s, 100 rows/s",
    ]


def test_speed_is_of_late(capsys: pytest.CaptureFixture[str]) -> None:
    """A window that fills slows down, and what is left takes longer than what is done."""
    lines = told(capsys, 2200, [200.0] * 10 + [10.0] * 10)
    assert lines[1] == "2,100 of 2,200 rows (95%), 10 rows/s, 10 s left"
    assert lines[2] == "2,100 rows in 20 s, 105 rows/s"


def test_late_rows_do_not_move_the_times(capsys: pytest.CaptureFixture[str]) -> None:
    """A line that was due at 10 seconds and came at 12 has its next at 20."""
    assert len(told(capsys, None, [1.0] * 4, step=25.0)) == 5
    assert told(capsys, None, [10.0] * 8, step=4.0) == [
        "120 rows, 10 rows/s",
        "200 rows, 10 rows/s",
        "320 rows, 10 rows/s",
        "320 rows in 32 s, 10 rows/s",
    ]


def test_the_second_pass_has_lines_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Half of the time of a long replay was silent."""
    for step in (1.0, 6.0):
        clock = Clock()
        progress = progress_bar.ProgressLines(2000, clock)
        for rows in (1000, 2000, 500, 1500, 2000):
            clock.now += step
            progress.advance(rows)
        progress.close()
        told = capsys.readouterr().err.splitlines()
        if step == 1.0:  # short: one line for both
            assert told == ["2,000 rows in 3.0 s, 667 rows/s"]
    assert told == [
        "2,000 of 2,000 rows (100%), 167 rows/s, 0.0 s left",
        "2,000 rows in 18 s, 111 rows/s",
        "2,000 of 2,000 rows (100%) embedded, 167 rows/s, 0.0 s left",
        "2,000 rows embedded in 12 s, 167 rows/s",
    ]


def test_a_short_replay_has_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """At its end."""
    assert told(capsys, 230, [230.0]) == ["230 rows in 1.0 s, 230 rows/s"]
    assert told(capsys, 0, []) == []  # of a finished run, repeated


def test_speed_is_that_of_the_rows_that_came_at_work(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither the start of processes nor what an earlier call has learned counts."""
    for first, end in ((0, "2,700 rows"), (1000, "1,700 new rows")):
        clock = Clock()
        lines = progress_bar.ProgressLines(4000, clock, reports_start=True)
        lines.advance(first)
        clock.now += 8.0  # processes start
        for rows in (1500, 1700, 1900, 2100, 2300, 2500, 2700):
            lines.advance(rows)
            clock.now += 2.0
        lines.advance(2700)
        lines.close()
        assert capsys.readouterr().err.splitlines() == [
            "1,700 of 4,000 rows (42%), 100 rows/s, 23 s left",
            "2,700 of 4,000 rows (68%), 100 rows/s, 13 s left",
            f"{end} in 22 s, 86 rows/s",
        ]


def test_a_repeat_has_no_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """It said "0 rows in 1.7 s, 0 rows/s" once."""
    lines = progress_bar.ProgressLines(4000, Clock(), reports_start=True)
    lines.advance(4000)
    lines.close()
    assert capsys.readouterr().err == "no new rows: 4,000 were read before\n"


def test_nothing_is_said_of_an_end_that_was_none(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever broke it off has its own line."""
    watching = progress_bar.show_progress(10, quiet=False)
    advance = watching.__enter__()
    assert advance is not None
    advance(3)
    assert not watching.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """With rows, rate and time left, each over the one before; the last line stays."""
    monkeypatch.setenv("COLUMNS", "80")
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", screen)
    clock = Clock()
    lines = progress_bar.ProgressLines(1000, clock, in_place=True)
    for rows in (100, 200, 300):
        clock.now += 1.1
        lines.advance(rows)
        clock.now += 0.01
        lines.advance(rows)  # too soon
    lines.close()
    first, second, third, _, last = screen.getvalue().split("\x1b[K")
    assert first == "[##                  ] 100 of 1,000 rows (10%), 91 rows/s, 9.9 s left"
    assert second.startswith("\r[####      ")
    assert third.startswith("\r[######    ")
    assert last == "300 rows in 3.3 s, 90 rows/s\n"
    with progress_bar.show_progress(1000, quiet=False) as advance:
        assert advance is not None
        advance(400)
    assert "400 rows in " in screen.getvalue()
