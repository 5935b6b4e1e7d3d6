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
from streamembed.geometry.kernel_matrix import bound_rounding, choose_dtype
from streamembed.geometry.kernel_weights import KernelWeights
from streamembed.geometry.lists import NeighborLists
from streamembed.geometry.scaling import Scaling, measure_rounding
from streamembed.geometry.self_tuning import LocalWidths
from streamembed.geometry.support import Support
from streamembed.methods.eigenpairs import LARGEST_EXACT, Eigenpairs
from streamembed.methods.extension import sum_coverage
from streamembed.methods.options import USUAL_TOLERANCE, Config
from streamembed.methods.refinement import ORTHONORMAL, Weights
from streamembed.methods.registry import EVERYWHERE, KernelInput, compute_kernel_matrix
from streamembed.methods.state import BuildInput, KernelWidths, State, UpdateInput
from streamembed.methods.trial_map import (
    LARGEST_WHOLE,
    REBUILD_SHARE,
    ROLLED,
    SMALL_CHUNK,
    TrialMap,
    build_dense,
    fill_matrix,
    start_space,
)
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.numeric.linalg import descending_eigh
from streamembed.spectral import certificate
from streamembed.spectral.operator import RANK_CUT, Normalisation, Operator

# Slots filled again with a chunk, at most, beside its own: this share of n, unless they are few.
BIG_CHUNK_SHARE = 0.05
# Slots are rolled four times as often with one bandwidth for all, for eigenvalues fall slowly then,
# and so do errors.
ROLLED_ALIKE = 20
# By how much kept products may differ in norm from those of exact weights, in units of the
# precision. After 3.6 turnovers they differed by 4 (docs/decisions/0025); weights are known to 24.
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
    # Where every slot has a width of its own: these; ``lists`` tell which of them have drifted.
    scales: LocalWidths | None = None

    @property
    def rolled_share(self) -> int:
        """More with one bandwidth."""
        return ROLLED_ALIKE if self.scales is None else ROLLED

    @classmethod
    def build(cls, inputs: BuildInput, config: Config) -> tuple[Self, Scaling]:
        """From scratch, with widths where the kernel has them."""
        support, scaling, rule = inputs.support, inputs.scaling, config.rule
        kernel = KernelInput(support, inputs.read_distances, scaling, None, rule)
        scales = lists = None
        if rule is not None:
            lists = NeighborLists.build(
                inputs.geometry, support.births, rule.n_neighbors, is_distinct=True
            )
            slots, reaches = np.arange(len(support), dtype=np.int64), lists.reaches
            # as exact as these widths ask for: differences one by one take ten times as long
            median = float(np.median(reaches[reaches > 0.0])) if reaches.any() else 0.0
            near = replace(kernel, scales=LocalWidths(reaches, reaches, median))
            dtype = choose_dtype(config.slots or len(slots), config.tolerance)
            scales = self_tuning.fill_widths(
                LocalWidths.empty(), slots, lists, lambda part: near.squares(part, dtype), rule
            )
            scaling = scaling.of_bandwidth(float(np.sqrt(rule.width)) * scales.typical)
            kernel = replace(kernel, scaling=scaling, scales=scales)
        return cls._from_scratch(kernel, lists, config), scaling

    @classmethod
    def _from_scratch(
        cls, kernel: KernelInput, lists: NeighborLists | None, config: Config
    ) -> Self:
        """By the support alone."""
        masses, n = kernel.support.masses, len(kernel.support)
        weights, matrix, space, products = _weigh(kernel, config), None, None, 0
        if n <= LARGEST_EXACT:
            matrix = compute_kernel_matrix(kernel)
            degrees = matrix @ masses
        else:
            degrees = weights.product(masses[:, None])[:, 0].astype(np.float64)
        if n > LARGEST_WHOLE:
            space, products = start_space(weights, matrix, degrees, masses, config)
            matrix = None
        kept = _unbind(weights, kernel)
        return cls(degrees, matrix, space, kept, kernel.scales, lists=lists, products=products)

    def update(self, inputs: UpdateInput, config: Config) -> tuple[TrialMap, int]:
        """After a chunk: rows of its slots, and of those whose width has drifted."""
        scaling, rule, slots = inputs.state.scaling, config.rule, inputs.slots
        kernel = KernelInput(inputs.support, inputs.read_distances, scaling, self.scales, rule)
        if self.scales is None or self.lists is None or rule is None or not len(slots):
            return self._fill(inputs, kernel, slots, config), len(slots)
        # widths: of the new slots, and of those whose reach has drifted, which are filled again
        n = len(inputs.support)
        lists = self.lists.replace(slots, inputs.geometry, inputs.support.births)
        limit = max(SMALL_CHUNK, int(BIG_CHUNK_SHARE * n))
        n_more = limit if 2 * len(slots) > limit else limit - len(slots)
        drifted = self_tuning.find_drifted(self.scales, lists.reaches, slots, n_more)
        refilled, dtype = np.concatenate([slots, drifted]), self.weights.dtype
        scales = self_tuning.fill_widths(
            self.scales, refilled, lists, lambda part: kernel.squares(part, dtype), rule
        )
        kernel, following = replace(kernel, scales=scales), replace(self, lists=lists)
        return following._fill(inputs, kernel, refilled, config), len(refilled)

    def _fill(
        self, inputs: UpdateInput, kernel: KernelInput, refilled: Ints, config: Config
    ) -> TrialMap:
        """The map after ``refilled`` slots were filled, for the first time or again."""
        masses, n_before = inputs.support.masses, len(inputs.state.support)
        n = len(masses)
        if n > LARGEST_WHOLE and (
            self.space is None or len(refilled) >= max(REBUILD_SHARE * n, SMALL_CHUNK)
        ):
            return self._start_again(kernel, config)
        weights = _follow_weights(self.weights, kernel, refilled)
        kept = _unbind(weights, kernel)
        following = replace(self, weights=kept, scales=kernel.scales)
        if self.matrix is not None:
            rows = config.embedding.rows(kernel, refilled, np.float64)
            matrix = fill_matrix(self.matrix, rows, refilled)
            return replace(following, matrix=matrix, degrees=matrix @ masses)
        arriving, old = weights.rows(refilled), refilled[refilled < n_before]
        leaving = self._read_leaving(inputs, old)
        updated = following.replace_rows(weights, leaving, arriving, refilled, inputs, config)
        return following._start_again(kernel, config) if updated is None else updated

    def _start_again(self, kernel: KernelInput, config: Config) -> Self:
        built = self._from_scratch(kernel, self.lists, config)
        return replace(built, products=self.products + built.products)

    def _read_leaving(self, inputs: UpdateInput, old: Ints) -> Array:
        """Rows of W before the chunk, (b, n), of slots ``old``."""
        if inputs.left is None:
            return self.weights.rows(old)
        return self.weights.of_squares(inputs.read_squares_before).rows(old)

    def bind_weights(self, state: State, config: Config) -> KernelWeights:
        """Weights, of objects without coordinates by the distances of the state."""
        read_distances = state.read_distances()
        if read_distances is None:
            return self.weights
        return self.weights.of_squares(lambda slots: read_distances(slots) ** 2)

    def bind_operator(self, weights: Weights, normal: Normalisation, unit: float) -> Operator:
        """S, whose weights are rounded, and whose constant vector."""
        rounding = ORTHONORMAL + bound_rounding(weights.dtype, len(weights))
        return Operator(weights.product, normal, weights.dtype, rounding + 2.0 * self.weights.loss)

    def bound_loss(self, operator: Operator) -> float:
        """Kept products are sums of a few rows at a time."""
        loss = KEPT_LOSS * float(np.finfo(operator.dtype).eps)
        return min(operator.rounding, loss) + 2.0 * self.weights.loss

    def decompose_matrix(self, normal: Normalisation) -> tuple[Floats, Floats]:
        """Values and vectors of the matrix without those that are rounding, descending."""
        assert self.matrix is not None
        values, vectors = descending_eigh(build_dense(self.matrix, normal, False))
        is_real = values > REAL
        return values[is_real], vectors[:, is_real]

    def decompose(self, state: State, config: Config) -> Eigenpairs:
        """Every pair of the requested kernel, computed again in float64. O(n^3)."""
        masses, precision, weights = state.support.masses, np.dtype(np.float64), self.matrix
        if state.distances is not None:
            precision = state.distances.buffer.dtype
        if weights is None:
            read_distances = state.read_distances()
            kernel = KernelInput(
                state.support, read_distances, state.scaling, self.scales, config.rule
            )
            weights = compute_kernel_matrix(kernel)
        normal = config.embedding.normalise(
            weights @ masses, masses, config.correction, lambda x: weights @ x, EVERYWHERE
        )
        deflated = build_dense(weights, normal, False)
        values, vectors = descending_eigh(deflated)
        rounding = bound_rounding(precision, len(values))
        floor = min(rounding / (config.tolerance or USUAL_TOLERANCE), certificate.NEGLIGIBLE)
        # where even the first eigenvalue is too small for its tolerance, the constant is all
        cut = REAL if values[0] > floor else np.inf
        return Eigenpairs.of_dense(deflated, values, vectors, normal, rounding, cut, config)

    def count_components(self, state: State, config: Config, pairs: Eigenpairs) -> int:
        """Looked at only where a second eigenvalue 1 is not ruled out."""
        margin = NEAR_ONE if config.tolerance is None else pairs.tolerated_residual(config)
        largest = float(pairs.values.max(initial=0.0))
        if max(largest + margin, pairs.outside.bound) + pairs.rounding < 1.0:
            return 1
        weights = self.bind_weights(state, config)
        labels = components.label_components(weights.rows, len(weights))
        return int(labels.max()) + 1

    def bound_rounding(self, state: State, config: Config, unit: float) -> float:
        """Of exponents, and of sums of weights; a point that nothing is near to has neither."""
        if state.distances is not None:
            return 0.0
        has_near = self.degrees > (1.0 + REAL) * state.support.masses
        widths = np.sqrt(self.weights.factor) * self.weights.widths
        return 4.0 * measure_rounding(state.support.scaled, np.where(has_near, widths, 0.0))

    def describe_weights(self, state: State, config: Config) -> KernelWidths:
        """Gaussian of one bandwidth, or of a width for every slot."""
        n, scales, bandwidth = len(state.support), self.scales, state.scaling.bandwidth
        if scales is None or self.lists is None or config.rule is None:
            return KernelWidths("gaussian", np.full(n, bandwidth), np.zeros(n), least=bandwidth)
        reaches, width = self.lists.reaches, config.rule.width
        return KernelWidths("self_tuning", scales.widths, reaches, width, scales.least)

    def measure_coverage(self, d2: Floats, masses: Floats, config: Config) -> float:
        """The median kernel mass around them, in widths of the support."""
        if self.scales is None or config.rule is None:
            return 0.0
        return float(np.median(sum_coverage(d2, self.scales.widths, masses, config.rule)))

    @property
    def local_widths(self) -> LocalWidths | None:
        """Those of a self-tuning kernel."""
        return self.scales

    def restore(self, support: Support) -> Self:
        """With the weights between points."""
        if not support.scaled.shape[1]:
            return self
        return replace(self, weights=self.weights.of_points(support.scaled))


def _weigh(kernel: KernelInput, config: Config) -> KernelWeights:
    """The weights of a support."""
    n, points = len(kernel.support), kernel.support.scaled
    single = choose_dtype(config.slots or n, config.tolerance) == np.float32
    widths, factor = _read_widths(kernel)
    center = np.median(points, axis=0) if points.shape[1] else np.zeros(0)
    weights = KernelWeights(widths, factor, center, single)
    if kernel.distances is None:
        return weights.of_points(points)
    return weights.of_squares(kernel.squares)


def _unbind(weights: KernelWeights, kernel: KernelInput) -> KernelWeights:
    """As they are kept: learned distances are read from the state that they belong to."""
    return weights if kernel.distances is None else replace(weights, read_squares=None)


def _read_widths(kernel: KernelInput) -> tuple[Floats, float]:
    """Widths of the slots, and the factor c."""
    if kernel.scales is None or kernel.rule is None:
        return np.full(len(kernel.support), kernel.scaling.bandwidth), 1.0
    return kernel.scales.widths, kernel.rule.width


def _follow_weights(weights: KernelWeights, kernel: KernelInput, slots: Ints) -> KernelWeights:
    widths, _ = _read_widths(kernel)
    if kernel.distances is None:
        return weights.replace(slots, kernel.support.scaled, widths)
    return replace(weights, widths=widths).of_squares(kernel.squares)
