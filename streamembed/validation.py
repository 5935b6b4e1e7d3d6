"""Checks of parameters: each refuses a wrong value, or returns a plain Python value.

Callers have numbers of many kinds (numpy's, fractions, decimals). The result is an int, a float,
a str or a bool, so that it can be saved, compared and shown.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import TypeVar, cast

import numpy as np

from streamembed.errors import ParameterError, quote, suggest_word

LARGEST_COUNT = 2**63 - 1  # what indexes arrays
LARGEST_SEED = 2**128 - 1  # the entropy that numpy's own seeds have
LARGEST_TIME = 1e6  # of a diffusion: beyond it even eigenvalues of 1 - 1e-6 are gone
LARGEST_D2 = 1e300  # of thresholds on squared distances
LARGEST_DRAW = 10**7  # pairs drawn at once are in memory at once

Choice = TypeVar("Choice", str, str | None)
Value = TypeVar("Value")


def check_choice(
    name: str,
    value: object,
    allowed: Sequence[Choice],
    other: str = "",
    notes: Mapping[str, str] = MappingProxyType({}),
) -> Choice:
    """The word that the value equals; ParameterError if there is none.

    ``notes`` say what to do instead of a word in lower case that others use, where there is none.
    """
    for choice in allowed:
        if value is choice or (isinstance(value, str) and value == choice):
            return choice
    choices = ", ".join(repr(choice) for choice in allowed)
    hint = ""
    if isinstance(value, str):
        words = [choice for choice in allowed if choice is not None]
        hint = notes.get(value.lower()) or suggest_word(value, words)
    end = f": {hint}" if hint else ""
    raise ParameterError(f"{name}={quote(value)} must be one of {choices}{other}{end}")


def check_scaling(metric: object, scaling: object) -> tuple[str, str | None]:
    """The metric of points, and what divides their features: nothing under "cosine"."""
    notes = {"precomputed": "learn_distances takes distances"}
    metric = check_choice("metric", metric, ("euclidean", "cosine"), notes=notes)
    scaling = check_choice("scaling", scaling, ("standard", "global", None))
    if metric == "euclidean":
        return metric, scaling
    if scaling == "global":
        raise ParameterError(
            "scaling='global' has no effect with metric='cosine', which divides every vector by "
            "its length: leave it out"
        )
    return metric, None


def check_whole(
    name: str, value: object, low: int, other: str = "", high: int = LARGEST_COUNT
) -> int:
    """The value as an int; ParameterError if it is not a whole number in [low, high]."""
    number = low - 1
    if isinstance(value, numbers.Integral) and not isinstance(value, (bool, np.timedelta64)):
        number = int(value)
    if number < low:
        kind = (
            "a whole number" if isinstance(value, numbers.Integral) else "a whole number (an int)"
        )
        ends = f"of at least {low}" if high >= LARGEST_COUNT else f"from {low} to {high}"
        raise ParameterError(f"{name}={quote(value)} must be {kind} {ends}{other}")
    if number > high:
        raise ParameterError(f"{name}={quote(value)} must be at most {high}{other}")
    return number


def check_real(
    name: str, value: object, low: float, high: float, other: str = "", opened: bool = False
) -> float:
    """The value as a float; ParameterError outside [low, high], or (low, high) where opened."""
    number = np.nan
    if isinstance(value, (numbers.Real, Decimal)) and not isinstance(value, (bool, np.timedelta64)):
        try:
            with np.errstate(over="ignore"):
                number = float(value)
        except (OverflowError, ValueError):  # 10**400; a signalling NaN of decimal
            pass
    if not (low < number < high if opened else low <= number <= high):
        ends = "strictly between" if opened else "between"
        raise ParameterError(
            f"{name}={quote(value)} must be a number {ends} {low:g} and {high:g}{other}"
        )
    return number


def check_percentiles(name: str, value: object) -> tuple[float, float]:
    """Two ascending numbers within (0, 100)."""
    is_array = isinstance(value, np.ndarray) and value.ndim == 1
    if not is_array and not isinstance(value, (tuple, list)):
        raise ParameterError(f"{name}={quote(value)} must be two numbers between 0 and 100")
    ends = [
        check_real(name, end, 0.0, 100.0, opened=True) for end in cast("Sequence[object]", value)
    ]
    if len(ends) != 2 or not ends[0] < ends[1]:
        raise ParameterError(f"{name}={quote(value)} must be two ascending numbers")
    return ends[0], ends[1]


def check_flag(name: str, value: object) -> bool:
    """The value as a bool; ParameterError if it is neither True nor False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ParameterError(f"{name}={quote(value)} must be True or False")
    return bool(value)


def check_optional(
    check: Callable[..., Value], name: str, value: object, *ends: float, **options: float
) -> Value | None:
    """None, or the value as `check_whole` or `check_real` keep it."""
    return None if value is None else check(name, value, *ends, other=" or None", **options)


def check_bytes(name: str, value: object) -> bytes:
    """The value as bytes; ParameterError if it is no buffer of bytes."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise ParameterError(
            f"{name}={quote(value)} must be bytes, as to_bytes returns them: for a file use load"
        )
    return bytes(value)


def set_fields(settings: object, **values: object) -> None:
    """Set fields of a frozen dataclass; for its ``__post_init__`` alone."""
    for name, value in values.items():
        object.__setattr__(settings, name, value)


def parse_count_or_unit(
    name: str, asked: object, unit: str, most: float
) -> tuple[int | None, float | None]:
    """A whole number, or a number with a unit behind it, such as "30s", of at most so many.

    Raises
    ------
    ParameterError
        Anything else.

    Examples
    --------
    >>> parse_count_or_unit("n", 500, "s", 60), parse_count_or_unit("n", "2.5s", "s", 60)
    ((500, None), (None, 2.5))
    >>> parse_count_or_unit("share", "101%", "%", 100)
    Traceback (most recent call last):
    streamembed.errors.ParameterError: share='101%' must be a whole number, or as '5%'
    """
    text = "" if isinstance(asked, bool) else str(asked)
    if text.isdecimal():
        return int(text), None
    try:
        number = float(text.removesuffix(unit)) if text.endswith(unit) else -1.0
    except ValueError:
        number = -1.0
    if 0 <= number <= most:
        return None, number
    raise ParameterError(f"{name}={quote(asked)} must be a whole number, or as '5{unit}'")
