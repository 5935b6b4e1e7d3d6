"""Laplacian eigenmaps: a graph of neighbours, kept up to date, certified without any ring."""

from __future__ import annotations

import copy
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import streamembed as se
from scenarios import streams
from scenarios.fuzz import certificate
from streamembed.errors import (
    DegenerateMapWarning,
    InputError,
    ParameterError,
)
from streamembed.methods.extension import GraphExtension
from streamembed.methods.neighbor_graph import GraphMap

POINTS = np.random.default_rng(0).standard_normal((400, 3))
SMALL: dict[str, Any] = {"size": 150, "warm_up": 40, "n_components": 3}


def engine_of(**changes: Any) -> se.Engine:
    return se.Engine("laplacian_eigenmaps", **{**SMALL, **changes})


def same(left: se.Snapshot, right: se.Snapshot) -> bool:
    return all(
        np.array_equal(getattr(left, name), getattr(right, name))
        for name in ("psi", "coordinates", "eigenvalues", "ids", "reaches", "widths")
    )


# ---------------------------------------------------------------- the definition


@pytest.mark.parametrize("weights", ["self_tuning", "binary", "heat"])
def test_every_chunk_of_a_window_is_certified(weights: str) -> None:
    """On a roll through a turnover, by the block alone: no level that takes all pairs at once."""
    points = streams.swiss_roll(600, 0)
    engine = se.Engine("laplacian_eigenmaps", size=250, n_components=4, weights=weights)
    engine.learn(points[:300])
    for start in range(300, 600, 10):
        engine.learn(points[start : start + 10])
        snapshot = engine.snapshot()
        assert snapshot.certificate.met
        assert snapshot.refinement in ("view", "polish")
    assert certificate.check(snapshot, 3e-3) == []


def test_a_column_that_the_block_lacks_is_bounded() -> None:
    """The random vector does not let a block pass without one of its columns."""
    engine = se.Engine("laplacian_eigenmaps", size=300, n_components=3, tolerance=1e-3)
    engine.learn(streams.swiss_roll(300, 0))
    state, config = engine._progress.state, engine.config
    assert state is not None
    graph = state.map
    assert isinstance(graph, GraphMap)
    values, _ = graph.estimate_eigenpairs(
        state, graph.compute_normalisation(state, config), 5, config
    )
    # a block without that column cannot be certified as it is
    block = graph.block
    keep = [0, 1, *range(3, len(block.values))]
    blind = replace(
        block,
        psi=block.psi[:, keep],
        values=block.values[keep],
        products=block.products[np.ix_(keep, keep)],
    )
    bounded = replace(graph, block=blind, bounded=-1).renew_eigenvalue_bound(state, config)
    view = next(bounded.refine_eigenpairs(state, config))
    assert view.outside.bound > view.values[2] + 1e-3
    snapshot = engine.snapshot()
    assert snapshot.certificate.met
    np.testing.assert_allclose(snapshot.eigenvalues, values[:3], atol=1e-3)


# ---------------------------------------------------------------- a bound with an age


def learn_in_chunks(engine: se.Engine, points: np.ndarray) -> list[se.Snapshot]:
    snapshots = []
    for start in range(0, len(points), 10):
        engine.learn(points[start : start + 10])
        snapshots.append(engine.snapshot())
    return snapshots


def test_bounds_age_by_events_and_are_renewed() -> None:
    """A fiftieth of the window, at least 20 events; residuals and ``met`` are of now."""
    points = streams.swiss_roll(1900, 0)
    engine = se.Engine("laplacian_eigenmaps", size=1500, n_components=4, scaling=None)
    engine.learn(points[:1600])
    ages = [one.certificate.bound_age for one in learn_in_chunks(engine, points[1600:])]
    assert all(after in (0, before + 10) for before, after in pairwise(ages))
    assert max(ages) == 30
    assert ages.count(0) <= 12


def test_a_fresh_snapshot_has_a_bound_of_now_and_leaves_no_trace() -> None:
    """The same object twice; the one with an age is the same before and after."""
    points = streams.swiss_roll(600, 0)
    engine, other = (se.Engine("laplacian_eigenmaps", size=400, scaling=None) for _ in range(2))
    ages = set()
    for start in range(0, 600, 10):
        for one in (engine, other):
            one.learn(points[start : start + 10])
        if not engine.ready:
            continue
        fresh = engine.snapshot(fresh=True)
        usual = engine.snapshot()
        assert engine.snapshot(fresh=True) is fresh
        assert engine.snapshot() is usual
        assert fresh.certificate.bound_age == 0
        assert usual.certificate == other.snapshot().certificate
        assert other.snapshot(fresh=True).certificate == fresh.certificate
        assert same(usual, fresh)
        ages.add(usual.certificate.bound_age)
    assert ages == {0, 10, 20}
    diffusion = se.Engine(size=300)
    diffusion.learn(points)
    assert diffusion.snapshot(fresh=True) is diffusion.snapshot()
    assert diffusion.snapshot().certificate.bound_age == 0


@pytest.mark.parametrize("seed", range(4))
def test_a_part_that_separates_is_told_at_once(seed: int) -> None:
    """Two groups and a bridge of one point, which leaves first: two parts with that very chunk."""
    rng = np.random.default_rng(seed)
    away = np.array([3.0, 0.0])
    sides = np.concatenate([rng.random((150, 2)), rng.random((150, 2)) + away])
    sides = sides[rng.permutation(300)]
    bridge = np.array([[2.0, 0.5]])
    engine = se.Engine(
        "laplacian_eigenmaps", size=301, scaling=None, weights="binary", radius=1.3, warm_up=301
    )
    engine.learn(np.concatenate([bridge, sides]))
    assert engine.snapshot().n_connected == 1
    engine.learn(np.concatenate([rng.random((5, 2)), rng.random((4, 2)) + away]))
    engine.flush()
    certificate = engine.snapshot().certificate
    assert (engine.snapshot().n_connected, certificate.bound_age, certificate.met) == (2, 0, True)
    assert engine.snapshot().eigenvalues[0] == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("far", [4.0, 8.0, 30.0])
def test_a_cluster_that_arrives_whole_is_published_or_within_the_age(far: float) -> None:
    """Twelve points in one chunk: a missing mode is not there when the bound was taken."""
    rng = np.random.default_rng(int(far))
    parameters: dict[str, Any] = {"size": 600, "n_components": 3, "chunk_size": 12, "warm_up": 600}
    points = rng.standard_normal((720, 4))
    points[660:672] = 0.05 * rng.standard_normal((12, 4)) + far
    engine = se.Engine("laplacian_eigenmaps", scaling=None, **parameters)
    engine.learn(points[:600])
    for start in range(600, 720, 12):
        engine.learn(points[start : start + 12])
        aged: list[str] = []
        snapshot = engine.snapshot()
        assert certificate.check(snapshot, 3e-3, aged=aged) == []
        assert certificate.check(engine.snapshot(fresh=True), 3e-3) == []
        assert not aged or 660 < snapshot.position <= 672 + snapshot.certificate.bound_age


# ---------------------------------------------------------------- laws


def test_the_unit_of_all_features_does_not_matter() -> None:
    """Nor a shift: neighbours are the same, and weights relative to widths."""
    plain, moved = engine_of(scaling=None), engine_of(scaling=None)
    plain.learn(POINTS)
    moved.learn(16.0 * POINTS + 8.0)  # exact in binary
    np.testing.assert_allclose(
        plain.snapshot().eigenvalues, moved.snapshot().eigenvalues, atol=1e-6
    )


def test_a_new_point_has_the_coordinates_of_its_place() -> None:
    """Between its neighbours'; a point of the support has its own; reverse neighbours count."""
    points = streams.swiss_roll(1500, 0)
    engine = se.Engine("laplacian_eigenmaps", size=1000, n_components=2, scaling=None)
    engine.learn(points[:1000])
    snapshot = engine.snapshot()
    np.testing.assert_array_equal(snapshot.transform(points[:1000]), snapshot.coordinates)
    found = snapshot.transform(points[1000:])
    near = cdist(points[1000:], points[:1000]).argmin(axis=1)
    away = found - snapshot.coordinates[near]
    assert np.sqrt((away**2).mean()) < 0.2  # the root mean square of psi is 1
    # just beside the support, in all directions: those that would have it among theirs count too
    beside = points[:1000] + 1e-6
    extension = snapshot._extension
    assert isinstance(extension, GraphExtension)
    blind = copy.copy(extension)
    blind.reaches2 = np.zeros(1000)
    errors = [
        np.sqrt(((one.coordinates(beside) - snapshot.coordinates) ** 2).mean())
        for one in (extension, blind)
    ]
    assert errors[0] < errors[1]


def test_no_memory_for_pairs_of_points() -> None:
    """8,000 slots: a ring would take 256 MB; lists, walk and block take a few."""
    points = np.random.default_rng(1).standard_normal((8000, 3))
    engine = se.Engine("laplacian_eigenmaps", size=8000, warm_up=8000, tolerance=None)
    tracemalloc.start()
    engine.learn(points)
    engine.snapshot()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6


# ---------------------------------------------------------------- bad input


def test_parts_and_isolated_points_are_told() -> None:
    """Parts are eigenvalues 1, exactly; a point that nothing joins has coordinates 0."""
    groups = np.concatenate([POINTS[:60] * 0.1, POINTS[60:120] * 0.1 + 20.0])
    engine = se.Engine("laplacian_eigenmaps", size=120, n_components=2, scaling=None)
    engine.learn(groups)
    snapshot = engine.snapshot()
    assert snapshot.n_connected == 2
    assert snapshot.eigenvalues[0] == pytest.approx(1.0, abs=1e-12)
    sides = np.sign(snapshot.psi[:, 0])
    assert (sides[:60] == sides[0]).all()
    assert (sides[60:] == -sides[0]).all()
    alone = np.concatenate([groups, [[500.0, 0.0, 0.0]]])
    within = se.Engine(
        "laplacian_eigenmaps",
        size=121,
        n_components=2,
        scaling=None,
        weights="binary",
        radius=3.0,
        warm_up=121,
    )
    within.learn(alone)
    snapshot = within.snapshot()
    assert snapshot.certificate.isolated == 1
    assert snapshot.n_connected == 3
    assert (snapshot.coordinates[-1] == 0.0).all()
    assert (snapshot.transform([[1000.0, 0.0, 0.0]]) == 0.0).all()
    assert snapshot.coverage([[1000.0, 0.0, 0.0]]) == [0.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernel": "gaussian"}, "kernel='gaussian' is for method='diffusion_map'"),
        ({"alpha": 1.0}, "alpha=1.0 is for method='diffusion_map'"),
        ({"rank": 40}, "rank=40 is for method='diffusion_map'"),
        ({"diffusion_time": -2.0}, "diffusion_time=-2.0 must be a number between"),
        ({"bandwidth": 2.0}, "bandwidth=2.0 is for weights='heat'"),
        ({"radius": 2.0}, "radius=2.0 needs weights='binary' or 'heat'"),
        ({"weights": "cosine"}, "weights='cosine' must be one of"),
        ({"method": "diffusion_map", "weights": "heat"}, "weights='heat' is for method='laplacian"),
        ({"method": "diffusion_map", "radius": 1.0}, "radius=1.0 is for method='laplacian"),
        ({"size": 10**7}, "size=10000000 must be at most 1000000"),
    ],
)
def test_options_that_would_do_nothing_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        se.Engine(**{"method": "laplacian_eigenmaps", **changes})


def test_distances_of_a_huge_window_are_refused() -> None:
    """Their ring would be the n x n that a graph of points does without."""
    with pytest.raises(InputError, match=r"size=50000: their ring would take 10\.0 GB"):
        se.Engine("laplacian_eigenmaps", size=50_000).learn_distances([[], [1.0]])


def test_degrees_that_single_precision_does_not_hold() -> None:
    """Heat weights down to 1e-60 (fuzz, seeds 700139 and 700232: their inverse overflowed)."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((300, 3)) * rng.choice([1.0, 4.0], 300)[:, None]
    engine = se.Engine(
        "laplacian_eigenmaps", size=250, n_components=3, scaling=None, weights="heat", bandwidth=0.1
    )
    engine.learn(points)
    assert certificate.check(engine.snapshot(fresh=True), 3e-3) == []


def test_isolated_points_are_no_missed_eigenvalues() -> None:
    """Where the last published eigenvalues are 0, those of isolated points are no larger."""
    points = np.zeros((160, 2))
    is_far = np.arange(160) % 7 == 3
    points[is_far, 0] = 100.0 * np.arange(1, is_far.sum() + 1)
    points[100:104, 1] = 50.0
    engine = se.Engine(
        "laplacian_eigenmaps",
        n_components=3,
        size=200,
        warm_up=20,
        weights="binary",
        radius=1.0,
        scaling=None,
    )
    engine.learn(points)
    with pytest.warns(DegenerateMapWarning):
        certificate = engine.snapshot().certificate
    assert certificate.isolated == 23


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_points_with_many_duplicates_have_no_unit_either(unit: float) -> None:
    """No point has a positive seventh distance: widths come from the others in the lists."""
    corners = np.random.default_rng(1).integers(0, 2, size=(80, 2)).astype(float)
    shown = []
    for points in (corners, unit * corners):
        d = np.linalg.norm(points[:, None] - points, axis=2)
        engine = se.Engine("laplacian_eigenmaps", size=80, warm_up=80, n_neighbors=30)
        engine.learn_distances([d[row, :row] for row in range(80)])
        shown.append(engine.snapshot())
    np.testing.assert_allclose(shown[1].eigenvalues, shown[0].eigenvalues, atol=1e-9)
    np.testing.assert_allclose(shown[1].widths, unit * shown[0].widths, rtol=1e-12)


def test_a_sign_that_turned_between_two_renewals_is_told() -> None:
    """With eigen axes, of an eigenfunction that is new since the frame was taken."""
    points = np.random.default_rng(7).normal(size=(190, 2))
    points[158:] += [12.0, 0.0]
    engine = se.Engine("laplacian_eigenmaps", n_components=5, size=128, axes="eigen", scaling=None)
    engine.learn(points[:150])
    turned, before = 0, engine.snapshot()
    for start in range(150, 190, 10):
        engine.learn(points[start : start + 10])
        snapshot = engine.snapshot()
        compared = snapshot.compare(before)
        is_turned = np.array(compared.correlations) < 0.0
        assert {*np.flatnonzero(is_turned).tolist()} <= {*compared.lost}
        turned, before = turned + int(is_turned.sum()), snapshot
    assert turned > 0


@pytest.mark.parametrize("method", ["laplacian_eigenmaps", "linear_eigenmap"])
@pytest.mark.parametrize(
    ("n", "k", "reason"),
    [
        (8, 2, "tells none of the 8 points apart; use fewer"),
        (20, 8, "positive eigenvalues of the graph"),
    ],
)
def test_few_points_are_no_points_that_do_not_differ(
    method: str, n: int, k: int, reason: str
) -> None:
    """The graph of few points tells few apart, however they differ: the reason says so."""
    engine = se.Engine(method, warm_up=n, size=100, chunk_size=8, n_components=k)
    engine.learn(np.random.default_rng(0).normal(size=(n, 6)))
    with pytest.warns(DegenerateMapWarning, match=reason):
        engine.snapshot()


@pytest.mark.parametrize(
    ("parameters", "remedy"),
    [
        ({"weights": "binary", "radius": 0.05}, "radius=0.05"),
        ({"weights": "heat", "bandwidth": 1e-4}, "larger bandwidth"),
    ],
)
def test_isolated_points_are_told_with_the_parameter(
    parameters: dict[str, Any], remedy: str
) -> None:
    """Not that points do not differ, nor that outliers lead the map."""
    points = np.random.default_rng(0).normal(size=(200, 3))
    engine = se.Engine("laplacian_eigenmaps", size=200, scaling=None, **parameters)
    engine.learn(points)
    with pytest.warns(DegenerateMapWarning, match=f"of 200 points .*{remedy}"):
        engine.snapshot()


def test_without_a_tolerance_nothing_is_refined() -> None:
    """A bound that nobody takes is not looked for with every chunk: it took a third of a chunk."""
    points = np.random.default_rng(0).normal(size=(700, 5))
    residuals = {}
    for tolerance in (3e-3, None):
        engine = se.Engine("laplacian_eigenmaps", size=400, tolerance=tolerance)
        engine.learn(points)
        residuals[tolerance] = engine.snapshot().certificate.residual
    assert residuals[None] == pytest.approx(residuals[3e-3], rel=0.5)


@pytest.mark.parametrize("k", [2, 4, 7, 9])
def test_new_points_have_the_width_of_the_graph(k: int) -> None:
    """The distance to the last neighbour where K < 7; it was that to the 7th."""
    points = np.random.default_rng(0).standard_normal((120, 3))
    x = np.random.default_rng(5).standard_normal((1, 3))
    options = {"n_neighbors": k, "scaling": None, "axes": "eigen", "tolerance": 1e-9}
    engine = se.Engine("laplacian_eigenmaps", size=120, **options)
    engine.learn(points)
    snapshot = engine.snapshot()
    d = np.linalg.norm(snapshot.points - x, axis=1)
    order = np.argsort(d)
    is_neighbor = d <= snapshot.reaches
    is_neighbor[order[:k]] = True
    scale = snapshot.width * d[order[min(k, 7) - 1]] * snapshot.widths
    weights = np.exp(-(d**2) / scale) * is_neighbor
    powers = snapshot.eigenvalues ** (snapshot.diffusion_time - 1.0)
    expected = weights @ snapshot.psi / weights.sum() * powers
    np.testing.assert_allclose(snapshot.transform(x)[0], expected, rtol=1e-9)  # few operations
