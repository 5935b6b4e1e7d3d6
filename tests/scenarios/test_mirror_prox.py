"""The certified batch solver against closed forms, an SDP solver, and duality redone by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_wine

from scenarios.baselines import mirror_prox
from tests.oracles import oracle_eig_dml as oracle

# Both sides of an inequality of duality are rounded.
SLACK = 1e-9
# SCS and Clarabel by CVXPY on `wine_problem(1000)`: they agree to 4e-8. Computed once, elsewhere.
WINE_SDP = 24.419361587


def wine_problem(count):
    """H of ``count`` close pairs with a ridge of 1e-6 of its diagonal, and ``count`` far pairs."""
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    left, right = np.random.default_rng(0).integers(len(X), size=(2, 6 * count))
    differ = X[left] - X[right]
    moved, same = differ.any(axis=1), y[left] == y[right]
    close, far = differ[moved & same][:count], differ[moved & ~same][:count]
    H = close.T @ close / count
    return H + 1e-6 * np.diag(np.diag(H)), far


def check(solution: mirror_prox.Solution, H, far) -> None:
    """Feasible, weights in the simplex, and value and bound those of their definitions."""
    A = solution.matrix
    assert np.array_equal(A, A.T)
    assert np.linalg.eigvalsh(A)[0] >= -1e-12 * np.linalg.eigvalsh(A)[-1]
    assert np.sum(A * H) == pytest.approx(len(H), rel=1e-12)
    assert solution.weights.min() >= 0
    assert solution.weights.sum() == pytest.approx(1, rel=1e-12)
    assert solution.objective == pytest.approx(oracle.smallest(A, far), rel=SLACK)
    assert solution.bound == pytest.approx(oracle.dual_bound(solution.weights, far, H), rel=SLACK)
    assert solution.gap == pytest.approx(1 - solution.objective / solution.bound, abs=1e-12)


@pytest.mark.parametrize("angle", [0.3, 1.0, np.pi / 2, 2.5])
def test_two_pairs_by_hand(angle):
    """Two pairs in the plane, d = 2: 1 + cos of the acute angle between them."""
    far = np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]])
    solution = mirror_prox.solve(np.eye(2), far, 1e-5)
    check(solution, np.eye(2), far)
    assert solution.objective == pytest.approx(oracle.two_pairs_by_hand(angle), rel=1e-5)


def test_the_sdp_value():
    """Wine, 1000 far pairs: a gap of 2e-3, and the SDP solver's value inside it."""
    H, far = wine_problem(1000)
    solution = mirror_prox.solve(H, far)
    check(solution, H, far)
    assert solution.status == "certified"
    assert solution.gap <= 2e-3
    assert solution.steps < 5000  # measured 1600; the design's target is a time, 5 s
    # 1e-6: what the SDP solvers' own tolerances leave
    assert solution.objective <= WINE_SDP * (1 + 1e-6)
    assert solution.bound >= WINE_SDP * (1 - 1e-6)
