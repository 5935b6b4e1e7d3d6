"""Isomap: shortest paths on the graph of the lists, and the refinement of their Gram matrix.

Of -G^2 / 2 a chunk changes 5 to 40 % of all entries, so that no factor can be bordered: a block of
its leading pairs is kept from one refresh to the next, two products each, and every snapshot
refines it with `streamembed.methods.gram`.

With numba (the extra ``fast``) all rows are repaired exactly with every chunk. Without, only rows
and columns of new points are put in; a snapshot computes a few rows from scratch to see how stale
the others are, and all of them where that is more than `LARGEST_STALENESS`.

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

from streamembed.geometry.kernel_matrix import KernelMatrix
from streamembed.geometry.lists import NeighborLists, RadiusEdges
from streamembed.geometry.pairwise import Pairwise
from streamembed.geometry.support import Support
from streamembed.manifold import geodesics as paths
from streamembed.manifold import geodesics_numba as compiled
from streamembed.manifold.geodesics import SAMPLE, Geodesics
from streamembed.methods import gram
from streamembed.methods.eigenpairs import Eigenpairs
from streamembed.methods.gram import GramInput
from streamembed.methods.options import Config
from streamembed.methods.placement import project
from streamembed.methods.state import GeodesicMap, State
from streamembed.numeric.arrays import Floats, Ints, pad_rows
from streamembed.spectral import tracker
from streamembed.spectral.certificate import Certificate
from streamembed.spectral.tracker import Factor

# Mean relative error of lengths above which a snapshot computes all rows from scratch.
LARGEST_STALENESS = 5e-3
# Slots refilled, as a share of n, after which the block is refreshed, and,
# without a compiler, all rows of the state are computed from scratch.
REFRESH_SHARE, REFRESH_ROWS, FRESH_SHARE = 0.02, 20, 0.1
# Random columns of a refresh; and the share of the block in the largest part, below which it is
# that of another part.
PROBES, MOVED = 2, 0.5


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """The paths of a snapshot."""

    lengths: Floats  # (n, w): from every slot; inf between parts
    ends: Ints  # (w,): to these slots: all, or the landmarks that have a part in the map


def build(
    support: Support, geometry: Pairwise, config: Config
) -> tuple[GeodesicMap, NeighborLists | None]:
    """The map of a support from scratch, with its lists or edges."""
    lists = edges = None
    if config.radius is not None:
        edges = RadiusEdges.build(geometry, config.radius**2)
    else:
        lists = NeighborLists.build(geometry, support.births, config.n_neighbors)
    graph = _build_graph(lists, edges, len(support))
    sources = choose_landmarks(len(support), config)
    geodesics, labels = _build_geodesics(graph, sources), _label_parts(graph, support, sources)
    factor = _start(geodesics, labels, 0, config)
    return GeodesicMap(geodesics, labels, factor, edges, 0, 0), lists


def update(
    state: State, support: Support, slots: Ints, geometry: Pairwise, config: Config
) -> tuple[GeodesicMap, NeighborLists | None]:
    """Map and lists after a chunk that filled ``slots``."""
    assert state.curved is not None
    previous, lists, edges, n = state.curved, state.lists, state.curved.edges, len(support)
    if len(slots) == 0:
        return previous, lists
    previous_graph = _build_graph(lists, edges, len(previous.labels))
    if lists is not None:
        lists, _ = lists.replace(slots, geometry, support.births)
    if edges is not None:
        edges = edges.replace(slots, geometry)
    graph = _build_graph(lists, edges, n)
    stale, sources = previous.stale + len(slots), choose_landmarks(n, config)
    if compiled.available:
        geodesics = compiled.repair(previous.geodesics, previous_graph, graph, slots, sources)
        stale = 0
    elif sources is not None or stale >= FRESH_SHARE * n:
        geodesics, stale = _build_geodesics(graph, sources), 0
    else:
        geodesics = paths.patch(previous.geodesics, graph, slots)
    labels, rows = _label_parts(graph, support, sources), previous.rows + len(slots)
    factor = _refill(previous.factor, slots, graph)
    inside = float((factor.vectors[labels == 0] ** 2).sum())
    previous_sources = previous.geodesics.slots
    has_new_sources = sources is not None and not np.array_equal(sources, previous_sources)
    in_all = float((factor.vectors**2).sum())
    if has_new_sources or inside < MOVED * in_all:  # another part, other landmarks
        factor, rows = _start(geodesics, labels, state.position, config), 0
    elif rows >= max(REFRESH_SHARE * n, min(REFRESH_ROWS, 2 * REFRESH_SHARE * n)):
        if sources is not None:
            factor = _start(geodesics, labels, state.position, config)
        else:
            factor = _refresh(factor, _build_matrix(geodesics, labels), state.position, config)
        rows = 0
    return GeodesicMap(geodesics, labels, factor, edges, rows, stale), lists


def has_changed_part(state: State) -> bool:
    """Whether another part of the graph has the coordinates than when the frame was taken."""
    geodesic, frame = state.curved, state.frame
    if geodesic is None:
        return False
    n, is_inside = len(frame.births), state.active_masses > 0
    is_same = np.asarray(frame.births == state.support.births[:n])
    was_inside = np.asarray(frame.columns.any(axis=1))
    masses = state.support.masses[:n]
    inside, shared = is_same & is_inside[:n], is_same & is_inside[:n] & was_inside
    # new slots do not count; of those that stayed, most must have been in the map
    has_left = bool(was_inside[is_same].any()) and float(masses[is_same & was_inside].sum()) > 0
    return has_left and float(masses[shared].sum()) < 0.5 * float(masses[inside].sum())


@dataclass(frozen=True, slots=True, eq=False)
class GeodesicInput:
    """The paths of a snapshot, and their Gram matrix."""

    geodesics: Geodesics  # fresh enough
    stale: float  # see `Certificate.stale`
    gram: GramInput  # -G^2 / 2 between the sources of these paths


def read_input(state: State, config: Config) -> GeodesicInput:
    """Paths for a snapshot, and the matrix they make."""
    assert state.curved is not None
    geodesics, stale = _choose_geodesics(state, config)
    matrix = _build_matrix(geodesics, state.curved.labels)
    factor, masses = state.factor, state.active_masses
    if (sources := geodesics.sources) is not None:
        factor = replace(factor, vectors=factor.vectors[sources], scaling=factor.scaling[sources])
        masses = masses[sources]
    return GeodesicInput(geodesics, stale, GramInput(matrix, factor, masses, state.position))


def refine(inputs: GeodesicInput, state: State, config: Config) -> Iterator[Eigenpairs]:
    """Leading pairs of -G^2 / 2, level by level."""
    sources = inputs.geodesics.sources
    if sources is None:
        yield from gram.refine(inputs.gram, config)
        return
    pairs, n = gram.decompose(inputs.gram, config), len(state.support)
    vectors, errors = (_spread_rows(part, sources, n) for part in (pairs.vectors, pairs.errors))
    normal = gram.compute_normalisation(state)  # and no further level: the rows are few
    yield replace(pairs, vectors=vectors, errors=errors, normal=normal, refinement="view")


def describe(
    certificate: Certificate, inputs: GeodesicInput, state: State
) -> tuple[Certificate, Paths]:
    """The certificate with its figures about paths and parts, and the lengths that were used."""
    assert state.curved is not None
    geodesics = inputs.geodesics
    n_outside = int(np.count_nonzero(state.curved.labels))
    described = replace(certificate, stale=inputs.stale, isolated=n_outside)
    if geodesics.sources is None:
        return described, Paths(paths.zero_duplicates(geodesics.lengths), geodesics.slots)
    ends = np.flatnonzero(state.active_masses)
    rows = np.searchsorted(geodesics.sources, ends)
    return described, Paths(paths.zero_duplicates(geodesics.lengths[rows].T), ends)


def extend_from_landmarks(
    coordinates: Floats, eigenvalues: Floats, counting: Floats, paths: Paths
) -> Floats:
    """``coordinates`` (n, k) of landmarks, and of all others that they reach by their paths.

    Every point that counts keeps its own; with paths between all points nothing is placed.

    Source: de Silva & Tenenbaum (2003), "Global versus local methods in nonlinear dimensionality
    reduction".
    """
    if len(paths.ends) == len(counting):
        return coordinates
    is_outside = (counting == 0) & np.isfinite(paths.lengths).all(axis=1)
    masses = counting[paths.ends]
    values = np.where(eigenvalues > 0, eigenvalues, np.inf)
    targets = masses[:, None] * coordinates[paths.ends] / values
    shares, rows = masses / masses.sum(), -0.5 * paths.lengths**2
    mean_row = shares @ rows[paths.ends]
    result = coordinates.copy()
    result[is_outside] = project(rows[is_outside], mean_row, shares, targets)
    return result


def choose_landmarks(n: int, config: Config) -> Ints | None:
    """Slots whose rows of paths are stored, at most ``n_landmarks``; None for all.

    Evenly spaced slots: of a window they are a sample of all times. A slot stays a landmark
    when it is refilled.
    """
    most = config.n_landmarks
    return None if most is None or n <= most else np.arange(0, n, -(-n // most))


def _choose_geodesics(state: State, config: Config) -> tuple[Geodesics, float]:
    """Paths for a snapshot, and how stale they are."""
    geodesic = state.curved
    assert geodesic is not None
    if geodesic.stale == 0:
        return geodesic.geodesics, 0.0
    graph, n = _build_graph(state.lists, geodesic.edges, len(geodesic.labels)), len(geodesic.labels)
    generator = np.random.default_rng((config.seed, state.position, n))
    sources = np.sort(generator.choice(n, min(SAMPLE, n), replace=False))
    stale = paths.measure_staleness(geodesic.geodesics, graph, sources)
    if stale <= LARGEST_STALENESS:
        return geodesic.geodesics, stale
    return _build_geodesics(graph), 0.0


def _build_geodesics(graph: csr_array, sources: Ints | None = None) -> Geodesics:
    if compiled.available:
        return compiled.build(graph, sources)
    return Geodesics.build(graph, sources)


def _spread_rows(block: Floats, sources: Ints, n: int) -> Floats:
    """Rows (m, c) of landmarks as rows of all slots, (n, c)."""
    result = np.zeros((n, block.shape[1]))
    result[sources] = block
    return result


def _build_graph(lists: NeighborLists | None, edges: RadiusEdges | None, n: int) -> csr_array:
    if edges is not None:
        return paths.build_graph_of_edges(edges.i, edges.j, edges.d2, n)
    assert lists is not None
    return paths.build_graph(*lists.nearest)


def _label_parts(graph: csr_array, support: Support, sources: Ints | None) -> Ints:
    """The largest part is named 0; among landmarks that with most of them."""
    labels = paths.label_parts(graph, support.births)
    if sources is None:
        return labels
    first = int(np.argmax(np.bincount(labels[sources])))
    names = np.arange(labels.max() + 1)
    names[[0, first]] = first, 0
    return names[labels]


def _build_matrix(geodesics: Geodesics, labels: Ints) -> KernelMatrix:
    """-G^2 / 2 between the sources, with 0 for slots that have no part in the map."""
    lengths = geodesics.lengths
    if geodesics.sources is not None:
        lengths, labels = lengths[:, geodesics.sources], labels[geodesics.sources]
    if labels.any():
        is_inside = labels == 0
        lengths = np.where(is_inside[:, None] & is_inside, lengths, 0.0)
    # a length there and back may differ in the last digit
    matrix = -0.25 * (lengths**2 + (lengths**2).T)
    return KernelMatrix.of(matrix, len(matrix))


def _refill(factor: Factor, slots: Ints, graph: csr_array) -> Factor:
    """The block with new slots at the mean of their neighbours."""
    n = graph.shape[0]
    vectors = pad_rows(factor.vectors, n)
    vectors[slots] = 0.0
    is_neighbor = graph[slots].astype(bool).astype(np.float64)
    counts = np.maximum(np.asarray(is_neighbor.sum(axis=1)).ravel(), 1.0)
    vectors[slots] = (is_neighbor @ vectors) / counts[:, None]
    return Factor(vectors, factor.values, np.ones(n))


def _start(geodesics: Geodesics, labels: Ints, position: int, config: Config) -> Factor:
    """From random columns: after three times two products a few digits are known.

    The rows of landmarks are decomposed.
    """
    matrix, ones = _build_matrix(geodesics, labels), np.ones(len(labels))
    if (sources := geodesics.sources) is not None:
        exact = tracker.decompose(matrix.weights, ones[sources], config.rank_cut)
        vectors = _spread_rows(exact.vectors.astype(np.float64), sources, len(labels))
        return Factor(vectors, exact.values, ones)
    n = matrix.n
    generator = np.random.default_rng((config.seed, position, n))
    block = generator.standard_normal((n, min(config.rank_cut.most, n)))
    factor = Factor(block, np.ones(block.shape[1]), np.ones(n))
    for _ in range(3):
        factor = _refresh(factor, matrix, position, config)
    return factor


def _refresh(factor: Factor, matrix: KernelMatrix, position: int, config: Config) -> Factor:
    """Two products; random columns find modes that the block lacks."""
    generator = np.random.default_rng((config.seed, position, matrix.n, 1))
    probes = generator.standard_normal((matrix.n, PROBES))
    cut = config.rank_cut
    return tracker.refresh(factor, factor.scaling, matrix.product, cut, 0.0, probes=probes)
