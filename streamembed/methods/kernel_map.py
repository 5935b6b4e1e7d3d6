"""The map of a kernel between all points, by a walk on them.

No matrix of all weights is kept: `streamembed.methods.trial_map` has what is kept instead. Here are
the weights, with the widths of slots where every slot has one of its own, and what a Markov
operator makes of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from streamembed.geometry import components, self_tuning
from streamembed.geometry.kernel_matrix import choose_dtype
from streamembed.geometry.kernel_weights import KernelWeights, bound_rounding
from streamembed.geometry.lists import NeighborLists
from streamembed.geometry.scaling import Scaling, measure_rounding
from streamembed.geometry.self_tuning import LocalWidths
from streamembed.geometry.support import Support
from streamembed.methods.eigenpairs import LARGEST_EXACT, Eigenpairs
from streamembed.methods.extension import KernelExtension, sum_coverage
from streamembed.methods.options import USUAL_TOLERANCE, Config
from streamembed.methods.refinement import ORTHONORMAL, Weights
from streamembed.methods.state import BuildInput, State, UpdateInput, WeightSummary
from streamembed.methods.trial_map import (
    LARGEST_WHOLE,
    REBUILD_SHARE,
    SMALL_CHUNK,
    TrialMap,
    build_dense,
    normalise_slots,
    start_space,
)
from streamembed.numeric.arrays import Floats
from streamembed.numeric.linalg import descending_eigh
from streamembed.spectral import certificate
from streamembed.spectral.operator import RANK_CUT, Normalisation, Operator

# Slots filled again with a chunk, at most, beside its own: this share of n, unless they are few.
BIG_CHUNK_SHARE = 0.05
# By how much kept products may differ in norm from those of exact weights, in units of the
# precision. After 3.6 turnovers they differed by 4; weights are known to 24.
KEPT_LOSS = 64
# Eigenvalues below this are rounding.
REAL = RANK_CUT[np.dtype(np.float64)]
# A plain view is off by less than this: it counts components where its first eigenvalue, and
# its estimate of the rest, come this near to 1.
NEAR_ONE = 0.05


@dataclass(frozen=True, eq=False)
class KernelMap(TrialMap):
    """Weights, and widths where every slot has one of its own."""

    weights: KernelWeights

    extension = KernelExtension

    @classmethod
    def build(cls, inputs: BuildInput, config: Config) -> tuple[Self, Scaling]:
        """From scratch, with widths where the kernel has them."""
        support, scaling, rule = inputs.support, inputs.scaling, config.width_rule
        scales = lists = None
        if rule is not None:
            slots, k = np.arange(len(support), dtype=np.int64), rule.n_neighbors
            # few of a list's neighbours leave with a chunk: half as many to spare are faster than k
            spare, births = k // 2 + 1, support.births
            lists = NeighborLists.build(inputs.geometry, births, k, spare, is_distinct=True)
            read_squares = inputs.squares.rows
            scales = self_tuning.fill_widths(LocalWidths.empty(), slots, lists, read_squares, rule)
            scaling = scaling.with_bandwidth(float(np.sqrt(rule.width)) * scales.typical)
        return cls._from_scratch(inputs, scales, lists, scaling, config), scaling

    @classmethod
    def _from_scratch(
        cls,
        inputs: BuildInput | UpdateInput,
        scales: LocalWidths | None,
        lists: NeighborLists | None,
        scaling: Scaling,
        config: Config,
    ) -> Self:
        """By the support alone."""
        masses, squares = inputs.support.masses, inputs.squares
        n, points = len(masses), squares.points
        single = choose_dtype(config.max_slots or n, config.tolerance) == np.float32
        center = np.median(points, axis=0) if points.shape[1] else np.zeros(0)
        factor = 1.0 if config.width_rule is None else config.width_rule.width
        widths = np.full(n, scaling.bandwidth) if scales is None else scales.widths
        kept = KernelWeights(widths, factor, center, single)
        weights, matrix, space, products = kept.bind(squares), None, None, 0
        if n <= LARGEST_EXACT:
            matrix = weights.exact(squares).rows(np.arange(n)).astype(np.float64, copy=False)
            degrees = matrix @ masses
        else:
            degrees = weights.product(masses[:, None])[:, 0].astype(np.float64)
        if n > LARGEST_WHOLE:
            space, products = start_space(weights, matrix, degrees, masses, config)
        kept = kept if squares.read_distances else weights
        return cls(degrees, space, kept, lists=lists, scales=scales, products=products)

    def update(self, inputs: UpdateInput, config: Config) -> tuple[TrialMap, int]:
        """After a chunk: rows of its slots, and of those whose width has drifted."""
        rule, slots, squares = config.width_rule, inputs.slots, inputs.squares
        n, scales, lists, refilled = len(inputs.support), self.scales, self.lists, slots
        if scales is not None and lists is not None and rule is not None and len(slots):
            # widths: of the new slots, and of those whose reach has drifted: they are filled again
            lists = lists.replace(slots, inputs.geometry, inputs.support.births)
            limit = max(SMALL_CHUNK, int(BIG_CHUNK_SHARE * n))
            n_more = limit if 2 * len(slots) > limit else limit - len(slots)
            drifted = self_tuning.find_drifted(scales, lists.reaches, slots, n_more)
            refilled = np.concatenate([slots, drifted])
            scales = self_tuning.fill_widths(scales, refilled, lists, squares.rows, rule)
        updated, scaling = None, inputs.state.scaling
        if self.space is not None and len(refilled) < max(REBUILD_SHARE * n, SMALL_CHUNK):
            widths = np.full(n, scaling.bandwidth) if scales is None else scales.widths
            if squares.read_distances is None:
                kept = weights = self.weights.replace(refilled, squares.points, widths)
                before = self.weights
            else:  # learned distances are read from the state that they belong to
                kept = replace(self.weights, widths=widths)
                weights, before = kept.bind(squares), self.weights.bind(inputs.squares_before)
            leaving = before.rows(refilled[refilled < len(inputs.state.support)])
            following = replace(self, lists=lists, scales=scales, weights=kept)
            updated = following.replace_rows(
                weights, leaving, weights.rows(refilled), refilled, inputs, config
            )
        if updated is None:
            updated = self._from_scratch(inputs, scales, lists, scaling, config)
            updated = replace(updated, products=self.products + updated.products)
        return updated, len(refilled)

    def bind_weights(self, state: State, config: Config) -> KernelWeights:
        """Weights, of objects without coordinates by the distances of the state."""
        return self.weights if state.distances is None else self.weights.bind(state.squares)

    def bind_operator(
        self, weights: Weights, normal: Normalisation, unit: float
    ) -> tuple[Operator, float]:
        """S, whose weights are rounded, and whose constant vector; kept products sum few rows."""
        inexact = 2.0 * self.weights.loss
        rounding = ORTHONORMAL + bound_rounding(weights.dtype, len(weights)) + inexact
        loss = min(rounding, KEPT_LOSS * float(np.finfo(weights.dtype).eps)) + inexact
        return Operator(weights.product, normal, weights.dtype, rounding), loss

    def compute_matrix(self, state: State, config: Config) -> Floats:
        """W, in double precision."""
        return self.weights.exact(state.squares).rows(np.arange(len(state.support)))

    def decompose(self, state: State, config: Config) -> Eigenpairs:
        """Every pair of the requested kernel, computed again in float64. O(n^3)."""
        masses, weights = state.support.masses, self.compute_matrix(state, config)
        exact, ring = np.dtype(np.float64), state.distances
        normal = normalise_slots(weights @ masses, masses, config, lambda x: weights @ x)
        deflated = build_dense(weights, normal, False)
        values, vectors = descending_eigh(deflated)
        rounding = bound_rounding(exact if ring is None else ring.buffer.dtype, len(values))
        floor = min(rounding / (config.tolerance or USUAL_TOLERANCE), certificate.NEGLIGIBLE)
        # where even the first eigenvalue is too small for its tolerance, the constant is all
        cut = REAL if values[0] > floor else np.inf
        return Eigenpairs.of_dense(deflated, values, vectors, normal, rounding, cut, config)

    def find_rounding_floor(self, values: Floats) -> float:
        """The constant `REAL`: eigenvalues up to it are rounding."""
        return REAL

    def bound_operator_rounding(self, state: State, config: Config, unit: float) -> float:
        """How far the rounding of exponents, and of sums of weights, may change the operator.

        A point that nothing is near to has neither.
        """
        if state.distances is not None:
            return 0.0
        has_near = self.degrees > (1.0 + REAL) * state.support.masses
        widths = np.sqrt(self.weights.factor) * self.weights.widths
        return 4.0 * measure_rounding(state.support.scaled, np.where(has_near, widths, 0.0))

    def summarise_weights(self, state: State, config: Config, pairs: Eigenpairs) -> WeightSummary:
        """Gaussian of one bandwidth, or of a width for every slot.

        Parts are looked for only where a second eigenvalue 1 is not ruled out.
        """
        n, scales, bandwidth = len(state.support), self.scales, state.scaling.bandwidth
        largest, n_connected = float(pairs.values.max(initial=0.0)), 1
        margin = NEAR_ONE if config.tolerance is None else config.tolerance * largest
        if not max(largest + margin, pairs.outside.bound) + pairs.rounding < 1.0:
            labels = components.label_components(self.bind_weights(state, config).rows, n)
            n_connected = int(labels.max()) + 1
        if scales is None or self.lists is None or config.width_rule is None:
            names = "gaussian", np.full(n, bandwidth), np.zeros(n)
            return WeightSummary(*names, self.degrees, n_connected, least=bandwidth)
        names = "self_tuning", scales.widths, self.lists.reaches
        width = config.width_rule.width
        return WeightSummary(*names, self.degrees, n_connected, width, scales.least)

    def measure_typical_coverage(self, d2: Floats, masses: Floats, config: Config) -> float:
        """The median kernel mass around them, in widths of the support."""
        if self.scales is None or config.width_rule is None:
            return 0.0
        return float(np.median(sum_coverage(d2, self.scales.widths, masses, config.width_rule)))

    def restore(self, support: Support) -> Self:
        """With the weights between points."""
        if not support.scaled.shape[1]:
            return self
        return replace(self, weights=self.weights.between_points(support.scaled))
