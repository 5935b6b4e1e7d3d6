"""Distances, affinities and the bandwidth rule."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from streamembed.geometry import kernel
from streamembed.numeric import linalg


def bandwidth_of(d: np.ndarray) -> float:
    return kernel.choose_bandwidth(lambda slots: d[slots], len(d))


def test_squared_distances_equal_the_definition() -> None:
    """The expanded form agrees with differences taken one by one."""
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((30, 5)), rng.standard_normal((40, 5))
    truth = cdist(left, right, "sqeuclidean")
    np.testing.assert_allclose(linalg.squared_distances(left, right), truth, atol=1e-13)


def test_large_offsets_do_not_cancel() -> None:
    """At an offset of 1e8 the expanded form would be off by ten; differences are taken instead."""
    rng = np.random.default_rng(1)
    points = rng.standard_normal((20, 3)) + 1e8
    truth = cdist(points, points, "sqeuclidean")
    np.testing.assert_allclose(linalg.squared_distances(points, points), truth, rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_bandwidth_scales_with_the_data(scale: float) -> None:
    """Twice the distances, twice the bandwidth."""
    points = np.random.default_rng(3).standard_normal((60, 4))
    d = cdist(points, points)
    assert bandwidth_of(scale * d) == pytest.approx(scale * bandwidth_of(d))


def test_the_bandwidth_survives_duplicates() -> None:
    """Mostly duplicates: the median of the positive distances; all equal: 1."""
    points = np.zeros((50, 2))
    points[:5] = np.arange(10).reshape(5, 2)
    assert bandwidth_of(cdist(points, points)) > 0
    assert bandwidth_of(np.zeros((50, 50))) == 1.0
    assert bandwidth_of(np.array([[0.0, 3.0], [3.0, 0.0]])) == 3.0
