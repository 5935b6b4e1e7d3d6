"""The self-tuning kernel in a stream: the operator, the guards, new points, laws, what is said."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import streamembed as se
from streamembed.engine import diagnostics
from streamembed.errors import DegenerateMapWarning, ParameterError
from streamembed.geometry import self_tuning
from streamembed.methods.state import State
from tests.oracles import oracle

# too few landmarks for the kernel is what some of these are about
pytestmark = pytest.mark.filterwarnings("ignore::streamembed.errors.ResolutionWarning")

K, WIDTH = 15, 2.0


def state_of(engine: se.Engine) -> State:
    assert engine._progress.state is not None
    return engine._progress.state


def scaled(snapshot: se.Snapshot) -> np.ndarray:
    return (snapshot.points - snapshot.center) / snapshot.scale


def truth_of(snapshot: se.Snapshot) -> oracle.DiffusionMap:
    """The dense map of the widths that the snapshot names."""
    return oracle.diffusion_map(
        scaled(snapshot), snapshot.widths, snapshot.alpha, snapshot.masses, snapshot.width
    )


def mapped(points: np.ndarray, **changes: Any) -> se.Snapshot:
    """The map of all points at once."""
    n = len(points)
    engine = se.Engine(**{"size": n, "warm_up": n, "n_components": 10, "width": 2.0, **changes})
    engine.learn(points)
    return engine.snapshot()


# ---------------------------------------------------------------- the operator, chunk by chunk


def moving(rng: np.random.Generator, n: int) -> np.ndarray:
    """A cloud that wanders, and breathes between a third and three times its size."""
    size = np.exp(np.sin(np.arange(n) / 150.0))
    return rng.standard_normal((n, 3)) * size[:, None] + np.sin(np.arange(n) / 400.0)[:, None]


def integers(rng: np.random.Generator, n: int) -> np.ndarray:
    """Ties and duplicates on a lattice whose extent changes."""
    extent = 3.0 + 6.0 * (np.sin(np.arange(n) / 200.0) > 0)
    return np.floor(rng.random((n, 3)) * extent[:, None])


def visits(rng: np.random.Generator, n: int) -> np.ndarray:
    """A cluster comes and goes, and outliers with it."""
    points = 0.5 * rng.standard_normal((n, 2))
    points[(np.arange(n) // 60) % 3 == 1] += 8.0
    points[::97] *= 1e4
    return points


STREAMS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "moving": moving,
    "integers": integers,
    "visits": visits,
}


@pytest.mark.parametrize(
    ("name", "size", "chunk", "memory", "chunks"),
    [
        ("moving", 80, 5, "window", 200),
        ("integers", 80, 5, "window", 120),
        ("visits", 120, 5, "window", 100),
        ("moving", 120, 25, "window", 60),
        ("integers", 280, 10, "window", 70),  # a ring in float32
        ("moving", 80, 5, "landmarks", 150),
    ],
)
def test_the_operator_is_that_of_the_frozen_widths(
    name: str, size: int, chunk: int, memory: str, chunks: int
) -> None:
    """After hundreds of chunks with slots filled again: the ring, its degrees, and every reach.

    At every chunk's end no reach has drifted by a half, unless the most that may be filled were.
    """
    count = 50 + chunks * chunk
    points = STREAMS[name](np.random.default_rng(0), count)
    engine = se.Engine(size=size, chunk_size=chunk, memory=memory, scaling=None, seed=1)
    engine.learn(points[:50])
    full = 0
    for start in range(50, count, chunk):
        before = state_of(engine)
        engine.learn(points[start : start + chunk])
        after = state_of(engine)
        assert before.map.scales is not None
        assert after.map.scales is not None
        again = after.counts.refilled - before.counts.refilled
        if again >= (self_tuning.MOST_REFILLED if 2 * chunk > 25 else 25 - chunk):
            full += 1
            continue
        if (start - 50) % (20 * chunk) == 0:
            points_now = after.support.scaled
            d = cdist(points_now, points_now)
            now = np.array([oracle.reach(np.delete(row, i), K) for i, row in enumerate(d)])
            floor = 0.1 * before.map.scales.median
            ratio = np.maximum(now, floor) / after.map.scales.bases
            assert 1 / 1.5 - 1e-9 <= ratio.min() <= ratio.max() <= 1.5 + 1e-9
    assert full < 0.1 * chunks
    assert engine.refilled > 10
    state = state_of(engine)
    assert state.map.scales is not None
    widths, now = state.map.scales.widths, state.support.scaled
    d2 = cdist(now, now, "sqeuclidean")
    expected = np.exp(-d2 / (WIDTH * np.outer(widths, widths)))
    ring = state.map.weights.rows(np.arange(len(widths)))
    # exp(-x) is off by x exp(-x) eps, less than eps, and by what squared distances have lost
    rounding = 8 * float(np.finfo(ring.dtype).eps) + state.map.weights.loss
    np.testing.assert_allclose(ring, expected, rtol=0, atol=rounding)
    np.testing.assert_allclose(state.map.degrees, expected @ state.support.masses, rtol=1e-5)


def test_a_chunk_that_fills_the_room_of_a_border_is_no_excuse() -> None:
    """Chunks of 25 in windows of up to 500 filled no slot again, ever: a tenth had drifted."""
    rng = np.random.default_rng(0)
    size = np.concatenate([np.full(300, 0.2), np.linspace(0.2, 3.0, 600)])
    engine = se.Engine(size=300, chunk_size=25, scaling=None, n_components=1)
    engine.learn(rng.standard_normal((900, 4)) * size[:, None])
    state = state_of(engine)
    assert state.map.scales is not None
    assert engine.refilled > 50
    d, bases = cdist(state.support.scaled, state.support.scaled), state.map.scales.bases
    now = np.sort(d, axis=1)[:, K]
    ratio = np.maximum(now / bases, bases / now)
    assert (ratio > 1.5).mean() < 0.02


# ---------------------------------------------------------------- the guards

N = 600


def cloud(n: int = N, d: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d))


def with_rows(rows: int, place: float) -> np.ndarray:
    points = cloud()
    points[7 : 7 + rows] = place + 0.01 * cloud(rows, seed=5)
    return points


def one_point_often() -> np.ndarray:
    points = cloud()
    points[::6] = 0.5
    return points


def few_points_often() -> np.ndarray:
    return np.repeat(cloud(30), 20, axis=0)


def binary() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2, (N, 4)).astype(float)


def two_outliers() -> np.ndarray:
    points = cloud()
    points[100], points[400] = 1e3, -1e2
    return points


def heavy(freedom: float) -> np.ndarray:
    return np.random.default_rng(0).standard_t(freedom, (N, 3))


def four_clusters(widths: tuple[float, ...]) -> np.ndarray:
    which = np.arange(N) % 4
    centres = 1e4 * np.eye(4)[:, :3]
    return centres[which] + np.array(widths)[which, None] * cloud()


def awake() -> np.ndarray:
    """A feature is constant at first."""
    points = cloud()
    points[:400, 1] = 2.0
    return points


@pytest.mark.parametrize(
    ("name", "points", "n1", "least", "most"),
    [
        ("100 copies of one point", one_point_often(), 0, 60, N),
        ("30 points, 20 copies each", few_points_often(), 0, 40, N),
        ("4 binary features", binary(), 0, 100, N),
        ("outliers at 1,000 and 100 deviations", two_outliers(), 0, 60, N),
        ("five together, far away", with_rows(5, 1e3), 0, 3, 12),
        ("twelve together, far away", with_rows(12, 1e3), 1, 11, 13),
        ("thirty together, far away", with_rows(30, 1e3), 1, 29, 33),
        ("t with one degree of freedom", heavy(1.0), 0, 12, N),
        ("t with half a degree of freedom", heavy(0.5), 0, 6, N),
        ("four far clusters", four_clusters((1.0, 1.0, 1.0, 1.0)), 3, 50, N),
        ("of widths .01 to 10", four_clusters((0.01, 0.1, 1.0, 10.0)), 3, 50, N),
        ("all points equal", np.full((N, 3), 5.0), 0, N, N),
        ("constant and binary features", np.column_stack([binary(), np.ones(N)]), 0, 100, N),
        ("a feature that wakes", awake(), 0, 60, N),
    ],
)
def test_guards(name: str, points: np.ndarray, n1: int, least: float, most: float) -> None:
    """Eigenvalues above .999 of ten, and the fewest points that carry one of them."""
    snapshot = mapped(points)
    assert snapshot.certificate.met
    assert np.count_nonzero(snapshot.eigenvalues > 0.999) == n1, snapshot.eigenvalues
    assert snapshot.certificate.parts == 1 + n1
    carried = np.array(snapshot.certificate.effective_points)
    known = snapshot.eigenvalues > 0
    psi, pi, masses = snapshot.psi[:, known], snapshot.stationary, snapshot.masses
    np.testing.assert_allclose(carried[known], oracle.effective_points(psi, pi, masses))
    assert least <= carried.min() <= most, carried
    for array in (snapshot.coordinates, snapshot.degrees, snapshot.transform(points)):
        assert np.isfinite(array).all()


@pytest.mark.filterwarnings("ignore::streamembed.errors.ScalingWarning")
@pytest.mark.parametrize("changes", [{"warm_up": 20}, {"n_neighbors": 40}])
def test_an_early_outlier_is_not_left_alone(changes: dict[str, Any]) -> None:
    """Placed among fewer than 2 k points, it was never raised: a component of its own for good."""
    points = cloud(300)
    points[5] = 1e3
    engine = se.Engine(memory="all", **changes)
    engine.learn(points[:100])
    assert min(engine.snapshot().certificate.effective_points) > 10
    engine.learn(points[100:])
    snapshot = engine.snapshot()
    assert snapshot.eigenvalues[0] < 0.9
    assert min(snapshot.certificate.effective_points) > 60


# ---------------------------------------------------------------- new points


def streamed(**changes: Any) -> tuple[se.Engine, np.ndarray]:
    """An engine in the middle of a stream that has filled slots again, and points to come."""
    points = moving(np.random.default_rng(2), 500)
    engine = se.Engine(
        **{"size": 150, "n_components": 4, "tolerance": 1e-9, "width": 2.0, "axes": "eigen"}
        | {"diffusion_time": 1.0, **changes}
    )
    engine.learn(points[:400])
    return engine, points[400:]


@pytest.mark.parametrize("changes", [{}, {"alpha": 1.0}, {"diffusion_time": 3.0}, {"width": 0.5}])
def test_new_points_have_the_coordinates_of_the_definition(changes: dict[str, Any]) -> None:
    """With s_x by the rule of the support's own widths, near and far; and coverage without it."""
    engine, coming = streamed(**changes)
    snapshot = engine.snapshot()
    far = 12.0 * np.abs(coming[:3]) + 30.0
    new = np.concatenate([coming, far, snapshot.points[:5]])
    d = cdist((new - snapshot.center) / snapshot.scale, scaled(snapshot))
    d[-5:][d[-5:] < 1e-9] = 0.0
    truth = truth_of(snapshot)
    rule = (snapshot.n_neighbors, snapshot.width, snapshot.least_width)
    expected = oracle.self_tuning_extension(truth, d, *rule, 4, snapshot.diffusion_time)
    found, coverage = snapshot.transform_with_coverage(new)
    found = found * np.sign(np.sum(found * expected, axis=0))
    tolerance = 1e-5 * np.abs(expected).max()  # a raised width is known to 1e-6
    np.testing.assert_allclose(found, expected, atol=tolerance)
    among = cdist(scaled(snapshot), scaled(snapshot))
    widths, masses = snapshot.widths, snapshot.masses
    near = oracle.self_tuning_coverage(d, among, widths, masses, snapshot.width)
    np.testing.assert_allclose(coverage, near, atol=1e-9)
    assert near[-8:-5].max() < 1e-6 < 0.5 < np.median(near)


@pytest.mark.parametrize("scaling", ["standard", "global", None])
def test_points_at_a_million_deviations_are_nowhere(scaling: str | None) -> None:
    """Finite coordinates within those of the support; coverage 0, to the last bit."""
    engine, coming = streamed(scaling=scaling)
    snapshot = engine.snapshot()
    for size in (1e6, 1e20, 1e150):
        far = size * np.sign(coming[:20])
        coordinates, coverage = snapshot.transform_with_coverage(far)
        assert (coverage == 0.0).all()
        assert (np.abs(coordinates) <= 1.001 * np.abs(snapshot.psi).max(axis=0)).all()


def test_coverage_is_relative_to_the_median_over_at_most_256_points() -> None:
    """The page said over the support; above 256 points it is over 256 of them, spaced by age."""
    points = cloud(700)
    engine = se.Engine(memory="all", scaling=None)
    engine.learn(points)
    snapshot = engine.snapshot()
    far = 2.0 * cloud(40)
    ages = np.argsort(snapshot.ids)
    spaced = np.unique(np.linspace(0, 699, 256).astype(int))
    for rows, exact in ((ages[spaced], True), (ages, False)):
        truth = oracle.self_tuning_coverage(
            cdist(far, snapshot.points),
            cdist(snapshot.points[rows], snapshot.points),
            snapshot.widths,
            snapshot.masses,
            snapshot.width,
        )
        off = np.abs(snapshot.coverage(far) - truth).max()
        assert (off < 1e-9) == exact  # 1e-9: exponents are exact to 1e-10
        assert off < 0.13  # the worst of 39 streams


def test_a_duplicate_has_the_width_of_its_slot() -> None:
    """At a distance of 0 no width is chosen: that of the point there, the oldest of several."""
    engine = se.Engine(memory="all", n_components=3, scaling=None, tolerance=1e-9)
    points = cloud(150)
    points[100:140] = points[20:60]
    engine.learn(points)
    snapshot = engine.snapshot()
    found = snapshot.transform(points[100:140])
    np.testing.assert_allclose(found, snapshot.coordinates[20:60], atol=1e-7)


def test_points_far_beyond_widths_near_zero_are_finite() -> None:
    """A width that leaves the doubles raised RuntimeWarning: overflow, and then NaN."""
    points = 1e-150 * cloud(200)
    snapshot = mapped(points, scaling=None)
    found, coverage = snapshot.transform_with_coverage(np.array([[1e150] * 3, [-1.0] * 3]))
    assert np.isfinite(found).all()
    assert (coverage == 0.0).all()


def test_an_outlier_beyond_1e150_has_its_own_coordinates() -> None:
    """Squared distances above 1e300 were cut off for new points, and not for the support."""
    points = cloud(200)
    points[77] = 1e150
    snapshot = mapped(points, scaling=None, alpha=1.0)
    tolerance = 50 * snapshot.certificate.residual
    np.testing.assert_allclose(snapshot.transform(points), snapshot.coordinates, atol=tolerance)


# ---------------------------------------------------------------- symmetries


def turned(points: np.ndarray) -> np.ndarray:
    return points @ np.linalg.qr(np.random.default_rng(3).standard_normal((3, 3)))[0]


@pytest.mark.parametrize(
    ("change", "scaling"),
    [
        (turned, None),
        (turned, "global"),
        (lambda points: points + 1e5, "standard"),
        (lambda points: points + 1e5, None),
        (lambda points: 7.0 * points, "standard"),
        (lambda points: 7.0 * points, None),
        (lambda points: points[:, ::-1], "standard"),
    ],
)
def test_symmetries(change: Callable[[np.ndarray], np.ndarray], scaling: str | None) -> None:
    """Rotation, shift, unit of all features, their order: the same map of a stream."""
    points = moving(np.random.default_rng(4), 220)
    maps = []
    for events in (points, change(points)):
        engine = se.Engine(size=80, n_components=3, scaling=scaling, tolerance=1e-9, axes="eigen")
        engine.learn(events)
        assert engine.refilled > 0
        maps.append(engine.snapshot())
    plain, other = maps
    np.testing.assert_allclose(other.eigenvalues, plain.eigenvalues, atol=1e-8)
    found = oracle.align_signs(other.coordinates, plain.coordinates)
    np.testing.assert_allclose(found, plain.coordinates, atol=1e-5)
    ratio = other.widths / plain.widths
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-7)


def test_unknown_distances_are_no_neighbours() -> None:
    """inf: no weight, and no neighbour; with fewer than k known, the farthest of these."""
    snapshot = mapped(cloud(120), scaling=None, n_components=3)
    d = cdist(cloud(5, seed=9), snapshot.points)
    for known in (1, 2, 14, 40):
        rows = np.full_like(d, np.inf)
        rows[:, :known] = d[:, :known]
        found = snapshot.transform_distances(rows)
        assert np.isfinite(found).all()
        if known == 1:
            only = snapshot.coordinates[0] / snapshot.eigenvalues
            np.testing.assert_allclose(found, np.broadcast_to(only, found.shape), rtol=1e-6)
        assert np.isfinite(snapshot.coverage_distances(rows)).all()


def test_masses_doubled_change_nothing() -> None:
    """Every event twice in a row, in chunks twice as long: landmarks of twice the mass."""
    points = moving(np.random.default_rng(6), 240)
    settings = {"memory": "landmarks", "size": 60, "n_components": 3, "tolerance": 1e-9}
    once = se.Engine(chunk_size=5, warm_up=50, **settings)
    twice = se.Engine(chunk_size=10, warm_up=100, **settings)
    once.learn(points)
    twice.learn(np.repeat(points, 2, axis=0))
    one, two = once.snapshot(), twice.snapshot()
    np.testing.assert_allclose(two.masses, 2.0 * one.masses)
    np.testing.assert_allclose(two.widths, one.widths, rtol=1e-9)
    np.testing.assert_allclose(two.eigenvalues, one.eigenvalues, atol=1e-8)
    np.testing.assert_allclose(
        two.certificate.effective_points,
        2.0 * np.array(one.certificate.effective_points),
        rtol=1e-4,
    )


# ---------------------------------------------------------------- to the bit

SMALL: dict[str, Any] = {"size": 60, "warm_up": 20, "chunk_size": 7, "n_neighbors": 5}
EVENTS = moving(np.random.default_rng(8), 160)


# ---------------------------------------------------------------- the epoch at the fill


@pytest.mark.parametrize(
    ("changes", "is_new"),
    [
        ({}, True),
        ({"memory": "landmarks"}, True),
        ({"warm_up": 60}, False),  # full as it starts: nothing is computed again
        ({"memory": "all"}, False),
        ({"kernel": "gaussian"}, False),
    ],
)
def test_an_epoch_begins_as_the_support_fills(changes: dict[str, Any], is_new: bool) -> None:
    """Once, at the chunk that fills it: scaling and widths as of all that it holds."""
    engine = se.Engine(**{**SMALL, **changes})
    events = np.random.default_rng(3).standard_normal((260, 3)) * np.linspace(1, 4, 260)[:, None]
    found, scales = [], []
    for stop in (27, 41, 55, 69, 260):
        engine.learn(events[engine.position : stop])
        if engine.ready:
            found.append(engine.snapshot().frame.epoch)
            scales.append(engine.snapshot().scale)
    if is_new:
        assert found[3] > found[2]  # between 55 and 69 events
    assert np.array_equal(scales[0], scales[-1]) is not is_new


def test_the_epoch_is_that_of_a_start_with_all_of_it() -> None:
    """Scaling and widths as if the window had been there at once."""
    grown, fresh = se.Engine(**SMALL), se.Engine(**{**SMALL, "warm_up": 60})
    grown.learn(EVENTS[:63])
    fresh.learn(EVENTS[3:63])
    one, other = grown.snapshot(), fresh.snapshot()
    np.testing.assert_allclose(one.scale, other.scale)
    np.testing.assert_allclose(one.widths, other.widths, rtol=1e-6)
    np.testing.assert_allclose(one.eigenvalues, other.eigenvalues, atol=1e-6)


# ---------------------------------------------------------------- who carries the map


def said(engine: se.Engine) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        engine.snapshot()
    return [str(one.message) for one in caught if one.category is DegenerateMapWarning]


def test_a_map_led_by_outliers_is_said_to_be_once_a_scaling() -> None:
    """The component, by how many it is carried, where to look; gaussian: the other kernel."""
    points = cloud(400)
    points[[150, 300]] = [[1e3] * 3, [-1e3] * 3]
    engine = se.Engine(size=200, kernel="gaussian", bandwidth=3.0, scaling=None, alpha=0.0)
    engine.learn(points[:140])
    assert said(engine) == []
    engine.learn(points[140:200])
    (line,) = said(engine)
    assert line == (
        "component 0 is carried by about 1 of 200 points: outliers lead the map; look at "
        'snapshot.leading_ids(0), remove or scale them, or use kernel="self_tuning"'
    )
    assert engine.snapshot().leading_ids(0, 1) == [150]
    engine.learn(points[200:310])
    assert said(engine) == []
    engine.rescale()
    assert len(said(engine)) == 1
    assert said(engine) == []


def test_a_map_of_parts_is_said_to_be() -> None:
    """More parts than components is a warning, and names what to ask for; fewer is a fact."""
    points = four_clusters((1.0, 1.0, 1.0, 1.0))[:300]
    for k, least in ((1, "the component only"), (2, "the 2 components only"), (3, "the 3")):
        engine = se.Engine(size=300, warm_up=300, n_components=k)
        engine.learn(points)
        lines = said(engine)
        parts = engine.snapshot().certificate.parts
        assert parts == min(4, k + 2)
        assert len(lines) == 1
        assert lines[0].startswith(least)
        assert f"at least {parts} ({parts - 1} eigenvalues of 1)" in lines[0]
        assert f"n_components >= {parts + 2}" in lines[0]
        assert diagnostics.describe_separate_parts(engine.snapshot()) is None
    engine = se.Engine(size=300, warm_up=300, n_components=6)
    engine.learn(points)
    assert said(engine) == []
    assert diagnostics.describe_separate_parts(engine.snapshot()) == (
        "components 0 to 2 tell 4 separate parts apart; structure inside them starts at component 3"
    )


# ---------------------------------------------------------------- parameters


def test_a_bandwidth_is_for_the_gaussian_kernel() -> None:
    """Refused with what to do, whatever else is given."""
    with pytest.raises(ParameterError, match=r"bandwidth=3.0 is for kernel='gaussian'; set that"):
        se.Engine(bandwidth=3.0)
    se.Engine(kernel="gaussian", bandwidth=3.0)


def test_alpha_follows_the_kernel() -> None:
    """0 where widths follow the density already, 1 with one bandwidth; as given otherwise."""
    points = cloud(100)
    assert mapped(points).alpha == 0.0
    assert mapped(points, kernel="gaussian").alpha == 1.0
    assert mapped(points, alpha=0.5).alpha == 0.5


def test_scaling_has_a_floor_and_may_be_one_for_all() -> None:
    """No divisor below .3 of the median deviation; "global" is their root mean square."""
    points = cloud(200) * np.array([1.0, 2.0, 1e-3])
    deviations = points.std(axis=0)
    standard = np.maximum(deviations, 0.3 * np.median(deviations))
    np.testing.assert_allclose(mapped(points).scale, standard)
    np.testing.assert_allclose(mapped(points, kernel="gaussian").scale, deviations)
    whole = np.full(3, np.sqrt(np.mean(deviations**2)))
    np.testing.assert_allclose(mapped(points, scaling="global").scale, whole)
    np.testing.assert_array_equal(mapped(points, scaling=None).scale, 1.0)
    asleep = np.column_stack([points[:, :2], np.ones(200)])
    assert mapped(asleep).scale[2] == pytest.approx(0.3 * np.median(asleep[:, :2].std(axis=0)))


@pytest.mark.parametrize("unit", [1e-80, 1.0, 1e80])
def test_one_point_goes_where_it_goes_among_others(unit: float) -> None:
    """The short way of one point: also at the support, beside it, and far from it."""
    rng = np.random.default_rng(8)
    points = np.concatenate([rng.standard_normal((200, 3)), np.repeat(rng.random((2, 3)), 20, 0)])
    engine = se.Engine(size=240, scaling=None, n_components=4)
    engine.learn(points * unit)
    snapshot = engine.snapshot()
    new = np.concatenate(
        [
            rng.standard_normal((40, 3)),
            points[::20],
            points[:20] * (1 + 1e-9),
            rng.standard_normal((20, 3)) * 10.0 ** rng.integers(1, 60, (20, 1)),
        ]
    )
    together = snapshot.transform(new * unit)
    alone = np.concatenate([snapshot.transform(row[None] * unit) for row in new])
    np.testing.assert_allclose(alone, together, rtol=0, atol=1e-11 * np.abs(together).max())
