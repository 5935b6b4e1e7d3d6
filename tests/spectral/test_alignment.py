"""Rotations onto a frame: the best one, directions that nothing determines, fidelity and price."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import orthogonal_procrustes
from scipy.stats import special_ortho_group

from streamembed.spectral import alignment


def random_rotation(c: int, seed: int) -> np.ndarray:
    return np.asarray(special_ortho_group.rvs(c, random_state=seed)) if c > 1 else np.eye(1)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 8), st.integers(0, 10_000), st.integers(0, 8))
def test_rotations_are_orthogonal_whatever_the_overlap(c: int, seed: int, rank: int) -> None:
    """Also of an overlap without full rank, which constant columns and few shared slots make."""
    rng = np.random.default_rng(seed)
    rank = min(rank, c)
    overlap = rng.standard_normal((c, rank)) @ rng.standard_normal((rank, c))
    rotation = alignment.find_rotation(overlap)
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(c), atol=1e-10)


def test_it_is_the_best_rotation() -> None:
    """By scipy's own Procrustes, on data that were rotated, mirrored and disturbed."""
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((50, 5)) * [5.0, 3.0, 2.0, 1.0, 0.5]
    frame = columns @ random_rotation(5, 1) @ np.diag([1, 1, -1, 1, 1])
    frame += 0.1 * rng.standard_normal(frame.shape)
    expected = orthogonal_procrustes(columns, frame)[0]
    np.testing.assert_allclose(alignment.find_rotation(columns.T @ frame), expected, atol=1e-10)


def test_blocks_do_not_mix() -> None:
    """At the end of an epoch the first k are turned among themselves, and so are the spares."""
    overlap = np.random.default_rng(3).standard_normal((5, 5))
    rotation = alignment.find_block_rotation(overlap, 2)
    assert not rotation[:2, 2:].any()
    assert not rotation[2:, :2].any()
    np.testing.assert_allclose(rotation[:2, :2], alignment.find_rotation(overlap[:2, :2]))


def test_fidelity_is_its_definition_at_any_scale() -> None:
    """1 without movement, 0 where all is new; of coordinates of 1e200 as of 1."""
    rng = np.random.default_rng(4)
    before, weights = rng.standard_normal((30, 3)), rng.random(30)
    after = before + 0.3 * rng.standard_normal((30, 3))
    expected = 1.0 - (weights @ ((after - before) ** 2)).sum() / (weights @ before**2).sum()
    for unit in (1.0, 1e200, 1e-200):
        found = alignment.measure_fidelity(unit * after, unit * before, weights)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert alignment.measure_fidelity(before, before, weights) == 1.0
    assert alignment.measure_fidelity(after, np.zeros_like(after), weights) == 0.0
