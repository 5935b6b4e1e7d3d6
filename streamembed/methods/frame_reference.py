"""Stable axes: the state's frame, and the alignment of snapshots with it.

The frame is renewed at stream positions (`renew`, from the engine's push), never by who asks
for a snapshot; a snapshot is turned towards the frame it finds (`turn`): reading stays pure.
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

__all__ = ["Turned", "estimate_normalisation", "follow", "is_comparable", "renew", "turn", "view"]

# Residual, relative to lambda_1, that columns may have for the sake of keeping still where no
# tolerance says so; the plain view's own is about the same.
FREE_BUDGET = 4e-3
# Eigenvalues closer than this, relative to the first, are one eigenvalue to rounding.
EQUAL = 1e-10
# Radians by which columns may turn back towards eigenfunctions per chunk: 3 degrees.
TURN_PER_CHUNK = np.deg2rad(3.0)
# Eigenfunctions that have turned this far since the frame was taken (30 degrees) are near the 90
# at which it could no longer tell their signs: the frame is then renewed with every chunk.
RESTLESS = np.deg2rad(30.0)
# Axes of one epoch: each column's correlation with what it was, over the points that are left. Two
# snapshots of one epoch may be that far from it on either side, so that theirs is 0.9 or near it.
USABLE = 0.95
LEAST_SHARED = 10


@dataclass(frozen=True, slots=True, eq=False)
class Turned:
    """A rotation towards the frame, and its effect.

    Attributes
    ----------
    rotation : (c, c)
        The columns to publish are psi @ rotation.
    displacement : float
        Root mean square (pi-weighted, shared slots) of what it took out of the eigenfunctions,
        beyond signs and bases of near-equal eigenvalues, which are arbitrary.
    movement : float
        The same of what is left between the turned columns and the frame's.
    lag : float
        Radians between the eigenfunctions and the frame's columns, signs and clusters apart.
    """

    rotation: Floats
    displacement: float
    movement: float
    lag: float


def turn(
    state: State,
    config: Config,
    normal: Normalisation,
    psi: Floats,
    residuals: Residuals,
    hold: bool = True,
) -> Turned:
    """Align the columns ``psi`` (n, c) with the state's frame, as far as the residuals allow.

    Without ``hold`` nothing is mixed: the columns only take the frame's signs.
    """
    c = psi.shape[1]
    old = state.frame.columns
    if psi is old:  # the frame was renewed with this very chunk, and is what is to be published
        return Turned(np.eye(c), state.frame.displacement, state.frame.movement, 0.0)
    level = min(c, old.shape[1])
    weights = normal.stationary[: len(old)] * (
        state.frame.births == state.support.births[: len(old)]
    )  # pi on the slots that still hold what they held when the frame was taken, 0 elsewhere
    if level == 0 or np.count_nonzero(weights) <= level:
        signs = np.diag(alignment.canonical_signs(psi))
        return Turned(signs, 0.0, 0.0, 0.0)
    weighted = psi[: len(old)] * weights[:, None]
    overlap = np.eye(c)
    overlap[:level, :level] = weighted[:, :level].T @ old[:, :level]
    k = min(config.n_components, c)
    largest_norm = float(np.sqrt(np.maximum(np.diag(residuals.gram)[:k].max(), 0.0)))
    budget = float(residuals.values[0]) * _budget(config)
    chunks = (state.position - state.frame.position) / config.chunk_size
    limit = max(budget, largest_norm)
    # a following column that is less exact than what is published must not mix with it
    mixing = k if c > k and residuals.gram[k, k] > limit**2 else c
    mixing = mixing if hold else 0
    runs = certificate.near_equal(residuals.values[:mixing], 0.1 * (limit - largest_norm))
    runs += [range(i, i + 1) for i in range(mixing, c)]
    turn = alignment.align(
        overlap,
        residuals,
        runs,
        k,
        limit,
        TURN_PER_CHUNK * chunks if hold else np.inf,
    )
    rotation = turn.rotation[:, :k]
    inner = weighted.T @ psi[: len(old)]  # Gram matrices give the distances without the points
    change = turn.near[:, :k] - rotation
    removed = np.einsum("ij,ij->", change, inner @ change)
    kept = min(k, level)
    shown = rotation[:, :kept]
    before = (old[:, :kept] ** 2).sum(axis=1) @ weights
    moved = np.einsum("ij,ij->", shown, inner @ shown) - 2 * np.einsum(
        "ij,ij->", shown[:level], overlap[:level, :kept]
    )
    share = weights.sum() * k
    return Turned(
        turn.rotation,
        float(np.sqrt(max(removed, 0.0) / share)),
        float(np.sqrt(max(moved + before, 0.0) / share)),
        turn.lag,
    )


def renew(state: State, config: Config, epoch: int | None = None) -> FrameReference:
    """The frame of ``state``: its plain view, aligned with the previous frame.

    Parameters
    ----------
    epoch
        Given where the axes start anew, with signs that make the largest entries positive.
    """
    normal = estimate_normalisation(state, config)
    values, psi = view(state, normal, config.n_components + 1)
    births = state.support.births
    if epoch is not None:
        # in one memory layout, as after loading: products with another differ in their last bits
        signed = np.ascontiguousarray(psi * alignment.canonical_signs(psi))
        nothing = False, 0.0, 0.0
        return FrameReference(
            signed, values, births, state.position, epoch, *nothing, signed, births
        )
    unit = gram.unit_of(values) if state.is_centred else 1.0
    residuals = Residuals.none(values / unit)
    turned = turn(state, config, normal, psi, residuals)
    columns = np.ascontiguousarray(psi @ turned.rotation)
    epoch, anchor, held = _epoch_of(state.frame, columns, births, config.n_components)
    return FrameReference(
        columns,
        alignment.turned_residuals(residuals, turned.rotation)[0] * unit,
        births,
        state.position,
        epoch,
        bool(turned.lag > RESTLESS),
        turned.displacement,
        turned.movement,
        anchor,
        held,
    )


def follow(
    state: State, config: Config, columns: Floats, eigenvalues: Floats, epoch: int
) -> FrameReference:
    """A frame of functions: for a state whose slots have nothing to do with those before.

    Parameters
    ----------
    columns
        Eigenfunctions of another state, extended to the points of this one, (n, k).
    """
    births = state.support.births
    # as if they were taken a chunk ago: what is published may turn back by a few degrees
    position = state.position - config.chunk_size
    moved = False, 0.0, 0.0
    return FrameReference(columns, eigenvalues, births, position, epoch, *moved, columns, births)


def is_comparable(columns: Floats, others: Floats) -> bool:
    """Whether columns (n, k) still say of the same points what others said: one epoch."""
    return bool(alignment.agreement(columns, others).min(initial=1.0) >= USABLE)


def _epoch_of(
    before: FrameReference, columns: Floats, births: Ints, k: int
) -> tuple[int, Floats, Ints]:
    """The epoch of new columns, and what later ones are compared with.

    It is raised where a published column no longer says of the points that are left what it said:
    where it has turned or faded too far. What is compared with is renewed with every half of the
    support, so that there are points left.
    """
    anchor, held = before.anchor, before.anchor_births
    shared = np.flatnonzero(births[: len(held)] == held)
    if len(shared) < LEAST_SHARED:
        return before.epoch, columns, births
    level = min(k, columns.shape[1], anchor.shape[1])
    found = alignment.agreement(columns[shared, :level], anchor[shared, :level])
    if found.min(initial=1.0) < USABLE:
        return before.epoch + 1, columns, births
    if len(shared) < 0.5 * len(held):
        return before.epoch, columns, births
    return before.epoch, anchor, held


def view(state: State, normal: Normalisation, count: int) -> tuple[Floats, Floats]:
    """Values and psi, shape (n, c), of the first ``count`` pairs as the state has them."""
    if state.sparse is not None:
        return neighbor_graph.view(state, count)
    if state.rebuilt is not None:
        return alignment_matrix.view(state, count)
    if state.is_centred:
        return gram.view(state, count)
    root = operator.root_of(state.factor, normal)
    values, vectors = operator.leading_pairs(root, normal, count)
    return values, normal.eigenfunctions(vectors)


def estimate_normalisation(state: State, config: Config) -> Normalisation:
    """The normalisation according to the factor, without a product with the ring.

    That of a sparse walk is exact.
    """
    if state.sparse is not None:
        return neighbor_graph.normalisation(state)
    if state.is_centred or state.rebuilt is not None:
        return gram.normalisation(state)
    factor, masses = state.factor, state.support.masses

    def product(x: Floats) -> Floats:
        return operator.estimate_product(factor, x)

    normalise = config.embedding.normalise
    return normalise(state.degrees, masses, config.correction, product, EVERYWHERE)


def _budget(config: Config) -> float:
    """Residual, relative to lambda_1, that columns may have for the sake of keeping still.

    With memory "all" nothing but equality is given up: that is the mode for oracles, which must
    equal the batch answer. Otherwise a share of the tolerance, which bounds the eigenvalues too.
    """
    if config.memory == "all":
        return EQUAL
    return FREE_BUDGET if config.tolerance is None else TOLERANCE_SHARE * config.tolerance
