"""FENN: the spectrum, its laws, the temperature, and what happens where nothing can be learned."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from streamembed.metrics import fenn, fenn_display, scatter
from tests.oracles import oracle_moments as oracle

SETS = {"iris": load_iris, "wine": load_wine, "wdbc": load_breast_cancer}

# The bar of the design for laws that pass through one whitening.
LAW = 1e-9


def learned(points: np.ndarray, classes: np.ndarray, chunk: int = 10_000) -> fenn.Spectrum:
    moments = scatter.init(points.shape[1])
    for start in range(0, len(points), chunk):
        rows = slice(start, start + chunk)
        moments = scatter.update(moments, points[rows], classes[rows])
    return fenn.compute_spectrum(scatter.compute_scatters(moments))


def shuffled(name: str) -> tuple[np.ndarray, np.ndarray]:
    data = SETS[name]()
    order = np.random.default_rng(7).permutation(len(data.data))
    return data.data[order], data.target[order]


def blobs(n: int, d: int, n_classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng((seed, n, d, n_classes))
    classes = rng.permutation(np.arange(n) % n_classes)
    return rng.standard_normal((n, d)) + rng.standard_normal((n_classes, d))[classes], classes


def in_units(metric: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The metric of the standardised features: its entries are comparable."""
    scale = points.std(axis=0)
    return metric * np.outer(scale, scale)


@pytest.mark.parametrize("name", SETS)
def test_the_metric_is_the_papers(name: str) -> None:
    """Energies and metric are those of X_D^-1/2 and its matrices, computed as printed."""
    points, classes = shuffled(name)
    scale = points.std(axis=0)  # the oracle does not scale: give it standardised features
    within, dissimilar = oracle.within_and_dissimilar_from_covariances(points / scale, classes)
    found = learned(points, classes)
    E, _ = oracle.energies(within, dissimilar)
    np.testing.assert_allclose(found.energies, E, atol=LAW)
    for mu in (0.01, 0.1, 1.0):
        metric, info = fenn.solve_metric(found, mu)
        truth = oracle.boltzmann_metric(within, dissimilar, mu)
        ours = in_units(metric, points)
        np.testing.assert_allclose(ours, truth, atol=LAW * np.abs(truth).max())
        # the constraint of the problem, and the average energy
        assert np.sum(dissimilar * ours) == pytest.approx(1.0, abs=LAW)
        assert np.sum(within * ours) == pytest.approx(info["mean_energy"], abs=LAW)


@pytest.mark.parametrize("name", SETS)
def test_uninformative_energies_are_one(name: str) -> None:
    """The energy 1 has the multiplicity p - N + 1, to 1e-9; the others are below it."""
    points, classes = shuffled(name)
    found = learned(points, classes)
    k = len(np.unique(classes)) - 1
    assert found.n_informative == k
    assert np.abs(found.energies[k:] - 1).max() < LAW
    assert found.energies[k - 1] < 0.99


@given(seed=st.integers(0, 2**20), mu=st.floats(0.02, 5.0))
@settings(max_examples=40, deadline=None)
def test_distances_are_affine_invariant(seed: int, mu: float) -> None:
    """Mapping the data linearly (condition up to 1e3) and moving them changes no distance."""
    rng = np.random.default_rng(seed)
    points, classes = blobs(60, 4, 3, seed)
    axes, _ = np.linalg.qr(rng.standard_normal((4, 4)))
    mapping = axes * 10.0 ** rng.uniform(-1.5, 1.5, 4)
    one, _ = fenn.solve_metric(learned(points, classes), mu)
    other, _ = fenn.solve_metric(learned(points @ mapping + rng.standard_normal(4), classes), mu)
    np.testing.assert_allclose(mapping @ other @ mapping.T, one, atol=LAW * np.abs(one).max())


@given(seed=st.integers(0, 2**20))
@settings(max_examples=20, deadline=None)
def test_labels_are_names(seed: int) -> None:
    """A permutation of the class indices changes neither metric nor chosen temperature."""
    points, classes = blobs(60, 4, 4, seed)
    names = np.random.default_rng(seed).permutation(4)
    one, other = learned(points, classes), learned(points, names[classes])
    np.testing.assert_allclose(
        fenn.solve_metric(one, 0.2)[0], fenn.solve_metric(other, 0.2)[0], atol=LAW
    )
    mus = [
        fenn.choose_by_cross_validation(points, labels, found)[0]
        for labels, found in ((classes, one), (names[classes], other))
    ]
    assert mus[0] == pytest.approx(mus[1], rel=1e-6)


@pytest.mark.parametrize("mu", [0.02, 0.2, 2.0])
def test_boltzmann_beats_a_thousand_others(mu: float) -> None:
    """No point of the spectrahedron, random or close by, has less free energy."""
    points, classes = shuffled("wine")
    points = points / points.std(axis=0)
    within, dissimilar = oracle.within_and_dissimilar_from_covariances(points, classes)
    E, u = oracle.energies(within, dissimilar)
    hamiltonian = u @ np.diag(E) @ u.T
    found = learned(points, classes)
    least = fenn.compute_free_energy(found.energies, mu)
    best = u @ np.diag(fenn.compute_boltzmann_weights(E, mu)) @ u.T
    assert least == pytest.approx(oracle.free_energy(best, hamiltonian, mu), abs=LAW)
    rng = np.random.default_rng(0)
    for i in range(1000):
        root = rng.standard_normal((13, rng.integers(1, 20)))
        S = root @ root.T
        S /= np.trace(S)
        if i % 2:  # also in the neighbourhood
            share = 10.0 ** rng.uniform(-4, -1)
            S = (1 - share) * best + share * S
        assert oracle.free_energy(S, hamiltonian, mu) >= least - 1e-12


@given(
    energies=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12),
    exponent=st.floats(-300.0, 300.0),
)
@settings(max_examples=150, deadline=None)
def test_any_temperature_is_finite(energies: list[float], exponent: float) -> None:
    """From 1e-300 to 1e300: weights sum to 1, no entropy above log r, no negative capacity."""
    E, mu = np.array(energies), 10.0**exponent
    weights = fenn.compute_boltzmann_weights(E, mu)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert 0 <= fenn.compute_entropy(weights) <= np.log(len(E)) + 1e-12
    capacity = fenn.compute_heat_capacity(E, np.array([mu]))
    assert np.isfinite(capacity).all()
    assert (capacity >= 0).all()
    assert np.isfinite(fenn.compute_free_energy(E, mu))
    assert 0 < fenn.choose_by_heat_capacity(E) < np.inf


def test_cross_validation_leaves_every_point_out():
    """The hits at one temperature are those of a vote among the other points, one by one."""
    points, classes = blobs(70, 3, 3)
    found = learned(points, classes)
    _, mus, shares = fenn.choose_by_cross_validation(points, classes, found)
    for i in (0, 17, 40):
        root = found.directions * np.sqrt(fenn.compute_boltzmann_weights(found.energies, mus[i]))
        places = points @ root
        hits = 0
        for j in range(70):
            others = np.arange(70) != j
            answer = fenn.vote(places[others], classes[others], places[j : j + 1])
            hits += int(answer[0] == classes[j])
        assert shares[i] == hits / 70


def test_too_few_labels_leave_it_to_the_heat_capacity():
    """One class, no points, or fewer than three points a direction: nothing is tried."""
    points, classes = blobs(60, 4, 3)
    found = learned(points, classes)
    hot = fenn.choose_by_heat_capacity(found.energies)
    for rows, labels in (
        (points[:0], classes[:0]),
        (points[:8], classes[:8]),
        (points, np.zeros(60, dtype=int)),
    ):
        mu, mus, _ = fenn.choose_by_cross_validation(rows, labels, found)
        assert (len(mus), mu) == (0, hot)


def test_the_vote_is_a_vote():
    """Against a sort of all distances, point by point, on data without ties."""
    points, classes = blobs(60, 3, 3)
    new, _ = blobs(300, 3, 3, seed=1)
    answers = fenn.vote(points, classes, new, 5)
    for x, answer in zip(new, answers, strict=True):
        d2 = np.sum((points - x) ** 2, axis=1)
        nearest = np.argsort(d2)[:5]
        votes = np.bincount(classes[nearest], minlength=3)
        means = [
            d2[nearest][classes[nearest] == c].mean() if votes[c] else np.inf for c in range(3)
        ]
        ranked = sorted((-votes[c], means[c], c) for c in range(3))
        assert answer == ranked[0][2]


def test_points_that_tie_all_vote():
    """On a grid the k-th neighbour is one of many: their order in memory decides nothing."""
    points = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    classes = np.array([0, 1, 1, 1])
    for order in (np.arange(4), np.arange(4)[::-1]):
        answer = fenn.vote(points[order], classes[order], np.zeros((1, 2)), n_neighbors=1)
        assert answer.tolist() == [1]


# ---------------------------------------------------------------- where nothing can be learned


def one_class_metric(points: np.ndarray, mu: float) -> np.ndarray:
    """Section 3.3 of the source, of standardised features: the Hamiltonian is their covariance."""
    scale = points.std(axis=0)
    E, U = np.linalg.eigh(np.cov((points / scale).T, bias=True))
    weights = np.exp(-E / mu) / np.exp(-E / mu).sum()
    return (U * weights) @ U.T / np.outer(scale, scale)


@pytest.mark.parametrize("kind", ["one label", "all different"])
def test_one_class_or_none_has_the_covariance_for_energies(kind: str) -> None:
    """X_D does not exist: low energies are directions in which the features vary little together.

    Units do not matter, and at an infinite temperature it is standardised Euclidean distance.
    """
    points = blobs(50, 3, 2)[0] @ np.array([[1.0, 0.8, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 1.0]])
    points = points * [1.0, 10.0, 0.1]
    classes = np.zeros(50, dtype=int) if kind == "one label" else np.arange(50)
    found = learned(points, classes)
    assert (found.status, found.n_informative) == (
        "one class" if kind == "one label" else "no class",
        0,
    )
    assert found.energies.sum() == pytest.approx(3.0, rel=1e-12)
    for mu in (0.05, 0.3, 2.0):
        metric, info = fenn.solve_metric(found, mu)
        truth = one_class_metric(points, mu)
        np.testing.assert_allclose(metric, truth, atol=1e-12 * np.abs(truth).max())
        assert info["status"] == found.status
        assert np.sum(np.cov(points.T, bias=True) * metric) == pytest.approx(info["mean_energy"])
        assert np.sum(points.var(axis=0) * np.diag(metric)) == pytest.approx(1.0)
        assert np.diff(info["weights"]).max() <= 0
    hot, _ = fenn.solve_metric(found, 1e12)
    np.testing.assert_allclose(hot, np.diag(1 / points.var(axis=0)) / 3, rtol=1e-9, atol=1e-9)


def test_one_class_of_few_points_leaves_out_what_does_not_vary() -> None:
    """Directions of energy 0 would have all of the weight: they are none, as constant features."""
    points = np.random.default_rng(5).standard_normal((8, 20))
    points[:, 3] = 4.0
    found = learned(points, np.zeros(8, dtype=int))
    assert (len(found.energies), found.n_constant) == (7, 1)
    assert found.energies.min() > 0.1
    metric, _ = fenn.solve_metric(found, fenn.choose_by_heat_capacity(found.energies))
    assert np.linalg.matrix_rank(metric) == 7
    assert not metric[3].any()


def test_statuses():
    """No class, one class, no spread; a class of a single point is thin."""
    points, classes = blobs(30, 3, 2)
    nothing, _ = fenn.solve_metric(learned(points[:0], classes[:0]), 1.0)
    np.testing.assert_array_equal(nothing, np.eye(3) / 3)
    assert learned(points[:2], np.array([0, 1])).status == "no class"
    assert learned(points[:3], np.array([0, 0, 1])).status == "one class"
    assert learned(np.ones((6, 3)), np.arange(6) % 2).status == "no spread"
    thin = learned(np.vstack([points, points[:1]]), np.append(classes, 2))
    assert (thin.status, thin.n_classes, thin.n_thin) == ("measured", 2, 1)


@given(
    seed=st.integers(0, 2**20),
    n=st.integers(0, 9),
    d=st.integers(1, 6),
    kinds=st.integers(1, 4),
    unit=st.sampled_from([1e-150, 1.0, 1e100]),
    mu=st.sampled_from([1e-3, 0.3, 1e3]),
)
@settings(max_examples=100, deadline=None)
def test_finite_whatever_comes(
    seed: int, n: int, d: int, kinds: int, unit: float, mu: float
) -> None:
    """Few points, duplicates, constant features, any unit: a finite positive metric, always."""
    rng = np.random.default_rng(seed)
    points = unit * rng.integers(0, 3, (n, d)).astype(float)
    found = learned(points, rng.integers(0, kinds, n))
    metric, info = fenn.solve_metric(found, mu)
    assert np.isfinite(metric).all()
    assert np.array_equal(metric, metric.T)
    scale = np.abs(metric).max()
    assert scale > 0
    assert np.linalg.eigvalsh(metric / scale).min() > -1e-12
    for name in ("mean_energy", "entropy", "free_energy", "heat_capacity"):
        assert np.isfinite(info[name])
    assert (found.energies >= 0).all()
    if found.status == "measured":
        assert (found.energies <= 1).all()
    else:
        assert found.energies.sum() <= d * (1 + 1e-9)
    shown = fenn_display.compute_display(points, found)
    assert np.isfinite(shown.coordinates).all()
    assert shown.weights.sum() == pytest.approx(1.0 if len(found.energies) else 0.0)


# ---------------------------------------------------------------- display


def display_oracle(points: np.ndarray, classes: np.ndarray, mu: float) -> np.ndarray:
    """Squared distances of the figure: dense, of X_D' = X_S + C_m, the N - 1 lowest energies."""
    groups = [points[classes == c] for c in np.unique(classes)]
    within = np.mean([np.cov(group.T, bias=True) for group in groups], axis=0)
    means = np.array([group.mean(axis=0) for group in groups])
    E, U = scipy.linalg.eigh(within, within + np.cov(means.T, bias=True))
    k = len(groups) - 1
    weights = np.exp(-E[:k] / mu) / np.exp(-E[:k] / mu).sum()
    return cdist((points @ U[:, :k]) * np.sqrt(weights), (points @ U[:, :k]) * np.sqrt(weights))


@pytest.mark.parametrize("name", SETS)
def test_the_display_is_that_of_the_figure(name: str) -> None:
    """The informative directions alone, of the energies with C_m unchanged, at any temperature."""
    points, classes = shuffled(name)
    points = points / points.std(axis=0)  # the oracle does not scale
    found = learned(points, classes)
    for mu in (0.05, 0.2, 5.0):
        shown = fenn_display.compute_display(points, found, mu)
        d = cdist(shown.coordinates, shown.coordinates)
        np.testing.assert_allclose(d, display_oracle(points, classes, mu), atol=1e-8)
        assert shown.weights.sum() == pytest.approx(1.0)
        assert shown.mu == mu
        np.testing.assert_array_equal(shown.coordinates, points @ shown.directions)


def test_the_fisher_information_has_its_maximum_there() -> None:
    """Var(E) / mu^4 written out on a fine grid; without a local maximum the heat capacity's."""
    E = np.array([0.086, 0.207, *[1.0] * 11])
    mus = np.geomspace(E[0], E[-1], 20_001)
    information = np.zeros(len(mus))
    for i, mu in enumerate(mus):
        weights = np.exp(-E / mu) / np.exp(-E / mu).sum()
        information[i] = (weights @ (E - weights @ E) ** 2) / mu**4
    inner = slice(len(mus) // 10, None)  # it rises towards the cold end, too
    best = mus[inner][np.argmax(information[inner])]
    assert fenn_display.choose_by_fisher_information(E) == pytest.approx(
        best, rel=7e-3
    )  # a grid step
    for E in (np.array([0.2, 1.0]), np.array([0.4, 0.9, 1.0, 1.0])):
        assert fenn_display.choose_by_fisher_information(E) == fenn.choose_by_heat_capacity(E)
