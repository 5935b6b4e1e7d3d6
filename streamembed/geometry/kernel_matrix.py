"""The weighted graph on the support: kernel rows of its slots, kept as a dense ring.

A `Graph` is a value: what it holds never changes. Its rows lie in a ring that is written in place
(docs/decisions/0002), because copying 16 MB for every chunk would cost more than the whole update.
`Graph.write` gives the next graph on the same ring. What it overwrites goes into a journal first,
so that the graph before it is still whole if the next one is never used, wherever the work on it
was broken off: whoever reads that graph puts the rows back.

Symbols: W = kernel matrix, m = masses, q = W m = degrees. W has ones on its diagonal, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamembed.numeric.arrays import Array, Ints

__all__ = [
    "FLOAT32_ABOVE",
    "LARGEST_SUPPORT",
    "Graph",
    "most_slots",
    "ring_dtype",
    "rounding_norm",
]

# A ring of up to 256 slots in float64 (0.5 MB) stays in the cache, where float32 saves little;
# above it the products are bound by memory and float32 halves them (docs/benchmarks.md).
FLOAT32_ABOVE = 256
# The rounding of a float32 ring, 5e-5, is a 20th of this tolerance.
FLOAT32_TOLERANCE = 1e-3
# Terms that a product adds up one by one, at most: BLAS takes them in blocks of up to 384.
LONGEST_SUM = 384
# A weight of exp(-x) is off by about x / 2 times the precision: 17 in a row of S that counts.
WEIGHTS = 24
# A support of 20,000 slots has a float32 ring of 1.6 GB.
LARGEST_SUPPORT = 20_000
# A ring that grows has room for more slots than are in use: twice as many, and some at the start.
SPARE = 1024


def ring_dtype(capacity: int, tolerance: float | None = None) -> npt.DTypeLike:
    """The dtype of a ring of ``capacity`` slots: float64 up to 256, then float32.

    For a ``tolerance`` below 1e-3 it is float64 whatever the capacity: `rounding_norm` of a float32
    ring would use up too much of it.
    """
    tight = tolerance is not None and tolerance < FLOAT32_TOLERANCE
    return np.float32 if capacity > FLOAT32_ABOVE and not tight else np.float64


def rounding_norm(dtype: npt.DTypeLike, n: int) -> float:
    """By how much the S of a ring of n slots may differ in norm from that of exact weights.

    A sum of c terms may be off by c / 2 times the precision, relative to the sum of their absolute
    values: so much for the normalisation, and as much for a product with S. Exponents and
    exponentials of weights that matter lose `WEIGHTS` times it.
    """
    terms = min(n, LONGEST_SUM) + n / LONGEST_SUM
    return (terms + WEIGHTS) * float(np.finfo(dtype).eps)


def most_slots(n: int, size: int) -> int:
    """The most slots that a ring with n in use has room for, where a full support has ``size``."""
    return max(size, 4 * n + SPARE)


@dataclass(frozen=True, slots=True, eq=False)
class _Journal:
    """Which graph the ring belongs to, and the way back to the one before.

    Attributes
    ----------
    now, before : object
        Names of graphs; ``before`` is None where there is no way back.
    slots, rows : (b,), (b, n)
        What the graph before has in the slots that were written.
    """

    now: object
    before: object | None
    slots: Ints
    rows: Array


@dataclass(slots=True, eq=False)
class _Ring:
    """What is written in place: the buffer, after its journal."""

    buffer: Array
    journal: _Journal


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """What is kept of a graph: a copy of W, shape (n, n), and the slots that there is room for."""

    weights: Array
    capacity: int


class Graph:
    """Kernel rows of the slots in use: a value, though graphs that follow one another share a ring.

    Attributes
    ----------
    n : int
        Slots in use.
    capacity : int
        Slots that there is room for.
    """

    __slots__ = ("_name", "_ring", "capacity", "n")

    def __init__(self, ring: _Ring, name: object, n: int, capacity: int) -> None:
        """Use `empty` or `of`; a graph after the first comes from `write`."""
        self._ring = ring
        self._name = name
        self.n = n
        self.capacity = capacity

    @classmethod
    def empty(cls, capacity: int, dtype: npt.DTypeLike) -> Graph:
        """A graph without slots, with room for ``capacity`` of them."""
        return cls._on(np.zeros((capacity, capacity), dtype=dtype), 0)

    @classmethod
    def of(cls, weights: Array, capacity: int) -> Graph:
        """A graph that holds a copy of ``weights`` (n, n), with room for ``capacity`` slots."""
        n = len(weights)
        buffer = np.zeros((max(capacity, n),) * 2, dtype=weights.dtype)
        buffer[:n, :n] = weights
        return cls._on(buffer, n)

    @classmethod
    def _on(cls, buffer: Array, n: int) -> Graph:
        name = object()
        return cls(_Ring(buffer, _settle(name)), name, n, len(buffer))

    @property
    def buffer(self) -> Array:
        """The ring: ``buffer[:n, :n]`` is W; the rest is not meaningful."""
        if self._ring.journal.now is not self._name:
            self._put_back()
        return self._ring.buffer

    @property
    def weights(self) -> Array:
        """W, shape (n, n): a view of the buffer."""
        return self.buffer[: self.n, : self.n]

    def product(self, block: Array) -> Array:
        """W @ block, in the ring's own precision. O(n^2 m), least per column for m = 4, 8, 16.

        Columns of zeros fill a block up to a multiple of 4: a product of 8 costs a quarter less
        than one of 6.
        """
        dtype, m = self._ring.buffer.dtype, block.shape[1]
        filled = block.astype(dtype, copy=False)
        if m > 1 and m % 4:
            filled = np.zeros((len(block), m + -m % 4), dtype=dtype)
            filled[:, :m] = block
        result: Array = self.weights @ filled
        return result[:, :m]

    def rows(self, slots: Ints) -> Array:
        """A copy of the kernel rows of ``slots``, shape (b, n)."""
        return self.buffer[slots, : self.n]

    def write(self, slots: Ints, rows: Array) -> Graph:
        """The graph with kernel rows put into slots, as rows and as columns.

        This graph can be read until the next one is settled, but reading it is the end of the
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
        after = Graph(ring, object(), n, capacity)
        ring.journal = _Journal(after._name, self._name, old, leaving)  # before the first byte
        ring.buffer[slots, :n] = rows
        ring.buffer[:n, slots] = rows.T
        return after

    def settle(self) -> None:
        """Forget the way back: from now on only this graph can be read, and the next ones."""
        if self._ring.journal.now is not self._name:
            self._put_back()
        self._ring.journal = _settle(self._name)

    def copy(self) -> Graph:
        """The same graph on a ring of its own."""
        return Graph.of(self.weights, self.capacity)

    def __pack__(self) -> Rows:
        """A copy, for the next chunk will be written into the ring."""
        return Rows(self.weights.copy(), self.capacity)

    @classmethod
    def __unpack__(cls, kept: Rows) -> Graph:
        """On a ring of its own; ValueError for one that no support needs."""
        if not 0 <= kept.capacity <= most_slots(len(kept.weights), LARGEST_SUPPORT):
            raise ValueError(f"{kept.capacity} slots for {len(kept.weights)} rows")
        return cls.of(kept.weights, kept.capacity)

    def _put_back(self) -> None:
        """Make the ring this graph's again, where the next one was broken off.

        The rows are put back before the journal says so: broken off itself, it is done again.
        """
        journal = self._ring.journal
        if journal.before is not self._name:
            raise RuntimeError("this graph has been overwritten: use its successor")
        self._ring.buffer[journal.slots, : self.n] = journal.rows
        self._ring.buffer[: self.n, journal.slots] = journal.rows.T
        self._ring.journal = _settle(self._name)


def _settle(name: object) -> _Journal:
    """A journal without a way back."""
    return _Journal(name, None, np.zeros(0, dtype=np.int64), np.zeros((0, 0)))
