"""Must-link metrics against the blog's closed form, a general solver and an SDP solver."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_wine

from streamembed.metrics import eig_dml, must_link
from streamembed.metrics.must_link import DiagonalLearner
from tests.oracles import oracle_eig_dml as oracle

# Sums of a thousand outer products and one eigenproblem of condition 1e2 round at 1e-13.
EXACT = 1e-10
# Both sides of an inequality of duality are rounded.
SLACK = 1e-9
SUMS = DiagonalLearner()
# The blog's problem, with means, on `wine_pairs(1000)`, by CVXPY with Clarabel and SCS, which agree
# to 3e-8; computed once, elsewhere.
WINE_BLOG = 0.063777591


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def wine_pairs(count):
    """``count`` differences of wines of equal, and of different, class."""
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    left, right = np.random.default_rng(0).integers(len(X), size=(2, 6 * count))
    differ = X[left] - X[right]
    moved, same = differ.any(axis=1), y[left] == y[right]
    return differ[moved & same][:count], differ[moved & ~same][:count]


def learned(close, far, options=SUMS):
    state = eig_dml.update(eig_dml.init(close.shape[1]), close, far, options)
    return state, eig_dml.measure(state, options)


def leading(close, far, rank=1):
    """The closed form of these pairs."""
    means = (pairs.T @ pairs / max(len(pairs), 1) for pairs in (close, far))
    return must_link.solve_leading(*means, rank)


def random_metric(d, seed):
    half = normal(d, d, seed=seed)
    return half @ half.T


# The closed form.


def test_the_blog_problem():
    """min tr(M S) with tr(M D) >= 1: the oracle's matrix and value, and the SDP solver's value."""
    close, far = wine_pairs(1000)
    matrix, info = leading(close, far)
    value, expected = oracle.blog_rank_one(oracle.mean_outer(close), oracle.mean_outer(far))
    assert info["status"] == "exact"
    assert info["value"] == pytest.approx(value, rel=EXACT)
    assert info["value"] == pytest.approx(WINE_BLOG, rel=1e-6)  # the solvers' tolerance
    np.testing.assert_allclose(matrix, expected, atol=EXACT)
    assert np.linalg.matrix_rank(matrix) == 1
    assert np.array_equal(matrix, matrix.T)


def test_no_metric_does_better():
    """Of random metrics, scaled to tr(M F) = 1, none has less close spread; of any rank."""
    close, far = wine_pairs(200)
    C, F = oracle.mean_outer(close), oracle.mean_outer(far)
    matrix, info = leading(close, far)
    assert np.sum(matrix * F) == pytest.approx(1, rel=EXACT)
    assert np.sum(matrix * C) == pytest.approx(info["value"], rel=EXACT)
    for seed in range(100):
        other = random_metric(13, seed)
        near = 0.05 * other * np.trace(matrix) / np.trace(other) + matrix
        for metric in (other, near):
            assert np.sum(metric * C) / np.sum(metric * F) >= info["value"] * (1 - SLACK)


def test_a_metric_of_rank_r():
    """The r best directions weighted with the root of their ratio, tr(M F) = 1, by whitening."""
    close, far = wine_pairs(300)
    C, F = oracle.mean_outer(close), oracle.mean_outer(far)
    half = oracle.power(C, -0.5)
    ratios, axes = np.linalg.eigh(half @ F @ half)
    for rank in (1, 2, 5, 13):
        best = half @ axes[:, ::-1][:, :rank]
        expected = best @ np.diag(np.sqrt(ratios[::-1][:rank])) @ best.T
        expected /= np.sum(expected * F)
        matrix, info = leading(close, far, rank)
        np.testing.assert_allclose(matrix, expected, atol=EXACT * np.abs(expected).max())
        np.testing.assert_allclose(info["ratios"], ratios[::-1][:rank], rtol=EXACT)
        assert info["value"] == pytest.approx(np.sum(expected * C), rel=EXACT)
    assert len(leading(close, far, 100)[1]["ratios"]) == 13


def test_what_is_missing():
    """Without pairs of a side the metric is the identity or 1 / H, and the status says which."""
    close, far = wine_pairs(20)
    none, equal = close[:0], np.zeros((3, 13))
    for pairs, expected in (
        ((none, none), "no close pairs"),
        ((none, far), "no close pairs"),
        ((equal, far), "no close pairs"),
        ((close, none), "no far pairs"),
        ((close, equal), "no far pairs"),
    ):
        state, info = learned(*pairs)
        matrix, closed = leading(*pairs)
        assert np.array_equal(matrix, np.eye(13))
        weights, diagonal = must_link.solve_diagonal(state)
        assert np.all(np.diag(weights) > 0)
        assert closed["status"] == diagonal["status"] == info["status"] == expected


def test_a_direction_without_close_spread():
    """A feature in which close pairs never differ takes all, finitely."""
    close, far = normal(50, 3), normal(50, 3, seed=1)
    close[:, 2] = 0.0
    matrix, info = leading(close, far)
    assert np.isfinite(matrix).all()
    assert info["value"] == pytest.approx(0.0, abs=1e-5)
    # that feature freed of what the others explain: close to all of its spread, not all
    assert np.linalg.matrix_rank(matrix) == 1
    assert matrix[2, 2] * np.mean(far[:, 2] ** 2) == pytest.approx(1, rel=1e-3)


# Weights of features.


@pytest.mark.parametrize("count", [30, 300])
def test_diagonal_against_a_general_solver(count):
    """Value of the weights: what SLSQP finds, within the certified gap."""
    close, far = wine_pairs(count)
    state, _ = learned(close, far)
    matrix, info = must_link.solve_diagonal(state, tolerance=1e-6)
    allowance = np.diag(eig_dml.compute_constraint(state))
    expected = oracle.best_diagonal(allowance, far)
    assert info["status"] == "certified"
    assert info["objective"] == pytest.approx(expected, rel=2e-6)
    assert info["bound"] >= expected * (1 - SLACK)
    assert info["objective"] == pytest.approx(oracle.roots(matrix, far), rel=SLACK)
    assert np.diag(matrix) @ allowance == pytest.approx(13, rel=EXACT)
    assert np.diag(matrix).min() >= 0
    assert np.array_equal(matrix, np.diag(np.diag(matrix)))


@given(st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_diagonal_steps_climb(seed):
    """The objective never falls from one step to the next, and the bound holds at every one."""
    generator = np.random.default_rng(seed)
    d = int(generator.integers(1, 7))
    scales = 10.0 ** generator.integers(-4, 5, size=d)
    close, far = (scales * generator.standard_normal((20, d)) ** 3 for _ in range(2))
    state, _ = learned(close, far)
    before, highest = 0.0, must_link.solve_diagonal(state, tolerance=1e-9)[1]["objective"]
    for steps in range(12):
        _, info = must_link.solve_diagonal(state, tolerance=0.0, max_steps=steps)
        assert info["objective"] >= before * (1 - SLACK)
        assert info["bound"] >= highest * (1 - SLACK)
        before = info["objective"]


def test_diagonal_ignores_units_and_useless_features():
    """Units of features only rescale their weights; one that tells nothing apart gets none."""
    close, far = wine_pairs(300)
    close[:, 0], far[:, 0] = 10 * normal(300), 0.1 * normal(300, seed=1)
    far[:, 1] = 0.0
    state, _ = learned(close, far)
    matrix, info = must_link.solve_diagonal(state)
    assert matrix[0, 0] * np.mean(close[:, 0] ** 2) < 1e-6
    assert matrix[1, 1] == 0
    assert info["n_features"] < 12
    units = 10.0 ** np.linspace(-6, 6, 13)
    scaled, _ = must_link.solve_diagonal(learned(close * units, far * units)[0])
    expected = np.diag(matrix)
    np.testing.assert_allclose(np.diag(scaled) * units**2, expected, atol=1e-8 * expected.max())
