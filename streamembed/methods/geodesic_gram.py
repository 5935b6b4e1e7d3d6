"""Isomap: shortest paths on the graph of the lists, and the refinement of their Gram matrix.

Of -G^2 / 2 a chunk changes 5 to 40 % of all entries, so that products cannot be kept: a block of
its leading vectors is, from one refresh to the next, two products each, and every snapshot
multiplies it and refines it as `streamembed.methods.gram` does.

With numba (the extra ``fast``) all rows are repaired exactly with every chunk. Without, only rows
and columns of new points are put in; a snapshot computes a few rows from scratch to see how stale
the others are, and all of them where that is more than `LARGEST_STALENESS`.

Parts: coordinates are those of the largest part of the graph; all other points have zeros and no
mass. No edge is invented between parts.

Source: Tenenbaum, de Silva & Langford (2000), "A global geometric framework for nonlinear
dimensionality reduction". Differs: the policy for parts; weighted points.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Self

import numpy as np
from scipy.sparse import csr_array

from streamembed.geometry.lists import NeighborLists, RadiusEdges
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.support import Support
from streamembed.manifold import geodesics as paths
from streamembed.manifold import geodesics_numba as compiled
from streamembed.manifold.geodesics import SAMPLE, Geodesics
from streamembed.methods import gram, publish
from streamembed.methods.eigenpairs import LARGEST_EXACT, Eigenpairs, Paths, PublishedColumns
from streamembed.methods.gram import LARGEST_TRACKED
from streamembed.methods.options import Config
from streamembed.methods.placement import measure_neighbor_distance, project
from streamembed.methods.refinement import refine
from streamembed.methods.state import (
    BuildInput,
    EmbeddingMap,
    State,
    UpdateInput,
)
from streamembed.methods.trial_map import LARGEST_WHOLE, build_dense
from streamembed.numeric import compilation
from streamembed.numeric.arrays import Floats, Ints, pad_rows
from streamembed.numeric.codec import Count
from streamembed.numeric.linalg import descending_eigh, orthonormal_basis
from streamembed.spectral import certificate, operator
from streamembed.spectral.certificate import Certificate
from streamembed.spectral.operator import CENTRED_CUT, Normalisation, deflate

# Mean relative error of lengths above which a snapshot computes all rows from scratch.
LARGEST_STALENESS = 5e-3
# Slots refilled, as a share of n, after which the block is refreshed, and,
# without a compiler, all rows of the state are computed from scratch.
REFRESH_SHARE, REFRESH_ROWS, FRESH_SHARE = 0.02, 20, 0.1
# Random columns of a refresh; and the share of the block in the largest part, below which it is
# that of another part.
PROBES, MOVED = 2, 0.5


@dataclass(frozen=True, eq=False)
class GeodesicMap(EmbeddingMap):
    """The map of Isomap: shortest paths on the graph of the lists, and a block for -G^2 / 2."""

    geodesics: Geodesics  # exact where they are repaired; without a compiler rows grow stale
    # Parts of the graph, the largest 0: only that one has coordinates.
    labels: Annotated[Ints, "slots", "one of its rows"]
    # Leading vectors by the last refresh; at slots filled since from their neighbours. Of landmarks
    # none: their rows are decomposed.
    block: Annotated[Floats, "slots c"]
    edges: RadiusEdges | None  # of a graph of all within a radius; None where neighbours are joined
    # Slots filled since the block was refreshed, and since all rows were fresh.
    rows: Count
    stale: Count
    has_resolution = False

    @classmethod
    def build(cls, inputs: BuildInput, config: Config) -> tuple[Self, Scaling]:
        """From scratch, with lists or edges."""
        support, lists, edges = inputs.support, None, None
        if config.radius is not None:
            edges = RadiusEdges.build(inputs.geometry, config.radius**2)
        else:
            lists = NeighborLists.build(inputs.geometry, support.births, config.n_neighbors)
        graph = _build_graph(lists, edges, len(support))
        sources = choose_landmarks(len(support), config)
        geodesics, labels = _build_geodesics(graph, sources), _label_parts(graph, support, sources)
        block = _start(geodesics, labels, support.masses, 0, config)
        return cls(geodesics, labels, block, edges, 0, 0, lists=lists), inputs.scaling

    def update(self, inputs: UpdateInput, config: Config) -> tuple[Self, int]:
        """After a chunk."""
        support, slots, n = inputs.support, inputs.slots, len(inputs.support)
        lists, edges, position = self.lists, self.edges, inputs.state.position
        if len(slots) == 0:
            return self, 0
        previous_graph = _build_graph(lists, edges, len(self.labels))
        if lists is not None:
            lists, _ = lists.replace(slots, inputs.geometry, support.births)
        if edges is not None:
            edges = edges.replace(slots, inputs.geometry)
        graph = _build_graph(lists, edges, n)
        stale, sources = self.stale + len(slots), choose_landmarks(n, config)
        if compilation.is_available():
            geodesics = compiled.repair(self.geodesics, previous_graph, graph, slots, sources)
            stale = 0
        elif sources is not None or stale >= FRESH_SHARE * n:
            geodesics, stale = _build_geodesics(graph, sources), 0
        else:
            geodesics = paths.patch(self.geodesics, graph, slots)
        labels, rows = _label_parts(graph, support, sources), self.rows + len(slots)
        block, masses = _refill(self.block, slots, graph), support.masses
        inside, in_all = float((block[labels == 0] ** 2).sum()), float((block**2).sum())
        if inside < MOVED * in_all:  # another part
            block, rows = _start(geodesics, labels, masses, position, config), 0
        elif rows >= max(REFRESH_SHARE * n, min(REFRESH_ROWS, 2 * REFRESH_SHARE * n)):
            if sources is None:
                matrix = _build_matrix(geodesics, labels)
                block = _refresh(block, matrix, masses * (labels == 0), position, config)
            rows = 0
        updated = type(self)(geodesics, labels, block, edges, rows, stale, lists=lists)
        return updated, len(slots)

    def has_changed_part(self, state: State) -> bool:
        """Whether another part of the graph has coordinates than when the frame was taken."""
        frame = state.frame
        n, is_inside = len(frame.births), state.active_masses > 0
        is_same = np.asarray(frame.births == state.support.births[:n])
        was_inside = np.asarray(frame.columns.any(axis=1))
        masses = state.support.masses[:n]
        inside, shared = is_same & is_inside[:n], is_same & is_inside[:n] & was_inside
        # new slots do not count; of those that stayed, most must have been in the map
        has_left = bool(was_inside[is_same].any()) and float(masses[is_same & was_inside].sum()) > 0
        return has_left and float(masses[shared].sum()) < 0.5 * float(masses[inside].sum())

    def select_active(self, masses: Floats) -> Floats:
        """Those of the largest part, and of landmarks alone where there are."""
        active: Floats = masses * (self.labels == 0)
        if self.geodesics.sources is None:
            return active
        result, slots = np.zeros(len(masses)), self.geodesics.sources
        result[slots] = active[slots]
        return result

    def view(self, state: State, normal: Normalisation, count: int) -> tuple[Floats, Floats]:
        """The block's leading pairs, without the mean; of landmarks those of their rows."""
        n, sources = len(state.support), self.geodesics.sources
        matrix, masses = self._build_gram(state, self.geodesics)
        shares = operator.weigh_equally(masses)
        if sources is None:
            product = gram.bind_centred(lambda block: matrix @ block, shares, 0.0, 1.0).apply
            basis = orthonormal_basis(deflate(self.block, shares.constant))
            values, mix = descending_eigh(basis.T @ product(basis))
            vectors = basis @ mix
        else:
            values, vectors = descending_eigh(build_dense(matrix, shares, True))
            vectors = _spread_rows(vectors[:, :count], sources, n)
        kept = int(np.count_nonzero(values[:count] > CENTRED_CUT * np.abs(values).max(initial=0.0)))
        return values[:kept], normal.eigenfunctions(vectors[:, :kept])

    def publish(self, state: State, config: Config) -> PublishedColumns:
        """Refined, with the paths that were used and the share of negative eigenvalues."""
        geodesics, stale = self._choose_geodesics(state, config)
        matrix, masses = self._build_gram(state, geodesics)
        decompose, mass = partial(gram.decompose, matrix, masses, config), 0.0
        is_small = len(matrix) <= LARGEST_WHOLE or -matrix.min() > LARGEST_TRACKED
        if geodesics.sources is not None or is_small:
            levels = iter([_spread_pairs(decompose(), geodesics.sources, state)])
            columns = publish.select_best(levels, state, config)
        else:
            position = state.position
            bound, known = gram.multiply_block(matrix, masses, self.block, position, config)
            levels = refine(bound, known, None, position, decompose, config)
            columns = publish.select_best(levels, state, config)
            if len(matrix) <= LARGEST_EXACT:
                values = np.linalg.eigvalsh(build_dense(matrix, bound.normal, True))
                mass = gram.share_negative(values)
            else:
                mass = gram.bound_negative_mass(known, bound.normal, matrix @ masses)
        certified = replace(
            columns.certificate,
            stale=stale,
            isolated=int(np.count_nonzero(self.labels)),
            negative_mass=mass if columns.negative_mass is None else columns.negative_mass,
        )
        if geodesics.sources is None:
            used = Paths(paths.zero_duplicates(geodesics.lengths), geodesics.slots)
        else:
            ends = np.flatnonzero(state.active_masses)
            rows_of_ends = np.searchsorted(geodesics.sources, ends)
            used = Paths(paths.zero_duplicates(geodesics.lengths[rows_of_ends].T), ends)
        return replace(columns, certificate=certified, paths=used)

    def _build_gram(self, state: State, geodesics: Geodesics) -> tuple[Floats, Floats]:
        """-G^2 / 2 between the sources of the paths, and the masses of these."""
        sources, masses = geodesics.sources, state.active_masses
        matrix = _build_matrix(geodesics, self.labels)
        return matrix, masses if sources is None else masses[sources]

    def _choose_geodesics(self, state: State, config: Config) -> tuple[Geodesics, float]:
        """Paths for a snapshot, and how stale they are."""
        if self.stale == 0:
            return self.geodesics, 0.0
        n = len(self.labels)
        graph = _build_graph(self.lists, self.edges, n)
        generator = np.random.default_rng((config.seed, state.position, n))
        sources = np.sort(generator.choice(n, min(SAMPLE, n), replace=False))
        stale = paths.measure_staleness(self.geodesics, graph, sources)
        if stale <= LARGEST_STALENESS:
            return self.geodesics, stale
        return _build_geodesics(graph), 0.0

    def scale_certificate(
        self, certified: Certificate, values: Floats, unit: float
    ) -> tuple[Certificate, Floats]:
        """In the units of the data."""
        return certificate.scale_certificate(certified, unit), values * unit

    def count_components(self, state: State, config: Config, pairs: Eigenpairs) -> int:
        """Parts of the graph."""
        return int(self.labels.max()) + 1

    def measure_coverage(self, d2: Floats, masses: Floats, config: Config) -> float:
        """The median distance to the last neighbour."""
        return measure_neighbor_distance(d2, config.n_neighbors)


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


def _build_geodesics(graph: csr_array, sources: Ints | None = None) -> Geodesics:
    if compilation.is_available():
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


def _build_matrix(geodesics: Geodesics, labels: Ints) -> Floats:
    """-G^2 / 2 between the sources, with 0 for slots that have no part in the map."""
    lengths = geodesics.lengths
    if geodesics.sources is not None:
        lengths, labels = lengths[:, geodesics.sources], labels[geodesics.sources]
    if labels.any():
        is_inside = labels == 0
        lengths = np.where(is_inside[:, None] & is_inside, lengths, 0.0)
    # a length there and back may differ in the last digit
    matrix: Floats = -0.25 * (lengths**2 + (lengths**2).T)
    return matrix


def _spread_pairs(pairs: Eigenpairs, sources: Ints | None, state: State) -> Eigenpairs:
    """Pairs between landmarks as pairs of all slots."""
    if sources is None:
        return pairs
    n = len(state.support)
    vectors, errors = (_spread_rows(part, sources, n) for part in (pairs.vectors, pairs.errors))
    normal = operator.weigh_equally(state.active_masses)
    return replace(pairs, vectors=vectors, errors=errors, normal=normal, refinement="view")


def _refill(block: Floats, slots: Ints, graph: csr_array) -> Floats:
    """The block with new slots at the mean of their neighbours."""
    block = pad_rows(block, graph.shape[0])
    block[slots] = 0.0
    is_neighbor = graph[slots].astype(bool).astype(np.float64)
    counts = np.maximum(np.asarray(is_neighbor.sum(axis=1)).ravel(), 1.0)
    block[slots] = (is_neighbor @ block) / counts[:, None]
    return block


def _start(
    geodesics: Geodesics, labels: Ints, masses: Floats, position: int, config: Config
) -> Floats:
    """From random columns: after three times two products a few digits are known."""
    n = len(labels)
    if geodesics.sources is not None:
        return np.zeros((n, 0))
    matrix = _build_matrix(geodesics, labels)
    generator = np.random.default_rng((config.seed, position, n))
    block = generator.standard_normal((n, min(config.rank_limits[0], n)))
    for _ in range(3):
        block = _refresh(block, matrix, masses * (labels == 0), position, config)
    return block


def _refresh(
    block: Floats, matrix: Floats, masses: Floats, position: int, config: Config
) -> Floats:
    """Two products; random columns find modes that the block lacks."""
    normal, n = operator.weigh_equally(masses), len(masses)
    apply = gram.bind_centred(lambda columns: matrix @ columns, normal, 0.0, 1.0).apply
    generator = np.random.default_rng((config.seed, position, n, 1))
    probes = generator.standard_normal((n, PROBES)) * (masses > 0)[:, None]
    basis = orthonormal_basis(apply(np.concatenate([block, probes], axis=1)))
    values, mix = descending_eigh(basis.T @ apply(basis))
    order = np.argsort(-np.abs(values), kind="stable")[: config.rank_limits[0]]
    vectors: Floats = basis @ mix[:, order]
    return vectors
