"""What a notebook shows of an object: a small table, and a scatter plot, as HTML.

No script, no style sheet, nothing from a network. Colours are those of the page, or stand out on
light and dark pages alike.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import numpy as np

# Points of a scatter plot, evenly spaced by age: 20 kB.
MOST_POINTS = 2000
NEWEST = 10
# Colours that contrast with white by 3.8 and 3.9, and with #111 by 5.0 and 4.9.
COLOUR, NEW_COLOUR = "#2E86DE", "#D55E00"
WIDTH, HEIGHT, MARGIN = 360, 270, 12
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


def write_table(title: str, rows: Iterable[tuple[str, object]], figure: str = "") -> str:
    """A table of names and values as HTML.

    Parameters
    ----------
    title
        Above it.
    rows
        Name and value; text of any origin.
    figure
        Markup to the right of the table.
    """
    lines = "".join(
        f'<tr style="background:none"><th scope="row" style="{_CELL};{_NAME}">{escape(name)}</th>'
        f'<td dir="auto" style="{_CELL};{_TEXT}">{escape(format_value(value))}'
        "</td></tr>"
        for name, value in rows
    )
    table = (
        '<table style="border:0;border-collapse:collapse;margin:0;color:inherit">'
        f'<caption style="{_CELL};{_TEXT};caption-side:top;font-weight:bold;color:inherit">'
        f"{escape(title)}</caption><tbody>{lines}</tbody></table>"
    )
    return (
        '<div style="display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start;color:inherit">'
        f"<div>{table}</div>{figure}</div>"
    )


def draw_scatter(points: np.ndarray[Any, np.dtype[np.float64]], title: str) -> str:
    """Points in the plane as an SVG, to one scale in both directions, the newest in front.

    Parameters
    ----------
    points
        Shape (n, 2), finite, oldest first.
    title
        Below it; the numbers of points are added.
    """
    n = len(points)
    shown = np.unique(np.linspace(0, n - 1, min(n, MOST_POINTS)).round().astype(int))
    low, high = points.min(axis=0), points.max(axis=0)
    middle = low + 0.5 * (high - low)
    inside = np.array([WIDTH, HEIGHT]) - 2.0 * MARGIN
    unit = float(((high - low) / inside).max()) or 1.0
    places = (points - middle) / unit * [1.0, -1.0] + [WIDTH / 2, HEIGHT / 2]
    newest = shown >= n - NEWEST
    size = 5 if len(shown) <= 500 else 3
    count = f"{n:,} points" if len(shown) == n else f"{len(shown):,} of {n:,} points"
    words = f"{title}: {count}, the newest {min(n, NEWEST)} in orange"
    return (
        f'<figure style="margin:0;max-width:{WIDTH}px"><svg xmlns="http://www.w3.org/2000/svg" '
        f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(words)}" fill="none" stroke-linecap="round">'
        f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{HEIGHT - 1}" stroke="currentColor" '
        'stroke-opacity=".25"/>'
        f"{_draw_points(places[shown[~newest]], COLOUR, size)}"
        f"{_draw_points(places[shown[newest]], NEW_COLOUR, size + 2)}"
        f'</svg><figcaption style="font-size:smaller;opacity:.7">{escape(words)}</figcaption>'
        "</figure>"
    )


def _draw_points(places: np.ndarray[Any, Any], colour: str, size: int) -> str:
    """One path: a line of no length is a dot where its ends are round."""
    path = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in places.tolist())
    return f'<path d="{path}" stroke="{colour}" stroke-width="{size}"/>'
