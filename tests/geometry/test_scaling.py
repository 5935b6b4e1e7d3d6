"""What is constant, and what features are divided by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

import streamembed as se
from streamembed.estimators import DiffusionMap, UnsupervisedMetric
from streamembed.geometry.scaling import fit_points
from streamembed.methods.registry import METHODS

EDGES = [0.1, -1 / 3, 1e9 + 0.1, 1e-300, 1e300, 5e-324, -2.5e-310, 1e-150, 0.0]


def constants(seed: int, count: int) -> np.ndarray:
    """Of both signs and sixteen magnitudes, and the edges of the doubles."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.standard_normal(count) * 10.0 ** rng.integers(-8, 9, count), EDGES])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [50, 300, 1000, 3000])
def test_a_constant_feature_is_constant_whatever_n(n: int, weighted: bool) -> None:
    """The centre was a sum whose rounding grows with n: 95 % of constants varied at n = 1,000."""
    values = constants(n, 60)
    points = np.column_stack([np.random.default_rng(n).standard_normal(n), np.tile(values, (n, 1))])
    masses = np.random.default_rng(1).random(n) + 0.01 if weighted else np.ones(n)
    found = fit_points(points, masses, "standard", 1.0)
    assert (found.scale[1:] == 1.0).all()
    assert np.array_equal(found.center[1:], values)


def test_a_gap_filled_with_the_mean_of_a_constant_is_rounding() -> None:
    """A mean of n equal values is off by up to n last bits; a clock in nanoseconds still varies."""
    n, rng = 3000, np.random.default_rng(0)
    filled = np.tile(constants(2, 40), (n, 1))
    filled[::3] = filled.sum(axis=0) / n
    clock = 1.7e18 + 1e7 * rng.random((n, 1))
    found = fit_points(np.column_stack([filled[:, :40], clock]), np.ones(n), "standard", 1.0)
    assert (found.scale[:-1] == 1.0).all()
    assert found.scale[-1] == pytest.approx(clock.std(), rel=1e-3)


@pytest.mark.parametrize("memory", ["window", "landmarks"])
@pytest.mark.parametrize("method", METHODS)
def test_an_engine_takes_constants_as_constant(method: str, memory: str) -> None:
    """The divisor is that of the rule, and not 1e-16, for each method, memory and split."""
    rng, n = np.random.default_rng(3), 150
    points = np.column_stack([rng.standard_normal((n, 3)), np.tile(constants(4, 20)[:20], (n, 1))])
    scales = []
    for size in (n, 37):
        options: dict[str, Any] = {"kernel": "gaussian"} if method == "diffusion_map" else {}
        engine = se.Engine(
            method, memory=memory, size=n, warm_up=100, scaling="standard", tolerance=None,
            **options,
        )  # fmt: skip
        for start in range(0, n, size):
            engine.learn(points[start : start + size])
        scales.append(engine.snapshot().scale)
    assert np.array_equal(*scales)
    rule = {1.0, 0.3 * float(np.median(scales[0][:3]))}  # without widths, and with
    assert len(set(scales[0][3:])) == 1
    assert set(scales[0][3:]) <= rule


@pytest.mark.parametrize("kind", ["map", "metric"])
def test_a_constant_sensor_that_moves_later_does_not_dominate(kind: str) -> None:
    """Its weight was 1e28, and the neighbours of a point those of a coin."""
    rng, n = np.random.default_rng(5), 400
    label = rng.integers(0, 2, 2 * n)
    points = rng.standard_normal((2 * n, 5))
    points[:, 0] += 6.0 * label
    points[:, 4] = np.where(np.arange(2 * n) < n, 0.3, 0.3 + 0.1 * points[:, 4])
    model: Any = UnsupervisedMetric(size=n, warm_up=n)
    if kind == "map":
        model = DiffusionMap(kernel="gaussian", size=n, warm_up=n, tolerance=None)
    model.learn_many(points)
    placed = model.transform_many(points[n:])
    judge = KNeighborsClassifier(5).fit(placed[: n // 2], label[n : n + n // 2])
    assert judge.score(placed[n // 2 :], label[n + n // 2 :]) > 0.9
