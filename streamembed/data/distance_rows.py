"""Distance rows in, checked rows out: the only place where distances are inspected.

A row of a stream of objects without coordinates holds the distances to the objects before it,
oldest first. An error of a row names its index in the call, its id and what was expected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamembed.data.values import (
    column_to_floats,
    holds_vectors,
    is_sequence,
    read_lists,
    to_floats,
)
from streamembed.errors import BadRowError, InputError, quote
from streamembed.numeric.arrays import LARGEST_VALUE, Array, Floats

# A square block is symmetric up to what a computation of distances in float32 leaves.
ASYMMETRY = 1e-6


@dataclass(frozen=True, slots=True)
class RowLength:
    """The number of accepted objects that the next row must hold distances to."""

    lengths: tuple[int, ...]  # the valid lengths, the usual one first
    description: str  # what they count, for messages


class DistanceRows:
    """The rows of one call, read one after the other.

    A row counts every earlier row of its call, because the caller cannot know which of them are
    rejected; the distances to those are dropped.
    """

    def __init__(self, rows: list[Floats | None], ids: Array | None, is_square: bool) -> None:
        """Take the rows of `list_rows`, and their ids.

        ``is_square`` says that they were a matrix (n, m + n), m the objects before: distances to
        those and to one another, of which the part on the right must be symmetric with a zero
        diagonal. A row may end with its own distance, 0.
        """
        self._rows = rows
        self.ids = ids
        self._faults: dict[int, str] = {}
        self._is_square = False
        self.rejected_rows: list[int] = []
        if is_square and len(rows) > 1:
            self._check_square_part()

    def __len__(self) -> int:
        return len(self._rows)

    def name(self, index: int) -> str:
        """A row in words."""
        return f"row {index}" if self.ids is None else f"row {index} (id {self.ids[index]!r})"

    def read(self, index: int, required: RowLength) -> tuple[Floats, str | None]:
        """One row as distances to accepted items, (one of the lengths,); or why it cannot be used.

        ``rejected_rows`` must hold the earlier rejected rows, ascending.
        """
        row, fault = self._rows[index], self._faults.get(index)
        if self.ids is not None and self.ids[index] is None:
            fault = "the id is null"
        if row is None or fault is not None:
            return np.zeros(0), fault or "it is null or not a row of numbers"
        spans = [
            (length, self._list_rejected_offsets(index, length)) for length in required.lengths
        ]
        # a row that fits as it is, before one that fits without its own distance
        spans.sort(key=lambda span: span[0] + len(span[1]) != len(row))
        for length, dropped in spans:
            chosen, fault = _trim(row, length + len(dropped), self._is_square)
            if fault is None:
                distances = np.delete(chosen, [len(chosen) - back for back in dropped])
                return distances, _find_wrong_value(distances)
        wanted = required.lengths[0] + len(self._list_rejected_offsets(index, required.lengths[0]))
        expected = required.description
        if wanted > required.lengths[0]:
            expected += f", and {wanted - required.lengths[0]} rejected ones of this call"
        return row, f"it has {len(row)} distances, expected {wanted} ({expected}){fault}"

    def _list_rejected_offsets(self, index: int, length: int) -> list[int]:
        """How far back the rejected rows are that a row to ``length`` accepted objects spans."""
        dropped: list[int] = []
        for earlier in reversed(self.rejected_rows):
            if index - earlier > length + len(dropped):
                break
            dropped.append(index - earlier)
        return dropped

    def _check_square_part(self) -> None:
        """Check the square part of the matrix: symmetric, with a zero diagonal."""
        rows, n = [row for row in self._rows if row is not None], len(self._rows)
        n_before = len(rows[0]) - n if len(rows) == n else -1
        if n_before < 0:
            return
        block = np.array(rows)[:, n_before:]
        with np.errstate(invalid="ignore"):
            asymmetric = np.abs(block - block.T) > ASYMMETRY * np.maximum(
                np.abs(block), np.abs(block.T)
            )
        for i, j in zip(*np.nonzero(np.tril(asymmetric, -1)), strict=True):
            self._faults.setdefault(
                int(i),
                f"its distance to {self.name(int(j))} is {block[i, j]:g}, but {block[j, i]:g} in "
                "the other direction: distances must be symmetric",
            )
        for i in np.flatnonzero(np.diag(block) != 0).tolist():
            self._faults[i] = f"its distance to itself is {block[i, i]:g}; it must be 0"
        self._rows = [row[: n_before + i] for i, row in enumerate(rows)]
        self._is_square = True


def read_support_distances(rows: Any, ids: Array) -> Floats:
    """Distances from n new objects to all objects ``ids``, shape (n, N), checked; inf is unknown.

    Raises
    ------
    BadRowError
        A row of another length, with a distance that is negative or NaN, or with none finite.
    """
    raw = list_rows(rows)
    for i, row in enumerate(raw):
        if row is None or len(row) != len(ids):
            size = "none" if row is None else len(row)
            reason = f"{size} distances for a support of {len(ids)} objects: one for each, in order"
        elif len(wrong := np.flatnonzero(~(row >= 0))):
            name, value = ids.tolist()[wrong[0]], row[wrong[0]]
            reason = f"the distance to object {name!r} is {value:g}; it must not be negative or NaN"
        elif not np.isfinite(row).any():
            reason = "no distance is finite: at least one is needed"
        else:
            continue
        raise BadRowError(f"distance row {i} cannot be used: {reason}", ((i, reason),))
    return np.array(raw, dtype=np.float64).reshape(len(raw), len(ids))


def list_rows(rows: Any) -> list[Floats | None]:
    """Every row as a float64 array, None where it is null or not numeric.

    Rows are a sequence of one-dimensional arrays, an Arrow column of lists, or a matrix; InputError
    for anything else.
    """
    if isinstance(rows, (pa.Array, pa.ChunkedArray)):
        if not holds_vectors(rows.type) and not pa.types.is_null(rows.type):
            raise InputError(
                f"rows is an Arrow array of type {rows.type}; it must hold lists of numbers, one "
                "list per object"
            )
        return read_list_rows(rows)
    if isinstance(rows, memoryview):
        rows = np.asarray(rows)
    is_matrix = isinstance(rows, np.ndarray) and 0 < rows.ndim <= 2
    if not (is_matrix or is_sequence(rows)) or (len(rows) and all(map(np.isscalar, rows))):
        raise InputError(
            f"rows is {quote(rows)}; it must be a sequence of distance rows (for a single object, "
            "[row]), a square matrix or an Arrow column of lists"
        )
    return [read_row(row) for row in rows]


def read_list_rows(column: Any) -> list[Floats | None]:
    """Every list of an Arrow column as a float64 array, None for null, NaN for a null in it."""
    column = read_lists(column)
    ends = np.cumsum(pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False))
    flat = np.array(column_to_floats(column.flatten(), "distances"))
    rows: list[Floats | None] = [*np.split(flat, ends[:-1])] if len(column) else []
    for i in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist():
        rows[i] = None
    return rows


def read_row(row: Any) -> Floats | None:
    """A row as a fresh array, None where it is none; a mask or a null in it is NaN."""
    if not is_sequence(row) and not isinstance(row, (np.ndarray, memoryview)):
        return None
    try:
        values_or_mask = np.asanyarray(row)
    except (TypeError, ValueError, OverflowError, NotImplementedError):
        return None
    if values_or_mask.ndim != 1 or (
        values_or_mask.dtype.kind not in "biufO" and len(values_or_mask)
    ):
        return None
    values, _, strays = to_floats(values_or_mask)
    return values if all(value is None for value in strays) else None


def _trim(row: Floats, length: int, is_square: bool) -> tuple[Floats, str | None]:
    """The row at that length, without its own distance; or what the message must add."""
    if len(row) == length or (is_square and len(row) > length):
        return row[len(row) - length :], None
    if len(row) == length + 1:
        if row[-1] == 0:
            return row[:-1], None
        return row, f"; the extra one would be its own distance, which must be 0 and is {row[-1]:g}"
    return row, ""


def _find_wrong_value(row: Floats) -> str | None:
    """Why these numbers are not distances, or None."""
    if len(row) == 0:
        return None
    if not (row >= 0).all():
        worst = int(np.argmax(~(row >= 0)))
        what = "NaN" if np.isnan(row[worst]) else f"{row[worst]:g}"
        return f"distance {worst} is {what}; distances must not be negative or NaN"
    if row.max() > LARGEST_VALUE:
        worst = int(row.argmax())
        return f"distance {worst} is {row[worst]:g}; it must be finite, at most 1e150"
    return None
