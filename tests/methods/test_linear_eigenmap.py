"""The linear eigenmap: exact linear functions, whatever the features, and what they are for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

import streamembed as se
from scenarios.fuzz import certificate
from streamembed.errors import DegenerateMapWarning, InputError, ParameterError
from streamembed.estimators import PCA, LinearEigenmap
from streamembed.methods import linear_projection

RNG = np.random.default_rng(0)
POINTS = RNG.standard_normal((500, 4)) @ RNG.standard_normal((4, 4))


def learn(points: np.ndarray, **parameters: Any) -> se.Engine:
    engine = se.Engine(
        **{"method": "linear_eigenmap", "size": 150, "n_components": 3, **parameters}
    )
    engine.learn(points)
    return engine


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"memory": "landmarks", "size": 60, "half_life": 100.0},
        {"memory": "all", "weights": "binary"},
        {"weights": "heat", "radius": 0.4},  # with isolated points
        {"axes": "eigen", "n_components": 4},
    ],
)
def test_pairs_are_those_of_the_dense_problem(parameters: dict[str, Any]) -> None:
    """By the dense operator of the formulas, after every chunk."""
    engine = learn(POINTS[:300], **parameters)
    for start in range(300, 500, 25):
        engine.learn(POINTS[start : start + 25])
        snapshot = engine.snapshot()
        assert certificate.check(snapshot, 3e-3) == []
        assert snapshot.certificate.met
        assert snapshot.certificate.residual < 1e-11


@pytest.mark.parametrize("method", ["linear_eigenmap", "pca"])
@pytest.mark.parametrize("scaling", ["standard", None])
def test_coordinates_are_linear_functions_of_features(method: str, scaling: str | None) -> None:
    """Differences of points times the loadings are differences of coordinates, anywhere."""
    points = POINTS * [1.0, 1e3, 1e-3, 5.0] + [0.0, 1e4, 0.0, -3.0]
    snapshot = learn(points, method=method, scaling=scaling).snapshot()
    new = points[:20] * 3.0
    expected = (new - snapshot.points[0]) @ snapshot.feature_loadings + snapshot.coordinates[0]
    size = np.abs(expected).max()
    np.testing.assert_allclose(snapshot.transform(new), expected, atol=1e-9 * size)
    np.testing.assert_allclose(
        snapshot.transform(snapshot.points), snapshot.coordinates, atol=1e-9 * size
    )
    assert snapshot.feature_loadings.shape == (4, 3)


@pytest.mark.parametrize("whiten", [False, True])
def test_principal_axes_have_loadings(whiten: bool) -> None:
    """Those of the estimator PCA, and the estimator's hint."""
    model = PCA(2, whiten=whiten)
    model.learn_many(POINTS)
    axes = model.snapshot()
    moved = axes.transform(POINTS[1:2]) - axes.transform(POINTS[:1])
    np.testing.assert_allclose(moved, (POINTS[1:2] - POINTS[:1]) @ axes.feature_loadings)
    with pytest.raises(AttributeError, match=r"snapshot\(\).feature_loadings"):
        _ = LinearEigenmap().feature_loadings  # type: ignore[attr-defined]


def test_other_maps_have_no_loadings() -> None:
    assert learn(POINTS, method="diffusion_map").snapshot().feature_loadings.shape == (0, 3)


@pytest.mark.parametrize(
    ("graph", "count", "factor"),
    [({"weights": "binary", "radius": 1.5}, 19, 30.0), ({}, 1, 5e6), ({"weights": "heat"}, 1, 1e4)],
)
def test_points_that_nothing_joins_have_their_place(
    graph: dict[str, Any], count: int, factor: float, tmp_path: Path
) -> None:
    """A graph shows them at 0; a linear function is what it is there. And files can be read."""
    rng, points = np.random.default_rng(2), POINTS.copy()
    points[-count:] += rng.standard_normal((count, 4)) * factor
    snapshot = learn(points, scaling=None, **graph).snapshot()
    assert snapshot.certificate.isolated > 0
    size = np.abs(snapshot.coordinates).max()
    mean = snapshot.stationary @ snapshot.points
    expected = (snapshot.points - mean) @ snapshot.feature_loadings
    np.testing.assert_allclose(snapshot.coordinates, expected, atol=1e-9 * size)
    np.testing.assert_allclose(
        snapshot.transform(snapshot.points), snapshot.coordinates, atol=1e-9 * size
    )
    snapshot.save(tmp_path / "snapshot")
    loaded = se.Snapshot.load(tmp_path / "snapshot")
    np.testing.assert_array_equal(loaded.coordinates, snapshot.coordinates)


def test_a_direction_in_which_hardly_anything_varies_comes_last() -> None:
    """A ridge on the right of L a = mu S a gives it mu near 0, and the first place."""
    base = POINTS[:, :3]
    copy = base[:, :1] + 1e-5 * RNG.standard_normal((500, 1))
    plain = learn(base, scaling=None, axes="eigen").snapshot()
    doubled = learn(np.hstack([base, copy]), scaling=None, axes="eigen").snapshot()
    overlap = np.abs(plain.psi.T @ (doubled.psi * doubled.stationary[:, None]))
    assert overlap.diagonal().min() > 0.95


def test_many_features_become_principal_axes() -> None:
    """Of 90 features functions of the 50 principal axes of the support; then exactly those."""
    rng = np.random.default_rng(3)
    mix = rng.standard_normal((8, 90))
    points = rng.standard_normal((600, 8)) @ mix + 0.3 * rng.standard_normal((600, 90))
    engine = learn(points, size=300, scaling=None)
    engine.rescale()
    snapshot = engine.snapshot()
    centred = snapshot.points - snapshot.points.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][: linear_projection.N_AXES]
    rest = snapshot.feature_loadings - axes.T @ (axes @ snapshot.feature_loadings)
    assert np.abs(rest).max() < 1e-9 * np.abs(snapshot.feature_loadings).max()
    assert certificate.check(snapshot, 3e-3) == []


def rest(rng: np.random.Generator, m: int, d: int) -> np.ndarray:
    return np.ones((m, d))


def vary_along_one_feature(rng: np.random.Generator, m: int, d: int) -> np.ndarray:
    points = np.zeros((m, d))
    points[:, rng.integers(d)] = rng.normal(size=m) * 30.0
    return points


def vary(rng: np.random.Generator, m: int, d: int) -> np.ndarray:
    return rng.normal(size=(m, d))


@pytest.mark.filterwarnings("ignore::streamembed.errors.DegenerateMapWarning")
@pytest.mark.parametrize("size", [40, 150])  # fewer points than features, and more
@pytest.mark.parametrize(
    "phases", [(rest, vary), (vary_along_one_feature, vary_along_one_feature), (vary, rest, vary)]
)
def test_many_features_that_begin_to_vary(phases: tuple[Any, ...], size: int) -> None:
    """Between two renewals of the frame, too: the map is that of the points it publishes."""
    rng = np.random.default_rng(5)
    points = np.concatenate([phase(rng, size, 61) for phase in phases])
    engine = learn(points[:size], size=size, warm_up=40, n_components=2, scaling=None)
    for start in range(size, len(points), 10):
        engine.learn(points[start : start + 10])
        snapshot = engine.snapshot()
        assert certificate.check(snapshot, 3e-3) == []
        assert snapshot.certificate.met


@pytest.mark.filterwarnings("ignore::streamembed.errors.DegenerateMapWarning")
@pytest.mark.parametrize("jitter", [0.0, 1e-14, 3e-11, 1e-9])
@pytest.mark.parametrize("tolerance", [3e-3, 1e-5])
def test_a_map_without_a_positive_eigenvalue_is_met(jitter: float, tolerance: float) -> None:
    """Every point joined to all others, and a feature that nearly repeats another."""
    rng = np.random.default_rng(6)
    points = rng.normal(size=(60, 2))
    points = np.column_stack([points, points[:, 0] + jitter * rng.normal(size=60)])
    graph = {"weights": "binary", "n_neighbors": 100, "scaling": None, "size": 60}
    snapshot = learn(points, **graph, n_components=2, tolerance=tolerance).snapshot()
    assert (snapshot.eigenvalues == 0.0).all()
    assert snapshot.certificate.met
    assert certificate.check(snapshot, tolerance) == []


def test_more_features_than_points() -> None:
    rng = np.random.default_rng(4)
    snapshot = learn(rng.standard_normal((60, 200)), size=60, warm_up=20).snapshot()
    assert snapshot.certificate.met
    assert np.isfinite(snapshot.transform(rng.standard_normal((5, 200)))).all()


@pytest.mark.parametrize("unit", [1e-70, 1e70])
def test_the_unit_does_not_matter(unit: float) -> None:
    plain, scaled = learn(POINTS).snapshot(), learn(POINTS * unit).snapshot()
    np.testing.assert_allclose(scaled.coordinates, plain.coordinates, atol=1e-8)
    unscaled = learn(POINTS * unit, scaling=None).snapshot()
    assert unscaled.certificate.met
    assert np.isfinite(unscaled.feature_loadings).all()


def test_equal_points_and_few_features() -> None:
    """No component where nothing differs; as many as features, and zeros after them."""
    with pytest.warns(DegenerateMapWarning):
        same = learn(np.ones((200, 3))).snapshot()
    assert not same.coordinates.any()
    assert same.certificate.met
    with pytest.warns(DegenerateMapWarning):
        one = learn(POINTS[:, :1]).snapshot()
    assert (one.eigenvalues > 0).tolist() == [True, False, False]
    assert not one.coordinates[:, 1:].any()


def test_distances_are_refused_and_options_checked() -> None:
    with pytest.raises(InputError, match="coordinates"):
        se.Engine("linear_eigenmap", size=50).learn_distances([[], [1.0]])
    with pytest.raises(ParameterError, match="kernel="):
        se.Engine("linear_eigenmap", kernel="gaussian")
    with pytest.raises(ParameterError, match="needs coordinates"):
        LinearEigenmap(metric=lambda a, b: abs(a - b))
    with pytest.raises(InputError, match="use transform"):
        learn(POINTS).snapshot().transform_distances(np.ones((1, 150)))


def test_it_tells_classes_apart_that_variance_does_not() -> None:
    """Four clusters in two features, beside pairs of features that vary together."""
    rng = np.random.default_rng(5)
    labels = rng.integers(4, size=900)
    shared = np.repeat(rng.standard_normal((900, 2)), 2, axis=1)
    clusters = 6.0 * np.column_stack([labels // 2, labels % 2])
    noise = rng.standard_normal((900, 6)) * 0.5
    points = np.hstack([shared, clusters]) + noise
    scores = {}
    for method in ("linear_eigenmap", "pca"):
        snapshot = learn(points[:600], method=method, n_components=2, size=600).snapshot()
        voters = KNeighborsClassifier(5).fit(snapshot.transform(points[:600]), labels[:600])
        scores[method] = voters.score(snapshot.transform(points[600:]), labels[600:])
    assert scores["linear_eigenmap"] > scores["pca"] + 0.2
