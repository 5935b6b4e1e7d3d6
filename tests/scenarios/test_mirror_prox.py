"""The certified batch solver against closed forms, an SDP solver, and duality redone by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_wine

from scenarios.baselines import mirror_prox
from tests.oracles import oracle_eig_dml as oracle

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


def check(solution: tuple[np.ndarray, float], H, far) -> None:
    """Feasible, and the bound is not below what the metric reaches, nor far above."""
    A, bound = solution
    assert np.array_equal(A, A.T)
    assert np.linalg.eigvalsh(A)[0] >= -1e-12 * np.linalg.eigvalsh(A)[-1]
    assert np.sum(A * H) == pytest.approx(len(H), rel=1e-12)
    assert bound * (1 - 2e-3) <= oracle.smallest(A, far) <= bound * (1 + 1e-9)


@pytest.mark.parametrize("angle", [0.3, 1.0, np.pi / 2, 2.5])
def test_two_pairs_by_hand(angle):
    """Two pairs in the plane, d = 2: 1 + cos of the acute angle between them."""
    far = np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]])
    solution = mirror_prox.solve(np.eye(2), far, 1e-5)
    check(solution, np.eye(2), far)
    assert oracle.smallest(solution[0], far) == pytest.approx(
        oracle.two_pairs_by_hand(angle), rel=2e-5
    )


def test_the_sdp_value():
    """Wine, 1000 far pairs: a gap of 2e-3, and the SDP solver's value inside it."""
    H, far = wine_problem(1000)
    solution = mirror_prox.solve(H, far)
    check(solution, H, far)
    # 1e-6: what the SDP solvers' own tolerances leave
    assert oracle.smallest(solution[0], far) <= WINE_SDP * (1 + 1e-6)
    assert solution[1] >= WINE_SDP * (1 - 1e-6)
