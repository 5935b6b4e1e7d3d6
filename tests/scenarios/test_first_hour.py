"""The first hour has twenty tasks, and they show what they are meant to show."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios import first_hour


def test_there_are_twenty_tasks_with_a_heading_each() -> None:
    """Of one line; no function of a task is forgotten."""
    headings = [task.__doc__ or "" for task in first_hour.TASKS]
    assert len(set(headings)) == 20
    assert all(heading and "\n" not in heading for heading in headings)


def test_tasks_show_answers_errors_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    """Of commands and of Python, in a folder that is gone afterwards."""
    here = Path.cwd()
    assert first_hour.main(["2", "15", "19"]) == 0
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if line.startswith("## ")] == [
        "## 2. The lines of the README",
        "## 15. Save, and go on tomorrow",
        "## 19. Wrong commands and parameters",
    ]
    assert "Correlation of 'flow' and 'heat' changed from +0.79 to -0.79" in shown
    assert "must be a saved engine" in shown
    assert "Usage: streamembed replay" in shown
    assert "[exit code 2]" in shown
    assert Path.cwd() == here
