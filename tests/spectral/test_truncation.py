"""What kept eigenpairs leave out, against the whole decomposition."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

import streamembed as se
from streamembed.errors import BadRowError, InputError
from streamembed.spectral.truncation import measure_truncation
from tests.oracles import oracle


def sum_powers(result: oracle.DiffusionMap, time: float, first: int) -> np.ndarray:
    """Sums of lambda^(2t) psi(i)^2 from pair ``first`` on, pair by pair."""
    total = np.zeros(len(result.pi))
    for pair in range(first, len(result.pi)):
        total += result.eigenvalues[pair] ** round(2 * time) * result.psi[:, pair] ** 2
    return total


@pytest.mark.parametrize("time", [0.0, 0.5, 1.0, 1.5, 2.0, 5.0])
def test_truncation_is_the_sum_over_all_other_pairs(time: float) -> None:
    """With masses, widths and a density weight; rounding over pi, which is 1e-3 here."""
    rng = np.random.default_rng(3)
    points, masses = rng.standard_normal((80, 3)), rng.uniform(0.5, 4.0, 80)
    result = oracle.diffusion_map(points, rng.uniform(0.8, 1.5, 80), 0.7, masses)
    kept = result.psi[:, 1:9] * np.maximum(result.eigenvalues[1:9], 0.0) ** time
    errors = measure_truncation(result.W, masses, result.density, kept, round(2 * time))
    assert_allclose(errors**2, np.maximum(sum_powers(result, time, 9), 0.0), atol=1e-9)


@pytest.mark.parametrize("kernel", ["self_tuning", "gaussian"])
@pytest.mark.parametrize("time", [0.5, 1.0, 2.0])
def test_the_tail_of_a_stream_is_that_of_its_window(kernel: str, time: float) -> None:
    """After every chunk: what is tracked and what is left out are all there is."""
    X = np.random.default_rng(5).standard_normal((330, 4))
    engine = se.Engine(size=250, kernel=kernel, diffusion_time=time)
    engine.learn(X[:270])
    for start in range(270, 330, 10):
        engine.learn(X[start : start + 10])
        snapshot = engine.snapshot()
        scaled = (snapshot.points - snapshot.center) / snapshot.scale
        result = oracle.diffusion_map(scaled, snapshot.widths, snapshot.alpha, width=snapshot.width)
        tracked = (snapshot.tracked**2).sum(axis=1)
        errors, everything = snapshot.truncation_errors(), sum_powers(result, time, 1)
        # sums below 0 are 0: tracked pairs are a view, off by their residual
        assert_allclose(errors**2, np.maximum(everything - tracked, 0.0), atol=1e-6)
        left_out = np.trace(np.linalg.matrix_power(result.S, round(2 * time))) - 1.0
        left_out -= snapshot.stationary @ tracked
        if time < 2.0:  # there the tail is shorter than the residual
            assert snapshot.stationary @ errors**2 == pytest.approx(left_out, rel=1e-3)


def test_exact_distances_are_within_the_errors_of_both_points() -> None:
    """All pairs of a window at t = 1; 2e-3 of the largest is what the residual of a view costs."""
    X = np.random.default_rng(6).standard_normal((420, 6))
    engine = se.Engine(size=300, diffusion_time=1.0)
    engine.learn(X)
    snapshot = engine.snapshot()
    scaled = (snapshot.points - snapshot.center) / snapshot.scale
    result = oracle.diffusion_map(scaled, snapshot.widths, snapshot.alpha, width=snapshot.width)
    exact, errors = oracle.diffusion_distances(result, 1), snapshot.truncation_errors()
    squares = snapshot.diffusion_distances() ** 2
    slack = 2e-3 * exact.max()
    assert (exact <= np.sqrt(squares + np.add.outer(errors, errors) ** 2) + slack).all()
    assert (exact >= np.sqrt(squares + np.subtract.outer(errors, errors) ** 2) - slack).all()
    assert (exact > np.sqrt(squares) + 2 * slack).any()  # there is something to see


def test_learned_distances_are_given_again() -> None:
    """A snapshot of distances does not keep them; wrong ones are refused."""
    X = np.random.default_rng(7).standard_normal((260, 3))
    d = cdist(X, X)
    engine = se.Engine(size=260, diffusion_time=1.0)
    engine.learn_distances([d[i, :i] for i in range(260)])
    snapshot = engine.snapshot()
    result = oracle.diffusion_map(X, snapshot.widths, snapshot.alpha, width=snapshot.width)
    everything = sum_powers(result, 1.0, 1)
    tracked = (snapshot.tracked**2).sum(axis=1)
    errors = snapshot.truncation_errors(d)
    assert_allclose(errors**2, np.maximum(everything - tracked, 0.0), atol=1e-6)
    with pytest.raises(InputError, match="between the objects ids"):
        snapshot.truncation_errors()
    with pytest.raises(InputError, match="has 3 rows"):
        snapshot.truncation_errors(d[:3])
    with pytest.raises(BadRowError, match="one for each of ids"):
        snapshot.truncation_errors(d[:, :3])


def test_other_methods_and_times_are_refused() -> None:
    """An error names the method, or the time."""
    X = np.random.default_rng(8).standard_normal((60, 3))
    for parameters, said in (
        ({"method": "isomap"}, "isomap"),
        ({"diffusion_time": 0.7}, r"diffusion_time=0\.7"),
    ):
        engine = se.Engine(size=60, **parameters)
        engine.learn(X)
        with pytest.raises(InputError, match=said):
            engine.snapshot().truncation_errors()
    engine = se.Engine(size=60)
    engine.learn(X)
    with pytest.raises(InputError, match="leave it out"):
        engine.snapshot().truncation_errors(cdist(X, X))
