"""Counts of eigenvalues above a value, and what they say of a block, against dense counts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from streamembed.geometry.neighbors import find_nearest
from streamembed.spectral import block, neighbor_walk
from streamembed.spectral.inertia import count_above, count_missing
from tests.spectral import walks


def roll(rng: np.random.Generator, n: int) -> np.ndarray:
    t = 1.5 * np.pi * (1 + 2 * rng.random(n))
    return np.stack([t * np.cos(t), 21 * rng.random(n), t * np.sin(t)], axis=1)


def walk_of(points: np.ndarray, weights: str = "binary") -> neighbor_walk.Walk:
    d2, near = find_nearest(points, 10)
    return walks.walk_on_lists(near, d2, weights)


@pytest.mark.parametrize("weights", ["binary", "self_tuning"])
@pytest.mark.parametrize("d", [3, 12])
def test_counts_are_those_of_a_dense_solve(weights: str, d: int) -> None:
    """At 20 cuts of the spectrum, bottom to top: never wrong, and decided in its upper half."""
    rng = np.random.default_rng(d)
    points = roll(rng, 500) if d == 3 else rng.normal(size=(500, d))
    operator = walk_of(points, weights).operator
    values = np.linalg.eigvalsh(operator.toarray())
    for x in np.linspace(values[0] - 0.01, 1.01, 20):
        assert np.abs(values - x).min() > 1e-6
        found = count_above(operator, float(x))
        assert found == int((values > x).sum()) or (found is None and x < 0.5)


def test_a_count_that_needs_pivots_is_none() -> None:
    """Two points and their edge at x = 0: the first pivot is 0."""
    assert count_above(csr_array([[0.0, 1.0], [1.0, 0.0]]), 0.0) is None


@pytest.mark.parametrize("lost", [0, 3, 8, 9])
def test_a_column_that_was_swapped_for_the_next_is_missed(lost: int) -> None:
    """One true column of ten is replaced by the eleventh: missed is 1; with all of them it is 0."""
    walk = walk_of(np.random.default_rng(0).normal(size=(600, 6)))
    values, vectors = np.linalg.eigh(walk.operator.toarray())
    values, vectors = values[::-1][1:12], vectors[:, ::-1][:, 1:12]
    allowance = min(3e-3, 0.5 * float(values[9] - values[10]))
    whole = count_missing(walk.operator, values[:10], 1, 1e-10, allowance)
    assert whole.missed == 0
    assert values[whole.covered - 1] > whole.cut > values[whole.covered]
    swapped = np.delete(values, lost)
    assert count_missing(walk.operator, swapped, 1, 1e-10, allowance).missed == 1


def test_a_block_without_one_of_its_columns_says_so() -> None:
    """As a block would come: with the residuals of one round, and parts that are deflated."""
    rng = np.random.default_rng(1)
    centres = 30.0 * rng.normal(size=(3, 5))
    walk = walk_of(centres[rng.integers(0, 3, 600)] + rng.normal(size=(600, 5)))
    parts = neighbor_walk.find_parts(walk)
    assert parts.count == 3
    held, _ = block.start(walk, parts, 10, 1e-3, 0)
    found = block.select_pairs(held, walk, parts, 10)
    error = float(np.sqrt(np.linalg.norm(found.products, 2)))
    assert count_missing(walk.operator, found.values, 1, error, 3e-3).missed == 0
    less = np.delete(found.values, 4)
    assert count_missing(walk.operator, less, 1, error, 3e-3).missed == 1


def test_more_parts_than_columns_leave_nothing_to_miss() -> None:
    """No eigenvalue is above 1."""
    walk = walk_of(np.repeat(100.0 * np.arange(20), 30)[:, None] + np.arange(600)[:, None] % 7)
    assert count_missing(walk.operator, np.ones(3), 1, 0.0, 3e-3).missed == 0


def test_a_cut_too_near_to_an_inexact_column_cannot_be_told() -> None:
    """An eigenvalue above the cut may be that of a column whose value is still too small."""
    walk = walk_of(np.random.default_rng(0).normal(size=(300, 3)))
    values = np.linalg.eigvalsh(walk.operator.toarray())[::-1][1:6].copy()
    values[-1] -= 0.02
    assert count_missing(walk.operator, values[3:], 4, 0.1, 0.01).missed is None
