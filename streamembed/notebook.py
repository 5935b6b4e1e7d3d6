"""The table that a notebook shows for an object, as HTML.

It has no script, no style sheet and nothing from a network. Its colours are those of the page.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

LONGEST_TEXT = 400

_CELL = "text-align:left;vertical-align:top;padding:1px 12px 1px 0;border:0"
_NAME = "font-weight:normal;opacity:.7;white-space:nowrap"
_TEXT = "white-space:normal;overflow-wrap:anywhere;max-width:32em"


def escape(value: object) -> str:
    """Text that is no markup, whatever the value is; cut where it is long.

    What cannot be printed is written as repr writes it.

    Examples
    --------
    >>> escape("<b>"), escape("a\\u202eb")
    ('&lt;b&gt;', 'a\\\\u202eb')
    """
    text = str(value)
    if len(text) > LONGEST_TEXT:
        text = text[:LONGEST_TEXT] + "..."
    return html.escape("".join(c if c.isprintable() else ascii(c)[1:-1] for c in text))


def list_fields(value: Any) -> list[tuple[str, object]]:
    """Names and values of a dataclass, as rows of a table."""
    return [(field.name, getattr(value, field.name)) for field in fields(value)]


def format_value(value: object) -> str:
    """As text: 4 digits of floats, items apart by commas, none for nothing."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, tuple):
        value = ", ".join(map(format_value, value))
    return "none" if value in (None, "") else str(value)


def write_table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """A table of names and values, under a title; text of any origin is escaped."""
    lines = "".join(
        f'<tr style="background:none"><th scope="row" style="{_CELL};{_NAME}">{escape(name)}</th>'
        f'<td dir="auto" style="{_CELL};{_TEXT}">{escape(format_value(value))}</td></tr>'
        for name, value in rows
    )
    return (
        '<table style="border:0;border-collapse:collapse;margin:0;color:inherit">'
        f'<caption style="{_CELL};{_TEXT};caption-side:top;font-weight:bold;color:inherit">'
        f"{escape(title)}</caption><tbody>{lines}</tbody></table>"
    )
