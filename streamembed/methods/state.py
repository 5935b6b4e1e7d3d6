"""The state of an engine between two chunks: everything that must persist, nothing else."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Protocol

import numpy as np

from streamembed.geometry.kernel_matrix import KernelMatrix
from streamembed.geometry.lists import NeighborLists
from streamembed.geometry.pairwise import DistanceTable, Pairwise, PointDistances, SquaredDistances
from streamembed.geometry.scaling import Scaling, measure_rounding
from streamembed.geometry.self_tuning import LocalWidths
from streamembed.geometry.support import Support
from streamembed.landmarks.absorption import Cover
from streamembed.layout.forces import compute_affinities
from streamembed.layout.layout import Layout, select_neighbors
from streamembed.methods.eigenpairs import Eigenpairs
from streamembed.methods.extension import Extension, sample_rows
from streamembed.methods.options import Config
from streamembed.methods.snapshot_contents import SnapshotContents
from streamembed.metrics.engine_metrics import Learners
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.codec import NOT_SAVED, SAVED_IF_SET, Count
from streamembed.spectral import operator
from streamembed.spectral.certificate import Certificate
from streamembed.spectral.operator import Normalisation

NO_SLOTS: Ints = np.zeros(0, dtype=np.int64)
# Eigenvalues (c,) and eigenfunctions (n, c).
Pairs = tuple[Floats, Floats]
LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, slots=True, eq=False)
class FrameReference:
    """The coordinates onto which later ones are turned."""

    # Coordinates by all carried eigenpairs, turned onto the frame before, by slot; the first
    # n_components are those that are shown.
    columns: Annotated[Floats, "m c"]
    births: Annotated[Ints, "m"]  # which event was in each slot then
    position: Count  # stream position at which they were taken
    # Raised where axes could not be kept: at every rescaling, and where what is shown has changed
    # too much or became too small a part of the leading plane.
    epoch: Count
    since: Count  # stream position at which the epoch began
    # Axes that could not be kept: where the epoch began, or at a renewal within it; and for every
    # axis the position since which it is what it is.
    lost: tuple[int, ...] = ()
    kept_since: tuple[Count, ...] = ()
    # Of this frame against the one before; None, and empty, of columns that were given.
    fidelity: float | None = None
    correlations: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateCounts:
    """What was done to the state beside its chunks."""

    # Products with all weights, and maps made from scratch, since the first event.
    refreshes: Count = 0
    rebuilds: Count = 0
    # By how many rows the support has changed since the frame was taken; among landmarks the mass
    # that moved counts too.
    rows_since_frame: float = 0.0
    refilled: Count = 0  # slots filled again because their width had drifted, since the first event


@dataclass(frozen=True, slots=True)
class MapInput:
    """The support that a map is made of, or brought up to."""

    support: Support
    distances: KernelMatrix | None  # of objects without coordinates; see `State`
    squares: SquaredDistances  # those of new slots without rounding to the ring
    position: int
    slots: Ints  # those that a chunk has filled

    @property
    def geometry(self) -> Pairwise:
        """Of the support: its points, or its distances with those of new slots at hand."""
        ring = self.distances
        if ring is None:
            return PointDistances(self.support.scaled)

        def read_squares(slots: Ints) -> Floats:
            d = ring.rows(slots).astype(np.float64)
            return d * d

        return DistanceTable(self.slots, read_squares(self.slots), read_squares)


@dataclass(frozen=True, slots=True)
class BuildInput(MapInput):
    """What a map is made of from scratch."""

    scaling: Scaling


@dataclass(frozen=True, slots=True)
class UpdateInput(MapInput):
    """A chunk, as a map sees it; the support is that after it."""

    state: State  # before it
    left: Floats | None  # rows of distances of its slots before it, of those that were in use

    @property
    def squares_before(self) -> SquaredDistances:
        """Squared distances between slots of the support before the chunk."""
        read_distances = None if self.left is None else self._read_distances_before
        return SquaredDistances(self.state.support.scaled, read_distances)

    def _read_distances_before(self, old: Ints) -> Floats:
        """Distances before the chunk, (b, n), of slots that were in use then."""
        assert self.left is not None
        assert self.squares.read_distances is not None
        n = self.left.shape[1]
        slots = self.slots[self.slots < n]
        row_of = np.full(n, -1)
        row_of[slots] = np.arange(len(slots))
        d, index = self.squares.read_distances(old)[:, :n], row_of[old]
        d[:, slots] = self.left[:, old].T
        d[index >= 0] = self.left[index[index >= 0]]
        return d


@dataclass(frozen=True, slots=True, eq=False)
class WeightSummary:
    """How weights are made and what they join, by slot: what a snapshot says of them."""

    kernel: str
    widths: Floats
    reaches: Floats
    degrees: Floats  # q, the weights around each slot in all
    n_connected: int  # parts of their graph
    width: float = 1.0
    least: float = 0.0


class ExtensionFactory(Protocol):
    """What makes the extension of a snapshot to new points."""

    def __call__(self, snapshot: SnapshotContents, /) -> Extension: ...


@dataclass(frozen=True, eq=False)
class EmbeddingMap(abc.ABC):
    """What one family of methods keeps of a support, and all that depends on the family.

    A class a family, a file a class; `streamembed.methods.maps` lists them. They have no slots: a
    dataclass with slots is made twice, and saved maps are read by the names of their classes.
    """

    # Nearest neighbours of every slot, where the family keeps them.
    lists: NeighborLists | None = field(default=None, kw_only=True, metadata=SAVED_IF_SET)
    # Where every slot has a width of its own: these.
    scales: LocalWidths | None = field(default=None, kw_only=True, metadata=SAVED_IF_SET)
    # With all weights, since the map was made, where none is part of a chunk.
    products: Count = field(default=0, kw_only=True, metadata=NOT_SAVED)
    has_resolution: ClassVar[bool] = True  # whether landmarks can be too sparse for it
    extension: ClassVar[ExtensionFactory]

    @classmethod
    @abc.abstractmethod
    def build(cls, inputs: BuildInput, config: Config) -> tuple[EmbeddingMap, Scaling]:
        """From scratch, with the scaling and the bandwidth that belongs to it."""

    @abc.abstractmethod
    def update(self, inputs: UpdateInput, config: Config) -> tuple[EmbeddingMap, int]:
        """After a chunk; and how many slots were filled for it, first or again."""

    @abc.abstractmethod
    def estimate_eigenpairs(
        self, state: State, normal: Normalisation, count: int, config: Config
    ) -> Pairs:
        """Values and psi, shape (n, c), of the first ``count`` pairs as they are kept.

        ``normal`` is that of `compute_normalisation`.
        """

    def compute_coordinates(
        self, psi: Floats, eigenvalues: Floats, state: State, config: Config
    ) -> Floats:
        """Coordinates, shape (n, k).

        Of a walk lambda**t psi. Source: Jain, eq. (8).
        """
        return psi * eigenvalues**config.resolved_diffusion_time

    def compute_normalisation(self, state: State, config: Config) -> Normalisation:
        """The normalisation without a product with all weights; exact where that is free."""
        return operator.weigh_equally(self.zero_inactive_masses(state.support.masses))

    @abc.abstractmethod
    def refine_eigenpairs(self, state: State, config: Config) -> Iterator[Eigenpairs]:
        """Leading pairs, level by level, each computed only when you ask for the next one."""

    def summarise_weights(self, state: State, config: Config, pairs: Eigenpairs) -> WeightSummary:
        """How weights are made and what they join: by default without widths, and everything."""
        n, bandwidth = len(state.support), state.scaling.bandwidth
        kernel = config.kernel if config.method_row.kernels else "distance"
        widths = np.full(n, bandwidth)
        return WeightSummary(kernel, widths, np.zeros(n), np.ones(n), 1, least=bandwidth)

    def renew_eigenvalue_bound(self, state: State, config: Config) -> EmbeddingMap:
        """The map with a bound of now on eigenvalues that are not published."""
        return self

    def has_changed_part(self, state: State) -> bool:
        """Whether other points have coordinates than when the frame was taken."""
        return False

    def bound_operator_rounding(self, state: State, config: Config, unit: float) -> float:
        """By how much the rounding of scaled points may change the operator, in units of ``unit``.

        By default that of a graph, any of whose neighbours may be another one.
        """
        if state.distances is not None:
            return 0.0
        n, lists = len(state.support), self.lists
        reaches = np.full(n, config.radius or 0.0)
        if lists is not None:
            reaches = lists.reaches
        return n * measure_rounding(state.support.scaled, reaches)

    def complete_certificate(
        self, claim: Certificate, values: Floats, pairs: Eigenpairs, state: State, config: Config
    ) -> tuple[Certificate, Floats]:
        """Certificate and values as they are published, of those of the operator."""
        return claim, values

    def zero_inactive_masses(self, masses: Floats) -> Floats:
        """Masses, shape (n,), 0 where a slot has no part in the map."""
        return masses

    def measure_typical_coverage(self, d2: Floats, masses: Floats, config: Config) -> float:
        """What the coverage of a typical object is, by squared distances (b, n) of some."""
        return 0.0

    def restore(self, support: Support) -> EmbeddingMap:
        """With what follows from the rest and is not saved."""
        return self


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """The engine's state between two chunks."""

    position: Count  # events learned
    scaling: Scaling
    support: Support
    cover: Cover | None  # nearest neighbours of the landmarks; None for other memories
    # The ring of unsquared distances, for objects without coordinates; written in place. Weights of
    # a diffusion map are computed from it.
    distances: KernelMatrix | None
    frame: FrameReference
    counts: UpdateCounts
    map: EmbeddingMap
    # Among landmarks with widths of their own: of the last events, the sum of their squared
    # distances to the nearest landmark, in its widths, and how many they are.
    apart: tuple[float, float] = (0.0, 0.0)
    metrics: Learners | None = None  # None where no metric is learned
    picture: Layout | None = None  # places in the plane, where they were asked for
    # With a clock of event times: of the newest event, as of which masses are.
    time: float | None = field(default=None, metadata=SAVED_IF_SET)

    @property
    def lists(self) -> NeighborLists | None:
        """Nearest neighbours of every slot, where the map keeps them."""
        return self.map.lists

    @property
    def coincide(self) -> bool:
        """Whether no two slots differ."""
        if self.distances is None:
            points = self.support.points
            return bool((points[-1] == points[0]).all() and (points == points[0]).all())
        slots = np.arange(len(self.support))
        return not (self.distances.rows(slots[:1]).any() or self.distances.rows(slots).any())

    def as_input(self, slots: Ints = NO_SLOTS) -> MapInput:
        """What another map could be made of; ``slots`` are those that the last chunk has filled."""
        return MapInput(self.support, self.distances, self.squares, self.position, slots)

    def read_distances(self) -> Callable[[Ints], Floats] | None:
        """slots -> their unsquared distances to all, (b, n), for objects without coordinates."""
        ring = self.distances
        return None if ring is None else lambda slots: ring.rows(slots).astype(np.float64)

    @property
    def squares(self) -> SquaredDistances:
        """Squared distances between slots of the support."""
        return SquaredDistances(self.support.scaled, self.read_distances())

    def typical_coverage(self, config: Config) -> float:
        """Typical coverage of the support, for objects without coordinates."""
        read_rows = self.read_distances()
        assert read_rows is not None
        d = read_rows(self.support.oldest_first[sample_rows(len(self.support))])
        return self.map.measure_typical_coverage(d * d, self.support.masses, config)

    def resolution(self, size: int) -> float:
        """How coarse the cover of ``size`` landmarks is for the kernel."""
        assert self.cover is not None
        if not self.map.has_resolution:
            return 0.0
        if self.map.scales is not None:
            total, weight = self.apart
            distance = math.sqrt(total / weight) if weight else 0.0
        else:
            distance = math.sqrt(self.cover.radius2(size)) / self.scaling.bandwidth
        return min(distance, LARGEST)

    def copy(self) -> State:
        """The same state on its own rings, so that learning from it leaves this one whole."""
        return replace(self, distances=None if self.distances is None else self.distances.copy())

    @classmethod
    def __unpack__(cls, packed: State) -> State:
        """With what follows from the rest and is not saved."""
        support = packed.support
        support = replace(support, scaled=packed.scaling.apply(support.points))
        picture = packed.picture
        if picture is not None:
            lists = picture.lists or packed.lists
            if lists is None:
                raise ValueError("a picture without lists of neighbours")
            picture = replace(picture, p=compute_affinities(select_neighbors(lists)[1]))
        return replace(packed, support=support, map=packed.map.restore(support), picture=picture)
