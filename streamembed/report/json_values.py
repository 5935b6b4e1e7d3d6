"""Values as JSON has them, the same for the same run: five digits, None where there is no number.

What a page holds is bounded here, too: rows are thinned evenly, the last one kept.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from streamembed.numeric.arrays import Array, Ints

__all__ = ["LONGEST_TEXT", "as_json", "evenly", "number", "numbers", "text"]

DIGITS = 5
LONGEST_TEXT = 120


def number(value: Any) -> float | int | None:
    """One number; None for none, NaN and infinities.

    Examples
    --------
    >>> number(0.12345678), number(float("nan")), number(3), number(True)
    (0.12346, None, 3, 1)
    """
    if value is None:
        return None
    if isinstance(value, (int, np.integer, np.bool_)):
        return int(value)
    found = float(value)
    return float(f"{found:.{DIGITS}g}") if math.isfinite(found) else None


def numbers(values: Array) -> list[float | int | None]:
    """Many of them."""
    return [number(value) for value in values.tolist()]


def text(value: Any) -> str:
    """Anything as text that is not too long.

    Examples
    --------
    >>> text("x" * 500)[-3:], len(text("x" * 500)), text(7)
    ('xx…', 120, '7')
    """
    told = str(value)
    return told if len(told) <= LONGEST_TEXT else told[: LONGEST_TEXT - 1] + "…"


def evenly(n: int, most: int) -> Ints:
    """At most so many of n places, evenly apart, the first and the last among them.

    Examples
    --------
    >>> evenly(3, 10).tolist(), evenly(9, 3).tolist(), evenly(0, 3).tolist()
    ([0, 1, 2], [0, 4, 8], [])
    """
    if n <= most:
        return np.arange(n)
    return np.linspace(0, n - 1, most).round().astype(np.int64)


def as_json(value: Any) -> str:
    """JSON of ASCII that ends no script and begins no tag, whatever texts it holds.

    Examples
    --------
    >>> as_json({"id": "</script>"})
    '{"id":"\\\\u003c/script\\\\u003e"}'
    """
    told = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        told = told.replace(sign, f"\\u{ord(sign):04x}")
    return told
