"""Leading pairs of a state's operator, in levels of increasing cost.

1. view: the factor's own leading pairs under the exact normalisation, with their exact product;
2. polish: the Nystrom pairs of that same product;
3. refresh: a copy of the factor, refreshed with the probes' directions, and level 1 again;
4. exact: a whole decomposition of the kernel, computed again in float64, up to 1,000 points;
   batch: a filtered block on the whole operator, for more of them.

Each level ends with probes for eigenvalues that the factor lacks (`streamembed.spectral.probes`).
The state is not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from streamembed.geometry import components
from streamembed.geometry.kernel_matrix import KernelMatrix, bound_rounding
from streamembed.geometry.self_tuning import LocalWidths
from streamembed.methods.eigenpairs import (
    LARGEST_EXACT,
    SMALLEST_FACTORED,
    Eigenpairs,
    bound_following,
)
from streamembed.methods.options import Config
from streamembed.methods.registry import EVERYWHERE, KernelInput, compute_kernel_matrix
from streamembed.methods.state import State
from streamembed.numeric.arrays import Floats
from streamembed.numeric.linalg import descending_eigh, nystrom_pairs
from streamembed.spectral import certificate, filtered, probes, tracker
from streamembed.spectral.certificate import Outside
from streamembed.spectral.operator import (
    LARGEST_EIGENVALUE,
    RANK_CUT,
    ROUNDING_FLOOR,
    Normalisation,
    Operator,
    compute_root,
    deflate,
    leading_pairs,
)
from streamembed.spectral.probes import ResidualBound
from streamembed.spectral.tracker import Factor

REFRESHES = 4
# Columns of a float64 factor were 3e-10 off orthonormal after many borders; their residuals are no
# better known.
ORTHONORMAL = 1e-9
# A pair of the factor may be too small by the cut in its own direction, which is an eigenvalue
# that the factor lacks: twice the probes' estimate of that is allowed for.
PARTLY = 2.0
# The block takes pairs down to this multiple of the cut below lambda_k: the probes' estimate is
# about as large as the cut, and its double fits there.
REACH = 2.2
# A batch aims below the tolerance, to which rounding is added.
BATCH_SHARE = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class RefinementInput:
    """What is refined."""

    matrix: KernelMatrix  # W
    factor: Factor
    degrees: Floats
    scales: LocalWidths | None
    state: State


def refine(inputs: RefinementInput, config: Config) -> Iterator[Eigenpairs]:
    """Leading pairs, level by level, each computed only when you ask for the next one."""
    state, matrix, n = inputs.state, inputs.matrix, inputs.matrix.n
    if n <= SMALLEST_FACTORED:
        yield _decompose(inputs, config)
        return
    operator, draws, images, strength = _normalise(inputs, config)
    if state.coincide:  # all weights are 1
        yield Eigenpairs.none(operator.normal)
        return
    factor, refinement = inputs.factor, "view"
    for attempt in range(REFRESHES + 1):
        measured = _measure_view(operator, config, factor, draws, images, strength, refinement)
        yield measured.bound_rest(measured.pairs, config)
        # a polish makes residuals smaller, nothing else
        misses = measured.pairs.misses_leading(config)
        if not (misses or measured.pairs.meets_tolerance(config)):
            yield measured.bound_rest(_polish(measured, config), config)
        if attempt == REFRESHES:
            break
        directions = measured.residual_bound.directions
        if attempt == 0 and _reaches_one(measured.pairs):
            parts = _find_parts(matrix, operator.normal, config.rank_cut.most)
            directions = np.concatenate([parts, directions], axis=1)
        factor = tracker.refresh(
            factor,
            operator.normal.scaling,
            matrix.product,
            config.rank_cut,
            ROUNDING_FLOOR[operator.dtype],
            directions,
            LARGEST_EIGENVALUE,
        )
        draws = probes.draw_probes(n, config.seed + attempt + 1, state.position)
        images, strength, refinement = operator.apply(draws), 1.0, "refresh"
    if n <= LARGEST_EXACT:
        yield _decompose(inputs, config)
    else:
        yield _filter_block(matrix, operator, config, measured.pairs, draws)


def _normalise(inputs: RefinementInput, config: Config) -> tuple[Operator, Floats, Floats, float]:
    """The operator by one product with W, and for free probes, their images, their strength."""
    state, graph = inputs.state, inputs.matrix
    # S y = diag(s) W x for y = x / s: with a good guess of s the probes y are nearly normal
    guess = state.map.normalise(state, config).scaling
    draws = guess[:, None] * probes.draw_probes(graph.n, config.seed, state.position)
    images: Floats | None = None

    def product(x: Floats) -> Floats:
        nonlocal images
        columns = graph.product(np.column_stack([x, draws])).astype(np.float64)
        images = columns[:, 1:]
        return columns[:, 0]

    normalise = config.embedding.normalise
    normal = normalise(inputs.degrees, state.support.masses, config.correction, product, EVERYWHERE)
    if images is None:  # the degrees were enough
        images = graph.product(draws).astype(np.float64)
    dtype, scaling = graph.buffer.dtype, normal.scaling
    rounding = ORTHONORMAL + bound_rounding(dtype, graph.n)
    strength = float((guess / scaling).min())
    return (
        Operator(graph.product, normal, dtype, rounding),
        draws / scaling[:, None],
        scaling[:, None] * images,
        strength,
    )


def _find_parts(matrix: KernelMatrix, normal: Normalisation, most: int) -> Floats:
    """An orthonormal basis of the eigenvalue 1 of S, at most ``most`` columns, shape (n, c - 1)."""
    labels = components.label_components(matrix.weights)
    return components.build_indicators(labels, normal.constant, most)


@dataclass(slots=True, eq=False)
class _FactorView:
    """A factor's leading pairs, the product that measures them, and a bound on the rest."""

    pairs: Eigenpairs
    # (n, m): leading vectors and the probes' directions, orthonormal, and S @ block.
    block: Floats
    image: Floats
    residual_bound: ResidualBound  # on the part that neither the vectors nor the factor span
    remaining: float  # the first eigenvalue of the factor that is not in the block, 0 where all are
    # (block, S @ block) -> its image under that part.
    apply_rest: Callable[[Floats, Floats], Floats]
    operator: Operator

    def bound_rest(self, pairs: Eigenpairs, config: Config) -> Eigenpairs:
        """The pairs with lambda_(k+1), probed further where that would show it to be small."""
        level = pairs.outside_limit(config)
        if (
            pairs.meets_tolerance(config)
            and self.remaining + self.factor_loss <= level < self.residual_bound.bound
        ):
            self.residual_bound = probes.tighten_bound(
                self.residual_bound,
                lambda block: self.apply_rest(block, self.operator.apply(block)),
                # below the level, for the multiplied block is coupled to it
                max(0.5 * (level + self.residual_bound.estimate), 0.9 * level),
            )
        beyond = max(self.residual_bound.bound, self.remaining + self.factor_loss)
        outside = bound_following(
            self.block, self.image, min(beyond, 1.0), config.n_components, self.operator.rounding
        )
        return replace(pairs, outside=outside)

    @property
    def factor_loss(self) -> float:
        """What the rest of the factor may lack: twice the estimate beyond its span."""
        return PARTLY * self.residual_bound.estimate if self.remaining else 0.0


def _measure_view(
    operator: Operator,
    config: Config,
    factor: Factor,
    draws: Floats,
    draw_images: Floats,
    strength: float,
    refinement: str,
) -> _FactorView:
    """View and probes of a factor, by one product.

    ``draws``, with their ``draw_images``, are at least ``strength`` times as long in every
    direction as standard normal columns. The block takes all pairs of the factor that could be
    among the first if they lacked what it cuts off.
    """
    normal, count = operator.normal, config.n_pairs
    root = compute_root(factor, normal)
    cut = max(float(factor.values[-1]), config.rank_cut.level * float(factor.values[:2][-1]))
    values, vectors = leading_pairs(root, normal, count, REACH * cut)
    c = vectors.shape[1]
    remaining = float(values[c]) if len(values) > c else 0.0
    basis = np.concatenate([normal.constant[:, None], vectors], axis=1)

    def apply_rest(block: Floats, image: Floats) -> Floats:
        rest: Floats = image - root @ (root.T @ block.astype(root.dtype))
        rest -= basis @ (basis.T @ rest)
        return rest

    residual_bound = probes.find_directions(apply_rest(draws, draw_images), strength, basis)
    block = np.concatenate([vectors, residual_bound.directions], axis=1)
    image = operator.apply(block)
    residual_bound = probes.estimate_bound(
        residual_bound, apply_rest(residual_bound.directions, image[:, c:])
    )
    outside = bound_following(block, image, 1.0, config.n_components, operator.rounding)
    pairs = _measure(operator, vectors, image[:, :c], count, refinement, outside)
    return _FactorView(pairs, block, image, residual_bound, remaining, apply_rest, operator)


def _measure(
    operator: Operator,
    vectors: Floats,
    image: Floats,
    count: int,
    refinement: str,
    outside: Outside,
) -> Eigenpairs:
    """The first ``count`` of orthonormal vectors as pairs, by their Rayleigh quotients."""
    quotients = np.einsum("ij,ij->j", vectors, image)
    if (np.diff(quotients) > 0.0).any():
        order = np.argsort(-quotients, kind="stable")
        quotients, vectors, image = quotients[order], vectors[:, order], image[:, order]
    floor = RANK_CUT[operator.dtype]
    c = min(count, int(np.count_nonzero(quotients > floor)))
    lengths = np.sqrt(np.einsum("ij,ij->j", vectors[:, :c], vectors[:, :c]))
    vectors, quotients = vectors[:, :c] / lengths, quotients[:c] / lengths**2
    errors = image[:, :c] / lengths - vectors * quotients
    return Eigenpairs(
        quotients, vectors, errors, outside, operator.normal, operator.rounding, refinement
    )


def _polish(measured: _FactorView, config: Config) -> Eigenpairs:
    """The Nystrom pairs of the block's own product, with their exact residual."""
    operator, count = measured.operator, config.n_pairs
    floor = ROUNDING_FLOOR[operator.dtype]
    vectors = nystrom_pairs(measured.block, measured.image, floor, LARGEST_EIGENVALUE)[1][:, :count]
    vectors = deflate(vectors, operator.normal.constant)
    refinement = "polish" if measured.pairs.refinement == "view" else measured.pairs.refinement
    image = operator.apply(vectors)
    return _measure(operator, vectors, image, count, refinement, measured.pairs.outside)


def _reaches_one(pairs: Eigenpairs) -> bool:
    """True where the pairs do not rule out a second eigenvalue 1."""
    first = float(pairs.values[:1].max(initial=0.0)) + pairs.largest_residual(1)
    return max(first, pairs.outside.estimate) + pairs.rounding >= 1.0


def _decompose(inputs: RefinementInput, config: Config) -> Eigenpairs:
    """Every pair of the requested kernel, computed again in float64. O(n^3)."""
    assert config.tolerance is not None
    state = inputs.state
    masses, precision = state.support.masses, np.dtype(np.float64)
    if state.distances is not None:
        precision = state.distances.buffer.dtype
    kernel = KernelInput(
        state.support, state.read_distances(), state.scaling, inputs.scales, config.rule
    )
    weights = compute_kernel_matrix(kernel)
    normalise = config.embedding.normalise
    degrees = weights @ masses
    normal = normalise(degrees, masses, config.correction, lambda x: weights @ x, EVERYWHERE)
    deflated = weights * np.outer(normal.scaling, normal.scaling)
    deflated -= np.outer(normal.constant, normal.constant)
    values, vectors = descending_eigh(deflated)
    count = config.n_pairs
    rounding = bound_rounding(precision, len(values))
    floor = min(rounding / config.tolerance, certificate.NEGLIGIBLE)
    # where even the first eigenvalue is too small for its tolerance, the constant is all there is
    is_real = values > (RANK_CUT[np.dtype(np.float64)] if values[0] > floor else np.inf)
    n_kept = min(count, int(np.count_nonzero(is_real)))
    leading = deflate(vectors[:, :n_kept], normal.constant)
    errors = deflated @ leading - leading * values[:n_kept]
    following = float(values[min(n_kept, config.n_components) :].max(initial=0.0))
    outside = Outside(following, following, values[: min(n_kept, config.n_components)])
    return Eigenpairs(values[:n_kept], leading, errors, outside, normal, rounding, "exact")


def _filter_block(
    matrix: KernelMatrix, operator: Operator, config: Config, best: Eigenpairs, starts: Floats
) -> Eigenpairs:
    """The last level of large supports: a filtered block, and probes beyond it."""
    assert config.tolerance is not None
    count, constant = config.n_components + 1, operator.normal.constant
    start = [best.vectors, starts]
    if _reaches_one(best):
        start.insert(1, _find_parts(matrix, operator.normal, count))
    _, vectors, image = filtered.leading_pairs(
        lambda block: deflate(operator.apply(block), constant),
        deflate(np.concatenate(start, axis=1), constant),
        count,
        BATCH_SHARE * config.tolerance,
        RANK_CUT[operator.dtype],
    )
    nothing_known = Outside(0.0, 1.0, np.zeros(0))
    pairs = _measure(operator, vectors, image, config.n_pairs, "batch", nothing_known)

    def apply_rest(block: Floats) -> Floats:
        rest = deflate(operator.apply(block), constant)
        return rest - vectors @ (vectors.T @ rest)

    draws = np.random.default_rng((config.seed, len(starts))).standard_normal(starts.shape)
    residual_bound = probes.find_directions(apply_rest(draws), 1.0, vectors)
    residual_bound = probes.estimate_bound(residual_bound, apply_rest(residual_bound.directions))
    residual_bound = probes.tighten_bound(
        residual_bound, apply_rest, 0.9 * pairs.outside_limit(config)
    )
    bound, k = residual_bound.bound, config.n_components
    return replace(pairs, outside=bound_following(vectors, image, bound, k, operator.rounding))
