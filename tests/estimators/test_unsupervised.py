"""The metric without labels: laws of the stream, what it must find and must leave alone."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_wine

from streamembed.estimators import UnsupervisedMetric


def draw_groups(n: int, noise: int, seed: int) -> np.ndarray:
    """Eight groups in five features, beside noise of other units."""
    rng = np.random.default_rng((seed, n))
    centres = 4.0 * np.random.default_rng(seed).standard_normal((8, 5))
    points = centres[rng.integers(0, 8, n)] + rng.standard_normal((n, 5))
    return np.column_stack([points, 30.0 * rng.standard_normal((n, noise))])


def weights(model: UnsupervisedMetric, points: np.ndarray) -> np.ndarray:
    """The diagonal of the metric in standardised features."""
    diagonal: np.ndarray = np.diag(model.metric.matrix) * points.var(axis=0)
    return diagonal


def test_noise_features_weigh_a_tenth() -> None:
    """Whatever their units; the certificate names their weights and how predictable they are."""
    points = draw_groups(500, 4, 3)
    model = UnsupervisedMetric(size=500, warm_up=500)
    model.learn_many(points)
    ratio = weights(model, points)
    assert (ratio[5:] / ratio[:5].mean() < 0.2).all()
    proof = model.metric.certificate
    assert proof.source == "features"
    assert proof.measured == 500
    assert max(proof.feature_weights[5:]) < 0.2
    assert min(proof.feature_weights[:5]) == 1.0
    assert max(proof.predictability[5:]) < 0.1 < min(proof.predictability[:5])
    assert proof.weighed == 1.0
    moved = points * np.geomspace(1e-6, 1e6, 9)
    far = UnsupervisedMetric(size=500, warm_up=500)
    far.learn_many(moved)
    np.testing.assert_allclose(weights(far, moved), ratio, rtol=1e-5)


def test_where_nothing_is_to_learn_it_is_standardised_distance() -> None:
    """On a uniform grid, of equal points, of fewer points than features, of one feature."""
    grid = np.stack(np.meshgrid(*[np.arange(5.0)] * 4), axis=-1).reshape(-1, 4)
    rng = np.random.default_rng(0)
    for points in (
        rng.permutation(grid),
        np.full((80, 3), 0.1),
        rng.standard_normal((70, 90)),
        rng.standard_normal((80, 1)),
        np.repeat(rng.standard_normal((20, 4)), 5, axis=0),
    ):
        model = UnsupervisedMetric(size=700, warm_up=60)
        model.learn_many(points)
        spread = points[: model.metric.certificate["measured"]].std(axis=0)
        scale = np.where(spread > 1e-12, spread, 1.0)
        np.testing.assert_allclose(model.metric.matrix, np.diag(scale**-2.0), rtol=1e-12)
        assert model.metric.certificate["weighed"] == 0.0


def test_it_is_measured_again_as_the_stream_goes_on() -> None:
    """After as many events, and at least once a window: what was noise is structure now."""
    first, later = draw_groups(400, 2, 4), draw_groups(1300, 0, 5)
    rng = np.random.default_rng(0)
    later = np.column_stack([rng.standard_normal((1300, 2)), later])  # other features are noise
    model = UnsupervisedMetric(size=400, warm_up=200)
    model.learn_many(first)
    before = model.metric.certificate
    assert before.measured == 400
    assert max(before.feature_weights[5:]) < 0.5
    model.learn_many(later)
    after = model.metric.certificate
    assert 1300 <= after.measured <= 1700
    assert max(after.feature_weights[:2]) < 0.5
    assert min(after.feature_weights[2:]) == 1.0


def test_wine_keeps_its_neighbours() -> None:
    """Never fewer of five neighbours of the class than under standardised distance."""
    X, y = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    model = UnsupervisedMetric(size=200, warm_up=100)
    model.learn_many(X[order])

    def count(points: np.ndarray) -> float:
        d = np.linalg.norm(points[:, None] - points, axis=2) + np.diag(np.full(len(y), np.inf))
        return float((y[np.argsort(d, axis=1)[:, :5]] == y[:, None]).mean())

    assert count(model.metric.transform(X)) >= count((X - X.mean(0)) / X.std(0)) - 0.01
