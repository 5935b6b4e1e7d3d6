"""Merging sets of landmarks: its laws, what is refused, and the map that comes of it."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamembed as se
from streamembed.errors import (
    DamagedFileError,
    InputError,
    MissingFileError,
    NotReadyError,
    ParameterError,
)
from streamembed.landmarks.net import Landmarks, find_order, select
from streamembed.merging import merged_set as merging
from streamembed.merging.agreement import MergeSettings
from streamembed.merging.landmark_set import LandmarkSet, renumber
from tests.oracles import oracle, oracle_cover

pytestmark = pytest.mark.filterwarnings("ignore::streamembed.errors.ResolutionWarning")


def agreement(d: int, **changes: Any) -> MergeSettings:
    names = tuple(f"x{j}" for j in range(d))
    plain = MergeSettings(names, False, (1.0,) * d, None, None, "event_time")
    return replace(plain, **changes)


def made(
    partition: int, n: int, d: int, seed: int, size: int = 100, time: float = 0.0, **changes: Any
) -> LandmarkSet:
    """A set of one partition: random landmarks, masses over seven decades."""
    rng = np.random.default_rng((seed, partition))
    points = np.round(rng.standard_normal((n, d)), 1)  # some are equal
    found = Landmarks(
        np.unique(points, axis=0), np.zeros(0), np.zeros((0, 2), np.int64), np.zeros(0, bool)
    )
    n = len(found.points)
    keys = np.column_stack([np.full(n, partition), rng.permutation(10**6)[:n]])
    masses = 10.0 ** rng.uniform(-5, 2, n)
    masses[:1] = 1.0  # that of the newest event
    every = Landmarks(found.points + 0.0, masses, keys, rng.random(n) < 0.1)
    every = select(every, find_order(every))
    parts = every.points, every.masses, every.keys, every.stale
    return LandmarkSet(*parts, agreement(d, **changes), {partition: 10**6}, time, size, 0.1)


def engine_of(points: np.ndarray, **changes: Any) -> se.Engine:
    fixed: dict[str, Any] = {"memory": "landmarks", "size": 50, "scaling": None, "chunk_size": 50}
    engine = se.Engine(**{**fixed, **changes})
    engine.learn(points)
    return engine


def blob(n: int, seed: int = 0, d: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d))


# ---------------------------------------------------------------- laws

several = {
    "counts": st.lists(st.integers(0, 30), min_size=1, max_size=5),
    "d": st.integers(1, 4),
    "size": st.integers(1, 60),
    "seed": st.integers(0, 10**6),
}


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(range(5)), **several)
def test_merging_is_commutative_and_idempotent(
    order: list[int], counts: list[int], d: int, size: int, seed: int
) -> None:
    """To the bit: any order, any copies; a merged set is itself; the empty set adds nothing."""
    check_laws(order, counts, d, size, seed)


def check_laws(order: list[int], counts: list[int], d: int, size: int, seed: int) -> None:
    sets = [made(part, n, d, seed) for part, n in enumerate(counts)]
    found = se.merge(sets, size)
    shuffled = [sets[i] for i in order if i < len(sets)]
    assert se.merge(shuffled + sets, size).to_bytes() == found.to_bytes()
    assert se.merge([found], size).to_bytes() == found.to_bytes()
    nothing = made(9, 0, d, seed)
    more = se.merge([*sets, nothing], size)
    assert more.points.tobytes() == found.points.tobytes()
    assert more.masses.tobytes() == found.masses.tobytes()
    full = [one for one in sets if len(one)]
    for one in full:
        assert se.merge([one]).to_bytes() == one.to_bytes()


@pytest.mark.parametrize("seed", range(20))
def test_a_merged_set_of_faded_masses_is_itself(seed: int) -> None:
    """Also where partitions are up to 500 half-lives apart, so that masses are kept from zero."""
    rng = np.random.default_rng(seed)
    ages = (20.0 * rng.choice([0, 1, 45, 47, 50, 100, 500], 3)).tolist()
    sets = [made(part, 60, 3, seed, time=-age, half_life=20.0) for part, age in enumerate(ages)]
    found = se.merge(sets, int(rng.choice([100, 300])))
    assert se.merge([found, found]).to_bytes() == found.to_bytes()
    assert found.masses.min() >= 0.5e-15 * found.mass


@settings(max_examples=20, deadline=None)
@given(ages=st.lists(st.floats(0, 50), min_size=5, max_size=5), **several)
def test_mass_is_that_of_the_aligned_sets(
    ages: list[float], counts: list[int], d: int, size: int, seed: int
) -> None:
    """Up to rounding of sums of at most 150 numbers, and every landmark is within the radius."""
    sets = [
        made(part, n, d, seed, time=-age, half_life=7.0)
        for part, (n, age) in enumerate(zip(counts, ages, strict=False))
    ]
    found = se.merge(sets, size)
    newest = max((one.time for one in sets if len(one)), default=sets[0].time)
    slow = [
        oracle_cover.faded([((), mass, (), False) for mass in one.masses], newest - one.time, 7.0)
        for one in sets
    ]
    expected = math.fsum(mass for one in slow for _, mass, *_ in one)
    assert found.time == newest
    np.testing.assert_allclose(found.mass, expected, rtol=1e-12, atol=0.0)
    if found.radius > 0.1 and len(found):  # thinned: kept ones are that far apart
        every = np.concatenate([one.points for one in sets])
        assert oracle_cover.covering_radius(every.tolist(), found.points.tolist()) <= found.radius


def test_a_tree_covers_as_far_as_its_levels_add_up() -> None:
    """Twenty sets go by groups of eight; every landmark has one within the sum of the radii."""
    sets = [made(part, 30, 2, 3) for part in range(20)]
    tree, flat = se.merge(sets, 25), merging._merge_group(sets, 25, None)
    every = np.concatenate([one.points for one in sets]).tolist()
    assert len(flat) <= 25
    assert tree.mass == pytest.approx(flat.mass, rel=1e-12)
    farthest = oracle_cover.covering_radius(every, tree.points.tolist())
    groups = [merging._merge_group(sets[start : start + 8], 25, None) for start in (0, 8, 16)]
    assert farthest <= max(one.radius for one in groups) + tree.radius
    assert se.merge(sets[::-1], 25).to_bytes() == tree.to_bytes()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_resolution_does_not_become_finer(seed: int, count: int) -> None:
    """Of sets with M landmarks the merged radius is a third of the largest at least."""
    rng = np.random.default_rng(seed)
    sets = []
    for part in range(count):
        points = rng.standard_normal((20, 2)) * 10.0 ** rng.uniform(-1, 1)
        keys = np.column_stack([np.full(20, part), np.arange(20)])
        every = Landmarks(points, rng.uniform(1, 9, 20), keys, np.zeros(20, dtype=bool))
        every = select(every, find_order(every))
        d2 = ((points[:, None] - points[None]) ** 2).sum(axis=2) + np.diag(np.full(20, np.inf))
        parts = every.points, every.masses, every.keys, every.stale
        radius = math.sqrt(d2.min())
        sets.append(LandmarkSet(*parts, agreement(2), {part: 10**6}, 0.0, 20, radius))
    assert se.merge(sets).radius >= max(one.radius for one in sets) / 3


# ---------------------------------------------------------------- which sets count


def test_the_newest_set_of_a_partition_counts() -> None:
    """Late, out of order or sent twice: the same bytes."""
    engine = se.Engine(memory="landmarks", size=40, scaling=None, chunk_size=50)
    sent = []
    for start in range(0, 600, 200):
        engine.learn(blob(600)[start : start + 200])
        sent.append(engine.landmark_set(3))
    assert se.merge([sent[2], sent[0], sent[1], sent[2]]).to_bytes() == sent[2].to_bytes()


def test_a_merged_set_that_came_late_changes_nothing() -> None:
    """All of its partitions are newer elsewhere, though in no one set."""
    old, new = [], []
    for part in range(2):
        engine = engine_of(blob(200, part))
        old.append(engine.landmark_set(part))
        engine.learn(blob(50, 7 + part))
        new.append(engine.landmark_set(part))
    expected = se.merge(new).to_bytes()
    for late in ([se.merge(old)], [se.merge(old), se.merge(new)], [se.merge([old[0], new[1]])]):
        assert se.merge([*late, *new]).to_bytes() == expected
        assert se.merge([*new, *late]).to_bytes() == expected


def test_sets_that_were_scaled_anew_are_merged_with_others() -> None:
    """A tree of any shape, where every merge takes the scaling anew."""
    sets = [engine_of(blob(200, i), scaling="standard").landmark_set(i) for i in range(3)]
    deep = se.merge([se.merge(sets[:2], scaling="standard"), sets[2]], scaling="standard")
    flat = se.merge(sets, scaling="standard")
    assert deep.mass == pytest.approx(flat.mass, rel=1e-12)
    np.testing.assert_allclose(deep.agreement.scale, flat.agreement.scale, rtol=0.1)


def test_what_would_count_events_twice_is_refused() -> None:
    """A merged set that is older here and newer there; two streams under one number."""
    a, b = engine_of(blob(200)).landmark_set(0), engine_of(blob(200, 1)).landmark_set(1)
    newer = engine_of(blob(400)).landmark_set(0)
    both = se.merge([a, b])
    with pytest.raises(InputError, match="partition 0, and neither is the newer one"):
        se.merge([both, newer])
    with pytest.raises(InputError, match="partition 0 at position 200: one of them"):
        se.merge([a, renumber(b, 0)])
    assert se.merge([both, a]).to_bytes() == both.to_bytes()


def test_sets_under_other_kernels_are_refused() -> None:
    """The message says what differs; another scaling can be fitted again to all."""
    points = blob(300) * [1.0, 5.0, 25.0]
    sets = [engine_of(points[part::2], scaling="standard").landmark_set(part) for part in range(2)]
    with pytest.raises(InputError, match=r"scale is .* there and .* here: fit them again"):
        se.merge(sets)
    found = se.merge(sets, scaling="standard")
    assert found.agreement.epoch == 1
    every = np.concatenate([one.points for one in sets])
    masses = np.concatenate([one.masses for one in sets])
    deviations = np.sqrt(np.cov(every.T, aweights=masses, ddof=0).diagonal())
    floor = 0.3 * np.median(deviations)  # LEAST_SHARE of geometry/scaling.py
    np.testing.assert_allclose(found.agreement.scale, np.maximum(deviations, floor), rtol=1e-12)
    other = engine_of(points, half_life=50).landmark_set(2)
    with pytest.raises(InputError, match=r"half_life is .* learn them with equal settings"):
        se.merge([*sets, other], scaling="standard")


def test_positions_are_no_common_clock() -> None:
    """Masses that fade by the own events of each stream are refused, with the remedy."""
    sets = [engine_of(blob(200, part), half_life=50).landmark_set(part) for part in range(2)]
    with pytest.raises(InputError, match="which share no clock"):
        se.merge(sets)
    assert se.merge(sets[:1]).to_bytes() == sets[0].to_bytes()


@pytest.mark.parametrize("mass", [1e308, 1e300, 201.0])
def test_masses_beyond_the_number_of_events_are_refused(mass: float) -> None:
    """Also those whose sum no double holds: the message has the largest sum."""
    found = engine_of(blob(200)).landmark_set()
    with pytest.raises(InputError, match="must be at most 200, the number of events"):
        replace(found, masses=np.full(len(found), mass))


# ---------------------------------------------------------------- engines


def test_engines_without_landmarks_or_points_have_no_set() -> None:
    """Each refusal says why."""
    with pytest.raises(ParameterError, match="memory='window' has no landmarks"):
        se.Engine().landmark_set()
    with pytest.raises(NotReadyError):
        se.Engine(memory="landmarks").landmark_set()
    with pytest.raises(ParameterError, match="partition=65536"):
        engine_of(blob(100)).landmark_set(65536)
    distances = se.Engine(memory="landmarks", size=10, warm_up=5)
    points = blob(8)
    distances.learn_distances(np.linalg.norm(points[:, None] - points[None], axis=2))
    with pytest.raises(InputError, match="have no distance to one another"):
        distances.landmark_set()


def test_the_map_of_a_merged_set_is_that_of_its_landmarks() -> None:
    """Certified, equal to the oracle's, and the engine learns, saves and loads on."""

    parts = [engine_of(blob(400, part), kernel="gaussian", bandwidth=1.5) for part in range(3)]
    found = se.merge([one.landmark_set(part) for part, one in enumerate(parts)])
    engine = se.Engine.of_landmarks(found, n_components=3, kernel="gaussian", chunk_size=10)
    snapshot = engine.snapshot()
    assert snapshot.certificate.met
    assert snapshot.position == engine.position == 1200
    assert snapshot.resolution == pytest.approx(found.radius / 1.5)
    expected = oracle.diffusion_map(found.points, 1.5, masses=found.masses)
    # what a certificate of 3e-3 allows is the bound; the factor is exact at this size
    np.testing.assert_allclose(snapshot.eigenvalues, expected.eigenvalues[1:4], atol=1e-9)
    keys = found.keys[:, 0] * 2**47 + found.keys[:, 1]
    assert snapshot.ids.tolist() == sorted(keys.tolist())
    assert engine.learn(blob(130, 9)).accepted == 130
    assert se.Engine.from_bytes(engine.to_bytes()).to_bytes() == engine.to_bytes()
    assert engine.snapshot().masses.sum() == pytest.approx(1330, rel=1e-12)


def test_an_engine_of_its_own_set_has_the_same_map() -> None:
    """Widths, metrics and picture are made anew; ids are the positions."""
    engine = engine_of(blob(500), n_components=2)
    again = se.Engine.of_landmarks(
        engine.landmark_set(), n_components=2, picture=True, metrics=("fenn",)
    )
    engine.rescale()  # or widths are those of when each slot was filled
    # both are certified to 3e-3; distances differ in their last bits, for another center
    np.testing.assert_allclose(
        again.snapshot().eigenvalues, engine.snapshot().eigenvalues, atol=3e-3
    )
    assert again.snapshot().ids.tolist() == engine.snapshot().ids.tolist()
    assert again.landmark_set().masses.tobytes() == engine.landmark_set().masses.tobytes()
    picture = again.snapshot().picture
    assert picture is not None
    assert len(picture.coordinates) == 50


def test_axes_that_another_map_does_not_have_are_named() -> None:
    """With exchanged features, by a new epoch; those of its own landmarks are kept."""
    points = blob(500)
    points[:, 0] *= 5.0
    own, other = (engine_of(X, n_components=2) for X in (points, points[:, ::-1].copy()))
    like = own.snapshot()
    kept, lost = (
        se.Engine.of_landmarks(each.landmark_set(), like, n_components=2).snapshot().frame
        for each in (own, other)
    )
    assert (kept.epoch, kept.lost) == (like.frame.epoch, ())
    assert lost.epoch == like.frame.epoch + 1
    assert lost.lost == tuple(j for j, r in enumerate(lost.correlations) if r < 0.95)
    assert lost.lost


def test_an_engine_must_fit_its_landmarks() -> None:
    """Other values of what the set has settled; too few slots, too few landmarks."""
    found = engine_of(blob(200), half_life=70).landmark_set()
    with pytest.raises(ParameterError, match="half_life=3 must be 70"):
        se.Engine.of_landmarks(found, half_life=3)
    with pytest.raises(ParameterError, match="memory='window' must be 'landmarks'"):
        se.Engine.of_landmarks(found, memory="window")
    with pytest.raises(InputError, match=r"50 landmarks; .* at most size=40"):
        se.Engine.of_landmarks(found, size=40)
    with pytest.raises(InputError, match="2 landmarks; there must be at least"):
        se.Engine.of_landmarks(made(0, 2, 2, 0))
    with pytest.raises(InputError, match="must be a LandmarkSet"):
        se.Engine.of_landmarks("nothing")  # type: ignore[arg-type]


# ---------------------------------------------------------------- the wire


def test_a_set_is_kept_to_the_bit_and_is_as_small_as_told(tmp_path: Path) -> None:
    """In a file, as bytes, pickled."""
    for d, n in ((1, 5), (16, 300), (300, 20)):
        one = made(4, n, d, 0, size=500)
        data = one.to_bytes()
        assert len(data) <= len(one) * (8 * d + 24) + 2048 + 22 * d
        one.save(tmp_path / "one.arrow")
        for again in (
            LandmarkSet.from_bytes(data),
            LandmarkSet.load(tmp_path / "one.arrow"),
            pickle.loads(pickle.dumps(one)),
        ):
            assert again.to_bytes() == data
            assert again.agreement == one.agreement
    with pytest.raises(MissingFileError):
        LandmarkSet.load(tmp_path / "none.arrow")
    with pytest.raises(ValueError, match="read-only"):
        one.masses[0] = 2.0


def test_every_flipped_bit_is_found() -> None:
    """Wherever in the stream it is, and where it is cut off."""
    data = made(0, 6, 2, 0).to_bytes()
    rng = np.random.default_rng(0)
    for place in rng.choice(len(data), 300, replace=False).tolist():
        changed = bytearray(data)
        changed[place] ^= 1 << int(rng.integers(8))
        with pytest.raises(DamagedFileError):
            LandmarkSet.from_bytes(bytes(changed))
    for end in range(0, len(data), 97):
        with pytest.raises(DamagedFileError):
            LandmarkSet.from_bytes(data[:end])
