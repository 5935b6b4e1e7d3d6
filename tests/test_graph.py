"""The kernel ring: one mutation, and its undoing."""

from __future__ import annotations

import numpy as np

from streamembed.core.graph import FLOAT32_ABOVE, Graph, ring_dtype


def rows_for(n: int, slots: np.ndarray, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).random((len(slots), n))
    rows[:, slots] = 0.5 * (rows[:, slots] + rows[:, slots].T)
    return rows


def test_rows_are_written_as_rows_and_columns() -> None:
    """After a write the ring is symmetric and holds the rows."""
    graph = Graph.empty(8, np.float64)
    first = np.arange(5)
    graph.write(first, rows_for(5, first, 0))
    slots = np.array([1, 3])
    rows = rows_for(5, slots, 1)
    graph.write(slots, rows)
    np.testing.assert_array_equal(graph.weights, graph.weights.T)
    np.testing.assert_array_equal(graph.rows(slots), rows)


def test_a_write_can_be_undone() -> None:
    """Restoring gives back every byte, also where the write had brought new slots."""
    graph = Graph.empty(8, np.float64)
    first = np.arange(5)
    graph.write(first, rows_for(5, first, 0))
    before = graph.weights.copy()
    for slots in (np.array([0, 4]), np.array([4, 5, 6])):
        n = max(5, int(slots.max()) + 1)
        old = graph.write(slots, rows_for(n, slots, 2))
        graph.restore(slots, old)
        assert graph.n == 5
        np.testing.assert_array_equal(graph.weights, before)


def test_the_buffer_grows_by_doubling() -> None:
    """More slots than capacity: the old ones are kept."""
    graph = Graph.empty(4, np.float64)
    first = np.arange(4)
    graph.write(first, rows_for(4, first, 0))
    before = graph.weights.copy()
    slots = np.array([4, 5])
    graph.write(slots, rows_for(6, slots, 1))
    assert len(graph.buffer) == 8
    np.testing.assert_array_equal(graph.weights[:4, :4], before)


def test_small_rings_are_float64() -> None:
    """The threshold of the precision is the one that is documented."""
    assert ring_dtype(FLOAT32_ABOVE) is np.float64
    assert ring_dtype(FLOAT32_ABOVE + 1) is np.float32
