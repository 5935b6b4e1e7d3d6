"""Locally linear embedding in a stream: the definition at every chunk, certificates, laws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits
from sklearn.manifold import LocallyLinearEmbedding as SklearnLLE

import streamembed as se
from scenarios.fuzz import certificate as fuzz_certificate
from streamembed.errors import DegenerateMapWarning, InputError, ParameterError
from streamembed.numeric.arrays import Floats

K, TOLERANCE = 12, 3e-3
DIGITS = load_digits().data / 16.0


def oracle(points: Floats, masses: Floats, arrivals: Floats) -> tuple[Floats, Floats]:
    """Eigenpairs of M by its definition, the constant moved to the end, ascending."""
    n = len(points)
    d2 = cdist(points, points, "sqeuclidean")
    np.fill_diagonal(d2, np.inf)
    rebuilt = np.zeros((n, n))
    for i in range(n):
        near = np.lexsort((arrivals, d2[i]))[: min(K, n - 1)]
        apart = points[near] - points[i]
        gram = apart @ apart.T
        trace = float(np.trace(gram))
        gram += np.eye(len(near)) * 1e-3 * (trace if trace > 0 else 1.0)
        weights = np.linalg.solve(gram, np.ones(len(near)))
        rebuilt[i, near] = weights / weights.sum()
    root = np.sqrt(masses)
    lacking = root[:, None] * (np.eye(n) - rebuilt) / root
    constant = root / np.linalg.norm(root)
    values, vectors = np.linalg.eigh(lacking.T @ lacking + 100.0 * np.outer(constant, constant))
    return values, vectors


def check(snapshot: se.Snapshot) -> None:
    """What the certificate says is so, by the dense matrix."""
    k, certificate = len(snapshot.eigenvalues), snapshot.certificate
    z = (snapshot.points - snapshot.center) / snapshot.scale
    values, vectors = oracle(z, snapshot.masses, snapshot.ids)
    unit = snapshot.coordinates * np.sqrt(snapshot.masses)[:, None]
    np.testing.assert_allclose(unit.T @ unit, np.eye(k), atol=1e-9)
    assert np.abs(np.sqrt(snapshot.masses) @ unit).max() < 1e-7  # mean 0
    following = max(values[k], 1e-12)
    assert certificate.outside_bound <= values[k] * (1.0 + 1e-6) + 1e-12
    if certificate.met:
        # in theta = u / (mu + u), u = mu_(k+1): what is published is no larger by the tolerance
        theta = following / (values[:k] + following)
        published = following / (snapshot.eigenvalues + following)
        assert np.abs(theta - published).max() <= 2.0 * TOLERANCE
        # the angle to the first k, at their gap in theta
        gap = theta[-1] - 0.5
        sine = np.linalg.norm(unit - vectors[:, :k] @ (vectors[:, :k].T @ unit), 2)
        assert sine <= 1.1 * np.sqrt(k) * TOLERANCE / gap + 1e-6


def test_it_is_scikit_learns() -> None:
    """The subspace of its coordinates, and its extension to new points."""
    engine = se.Engine(
        "lle", n_components=2, n_neighbors=K, size=250, scaling=None, tolerance=1e-6, memory="all"
    )
    points = DIGITS[:250] + 1e-3 * np.random.default_rng(0).standard_normal((250, 64))  # no ties
    engine.learn(points)
    snapshot = engine.snapshot()
    fitted = SklearnLLE(n_neighbors=K, n_components=2, eigen_solver="dense").fit(points)
    theirs = fitted.embedding_
    signs = np.sign((theirs * snapshot.coordinates).sum(axis=0))
    np.testing.assert_allclose(snapshot.coordinates * signs, theirs, atol=1e-6)
    np.testing.assert_allclose(
        snapshot.transform(DIGITS[300:330]) * signs, fitted.transform(DIGITS[300:330]), atol=1e-6
    )


@pytest.mark.filterwarnings("ignore::streamembed.errors.ScalingWarning")
@pytest.mark.parametrize("half_life", [1e-3, 0.1])
def test_masses_of_any_ratio_have_a_map(half_life: float) -> None:
    """M is 1e30 times as large as its least entries: its factors were once "exactly singular"."""
    rng = np.random.default_rng(1)
    engine = se.Engine(
        "lle",
        n_components=1,
        memory="landmarks",
        size=65,
        half_life=half_life,
        chunk_size=3,
        n_neighbors=5,
    )
    for _ in range(40):
        engine.learn(rng.standard_normal((3, 3)))
        if engine.ready:
            assert np.isfinite(engine.snapshot().coordinates).all()


def test_one_landmark_is_saved(tmp_path: Path) -> None:
    """All points equal: no column is one, and infinite values were once published instead."""
    engine = se.Engine("lle", memory="landmarks", size=20)
    engine.learn(np.ones((60, 2)))
    snapshot = engine.snapshot()
    assert snapshot.eigenvalues.tolist() == [0.0, 0.0]
    assert not snapshot.coordinates.any()
    snapshot.save(tmp_path / "one")
    assert se.Snapshot.load(tmp_path / "one").eigenvalues.tolist() == [0.0, 0.0]


def test_what_it_has_no_meaning_for_is_refused() -> None:
    """Distance rows, and options of other methods."""
    with pytest.raises(InputError, match="coordinates"):
        se.Engine("lle").learn_distances([[]])
    with pytest.raises(ParameterError, match="rank"):
        se.Engine("lle", rank=30)
    with pytest.raises(ParameterError, match="reg"):
        se.Engine("isomap", reg=0.1)
    engine = se.Engine("lle", size=60, n_neighbors=5)
    engine.learn(DIGITS[:60])
    with pytest.raises(InputError, match="transform"):
        engine.snapshot().transform_distances(np.ones((1, 60)))


def test_parts_are_counted_and_warned_of() -> None:
    """Four clusters that nothing joins, of which an eigenvalue each is 0."""
    rng = np.random.default_rng(0)
    places = 50.0 * np.array([[i, i * i % 3, 0] for i in range(4)])
    points = (rng.standard_normal((60, 4, 3)) + places).reshape(240, 3)
    engine = se.Engine("lle", size=240, warm_up=100, scaling=None, n_neighbors=10, n_components=4)
    engine.learn(points)
    with pytest.warns(DegenerateMapWarning, match="4 parts"):
        snapshot = engine.snapshot()
    assert snapshot.n_connected == 4
    assert np.isfinite(snapshot.coordinates).all()
    isomap = se.Engine("isomap", size=240, warm_up=100, scaling=None, n_neighbors=10)
    isomap.learn(points)
    with pytest.warns(DegenerateMapWarning, match="180 of 240 points"):
        assert isomap.snapshot().n_connected == 4


def test_a_single_landmark_was_never_met() -> None:
    """All events equal: nothing lies outside of a map of one point, and nothing was certified."""
    engine = se.Engine("lle", memory="landmarks", size=60)
    engine.learn(np.ones((100, 3)))
    certificate = engine.snapshot().certificate
    assert certificate.met
    assert certificate.residual == 0.0
    assert certificate.outside == certificate.outside_bound == np.inf


def test_a_refilled_slot_at_the_same_distance_left_weights_as_they_were() -> None:
    """On a lattice another point in the slot of a neighbour changed neither list nor distances."""
    rng = np.random.default_rng(0)
    points = rng.integers(0, 4, size=(400, 3)).astype(float)
    engine = se.Engine("lle", size=70, n_neighbors=15, scaling=None, chunk_size=1)
    for position in range(0, 400, 10):
        engine.learn(points[position : position + 10])
        if engine.ready:
            assert fuzz_certificate.check(engine.snapshot(), 3e-3) == []


def test_equal_points_gave_coordinates_of_any_weights() -> None:
    """A window of equal points was never met, with coordinates up to .37 and no warning."""
    engine = se.Engine("lle", size=100)
    engine.learn(np.ones((200, 3)))
    with pytest.warns(DegenerateMapWarning, match="tells none of the"):
        snapshot = engine.snapshot()
    assert snapshot.certificate.met
    assert not snapshot.coordinates.any()
