"""The kernel ring: written in place, after its journal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from streamembed.geometry.kernel_matrix import KernelMatrix


def rows_for(n: int, slots: np.ndarray, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).random((len(slots), n))
    rows[:, slots] = 0.5 * (rows[:, slots] + rows[:, slots].T)
    return rows


def test_rows_are_written_as_rows_and_columns() -> None:
    """After a write the ring is symmetric and holds the rows."""
    graph = KernelMatrix.empty(8, np.float64)
    first = np.arange(5)
    graph = graph.with_rows(first, rows_for(5, first, 0))
    slots = np.array([1, 3])
    rows = rows_for(5, slots, 1)
    graph = graph.with_rows(slots, rows)
    np.testing.assert_array_equal(graph.weights, graph.weights.T)
    np.testing.assert_array_equal(graph.rows(slots), rows)


def filled(n: int, capacity: int) -> KernelMatrix:
    slots = np.arange(n)
    graph = KernelMatrix.empty(capacity, np.float64).with_rows(slots, rows_for(n, slots, 0))
    graph.commit()
    return graph


@pytest.mark.parametrize("slots", [[0, 4], [4, 5, 6], [2, 5, 6, 7, 8]])
def test_a_graph_that_is_read_puts_its_rows_back(slots: list[int]) -> None:
    """Every byte, also where the next one had brought new slots and a larger buffer."""
    graph = filled(5, 8)
    before = graph.weights.copy()
    refilled = np.array(slots)
    n = max(5, max(slots) + 1)
    graph.with_rows(refilled, rows_for(n, refilled, 2))
    np.testing.assert_array_equal(graph.weights, before)
    assert (graph.n, graph.capacity) == (5, 8)


class Halfway(np.ndarray):
    """A buffer on which the second of two assignments is interrupted."""

    left = 2

    def __setitem__(self, key: Any, value: Any) -> None:
        type(self).left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        super().__setitem__(key, value)


def test_a_write_that_is_broken_off_is_undone() -> None:
    """Rows are in and columns are not: reading the graph gives its own rows, at the second try."""
    graph = filled(5, 8)
    before = graph.weights.copy()
    graph._ring.buffer = graph._ring.buffer.view(Halfway)
    slots = np.array([1, 4])
    for broken_off in (
        lambda: graph.with_rows(slots, rows_for(5, slots, 2)),
        lambda: graph.weights,
    ):
        Halfway.left = 2
        with pytest.raises(KeyboardInterrupt):
            broken_off()
    Halfway.left = 100
    np.testing.assert_array_equal(np.asarray(graph.weights), before)


def test_a_graph_that_was_overwritten_cannot_be_read() -> None:
    """Once the next one is settled the old one raises, and does not touch what the next one has."""
    graph = filled(5, 8)
    slots = np.array([1, 3])
    following = graph.with_rows(slots, rows_for(5, slots, 1))
    following.commit()
    with pytest.raises(RuntimeError, match="overwritten"):
        graph.rows(np.arange(1))
    np.testing.assert_array_equal(following.rows(slots), rows_for(5, slots, 1))
