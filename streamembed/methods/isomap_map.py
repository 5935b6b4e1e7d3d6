"""Isomap: classical scaling of shortest paths on a graph of neighbours.

A chunk changes 5 to 40 % of all lengths, so that none are kept: the state has the graph alone, and
a snapshot computes the paths from its landmarks, or from all points, and decomposes their Gram
matrix whole. All other points are placed by their paths to the landmarks.

Parts: coordinates are those of the largest part of the graph; all other points have zeros and no
mass. No edge is invented between parts.

Source: Tenenbaum, de Silva & Langford (2000), "A global geometric framework for nonlinear
dimensionality reduction"; de Silva & Tenenbaum (2003), "Global versus local methods in nonlinear
dimensionality reduction". Differs: the policy for parts; weighted points; landmarks by their slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from scipy.sparse import csr_array

from streamembed.geometry.lists import NeighborLists, RadiusEdges
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.support import Support
from streamembed.manifold import geodesics
from streamembed.methods import gram
from streamembed.methods.eigenpairs import Eigenpairs, Paths
from streamembed.methods.options import Config
from streamembed.methods.placement import (
    GeodesicExtension,
    measure_neighbor_distance,
    project,
)
from streamembed.methods.state import (
    BuildInput,
    EmbeddingMap,
    Pairs,
    State,
    UpdateInput,
    WeightSummary,
)
from streamembed.methods.trial_map import build_dense
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.codec import NOT_SAVED, Count
from streamembed.numeric.linalg import descending_eigh
from streamembed.spectral import certificate, operator
from streamembed.spectral.certificate import Certificate
from streamembed.spectral.operator import CENTRED_CUT, Normalisation


@dataclass(frozen=True, eq=False)
class IsomapMap(EmbeddingMap):
    """The map of Isomap: the graph of neighbours, and its parts."""

    edges: RadiusEdges | None  # of a graph of all within a radius; None where neighbours are joined
    step: Count  # every so many-th slot is a landmark, whatever it holds; 1: all are
    # Parts of the graph, shape (n,), the largest 0: only that one has coordinates.
    labels: Ints = field(metadata=NOT_SAVED)
    has_resolution = False
    extension = GeodesicExtension

    def compute_coordinates(
        self, psi: Floats, eigenvalues: Floats, state: State, config: Config
    ) -> Floats:
        """Principal coordinates of the landmarks."""
        counting = self.zero_inactive_masses(state.support.masses)
        return gram.scale_by_root_eigenvalues(psi, eigenvalues, counting)

    @classmethod
    def build(cls, inputs: BuildInput, config: Config) -> tuple[Self, Scaling]:
        """From scratch, with lists or edges."""
        support, lists, edges = inputs.support, None, None
        if config.radius is not None:
            edges = RadiusEdges.build(inputs.geometry, config.radius**2)
        else:
            lists = NeighborLists.build(inputs.geometry, support.births, config.n_neighbors)
        return cls._of(lists, edges, support, config), inputs.scaling

    @classmethod
    def _of(
        cls,
        lists: NeighborLists | None,
        edges: RadiusEdges | None,
        support: Support,
        config: Config,
    ) -> Self:
        built = cls(
            edges, choose_landmark_step(len(support), config), np.zeros(0, np.int64), lists=lists
        )
        return built.restore(support)

    def update(self, inputs: UpdateInput, config: Config) -> tuple[Self, int]:
        """After a chunk."""
        slots, support, lists, edges = inputs.slots, inputs.support, self.lists, self.edges
        if lists is not None and len(slots):
            lists = lists.replace(slots, inputs.geometry, support.births)
        if edges is not None:
            edges = edges.replace(slots, inputs.geometry)
        return self._of(lists, edges, support, config), len(slots)

    def restore(self, support: Support) -> Self:
        """With its parts: that with most landmarks is named 0."""
        labels = geodesics.label_parts(self._build_graph(len(support)), support.births)
        first = int(np.argmax(np.bincount(labels[:: self.step])))
        names = np.arange(labels.max() + 1)
        names[[0, first]] = first, 0
        return replace(self, labels=names[labels])

    def _build_graph(self, n: int) -> csr_array:
        if self.edges is not None:
            return geodesics.build_graph_of_edges(self.edges.i, self.edges.j, self.edges.d2, n)
        assert self.lists is not None
        return geodesics.build_graph(*self.lists.nearest)

    def has_changed_part(self, state: State) -> bool:
        """Whether another part of the graph has coordinates than when the frame was taken."""
        frame = state.frame
        n, is_inside = len(frame.births), self.zero_inactive_masses(state.support.masses) > 0
        is_same = np.asarray(frame.births == state.support.births[:n])
        was_inside = np.asarray(frame.columns.any(axis=1))
        masses = state.support.masses[:n]
        inside, shared = is_same & is_inside[:n], is_same & is_inside[:n] & was_inside
        # new slots do not count; of those that stayed, most must have been in the map
        has_left = bool(was_inside[is_same].any()) and float(masses[is_same & was_inside].sum()) > 0
        return has_left and float(masses[shared].sum()) < 0.5 * float(masses[inside].sum())

    def zero_inactive_masses(self, masses: Floats) -> Floats:
        """Masses of landmarks in the largest part, 0 of all other slots."""
        result = np.zeros(len(masses))
        result[:: self.step] = (masses * (self.labels == 0))[:: self.step]
        return result

    def estimate_eigenpairs(
        self, state: State, normal: Normalisation, count: int, config: Config
    ) -> Pairs:
        """The leading pairs, of paths that are computed now."""
        matrix, masses = _build_matrix(self._compute_lengths(state), self.step, state)
        values, vectors = descending_eigh(build_dense(matrix, operator.weigh_equally(masses), True))
        kept = int(np.count_nonzero(values[:count] > CENTRED_CUT * np.abs(values).max(initial=0.0)))
        vectors = self._extend_from_landmarks(vectors[:, :kept], len(state.support))
        return values[:kept], normal.eigenfunctions(vectors)

    def refine_eigenpairs(self, state: State, config: Config) -> Iterator[Eigenpairs]:
        """All pairs at once, of paths that are computed now."""
        n, lengths = len(state.support), self._compute_lengths(state)
        pairs = gram.decompose(*_build_matrix(lengths, self.step, state), config)
        counting = self.zero_inactive_masses(state.support.masses)
        ends = np.arange(n) if self.step == 1 else np.flatnonzero(counting)
        yield replace(
            pairs,
            vectors=self._extend_from_landmarks(pairs.vectors, n),
            errors=self._extend_from_landmarks(pairs.errors, n),
            normal=operator.weigh_equally(counting),
            refinement="view",
            paths=Paths(geodesics.zero_duplicates(lengths[ends // self.step].T), ends),
        )

    def _compute_lengths(self, state: State) -> Floats:
        """Of paths from every landmark to all, shape (m, n)."""
        n = len(state.support)
        return geodesics.compute_lengths(self._build_graph(n), np.arange(0, n, self.step))

    def _extend_from_landmarks(self, rows: Floats, n: int) -> Floats:
        """Rows (m, c) of landmarks as rows of all slots, (n, c)."""
        result = np.zeros((n, rows.shape[1]))
        result[:: self.step] = rows
        return result

    def complete_certificate(
        self, claim: Certificate, values: Floats, pairs: Eigenpairs, state: State, config: Config
    ) -> tuple[Certificate, Floats]:
        """Certificate and eigenvalues in the units of the data, and the points without a path."""
        completed = replace(
            certificate.scale_certificate(claim, pairs.unit),
            isolated=int(np.count_nonzero(self.labels)),
            negative_mass=pairs.negative_mass or 0.0,
        )
        return completed, values * pairs.unit

    def summarise_weights(self, state: State, config: Config, pairs: Eigenpairs) -> WeightSummary:
        """Without widths, and parts of the graph."""
        summary = super().summarise_weights(state, config, pairs)
        return replace(summary, n_connected=int(self.labels.max()) + 1)

    def measure_typical_coverage(self, d2: Floats, masses: Floats, config: Config) -> float:
        """The median distance to the last neighbour."""
        return measure_neighbor_distance(d2, config.n_neighbors)


def choose_landmark_step(n: int, config: Config) -> int:
    """Every so many-th slot is a landmark: the least power of 2 with at most ``n_landmarks``.

    Evenly spaced slots of a window are a sample of all times; and while it grows, those that stay
    landmarks have been some.
    """
    step = 1
    while config.n_landmarks is not None and n > step * config.n_landmarks:
        step *= 2
    return step


def extend_from_landmarks(
    coordinates: Floats, eigenvalues: Floats, counting: Floats, paths: Paths
) -> Floats:
    """``coordinates`` (n, k) of landmarks, and of all others that they reach by their paths.

    Every point that counts keeps its own; with paths between all points nothing is placed.
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


def _build_matrix(lengths: Floats, step: int, state: State) -> tuple[Floats, Floats]:
    """-G^2 / 2 between landmarks, with 0 for those that have no part in the map; and masses."""
    between = lengths[:, ::step]
    masses = state.map.zero_inactive_masses(state.support.masses)[::step]
    is_inside = masses > 0
    between = np.where(is_inside[:, None] & is_inside, between, 0.0)
    # a length there and back may differ in the last digit
    matrix: Floats = -0.25 * (between**2 + (between**2).T)
    return matrix, masses
