"""Facts as text: the verdict first, then hints, then one line per fact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streamembed.cli.terminal_text import echo, name_options
from streamembed.methods.options import DEFAULTS

# A longer list or mapping is shown by its first and last entry.
LONGEST_LIST, LONGEST_MAPPING = 8, 40
# Facts of a run and of its snapshot in a summary.
SUMMARY = ("eigenvalues", "axes", "metrics", "picture", "monitor")


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print all facts."""
    _print_verdict(facts)
    echo("")
    shown = {key: fact for key, fact in facts.items() if key not in ("kind", "state", "hints")}
    for line in format_facts(shown):
        echo(line)


def print_summary(facts: Mapping[str, Any], run: object) -> None:
    """Print the verdict and the hints of a run, and the most important facts."""
    _print_verdict({**facts, "verdict": f"{facts['verdict']}; in {run}"})
    snapshot = facts["snapshot"]
    if snapshot is not None:
        echo(snapshot["verdict"])
    all_facts = {**facts, **(snapshot or {})}
    for line in format_facts({key: all_facts[key] for key in SUMMARY if all_facts.get(key)}, False):
        echo(line)


def _print_verdict(facts: Mapping[str, Any]) -> None:
    echo(facts["verdict"])
    for hint in facts["hints"]:
        echo(f"hint: {name_options(hint)}")


def format_facts(facts: Mapping[str, Any], whole: bool = True, indent: str = "") -> Iterator[str]:
    """Yield a line for each fact, and the facts in it indented below.

    Parameters
    ----------
    whole
        False: of facts that have a verdict, that alone.
    """
    for name, fact in facts.items():
        if name == "verdict" or (name == "kind" and "verdict" in facts):
            continue
        if name in ("engine", "parameters"):
            fact = _format_parameters(fact)
        if not isinstance(fact, Mapping) or not fact or len(fact) > LONGEST_MAPPING:
            yield f"{indent}{name:18s} {format_value(fact)}"
            continue
        yield f"{indent}{name:18s} {fact.get('verdict', '')}".rstrip()
        if whole or "verdict" not in fact:
            yield from format_facts(fact, whole, indent + "  ")


def _format_parameters(parameters: Mapping[str, Any]) -> str:
    """The parameters of an engine that differ from the defaults; a file may have lists."""
    changed = [
        f"{name}={value!r}"
        for name, value in parameters.items()
        if (tuple(value) if isinstance(value, list) else value) != DEFAULTS.get(name)
        and name != "on_bad_row"  # a replay has its own
    ]
    return f"{', '.join(changed)}; defaults otherwise" if changed else "all defaults"


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
    if not isinstance(value, (list, tuple, Mapping)):
        return str(value)
    values = list(value)
    if any(isinstance(item, Mapping) for item in values):
        return f"{len(values):,}"
    if len(values) > LONGEST_LIST:
        return f"{format_value(values[0])} … {format_value(values[-1])} ({len(values):,})"
    return ", ".join(map(format_value, values)) or "-"
