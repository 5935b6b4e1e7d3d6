"""HDBSCAN in the plane against scikit-learn's, and its tree against Kruskal's of all pairs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist
from sklearn.cluster import HDBSCAN
from sklearn.metrics import adjusted_rand_score

from streamembed.layout.hdbscan import LEAST_D2, find_clusters, join_nearest
from streamembed.numeric.arrays import Floats, Ints


def reach_of(places: Floats, min_samples: int) -> tuple[Floats, Floats]:
    """Mutual reachability distances and plain ones, of all pairs."""
    d = cdist(places, places)
    core = np.sort(d, axis=1)[:, min(min_samples, len(places)) - 1]
    return np.maximum(np.maximum(d, core), core[:, None]), d


def cluster_all_pairs(places: Floats, min_cluster_size: int, min_samples: int) -> Ints:
    """scikit-learn's labels, where the points' own distance decides between equal edges.

    A billionth of it is added to the mutual reachability: so little that no order but that of
    equal edges changes. ``min_samples=1`` takes these distances as they are.
    """
    reach, d = reach_of(places, min_samples)
    longest = join_nearest(places, min(min_samples, len(places)))[1][-1]
    reach = np.maximum(reach, np.sqrt(LEAST_D2) * longest) + 1e-9 * d
    np.fill_diagonal(reach, 0.0)
    model = HDBSCAN(
        min_cluster_size=min_cluster_size, min_samples=1, metric="precomputed", copy=True
    )
    labels: Ints = model.fit_predict(reach)
    return labels


def assert_same_groups(labels: Ints, others: Ints) -> None:
    """Equal up to the numbers of clusters; noise is noise."""
    np.testing.assert_array_equal(labels < 0, others < 0)
    pairs = set(zip(labels.tolist(), others.tolist(), strict=True))
    assert len(pairs) == len(set(labels.tolist())) == len(set(others.tolist()))


def draw_blobs(seed: int) -> tuple[Floats, int, int]:
    """Blobs of several densities; every third set has duplicates, some of them many."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(2, 250)), int(rng.integers(1, 8))
    spread = rng.uniform(0.1, 1.5, k)
    blob = rng.integers(0, k, n)
    places = 4 * rng.standard_normal((k, 2))[blob]
    places += spread[blob, None] * rng.standard_normal((n, 2))
    if seed % 3 == 0:
        places = places[rng.choice(n, n, p=rng.dirichlet(np.full(n, 0.5)))]
    return places, int(rng.integers(2, 20)), int(rng.integers(1, 13))


@pytest.mark.parametrize("seed", range(150))
def test_labels_are_those_of_scikit_learn(seed: int) -> None:
    """Of every set, exactly, and numbered by first points."""
    places, min_cluster_size, min_samples = draw_blobs(seed)
    labels = find_clusters(places, min_cluster_size, min_samples)
    assert_same_groups(labels, cluster_all_pairs(places, min_cluster_size, min_samples))
    _, first = np.unique(labels[labels >= 0], return_index=True)
    assert (np.diff(first) > 0).all()
    assert set(labels.tolist()) <= {-1, *range(len(first))}


@pytest.mark.parametrize("min_samples", [1, 10])
def test_scikit_learn_as_it_is_differs_by_ties_only(min_samples: int) -> None:
    """Nowhere with ``min_samples=1``, which has no equal edges; else in few points.

    Over 20 sets of 300 points the adjusted Rand index was .996 in the mean and .985 at least.
    """
    scores = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        places = 5 * rng.standard_normal((6, 2))[rng.integers(0, 6, 300)]
        places += rng.standard_normal((300, 2))
        model = HDBSCAN(min_cluster_size=9, min_samples=min_samples, copy=True)
        labels, others = find_clusters(places, 9, min_samples), model.fit_predict(places)
        if min_samples == 1:
            assert_same_groups(labels, others)
        scores.append(adjusted_rand_score(labels, others))
    assert np.mean(scores) > 0.98


@pytest.mark.parametrize("seed", range(20))
def test_the_tree_is_minimal(seed: int) -> None:
    """Its lengths are those of a tree of all pairs: exactly, but for the floor of duplicates."""
    places, _, min_samples = draw_blobs(seed)
    n = len(places)
    ends, lengths = join_nearest(places, min(min_samples, n))
    reach, _ = reach_of(places, min_samples)
    floor = np.sqrt(LEAST_D2) * lengths[-1]
    expected = np.sort(minimum_spanning_tree(csr_array(np.maximum(reach, floor))).data)
    np.testing.assert_allclose(lengths, expected, rtol=1e-12)
    np.testing.assert_allclose(lengths, np.maximum(reach[ends[:, 0], ends[:, 1]], floor), 1e-12)
    assert (np.diff(lengths) >= 0).all()


@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_the_order_of_points_is_irrelevant(seed: int, smallest: int, min_samples: int) -> None:
    """Groups follow the points, also turned by a quarter and mirrored."""
    rng = np.random.default_rng(seed)
    places = rng.standard_normal((80, 2)) * rng.uniform(0.2, 2.0, (80, 1))
    order = rng.permutation(80)
    labels = find_clusters(places, smallest, min_samples)
    assert_same_groups(labels[order], find_clusters(places[order], smallest, min_samples))
    assert_same_groups(labels, find_clusters(places[:, ::-1].copy(), smallest, min_samples))


@pytest.mark.parametrize("n", range(8))
def test_few_points_are_noise(n: int) -> None:
    """Two clusters of four need eight."""
    places = np.arange(2.0 * n).reshape(n, 2)
    assert (find_clusters(places, 4, 10) == -1).all()


@pytest.mark.parametrize("copies", [1, 7, 60])
def test_points_in_one_place(copies: int) -> None:
    """All in one are no two clusters, and two places of many copies are two."""
    places = np.zeros((copies, 2))
    assert (find_clusters(places, 2, 3) == -1).all()
    if copies > 1:
        both = np.concatenate([places, places + 1.0])
        labels = find_clusters(both, copies, 3)
        np.testing.assert_array_equal(labels, np.repeat([0, 1], copies))
