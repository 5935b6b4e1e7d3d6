"""Axes that keep still: new columns are turned towards the last frame, never past the certificate.

Eigenvectors come with arbitrary signs, and with an arbitrary basis inside clusters of near-equal
eigenvalues; where two eigenvalues cross, their eigenfunctions trade places. A frame takes these
movements out of consecutive snapshots:

1. the polar factor of the overlap with the old columns is the rotation that keeps most still;
2. the polar factors of the blocks of the overlap that belong to clusters of near-equal new
   eigenvalues (for a cluster of one: the sign) lead to columns that are eigenfunctions, up to
   those clusters;
3. bounded un-rotation: from the first towards the second by no more than a few degrees per chunk,
   so that columns return to eigenfunctions without a jump;
4. all of it only as far as the residual of the turned columns stays under its limit.

Symbols: psi = columns (n, c) with sum(pi psi^2) = 1, M = psi_new^T diag(pi) psi_old on shared
slots, R = the rotation, new columns = psi R.

Source: docs/algorithms/frames.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import schur

from streamembed.numeric.arrays import Floats

# Halvings in the search for the least turn whose residual fits: a 64th of it, half a degree of 30.
BISECTIONS = 6


@dataclass(frozen=True, slots=True, eq=False)
class Residuals:
    """Enough to compute the residual of any rotation of a few orthonormal columns V."""

    values: Floats  # (c,): Rayleigh quotients lambda of the columns
    cross: Floats  # (c, c): V^T E, E = S V - V diag(lambda)
    gram: Floats  # (c, c): E^T E

    @classmethod
    def none(cls, values: Floats) -> Residuals:
        """Columns that count as exact eigenvectors."""
        c = len(values)
        return cls(values, np.zeros((c, c)), np.zeros((c, c)))


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """A rotation of new columns towards a frame."""

    rotation: Floats  # (c, c): orthogonal R
    # Radians by which the columns are still off eigenfunctions (beyond clusters and signs).
    angle: float
    # Radians between eigenfunctions and the frame: what ``angle`` would be without any limit.
    lag: float
    # (c, c): what leads to the nearest eigenfunctions: only signs, and bases within clusters.
    near: Floats


def choose_signs(columns: Floats) -> Floats:
    """Signs, shape (c,), that make the largest entry of each column positive."""
    rows = np.argmax(np.abs(columns), axis=0)
    return np.where(columns[rows, np.arange(columns.shape[1])] < 0, -1.0, 1.0)


def correlate_columns(columns: Floats, others: Floats) -> Floats:
    """Correlations of the same columns of two maps over the same points, shape (k,).

    Columns that are constant in one of the two count as 1.
    """
    left, right = columns - columns.mean(axis=0), others - others.mean(axis=0)
    spread = np.sqrt((left**2).sum(axis=0) * (right**2).sum(axis=0))
    correlations: Floats = np.einsum("ij,ij->j", left, right) / np.where(spread > 0, spread, 1.0)
    return np.where(spread > 0, correlations, 1.0)


def fit_isotonic(values: Floats) -> Floats:
    """The nearest descending sequence (pool adjacent violators).

    Inside a cluster that is kept still the Rayleigh quotients may come in the wrong order by less
    than the tolerance; the published eigenvalues are descending all the same.

    Examples
    --------
    >>> import numpy as np
    >>> fit_isotonic(np.array([3.0, 1.0, 2.0])).tolist()
    [3.0, 1.5, 1.5]
    """
    if (np.diff(values) <= 0).all():
        return values
    means: list[float] = []
    counts: list[int] = []
    for value in values:
        means.append(float(value))
        counts.append(1)
        while len(means) > 1 and means[-2] < means[-1]:
            total = counts[-2] + counts[-1]
            means[-2:] = [(means[-2] * counts[-2] + means[-1] * counts[-1]) / total]
            counts[-2:] = [total]
    return np.repeat(means, counts)


def rotate_residuals(residuals: Residuals, rotation: Floats) -> tuple[Floats, Floats, Floats]:
    """Published eigenvalues and residuals of the turned columns V R, without touching V.

    Returns
    -------
    values, norms, gram
        Shapes (p,), (p,), (p, p) for a rotation of shape (c, p): isotonic Rayleigh quotients in
        [0, 1], residual norms with those values, and the Gram matrix of the residual columns.
        O(c^3).
    """
    mixed = residuals.values[:, None] * rotation + residuals.cross @ rotation
    # as they are published: descending, and within the spectrum of a Markov operator from 0 on
    values = np.clip(fit_isotonic(np.einsum("ij,ij->j", rotation, mixed)), 0.0, 1.0)
    # S V R - V R diag(mu) = V D + E R with D = diag(lambda) R - R diag(mu)
    shift = residuals.values[:, None] * rotation - rotation * values
    cross = shift.T @ residuals.cross @ rotation
    gram = shift.T @ shift + cross + cross.T + rotation.T @ residuals.gram @ rotation
    return values, np.sqrt(np.maximum(np.diag(gram), 0.0)), gram


def align(
    overlap: Floats,
    residuals: Residuals,
    clusters: list[range],
    published: int,
    limit: float,
    largest_turn: float,
) -> Turn:
    """The rotation that keeps the published columns as still as the limits allow.

    Parameters
    ----------
    overlap
        M, shape (c, c): new columns against old ones on the shared slots, pi-weighted.
    residuals
        Of the new columns, for the limit.
    clusters
        Runs of near-equal new eigenvalues.
    published
        How many leading columns must keep within ``limit``.
    limit
        Largest residual norm of a turned column (absolute).
    largest_turn
        Radians by which columns may turn back towards eigenfunctions.

    Returns
    -------
    O(c^3).
    """
    still = _polar(overlap)
    nearest = _nearest_by_blocks(overlap, clusters)

    def fits_limit(turned: Floats) -> bool:
        norms = rotate_residuals(residuals, turned)[1]
        return bool(norms[:published].max() <= limit)

    # mixing costs too much here: signs alone
    if len(clusters) < len(still) and not fits_limit(nearest):
        clusters = [range(i, i + 1) for i in range(len(still))]
        nearest = _nearest_by_blocks(overlap, clusters)
    planes, basis = _rotation_planes(still.T @ _reachable(nearest, still, clusters))
    angle = max((abs(theta) for theta, _, _ in planes), default=0.0)
    share = 1.0 if angle <= largest_turn else largest_turn / angle

    def rotation(part: float) -> Floats:
        return nearest if part == 1.0 else still @ _partial_rotation(planes, basis, part)

    if share < 1.0 and not fits_limit(rotation(share)):
        low, share = share, 1.0
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + share)
            low, share = (low, middle) if fits_limit(rotation(middle)) else (middle, share)
    return Turn(rotation(share), (1.0 - share) * angle, angle, nearest)


def _polar(matrix: Floats) -> Floats:
    """The nearest orthogonal matrix."""
    left, _, right = np.linalg.svd(matrix)
    polar: Floats = left @ right
    return polar


def _nearest_by_blocks(overlap: Floats, clusters: list[range]) -> Floats:
    """The nearest orthogonal matrix that mixes inside clusters only."""
    nearest = np.diag(np.where(np.diag(overlap) < 0, -1.0, 1.0))
    for run in clusters:
        if len(run) > 1:  # of one column the sign is all there is
            span = slice(run.start, run.stop)
            nearest[span, span] = _polar(overlap[span, span])
    return nearest


def _reachable(nearest: Floats, still: Floats, clusters: list[range]) -> Floats:
    """``nearest``, or where no rotation leads there, with its least certain direction turned round.

    On a path that ended in the other determinant a column would be led backwards for ever.
    """
    if np.linalg.det(still) * np.linalg.det(nearest) > 0:
        return nearest
    spans = [slice(run.start, run.stop) for run in clusters]
    certain = [np.linalg.svd(still[span, span] @ nearest[span, span].T) for span in spans]
    last = min(range(len(spans)), key=lambda block: certain[block][1][-1])
    direction = certain[last][0][:, -1]
    turned = nearest.copy()
    turned[spans[last]] -= 2.0 * np.outer(direction, direction @ nearest[spans[last]])
    return turned


def _rotation_planes(rotation: Floats) -> tuple[list[tuple[float, int, int]], Floats]:
    """Angles and planes of a proper rotation: (theta, i, j) in the columns of the basis."""
    block, basis = schur(rotation, output="real")
    planes = []
    flipped = []  # eigenvalues -1 come one by one; two of them are a half turn
    i = 0
    while i < len(block):
        if i + 1 < len(block) and abs(block[i + 1, i]) > 1e-12:
            planes.append((float(np.arctan2(block[i + 1, i], block[i, i])), i, i + 1))
            i += 2
            continue
        if block[i, i] < 0:
            flipped.append(i)
        i += 1
    planes += [(np.pi, a, b) for a, b in zip(flipped[::2], flipped[1::2], strict=False)]
    return planes, basis


def _partial_rotation(planes: list[tuple[float, int, int]], basis: Floats, share: float) -> Floats:
    """The rotation by ``share`` of every angle: share 0 is the identity, 1 the whole."""
    block = np.eye(len(basis))
    for theta, i, j in planes:
        c, s = np.cos(share * theta), np.sin(share * theta)
        block[i, i], block[i, j], block[j, i], block[j, j] = c, -s, s, c
    return basis @ block @ basis.T
