"""A ring of weights: all weights between slots, their sums, and a factor of them.

What centred maps (`streamembed.methods.gram`) keep: the rows of new slots go into the ring, and the
factor is bordered by them, or extended and refreshed.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

import numpy as np

from streamembed.geometry.kernel_matrix import KernelMatrix, choose_dtype
from streamembed.geometry.support import Support
from streamembed.methods.options import Config
from streamembed.methods.registry import KernelInput
from streamembed.methods.state import EmbeddingMap, State, UpdateInput
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.spectral import operator, tracker
from streamembed.spectral.tracker import Factor

# Chunks larger than this share of n go by extension and refresh, which is cheaper there, ...
BIG_CHUNK_SHARE = 0.05
# ... unless they are small in themselves, or the whole support is: then the border, or a fresh
# decomposition, costs less than either.
SMALL_CHUNK = 25
SMALL_SUPPORT_RANKS = 4
# Random directions, on the new slots only, for what an extension cannot see.
CHUNK_PROBES = 8
# Of a leaving entry beside the largest sum that stays: eleven digits of that are still right.
LARGEST_LEAVING = 1e5
# Warm-ups up to this size are decomposed exactly; larger ones by subspace iteration.
LARGEST_DECOMPOSED = 1000


@dataclass(frozen=True, eq=False)
class RingMap(EmbeddingMap):
    """All weights between slots, and a factor of them."""

    # The rows. Those of the next state lie in the same ring: once that state is committed, it
    # alone can be read.
    graph: KernelMatrix
    degrees: Annotated[Floats, "slots", "finite"]  # q = W m, exact
    factor: Factor
    refresh_share: ClassVar[float]  # refilled slots after which the factor is refreshed, of n

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
        scaling, ones = np.ones(count), np.ones(n)
        if count <= max(SMALL_CHUNK, BIG_CHUNK_SHARE * n):
            return tracker.replace(self.factor, slots, rows, scaling, cut)
        if n <= SMALL_SUPPORT_RANKS * cut.most:
            return tracker.decompose(graph.weights, ones, cut)
        extended = tracker.extend(self.factor, slots, rows, scaling)
        probes = np.zeros((n, min(CHUNK_PROBES, count)))
        generator = np.random.default_rng((config.seed, inputs.state.position, n))
        probes[slots] = generator.standard_normal((count, probes.shape[1]))
        floor = operator.ROUNDING_FLOOR[graph.buffer.dtype]
        return tracker.refresh(
            extended, ones, graph.product, cut, floor, probes, operator.LARGEST_EIGENVALUE
        )

    def maintain(self, state: State, config: Config) -> State:
        """The state with its factor refreshed, where that is due."""
        counts = state.counts
        if counts.rows_since_refresh < self.refresh_share * len(state.support):
            return state
        factor = tracker.refresh(
            self.factor,
            np.ones(len(state.support)),
            self.graph.product,
            config.rank_cut,
            operator.ROUNDING_FLOOR[self.graph.buffer.dtype],
            norm=operator.LARGEST_EIGENVALUE,
        )
        counts = replace(counts, refreshes=counts.refreshes + 1, rows_since_refresh=0)
        refreshed = replace(self, degrees=self.correct_degrees(state.support), factor=factor)
        return replace(state, map=refreshed, counts=counts)

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
    ones, cut = np.ones(len(support)), config.rank_cut
    if len(support) <= max(LARGEST_DECOMPOSED, cut.most):
        return graph, degrees, tracker.decompose(graph.weights, ones, cut)
    factor = tracker.sketch(
        ones,
        graph.product,
        cut,
        operator.ROUNDING_FLOOR[graph.buffer.dtype],
        graph.buffer.dtype,
        config.seed,
        operator.LARGEST_EIGENVALUE,
    )
    return graph, degrees, factor
