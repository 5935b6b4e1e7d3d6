"""The ladder: leading pairs of a state's operator, in steps of increasing cost.

1. view: the factor's own leading pairs under the exact normalisation, with their exact product;
2. polish: the Nystrom pairs of that same product;
3. refresh: a copy of the factor, refreshed with what the probes found, and rung 1 again;
4. exact: a whole decomposition of the kernel made anew in float64, up to 1,000 points;
   batch: a filtered block on the whole operator, for more of them.

Each rung ends with probes that look for what it does not know (`streamembed.spectral.probes`). The
state is not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from streamembed.geometry import components
from streamembed.geometry.kernel_matrix import rounding_norm
from streamembed.methods import frame_reference
from streamembed.methods.eigenpairs import LARGEST_EXACT, SMALLEST_FACTORED, Pairs, bound_following
from streamembed.methods.options import Config
from streamembed.methods.registry import EVERYWHERE
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
    deflate,
    leading_pairs,
    root_of,
)
from streamembed.spectral.probes import Silence
from streamembed.spectral.tracker import Factor

__all__ = ["climb"]

REFRESHES = 4
# Columns of a float64 factor were 3e-10 off orthonormal after many borders; their residuals are no
# better known.
ORTHONORMAL = 1e-9
# A pair of the factor may be too small by what was cut off in its own direction, which is an
# eigenvalue of what the factor does not know: twice what the probes heard of that is allowed for.
PARTLY = 2.0
# The block takes pairs down to so many times what is cut off below lambda_k: what the probes hear
# is about that much, and its double has room there.
REACH = 2.2
# A batch aims below the tolerance, for the frame may use up some of it.
BATCH_SHARE = 0.5


def climb(state: State, config: Config) -> Iterator[Pairs]:
    """The results of the ladder, rung by rung, computed only when the next one is requested."""
    n = state.graph.n
    if n <= SMALLEST_FACTORED:
        yield _decompose(state, config)
        return
    operator, starts, images, strength = _normalise(state, config)
    if state.coincide:  # all weights are 1, and the constant is all there is
        none = Outside(0.0, 0.0, np.zeros(0))
        empty = np.zeros((n, 0))
        yield Pairs(np.zeros(0), empty, empty, none, operator.normal, 0.0, "view")
        return
    factor, rung = state.factor, "view"
    for attempt in range(REFRESHES + 1):
        look = _look(operator, config, factor, starts, images, strength, rung)
        yield look.settle(look.pairs, config)
        lost = look.pairs.lacks(config)
        if not (lost or look.pairs.fits(config)):  # a polish makes residuals smaller, nothing else
            yield look.settle(_polish(look, config), config)
        if attempt == REFRESHES:
            break
        found = look.silence.directions
        if attempt == 0 and _reaches_one(look.pairs):
            parts = _parts(state, operator.normal, config.rank_cut.most)
            found = np.concatenate([parts, found], axis=1)
        factor = tracker.refresh(
            factor,
            operator.normal.scaling,
            state.graph.product,
            config.rank_cut,
            ROUNDING_FLOOR[operator.dtype],
            found,
            LARGEST_EIGENVALUE,
        )
        starts = probes.starts(n, config.seed + attempt + 1, state.position)
        images, strength, rung = operator.apply(starts), 1.0, "refresh"
    if n <= LARGEST_EXACT:
        yield _decompose(state, config)
    else:
        yield _filter_block(state, operator, config, look.pairs, starts)


def _normalise(state: State, config: Config) -> tuple[Operator, Floats, Floats, float]:
    """The operator by one product with W, and for free probes, their images, their strength."""
    graph = state.graph
    # S y = diag(s) W x for y = x / s: with a good guess of s the probes y are nearly normal
    guess = frame_reference.estimate_normalisation(state, config).scaling
    draws = guess[:, None] * probes.starts(graph.n, config.seed, state.position)
    images: Floats | None = None

    def product(x: Floats) -> Floats:
        nonlocal images
        both = graph.product(np.column_stack([x, draws])).astype(np.float64)
        images = both[:, 1:]
        return both[:, 0]

    normalise = config.embedding.normalise
    normal = normalise(state.degrees, state.support.masses, config.correction, product, EVERYWHERE)
    if images is None:  # the degrees were enough
        images = graph.product(draws).astype(np.float64)
    dtype, scaling = graph.buffer.dtype, normal.scaling
    rounding = ORTHONORMAL + rounding_norm(dtype, graph.n)
    strength = float((guess / scaling).min())
    return (
        Operator(graph.product, normal, dtype, rounding),
        draws / scaling[:, None],
        scaling[:, None] * images,
        strength,
    )


def _parts(state: State, normal: Normalisation, most: int) -> Floats:
    """An orthonormal basis of the eigenvalue 1 of S, up to so many columns, shape (n, c - 1)."""
    labels = components.label(state.graph.weights)
    return components.indicators(labels, normal.constant, most)


@dataclass(slots=True, eq=False)
class _Look:
    """A factor's leading pairs, the product that measures them, and what the probes heard.

    Attributes
    ----------
    pairs : Pairs
    block, image : (n, m)
        Leading vectors and the probes' directions, orthonormal, and S @ block.
    silence : Silence
        About what neither the vectors nor the factor know.
    remaining : float
        The first eigenvalue of the factor that is not in the block, 0 where all are.
    unknown : callable
        (block, S @ block) -> its image under that unknown part.
    operator : Operator
    """

    pairs: Pairs
    block: Floats
    image: Floats
    silence: Silence
    remaining: float
    unknown: Callable[[Floats, Floats], Floats]
    operator: Operator

    def settle(self, pairs: Pairs, config: Config) -> Pairs:
        """The pairs with lambda_(k+1), probed further where that would show it to be small."""
        level = pairs.level(config)
        if pairs.fits(config) and self.remaining + self.partly <= level < self.silence.bound:
            self.silence = probes.sharpen(
                self.silence,
                lambda block: self.unknown(block, self.operator.apply(block)),
                # below the level, for what is multiplied is coupled to it
                max(0.5 * (level + self.silence.heard), 0.9 * level),
            )
        beyond = max(self.silence.bound, self.remaining + self.partly)
        outside = bound_following(
            self.block, self.image, min(beyond, 1.0), config.n_components, self.operator.rounding
        )
        return replace(pairs, outside=outside)

    @property
    def partly(self) -> float:
        """What the rest of the factor may lack: twice what was heard of what it does not know."""
        return PARTLY * self.silence.heard if self.remaining else 0.0


def _look(
    operator: Operator,
    config: Config,
    factor: Factor,
    starts: Floats,
    images: Floats,
    strength: float,
    rung: str,
) -> _Look:
    """View and probes of a factor, by one product.

    ``starts``, with their ``images``, are at least ``strength`` times as long in every direction as
    standard normal columns. The block takes all pairs of the factor that could be among the first
    if they lacked what it cuts off.
    """
    normal, count = operator.normal, config.n_components + 1
    root = root_of(factor, normal)
    cut = max(float(factor.values[-1]), config.rank_cut.level * float(factor.values[:2][-1]))
    values, vectors = leading_pairs(root, normal, count, REACH * cut)
    c = vectors.shape[1]
    remaining = float(values[c]) if len(values) > c else 0.0
    known = np.concatenate([normal.constant[:, None], vectors], axis=1)

    def unknown(block: Floats, image: Floats) -> Floats:
        missed: Floats = image - root @ (root.T @ block.astype(root.dtype))
        missed -= known @ (known.T @ missed)
        return missed

    silence = probes.first(unknown(starts, images), strength, known)
    block = np.concatenate([vectors, silence.directions], axis=1)
    image = operator.apply(block)
    silence = probes.listen(silence, unknown(silence.directions, image[:, c:]))
    outside = bound_following(block, image, 1.0, config.n_components, operator.rounding)
    pairs = _measure(operator, vectors, image[:, :c], count, rung, outside)
    return _Look(pairs, block, image, silence, remaining, unknown, operator)


def _measure(
    operator: Operator, vectors: Floats, image: Floats, count: int, rung: str, outside: Outside
) -> Pairs:
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
    return Pairs(quotients, vectors, errors, outside, operator.normal, operator.rounding, rung)


def _polish(look: _Look, config: Config) -> Pairs:
    """The Nystrom pairs of the block's own product, with their exact residual."""
    operator, count = look.operator, config.n_components + 1
    floor = ROUNDING_FLOOR[operator.dtype]
    vectors = nystrom_pairs(look.block, look.image, floor, LARGEST_EIGENVALUE)[1][:, :count]
    vectors = deflate(vectors, operator.normal.constant)
    rung = "polish" if look.pairs.rung == "view" else look.pairs.rung
    image = operator.apply(vectors)
    return _measure(operator, vectors, image, count, rung, look.pairs.outside)


def _reaches_one(pairs: Pairs) -> bool:
    """True where a second eigenvalue 1 is near what was found."""
    first = float(pairs.values[:1].max(initial=0.0)) + pairs.worst(1)
    return max(first, pairs.outside.known) + pairs.rounding >= 1.0


def _decompose(state: State, config: Config) -> Pairs:
    """Every pair of the kernel that was asked for, made anew in float64. O(n^3)."""
    assert config.tolerance is not None
    masses, precision = state.support.masses, np.dtype(np.float64)
    if state.distances is not None:
        precision = state.distances.buffer.dtype
    weights = config.embedding.matrix(state.seen(config.rule))
    normalise = config.embedding.normalise
    degrees = weights @ masses
    normal = normalise(degrees, masses, config.correction, lambda x: weights @ x, EVERYWHERE)
    deflated = weights * np.outer(normal.scaling, normal.scaling)
    deflated -= np.outer(normal.constant, normal.constant)
    values, vectors = descending_eigh(deflated)
    count = config.n_components + 1
    rounding = rounding_norm(precision, len(values))
    floor = min(rounding / config.tolerance, certificate.NOTHING)
    # where even the first eigenvalue is too small for its tolerance, the constant is all there is
    real = values > (RANK_CUT[np.dtype(np.float64)] if values[0] > floor else np.inf)
    kept = min(count, int(np.count_nonzero(real)))
    chosen = deflate(vectors[:, :kept], normal.constant)
    errors = deflated @ chosen - chosen * values[:kept]
    following = float(values[min(kept, config.n_components) :].max(initial=0.0))
    outside = Outside(following, following, values[: min(kept, config.n_components)])
    return Pairs(values[:kept], chosen, errors, outside, normal, rounding, "exact")


def _filter_block(
    state: State, operator: Operator, config: Config, best: Pairs, starts: Floats
) -> Pairs:
    """The last rung of large supports: a filtered block, and probes for what it does not know."""
    assert config.tolerance is not None
    count, constant = config.n_components + 1, operator.normal.constant
    start = [best.vectors, starts]
    if _reaches_one(best):
        start.insert(1, _parts(state, operator.normal, count))
    _, vectors, image = filtered.leading_pairs(
        lambda block: deflate(operator.apply(block), constant),
        deflate(np.concatenate(start, axis=1), constant),
        count,
        BATCH_SHARE * config.tolerance,
        RANK_CUT[operator.dtype],
    )
    pairs = _measure(operator, vectors, image, count, "batch", Outside(0.0, 1.0, np.zeros(0)))

    def unknown(block: Floats) -> Floats:
        missed = deflate(operator.apply(block), constant)
        return missed - vectors @ (vectors.T @ missed)

    fresh = np.random.default_rng((config.seed, len(starts))).standard_normal(starts.shape)
    silence = probes.first(unknown(fresh), 1.0, vectors)
    silence = probes.listen(silence, unknown(silence.directions))
    silence = probes.sharpen(silence, unknown, 0.9 * pairs.level(config))
    return replace(
        pairs,
        outside=bound_following(
            vectors, image, silence.bound, config.n_components, operator.rounding
        ),
    )
