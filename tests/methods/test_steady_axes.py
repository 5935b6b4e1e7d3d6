"""Steady axes: what is turned, what it costs, and when an epoch ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import pdist

import streamembed as se
from scenarios.fuzz import certificate
from scenarios.streams import crossing_rectangle
from streamembed.methods import frame_reference

CLUSTERS = np.random.default_rng(7).standard_normal((7, 6)) * 2.0


def stationary(n: int, seed: int = 0) -> np.ndarray:
    """Seven clusters in six dimensions: several eigenvalues near one another."""
    rng = np.random.default_rng(seed)
    return CLUSTERS[rng.integers(7, size=n)] + rng.standard_normal((n, 6))


def learn(points: np.ndarray, **parameters: Any) -> se.Engine:
    engine = se.Engine(**{"size": 200, "n_components": 3, **parameters})
    engine.learn(points)
    return engine


METHODS = {
    "diffusion_map": 3,
    "laplacian_eigenmaps": 3,
    "linear_eigenmap": 3,
    "classical_mds": 0,
    "pca": 0,
    "kernel_pca": 0,
    "isomap": 0,
    "lle": 0,
}


@pytest.mark.parametrize("method", METHODS)
def test_coordinates_are_the_eigenpairs_turned(method: str) -> None:
    """By the definition: (lambda^t psi) rotation, with orthonormal columns, and its price."""
    snapshot = learn(stationary(600), method=method).snapshot()
    psi, values, rotation = (
        snapshot.carried_psi,
        snapshot.carried_eigenvalues,
        snapshot.rotation,
    )
    assert snapshot.spare_psi.shape[1] == len(snapshot.spare_eigenvalues) == METHODS[method]
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(3), atol=1e-12)
    events = snapshot.masses[snapshot.stationary > 0].sum()
    columns = {
        "lle": psi / np.sqrt(events),
        "diffusion_map": psi * values**snapshot.diffusion_time,
        "laplacian_eigenmaps": psi * values**snapshot.diffusion_time,
        "linear_eigenmap": psi * values**snapshot.diffusion_time,
    }.get(method, psi * np.sqrt(values / events))
    scale = np.abs(columns).max()
    np.testing.assert_allclose(snapshot.coordinates, columns @ rotation, atol=1e-12 * scale)
    spreads = snapshot.stationary @ columns**2
    price = 1.0 - (spreads @ rotation**2).sum() / spreads[:3].sum()
    np.testing.assert_allclose(snapshot.frame.price, price, atol=1e-9)
    assert snapshot.certificate.met


def test_new_points_are_turned_as_the_support_is() -> None:
    """The extension of the unturned eigenpairs, times the rotation."""
    snapshot = learn(stationary(700)).snapshot()
    new = stationary(50, seed=1)
    scaled, support = (
        (points - snapshot.center) / snapshot.scale for points in (new, snapshot.points)
    )
    d2 = ((scaled[:, None] - support) ** 2).sum(axis=2)
    own = np.sqrt(np.sort(d2, axis=1)[:, snapshot.n_neighbors - 1])
    weights = np.exp(-d2 / (snapshot.width * own[:, None] * snapshot.widths))
    weights *= snapshot.masses * snapshot.density_weights
    weights /= weights.sum(axis=1, keepdims=True)
    powers = snapshot.carried_eigenvalues ** (snapshot.diffusion_time - 1.0)
    expected = weights @ (snapshot.carried_psi * powers) @ snapshot.rotation
    np.testing.assert_allclose(snapshot.transform(new), expected, atol=1e-9)


@pytest.mark.parametrize("method", ["classical_mds", "pca", "isomap"])
def test_distances_are_kept_to_rounding(method: str) -> None:
    """Methods that promise distances: the same with steady axes and with eigen-axes."""
    points = stationary(500)
    steady, eigen = (
        learn(
            points, method=method, axes=axes, **({"n_neighbors": 30} if method == "isomap" else {})
        )
        for axes in ("steady", "eigen")
    )
    distances = pdist(steady.snapshot().coordinates)
    expected = pdist(eigen.snapshot().coordinates)
    np.testing.assert_allclose(distances, expected, atol=1e-10 * expected.max())


def test_signs_of_eigenfunctions_follow_the_axes() -> None:
    """Once the largest entry decided: psi flipped whenever another point became the largest."""
    engine = learn(stationary(400))
    points, previous = stationary(400, seed=3), engine.snapshot()
    for start in range(0, 400, 20):
        engine.learn(points[start : start + 20])
        snapshot = engine.snapshot()
        movement = np.sqrt(((snapshot.psi[:-20] - previous.psi[20:]) ** 2).mean(axis=0))
        assert movement[0] < 1.0  # a changed sign is 2
        previous = snapshot


def test_crossing_eigenvalues_move_nothing() -> None:
    """Two eigenfunctions trade places: no point jumps by a tenth, and the epoch goes on."""
    points = crossing_rectangle(5000, 0)
    engine = learn(
        points[1000:2000],
        size=1000,
        warm_up=1000,
        n_components=4,
        scaling=None,
        kernel="gaussian",
        bandwidth=0.5,
    )
    previous, swapped, epochs = engine.snapshot(), False, set()
    for start in range(2000, 4000, 50):
        engine.learn(points[start : start + 50])
        snapshot = engine.snapshot()
        unit = np.sqrt((snapshot.coordinates**2).sum(axis=1).mean())
        moved = snapshot.coordinates[:-50] - previous.coordinates[50:]
        # five chunks of ten, each of which may move a point by a tenth at most
        assert np.linalg.norm(moved, axis=1).max() < 0.2 * unit
        overlap = np.abs(snapshot.rotation[:2, 0])
        swapped |= bool(overlap[1] > overlap[0])
        epochs.add(snapshot.frame.epoch)
        previous = snapshot
    assert len(epochs) == 1
    assert swapped  # else the test would show nothing


def test_a_stationary_stream_keeps_its_epoch() -> None:
    """Four turnovers: no epoch begins, and new points stay where they were."""
    engine = learn(stationary(400))
    first, held = engine.snapshot(), stationary(200, seed=9)
    engine.learn(stationary(800, seed=5))
    last = engine.snapshot()
    assert last.frame.epoch == first.frame.epoch
    assert last.frame.fidelity > 0.95
    before, after = first.transform(held), last.transform(held)
    assert 1.0 - ((after - before) ** 2).sum() / (before**2).sum() > 0.9


def test_noise_has_no_axes_to_keep() -> None:
    """Thirty normal features: five of thirty equal axes cannot be kept, and epochs say so."""
    engine = learn(np.random.default_rng(0).standard_normal((400, 30)), n_components=5)
    first = engine.snapshot().frame.epoch
    engine.learn(np.random.default_rng(1).standard_normal((1000, 30)))
    frame = engine.snapshot().frame
    assert frame.epoch - first >= 3
    assert frame.since > 400
    assert frame.lost


@pytest.mark.parametrize("axes", ["steady", "eigen"])
def test_another_half_of_the_clusters_ends_the_epoch(axes: str) -> None:
    """Within one turnover after the change, and the lost axes are named."""
    rng = np.random.default_rng(2)
    before = np.vstack([stationary(400), stationary(200, seed=4)])
    other = rng.standard_normal((7, 6)) * 2.0
    after = other[rng.integers(7, size=200)] + rng.standard_normal((200, 6))
    engine = learn(before, axes=axes)
    epoch = engine.snapshot().frame.epoch
    engine.learn(after)
    frame = engine.snapshot().frame
    assert frame.epoch > epoch
    assert 600 < frame.since <= 800
    assert frame.lost


def test_a_plane_that_shows_too_little_ends_the_epoch() -> None:
    """However faithfully kept: a frame of the spares alone has a price, and is given up."""
    engine = learn(stationary(600))
    state = engine._progress.state
    assert state is not None
    frame = replace(state.frame, columns=state.frame.columns[:, [3, 4, 5, 0, 1, 2]])
    hidden = replace(state, frame=frame)
    normal = hidden.map.compute_normalisation(hidden, engine.config)
    values, psi = hidden.map.estimate_eigenpairs(
        hidden, normal, engine.config.n_carried, engine.config
    )
    columns = frame_reference.embed(psi, values, hidden, engine.config)
    aligned = frame_reference.align(hidden, engine.config, normal.stationary, columns)
    moved = aligned.measure()
    assert moved.fidelity > frame_reference.LEAST_FIDELITY
    assert moved.price > frame_reference.LARGEST_PRICE
    renewed = frame_reference.renew(hidden, engine.config)
    assert (renewed.epoch, renewed.since) == (frame.epoch + 1, state.position)
    shown = replace(state, frame=renewed)
    aligned = frame_reference.align(shown, engine.config, normal.stationary, columns)
    assert aligned.measure().price < 1e-9


def test_large_coordinates_are_turned() -> None:
    """Products of squares once overflowed: correlations were NaN."""
    engine = learn(stationary(600) * 1e70, method="pca", scaling=None)
    frame = engine.snapshot().frame
    assert np.isfinite([frame.fidelity, frame.price, *frame.correlations]).all()
    assert frame.fidelity > 0.9


def test_fewer_columns_than_axes() -> None:
    """Two features have two principal axes: the others are zeros, and nothing is NaN."""
    engine = learn(stationary(600)[:, :2], method="pca", n_components=4)
    snapshot = engine.snapshot()
    assert not snapshot.coordinates[:, 2:].any()
    assert snapshot.frame.price == 0.0
    assert np.isfinite(snapshot.frame.correlations).all()


def test_values_that_are_clipped_are_an_error() -> None:
    """Where the norm of a Gram matrix was taken too small, the certificate once did not say so."""
    result = certificate.run(1, 1966)
    assert result.wrong == []


def test_the_rotation_is_that_of_the_weighted_problem() -> None:
    """Landmarks of very different masses: points that stand for many events decide."""
    rng = np.random.default_rng(9)
    crowded = CLUSTERS[rng.choice(7, 1500, p=[0.7, 0.2, 0.02, 0.02, 0.02, 0.02, 0.02])]
    engine = learn(
        crowded + rng.standard_normal((1500, 6)), memory="landmarks", size=100, n_components=2
    )
    engine.learn(stationary(40, seed=11))
    state, snapshot = engine._progress.state, engine.snapshot()
    assert state is not None
    assert snapshot.masses.max() > 10 * np.median(snapshot.masses)
    order, frame = state.support.oldest_first, state.frame
    shared = (frame.births == state.support.births[: len(frame.births)])[order]
    columns = snapshot.carried_psi * snapshot.carried_eigenvalues**snapshot.diffusion_time
    y, reference, pi = columns[shared], frame.columns[order][shared], snapshot.stationary[shared]
    left, _, right = np.linalg.svd(y.T @ (pi[:, None] * reference))
    expected = (columns @ left @ right)[:, :2]
    np.testing.assert_allclose(snapshot.coordinates, expected, atol=1e-9)
    moved = ((expected[shared] - reference[:, :2]) ** 2).sum(axis=1)
    fidelity = 1.0 - pi @ moved / (pi @ (reference[:, :2] ** 2).sum(axis=1))
    np.testing.assert_allclose(snapshot.frame.fidelity, fidelity, atol=1e-9)
    assert fidelity < 1.0 - 1e-6


def test_a_faint_axis_that_is_lost_within_an_epoch_is_named() -> None:
    """Fidelity weighs axes by their spread; an outside trial lost the last of eight, unsaid."""
    engine = learn(stationary(600), method="laplacian_eigenmaps", n_components=8, diffusion_time=30)
    state = engine._progress.state
    assert state is not None
    columns = state.frame.columns.copy()
    columns[:, 7] = columns[np.random.default_rng(0).permutation(len(columns)), 7]
    hidden = replace(state, frame=replace(state.frame, columns=columns))
    renewed = frame_reference.renew(hidden, engine.config)
    assert renewed.epoch == state.frame.epoch
    assert renewed.fidelity is not None
    assert renewed.fidelity > 0.95
    assert renewed.lost == tuple(sorted({*state.frame.lost, 7}))
    assert renewed.kept_since == (*state.frame.kept_since[:7], state.position)
    assert renewed.correlations[7] < 0.95 < renewed.correlations[0]


def test_kept_since_says_which_axes_of_two_snapshots_compare() -> None:
    """Over epochs: an axis with which held-out points do not correlate any more is named."""
    rng = np.random.default_rng(6)
    other = rng.standard_normal((7, 6)) * 2.0
    points = np.concatenate(
        [stationary(600), other[rng.integers(7, size=500)] + rng.standard_normal((500, 6))]
    )
    engine = learn(points[:600])
    first, held = engine.snapshot(), np.concatenate([stationary(100, seed=5), points[-100:]])
    for start in range(600, 1100, 50):
        engine.learn(points[start : start + 50])
        snapshot = engine.snapshot()
        assert len(snapshot.frame.kept_since) == 3
        lost = snapshot.compare(first).lost
        assert lost == tuple(
            j for j, since in enumerate(snapshot.frame.kept_since) if since > first.position
        )
    assert snapshot.frame.epoch > first.frame.epoch
    before, after = first.transform(held), snapshot.transform(held)
    correlations = [abs(np.corrcoef(before[:, j], after[:, j])[0, 1]) for j in range(3)]
    assert all(j in lost for j in range(3) if correlations[j] < 0.7)
    assert lost


def test_a_snapshot_at_a_renewal_says_how_the_frame_changed() -> None:
    """Measured against the frame that was just made of itself, fidelity was 1 there, always."""
    engine = learn(stationary(1100))
    state, frame = engine._progress.state, engine.snapshot().frame
    assert state is not None
    assert state.frame.position == state.position
    assert frame.fidelity == state.frame.fidelity < 1.0 - 1e-6
    assert frame.correlations == state.frame.correlations


@pytest.mark.parametrize("method", ["isomap", "lle"])
def test_support_points_keep_their_coordinates_where_neighbours_tie(method: str) -> None:
    """On a lattice ties go by age; a new point took edges that the graph does not have."""
    lattice = np.stack(np.meshgrid(*[np.arange(6.0)] * 3), axis=-1).reshape(-1, 3)
    points = np.random.default_rng(0).permutation(lattice)
    engine = learn(points, method=method, size=216, n_components=2, n_neighbors=5, scaling=None)
    snapshot = engine.snapshot()
    size = np.abs(snapshot.coordinates).max()
    tolerance = 5e-3 if method == "isomap" else 1e-12  # that of the certificate
    np.testing.assert_allclose(
        snapshot.transform(snapshot.points), snapshot.coordinates, atol=tolerance * size
    )


def test_an_axis_that_turns_between_renewals_is_lost_at_once() -> None:
    """On recordings axes of correlation .18 were called kept until half of the window was new."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((480, 3)) * [3, 2, 1]
    points[300:] = rng.standard_normal((180, 3)) * [1, 3, 5]
    engine = learn(points[:300], method="pca", size=300, n_components=2, warm_up=300, scaling=None)
    first, lost = engine.snapshot(), 0
    for start in range(300, 440, 10):
        engine.learn(points[start : start + 10])
        snapshot = engine.snapshot()
        for j in np.flatnonzero(np.array(snapshot.frame.correlations) < 0.95).tolist():
            lost += 1
            assert j in snapshot.frame.lost
            assert snapshot.frame.kept_since[j] == snapshot.position
            assert j in snapshot.compare(first).lost
    assert lost >= 10
    turned = snapshot
    engine.learn(points[440:460])
    assert turned.frame.since < turned.position - 100  # at no renewal
    assert set(turned.frame.lost) <= set(engine.snapshot().compare(turned).lost)
