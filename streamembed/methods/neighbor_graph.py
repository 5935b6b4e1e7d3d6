"""Embeddings of a graph of neighbours, from retained lists to certified pairs.

The walk on the graph is computed with every chunk from retained lists. Its leading pairs are
kept in a block, which one round of a filter follows (`streamembed.spectral.block`). There is no
n x n ring. A random vector bounds what the block lacks (`streamembed.spectral.lanczos`); a
count of pivots (`streamembed.spectral.inertia`) proves it now and then.

Source: Jain, section 1.1; Belkin & Niyogi (2003), "Laplacian eigenmaps". Differs: see
`streamembed.spectral.neighbor_walk`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from streamembed.geometry.lists import NeighborLists, RadiusEdges
from streamembed.geometry.pairwise import Pairwise
from streamembed.geometry.support import Support
from streamembed.methods import linear_projection
from streamembed.methods.eigenpairs import (
    LARGEST_EXACT,
    SMALLEST_FACTORED,
    Eigenpairs,
    bound_following,
)
from streamembed.methods.options import Config
from streamembed.methods.state import GraphMap, State
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.linalg import descending_eigh
from streamembed.spectral import block as blocks
from streamembed.spectral import inertia
from streamembed.spectral.block import Block
from streamembed.spectral.certificate import Outside
from streamembed.spectral.lanczos import bound_largest
from streamembed.spectral.operator import Normalisation, deflate

# Share of the tolerance that the block keeps to after every chunk.
BLOCK_TOLERANCE_SHARE = 0.6
USUAL_TOLERANCE = 3e-3
# Tolerances below this need a block in float64.
SINGLE = 1e-4
# Slots refilled, as a share of n, after which the least eigenvalue is computed again; and after
# which eigenvalues are counted, in supports up to this many points: beyond, the fill of the
# factors may take more than all the rest.
LOW_SHARE, COUNT_SHARE, LARGEST_COUNTED = 0.5, 0.1, 5000
# Rounds of each refinement level after the view.
LEVELS = {"polish": 2, "refresh": 6, "batch": 40}
# Products with S lose this much at most: sums of a hundred terms in doubles.
ROUNDING = 1e-12
# Eigenvalues up to this are rounding; there is nothing to publish beside the constant.
NEGLIGIBLE = 1e-13
# Parts up to which their basis is a dense array.
FEW = 32
# Where the search bound lies between the limit on a later eigenvalue and the next published one.
# And the share of that interval that residuals of guards may take.
AIM, SMOOTH = 0.3, 0.1
# Products of a search for eigenvalues that the block lacks, at most.
PRODUCTS = 500


def build(
    support: Support,
    lists: NeighborLists | None,
    edges: RadiusEdges | None,
    scale: float,
    config: Config,
) -> GraphMap:
    """The map of a support from scratch."""
    sparse = GraphMap.of(support.masses, lists, edges, config.weights, scale)
    if config.embedding.linear:
        return replace(sparse, axes=linear_projection.find_axes(support))
    dtype = np.float64 if _choose_tolerance(config) < SINGLE else np.float32
    count, accuracy = config.n_components + 1, BLOCK_TOLERANCE_SHARE * _choose_tolerance(config)
    block, _ = blocks.start(sparse.walk, sparse.parts, count, accuracy, config.seed, dtype)
    return replace(sparse, block=block)


def update(
    state: State, support: Support, slots: Ints, geometry: Pairwise, position: int, config: Config
) -> tuple[GraphMap, NeighborLists | None]:
    """Map and lists after a chunk that filled ``slots`` and ended at ``position``."""
    assert state.sparse is not None
    previous, lists, edges, n = state.sparse, state.lists, state.sparse.edges, len(support)
    if len(slots):
        if lists is not None:
            lists, _ = lists.replace(slots, geometry, support.births)
        if edges is not None:
            edges = edges.replace(slots, geometry)
    following = GraphMap.of(support.masses, lists, edges, previous.weights, previous.scale)
    if previous.axes is not None:
        return replace(following, axes=previous.axes), lists
    walk, parts, count = following.walk, following.parts, config.n_components + 1
    accuracy = BLOCK_TOLERANCE_SHARE * _choose_tolerance(config)
    start_block = previous.block
    low_rows, count_rows = previous.low_rows + len(slots), previous.count_rows + len(slots)
    if low_rows >= LOW_SHARE * n:
        start_block, low_rows = replace(start_block, low=blocks.find_lowest(walk, config.seed)), 0
    block, _ = blocks.update(
        start_block, walk, parts, slots, count, accuracy, seed=config.seed, position=position
    )
    counted, missed = previous.counted, previous.missed
    if count_rows >= COUNT_SHARE * n and n <= LARGEST_COUNTED:
        counted, count_rows = position, 0
        missed = _count_missing(following, block, config)
        if missed != 0:
            seed = (config.seed, position, n, 1)
            block, _ = blocks.refine(block, walk, parts, count, 0.5 * accuracy, seed)
            missed = _count_missing(following, block, config)
    following = replace(following, block=block, low_rows=low_rows, count_rows=count_rows)
    return replace(following, counted=counted, missed=missed), lists


def compute_normalisation(state: State) -> Normalisation:
    """That of the walk: its degrees are the rows' sums, exactly; isolated points have no share."""
    assert state.sparse is not None
    if state.sparse.axes is not None:
        return linear_projection.compute_normalisation(state.sparse, state.support.masses)
    degrees, masses = state.sparse.walk.degrees, state.support.masses
    scaling = np.divide(masses, np.sqrt(degrees), out=np.zeros_like(masses), where=degrees > 0)
    total = float(degrees.sum())
    stationary = degrees / total if total else np.zeros_like(degrees)
    return Normalisation(np.ones_like(masses), scaling, stationary)


def view(state: State, count: int) -> tuple[Floats, Floats]:
    """Values and psi, shape (n, c), of the first ``count`` pairs as the block has them."""
    assert state.sparse is not None
    graph = state.sparse
    if graph.axes is not None:
        pairs = linear_projection.solve(state, count, count)
        return pairs.values, pairs.normal.eigenfunctions(pairs.vectors)
    ritz = blocks.measure(graph.block, graph.walk, graph.parts, count)
    is_real = ritz.values > NEGLIGIBLE
    normal = compute_normalisation(state)
    return ritz.values[is_real], normal.eigenfunctions(ritz.vectors[:, is_real])


def refine(state: State, config: Config) -> Iterator[Eigenpairs]:
    """Leading pairs, level by level: the block as it is, after more rounds, all pairs at once."""
    assert state.sparse is not None
    graph, n, count = state.sparse, len(state.support), config.n_components + 1
    if graph.axes is not None:
        yield linear_projection.solve(state, config.n_components, config.n_pairs)
        return
    if n <= SMALLEST_FACTORED:
        yield _decompose(state, config)
        return
    yield _measure_block(state, graph.block, config, "view")
    if config.tolerance is None:
        return
    block = graph.block
    for attempt, (level, rounds) in enumerate(LEVELS.items()):
        seed = (config.seed, state.position, n, 2 + attempt)
        accuracy = (0.3, 0.1, 0.03)[attempt] * config.tolerance
        block, _ = blocks.refine(block, graph.walk, graph.parts, count, accuracy, seed, rounds)
        yield _measure_block(state, block, config, level)
    if n <= LARGEST_EXACT:
        yield _decompose(state, config)


def count_missed(state: State, values: Floats, psi: Floats, config: Config) -> int | None:
    """Whether an eigenvalue above the published ones is missing, by a count; see `inertia`."""
    assert state.sparse is not None
    operator = state.sparse.walk.operator
    is_real = values > NEGLIGIBLE
    if not is_real.any():
        return None
    vectors = (compute_normalisation(state).constant[:, None] * psi)[:, is_real]
    errors = operator @ vectors - vectors * values[is_real]
    error = float(np.linalg.norm(errors, 2))
    tolerance = _choose_tolerance(config) * float(values[0])
    return inertia.count_missing(operator, values[is_real], 1, error, tolerance).missed


def _count_missing(graph: GraphMap, block: Block, config: Config) -> int | None:
    """The same of a block."""
    ritz = blocks.measure(block, graph.walk, graph.parts, config.n_components)
    if not len(ritz.values):
        return None
    error = float(np.linalg.norm(ritz.errors, 2))
    tolerance = _choose_tolerance(config) * float(ritz.values[0])
    return inertia.count_missing(graph.walk.operator, ritz.values, 1, error, tolerance).missed


def _choose_tolerance(config: Config) -> float:
    return USUAL_TOLERANCE if config.tolerance is None else config.tolerance


def _measure_block(state: State, block: Block, config: Config, refinement: str) -> Eigenpairs:
    """A block's pairs, measured in float64, and a bound on the rest if they meet the tolerance."""
    assert state.sparse is not None
    walk, parts, k = state.sparse.walk, state.sparse.parts, config.n_components
    width = max(config.n_pairs, block.psi.shape[1] + min(parts.count - 1, k + 1))
    ritz = blocks.measure(block, walk, parts, width)
    n_kept = min(config.n_pairs, int(np.count_nonzero(ritz.values > NEGLIGIBLE)))
    outside = Outside(float(ritz.values[k]) if n_kept > k else 0.0, 1.0, ritz.values[:k])
    pairs = Eigenpairs(
        ritz.values[:n_kept],
        ritz.vectors[:, :n_kept],
        ritz.errors[:, :n_kept],
        outside,
        compute_normalisation(state),
        ROUNDING,
        refinement,
    )
    if (
        config.tolerance is None
        or not pairs.meets_tolerance(config)
        or parts.count - 1 > ritz.exact
    ):
        return pairs  # with more parts than are shown, the next eigenvalue is 1
    limit = pairs.outside_limit(config)
    target = limit - AIM * (limit - outside.estimate)
    errors, values = ritz.errors, ritz.values
    norms2 = np.einsum("ij,ij->j", errors, errors)
    # rough guards would hide modes that they are not orthogonal to
    is_used = norms2 <= SMOOTH * np.maximum(limit - values, 0.0) * (limit - target)
    is_used[: k + 1] = True
    vectors, errors, values = ritz.vectors[:, is_used], errors[:, is_used], values[is_used]
    basis = vectors[:, ritz.exact :]
    if parts.count <= FEW:
        basis = np.concatenate([parts.basis.toarray(), basis], axis=1)

    def project_out(columns: Floats) -> Floats:
        rest = columns - basis @ (basis.T @ columns)
        return rest if parts.count <= FEW else parts.deflate(rest[:, None])[:, 0]

    generator = np.random.default_rng((config.seed, state.position, len(basis)))
    beyond = bound_largest(
        lambda column: project_out(walk.operator @ column),
        project_out(generator.standard_normal(len(basis))),
        target,
        PRODUCTS,
    )
    image = errors + vectors * values
    return replace(pairs, outside=bound_following(vectors, image, beyond, k, ROUNDING))


def _decompose(state: State, config: Config) -> Eigenpairs:
    """Every pair at once. O(n^3)."""
    assert state.sparse is not None
    normal, count = compute_normalisation(state), config.n_pairs
    dense = state.sparse.walk.operator.toarray()
    dense -= np.outer(normal.constant, normal.constant)
    values, vectors = descending_eigh(dense)
    n_kept = min(count, int(np.count_nonzero(values > NEGLIGIBLE)))
    leading = deflate(vectors[:, :n_kept], normal.constant)
    errors = dense @ leading - leading * values[:n_kept]
    n_shown = min(n_kept, config.n_components)
    following = float(values[n_shown:].max(initial=0.0))
    outside = Outside(following, following, values[:n_shown])
    return Eigenpairs(values[:n_kept], leading, errors, outside, normal, ROUNDING, "exact")
