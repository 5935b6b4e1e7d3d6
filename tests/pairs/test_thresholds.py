"""Pairs told apart by an embedding: draws, thresholds, judgements, and what is remembered."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamembed.errors import InputError, ParameterError
from streamembed.numeric import codec
from streamembed.pairs import pair_memory, thresholds
from tests.oracles import oracle_pairs as oracle

# A bucket of the histogram is a 64th wide at most; a percentile is known to that and one pair more.
BUCKET = (1 + 1 / 64) * (1 + 1e-9)


def support(seed: int, n: int = 60, position: int = 100) -> dict[str, Any]:
    """Slots in random order, their points in 3 features and coordinates in 2."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((n, 3))
    births = rng.permutation(position)[:n].astype(np.int64)
    return {
        "coordinates": points[:, :2] + 0.1 * rng.standard_normal((n, 2)),
        "points": points,
        "arrivals": births,
        "masses": rng.uniform(0.1, 5.0, n),
        "position": position,
    }


def run(chunks: int, given: thresholds.PairSettings, seed: int = 0) -> pair_memory.State:
    state = pair_memory.init(3)
    for chunk in range(chunks):
        held = support(seed + chunk, position=100 + 10 * chunk)
        state = thresholds.update(state, **held, settings=given)
    return state


def same(one: pair_memory.State, other: pair_memory.State) -> bool:
    left, right = codec.pack(one), codec.pack(other)
    return left[1] == right[1] and all(
        np.array_equal(left[0][name], right[0][name]) for name in left[0]
    )


# ---------------------------------------------------------------- against the slow restatement


@given(
    seed=st.integers(0, 10**6),
    by_mass=st.booleans(),
    buffer=st.sampled_from([2, 20, 400]),
    grid=st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_the_book_is_the_rule(seed: int, by_mass: bool, buffer: int, grid: bool) -> None:
    """Same pairs, kinds, distances and counts as the slow restatement, after every update."""
    given = thresholds.PairSettings(
        candidates=120, buffer=buffer, by_mass=by_mass, decay=0.7, seed=seed
    )
    book = oracle.PairBook(buffer, 0.7, seed, by_mass)
    state = pair_memory.init(3)
    for chunk in range(4):
        held = support(seed + chunk, n=40, position=80 + 5 * chunk)
        if grid:  # duplicates of points and of coordinates
            held["points"] = np.round(held["points"])
            held["coordinates"] = np.round(held["coordinates"])
        state = thresholds.draw_pairs(state, **held, settings=given)
        book.observe(**held, count=120)
        low, high = thresholds.compute_thresholds(state, given)
        for p, value in ((0.05, low), (0.95, high)):
            assert book.percentile(p - 0.01) / BUCKET <= value <= book.percentile(p + 0.01) * BUCKET
        book.judge(low, high)
        check(state, book)
        moved = held["coordinates"] + 0.2 * np.random.default_rng(seed).standard_normal((40, 2))
        state = thresholds.rejudge(state, moved, held["arrivals"], given)
        book.rejudge(moved, held["arrivals"], low, high)
        check(state, book)


def check(state: pair_memory.State, book: oracle.PairBook) -> None:
    for name, count in book.counts.items():
        assert getattr(state.counts, name) == count, name
    assert [tuple(ends) for ends in state.pairs.births.tolist()] == list(book.pairs)
    for index, pair in enumerate(book.pairs.values()):
        assert bool(state.pairs.similar[index]) is bool(pair["similar"])
        assert np.array_equal(state.pairs.differences[index], pair["difference"])
        # the same sum of two squares in another order
        assert state.pairs.d2[index] == pytest.approx(pair["d2"], rel=1e-14)


def test_candidates_are_accounted_for():
    """What is drawn is kept, undecided, a duplicate or degenerate; what is kept stays or leaves."""
    given = thresholds.PairSettings(candidates=300, buffer=50)
    state = run(6, given)
    counts = state.counts
    assert counts.candidates == 6 * 300
    told = counts.kept + counts.undecided + counts.duplicates + counts.degenerate
    assert told == counts.candidates
    assert counts.kept - counts.evicted - counts.faded - counts.gone == len(state.pairs)


# ---------------------------------------------------------------- thresholds and evidence


def test_thresholds_are_percentiles_of_squared_distances():
    """In a line of equal steps the 5th and 95th percentiles of p are known."""
    n = 400
    line = np.arange(n, dtype=np.float64)[:, None]
    births = np.arange(n, dtype=np.int64)
    given = thresholds.PairSettings(candidates=20_000)
    state = thresholds.draw_pairs(pair_memory.init(1), line, line, births, np.ones(n), n, given)
    apart = np.abs(line - line.T)[np.triu_indices(n, 1)] ** 2
    low, high = thresholds.compute_thresholds(state, given)
    for value, p in ((low, 5), (high, 95)):
        # 20,000 draws know a share of 5 % to .15 %, that is 3 % of p; and a bucket is 2 %
        assert value == pytest.approx(np.percentile(apart, p), rel=0.12)
    found = state.pairs
    assert found.has_both_kinds
    assert (found.d2[found.similar] <= low).all()
    assert (found.d2[~found.similar] >= high).all()


def test_thresholds_by_hand():
    """Given thresholds are on squared distances, and are used as they are."""
    held = support(1)
    given = thresholds.PairSettings(candidates=2000, similar_below=0.25, dissimilar_above=9.0)
    state = thresholds.draw_pairs(pair_memory.init(3), **held, settings=given)
    assert thresholds.compute_thresholds(state, given) == (0.25, 9.0)
    slots = {birth: slot for slot, birth in enumerate(held["arrivals"].tolist())}
    for (a, b), similar in zip(state.pairs.births.tolist(), state.pairs.similar, strict=True):
        d = np.linalg.norm(held["coordinates"][slots[a]] - held["coordinates"][slots[b]])
        assert (d <= 0.5) if similar else (d >= 3.0)


def test_evidence_is_kept():
    """Births in order, difference, distance, thresholds and position come with each pair."""
    held = support(2)
    given = thresholds.PairSettings(candidates=1000)
    state = thresholds.draw_pairs(pair_memory.init(3), **held, settings=given)
    found, slots = state.pairs, np.argsort(held["arrivals"])
    ranks = np.searchsorted(held["arrivals"][slots], found.births)
    older, younger = slots[ranks[:, 0]], slots[ranks[:, 1]]
    assert (found.births[:, 0] < found.births[:, 1]).all()
    assert np.array_equal(found.differences, held["points"][older] - held["points"][younger])
    low, high = thresholds.compute_thresholds(state, given)
    assert set(found.similar_below) == {low}
    assert set(found.dissimilar_above) == {high}
    assert set(found.positions) == {100}


def test_old_distances_fade():
    """After the scale of the embedding changed a hundredfold, thresholds follow within 30 calls."""
    given = thresholds.PairSettings(candidates=300, decay=0.8)
    state = run(5, given)
    before, _ = thresholds.compute_thresholds(state, given)
    for chunk in range(30):
        held = support(chunk, position=500 + chunk)
        held["coordinates"] = 100.0 * held["coordinates"]
        state = thresholds.draw_pairs(state, **held, settings=given)
    # .8^30 is 1e-3 of the weight; a percentile of some 1,500 distances is known to a sixth
    after, _ = thresholds.compute_thresholds(state, given)
    assert after == pytest.approx(1e4 * before, rel=0.3)


# ---------------------------------------------------------------- judging again


def test_the_same_embedding_changes_nothing():
    """Judged again by the coordinates that it was judged by, every pair is kept, bit for bit."""
    held = support(3)
    given = thresholds.PairSettings(candidates=1000)
    state = thresholds.draw_pairs(pair_memory.init(3), **held, settings=given)
    again = thresholds.rejudge(state, held["coordinates"], held["arrivals"], given)
    assert same(state, again)


def test_a_refilled_slot_takes_its_pairs_along():
    """A slot with another event in it is another event: its pairs are forgotten, and counted."""
    held = support(4)
    given = thresholds.PairSettings(candidates=1000)
    state = thresholds.draw_pairs(pair_memory.init(3), **held, settings=given)
    births = held["arrivals"].copy()
    leaving = births[:7].copy()
    births[:7] = 1000 + np.arange(7)
    after = thresholds.rejudge(state, held["coordinates"], births, given)
    touched = np.isin(state.pairs.births, leaving).any(axis=1)
    assert after.counts.gone == touched.sum() > 0
    assert np.array_equal(after.pairs.births, state.pairs.births[~touched])


def test_a_turned_embedding_flips_pairs():
    """Where near becomes far and far near, similar pairs become dissimilar, and are counted."""
    n = 40
    births = np.arange(n, dtype=np.int64)
    points = np.random.default_rng(0).standard_normal((n, 2))
    near = np.where(np.arange(n) < n // 2, 0.0, 10.0)[:, None] + 1e-3 * points[:, :1]
    given = thresholds.PairSettings(candidates=2000, similar_below=1.0, dissimilar_above=50.0)
    state = thresholds.draw_pairs(pair_memory.init(2), near, points, births, np.ones(n), n, given)
    mixed = np.where(np.arange(n) % 2, 0.0, 10.0)[:, None] + 1e-3 * points[:, :1]
    after = thresholds.rejudge(state, mixed, births, given)
    assert after.counts.flipped > 0.3 * len(state.pairs)
    assert after.counts.faded == after.counts.gone == 0
    left, right = after.pairs.births.T
    assert np.array_equal(after.pairs.similar, left % 2 == right % 2)


# ---------------------------------------------------------------- what cannot be judged


def test_duplicate_events_are_no_pairs():
    """Rows that are equal differ in nothing: no metric could tell them apart."""
    held = support(5)
    held["points"] = np.repeat(held["points"][:6], 10, axis=0)
    state = thresholds.draw_pairs(
        pair_memory.init(3), **held, settings=thresholds.PairSettings(candidates=2000)
    )
    assert state.counts.degenerate > 150  # one pair in six or so
    assert np.abs(state.pairs.differences).max(axis=1).min() > 0


@pytest.mark.parametrize("value", [0.0, 5.0, 1e-200])
def test_all_points_equal(value: float) -> None:
    """Neither pairs nor errors."""
    n = 30
    births = np.arange(n, dtype=np.int64)
    same_points = np.full((n, 2), value)
    given = thresholds.PairSettings()
    state = thresholds.draw_pairs(
        pair_memory.init(2), same_points, same_points, births, np.ones(n), n, given
    )
    assert len(state.pairs) == 0
    assert np.isnan(thresholds.compute_thresholds(state, given)).all()
    noisy = np.random.default_rng(0).standard_normal((n, 2))
    coordinates = 5.0 + 1e-15 * noisy  # the rounding of an eigenvector
    state = thresholds.draw_pairs(state, coordinates, noisy, births, np.ones(n), n + 1, given)
    assert len(state.pairs) == 0
    assert state.counts.degenerate == 2 * given.candidates


def test_thresholds_that_meet_judge_nothing():
    """An embedding with one distance only has no near and no far pairs."""
    n = 20
    simplex, births = np.eye(n), np.arange(n, dtype=np.int64)
    state = thresholds.draw_pairs(
        pair_memory.init(n), simplex, simplex, births, np.ones(n), n, thresholds.PairSettings()
    )
    assert len(state.pairs) == 0


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_points(n: int) -> None:
    """Nothing is drawn; the position is remembered all the same."""
    rows, births = np.zeros((n, 2)), np.arange(n, dtype=np.int64)
    state = thresholds.draw_pairs(
        pair_memory.init(2), rows, rows, births, np.ones(n), 7, thresholds.PairSettings()
    )
    assert (state.position, state.counts.candidates) == (7, 0)
    after = thresholds.rejudge(state, rows, births, thresholds.PairSettings())
    assert same(state, after)
    assert len(after.pairs) == 0


def test_more_features_than_points():
    """d > N is no trouble: pairs are of events."""
    rng = np.random.default_rng(6)
    points, births = rng.standard_normal((12, 40)), np.arange(12, dtype=np.int64)
    state = thresholds.draw_pairs(
        pair_memory.init(40),
        points[:, :3],
        points,
        births,
        np.ones(12),
        12,
        thresholds.PairSettings(),
    )
    assert state.pairs.has_both_kinds
    assert state.pairs.differences.shape[1] == 40


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"coordinates": np.full((60, 2), np.nan)}, "coordinates have NaN"),
        ({"points": np.full((60, 3), np.inf)}, "points have NaN"),
        ({"points": np.zeros((60, 4))}, "points have shape"),
        ({"coordinates": np.zeros((59, 2))}, "coordinates have shape"),
        ({"masses": np.ones(59)}, "masses have shape"),
        ({"masses": np.zeros(60)}, "smallest mass"),
        ({"arrivals": np.zeros(60, dtype=np.int64)}, "arrivals are repeated"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, Any], message: str) -> None:
    """NaN, shapes that do not fit, masses and births that cannot be."""
    with pytest.raises(InputError, match=message):
        thresholds.draw_pairs(
            pair_memory.init(3), **{**support(0), **changes}, settings=thresholds.PairSettings()
        )


@pytest.mark.parametrize(
    "changes",
    [
        {"candidates": 0},
        {"buffer": 1},
        {"seed": -1},
        {"percentiles": (95.0, 5.0)},
        {"percentiles": (0.0, 95.0)},
        {"similar_below": -1.0},
        {"dissimilar_above": np.nan},
        {"similar_below": 2.0, "dissimilar_above": 1.0},
        {"decay": 0.0},
    ],
)
def test_bad_settings_are_refused(changes: dict[str, Any]) -> None:
    """Every setting has its range."""
    with pytest.raises(ParameterError):
        thresholds.PairSettings(**changes)


# ---------------------------------------------------------------- laws


def test_an_update_draws_and_judges() -> None:
    """New pairs, and those that flipped, are told from the pairs before."""
    given = thresholds.PairSettings(candidates=400, buffer=300)
    before = run(2, given)
    moved = support(20, position=300)
    drawn = thresholds.draw_pairs(before, **moved, settings=given)
    judged = thresholds.rejudge(drawn, moved["coordinates"], moved["arrivals"], given)
    after = thresholds.update(before, **moved, settings=given)
    assert same(after, judged)
    is_new, is_flipped = pair_memory.compare(before.pairs, after.pairs)
    assert is_flipped.sum() == after.counts.flipped - before.counts.flipped
    # what is new was judged when it was drawn: judged again, it is the same
    new = drawn.pairs.take(drawn.pairs.positions == 300)
    for name in ("births", "differences", "similar", "d2", "positions"):
        assert np.array_equal(getattr(new, name), getattr(after.pairs.take(is_new), name))


def test_draws_belong_to_the_position():
    """The same call gives the same bits; another position or seed gives other pairs."""
    held, given = support(7), thresholds.PairSettings()
    one = thresholds.draw_pairs(pair_memory.init(3), **held, settings=given)
    again = thresholds.draw_pairs(pair_memory.init(3), **held, settings=given)
    assert same(one, again)
    for other in (
        thresholds.draw_pairs(pair_memory.init(3), **{**held, "position": 101}, settings=given),
        thresholds.draw_pairs(pair_memory.init(3), **held, settings=replace(given, seed=1)),
    ):
        assert not np.array_equal(one.pairs.births, other.pairs.births)


def test_the_order_of_slots_does_not_matter():
    """Births are the identity: the same support in other slots gives the same pairs."""
    held, given = support(8), thresholds.PairSettings(by_mass=True)
    moved = np.random.default_rng(0).permutation(60)
    other = {name: part if name == "position" else part[moved] for name, part in held.items()}
    one = thresholds.draw_pairs(pair_memory.init(3), **held, settings=given)
    two = thresholds.draw_pairs(pair_memory.init(3), **other, settings=given)
    assert same(one, two)


def test_masses_are_shares_of_the_draws():
    """A point with half of all mass is in three pairs of four; the unit draws ignore masses."""
    n, births = 20, np.arange(20, dtype=np.int64)
    points = np.random.default_rng(9).standard_normal((n, 2))
    masses = np.r_[n - 1.0, np.ones(n - 1)]
    shares = []
    for by_mass in (True, False):
        left, right = thresholds._draw(
            masses, 0, thresholds.PairSettings(candidates=4000, by_mass=by_mass)
        )
        assert (left != right).all()
        assert set(left) | set(right) == set(births.tolist())
        shares.append(np.mean((left == 0) | (right == 0)))
    # 1/2 + 1/2 * (n - 1) / (2 n - 3), and 2 / n; 4,000 draws know a share to .008
    assert shares[0] == pytest.approx(0.5 + 0.5 * (n - 1) / (2 * n - 3), abs=0.03)
    assert shares[1] == pytest.approx(2 / n, abs=0.02)
    assert points.shape == (n, 2)


def test_scale_and_rotation_of_the_embedding():
    """Twice the coordinates, and any rotation of them, tell the same pairs apart."""
    held, given = support(10), thresholds.PairSettings()
    one = thresholds.draw_pairs(pair_memory.init(3), **held, settings=given)
    turn = np.array([[0.6, 0.8], [-0.8, 0.6]])
    other = {**held, "coordinates": 2.0 * held["coordinates"] @ turn}
    two = thresholds.draw_pairs(pair_memory.init(3), **other, settings=given)
    # a distance within rounding of a bucket's edge may change its bucket: none does here
    assert np.array_equal(one.pairs.births, two.pairs.births)
    assert np.array_equal(one.pairs.similar, two.pairs.similar)


def test_save_and_load_continue():
    """What `pack` took apart goes on as if nothing had happened; numbers are JSON."""
    given = thresholds.PairSettings(candidates=200, buffer=60)
    state = run(3, given)
    arrays, numbers = codec.pack(state)
    loaded = codec.unpack(pair_memory.State, arrays, json.loads(json.dumps(numbers)))
    assert same(state, loaded)
    held = support(99, position=300)
    assert same(
        thresholds.draw_pairs(state, **held, settings=given),
        thresholds.draw_pairs(loaded, **held, settings=given),
    )


def test_memory_is_flat():
    """After any number of calls there is a buffer of pairs, half of each kind."""
    given = thresholds.PairSettings(candidates=400, buffer=80)
    held = support(11)
    state = pair_memory.init(3)
    for chunk in range(40):
        state = thresholds.draw_pairs(state, **{**held, "position": chunk}, settings=given)
        for kind in (True, False):
            assert np.sum(state.pairs.similar == kind) <= 40
    assert len(state.pairs) == 80
    assert state.counts.evicted > 0


def test_inputs_untouched():
    """No verb writes to its arguments."""
    given = thresholds.PairSettings(candidates=200, buffer=20)
    state, held = run(2, given), support(12, position=200)
    for part in (*codec.pack(state)[0].values(), *held.values()):
        if isinstance(part, np.ndarray):
            part.flags.writeable = False
    after = thresholds.draw_pairs(state, **held, settings=given)
    thresholds.rejudge(after, held["coordinates"], held["arrivals"], given)


def test_weighted():
    """lambda^t psi over lambda_1^t; plain psi without a time; negative eigenvalues are 0."""
    psi, values = np.ones((2, 3)), np.array([0.8, 0.4, -0.1])
    np.testing.assert_allclose(thresholds.weight_columns(psi, values, 2.0)[0], [1.0, 0.25, 0.0])
    assert thresholds.weight_columns(psi, values, None) is psi
    np.testing.assert_allclose(thresholds.weight_columns(psi, np.zeros(3), 16.0), psi)
