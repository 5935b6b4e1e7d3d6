"""Turning columns towards a frame: signs, clusters, bounded un-rotation, the limit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamembed.spectral import alignment
from streamembed.spectral.alignment import Residuals, correlate_columns
from streamembed.spectral.certificate import find_clusters


def plane_rotation(angle: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s], [s, c]])


def turn_of(
    overlap: np.ndarray,
    values: np.ndarray,
    spread: float = 1e-6,
    limit: float = np.inf,
    largest: float = 0.05,
) -> alignment.Turn:
    clusters = find_clusters(values, spread)
    return alignment.align(overlap, Residuals.none(values), clusters, len(values), limit, largest)


def test_signs_follow_the_frame() -> None:
    """Columns that only changed sign are changed back, without any rotation."""
    turn = turn_of(np.diag([1.0, -1.0, 1.0]), np.array([0.9, 0.5, 0.2]))
    np.testing.assert_allclose(turn.rotation, np.diag([1.0, -1.0, 1.0]), atol=1e-12)


def test_clusters_follow_the_frame_wholly() -> None:
    """Inside a cluster of equal eigenvalues any rotation is taken back, however large."""
    turn = turn_of(plane_rotation(1.2), np.array([0.5, 0.5]), spread=1e-3)
    np.testing.assert_allclose(turn.rotation, plane_rotation(1.2), atol=1e-12)


def test_distinct_eigenvalues_turn_back_slowly() -> None:
    """Outside clusters the columns stay with the frame but for the largest turn allowed."""
    turn = turn_of(plane_rotation(0.4), np.array([0.9, 0.5]), largest=0.05)
    np.testing.assert_allclose(turn.rotation, plane_rotation(0.35), atol=1e-12)
    assert turn.angle == pytest.approx(0.35)


def test_the_limit_comes_before_stillness() -> None:
    """A turn whose residual would pass the limit is given up as far as it must be."""
    values = np.array([0.9, 0.5])
    turn = turn_of(plane_rotation(0.4), values, limit=0.02, largest=0.0)
    _, norms, _ = alignment.rotate_residuals(Residuals.none(values), turn.rotation)
    assert 0.015 < norms.max() <= 0.02


def test_a_swap_of_columns_is_led_back_without_a_reflection() -> None:
    """However far columns have turned, a bounded way back keeps the determinant and ends.

    Once the sign of each column was taken from the old column assigned to it; where columns had
    swapped, that is a reflection, and a coordinate flipped by its whole size in one chunk.
    """
    for angle in (np.pi / 3, np.pi / 2, 2.0):
        left = plane_rotation(angle)
        for _ in range(60):
            turn = turn_of(left, np.array([0.9, 0.5]), largest=0.05)
            assert np.linalg.det(turn.rotation) == pytest.approx(1.0)
            assert np.linalg.norm(turn.rotation - left, 2) <= 0.0501  # a turn by 0.05 at most
            left = turn.rotation
        np.testing.assert_allclose(np.abs(left), np.eye(2), atol=1e-12)


def test_a_column_keeps_its_sign_where_others_change_wholly() -> None:
    """The sign is that of its own overlap, whatever the rotation of all columns makes of it."""
    overlap = np.array([[0.2, 0.2, 0.4], [0.4, 0.4, 0.6], [-0.1, -0.4, 0.5]])
    left, _, right = np.linalg.svd(overlap)
    assert (left @ right)[0, 0] < -0.5  # where the sign was taken from once
    turn = turn_of(overlap, np.array([0.9, 0.5, 0.1]), largest=np.inf)
    np.testing.assert_array_equal(turn.rotation, np.diag([1.0, 1.0, 1.0]))


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 8), st.integers(0, 10_000), st.floats(0.0, 0.5))
def test_rotations_are_orthogonal(c: int, seed: int, spread: float) -> None:
    """Whatever the overlap, what comes back is a rotation or reflection."""
    rng = np.random.default_rng(seed)
    values = np.sort(rng.random(c))[::-1]
    overlap = rng.standard_normal((c, c))
    rotation = turn_of(overlap, values, spread=spread, limit=0.1).rotation
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(c), atol=1e-10)


def test_turned_residuals_equal_the_definition() -> None:
    """Residuals of turned columns from small matrices are those of the columns themselves."""
    rng = np.random.default_rng(0)
    n, c = 60, 4
    operator = rng.standard_normal((n, n))
    operator = operator + operator.T
    vectors = np.linalg.qr(rng.standard_normal((n, c)))[0]
    values = np.einsum("ij,ij->j", vectors, operator @ vectors)
    errors = operator @ vectors - vectors * values
    residuals = Residuals(values, vectors.T @ errors, errors.T @ errors)
    rotation = np.linalg.qr(rng.standard_normal((c, c)))[0][:, :3]
    shown, norms, gram = alignment.rotate_residuals(residuals, rotation)
    turned = vectors @ rotation
    truth = operator @ turned - turned * shown
    np.testing.assert_allclose(norms, np.linalg.norm(truth, axis=0), rtol=1e-10)
    np.testing.assert_allclose(gram, truth.T @ truth, atol=1e-8)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=12))
def test_isotonic_is_descending_and_keeps_the_sum(values: list[float]) -> None:
    """Pooled eigenvalues descend; descending ones are left as they are."""
    pooled = alignment.fit_isotonic(np.array(values))
    assert (np.diff(pooled) <= 0).all()
    assert pooled.sum() == pytest.approx(sum(values), abs=1e-12)
    ordered = np.sort(values)[::-1]
    np.testing.assert_array_equal(alignment.fit_isotonic(ordered), ordered)


def test_agreement_is_the_correlation_of_each_column() -> None:
    """By numpy's own; of constant columns nothing is known."""
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal((2, 40, 3))
    other[:, 2] = 5.0
    found = correlate_columns(one, other)
    expected = [np.corrcoef(one[:, j], other[:, j])[0, 1] for j in range(2)]
    np.testing.assert_allclose(found[:2], expected)
    assert found[2] == 1.0
