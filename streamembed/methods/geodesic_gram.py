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
from typing import Annotated, Self

import numpy as np
from scipy.sparse import csr_array

from streamembed.geometry.kernel_matrix import KernelMatrix
from streamembed.geometry.lists import NeighborLists, RadiusEdges
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.support import Support
from streamembed.manifold import geodesics as paths
from streamembed.manifold import geodesics_numba as compiled
from streamembed.manifold.geodesics import SAMPLE, Geodesics
from streamembed.methods import gram, publish
from streamembed.methods.eigenpairs import Eigenpairs, Paths, PublishedColumns
from streamembed.methods.gram import GramInput
from streamembed.methods.options import Config
from streamembed.methods.placement import measure_neighbor_distance, project
from streamembed.methods.state import (
    BuildInput,
    Count,
    EmbeddingMap,
    KernelWidths,
    State,
    UpdateInput,
)
from streamembed.numeric.arrays import Floats, Ints, pad_rows
from streamembed.spectral import certificate, tracker
from streamembed.spectral.certificate import Certificate
from streamembed.spectral.operator import Normalisation
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
class GeodesicInput:
    """The paths of a snapshot, and their Gram matrix."""

    geodesics: Geodesics  # fresh enough
    stale: float  # see `Certificate.stale`
    gram: GramInput  # -G^2 / 2 between the sources of these paths


@dataclass(frozen=True, eq=False)
class GeodesicMap(EmbeddingMap):
    """The map of Isomap: shortest paths on the graph of the lists, and a factor of -G^2 / 2."""

    geodesics: Geodesics  # exact where they are repaired; without a compiler rows grow stale
    # Parts of the graph, the largest 0: only that one has coordinates.
    labels: Annotated[Ints, "slots", "one of its rows"]
    # By the last refresh; at slots filled since from their neighbours. Of landmarks that of their
    # rows, 0 at all other slots.
    factor: Factor
    edges: RadiusEdges | None  # of a graph of all within a radius; None where neighbours are joined
    # Slots filled since the factor was refreshed, and since all rows were fresh.
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
        factor = _start(geodesics, labels, 0, config)
        return cls(geodesics, labels, factor, edges, 0, 0, lists=lists), inputs.scaling

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
        if compiled.available:
            geodesics = compiled.repair(self.geodesics, previous_graph, graph, slots, sources)
            stale = 0
        elif sources is not None or stale >= FRESH_SHARE * n:
            geodesics, stale = _build_geodesics(graph, sources), 0
        else:
            geodesics = paths.patch(self.geodesics, graph, slots)
        labels, rows = _label_parts(graph, support, sources), self.rows + len(slots)
        factor = _refill(self.factor, slots, graph)
        inside = float((factor.vectors[labels == 0] ** 2).sum())
        previous_sources = self.geodesics.slots
        has_new_sources = sources is not None and not np.array_equal(sources, previous_sources)
        in_all = float((factor.vectors**2).sum())
        if has_new_sources or inside < MOVED * in_all:  # another part, other landmarks
            factor, rows = _start(geodesics, labels, position, config), 0
        elif rows >= max(REFRESH_SHARE * n, min(REFRESH_ROWS, 2 * REFRESH_SHARE * n)):
            if sources is not None:
                factor = _start(geodesics, labels, position, config)
            else:
                factor = _refresh(factor, _build_matrix(geodesics, labels), position, config)
            rows = 0
        updated = type(self)(geodesics, labels, factor, edges, rows, stale, lists=lists)
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

    def normalise(self, state: State, config: Config) -> Normalisation:
        """Every event of the part weighs the same."""
        return gram.compute_normalisation(state)

    def view(self, state: State, normal: Normalisation, count: int) -> tuple[Floats, Floats]:
        """The factor's leading pairs, centred."""
        return gram.view(self.factor, state, count)

    def publish(self, state: State, config: Config, counted: bool) -> PublishedColumns:
        """Refined, with the paths that were used and the share of negative eigenvalues."""
        inputs = self.read_input(state, config)
        columns = publish.select_best(_refine(inputs, state, config), state, config)
        n_outside = int(np.count_nonzero(self.labels))
        certified = replace(columns.certificate, stale=inputs.stale, isolated=n_outside)
        certified = gram.add_negative_mass(certified, columns, inputs.gram, config)
        geodesics = inputs.geodesics
        if geodesics.sources is None:
            used = Paths(paths.zero_duplicates(geodesics.lengths), geodesics.slots)
        else:
            ends = np.flatnonzero(state.active_masses)
            rows = np.searchsorted(geodesics.sources, ends)
            used = Paths(paths.zero_duplicates(geodesics.lengths[rows].T), ends)
        return replace(columns, certificate=certified, paths=used)

    def read_input(self, state: State, config: Config) -> GeodesicInput:
        """Paths for a snapshot, and the matrix they make."""
        geodesics, stale = self._choose_geodesics(state, config)
        matrix = _build_matrix(geodesics, self.labels)
        factor, masses = self.factor, state.active_masses
        if (sources := geodesics.sources) is not None:
            scaling = factor.scaling[sources]
            factor = replace(factor, vectors=factor.vectors[sources], scaling=scaling)
            masses = masses[sources]
        return GeodesicInput(geodesics, stale, GramInput(matrix, factor, masses, state.position))

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

    def describe_weights(self, state: State, config: Config) -> KernelWidths:
        """None but distances."""
        return gram.describe_weights(state, config)

    def measure_coverage(self, d2: Floats, masses: Floats, config: Config) -> float:
        """The median distance to the last neighbour."""
        return measure_neighbor_distance(d2, config.n_neighbors)


def _refine(inputs: GeodesicInput, state: State, config: Config) -> Iterator[Eigenpairs]:
    """Leading pairs of -G^2 / 2, level by level."""
    sources = inputs.geodesics.sources
    if sources is None:
        yield from gram.refine(inputs.gram, config)
        return
    pairs, n = gram.decompose(inputs.gram, config), len(state.support)
    vectors, errors = (_spread_rows(part, sources, n) for part in (pairs.vectors, pairs.errors))
    normal = gram.compute_normalisation(state)  # and no further level: the rows are few
    yield replace(pairs, vectors=vectors, errors=errors, normal=normal, refinement="view")


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
