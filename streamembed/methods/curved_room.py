"""The room of Isomap: shortest paths on the graph of kept lists, and the centred rungs on them.

Of -G^2 / 2 a chunk changes 5 to 40 % of all entries, so that no factor can be bordered: a block of
its leading pairs is kept from one refresh to the next, two products each, and every snapshot climbs
the rungs of `streamembed.methods.centred_room` from there.

With numba (the extra ``fast``) all rows are repaired exactly with every chunk. Without, only rows
and columns of new points are put in; a snapshot takes a few rows afresh to see how stale the others
are, and all of them where that is more than `LARGEST_STALENESS`.

Parts: coordinates are those of the largest part of the graph; all other points have zeros and no
mass. No edge is invented between parts.

Source: Tenenbaum, de Silva & Langford (2000), "A global geometric framework for nonlinear
dimensionality reduction". Differs: the policy for parts; weighted points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from streamembed.geometry.lists import Edges, Lists
from streamembed.geometry.pairwise import Pairwise
from streamembed.geometry.ring import Graph
from streamembed.geometry.support import Support
from streamembed.manifold import geodesics as paths
from streamembed.manifold import geodesics_numba as compiled
from streamembed.manifold.geodesics import SAMPLE, Geodesics
from streamembed.methods import centred_room
from streamembed.methods.centred_room import Known
from streamembed.methods.config import Config
from streamembed.methods.pairs import Pairs
from streamembed.methods.state import Curved, State
from streamembed.numeric.arrays import Floats, Ints
from streamembed.spectral import tracker
from streamembed.spectral.certificate import Certificate
from streamembed.spectral.tracker import Factor

__all__ = ["build", "climb", "has_moved", "tell", "update"]

# Mean relative error of lengths above which a snapshot takes all rows afresh.
LARGEST_STALENESS = 5e-3
# Slots refilled, as a share of n, after which the block is refreshed (as often as the frame), and,
# without a compiler, all rows of the state are taken afresh.
REFRESH_SHARE, REFRESH_ROWS, FRESH_SHARE = 0.02, 20, 0.1
# Random columns of a refresh; and the share of the block in the largest part, below which it is
# that of another part.
PROBES, MOVED = 2, 0.5


def build(held: Support, near: Pairwise, config: Config) -> tuple[Curved, Lists | None]:
    """The room of a support that nothing is known of, with its lists or edges."""
    lists = edges = None
    if config.radius is not None:
        edges = Edges.build(near, config.radius**2)
    else:
        lists = Lists.build(near, held.births, config.n_neighbors)
    graph = _graph_of(lists, edges, len(held))
    geodesics = _fresh(graph)
    labels = _parts(graph, held)
    factor = _start(_matrix(geodesics, labels), 0, config)
    return Curved(geodesics, labels, factor, edges, 0, 0), lists


def update(
    state: State, held: Support, slots: Ints, near: Pairwise, config: Config
) -> tuple[Curved, Lists | None]:
    """Room and lists after a chunk that filled ``slots``."""
    assert state.curved is not None
    room, lists, edges, n = state.curved, state.lists, state.curved.edges, len(held)
    if len(slots) == 0:
        return room, lists
    before = _graph_of(lists, edges, len(room.labels))
    if lists is not None:
        lists, _ = lists.replace(slots, near, held.births)
    if edges is not None:
        edges = edges.replace(slots, near)
    graph = _graph_of(lists, edges, n)
    stale = room.stale + len(slots)
    if compiled.available:
        geodesics, stale = compiled.repair(room.geodesics, before, graph, slots), 0
    elif stale >= FRESH_SHARE * n:
        geodesics, stale = _fresh(graph), 0
    else:
        geodesics = paths.patch(room.geodesics, graph, slots)
    labels, rows = _parts(graph, held), room.rows + len(slots)
    factor = _refill(room.factor, slots, graph)
    inside = float((factor.vectors[labels == 0] ** 2).sum())
    if inside < MOVED * float((factor.vectors**2).sum()):  # another part is the largest now
        factor, rows = _start(_matrix(geodesics, labels), state.position, config), 0
    elif rows >= max(REFRESH_SHARE * n, min(REFRESH_ROWS, 2 * REFRESH_SHARE * n)):
        factor = _refresh(factor, _matrix(geodesics, labels), state.position, config)
        rows = 0
    return Curved(geodesics, labels, factor, edges, rows, stale), lists


def has_moved(state: State) -> bool:
    """Whether another part of the graph has the coordinates than when the frame was taken."""
    room, frame = state.curved, state.frame
    if room is None:
        return False
    n, here = len(frame.births), np.asarray(room.labels == 0)
    same = np.asarray(frame.births == state.support.births[:n])
    then = np.asarray(frame.columns.any(axis=1))
    masses = state.support.masses[:n]
    held, shared = same & here[:n], same & here[:n] & then
    # what is new says nothing; of what has stayed, most must have been in the map
    gone = bool(then[same].any()) and float(masses[same & then].sum()) > 0
    return gone and float(masses[shared].sum()) < 0.5 * float(masses[held].sum())


def climb(state: State, config: Config) -> Iterator[Pairs]:
    """The centred rungs on -G^2 / 2, of paths that are fresh enough."""
    assert state.curved is not None
    geodesics, _ = _published(state, config)
    matrix = _matrix(geodesics, state.curved.labels)
    at = Known(matrix, state.curved.factor, state.counting, state.position)
    yield from centred_room.climb(at, config)


def tell(certificate: Certificate, state: State, config: Config) -> tuple[Certificate, Floats]:
    """The certificate with what it says of paths and parts, and the lengths that were used."""
    assert state.curved is not None
    geodesics, stale = _published(state, config)
    apart = int(np.count_nonzero(state.curved.labels))
    return replace(certificate, stale=stale, isolated=apart), geodesics.lengths


def _published(state: State, config: Config) -> tuple[Geodesics, float]:
    """Paths for a snapshot, and how stale they are."""
    room = state.curved
    assert room is not None
    if room.stale == 0:
        return room.geodesics, 0.0
    graph, n = _graph_of(state.lists, room.edges, len(room.labels)), len(room.labels)
    draw = np.random.default_rng((config.seed, state.position, n))
    sources = np.sort(draw.choice(n, min(SAMPLE, n), replace=False))
    stale = paths.staleness(room.geodesics, graph, sources)
    if stale <= LARGEST_STALENESS:
        return room.geodesics, stale
    return _fresh(graph), 0.0


def _fresh(graph: csr_array) -> Geodesics:
    return compiled.build(graph) if compiled.available else Geodesics.build(graph)


def _graph_of(lists: Lists | None, edges: Edges | None, n: int) -> csr_array:
    if edges is not None:
        return paths.graph_of_edges(edges.i, edges.j, edges.d2, n)
    assert lists is not None
    k = lists.n_neighbors
    return paths.graph_of(lists.near[:, :k], lists.d2[:, :k])


def _parts(graph: csr_array, held: Support) -> Ints:
    return paths.parts(graph, held.births)


def _matrix(geodesics: Geodesics, labels: Ints) -> Graph:
    """-G^2 / 2, with 0 for what has no part in the map."""
    lengths = geodesics.lengths
    if labels.any():
        here = labels == 0
        lengths = np.where(here[:, None] & here, lengths, 0.0)
    # a length there and back may differ in the last digit
    matrix = -0.25 * (lengths**2 + (lengths**2).T)
    return Graph.of(matrix, len(matrix))


def _refill(factor: Factor, slots: Ints, graph: csr_array) -> Factor:
    """The block with new slots at the mean of their neighbours."""
    n, r = graph.shape[0], factor.rank
    vectors = np.zeros((n, r))
    vectors[: len(factor.vectors)] = factor.vectors
    vectors[slots] = 0.0
    joined = graph[slots].astype(bool).astype(np.float64)
    counts = np.maximum(np.asarray(joined.sum(axis=1)).ravel(), 1.0)
    vectors[slots] = (joined @ vectors) / counts[:, None]
    return Factor(vectors, factor.values, np.ones(n))


def _start(matrix: Graph, position: int, config: Config) -> Factor:
    """From random columns: after three times two products a few digits are known."""
    n = matrix.n
    draw = np.random.default_rng((config.seed, position, n))
    block = draw.standard_normal((n, min(config.rank_cut.most, n)))
    factor = Factor(block, np.ones(block.shape[1]), np.ones(n))
    for _ in range(3):
        factor = _refresh(factor, matrix, position, config)
    return factor


def _refresh(factor: Factor, matrix: Graph, position: int, config: Config) -> Factor:
    """Two products; random columns find what the block does not know."""
    draw = np.random.default_rng((config.seed, position, matrix.n, 1))
    probes = draw.standard_normal((matrix.n, PROBES))
    cut = config.rank_cut
    return tracker.refresh(factor, factor.scaling, matrix.product, cut, 0.0, probes=probes)
