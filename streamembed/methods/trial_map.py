"""What maps keep that follow trial functions instead of a matrix of all weights.

Trial functions and probes have their products with W (`streamembed.spectral.trial_space`), and a
chunk changes these by the rows of its slots alone: rows that leave are computed again from the
support before. Few slots have a whole matrix.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Self

import numpy as np

from streamembed.methods import refinement
from streamembed.methods.eigenpairs import Eigenpairs
from streamembed.methods.options import Config
from streamembed.methods.refinement import Weights
from streamembed.methods.state import EmbeddingMap, Pairs, State, UpdateInput
from streamembed.numeric.arrays import Array, Floats, Ints, pad
from streamembed.numeric.codec import Count
from streamembed.numeric.linalg import (
    descending_eigh,
    largest_pairs,
    mix_columns,
    orthonormal_basis,
)
from streamembed.spectral import operator
from streamembed.spectral.operator import Normalisation, Operator
from streamembed.spectral.sketched_view import KnownProducts
from streamembed.spectral.trial_space import OF_TRIAL, PROBES, TrialSpace

# Supports up to this size have a matrix of their own, which is decomposed for every snapshot: that
# costs 2 ms, and less than trial functions do.
LARGEST_WHOLE = 192
# A chunk that fills no more slots than this is small, however few there are.
SMALL_CHUNK = 25
# Old slots that take new values with every row of the support that has changed: each slot does once
# in a fifth of a turnover, ...
ROLLED = 5
# ... and four times as often with one bandwidth for all, for eigenvalues fall slowly then, and so
# do errors; ...
ROLLED_ALIKE = 20
# ... and twice as often where slots are few: that costs little, and residuals fall to a third.
FEW_SLOTS = 1000
# Directions that probes show, at most, that join the functions with a product.
BESIDE = 16
# Slots that are rolled at once, at most: their rows are in memory.
ROWS = 256
# The space is turned when so much of the support is new.
TURN_SHARE = 0.05
# Of the support: more new rows at once than this, and a product makes all values again.
REFRESH_SHARE = 0.1
REBUILD_SHARE = 0.5
# Trial functions go down to this share of the last published eigenvalue, and a product brings
# others where they end above that one.
LEAST_SHARE, LACKING_SHARE = 1.0 / 6.0, 1.0 / 4.0
# Functions that may have faded before a product brings others.
SLACK = 8
# Nothing but rounding, as a share of four times the first eigenvalue.
NOTHING = 1e-7
# Residuals above this share of the tolerance ask for a product, in supports up to this many slots,
# where it takes less than ten chunks of ten do.
STALE_SHARE, LARGEST_REFRESHED = 0.5, 2000
# Steps of subspace iteration from random functions.
STEPS = 6
# Masses that were not touched are equal but for rounding.
UNTOUCHED = 1e-12
# W x for one x, shape (n,): by all weights, by trial functions, or of some rows of W alone.
Product = Callable[[Floats], Floats]
# All slots of a support.
EVERYWHERE = slice(None)


@dataclass(frozen=True, eq=False)
class TrialMap(EmbeddingMap):
    """Degrees of all slots, and products of trial functions with W where slots are many."""

    degrees: Annotated[Floats, "slots"]  # q = W m
    space: TrialSpace | None  # None of at most `LARGEST_WHOLE` slots: all is computed from scratch
    products: Count = field(default=0, kw_only=True)  # with W as a whole, since it was built

    @abc.abstractmethod
    def bind_weights(self, state: State, config: Config) -> Weights:
        """Weights between the slots of ``state``, whose map this is."""

    @abc.abstractmethod
    def bind_operator(
        self, weights: Weights, normal: Normalisation, unit: float
    ) -> tuple[Operator, float]:
        """S, by products with W; and by how much that of kept products may differ from it."""

    @abc.abstractmethod
    def decompose(self, state: State, config: Config) -> Eigenpairs:
        """Every pair at once, in double precision. O(n^3)."""

    @abc.abstractmethod
    def compute_matrix(self, state: State, config: Config) -> Floats:
        """W, in double precision, shape (n, n)."""

    @abc.abstractmethod
    def find_rounding_floor(self, values: Floats) -> float:
        """Eigenvalues up to this are rounding."""

    def replace_rows(
        self,
        weights: Weights,
        leaving: Array,
        arriving: Array,
        refilled: Ints,
        inputs: UpdateInput,
        config: Config,
    ) -> TrialMap | None:
        """The map with a space after ``refilled`` slots were filled, for the first time or again.

        None where it must be made from scratch. ``leaving`` are the rows of W before, of those
        refilled slots that were in use; ``arriving`` are the rows now.
        """
        assert self.space is not None
        masses, before = inputs.support.masses, inputs.state.support.masses
        n, n_before = len(masses), len(before)
        old = refilled[refilled < n_before]
        degrees = pad(self.degrees, n)
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
            product = partial(np.matmul, exact)
            normal = normalise_slots(degrees, masses, config, product, refilled)
            generator = np.random.default_rng((config.seed, inputs.position, n))
            draws = generator.standard_normal((PROBES, len(refilled)))
            constant = masses[refilled] * normal.density
            space = space.replace(refilled, leaving, arriving, normal.scaling, constant, draws)
        products += self.products
        following = replace(self, degrees=degrees, space=space, products=products)
        return following._refresh_some_slots(weights, inputs, len(refilled), config)

    def _refresh_some_slots(
        self, weights: Weights, inputs: UpdateInput, n_filled: int, config: Config
    ) -> TrialMap | None:
        """The map with its functions refreshed at some slots; after a large chunk, at all."""
        assert self.space is not None
        state, masses = inputs.state, inputs.support.masses
        n = len(masses)
        if n_filled > max(REFRESH_SHARE * n, SMALL_CHUNK):
            refreshed = self._refresh_all_slots(weights, masses, inputs.position, config)
            return refreshed if refreshed._shows_all(masses, config) else None
        share = 0.0
        if state.cover is not None:  # masses move as well
            before = pad(state.support.masses / state.support.masses.sum(), n)
            share = 0.5 * float(np.abs(masses / masses.sum() - before).sum())
        space = self.space
        is_alike = config.family == "kernel" and self.scales is None
        pace = (ROLLED_ALIKE if is_alike else ROLLED) * (2 if n <= FEW_SLOTS else 1)
        if space.is_complete and config.memory == "window":
            pace = 0
        count, degrees = int(np.ceil(pace * (n_filled + share * n))), self.degrees.copy()
        renews = config.memory != "window"
        chosen = (space.cursor + np.arange(min(count, n))) % n
        for start in range(0, len(chosen), ROWS):
            slots = chosen[start : start + ROWS]
            rows = weights.rows(slots)
            exact = rows.astype(np.float64)
            degrees[slots] = exact @ masses
            normal = normalise_slots(degrees, masses, config, partial(np.matmul, exact), slots)
            constant = masses[slots] * normal.density
            space = space.refresh_slots(slots, rows, normal.scaling, constant, renews)
        rolled = replace(self, degrees=degrees, space=space)
        if space.since_turn < TURN_SHARE * n:
            return rolled
        turned = replace(rolled, space=space.reduce_to_ritz(space.rank))
        if turned._lacks_functions(masses, config) or turned._is_stale(masses, config):
            return turned._refresh_all_slots(weights, masses, inputs.position, config)
        return turned

    def _lacks_functions(self, masses: Floats, config: Config) -> bool:
        """Whether the space ends above what the published columns ask for, and could be larger."""
        assert self.space is not None
        most, rank = _limit_rank(len(masses), config)[0], self.space.rank
        if self.space.is_complete:
            normal = self.estimate_normalisation(masses, config)
            return not _has_all(self.space, normal, self.degrees)
        if rank >= most - SLACK:
            return False
        if rank < config.n_carried + SLACK:
            return True
        values = np.diag(self.space.inner[:, OF_TRIAL])
        return bool(abs(values[-1]) > LACKING_SHARE * values[config.n_components - 1])

    def _is_stale(self, masses: Floats, config: Config) -> bool:
        """Whether snapshots would soon need a product each, where one costs few chunks."""
        assert self.space is not None
        if config.tolerance is None or len(masses) > LARGEST_REFRESHED or self.space.is_complete:
            return False
        count, normal = config.n_components, self.estimate_normalisation(masses, config)
        view = KnownProducts.of(self.space, normal, self.degrees).compute_view(
            normal.constant, count
        )
        claims = np.linalg.norm(view.errors, axis=0)
        limit = STALE_SHARE * config.tolerance * view.values[:1].max(initial=0.0)
        return bool(claims.max(initial=0.0) > limit)

    def _refresh_all_slots(
        self, weights: Weights, masses: Floats, position: int, config: Config
    ) -> Self:
        """The map with all values of its trial functions computed again, by one product."""
        assert self.space is not None
        normal = self.estimate_normalisation(masses, config)
        space, scaling = self.space, normal.scaling
        view = KnownProducts.of(space, normal, self.degrees).compute_view(normal.constant, 0)
        stepped = space.images[OF_TRIAL] * scaling.astype(space.images.dtype)
        beside = largest_pairs(view.residuals @ view.residuals.T, BESIDE)[1].T @ view.residuals
        beside = beside.astype(stepped.dtype)
        block = orthonormal_basis(np.concatenate([stepped, beside]).T).T
        functions = _draw_functions(block, normal, masses, position, config)
        images = np.ascontiguousarray(weights.product(functions.T).T)
        refreshed = _build_truncated_space(functions, images, normal, self.degrees, config)
        refreshed = replace(refreshed, cursor=space.cursor % len(scaling))
        return replace(self, space=refreshed, products=self.products + 1)

    def _shows_all(self, masses: Floats, config: Config) -> bool:
        """Whether a view has all pairs that are published: none is as long as its residual."""
        assert self.space is not None
        count = min(config.n_components, self.space.rank)
        normal = self.estimate_normalisation(masses, config)
        known = KnownProducts.of(self.space, normal, self.degrees)
        return len(known.compute_view(normal.constant, count).values) == count

    def compute_normalisation(self, state: State, config: Config) -> Normalisation:
        """The normalisation by the trial functions, without a product with W; exact for alpha 0."""
        masses = state.support.masses
        if self.space is not None:
            return self.estimate_normalisation(masses, config)
        return self._compute_exact_normalisation(self.bind_weights(state, config), masses, config)

    def _compute_exact_normalisation(
        self, weights: Weights, masses: Floats, config: Config
    ) -> Normalisation:
        """The normalisation by all weights."""

        def product(x: Floats) -> Floats:
            return weights.product(x[:, None])[:, 0].astype(np.float64)

        return normalise_slots(self.degrees, masses, config, product)

    def estimate_normalisation(self, masses: Floats, config: Config) -> Normalisation:
        """The normalisation by the trial functions."""
        assert self.space is not None
        return normalise_slots(self.degrees, masses, config, self.space.estimate_image)

    def refine_eigenpairs(self, state: State, config: Config) -> Iterator[Eigenpairs]:
        """Leading pairs, level by level, each computed only when you ask for the next one."""
        masses = state.support.masses
        if state.coincide:  # all weights are the same
            yield Eigenpairs.none(self.compute_normalisation(state, config))
            return
        if self.space is None:
            yield self.decompose(state, config)
            return
        weights = self.bind_weights(state, config)
        if config.tolerance is not None and config.resolved_alpha:
            normal = self._compute_exact_normalisation(weights, masses, config)
        else:
            normal = self.estimate_normalisation(masses, config)
        known = KnownProducts.of(self.space, normal, self.degrees)
        bound, loss = self.bind_operator(weights, normal, known.unit)
        decompose, known = partial(self.decompose, state, config), replace(known, rounding=loss)
        walk = None if config.is_centred else weights
        yield from refinement.refine_eigenpairs(
            bound, known, walk, state.position, decompose, config
        )

    def estimate_eigenpairs(
        self, state: State, normal: Normalisation, count: int, config: Config
    ) -> Pairs:
        """The leading pairs of the space, or of few slots, under that normalisation."""
        if self.space is None:
            dense = build_dense(self.compute_matrix(state, config), normal, config.is_centred)
            values, vectors = descending_eigh(dense)
            kept = min(count, int(np.count_nonzero(values > self.find_rounding_floor(values))))
            return values[:kept], normal.eigenfunctions(vectors[:, :kept])
        known = KnownProducts.of(self.space, normal, self.degrees)
        view = known.compute_view(normal.constant, count)
        return view.values * known.unit, normal.eigenfunctions(view.vectors)


def normalise_slots(
    degrees: Floats,
    masses: Floats,
    config: Config,
    product: Product,
    slots: Ints | slice = EVERYWHERE,
) -> Normalisation:
    """The normalisation of some slots, by one ``product`` with W at most: alpha 0 needs none.

    Of a walk the sampling density is taken out to the power alpha, and the rows are made to sum to
    1; of a centred method every event weighs the same.
    """
    if config.is_centred:
        normal = operator.weigh_equally(masses)
        return Normalisation(normal.density[slots], normal.scaling[slots], normal.stationary[slots])
    density = degrees**-config.resolved_alpha
    spread = degrees[slots] if config.resolved_alpha == 0.0 else product(masses * density)
    density, masses = density[slots], masses[slots]
    # at least m a, for W has a unit diagonal: where an estimate falls below, it is raised to that
    delta = density * np.maximum(spread, masses * density)
    weight = masses * delta
    return Normalisation(density, np.sqrt(masses) * density / np.sqrt(delta), weight / weight.sum())


def start_space(
    weights: Weights, matrix: Floats | None, degrees: Floats, masses: Floats, config: Config
) -> tuple[TrialSpace, int]:
    """A space from scratch, and how many products it took."""
    n, most = len(masses), _limit_rank(len(masses), config)[0]

    def product(block: Array) -> Array:
        return weights.product(block) if matrix is None else matrix @ block

    normal = normalise_slots(degrees, masses, config, lambda x: product(x[:, None])[:, 0])
    scaling, products = normal.scaling, 0
    if matrix is not None:
        block = find_leading(matrix, normal, most, config.is_centred)
    else:
        scale = scaling.astype(weights.dtype)[:, None]
        unit = normal.constant.astype(weights.dtype)[:, None]
        generator = np.random.default_rng(config.seed)
        block = generator.standard_normal((n, most), dtype=np.float32).astype(weights.dtype)
        for _ in range(STEPS):
            basis = orthonormal_basis(block - unit @ (unit.T @ block))
            image = scale * product(scale * basis)
            # as Ritz vectors: columns of very different sizes would be combinations of the first
            block = mix_columns(image, descending_eigh(basis.T @ image)[1])
            products += 1
        block = orthonormal_basis(block)
    functions = _draw_functions(block.T.astype(weights.dtype), normal, masses, n, config)
    images = np.ascontiguousarray(product(functions.T).T.astype(weights.dtype))
    return _build_truncated_space(functions, images, normal, degrees, config), products + 1


def find_leading(matrix: Floats, normal: Normalisation, most: int, is_centred: bool) -> Floats:
    """Leading eigenvectors of S without the constant, (n, most); of a centred S by size."""
    dense = build_dense(matrix, normal, is_centred)
    if not is_centred:
        return largest_pairs(dense, most)[1]
    values, vectors = descending_eigh(dense)
    return vectors[:, np.argsort(-np.abs(values), kind="stable")[:most]]


def build_dense(matrix: Floats, normal: Normalisation, is_centred: bool) -> Floats:
    """S without the constant, shape (n, n)."""
    scaling, constant = normal.scaling, normal.constant
    dense: Floats = matrix * np.outer(scaling, scaling)
    if not is_centred:
        dense -= np.outer(constant, constant)
        return dense
    dense -= np.outer(constant, constant @ dense)
    dense -= np.outer(dense @ constant, constant)
    return dense


def _build_truncated_space(
    functions: Array, images: Array, normal: Normalisation, degrees: Floats, config: Config
) -> TrialSpace:
    """A space of H and G: down to a share of the last published eigenvalue."""
    most, least = _limit_rank(len(degrees), config)
    space = TrialSpace.of(functions, images, normal.scaling, most, config.is_centred)
    if space.is_centred and space.rank < most and _has_all(space, normal, degrees):
        return space.mark_complete()
    values = np.abs(np.diag(space.inner[:, OF_TRIAL]))
    last = values[: config.n_components].min(initial=np.inf)
    count = int(np.count_nonzero(values > LEAST_SHARE * last))
    count = max(least, min(most, 8 * -(-count // 8)))
    return space.reduce_to_ritz(count) if count < space.rank else space


def _has_all(space: TrialSpace, normal: Normalisation, degrees: Floats) -> bool:
    """Whether a centred W has no other eigenfunctions, as one of points with few features."""
    look = KnownProducts.of(space, normal, degrees).compute_view(normal.constant, 0)
    beside = float(np.sqrt(np.diag(look.coupling).max(initial=0.0)))
    return max(look.beyond, beside) <= NOTHING


def _limit_rank(n: int, config: Config) -> tuple[int, int]:
    """Trial functions at most, and at least."""
    most, least = config.rank_limits
    return min(most, n // 3), min(least, n // 3)


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


def _fade_degrees(
    degrees: Floats, before: Floats, masses: Floats, old: Ints, weights: Weights
) -> tuple[Floats, int]:
    """Degrees after the masses of slots that stay have faded alike, or taken some; and products.

    Where most have changed, the degrees must be made again, by one product.
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
        degrees += change[moved] @ weights.rows(moved)[:, : len(before)].astype(np.float64)
    return degrees, 0
