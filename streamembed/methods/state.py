"""The state of an engine between two chunks: everything that must persist, nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Self

import numpy as np

from streamembed.geometry.kernel_matrix import KernelMatrix
from streamembed.geometry.lists import NeighborLists, RadiusEdges
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.self_tuning import LocalWidths, WidthRule
from streamembed.geometry.support import Support
from streamembed.landmarks.absorption import Cover
from streamembed.layout.forces import compute_affinities
from streamembed.layout.layout import Layout, select_neighbors
from streamembed.manifold.barycentric import BottomPairs
from streamembed.manifold.geodesics import Geodesics
from streamembed.methods.extension import sample_rows, sum_coverage
from streamembed.methods.placement import measure_neighbor_distance
from streamembed.methods.registry import KernelInput
from streamembed.metric_learners.metrics import Learners
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.codec import NOT_SAVED, SAVED_IF_SET
from streamembed.spectral import neighbor_walk
from streamembed.spectral.block import Block
from streamembed.spectral.neighbor_walk import Parts, Walk
from streamembed.spectral.tracker import Factor

LARGEST = float(np.finfo(np.float64).max)

Count = Annotated[int, "at least 0"]
Extent = Annotated[float, "finite", "at least 0"]


@dataclass(frozen=True, slots=True, eq=False)
class FrameReference:
    """The coordinates onto which later ones are turned."""

    # Coordinates by all carried eigenpairs, turned onto the frame before, by slot; the first
    # n_components are those that are shown.
    columns: Annotated[Floats, "m c", "finite"]
    births: Annotated[Ints, "m"]  # which event was in each slot then
    position: Count  # stream position at which they were taken
    # Raised where axes could not be kept: at every rescaling, and where what is shown has changed
    # too much or became too small a part of the leading plane.
    epoch: Count
    since: Count  # stream position at which the epoch began
    lost: tuple[int, ...]  # axes of the epoch before that none of this one continues


@dataclass(frozen=True, slots=True)
class UpdateCounts:
    """How often the state was made more exact than by bordering."""

    # One-product refreshes, and factors made from scratch, since the first event.
    refreshes: Count
    rebuilds: Count
    rows_since_refresh: Count  # slots filled since the last refresh
    # By how many rows the support has changed since the frame was taken; among landmarks the mass
    # that moved counts too.
    rows_since_frame: Annotated[float, "finite"]
    refilled: Count = 0  # slots filled again because their width had drifted, since the first event


@dataclass(frozen=True, slots=True, eq=False)
class KernelMap:
    """The map of a kernel: all weights, and a factor of them."""

    # The kernel rows. Those of the next state lie in the same ring: once that state is committed,
    # it alone can be read.
    graph: KernelMatrix
    degrees: Annotated[Floats, "slots", "finite"]  # q = W m, exact
    factor: Factor
    # Whether the factor is of W itself, and the mean is taken out in the view; see
    # `streamembed.methods.gram`.
    centred: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class GraphMap:
    """The map of a graph: a walk among neighbours, and a block of its leading pairs."""

    weights: str  # see `streamembed.spectral.neighbor_walk.WEIGHTS`
    # What distances are divided by; see `streamembed.spectral.neighbor_walk.walk_on_lists`.
    scale: Annotated[float, "finite", "positive"]
    edges: RadiusEdges | None  # of a graph of all within a radius; None where neighbours are joined
    block: Block  # empty where only linear functions are looked for
    walk: Walk = field(metadata=NOT_SAVED)
    parts: Parts = field(metadata=NOT_SAVED)
    # Slots filled since the least eigenvalue was computed, and since eigenvalues were counted.
    low_rows: Count = 0
    count_rows: Count = 0
    counted: int = -1  # stream position of the last count; -1 before one
    missed: int | None = None  # its result; see `streamembed.spectral.inertia`
    # (d, c): of a map by linear functions, the axes that they are functions of.
    axes: Annotated[Floats, "d c", "finite"] | None = field(default=None, metadata=SAVED_IF_SET)

    @classmethod
    def of(
        cls,
        masses: Floats,
        lists: NeighborLists | None,
        edges: RadiusEdges | None,
        weights: str,
        scale: float,
    ) -> Self:
        """The map of a graph, with an empty block."""
        unequal = None if (masses == 1.0).all() else masses
        n = len(masses)
        if edges is not None:
            ends = edges.i, edges.j, edges.d2
            walk = neighbor_walk.walk_on_edges(*ends, n, weights, scale, masses=unequal)
        else:
            assert lists is not None
            walk = neighbor_walk.walk_on_lists(*lists.nearest, weights, scale, unequal)
        parts = neighbor_walk.find_parts(walk)
        empty_block = Block(np.zeros((n, 0), np.float32), np.zeros(0), parts.labels, -1.0)
        return cls(weights, scale, edges, empty_block, walk, parts)


@dataclass(frozen=True, slots=True, eq=False)
class AlignmentMap:
    """The map of locally linear embedding: reconstruction weights, and the bottom eigenpairs."""

    weights: Annotated[Floats, "slots k", "finite"]  # of the lists' neighbours, in their order
    bottom: BottomPairs  # by the last solve; at slots that were filled since from their neighbours
    rows: Count  # slots filled since that solve


@dataclass(frozen=True, slots=True, eq=False)
class GeodesicMap:
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


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """The engine's state between two chunks."""

    position: Count  # events learned
    scaling: Scaling
    support: Support
    cover: Cover | None  # nearest neighbours of the landmarks; None for other memories
    # The ring of unsquared distances, for objects without coordinates; written in place like the
    # kernel ring. Of a window it has the precision of that ring: only rescaling reads it.
    distances: KernelMatrix | None
    frame: FrameReference
    counts: UpdateCounts
    scales: LocalWidths | None = None  # where every slot has a width of its own: these
    lists: NeighborLists | None = None  # and its nearest neighbours, from which they come
    # The map of the method: one of them.
    dense: KernelMap | None = None
    sparse: GraphMap | None = None
    rebuilt: AlignmentMap | None = None
    curved: GeodesicMap | None = None
    # Among landmarks with widths of their own: of the last events, the sum of their squared
    # distances to the nearest landmark, in its widths, and how many they are.
    apart: tuple[Extent, Extent] = (0.0, 0.0)
    metrics: Learners | None = None  # None where no metric is learned
    picture: Layout | None = None  # places in the plane, where they were asked for
    # With a clock of event times: of the newest event, as of which masses are.
    time: Annotated[float, "finite"] | None = field(default=None, metadata=SAVED_IF_SET)

    @property
    def is_centred(self) -> bool:
        """Whether this is the state of a centred method."""
        return self.curved is not None or (self.dense is not None and self.dense.centred)

    @property
    def coincide(self) -> bool:
        """Whether no two slots differ."""
        if self.distances is None:
            points = self.support.points
            return bool((points[-1] == points[0]).all() and (points == points[0]).all())
        slots = np.arange(len(self.support))
        return not (self.distances.rows(slots[:1]).any() or self.distances.rows(slots).any())

    @property
    def active_masses(self) -> Floats:
        """Masses, shape (n,), 0 where a slot has no part in the map."""
        masses = self.support.masses
        if self.curved is None:
            return masses
        active: Floats = masses * (self.curved.labels == 0)
        if self.curved.geodesics.sources is None:
            return active
        result, slots = np.zeros(len(masses)), self.curved.geodesics.sources
        result[slots] = active[slots]
        return result

    @property
    def kernel_matrix(self) -> KernelMatrix:
        """The kernel matrix of a `KernelMap`."""
        return self._dense.graph

    @property
    def factor(self) -> Factor:
        """The factor of a `KernelMap`, or of a `GeodesicMap`."""
        return self._dense.factor if self.curved is None else self.curved.factor

    @property
    def _dense(self) -> KernelMap:
        assert self.dense is not None
        return self.dense

    @property
    def degrees(self) -> Floats:
        """q, the weights around each slot in all, shape (n,)."""
        if self.sparse is not None:
            return self.sparse.walk.degrees / self.support.masses
        if self.dense is None:
            return np.ones(len(self.support))
        return self.dense.degrees

    def kernel_input(self, rule: WidthRule | None) -> KernelInput:
        """The input of the kernel."""
        return KernelInput(self.support, self.read_distances(), self.scaling, self.scales, rule)

    def read_distances(self) -> Callable[[Ints], Floats] | None:
        """slots -> their unsquared distances to all, (b, n), for objects without coordinates."""
        ring = self.distances
        return None if ring is None else lambda slots: ring.rows(slots).astype(np.float64)

    def typical_coverage(self, rule: WidthRule | None, n_neighbors: int) -> float:
        """Of objects without coordinates; 0 where it follows from the points."""
        read_rows = self.read_distances()
        if read_rows is None:
            return 0.0
        d = read_rows(self.support.oldest_first[sample_rows(len(self.support))])
        if self.is_centred:
            return measure_neighbor_distance(d * d, n_neighbors)
        if self.scales is None or rule is None:
            return 0.0
        sums = sum_coverage(d * d, self.scales.widths, self.support.masses, rule)
        return float(np.median(sums))

    def resolution(self, size: int) -> float:
        """How coarse the cover of ``size`` landmarks is for the kernel; 0 for other memories."""
        if self.cover is None or self.is_centred or self.rebuilt is not None:
            return 0.0
        if self.scales is not None:
            total, weight = self.apart
            distance = math.sqrt(total / weight) if weight else 0.0
        else:
            distance = math.sqrt(self.cover.radius2(size)) / self.scaling.bandwidth
        return min(distance, LARGEST)

    def commit(self) -> None:
        """Discard the undo journal of the previous state; see `KernelMatrix.commit`."""
        if self.dense is not None:
            self.dense.graph.commit()
        if self.distances is not None:
            self.distances.commit()

    def copy(self) -> State:
        """The same state on its own rings, so that learning from it leaves this one whole."""
        distances = None if self.distances is None else self.distances.copy()
        dense = self.dense
        if dense is not None:
            dense = replace(dense, graph=dense.graph.copy())
        return replace(self, dense=dense, distances=distances)

    @classmethod
    def __unpack__(cls, packed: State) -> State:
        """With the scaled points and the walk, which follow from the rest and are not saved."""
        support, sparse = packed.support, packed.sparse
        scaled = packed.scaling.apply(support.points)
        if sparse is not None:
            graph_map = GraphMap.of(
                support.masses, packed.lists, sparse.edges, sparse.weights, sparse.scale
            )
            sparse = replace(sparse, walk=graph_map.walk, parts=graph_map.parts)
        picture = packed.picture
        if picture is not None:
            lists = picture.lists or packed.lists
            if lists is None:
                raise ValueError("a picture without lists of neighbours")
            picture = replace(picture, p=compute_affinities(select_neighbors(lists)[1]))
        return replace(
            packed, support=replace(support, scaled=scaled), sparse=sparse, picture=picture
        )
