"""Streaming Frank-Wolfe against closed forms, duality, the whitened form and the batch optimum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_wine

from scenarios.baselines import mirror_prox
from streamembed.errors import ParameterError
from streamembed.metrics import eig_dml
from streamembed.metrics.eig_dml import EigDMLLearner
from streamembed.metrics.separation import soft_minimum
from tests.oracles import oracle_eig_dml as oracle

# Far pairs with less than 1e-10 of the largest weight are left out of a step, and near-tied
# eigenvectors amplify differences, to 1e-3 in a thousand steps: iterates are compared over 20.
SAME = 1e-8
# Both sides of an inequality of duality are rounded.
SLACK = 1e-9
BATCH = EigDMLLearner(smoothing=1e-3, buffer=1000, steps=40_000, step_cap=10**9, tolerance=0.05)
# SCS by CVXPY, eps 1e-8, on `wine_pairs(1000)` and H with its ridge; computed once, elsewhere.
WINE_SDP = 24.419361587


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def labelled_pairs(X, y, count, seed=0):
    """``count`` differences of points of equal and of different class, none of them 0."""
    generator = np.random.default_rng(seed)
    left, right = generator.integers(len(X), size=(2, 6 * count))
    differ = X[left] - X[right]
    moved = differ.any(axis=1)
    same = y[left] == y[right]
    return differ[moved & same][:count], differ[moved & ~same][:count]


def wine_pairs(count, seed=0):
    X, y = load_wine(return_X_y=True)
    close, far = labelled_pairs((X - X.mean(axis=0)) / X.std(axis=0), y, count, seed)
    assert len(close) == len(far) == count
    return close, far


def update(state, close, far, options):
    """State and facts after a call."""
    state = eig_dml.update(state, close, far, options)
    return state, eig_dml.measure(state, options)


def solve(close, far, options):
    """State and facts of a batch problem: from a smooth minimum to a sharp one."""
    state, info = eig_dml.init(close.shape[1]), {"status": "gap open"}
    while info["status"] == "gap open" and state.step < 40_000:
        smoothing = max(options.smoothing, state.step**-0.5)
        each = replace(options, smoothing=smoothing, steps=20)
        state, info = update(state, close, far, each)
        close, far = close[:0], far[:0]
    return state, info


def streamed(close, far, options, batch=50):
    """State and facts after a stream in batches of close and far pairs."""
    state = eig_dml.init(close.shape[1])
    for k in range(0, len(close), batch):
        state, info = update(state, close[k : k + batch], far[k : k + batch], options)
    return state, info


def check(state: eig_dml.State) -> None:
    """What holds after every call."""
    A, H = state.matrix, eig_dml.compute_constraint(state)
    d = len(A)
    assert np.isfinite(A).all()
    assert np.array_equal(A, A.T)
    # far below 1e-10, but for a nearly singular H, where the entries of A are 1e6 and cancel
    assert abs(np.sum(A * H) - d) <= 1e-12 * d + 1e-15 * np.sum(np.abs(A * H))
    # PSD in units of H, whose features may differ by orders; the product itself rounds
    half = np.linalg.cholesky(H)
    rounding = 1e-15 * np.sum(np.abs(half.T) @ np.abs(A) @ np.abs(half))
    assert np.linalg.eigvalsh(half.T @ A @ half)[0] >= -1e-12 * d - rounding
    assert np.all(np.diff(state.births) > 0)
    assert len(state.far) == len(state.births) == len(state.values) == len(state.duals)
    q = np.einsum("ij,ij->i", state.far @ A, state.far)
    np.testing.assert_allclose(state.values, q, rtol=1e-9, atol=1e-9 * q.mean() if len(q) else 0)


def orthogonal(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Close pairs, and d far pairs that their H makes orthogonal, of different lengths."""
    close = normal(5 * d, d) @ normal(d, d, seed=1)
    state, _ = update(eig_dml.init(d), close, np.zeros((0, d)), BATCH)
    turn, _ = np.linalg.qr(normal(d, d, seed=2))
    lengths = np.linspace(0.5, 2.0, d)
    return close, (lengths[:, None] * turn) @ np.linalg.cholesky(
        eig_dml.compute_constraint(state)
    ).T


def test_orthogonal_pairs():
    """Where far pairs are orthogonal under H, the value is d / sum 1 / |z|^2, within the gap."""
    close, far = orthogonal(8)
    state, info = solve(close, far, BATCH)
    optimum, alpha = oracle.orthogonal_optimum(eig_dml.compute_constraint(state), far)
    assert info["status"] == "certified"
    assert 0.95 * optimum <= info["objective"] <= optimum * (1 + SLACK)
    assert optimum * (1 - SLACK) <= info["bound"] <= optimum * 1.05
    # a value to 5 % leaves so much of the weights; mirror-prox is compared to 1e-3
    np.testing.assert_allclose(state.duals / state.duals.sum(), alpha, atol=0.05)


@pytest.mark.parametrize("angle", [0.3, 1.0, np.pi / 2, 2.5])
def test_two_pairs_by_hand(angle):
    """Two pairs in the plane: all on the bisector of their lines, unless they are orthogonal."""
    close = np.sqrt(2) * np.concatenate([np.eye(2), -np.eye(2)])
    far = np.array([[1.0, 0.0], [np.cos(angle), np.sin(angle)]])
    state, info = solve(close, far, replace(BATCH, tolerance=1e-2))
    assert info["objective"] == pytest.approx(oracle.two_pairs_by_hand(angle), rel=1e-2)
    # the ridge takes 1e-6 of H = I
    assert info["bound"] >= oracle.two_pairs_by_hand(angle) * (1 - 2e-6)
    check(state)


def test_first_steps_are_the_whitened_ones():
    """Twenty steps in input coordinates are those of the literal whitened form, one by one."""
    close, far = wine_pairs(60)
    options = EigDMLLearner(smoothing=0.3, steps=1, step_cap=10**9)
    state, _ = update(eig_dml.init(13), close, far, replace(options, steps=0))
    expected = oracle.frank_wolfe(eig_dml.compute_constraint(state), far, 20, 0.3)
    for metric in expected:
        state, _ = update(state, close[:0], far[:0], options)
        np.testing.assert_allclose(state.matrix, metric, atol=SAME * np.abs(metric).max(), rtol=0)
    at_once, _ = update(eig_dml.init(13), close, far, replace(options, steps=20))
    scale = np.abs(state.matrix).max()
    np.testing.assert_allclose(at_once.matrix, state.matrix, rtol=0, atol=SAME * scale)


def test_the_bound_holds_at_every_step():
    """No bound, after any step, is below a value that a metric reaches."""
    close, far = wine_pairs(150)
    options = EigDMLLearner(smoothing=0.05, steps=1, step_cap=10**9, tolerance=0)
    state, _ = update(eig_dml.init(13), close, far, replace(options, steps=0))
    H = eig_dml.compute_constraint(state)
    reached = oracle.smallest(mirror_prox.solve(H, far, 5e-3)[0], far)
    bounds = []
    for _ in range(200):
        state, info = update(state, close[:0], far[:0], options)
        assert info["bound"] >= reached * (1 - SLACK)
        assert info["objective"] <= reached * (1 + 6e-3)
        assert info["gap"] == pytest.approx(1 - info["objective"] / info["bound"])
        bounds.append(info["bound"])
    # and it is no idle bound: the last ones are near
    assert min(bounds) <= reached * 1.12


def test_bounds_are_the_oracles():
    """The two bounds of `measure`, one by one, from outer products; the smaller one is reported."""
    close, far = wine_pairs(100)
    options = EigDMLLearner(smoothing=0.05, steps=30)
    state, info = update(eig_dml.init(13), close, far, options)
    H = eig_dml.compute_constraint(state)
    averaged = oracle.dual_bound(state.duals / state.duals.sum(), state.far, H)
    q = state.values
    alpha = np.exp(-(q - q.min()) / (0.05 * q.min()))
    here = oracle.dual_bound(alpha / alpha.sum(), state.far, H)
    assert info["bound"] == pytest.approx(min(averaged, here), rel=SLACK)
    assert info["objective"] == pytest.approx(oracle.smallest(state.matrix, far), rel=SLACK)


def test_batch_value_is_that_of_the_sdp():
    """Wine, 1000 far pairs: a certified gap of 5 %, and the SDP solver's value inside it."""
    close, far = wine_pairs(1000)
    state, info = solve(close, far, BATCH)
    assert info["status"] == "certified"
    assert info["gap"] <= 0.05
    assert info["step"] < 5000  # measured 1400 to 1700; the design's target is a time, 0.5 s
    # 1e-5: what the SDP solver's own tolerance leaves
    assert info["objective"] <= WINE_SDP * (1 + 1e-5)
    assert info["bound"] >= WINE_SDP * (1 - 1e-5)
    check(state)


@given(st.floats(-300, 300), st.integers(1, 50), st.integers(0, 100))
@settings(max_examples=200, deadline=None)
def test_soft_minimum(exponent, n, seed):
    """f <= f_sigma <= f + sigma log n, and alpha in the simplex, for sigma from 1e-300 to 1e300."""
    values = np.exp(np.random.default_rng(seed).normal(size=n))
    value, weights = soft_minimum(values, 10.0**exponent)
    assert np.isfinite(value)
    assert values.min() * (1 - SLACK) <= value
    assert value <= (values.min() + 10.0**exponent * np.log(n)) * (1 + SLACK)
    assert value <= values.mean() * (1 + SLACK)  # Jensen
    assert weights.sum() == pytest.approx(1.0)
    assert weights.min() >= 0
    assert weights[np.argmin(values)] == weights.max()


@pytest.mark.parametrize("smoothing", [1e-300, 1e-30, 1e-3, 0.5, 1e3, 1e300])
def test_any_smoothing_is_finite(smoothing):
    """From one pair at a time to all alike, nothing is NaN and the bound holds."""
    close, far = wine_pairs(60)
    options = EigDMLLearner(smoothing=smoothing, steps=15, buffer=40)
    state, info = streamed(close, far, options, batch=20)
    check(state)
    assert 0 <= info["gap"] < 1
    assert np.isfinite(info["bound"])


@pytest.mark.parametrize("exponent", [-150, -75, 75, 150])
def test_units_of_the_data(exponent):
    """Squares from 1e-300 to 1e300: the metric takes the unit, q does not see it."""
    unit = 2.0 ** round(exponent / np.log10(2))  # a power of two: nothing is rounded
    close, far = wine_pairs(100)
    options = EigDMLLearner(smoothing=0.1, buffer=60)
    plain, plain_info = streamed(close, far, options)
    state, info = streamed(unit * close, unit * far, options)
    np.testing.assert_allclose(state.matrix * unit * unit, plain.matrix, rtol=1e-6, atol=1e-8)
    assert info["objective"] == pytest.approx(plain_info["objective"], rel=1e-6)
    check(state)


def test_linear_maps():
    """X -> X T maps A to T^-1 A T^-T, not as a whitened matrix would, and leaves the objective."""
    close, far = wine_pairs(200)
    T = np.eye(13) + 0.1 * normal(13, 13)
    options = EigDMLLearner(steps=20)
    plain, plain_info = update(eig_dml.init(13), close, far, options)
    state, info = update(eig_dml.init(13), close @ T, far @ T, options)
    # the ridge, 1e-6 of each feature, is what does not follow; times the condition of H, about 1e2
    assert info["objective"] == pytest.approx(plain_info["objective"], rel=1e-3)
    assert info["bound"] == pytest.approx(plain_info["bound"], rel=1e-3)
    back = T @ state.matrix @ T.T
    np.testing.assert_allclose(back, plain.matrix, atol=1e-3 * np.abs(plain.matrix).max())


def test_pairs_of_equal_points_are_dropped():
    """Duplicates with different labels would make every metric optimal: dropped, and counted."""
    close, far = wine_pairs(50)
    mixed = np.insert(far, [0, 7, 50], 0.0, axis=0)
    plain, _ = update(eig_dml.init(13), close, far, EigDMLLearner())
    state, info = update(eig_dml.init(13), close, mixed, EigDMLLearner())
    assert (info["n_far"], info["n_seen"], info["n_dropped"]) == (50, 53, 3)
    assert np.array_equal(state.matrix, plain.matrix)
    state, info = update(state, close[:0], np.zeros((2, 13)), EigDMLLearner(steps=0))
    assert (info["n_far"], info["n_dropped"]) == (50, 5)


def test_far_only():
    """Far pairs before any close one are kept; A is the identity, and the status says why."""
    close, far = wine_pairs(50)
    state, info = update(eig_dml.init(13), close[:0], far, EigDMLLearner())
    assert info["status"] == "no close pairs"
    assert np.array_equal(state.matrix, np.eye(13))
    check(state)
    # the first close pairs start A anew, and q with it, which once was forgotten
    state, info = update(state, close, far[:0], EigDMLLearner())
    together, _ = update(eig_dml.init(13), close, far, EigDMLLearner())
    assert np.array_equal(state.matrix, together.matrix)
    assert info["status"] == "gap open"


def test_close_only():
    """Close pairs alone make A the inverse of H."""
    close, far = wine_pairs(50)
    state, info = update(eig_dml.init(13), close, far[:0], EigDMLLearner())
    assert info["status"] == "no far pairs"
    assert info["n_far"] == 0
    H = oracle.mean_outer(close)
    H += 1e-6 * np.diag(np.diag(H))
    np.testing.assert_allclose(state.matrix @ H, np.eye(13), atol=1e-9)
    nothing, info = update(eig_dml.init(13), close[:0], far[:0], EigDMLLearner())
    assert info["status"] == "no close pairs"
    check(nothing)
    equal, info = update(eig_dml.init(13), np.zeros((5, 13)), far, EigDMLLearner())
    assert info["status"] == "no close pairs"
    check(equal)


def test_a_metric_of_another_h_is_left_behind():
    """A first close pair spans a line: what was learned from it gives way once H is known.

    Without long steps after H moved, A would stay where the first H was all but zero.
    """
    close, far = wine_pairs(1000)
    options = EigDMLLearner(smoothing=0.05, steps=10)
    late, _ = update(eig_dml.init(13), close[:1], far[:500], replace(options, steps=300))
    late, _ = update(late, close[1:], far[500:], options)
    assert late.step <= 1 + 10
    _, info = update(eig_dml.init(13), close, far, options)
    assert eig_dml.measure(late, options)["objective"] > 0.5 * info["objective"]


@given(
    st.integers(0, 10**6),
    st.sampled_from(["hard", "recent"]),
    st.sampled_from([None, 0.9, 0.99]),
)
@settings(max_examples=25, deadline=None)
def test_random_streams(seed, policy, decay):
    """Batches of any size, empty ones too: feasible, finite, within the buffer after every call."""
    generator = np.random.default_rng(seed)
    d = int(generator.integers(1, 6))
    options = EigDMLLearner(policy=policy, decay=decay, buffer=12, steps=3, step_cap=20)
    state = eig_dml.init(d)
    scales = 10.0 ** generator.integers(-3, 4, size=d)
    for _ in range(25):
        b, c = generator.integers(0, 9, size=2)
        close, far = (scales * generator.standard_normal((size, d)) for size in (b, c))
        far[generator.random(c) < 0.1] = 0.0
        state, info = update(state, close, far, options)
        check(state)
        assert info["n_far"] <= 12
        assert info["objective"] <= info["bound"] * (1 + SLACK)
        assert 0 <= info["gap"] <= 1


def test_thin_and_constant_features():
    """Few close pairs, a feature that is always 0, and one in which no close pair varies."""
    close, far = wine_pairs(40)
    close, far = np.pad(close, ((0, 0), (0, 2))), np.pad(far, ((0, 0), (0, 2)))
    far[:, 13] = normal(40)
    state, info = streamed(close, far, EigDMLLearner(steps=50), batch=5)
    check(state)
    # the 14th feature parts far pairs and costs close ones nothing: the metric goes there
    assert state.matrix[13, 13] * far[:, 13].var() > 0.5 * state.values.mean()
    assert np.isfinite(info["bound"])


def test_q_cache():
    """q follows A by its own update between refreshes, to 1e-9, and is exact at a refresh."""
    close, far = wine_pairs(600)
    options = EigDMLLearner(smoothing=0.05, buffer=50, steps=20, step_cap=1000)
    state, _ = streamed(close, far, options, batch=3)  # 200 calls: the last before a refresh
    assert state.calls == eig_dml.REFRESH
    q = eig_dml.squared_distances(state.far, state.matrix)
    assert not np.array_equal(q, state.values)
    np.testing.assert_allclose(state.values, q, rtol=1e-9)
    state, _ = update(state, close[:0], far[:0], replace(options, steps=0))
    q = eig_dml.squared_distances(state.far, state.matrix)
    np.testing.assert_allclose(state.values, q, rtol=1e-14)


def test_hard_policy():
    """The nearest three quarters stay, and a random quarter of the rest, by seed and position."""
    close, far = wine_pairs(300)
    options = EigDMLLearner(buffer=100, steps=0)
    state, _ = update(eig_dml.init(13), close, far, options)
    q = eig_dml.squared_distances(far, state.matrix)
    kept = set(state.births.tolist())
    order = np.argsort(q)
    assert len(kept) == 100
    assert set(order[:75].tolist()) <= kept
    random = kept - set(order[:75].tolist())
    assert np.median([np.flatnonzero(order == birth)[0] for birth in random]) > 120
    again, _ = update(eig_dml.init(13), close, far, options)
    assert np.array_equal(again.births, state.births)
    other, _ = update(eig_dml.init(13), close, far, replace(options, seed=1))
    assert not np.array_equal(other.births, state.births)
    assert np.array_equal(far[state.births], state.far)


def test_forgetting():
    """With a decay H is the decayed mean, and far pairs older than 1 / (1 - decay) are gone."""
    close, far = wine_pairs(400)
    options = EigDMLLearner(decay=0.99, buffer=1000)
    state, _ = streamed(close, far, options)
    total, mass = np.zeros((13, 13)), 0.0
    for k in range(0, 400, 50):
        total = 0.99**50 * total + 50 * oracle.mean_outer(close[k : k + 50])
        mass = 0.99**50 * mass + 50
    np.testing.assert_allclose(state.close, total / mass, atol=1e-13)
    assert state.mass == pytest.approx(mass)
    assert state.births.tolist() == list(range(300, 400))


def test_merge():
    """Two halves of a stream: H exactly that of the whole, a feasible metric, pairs of both."""
    close, far = wine_pairs(400)
    options = EigDMLLearner(buffer=120, smoothing=0.1)
    left, _ = streamed(close[:150], far[:150], options)
    right, _ = streamed(close[150:], far[150:], options)
    merged = eig_dml.merge(left, right, options)
    check(merged)
    whole, _ = streamed(close, far, options)
    np.testing.assert_allclose(merged.close, whole.close, atol=1e-13)
    assert (merged.mass, merged.seen, len(merged.far)) == (400, 400, 120)
    halves = [{tuple(row) for row in part} for part in (far[:150], far[150:])]
    assert all(any(tuple(row) in half for half in halves) for row in merged.far)
    recent = eig_dml.merge(left, right, replace(options, policy="recent"))
    newest = [len(half & {tuple(row) for row in recent.far}) for half in halves]
    assert min(newest) >= 40  # of 120: the newest of either are the newest
    before = eig_dml.measure(merged, options)
    _, info = update(merged, close[:0], far[:0], replace(options, steps=100))
    assert info["objective"] > before["objective"]
    empty = eig_dml.init(13)
    for pair in ((empty, left), (left, empty)):
        same = eig_dml.merge(*pair, options)
        np.testing.assert_allclose(same.matrix, left.matrix, rtol=1e-12)
        assert same.step == left.step
        check(same)
    check(eig_dml.merge(empty, empty, options))


@pytest.mark.parametrize(
    "wrong",
    [
        {"policy": "reservoir"},
        {"smoothing": 0.0},
        {"smoothing": float("nan")},
        {"buffer": 1},
        {"steps": -1},
        {"step_cap": 0},
        {"decay": 1.0},
        {"tolerance": 1.0},
        {"seed": -1},
    ],
)
def test_settings_are_checked(wrong):
    """A message names the parameter and what it was."""
    (name, value), *_ = wrong.items()
    with pytest.raises(ParameterError, match=f"{name}=.*{value}"):
        EigDMLLearner(**wrong)


def test_recent_policy():
    """The newest stay, oldest first."""
    close, far = wine_pairs(300)
    state, info = streamed(close, far, EigDMLLearner(buffer=100, policy="recent", steps=0))
    assert state.births.tolist() == list(range(200, 300))
    assert np.array_equal(state.far, far[200:])
    assert info["n_seen"] == 300
