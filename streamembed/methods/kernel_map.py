"""The map of a kernel between all points, by a walk on them.

No matrix of all weights is kept. Trial functions and probes are, with their products with it
(`streamembed.spectral.trial_space`), and a chunk changes these by the rows of its slots alone: rows
that leave are computed again from the points and widths of before. Few slots have a whole matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Self

import numpy as np

from streamembed.geometry import components, self_tuning
from streamembed.geometry.kernel_matrix import choose_dtype
from streamembed.geometry.kernel_weights import KernelWeights
from streamembed.geometry.neighbor_counts import NeighborCounts, measure_reaches
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.self_tuning import LocalWidths
from streamembed.geometry.support import Support
from streamembed.methods import publish, refinement
from streamembed.methods.eigenpairs import LARGEST_EXACT, Eigenpairs, PublishedColumns
from streamembed.methods.extension import sum_coverage
from streamembed.methods.options import Config
from streamembed.methods.refinement import LARGEST_WHOLE, RefinementInput
from streamembed.methods.registry import EVERYWHERE, KernelInput, compute_kernel_matrix
from streamembed.methods.state import (
    BuildInput,
    Count,
    EmbeddingMap,
    KernelWidths,
    State,
    UpdateInput,
)
from streamembed.numeric.arrays import Array, Floats, Ints, pad_rows
from streamembed.numeric.linalg import (
    descending_eigh,
    largest_pairs,
    mix_columns,
    orthonormal_basis,
)
from streamembed.spectral import trial_space
from streamembed.spectral.operator import Normalisation
from streamembed.spectral.trial_space import PROBES, TrialSpace

# Slots filled again with a chunk, at most, beside its own: this share of n, ...
BIG_CHUNK_SHARE = 0.05
# ... unless they are few.
SMALL_CHUNK = 25
# Old slots that take new values with every row of the support that has changed: each slot does once
# in a fifth of a turnover (docs/decisions/0025), ...
ROLLED = 5
# ... with one bandwidth four times as often, for eigenvalues fall slowly, and so do errors, ...
ROLLED_ALIKE = 20
# ... and twice as often where slots are few: that costs little, and residuals fall to a third.
FEW_SLOTS = 1000
# The space is turned when so much of the support is new.
TURN_SHARE = 0.05
# Of the support: more new rows at once than this, and one product makes all values anew.
REFRESH_SHARE = 0.1
REBUILD_SHARE = 0.5
# Trial functions go down to this share of the last published eigenvalue.
LEAST_SHARE = 1.0 / 6.0
# Trial functions beyond the pairs that coordinates are made of, at least.
LEAST_GUARDS = 12
# Functions that may have faded before a product brings others.
SLACK = 8
# Steps of subspace iteration from random functions.
STEPS = 6
# Masses that were not touched are equal but for rounding.
UNTOUCHED = 1e-12
# A plain view is off by less than this: it counts components where its first eigenvalue, and
# its estimate of the rest, come this near to 1.
NEAR_ONE = 0.05


@dataclass(frozen=True, eq=False)
class KernelMap(EmbeddingMap):
    """Degrees of all slots; and W of few, or the products of trial functions with it."""

    degrees: Annotated[Floats, "slots", "finite", "positive"]  # q = W m
    weights: KernelWeights
    # W of at most `LARGEST_WHOLE` slots, in double precision; of more: None, and a space.
    matrix: Annotated[Floats, "slots slots", "finite"] | None
    space: TrialSpace | None
    # Where every slot has a width of its own: these, and the counts that tell which have drifted.
    scales: LocalWidths | None = None
    counts: NeighborCounts | None = None
    products: Count = field(default=0, kw_only=True)  # with W as a whole, since it was built

    @classmethod
    def build(cls, inputs: BuildInput, config: Config) -> tuple[Self, Scaling]:
        """From scratch, with widths where the kernel has them."""
        support, scaling, rule = inputs.support, inputs.scaling, config.rule
        kernel = KernelInput(support, inputs.read_distances, scaling, None, rule)
        scales = counts = None
        if rule is not None:
            geometry, slots = inputs.geometry, np.arange(len(support), dtype=np.int64)
            reaches = measure_reaches(geometry, slots, rule.n_neighbors)
            scales = self_tuning.fill_widths(
                LocalWidths.empty(), slots, reaches, kernel.squares, len(slots), rule
            )
            counts = NeighborCounts.build(geometry, np.maximum(reaches, scales.least))
            scaling = scaling.of_bandwidth(float(np.sqrt(rule.width)) * scales.typical)
            kernel = replace(kernel, scaling=scaling, scales=scales)
        return cls._from_scratch(kernel, counts, config), scaling

    @classmethod
    def _from_scratch(
        cls, kernel: KernelInput, counts: NeighborCounts | None, config: Config
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
            space, products = _start_space(weights, matrix, degrees, masses, config)
            matrix = None
        kept = _unbind(weights, kernel)
        return cls(degrees, kept, matrix, space, kernel.scales, counts, products=products)

    def update(self, inputs: UpdateInput, config: Config) -> tuple[Self, int]:
        """After a chunk: rows of its slots, and of those whose width has drifted."""
        scaling, rule, slots = inputs.state.scaling, config.rule, inputs.slots
        kernel = KernelInput(inputs.support, inputs.read_distances, scaling, self.scales, rule)
        if self.scales is None or self.counts is None or rule is None or not len(slots):
            return self._fill(inputs, kernel, self.counts, slots, config), len(slots)
        n, k = len(inputs.support), rule.n_neighbors
        after, least = inputs.geometry, self.scales.least
        # widths: of the new slots, and of those whose reach has drifted, which are filled again
        reaches = measure_reaches(after, slots, k)
        left = inputs.read_left(after)
        counts = self.counts.replace(slots, left, after, np.maximum(reaches, least))
        limit = max(SMALL_CHUNK, int(BIG_CHUNK_SHARE * n))
        n_more = limit if 2 * len(slots) > limit else limit - len(slots)
        again = counts.find_drifted(k, least, slots)
        moved = measure_reaches(after, again, k)
        first = self_tuning.rank_drift(counts.bases[again], np.maximum(moved, least), n_more)
        again, moved = again[first], moved[first]
        counts = counts.refill(again, after, np.maximum(moved, least))
        refilled = np.concatenate([slots, again])
        squares = kernel.squares(refilled, self.weights.dtype)
        kernel = replace(kernel, computed=(refilled, squares))
        scales = self_tuning.fill_widths(
            self.scales, refilled, np.concatenate([reaches, moved]), kernel.squares, n, rule
        )
        kernel = replace(kernel, scales=scales)
        return self._fill(inputs, kernel, counts, refilled, config), len(refilled)

    def _fill(
        self,
        inputs: UpdateInput,
        kernel: KernelInput,
        counts: NeighborCounts | None,
        refilled: Ints,
        config: Config,
    ) -> Self:
        """The map after ``refilled`` slots were filled, for the first time or again."""
        masses, before = inputs.support.masses, inputs.state.support.masses
        n, n_before = len(masses), len(before)
        if n > LARGEST_WHOLE and (
            self.space is None or len(refilled) >= max(REBUILD_SHARE * n, SMALL_CHUNK)
        ):
            return replace(self, counts=counts)._start_again(kernel, config)
        weights = _follow_weights(self.weights, kernel, refilled)
        kept = _unbind(weights, kernel)
        following = replace(self, weights=kept, scales=kernel.scales, counts=counts)
        if self.space is None:
            matrix = _fill_matrix(self.matrix, kernel, refilled, config)
            return replace(following, matrix=matrix, degrees=matrix @ masses)
        # rows that arrive, and those that leave, as they were
        arriving, old = weights.rows(refilled), refilled[refilled < n_before]
        leaving = self._read_leaving(inputs, weights, old)
        degrees = pad_rows(self.degrees, n)
        degrees[:n_before] -= before[old] @ leaving.astype(np.float64)
        products = 0
        if inputs.state.cover is not None:  # those of a window are 1
            degrees[:n_before], products = _fade_degrees(
                degrees[:n_before], before, masses[:n_before], old, weights
            )
        exact = arriving.astype(np.float64)
        degrees += masses[refilled] @ exact
        degrees[refilled] = exact @ masses
        if products:
            degrees = weights.product(masses[:, None])[:, 0].astype(np.float64)
        space = self.space
        if len(refilled):
            normal = _normalise_rows(exact, degrees, masses, refilled, config)
            generator = np.random.default_rng((config.seed, inputs.position, n))
            draws = generator.standard_normal((PROBES, len(refilled)))
            constant = masses[refilled] * normal.density
            scaling = normal.scaling
            space = space.replace(refilled, leaving, arriving, scaling, constant, draws)
        following = replace(
            following, degrees=degrees, space=space, products=self.products + products
        )
        return following._keep_good(weights, kernel, inputs, len(refilled), config)

    def _start_again(self, kernel: KernelInput, config: Config) -> Self:
        built = self._from_scratch(kernel, self.counts, config)
        return replace(built, products=self.products + built.products)

    def _read_leaving(self, inputs: UpdateInput, weights: KernelWeights, old: Ints) -> Array:
        """Rows of W before the chunk, (b, n), of slots ``old``."""
        if inputs.left is None:
            return self.weights.rows(old)
        # distances: those of the chunk's slots were read before they were overwritten
        slots = inputs.slots[inputs.slots < len(self.weights)]
        left = inputs.left
        row_of = np.full(len(self.weights), -1)
        row_of[slots] = np.arange(len(slots))
        assert weights.read_squares is not None
        squares = weights.read_squares(old)[:, : len(self.weights)]
        index = row_of[old]
        squares[:, slots] = left[:, old].T ** 2
        squares[index >= 0] = left[index[index >= 0]] ** 2
        return self.weights.of_squares(lambda _: squares).rows(old)

    def _keep_good(
        self,
        weights: KernelWeights,
        kernel: KernelInput,
        inputs: UpdateInput,
        n_filled: int,
        config: Config,
    ) -> Self:
        """The map with a share of its slots rolled, or all values anew after a large chunk."""
        assert self.space is not None
        state, masses = inputs.state, inputs.support.masses
        n = len(masses)
        if n_filled > max(REFRESH_SHARE * n, SMALL_CHUNK):
            refreshed = self._refresh(weights, inputs.support, inputs.position, config)
            if refreshed._shows_all(inputs.support, config):
                return refreshed
            return self._start_again(kernel, config)
        share = 0.0
        if state.cover is not None:  # masses move as well
            before = pad_rows(state.support.masses / state.support.masses.sum(), n)
            share = 0.5 * float(np.abs(masses / masses.sum() - before).sum())
        space = self.space
        pace = ROLLED_ALIKE if self.scales is None else ROLLED
        if n <= FEW_SLOTS:
            pace *= 2
        slots = space.choose_rolled(int(np.ceil(pace * (n_filled + share * n))))
        rows = weights.rows(slots)
        exact, degrees = rows.astype(np.float64), self.degrees.copy()
        degrees[slots] = exact @ masses
        normal = _normalise_rows(exact, degrees, masses, slots, config)
        constant, renews = masses[slots] * normal.density, config.memory != "window"
        space = space.roll(slots, rows, normal.scaling, constant, renews)
        rolled = replace(self, degrees=degrees, space=space)
        if space.since_turn < TURN_SHARE * n:
            return rolled
        turned = replace(rolled, space=space.turn(space.rank))
        if turned._lacks_functions(config):
            return turned._refresh(weights, inputs.support, inputs.position, config)
        return turned

    def _lacks_functions(self, config: Config) -> bool:
        """Whether the space ends above what the published columns ask for, and could be larger."""
        assert self.space is not None
        most, rank = _limit_rank(len(self.degrees), config)[0], self.space.rank
        if rank >= most - SLACK:
            return False
        if rank < config.n_carried + SLACK:
            return True
        values = np.diag(self.space.inner[:, self.space.trial])
        return bool(values[-1] > LEAST_SHARE * values[config.n_components - 1])

    def _refresh(
        self, weights: KernelWeights, support: Support, position: int, config: Config
    ) -> Self:
        """With the values of all functions made anew, by one product."""
        assert self.space is not None
        normal = self._estimate_normal(support.masses, config)
        space, scaling = self.space, normal.scaling
        view = refinement.look_at(space, normal, 0)
        stepped = space.images[space.trial] * scaling.astype(space.images.dtype)
        beyond = view.residuals
        block = orthonormal_basis(np.concatenate([stepped, beyond]).T).T
        functions = _draw_functions(block, normal, support.masses, position, config)
        images = np.ascontiguousarray(weights.product(functions.T).T)
        most = _choose_rank(functions, images, scaling, config)
        refreshed = TrialSpace.of(functions, images, scaling, most)
        refreshed = replace(refreshed, cursor=space.cursor % len(scaling))
        return replace(self, space=refreshed, products=self.products + 1)

    def _shows_all(self, support: Support, config: Config) -> bool:
        """Whether a view has all pairs that are published: none is as long as its residual."""
        assert self.space is not None
        normal = self._estimate_normal(support.masses, config)
        count = min(config.n_components, self.space.rank)
        return len(refinement.look_at(self.space, normal, count).values) == count

    def normalise(self, state: State, config: Config) -> Normalisation:
        """According to the trial functions, without a product with W; exact where alpha is 0."""
        return self._estimate_normal(state.support.masses, config)

    def _estimate_normal(self, masses: Floats, config: Config) -> Normalisation:
        space, matrix = self.space, self.matrix

        def product(x: Floats) -> Floats:
            if space is not None:
                return space.estimate_image(x)
            assert matrix is not None
            image: Floats = matrix @ x
            return image

        normalise = config.embedding.normalise
        return normalise(self.degrees, masses, config.correction, product, EVERYWHERE)

    def view(self, state: State, normal: Normalisation, count: int) -> tuple[Floats, Floats]:
        """The leading pairs of the space, under that normalisation."""
        if self.space is not None:
            view = refinement.look_at(self.space, normal, count)
            return view.values, normal.eigenfunctions(view.vectors)
        assert self.matrix is not None
        values, vectors, _ = refinement.decompose_whole(self.matrix, normal)
        n_real = min(count, int(np.count_nonzero(values > refinement.REAL)))
        return values[:n_real], normal.eigenfunctions(vectors[:, :n_real])

    def publish(self, state: State, config: Config, counted: bool) -> PublishedColumns:
        """Refined, where a tolerance was asked for."""
        inputs = RefinementInput(
            self.bind_weights(state), self.matrix, self.space, self.degrees, self.scales, state
        )
        return publish.select_best(refinement.refine(inputs, config), state, config)

    def count_components(self, state: State, config: Config, pairs: Eigenpairs) -> int:
        """Looked at only where a second eigenvalue 1 is not ruled out."""
        margin = NEAR_ONE if config.tolerance is None else pairs.tolerated_residual(config)
        largest = float(pairs.values.max(initial=0.0))
        if max(largest + margin, pairs.outside.bound) + pairs.rounding < 1.0:
            return 1
        labels = components.label_components(self.bind_weights(state).rows, len(state.support))
        return int(labels.max()) + 1

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

    def count_products(self) -> int:
        """Of refreshes, and of the start."""
        return self.products

    def compute_degrees(self, masses: Floats) -> Floats:
        """q, kept."""
        return self.degrees

    def restore(self, support: Support) -> Self:
        """With the weights between points."""
        if not support.scaled.shape[1]:
            return self
        return replace(self, weights=self.weights.of_points(support.scaled))

    def bind_weights(self, state: State) -> KernelWeights:
        """Weights, of objects without coordinates by the distances of the state."""
        read_distances = state.read_distances()
        if read_distances is None:
            return self.weights
        return self.weights.of_squares(lambda slots: read_distances(slots) ** 2)


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


def _fill_matrix(matrix: Floats | None, kernel: KernelInput, slots: Ints, config: Config) -> Floats:
    assert matrix is not None
    n = len(kernel.support)
    filled = np.zeros((n, n))
    filled[: len(matrix), : len(matrix)] = matrix
    rows = config.embedding.rows(kernel, slots, np.float64)
    filled[slots] = rows
    filled[:, slots] = rows.T
    return filled


def _fade_degrees(
    degrees: Floats, before: Floats, masses: Floats, old: Ints, weights: KernelWeights
) -> tuple[Floats, int]:
    """Degrees after the masses of slots that stay have faded alike, or taken some; and products.

    Where most have changed, the degrees must be made anew, by one product.
    """
    stays = np.ones(len(before), dtype=bool)
    stays[old] = False
    if not stays.any():
        return degrees, 1
    fading = float(np.median((masses / before)[stays]))
    change = np.where(stays, masses - fading * before, 0.0)
    moved = np.flatnonzero(np.abs(change) > UNTOUCHED * masses)
    if 4 * len(moved) > len(before):
        return degrees, 1
    degrees = fading * degrees
    if len(moved):
        rows = weights.rows(moved)[:, : len(before)].astype(np.float64)
        degrees += change[moved] @ rows
    return degrees, 0


def _normalise_rows(
    rows: Floats, degrees: Floats, masses: Floats, slots: Ints, config: Config
) -> Normalisation:
    """The normalisation of some slots, by their rows of W: exact."""
    normalise = config.embedding.normalise
    return normalise(degrees, masses, config.correction, lambda x: rows @ x, slots)


def _limit_rank(n: int, config: Config) -> tuple[int, int]:
    """Trial functions at most, and at least."""
    cut = config.rank_cut
    least = config.n_carried + LEAST_GUARDS if isinstance(config.rank, str) else cut.least
    return min(cut.most, n // 3), min(least, n // 3)


def _choose_rank(functions: Array, images: Array, scaling: Floats, config: Config) -> int:
    """How many Ritz functions are kept: down to a share of the last published eigenvalue."""
    most, least = _limit_rank(len(scaling), config)
    rows = slice(1, len(functions) - PROBES)
    u, g = functions[rows], images[rows]
    weights = (1.0 / scaling**2).astype(u.dtype)
    a, gram = (u @ g.T).astype(np.float64), ((u * weights) @ u.T).astype(np.float64)
    values, _ = trial_space.solve_pencil(a, gram, np.zeros(len(u)))
    # the constant is the first
    last = values[: config.n_components + 1].min(initial=np.inf)
    count = int(np.count_nonzero(values > LEAST_SHARE * last))
    return max(least, min(most, 8 * -(-count // 8)))


def _draw_functions(
    block: Array, normal: Normalisation, masses: Floats, position: int, config: Config
) -> Array:
    """H: m a, the functions of S-vectors ``block`` (c, n), and fresh probes."""
    generator = np.random.default_rng((config.seed, position, len(masses), 1))
    draws = generator.standard_normal((PROBES, len(masses)))
    scaling = normal.scaling.astype(block.dtype)
    return np.concatenate(
        [
            (masses * normal.density)[None].astype(block.dtype),
            block * scaling,
            (draws * normal.scaling).astype(block.dtype),
        ]
    )


def _start_space(
    weights: KernelWeights,
    matrix: Floats | None,
    degrees: Floats,
    masses: Floats,
    config: Config,
) -> tuple[TrialSpace, int]:
    """A space from scratch, and how many products it took."""
    n, most = len(masses), _limit_rank(len(masses), config)[0]

    def product(block: Array) -> Array:
        return weights.product(block) if matrix is None else matrix @ block

    normalise = config.embedding.normalise
    normal = normalise(
        degrees, masses, config.correction, lambda x: product(x[:, None])[:, 0], EVERYWHERE
    )
    scaling, constant = normal.scaling, normal.constant
    products = 0
    if matrix is not None:
        deflated = matrix * np.outer(scaling, scaling) - np.outer(constant, constant)
        block = largest_pairs(deflated, most)[1]
    else:
        scale = scaling.astype(weights.dtype)[:, None]
        unit = constant.astype(weights.dtype)[:, None]
        generator = np.random.default_rng(config.seed)
        block = generator.standard_normal((n, most), dtype=np.float32).astype(weights.dtype)
        for _ in range(STEPS):
            basis = orthonormal_basis(block - unit @ (unit.T @ block))
            image = scale * product(scale * basis)
            # as Ritz vectors: columns of very different sizes would be combinations of the first
            block = mix_columns(image, descending_eigh(basis.T @ image)[1])
            products += 1
        block = orthonormal_basis(block)
    block = block.T.astype(weights.dtype)
    functions = _draw_functions(block, normal, masses, n, config)
    images = np.ascontiguousarray(product(functions.T).T.astype(weights.dtype))
    rank = _choose_rank(functions, images, scaling, config)
    return TrialSpace.of(functions, images, scaling, rank), products + 1
