"""The bound from one random vector against the eigenvalues that it is of."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from streamembed.numeric.arrays import Floats
from streamembed.spectral.lanczos import bound_largest
from streamembed.spectral.probes import MISS


def _symmetric(values: Floats, seed: int) -> Floats:
    basis, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values), len(values))))
    rotated: Floats = (basis * values) @ basis.T
    return 0.5 * (rotated + rotated.T)


SPECTRA = {
    "crowded": lambda n: 1.0 - np.linspace(0.02, 1.0, n) ** 0.5,
    "one above": lambda n: np.append(np.linspace(-0.9, 0.6, n - 1), 0.9),
    "both ends": lambda n: np.concatenate([np.full(n // 2, -0.95), np.full(n - n // 2, 0.8)]),
    "geometric": lambda n: 0.97 * 0.8 ** np.arange(n),
    "negative": lambda n: np.linspace(-0.9, -0.1, n),
}


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("n", [2, 7, 300])
def test_nothing_is_above_the_bound_and_an_easy_level_is_reached(spectrum: str, n: int) -> None:
    values = SPECTRA[spectrum](n)
    matrix, largest = _symmetric(values, n), float(values.max())
    for seed in range(10):
        x = np.random.default_rng(seed).standard_normal(n)
        for level in (largest + 0.05, largest + 0.01, largest - 0.01, 0.5 * largest):
            if not 0.0 < level < 1.0:
                continue
            found = bound_largest(lambda v: matrix @ v, x, level, 200)
            assert level <= found <= 1.0
            assert found >= largest
            if level > largest:
                assert found == level


def test_a_level_that_lies_too_near_gets_the_bound_that_the_products_allow() -> None:
    values = np.linspace(-1.0, 0.9, 4000)
    x = np.random.default_rng(0).standard_normal(4000)
    bounds = [bound_largest(lambda v: values * v, x, 0.9005, most) for most in (5, 10, 20, 40, 80)]
    assert bounds[0] == 1.0  # too few for anything
    assert bounds == sorted(bounds, reverse=True)
    assert 0.9005 < bounds[-1] < 0.92


def test_the_level_does_not_depend_on_the_vectors_staying_orthogonal() -> None:
    # a converged end, from which Lanczos makes copies without end
    values = np.append(np.linspace(-0.2, 0.2, 500), 0.9)
    x = np.random.default_rng(1).standard_normal(501)
    seen = []

    def apply(v: Floats) -> Floats:
        seen.append(v)
        return values * v

    assert bound_largest(apply, x, 0.9 + 1e-13, 150) >= 0.9
    basis = np.array(seen).T
    assert np.abs(basis.T @ basis - np.eye(len(seen))).max() > 0.5
    assert bound_largest(lambda v: values * v, x, 0.9 + 1e-6, 150) == 0.9 + 1e-6


def test_nothing_left_is_below_every_level() -> None:
    assert bound_largest(lambda v: 0.0 * v, np.zeros(5), 0.1, 10) == 0.1
    assert bound_largest(lambda v: 0.0 * v, np.ones(5), 0.1, 10) == 0.1


def test_it_is_wrong_no_oftener_than_it_says() -> None:
    """One eigenvalue above a level, hidden by vectors nearly orthogonal to it.

    The share of starts with |u^T x| < r is MISS; such starts are made, and only they may be wrong.
    """
    values = np.append(np.linspace(0.0, 0.5, 50), 0.8)
    operator = csr_array(np.diag(values))
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(3000):
        wrong += bound_largest(lambda v: operator @ v, rng.standard_normal(51), 0.6, 40) < 0.8
    assert wrong <= 4  # of 3,000 at 3e-4: more has a chance of 0.002
    hidden = rng.standard_normal(51)
    hidden[-1] = 1e-6 * MISS
    assert bound_largest(lambda v: operator @ v, hidden, 0.6, 40) == 0.6
