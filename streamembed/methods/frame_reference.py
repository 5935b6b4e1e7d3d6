"""Steady axes: the frame of a state, and how coordinates are turned onto it.

Coordinates by eigenpairs are turned by one orthogonal matrix (`streamembed.spectral.alignment`)
onto those that the support had when the frame was taken. The eigenpairs and their certificate do
not change. With spare eigenpairs the plane that is shown is chosen among k + SPARES of them, so
that an eigenfunction which crosses the cut at k stays within reach.

The frame is renewed at stream positions (`renew`, from the engine's push), never by a call that
asks for a snapshot: reading stays pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from streamembed.methods.options import Config
from streamembed.methods.state import FrameReference, State
from streamembed.numeric.arrays import Floats
from streamembed.spectral import alignment
from streamembed.spectral.alignment import FrameMovement

# An epoch ends where the shown columns keep less than this of what they were, or where they have
# less of the spread of the first k than they should (docs/algorithms/frames.md).
LEAST_FIDELITY, LARGEST_PRICE = 0.95, 0.1
# An axis is lost where it correlates less with what it was in the epoch before.
LEAST_CORRELATION = 0.95


@dataclass(frozen=True, slots=True, eq=False)
class FrameAlignment:
    """Coordinates by eigenpairs, turned onto the frame.

    Attributes
    ----------
    columns : (n, c)
        All of them, Y Q; the first n_components are shown.
    rotation : (c, c)
        Q, for Y with these ``signs``.
    signs : (c,)
        Of eigenpairs: they make the largest entry of each row of Q positive.
    measure
        How far the shown columns have moved: it costs more than the rotation, and few ask.
    """

    columns: Floats
    rotation: Floats
    signs: Floats
    measure: Callable[[], FrameMovement]


def embed(psi: Floats, values: Floats, state: State, config: Config) -> Floats:
    """Coordinates by the carried eigenpairs, (n, n_carried), 0 where there are fewer."""
    c = config.n_carried
    m = min(c, psi.shape[1])
    columns = state.map.compute_coordinates(psi[:, :m], values[:m], state, config)
    if m < c:
        columns = np.concatenate([columns, np.zeros((len(psi), c - m))], axis=1)
    return np.asfortranarray(columns)  # for sums over points


def align(
    state: State,
    config: Config,
    stationary: Floats,
    columns: Floats,
    ends_epoch: bool = False,
) -> FrameAlignment:
    """Turn coordinates (n, n_carried) onto the state's frame.

    With ``ends_epoch`` the first k columns mix with one another only, and so do the spares.
    """
    k, c = config.n_components, columns.shape[1]
    frame, positions = state.frame, state.support.births
    m = len(frame.births)
    weights = np.where(frame.births == positions[:m], stationary[:m], 0.0)
    total = float(weights.sum())
    if not total > 0.0:
        signs = alignment.choose_signs(columns)
        nothing = FrameMovement(0.0 if m else 1.0, 0.0, np.zeros(k if m else 0))
        return FrameAlignment(columns * signs, np.eye(c), signs, lambda: nothing)
    overlap, width = np.zeros((c, c)), min(c, frame.columns.shape[1])
    largest = float(np.abs(columns).max()) or 1.0  # products are finite, and a scale turns nothing
    weighted = columns[:m].T * (weights / (total * largest))
    overlap[:, :width] = weighted @ frame.columns[:, :width]
    if not config.has_steady_axes:
        rotation = np.diag(np.where(np.diag(overlap) < 0.0, -1.0, 1.0))  # no columns mix
    elif ends_epoch:
        rotation = alignment.find_block_rotation(overlap, k)
    else:
        rotation = alignment.find_rotation(overlap)
    signs = alignment.choose_signs(rotation.T)
    turned = columns @ rotation

    def measure() -> FrameMovement:
        shared = np.flatnonzero(weights)
        shown, before = turned[shared, :k], np.zeros((len(shared), k))
        before[:, :width] = frame.columns[shared, :k]
        return FrameMovement(
            alignment.measure_fidelity(shown, before, weights[shared] / total),
            alignment.measure_price(stationary @ (columns / largest) ** 2, rotation[:, :k]),
            alignment.correlate_matching_columns(shown, before),
        )

    return FrameAlignment(turned, signs[:, None] * rotation, signs, measure)


def renew(state: State, config: Config, starts_epoch: bool = False) -> FrameReference:
    """The frame of ``state``: its plain view, turned onto the frame before.

    An epoch ends where the shown columns have changed too much or have become too small a part of
    the leading plane, and with ``starts_epoch``. They are then the first k again, turned as near to
    the frame as can be.
    """
    normal = state.map.compute_normalisation(state, config)
    values, psi = state.map.estimate_eigenpairs(state, normal, config.n_carried, config)
    columns = embed(psi, values, state, config)
    previous, aligned = state.frame, None
    if not starts_epoch:
        aligned = align(state, config, normal.stationary, columns)
        moved = aligned.measure()
        starts_epoch = moved.fidelity < LEAST_FIDELITY or moved.price > LARGEST_PRICE
    if starts_epoch:
        aligned = align(state, config, normal.stationary, columns, ends_epoch=True)
        moved = aligned.measure()
    assert aligned is not None
    lost, since = find_lost_axes(moved.correlations), previous.kept_since
    renewed = (state.position,) * config.n_components
    kept = tuple(state.position if j in lost else since[j] for j in range(len(since)))
    if not starts_epoch:
        lost = tuple(sorted({*previous.lost, *lost}))
    return FrameReference(
        columns=np.ascontiguousarray(aligned.columns),
        births=state.support.births,
        position=state.position,
        epoch=previous.epoch + starts_epoch,
        since=state.position if starts_epoch else previous.since,
        lost=lost,
        kept_since=kept or renewed,
        fidelity=moved.fidelity,
        correlations=tuple(moved.correlations.tolist()),
    )


def find_lost_axes(correlations: Floats) -> tuple[int, ...]:
    """Axes that are not what they were, by the correlation of each with itself."""
    return tuple(np.flatnonzero(correlations < LEAST_CORRELATION).tolist())


def adopt_columns(state: State, columns: Floats, epoch: int) -> FrameReference:
    """A frame of given coordinates (n, k): for a state whose slots have nothing to do with others.

    They are those of another state, extended to the points of this one.
    """
    return FrameReference(
        columns=columns,
        births=state.support.births,
        position=state.position,
        epoch=epoch,
        since=state.position,
        kept_since=(state.position,) * columns.shape[1],
    )
