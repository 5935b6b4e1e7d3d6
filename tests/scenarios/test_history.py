"""Ratios of benchmarks over time: read off the page, kept by commit, compared, drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.benchmarks import bench, history
from scenarios.benchmarks.history import HistoryRow

DOCS = Path(__file__).resolve().parents[2] / "docs"


def row(commit: str, **ratios: str) -> HistoryRow:
    return HistoryRow(commit, "2026-01-01", "a machine", ratios)


def test_the_ratios_of_the_page_have_names_of_their_own() -> None:
    """Of docs/benchmarks.md: times of others over ours, no rates, no milliseconds."""
    page = (DOCS / "benchmarks.md").read_text()
    ratios = history.read_ratios(page)
    assert len(ratios) > 70
    assert float(ratios["Diffusion maps: drifting-rings, N 2000, chunk 10: batch / certified"]) > 1
    assert not any("events/s" in name or name.endswith("ms") for name in ratios)


@pytest.mark.parametrize(
    ("old", "new", "falls"),
    [
        ("100.0", "84.9", True),
        ("100.0", "85.1", False),
        ("100.0", "130.0", False),
        ("5", "4", False),  # 4.5 and 4.5 are printed like that
        ("50", "40", True),
    ],
)
def test_a_fall_is_more_than_15_per_cent_and_rounding(old: str, new: str, falls: bool) -> None:
    """Of what was measured, as far as the digits printed tell."""
    lines = history.find_falls(row("before", a=old), row("now", a=new))
    assert bool(lines) == falls
    if falls:
        assert lines[0].endswith(f"since before: a: {old} -> {new}")


def test_only_common_ratios_are_compared() -> None:
    """One that is new or gone has no predecessor."""
    assert history.find_falls(row("before", a="9.0"), row("now", b="1.0")) == []


def test_a_commit_has_one_row(tmp_path: Path) -> None:
    """The newest of it, at the end; others stay as they are."""
    path = tmp_path / "history.jsonl"
    assert history.read_history(path) == []
    for each in (row("one", a="1.0"), row("two", a="2.0"), row("one", a="3.0")):
        rows = history.add_row(path, each)
    assert rows == history.read_history(path) == [row("two", a="2.0"), row("one", a="3.0")]


def test_a_run_is_written_compared_and_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Page, row and history; what fell is printed."""
    monkeypatch.setattr(bench, "PAGE", tmp_path / "benchmarks.md")
    monkeypatch.setattr(history, "PAGE", tmp_path / "performance.md")
    monkeypatch.setattr(history, "HISTORY", tmp_path / "history.jsonl")
    name = "Benchmarks: rings, N 500: batch / it"
    history.add_row(history.HISTORY, HistoryRow("before", "2026-01-01", "a", {name: "40.0"}))
    bench.write_results(
        "# Benchmarks\n| stream | N | ms | batch / it |\n|---|\n| rings | 500 | 1 | **20.0** |"
    )
    assert f"fallen by 50% since before: {name}: 40.0 -> 20.0" in capsys.readouterr().out
    assert (
        f"| {name.split(': ', 1)[1]} | 20.0 | 20 | 40 | █▁ |"
        in (tmp_path / "performance.md").read_text()
    )
    assert len(history.read_history(history.HISTORY)) == 2


def test_the_page_is_that_of_the_history() -> None:
    """As `make bench` has written both; without a row it says so."""
    rows = history.read_history(history.HISTORY)
    assert (DOCS / "performance.md").read_text() == history.format_page(rows)
