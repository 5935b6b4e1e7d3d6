"""Leading pairs of a state's operator, in levels of increasing cost.

1. view: the pairs of kept products, with bounds from these: W is not read;
2. refresh: the same of a larger space, with the pairs' residuals, what the probes show, and new
   probes, by one product with all of W; and again;
3. exact: a whole decomposition in float64, up to 2,000 points.

For a tolerance below 1e-5, or where eigenvalues are small, bounds are not enough: the pairs
themselves are in that product. The state is not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np

from streamembed.geometry import components
from streamembed.methods.eigenpairs import Eigenpairs
from streamembed.methods.options import Config
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.spectral import certificate, probes, trial_space
from streamembed.spectral.certificate import Outside
from streamembed.spectral.lanczos import bound_largest
from streamembed.spectral.operator import Operator
from streamembed.spectral.probes import ResidualBound
from streamembed.spectral.sketched_view import KnownProducts, SketchedView
from streamembed.spectral.trial_space import FADED, PROBES

# Supports of more points than this are not decomposed, which takes 2 s; those are multiplied more
# often.
LARGEST_DECOMPOSED = 2000
# Products with all of W before the last level; and where there is no other.
PRODUCTS, MOST_PRODUCTS = 5, 16
# Products of one vector at most, in search of an eigenvalue that a larger space lacks.
SEARCHES = 24
# Kept functions and vectors are orthonormal to this.
ORTHONORMAL = 1e-9
# Below this tolerance bounds from kept products are their own rounding.
SKETCHED_TOLERANCE = 1e-5
# Columns are measured where the rounding of their bound is more than this share of the tolerance.
ROUNDING_SHARE = 0.5
# A pair is its image divided by its value, and so is the rounding of the image, up to three units
# of the precision in 400 maps: it is added to bounds of smaller values than this.
SMALL_VALUE, IMAGE_LOSS = 0.01, 8.0
TINY = float(np.finfo(np.float64).tiny)


class Weights(Protocol):
    """W between all slots, computed when it is needed."""

    def __len__(self) -> int: ...

    @property
    def dtype(self) -> np.dtype:
        """Of weights."""

    def product(self, block: Array) -> Array:
        """W @ block, shape (n, m)."""

    def rows(self, slots: Ints) -> Array:
        """W between ``slots`` and all, shape (b, n)."""


def refine_eigenpairs(
    operator: Operator,
    known: KnownProducts,
    weights: Weights | None,
    position: int,
    decompose: Callable[[], Eigenpairs],
    config: Config,
) -> Iterator[Eigenpairs]:
    """Leading pairs, level by level, each computed only when you ask for the next one.

    Parameters
    ----------
    position
        Of the stream: with the seed it decides all draws.
    weights
        Of a walk; None of a centred operator, which has no parts.
    decompose
        The exact level.
    """
    normal, tolerance = operator.normal, config.tolerance
    look, n = known.compute_view(normal.constant, config.n_pairs), len(normal.scaling)
    is_sketched = tolerance is None or (
        tolerance >= SKETCHED_TOLERANCE
        and _bound_rounding(known, look.values[: config.n_components]).max(initial=0.0)
        <= ROUNDING_SHARE * tolerance * look.values[:1].max(initial=0.0)
    )
    if is_sketched:
        yield _bound_view_pairs(look, look.beyond, operator, known, "view", config)
    if tolerance is None:
        return
    for attempt in range(PRODUCTS if n <= LARGEST_DECOMPOSED else MOST_PRODUCTS):
        generator = np.random.default_rng((config.seed + attempt + 1, position, n))
        fresh = generator.standard_normal((n, PROBES))
        parts = look.vectors[:, :0]
        if attempt == 0 and weights is not None and _reaches_one(look):
            labels, most = components.label_components(weights.rows, n), config.rank_limits[0]
            # a basis of the eigenvalue 1 of S
            parts = components.build_component_basis(labels, normal.constant, most)
        vectors = look.vectors[:, : 0 if is_sketched else None]
        known, seen, image = _multiply(known, look, operator, parts, fresh, vectors)
        look = known.compute_view(normal.constant, config.n_pairs)
        if is_sketched:
            pairs = _bound_view_pairs(look, seen.bound, operator, known, "refresh", config)
        else:
            k, rounding = config.n_components, operator.rounding
            outside = certificate.bound_next_eigenvalue(
                look.ritz, look.coupling, seen.bound, k, rounding
            )
            refinement = "refresh" if attempt else "view"
            pairs = _compute_rayleigh_pairs(
                operator, vectors, image, config.n_pairs, refinement, outside
            )
        yield _bound_rest(pairs, look, seen, operator, known.trial, config)
    if n <= LARGEST_DECOMPOSED:
        yield decompose()


def _multiply(
    known: KnownProducts,
    look: SketchedView,
    operator: Operator,
    parts: Floats,
    fresh: Floats,
    vectors: Floats,
) -> tuple[KnownProducts, ResidualBound, Floats]:
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


def _bound_view_pairs(
    look: SketchedView,
    beyond: float,
    operator: Operator,
    known: KnownProducts,
    refinement: str,
    config: Config,
) -> Eigenpairs:
    """The pairs of a view, with bounds instead of residuals; ``beyond`` is of the rest."""
    rounding = known.rounding + ORTHONORMAL
    lengths = np.maximum(np.linalg.norm(look.errors, axis=0), TINY)
    errors = look.errors * (1.0 + _bound_rounding(known, look.values) / lengths)
    outside = certificate.bound_next_eigenvalue(
        look.ritz, look.coupling, min(beyond, 1.0), config.n_components, rounding
    )
    return Eigenpairs(
        look.values,
        look.vectors,
        errors,
        outside,
        operator.normal,
        rounding=rounding,
        refinement=refinement,
        method="sketched bound",
        unit=operator.unit,
        floor=operator.floor,
    )


def _bound_rounding(known: KnownProducts, values: Floats) -> Floats:
    """What kept products' rounding adds to the bounds of pairs with small values; 0 for others."""
    loss = IMAGE_LOSS * float(np.finfo(known.trial.dtype).eps)
    return np.where(values < SMALL_VALUE, loss / values, 0.0)


def _orthonormalise(trial: Array, constant: Floats) -> Floats:
    """An orthonormal basis of v_0 and trial vectors (c, n), shape (n, c')."""
    block = trial.astype(np.float64)
    overlap = block @ constant
    mix = trial_space.whiten(block @ block.T, overlap, FADED)
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
    level, outside = pairs.next_eigenvalue_limit(config), pairs.outside
    if not pairs.meets_tolerance(config) or not outside.estimate <= level < outside.bound:
        return pairs
    basis = _orthonormalise(trial, operator.normal.constant)

    def apply_rest(column: Floats) -> Floats:
        rest = operator.apply(column[:, None])[:, 0]
        return rest - basis @ (basis.T @ rest)

    # below the level, for the multiplied block is coupled to it
    target = max(0.5 * (level + seen.estimate), 0.9 * level)
    start = np.random.default_rng((config.seed, *basis.shape)).standard_normal(len(basis))
    beyond = bound_largest(apply_rest, start - basis @ (basis.T @ start), target, SEARCHES)
    k, rounding = config.n_components, pairs.rounding
    outside = certificate.bound_next_eigenvalue(
        look.ritz, look.coupling, min(beyond, seen.bound), k, rounding
    )
    return replace(pairs, outside=outside)


def _compute_rayleigh_pairs(
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
    c = min(count, int(np.count_nonzero(quotients > operator.least_value)))
    lengths = np.sqrt(np.einsum("ij,ij->j", vectors[:, :c], vectors[:, :c]))
    vectors, quotients = vectors[:, :c] / lengths, quotients[:c] / lengths**2
    errors = image[:, :c] / lengths - vectors * quotients
    leading = quotients, vectors, errors, outside
    normal, rounding, unit = operator.normal, operator.rounding, operator.unit
    return Eigenpairs(*leading, normal, rounding, refinement, unit=unit, floor=operator.floor)


def _reaches_one(look: SketchedView) -> bool:
    """True where the pairs do not rule out a second eigenvalue 1."""
    first = float(look.values[:1].max(initial=0.0))
    error = float(np.linalg.norm(look.errors[:, :1]))
    return not max(first + error, look.beyond) < 1.0
