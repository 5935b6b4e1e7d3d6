"""``inspect``: what a file or folder holds, the verdict first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from streamembed.cli.findings import Finding, find
from streamembed.cli.terminal_text import echo

__all__ = ["command"]

# Of a list with more entries, the first and the last are shown.
LONGEST = 8


@click.command("inspect")
@click.argument("path", metavar="PATH")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, with every digit.")
def command(path: str, as_json: bool) -> None:
    """Show what a log, a snapshot, a saved engine or a run folder contains."""
    found = find(Path(path))
    if as_json:
        click.echo(json.dumps({**found.facts, "hints": found.hints}))
        return
    for line in write(found):
        echo(line)


def write(found: Finding) -> Iterator[str]:
    """The verdict, the hints, and one line a fact."""
    yield found.verdict
    for hint in found.hints:
        yield f"hint: {hint}"
    yield ""
    shown = {**found.facts, **(found.brief or {})}
    left_out = {name for name, value in (found.brief or {}).items() if value is None}
    yield from write_facts({name: one for name, one in shown.items() if name not in left_out})


def write_facts(facts: dict[str, Any], indent: str = "") -> Iterator[str]:
    """One line a fact, what is inside another indented below it."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield f"{indent}{name}"
            yield from write_facts(value, indent + "  ")
        else:
            yield f"{indent}{name:18s} {show(value)}"


def show(value: object) -> str:
    """A fact as text: four digits, a dash for nothing, of a long list its ends.

    Examples
    --------
    >>> show(0.123456), show([1.0, None]), show([]), show([str(j) for j in range(384)])
    ('0.1235', '1, -', '-', '0 … 383 (384)')
    """
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if not isinstance(value, (list, tuple)):
        return str(value)
    if len(value) > LONGEST:
        return f"{show(value[0])} … {show(value[-1])} ({len(value):,})"
    return ", ".join(map(show, value)) or "-"
