"""The progress bar of a replay: on a terminal alone, one for each pass over the log."""

from __future__ import annotations

import io
import sys
from contextlib import suppress

import pytest

from streamembed.cli.progress import show_progress


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_bar_for_each_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ends with a line of its own, also where an error breaks it off."""
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    with suppress(KeyboardInterrupt), show_progress(1000, hidden=False) as advance:
        for rows in (300, 1000, 200):
            advance(rows)
        raise KeyboardInterrupt
    first, second, rest = screen.getvalue().split("\n")
    assert "learned" in first
    assert "1000/1000" in first
    assert "embedded" in second
    assert "200/1000" in second
    assert rest == ""


@pytest.mark.parametrize("hidden", [True, False])
def test_a_pipe_has_no_bar(capsys: pytest.CaptureFixture[str], hidden: bool) -> None:
    """Nor has a terminal with --json."""
    with show_progress(1000, hidden) as advance:
        advance(300)
    assert capsys.readouterr().err == ""
