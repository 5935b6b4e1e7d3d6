"""What has changed: tests against their definitions, and pairs among many features."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy.stats import fisher_exact

import streamembed as se
from scenarios.drift_streams import serial
from streamembed.drift import dependence
from streamembed.drift.alarm import Explanation
from streamembed.drift.candidate import find_change, next_stage_size
from streamembed.drift.change_tests import ReferenceSample
from streamembed.drift.explanation import describe
from streamembed.drift.pair_channel import search

NAMES = [f"f{j}" for j in range(6)]


def test_a_rate_is_tested_exactly() -> None:
    """Twice the smaller side of Fisher's test, of each window."""
    rng = np.random.default_rng(0)
    before = (rng.random((500, 2)) < [0.1, 0.5]).astype(float)
    window = (rng.random((60, 2)) < [0.3, 0.5]).astype(float)
    p, old, new = ReferenceSample(before)._test_rates(window)
    for j in range(2):
        a, b = int(window[:, j].sum()), int(before[:, j].sum())
        sides = [
            fisher_exact([[a, 60 - a], [b, 500 - b]], alternative=side)[1]
            for side in ("less", "greater")
        ]
        np.testing.assert_allclose(p[j], min(1.0, 2 * min(sides)), rtol=1e-8)
        np.testing.assert_allclose((old[j], new[j]), (b / 500, a / 60))


def test_without_a_change_hardly_anything_is_named() -> None:
    """Gaussian, skewed, heavy and binary features; the level is one in a hundred."""
    named = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows = np.column_stack(
            [
                rng.standard_normal((1300, 2)),
                rng.exponential(size=(1300, 1)),
                rng.standard_t(3, (1300, 1)),
                rng.random((1300, 2)) < 0.05,
            ]
        )
        tests = ReferenceSample(rows[:1000]).explain(NAMES, rows[1000:], 40)
        named += tests.explanation.kind != ""
    assert named <= 3


def test_events_count_by_the_autocorrelation_of_each_statistic() -> None:
    """Standard errors of a mean, a spread and a correlation, against those of 600 windows."""
    r, m = 0.8, 400
    draw = serial(r, 2)
    x = draw(np.random.default_rng(5), 600 * m)
    sample = ReferenceSample(draw(np.random.default_rng(6), 8000))
    windows = x.reshape(600, m, 2)
    correlations = [np.corrcoef(window.T)[0, 1] for window in windows]
    for time, direct in (
        (sample._mean_time[0], m * windows[:, :, 0].mean(axis=1).var()),
        (
            sample._spread_time[0],
            m * np.abs(windows[:, :, 0]).mean(axis=1).var() / np.abs(x[:, 0]).var(),
        ),
        (sample._pair_time[0, 1], m * np.var(correlations)),
    ):
        # the variance of 600 has 6 %, the sums of 8,000 events' autocorrelations 15 %
        np.testing.assert_allclose(time, direct, rtol=0.3)
    assert sample._mean_time[0] > 1.5 * sample._spread_time[0]


def test_without_a_change_hardly_anything_is_named_of_dependent_events() -> None:
    """AR(1) .8: the level is one in a hundred."""
    named = 0
    for seed in range(60):
        rows = serial(0.8, 6)(np.random.default_rng(seed), 2700)
        tests = ReferenceSample(rows[:2000]).explain(NAMES, rows[2200:], 40)
        named += tests.explanation.kind != ""
    assert named <= 3


def test_means_of_blocks_have_the_autocorrelations_of_means() -> None:
    """From those of events, against those of the means themselves."""
    x = serial(0.8, 1)(np.random.default_rng(1), 60_000)
    lags = np.array([1.0, *(np.corrcoef(x[:-h, 0], x[h:, 0])[0, 1] for h in range(1, 40))])
    means = x.reshape(-1, 4).mean(axis=1)
    direct = [np.corrcoef(means[:-h], means[h:])[0, 1] for h in (1, 2, 3)]
    own = dependence._autocorrelate_means(lags[:, None], 4)[1:4, 0]
    np.testing.assert_allclose(own, direct, atol=0.01)


def test_a_change_is_no_dependence() -> None:
    """Two levels in one candidate: it is cut where they meet."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((300, 3))
    x[120:, 0] += 2.0
    assert abs((find_change(x, (0,)) or 0) - 120) <= 12
    assert find_change(np.ones((300, 2)), (0,)) is None
    assert find_change(x, (0,), 6) is None  # sixteen blocks of 3 * 6 events show no change
    assert sum(find_change(rng.standard_normal((200, 3)), (i,)) is not None for i in range(40)) <= 3


def test_stages_grow_to_a_whole_reference() -> None:
    """From any number of events each stage is later, and ends at the most."""
    for block in (1, 2, 6, 60):
        n, stages = 0, []
        while n < 1000:
            stages.append(next_stage_size(n, 100 * block, 1000))
            assert stages[-1] > n
            n = stages[-1]
        assert n == 1000
    assert (
        next_stage_size(0, 0, 1000),
        next_stage_size(200, 0, 1000),
        next_stage_size(500, 0, 1000),
    ) == (
        200,
        500,
        1000,
    )
    assert next_stage_size(0, 0, 100) == 100


def test_pairs_of_sparse_features_are_no_change() -> None:
    """Flags, counts and borders of images: alarms "once in more than 1e15 events"."""
    kinds = {
        "flags": lambda rng, n: np.c_[rng.standard_normal((n, 10)), rng.random((n, 10)) < 0.01],
        "counts": lambda rng, n: rng.poisson(np.linspace(0.05, 4, 30), (n, 30)).astype(float),
        "shocks": lambda rng, n: rng.standard_t(3, (n, 20)) * np.exp(rng.normal(size=(n, 1))),
    }
    for name, draw in kinds.items():
        logs = []
        for seed in range(4):
            rng = np.random.default_rng([seed, 31])
            made = se.Monitor(n_reference=500, ert=math.inf)
            made.learn(draw(rng, 500))
            reference = made._get_reference()
            logs += [search(reference, draw(rng, 250)) or 0.0 for _ in range(4)]
        # once in 16 searches of 250 events: 4,000
        assert max(logs) < math.log(40_000), name


def test_a_pair_among_fifty_features_is_detected() -> None:
    """15 of 20 were not, in 3,000 events; heavy common shocks are no change."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((3000, 50))
    x[1200:, 1] = 0.8 * x[1200:, 0] + 0.6 * x[1200:, 1]
    monitor = se.Monitor(ert=10_000, n_reference=1000)
    alarm = monitor.learn(pd.DataFrame(x, columns=[f"f{j:02}" for j in range(50)]))[0]
    assert 1200 < alarm.position <= 2500
    assert monitor.alarms[0].explanation is not None
    assert monitor.alarms[0].explanation.names == ("f00", "f01")


def test_a_small_change_of_a_correlation_is_told_with_the_digits_that_it_needs() -> None:
    """Never from +1.00 to +1.00."""
    small = describe(Explanation("pair", ("a", "b"), 0.9991, 0.9962, 1e-9, 50))
    large = describe(Explanation("pair", ("a", "b"), 0.1, 0.8, 1e-9, 50))
    assert "from +0.9991 to +0.9962" in small
    assert "from +0.10 to +0.80" in large


@pytest.mark.parametrize("size", [3.0, 30.0, 1e8])
def test_what_is_said_of_a_shift_is_its_size(size: float) -> None:
    """Clipped at seven deviations it was too small, and at a million features were constant."""
    rng = np.random.default_rng(0)
    before, moved = rng.standard_normal((1000, 4)), rng.standard_normal((700, 4))
    moved[500:, :3] += size
    tests = ReferenceSample(before).explain(["a", "b", "c", "d"], moved, 200)
    assert tests.explanation.kind == "all"
    np.testing.assert_allclose(tests.explanation.after, size, rtol=0.1)
    np.testing.assert_allclose(tests.shifts[:3], size, rtol=0.1)
    wider = np.concatenate([moved[:500, :1], size * moved[:200, :1]])
    one = ReferenceSample(before[:, :1]).explain(["a"], wider, 200).explanation
    assert one.kind == "spread"
    np.testing.assert_allclose(one.after, size, rtol=0.3)  # 10 % of the values are cut off


def test_a_constant_feature_beside_flags_is_not_what_changed() -> None:
    """Its p was multiplied by the number of features that are neither flags nor constant: 0."""
    rng = np.random.default_rng(1)
    points = np.stack([rng.random(600) < 0.05, np.zeros(600)], axis=1).astype(float)
    points[300:, 0] = rng.random(300) < 0.3
    tests = ReferenceSample(points[:300]).explain(["a", "k"], points[300:], 300)
    assert (tests.explanation.kind, tests.explanation.names) == ("rate", ("a",))
