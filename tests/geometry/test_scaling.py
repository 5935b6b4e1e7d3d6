"""What is constant, and what features are divided by."""

from __future__ import annotations

import re
import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

import streamembed as se
from scenarios.fuzz import certificate as fuzz_certificate
from streamembed.errors import ScalingWarning
from streamembed.estimators import DiffusionMap, LiveMap, UnsupervisedMetric
from streamembed.geometry.scaling import fit_points
from streamembed.methods.engine_parameters import METHODS

EDGES = [0.1, -1 / 3, 1e9 + 0.1, 1e-300, 1e300, 5e-324, -2.5e-310, 1e-150, 0.0]


def constants(seed: int, count: int) -> np.ndarray:
    """Of both signs and sixteen magnitudes, and the edges of the doubles."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.standard_normal(count) * 10.0 ** rng.integers(-8, 9, count), EDGES])


def test_many_features_are_fitted_in_little_memory() -> None:
    """Sorted all at once, 768 took six times their own: the peak of a replay."""
    points = np.random.default_rng(0).standard_normal((400, 768))
    tracemalloc.start()
    whole = fit_points(points, np.ones(400), "standard", 1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * points.nbytes
    for some in (slice(0, 5), slice(100, 400)):
        own = fit_points(points[:, some], np.ones(400), "standard", 1.0)
        assert np.array_equal(own.center, whole.center[some])
        assert np.array_equal(own.scale, whole.scale[some])


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


FILLS = (100.0, 200.0, -999.0, -9999.0, 1e12, 1e20, 9.96921e36)


@pytest.mark.parametrize(
    ("fill", "at", "picture"),
    [*((fill, 7, False) for fill in FILLS), (-9999.0, 150, False), (-9999.0, 7, True)],
)
def test_one_value_of_no_data_sets_no_divisor(fill: float, at: int, picture: bool) -> None:
    """A -9999 in the first window made a divisor of 705 for ever, and 5-NN fell from 1.0 to .44."""
    rng = np.random.default_rng(0)
    points, label = rng.normal(size=(1000, 3)), np.arange(1000) % 2
    points[:, 0] += 8 * label
    points[at, 0] = fill
    engine = se.Engine(size=200, picture=picture)
    engine.learn(points)
    snapshot = engine.snapshot()
    # a tenth above the deviation of the window, which half of 1,000 others would not exceed
    assert snapshot.scale[0] == pytest.approx(points[-200:, 0].std(), rel=0.1)
    shown = snapshot.coordinates
    if picture:
        assert snapshot.picture is not None
        shown = snapshot.picture.coordinates
    judge = KNeighborsClassifier(5).fit(shown[:100], label[-200:-100])
    assert judge.score(shown[100:], label[-100:]) > 0.98


@pytest.mark.parametrize("weighted", [False, True])
def test_a_few_errors_move_neither_mean_nor_divisor(weighted: bool) -> None:
    """Up to 2 % of the values, or two; where there is no gap nothing is left out."""
    rng = np.random.default_rng(1)
    masses = rng.integers(1, 4, 400) * 1.0 if weighted else np.ones(400)
    clean = np.column_stack([rng.normal(size=400), rng.standard_t(2, 400), rng.random(400) < 0.05])
    points = np.concatenate([clean, np.full((3, 3), -9999.0)])
    weights = np.concatenate([masses, np.ones(3)])
    expected = fit_points(clean, masses, "standard", 1.0)
    found = fit_points(points, weights, "standard", 1.0)
    mean = masses @ clean / masses.sum()
    deviations = np.sqrt(masses @ (clean - mean) ** 2 / masses.sum())
    np.testing.assert_allclose(expected.center, mean, rtol=1e-12)
    np.testing.assert_allclose(expected.scale, deviations, rtol=1e-12)
    # three values that count as the farthest of the others
    np.testing.assert_allclose(found.scale[:2], expected.scale[:2], rtol=0.3)
    np.testing.assert_allclose(found.center[:2], expected.center[:2], atol=0.2)


SHIFTED = [
    ("diffusion_map", {}),
    ("diffusion_map", {"kernel": "gaussian"}),
    ("laplacian_eigenmaps", {}),
    ("laplacian_eigenmaps", {"weights": "heat"}),
    ("linear_eigenmap", {}),
    ("pca", {}),
    ("classical_mds", {}),
    ("kernel_pca", {}),
    ("kernel_pca", {"kernel": "polynomial"}),
    ("lle", {}),
    ("isomap", {}),
]


@pytest.mark.filterwarnings("ignore::streamembed.errors.ScalingWarning")
@pytest.mark.filterwarnings("ignore::streamembed.errors.ResolutionWarning")
@pytest.mark.parametrize(("memory", "scaling"), [("window", "standard"), ("landmarks", None)])
@pytest.mark.parametrize(("method", "options"), SHIFTED)
def test_points_far_from_the_first_keep_their_digits(
    method: str, options: dict[str, Any], memory: str, scaling: str | None
) -> None:
    """The centre stayed where the stream began: PCA was zeros, met, after a shift by 1e8."""
    rng = np.random.default_rng(2)
    points = rng.normal(size=(700, 3)) * [4, 2, 1]
    points[300:, 0] += 1e8
    half_life = 20.0 if memory == "landmarks" else None
    engines = [
        se.Engine(method, size=80, memory=memory, half_life=half_life, scaling=scaling, **options)
        for _ in range(2)
    ]
    for start in range(0, 700, 35):
        engines[0].learn(points[start : start + 35])
        if start in (280, 350, 420, 665):
            assert fuzz_certificate.check(engines[0].snapshot(fresh=True), 3e-3) == []
    engines[1].learn(points)
    assert engines[0].to_bytes() == engines[1].to_bytes()
    snapshot = engines[0].snapshot()
    assert abs(snapshot.center[0] - 1e8) < 100
    assert snapshot.certificate.met


def test_a_certificate_counts_the_digits_that_points_have_lost() -> None:
    """Two places 1e14 apart: doubles tell what is inside one of them only, and that is said."""
    rng = np.random.default_rng(3)
    points = rng.normal(size=(200, 2))
    points[100:, 0] += 1e14
    engine = se.Engine("laplacian_eigenmaps", size=200, scaling=None)
    engine.learn(points)
    assert engine.snapshot().certificate.met is False
    points[100:, 0] -= 1e14
    engine = se.Engine("laplacian_eigenmaps", size=200, scaling=None)
    engine.learn(points)
    assert engine.snapshot().certificate.met is True


@pytest.mark.parametrize(
    ("kind", "door"),
    [
        *((kind, "engine") for kind in ("units", "awake", "constant", "error")),
        *(("units", "map"), ("units", "picture")),
    ],
)
def test_a_divisor_that_does_not_fit_any_more_is_reported(kind: str, door: str) -> None:
    """Once, with the feature, both divisors and the remedy; and not for one late error."""
    points = np.random.default_rng(4).normal(size=(800, 3))
    if kind == "units":
        points[300:, 1] *= 50.0
    elif kind == "awake":  # a sensor that was off, and one error
        points[:300, 1] = np.where(np.arange(300) == 40, -9999.0, 0.0)
    elif kind == "constant":
        points[300:, 1] = 3.0
    else:
        points[700, 1] = -9999.0
    model: Any = {"engine": se.Engine, "map": DiffusionMap, "picture": LiveMap}[door](size=100)
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        for start in range(0, 800, 40):
            part = points[start : start + 40]
            if door == "engine":
                model.learn(part)
                if model.ready:
                    model.snapshot()
            else:
                model.learn_many(part)
                model.transform_many(part)
    messages = [str(each.message) for each in issued if each.category is ScalingWarning]
    assert len(messages) == (kind in ("units", "awake"))
    for message in messages:
        assert re.search(r"feature '1' is divided by .* would give .*rescale\(\)", message)
