"""The literal map against the box that it restates, and against the batch diffusion map."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from scenarios import streams
from scenarios.baselines import literal_map
from streamembed.numeric import svd
from tests.oracles import oracle

# Full rank: a chain of tens of updates rounds to about 1e-14 of the norm each way.
EXACT = 1e-12


# The literal map: 320 points in batch, 80 more by tens, k = 10, as in the source at a fifth.
FIRST, ALL, STEP, K, SIGMA = 320, 400, 10, 10, 0.2


def protocol(rank: int) -> tuple[np.ndarray, literal_map.LiteralMap]:
    points, _ = streams.two_circles(ALL, seed=0)
    d = cdist(points, points)
    state = literal_map.init(d[:FIRST, :FIRST], SIGMA, 1.0, rank)
    for n in range(FIRST, ALL, STEP):
        state = literal_map.update(state, d[n : n + STEP, : n + STEP], rank)
    return points, state


def stale_markov(points: np.ndarray) -> np.ndarray:
    """M of the box, entry by entry: every entry is normalised with the sums of its own time."""
    weights = np.exp(-(cdist(points, points) ** 2) / SIGMA**2)
    M = np.zeros((ALL, ALL))
    L = np.zeros((ALL, ALL))
    for old, n in [(0, FIRST), *((n, n + STEP) for n in range(FIRST, ALL, STEP))]:
        q = weights[:n, :n].sum(axis=1)
        fresh = np.ones((n, n), dtype=bool)
        fresh[:old, :old] = False
        L[:n, :n] = np.where(fresh, weights[:n, :n] / np.outer(q, q), L[:n, :n])
        M[:n, :n] = np.where(fresh, L[:n, :n] / L[:n, :n].sum(axis=1)[:, None], M[:n, :n])
    return M


def test_literal_is_the_letter():
    """At full rank the state is the box's stale matrix to rounding, and degrees are exact."""
    points, state = protocol(rank=ALL)
    expected = stale_markov(points)
    truth = oracle.diffusion_map(points, SIGMA)
    np.testing.assert_allclose(state.degrees, truth.degrees, rtol=EXACT)
    np.testing.assert_allclose(
        (state.svd.left * state.svd.values) @ state.svd.right.T, expected, atol=EXACT
    )


def test_literal_map_is_stale():
    """The literal map misses the batch subspace by more than 1e-2 where a batch recompute does not.

    With every triplet kept nothing is truncated, and with eigenvectors for singular vectors the
    second error of the source is mended too: what is left is the staleness alone.
    """
    points, state = protocol(rank=K)
    truth = oracle.diffusion_map(points, SIGMA)
    leading = truth.psi[:, :K]
    assert oracle.largest_angle_sine(leading, literal_map.span(state, K)) > 1e-2

    stale = stale_markov(points)
    values, vectors = np.linalg.eig(stale)
    order = np.argsort(-values.real)[:K]
    assert np.abs(values[order].imag).max() == 0
    assert oracle.largest_angle_sine(leading, vectors[:, order].real) > 1e-2
    assert np.abs(stale.sum(axis=1) - 1).max() > 1e-2

    symmetric = svd.decompose(truth.S, K)  # S is positive semidefinite: its triplets are its pairs
    recomputed = symmetric.left / np.sqrt(truth.pi)[:, None]
    assert oracle.largest_angle_sine(leading, recomputed) < 1e-10


def test_singular_vectors_are_not_eigenfunctions():
    """Even without an update, the SVD of the exact Markov matrix misses the subspace."""
    points, _ = streams.two_circles(ALL, seed=0)
    state = literal_map.init(cdist(points, points), SIGMA, 1.0, K)
    leading = oracle.diffusion_map(points, SIGMA).psi[:, :K]
    assert oracle.largest_angle_sine(leading, literal_map.span(state, K)) > 1e-2


def test_literal_coordinates():
    """They are sigma^t u, the first triplet left out."""
    _, state = protocol(rank=K)
    coordinates = literal_map.coordinates(state, 3, 2.0)
    assert coordinates.shape == (ALL, 3)
    np.testing.assert_allclose(
        np.linalg.norm(coordinates, axis=0), state.svd.values[1:4] ** 2, rtol=EXACT
    )
