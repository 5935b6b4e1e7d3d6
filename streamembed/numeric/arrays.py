"""Array types of the whole package, and the one way to freeze an array."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

# Not NDArray: from NumPy 2.5 on its origin is no class, and the codec reads these types.
Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]
Floats = np.ndarray[tuple[Any, ...], np.dtype[np.float64]]
Ints = np.ndarray[tuple[Any, ...], np.dtype[np.int64]]
Bools = np.ndarray[tuple[Any, ...], np.dtype[np.bool_]]

# Of any value that is learned: squares of larger ones, summed over features, leave the doubles.
LARGEST_VALUE = 1e150


def freeze(array: Array) -> Array:
    """Return the same array, read-only from now on.

    Examples
    --------
    >>> import numpy as np
    >>> freeze(np.zeros(3)).flags.writeable
    False
    """
    array.flags.writeable = False
    return array


def pad(array: Array, n: int, fill: float = 0.0, axis: int = 0) -> Array:
    """A copy with n rows, or n columns with axis 1: ``fill`` behind its own."""
    size = array.shape[axis]
    if n == size:
        return array.copy()
    padded = np.full((*array.shape[:axis], n, *array.shape[axis + 1 :]), fill, dtype=array.dtype)
    padded[(slice(None),) * axis + (slice(size),)] = array
    return padded


class Unchanging:
    """A value that never changes: a copy is the value itself."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


def find_last(d2: Floats) -> Floats:
    """The last entry of every list, (n,), that is not inf; 0 of an empty one."""
    last: Floats = d2[:, -1:].sum(axis=1)
    if (is_short := np.isinf(last)).any():
        short = d2[is_short]
        last[is_short] = np.where(np.isfinite(short), short, 0.0).max(axis=1)
    return last
