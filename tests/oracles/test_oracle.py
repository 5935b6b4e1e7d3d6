"""The oracle against the identities that define a diffusion map: belief is not needed."""

from __future__ import annotations

import numpy as np
import pytest

from tests.oracles import oracle

# Dense float64 at n = 90 with eigenvalues of order 1: rounding stays below 1e-13, the bound is a
# hundred times that.
EXACT = 1e-11


def cloud(n: int = 90) -> np.ndarray:
    """Points in three dimensions, not in general position with any axis."""
    return np.random.default_rng(1).standard_normal((n, 3))


def plain() -> oracle.DiffusionMap:
    return oracle.diffusion_map(cloud(), 1.5)


def weighted() -> oracle.DiffusionMap:
    """Masses over two orders of magnitude and an alpha that is neither 0 nor 1."""
    masses = np.random.default_rng(2).uniform(0.05, 5.0, 90)
    return oracle.diffusion_map(cloud(), 1.5, alpha=0.5, masses=masses)


MAPS = pytest.mark.parametrize("build", [plain, weighted])


@MAPS
def test_markov(build):
    """P is a Markov matrix: not negative, rows sum to 1, pi is stationary and reversible."""
    result = build()
    flow = result.pi[:, None] * result.P
    assert result.P.min() >= 0
    np.testing.assert_allclose(result.P.sum(axis=1), 1.0, atol=EXACT)
    np.testing.assert_allclose(result.pi @ result.P, result.pi, atol=EXACT)
    np.testing.assert_allclose(flow, flow.T, atol=EXACT)
    assert result.pi.sum() == pytest.approx(1.0, abs=EXACT)


@MAPS
def test_conjugate(build):
    """S is diag(sqrt(pi)) P diag(1 / sqrt(pi)), symmetric, with its spectrum in [0, 1]."""
    result = build()
    root = np.sqrt(result.pi)
    np.testing.assert_allclose(result.S, root[:, None] * result.P / root, atol=EXACT)
    np.testing.assert_allclose(result.S, result.S.T, atol=EXACT)
    assert result.eigenvalues.max() <= 1 + EXACT
    assert result.eigenvalues.min() >= -EXACT


@MAPS
def test_eigenpairs(build):
    """S V = V lambda and P psi = psi lambda, for every pair and in descending order."""
    result = build()
    assert oracle.true_residual(result.S, result.V, result.eigenvalues) < EXACT
    np.testing.assert_allclose(result.P @ result.psi, result.psi * result.eigenvalues, atol=1e-10)
    assert np.all(np.diff(result.eigenvalues) <= EXACT)


@MAPS
def test_constant_first_and_normalised(build):
    """psi_0 is 1 with eigenvalue 1, and the psi are orthonormal under pi."""
    result = build()
    assert result.eigenvalues[0] == pytest.approx(1.0, abs=EXACT)
    np.testing.assert_allclose(result.psi[:, 0], 1.0, atol=1e-10)
    gram = result.psi.T @ (result.pi[:, None] * result.psi)
    np.testing.assert_allclose(gram, np.eye(90), atol=EXACT)


@MAPS
@pytest.mark.parametrize("t", [1, 2, 5])
def test_diffusion_distance(build, t):
    """The diffusion distance of the definition is the distance of the full coordinates."""
    result = build()
    full = oracle.diffusion_coordinates(result, 89, t)
    d = np.linalg.norm(full[:, None] - full[None], axis=2)
    # 1e-8: a square root of the rounding of the squares, where two points all but meet.
    np.testing.assert_allclose(oracle.diffusion_distances(result, t), d, atol=1e-8)


@MAPS
@pytest.mark.parametrize("t", [0, 1, 2.5])
def test_extension_at_support(build, t):
    """The extension gives the support points their own coordinates."""
    result = build()
    extended = oracle.nystrom_extension(result, cloud(), cloud(), 5, t)
    np.testing.assert_allclose(
        extended, oracle.diffusion_coordinates(result, 5, t), atol=EXACT / result.eigenvalues[5]
    )


def test_extension_between_points():
    """A point a hundredth of a bandwidth from a support point lands beside it."""
    result = plain()
    there = oracle.diffusion_coordinates(result, 3, 1)
    moved = oracle.nystrom_extension(result, cloud(), cloud() + 0.015 / np.sqrt(3), 3, 1)
    # The slope of psi is of order 1 / bandwidth times its size (2 to 4 here).
    assert np.abs(moved - there).max() < 0.1
    assert np.abs(moved - there).max() > 1e-4


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_mass_is_multiplicity(alpha):
    """A point of mass 2 is the same as the point twice."""
    points = cloud()
    masses = np.where(np.arange(90) < 30, 2.0, 1.0)
    merged = oracle.diffusion_map(points, 1.5, alpha, masses)
    doubled = oracle.diffusion_map(np.concatenate([points, points[:30]]), 1.5, alpha)
    np.testing.assert_allclose(doubled.eigenvalues[:20], merged.eigenvalues[:20], atol=EXACT)
    ours = oracle.align_signs(merged.psi[:, :5], doubled.psi[:90, :5])
    np.testing.assert_allclose(ours, doubled.psi[:90, :5], atol=1e-9)


def test_two_components():
    """Of a disconnected graph the constant is still first, and the other eigenvalue 1 follows."""
    points = np.concatenate([cloud(40), cloud(50) + 1000.0])
    result = oracle.diffusion_map(points, 1.5)
    np.testing.assert_allclose(result.eigenvalues[:2], 1.0, atol=EXACT)
    assert result.eigenvalues[2] < 0.99
    np.testing.assert_allclose(result.psi[:, 0], 1.0, atol=1e-10)
    # psi_1 tells the two apart: one value on each
    assert np.ptp(result.psi[:40, 1]) < 1e-9
    assert np.ptp(result.psi[40:, 1]) < 1e-9
    assert abs(result.psi[0, 1] - result.psi[-1, 1]) > 1


def test_residual_by_hand():
    """The residual of a known wrong pair is what it is by hand, whatever the vector's length."""
    S = np.diag([2.0, 1.0])
    vectors = np.array([[3.0, 3.0], [0.0, 4.0]])
    # S u - 1 u for u = (0.6, 0.8) is (0.6, 0)
    assert oracle.true_residual(S, vectors, np.array([2.0, 1.0])) == pytest.approx(0.3)


def test_angle_by_hand():
    """The sine of two planes that share one axis and differ by 30 degrees in the other is 0.5."""
    A = np.eye(3)[:, :2]
    B = np.array([[5.0, 5.0], [0.0, np.cos(np.pi / 6)], [0.0, np.sin(np.pi / 6)]])
    assert oracle.largest_angle_sine(A, B) == pytest.approx(0.5)
    assert oracle.largest_angle_sine(B, A) == pytest.approx(0.5)
    assert oracle.largest_angle_sine(A, A @ np.array([[1.0, 2.0], [3.0, 4.0]])) < 1e-15


def test_signs_by_hand():
    """Columns are turned, not swapped, and one without an opinion is left."""
    A = np.array([[1.0, -2.0, 3.0], [0.0, 0.0, 0.0]])
    B = np.array([[-1.0, -1.0, 0.0], [0.0, 0.0, 1.0]])
    assert oracle.align_signs(A, B).tolist() == [[-1.0, -2.0, 3.0], [0.0, 0.0, 0.0]]
