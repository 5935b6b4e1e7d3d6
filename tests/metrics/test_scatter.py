"""Class moments, their laws, what follows from them exactly, and discriminant analysis."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.linalg
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

from streamembed.metrics import discriminant, scatter
from streamembed.numeric import pencil
from tests.oracles import oracle_moments as oracle

SETS = {"iris": load_iris, "wine": load_wine, "wdbc": load_breast_cancer}

# Sums of a few hundred products in another order: about sqrt(n) eps each, measured 6e-16.
EXACT = 1e-12
# The bars of the design for a stream against one batch, near the origin and 1e6 away.
STREAM, OFFSET = 1e-10, 1e-9


def blobs(
    n: int, d: int, n_classes: int, seed: int = 0, apart: float = 2.0
) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian classes with covariances of their own, unequal sizes, correlated features."""
    rng = np.random.default_rng((seed, n, d, n_classes))
    classes = np.minimum(rng.integers(0, n_classes, n), rng.integers(0, n_classes, n))
    mixes = rng.standard_normal((n_classes, d, d)) / np.sqrt(d) + np.eye(d)
    centres = apart * rng.standard_normal((n_classes, d))
    noise = rng.standard_normal((n, d))
    return np.einsum("nd,nde->ne", noise, mixes[classes]) + centres[classes], classes


def batch(points: np.ndarray, classes: np.ndarray) -> scatter.ClassMoments:
    return scatter.update(scatter.init(points.shape[1]), points, classes)


def streamed(points: np.ndarray, classes: np.ndarray, seed: int = 0, cuts: int = 36):
    rng = np.random.default_rng(seed)
    at = np.sort(rng.integers(0, len(points), cuts))
    moments = scatter.init(points.shape[1])
    for rows, labels in zip(np.split(points, at), np.split(classes, at), strict=True):
        moments = scatter.update(moments, rows, labels)
    return moments


def shuffled(name: str) -> tuple[np.ndarray, np.ndarray]:
    data = SETS[name]()
    order = np.random.default_rng(7).permutation(len(data.data))
    return data.data[order], data.target[order]


def apart(left: np.ndarray, right: np.ndarray) -> float:
    """The largest difference of an entry, every feature in units of its own spread."""
    scale = np.sqrt(np.maximum(np.diag(right), np.finfo(float).tiny))
    return float(np.abs((left - right) / np.outer(scale, scale)).max())


def same(left: scatter.ClassMoments, right: scatter.ClassMoments, tolerance: float = EXACT) -> None:
    assert left.n_classes == right.n_classes
    seen = right.masses > 0
    assert np.array_equal(left.masses > 0, seen)
    for name in ("masses", "means", "scatters"):
        one, other = getattr(left, name)[seen], getattr(right, name)[seen]
        scale = np.abs(other).max(initial=1e-300)
        assert np.abs(one - other).max(initial=0.0) <= tolerance * scale, name


def test_moments_equal_the_definition():
    """Mass, mean and scatter of every class are those of points taken one at a time."""
    points, classes = blobs(120, 5, 4)
    moments = streamed(points, classes)
    for label, (mass, mean, spread) in oracle.class_moments(points, classes).items():
        assert moments.masses[label] == mass
        np.testing.assert_allclose(moments.means[label], mean, atol=EXACT)
        np.testing.assert_allclose(moments.scatters[label], spread, atol=EXACT * 120)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(("offset", "tolerance"), [(0.0, STREAM), (1e6, OFFSET)])
def test_stream_equals_batch(name: str, offset: float, tolerance: float) -> None:
    """37 random chunks give the within and dissimilar scatter of one batch, far away too."""
    points, classes = shuffled(name)
    # the truth is of the points as they are stored at the offset: rounding them is not our loss
    stored = (points + offset) - offset
    found = scatter.compute_scatters(streamed(points + offset, classes))
    within, dissimilar = oracle.within_and_dissimilar_from_covariances(stored, classes)
    assert apart(found.within, within) < tolerance
    assert apart(found.dissimilar, dissimilar) < tolerance


@given(
    seed=st.integers(0, 2**20),
    sizes=st.lists(st.integers(0, 12), min_size=3, max_size=3),
    d=st.integers(1, 5),
    offset=st.sampled_from([0.0, 1e3]),
)
@settings(max_examples=60, deadline=None)
def test_merge_is_commutative_and_associative(
    seed: int, sizes: list[int], d: int, offset: float
) -> None:
    """Three parts in every order and bracketing are the whole, empty and lopsided parts too."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((sum(sizes), d)) + offset
    classes = rng.integers(0, 4, sum(sizes))
    cuts = np.cumsum(sizes)[:-1]
    parts = [
        batch(rows, labels)
        for rows, labels in zip(np.split(points, cuts), np.split(classes, cuts), strict=True)
    ]
    whole = batch(points, classes)
    for a, b, c in itertools.permutations(parts):
        same(scatter.merge(scatter.merge(a, b), c), whole)
        same(scatter.merge(a, scatter.merge(b, c)), whole)


@given(seed=st.integers(0, 2**20), n=st.integers(0, 25), d=st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_pair_sums_without_pairs(seed: int, n: int, d: int) -> None:
    """All-pairs sums from moments are the sums over pairs, to 1e-12 of the largest entry."""
    points, classes = blobs(n, d, 4, seed)
    truth = oracle.pair_sums(points, classes)
    found = scatter.sum_all_pairs(batch(points, classes))
    scale = max(np.abs(truth[0]).max(), np.abs(truth[1]).max(), 1e-300)
    assert np.abs(found[0] - truth[0]).max() <= EXACT * scale
    assert np.abs(found[1] - truth[1]).max() <= EXACT * scale
    assert found[2:] == truth[2:]


def test_the_far_sum_subtracts_nothing():
    """Beside a feature of 1e8 that only parts the classes, it stays a sum of squares."""
    points, classes = blobs(60, 4, 2, apart=0.0)
    points[:, 0] = 1e8 * (classes == 0)
    _, far, _, _ = scatter.sum_all_pairs(batch(points, classes))
    scale = np.sqrt(np.diag(far))
    assert np.linalg.eigvalsh(far / np.outer(scale, scale)).min() > -1e-13


def test_thin_classes_are_left_out():
    """A class of one point has no covariance: without it the rest is what it was."""
    points, classes = blobs(60, 3, 3)
    before = scatter.compute_scatters(batch(points, classes))
    more = scatter.update(batch(points, classes), points[:1] + 50.0, np.array([3]))
    after = scatter.compute_scatters(more)
    assert (after.n_classes, after.n_thin) == (3, 1)
    np.testing.assert_allclose(after.within, before.within, atol=EXACT)
    np.testing.assert_allclose(after.offsets, before.offsets, atol=EXACT)


def test_a_constant_feature_has_exactly_no_scatter():
    """0.1 is no binary fraction and 1e6 + 0.1 less so: still its scatter is 0, not rounding."""
    points, classes = blobs(100, 3, 3)
    points[:, 1] = 1e6 + 0.1
    moments = streamed(points, classes)
    found = scatter.compute_scatters(moments)
    assert not found.within[1].any()
    assert not found.between[1].any()
    assert discriminant.decompose(moments).n_constant == 1


# ---------------------------------------------------------------- whitening


def test_the_rank_is_judged_on_the_scaled_matrix():
    """wdbc has 30 directions; a relative cut of the matrix as it comes would drop some."""
    points, classes = load_breast_cancer(return_X_y=True)
    dissimilar = scatter.compute_scatters(batch(points, classes)).dissimilar
    values = np.linalg.eigvalsh(dissimilar)
    assert np.count_nonzero(values > pencil.RANK_CUT * values[-1]) < 30
    whitening = pencil.whiten(dissimilar)
    assert whitening.rank == 30
    # rounding times the condition of the scaled matrix, 2e5
    np.testing.assert_allclose(
        whitening.basis.T @ dissimilar @ whitening.basis, np.eye(30), atol=1e-9
    )


def test_generalised_pairs_equal_the_dense_solver():
    """Values ascend, vectors are orthonormal in the denominator, and both are scipy's."""
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal((2, 6, 9))
    values, vectors, _ = pencil.generalised_eigh(one @ one.T, other @ other.T)
    truth, axes = scipy.linalg.eigh(one @ one.T, other @ other.T)
    np.testing.assert_allclose(values, truth, rtol=1e-10)
    np.testing.assert_allclose(np.abs(axes.T @ other @ other.T @ vectors), np.eye(6), atol=1e-9)


# ---------------------------------------------------------------- discriminant analysis


@pytest.mark.parametrize("name", SETS)
def test_discriminants_are_those_of_the_textbook(name: str) -> None:
    """Ratios and directions are the leading eigenpairs of W^-1 B; there are N - 1."""
    points, classes = shuffled(name)
    found = discriminant.decompose(streamed(points, classes))
    values, vectors, within, _ = oracle.discriminants(points, classes)
    k = len(np.unique(classes)) - 1
    assert found.directions.shape == (points.shape[1], k)
    assert found.status == "measured"
    # the oracle inverts W as it comes, of condition up to 1e12 (wdbc)
    np.testing.assert_allclose(found.ratios, values[:k], rtol=1e-6)
    gram = found.directions.T @ within @ found.directions
    np.testing.assert_allclose(gram, np.eye(k), atol=1e-9)
    for j in range(k):
        cosine = abs(found.directions[:, j] @ within @ vectors[:, j])
        assert cosine / np.sqrt(vectors[:, j] @ within @ vectors[:, j]) == pytest.approx(1, 1e-8)


@given(seed=st.integers(0, 2**20))
@settings(max_examples=25, deadline=None)
def test_discriminant_distances_are_affine_invariant(seed: int) -> None:
    """A linear map of the data leaves every distance as it was: 1e-9, of a condition to 1e3."""
    rng = np.random.default_rng(seed)
    points, classes = blobs(60, 4, 3, seed)
    axes, _ = np.linalg.qr(rng.standard_normal((4, 4)))
    mapping = axes * 10.0 ** rng.uniform(-1.5, 1.5, 4)
    one, _ = discriminant.compute_metric(batch(points, classes))
    other, _ = discriminant.compute_metric(batch(points @ mapping, classes))
    np.testing.assert_allclose(mapping @ other @ mapping.T, one, atol=1e-9 * np.abs(one).max())


def test_discriminant_directions_do_not_flip():
    """Signs are a rule, not LAPACK's: the stream cut differently gives the same directions."""
    points, classes = shuffled("wine")
    found = [
        discriminant.decompose(streamed(points, classes, seed)).directions for seed in range(5)
    ]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-7, atol=1e-9)


def test_statuses_of_discriminants():
    """One class, equal means, more features than points, single points: named and finite."""
    points, _ = blobs(40, 4, 3)
    assert discriminant.decompose(scatter.init(4)).status == "one class"
    assert discriminant.decompose(batch(points, np.zeros(40, dtype=int))).status == "one class"

    doubled = np.concatenate([points, points]), np.repeat([0, 1], 40)
    assert discriminant.decompose(batch(*doubled)).status == "equal means"

    few = np.random.default_rng(0).standard_normal((8, 30)), np.repeat([0, 1], 4)
    wide = discriminant.decompose(batch(*few))
    assert (wide.status, wide.rank, wide.directions.shape) == ("no spread within", 7, (30, 1))
    assert wide.ratios[0] <= 1.01 / pencil.SHARE_FLOOR

    single = discriminant.decompose(batch(points[:3], np.arange(3)))
    assert (single.status, single.directions.shape) == ("no spread within", (4, 2))


@given(
    seed=st.integers(0, 2**20),
    n=st.integers(0, 9),
    d=st.integers(1, 6),
    kinds=st.integers(1, 4),
    unit=st.sampled_from([1e-150, 1.0, 1e100]),
)
@example(seed=268, n=7, d=6, kinds=2, unit=1e-150)  # its entries left the doubles
@settings(max_examples=80, deadline=None)
def test_discriminants_are_finite_whatever_comes(
    seed: int, n: int, d: int, kinds: int, unit: float
) -> None:
    """Few points, duplicates, constant features, any unit: a finite positive metric, always."""
    rng = np.random.default_rng(seed)
    points = unit * rng.integers(0, 3, (n, d)).astype(float)
    metric, found = discriminant.compute_metric(batch(points, rng.integers(0, kinds, n)))
    assert np.isfinite(metric).all()
    assert np.isfinite(found.ratios).all()
    assert np.array_equal(metric, metric.T)
    scale = np.abs(metric).max()
    assert scale > 0
    assert np.linalg.eigvalsh(metric / scale).min() > -1e-12
