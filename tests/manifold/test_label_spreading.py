"""Labels on a graph that follows a stream, against a graph and a solve from scratch."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from streamembed.manifold import label_spreading
from streamembed.manifold.label_spreading import (
    CLASS_ANCHORS,
    MOST_ANCHORS,
    TOLERANCE,
    UNLABELLED,
    LabelGraph,
)
from streamembed.spectral.adjacency import LEAST_SCALE

DAMPING = 0.9


def blobs(n: int, c: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    classes = rng.integers(c, size=n)
    return 4.0 * rng.standard_normal((c, d))[classes] + rng.standard_normal((n, d)), classes


def run(points, classes, c, size, k, chunk) -> LabelGraph:
    graph = label_spreading.create_empty(points.shape[1], k)
    for start in range(0, len(points), chunk):
        part = slice(start, start + chunk)
        positions = np.arange(len(points))[part]
        graph = label_spreading.advance(
            graph, points[part], positions, classes[part], c, size, DAMPING
        )
    return graph


def kept_events(classes, size) -> list[int]:
    """Positions of window and anchors, by a queue an event."""
    window, anchors = deque(), dict[int, deque]()
    for event in range(len(classes)):
        if len(window) == size:
            old = window.popleft()
            if (code := classes[old]) != UNLABELLED:
                own = anchors.setdefault(code, deque())
                own.append(old)
                if len(own) > CLASS_ANCHORS:
                    own.popleft()
                elif sum(map(len, anchors.values())) > MOST_ANCHORS:
                    max(anchors.values(), key=len).popleft()
        window.append(event)
    return sorted([*window, *(event for own in anchors.values() for event in own)])


def dense_walk(points, k) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """S, widths and degrees of points, whose ties are broken by their order."""
    n = len(points)
    d2 = cdist(points, points, "sqeuclidean")
    np.fill_diagonal(d2, np.inf)
    near = np.argsort(d2, axis=1, kind="stable")[:, : min(k, n - 1)]
    widths = np.sqrt(np.take_along_axis(d2, near, 1)[:, -1])
    widths = np.maximum(widths, LEAST_SCALE * np.median(widths[widths > 0]) if widths.any() else 1)
    W = np.zeros((n, n))
    for i in range(n):
        for j in near[i]:
            W[i, j] = W[j, i] = np.exp(-d2[i, j] / (widths[i] * widths[j]))
    degrees = W.sum(axis=1)
    return W / np.sqrt(np.outer(degrees, degrees)), widths, degrees


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_every_chunk_is_what_its_certificate_says(seed: int, chunk: int) -> None:
    """Events kept, residual and scores, against a solve from scratch; labels come and go."""
    rng = np.random.default_rng(seed)
    n, c, size, k = 300, 3, 60 + 20 * seed, 5
    points, truth = blobs(n, c, 2 + seed, seed)
    if seed % 2:
        points = np.round(points)  # ties and duplicates
    classes = np.where(rng.random(n) < (0.9 if seed == 5 else 0.1), truth, UNLABELLED)
    graph = run(points, classes, c, size, k, chunk)
    order = np.argsort(graph.positions)
    kept = kept_events(classes, size)
    assert graph.positions[order].tolist() == kept
    np.testing.assert_array_equal(graph.points[order], points[kept])
    np.testing.assert_array_equal(graph.classes[order], classes[kept])
    assert graph.positions[graph.window].tolist() == list(range(n - size, n))
    S, widths, degrees = dense_walk(points[kept], k)
    np.testing.assert_allclose(graph.widths[order], widths, rtol=1e-12)  # sums of few squares
    np.testing.assert_allclose(graph.degrees[order], degrees, rtol=1e-12)
    Y = (classes[kept][:, None] == np.arange(c)).astype(float)
    operator = np.eye(len(kept)) - DAMPING * S
    rest = Y - operator @ graph.scores[order]
    residuals = np.linalg.norm(rest, axis=0) / np.maximum(np.linalg.norm(Y, axis=0), 1e-300)
    assert residuals.max() == pytest.approx(graph.residual, rel=1e-6, abs=1e-12)
    assert graph.residual <= TOLERANCE
    # |F - F*| <= |rest| / (1 - a), for 1 - a is the least eigenvalue
    exact = np.linalg.solve(operator, Y)
    bound = graph.residual * np.linalg.norm(Y, axis=0) / (1.0 - DAMPING)
    assert (np.linalg.norm(graph.scores[order] - exact, axis=0) <= bound * (1 + 1e-9)).all()


def test_the_same_chunks_are_the_same_bits_whatever_came_between() -> None:
    """Solving again for changed labels starts a branch, and changes no graph."""
    points, truth = blobs(200, 3, 4, 0)
    classes = np.where(np.arange(200) % 9 == 0, truth, UNLABELLED)
    one = run(points, classes, 3, 80, 5, 8)
    again = run(points, classes, 3, 80, 5, 8)
    label_spreading.score(one, points[:5], DAMPING)
    label_spreading.choose_questions(one, 3, DAMPING)
    np.testing.assert_array_equal(one.scores, again.scores)


def test_new_points_are_scored_by_the_same_formula() -> None:
    points, truth = blobs(120, 3, 3, 1)
    classes = np.where(np.arange(120) % 6 == 0, truth, UNLABELLED)
    graph = run(points, classes, 3, 200, 5, 16)
    new, _ = blobs(20, 3, 3, 1)
    found = label_spreading.score(graph, new, DAMPING)
    d2 = cdist(new, graph.points, "sqeuclidean")
    counts = np.bincount(graph.classes[graph.classes >= 0], minlength=3) ** 0.75
    for i, row in enumerate(d2):
        near = np.argsort(row, kind="stable")[:5]
        width = max(np.sqrt(row[near[-1]]), graph.widths.min())
        w = np.exp(-row[near] / (width * graph.widths[near]))
        expected = DAMPING * (w / np.sqrt(w.sum() * graph.degrees[near])) @ graph.scores[near]
        np.testing.assert_allclose(found[i], expected / counts, rtol=1e-9)  # few operations


@pytest.mark.parametrize("classes", [[0], [0, 0, 1]])
def test_few_events(classes: list[int]) -> None:
    """One that has no neighbours, equal points whose labels contradict one another."""
    codes = np.array(classes, dtype=np.int64)
    graph = run(np.zeros((len(codes), 2)), codes, 2, 10, 5, 4)
    scores = label_spreading.score(graph, np.zeros((1, 2)), DAMPING)
    assert np.isfinite(scores).all()
    shares = label_spreading.compute_shares(scores)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    if len(codes) == 3:
        assert shares[0, 0] > shares[0, 1] > 0.0


def test_questions_are_those_of_a_dense_inverse() -> None:
    """Each is worth what the best is, within the error of the solver; then there are no more."""
    points, truth = blobs(150, 3, 2, 3)
    classes = np.where(np.arange(150) % 15 == 0, truth, UNLABELLED)
    graph = run(points, classes, 3, 200, 5, 32)
    S, _, _ = dense_walk(graph.points, 5)
    inverse = np.linalg.inv(np.eye(150) - DAMPING * S)
    Y = (graph.classes[:, None] == np.arange(3)).astype(float)
    F = inverse @ Y / Y.sum(axis=0) ** 0.75
    shares = np.sort(F / F.sum(axis=1, keepdims=True), axis=1)
    doubt, reach = 1.0 - (shares[:, -1] - shares[:, -2]), F.sum(axis=1)
    is_open = graph.classes == UNLABELLED
    for slot in label_spreading.choose_questions(graph, 8, DAMPING).tolist():
        worth = inverse @ (doubt / (1.0 + label_spreading.REACH * reach))
        assert is_open[slot]
        assert worth[slot] >= 0.98 * worth[is_open].max()  # residual / (1 - a) = 1 % of either
        is_open[slot] = False
        reach = reach + inverse[:, slot]
    assert len(label_spreading.choose_questions(graph, 1000, DAMPING)) == 140
