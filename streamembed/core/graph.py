"""The weighted graph on the support: kernel rows of its slots, kept as a dense ring, and degrees.

`Graph` is the one object of the core that is written in place (docs/decisions/0002): copying a
16 MB ring for every chunk would cost more than the whole update. `Graph.write` is its only
mutation; it returns what it overwrote, so that the engine can put it back if a later step fails.

Symbols: W = kernel matrix, m = masses, q = W m = degrees. W has ones on its diagonal, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamembed.core.arrays import Array, Ints

__all__ = ["FLOAT32_ABOVE", "Graph", "ring_dtype", "rounding_norm"]

# A ring of up to 256 slots in float64 (0.5 MB) stays in the cache, where float32 saves little;
# above it the products are bound by memory and float32 halves them (docs/benchmarks.md).
FLOAT32_ABOVE = 256
# The rounding of a float32 ring, 4e-6, is a 25th of this tolerance.
FLOAT32_TOLERANCE = 1e-4


def ring_dtype(capacity: int, tolerance: float | None = None) -> npt.DTypeLike:
    """The dtype of a ring of ``capacity`` slots: float64 up to 256, then float32.

    For a ``tolerance`` below 1e-4 it is float64 whatever the capacity: `rounding_norm` of a float32
    ring would use up too much of it.
    """
    tight = tolerance is not None and tolerance < FLOAT32_TOLERANCE
    return np.float32 if capacity > FLOAT32_ABOVE and not tight else np.float64


def rounding_norm(dtype: npt.DTypeLike, n: int) -> float:
    """By how much the S of a ring of n slots may differ in norm from that of exact weights.

    Exponent, exponential, product and normalisation each round; 32 times the precision is twice
    the worst that was measured for up to 2,000 slots (docs/algorithms/certificate.md), and beyond
    that sums of n weights lose the root of n.
    """
    return 32.0 * float(np.finfo(dtype).eps) * max(1.0, float(np.sqrt(n / 2000.0)))


@dataclass(slots=True, eq=False)
class Graph:
    """Kernel rows of the slots in use, in a buffer that may have room for more.

    Attributes
    ----------
    buffer : (capacity, capacity)
        ``buffer[:n, :n]`` is W; the rest is not meaningful.
    n : int
        Slots in use.
    """

    buffer: Array
    n: int

    @classmethod
    def empty(cls, capacity: int, dtype: npt.DTypeLike) -> Graph:
        """A graph without slots, with room for ``capacity`` of them."""
        return cls(np.zeros((capacity, capacity), dtype=dtype), 0)

    @classmethod
    def of(cls, weights: Array, capacity: int) -> Graph:
        """A graph that holds a copy of ``weights`` (n, n), with room for ``capacity`` slots."""
        graph = cls.empty(max(capacity, len(weights)), weights.dtype)
        graph.n = len(weights)
        graph.buffer[: graph.n, : graph.n] = weights
        return graph

    @property
    def weights(self) -> Array:
        """W, shape (n, n): a view of the buffer."""
        return self.buffer[: self.n, : self.n]

    @property
    def rounding(self) -> float:
        """Relative rounding of one product with W."""
        return float(np.finfo(self.buffer.dtype).eps)

    def product(self, block: Array) -> Array:
        """W @ block, in the ring's own precision. O(n^2 m), least per column for m = 4, 8, 16."""
        result: Array = self.weights @ block.astype(self.buffer.dtype, copy=False)
        return result

    def rows(self, slots: Ints) -> Array:
        """A copy of the kernel rows of ``slots``, shape (b, n)."""
        return self.buffer[slots, : self.n]

    def write(self, slots: Ints, rows: Array) -> tuple[int, Array]:
        """Put kernel rows into slots, as rows and as columns; return what stood there.

        Parameters
        ----------
        slots
            Shape (b,), distinct; those from n on are new and must follow n without a hole.
        rows
            Shape (b, n'), n' the number of slots in use afterwards.
        """
        n = rows.shape[1]
        if n > len(self.buffer):
            self._grow(n)
        old = (self.n, self.buffer[slots, :n])
        self.n = n
        self.buffer[slots, :n] = rows
        self.buffer[:n, slots] = rows.T
        return old

    def restore(self, slots: Ints, old: tuple[int, Array]) -> None:
        """Undo `write`, given the same slots and what it returned."""
        n, rows = old
        self.buffer[slots, : rows.shape[1]] = rows
        self.buffer[: rows.shape[1], slots] = rows.T
        self.n = n

    def _grow(self, n: int) -> None:
        """Double the capacity until n slots fit (only where the memory is "all")."""
        capacity = max(2 * len(self.buffer), n)
        buffer = np.zeros((capacity, capacity), dtype=self.buffer.dtype)
        buffer[: self.n, : self.n] = self.weights
        self.buffer = buffer
