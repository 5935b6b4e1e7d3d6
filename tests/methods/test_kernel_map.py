"""Maps of kernels in a stream: degrees, kept products, passes over all pairs, and broken chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import streamembed as se
from scenarios import streams
from scenarios.fuzz import certificate as fuzz_certificate
from scenarios.streams import MissingDataError
from streamembed.geometry.kernel_weights import KernelWeights
from streamembed.methods.kernel_map import KernelMap
from streamembed.methods.state import State
from streamembed.spectral.sketched_view import LOSS
from streamembed.spectral.trial_space import FAINT, OF_PROBES, OF_TRIAL, TrialSpace

pytestmark = pytest.mark.filterwarnings("ignore::streamembed.errors.ResolutionWarning")

CHUNK = 10


def load(name: str, n: int, window: int) -> np.ndarray:
    """The first rows of a stream; skipped, with its reason, where the data are absent."""
    loaders = {
        "rings": lambda: streams.drifting_rings(n, 0, window=window),
        "roll": lambda: streams.swiss_roll(n, 0),
        "letter": lambda: streams.letter()[0],
    }
    try:
        return loaders[name]()[:n]
    except MissingDataError as absent:
        pytest.skip(str(absent))


def drifting(n: int, seed: int = 0) -> np.ndarray:
    """Two clouds of which one wanders."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((n, 3))
    points[::2, 0] += 3.0 + 2.0 * np.sin(np.arange(len(points[::2])) / 200.0)
    return points


def small(**changes: Any) -> se.Engine:
    return se.Engine(**{"size": 400, "chunk_size": CHUNK, "scaling": None, **changes})


def state_of(engine: se.Engine) -> tuple[State, KernelMap, TrialSpace]:
    state = engine._progress.state
    assert state is not None
    assert isinstance(state.map, KernelMap)
    assert state.map.space is not None
    return state, state.map, state.map.space


def dense_weights(engine: se.Engine, d2: np.ndarray | None = None) -> np.ndarray:
    """W anew in float64, of the widths that are frozen."""
    state, kernel_map, _ = state_of(engine)
    if d2 is None:
        d2 = cdist(state.support.scaled, state.support.scaled, "sqeuclidean")
    scales, rule = kernel_map.scales, engine.config.width_rule
    if scales is None or rule is None:
        return np.exp(-d2 / state.scaling.bandwidth**2)
    return np.exp(-d2 / (rule.width * np.outer(scales.widths, scales.widths)))


def check_products(engine: se.Engine, d2: np.ndarray | None = None) -> None:
    """Degrees, and G = H W row by row; inner and gram."""
    state, kernel_map, space = state_of(engine)
    W, masses = dense_weights(engine, d2), state.support.masses
    np.testing.assert_allclose(kernel_map.degrees, W @ masses, rtol=2e-5)
    functions = space.functions.astype(np.float64)
    exact = functions @ W
    off = np.linalg.norm(space.images - exact, axis=1) <= 3e-5 * np.linalg.norm(exact, axis=1)
    # a turn divides the last functions by the root of FAINT at least, and their rounding: images
    # under S, whose norm is 1, are off by that share of what views allow for
    allowed = LOSS / np.sqrt(FAINT) * float(np.finfo(space.images.dtype).eps)
    lengths = np.linalg.norm(functions / space.drawn, axis=1)
    amplified = np.linalg.norm((space.images - exact) * space.drawn, axis=1) <= allowed * lengths
    amplified[: 1 + 2 * engine.config.n_components] = amplified[OF_PROBES] = False
    assert (off | amplified).all()
    trial = functions[OF_TRIAL]
    most = np.outer(np.linalg.norm(trial, axis=1), np.linalg.norm(exact, axis=1))
    most = 3e-5 * most + allowed * np.outer(lengths[OF_TRIAL], lengths)
    assert (np.abs(space.inner - trial @ exact.T) <= most).all()
    most = np.outer(lengths, lengths)[OF_TRIAL, OF_TRIAL]
    assert (np.abs(space.gram - (trial / space.drawn**2) @ trial.T) <= 1e-4 * most).all()


# ---------------------------------------------------------------- kept exact


@pytest.mark.parametrize("size", [400, 600])
def test_a_window_is_kept_exact_over_two_turnovers(size: int) -> None:
    """Of the default map, while it grows and when it is full: degrees and images."""
    points = drifting(3 * size + 57)
    engine = small(size=size)
    looked = 0
    for start in range(0, len(points), 97):
        engine.learn(points[start : start + 97])
        if start > 250:
            check_products(engine)
            looked += 1
    assert looked > 8
    assert engine.refilled > 0


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("changes", [{}, {"kernel": "gaussian", "alpha": 1.0}])
@pytest.mark.parametrize(("memory", "half_life"), [("landmarks", None), ("landmarks", 500.0)])
def test_landmarks_with_mass_are_kept_exact(
    memory: str, half_life: float | None, changes: dict[str, Any], scaled: bool
) -> None:
    """Masses that grow with every event, or fade: 400 landmarks of 1,600 events."""
    points = drifting(1600)
    scaling = "standard" if scaled else None
    engine = small(memory=memory, half_life=half_life, scaling=scaling, **changes)
    for start in range(0, 1600, 200):
        engine.learn(points[start : start + 200])
        if start >= 400:
            check_products(engine)
    assert len(engine.snapshot().masses) == 400
    assert engine.snapshot().masses.max() > 1.5
    assert fuzz_certificate.check(engine.snapshot(), 3e-3) == []


# ---------------------------------------------------------------- cuts and broken chunks


# ---------------------------------------------------------------- passes


class Passes:
    """How often W as a whole was multiplied."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        original = KernelWeights.product

        def counted(weights: KernelWeights, block: np.ndarray) -> np.ndarray:
            self.count += 1
            return original(weights, block)

        monkeypatch.setattr(KernelWeights, "product", counted)


@pytest.mark.parametrize("name", ["rings", "roll", "letter"])
def test_snapshots_hardly_ever_need_a_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At 1,000 points: at most 3 of 60 snapshots, and no chunk does; all meet their tolerance."""
    points = load(name, 2200, 1000)
    engine = small(size=1000)
    engine.learn(points[:1000])
    products = state_of(engine)[1].products
    passes, dear = Passes(monkeypatch), 0
    for start in range(1000, 2200, 20):
        engine.learn(points[start : start + 20])
        learned, passes.count = passes.count, 0
        assert learned == 0
        snapshot = engine.snapshot()
        method = "exact product" if passes.count else "sketched bound"
        assert snapshot.certificate.method == method
        assert (snapshot.refinement == "view") <= (passes.count <= 1)
        assert snapshot.certificate.met
        dear += passes.count > 0
        passes.count = 0
    assert dear <= 3
    assert state_of(engine)[1].products == products


def test_a_product_decides_where_a_bound_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tolerance below what kept products show: every snapshot needs one, and says so."""
    points = drifting(500)
    engine = small(size=300, tolerance=1e-6, n_components=3)
    engine.learn(points[:450])
    passes = Passes(monkeypatch)
    for start in range(450, 500, CHUNK):
        engine.learn(points[start : start + CHUNK])
        passes.count = 0
        snapshot = engine.snapshot()
        assert passes.count
        assert snapshot.certificate.method == "exact product"
        assert snapshot.certificate.met
        assert fuzz_certificate.check(snapshot, 1e-6) == []


def test_products_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """``products`` is what learning multiplied with all of W: where half of a window is new."""
    passes = Passes(monkeypatch)
    engine = small(size=300, chunk_size=200, warm_up=200)
    for start in range(0, 1200, 200):
        engine.learn(drifting(1200)[start : start + 200])
        check_products(engine)
    assert passes.count <= state_of(engine)[1].products <= passes.count + 6
    assert state_of(engine)[1].products >= 4


@pytest.mark.parametrize("chunk", [60, 200])
def test_large_chunks_keep_all_components(chunk: int) -> None:
    """Without a tolerance as well: a plain view gives no pair that is as long as its residual."""
    points = streams.drifting_rings(500 + 5 * chunk, 0, window=500)
    engine = small(size=500, n_components=10, warm_up=500, tolerance=None, chunk_size=chunk)
    engine.learn(points[:500])
    for start in range(500, len(points), chunk):
        engine.learn(points[start : start + chunk])
        assert (engine.snapshot().eigenvalues > 0.0).all()
