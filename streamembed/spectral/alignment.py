"""Steady axes: one orthogonal matrix turns coordinates onto those of an earlier frame.

Eigenvectors come with arbitrary signs, near-equal eigenvalues turn among themselves with every
sample, and where two cross they trade places. The eigenpairs are left as they are; what is shown
is Y Q, of which Q changes no distance within the columns that it mixes.

Symbols: Y = coordinates by eigenpairs (n, c), R = the frame's columns on the same points, p = the
weights of these points, M = Y^T diag(p) R; Q = the polar factor of M minimises sum p |y Q - r|^2.

Source: Schoenemann (1966), "A generalized solution of the orthogonal Procrustes problem".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamembed.numeric.arrays import Floats

# Singular values of an overlap below this share of the first determine no direction.
NEGLIGIBLE = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class FrameMovement:
    """How far the k shown columns are from those of an earlier frame."""

    fidelity: float  # see `measure_fidelity`
    price: float  # see `measure_price`
    correlations: Floats  # (k,): with the frame's, over the points that are in both


def choose_signs(columns: Floats) -> Floats:
    """Signs, shape (c,), that make the largest entry of each column positive."""
    if not len(columns):
        return np.ones(columns.shape[1])
    rows = np.argmax(np.abs(columns), axis=0)
    return np.where(columns[rows, np.arange(columns.shape[1])] < 0, -1.0, 1.0)


def correlate_matching_columns(columns: Floats, others: Floats) -> Floats:
    """Correlations of the same columns of two maps over the same points, shape (k,).

    Columns that are constant in one of the two count as 1.
    """
    left, right = _centre_columns(columns), _centre_columns(others)
    lengths = np.sqrt(_sum_products(left, left) * _sum_products(right, right))
    return np.divide(
        _sum_products(left, right), lengths, where=lengths > 0.0, out=np.ones(len(lengths))
    )


def _sum_products(columns: Floats, others: Floats) -> Floats:
    sums: Floats = np.einsum("ij,ij->j", columns, others)
    return sums


def _centre_columns(columns: Floats) -> Floats:
    """Without their means, in units of their largest entries; 0 where a column is constant."""
    largest = np.abs(columns).max(axis=0, initial=0.0)  # squares of large entries overflow
    scaled: Floats = columns / np.where(largest > 0.0, largest, 1.0)
    if len(scaled):
        scaled -= scaled.mean(axis=0)
    return scaled


def find_rotation(overlap: Floats) -> Floats:
    """The orthogonal Q (c, c) that maximises trace(Q^T M): the polar factor of M (c, c).

    Directions that M does not determine stay as near to the identity as they can.
    """
    left, values, right = np.linalg.svd(overlap)
    kept = values > NEGLIGIBLE * values[:1].max(initial=0.0)
    rotation: Floats = left @ right
    if not kept.all():
        rotation = left[:, kept] @ right[kept]
        free_left, free_right = left[:, ~kept], right[~kept].T
        turn_left, _, turn_right = np.linalg.svd(free_left.T @ free_right)
        rotation += free_left @ (turn_left @ turn_right) @ free_right.T
    return rotation


def find_block_rotation(overlap: Floats, k: int) -> Floats:
    """As `find_rotation`, but the first k columns mix only with one another, as do the others."""
    rotation = np.zeros_like(overlap)
    for block in (slice(0, k), slice(k, len(overlap))):
        rotation[block, block] = find_rotation(overlap[block, block])
    return rotation


def measure_fidelity(columns: Floats, others: Floats, weights: Floats) -> float:
    """f = 1 - sum w |y - r|^2 / sum w |r|^2 of the same points: 1 where nothing has moved."""
    unit = max(float(np.abs(others).max(initial=0.0)), float(np.abs(columns).max(initial=0.0)))
    if unit == 0.0 or not weights.any():
        return 1.0
    change, before = (columns - others) / unit, others / unit
    total = float(weights @ (before**2).sum(axis=1))
    return 1.0 - float(weights @ (change**2).sum(axis=1)) / total if total > 0.0 else 0.0


def measure_price(spreads: Floats, rotation: Floats) -> float:
    """Share of the spread of the first k coordinates that the k shown columns do not have.

    Parameters
    ----------
    spreads
        Weighted sum of squares of every column of Y, which are orthogonal, shape (c,), descending.
    rotation
        The first k columns of Q, shape (c, k).
    """
    most = float(spreads[: rotation.shape[1]].sum())
    shown = float(spreads @ (rotation**2).sum(axis=1))
    return max(0.0, 1.0 - shown / most) if most > 0.0 else 0.0
