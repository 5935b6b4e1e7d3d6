"""Landmarks: the rule against its slow restatement, conservation, forgetting, and their map."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamembed as se
from scenarios.streams import still_rings
from streamembed.errors import DuplicateIdError
from streamembed.landmarks.absorption import Cover
from tests.oracles import oracle

# most of these supports are too small for their bandwidth, on purpose; one test is about that
pytestmark = pytest.mark.filterwarnings("ignore::streamembed.errors.ResolutionWarning")


def small(**changes: Any) -> se.Engine:
    parameters = {
        "memory": "landmarks",
        "size": 40,
        "chunk_size": 10,
        "scaling": None,
        "kernel": "gaussian",
        "bandwidth": 1.5,
        "warm_up": 30,
        "diffusion_time": 1.0,
        "axes": "eigen",
    }
    return se.Engine(**{**parameters, **changes})


def blob(n: int, seed: int = 0, width: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, width))


# ---------------------------------------------------------------- the rule


@settings(max_examples=10, deadline=None)
@given(
    st.integers(3, 25),
    st.integers(1, 60),
    st.sampled_from([None, 20.0, 300.0]),
    st.sampled_from(["blob", "grid", "moving", "outliers"]),
    st.integers(0, 10**6),
)
def test_the_cover_is_the_rule(
    size: int, chunk: int, half_life: float | None, kind: str, seed: int
) -> None:
    """Same landmarks, same masses as the slow restatement, after every chunk, whatever the data."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((4 * size + 50, 2))
    if kind == "grid":  # duplicates and ties
        points = np.round(2.0 * points)
    if kind == "moving":
        points[:, 0] += np.linspace(0.0, 30.0, len(points))
    if kind == "outliers":
        points[rng.random(len(points)) < 0.02] *= 50.0
    slow = oracle.LandmarkCover(size, half_life)
    engine = se.Engine(
        n_components=1,
        memory="landmarks",
        size=size,
        half_life=half_life,
        chunk_size=chunk,
        warm_up=size,
        scaling=None,
        kernel="gaussian",
        bandwidth=1.0,
    )
    cuts = [size, *range((size // chunk + 1) * chunk, len(points), chunk)]
    for start, stop in zip([0, *cuts], cuts, strict=False):
        engine.learn(points[start:stop])
        assert engine.pending == 0
        slow.learn(points[start:stop])
        if kind == "grid":  # ties are broken by rounding: mass and radius remain
            assert len(engine.support_ids) == len(slow.landmarks)
            continue
        births = sorted(each[0] for each in slow.landmarks)
        assert engine.support_positions.tolist() == births
        masses = [each[2] for each in sorted(slow.landmarks, key=lambda each: each[0])]
        assert engine._progress.state is not None
        support = engine._progress.state.support
        np.testing.assert_allclose(support.masses[support.oldest_first], masses, rtol=1e-9)
    assert engine._progress.state is not None
    total = sum(each[2] for each in slow.landmarks)
    np.testing.assert_allclose(engine._progress.state.support.masses.sum(), total, rtol=1e-12)


# ---------------------------------------------------------------- the map on it


def test_the_map_is_the_weighted_batch_map() -> None:
    """At full rank: eigenvalues to 1e-8 and coordinates of the oracle with the same masses."""
    points = still_rings(600, 0)
    engine = small(size=60, rank=60, n_components=4, warm_up=60, tolerance=1e-9)
    for start in range(0, 600, 60):
        engine.learn(points[start : start + 60])
        snapshot = engine.snapshot()
        truth = oracle.diffusion_map(snapshot.points, 1.5, 1.0, snapshot.masses)
        np.testing.assert_allclose(snapshot.eigenvalues, truth.eigenvalues[1:5], atol=1e-8)
        np.testing.assert_allclose(snapshot.stationary, truth.pi, rtol=1e-9)
        expected = oracle.diffusion_coordinates(truth, 4, 1.0)
        found = oracle.align_signs(snapshot.coordinates, expected)
        gaps = -np.diff(truth.eigenvalues[:6])
        clear = np.minimum(gaps[:-1], gaps[1:]) > 1e-3
        np.testing.assert_allclose(found[:, clear], expected[:, clear], atol=1e-7)
        new = still_rings(650, 0)[600:]
        extended = oracle.nystrom_extension(truth, snapshot.points, new, 4, 1.0)
        found = oracle.align_signs(snapshot.transform(new), extended)
        np.testing.assert_allclose(found[:, clear], extended[:, clear], atol=1e-6)


# ---------------------------------------------------------------- laws


def test_rescaling_keeps_the_masses() -> None:
    """Centre and scale are those of the weighted support; the cover is that of the new scale."""
    points = blob(800, 12) * [1.0, 5.0, 0.2] + 3.0
    engine = small(scaling="standard", bandwidth="auto")
    engine.learn(points)
    before = engine.snapshot()
    engine.rescale()
    after = engine.snapshot()
    np.testing.assert_array_equal(after.masses, before.masses)
    weights = before.masses / before.masses.sum()
    np.testing.assert_allclose(after.center, weights @ before.points, rtol=1e-12)
    assert engine._progress.state is not None
    assert engine._progress.state.cover is not None
    exact = Cover.of(engine._progress.state.support.scaled)
    np.testing.assert_array_equal(engine._progress.state.cover.nearest_d2, exact.nearest_d2)
    engine.learn(points)
    assert engine.snapshot().masses.sum() == pytest.approx(1600)


def test_an_id_may_come_again_once_it_is_merged_away() -> None:
    """Held ids are those of the landmarks and of what waits; a refused call changes nothing."""
    engine = small(size=30, chunk_size=5)
    names = [f"n{i}" for i in range(400)]
    engine.learn(blob(400, 13), ids=names)
    held = set(engine.support_ids.tolist())
    gone = next(name for name in names if name not in held)
    kept = engine.support_ids.tolist()[0]
    before = pickled(engine)
    with pytest.raises(
        DuplicateIdError, match=f"id '{kept}' \\(row 20\\) is already in the support"
    ):
        engine.learn(blob(21, 14), ids=[f"m{i}" for i in range(20)] + [kept])
    assert pickled(engine) == before
    assert engine.learn(blob(1, 15), ids=[gone]).accepted == 1


def pickled(engine: se.Engine) -> Any:
    return engine.to_bytes()


def test_huge_offsets_do_not_mislead() -> None:
    """At 1e8 from the origin the product that finds the nearest slot still does."""
    points = blob(500, 19)
    near, far = small(), small()
    near.learn(points)
    far.learn(points + 2.0**27)  # exact in float64
    np.testing.assert_array_equal(near.support_ids, far.support_ids)


# ---------------------------------------------------------------- forgetting fast


def finite(snapshot: se.Snapshot, points: np.ndarray) -> None:
    certificate = snapshot.certificate
    assert np.isfinite(snapshot.coordinates).all()
    assert np.isfinite(snapshot.eigenvalues).all()
    figures = certificate.residual, certificate.outside, certificate.gap, certificate.angle_bound
    assert np.isfinite(figures).all()
    assert np.isfinite(snapshot.transform(points)).all()


def test_a_short_half_life_does_not_wedge_the_engine() -> None:
    """Degrees of faded landmarks were zero in float32, and every later chunk a LinAlgError."""
    rng = np.random.default_rng(0)
    engine = se.Engine(
        memory="landmarks",
        size=300,
        half_life=5.0,
        chunk_size=256,
        n_components=3,
        warm_up=100,
        scaling=None,
        kernel="gaussian",
        bandwidth=0.1,
    )
    for _ in range(12):
        points = rng.normal(size=(256, 3))
        engine.learn(points)
        finite(engine.snapshot(), points[:3])


@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(8))
def test_any_half_life_keeps_the_map_finite(alpha: float, seed: int) -> None:
    """From a thousandth of an event up, any size, chunk and bandwidth, without a warning."""
    rng = np.random.default_rng((seed, int(alpha)))
    size = int(rng.choice([10, 40, 257, 300]))  # above 256 the ring is in float32
    chunk = int(rng.choice([1, 7, 100, 256])) if size < 100 else int(rng.choice([60, 256]))
    engine = se.Engine(
        memory="landmarks",
        size=size,
        half_life=float(10.0 ** rng.uniform(-3.0, 4.0)),
        chunk_size=chunk,
        n_components=int(rng.choice([2, 5])),
        warm_up=min(size, 30),
        kernel="gaussian",
        bandwidth=float(rng.choice([0.01, 0.1, 1.0])),
        alpha=alpha,
        scaling=str(rng.choice(["standard", ""])) or None,
    )
    events = size + 3 * chunk + 60
    points = rng.normal(size=(events, int(rng.choice([1, 3]))))
    points += rng.choice([0.0, 0.01]) * np.arange(events)[:, None]
    for start in range(0, events, 90):
        engine.learn(points[start : start + 90])
        finite(engine.snapshot(), points[:3])
    engine.rescale()
    finite(engine.snapshot(), points[:3])


@pytest.mark.parametrize("fill", [1e8, 1e12, 1e20])
def test_one_far_event_changes_nothing_for_the_others(fill: float) -> None:
    """Nearest landmarks were sought about the mean, which it moved: events were 4e5 widths off."""
    points = np.random.default_rng(0).normal(size=(2000, 3))
    points[::2, 0] += 8.0
    snapshots = []
    for value in (points[700, 0], fill):
        points[700, 0] = value
        engine = se.Engine(memory="landmarks", size=100, scaling=None)
        engine.learn(points)
        snapshots.append(engine.snapshot())
    plain, found = snapshots
    # the other landmarks share what the far one leaves: one of 100
    assert found.resolution == pytest.approx(plain.resolution, rel=0.05)
    assert np.median(found.masses) == pytest.approx(np.median(plain.masses), rel=0.1)


def test_old_outliers_make_room() -> None:
    """A place that was visited once, long ago, gives up its slot before any of the mass does."""
    size = 30
    points = blob(100 * size, 4)
    points[60] = [30.0, 30.0, 30.0]
    points[2900] = [-40.0, 0.0, 0.0]  # novel, when the first is old and a 50th of the mean mass
    engine = small(size=size, warm_up=30, bandwidth=3.0)
    engine.learn(points)
    held = engine.support_ids.tolist()
    assert 60 not in held
    assert 2900 in held
