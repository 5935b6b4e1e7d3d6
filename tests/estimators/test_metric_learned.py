"""What the metric faces learn: the core's answers, merged or not, and neighbours that are found."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from river import compose, datasets, evaluate, linear_model, metrics, neighbors, preprocessing
from scipy.spatial.distance import cdist

from streamembed.errors import FeatureError, ParameterError
from streamembed.estimators import FENN, ITML, DiscriminantAnalysis, GeometricMeanMetric
from streamembed.metrics import (
    class_moments,
    discriminant,
    fenn,
    geometric_mean,
    scatter,
)
from streamembed.numeric import histogram
from tests.metric_ways import DICTS, LABELS, POINTS, built, learned

# ------------------------------------------------------------------ merging

EXACT = ["FENN", "DiscriminantAnalysis", "ContrastMetric", "GeometricMeanMetric"]


@pytest.mark.parametrize("way", EXACT)
@pytest.mark.parametrize("cuts", [(30, 60), (5, 40), (85, 88), (10, 15)])
def test_merged_parts_are_the_whole(way: str, cuts: tuple[int, int]) -> None:
    """Moments of three workers, some in their warm-up, with labels in any order: as of one."""
    whole = learned(way)
    whole.learn_pairs(POINTS[:30], POINTS[30:60], [True, False, False] * 10)
    whole.flush()
    parts = []
    for start, stop in zip((0, *cuts), (*cuts, 90), strict=True):
        part = built(way)
        part.learn_many(POINTS[start:stop], LABELS[start:stop])
        parts.append(part)
    parts[1].learn_pairs(POINTS[:30], POINTS[30:60], [True, False, False] * 10)
    before = [pickle.dumps(part) for part in parts]
    merged = built(way)
    for part in reversed(parts):
        merged.merge(part)
    assert [pickle.dumps(part) for part in parts] == before
    merged.flush()
    assert merged.position == whole.position
    # sums in another order, through a root or two
    np.testing.assert_allclose(merged.metric.matrix, whole.metric.matrix, rtol=1e-8)


@pytest.mark.parametrize("way", ["MustLinkMetric-rank", "MustLinkMetric-diagonal"])
def test_merged_pairs_are_the_whole(way: str) -> None:
    """Sums over given pairs are exact; so are weights from pairs that are all remembered."""
    similar = [i % 2 == 0 for i in range(45)]
    whole, left, right = built(way), built(way), built(way)
    whole.learn_pairs(POINTS[:45], POINTS[45:], similar)
    left.learn_pairs(POINTS[:22], POINTS[45:67], similar[:22])
    right.learn_pairs(POINTS[22:45], POINTS[67:], similar[22:])
    left.merge(right)
    for model in (whole, left):
        model.flush()
    # weights stop at a gap of 1e-3, wherever they came from
    rtol = 1e-8 if "rank" in way else 1e-6
    np.testing.assert_allclose(left.metric.matrix, whole.metric.matrix, rtol=rtol, atol=1e-9)


def test_merged_optimisers_go_on() -> None:
    """Close pairs exactly, far pairs of both; the metric feasible, finite, and improving."""
    left, right = built("EigDML"), built("EigDML")
    left.learn_many(POINTS[:50], LABELS[:50])
    right.learn_many(POINTS[50:], LABELS[50:])
    mass = left.metric.certificate["mass"] + right.metric.certificate["mass"]
    n_far = left.metric.certificate["n_far"] + right.metric.certificate["n_far"]
    left.merge(right)
    assert left.metric.certificate["mass"] >= mass
    assert left.metric.certificate["n_far"] >= n_far
    left.learn_many(POINTS, LABELS)
    assert np.isfinite(left.metric.matrix).all()
    assert left.metric.certificate["gap"] < 0.5  # 0.38 measured, at a smoothing of 0.5


def test_what_does_not_fit_is_not_merged() -> None:
    """Other parameters, another class, other features: nothing of either changes."""
    model = learned("FENN")
    before = pickle.dumps(model)
    other = learned("FENN", chunk_size=9)
    for wrong in (other, learned("ContrastMetric")):
        with pytest.raises(ParameterError, match="same class and parameters"):
            model.merge(wrong)
    named = built("FENN")
    named.learn_many(DICTS, LABELS)
    with pytest.raises(FeatureError, match="other has the features"):
        model.merge(named)
    early = built("FENN")
    early.learn_many(DICTS[:5], LABELS[:5])
    with pytest.raises(FeatureError, match="this metric learned from arrays"):
        model.merge(early)
    assert pickle.dumps(model) == before


# ------------------------------------------------------------------ what is learned

SIMILAR = np.arange(40) % 2 == 0
DIFFERENCES = POINTS[:40] - POINTS[40:80]


def test_running_bounds_are_percentiles_of_distances() -> None:
    """Within a tenth of the 5th and 95th percentiles over all pairs, after 500 points."""
    points = np.random.default_rng(2).standard_normal((500, 4))
    model = ITML()
    model.learn_many(points, (points[:, 0] > 0).tolist())
    d2 = cdist(points / points.std(axis=0), points / points.std(axis=0), "sqeuclidean")
    low, high = np.percentile(d2[np.triu_indices(500, 1)], [5, 95])
    # 5,000 draws, and deviations of the first 50 points
    assert abs(model.metric.certificate["upper"] / low - 1) < 0.2
    assert abs(model.metric.certificate["lower"] / high - 1) < 0.2
    assert histogram.count(model._stream.progress["metric"].state.distances) == 5000


def test_sums_are_the_core_on_the_same_pairs() -> None:
    """Given pairs beside all pairs of labelled points, of features in deviations."""
    model = built("GeometricMeanMetric", chunk_size=10)
    model.learn_many(POINTS, LABELS)
    model.learn_pairs(POINTS[:40], POINTS[40:80], SIMILAR)
    codes = np.array([int(label) for label in LABELS])
    all_points = np.concatenate([POINTS, POINTS[:80]])
    scale = all_points.std(axis=0)
    rows, alike = np.triu_indices(90, 1), []
    alike = codes[rows[0]] == codes[rows[1]]
    steps = np.concatenate([POINTS[rows[0]] - POINTS[rows[1]], DIFFERENCES]) / scale
    sums = class_moments.update_sums(
        class_moments.init_sums(4), steps, np.concatenate([alike, SIMILAR])
    )
    means = class_moments.average_pairs(sums)
    expected = geometric_mean.geometric_mean_metric(means)[0] / np.outer(scale, scale)
    np.testing.assert_allclose(model.metric.matrix, expected, rtol=1e-9)


@pytest.mark.parametrize("mu", ["heat_capacity", 0.3])
def test_fenn_and_discriminants_are_the_core_on_the_same_labels(mu: Any) -> None:
    """From class moments; energies, temperature and directions."""
    codes = np.array([int(label) for label in LABELS])
    of_classes = scatter.update(scatter.init(4), POINTS, codes)
    found = fenn.compute_spectrum(scatter.compute_scatters(of_classes))
    model = learned("FENN", mu=mu, chunk_size=10)
    chosen = fenn.choose_by_heat_capacity(found.energies) if mu == "heat_capacity" else mu
    np.testing.assert_allclose(model.metric.matrix, fenn.solve_metric(found, chosen)[0], rtol=1e-8)
    assert model.metric.certificate["status"] == "measured"
    directions = learned("DiscriminantAnalysis", chunk_size=10)
    expected = discriminant.decompose(of_classes)
    placed = directions.transform_many(POINTS)
    np.testing.assert_allclose(placed[:, :2], POINTS @ expected.directions, rtol=1e-8)
    assert not placed[:, 2:].any()


def test_pairs_alone_teach_fenn_and_discriminants_what_labels_do() -> None:
    """All pairs of two equal classes have the scatters that the labels have."""
    generator = np.random.default_rng(5)
    points = generator.standard_normal((40, 3)) @ generator.standard_normal((3, 3))
    points[20:] += [3.0, 0.0, 1.0]
    labels = np.repeat([0, 1], 20)
    # ordered pairs with themselves: means over pairs are exactly twice the scatters
    left, right = (part.ravel() for part in np.meshgrid(np.arange(40), np.arange(40)))
    for cls in (FENN, DiscriminantAnalysis):
        by_labels, by_pairs = cls(chunk_size=40), cls(chunk_size=40)
        by_labels.learn_many(points, labels)
        by_pairs.learn_pairs(points[left], points[right], labels[left] == labels[right])
        # between is C_m 2 / (2 - 1) over the classes that FENN counts, and C_m over points: the
        # directions are the same, and so are ratios of distances along them
        one, two = (model.metric.matrix for model in (by_labels, by_pairs))
        if cls is DiscriminantAnalysis:
            one, two = one / np.trace(one), two / np.trace(two)
        np.testing.assert_allclose(two, one, rtol=1e-8, atol=1e-10)


def test_it_works_in_pipelines() -> None:
    """Scaler, metric, classifier in river's own loop; unions; mini-batches of pandas frames."""
    model = preprocessing.StandardScaler() | GeometricMeanMetric() | neighbors.KNNClassifier(5)
    score = evaluate.progressive_val_score(datasets.Phishing().take(500), model, metrics.Accuracy())
    assert score.get() > 0.8  # 0.86 measured; the larger class is 56 %
    union = compose.Select("w") + built("EigDML")
    for row, label in zip(DICTS, LABELS, strict=True):
        union.learn_one(row, label)
    assert set(union.transform_one(DICTS[0])) == {"w", *(f"eig_dml_{j}" for j in range(4))}
    pipeline = built("EigDML") | linear_model.LogisticRegression()
    X, y = pd.DataFrame(DICTS), pd.Series([label == "1" for label in LABELS])
    pipeline.learn_many(X, y)
    assert len(pipeline.predict_many(X)) == 90
