"""Parameters of the metric estimators, checked when an estimator is built."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence

from streamembed.errors import ParameterError

__all__ = ["flag", "one_of", "real", "whole"]


def one_of(name: str, value: object, allowed: Sequence[str], other: str = "") -> None:
    """Refuse a value that is none of the words."""
    if not (isinstance(value, str) and value in allowed):
        choices = ", ".join(repr(choice) for choice in allowed)
        raise ParameterError(f"{name}={value!r} must be one of {choices}{other}")


def whole(name: str, value: object, low: int, other: str = "") -> None:
    """Refuse what is not a whole number of at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < low:
        raise ParameterError(f"{name}={value!r} must be a whole number of at least {low}{other}")


def real(
    name: str, value: object, low: float, high: float, other: str = "", opened: bool = False
) -> None:
    """Refuse what is not a number in [low, high], or in (low, high) where the range is open."""
    fits = isinstance(value, numbers.Real) and not isinstance(value, bool)
    number = float(value) if isinstance(value, numbers.Real) else math.nan
    inside = low < number < high if opened else low <= number <= high
    if not fits or not inside:
        ends = "strictly between" if opened else "between"
        raise ParameterError(
            f"{name}={value!r} must be a number {ends} {low:g} and {high:g}{other}"
        )


def flag(name: str, value: object) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise ParameterError(f"{name}={value!r} must be True or False")
