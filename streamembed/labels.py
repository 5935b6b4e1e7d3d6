"""Labels to class indices: each new label gets the next number, and keeps it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.core.arrays import Ints
from streamembed.errors import InputError

__all__ = ["UNKNOWN", "Labels", "label_key", "listed"]

UNKNOWN = -1
Label = str | int | float | bool


def listed(y: Any, n: int) -> list[Label | None]:
    """Labels of n rows as plain values; None where one is null or NaN.

    Raises
    ------
    InputError
        As many labels as rows do not come, or one is no string, number or boolean.
    """
    if isinstance(y, (pa.Array, pa.ChunkedArray)):
        y = y.to_pylist()
    values = y.tolist() if hasattr(y, "tolist") else y
    if not isinstance(values, Sequence) or isinstance(values, (str, bytes)):
        values = list(values) if hasattr(values, "__iter__") and not isinstance(values, str) else y
    if not isinstance(values, Sequence) or isinstance(values, (str, bytes)) or len(values) != n:
        count = len(values) if hasattr(values, "__len__") else "no"
        raise InputError(
            f"y has {count} labels for {n} rows; it must have one for each, or be None"
        )
    return [_plain(value, i) for i, value in enumerate(values)]


def _plain(value: Any, row: int) -> Label | None:
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, (str, int, float)):
        return value
    raise InputError(
        f"the label of row {row} is a {type(value).__name__}; labels must be strings, numbers or "
        "booleans, None where there is none"
    )


def label_key(label: Any) -> tuple[bool, Any]:
    """What labels of one class have in common.

    True and 1 are different classes; 1 and 1.0 are the same, and so are numpy's scalars and the
    Python values that they stand for.

    Examples
    --------
    >>> label_key(1) == label_key(1.0), label_key(1) == label_key(True)
    (True, False)
    """
    value = label.item() if isinstance(label, np.generic) else label
    return isinstance(value, bool), value


class Labels:
    """Which label has which class index."""

    def __init__(self, known: Sequence[Label] = ()) -> None:
        self.known = list(known)
        self._index = {label_key(label): i for i, label in enumerate(self.known)}

    def classes(self, labels: Sequence[Label | None]) -> Ints:
        """Indices, shape (n,); `UNKNOWN` for None. New labels are known from now on."""
        found = np.full(len(labels), UNKNOWN, dtype=np.int64)
        for i, label in enumerate(labels):
            if label is None:
                continue
            key = label_key(label)
            if key not in self._index:
                self._index[key] = len(self.known)
                self.known.append(label)
            found[i] = self._index[key]
        return found
