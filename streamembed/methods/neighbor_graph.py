"""The sparse room: embeddings of a graph of neighbours, from kept lists to certified pairs.

The walk on the graph is made anew with every chunk, from lists that are kept; its leading pairs are
kept in a block, which one round of a filter follows (`streamembed.spectral.block`). No n x n ring
is held. A random vector looks for what the block does not know (`streamembed.spectral.lanczos`); a
count of pivots (`streamembed.spectral.inertia`) proves it now and then.

Source: Jain, section 1.1; Belkin & Niyogi (2003), "Laplacian eigenmaps". Differs: see
`streamembed.spectral.neighbor_walk`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from streamembed.geometry.lists import Edges, Lists
from streamembed.geometry.pairwise import Pairwise
from streamembed.geometry.support import Support
from streamembed.methods.eigenpairs import LARGEST_EXACT, SMALLEST_FACTORED, Pairs, bound_following
from streamembed.methods.options import Config
from streamembed.methods.state import Sparse, State
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.linalg import descending_eigh
from streamembed.spectral import block as blocks
from streamembed.spectral import inertia
from streamembed.spectral.block import Block
from streamembed.spectral.certificate import Outside
from streamembed.spectral.lanczos import bound_largest
from streamembed.spectral.operator import Normalisation, deflate

__all__ = ["build", "climb", "count_missed", "normalisation", "update", "view"]

# Share of the tolerance that the block keeps to after every chunk: the rest is for the frame.
KEPT_SHARE = 0.6
USUAL_TOLERANCE = 3e-3
# Tolerances below this need a block in float64.
SINGLE = 1e-4
# Slots refilled, as a share of n, after which the least eigenvalue is looked for again; and after
# which eigenvalues are counted, in supports up to so many points: beyond, the fill of the factors
# may take more than all the rest.
LOW_SHARE, COUNT_SHARE, LARGEST_COUNTED = 0.5, 0.1, 5000
# Rounds of the rungs after the view.
RUNGS = {"polish": 2, "refresh": 6, "batch": 40}
# Products with S lose this much at most: sums of a hundred terms in doubles.
ROUNDING = 1e-12
# Eigenvalues up to this are rounding; there is nothing to publish beside the constant.
NOTHING = 1e-13
# Parts up to which their basis is held as dense columns.
FEW = 32
# Between what a later eigenvalue must stay below and what is published after the last: where probes
# look for silence. And how much of that room the residuals of guards may take.
AIM, SMOOTH = 0.3, 0.1
# Products of a search for what the block does not know, at most.
PRODUCTS = 500


def build(
    support: Support, lists: Lists | None, edges: Edges | None, scale: float, config: Config
) -> Sparse:
    """The room of a support that nothing is known of."""
    sparse = Sparse.of(support.masses, lists, edges, config.weights, scale)
    dtype = np.float64 if _tolerance(config) < SINGLE else np.float32
    count, accuracy = config.n_components + 1, KEPT_SHARE * _tolerance(config)
    block, _ = blocks.start(sparse.walk, sparse.parts, count, accuracy, config.seed, dtype)
    return replace(sparse, block=block)


def update(
    state: State, held: Support, slots: Ints, near: Pairwise, position: int, config: Config
) -> tuple[Sparse, Lists | None]:
    """Room and lists after a chunk that filled ``slots`` and ended at ``position``."""
    assert state.sparse is not None
    room, lists, edges, n = state.sparse, state.lists, state.sparse.edges, len(held)
    if len(slots):
        if lists is not None:
            lists, _ = lists.replace(slots, near, held.births)
        if edges is not None:
            edges = edges.replace(slots, near)
    after = Sparse.of(held.masses, lists, edges, room.weights, room.scale)
    walk, parts, count = after.walk, after.parts, config.n_components + 1
    accuracy = KEPT_SHARE * _tolerance(config)
    known = room.block
    low_rows, count_rows = room.low_rows + len(slots), room.count_rows + len(slots)
    if low_rows >= LOW_SHARE * n:
        known, low_rows = replace(known, low=blocks.lowest(walk, config.seed)), 0
    block, _ = blocks.update(known, walk, parts, slots, count, accuracy, config.seed, position)
    counted, missed = room.counted, room.missed
    if count_rows >= COUNT_SHARE * n and n <= LARGEST_COUNTED:
        counted, count_rows = position, 0
        missed = _count(after, block, config)
        if missed != 0:
            draw = (config.seed, position, n, 1)
            block, _ = blocks.refine(block, walk, parts, count, 0.5 * accuracy, draw)
            missed = _count(after, block, config)
    room = replace(
        after,
        block=block,
        low_rows=low_rows,
        count_rows=count_rows,
        counted=counted,
        missed=missed,
    )
    return room, lists


def normalisation(state: State) -> Normalisation:
    """That of the walk: its degrees are the rows' sums, exactly; isolated points have no share."""
    assert state.sparse is not None
    degrees, masses = state.sparse.walk.degrees, state.support.masses
    scaling = np.divide(masses, np.sqrt(degrees), out=np.zeros_like(masses), where=degrees > 0)
    total = float(degrees.sum())
    stationary = degrees / total if total else np.zeros_like(degrees)
    return Normalisation(np.ones_like(masses), scaling, stationary)


def view(state: State, count: int) -> tuple[Floats, Floats]:
    """Values and psi, shape (n, c), of the first ``count`` pairs as the block has them."""
    assert state.sparse is not None
    room = state.sparse
    found = blocks.measure(room.block, room.walk, room.parts, count)
    kept = found.values > NOTHING
    normal = normalisation(state)
    return found.values[kept], normal.eigenfunctions(found.vectors[:, kept])


def climb(state: State, config: Config) -> Iterator[Pairs]:
    """The rungs of this room: the block as it is, after more rounds, and all pairs at once."""
    assert state.sparse is not None
    room, n, count = state.sparse, len(state.support), config.n_components + 1
    if n <= SMALLEST_FACTORED:
        yield _decompose(state, config)
        return
    yield _look(state, room.block, config, "view")
    if config.tolerance is None:
        return
    block = room.block
    for attempt, (rung, rounds) in enumerate(RUNGS.items()):
        draw = (config.seed, state.position, n, 2 + attempt)
        accuracy = (0.3, 0.1, 0.03)[attempt] * config.tolerance
        block, _ = blocks.refine(block, room.walk, room.parts, count, accuracy, draw, rounds)
        yield _look(state, block, config, rung)
    if n <= LARGEST_EXACT:
        yield _decompose(state, config)


def count_missed(state: State, values: Floats, psi: Floats, config: Config) -> int | None:
    """Whether an eigenvalue above the published ones is missing, by a count; see `inertia`."""
    assert state.sparse is not None
    operator = state.sparse.walk.operator
    known = values > NOTHING
    if not known.any():
        return None
    vectors = (normalisation(state).constant[:, None] * psi)[:, known]
    errors = operator @ vectors - vectors * values[known]
    error = float(np.linalg.norm(errors, 2))
    space = _tolerance(config) * float(values[0])
    return inertia.missed(operator, values[known], 1, error, space).missed


def _count(room: Sparse, block: Block, config: Config) -> int | None:
    """The same of a block."""
    found = blocks.measure(block, room.walk, room.parts, config.n_components)
    if not len(found.values):
        return None
    error = float(np.linalg.norm(found.errors, 2))
    space = _tolerance(config) * float(found.values[0])
    return inertia.missed(room.walk.operator, found.values, 1, error, space).missed


def _tolerance(config: Config) -> float:
    return USUAL_TOLERANCE if config.tolerance is None else config.tolerance


def _look(state: State, block: Block, config: Config, rung: str) -> Pairs:
    """A block's pairs, measured in float64, and what probes heard of the rest where they fit."""
    assert state.sparse is not None
    walk, parts, k = state.sparse.walk, state.sparse.parts, config.n_components
    width = max(k + 1, block.psi.shape[1] + min(parts.count - 1, k + 1))
    found = blocks.measure(block, walk, parts, width)
    kept = min(k + 1, int(np.count_nonzero(found.values > NOTHING)))
    outside = Outside(float(found.values[k]) if kept > k else 0.0, 1.0, found.values[:k])
    pairs = Pairs(
        found.values[:kept],
        found.vectors[:, :kept],
        found.errors[:, :kept],
        outside,
        normalisation(state),
        ROUNDING,
        rung,
    )
    if config.tolerance is None or not pairs.fits(config) or parts.count - 1 > found.exact:
        return pairs  # with more parts than are shown, the next eigenvalue is 1
    level = pairs.level(config)
    target = level - AIM * (level - outside.known)
    errors, values = found.errors, found.values
    norms2 = np.einsum("ij,ij->j", errors, errors)
    # guards that are still so rough would hide what they are not orthogonal to
    told = norms2 <= SMOOTH * np.maximum(level - values, 0.0) * (level - target)
    told[: k + 1] = True
    vectors, errors, values = found.vectors[:, told], errors[:, told], values[told]
    own = vectors[:, found.exact :]

    known = np.concatenate([parts.basis.toarray(), own], axis=1) if parts.count <= FEW else own

    def rest_of(columns: Floats) -> Floats:
        rest = columns - known @ (known.T @ columns)
        return rest if parts.count <= FEW else parts.deflate(rest[:, None])[:, 0]

    draw = np.random.default_rng((config.seed, state.position, len(known)))
    beyond = bound_largest(
        lambda column: rest_of(walk.operator @ column),
        rest_of(draw.standard_normal(len(known))),
        target,
        PRODUCTS,
    )
    image = errors + vectors * values
    return replace(pairs, outside=bound_following(vectors, image, beyond, k, ROUNDING))


def _decompose(state: State, config: Config) -> Pairs:
    """Every pair at once. O(n^3)."""
    assert state.sparse is not None
    normal, count = normalisation(state), config.n_components + 1
    dense = state.sparse.walk.operator.toarray()
    dense -= np.outer(normal.constant, normal.constant)
    values, vectors = descending_eigh(dense)
    kept = min(count, int(np.count_nonzero(values > NOTHING)))
    chosen = deflate(vectors[:, :kept], normal.constant)
    errors = dense @ chosen - chosen * values[:kept]
    shown = min(kept, config.n_components)
    following = float(values[shown:].max(initial=0.0))
    outside = Outside(following, following, values[:shown])
    return Pairs(values[:kept], chosen, errors, outside, normal, ROUNDING, "exact")
