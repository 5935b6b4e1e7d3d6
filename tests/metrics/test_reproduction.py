"""Metrics of generated pairs, judged by the other half of the events."""

from __future__ import annotations

import numpy as np
import pytest

from streamembed.metrics import itml, reproduction
from streamembed.numeric.arrays import Floats
from streamembed.pairs.pair_memory import Pairs


def fit_itml(pairs: Pairs, bounds: tuple[float, float]) -> Floats:
    return itml.solve(pairs.differences, pairs.similar, *bounds, max_sweeps=50)[0].matrix


def draw_groups(n: int, noise: int, seed: int) -> np.ndarray:
    """Eight groups in five features, beside uniform ones; standardised."""
    rng = np.random.default_rng(seed)
    centres = 4.0 * rng.standard_normal((8, 5))
    groups = centres[rng.integers(0, 8, n)] + rng.standard_normal((n, 5))
    points = np.column_stack([groups, rng.random((n, noise))])
    return (points - points.mean(axis=0)) / points.std(axis=0)


def test_samples_are_of_all_events_and_of_two_halves_that_share_none() -> None:
    """Whatever the positions are; at most so many points of each."""
    points = draw_groups(1400, 2, 0)
    positions = np.sort(np.random.default_rng(1).choice(10_000, 1400, replace=False))
    drawn = reproduction.draw_samples(points, positions, 9000, 5)
    assert drawn is not None
    rows = [{row.tobytes() for row in sample.points} for sample in drawn]
    assert [len(part) for part in rows] == [reproduction.N_POINTS] * 3
    assert not rows[1] & rows[2]
    for sample in drawn:
        assert sample.pairs.has_both_kinds
        assert sample.bounds[0] < sample.bounds[1]


def test_too_few_events_have_no_samples() -> None:
    """Fewer in a half than features and two."""
    points = draw_groups(10, 4, 0)
    assert reproduction.draw_samples(points, np.arange(10), 10, 0) is None
    assert reproduction.draw_samples(np.zeros((200, 3)), np.arange(200), 200, 0) is None


@pytest.mark.parametrize("seed", range(3))
def test_plain_distance_is_what_a_metric_must_beat(seed: int) -> None:
    """The identity of a learner that learns nothing, and one that reverses what is near."""
    samples = reproduction.draw_samples(draw_groups(500, 3, seed), np.arange(500), 500, seed)
    assert samples is not None
    plain = reproduction.learn(samples, lambda pairs, bounds: np.eye(8))
    assert plain[1:] == (0.0, "nothing reproduces")
    wrong = np.diag([0.01] * 5 + [10.0] * 3)
    matrix, share, status = reproduction.learn(samples, lambda pairs, bounds: wrong)
    assert (share, status) == (0.0, "no better than plain distance")
    assert np.array_equal(matrix, np.eye(8))
    right = np.diag([2.0**0.6] * 5 + [0.5] * 3)
    matrix, share, status = reproduction.learn(samples, lambda pairs, bounds: right)
    assert status == "ok"
    np.testing.assert_allclose(matrix, right, rtol=1e-9)


def test_a_grid_teaches_nothing() -> None:
    """Where there is nothing to learn, nothing is learned, whatever the halves' maps say."""
    grid = np.stack(np.meshgrid(*[np.arange(5.0)] * 4), axis=-1).reshape(-1, 4)
    for seed in range(3):
        points = grid[np.random.default_rng(seed).permutation(625)]
        samples = reproduction.draw_samples(points, np.arange(625), 625, seed)
        assert samples is not None
        assert reproduction.learn(samples, fit_itml)[1] == 0.0
