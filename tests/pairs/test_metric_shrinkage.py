"""The split-half shrink: against matrix functions of another kind, and at its ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamembed.errors import InputError
from streamembed.pairs import metric_shrinkage
from tests.oracles import oracle_pairs as oracle

# logm by Schur decomposition, expm by Pade approximation, of condition 1e4: measured 2e-13.
EXACT = 1e-10


def shrink(whole: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, float]:
    """The metric with the share of it that two halves agree in, and that share."""
    factor = metric_shrinkage.compute_factor(first, second)
    return metric_shrinkage.temper(whole, factor), factor


def metric(seed: int, d: int = 5, spread: float = 1.0) -> np.ndarray:
    """A random positive definite matrix, of condition 1e4 at spread 1."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return (axes * 10.0 ** (spread * rng.uniform(-2, 2, d))) @ axes.T


@given(seed=st.integers(0, 2**20), noise=st.floats(0.01, 1.0))
@settings(max_examples=40, deadline=None)
def test_it_is_the_formula(seed: int, noise: float) -> None:
    """Factor and metric are those of logm and expm."""
    whole = metric(seed)
    log = oracle.trace_free_log(whole)
    rng = np.random.default_rng(seed)
    halves = []
    for _ in range(2):
        error = rng.standard_normal((5, 5))
        values, vectors = np.linalg.eigh(log + noise * (error + error.T))
        halves.append((vectors * np.exp(values)) @ vectors.T)
    found, factor = shrink(whole, *halves)
    wanted, s = oracle.shrunk(whole, *halves)
    # a logarithm loses the digits of the condition, in ten steps or so
    worst = max(np.linalg.cond(matrix) for matrix in (whole, *halves))
    exact = EXACT + 100 * np.finfo(float).eps * worst
    assert factor == pytest.approx(s, abs=exact)
    np.testing.assert_allclose(found, wanted, atol=exact * np.abs(wanted).max())


@pytest.mark.parametrize("seed", range(5))
def test_halves_that_agree_leave_it(seed: int) -> None:
    """s = 1: the metric itself, with determinant 1."""
    whole = metric(seed)
    found, factor = shrink(whole, 3.0 * whole, whole)
    assert factor == pytest.approx(1.0, abs=1e-12)
    wanted = whole / np.linalg.det(whole) ** (1 / 5)
    np.testing.assert_allclose(found, wanted, atol=EXACT * np.abs(wanted).max())
    assert np.linalg.det(found) == pytest.approx(1.0, rel=1e-9)


def test_halves_that_contradict_make_the_identity():
    """s = 0 where what one half stretches the other contracts."""
    whole = metric(1)
    found, factor = shrink(whole, whole, np.linalg.inv(whole))
    assert np.array_equal(found, np.eye(5))
    assert factor == 0.0


@pytest.mark.parametrize("index", range(3))
def test_a_multiple_of_the_identity_has_no_direction(index: int) -> None:
    """Whichever of the three learned nothing, the identity comes out."""
    parts = [metric(2)] * 3
    parts[index] = 7.0 * np.eye(5)
    found, _ = shrink(*parts)
    np.testing.assert_allclose(found, np.eye(5), atol=1e-12)


def test_one_feature_has_one_metric():
    """d = 1: every metric is a multiple of every other."""
    found, factor = shrink(np.array([[3.0]]), np.array([[2.0]]), np.array([[5.0]]))
    assert found.tolist() == [[1.0]]
    assert factor == 0.0


@given(seed=st.integers(0, 2**20))
@settings(max_examples=30, deadline=None)
def test_units_and_rotations(seed: int) -> None:
    """Multiples change nothing; a rotation of all three rotates the result; halves are equals."""
    whole, first, second = (metric(seed + i, spread=0.3) for i in range(3))
    found, factor = shrink(whole, first, second)
    other, again = shrink(5.0 * whole, 0.1 * second, 9.0 * first)
    assert again == pytest.approx(factor, abs=1e-12)
    np.testing.assert_allclose(other, found, atol=EXACT)
    turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((5, 5)))[0]
    turned, _ = shrink(*(turn @ part @ turn.T for part in (whole, first, second)))
    np.testing.assert_allclose(turned, turn @ found @ turn.T, atol=EXACT)
    assert np.linalg.eigvalsh(found)[0] > 0
    assert 0.0 <= factor <= 1.0


def test_nearly_singular_metrics_are_finite():
    """Directions that a metric has all but lost are floored, not infinite."""
    flat = np.diag([1.0, 1.0, 1e-30, 0.0])
    found, factor = shrink(flat, flat, flat)
    assert np.isfinite(found).all()
    assert factor == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.full((2, 2), np.nan), "NaN"),
        (np.zeros((2, 3)), r"must be \(d, d\)"),
        (np.zeros((2, 2)), "no positive eigenvalue"),
        (np.zeros((0, 0)), "no positive eigenvalue"),
    ],
)
def test_bad_input_is_refused(bad: np.ndarray, message: str) -> None:
    """What is no metric has no logarithm."""
    with pytest.raises(InputError, match=message):
        metric_shrinkage.compute_trace_free_log(bad)


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**40])
def test_halves_are_the_rule(seed: int) -> None:
    """Positions fall into halves as the slow restatement says, one by one or all at once."""
    positions = np.r_[0:300, 2**40 : 2**40 + 20]
    found = metric_shrinkage.split_halves(positions, seed)
    assert found.tolist() == [oracle.first_half(p, seed) for p in positions.tolist()]
    one_by_one = [
        bool(metric_shrinkage.split_halves(np.array([p]), seed)[0]) for p in positions.tolist()
    ]
    assert found.tolist() == one_by_one


def test_halves_are_even_and_strange_to_periods():
    """Never more than one apart; of every residue of the position about half are in either."""
    first = metric_shrinkage.split_halves(np.arange(20_000), 3)
    counts = np.cumsum(np.where(first, 1, -1))
    assert np.abs(counts).max() <= 1
    for period in (2, 3, 4, 7, 10, 24):
        for start in range(period):
            share = first[start::period].mean()
            # of 833 fair coins at least: a standard deviation of .017
            assert share == pytest.approx(0.5, abs=0.08)
    assert not np.array_equal(first, metric_shrinkage.split_halves(np.arange(20_000), 4))
