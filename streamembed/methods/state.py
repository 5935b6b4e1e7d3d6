"""The state of an engine between two chunks: everything that must persist, nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Self

import numpy as np

from streamembed.geometry.kernel_matrix import Graph
from streamembed.geometry.lists import Edges, Lists
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.self_tuning import Rule, Scales
from streamembed.geometry.support import Support
from streamembed.landmarks.absorption import Cover
from streamembed.layout.forces import affinities
from streamembed.layout.layout import Layout, linked
from streamembed.manifold.barycentric import Bottom
from streamembed.manifold.geodesics import Geodesics
from streamembed.methods.extension import cover, sampled
from streamembed.methods.placement import reach_of
from streamembed.methods.registry import Seen
from streamembed.metric_learners.metrics import Learners
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.codec import KEPT_WHERE_SET, NOT_KEPT
from streamembed.spectral import neighbor_walk
from streamembed.spectral.block import Block
from streamembed.spectral.neighbor_walk import Parts, Walk
from streamembed.spectral.tracker import Factor

__all__ = ["Counts", "Curved", "Dense", "FrameReference", "Rebuilt", "Sparse", "State"]

LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, slots=True, eq=False)
class FrameReference:
    """The columns with which later snapshots are aligned.

    Attributes
    ----------
    columns : (n, c)
        psi of n_components and one more, as they were published, by slot.
    eigenvalues : (c,)
        Of these columns, by the plain view.
    births : (n,)
        Which event was in each slot then.
    position : int
        Stream position at which they were taken.
    epoch : int
        Raised whenever the axes start anew: at every rescaling, and where a column has turned so
        far that it is of no use beside what it was.
    restless : bool
        True where the columns turn so fast that the frame must be renewed with every chunk.
    displacement, movement : float
        What turning took out of these columns when they were made, and what it left.
    anchor : (m, c)
        Columns of this epoch, half a turnover ago at most, with which others are compared.
    anchor_births : (m,)
        Which event was in each slot then.
    """

    columns: Floats
    eigenvalues: Floats
    births: Ints
    position: int
    epoch: int
    restless: bool
    displacement: float
    movement: float
    anchor: Floats
    anchor_births: Ints


@dataclass(frozen=True, slots=True)
class Counts:
    """How often the state was made more exact than by bordering.

    Attributes
    ----------
    refreshes, rebuilds : int
        One-product refreshes, and factors made from scratch, since the first event.
    rows_since_refresh : int
        Slots filled since the last refresh.
    rows_since_frame : float
        By how many rows the support has changed since the frame was taken; among landmarks the
        mass that moved counts too.
    refilled : int
        Slots filled again because their width had drifted, since the first event.
    """

    refreshes: int
    rebuilds: int
    rows_since_refresh: int
    rows_since_frame: float
    refilled: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """The room of kernels: all weights, and a factor of them.

    Attributes
    ----------
    graph : Graph
        The kernel rows. Those of the next state lie in the same ring: once that state is settled,
        it alone can be read.
    degrees : (n,)
        q = W m, kept exactly.
    factor : Factor
    centred : bool
        Whether the factor is of W itself, and the mean is taken out in the view; see
        `streamembed.methods.gram`.
    """

    graph: Graph
    degrees: Floats
    factor: Factor
    centred: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Sparse:
    """The room of graphs: a walk among neighbours, and a block of its leading pairs.

    Attributes
    ----------
    weights : str
        See `streamembed.spectral.neighbor_walk.WEIGHTS`.
    scale : float
        What distances are divided by; see `streamembed.spectral.neighbor_walk.walk_on_lists`.
    edges : Edges or None
        Of a graph of all within a radius; None where neighbours are joined.
    block : Block
    low_rows, count_rows : int
        Slots filled since the least eigenvalue was looked for, and since eigenvalues were counted.
    counted : int
        Stream position of the last count; -1 before one.
    missed : int or None
        What it gave; see `streamembed.spectral.inertia`.
    walk : Walk
    parts : Parts
    """

    weights: str
    scale: float
    edges: Edges | None
    block: Block
    low_rows: int
    count_rows: int
    counted: int
    missed: int | None
    walk: Walk = field(metadata=NOT_KEPT)
    parts: Parts = field(metadata=NOT_KEPT)

    @classmethod
    def of(
        cls, masses: Floats, lists: Lists | None, edges: Edges | None, weights: str, scale: float
    ) -> Self:
        """The room of a graph, with a block that knows nothing."""
        unequal = None if (masses == 1.0).all() else masses
        n = len(masses)
        if edges is not None:
            walk = neighbor_walk.walk_on_edges(
                edges.i, edges.j, edges.d2, n, weights, scale, masses=unequal
            )
        else:
            assert lists is not None
            k = lists.n_neighbors
            walk = neighbor_walk.walk_on_lists(
                lists.near[:, :k], lists.d2[:, :k], weights, scale, unequal
            )
        parts = neighbor_walk.find_parts(walk)
        nothing = Block(np.zeros((n, 0), np.float32), np.zeros(0), parts.labels, -1.0)
        return cls(weights, scale, edges, nothing, 0, 0, -1, None, walk, parts)


@dataclass(frozen=True, slots=True, eq=False)
class Rebuilt:
    """The room of locally linear embedding: weights that rebuild points, and a bottom of pairs.

    Attributes
    ----------
    weights : (n, K)
        Of the lists' neighbours, in their order.
    bottom : Bottom
        By the last solve; at slots that were filled since from their neighbours.
    rows : int
        Slots filled since that solve.
    """

    weights: Annotated[Floats, "n k"]
    bottom: Bottom
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class Curved:
    """The room of Isomap: shortest paths on the graph of the lists, and a factor of -G^2 / 2.

    Attributes
    ----------
    geodesics : Geodesics
        Exact where they are repaired; without a compiler rows grow stale.
    labels : (n,)
        Parts of the graph, the largest 0: only that one has coordinates.
    factor : Factor
        By the last refresh; at slots filled since from their neighbours. Of landmarks that of their
        rows, 0 at all other slots.
    edges : Edges or None
        Of a graph of all within a radius; None where neighbours are joined.
    rows, stale : int
        Slots filled since the factor was refreshed, and since all rows were fresh.
    """

    geodesics: Geodesics
    labels: Annotated[Ints, "n"]
    factor: Factor
    edges: Edges | None
    rows: int
    stale: int


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """The engine's state between two chunks.

    Attributes
    ----------
    position : int
        Events learned.
    scaling : Scaling
    scales : Scales or None
        Where every slot has a width of its own: these.
    lists : Lists or None
        And its nearest neighbours, from which they come.
    support : Support
    cover : Cover or None
        Nearest neighbours of the landmarks; None for other memories.
    distances : Graph or None
        The ring of unsquared distances, for things without coordinates; written in place like the
        kernel ring. Of a window it has the precision of that ring: only rescaling reads it.
    dense : Dense or None
    sparse : Sparse or None
    rebuilt : Rebuilt or None
    curved : Curved or None
        The room in which the method works: one of them.
    frame : FrameReference
    counts : Counts
    apart : (float, float)
        Among landmarks with widths of their own: of the last events, the sum of their squared
        distances to the nearest landmark, in its widths, and how many they are.
    metrics : Learners or None
        None where no metric is learned.
    picture : Layout or None
        Places in the plane, where they were asked for.
    time : float or None
        With a clock of event times: of the newest event, as of which masses are.
    """

    position: int
    scaling: Scaling
    scales: Scales | None
    lists: Lists | None
    support: Support
    cover: Cover | None
    distances: Graph | None
    dense: Dense | None
    sparse: Sparse | None
    frame: FrameReference
    counts: Counts
    apart: tuple[float, float] = (0.0, 0.0)
    metrics: Learners | None = None
    rebuilt: Rebuilt | None = None
    curved: Curved | None = None
    picture: Layout | None = None
    time: float | None = field(default=None, metadata=KEPT_WHERE_SET)

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
    def counting(self) -> Floats:
        """Masses, shape (n,), 0 where a slot has no part in the map."""
        masses = self.support.masses
        if self.curved is None:
            return masses
        counting: Floats = masses * (self.curved.labels == 0)
        if self.curved.geodesics.sources is None:
            return counting
        result = np.zeros(len(masses))
        slots = self.curved.geodesics.sources
        result[slots] = counting[slots]
        return result

    @property
    def graph(self) -> Graph:
        """Of the dense room."""
        return self._dense.graph

    @property
    def factor(self) -> Factor:
        """Of the dense room, or of a curved one."""
        return self._dense.factor if self.curved is None else self.curved.factor

    @property
    def _dense(self) -> Dense:
        assert self.dense is not None
        return self.dense

    @property
    def degrees(self) -> Floats:
        """q, the weights around each slot in all, shape (n,)."""
        if self.sparse is not None:
            return self.sparse.walk.degrees / self.support.masses
        if self.dense is None:
            return np.ones(len(self.support))
        return self._dense.degrees

    def seen(self, rule: Rule | None) -> Seen:
        """What the kernel sees."""
        return Seen(self.support, self.known_distances(), self.scaling, self.scales, rule)

    def known_distances(self) -> Callable[[Ints], Floats] | None:
        """slots -> their unsquared distances to all, (b, n), for things without coordinates."""
        ring = self.distances
        return None if ring is None else lambda slots: ring.rows(slots).astype(np.float64)

    def typical_coverage(self, rule: Rule | None, n_neighbors: int) -> float:
        """Of things without coordinates with widths of their own; 0 where points can tell."""
        known = self.known_distances()
        if known is None:
            return 0.0
        d = known(self.support.oldest_first[sampled(len(self.support))])
        if self.is_centred:
            return reach_of(d * d, n_neighbors)
        if self.scales is None or rule is None:
            return 0.0
        sums = cover(d * d, self.scales.widths, self.support.masses, rule)
        return float(np.median(sums))

    def resolution(self, size: int) -> float:
        """How coarse the cover of ``size`` landmarks is for the kernel; 0 for other memories."""
        if self.cover is None or self.is_centred or self.rebuilt is not None:
            return 0.0
        if self.scales is not None:
            total, weight = self.apart
            found = math.sqrt(total / weight) if weight else 0.0
        else:
            found = math.sqrt(self.cover.radius2(size)) / self.scaling.bandwidth
        return min(found, LARGEST)

    def settle(self) -> None:
        """Forget the way back to the state before; see `Graph.settle`."""
        if self.dense is not None:
            self.dense.graph.settle()
        if self.distances is not None:
            self.distances.settle()

    def on_its_own(self) -> State:
        """The same state on rings of its own, so that learning from it leaves this one whole."""
        distances = None if self.distances is None else self.distances.copy()
        dense = self.dense
        if dense is not None:
            dense = replace(dense, graph=dense.graph.copy())
        return replace(self, dense=dense, distances=distances)

    @classmethod
    def __unpack__(cls, kept: State) -> State:
        """With the scaled points and the walk, which follow from the rest and are not kept."""
        support, sparse = kept.support, kept.sparse
        scaled = kept.scaling.apply(support.points)
        if sparse is not None:
            made = Sparse.of(support.masses, kept.lists, sparse.edges, sparse.weights, sparse.scale)
            sparse = replace(sparse, walk=made.walk, parts=made.parts)
        picture = kept.picture
        if picture is not None:
            lists = picture.lists or kept.lists
            if lists is None:
                raise ValueError("a picture without lists of neighbours")
            picture = replace(picture, p=affinities(linked(lists)[1]))
        return replace(
            kept, support=replace(support, scaled=scaled), sparse=sparse, picture=picture
        )
