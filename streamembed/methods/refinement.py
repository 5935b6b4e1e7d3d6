"""Leading pairs of a state's operator, in levels of increasing cost.

1. view: the trial space's own pairs, with bounds from kept products: W is not read;
2. refresh: the same of a larger space, with the pairs' residuals, what the probes show, and new
   probes, by one product with all of W; and again;
3. exact: a whole decomposition of the kernel, computed again in float64, up to 1,000 points;
   batch: a filtered block on the whole operator, for more of them.

Where bounds are not enough (`certify="exact"`, or a small tolerance), the pairs themselves are in
that product. The state is not touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from streamembed.geometry import components
from streamembed.geometry.kernel_matrix import bound_rounding
from streamembed.geometry.kernel_weights import KernelWeights
from streamembed.geometry.self_tuning import LocalWidths
from streamembed.methods.eigenpairs import LARGEST_EXACT, Eigenpairs, bound_following
from streamembed.methods.options import USUAL_TOLERANCE, Config
from streamembed.methods.registry import EVERYWHERE, KernelInput, compute_kernel_matrix
from streamembed.methods.state import State
from streamembed.numeric.arrays import Array, Floats
from streamembed.numeric.linalg import descending_eigh
from streamembed.spectral import certificate, filtered, probes, sketched_view, trial_space
from streamembed.spectral.certificate import Outside
from streamembed.spectral.operator import RANK_CUT, Normalisation, Operator, deflate
from streamembed.spectral.probes import ResidualBound
from streamembed.spectral.sketched_view import SketchedView
from streamembed.spectral.trial_space import PROBES, TrialSpace

# Supports up to this size have a matrix of their own, which is decomposed for every snapshot: that
# costs 2 ms, and less than trial functions do.
LARGEST_WHOLE = 192
# Products with all of W before the last level.
PRODUCTS = 5
# Kept functions and vectors are orthonormal to this.
ORTHONORMAL = 1e-9
# By how much kept products may differ in norm from those of exact weights, in units of the
# precision. After 3.6 turnovers they differed by 4 (docs/decisions/0025); weights are known to 24.
KEPT_LOSS = 64
# Below this tolerance bounds from kept products are their own rounding.
SKETCHED_TOLERANCE = 1e-5
# A batch aims below the tolerance, to which rounding is added.
BATCH_SHARE = 0.5
# Eigenvalues below this are rounding.
REAL = RANK_CUT[np.dtype(np.float64)]


@dataclass(frozen=True, slots=True, eq=False)
class RefinementInput:
    """What is refined."""

    weights: KernelWeights
    matrix: Floats | None  # W of few slots
    space: TrialSpace | None
    degrees: Floats
    scales: LocalWidths | None
    state: State


def refine(inputs: RefinementInput, config: Config) -> Iterator[Eigenpairs]:
    """Leading pairs, level by level, each computed only when you ask for the next one."""
    space, weights, state = inputs.space, inputs.weights, inputs.state
    if space is None:
        yield _decompose(inputs, config)
        return
    operator = _normalise(inputs, config)
    normal, tolerance = operator.normal, config.tolerance
    if state.coincide:  # all weights are 1
        yield Eigenpairs.none(normal)
        return
    is_sketched = tolerance is None or (
        config.certify == "auto" and tolerance >= SKETCHED_TOLERANCE
    )
    known = _Products.of(space, normal)
    look = known.look(normal, config.n_pairs)
    if is_sketched:
        yield _claim(look, look.beyond, operator, weights.loss, "view", config)
    if tolerance is None:
        return
    for attempt in range(PRODUCTS):
        generator = np.random.default_rng((config.seed + attempt + 1, state.position, len(weights)))
        fresh = generator.standard_normal((len(weights), PROBES))
        parts = look.vectors[:, :0]
        if attempt == 0 and _reaches_one(look):
            parts = _find_parts(weights, normal, config.rank_cut.most)
        vectors = look.vectors[:, : 0 if is_sketched else None]
        known, seen, image = _multiply(known, look, operator, parts, fresh, vectors)
        look = known.look(normal, config.n_pairs)
        if is_sketched:
            pairs = _claim(look, seen.bound, operator, weights.loss, "refresh", config)
        else:
            k, rounding = config.n_components, operator.rounding
            outside = certificate.bound_outside(look.ritz, look.coupling, seen.bound, k, rounding)
            refinement = "refresh" if attempt else "view"
            pairs = _measure(operator, vectors, image, config.n_pairs, refinement, outside)
        yield _bound_rest(pairs, look, seen, operator, known.trial, config)
    if len(weights) <= LARGEST_EXACT:
        yield _decompose(inputs, config)
    else:
        yield _filter_block(weights, operator, config, pairs, fresh)


def _normalise(inputs: RefinementInput, config: Config) -> Operator:
    """The operator: where alpha is not 0, by one product."""
    weights, state = inputs.weights, inputs.state

    def product(x: Floats) -> Floats:
        return weights.product(x[:, None])[:, 0].astype(np.float64)

    normalise = config.embedding.normalise
    masses, alpha = state.support.masses, config.correction
    if config.tolerance is None:
        normal = state.map.normalise(state, config)
    else:
        normal = normalise(inputs.degrees, masses, alpha, product, EVERYWHERE)
    rounding = ORTHONORMAL + bound_rounding(weights.dtype, len(weights)) + 2.0 * weights.loss
    return Operator(weights.product, normal, weights.dtype, rounding)


@dataclass(frozen=True, slots=True, eq=False)
class _Products:
    """Vectors whose products with S are known, as rows: of trial functions, and of probes."""

    trial: Array
    images: Array
    draws: Array
    draw_images: Array
    strength: float  # see `sketched_view.look`

    @classmethod
    def of(cls, space: TrialSpace, normal: Normalisation) -> Self:
        """Those of a space."""
        scaling = normal.scaling.astype(space.functions.dtype)
        vectors, images = space.functions[1:] * (1.0 / scaling), space.images[1:] * scaling
        c, strength = space.rank, float((space.drawn / normal.scaling).min())
        return cls(vectors[:c], images[:c], vectors[c:], images[c:], strength)

    def look(self, normal: Normalisation, count: int) -> SketchedView:
        """The first ``count`` pairs."""
        return sketched_view.look(
            self.trial,
            self.images,
            self.draws,
            self.draw_images,
            normal.constant,
            self.strength,
            count,
        )

    def extend(self, columns: Floats, image: Floats, fresh: Floats, its_image: Floats) -> Self:
        """With further columns (n, m) and their product, and with ``fresh`` probes."""
        dtype = self.trial.dtype
        return replace(
            self,
            trial=np.concatenate([self.trial, columns.T.astype(dtype)]),
            images=np.concatenate([self.images, image.T.astype(dtype)]),
            draws=np.ascontiguousarray(fresh.T, dtype=dtype),
            draw_images=np.ascontiguousarray(its_image.T, dtype=dtype),
            strength=1.0,
        )


def look_at(space: TrialSpace, normal: Normalisation, count: int) -> SketchedView:
    """The first ``count`` pairs of a space, without a product."""
    return _Products.of(space, normal).look(normal, count)


def _multiply(
    known: _Products,
    look: SketchedView,
    operator: Operator,
    parts: Floats,
    fresh: Floats,
    vectors: Floats,
) -> tuple[_Products, ResidualBound, Floats]:
    """One product: of the pairs' residuals, what the probes show, ``parts``, and ``fresh`` probes.

    Returns all that is known then, the bound on what was unknown before, and S ``vectors``.
    """
    basis = _orthonormalise(known.trial, operator.normal.constant)
    seen = probes.find_directions(look.residuals.T.astype(np.float64), known.strength, basis)
    rest = look.vectors - basis @ (basis.T @ look.vectors)
    lengths = np.linalg.norm(rest, axis=0)
    is_new = lengths > np.sqrt(np.finfo(known.trial.dtype).eps)
    block = [seen.directions, rest[:, is_new] / lengths[is_new], parts, fresh, vectors]
    image = operator.apply(np.concatenate(block, axis=1))
    ends = np.cumsum([each.shape[1] for each in block])
    theirs, *others = np.split(image, ends[:-1], axis=1)
    seen = probes.estimate_bound(seen, theirs - basis @ (basis.T @ theirs))
    columns = np.concatenate(block[:3], axis=1)
    return known.extend(columns, image[:, : ends[2]], fresh, others[2]), seen, others[3]


def _claim(
    look: SketchedView,
    beyond: float,
    operator: Operator,
    loss: float,
    refinement: str,
    config: Config,
) -> Eigenpairs:
    """The pairs of a view, with bounds instead of residuals; ``beyond`` is of the rest."""
    # kept products are sums of a few rows at a time
    rounding = min(operator.rounding, KEPT_LOSS * float(np.finfo(operator.dtype).eps))
    rounding += ORTHONORMAL + 2.0 * loss
    outside = certificate.bound_outside(
        look.ritz, look.coupling, min(beyond, 1.0), config.n_components, rounding
    )
    return Eigenpairs(
        look.values,
        look.vectors,
        look.errors,
        outside,
        operator.normal,
        rounding=rounding,
        refinement=refinement,
        method="sketched bound",
    )


def _orthonormalise(trial: Array, constant: Floats) -> Floats:
    """An orthonormal basis of v_0 and trial vectors (c, n), shape (n, c')."""
    block = trial.astype(np.float64)
    overlap = block @ constant
    mix = trial_space.whiten(block @ block.T, overlap)
    basis = block.T @ mix - np.outer(constant, overlap @ mix)
    return np.concatenate([constant[:, None], basis], axis=1)


def _bound_rest(
    pairs: Eigenpairs,
    look: SketchedView,
    seen: ResidualBound,
    operator: Operator,
    trial: Array,
    config: Config,
) -> Eigenpairs:
    """The pairs with lambda_(k+1), probed further where that would show it to be small."""
    level, outside = pairs.outside_limit(config), pairs.outside
    if not pairs.meets_tolerance(config) or not outside.estimate <= level < outside.bound:
        return pairs
    basis = _orthonormalise(trial, operator.normal.constant)

    def apply_rest(block: Floats) -> Floats:
        rest = operator.apply(block)
        return rest - basis @ (basis.T @ rest)

    # below the level, for the multiplied block is coupled to it
    target = max(0.5 * (level + seen.estimate), 0.9 * level)
    seen = probes.tighten_bound(seen, apply_rest, target)
    k, rounding = config.n_components, pairs.rounding
    outside = certificate.bound_outside(look.ritz, look.coupling, seen.bound, k, rounding)
    return replace(pairs, outside=outside)


def _find_parts(weights: KernelWeights, normal: Normalisation, most: int) -> Floats:
    """An orthonormal basis of the eigenvalue 1 of S, at most ``most`` columns, shape (n, c - 1)."""
    labels = components.label_components(weights.rows, len(weights))
    return components.build_indicators(labels, normal.constant, most)


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


def _reaches_one(look: SketchedView) -> bool:
    """True where the pairs do not rule out a second eigenvalue 1."""
    first = float(look.values[:1].max(initial=0.0))
    error = float(np.linalg.norm(look.errors[:, :1]))
    return not max(first + error, look.beyond) < 1.0


def _decompose(inputs: RefinementInput, config: Config) -> Eigenpairs:
    """Every pair of the requested kernel, computed again in float64. O(n^3)."""
    state = inputs.state
    masses, precision = state.support.masses, np.dtype(np.float64)
    if state.distances is not None:
        precision = state.distances.buffer.dtype
    weights = inputs.matrix
    if weights is None:
        kernel = KernelInput(
            state.support, state.read_distances(), state.scaling, inputs.scales, config.rule
        )
        weights = compute_kernel_matrix(kernel)
    normalise = config.embedding.normalise
    degrees = weights @ masses
    normal = normalise(degrees, masses, config.correction, lambda x: weights @ x, EVERYWHERE)
    values, vectors, deflated = decompose_whole(weights, normal)
    count = config.n_pairs
    rounding = bound_rounding(precision, len(values))
    floor = min(rounding / (config.tolerance or USUAL_TOLERANCE), certificate.NEGLIGIBLE)
    # where even the first eigenvalue is too small for its tolerance, the constant is all there is
    is_real = values > (REAL if values[0] > floor else np.inf)
    n_kept = min(count, int(np.count_nonzero(is_real)))
    leading = deflate(vectors[:, :n_kept], normal.constant)
    errors = deflated @ leading - leading * values[:n_kept]
    following = float(values[min(n_kept, config.n_components) :].max(initial=0.0))
    outside = Outside(following, following, values[: min(n_kept, config.n_components)])
    return Eigenpairs(values[:n_kept], leading, errors, outside, normal, rounding, "exact")


def decompose_whole(weights: Floats, normal: Normalisation) -> tuple[Floats, Floats, Floats]:
    """All values and vectors of S without the constant, and that matrix."""
    deflated = weights * np.outer(normal.scaling, normal.scaling)
    deflated -= np.outer(normal.constant, normal.constant)
    return *descending_eigh(deflated), deflated


def _filter_block(
    weights: KernelWeights, operator: Operator, config: Config, best: Eigenpairs, starts: Floats
) -> Eigenpairs:
    """The last level of large supports: a filtered block, and probes beyond it."""
    assert config.tolerance is not None
    count, constant = config.n_components + 1, operator.normal.constant
    start = [best.vectors, starts]
    if best.outside.bound + best.rounding >= 1.0:
        start.insert(1, _find_parts(weights, operator.normal, count))
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
