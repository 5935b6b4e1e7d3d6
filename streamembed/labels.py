"""Labels to class indices: each new label gets the next number, and keeps it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.core.arrays import Ints
from streamembed.errors import InputError

__all__ = ["LARGEST_CLASSES", "UNKNOWN", "Labels", "label_key", "listed"]

UNKNOWN = -1
# Class moments take d^2 numbers a class; a stream of more labels is a regression. Those that come
# later are counted, and their events learned without a label.
LARGEST_CLASSES = 1000
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


def label_key(label: Any) -> Hashable:
    """What tells labels apart: equal keys are one class, in the engine and everywhere else.

    1 and 1.0 are one class, as they are one number, and so are numpy's scalars and Python's; True
    is another class than 1, though a dict would take them for one key.

    Examples
    --------
    >>> label_key(1) == label_key(1.0) == label_key(np.int8(1))
    True
    >>> label_key(True) == label_key(1)
    False
    """
    if isinstance(label, np.generic):
        label = label.item()
    key: Hashable = (bool, label) if isinstance(label, bool) else label
    return key


class Labels:
    """Which label has which class index; a value, like everything that an engine remembers.

    Attributes
    ----------
    known : tuple
        Labels in the order of their first events: the index is that of the class. At most
        `LARGEST_CLASSES`.
    unlearned : int
        Events so far with another label.
    """

    __slots__ = ("_index", "known", "unlearned")

    def __init__(self, known: Sequence[Label] = (), unlearned: int = 0) -> None:
        self.known = tuple(known)
        self.unlearned = unlearned
        self._index = {label_key(label): i for i, label in enumerate(self.known)}

    def classes(self, labels: Sequence[Label | None]) -> tuple[Ints, Labels]:
        """Indices, shape (n,), and the labels known from now on.

        `UNKNOWN` for None, and for a new label where there are `LARGEST_CLASSES` already.
        """
        found = np.full(len(labels), UNKNOWN, dtype=np.int64)
        known, unlearned, index = list(self.known), self.unlearned, self._index
        for i, label in enumerate(labels):
            if label is None:
                continue
            key = label_key(label)
            if key not in index:
                if len(known) >= LARGEST_CLASSES:
                    unlearned += 1
                    continue
                index = {**index, key: len(known)}
                known.append(label)
            found[i] = index[key]
        after = Labels.__new__(Labels)
        after.known, after.unlearned, after._index = tuple(known), unlearned, index
        return found, after
