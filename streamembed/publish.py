"""From a state to published columns: view, polish, certificate, frame. The state is not touched.

The ladder, each rung only where the one before misses the tolerance, or leaves room for an
eigenvalue that was lost:

1. view: the factor's own leading pairs under the exact normalisation, with their exact product;
2. polish: the Nystrom pairs of that same product;
3. refresh: a copy of the factor, refreshed with what the probes found, and rung 1 again;
4. exact: a whole decomposition of the kernel made anew in float64, up to 1,000 points;
   batch: a filtered block on the whole operator, for more of them.

Each rung ends with probes that look for what it does not know (`streamembed.core.probes`); what is
published is measured after the frame has turned it. Without a tolerance only the view is taken,
under an estimated normalisation, and its certificate is a sample of rows: it claims nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from streamembed import axes
from streamembed.config import Config
from streamembed.core import certificate, components, filtered, frame, kernel, probes, tracker, view
from streamembed.core.arrays import Floats
from streamembed.core.certificate import Certificate, Outside
from streamembed.core.frame import Residuals
from streamembed.core.graph import rounding_norm
from streamembed.core.linalg import descending_eigh, nystrom_pairs
from streamembed.core.probes import Silence
from streamembed.core.tracker import Factor
from streamembed.core.view import Normalisation
from streamembed.state import State

__all__ = ["LARGEST_EXACT", "Columns", "published"]

REFRESHES = 4
SAMPLED_ROWS = 64
# Supports up to the first are decomposed at once (0.4 ms); up to the second as a last resort
# (0.25 s).
SMALLEST_FACTORED = 64
LARGEST_EXACT = 1000
# A batch aims below the tolerance, for the frame may use up some of it.
BATCH_SHARE = 0.5
# A plain view is off by less than this: it looks for components where its first eigenvalue, and
# what it takes for the rest, come so near to 1.
NEAR_ONE = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """What a snapshot publishes, by slot.

    Attributes
    ----------
    psi : (n, k)
        Right eigenvectors of P, sum(pi psi^2) = 1; columns beyond the operator's rank are zero.
    eigenvalues : (k,)
        Descending, of P.
    certificate : Certificate
    normal : Normalisation
    displacement, movement : float
        See `axes.Turned`.
    rung : str
        ``view``, ``polish``, ``refresh``, ``batch`` or ``exact``: how far up the ladder it went.
    n_connected : int
        Components of the kernel's graph.
    """

    psi: Floats
    eigenvalues: Floats
    certificate: Certificate
    normal: Normalisation
    displacement: float
    movement: float
    rung: str
    n_connected: int


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Up to k + 1 leading pairs with their residual block, and what is known of all others.

    Attributes
    ----------
    values, vectors, errors : (c,), (n, c), (n, c)
        lambda, V and E = S V - V diag(lambda), descending.
    beyond : Outside
        Of what is not among the c.
    normal : Normalisation
    rounding : float
        See `certificate.certify`.
    rung : str
    """

    values: Floats
    vectors: Floats
    errors: Floats
    beyond: Outside
    normal: Normalisation
    rounding: float
    rung: str

    @property
    def residuals(self) -> Residuals:
        """What turning needs to know."""
        errors = self.errors
        return Residuals(self.values, self.vectors.T @ errors, errors.T @ errors)

    def worst(self, k: int) -> float:
        """The largest residual norm among the first k."""
        norms = np.sqrt(np.einsum("ij,ij->j", self.errors[:, :k], self.errors[:, :k]))
        return float(norms.max(initial=0.0))

    def level(self, config: Config) -> float:
        """What is larger outside was missed: lambda_k, and what turning leaves of the tolerance."""
        k, c = config.n_components, len(self.values)
        last = float(self.values[k - 1]) if c >= k else 0.0
        largest = float(self.values[0]) if c else 0.0
        left = 0.5 * (1.0 - axes.TOLERANCE_SHARE) * _tolerance(config)
        return last + max(left * largest, self.rounding)

    def fits(self, config: Config) -> bool:
        """True where the k published columns are within the tolerance, before any turning."""
        if len(self.values) == 0:
            return True
        worst = self.worst(config.n_components) + self.rounding
        return worst <= _tolerance(config) * float(self.values[0])


class _Operator:
    """S - v_0 v_0^T of a state, through its ring."""

    def __init__(self, state: State, normal: Normalisation) -> None:
        self.graph = state.graph
        self.normal = normal
        self.rounding = rounding_norm(self.graph.buffer.dtype, self.graph.n)
        self._scale = normal.scaling.astype(self.graph.buffer.dtype)[:, None]

    def apply(self, block: Floats) -> Floats:
        """S @ block, shape (n, m): for a block without v_0 the deflated operator's, too."""
        image = self._scale * self.graph.product(self._scale * block.astype(self._scale.dtype))
        return image.astype(np.float64)

    def parts(self, most: int) -> Floats:
        """An orthonormal basis of the eigenvalue 1, up to so many columns, shape (n, c - 1)."""
        labels = components.label(self.graph.weights)
        return components.indicators(labels, self.normal.constant, most)


def published(state: State, config: Config) -> Columns:
    """The columns of a snapshot of ``state``: certified where a tolerance was asked for."""
    if config.tolerance is None:
        return _estimated(state, config)
    best: _Pairs | None = None
    for pairs in _rungs(state, config):
        if pairs.fits(config):
            columns = _certified(state, config, pairs)
            if columns.certificate.met:
                return columns
        best = pairs if best is None else _better(best, pairs, config)
    assert best is not None
    return _certified(state, config, best)


def _tolerance(config: Config) -> float:
    assert config.tolerance is not None
    return config.tolerance


def _rungs(state: State, config: Config) -> Iterator[_Pairs]:
    """What the ladder finds, rung by rung, as long as somebody asks for more."""
    n = state.graph.n
    if n <= SMALLEST_FACTORED:
        yield _exact(state, config)
        return
    operator, starts, images, strength = _exact_normalisation(state, config)
    factor, rung = state.factor, "view"
    for attempt in range(REFRESHES + 1):
        look = _looked(operator, config, factor, starts, images, strength, rung)
        yield look.settled(look.pairs, config)
        lost = look.silence.heard > look.pairs.level(config)
        if not lost:
            yield look.settled(_polished(look, config), config)
        if attempt == REFRESHES:
            break
        found = look.silence.directions
        if attempt == 0 and _reaches_one(look.pairs):
            parts = operator.parts(config.rank_cut.most)
            found = np.concatenate([parts, found], axis=1)
        factor = tracker.refresh(
            factor,
            operator.normal.scaling,
            state.graph.product,
            config.rank_cut,
            view.rounding_floor(state.graph.rounding),
            found,
            view.LARGEST_EIGENVALUE,
        )
        starts = probes.starts(n, config.seed + attempt + 1, state.position)
        images, strength, rung = operator.apply(starts), 1.0, "refresh"
    if n <= LARGEST_EXACT:
        yield _exact(state, config)
    else:
        yield _batch(operator, config, look.pairs, starts)


def _exact_normalisation(state: State, config: Config) -> tuple[_Operator, Floats, Floats, float]:
    """The operator by one product with W, and for free probes, their images, their strength."""
    graph, masses = state.graph, state.support.masses
    density = view.density_weights(state.degrees, config.alpha)
    # S y = diag(s) W x for y = x / s: with a good guess of s the probes y are nearly normal
    guess = axes.estimated_normalisation(state, config).scaling
    draws = guess[:, None] * probes.starts(graph.n, config.seed, state.position)
    images = graph.product(np.column_stack([masses * density, draws])).astype(np.float64)
    operator = _Operator(state, view.normalise(density, masses, images[:, 0]))
    scaling = operator.normal.scaling
    strength = float((guess / scaling).min())
    return operator, draws / scaling[:, None], scaling[:, None] * images[:, 1:], strength


@dataclass(slots=True, eq=False)
class _Look:
    """A factor's leading pairs, the product that measures them, and what the probes heard.

    Attributes
    ----------
    pairs : _Pairs
    block, image : (n, m)
        Leading vectors and the probes' directions, orthonormal, and S @ block.
    silence : Silence
        About what neither the vectors nor the factor know.
    unknown : callable
        (block, S @ block) -> its image under that unknown part.
    operator : _Operator
    """

    pairs: _Pairs
    block: Floats
    image: Floats
    silence: Silence
    unknown: Callable[[Floats, Floats], Floats]
    operator: _Operator

    def settled(self, pairs: _Pairs, config: Config) -> _Pairs:
        """The pairs with what is known beyond them; probed further where that would be enough."""
        if pairs.fits(config):
            self.silence = probes.sharpen(
                self.silence,
                lambda block: self.unknown(block, self.operator.apply(block)),
                pairs.level(config),
            )
        beyond, silence = pairs.beyond, self.silence
        known = max(beyond.known, silence.heard)
        return replace(
            pairs, beyond=Outside(known, silence.bound, max(beyond.bound, known, silence.bound))
        )


def _looked(
    operator: _Operator,
    config: Config,
    factor: Factor,
    starts: Floats,
    images: Floats,
    strength: float,
    rung: str,
) -> _Look:
    """View and probes of a factor, by one product.

    ``starts``, with their ``images``, are at least ``strength`` times as long in every direction as
    standard normal columns.
    """
    normal, count = operator.normal, config.n_components + 1
    width = count + -(count + starts.shape[1]) % 4  # products like multiples of 4
    root = view.restored(factor.vectors, factor.values, factor.scaling, normal)
    values, vectors = view.leading_pairs(root, normal, width + 1)
    following = float(values[width]) if len(values) > width else 0.0
    vectors = vectors[:, :width]
    c = vectors.shape[1]
    known = np.concatenate([normal.constant[:, None], vectors], axis=1)

    def unknown(block: Floats, image: Floats) -> Floats:
        missed: Floats = image - root @ (root.T @ block.astype(root.dtype))
        missed -= known @ (known.T @ missed)
        return missed

    silence = probes.first(unknown(starts, images), strength, known)
    block = np.concatenate([vectors, silence.directions], axis=1)
    image = operator.apply(block)
    # of S itself, of which the unknown part is but one: it has no larger eigenvalue
    heard = descending_eigh(silence.directions.T @ image[:, c:])[0][:1].max(initial=0.0)
    silence = probes.listen(silence, unknown(silence.directions, image[:, c:]), float(heard))
    pairs, further = _measured(operator, vectors, image[:, :c], count, rung)
    # Pairs of the factor beyond the width were not multiplied: their residuals are taken for twice
    # the largest of those that follow the published ones.
    slack = float(np.append(further, pairs.worst(count)).max()) if following else 0.0
    beyond = Outside(
        max(pairs.beyond.known, following), 0.0, max(pairs.beyond.bound, following + 2.0 * slack)
    )
    return _Look(replace(pairs, beyond=beyond), block, image, silence, unknown, operator)


def _measured(
    operator: _Operator, vectors: Floats, image: Floats, count: int, rung: str
) -> tuple[_Pairs, Floats]:
    """The first ``count`` of orthonormal vectors as pairs, and the residual norms of the others."""
    quotients = np.einsum("ij,ij->j", vectors, image)
    if (np.diff(quotients) > 0.0).any():
        order = np.argsort(-quotients, kind="stable")
        quotients, vectors, image = quotients[order], vectors[:, order], image[:, order]
    errors = image - vectors * quotients
    rest = quotients[count:]
    norms = np.sqrt(np.einsum("ij,ij->j", errors[:, count:], errors[:, count:]))
    beyond = Outside(float(rest.max(initial=0.0)), 0.0, float((rest + norms).max(initial=0.0)))
    floor = view.RANK_CUT[operator.graph.buffer.dtype]
    positive = min(count, int(np.count_nonzero(quotients > floor)))
    pairs = _Pairs(
        quotients[:positive],
        vectors[:, :positive],
        errors[:, :positive],
        beyond,
        operator.normal,
        operator.rounding,
        rung,
    )
    return pairs, norms


def _polished(look: _Look, config: Config) -> _Pairs:
    """The Nystrom pairs of the block's own product, with their exact residual."""
    operator, count = look.operator, config.n_components + 1
    floor = view.rounding_floor(operator.graph.rounding)
    vectors = nystrom_pairs(look.block, look.image, floor, view.LARGEST_EIGENVALUE)[1][:, :count]
    vectors = view.deflate(vectors, operator.normal.constant)
    rung = "polish" if look.pairs.rung == "view" else look.pairs.rung
    polished, _ = _measured(operator, vectors, operator.apply(vectors), count, rung)
    return replace(polished, beyond=look.pairs.beyond)


def _reaches_one(pairs: _Pairs) -> bool:
    """True where a second eigenvalue 1 is near what was found."""
    first = float(pairs.values[:1].max(initial=0.0)) + pairs.worst(1)
    return max(first, pairs.beyond.known) + pairs.rounding >= 1.0


def _better(best: _Pairs, pairs: _Pairs, config: Config) -> _Pairs:
    """The pairs with the larger eigenvalues; where they are level, with the smaller residual."""
    k = config.n_components
    gain = float(pairs.values[:k].sum() - best.values[:k].sum())
    if abs(gain) > _tolerance(config) * float(best.values[:1].max(initial=0.0)):
        return pairs if gain > 0 else best
    return pairs if pairs.worst(k) <= best.worst(k) else best


def _exact(state: State, config: Config) -> _Pairs:
    """Every pair of the kernel that was asked for, made anew in float64. O(n^3)."""
    held, bandwidth = state.support, state.scaling.bandwidth
    if state.distances is None:
        weights = kernel.gaussian_rows(held.scaled, held.scaled, bandwidth)
        precision = np.dtype(np.float64)
    else:
        d = state.distances.weights.astype(np.float64)
        weights = kernel.gaussian(d * d / bandwidth**2, 1.0)
        precision = state.distances.buffer.dtype
    np.fill_diagonal(weights, 1.0)
    density = view.density_weights(weights @ held.masses, config.alpha)
    normal = view.normalise(density, held.masses, weights @ (held.masses * density))
    operator = weights * np.outer(normal.scaling, normal.scaling)
    operator -= np.outer(normal.constant, normal.constant)
    values, vectors = descending_eigh(operator)
    count = config.n_components + 1
    rounding = rounding_norm(precision, len(values))
    floor = rounding / _tolerance(config)
    # where even the first eigenvalue is too small for its tolerance, the constant is all there is
    real = values > (view.RANK_CUT[np.dtype(np.float64)] if values[0] > floor else np.inf)
    kept = min(count, int(np.count_nonzero(real)))
    chosen = view.deflate(vectors[:, :kept], normal.constant)
    errors = operator @ chosen - chosen * values[:kept]
    following = float(values[kept:].max(initial=0.0))
    beyond = Outside(following, following, following)
    return _Pairs(values[:kept], chosen, errors, beyond, normal, rounding, "exact")


def _batch(operator: _Operator, config: Config, best: _Pairs, starts: Floats) -> _Pairs:
    """The last rung of large supports: a filtered block, and probes for what it does not know."""
    count = config.n_components + 1
    constant = operator.normal.constant
    start = [best.vectors, starts]
    if _reaches_one(best):
        start.insert(1, operator.parts(count))
    _, vectors, image = filtered.leading_pairs(
        lambda block: view.deflate(operator.apply(block), constant),
        view.deflate(np.concatenate(start, axis=1), constant),
        count,
        BATCH_SHARE * _tolerance(config),
    )
    pairs, _ = _measured(operator, vectors, image, count, "batch")

    def unknown(block: Floats) -> Floats:
        missed = view.deflate(operator.apply(block), constant)
        return missed - vectors @ (vectors.T @ missed)

    fresh = np.random.default_rng((config.seed, operator.graph.n)).standard_normal(starts.shape)
    silence = probes.first(unknown(fresh), 1.0, vectors)
    heard = unknown(silence.directions)
    ritz = descending_eigh(silence.directions.T @ heard)[0]
    silence = probes.listen(silence, heard, float(ritz[:1].max(initial=0.0)))
    silence = probes.sharpen(silence, unknown, pairs.level(config))
    known = max(pairs.beyond.known, silence.heard)
    bound = max(pairs.beyond.bound, known, silence.bound)
    return replace(pairs, beyond=Outside(known, silence.bound, bound))


def _certified(state: State, config: Config, pairs: _Pairs) -> Columns:
    """The pairs turned towards the frame as far as the tolerance allows, certified as they are."""
    psi, residuals = pairs.vectors / pairs.normal.constant[:, None], pairs.residuals
    turned = _framed(state, config, psi, residuals, pairs, "exact product")
    if turned.certificate.met or not pairs.fits(config):
        return turned
    return _framed(state, config, psi, residuals, pairs, "exact product", hold=False)


def _estimated(state: State, config: Config) -> Columns:
    """The plain view: normalisation by the factor, residual from sampled rows, no claim.

    Where the frame was renewed with the last chunk, its columns are that view already.
    """
    factor, graph, k = state.factor, state.graph, config.n_components
    normal = axes.estimated_normalisation(state, config)
    if state.frame.position == state.position:
        psi, values = state.frame.columns, state.frame.eigenvalues
        vectors = psi * normal.constant[:, None]
    else:
        root = view.restored(factor.vectors, factor.values, factor.scaling, normal)
        values, vectors = view.leading_pairs(root, normal, k + 1)
        psi = vectors / normal.constant[:, None]
    # Half of the rows uniform, half where S has its weight: the residual sits on a few rows.
    diagonal = normal.scaling**2
    shares = 0.5 / graph.n + 0.5 * diagonal / diagonal.sum()
    draws = np.random.default_rng((config.seed, state.position, graph.n)).random(SAMPLED_ROWS)
    chosen = np.searchsorted(np.cumsum(shares), draws).clip(max=graph.n - 1)
    scaled = (normal.scaling[:, None] * vectors).astype(graph.buffer.dtype)
    images = normal.scaling[chosen, None] * (graph.rows(chosen) @ scaled)
    norms = certificate.sampled_residual(images, vectors[chosen], shares[chosen], values)
    known = float(values[k]) if len(values) > k else 0.0
    pairs = _Pairs(
        values, vectors, vectors[:, :0], Outside(known, known + NEAR_ONE, 1.0), normal, 0.0, "view"
    )
    residuals = Residuals(values, np.zeros((len(values),) * 2), np.diag(norms**2))
    return _framed(state, config, psi, residuals, pairs, "sampled rows")


def _framed(
    state: State,
    config: Config,
    psi: Floats,
    residuals: Residuals,
    pairs: _Pairs,
    method: str,
    hold: bool = True,
) -> Columns:
    """Turn the columns towards the frame (without ``hold`` only their signs), and certify them.

    Components beyond the operator's rank are zero columns with eigenvalue 0.
    """
    k = config.n_components
    n, c = psi.shape
    have = min(k, c)
    columns, eigenvalues, norms = np.zeros((n, k)), np.zeros(k), np.zeros(k)
    displacement = movement = block_norm = 0.0
    outside = pairs.beyond
    if have:
        turn = axes.turned(state, config, pairs.normal, psi, residuals, hold)
        displacement, movement = turn.displacement, turn.movement
        rotation = turn.rotation[:, :have]
        eigenvalues[:have], norms[:have], gram = frame.turned_residuals(residuals, rotation)
        columns[:, :have] = psi @ rotation
        columns[:, eigenvalues == 0.0] = 0.0
        norms[eigenvalues == 0.0] = 0.0
        block_norm = float(np.sqrt(max(np.linalg.eigvalsh(gram)[-1], 0.0)))
    if c > k:  # the column that follows, turned with the others
        known, error = frame.turned_residual(residuals, turn.rotation[:, k])
        outside = Outside(
            max(outside.known, known), outside.unseen, max(outside.bound, known + error)
        )
    certified = certificate.certify(
        eigenvalues, norms, block_norm, outside, pairs.rounding, config.tolerance, method
    )
    return Columns(
        columns,
        eigenvalues,
        certified,
        pairs.normal,
        displacement,
        movement,
        pairs.rung,
        _connected(state, residuals, pairs),
    )


def _connected(state: State, residuals: Residuals, pairs: _Pairs) -> int:
    """Components of the graph: looked at only where a second eigenvalue 1 is not ruled out."""
    norms = np.sqrt(np.maximum(np.diag(residuals.gram), 0.0))
    largest = float((residuals.values + norms).max(initial=pairs.beyond.unseen))
    if max(largest, pairs.beyond.known) + pairs.rounding < 1.0:
        return 1
    return int(components.label(state.graph.weights).max()) + 1
