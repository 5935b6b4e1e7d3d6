"""Labels to class indices: each new label gets the next number, and keeps it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.batch import sequence_of
from streamembed.core.arrays import Bools, Ints
from streamembed.errors import InputError, shown

__all__ = ["UNKNOWN", "Labels", "booleans", "listed"]

UNKNOWN = -1
LARGEST_LABEL = 2**1000  # a saved engine writes labels as text, and Python reads no longer ones
Label = str | int | float | bool


def listed(y: Any, n: int) -> list[Label | None]:
    """Labels of n rows as plain values; None where one is null, NaN or masked.

    Raises
    ------
    InputError
        Not one label a row, or one that is no string, number or boolean.
    """
    values = sequence_of(y, n, "y")
    if set(map(type, values)) <= {str, bool, NoneType}:
        return values
    return [_plain(value, i) for i, value in enumerate(values)]


def booleans(similar: Any, n: int) -> Bools:
    """Answers to "similar?" of n pairs, shape (n,).

    Raises
    ------
    InputError
        Not one a pair, or what is neither a boolean nor 0 or 1.
    """
    answers = sequence_of(similar, n, "similar")
    for answer in answers:
        if not isinstance(answer, (bool, int, np.bool_, np.integer)) or answer not in (0, 1):
            raise InputError(
                f"similar holds {shown(answer)}; it must be True or False (or 1 or 0) for every "
                "pair"
            )
    return np.array(answers, dtype=bool)


def _plain(value: Any, row: int) -> Label | None:
    value = value.as_py() if isinstance(value, pa.Scalar) else value
    if value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, np.generic) and not isinstance(value, (np.timedelta64, np.datetime64)):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, int) and abs(value) > LARGEST_LABEL:
        raise InputError(
            f"the label of row {row} is a number of {value.bit_length()} bits; labels must have "
            "at most 1000: use strings"
        )
    for kind in (str, bool, int, float):
        if isinstance(value, kind):
            return value if type(value) is kind else kind(value)  # an enum of str is its text
    raise InputError(
        f"the label of row {row} is a {type(value).__name__}; labels must be strings, numbers or "
        "booleans, None where there is none"
    )


class Labels:
    """Which label has which class index."""

    def __init__(self, known: Sequence[Label] = ()) -> None:
        self.known = list(known)
        self._index = {_key(label): i for i, label in enumerate(self.known)}

    def classes(self, labels: Sequence[Label | None]) -> Ints:
        """Indices, shape (n,); `UNKNOWN` for None. New labels are known from now on."""
        found = np.full(len(labels), UNKNOWN, dtype=np.int64)
        for i, label in enumerate(labels):
            if label is None:
                continue
            key = _key(label)
            if key not in self._index:
                self._index[key] = len(self.known)
                self.known.append(label)
            found[i] = self._index[key]
        return found


def _key(label: Label) -> Label | tuple[str, bool]:
    """1 and True are equal to a dict, and not to anybody else."""
    return ("bool", label) if isinstance(label, bool) else label
