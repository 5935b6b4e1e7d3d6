"""The ratios of `make bench`, a row per commit, and which have fallen since the row before.

A page of benchmarks prints in bold what it is about. Bold cells of columns `others / ours`, of
which more is better, are read off the page, kept in history.jsonl, drawn in docs/performance.md.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

HISTORY = Path(__file__).with_name("history.jsonl")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "performance.md"
# A ratio of two times varies by several per cent from run to run on an idle machine.
LARGEST_FALL = 0.15
BOLD = re.compile(r"\*\*([\d,]+(?:\.\d+)?)\*\*")
# Columns of ratios of which less is better.
REVERSED = ("self-tuning / Gaussian", "ours / second", "slowest / median")
# A column that is measured: time, ratio, error.
MEASURED = re.compile(r"\bms\b|/|\bs\b|residual|\bours\b")
HEAD = (
    "| ratio | newest | smallest | largest | history |",
    "| --- | ---: | ---: | ---: | --- |",
)
BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class HistoryRow:
    """One run of all benchmarks: commit, day, machine, and every bold ratio as it was printed."""

    commit: str
    day: str
    machine: str
    ratios: dict[str, str]


def read_ratios(page: str) -> dict[str, str]:
    """The bold ratios of others to ours, as printed, by heading, row and column.

    Examples
    --------
    >>> page = "## Kernels\\n| stream | N | ms | batch / it |\\n|---|---:|---:|---:|\\n"
    >>> read_ratios(page + "| rings | 2000 | 1.5 | **38.0** |\\n")
    {'Kernels: rings, N 2000: batch / it': '38.0'}
    """
    ratios: dict[str, str] = {}
    heading, columns = "", list[str]()
    for line in page.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            columns = []
        elif not columns:
            columns = cells
        else:
            named = zip(columns, cells[: _count_labels(columns)], strict=False)
            row = ", ".join(
                f"{column} {cell}" if i else cell for i, (column, cell) in enumerate(named)
            )
            for column, cell in zip(columns, cells, strict=False):
                match = BOLD.fullmatch(cell)
                if match and "/ " in column and column not in REVERSED:
                    ratios[f"{heading}: {row}: {column}"] = match.group(1).replace(",", "")
    return ratios


def _count_labels(columns: Sequence[str]) -> int:
    """How many columns name a row: those before the first that is measured."""
    measured = [i for i, name in enumerate(columns) if MEASURED.search(name)]
    return max(1, measured[0] if measured else 1)


def find_falls(before: HistoryRow, now: HistoryRow) -> list[str]:
    """The ratios that fell by more than `LARGEST_FALL`, as lines; rounding is no fall.

    Only ratios that both rows have are compared: the machine may be another, as may the data that
    it has.
    """
    lines = []
    for name in sorted(before.ratios.keys() & now.ratios.keys()):
        old, new = before.ratios[name], now.ratios[name]
        least, most = float(old) - _half_unit(old), float(new) + _half_unit(new)
        if most < (1 - LARGEST_FALL) * least:
            fall = 1 - float(new) / float(old)
            lines.append(f"fallen by {fall:.0%} since {before.commit}: {name}: {old} -> {new}")
    return lines


def _half_unit(printed: str) -> float:
    """Half a unit of the last digit printed."""
    return 0.5 * 10.0 ** -len(printed.partition(".")[2])


def read_history(path: Path) -> list[HistoryRow]:
    """All rows, oldest first; none where there is no file."""
    if not path.exists():
        return []
    return [HistoryRow(**json.loads(line)) for line in path.read_text().splitlines()]


def add_row(path: Path, row: HistoryRow) -> list[HistoryRow]:
    """Append a row, in place of an older one of the same commit; all rows."""
    rows = [each for each in read_history(path) if each.commit != row.commit] + [row]
    lines = (json.dumps(asdict(each), ensure_ascii=False) + "\n" for each in rows)
    path.write_text("".join(lines))
    return rows


def build_row(page: str, machine: str) -> HistoryRow:
    """The row of the commit that is checked out; it ends in + where files have changed since."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"],
        capture_output=True,
        text=True,
        check=False,
        cwd=HISTORY.parent,
    )
    commit = done.stdout.strip() or "unknown"
    return HistoryRow(commit, datetime.now(UTC).date().isoformat(), machine, read_ratios(page))


def draw_history(values: Sequence[float]) -> str:
    """A bar for each value, from the smallest to the largest; all high where they are equal.

    Examples
    --------
    >>> draw_history([1.0, 2.0, 3.0])
    '▁▄█'
    """
    low, high = min(values), max(values)
    if high == low:
        return BARS[-1] * len(values)
    places = (np.array(values) - low) / (high - low) * (len(BARS) - 1)
    return "".join(BARS[int(place)] for place in places)


def format_page(rows: Sequence[HistoryRow]) -> str:
    """docs/performance.md: every ratio of the newest row, with its values so far."""
    lines = [
        "# Performance over time",
        "",
        "Generated by `make bench`; do not edit. How many times longer the others take, a bar for "
        "each commit that was measured. `make bench` prints every ratio that fell by more than "
        f"{LARGEST_FALL:.0%}. All figures of the newest run: [benchmarks](benchmarks.md).",
        "",
    ]
    if not rows:
        return "\n".join([*lines, "No commit has been measured yet.", ""])
    lines += [f"Newest: {rows[-1].commit}, {rows[-1].day}, {rows[-1].machine}.", ""]
    before = ""
    for name, newest in rows[-1].ratios.items():
        heading, ratio = name.split(": ", 1)
        if heading != before:
            lines += [*[""] * bool(before), f"## {heading}", "", *HEAD]
            before = heading
        values = [float(row.ratios[name]) for row in rows if name in row.ratios]
        lines.append(
            f"| {ratio} | {newest} | {min(values):g} | {max(values):g} | {draw_history(values)} |"
        )
    return "\n".join([*lines, ""])
