"""Laws of all methods of `Engine`: certificates are true, hard data finite, distances points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cdist

import streamembed as se
from scenarios.fuzz import certificate as fuzz_certificate
from scenarios.streams import swiss_roll
from streamembed.numeric.arrays import Floats
from tests.laws.subjects import METHODS

GRAPHS = ("laplacian_eigenmaps", "linear_eigenmap")
OF_DISTANCES = ["diffusion_map", "laplacian_eigenmaps", "classical_mds", "isomap", "kernel_pca"]


def list_seeds(method: str, count: int) -> list[int]:
    """The first streams of the fuzz that have this method."""
    kernel = "graph" if method in GRAPHS else None
    found: list[int] = []
    for seed in range(80_000, 81_000):
        drawn = fuzz_certificate._draw_stream(seed, kernel)[2].get("method", "diffusion_map")
        found += [seed] if drawn == method else []
        if len(found) == count:
            break
    return found


@pytest.mark.parametrize("method", METHODS)
def test_certificates_are_true(method: str) -> None:
    """Random streams against dense answers: `scenarios.fuzz.certificate` has many more."""
    kernel = "graph" if method in GRAPHS else None
    for seed in list_seeds(method, 2):
        result = fuzz_certificate.run(streams=1, seed=seed, most=2, kernel=kernel)
        assert (result.wrong, result.unmet) == ([], [])


HARD: dict[str, Callable[[np.random.Generator], Floats]] = {
    "all equal": lambda rng: np.ones((90, 3)),
    "two places": lambda rng: np.eye(2)[rng.integers(0, 2, 90)],
    "constant columns": lambda rng: np.column_stack([np.full(90, 0.1), rng.random(90)]),
    "tiny": lambda rng: 1e-140 * rng.standard_normal((90, 3)),
    "large": lambda rng: 1e149 * rng.standard_normal((90, 3)),
    "large offset": lambda rng: 1e9 + 1e-6 * rng.standard_normal((90, 3)),
    "an outlier": lambda rng: np.r_[rng.standard_normal((89, 2)), [[1e140, 0.0]]],
    "a lattice": lambda rng: rng.integers(-2, 3, (90, 3)).astype(float),
    "many features": lambda rng: rng.standard_normal((90, 120)),
    "a line": lambda rng: np.outer(np.linspace(0, 1, 90), np.ones(3)),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", HARD)
def test_hard_data_have_finite_maps(kind: str, method: str) -> None:
    """Coordinates, certificates, transforms and coverage, whatever finite data come."""
    X = HARD[kind](np.random.default_rng(5))
    given = {"size": 40, "warm_up": 25, **METHODS[method]}
    engine = se.Engine(method, n_components=3, **given)
    for start in range(0, 90, 30):
        engine.learn(X[start : start + 30])
        snapshot = engine.snapshot()
        certificate = snapshot.certificate
        far = np.full((1, X.shape[1]), 1e149)
        placed = snapshot.transform(np.r_[X[:9], far])
        for array in (snapshot.coordinates, snapshot.eigenvalues, placed, certificate.residual):
            assert np.isfinite(array).all()
        coverage = snapshot.coverage(X[:9])
        assert ((coverage >= 0) & (coverage <= 1)).all()
        if certificate.met:
            assert fuzz_certificate.check(snapshot, engine.config.tolerance) == []


@pytest.mark.parametrize("method", OF_DISTANCES)
@pytest.mark.parametrize("memory", ["window", "landmarks", "all"])
def test_distances_are_as_good_as_points(method: str, memory: str) -> None:
    """Every snapshot is that of the points, and so is the place of a new one."""
    points = swiss_roll(130, 0)
    parameters: dict[str, Any] = {"memory": memory, "size": 60, "warm_up": 40, "scaling": None}
    engines = [se.Engine(method, **parameters, **METHODS[method]) for _ in range(2)]
    for t in range(110):
        engines[0].learn(points[t : t + 1])
        before = engines[1].support_positions if memory == "landmarks" and t else range(t)
        waiting = range(t - engines[1].pending, t)
        known = np.array(
            [*before, *waiting] if memory == "landmarks" and t else [*before][-60:], int
        )
        if memory == "all":
            known = np.arange(t)
        engines[1].learn_distances([np.linalg.norm(points[known] - points[t], axis=1)])
        if not engines[0].ready or t % 20 != 9:
            continue
        theirs, ours = (engine.snapshot() for engine in engines)
        for name in ("masses", "eigenvalues", "coordinates"):
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=1e-6)
        rows = cdist(points[110:], theirs.points)
        np.testing.assert_allclose(
            ours.transform_distances(rows), theirs.transform(points[110:]), atol=1e-5
        )


@pytest.mark.parametrize("method", [name for name in METHODS if name != "lle"])
def test_axes_keep_still(method: str) -> None:
    """Between consecutive snapshots of a still stream no coordinate changes its sign or place."""
    points = np.random.default_rng(0).standard_normal((300, 4)) * [9, 4, 0.5, 0.2]
    engine = se.Engine(method, size=120, scaling=None, **METHODS[method])
    engine.learn(points[:160])
    before = engine.snapshot()
    for start in range(160, 300, 10):
        engine.learn(points[start : start + 10])
        after = engine.snapshot()
        _, left, right = np.intersect1d(before.ids, after.ids, return_indices=True)
        was, now = before.coordinates[left], after.coordinates[right]
        if after.frame.epoch == before.frame.epoch:
            sizes = np.linalg.norm(was, axis=0) * np.linalg.norm(now, axis=0)
            assert ((was * now).sum(axis=0) > 0.5 * sizes).all()
        before = after
