"""Formulas of the sources, and their misprints, that no test of an algorithm states."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from sklearn.datasets import load_wine
from sklearn.decomposition import KernelPCA

import streamembed as se
from streamembed.metrics import bregman, discriminant, fenn, scatter

ENERGIES = np.array([0.06, 0.15, 0.4, 1.0, 1.0])


def squares(points: np.ndarray) -> np.ndarray:
    """Squared distances, by the definition."""
    return ((points[:, None] - points[None]) ** 2).sum(axis=-1)


def weights(mu: float) -> np.ndarray:
    return fenn.compute_boltzmann_weights(ENERGIES, mu)


def slope(function, mu: float) -> np.ndarray:
    """Central difference: an error of h^2, and of rounding over h, some 1e-9."""
    h = 1e-5
    return (function(mu + h) - function(mu - h)) / (2 * h)


def test_sums_of_squared_distances() -> None:
    """The blog's third sum is 2 m tr B, not 2 tr B."""
    points = np.random.default_rng(0).standard_normal((60, 3))
    d2 = squares(points)
    centred = points - points.mean(axis=0)
    trace = np.sum(centred**2)
    np.testing.assert_allclose(d2.sum(axis=0), trace + 60 * (centred**2).sum(axis=1))
    np.testing.assert_allclose(d2.sum(), 2 * 60 * trace)


def test_directions_of_lda_are_orthogonal_within_classes_only() -> None:
    """Phillips, 17.2: neither orthogonal, nor through the class means."""
    points, classes = load_wine(return_X_y=True)
    points = (points - points.mean(axis=0)) / points.std(axis=0)
    moments = scatter.update(scatter.init(13), points, classes)
    u = discriminant.decompose(moments).directions
    within = scatter.compute_scatters(moments).within
    each = [points[classes == k] for k in range(3)]
    pooled = sum(len(part) * np.cov(part.T, bias=True) for part in each) / len(points)
    assert abs(u[:, 0] @ pooled @ u[:, 1]) < 1e-12
    assert abs(u[:, 0] @ within @ u[:, 1]) > 1e-6  # classes weighed alike are another matrix
    offsets = np.array([part.mean(axis=0) for part in each])
    basis = scipy.linalg.orth(u)
    outside = offsets - offsets @ basis @ basis.T
    assert np.linalg.norm(outside) > 0.5 * np.linalg.norm(offsets)


@pytest.mark.parametrize("mu", [0.1, 0.5])
def test_fisher_information_is_the_variance_over_the_fourth_power(mu: float) -> None:
    """Inaba, 3.3: by its definition. Var / mu^2 is the heat capacity d<E>/dmu."""
    score = slope(lambda at: np.log(weights(at)), mu)
    mean = weights(mu) @ ENERGIES
    variance = weights(mu) @ (ENERGIES - mean) ** 2
    np.testing.assert_allclose(weights(mu) @ score**2, variance / mu**4, rtol=1e-6)
    capacity = fenn.compute_heat_capacity(ENERGIES, np.array([mu]))[0]
    np.testing.assert_allclose(capacity, variance / mu**2, rtol=1e-12)
    np.testing.assert_allclose(slope(lambda at: weights(at) @ ENERGIES, mu), capacity, rtol=1e-6)


@pytest.mark.parametrize("mu", [0.1, 0.5])
def test_the_mean_energy_is_a_slope_of_the_free_energy(mu: float) -> None:
    """Inaba, (19): <E> = -mu^2 d(F/mu)/dmu."""
    rate = slope(lambda at: np.array(fenn.compute_free_energy(ENERGIES, at) / at), mu)
    np.testing.assert_allclose(weights(mu) @ ENERGIES, -(mu**2) * rate, rtol=1e-6)


def test_the_gradient_of_the_entropy_has_a_minus() -> None:
    """Inaba, lemma 3.3."""
    rng = np.random.default_rng(0)
    root, change = rng.standard_normal((2, 4, 4))
    S = root @ root.T + np.eye(4)
    S, change = S / np.trace(S), change + change.T
    values, u = np.linalg.eigh(S)

    def entropy(step: float) -> np.ndarray:
        return np.array(fenn.compute_entropy(np.linalg.eigvalsh(S + step * change)))

    printed = (u * (1 + np.log(values))) @ u.T
    np.testing.assert_allclose(slope(entropy, 0.0), -np.sum(printed * change), rtol=1e-6)


def test_theorem_3_2_and_equation_16_of_fenn() -> None:
    """A = X_D^-1/2 S X_D^-1/2 by dense roots, and <X_D, A> = tr S = 1."""
    points, classes = load_wine(return_X_y=True)
    scatters = scatter.compute_scatters(scatter.update(scatter.init(13), points, classes))
    matrix, _ = fenn.solve_metric(fenn.compute_spectrum(scatters), 0.3)
    values, vectors = np.linalg.eigh(scatters.dissimilar)
    inverse_root = (vectors * values**-0.5) @ vectors.T
    energies, u = np.linalg.eigh(inverse_root @ scatters.within @ inverse_root)
    boltzmann = np.exp(-energies / 0.3) / np.exp(-energies / 0.3).sum()
    expected = inverse_root @ (u * boltzmann) @ u.T @ inverse_root
    # the condition of X_D, unscaled wine, is 1e7
    np.testing.assert_allclose(matrix, expected, atol=1e-9 * np.abs(expected).max())
    np.testing.assert_allclose(np.sum(scatters.dissimilar * matrix), 1.0, rtol=1e-12)


def test_half_the_logdet_divergence_is_the_kl_divergence() -> None:
    """Jain, (2): of Gaussians with the precisions A_0 and A, by 400,000 draws."""
    rng = np.random.default_rng(0)
    prior, matrix = (np.linalg.inv(np.cov(rng.standard_normal((4, 30)))) for _ in range(2))
    draws = rng.multivariate_normal(np.zeros(4), np.linalg.inv(prior), 400_000)

    def density(A: np.ndarray) -> np.ndarray:
        return 0.5 * np.linalg.slogdet(A)[1] - 0.5 * np.sum((draws @ A) * draws, axis=1)

    ratios = density(prior) - density(matrix)
    error = ratios.std() / np.sqrt(len(ratios))
    assert error < 0.01
    assert abs(ratios.mean() - 0.5 * bregman.divergence(matrix, prior)) < 5 * error


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_diffusion_maps_by_the_letter(alpha: float) -> None:
    """Jain, (4) to (8): eigenvalues of M, and D_t without its square from rows of M^t."""
    points = np.random.default_rng(0).standard_normal((150, 3))
    W = np.exp(-squares(points) / 1.5**2)
    q = W.sum(axis=1)
    L = W / np.outer(q, q) ** alpha
    M = L / L.sum(axis=1, keepdims=True)
    engine = se.Engine(
        n_components=20,
        kernel="gaussian",
        bandwidth=1.5,
        alpha=alpha,
        diffusion_time=2,
        memory="all",
        warm_up=100,
        scaling=None,
        tolerance=1e-6,
    )
    engine.learn(points)
    snapshot = engine.snapshot()
    leading = np.sort(np.linalg.eigvals(M).real)[::-1][1:21]
    np.testing.assert_allclose(snapshot.eigenvalues, leading, atol=1e-9)
    stationary = L.sum(axis=1) / L.sum()
    power = M @ M
    whole = np.sqrt(((power[:, None] - power[None]) ** 2 / stationary).sum(axis=-1))
    ours = np.sqrt(squares(snapshot.coordinates))
    # what component 21 and later leave out is lambda^2 of them, times psi
    assert np.all(ours <= whole + 1e-9)
    assert ours.sum() > 0.95 * whole.sum()


@pytest.mark.parametrize("seed", range(3))
def test_kernel_pca_of_new_points_needs_the_centring_that_the_blog_leaves_out(seed: int) -> None:
    """Products of coordinates, since axes may be turned, are scikit-learn's."""
    rng = np.random.default_rng(seed)
    points, new = rng.standard_normal((120, 4)), rng.standard_normal((7, 4))
    engine = se.Engine(
        "kernel_pca",
        kernel="gaussian",
        bandwidth=2.0,
        size=120,
        warm_up=100,
        scaling=None,
        tolerance=1e-8,
    )
    engine.learn(points)
    ours = engine.snapshot().transform(new)
    theirs = KernelPCA(2, kernel="rbf", gamma=0.25).fit(points).transform(new)
    np.testing.assert_allclose(ours @ ours.T, theirs @ theirs.T, atol=1e-12)
    K = np.exp(-squares(points) / 4)
    values, vectors = np.linalg.eigh(K)
    rows = np.exp(-((new[:, None] - points[None]) ** 2).sum(axis=-1) / 4)
    printed = rows @ vectors[:, -2:] / np.sqrt(values[-2:])
    assert np.abs(printed @ printed.T - theirs @ theirs.T).max() > 0.1
