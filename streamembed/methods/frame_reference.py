"""Stable axes: the state's frame, and the alignment of snapshots with it.

The frame is renewed at stream positions (`renew`, from the engine's push), never by a call that
asks for a snapshot. A snapshot is turned towards the frame of its state (`align`): reading stays
pure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamembed.methods import alignment_matrix, gram, neighbor_graph
from streamembed.methods.options import TOLERANCE_SHARE, Config
from streamembed.methods.registry import EVERYWHERE
from streamembed.methods.state import FrameReference, State
from streamembed.numeric.arrays import Floats, Ints
from streamembed.spectral import alignment, certificate, operator
from streamembed.spectral.alignment import Residuals
from streamembed.spectral.operator import Normalisation

# Residual, relative to lambda_1, that columns may have for the sake of keeping still where no
# tolerance is set; the plain view's own is about the same.
DEFAULT_BUDGET = 4e-3
# Eigenvalues closer than this, relative to the first, are one eigenvalue to rounding.
EQUAL = 1e-10
# Radians by which columns may turn back towards eigenfunctions per chunk: 3 degrees.
TURN_PER_CHUNK = np.deg2rad(3.0)
# Eigenfunctions that have turned this far since the frame was taken (30 degrees) are near the 90
# at which it no longer determines their signs: the frame is then renewed with every chunk.
UNSTABLE_ANGLE = np.deg2rad(30.0)
# Axes of one epoch: each column's correlation with its earlier values, over the points that remain.
# Two snapshots of one epoch may be that far from it on either side, so that theirs is 0.9 or near
# it.
USABLE = 0.95
LEAST_SHARED = 10


@dataclass(frozen=True, slots=True, eq=False)
class FrameAlignment:
    """A rotation towards the frame, and its effect."""

    rotation: Floats  # (c, c): the columns to publish are psi @ rotation
    # Root mean square (pi-weighted, shared slots) of the part that it removed from the
    # eigenfunctions, beyond signs and bases of near-equal eigenvalues, which are arbitrary.
    displacement: float
    # The same of the difference that remains between the turned columns and the frame's.
    movement: float
    # Radians between the eigenfunctions and the frame's columns, signs and clusters apart.
    lag: float


def align(
    state: State,
    config: Config,
    normal: Normalisation,
    psi: Floats,
    residuals: Residuals,
    mix: bool = True,
) -> FrameAlignment:
    """Align the columns ``psi`` (n, c) with the state's frame, as far as the residuals allow.

    Without ``mix`` the columns only take the frame's signs.
    """
    c = psi.shape[1]
    old = state.frame.columns
    if psi is old:  # the frame was renewed with this chunk, and is published
        return FrameAlignment(np.eye(c), state.frame.displacement, state.frame.movement, 0.0)
    level = min(c, old.shape[1])
    weights = normal.stationary[: len(old)] * (
        state.frame.births == state.support.births[: len(old)]
    )  # pi on the slots that still hold the same event as when the frame was taken, 0 elsewhere
    if level == 0 or np.count_nonzero(weights) <= level:
        signs = np.diag(alignment.choose_signs(psi))
        return FrameAlignment(signs, 0.0, 0.0, 0.0)
    weighted = psi[: len(old)] * weights[:, None]
    overlap = np.eye(c)
    overlap[:level, :level] = weighted[:, :level].T @ old[:, :level]
    k = min(config.n_components, c)
    largest_norm = float(np.sqrt(np.maximum(np.diag(residuals.gram)[:k].max(), 0.0)))
    budget = float(residuals.values[0]) * _choose_budget(config)
    chunks = (state.position - state.frame.position) / config.chunk_size
    limit = max(budget, largest_norm)
    # a following column that is less exact than the published ones must not mix with them
    mixing = k if c > k and residuals.gram[k, k] > limit**2 else c
    mixing = mixing if mix else 0
    runs = certificate.find_clusters(residuals.values[:mixing], 0.1 * (limit - largest_norm))
    runs += [range(i, i + 1) for i in range(mixing, c)]
    rotation_plan = alignment.align(
        overlap, residuals, runs, k, limit, TURN_PER_CHUNK * chunks if mix else np.inf
    )
    rotation = rotation_plan.rotation[:, :k]
    inner = weighted.T @ psi[: len(old)]  # Gram matrices give the distances without the points
    change = rotation_plan.near[:, :k] - rotation
    removed = np.einsum("ij,ij->", change, inner @ change)
    n_compared = min(k, level)
    rotated = rotation[:, :n_compared]
    previous_square = (old[:, :n_compared] ** 2).sum(axis=1) @ weights
    movement = np.einsum("ij,ij->", rotated, inner @ rotated) - 2 * np.einsum(
        "ij,ij->", rotated[:level], overlap[:level, :n_compared]
    )
    share = weights.sum() * k
    return FrameAlignment(
        rotation_plan.rotation,
        float(np.sqrt(max(removed, 0.0) / share)),
        float(np.sqrt(max(movement + previous_square, 0.0) / share)),
        rotation_plan.lag,
    )


def renew(state: State, config: Config, epoch: int | None = None) -> FrameReference:
    """The frame of ``state``: its plain view, aligned with the previous frame.

    Parameters
    ----------
    epoch
        Given where the axes start from scratch, with signs that make the largest entries positive.
    """
    normal = estimate_normalisation(state, config)
    values, psi = view(state, normal, config.n_components + 1)
    positions = state.support.births
    if epoch is not None:
        # in one memory layout, as after loading: products with another differ in their last bits
        signed = np.ascontiguousarray(psi * alignment.choose_signs(psi))
        return FrameReference.of(signed, values, positions, state.position, epoch)
    unit = gram.choose_unit(values) if state.is_centred else 1.0
    residuals = Residuals.none(values / unit)
    turned = align(state, config, normal, psi, residuals)
    columns = np.ascontiguousarray(psi @ turned.rotation)
    epoch, anchor, anchor_positions = _choose_epoch(
        state.frame, columns, positions, config.n_components
    )
    return FrameReference(
        columns=columns,
        eigenvalues=alignment.rotate_residuals(residuals, turned.rotation)[0] * unit,
        births=positions,
        position=state.position,
        epoch=epoch,
        restless=bool(turned.lag > UNSTABLE_ANGLE),
        displacement=turned.displacement,
        movement=turned.movement,
        anchor=anchor,
        anchor_births=anchor_positions,
    )


def adopt_columns(
    state: State, config: Config, columns: Floats, eigenvalues: Floats, epoch: int
) -> FrameReference:
    """A frame of functions: for a state whose slots have nothing to do with those before.

    Parameters
    ----------
    columns
        Eigenfunctions of another state, extended to the points of this one, (n, k).
    """
    # as if they were taken a chunk ago: published columns may turn back by a few degrees
    position = state.position - config.chunk_size
    return FrameReference.of(columns, eigenvalues, state.support.births, position, epoch)


def is_comparable(columns: Floats, others: Floats) -> bool:
    """Whether columns (n, k) agree with ``others`` on the same points: one epoch."""
    return bool(alignment.correlate_columns(columns, others).min(initial=1.0) >= USABLE)


def _choose_epoch(
    previous: FrameReference, columns: Floats, positions: Ints, k: int
) -> tuple[int, Floats, Ints]:
    """The epoch of new columns, and the columns to compare later ones with.

    It is raised where a published column has turned or faded too far to agree with its earlier
    values on the points that remain. The columns to compare with are renewed with every half of
    the support, so that points remain.
    """
    anchor, anchor_positions = previous.anchor, previous.anchor_births
    shared = np.flatnonzero(positions[: len(anchor_positions)] == anchor_positions)
    if len(shared) < LEAST_SHARED:
        return previous.epoch, columns, positions
    level = min(k, columns.shape[1], anchor.shape[1])
    correlations = alignment.correlate_columns(columns[shared, :level], anchor[shared, :level])
    if correlations.min(initial=1.0) < USABLE:
        return previous.epoch + 1, columns, positions
    if len(shared) < 0.5 * len(anchor_positions):
        return previous.epoch, columns, positions
    return previous.epoch, anchor, anchor_positions


def view(state: State, normal: Normalisation, count: int) -> tuple[Floats, Floats]:
    """Values and psi, shape (n, c), of the first ``count`` pairs as the state has them."""
    if state.sparse is not None:
        return neighbor_graph.view(state, count)
    if state.rebuilt is not None:
        return alignment_matrix.view(state, count)
    if state.is_centred:
        return gram.view(state, count)
    root = operator.compute_root(state.factor, normal)
    values, vectors = operator.leading_pairs(root, normal, count)
    return values, normal.eigenfunctions(vectors)


def estimate_normalisation(state: State, config: Config) -> Normalisation:
    """The normalisation according to the factor, without a product with the ring.

    That of a sparse walk is exact.
    """
    if state.sparse is not None:
        return neighbor_graph.compute_normalisation(state)
    if state.is_centred or state.rebuilt is not None:
        return gram.compute_normalisation(state)
    factor, masses = state.factor, state.support.masses

    def product(x: Floats) -> Floats:
        return operator.estimate_product(factor, x)

    normalise = config.embedding.normalise
    return normalise(state.degrees, masses, config.correction, product, EVERYWHERE)


def _choose_budget(config: Config) -> float:
    """Residual, relative to lambda_1, that columns may have for the sake of keeping still.

    With memory "all" nothing but equality is given up: that is the mode for oracles, which must
    equal the batch answer. Otherwise a share of the tolerance, which bounds the eigenvalues too.
    """
    if config.memory == "all":
        return EQUAL
    return DEFAULT_BUDGET if config.tolerance is None else TOLERANCE_SHARE * config.tolerance
