"""Which pairs ITML remembers, what they stand for, and streams in which kinds do not mix."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from streamembed.estimators import ITML
from streamembed.metrics import bregman, itml, itml_buffer, itml_numba
from streamembed.numeric import codec, compilation
from streamembed.numeric.arrays import Bools, Floats, Ints
from tests.metrics.test_itml import check_identity, relative, wine_pairs
from tests.oracles import oracle_itml as oracle

GAMMA = 0.1
ORDERS = ("shuffled", "similar first", "dissimilar first", "near first", "far first", "in turn")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Any:
    """As in test_itml."""
    with threadpool_limits(1, user_api="blas"):
        yield


def fair_pairs(n: int, seed: int = 0) -> tuple[Floats, Bools, float, float]:
    """Half of them similar, half not, in turn."""
    V, similar, upper, lower = wine_pairs(4 * n, seed)
    both = np.stack([np.flatnonzero(similar)[: n // 2], np.flatnonzero(~similar)[: n // 2]])
    return V[both.T.ravel()], similar[both.T.ravel()], upper, lower


def sort_pairs(V: Floats, similar: Bools, order: str) -> Ints:
    """Indices of the pairs in that order; "in turn": three blocks of either kind."""
    squares = np.einsum("ij,ij->i", V, V)
    if order == "in turn":
        kinds = (np.flatnonzero(similar), np.flatnonzero(~similar))
        blocks = zip(*(np.array_split(kind, 3) for kind in kinds), strict=True)
        return np.concatenate([block for pair in blocks for block in pair])
    key = {
        "shuffled": np.random.default_rng(1).permutation(len(V)),
        "similar first": ~similar,
        "dissimilar first": similar,
        "near first": squares,
        "far first": -squares,
    }[order]
    return np.argsort(key, kind="stable")


def learn(pairs: Any, order: Ints, chunk: int = 50, **options: Any) -> itml_buffer.State:
    """The state after all pairs, ``chunk`` at a time."""
    V, similar, upper, lower = pairs
    state = itml.init(np.eye(V.shape[1]), GAMMA)
    options.setdefault(
        "sweep", itml_numba.get_sweep("numba" if compilation.is_available() else "numpy")
    )
    for start in range(0, len(order), chunk):
        part = order[start : start + chunk]
        state, info = itml.update(state, V[part], similar[part], upper, lower, **options)
        assert info.status in ("ok", "rebuilt")
    return state


def check_duals(state: itml_buffer.State) -> None:
    """A is that of the duals, and every bound of a similar pair has a finite place."""
    check_identity(state)
    assert (state.duals * state.bounds < state.prices)[state.similar].all()


# ------------------------------------------------------------------ orders


@pytest.fixture(scope="module")
def problem() -> Any:
    """3,000 pairs, and the least objective over all of them."""
    pairs = V, similar, upper, lower = fair_pairs(3000)
    best, info = itml.solve(*pairs, tolerance=1e-4)
    assert info.status == "ok"

    def ratio(state: itml_buffer.State) -> float:
        value = bregman.objective(state.matrix, np.eye(13), V, similar, upper, lower, GAMMA)
        return value / itml.measure(best).objective

    return pairs, ratio


@pytest.mark.parametrize("order", ORDERS)
def test_no_order_is_far_from_the_batch(problem: Any, order: str) -> None:
    """A third of the pairs remembered: within 10 %; a sixtieth: never worse than the prior."""
    pairs, ratio = problem
    V, similar, *_ = pairs
    rows = sort_pairs(V, similar, order)
    large = learn(pairs, rows, buffer=1000)
    check_duals(large)
    assert len(large) == 1000
    assert 1 <= ratio(large) <= 1.10  # measured: 1.00 to 1.06; without weights up to 1.6
    assert ratio(itml.shrink(large)[0]) <= 1.10
    prior = ratio(itml.init(np.eye(13)))
    for buffer in (20, 50, 200):
        small = learn(pairs, rows, buffer=buffer)
        check_duals(small)
        assert ratio(itml.shrink(small)[0]) <= 1.02 * prior
    if order == "shuffled":
        assert ratio(small) < 1.1
        assert itml.shrink(small)[1] == 0.0
        assert large.alone.tolist() == [0, 0]


def test_a_small_buffer_needs_the_reference(problem: Any) -> None:
    """What it remembers of a sorted stream may mislead: far worse than the prior but for it."""
    pairs, ratio = problem
    V, similar, *_ = pairs
    state = learn(pairs, sort_pairs(V, similar, "similar first"), buffer=20)
    shrunk, w = itml.shrink(state)
    assert ratio(state) > 2 * ratio(itml.init(np.eye(13)))
    assert w > 0
    inverse = (1 - w) * np.linalg.inv(state.matrix) + w * np.eye(13)
    assert relative(shrunk.matrix, np.linalg.inv(inverse)) < 1e-10
    check_duals(shrunk)
    # the choice is the least of the grid, by the source's objective over the weighed reference
    reference = state.reference
    counts = [np.count_nonzero(reference.similar), np.count_nonzero(~reference.similar)]
    assert counts == [itml_buffer.N_REFERENCE] * 2
    assert reference.seen.tolist() == [1500, 1500]
    values = []
    for share in itml.SHRINKAGES:
        A = np.linalg.inv((1 - share) * np.linalg.inv(state.matrix) + share * np.eye(13))
        slack = oracle.objective(
            A, np.eye(13), reference.differences, reference.similar, *pairs[2:],
            GAMMA * 1500 / itml_buffer.N_REFERENCE,
        )  # fmt: skip
        values.append(slack)
    assert w == itml.SHRINKAGES[np.argmin(values)]


def test_what_is_nearly_as_good_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A is handed out as it is where the estimate is within 5 % of the best; not above A_0's."""
    pairs = fair_pairs(200)
    state = replace(learn(pairs, np.arange(200)), seen=201)
    for values, expected in (
        ([1.05, 1, 2, 2, 2, 2, 3], 0.0),
        ([1.06, 1, 2, 2, 2, 2, 3], 0.1),
        ([1.02, 1.01, 1.01, 1.01, 1.01, 1.01, 1], 1.0),
        ([np.inf] * 7, 0.0),
    ):
        monkeypatch.setattr(itml, "_estimate_objectives", lambda state, v=values: np.array(v))
        assert itml.shrink(state)[1] == expected


def test_nothing_leaves_nothing_changes() -> None:
    """Where all pairs are remembered, no order and no weight matters: one price, no shrinkage."""
    pairs = V, similar, *_ = fair_pairs(300)
    for order in ORDERS:
        rows = sort_pairs(V, similar, order)
        state = learn(pairs, rows, buffer=300)
        larger = learn(pairs, rows, buffer=4000)
        assert np.array_equal(state.matrix, larger.matrix)
        assert (state.prices == GAMMA).all()
        assert not state.absorbed.any()
        assert np.array_equal(state.differences, V[rows])
        assert itml.shrink(state) == (state, 0.0)
    far_off = replace(state, matrix=state.matrix / 100)
    assert itml.shrink(far_off) == (far_off, 0.0)  # to the bit, whatever the reference says
    assert itml.shrink(replace(far_off, seen=301))[1] > 0


# ------------------------------------------------------------------ what stays


def test_pairs_that_come_alone_are_a_uniform_sample() -> None:
    """Every pair has the same chance, whatever the cuts; its price is what it stands for."""
    V = np.random.default_rng(0).standard_normal((400, 3))
    V[:, 0] = np.arange(400)
    kept, shared = np.zeros(400), 0
    for seed in range(150):
        state, rng = itml.init(np.eye(3), GAMMA), np.random.default_rng(seed)
        cuts = np.sort(rng.choice(np.arange(1, 400), 6, replace=False))
        for part in np.split(V, cuts):
            flags = np.full(len(part), seed % 2 == 0)
            state, _ = itml.update(state, part, flags, 1.0, 9.0, buffer=40, seed=seed)
        kept[state.differences[:, 0].astype(int)] += 1
        shared += np.isin(state.differences[:, 0], state.reference.differences[:, 0]).sum()
        assert len(state) == 40
        assert sorted(state.alone.tolist()) == [0, 400]
        np.testing.assert_allclose(state.prices, 10 * GAMMA)
        assert not state.absorbed.any()
        assert (np.diff(state.differences[:, 0]) > 0).all()  # still in order
        check_duals(state)
    # 150 draws of 40 in 400: 1500 a quarter, deviation below 34
    np.testing.assert_allclose(kept.reshape(4, 100).sum(axis=1), 1500, atol=140)
    # the reference, half of all pairs, is drawn by itself
    assert shared == pytest.approx(3000, abs=150)


def test_half_of_the_buffer_is_for_either_kind() -> None:
    """What one kind does not use is lent, and given back when it comes."""
    V, similar, upper, lower = fair_pairs(400)
    near, far = np.flatnonzero(similar), np.flatnonzero(~similar)
    state, counts = itml.init(np.eye(13), GAMMA), []
    for part in (near, far[:20], far[20:60], far[60:]):
        state, info = itml.update(state, V[part], similar[part], upper, lower, buffer=101)
        counts.append((np.count_nonzero(state.similar), np.count_nonzero(~state.similar)))
    assert counts == [(101, 0), (81, 20), (51, 50), (51, 50)]
    assert info.added == 140
    assert info.evicted == 140
    assert state.reference.seen.tolist() == [200, 200]


def test_a_kind_keeps_the_share_that_came_alone() -> None:
    """Of 120 dissimilar pairs 30 came alone: a quarter of their places are the sample's."""
    V, similar, upper, lower = fair_pairs(1000)
    near, far = np.flatnonzero(similar), np.flatnonzero(~similar)
    state = itml.init(np.eye(13), GAMMA)
    for part in (near[:300], far[:30], far[30:75], far[75:120]):
        state, _ = itml.update(state, V[part], similar[part], upper, lower, buffer=80)
        check_duals(state)
    # 30 of 110 pairs are more than a tenth, so these did not come alone
    assert state.alone.tolist() == [300, 0]
    state = itml.init(np.eye(13), GAMMA)
    for part in (near[:300], far[:8], far[8:60], far[60:120]):
        state, _ = itml.update(state, V[part], similar[part], upper, lower, buffer=80)
    assert state.alone.tolist() == [300, 8]
    sampled = ~state.similar & (state.keys > 0)
    assert np.count_nonzero(sampled) == round(40 * 8 / 120)
    np.testing.assert_allclose(state.prices[sampled], GAMMA * 8 / 3)
    np.testing.assert_allclose(state.prices[~state.similar & ~sampled], GAMMA)
    np.testing.assert_allclose(state.prices[state.similar], GAMMA * 300 / 40)
    assert np.array_equal(state.differences[~state.similar & ~sampled][-37:], V[far[83:120]])


def test_every_pair_of_a_mixed_stream_is_swept() -> None:
    """A call of more pairs of a kind than it has places leaves their duals behind."""
    rng = np.random.default_rng(0)
    V = rng.standard_normal((100, 3)) * [1, 1, 0]
    state, _ = itml.update(itml.init(np.eye(3)), V, np.arange(100) < 50, 1.0, 9.0, buffer=100)
    new = rng.standard_normal((90, 3))
    new[:40] *= [0, 0, 1]
    new[40:] *= [1, 1, 0]
    after, _ = itml.update(state, new, np.zeros(90), 1.0, 9.0, buffer=100)
    assert not after.differences[:, 2].any()  # these have left
    assert after.absorbed[2, 2] < 0


def test_what_leaves_the_sample_takes_its_dual_along() -> None:
    """A is that of the pairs that stay, and nothing is absorbed."""
    V, similar, upper, lower = fair_pairs(400)
    near = np.flatnonzero(similar)
    state, _ = itml.update(itml.init(np.eye(13)), V[near[:60]], [True] * 60, upper, lower)
    after, info = itml.update(state, V[near[60:90]], [True] * 30, upper, lower, buffer=60, sweeps=0)
    assert info.evicted == 30
    assert not after.absorbed.any()
    stays = (state.differences[:, None] == after.differences).all(axis=2).any(axis=1)
    duals = after.duals[: np.count_nonzero(stays)]
    np.testing.assert_array_equal(duals, state.duals[stays])
    expected = oracle.from_duals(np.eye(13), V[near[:60]][stays], np.full(len(duals), True), duals)
    assert relative(after.matrix, expected) < 1e-10


def test_a_fallen_price_lowers_duals() -> None:
    """A larger buffer: each pair of the sample stands for fewer, and its dual keeps its limit."""
    V, similar, upper, lower = fair_pairs(1200)
    near = np.flatnonzero(similar)
    state = learn((V, similar, upper, lower), near[:400], buffer=20, sweeps=20)
    after, _ = itml.update(state, V[near[400:]], similar[near[400:]], upper, lower, sweeps=0)
    np.testing.assert_allclose(after.prices, GAMMA * 600 / 220)
    assert (state.duals * upper > after.prices[0]).any()
    check_duals(after)


def test_duals_shrink_until_there_is_a_metric() -> None:
    """Dissimilar pairs' duals need those of the similar ones: all shrink, and A stays definite."""
    V, similar, upper, lower = fair_pairs(1200)
    near, far = np.flatnonzero(similar), np.flatnonzero(~similar)
    state = learn((V, similar, upper, lower), near, buffer=60)
    state, _ = itml.update(state, V[far[:60]], [False] * 60, upper, lower, buffer=120, sweeps=30)
    gone = replace(state, duals=np.where(state.similar, 0.0, state.duals))
    assert itml_buffer.build_from_duals(gone) is None
    after = itml_buffer._limit_duals(gone, lost=True)
    check_duals(after)
    ratio = after.duals[~after.similar] / np.maximum(gone.duals[~gone.similar], 1e-300)
    powers = np.log(ratio[gone.duals[~gone.similar] > 0]) / np.log(itml_buffer.SHRINK)
    np.testing.assert_allclose(powers, np.rint(powers[0]), atol=1e-9)
    assert powers[0] >= 1


def test_contradicting_sorted_streams_stay_definite() -> None:
    """Whatever comes in what order and is forgotten: A is of the duals, finite and definite."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        forgetting = float(rng.choice([0.0, 0.02]))
        state = itml.init(np.eye(4), 10.0 ** rng.uniform(-2, 1))
        for _ in range(12):
            n = int(rng.integers(0, 40))
            similar = rng.random(n) < rng.choice([0.0, 0.05, 0.5, 1.0])
            state, info = itml.update(
                state, rng.standard_normal((n, 4)), similar, 1.0, 12.0,
                buffer=int(rng.integers(1, 30)), forgetting=forgetting, sweeps=2,
            )  # fmt: skip
            assert info.status in ("ok", "rebuilt")
            check_duals(state)
            measured = itml.measure(itml.shrink(state)[0])
            assert measured.drift < 1e-8
            assert measured.gap >= -1e-9


def test_forgetting_prefers_later_pairs() -> None:
    """The sample of pairs that come alone and its weight fade with age."""
    V = np.random.default_rng(0).standard_normal((1000, 3))
    V[:, 0] = np.arange(1000)
    state = itml.init(np.eye(3), GAMMA)
    for part in np.split(V, 20):
        state, _ = itml.update(state, part, [True] * 50, 1.0, 9.0, buffer=100, forgetting=0.2)
    expected = 50 * np.sum(0.8 ** np.arange(20))
    np.testing.assert_allclose(state.alone, [expected, 0])
    np.testing.assert_allclose(state.prices, GAMMA * expected / 100)
    assert np.median(state.differences[:, 0]) > 750


# ------------------------------------------------------------------ weights


@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize("width", [13, pytest.param(104, marks=pytest.mark.long)])
def test_a_price_of_its_own_is_copies_of_the_pair(backend: str, width: int) -> None:
    """Three times the price: the metric of each pair three times."""
    if backend == "numba" and not compilation.is_available():
        pytest.skip("numba is not installed")
    V, similar, upper, lower = wine_pairs(120)
    V = np.concatenate([V] * (width // 13), axis=1)
    weights = np.where(similar, 3, 1)
    copies = np.repeat(np.arange(120), weights)
    best, _ = itml.solve(V[copies], similar[copies], upper, lower, tolerance=1e-9)
    pairs, _ = bregman.check_pairs(V, similar, upper, lower, width)
    sweep, A, duals = itml_numba.get_sweep(backend), np.eye(width), np.zeros(120)  # type: ignore[arg-type]
    for seed in range(60):
        order = np.random.default_rng(seed).permutation(120)
        result = sweep(A, duals, pairs, GAMMA * weights, order)
        A, duals = result.matrix, result.duals
    assert relative(A, best.matrix) < 1e-7
    residuals = bregman.compute_residuals(A, duals, pairs, GAMMA * weights)
    assert residuals.max() < 1e-8
    # the certificate of weighed pairs is that of the copies
    state = replace(
        itml.init(np.eye(width), GAMMA), matrix=A, differences=V, similar=similar,
        bounds=pairs.bounds, duals=duals, keys=np.where(similar, 1.0, 0.0),
        alone=np.array([3.0 * np.count_nonzero(similar), 0.0]),
    )  # fmt: skip
    np.testing.assert_array_equal(state.prices, GAMMA * weights)
    measured, expected = itml.measure(state), itml.measure(best)
    assert measured.objective == pytest.approx(expected.objective, rel=1e-9)
    assert measured.residual < 1e-8
    assert abs(measured.gap) < 1e-8
    off = itml.measure(replace(state, duals=0.5 * duals, matrix=np.eye(width)))
    assert off.gap > 0.1


# ------------------------------------------------------------------ merging, files, learners


@pytest.mark.parametrize("order", ["shuffled", "similar first"])
@pytest.mark.parametrize("parts", [2, 5])
def test_merged_parts_of_any_order(problem: Any, order: str, parts: int) -> None:
    """As near to the batch as one stream, though absorbed duals are left out; and it goes on."""
    pairs, ratio = problem
    V, similar, upper, lower = pairs
    rows = sort_pairs(V, similar, order)
    states = [learn(pairs, rows[i::parts], buffer=1000) for i in range(parts)]
    merged = reduce(lambda left, right: itml.merge(left, right, buffer=1000), states)
    check_duals(merged)
    assert len(merged) == 1000
    assert ratio(merged) <= 1.10  # with duals of equal weight 1.3 and 8
    assert merged.reference.seen.tolist() == [1500, 1500]
    np.testing.assert_allclose(merged.alone, np.sum([state.alone for state in states], axis=0))
    assert itml.measure(merged).residual < 0.1
    for start in range(0, 3000, 50):
        part = slice(start, start + 50)
        merged, _ = itml.update(merged, V[part], similar[part], upper, lower, buffer=1000)
    check_duals(merged)
    assert ratio(merged) <= 1.08


def test_the_larger_stream_gives_more_pairs() -> None:
    """Of either kind in proportion to what each has seen of it, not to what it remembers."""
    pairs = fair_pairs(800)
    near, far = np.flatnonzero(pairs[1]), np.flatnonzero(~pairs[1])
    left = learn(pairs, np.concatenate([near[:300], far[:100]]), buffer=80)
    right = learn(pairs, np.concatenate([far[100:400], near[300:400]]), buffer=80)
    merged = itml.merge(left, right, buffer=80)
    from_left = (merged.differences[:, None] == left.differences).all(axis=2).any(axis=1)
    assert np.count_nonzero(from_left & merged.similar) == 30
    assert np.count_nonzero(from_left & ~merged.similar) == 10
    assert np.count_nonzero(merged.similar) == 40
    check_duals(merged)


def test_merging_all_pairs_absorbs_nothing() -> None:
    """Where both fit, prices are gamma, S is 0, and keys are their own."""
    pairs = fair_pairs(200)
    near, far = np.flatnonzero(pairs[1]), np.flatnonzero(~pairs[1])
    left = learn(pairs, near)
    right = learn(pairs, np.concatenate([far[:50], near[:50], far[50:]]))
    merged = itml.merge(left, right)
    assert (merged.prices == GAMMA).all()
    assert not merged.absorbed.any()
    assert itml.shrink(merged) == (merged, 0.0)
    assert sorted(merged.keys) == sorted([*left.keys, *right.keys])
    assert itml.measure(merged).residual <= 1e-3


def test_sorted_states_are_saved_and_go_on() -> None:
    """Through plain arrays to the same bits."""
    pairs = V, similar, upper, lower = fair_pairs(600)
    rows = sort_pairs(V, similar, "in turn")
    rest = V[rows[350:]], similar[rows[350:]], upper, lower
    state = learn(pairs, rows[:350], buffer=120)
    arrays, numbers = codec.pack(state)
    again = codec.unpack(itml_buffer.State, {k: v.copy() for k, v in arrays.items()}, numbers)
    ends = [codec.pack(itml.update(part, *rest, buffer=120)[0]) for part in (state, again)]
    assert ends[0][1] == ends[1][1]
    for name in arrays:
        assert np.array_equal(ends[0][0][name], ends[1][0][name])


def estimator_pairs(order: str) -> tuple[Floats, Bools]:
    V, similar, *_ = fair_pairs(600)
    rows = sort_pairs(V, similar, order)
    return V[rows], similar[rows]


def test_an_estimator_of_a_sorted_log() -> None:
    """Any split gives the same bits; the metric is the shrunk one, and info says how far."""
    V, similar = estimator_pairs("similar first")
    options: Any = {"upper": 6.0, "lower": 50.0, "buffer": 20}
    one, many = ITML(**options), ITML(**options)
    many.learn_pairs(V, np.zeros_like(V), similar)
    for start in range(0, 600, 7):
        part = slice(start, start + 7)
        one.learn_pairs(V[part], np.zeros_like(V[part]), similar[part])
    assert np.array_equal(one.metric.matrix, many.metric.matrix)
    assert many._stream is not None
    state = many._stream.progress["metric"].state
    shrunk, w = itml.shrink(state.core)
    assert many.info.shrinkage == w > 0
    np.testing.assert_allclose(
        many.metric.matrix, shrunk.matrix / np.outer(state.scale, state.scale), rtol=1e-12
    )
    assert many.info.measures == itml.measure(shrunk)
    assert many.metric.certificate["shrinkage"] == w
    drifting = ITML(**options, forgetting=0.001)
    drifting.learn_pairs(V, np.zeros_like(V), similar)
    assert drifting.info.shrinkage == 0.0


def test_one_kind_is_told() -> None:
    """By the status, with a metric that is finite and definite."""
    V, similar = estimator_pairs("similar first")
    for flags, status in ((similar | True, "no far pairs"), (similar & False, "no close pairs")):
        model = ITML(upper=6.0, lower=50.0, buffer=50)
        model.learn_pairs(V, np.zeros_like(V), flags)
        assert model.info.status == status
        assert bregman.is_positive_definite(model.metric.matrix)
    model.learn_pairs(V, np.zeros_like(V), similar)
    assert model.info.status == "ok"


def test_a_merged_estimator_converts_the_reference() -> None:
    """Its pairs are those that came, in the merged units, with bounds beside them."""
    V, similar = estimator_pairs("in turn")
    left, right = (ITML(upper=6.0, lower=50.0, buffer=60) for _ in range(2))
    left.learn_pairs(V[:300], np.zeros_like(V[:300]), similar[:300])
    right.learn_pairs(3 * V[300:], np.zeros_like(V[300:]), similar[300:])
    left.merge(right)
    assert left._stream is not None
    state = left._stream.progress["metric"].state
    raw = state.core.reference.differences * state.scale
    known = np.concatenate([V[:300], 3 * V[300:]])
    gaps = np.abs(raw[:, None, :] - known[None]).max(axis=2).min(axis=1)
    assert gaps.max() < 1e-9
    assert len(state.core) == 60
    assert np.isfinite(left.metric.matrix).all()
