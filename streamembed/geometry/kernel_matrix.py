"""The matrix of learned distances: rows of its slots, in a dense ring.

A `KernelMatrix` is a value: its content never changes. Its rows lie in a ring that is written in
place (docs/decisions.md), because copying it for every chunk would cost more than the whole
update. `KernelMatrix.write` gives the next matrix on the same ring. What it overwrites goes into a
journal first, so that the previous matrix is still whole if the next one is never used, wherever
the work on it was interrupted: reading the previous matrix rolls the rows back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from streamembed.numeric.arrays import Array, Ints
from streamembed.numeric.codec import Count

# A ring of up to 256 slots in float64 (0.5 MB) stays in the cache, where float32 saves little;
# above it the products are bound by memory and float32 halves them.
FLOAT32_ABOVE = 256
# The rounding of a float32 ring, 5e-5, is a 20th of this tolerance.
FLOAT32_TOLERANCE = 1e-3
# Of 20,000 slots, a float32 ring of distances takes 1.6 GB, and paths between all of them 3.2.
LARGEST_SUPPORT = 20_000
# A ring that grows has more slots than are in use: twice as many, and some at the start.
SPARE = 1024


def choose_dtype(capacity: int, tolerance: float | None = None) -> npt.DTypeLike:
    """The dtype of a ring of ``capacity`` slots: float64 up to 256, then float32.

    For a ``tolerance`` below 1e-3 it is float64 whatever the capacity: `bound_rounding` of a
    float32 ring would use up too much of it.
    """
    tight = tolerance is not None and tolerance < FLOAT32_TOLERANCE
    return np.float32 if capacity > FLOAT32_ABOVE and not tight else np.float64


@dataclass(frozen=True, slots=True, eq=False)
class _Journal:
    """Which matrix the ring belongs to, and how to roll it back to the previous one."""

    # Identities of matrices; ``previous`` is None where there is no way back.
    current: object
    previous: object | None
    # (b,), (b, n): the previous matrix's rows of the slots that were written.
    slots: Ints
    rows: Array


@dataclass(slots=True, eq=False)
class _RingBuffer:
    """The buffer that is written in place, after its journal."""

    buffer: Array
    journal: _Journal


@dataclass(frozen=True, slots=True, eq=False)
class SavedKernelMatrix:
    """The saved form of a matrix: a copy of W, shape (n, n), and the capacity in slots."""

    weights: Annotated[Array, "slots slots", "float32 or float64"]
    capacity: Count


class KernelMatrix:
    """Kernel rows of the slots in use: a value, though successive matrices share a ring.

    Attributes
    ----------
    n : int
        Slots in use.
    capacity : int
        Slots of the ring.
    """

    __slots__ = ("_name", "_ring", "capacity", "n")

    def __init__(self, ring: _RingBuffer, name: object, n: int, capacity: int) -> None:
        """Use `empty` or `of`; a matrix after the first comes from `write`."""
        self._ring = ring
        self._name = name
        self.n = n
        self.capacity = capacity

    @classmethod
    def empty(cls, capacity: int, dtype: npt.DTypeLike) -> KernelMatrix:
        """A matrix without slots, on a ring of ``capacity`` slots."""
        return cls._on(np.zeros((capacity, capacity), dtype=dtype), 0)

    @classmethod
    def of(cls, weights: Array, capacity: int) -> KernelMatrix:
        """A matrix with a copy of ``weights`` (n, n), on a ring of ``capacity`` slots."""
        n = len(weights)
        buffer = np.zeros((max(capacity, n),) * 2, dtype=weights.dtype)
        buffer[:n, :n] = weights
        return cls._on(buffer, n)

    @classmethod
    def _on(cls, buffer: Array, n: int) -> KernelMatrix:
        name = object()
        return cls(_RingBuffer(buffer, _start_journal(name)), name, n, len(buffer))

    @property
    def buffer(self) -> Array:
        """The ring: ``buffer[:n, :n]`` is W; the rest is not meaningful."""
        if self._ring.journal.current is not self._name:
            self._roll_back()
        return self._ring.buffer

    @property
    def weights(self) -> Array:
        """W, shape (n, n): a view of the buffer."""
        return self.buffer[: self.n, : self.n]

    def rows(self, slots: Ints) -> Array:
        """A copy of the kernel rows of ``slots``, shape (b, n)."""
        return self.buffer[slots, : self.n]

    def with_rows(self, slots: Ints, rows: Array) -> KernelMatrix:
        """The matrix with kernel rows written into slots, as rows and as columns.

        This matrix can be read until the next one is committed, but reading it invalidates the
        next one.

        Parameters
        ----------
        slots
            Shape (b,), distinct; those from n on are new and must follow n without a hole.
        rows
            Shape (b, n'), n' the number of slots in use afterwards, symmetric between ``slots``.
        """
        n, ring = rows.shape[1], self._ring
        old = slots[slots < self.n]
        leaving = self.rows(old)
        capacity = self.capacity if n <= self.capacity else max(2 * self.capacity, n)
        if capacity > len(ring.buffer):  # only where the memory is "all"
            larger = np.zeros((capacity, capacity), dtype=ring.buffer.dtype)
            larger[: self.n, : self.n] = self.weights
            ring.buffer = larger
        following = KernelMatrix(ring, object(), n, capacity)
        ring.journal = _Journal(following._name, self._name, old, leaving)  # before the first byte
        ring.buffer[slots, :n] = rows
        ring.buffer[:n, slots] = rows.T
        return following

    def commit(self) -> None:
        """Discard the journal: from now on only this matrix can be read, and the next ones."""
        if self._ring.journal.current is not self._name:
            self._roll_back()
        self._ring.journal = _start_journal(self._name)

    def copy(self) -> KernelMatrix:
        """The same matrix on its own ring."""
        return KernelMatrix.of(self.weights, self.capacity)

    def __pack__(self) -> SavedKernelMatrix:
        """A copy, for the next chunk will be written into the ring."""
        return SavedKernelMatrix(self.weights.copy(), self.capacity)

    @classmethod
    def __unpack__(cls, packed: SavedKernelMatrix) -> KernelMatrix:
        """On its own ring; ValueError for a capacity that no support needs."""
        if not 0 <= packed.capacity <= max(LARGEST_SUPPORT, 4 * len(packed.weights) + SPARE):
            raise ValueError(f"{packed.capacity} slots for {len(packed.weights)} rows")
        return cls.of(packed.weights, packed.capacity)

    def _roll_back(self) -> None:
        """Make the ring this matrix's again, where work on the next one was interrupted.

        The rows are written before the journal is reset: if interrupted itself, it runs again.
        """
        journal = self._ring.journal
        if journal.previous is not self._name:
            raise RuntimeError("this matrix has been overwritten: use its successor")
        self._ring.buffer[journal.slots, : self.n] = journal.rows
        self._ring.buffer[: self.n, journal.slots] = journal.rows.T
        self._ring.journal = _start_journal(self._name)


def _start_journal(name: object) -> _Journal:
    """An empty journal, by which nothing can be rolled back yet."""
    return _Journal(name, None, np.zeros(0, dtype=np.int64), np.zeros((0, 0)))
