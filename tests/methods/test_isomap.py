"""Isomap in a stream: shortest paths at every chunk, certificates, parts, laws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse.csgraph import floyd_warshall
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits
from sklearn.manifold import Isomap as SklearnIsomap

import streamembed as se
from scenarios.streams import swiss_roll
from streamembed.errors import DegenerateMapWarning, ParameterError
from streamembed.numeric.arrays import Floats

K, TOLERANCE = 10, 3e-3
DIGITS = load_digits().data / 16.0
STREAMS = {"roll": swiss_roll(500, 0), "digits": DIGITS[:500]}


def paths(distances: Floats, arrivals: Floats, radius: float | None = None) -> Floats:
    """Shortest paths by their definition."""
    n = len(distances)
    graph = np.full((n, n), np.inf)
    for i in range(n):
        near = np.lexsort((arrivals, distances[i]))
        near = near[near != i]
        near = near[:K] if radius is None else near[distances[i, near] <= radius]
        graph[i, near] = distances[i, near]
    graph = np.minimum(graph, graph.T)
    np.fill_diagonal(graph, 0.0)
    lengths: Floats = floyd_warshall(np.ma.masked_invalid(graph), directed=False)
    return lengths


def check(snapshot: se.Snapshot, distances: Floats, radius: float | None = None) -> None:
    """Paths, parts and what the certificate says, by dense matrices."""
    k, certificate = len(snapshot.eigenvalues), snapshot.certificate
    lengths = paths(distances, snapshot.ids, radius)
    np.testing.assert_allclose(snapshot.lengths, lengths, rtol=1e-9)
    here = snapshot.stationary > 0
    assert np.isfinite(lengths[np.ix_(here, here)]).all()
    assert np.isinf(lengths[np.ix_(here, ~here)]).all()
    assert certificate.isolated == np.count_nonzero(~here)
    assert not snapshot.coordinates[~here].any()
    masses = snapshot.masses[here]
    shares = masses / masses.sum()
    center = np.eye(len(masses)) - np.outer(np.ones(len(masses)), shares)
    matrix = center @ (-0.5 * lengths[np.ix_(here, here)] ** 2) @ center.T
    matrix = np.sqrt(masses)[:, None] * matrix * np.sqrt(masses)
    values = np.append(np.linalg.eigvalsh(matrix)[::-1], np.zeros(k + 1))
    if values[0] <= 1e-12 * len(masses) * (lengths[np.ix_(here, here)] ** 2).max(initial=0.0):
        assert not snapshot.coordinates.any()
        return
    unit = (snapshot.psi * np.sqrt(snapshot.stationary)[:, None])[here]
    errors = np.linalg.norm(matrix @ unit - unit * snapshot.eigenvalues, axis=0)
    residual = float(errors.max() / values[0])
    # a claim by probes is 1.2 times the truth at least, and 3 times it as a rule
    most = 8.0 if certificate.method == "sketched bound" else 1.05
    assert 0.95 * residual - 1e-8 <= certificate.residual <= most * residual + 1e-8
    assert values[k] <= certificate.outside_bound * (1.0 + 1e-9)
    if certificate.met:
        missing = np.maximum(values[:k], 0.0) - snapshot.eigenvalues
        assert missing.max() <= 1.01 * TOLERANCE * values[0]


def test_it_is_scikit_learns() -> None:
    """Coordinates and new points, on a graph of one part, at a tolerance of 1e-8."""
    points = STREAMS["roll"][:300]
    engine = se.Engine(
        "isomap", n_neighbors=K, memory="all", scaling=None, tolerance=1e-8, n_components=2
    )
    engine.learn(points)
    snapshot = engine.snapshot()
    fitted = SklearnIsomap(n_neighbors=K, n_components=2).fit(points)
    signs = np.sign((fitted.embedding_ * snapshot.coordinates).sum(axis=0))
    scale = np.abs(fitted.embedding_).max()
    np.testing.assert_allclose(snapshot.coordinates * signs, fitted.embedding_, atol=1e-6 * scale)
    new = STREAMS["roll"][400:420]
    # theirs looks for neighbours among all points, as ours
    np.testing.assert_allclose(
        snapshot.transform(new) * signs, fitted.transform(new), atol=1e-6 * scale
    )


@pytest.mark.parametrize("radius", [None, 1.5])
def test_parts_and_distance_rows(radius: float | None) -> None:
    """Two clusters that nothing joins: the larger has coordinates, the other zeros."""
    rng = np.random.default_rng(0)
    near = rng.standard_normal((160, 2))
    far = rng.standard_normal((100, 2)) + 100.0
    points = np.vstack([near[:90], far[:60], near[90:], far[60:]])
    engine = se.Engine("isomap", n_neighbors=K, radius=radius, size=120)
    for i in range(len(points)):
        engine.learn_distances([cdist(points[i : i + 1], points[max(0, i - 120) : i])[0]])
        if engine.ready and i % 20 == 19:
            snapshot = engine.snapshot()
            held = points[snapshot.ids]
            check(snapshot, cdist(held, held), radius)
    assert snapshot.n_connected >= 2
    assert snapshot.certificate.isolated > 20
    away = snapshot.transform_distances(cdist(np.array([[0.0, 0.0], [100.0, 100.0]]), held))
    assert np.count_nonzero(away.any(axis=1)) == 1  # one of the two is in the largest part
    np.testing.assert_allclose(
        snapshot.transform_distances(cdist(held, held)), snapshot.coordinates, atol=0.05
    )


# ---------------------------------------------------------------------- landmarks


def by_rows(snapshot: se.Snapshot, lengths: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues and coordinates of landmark Isomap by its definition, up to signs."""
    k, marks = len(snapshot.eigenvalues), np.flatnonzero(snapshot.stationary)
    squares = lengths[marks] ** 2
    between = squares[:, marks]
    center = np.eye(len(marks)) - 1.0 / len(marks)
    values, vectors = np.linalg.eigh(-0.5 * center @ between @ center)
    values, vectors = values[::-1][:k], vectors[:, ::-1][:, :k]
    return values, -0.5 * (squares.T - between.mean(axis=0)) @ (vectors / np.sqrt(values))


@pytest.mark.parametrize("name", STREAMS)
def test_landmarks_are_placed_by_their_definition(name: str) -> None:
    """Growing, and through a turnover: classical scaling of some rows, and the others by theirs."""
    engine = se.Engine(
        "isomap",
        n_components=3,
        n_neighbors=K,
        n_landmarks=40,
        size=150,
        tolerance=1e-9,
        axes="eigen",
    )
    for start in range(0, 400, 20):
        engine.learn(STREAMS[name][start : start + 20])
        if not engine.ready:
            continue
        snapshot = engine.snapshot()
        scaled = (snapshot.points - snapshot.center) / snapshot.scale
        lengths = paths(cdist(scaled, scaled), snapshot.ids)
        marks = snapshot.stationary > 0
        assert 0.4 * min(len(marks), 40) <= np.count_nonzero(marks) <= 40
        np.testing.assert_allclose(snapshot.lengths, lengths[:, marks], rtol=1e-9)
        values, truth = by_rows(snapshot, lengths)
        np.testing.assert_allclose(snapshot.eigenvalues, values, rtol=1e-8)
        signs = np.sign((truth * snapshot.coordinates).sum(axis=0))
        scale = np.abs(truth).max()
        np.testing.assert_allclose(snapshot.coordinates * signs, truth, atol=1e-7 * scale)
        again = snapshot.transform(snapshot.points)
        np.testing.assert_allclose(again, snapshot.coordinates, atol=1e-9 * scale)
        assert snapshot.certificate.met
        assert snapshot.refinement == "view"


def test_landmarks_of_parts() -> None:
    """The part with most landmarks has the coordinates; distances do as points do."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((220, 2)) + 100.0 * (rng.random(220) < 0.3)[:, None]
    engine = se.Engine("isomap", n_neighbors=5, n_landmarks=20, size=100)
    for i in range(len(points)):
        engine.learn_distances([cdist(points[i : i + 1], points[max(0, i - 100) : i])[0]])
        if engine.ready and i % 20 == 19:
            snapshot = engine.snapshot()
            held = points[snapshot.ids]
            here = snapshot.coordinates.any(axis=1)
            assert snapshot.certificate.isolated == np.count_nonzero(~here)
            near = held[here, 0] < 50
            assert near.all() or not near.any()  # one of the two clusters
            lengths = paths(cdist(held, held), snapshot.ids)
            assert np.isinf(lengths[np.ix_(here, ~here)]).all()
    assert snapshot.n_connected >= 2
    assert (
        np.abs(snapshot.transform_distances(cdist(held, held)) - snapshot.coordinates).max() < 0.05
    )


def test_too_few_and_too_many_landmarks_are_refused() -> None:
    """Also all of a large window."""
    for options, message in (
        ({"n_landmarks": 3}, "at least n_components"),
        ({"n_landmarks": 1001}, "at most 1000"),
        ({"n_landmarks": None, "size": 5001}, "at most 5000 with n_landmarks=None"),
    ):
        with pytest.raises(ParameterError, match=message):
            se.Engine("isomap", **options)
    with pytest.raises(ParameterError, match="is for method='isomap'"):
        se.Engine("classical_mds", n_landmarks=30)


# ---------------------------------------------------------------------- poor data


@pytest.mark.parametrize("n_landmarks", [None, 20])
def test_paths_between_duplicates_have_no_length(n_landmarks: int | None) -> None:
    """Exactly 0, though an edge of the graph cannot be; nothing else is 0."""
    X = np.random.default_rng(0).standard_normal((40, 3))
    engine = se.Engine("isomap", size=120, scaling=None, n_landmarks=n_landmarks, n_neighbors=6)
    engine.learn(np.repeat(X, 3, axis=0))  # three of each: chains of duplicates
    snapshot = engine.snapshot()
    ends = np.arange(120) if n_landmarks is None else np.flatnonzero(snapshot.stationary)
    same = cdist(snapshot.points, snapshot.points[ends]) == 0.0
    assert same.sum() == 3 * len(ends)
    assert np.array_equal(snapshot.lengths == 0.0, same)
    assert snapshot.lengths[~same].min() > 1e-3
    assert np.isfinite(snapshot.transform(X)).all()


def test_another_part_is_another_epoch() -> None:
    """Two sheets that nothing joins: where the larger changes, axes start again, and then stay."""
    rng = np.random.default_rng(0)
    which = rng.random(900) < 0.5
    points = np.column_stack(
        [rng.uniform(0, 4, 900), rng.uniform(0, 1, 900), np.where(which, 0.0, 100.0)]
    )
    engine = se.Engine("isomap", size=300, warm_up=300, tolerance=3e-3)
    moves, before = 0, None
    for start in range(0, 900, 10):
        engine.learn(points[start : start + 10])
        if not engine.ready:
            continue
        snapshot = engine.snapshot()
        sheet = snapshot.points[snapshot.stationary > 0, 2].mean()
        if before is not None:
            (last, where), epoch = before, before[0].frame.epoch
            moves += sheet != where
            if sheet != where:
                assert snapshot.frame.epoch > epoch
            if snapshot.frame.epoch == epoch:
                old, new = last.coordinates[10:], snapshot.coordinates[:-10]
                assert ((old * new).sum(axis=0) > 0).all()
        before = snapshot, sheet
    assert moves


def test_a_largest_part_of_equal_points_is_said_to_be_a_part() -> None:
    """The warning said that 300 points do not differ in anything; 252 of them were left out."""
    engine = se.Engine("isomap")
    engine.learn((np.random.default_rng(0).standard_normal((300, 3)) > 0) * 1.0)
    with pytest.warns(DegenerateMapWarning, match="outside of the largest of 8 parts"):
        engine.snapshot()


@pytest.mark.parametrize("n_landmarks", [50, 100])
def test_negative_mass_of_landmarks_is_that_of_the_paths_between_them(n_landmarks: int) -> None:
    """And smaller than that of all paths, which it was read as."""
    engine = se.Engine("isomap", size=300, n_landmarks=n_landmarks, n_neighbors=K)
    whole = se.Engine("isomap", size=300, n_neighbors=K)
    for each in (engine, whole):
        each.learn(DIGITS[:340])
    snapshot, shares = engine.snapshot(), []
    marks = snapshot.stationary > 0
    for lengths in (snapshot.lengths[marks], whole.snapshot().lengths):
        assert np.isfinite(lengths).all()  # one part
        center = np.eye(len(lengths)) - 1.0 / len(lengths)
        values = np.linalg.eigvalsh(center @ (-0.5 * lengths**2) @ center)
        shares.append(np.abs(values[values < 0]).sum() / np.abs(values).sum())
    assert snapshot.certificate.negative_mass == pytest.approx(shares[0], abs=1e-9)
    assert shares[0] < 0.95 * shares[1]
    assert whole.snapshot().certificate.negative_mass == pytest.approx(shares[1], abs=0.03)
