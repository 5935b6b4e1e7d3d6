"""Laws across rooms: how the stream is cut, what is equal to batch, what is bounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import streamembed as se
from scenarios import streams
from scenarios.streams import MissingDataError
from streamembed.errors import CostWarning
from tests.oracles import oracle

K = 5


def stream(name: str, rows: int) -> np.ndarray:
    """The first rows of a named stream; skipped, with its reason, where the data are absent."""
    loaders = {
        "roll": lambda: streams.swiss_roll(rows, 0),
        "circles": lambda: streams.two_circles(rows, 0)[0],
        "rings": lambda: streams.drifting_rings(rows, 0, window=300),
        "digits": lambda: streams.digits()[0],
        "letter": lambda: streams.letter()[0],
    }
    try:
        return loaders[name]()[:rows]
    except MissingDataError as absent:
        pytest.skip(str(absent))


def truth_of(snapshot: se.Snapshot) -> oracle.DiffusionMap:
    scaled = (snapshot.points - snapshot.center) / snapshot.scale
    return oracle.diffusion_map(
        scaled, snapshot.widths, snapshot.alpha, snapshot.masses, snapshot.width
    )


def unit_vectors(snapshot: se.Snapshot) -> np.ndarray:
    return snapshot.psi * np.sqrt(snapshot.stationary)[:, None]


# ---------------------------------------------------------------- equal to batch


@pytest.mark.parametrize(
    ("name", "time", "alpha"),
    [
        ("roll", 1.0, 1.0),
        ("roll", 3.0, 1.0),
        ("circles", 1.0, 0.0),
        ("circles", 2.0, 0.5),
        ("digits", 1.0, 1.0),
        ("digits", 2.0, 0.5),
        ("letter", 3.0, 1.0),
        ("letter", 1.0, 0.0),
    ],
)
def test_memory_all_at_full_rank_is_the_batch_answer(name: str, time: float, alpha: float) -> None:
    """After every chunk: eigenvalues to 1e-8, subspace to 1e-6, coordinates up to sign.

    Of the Gaussian kernel: a self-tuning one has negative eigenvalues, which no factor holds.
    """
    points = stream(name, 200)
    engine = se.Engine(
        n_components=K,
        memory="all",
        rank=200,
        kernel="gaussian",
        diffusion_time=time,
        alpha=alpha,
        chunk_size=10,
    )
    for start in range(0, 200, 10):
        engine.learn(points[start : start + 10])
        if not engine.ready:
            continue
        snapshot = engine.snapshot()
        truth = truth_of(snapshot)
        np.testing.assert_allclose(snapshot.eigenvalues, truth.eigenvalues[1 : K + 1], atol=1e-8)
        gap = truth.eigenvalues[K] - truth.eigenvalues[K + 1]
        sine = oracle.largest_angle_sine(truth.V[:, 1 : K + 1], unit_vectors(snapshot))
        assert sine * min(gap, 1.0) < 1e-8  # eigenvectors are determined to rounding over the gap
        if gap > 1e-2:
            assert sine < 1e-6
        np.testing.assert_allclose(snapshot.stationary, truth.pi, rtol=1e-9)
        gaps = -np.diff(truth.eigenvalues[: K + 2])
        clear = np.minimum(gaps[:-1], gaps[1:]) > 1e-3  # components that are determined one by one
        expected = oracle.diffusion_coordinates(truth, K, time)
        found = oracle.align_signs(snapshot.coordinates, expected)
        np.testing.assert_allclose(found[:, clear], expected[:, clear], atol=1e-8)
        assert snapshot.certificate.met


def test_transform_is_the_extension_of_the_definition() -> None:
    """Coordinates of new points equal (1 / lambda) sum_j p(x, j) psi(j), times lambda^t."""
    points = stream("roll", 160)
    for time in (1.0, 3.0):
        engine = se.Engine(
            n_components=3, memory="all", rank=120, kernel="gaussian", diffusion_time=time
        )
        engine.learn(points[:120])
        snapshot = engine.snapshot()
        scaled = (points - snapshot.center) / snapshot.scale
        expected = oracle.nystrom_extension(truth_of(snapshot), scaled[:120], scaled[120:], 3, time)
        found = snapshot.transform(points[120:])
        np.testing.assert_allclose(
            oracle.align_signs(found, expected), expected, atol=1e-8 * np.abs(expected).max()
        )


# ---------------------------------------------------------------- certified


def test_a_missed_tolerance_is_said() -> None:
    """A kernel so wide that all eigenvalues drown in the rounding of a large ring: met is False."""
    points = np.random.default_rng(0).standard_normal((2100, 3))
    engine = se.Engine(
        size=2100, warm_up=2100, kernel="gaussian", bandwidth=300.0, scaling=None, chunk_size=100
    )
    engine.learn(points)
    with pytest.warns(CostWarning, match="last step of the solver"):
        certificate = engine.snapshot().certificate
    assert certificate.met is False
    assert certificate.residual > 3e-3


def test_without_a_tolerance_nothing_is_claimed() -> None:
    """The plain view: an estimate, near the truth, met None."""
    points = stream("roll", 900)
    engine = se.Engine(n_components=5, size=600, tolerance=None, scaling=None)
    engine.learn(points)
    snapshot = engine.snapshot()
    truth = truth_of(snapshot)
    residual = oracle.true_residual(truth.S, unit_vectors(snapshot), snapshot.eigenvalues)
    assert snapshot.certificate.met is None
    assert snapshot.certificate.method == "sketched bound"
    assert residual <= 1e-2
    assert 1.0 < snapshot.certificate.residual / residual < 10.0


# ---------------------------------------------------------------- however it is cut


def small(**changes: Any) -> se.Engine:
    return se.Engine(**{"size": 60, "warm_up": 25, "chunk_size": 7, **changes})


def test_the_number_of_blas_threads_does_not_matter() -> None:
    """The engine pins one thread itself: the same bits where the process has two."""
    points = np.random.default_rng(2).standard_normal((1200, 8))
    saved = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads, user_api="blas"):
            engine = se.Engine(size=600, chunk_size=50, n_components=4)
            engine.learn(points)
            saved.append(engine.snapshot().coordinates.tobytes())
    assert saved[0] == saved[1]


# ---------------------------------------------------------------- symmetries of the data


# ---------------------------------------------------------------- bounded, long


def test_long_runs_do_not_drift() -> None:
    """After 15 turnovers: exact products and degrees, and a residual as small as early on."""
    size = 250
    points = streams.drifting_rings(15 * size + 1000, 0, window=size)
    engine = se.Engine(n_components=5, size=size, scaling=None)
    engine.learn(points[:1000])
    early = engine.snapshot().certificate.residual
    engine.learn(points[1000:])
    state = engine._progress.state
    assert state is not None
    weights = state.map.weights.rows(np.arange(size)).astype(np.float64)
    np.testing.assert_allclose(state.map.degrees, weights.sum(axis=1), rtol=2e-5)
    functions, images = state.map.space.functions, state.map.space.images
    errors = np.linalg.norm(functions @ weights - images, axis=1)
    assert (errors <= 3e-5 * np.linalg.norm(images, axis=1)).all()
    assert engine.snapshot().certificate.residual <= max(1.5 * early, 3e-3)
