"""``inspect``: the contents of a file or folder, the verdict first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from streamembed.cli.findings import Inspection, inspect_path
from streamembed.cli.terminal_text import echo

# A longer list is shown by its first and last entry.
LONGEST_LIST = 8


@click.command("inspect")
@click.argument("path", metavar="PATH")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, with every digit.")
def command(path: str, as_json: bool) -> None:
    """Show what a log, a snapshot, a saved engine or a run folder contains."""
    inspection = inspect_path(path)
    if as_json:
        click.echo(json.dumps({**inspection.facts, "hints": inspection.hints}))
        return
    for line in format_inspection(inspection):
        echo(line)


def format_inspection(inspection: Inspection) -> Iterator[str]:
    """Yield the verdict, the hints, and one line per fact."""
    yield inspection.verdict
    for hint in inspection.hints:
        yield f"hint: {hint}"
    yield ""
    shown = {**inspection.facts, **(inspection.brief or {})}
    left_out = {name for name, value in (inspection.brief or {}).items() if value is None}
    yield from format_facts({name: value for name, value in shown.items() if name not in left_out})


def format_facts(facts: dict[str, Any], indent: str = "") -> Iterator[str]:
    """Yield one line per fact, nested facts indented below."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield f"{indent}{name}"
            yield from format_facts(value, indent + "  ")
        else:
            yield f"{indent}{name:18s} {format_value(value)}"


def format_value(value: object) -> str:
    """Format a fact: four digits, a dash for None, the ends of a long list.

    Examples
    --------
    >>> format_value(0.123456), format_value([1.0, None]), format_value([])
    ('0.1235', '1, -', '-')
    >>> format_value([str(j) for j in range(384)])
    '0 … 383 (384)'
    """
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if not isinstance(value, (list, tuple)):
        return str(value)
    if len(value) > LONGEST_LIST:
        return f"{format_value(value[0])} … {format_value(value[-1])} ({len(value):,})"
    return ", ".join(map(format_value, value)) or "-"
