"""The room of Isomap: shortest paths on the graph of kept lists, and the centred rungs on them.

Of -G^2 / 2 a chunk changes 5 to 40 % of all entries, so that no factor can be bordered: a block of
its leading pairs is kept from one refresh to the next, two products each, and every snapshot climbs
the rungs of `streamembed.methods.gram` from there.

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
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array

from streamembed.geometry.kernel_matrix import Graph
from streamembed.geometry.lists import Edges, Lists
from streamembed.geometry.pairwise import Pairwise
from streamembed.geometry.support import Support
from streamembed.manifold import geodesics as paths
from streamembed.manifold import geodesics_numba as compiled
from streamembed.manifold.geodesics import SAMPLE, Geodesics
from streamembed.methods import gram
from streamembed.methods.eigenpairs import Pairs
from streamembed.methods.gram import Known
from streamembed.methods.options import Config
from streamembed.methods.placement import project
from streamembed.methods.state import Curved, State
from streamembed.numeric.arrays import Floats, Ints
from streamembed.spectral import tracker
from streamembed.spectral.certificate import Certificate
from streamembed.spectral.tracker import Factor

__all__ = [
    "Paths",
    "build",
    "climb",
    "describe",
    "has_moved",
    "landmarks_of",
    "place_rest",
    "read",
    "update",
]

# Mean relative error of lengths above which a snapshot takes all rows afresh.
LARGEST_STALENESS = 5e-3
# Slots refilled, as a share of n, after which the block is refreshed (as often as the frame), and,
# without a compiler, all rows of the state are taken afresh.
REFRESH_SHARE, REFRESH_ROWS, FRESH_SHARE = 0.02, 20, 0.1
# Random columns of a refresh; and the share of the block in the largest part, below which it is
# that of another part.
PROBES, MOVED = 2, 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """What a snapshot shows of paths.

    Attributes
    ----------
    lengths : (n, w)
        From every slot; inf between parts.
    ends : (w,)
        To these slots: all, or the landmarks that have a part in the map.
    """

    lengths: Floats
    ends: Ints


def build(held: Support, near: Pairwise, config: Config) -> tuple[Curved, Lists | None]:
    """The room of a support that nothing is known of, with its lists or edges."""
    lists = edges = None
    if config.radius is not None:
        edges = Edges.build(near, config.radius**2)
    else:
        lists = Lists.build(near, held.births, config.n_neighbors)
    graph = _graph_of(lists, edges, len(held))
    sources = landmarks_of(len(held), config)
    geodesics, labels = _fresh(graph, sources), _parts(graph, held, sources)
    factor = _start(geodesics, labels, 0, config)
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
    stale, sources = room.stale + len(slots), landmarks_of(n, config)
    if compiled.available:
        geodesics, stale = compiled.repair(room.geodesics, before, graph, slots, sources), 0
    elif sources is not None or stale >= FRESH_SHARE * n:
        geodesics, stale = _fresh(graph, sources), 0
    else:
        geodesics = paths.patch(room.geodesics, graph, slots)
    labels, rows = _parts(graph, held, sources), room.rows + len(slots)
    factor = _refill(room.factor, slots, graph)
    inside = float((factor.vectors[labels == 0] ** 2).sum())
    known = room.geodesics.slots
    other = sources is not None and not np.array_equal(sources, known)
    if other or inside < MOVED * float((factor.vectors**2).sum()):  # another part, other landmarks
        factor, rows = _start(geodesics, labels, state.position, config), 0
    elif rows >= max(REFRESH_SHARE * n, min(REFRESH_ROWS, 2 * REFRESH_SHARE * n)):
        if sources is not None:
            factor = _start(geodesics, labels, state.position, config)
        else:
            factor = _refresh(factor, _matrix(geodesics, labels), state.position, config)
        rows = 0
    return Curved(geodesics, labels, factor, edges, rows, stale), lists


def has_moved(state: State) -> bool:
    """Whether another part of the graph has the coordinates than when the frame was taken."""
    room, frame = state.curved, state.frame
    if room is None:
        return False
    n, here = len(frame.births), state.counting > 0
    same = np.asarray(frame.births == state.support.births[:n])
    then = np.asarray(frame.columns.any(axis=1))
    masses = state.support.masses[:n]
    held, shared = same & here[:n], same & here[:n] & then
    # what is new says nothing; of what has stayed, most must have been in the map
    gone = bool(then[same].any()) and float(masses[same & then].sum()) > 0
    return gone and float(masses[shared].sum()) < 0.5 * float(masses[held].sum())


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What a snapshot is made of.

    Attributes
    ----------
    geodesics : Geodesics
        Fresh enough.
    stale : float
        See `Certificate.stale`.
    at : Known
        -G^2 / 2 between the sources of these paths.
    """

    geodesics: Geodesics
    stale: float
    at: Known


def read(state: State, config: Config) -> Reading:
    """Paths for a snapshot, and the matrix they make."""
    assert state.curved is not None
    geodesics, stale = _published(state, config)
    matrix, factor, masses = _matrix(geodesics, state.curved.labels), state.factor, state.counting
    if (sources := geodesics.sources) is not None:
        factor = replace(factor, vectors=factor.vectors[sources], scaling=factor.scaling[sources])
        masses = masses[sources]
    return Reading(geodesics, stale, Known(matrix, factor, masses, state.position))


def climb(reading: Reading, state: State, config: Config) -> Iterator[Pairs]:
    """The centred rungs on -G^2 / 2."""
    sources = reading.geodesics.sources
    if sources is None:
        yield from gram.climb(reading.at, config)
        return
    found, n = gram.decompose(reading.at, config), len(state.support)
    vectors, errors = (_spread(part, sources, n) for part in (found.vectors, found.errors))
    normal = gram.normalisation(state)  # and no rung above: the rows are few
    yield replace(found, vectors=vectors, errors=errors, normal=normal, rung="view")


def describe(certificate: Certificate, reading: Reading, state: State) -> tuple[Certificate, Paths]:
    """The certificate with what it says of paths and parts, and the lengths that were used."""
    assert state.curved is not None
    geodesics = reading.geodesics
    apart = int(np.count_nonzero(state.curved.labels))
    described = replace(certificate, stale=reading.stale, isolated=apart)
    if geodesics.sources is None:
        return described, Paths(paths.shown(geodesics.lengths), geodesics.slots)
    ends = np.flatnonzero(state.counting)
    rows = np.searchsorted(geodesics.sources, ends)
    return described, Paths(paths.shown(geodesics.lengths[rows].T), ends)


def place_rest(coordinates: Floats, eigenvalues: Floats, counting: Floats, paths: Paths) -> Floats:
    """``coordinates`` (n, k) of landmarks, and of all others that they reach by their paths.

    Every point that counts keeps its own; with paths between all points nothing is placed.

    Source: de Silva & Tenenbaum (2003), "Global versus local methods in nonlinear dimensionality
    reduction".
    """
    if len(paths.ends) == len(counting):
        return coordinates
    rest = (counting == 0) & np.isfinite(paths.lengths).all(axis=1)
    masses = counting[paths.ends]
    values = np.where(eigenvalues > 0, eigenvalues, np.inf)
    targets = masses[:, None] * coordinates[paths.ends] / values
    shares, rows = masses / masses.sum(), -0.5 * paths.lengths**2
    mean_row = shares @ rows[paths.ends]
    result = coordinates.copy()
    result[rest] = project(rows[rest], mean_row, shares, targets)
    return result


def landmarks_of(n: int, config: Config) -> Ints | None:
    """Slots whose rows of paths are kept, at most ``n_landmarks``; None for all.

    Every so many slots one: of a window that is a sample of all times, and a slot stays a landmark
    whatever it holds.
    """
    most = config.n_landmarks
    return None if most is None or n <= most else np.arange(0, n, -(-n // most))


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


def _fresh(graph: csr_array, sources: Ints | None = None) -> Geodesics:
    if compiled.available:
        return compiled.build(graph, sources)
    return Geodesics.build(graph, sources)


def _spread(block: Floats, sources: Ints, n: int) -> Floats:
    """Rows (m, c) of landmarks as rows of all slots, (n, c)."""
    result = np.zeros((n, block.shape[1]))
    result[sources] = block
    return result


def _graph_of(lists: Lists | None, edges: Edges | None, n: int) -> csr_array:
    if edges is not None:
        return paths.graph_of_edges(edges.i, edges.j, edges.d2, n)
    assert lists is not None
    k = lists.n_neighbors
    return paths.graph_of(lists.near[:, :k], lists.d2[:, :k])


def _parts(graph: csr_array, held: Support, sources: Ints | None) -> Ints:
    """The largest part is named 0; among landmarks that with most of them."""
    labels = paths.parts(graph, held.births)
    if sources is None:
        return labels
    first = int(np.argmax(np.bincount(labels[sources])))
    names = np.arange(labels.max() + 1)
    names[[0, first]] = first, 0
    renamed: Ints = names[labels]
    return renamed


def _matrix(geodesics: Geodesics, labels: Ints) -> Graph:
    """-G^2 / 2 between the sources, with 0 for what has no part in the map."""
    lengths = geodesics.lengths
    if geodesics.sources is not None:
        lengths, labels = lengths[:, geodesics.sources], labels[geodesics.sources]
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


def _start(geodesics: Geodesics, labels: Ints, position: int, config: Config) -> Factor:
    """From random columns: after three times two products a few digits are known.

    The rows of landmarks are decomposed.
    """
    matrix, sources, ones = _matrix(geodesics, labels), geodesics.sources, np.ones(len(labels))
    if sources is not None:
        exact = tracker.decompose(matrix.weights, ones[sources], config.rank_cut)
        vectors = _spread(exact.vectors.astype(np.float64), sources, len(labels))
        return Factor(vectors, exact.values, ones)
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
