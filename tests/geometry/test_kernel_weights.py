"""Weights without a matrix of all: rows and products against dense weights by differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from streamembed.geometry.kernel_weights import LARGEST_LOSS, KernelWeights

EPS = {True: float(np.finfo(np.float32).eps), False: float(np.finfo(np.float64).eps)}


def cloud(n: int, d: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d))


def dense(points: np.ndarray, widths: np.ndarray, factor: float) -> np.ndarray:
    """By differences, each divided by widths before it is squared: no unit overflows."""
    roots = np.sqrt(widths)
    d = np.array([cdist(row[None], points)[0] for row in points])
    return np.exp(-((d / roots / roots[:, None]) ** 2) / factor)


def weigh(
    points: np.ndarray, widths: np.ndarray, factor: float = 2.0, single: bool = True
) -> KernelWeights:
    center = np.median(points, axis=0)
    return KernelWeights(widths, factor, center, single).between_points(points)


def check(weights: KernelWeights, expected: np.ndarray) -> None:
    """Rows of all and of some, symmetric with ones on the diagonal, and a product."""
    n, eps = len(expected), EPS[weights.single]
    # an exponent x is off by x eps besides, and exp(-x) by less than eps
    off = weights.loss + 8 * eps
    rows = weights.rows(np.arange(n))
    assert rows.dtype == weights.dtype
    np.testing.assert_allclose(rows, expected, rtol=0, atol=off)
    np.testing.assert_array_equal(rows, rows.T)
    np.testing.assert_array_equal(np.diag(rows), 1.0)
    slots = np.random.default_rng(1).permutation(n)[:7]
    some = weights.rows(slots)
    np.testing.assert_allclose(some, expected[slots], rtol=0, atol=off)
    np.testing.assert_array_equal(some[:, slots], some[:, slots].T)
    np.testing.assert_array_equal(some[np.arange(len(slots)), slots], 1.0)
    block = np.random.default_rng(2).standard_normal((n, 3))
    image = weights.product(block)
    assert image.dtype == weights.dtype
    # entries are off by so much at most, and sums of n of them by their rounding
    most = (off + 16 * eps * expected) @ np.abs(block)
    assert (np.abs(image - expected @ block) <= most + 1e-300).all()


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("n", [1, 511, 512, 513, 1030])
def test_tiles_are_the_whole_matrix(n: int, single: bool) -> None:
    """One point, and one tile less or more than full."""
    points, widths = cloud(n), np.random.default_rng(3).uniform(2.0, 3.0, n)
    weights = weigh(points, widths, single=single)
    assert weights.columns is not None
    assert weights.columns.dtype == weights.dtype
    check(weights, dense(points, widths, 2.0))


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize(
    ("far", "exact"), [(0.0, True), (30.0, None), (1e6, False), (1e9, False), (1e155, False)]
)
def test_far_points_are_weighed_by_differences(
    far: float, exact: bool | None, single: bool
) -> None:
    """Another cluster so far away, and as many points here: the centre is between the two."""
    points, widths = cloud(80), np.full(80, 0.5)
    points[40:] += far
    weights = weigh(points, widths, single=single)
    if exact is not None:
        assert (weights.columns is not None) == exact
    assert weights.loss <= LARGEST_LOSS * (1.0 if single else 1e-4)
    check(weights, dense(points, widths, 2.0))


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("far", [1e3, 1e6, 1e9, 1e150])
def test_an_outlier_with_a_width_of_its_own(far: float, single: bool) -> None:
    """As wide as it is far away, or with the width of all."""
    points = cloud(90)
    points[17] = far
    for width in (0.5, far):
        widths = np.full(90, 0.5)
        widths[17] = width
        check(weigh(points, widths, single=single), dense(points, widths, 2.0))


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("factor", [0.25, 1.0, 2.0])
@pytest.mark.parametrize("unit", [1e-120, 1e-38, 1e-30, 1e30, 1e38, 1e120])
def test_units_do_not_matter(unit: float, factor: float, single: bool) -> None:
    """Points and widths in a unit that single precision has, hardly has, or has not."""
    points, widths = cloud(60), np.random.default_rng(4).uniform(0.3, 1.0, 60)
    weights = weigh(points * unit, widths * unit, factor, single)
    check(weights, dense(points, widths, factor))


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("decades", [1, 3, 6])
def test_widths_of_many_sizes(decades: int, single: bool) -> None:
    """Clusters each a hundredth of another in size, and widths as small; of points at random."""
    rng = np.random.default_rng(decades)
    sizes = 10.0 ** rng.uniform(-decades, decades, 120)
    for points in (cloud(120), cloud(120) * sizes[:, None]):
        check(weigh(points, sizes, single=single), dense(points, sizes, 2.0))


def test_narrow_weights_have_exponents_in_double_precision() -> None:
    """Where single precision would lose too much of them; the weights are single all the same."""
    points, widths = cloud(600), np.full(600, 0.1)
    weights = weigh(points, widths)
    assert weights.columns is not None
    assert weights.columns.dtype == np.float64
    assert weights.dtype == np.float32
    check(weights, dense(points, widths, 2.0))


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("n", [1, 40, 530])
def test_learned_distances(n: int, single: bool) -> None:
    """Of which no points exist, by rows of their squares."""
    rng = np.random.default_rng(n)
    d = rng.uniform(0.0, 2.0, (n, n))
    d = np.triu(d, 1) + np.triu(d, 1).T
    widths = rng.uniform(0.3, 3.0, n)
    weights = KernelWeights(widths, 2.0, np.zeros(0), single).between_objects(lambda e: d[e] ** 2)
    check(weights, np.exp(-(d**2) / (2.0 * np.outer(widths, widths))))


@pytest.mark.parametrize("single", [True, False])
def test_replaced_slots_are_weights_made_anew(single: bool) -> None:
    """To the last bit: old slots, new ones, an outlier that comes, and goes; none is written."""
    rng = np.random.default_rng(5)
    points, widths = cloud(60), rng.uniform(0.3, 1.0, 60)
    first = weigh(points, widths, single=single)
    weights, seen = first, set()
    before = first.columns.tobytes() if first.columns is not None else b""
    for step in range(12):
        n, b = len(points), 1 + step
        old = rng.permutation(n)[:b]
        n_new = step if step % 3 == 0 else 0
        slots = np.concatenate([old, n + np.arange(n_new)])
        following, wider = np.empty((n + n_new, 3)), np.empty(n + n_new)
        following[:n], wider[:n] = points, widths
        following[slots] = rng.standard_normal((len(slots), 3))
        wider[slots] = rng.uniform(0.3, 1.0, len(slots))
        if step == 4:
            following[slots[0]] = 1e9
        if step == 5:
            slots = np.append(slots, np.setdiff1d(np.flatnonzero(following[:, 0] == 1e9), slots))
            following[slots] = rng.standard_normal((len(slots), 3))
        points, widths = following, wider
        weights = weights.replace(slots, points, widths)
        seen.add(weights.columns is None)
        rebuilt = KernelWeights(widths, 2.0, first.center, single).between_points(points)
        everything = np.arange(len(points))
        np.testing.assert_array_equal(weights.rows(everything), rebuilt.rows(everything))
        assert weights.loss == rebuilt.loss
        check(weights, dense(points, widths, 2.0))
    assert seen == {True, False}
    assert first.columns is not None
    assert first.columns.tobytes() == before


def test_a_change_of_precision_leaves_no_rounding_behind() -> None:
    """Columns that were single were taken for double ones: another loss, other bits once loaded."""
    rng = np.random.default_rng(3)
    points, widths = rng.standard_normal((300, 2)), np.full(300, 2.0)
    single = KernelWeights(widths, 2.0, np.zeros(2), True).between_points(points)
    assert single.columns is not None
    assert single.columns.dtype == np.float32
    slots = np.arange(5)
    points[slots] *= 1e3
    double = single.replace(slots, points, widths)
    again = KernelWeights(widths, 2.0, np.zeros(2), True).between_points(points)
    assert double.columns is not None
    assert again.columns is not None
    assert double.columns.dtype == again.columns.dtype == np.float64
    assert double.loss == again.loss
    np.testing.assert_array_equal(double.columns, again.columns)
    points[slots] /= 1e3
    back, made = double.replace(slots, points, widths), single.between_points(points)
    assert back.columns is not None
    np.testing.assert_array_equal(back.columns, made.columns)
    assert back.loss == made.loss
