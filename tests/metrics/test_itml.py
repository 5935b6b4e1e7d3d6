"""ITML in batch and in a stream, against the printed algorithm and a general solver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_wine

from scenarios.baselines import itml_batch
from streamembed.errors import ParameterError
from streamembed.estimators import ITML
from streamembed.metrics import bregman, itml
from streamembed.metrics.itml import LEAST_ALONE, ITMLLearner, Memory
from streamembed.numeric import histogram
from streamembed.numeric.arrays import Floats, Ints
from tests.oracles import oracle_itml as oracle

# A sweep over some hundred pairs of condition below 1e4: a few hundred eps.
EXACT = 1e-11
# The promise of every call: A is the inverse of prior and duals to this relative norm.
IDENTITY = 1e-9
GAMMA = 0.1


def wine_pairs(count, seed=0):
    """Differences of random wines, whether their classes agree, and the percentile bounds."""
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    left, right = np.random.default_rng((seed, 1)).integers(len(X), size=(2, 2000))
    known = histogram.update(histogram.init(), np.sum((X[left] - X[right]) ** 2, axis=1))
    left, right = np.random.default_rng(seed).integers(len(X), size=(2, 2 * count))
    kept = np.flatnonzero(left != right)[:count]
    left, right = left[kept], right[kept]
    return X[left] - X[right], y[left] == y[right], *itml.compute_percentile_bounds(known)


def random_pairs(n, d, seed=0, scale=1.0):
    rng = np.random.default_rng((seed, n, d))
    return scale * rng.standard_normal((n, d)), rng.random(n) < 0.5


def bounded(
    V: Floats, similar: Any, upper: float, lower: float, gamma: float = GAMMA
) -> bregman.Constraints:
    return bregman.build_pairs(V, np.asarray(similar, dtype=bool), upper, lower, gamma)


def learn(memory: Memory, pairs: bregman.Constraints, **options: Any) -> Memory:
    """The memory after one call."""
    after = ITMLLearner(**{"gamma": GAMMA, **options}).learn(memory, pairs)
    assert after is not None
    return after


def one_pass(pairs: bregman.Constraints, chunk: int = 50, **options: Any) -> Memory:
    """The memory after all pairs, ``chunk`` at a time."""
    memory = itml.init(np.eye(pairs.differences.shape[1]))
    for k in range(0, len(pairs), chunk):
        memory = learn(memory, pairs.take(slice(k, k + chunk)), **options)
    return memory


def relative(A, B):
    return np.linalg.norm(A - B) / np.linalg.norm(B)


def check_identity(memory: Memory) -> None:
    """A^-1 = A_0^-1 + S + sum s lambda v v^T, lambda >= 0, A finite, symmetric, definite."""
    base = np.linalg.inv(np.linalg.inv(memory.prior) + memory.absorbed)
    pairs = memory.pairs
    truth = oracle.from_duals(base, pairs.differences, pairs.similar, pairs.duals)
    assert relative(memory.matrix, truth) <= IDENTITY
    assert (pairs.duals >= 0).all()
    assert np.array_equal(memory.matrix, memory.matrix.T)
    assert np.linalg.eigvalsh(memory.matrix)[0] > 0


# One constraint.


@pytest.mark.parametrize("d", [1, 3, 10])
def test_one_similar_pair(d):
    """Without slack the bound holds with equality, A by Sherman and Morrison."""
    v = np.random.default_rng(d).standard_normal(d)
    upper = 0.3 * float(v @ v)
    matrix, _, _ = itml_batch.solve(bounded(v[None], [True], upper, upper, gamma=1e14))
    np.testing.assert_allclose(matrix, oracle.one_similar(v, upper), atol=1e-12)
    assert v @ matrix @ v == pytest.approx(upper, rel=1e-12)


@settings(deadline=None)
@given(
    st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.sampled_from([1.0, -1.0]), st.floats(0.01, 10)
)
def test_a_projection(p, bound, sign, gamma):
    """The bound as moved holds with equality, or there is nothing to do; p stays positive."""
    change = bregman.compute_dual_step(p, 0.0, sign, bound, gamma)
    after = p / (1.0 - sign * change * p)
    moved = 1.0 / (1.0 / bound + sign * change / gamma)
    if sign * (p - bound) > 0:
        assert after == pytest.approx(moved, rel=1e-9)
    else:
        assert change == 0.0
    assert after > 0
    assert moved > 0
    again = bregman.compute_dual_step(after, -change, sign, bound, gamma)
    assert abs(again) * after < 1e-9  # a projection of a projection is itself


# The batch answer.


@pytest.mark.parametrize("kinds", ["both", "similar", "dissimilar"])
def test_sweeps_reach_the_optimum(kinds):
    """Matrix and objective are those of a general solver on the dual, whatever kinds there are."""
    V, similar, upper, lower = wine_pairs(150)
    similar = {"both": similar, "similar": similar | True, "dissimilar": similar & False}[kinds]
    matrix, pairs, _ = itml_batch.solve(bounded(V, similar, upper, lower), tolerance=1e-9)
    A, least = oracle.dual_optimum(np.eye(13), V, similar, upper, lower, GAMMA)
    assert relative(matrix, A) < 1e-5  # the solver's: its objective is flat at 1e-12
    assert bregman.objective(matrix, np.eye(13), pairs) == pytest.approx(least, rel=1e-9)


def test_optimality_conditions():
    """All of Karush, Kuhn and Tucker, from the duals: inverse, slack, feasible, complementary."""
    V, similar, upper, lower = wine_pairs(400)
    matrix, pairs, _ = itml_batch.solve(bounded(V, similar, upper, lower))
    s, xi_0 = np.where(similar, 1, -1), np.where(similar, upper, lower)
    assert relative(matrix, oracle.from_duals(np.eye(13), V, similar, pairs.duals)) <= IDENTITY
    xi = 1 / (1 / xi_0 - s * pairs.duals / GAMMA)
    p = np.einsum("ij,jk,ik->i", V, matrix, V)
    assert (xi > 0).all()
    assert (s * (p / xi - 1)).max() <= 1e-6
    active = pairs.duals * p > 1e-5
    assert np.abs(p / xi - 1)[active].max() <= 1e-6


def test_literal_sweeps():
    """In the order of the source, sweep for sweep, A and duals are those of its algorithm."""
    V, similar, upper, lower = wine_pairs(200)
    for sweeps in (1, 2, 5):
        A, duals, _ = oracle.literal_sweeps(np.eye(13), V, similar, upper, lower, GAMMA, sweeps)
        matrix, pairs, n_sweeps = itml_batch.solve(
            bounded(V, similar, upper, lower), seed=None, max_sweeps=sweeps
        )
        assert n_sweeps == sweeps
        assert relative(matrix, A) < EXACT
        np.testing.assert_allclose(pairs.duals, duals, atol=EXACT * duals.max())


def test_objective():
    """It is the sum of the divergences, written out; also where A is far from the prior."""
    V, similar, upper, lower = wine_pairs(100)
    prior, pairs = np.cov(V.T) + 0.1 * np.eye(13), bounded(V, similar, upper, lower)
    for power in (0.0, 1.0, -3.0):
        A = np.linalg.matrix_power(np.linalg.inv(prior), int(abs(power)))
        truth = oracle.objective(A, prior, V, similar, upper, lower, GAMMA)
        assert bregman.objective(A, prior, pairs) == pytest.approx(truth, rel=1e-9)
    assert bregman.objective(prior, prior, pairs.take(slice(0))) < 1e-12


def test_units_do_not_matter():
    """X -> X T with A_0 -> T^-1 A_0 T^-T leaves every distance what it was."""
    V, similar, upper, lower = wine_pairs(300)
    T = np.random.default_rng(3).standard_normal((13, 13)) + 4 * np.eye(13)
    T *= np.logspace(-3, 3, 13)
    back = np.linalg.inv(T)
    plain = learn(itml.init(np.eye(13)), bounded(V, similar, upper, lower), buffer=100)
    turned = learn(itml.init(back @ back.T), bounded(V @ T, similar, upper, lower), buffer=100)
    p = np.einsum("ij,jk,ik->i", V, plain.matrix, V)
    q = np.einsum("ij,jk,ik->i", V @ T, turned.matrix, V @ T)
    np.testing.assert_allclose(q, p, rtol=1e-8)  # T has condition 1e7 or so


def test_satisfied_bounds_leave_the_prior():
    """Bit for bit, through sweeps, evictions and forgetting."""
    V, similar = random_pairs(200, 7)
    half = np.random.default_rng(1).standard_normal((7, 7))
    prior = half @ half.T + np.eye(7)
    p = np.einsum("ij,jk,ik->i", V, prior, V)
    upper, lower = p.max(), p.max()
    V, similar = np.concatenate([V, 2 * V]), np.concatenate([similar | True, similar & False])
    kept = np.einsum("ij,jk,ik->i", V, prior, V) >= np.where(similar, 0, lower)
    start = itml.init(prior)
    pairs = bounded(V[kept], similar[kept], upper, lower)
    after = learn(start, pairs, buffer=50, sweeps=3, forgetting=0.1)
    assert np.array_equal(after.matrix, start.matrix)
    assert len(after.pairs) < len(pairs)


# The stream.


@pytest.mark.slow
def test_random_streams_stay_definite():
    """After every call, evictions and forgetting included, of pairs that contradict each other."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        gamma, forgetting = 10.0 ** rng.uniform(-2, 1), rng.choice([0.0, 0.05])
        memory = itml.init(np.eye(4))
        for k in range(6):
            V, similar = random_pairs(10, 4, seed=100 * seed + k)
            options = {"buffer": 20, "sweeps": 2, "seed": seed, "forgetting": forgetting}
            memory = learn(memory, bounded(V, similar, 1.0, 12.0, gamma), gamma=gamma, **options)
            check_identity(memory)


# Ratios of the objective to the batch's at a buffer of 2,000 (decided with the design), and the
# prior's own, below which every buffer from 50 on must stay.
BARS = {"shuffled": 1.02, "similar": 1.15, "dissimilar": 1.15, "near": 1.15, "far": 1.15}


def sort_pairs(pairs: bregman.Constraints, order: str) -> Ints:
    """Indices of the pairs, those of the kind, the nearest or the farthest first."""
    squares = np.einsum("ij,ij->i", pairs.differences, pairs.differences)
    key = {
        "shuffled": np.random.default_rng(1).permutation(len(pairs)),
        "similar": ~pairs.similar,
        "dissimilar": pairs.similar,
        "near": squares,
        "far": -squares,
    }[order]
    return np.argsort(key, kind="stable")


@pytest.fixture(scope="module")
def problem() -> Any:
    """6,000 pairs of wine, half of them similar, and the ratio of a metric's objective."""
    V, similar, upper, lower = wine_pairs(24_000)
    both = np.concatenate([np.flatnonzero(kind)[:3000] for kind in (similar, ~similar)])
    pairs = bounded(V[both], similar[both], upper, lower)
    best, _, _ = itml_batch.solve(pairs)
    least = bregman.objective(best, np.eye(13), pairs)
    return pairs, lambda matrix: bregman.objective(matrix, np.eye(13), pairs) / least


@pytest.mark.slow
@pytest.mark.parametrize(
    "order",
    [
        name if name in ("shuffled", "similar") else pytest.param(name, marks=pytest.mark.long)
        for name in BARS
    ],
)
def test_no_order_is_far_from_the_batch(problem: Any, order: str) -> None:
    """One pass, fifty pairs a call; docs/algorithms/itml.md has more data sets."""
    pairs, ratio = problem
    ordered = pairs.take(sort_pairs(pairs, order))
    assert ratio(one_pass(ordered, buffer=2000).matrix) <= BARS[order]
    for buffer in (50, 100, 200, 500):
        assert ratio(one_pass(ordered, buffer=buffer).matrix) < ratio(np.eye(13))


def test_every_call_keeps_the_identity():
    """A is the inverse of prior, absorbed and remembered duals, after every call of a stream."""
    pairs, memory = bounded(*wine_pairs(1000)), itml.init(np.eye(13))
    for k in range(0, 1000, 100):
        memory = learn(memory, pairs.take(slice(k, k + 100)), buffer=150, forgetting=0.02)
        check_identity(memory)


def test_eviction_absorbs():
    """A pair takes nothing along: A is untouched and its dual is in S; the oldest of a kind go."""
    pairs = bounded(*wine_pairs(200))
    memory = learn(itml.init(np.eye(13)), pairs.take(slice(100)), buffer=1000)
    after = learn(memory, pairs.take(slice(100, 200)), buffer=60, sweeps=0)
    np.testing.assert_allclose(after.matrix, memory.matrix, rtol=1e-12, atol=1e-14)
    remembered = memory.pairs.joined(pairs.take(slice(100, 200)))
    stays = np.zeros(200, bool)
    for kind in (True, False):
        stays[np.flatnonzero(remembered.similar == kind)[-30:]] = True
    np.testing.assert_array_equal(after.pairs.differences, remembered.differences[stays])
    np.testing.assert_allclose(after.absorbed, remembered.take(~stays).dual_sum, atol=1e-14)
    check_identity(after)


@pytest.mark.parametrize("kind", [True, False])
def test_a_kind_that_comes_alone_is_a_uniform_sample(kind: bool) -> None:
    """Nothing is absorbed, each pair counts for as many as it stands for, A has the duals left."""
    rng = np.random.default_rng(0)
    V = rng.standard_normal((6000, 2))
    V[:, 0] = np.arange(6000) + 1.0  # tells when it came
    memory = one_pass(bounded(V, np.full(6000, kind), 1e6, 3e6), buffer=100)
    assert len(memory.pairs) == LEAST_ALONE
    assert not memory.absorbed.any()
    np.testing.assert_allclose(memory.pairs.prices, GAMMA * 6000 / LEAST_ALONE)
    check_identity(memory)
    # the mean of 500 of 0 .. 6000 has a standard error of 77
    assert abs(memory.pairs.differences[:, 0].mean() - 3000) < 4 * 77
    # the sample leaves for pairs of its kind only, and its duals stay
    other = learn(memory, bounded(V[:50], np.full(50, not kind), 1e6, 3e6), buffer=100)
    assert (other.pairs.similar == kind).sum() == LEAST_ALONE
    mixed = learn(other, bounded(V[:50], np.full(50, kind), 1e6, 3e6), buffer=100)
    assert (mixed.pairs.similar == kind).sum() == 50
    check_identity(mixed)


def test_forgetting():
    """rho = .5 and nothing new: A^-1 is half way to the prior's, and duals are halved."""
    pairs = bounded(*wine_pairs(200))
    memory = learn(itml.init(2 * np.eye(13)), pairs)
    after = learn(memory, pairs.take(slice(0)), forgetting=0.5, sweeps=0)
    half = 0.5 * np.linalg.inv(memory.matrix) + 0.5 * np.linalg.inv(memory.prior)
    assert relative(after.matrix, np.linalg.inv(half)) < EXACT
    np.testing.assert_array_equal(after.pairs.duals, 0.5 * memory.pairs.duals)


def test_only_one_kind():
    """Similar pairs alone shrink, dissimilar pairs alone stretch; the certificate says so."""
    V, _, upper, lower = wine_pairs(200)
    for similar, status in ((True, "no far pairs"), (False, "no close pairs")):
        kind = np.full(200, similar)
        memory = learn(itml.init(np.eye(13)), bounded(V, kind, upper, lower), sweeps=5)
        check_identity(memory)
        values = np.linalg.eigvalsh(memory.matrix)
        assert values[-1] <= 1 + EXACT if similar else values[0] >= 1 - EXACT
        model = ITML(upper=upper, lower=lower)
        model.learn_pairs(V, np.zeros_like(V), kind)
        assert model.metric.certificate["status"] == status
        model.learn_pairs(V, np.zeros_like(V), ~kind)
        assert model.metric.certificate["status"] == "ok"


def test_pairs_of_equal_points():
    """They are left out and counted; a call of nothing else changes no metric."""
    V, similar, upper, lower = wine_pairs(30)
    V = V.copy()
    V[[3, 7]] = 0
    V[9] = 1e-160
    assert len(bounded(V, similar, upper, lower)) == 27
    model = ITML(upper=upper, lower=lower)
    model.learn_pairs(V, np.zeros_like(V), similar)
    model.flush()
    facts = model.metric.certificate
    assert (facts["n_seen"], facts["n_dropped"], facts["n_pairs"]) == (30, 3, 27)
    start = itml.init(np.eye(13))
    nothing = bounded(np.zeros((4, 13)), np.full(4, True), upper, lower)
    assert np.array_equal(learn(start, nothing).matrix, start.matrix)


def test_duplicates_and_contradictions():
    """One pair, many times, of both kinds: bounds give way, and nothing breaks."""
    v = np.tile([1.0, 2.0, -1.0], (60, 1))
    similar = np.arange(60) % 2 == 0
    matrix, _, _ = itml_batch.solve(bounded(v, similar, 1.0, 100.0))
    A, _ = oracle.dual_optimum(np.eye(3), v, similar, 1.0, 100.0, GAMMA)
    assert relative(matrix, A) < 1e-4


def test_extreme_streams():
    """Scales over 120 decades, features over 12, wild bounds: finite and definite, or refused."""
    refused = learned = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        d, scale = int(rng.integers(1, 9)), 10.0 ** rng.uniform(-60, 60)
        features = 10.0 ** rng.uniform(-6, 6, d)
        gamma = 10.0 ** rng.uniform(-6, 12)
        memory = itml.init(np.diag(1 / features**2))
        learner = ITMLLearner(buffer=20, sweeps=2, forgetting=0.05, gamma=gamma)
        upper = scale**2 * 10.0 ** rng.uniform(-20, 3)
        lower = upper * 10.0 ** rng.uniform(0, 12)
        for _ in range(4):
            V = rng.standard_normal((15, d)) * features * scale * 10 ** rng.uniform(-3, 3, (15, 1))
            after = learner.learn(memory, bounded(V, rng.random(15) < 0.5, upper, lower, gamma))
            refused += after is None
            learned += after is not None
            memory = after or memory
            assert bregman.invert(memory.matrix) is not None
            assert np.isfinite(memory.pairs.duals).all()
    assert refused
    assert learned


# Refusals.


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        (np.ones(3), "shape"),
        (np.ones((2, 3)), "shape"),
        (np.diag([1.0, np.nan]), "NaN"),
        (np.array([[1.0, 0.5], [0.0, 1.0]]), "symmetric"),
        (np.diag([1.0, -1.0]), "positive definite; add a ridge"),
        (np.diag([1.0, 0.0]), "positive definite; add a ridge"),
        (np.ones((2, 2)), "positive definite; add a ridge"),
    ],
)
def test_bad_priors(prior, message):
    """No prior, no start: the message says which condition failed."""
    with pytest.raises(ParameterError, match=message):
        itml.init(prior)


def test_merging_is_refused():
    """Its answer depends on the order of the pairs: the message says what to do instead."""
    V, similar, *_ = wine_pairs(60)
    one, two = ITML(), ITML()
    for model in (one, two):
        model.learn_pairs(V, np.zeros_like(V), similar)
    before = one.metric.matrix
    with pytest.raises(ParameterError, match="GeometricMeanMetric, or learn in one process"):
        one.merge(two)
    assert np.array_equal(one.metric.matrix, before)
