"""JSON values, reproducible for the same run: five digits, None for values that are no number.

The size of a page is bounded here, too: rows are thinned evenly, and the last one is retained.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from streamembed.numeric.arrays import Array, Ints

DIGITS = 5
LONGEST_TEXT = 120


def round_number(value: Any) -> float | int | None:
    """Round a number to five digits; None for None, NaN and infinities.

    Examples
    --------
    >>> round_number(0.12345678), round_number(float("nan")), round_number(3), round_number(True)
    (0.12346, None, 3, 1)
    """
    if value is None:
        return None
    if isinstance(value, (int, np.integer, np.bool_)):
        return int(value)
    as_float = float(value)
    return float(f"{as_float:.{DIGITS}g}") if math.isfinite(as_float) else None


def round_numbers(values: Array) -> list[float | int | None]:
    """Round every number of an array."""
    return [round_number(value) for value in values.tolist()]


def shorten_text(value: Any, longest: int = LONGEST_TEXT) -> str:
    """Convert a value to text, and shorten it to the longest text of a page.

    Examples
    --------
    >>> shorten_text("x" * 500)[-3:], len(shorten_text("x" * 500)), shorten_text(7)
    ('xx…', 120, '7')
    """
    full = str(value)
    return full if len(full) <= longest else full[: longest - 1] + "…"


def select_evenly(n: int, most: int) -> Ints:
    """Indices of at most ``most`` of n items, evenly spaced, with the first and the last.

    Examples
    --------
    >>> select_evenly(3, 10).tolist(), select_evenly(9, 3).tolist(), select_evenly(0, 3).tolist()
    ([0, 1, 2], [0, 4, 8], [])
    """
    if n <= most:
        return np.arange(n)
    return np.linspace(0, n - 1, most).round().astype(np.int64)


def encode_json(value: Any) -> str:
    """Encode as ASCII JSON that cannot close a script or open a tag, for any text in it.

    Examples
    --------
    >>> encode_json({"id": "</script>"})
    '{"id":"\\\\u003c/script\\\\u003e"}'
    """
    encoded = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    return encoded
