"""Pairs told apart by an embedding: draws, thresholds, judgements."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamembed.pairs import thresholds
from streamembed.pairs.thresholds import DrawnPairs


def cloud(seed: int, n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates in 2, points in 3 features."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((n, 3))
    return points[:, :2] + 0.1 * rng.standard_normal((n, 2)), points


def draw(
    coordinates: np.ndarray, points: np.ndarray, candidates: int = 500, **options: float
) -> DrawnPairs:
    return thresholds.draw_pairs(
        coordinates, points, candidates, np.random.default_rng(3), **options
    )


@given(seed=st.integers(0, 10**6), grid=st.booleans(), by_hand=st.booleans())
def test_the_rule_pair_by_pair(seed: int, grid: bool, by_hand: bool) -> None:
    """Different pairs that differ in both spaces, beyond percentiles of all that were drawn."""
    coordinates, points = cloud(seed)
    if grid:
        coordinates, points = np.round(coordinates), np.round(points)
    limits = {"similar_below": 0.5, "dissimilar_above": 4.0} if by_hand else {}
    found = draw(coordinates, points, **limits)
    drawn = {}
    rng = np.random.default_rng(3)
    lefts, rights = rng.integers(0, 60, 500).tolist(), rng.integers(0, 59, 500).tolist()
    for left, right in zip(lefts, rights, strict=True):
        ends = tuple(sorted((left, right + (right >= left))))
        d2 = float(np.sum((coordinates[ends[0]] - coordinates[ends[1]]) ** 2))
        if d2 > 0 and (points[ends[0]] != points[ends[1]]).any():
            drawn[ends] = d2
    low, high = (0.5, 4.0) if by_hand else np.percentile(list(drawn.values()), [5, 95])
    wanted = {ends: d2 <= low for ends, d2 in drawn.items() if d2 <= low or d2 >= high}
    if not low < high:
        wanted = {}
    ends = zip(found.left.tolist(), found.right.tolist(), strict=True)
    assert dict(zip(ends, found.similar.tolist(), strict=True)) == wanted
    np.testing.assert_allclose([found.similar_below, found.dissimilar_above], [low, high])


def test_scale_and_rotation_of_the_embedding_change_nothing() -> None:
    coordinates, points = cloud(0)
    turn, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((2, 2)))
    plain, turned = draw(coordinates, points), draw(1e-9 * coordinates @ turn, points)
    np.testing.assert_array_equal(plain.left, turned.left)
    np.testing.assert_array_equal(plain.similar, turned.similar)
    np.testing.assert_allclose(turned.d2, 1e-18 * plain.d2, rtol=1e-9)


@pytest.mark.parametrize("n", [0, 1, 2, 40])
def test_what_cannot_be_told_apart_is_no_pair(n: int) -> None:
    """Fewer than two points, equal points, equal coordinates, thresholds that meet."""
    coordinates, points = cloud(0, n)
    one = np.ones((n, 2))
    assert not len(draw(one, points))
    assert not len(draw(coordinates, np.ones((n, 3))))
    line = np.arange(n)[:, None] % 2 * np.ones((1, 2))  # all distances are 0, or equal
    assert not len(draw(line, points))
    if n < 3:
        assert not len(draw(coordinates, points))


def test_weighted() -> None:
    """(lambda / lambda_1)^t psi; negative eigenvalues count as 0, none as they are."""
    psi = np.array([[1.0, 2.0, 3.0]])
    weighted = thresholds.weight_columns(psi, np.array([0.5, 0.25, -0.1]), 2.0)
    np.testing.assert_allclose(weighted, [[1.0, 0.5, 0.0]])
    assert thresholds.weight_columns(psi, np.array([0.5, 0.25, -0.1]), None) is psi
    assert thresholds.weight_columns(psi, np.array([0.0, 0.0, 0.0])) is psi
