"""Classical scaling and kernel PCA: the definition at every chunk, certificates, laws."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits
from sklearn.decomposition import KernelPCA as SklearnKernelPCA

import streamembed as se
from streamembed.errors import BadRowError, DegenerateMapWarning, InputError, ParameterError
from streamembed.estimators import ClassicalMDS, KernelPCA
from streamembed.manifold import centred
from streamembed.numeric.arrays import Floats

DIGITS = load_digits().data / 16.0
TOLERANCE = 3e-3


def centred_matrix(matrix: Floats, masses: Floats) -> Floats:
    """S by its definition."""
    n, shares = len(masses), masses / masses.sum()
    center = np.eye(n) - np.outer(np.ones(n), shares)
    weighted: Floats = np.sqrt(masses)[:, None] * (center @ matrix @ center.T) * np.sqrt(masses)
    return weighted


def oracle(matrix: Floats, masses: Floats, k: int) -> tuple[Floats, Floats]:
    """The first k eigenvalues of S and the coordinates."""
    values, vectors = np.linalg.eigh(centred_matrix(matrix, masses))
    values, vectors = values[::-1][:k], vectors[:, ::-1][:, :k]
    return values, vectors * np.sqrt(np.maximum(values, 0.0)) / np.sqrt(masses)[:, None]


def check(snapshot: se.Snapshot, matrix: Floats) -> None:
    """What the certificate says is so, by the dense matrix."""
    k, certificate = len(snapshot.eigenvalues), snapshot.certificate
    weighted = centred_matrix(matrix, snapshot.masses)
    values = np.append(np.linalg.eigvalsh(weighted)[::-1], np.zeros(k + 1))
    noise = 1e-12 * np.abs(matrix).max() * len(matrix) * snapshot.masses.max()
    if values[0] <= noise:
        assert (snapshot.eigenvalues <= noise).all()
        return
    unit = snapshot.psi * np.sqrt(snapshot.stationary)[:, None]
    errors = np.linalg.norm(weighted @ unit - unit * snapshot.eigenvalues, axis=0)
    residual = float(errors.max() / values[0])
    assert residual <= certificate.residual * 1.01 + 1e-9
    assert certificate.residual <= 1.05 * residual + 1e-8  # and what rounding may add
    assert values[k] <= certificate.outside_bound * (1.0 + 1e-9) + noise
    assert certificate.outside <= max(values[k], 0.0) + (residual + 1e-6) * values[0]
    if certificate.met:
        assert residual <= TOLERANCE
        missing = np.maximum(values[:k], 0.0) - snapshot.eigenvalues
        assert missing.max() <= 1.01 * TOLERANCE * values[0]


def kernel(snapshot: se.Snapshot) -> Floats:
    """H of a snapshot of points, restated."""
    z = (snapshot.points - snapshot.center) / snapshot.scale
    if snapshot.kernel == "gaussian":
        matrix: Floats = np.exp(-cdist(z, z, "sqeuclidean") / snapshot.bandwidth**2)
        return matrix
    if snapshot.kernel == "polynomial":
        product: Floats = (snapshot.gamma * z @ z.T + snapshot.coef0) ** snapshot.degree
        return product
    if snapshot.kernel == "cosine":
        lengths = np.linalg.norm(z, axis=1)
        unit = z / np.where(lengths > 0, lengths, 1.0)[:, None]
        cosines: Floats = unit @ unit.T
        return cosines
    if snapshot.method == "pca":
        products: Floats = z @ z.T
        return products
    return -0.5 * cdist(z, z, "sqeuclidean")


# ---------------------------------------------------------------------- the definition

WAYS: list[dict[str, Any]] = [
    {"method": "classical_mds"},
    {"method": "kernel_pca", "bandwidth": 3.0},
    {"method": "kernel_pca", "kernel": "polynomial"},
    {"method": "kernel_pca", "kernel": "cosine"},
    {"method": "pca"},
]
IDS = ["mds", "gaussian", "polynomial", "cosine", "pca"]


@pytest.mark.parametrize("memory", ["all", "window", "landmarks"])
@pytest.mark.parametrize("way", WAYS, ids=IDS)
def test_every_chunk_is_what_its_certificate_says(way: dict[str, Any], memory: str) -> None:
    """On digits through a turnover, without a rung that takes all pairs at once in the window."""
    engine = se.Engine(**way, memory=memory, size=150, n_components=4, scaling=None)
    rungs = []
    for start in range(0, 400, 20):
        engine.learn(DIGITS[start : start + 20])
        if engine.ready:
            snapshot = engine.snapshot()
            assert snapshot.certificate.met
            check(snapshot, kernel(snapshot))
            rungs.append(snapshot.rung)
    if memory == "window":
        assert rungs.count("exact") <= 2


# of seed 39 the first column of the polynomial kernel once came back with a cosine of -0.79
@pytest.mark.parametrize(("way", "seed"), [*((way, 0) for way in WAYS), (WAYS[2], 39)])
def test_axes_keep_still(way: dict[str, Any], seed: int) -> None:
    """Between consecutive snapshots of a stationary stream no column changes its sign.

    One that gives its place to another has a cosine of about 0 with it: -0.25 at the least in 40
    streams.
    """
    points = np.random.default_rng(seed).standard_normal((500, 5)) * [4, 3, 2, 1, 0.5]
    engine = se.Engine(**way, n_components=3, size=150, scaling=None)
    engine.learn(points[:200])
    before = engine.snapshot()
    for start in range(200, 500, 10):
        engine.learn(points[start : start + 10])
        after = engine.snapshot()
        shared, left, right = np.intersect1d(before.ids, after.ids, return_indices=True)
        assert len(shared) > 100
        was, now = before.coordinates[left], after.coordinates[right]
        sizes = np.linalg.norm(was, axis=0) * np.linalg.norm(now, axis=0)
        assert ((was * now).sum(axis=0) > -0.4 * sizes).all()
        before = after


@pytest.mark.parametrize(
    ("way", "far"), [*((way, 1e52) for way in WAYS), (WAYS[0], 1e120), (WAYS[2], 1e8)]
)
def test_outliers_come_and_go(way: dict[str, Any], far: float) -> None:
    """Whatever the power of an outlier, nothing overflows, and nothing of it is left behind.

    Rows of the polynomial kernel once became infinite and stayed in the ring; sums of rows kept
    the rounding of what had left.
    """
    points = np.random.default_rng(0).standard_normal((180, 4))
    points[75] = far
    engine = se.Engine(**way, n_components=2, size=60, warm_up=60, chunk_size=5, scaling=None)
    for start in range(0, 180, 5):
        engine.learn(points[start : start + 5])
        if start < 60:
            continue
        snapshot = engine.snapshot()
        assert np.isfinite(snapshot.coordinates).all()
        assert snapshot.certificate.met
        if start > 135:  # the outlier has left
            check(snapshot, kernel(snapshot))
            again = snapshot.transform(snapshot.points)
            assert np.abs(again - snapshot.coordinates).max() <= 1e-2 * np.abs(again).max()


@pytest.mark.parametrize("way", WAYS, ids=IDS)
@pytest.mark.parametrize("memory", ["window", "landmarks"])
def test_degenerate_data(way: dict[str, Any], memory: str) -> None:
    """All points equal, then two, then many: zero coordinates, and life afterwards."""
    rng = np.random.default_rng(0)
    engine = se.Engine(**way, n_components=2, size=60, memory=memory, scaling=None, warm_up=20)
    engine.learn(np.ones((80, 3)))
    with pytest.warns(DegenerateMapWarning, match="all 2 components are zeros"):
        snapshot = engine.snapshot()
    assert not snapshot.coordinates.any()
    assert np.isfinite(snapshot.transform(np.array([[1.0, 2.0, 1e100]]))).all()
    engine.learn(np.tile([[2.0, 1.0, 1.0]], (30, 1)))
    check(engine.snapshot(), kernel(engine.snapshot()))
    engine.learn(rng.standard_normal((100, 3)))
    check(engine.snapshot(), kernel(engine.snapshot()))
    assert engine.snapshot().certificate.met


def test_options_that_do_nothing_are_refused() -> None:
    """Each names the method that has it."""
    for method, options in (
        ("classical_mds", {"kernel": "gaussian"}),
        ("classical_mds", {"bandwidth": 1.0}),
        ("classical_mds", {"alpha": 1.0}),
        ("kernel_pca", {"alpha": 1.0}),
        ("kernel_pca", {"diffusion_time": 2.0}),
        ("kernel_pca", {"degree": 2}),
        ("kernel_pca", {"kernel": "cosine", "bandwidth": 1.0}),
        ("diffusion_map", {"degree": 2}),
        ("diffusion_map", {"kernel": "polynomial"}),
        ("laplacian_eigenmaps", {"gamma": 1.0}),
    ):
        with pytest.raises(ParameterError, match=next(iter(options))):
            se.Engine(method, **options)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="polynomial"):
        se.Engine("kernel_pca", kernel="cubic")
    engine = se.Engine("kernel_pca", kernel="cosine")
    with pytest.raises(InputError, match="kernel='gaussian'"):
        engine.learn_distances([[]])


# ---------------------------------------------------------------------- objects


def edits(a: str, b: str) -> float:
    """Levenshtein's distance."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return float(row[-1])


LETTERS = np.random.default_rng(0)
WORDS = ["".join(LETTERS.choice(list("abcd"), LETTERS.integers(2, 7))) for _ in range(90)]


def test_objects_by_a_function_of_two() -> None:
    """The map of words by their edit distance is that of the table."""
    model = ClassicalMDS(n_components=3, metric=edits, size=40, warm_up=30)
    for word in WORDS:
        model.learn_one(word)
    snapshot = model.snapshot()
    held = [WORDS[i] for i in snapshot.ids]
    table = np.array([[edits(a, b) for b in held] for a in held])
    check(snapshot, -0.5 * table**2)
    placed = model.transform_many(["abba", "dad"])
    rows = np.array([[edits(x, b) for b in held] for x in ("abba", "dad")])
    np.testing.assert_array_equal(placed, snapshot.transform_distances(rows))
    one = list(model.transform_one("abba").values())
    np.testing.assert_allclose(one, placed[0], atol=1e-12)
    assert len(model._things) <= 50
    again = pickle.loads(pickle.dumps(model))
    again.learn_one("cab")
    model.learn_one("cab")
    assert again.transform_one("bad") == model.transform_one("bad")


def test_a_kernel_by_a_callable_is_that_kernel() -> None:
    """k(a, b) of vectors against the same kernel by its name."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((120, 3))
    mean = points[:40].mean(axis=0)

    def product(a: Floats, b: Floats) -> float:
        return float((a @ b / 3.0 + 1.0) ** 3)

    objects = KernelPCA(2, kernel=product, size=60, warm_up=40)
    objects.learn_many(list(points - mean))
    named = KernelPCA(2, kernel="polynomial", size=60, warm_up=40, scaling=None)
    named.learn_many(points)
    ours, theirs = objects.snapshot(), named.snapshot()
    np.testing.assert_allclose(ours.eigenvalues, theirs.eigenvalues, rtol=1e-6)
    new = rng.standard_normal((7, 3))
    placed, other = objects.transform_many(list(new - mean)), named.transform_many(new)
    signs = np.sign((placed * other).sum(axis=0))
    np.testing.assert_allclose(placed * signs, other, atol=2e-2 * np.abs(other).max())


def test_functions_that_are_no_distances_are_refused() -> None:
    """By name of the pair; nothing is learned."""
    bad: list[tuple[Any, str]] = [
        (lambda a, b: 1.0, "of an object and itself"),
        (lambda a, b: float(a > b), "symmetric"),
        (lambda a, b: "far", "finite number"),
        (lambda a, b: -abs(a - b), "negative"),
    ]
    for metric, said in bad:
        model = ClassicalMDS(metric=metric, warm_up=10)
        with pytest.raises(InputError, match=said):
            model.learn_many([3, 1, 2])
    with pytest.raises(ParameterError, match="callable"):
        ClassicalMDS(metric="hamming")
    with pytest.raises(ParameterError, match="degree"):
        KernelPCA(kernel=lambda a, b: a * b, degree=2)


@pytest.mark.parametrize("method", ["classical_mds", "kernel_pca", "isomap", "lle"])
def test_scaling_is_taken_anew_when_the_window_first_fills(method: str) -> None:
    """A feature that hardly varies in the warm-up does not rule the map for ever."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((400, 3))
    points[:50, 0] *= 1e-3
    engine = se.Engine(method, size=200)
    engine.learn(points)
    snapshot = engine.snapshot()
    assert snapshot.frame.epoch == 1
    spread = ((snapshot.points - snapshot.center) / snapshot.scale).std(axis=0)
    assert spread.max() < 2.0


def test_what_is_no_kernel_is_refused() -> None:
    """A distance in its place gave a map of zeros, certified."""
    with pytest.raises(InputError, match="semidefinite"):
        KernelPCA(kernel=lambda a, b: abs(a - b)).learn_many([0.0, 1.0, 3.0])
    with pytest.raises(ParameterError, match="kernel="):
        KernelPCA(metric=lambda a, b: abs(a - b))  # type: ignore[arg-type]
