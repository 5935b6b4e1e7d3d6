"""Widths of their own: the rule and its guards, drift, and numbers at the ends of the doubles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from streamembed.geometry import self_tuning
from streamembed.geometry.lists import NeighborLists
from streamembed.geometry.pairwise import PointDistances
from streamembed.geometry.self_tuning import LARGEST_WIDTH, LocalWidths, WidthRule
from tests.oracles import oracle

# A width is raised by halvings of an interval of its logarithm: known to 1e-6.
HALVED = 2e-6


def listed(points: np.ndarray, rule: WidthRule) -> NeighborLists:
    """The nearest that differ."""
    geometry, arrivals = PointDistances(points), np.arange(len(points))
    return NeighborLists.build(geometry, arrivals, rule.n_neighbors, is_distinct=True)


def placed(points: np.ndarray, rule: WidthRule) -> LocalWidths:
    """The scales of so many points, all placed at once."""
    n = len(points)
    arrivals = np.arange(n)
    lists = listed(points, rule)
    d2 = cdist(points, points, "sqeuclidean")
    return self_tuning.fill_widths(
        LocalWidths.empty(), arrivals, lists, lambda slots: d2[slots], rule
    )


def cloud(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, 3))


def outliers(n: int) -> np.ndarray:
    """A cloud, one point at a thousand deviations and one at a hundred."""
    points = cloud(n)
    points[n // 3], points[n // 2] = 1e3, -1e2
    return points


def copies(n: int) -> np.ndarray:
    """A third are one point."""
    points = cloud(n)
    points[::3] = 0.3
    return points


def lattice(n: int) -> np.ndarray:
    """Ties, and many duplicates."""
    return np.random.default_rng(1).integers(0, 4, (n, 2)).astype(float)


def tight(n: int) -> np.ndarray:
    """A tenth within a millionth of the others' spread."""
    points = cloud(n)
    points[: n // 10] *= 1e-6
    return points


KINDS = {"cloud": cloud, "outliers": outliers, "copies": copies, "lattice": lattice, "tight": tight}


# ---------------------------------------------------------------- the rule


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [4, 25, 31, 150])
@pytest.mark.parametrize("rule", [WidthRule(15, 2.0), WidthRule(1, 0.5), WidthRule(40, 4.0)])
def test_widths_are_those_of_the_definition(kind: str, n: int, rule: WidthRule) -> None:
    """Reach, floor and guard, of supports of any size; of one tile, which is raised at once."""
    points = KINDS[kind](n)
    expected = oracle.self_tuning_widths(cdist(points, points), rule.n_neighbors, rule.width)
    found = placed(points, rule)
    np.testing.assert_allclose(found.widths, expected, rtol=HALVED)


@pytest.mark.parametrize("kind", KINDS)
def test_every_point_has_neighbours(kind: str) -> None:
    """Weights of k / 2 to others at least, in supports of several tiles too."""
    rule, points = WidthRule(15, 2.0), KINDS[kind](700)
    widths = placed(points, rule).widths
    weights = np.exp(-(cdist(points, points) ** 2) / (2.0 * np.outer(widths, widths)))
    assert (weights.sum(axis=1) - 1.0).min() >= 7.5 * (1 - 1e-12)
    # and none is raised for nothing
    raised = widths > placed(points, rule).bases
    assert raised.mean() < 0.05


@settings(max_examples=30, deadline=None)
@given(st.integers(3, 60), st.integers(1, 80), st.integers(-140, 140), st.integers(0, 9999))
def test_the_unit_does_not_matter(n: int, k: int, power: int, seed: int) -> None:
    """Distances in another unit: widths in that unit, to the last bits, over 280 decades."""
    points, rule = np.round(cloud(n, seed), 1), WidthRule(k, 2.0)
    plain, scaled = placed(points, rule), placed(points * 10.0**power, rule)
    if plain.median == 0.0:
        return
    np.testing.assert_allclose(scaled.widths / 10.0**power, plain.widths, rtol=HALVED)


# ---------------------------------------------------------------- in a stream


def test_only_what_is_filled_changes() -> None:
    """Other widths are frozen; the median moves by a hundredth of the way."""
    rule, points = WidthRule(15, 2.0), cloud(120)
    before = placed(points, rule)
    points[[3, 50]] *= 4.0
    d2 = cdist(points, points, "sqeuclidean")
    slots, lists = np.array([3, 50]), listed(points, rule)
    after = self_tuning.fill_widths(before, slots, lists, lambda s: d2[s], rule)
    others = np.setdiff1d(np.arange(120), slots)
    np.testing.assert_array_equal(after.widths[others], before.widths[others])
    reaches = lists.reaches[slots]
    np.testing.assert_array_equal(after.bases[slots], reaches)
    assert after.median == pytest.approx(0.99 * before.median + 0.01 * reaches.mean())


NONE = np.zeros(0, dtype=np.int64)


def frozen(bases: np.ndarray, median: float = 0.0) -> LocalWidths:
    """Widths of which only the bases matter."""
    return LocalWidths(bases, np.ones(len(bases)), median)


def test_what_has_drifted_is_refilled_the_worst_first() -> None:
    """Either way, no more than asked for, and none that is filled anyway."""
    was, now = frozen(np.ones(4)), np.array([1.51, 0.5, 0.6, 1.49])
    assert self_tuning.find_drifted(was, now, NONE, 25).tolist() == [1, 2, 0]
    assert self_tuning.find_drifted(was, now, NONE, 2).tolist() == [1, 2]
    assert self_tuning.find_drifted(was, now, NONE, 0).tolist() == []
    assert self_tuning.find_drifted(was, now, np.array([1]), 25).tolist() == [2, 0]
    many = self_tuning.find_drifted(frozen(np.ones(99)), np.full(99, 9.0), NONE, 99)
    assert len(many) == 25


# ---------------------------------------------------------------- at the ends of the doubles


def test_a_width_that_cannot_be_enough_is_finite() -> None:
    """A point so far off that its width, times that of others, leaves the doubles."""
    d2, widths = np.full((1, 40), 1e300), np.full(40, 1e-150)
    found = self_tuning.raise_widths(np.ones(1), d2, widths, WidthRule(15, 2.0))
    assert found.tolist() == [LARGEST_WIDTH]
    assert np.isfinite(self_tuning.weigh(d2, found, widths, 1e6)).all()
