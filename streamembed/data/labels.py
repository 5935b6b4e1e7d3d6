"""Labels to class indices: each new label gets the next number, and keeps it."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import NoneType
from typing import Any

import numpy as np

from streamembed.data.values import as_number, to_list
from streamembed.errors import InputError, quote
from streamembed.numeric.arrays import Bools, Ints
from streamembed.numeric.codec import NOT_SAVED, Count

UNKNOWN = -1
# Class moments take d^2 numbers a class; a stream of more labels is a regression. Those that come
# later are counted, and their events learned without a label.
LARGEST_CLASSES = 1000
LARGEST_LABEL = 2**1000  # a saved engine writes labels as text, and Python reads no longer ones
Label = str | int | float | bool


def list_labels(y: Any, n: int) -> list[Label | None]:
    """Labels of n rows as plain values; None where one is null or NaN.

    Raises
    ------
    InputError
        Not one label a row, or one that is no string, number or boolean.
    """
    values = to_list(y, n, "y")
    if set(map(type, values)) <= {str, bool, NoneType}:
        return values
    return [None if value is None else _read_label(value, i) for i, value in enumerate(values)]


def read_answers(similar: Any, n: int) -> list[bool | None]:
    """Answers to "similar?" of n pairs; None where one is null or NaN.

    Raises
    ------
    InputError
        Not one a pair, or what is neither a boolean nor a number that is exactly 0 or 1.
    """
    values = to_list(similar, n, "similar")
    for row, value in enumerate(values):
        if value is not None and as_number(value) not in (0.0, 1.0):
            raise InputError(
                f"similar has {quote(value)} in row {row}; it must be True or False (or 1 or 0) "
                "for every pair: for labels of +1 and -1 pass similar=(y == 1)"
            )
    return [None if value is None else as_number(value) == 1.0 for value in values]


def read_booleans(similar: Any, n: int) -> Bools:
    """Answers to "similar?" of n pairs, shape (n,).

    Raises
    ------
    InputError
        As `read_answers`, and where one is missing.
    """
    answers = read_answers(similar, n)
    if None in answers:
        raise InputError(
            f"similar has None or NaN in row {answers.index(None)}: drop such pairs from X1, X2 "
            "and similar"
        )
    return np.array(answers, dtype=bool)


def _read_label(value: Any, row: int) -> Label:
    if isinstance(value, int) and abs(value) > LARGEST_LABEL:
        raise InputError(
            f"the label of row {row} is an integer of {value.bit_length()} bits; at most 1000 are "
            "allowed: use strings"
        )
    for kind in (str, bool, int, float):
        if isinstance(value, kind):
            return value if type(value) is kind else kind(value)  # an enum of str is its text
    raise InputError(
        f"the label of row {row} is a {type(value).__name__}; labels must be strings, numbers or "
        "booleans, or None if unknown"
    )


def read_hashable_labels(y: Any, n: int) -> list[Hashable | None]:
    """n labels of any kind that can be a key; None where one is null or NaN.

    Raises
    ------
    InputError
        No labels, of another length, or one that cannot be a key.
    """
    keys: list[Hashable | None] = to_list(y, n, "y")
    for key in keys:
        try:
            hash(key)
        except TypeError as error:
            raise InputError(f"the label {quote(key)} is not hashable: {error}") from error
    return keys


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
    return (bool, label) if isinstance(label, bool) else label


@dataclass(frozen=True, slots=True, eq=False)
class LabelIndex:
    """Which label has which class index; a value, like everything that an engine remembers."""

    # Labels in the order of their first events: the index is that of the class. Those of an engine
    # are plain values, those of an estimator anything that can be a key.
    known: tuple[Label, ...] = ()
    unlearned: Count = 0  # events so far with another label
    # Of the known ones, by `label_key`; made of them where it is not given.
    index: Mapping[Hashable, int] = field(default_factory=dict, repr=False, metadata=NOT_SAVED)

    def __post_init__(self) -> None:
        """Make the index."""
        if len(self.index) != len(self.known):
            index = {label_key(label): i for i, label in enumerate(self.known)}
            object.__setattr__(self, "index", index)

    def encode_labels(
        self, labels: Sequence[Any], most: int = LARGEST_CLASSES
    ) -> tuple[Ints, LabelIndex]:
        """Indices, shape (n,), and the labels known from now on.

        `UNKNOWN` for None, and for a new label where there are ``most`` already.
        """
        indices = np.full(len(labels), UNKNOWN, dtype=np.int64)
        known, unlearned, index = self.known, self.unlearned, self.index
        for i, label in enumerate(labels):
            if label is None:
                continue
            key = label_key(label)
            if key not in index:
                if len(known) >= most:
                    unlearned += 1
                    continue
                index = {**index, key: len(known)}
                known = (*known, label)
            indices[i] = index[key]
        return indices, LabelIndex(known, unlearned, index)

    def merge(self, other: LabelIndex) -> tuple[Ints, LabelIndex]:
        """Indices here of the other's classes, and the labels of both, however many these are."""
        indices, joined = self.encode_labels(other.known, len(self.known) + len(other.known))
        return indices, replace(joined, unlearned=self.unlearned + other.unlearned)
