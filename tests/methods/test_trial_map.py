"""What every row of the table of methods must keep: one matrix, one normalisation, one map."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import streamembed as se
from streamembed.errors import ParameterError
from streamembed.geometry.kernel_weights import KernelWeights
from streamembed.geometry.pairwise import SquaredDistances
from streamembed.methods.engine_parameters import METHODS
from streamembed.methods.options import Config
from streamembed.methods.trial_map import normalise_slots

POINTS = np.random.default_rng(0).standard_normal((90, 3))
MASSES = np.random.default_rng(1).uniform(0.5, 3.0, 90)


def seen(kernel: str, distances: bool) -> KernelWeights:
    """Weights of the points, or of their distances; with widths of any size."""
    d2 = ((POINTS[:, None] - POINTS[None]) ** 2).sum(axis=2)
    squares = SquaredDistances(POINTS, (lambda slots: d2[slots] ** 0.5) if distances else None)
    widths = np.random.default_rng(2).uniform(0.3, 3.0, 90)
    if kernel == "gaussian":
        widths = np.full(90, 0.7)
    return KernelWeights(widths, 2.0, np.zeros(3), single=True).exact(squares)


@pytest.mark.parametrize("kernel", METHODS["diffusion_map"].kernels)
@pytest.mark.parametrize("distances", [False, True])
def test_rows_are_those_of_the_matrix(distances: bool, kernel: str) -> None:
    """Whichever slots are asked for; symmetric, with ones on the diagonal, exactly."""
    slots = np.array([3, 77, 40])
    weights = seen(kernel, distances)
    matrix, rows = weights.rows(np.arange(90)), weights.rows(slots)
    # two ways of summing three squares differ by a few units in the last place
    np.testing.assert_allclose(rows, matrix[slots], rtol=1e-13)
    assert (rows[:, slots] == rows[:, slots].T).all()
    assert (np.diag(matrix) == 1.0).all()
    assert (rows[np.arange(3), slots] == 1.0).all()


def test_the_normalisation_is_that_of_its_slots() -> None:
    """By a product with all rows, or with some; v_0 is an eigenvector of eigenvalue 1."""
    config = Config(alpha=0.5)
    matrix = seen("gaussian", False).rows(np.arange(90))
    degrees, slots = matrix @ MASSES, np.array([5, 80])
    whole = normalise_slots(degrees, MASSES, config, lambda x: matrix @ x)
    some = normalise_slots(degrees, MASSES, config, lambda x: matrix[slots] @ x, slots)
    np.testing.assert_allclose(some.scaling, whole.scaling[slots], rtol=1e-13)
    S = whole.scaling[:, None] * matrix * whole.scaling
    np.testing.assert_allclose(S @ whole.constant, whole.constant, rtol=1e-12)


@pytest.mark.parametrize("name", METHODS)
def test_the_extension_meets_the_coordinates(name: str, tmp_path: Path) -> None:
    """At the support's own points, by the snapshot and by its file, which says what it is."""
    rank = {"rank": 80} if "rank" in METHODS[name].options else {}
    engine = se.Engine(method=name, memory="all", n_components=3, **rank)
    engine.learn(POINTS)
    snapshot = engine.snapshot()
    snapshot.save(tmp_path / "snapshot.arrow")
    loaded = se.Snapshot.load(tmp_path / "snapshot.arrow")
    assert snapshot.method == loaded.method == name
    # a row of psi may be off by the residual over sqrt(pi), about sqrt(90)
    tolerance = 20 * snapshot.certificate.residual + 1e-9
    if name == "lle":  # a point is rebuilt from itself up to the ridge
        tolerance = 0.05 * float(np.abs(snapshot.coordinates).max())
    np.testing.assert_allclose(snapshot.transform(POINTS), snapshot.coordinates, atol=tolerance)
    assert (loaded.transform(POINTS) == snapshot.transform(POINTS)).all()


def test_other_names_are_refused() -> None:
    """With those that there are."""
    with pytest.raises(ParameterError, match="diffusion_map"):
        Config(method="umap")
