"""Moments and one-sided SVD of a stream, against decompositions of the whole matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from streamembed.manifold import principal, principal_stream
from streamembed.manifold.principal import Moments, OneSided, PrincipalView, compute_axes
from streamembed.manifold.principal_stream import PrincipalSettings
from streamembed.numeric.arrays import Floats

DIGITS = load_digits().data
# Rounding of sums over a stream: a part in 1e16 a term, of some thousand terms.
EXACT = 1e-12


def rows_of(n: int, d: int, seed: int = 0) -> Floats:
    """Rows with variances that fall, so that axes are well told apart."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    return rng.standard_normal((n, d)) * 1.5 ** -np.arange(d, dtype=float) @ turn + 3.0


def fed(state: Any, X: Floats, chunk: int = 10) -> Any:
    """The state after these rows, chunk by chunk."""
    for start in range(0, len(X), chunk):
        state = state.join(X[start : start + chunk])
    return state


def oracle(X: Floats, weights: Floats | None = None) -> tuple[Floats, Floats, Floats]:
    """Mean, singular values and axes (rows) of weighted rows, by the SVD of all of them."""
    w = np.ones(len(X)) if weights is None else weights
    mean = w @ X / w.sum()
    _, s, axes = np.linalg.svd(np.sqrt(w)[:, None] * (X - mean), full_matrices=False)
    return mean, s, axes


def sine(left: Floats, right: Floats) -> float:
    """Of the largest angle between the spans of orthonormal rows."""
    return float(np.linalg.norm(left - left @ right.T @ right, 2))


def assert_alike(found: PrincipalView, X: Floats, k: int, tolerance: float) -> None:
    mean, s, axes = oracle(X)
    np.testing.assert_allclose(found.mean, mean, atol=tolerance * np.abs(X).max())
    np.testing.assert_allclose(found.singular_values, s[:k], rtol=tolerance)
    np.testing.assert_allclose(np.abs(np.sum(found.components * axes[:k], axis=1)), 1.0, rtol=1e-9)
    assert found.total_variance == pytest.approx((s @ s) / (len(X) - 1), rel=tolerance)
    assert found.explained_variance_ratio == pytest.approx(s[:k] ** 2 / (s @ s), rel=tolerance)


STATES: dict[str, Callable[[int], Any]] = {
    "moments": Moments.init,
    "one-sided, full": lambda d: OneSided.init(d, d),
}


@pytest.mark.parametrize("kind", STATES)
@pytest.mark.parametrize("chunk", [1, 7, 300])
def test_it_is_the_svd_of_all_rows(kind: str, chunk: int) -> None:
    """Whatever the chunks: values, axes, mean, total variance."""
    X = rows_of(300, 8)
    state = fed(STATES[kind](8), X, chunk)
    found = compute_axes(state, 4)
    assert_alike(found, X, 4, EXACT)
    assert found.cut == ()
    assert found.tail == pytest.approx(0.0, abs=EXACT)


def test_the_block_finds_what_the_whole_decomposition_finds() -> None:
    """Beyond 128 features: cold, and from a reference; the published residual is true."""
    d, k = 200, 5
    rng = np.random.default_rng(1)
    X = rng.standard_normal((700, d)) * np.arange(1, d + 1) ** -0.8
    state = Moments.init(d).join(X[:600])
    reference = principal.compute_reference(state, k)
    assert reference.shape == (d, k + principal.GUARDS)
    for start in (None, reference):
        moved = state.join(X[600:])
        values = np.linalg.eigvalsh(moved.scatter)[::-1][:k]
        found = compute_axes(moved, k, start)
        np.testing.assert_allclose(found.singular_values**2, values, rtol=1e-10)
        left = moved.scatter @ found.components.T - found.components.T * values
        assert np.linalg.norm(left, axis=0).max() / values[0] == pytest.approx(
            found.residual, rel=0.01
        )
        assert 0.0 < (found.residual or 0.0) < principal.SOLVED
        np.testing.assert_allclose(found.components @ found.components.T, np.eye(k), atol=1e-12)


def structured_streams() -> dict[str, tuple[Floats, int]]:
    """Rows in 129 features whose covariances have equal eigenvalues, and windows."""
    rng, d = np.random.default_rng(0), 129
    one_hot = np.eye(d)[rng.integers(0, d, 120)]
    in_turn = np.eye(d)[np.arange(120) % 12]
    counter = np.zeros((160, d))
    counter[:, :16] = np.arange(160)[:, None] >> np.arange(16) & 1
    return {
        "one-hot, short window": (one_hot, 5),
        "one-hot": (one_hot, 10),
        "twelve categories in turn": (in_turn, 24),
        "binary counter": (counter, 64),
        "two sites": (np.repeat(np.eye(d)[:2], 60, axis=0), 20),
    }


@pytest.mark.parametrize("kind", structured_streams())
def test_no_copy_of_a_multiple_eigenvalue_is_lost(kind: str) -> None:
    """After every event beyond 128 features the variances are those of the window."""
    X, window = structured_streams()[kind]
    k = min(5, window - 1)
    settings = settings_of(k=k, window=window)
    followed = principal_stream.init(X.shape[1], settings)
    for stop in range(1, len(X) + 1):
        followed = principal_stream.extend(followed, X[stop - 1 : stop], settings)
        found = principal_stream.read_means_and_axes(followed, settings)[1]
        s = oracle(X[max(0, stop - window) : stop])[1]
        truth = np.zeros(k)
        truth[: len(s)] = s[:k] ** 2
        # eigenvalues are good to the square of a residual of 1e-5
        np.testing.assert_allclose(found.singular_values**2, truth, atol=1e-8 * truth[0] + 1e-14)
        assert (found.residual or 0.0) <= principal.NEAR


def test_a_direction_that_the_reference_is_blind_to_is_found() -> None:
    """A cluster that arrives whole leads at once, also from a reference that was exact before."""
    d = 200
    X = np.random.default_rng(2).standard_normal((600, d)) * np.arange(1, d + 1) ** -0.8
    X[:, -1] = 0.0
    state = Moments.init(d).join(X)
    reference = principal.compute_reference(state, 3)
    far = np.zeros((60, d))
    far[:, -1] = 50.0
    found = compute_axes(state.join(far), 3, reference)
    assert abs(found.components[0, -1]) > 0.99


@pytest.mark.parametrize("rank", [1, 2, 5, 17, 64])
def test_the_total_variance_is_exact_at_any_rank(rank: int) -> None:
    """What is cut off is summed up."""
    state = fed(OneSided.init(64, rank), DIGITS)
    found = compute_axes(state, 1)
    total = DIGITS.var(axis=0, ddof=1).sum()
    assert found.total_variance == pytest.approx(total, rel=EXACT)
    np.testing.assert_allclose(state.mean, DIGITS.mean(axis=0), atol=EXACT)
    np.testing.assert_allclose(state.axes.T @ state.axes, np.eye(len(state.values)), atol=EXACT)


@pytest.mark.parametrize("kind", STATES)
def test_forgetting_is_the_weighted_batch(kind: str) -> None:
    """Row i of n weighs f^(n - 1 - i), however the rows came."""
    X, factor = rows_of(200, 6), 0.97
    by_one, by_chunk = STATES[kind](6), STATES[kind](6)
    for row in X:
        by_one = by_one.forget(factor).join(row[None])
    for start in range(0, 200, 8):
        ages = np.arange(7, -1, -1)
        by_chunk = by_chunk.forget(factor**8).join(X[start : start + 8], factor**ages)
    weights = factor ** np.arange(199, -1, -1)
    mean, s, axes = oracle(X, weights)
    for state in (by_one, by_chunk):
        found = compute_axes(state, 3)
        assert found.count == pytest.approx(weights.sum())
        np.testing.assert_allclose(found.mean, mean, atol=EXACT)
        np.testing.assert_allclose(found.singular_values, s[:3], rtol=EXACT)
        np.testing.assert_allclose(found.explained_variance, s[:3] ** 2 / (weights.sum() - 1))
        assert sine(axes[:3], found.components) < 1e-10


@pytest.mark.parametrize("kind", STATES)
def test_merged_halves_are_the_whole(kind: str) -> None:
    """At full rank, to 1e-10, in either order; and with what saw nothing."""
    X = rows_of(300, 8)
    left, right = fed(STATES[kind](8), X[:110]), fed(STATES[kind](8), X[110:])
    for merged in (left.merge(right), right.merge(left)):
        assert_alike(compute_axes(merged, 4), X, 4, 1e-10)
    nothing = STATES[kind](8)
    assert nothing.merge(left) is left
    assert left.merge(nothing) is left


# ------------------------------------------------------------------------------------- a window


def settings_of(k: int = 3, **changes: Any) -> PrincipalSettings:
    given = {"solver": "moments", "rank": 20, "window": None, "half_life": None, **changes}
    return PrincipalSettings(n_components=k, **given)


@pytest.mark.parametrize("solver", ["moments", "svd"])
def test_thousands_of_rows_go_in_and_out(solver: str) -> None:
    """The scatter of the last 200 of 30,000 rows, with a change of scale on the way: 1e-10."""
    settings = settings_of(window=200, solver=solver)
    rng = np.random.default_rng(3)
    X = rng.standard_normal((30_000, 4)) @ np.diag([4.0, 2.0, 1.0, 0.5])
    X[12_000:12_100] *= 1e5  # a burst that must leave no trace
    followed = principal_stream.init(4, settings)
    for stop in range(730, len(X), 730):  # at all distances from the last turn of the window
        followed = principal_stream.extend(followed, X[stop - 730 : stop], settings)
        last = X[stop - 200 : stop]
        scatter = (last - last.mean(axis=0)).T @ (last - last.mean(axis=0))
        state = followed.state
        assert state.count == 200
        if isinstance(state, Moments):
            ours = state.scatter
        else:
            ours = (state.axes * state.values**2) @ state.axes.T
        assert np.abs(ours - scatter).max() <= 1e-10 * np.abs(scatter).max()
        np.testing.assert_allclose(state.mean, last.mean(axis=0), atol=1e-10 * np.abs(last).max())


@pytest.mark.parametrize("solver", ["moments", "svd"])
@pytest.mark.parametrize("window", [2, 3, 9, 10, 11, 25, 64])
def test_a_window_of_any_size_holds_its_last_rows(window: int, solver: str) -> None:
    """At every event, also in the middle of a chunk."""
    X = rows_of(130, 3, seed=6)
    settings = settings_of(k=2, window=window, solver=solver)
    followed = principal_stream.init(3, settings)
    for i, row in enumerate(X):
        followed = principal_stream.extend(followed, row[None], settings)
        found = principal_stream.read_means_and_axes(followed, settings)[1]
        last = X[max(0, i + 1 - window) : i + 1]
        assert found.count == len(last)
        np.testing.assert_allclose(found.mean, last.mean(axis=0), atol=1e-10)
        if len(last) > 1:
            total = last.var(axis=0, ddof=1).sum()
            assert found.total_variance == pytest.approx(total, rel=1e-9)
        assert sum(map(len, followed.blocks)) <= window + principal_stream.SETTLING


# --------------------------------------------------------------------------------- hard data


@pytest.mark.parametrize("kind", STATES)
def test_an_offset_of_a_million_does_not_matter(kind: str) -> None:
    """The variance is that of the differences: 1e-9, where a sum of squares would lose it."""
    X = rows_of(500, 5)
    near, far = (compute_axes(fed(STATES[kind](5), Y), 3) for Y in (X, X + 1e6))
    np.testing.assert_allclose(far.singular_values, near.singular_values, rtol=1e-8)
    np.testing.assert_allclose(far.total_variance, near.total_variance, rtol=1e-8)
    assert sine(near.components, far.components) < 1e-7


@pytest.mark.parametrize("kind", STATES)
def test_constant_features_have_no_axis(kind: str) -> None:
    """Whatever their value; components beyond the variance are zeros, and named."""
    X = np.full((100, 5), 0.1)
    X[:, 1] = np.linspace(-1.0, 1.0, 100)
    X[:, 3] = np.sin(np.arange(100))
    found = compute_axes(fed(STATES[kind](5), X), 4)
    assert found.cut == (2, 3)
    assert not found.components[2:].any()
    np.testing.assert_allclose(found.components[:, [0, 2, 4]], 0.0, atol=EXACT)
    assert not found.singular_values[2:].any()
    placed = principal.transform(found, X, whiten=True)
    np.testing.assert_allclose(placed[:, :2].var(axis=0, ddof=1), 1.0)
    assert not placed[:, 2:].any()
    back = principal.inverse_transform(found, placed, whiten=True)
    np.testing.assert_allclose(back, X, atol=EXACT)


@pytest.mark.parametrize("kind", STATES)
def test_more_features_than_rows(kind: str) -> None:
    """Twelve rows in 150 features: eleven axes, also by the block, and no more components."""
    X = np.random.default_rng(7).standard_normal((12, 150))
    for k in (4, 14, 160):
        found = compute_axes(fed(STATES[kind](150), X, 5), k)
        assert found.components.shape == (k, 150)
        assert found.cut == tuple(range(11, k))
        np.testing.assert_allclose(found.singular_values[:11], oracle(X)[1][: min(k, 11)])
        assert sine(oracle(X)[2][: min(k, 11)], found.components[:11]) < 1e-7


@pytest.mark.parametrize("kind", STATES)
@pytest.mark.parametrize("n", [0, 1, 2])
def test_hardly_any_rows(kind: str, n: int) -> None:
    """Zeros without an event and with one; the line through two."""
    X = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 3.0]])[:n]
    found = compute_axes(fed(STATES[kind](3), X), 2)
    assert found.count == n
    if n < 2:
        assert found.cut == (0, 1)
        assert found.total_variance == 0.0
        assert not found.components.any()
        assert not principal.compute_whitening(found).any()
    else:
        np.testing.assert_allclose(found.components[0], [1.0, 0.0, 0.0], atol=EXACT)
        assert found.explained_variance[0] == pytest.approx(2.0)
        assert found.cut == (1,)


# -------------------------------------------------------------------------------------- the frame


def test_axes_of_nearly_equal_variance_keep_still() -> None:
    """A round cloud gives any axes; against a reference they stay, and are still eigenvectors."""
    d = 6
    values = np.array([9.0, 4.0, 4.0 * (1 - 5e-5), 4.0 * (1 - 1e-4), 1.0, 0.5])
    rng = np.random.default_rng(8)
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0]
    before = Moments(100.0, np.zeros(d), turn @ np.diag(values) @ turn.T)
    reference = principal.compute_reference(before, 4)
    noise = rng.standard_normal((d, d)) * 1e-4
    after = Moments(100.0, np.zeros(d), before.scatter + noise + noise.T)
    loose, still = compute_axes(after, 4), compute_axes(after, 4, reference)
    moved = np.abs(np.sum(loose.components.T * reference[:, :4], axis=0))
    assert moved.min() < 0.9  # 0.4 measured: eigenvectors alone do turn there
    kept = np.sum(still.components.T * reference[:, :4], axis=0)
    assert kept.min() > 0.999
    assert (still.residual or 0.0) <= principal.NEAR
    np.testing.assert_allclose(still.components @ still.components.T, np.eye(4), atol=EXACT)
    np.testing.assert_array_equal(still.explained_variance, loose.explained_variance)


def test_axes_that_trade_places_keep_their_signs() -> None:
    """After a crossing the second axis is what the first was, and points where it did."""
    basis = np.linalg.qr(np.random.default_rng(9).standard_normal((4, 4)))[0]
    first = Moments(50.0, np.zeros(4), basis @ np.diag([4.0, 3.0, 1.0, 0.5]) @ basis.T)
    after = Moments(50.0, np.zeros(4), basis @ np.diag([3.0, 4.0, 1.0, 0.5]) @ basis.T)
    reference = principal.compute_reference(first, 3)
    reference[:, :2] *= -1.0
    found = compute_axes(after, 3, reference).components
    np.testing.assert_allclose(found[[1, 0, 2]], reference[:, :3].T, atol=1e-10)


def test_the_block_is_right_at_every_chunk() -> None:
    """A window of 160 features, while a cluster arrives whole and the scale falls to 1e-4."""
    d, k, window = 160, 4, 200
    rng = np.random.default_rng(10)
    X = rng.standard_normal((1200, d)) * np.arange(1, d + 1) ** -0.7
    X[500:560] += 8.0 * rng.standard_normal(d)
    X[900:] *= 1e-4
    settings = settings_of(k=k, window=window)
    followed = principal_stream.init(d, settings)
    before: Floats | None = None
    for stop in range(20, 1201, 10):
        followed = principal_stream.extend(followed, X[followed.position : stop], settings)
        found = principal_stream.read_means_and_axes(followed, settings)[1]
        last = X[max(0, stop - window) : stop]
        s = np.linalg.svd(last - last.mean(axis=0), compute_uv=False)
        np.testing.assert_allclose(found.singular_values, s[:k], rtol=1e-8)
        assert (found.residual or 0.0) < principal.SOLVED
        if before is not None:
            assert np.sum(found.components * before, axis=1).min() > -0.7  # none flips
        before = found.components
