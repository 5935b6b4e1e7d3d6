"""Maps of a ring of weights: all weights between slots, their sums, and a factor of them.

`RingMap` is what maps of a kernel and centred maps (`streamembed.methods.gram`) have in common: the
rows of new slots go into the ring, and the factor is bordered by them, or extended and refreshed.
`KernelMap` is the map of a kernel, whose points may have widths of their own.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import numpy as np

from streamembed.geometry import components, self_tuning
from streamembed.geometry.kernel_matrix import KernelMatrix, choose_dtype
from streamembed.geometry.neighbor_counts import NeighborCounts, measure_reaches
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.self_tuning import LocalWidths
from streamembed.geometry.support import Support
from streamembed.methods import publish, refinement
from streamembed.methods.eigenpairs import Eigenpairs, PublishedColumns
from streamembed.methods.extension import sum_coverage
from streamembed.methods.options import Config
from streamembed.methods.refinement import RefinementInput
from streamembed.methods.registry import EVERYWHERE, KernelInput
from streamembed.methods.state import (
    BuildInput,
    EmbeddingMap,
    KernelWidths,
    State,
    UpdateInput,
)
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.spectral import operator, tracker
from streamembed.spectral.operator import Normalisation
from streamembed.spectral.tracker import Factor

# Refilled slots after which the factor is refreshed, as a share of n: a tenth costs a third of a
# border a chunk, and keeps the plain view of the benchmark's streams under 6e-3.
REFRESH_SHARE = 0.1
# Chunks larger than this share of n go by extension and refresh, which is cheaper there, ...
BIG_CHUNK_SHARE = 0.05
# ... unless they are small in themselves, or the whole support is: then the border, or a fresh
# decomposition, costs less than either.
SMALL_CHUNK = 25
SMALL_SUPPORT_RANKS = 4
# s / f of any slot outside [1/3, 3] asks for a refresh: the frozen normalisation has aged.
LARGEST_RESCALING = 3.0
# Among landmarks: slots with so much of the stationary measure, for a new one ages as it grows.
# Any slot would ask for twice the refreshes, and no certificate would be met the sooner.
AGED_SHARE = 0.01
# Random directions, on the new slots only, for what an extension cannot see.
CHUNK_PROBES = 8
# Of a leaving entry beside the largest sum that stays: eleven digits of that are still right.
LARGEST_LEAVING = 1e5
# Warm-ups up to this size are decomposed exactly; larger ones by subspace iteration.
LARGEST_DECOMPOSED = 1000
# A plain view is off by less than this: it counts components where its first eigenvalue, and
# its estimate of the rest, come this near to 1.
NEAR_ONE = 0.05


@dataclass(frozen=True, eq=False)
class RingMap(EmbeddingMap):
    """All weights between slots, and a factor of them."""

    # The rows. Those of the next state lie in the same ring: once that state is committed, it
    # alone can be read.
    graph: KernelMatrix
    degrees: Annotated[Floats, "slots", "finite"]  # q = W m, exact
    factor: Factor
    refresh_share: ClassVar[float] = REFRESH_SHARE

    @classmethod
    @abc.abstractmethod
    def of(cls, graph: KernelMatrix, degrees: Floats, factor: Factor) -> Self:
        """Of a ring alone."""

    def border(
        self, inputs: UpdateInput, kernel: KernelInput, refilled: Ints, config: Config
    ) -> Self:
        """After ``refilled`` slots were filled, for the first time or again."""
        # rows: the kernel rows of these slots
        rows = config.embedding.rows(kernel, refilled, self.graph.buffer.dtype)
        leaving = self.graph.rows(refilled[refilled < self.graph.n])
        graph, support = self.graph.write(refilled, rows), inputs.support
        degrees = self._update_degrees(inputs, graph, refilled, leaving, rows)
        if np.abs(leaving).max(initial=0.0) > LARGEST_LEAVING * np.abs(degrees).max():
            return self.of(*decompose_ring(graph, support, config))  # both are rounding
        # factor: evict the old, border the new
        factor = self._update_factor(inputs, graph, degrees, refilled, rows, config)
        return replace(self, graph=graph, degrees=degrees, factor=factor)

    def _update_degrees(
        self, inputs: UpdateInput, graph: KernelMatrix, slots: Ints, leaving: Array, rows: Array
    ) -> Floats:
        """q = W m after the chunk.

        In a window: subtract the rows that leave as they were added, add the new. Among landmarks
        every mass may have changed: one product with the ring.
        """
        state, masses = inputs.state, inputs.support.masses
        if state.cover is not None:
            return graph.product(masses[:, None])[:, 0].astype(np.float64)
        degrees = np.concatenate([self.degrees, np.zeros(len(masses) - len(self.degrees))])
        if len(leaving):
            leaving_masses = state.support.masses[slots[slots < len(state.support)]]
            degrees[: leaving.shape[1]] -= leaving_masses @ leaving.astype(np.float64)
        exact = rows.astype(np.float64)
        degrees += masses[slots] @ exact
        degrees[slots] = exact @ masses
        return degrees

    def _update_factor(
        self,
        inputs: UpdateInput,
        graph: KernelMatrix,
        degrees: Floats,
        slots: Ints,
        rows: Array,
        config: Config,
    ) -> Factor:
        """The factor after the chunk, by the cheapest way that is sound at this size."""
        support, cut = inputs.support, config.rank_cut
        n, count = len(support), len(slots)
        if count == 0:
            return self.factor  # masses are a diagonal scaling, which the view restores
        exact = rows.astype(np.float64)
        normalise = config.embedding.normalise
        scaling = normalise(
            degrees, support.masses, config.correction, lambda x: exact @ x, slots
        ).scaling
        if count <= max(SMALL_CHUNK, BIG_CHUNK_SHARE * n):
            return tracker.replace(self.factor, slots, rows, scaling, cut)
        normal = normalise_ring(graph, degrees, support, config)
        if n <= SMALL_SUPPORT_RANKS * cut.most:
            return tracker.decompose(graph.weights, normal.scaling, cut)
        extended = tracker.extend(self.factor, slots, rows, scaling)
        probes = np.zeros((n, min(CHUNK_PROBES, count)))
        generator = np.random.default_rng((config.seed, inputs.state.position, n))
        probes[slots] = generator.standard_normal((count, probes.shape[1]))
        floor = operator.ROUNDING_FLOOR[graph.buffer.dtype]
        return tracker.refresh(
            extended, normal.scaling, graph.product, cut, floor, probes, operator.LARGEST_EIGENVALUE
        )

    def maintain(self, state: State, config: Config) -> State:
        """The state with its factor refreshed, where that is due."""
        counts = state.counts
        due = counts.rows_since_refresh >= self.refresh_share * len(state.support)
        if not due and not self.has_aged(state, config):
            return state
        normal = normalise_ring(self.graph, self.degrees, state.support, config)
        factor = tracker.refresh(
            self.factor,
            normal.scaling,
            self.graph.product,
            config.rank_cut,
            operator.ROUNDING_FLOOR[self.graph.buffer.dtype],
            norm=operator.LARGEST_EIGENVALUE,
        )
        counts = replace(counts, refreshes=counts.refreshes + 1, rows_since_refresh=0)
        refreshed = replace(self, degrees=self.correct_degrees(state.support), factor=factor)
        return replace(state, map=refreshed, counts=counts)

    def has_aged(self, state: State, config: Config) -> bool:
        """Whether the frozen normalisation asks for a refresh."""
        return False

    def correct_degrees(self, support: Support) -> Floats:
        """The degrees, without what rounding has added to them."""
        return self.degrees

    def compute_degrees(self, masses: Floats) -> Floats:
        """q, kept."""
        return self.degrees

    def commit(self) -> None:
        """Discard the ring's undo journal."""
        self.graph.commit()

    def copy(self) -> Self:
        """The same on its own ring."""
        return replace(self, graph=self.graph.copy())


@dataclass(frozen=True, eq=False)
class KernelMap(RingMap):
    """The map of a kernel between all points, by a walk on them."""

    # Where every slot has a width of its own: these, and the counts that tell which have drifted.
    scales: LocalWidths | None = None
    counts: NeighborCounts | None = None

    @classmethod
    def of(cls, graph: KernelMatrix, degrees: Floats, factor: Factor) -> Self:
        """With one bandwidth for all."""
        return cls(graph, degrees, factor)

    @classmethod
    def build(cls, inputs: BuildInput, config: Config) -> tuple[Self, Scaling]:
        """From scratch, with widths where the kernel has them."""
        support, scaling, rule = inputs.support, inputs.scaling, config.rule
        kernel = KernelInput(support, inputs.read_distances, scaling, None, rule)
        if rule is None:
            return cls.of(*build_ring(kernel, config, exact=False)), scaling
        geometry, slots = inputs.geometry, np.arange(len(support), dtype=np.int64)
        reaches = measure_reaches(geometry, slots, rule.n_neighbors)
        scales = self_tuning.fill_widths(
            LocalWidths.empty(), slots, reaches, kernel.squares, len(slots), rule
        )
        counts = NeighborCounts.build(geometry, np.maximum(reaches, scales.least))
        scaling = scaling.of_bandwidth(float(np.sqrt(rule.width)) * scales.typical)
        kernel = replace(kernel, scaling=scaling, scales=scales)
        built = cls.of(*build_ring(kernel, config, exact=False))
        return replace(built, scales=scales, counts=counts), scaling

    def update(self, inputs: UpdateInput, config: Config) -> tuple[Self, int]:
        """After a chunk: rows of its slots, and of those whose width has drifted."""
        scaling, rule = inputs.state.scaling, config.rule
        kernel = KernelInput(inputs.support, inputs.read_distances, scaling, self.scales, rule)
        if self.scales is None or self.counts is None or rule is None or not len(inputs.slots):
            return self.border(inputs, kernel, inputs.slots, config), len(inputs.slots)
        slots, n, k = inputs.slots, len(inputs.support), rule.n_neighbors
        after, least = inputs.geometry, self.scales.least
        # widths: of the new slots, and of those whose reach has drifted, which are filled again
        reaches = measure_reaches(after, slots, k)
        left = inputs.read_left(after)
        counts = self.counts.replace(slots, left, after, np.maximum(reaches, least))
        limit = max(SMALL_CHUNK, int(BIG_CHUNK_SHARE * n))
        # a border of both, unless the chunk alone takes most of it
        n_more = limit if 2 * len(slots) > limit else limit - len(slots)
        again = counts.find_drifted(k, least, slots)
        moved = measure_reaches(after, again, k)
        first = self_tuning.rank_drift(counts.bases[again], np.maximum(moved, least), n_more)
        again, moved = again[first], moved[first]
        counts = counts.refill(again, after, np.maximum(moved, least))
        refilled = np.concatenate([slots, again])
        squares = kernel.squares(refilled, self.graph.buffer.dtype)
        kernel = replace(kernel, computed=(refilled, squares))
        scales = self_tuning.fill_widths(
            self.scales, refilled, np.concatenate([reaches, moved]), kernel.squares, n, rule
        )
        bordered = self.border(inputs, replace(kernel, scales=scales), refilled, config)
        return replace(bordered, scales=scales, counts=counts), len(refilled)

    def has_aged(self, state: State, config: Config) -> bool:
        """True where the frozen normalisation is off by a factor of three.

        In a window, that of any slot; among landmarks, where a new one grows tenfold as a matter of
        course, that of slots which together have a share in the whole.
        """
        normal = self.normalise(state, config)
        ratio = normal.scaling / self.factor.scaling
        aged = (ratio > LARGEST_RESCALING) | (ratio * LARGEST_RESCALING < 1.0)
        share = float(normal.stationary[aged].sum())
        return share > (0.0 if state.cover is None else AGED_SHARE)

    def normalise(self, state: State, config: Config) -> Normalisation:
        """According to the factor, without a product with the ring."""
        factor, masses = self.factor, state.support.masses

        def product(x: Floats) -> Floats:
            return operator.estimate_product(factor, x)

        normalise = config.embedding.normalise
        return normalise(self.degrees, masses, config.correction, product, EVERYWHERE)

    def view(self, state: State, normal: Normalisation, count: int) -> tuple[Floats, Floats]:
        """The factor's leading pairs, under that normalisation."""
        root = operator.compute_root(self.factor, normal)
        values, vectors = operator.leading_pairs(root, normal, count)
        return values, normal.eigenfunctions(vectors)

    def publish(self, state: State, config: Config, counted: bool) -> PublishedColumns:
        """Refined, where a tolerance was asked for."""
        if config.tolerance is None:
            normal = self.normalise(state, config)
            values, psi = self.view(state, normal, config.n_pairs)
            return publish.estimate_columns(state, config, self.graph, normal, values, psi)
        inputs = RefinementInput(self.graph, self.factor, self.degrees, self.scales, state)
        return publish.select_best(refinement.refine(inputs, config), state, config)

    def count_components(self, state: State, config: Config, pairs: Eigenpairs) -> int:
        """Looked at only where a second eigenvalue 1 is not ruled out."""
        margin = NEAR_ONE if config.tolerance is None else pairs.tolerated_residual(config)
        largest = float(pairs.values.max(initial=0.0))
        bound = 0.0 if config.tolerance is None else pairs.outside.bound
        if max(largest + margin, bound) + pairs.rounding < 1.0:
            return 1
        return int(components.label_components(self.graph.weights).max()) + 1

    def describe_weights(self, state: State, config: Config) -> KernelWidths:
        """Gaussian of one bandwidth, or of a width for every slot."""
        n, scales, bandwidth = len(state.support), self.scales, state.scaling.bandwidth
        if scales is None or config.rule is None:
            return KernelWidths("gaussian", np.full(n, bandwidth), np.zeros(n), least=bandwidth)
        least = self_tuning.LEAST_WIDTH * scales.median
        return KernelWidths("self_tuning", scales.widths, scales.reaches, config.rule.width, least)

    def measure_coverage(self, d2: Floats, masses: Floats, config: Config) -> float:
        """The median kernel mass around them, in widths of the support."""
        if self.scales is None or config.rule is None:
            return 0.0
        return float(np.median(sum_coverage(d2, self.scales.widths, masses, config.rule)))

    @property
    def local_widths(self) -> LocalWidths | None:
        """Those of a self-tuning kernel."""
        return self.scales


def build_ring(
    kernel: KernelInput, config: Config, exact: bool
) -> tuple[KernelMatrix, Floats, Factor]:
    """Ring, degrees and factor of a support; ``exact`` for float64 whatever its size."""
    slots = np.arange(len(kernel.support), dtype=np.int64)
    empty = make_ring(len(slots), config, exact)
    graph = empty.write(slots, config.embedding.rows(kernel, slots, empty.buffer.dtype))
    return decompose_ring(graph, kernel.support, config)


def make_ring(n: int, config: Config, exact: bool) -> KernelMatrix:
    """An empty ring; ``exact`` for float64 whatever its size."""
    capacity = config.slots or max(n, 256)
    exact = exact or config.slots is None
    dtype = np.float64 if exact else choose_dtype(capacity, config.tolerance)
    return KernelMatrix.empty(capacity, dtype)


def decompose_ring(
    graph: KernelMatrix, support: Support, config: Config
) -> tuple[KernelMatrix, Floats, Factor]:
    """The ring, with degrees and factor by it alone."""
    degrees = graph.product(support.masses[:, None])[:, 0].astype(np.float64)
    normal, cut = normalise_ring(graph, degrees, support, config), config.rank_cut
    if len(support) <= max(LARGEST_DECOMPOSED, cut.most):
        return graph, degrees, tracker.decompose(graph.weights, normal.scaling, cut)
    factor = tracker.sketch(
        normal.scaling,
        graph.product,
        cut,
        operator.ROUNDING_FLOOR[graph.buffer.dtype],
        graph.buffer.dtype,
        config.seed,
        operator.LARGEST_EIGENVALUE,
    )
    return graph, degrees, factor


def normalise_ring(
    graph: KernelMatrix, degrees: Floats, support: Support, config: Config
) -> Normalisation:
    """The exact normalisation, by one product with the ring."""

    def product(x: Floats) -> Floats:
        return graph.product(x[:, None])[:, 0].astype(np.float64)

    return config.embedding.normalise(
        degrees, support.masses, config.correction, product, EVERYWHERE
    )
