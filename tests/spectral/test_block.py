"""The kept block against dense solves of graphs made from scratch, after every chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from scipy.sparse import csr_array

from streamembed.spectral import block, neighbor_walk
from streamembed.spectral.block import Block
from streamembed.spectral.fixed_gain import deflate_ritz_pairs
from streamembed.spectral.neighbor_walk import Parts, Walk
from tests.oracles.oracle import largest_angle_sine
from tests.spectral import walks

K, COUNT, TOLERANCE = 10, 10, 3e-3


def roll(rng: np.random.Generator, n: int) -> np.ndarray:
    t = 1.5 * np.pi * (1 + 2 * rng.random(n))
    return np.stack([t * np.cos(t), 21 * rng.random(n), t * np.sin(t)], axis=1)


def blobs(rng: np.random.Generator, n: int) -> np.ndarray:
    """Six groups that overlap."""
    centres = 2.0 * np.random.default_rng(0).normal(size=(6, 8))
    return centres[rng.integers(0, 6, n)] + rng.normal(size=(n, 8))


def graph(points: np.ndarray, weights: str = "binary", k: int = K) -> tuple[Walk, Parts]:
    d2, near = walks.find_nearest(points, k)
    walk = walks.walk_on_lists(near, d2, weights)
    return walk, neighbor_walk.find_parts(walk)


def dense(walk: Walk) -> tuple[np.ndarray, np.ndarray]:
    """All eigenpairs without v_0, descending."""
    deflated = walk.operator.toarray() - np.outer(walk.constant, walk.constant)
    values, vectors = np.linalg.eigh(deflated)
    return values[::-1], vectors[:, ::-1]


def residuals(pairs: block.RitzPairs) -> np.ndarray:
    """||S v - theta v|| of every column, as kept."""
    return np.sqrt(pairs.products.diagonal())


def stream(
    points: np.ndarray, n: int, weights: str = "binary", c: int = 10, tolerance: float = TOLERANCE
) -> Iterator[tuple[Block, Walk, Parts, block.Info]]:
    """A window of n points through which the rest goes, c at a time."""
    window = points[:n].copy()
    walk, parts = graph(window, weights)
    held, _ = block.start(walk, parts, COUNT, tolerance, 0)
    for position in range(n, len(points), c):
        slots = np.arange(position, position + c) % n
        window[slots] = points[position : position + c]
        walk, parts = graph(window, weights)
        held, report = block.update(held, walk, parts, slots, COUNT, tolerance, 0, position)
        yield held, walk, parts, report


@pytest.mark.parametrize(("data", "weights"), [(roll, "binary"), (blobs, "self_tuning")])
def test_every_chunk_is_near_the_dense_answer(
    data: Callable[[np.random.Generator, int], np.ndarray], weights: str
) -> None:
    """30 chunks: residual, eigenvalues, the subspace at its widest gap, and the rounds it took."""
    points = data(np.random.default_rng(1), 800)
    rounds, sines = [], []
    for held, walk, parts, report in stream(points, 500, weights):
        values, vectors = dense(walk)
        found = block.select_pairs(held, walk, parts, COUNT)
        assert residuals(found).max() <= TOLERANCE
        # Cauchy: never above the true ones; nor is a larger one missing by more than the tolerance
        assert (found.values <= values[:COUNT] + 1e-12).all()
        assert (values[:COUNT] - found.values <= TOLERANCE).all()
        gaps = values[:COUNT] - values[1 : COUNT + 1]
        cut = int(np.argmax(gaps)) + 1
        sine = largest_angle_sine(vectors[:, :cut], found.vectors[:, :cut])
        assert sine <= max(2e-2, 1e-3 / gaps[cut - 1])  # a third of the tolerance over the gap
        sines.append(sine)
        rounds.append(report.rounds)
    assert np.median(sines) <= 5e-3
    assert np.mean(rounds) <= 1.2


@pytest.mark.parametrize("tolerance", [3e-3, 1e-4])
def test_the_residual_is_that_of_what_is_stored(tolerance: float) -> None:
    """Kept and reported: ||S v - theta v|| of stored psi by a float64 product, to 1e-9."""
    points = roll(np.random.default_rng(2), 800)
    for held, walk, parts, report in stream(points, 700, tolerance=tolerance):
        S = walk.operator.toarray()
        V = walk.constant[:, None] * held.psi.astype(np.float64)
        V = (V - np.outer(walk.constant, walk.constant @ V))[:, :COUNT]
        V /= np.linalg.norm(V, axis=0)
        found = block.select_pairs(held, walk, parts, COUNT)
        true = np.linalg.norm(S @ V - V * np.einsum("ij,ij->j", V, S @ V), axis=0)
        np.testing.assert_allclose(residuals(found), true, atol=1e-9)
        assert report.residual == pytest.approx(true.max(), abs=1e-9)
        np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(COUNT), atol=1e-12)
        np.testing.assert_allclose(walk.constant @ found.vectors, 0.0, atol=1e-12)


def test_float64_goes_beyond_what_float32_shows() -> None:
    """A tolerance of 1e-9, from cold and after a chunk."""
    points = blobs(np.random.default_rng(3), 610)
    walk, parts = graph(points[:600])
    held, cold = block.start(walk, parts, COUNT, 1e-9, 0)
    points[:10] = points[600:]
    walk, parts = graph(points[:600])
    held, warm = block.update(held, walk, parts, np.arange(10), COUNT, 1e-9, 0, 600)
    while warm.residual > 1e-9:
        held, warm = block.refine(held, walk, parts, COUNT, 1e-9, (1,))
    assert cold.residual <= 1e-9
    found = block.select_pairs(held, walk, parts, COUNT)
    np.testing.assert_allclose(found.values, dense(walk)[0][:COUNT], atol=1e-12)


def test_the_same_chunk_gives_the_same_bits_and_leaves_its_inputs() -> None:
    """Random columns are a function of seed and position."""
    points = roll(np.random.default_rng(4), 510)
    walk, parts = graph(points[:500])
    held, _ = block.start(walk, parts, COUNT, TOLERANCE, 7)
    kept = held.psi.copy()
    points[:10] = points[500:]
    walk, parts = graph(points[:500])
    first, second = (
        block.update(held, walk, parts, np.arange(10), COUNT, TOLERANCE, 7, 500)[0]
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.psi, second.psi)
    np.testing.assert_array_equal(held.psi, kept)


@pytest.mark.parametrize("far", [6.0, 12.0, 40.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_cluster_that_arrives_whole_is_found(far: float, seed: int) -> None:
    """30 points in one chunk, near or apart: nothing is missed at that very update."""
    rng = np.random.default_rng(seed)
    points = blobs(rng, 600)
    walk, parts = graph(points)
    held, _ = block.start(walk, parts, COUNT, TOLERANCE, seed)
    slots = rng.choice(600, 30, replace=False)
    points[slots] = rng.normal(size=(30, 8)) + far
    walk, parts = graph(points)
    held, report = block.update(held, walk, parts, slots, COUNT, TOLERANCE, seed, 600)
    assert report.residual <= TOLERANCE
    found = block.select_pairs(held, walk, parts, COUNT)
    np.testing.assert_allclose(found.values, dense(walk)[0][:COUNT], atol=2e-3)


@pytest.mark.parametrize("seed", range(5))
def test_parts_that_split_and_join_are_followed(seed: int) -> None:
    """A chain between three groups is cut, and laid again: values 1 come and go at once."""
    rng = np.random.default_rng(seed)
    points = np.repeat([[0.0, 0, 0], [20.0, 0, 0], [40.0, 0, 0]], 200, axis=0)
    points += rng.normal(size=(600, 3))
    bridge = np.linspace([0.0, 0, 0], [40.0, 0, 0], 80)
    points = np.concatenate([points, bridge + 0.1 * rng.normal(size=(80, 3))])
    linked, slots = points.copy(), np.arange(600, 680)
    held, _ = block.start(*graph(points), COUNT, TOLERANCE, seed)
    for chunk, count in enumerate([3, 1, 3, 1]):
        points = linked.copy()
        if count == 3:
            points[slots] = points[:80] + 0.1 * rng.normal(size=(80, 3))
        walk, parts = graph(points)
        assert parts.count == count
        held, report = block.update(held, walk, parts, slots, COUNT, TOLERANCE, seed, chunk)
        found = block.select_pairs(held, walk, parts, COUNT)
        assert found.exact == count - 1
        assert (found.values[: count - 1] == pytest.approx(1.0, abs=1e-14)) or count == 1
        assert report.residual <= TOLERANCE
        np.testing.assert_allclose(found.values, dense(walk)[0][:COUNT], atol=1e-3)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 11, 18, 60, 400])
@pytest.mark.parametrize("kind", ["equal", "line", "parts"])
def test_few_points_equal_points_and_many_parts(n: int, kind: str) -> None:
    """Fewer points than columns, n <= K + 1, k + 3 parts: no NaN, values as a dense solve has."""
    points = np.ones((n, 2))
    if kind == "line":
        points = points * np.arange(n)[:, None]
    elif kind == "parts":
        points = 1e3 * (np.arange(n) % (COUNT + 3))[:, None] + np.random.default_rng(0).random(
            (n, 2)
        )
    walk, parts = graph(points, k=min(K, max(1, n // 20)) if kind == "parts" else K)
    held, _ = block.start(walk, parts, COUNT, TOLERANCE, 0)
    for position in range(2):
        slots = np.arange(min(n, 5))
        held, _ = block.update(held, walk, parts, slots, COUNT, TOLERANCE, 0, position)
    found = block.select_pairs(held, walk, parts, COUNT)
    assert np.isfinite(held.psi).all()
    assert residuals(found).max(initial=0.0) <= TOLERANCE
    assert len(found.values) == min(COUNT, n - len(parts.isolated) - (parts.count > 0))
    if len(found.values) and not len(parts.isolated):
        values = np.sort(np.delete(np.linalg.eigvalsh(walk.operator.toarray()), -1))[::-1]
        np.testing.assert_allclose(found.values, values[: len(found.values)], atol=1e-3)


def test_isolated_points_have_no_part_and_come_back() -> None:
    """A radius that leaves a third alone: rows of zeros; a new point that reaches them joins."""
    rng = np.random.default_rng(5)
    points = rng.normal(size=(500, 3))

    def within(radius: float) -> tuple[Walk, Parts]:
        d2 = ((points[:, None] - points[None]) ** 2).sum(axis=2)
        heads, ends = np.nonzero(np.triu(d2 < radius**2, 1))
        walk = walks.walk_on_edges(heads, ends, d2[heads, ends], 500)
        return walk, neighbor_walk.find_parts(walk)

    walk, parts = within(0.35)
    assert len(parts.isolated) > 50
    held, _ = block.start(walk, parts, 40, TOLERANCE, 0)
    for radius in (0.45, 0.6, 0.35):
        walk, parts = within(radius)
        held, report = block.update(held, walk, parts, np.arange(3), 40, TOLERANCE, 0, 0)
        found = block.select_pairs(held, walk, parts, 40)
        assert report.residual <= TOLERANCE
        assert not held.psi[parts.isolated].any()
        np.testing.assert_allclose(found.values, dense(walk)[0][:40], atol=2e-3)


def test_columns_of_parts_alone_leave_no_pair() -> None:
    """What rounding leaves of them is no direction: deflated twice, it was the parts' again."""
    n, rng = 180, np.random.default_rng(0)
    dense_graph = np.zeros((n, n))
    for members in ([33, 21, 59], [129, 157]):
        dense_graph[np.ix_(members, members)] = 1.0
    np.fill_diagonal(dense_graph, 0.0)
    walk = neighbor_walk.build_walk(csr_array(dense_graph), None)
    parts = neighbor_walk.find_parts(walk)
    inside = parts.basis.toarray() @ rng.standard_normal((2, 6))
    values, vectors, _ = deflate_ritz_pairs(walk, parts, inside)
    np.testing.assert_allclose(parts.basis.T @ vectors, 0.0, atol=1e-12)
    assert values.max(initial=-1.0) < 0.0  # of the three directions beside the parts
    others = np.where(walk.degrees[:, None] > 0, rng.standard_normal((n, 6)), 0.0)
    values, vectors, _ = deflate_ritz_pairs(walk, parts, 1e3 * inside + 1e-9 * others)
    np.testing.assert_allclose(np.sort(values), [-1.0, -0.5, -0.5], atol=1e-3)
    np.testing.assert_allclose(parts.basis.T @ vectors, 0.0, atol=1e-12)
