"""From a state to published columns: view, polish, certificate, frame. Pure; the state is not touched.

The ladder, each rung only where the one before misses the tolerance:

1. view: the factor's own leading pairs under the exact normalisation, with their exact product;
2. polish: the Nystrom pairs of that same product;
3. refresh: a copy of the factor, refreshed with what the probes found, and rung 1 again;
4. batch: an iterative solver on the whole operator.

Without a tolerance only the view is taken, under an estimated normalisation, and its certificate
is a sample of rows: it claims nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from streamembed.config import GUARDS, Config
from streamembed.core import certificate, frame, tracker, view
from streamembed.core.arrays import Floats
from streamembed.core.certificate import Certificate
from streamembed.core.frame import Residuals
from streamembed.core.linalg import nystrom_pairs
from streamembed.core.tracker import Factor
from streamembed.core.view import Normalisation
from streamembed.state import FrameReference, State

__all__ = ["Columns", "nystrom_cut", "published", "reference"]

# Sign vectors sent through what the factor does not know; one finds a lost mode, the second
# keeps a pair of equal lost modes from hiding one another.
PROBES = 2
REFRESHES = 4
# Spread of eigenvalues, relative to the first, inside which columns may be turned freely where no
# tolerance limits it; with a tolerance the residual limits it.
FREE_SPREAD = 0.02
# Radians by which columns may turn back towards eigenfunctions per chunk: 3 degrees.
TURN_PER_CHUNK = np.deg2rad(3.0)
SAMPLED_ROWS = 64


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
    displacement : float
        Root mean square, over shared slots, of what the frame took out of the solver's columns.
    movement : float
        The same of what is left between these columns and the frame's.
    rung : str
        ``view``, ``polish``, ``refresh`` or ``batch``: how far up the ladder it went.
    """

    psi: Floats
    eigenvalues: Floats
    certificate: Certificate
    normal: Normalisation
    displacement: float
    movement: float
    rung: str


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Leading pairs with their residual block: V (n, c), E = S V - V diag(lambda)."""

    values: Floats
    vectors: Floats
    errors: Floats
    outside: float
    rung: str


def nystrom_cut(rounding: float) -> float:
    """Directions below this share of the first are lost in the rounding of a product with W."""
    return 1e-5 if rounding > 1e-10 else 1e-12


def published(state: State, config: Config) -> Columns:
    """The columns of a snapshot of ``state``: certified where a tolerance was asked for."""
    if config.tolerance is None:
        return _estimated(state, config)
    normal, starts, images = _exact_normalisation(state, config)
    pairs = _climb(state, config, normal, starts, images)
    return _framed(state, config, normal, pairs)


def _exact_normalisation(state: State, config: Config) -> tuple[Normalisation, Floats, Floats]:
    """The normalisation from one product with W, and W's image of the probes, for free."""
    graph, masses = state.graph, state.support.masses
    density = view.density_weights(state.degrees, config.alpha)
    starts = certificate.probe_starts(graph.n, PROBES, config.seed, state.position)
    images = graph.product(np.column_stack([masses * density, starts]))
    return view.normalise(density, masses, images[:, 0]), starts, images[:, 1:]


def _climb(
    state: State, config: Config, normal: Normalisation, starts: Floats, images: Floats
) -> _Pairs:
    """The first pairs on the ladder that meet the tolerance; the best of all if none does."""
    assert config.tolerance is not None
    count = config.n_components + 1
    cut = nystrom_cut(state.graph.rounding)
    scaling = normal.scaling
    factor = state.factor
    best: _Pairs | None = None
    for attempt in range(REFRESHES + 1):
        root = view.restored(factor.vectors, factor.values, factor.scaling, normal)
        values, vectors = view.leading_pairs(root, normal, count + GUARDS)
        probes = _probes(scaling[:, None] * images, root, starts / scaling[:, None], vectors, normal)
        block = np.concatenate([vectors, probes], axis=1)
        image = view.deflate(_product(state, scaling, block), normal.constant)
        pairs, found = _rayleigh(block, image, len(values), count, "refresh" if attempt else "view")
        best = _better(best, pairs, config)
        if not found and _meets(pairs, config):
            return pairs
        if not found:
            polished = nystrom_pairs(block, image, cut)[1][:, :count]
            polished = view.deflate(polished, normal.constant)
            image = view.deflate(_product(state, scaling, polished), normal.constant)
            polish, _ = _rayleigh(
                polished, image, polished.shape[1], count, "refresh" if attempt else "polish"
            )
            polish = _with_outside(polish, max(polish.outside, pairs.outside))
            best = _better(best, polish, config)
            if _meets(polish, config):
                return polish
        factor = tracker.refresh(
            factor, scaling, state.graph.product, config.largest_rank, cut, probes
        )
        starts = certificate.probe_starts(
            state.graph.n, PROBES, config.seed, state.position + (attempt + 1) * 2**32
        )
        images = state.graph.product(starts)
    return _better(best, _batch(state, normal, best, count, config), config)


def _product(state: State, scaling: Floats, block: Floats) -> Floats:
    """S @ block through the ring."""
    image: Floats = scaling[:, None] * state.graph.product(scaling[:, None] * block)
    return image


def _probes(
    images: Floats, root: Floats, starts: Floats, vectors: Floats, normal: Normalisation
) -> Floats:
    """Unit directions of (S - F F^T) x: what the factor does not know, outside ``vectors``.

    Shape (n, p); directions that are nothing but rounding are left out.
    """
    missed = images - root @ (root.T @ starts)
    for _ in range(2):
        missed = view.deflate(missed, normal.constant)
        missed -= vectors @ (vectors.T @ missed)
    basis, triangle = np.linalg.qr(missed)
    sizes = np.abs(np.diag(triangle))
    return basis[:, sizes > 1e-6 * np.linalg.norm(starts, axis=0)]


def _rayleigh(
    block: Floats, image: Floats, known: int, count: int, rung: str
) -> tuple[_Pairs, bool]:
    """The first ``count`` of the ``known`` columns as pairs, and whether the others beat them."""
    quotients = np.einsum("ij,ij->j", block, image)
    order = np.argsort(-quotients[:known], kind="stable")
    chosen, rest = order[:count], order[count:]
    values, vectors = quotients[chosen], block[:, chosen]
    following = float(quotients[rest].max(initial=0.0))
    lost = float(quotients[known:].max(initial=0.0))
    errors = image[:, chosen] - vectors * values
    published_last = values[min(count, len(values)) - 1] if len(values) >= count else 0.0
    found = lost > published_last and lost > 1e-6
    return _Pairs(values, vectors, errors, max(following, lost), rung), found


def _with_outside(pairs: _Pairs, outside: float) -> _Pairs:
    return _Pairs(pairs.values, pairs.vectors, pairs.errors, outside, pairs.rung)


def _norms(errors: Floats) -> Floats:
    return np.sqrt(np.einsum("ij,ij->j", errors, errors))


def _meets(pairs: _Pairs, config: Config) -> bool:
    """True where the k published columns are within the tolerance, before any turning."""
    assert config.tolerance is not None
    k = config.n_components
    if len(pairs.values) == 0:
        return True
    return bool(_norms(pairs.errors[:, :k]).max() <= config.tolerance * pairs.values[0])


def _better(best: _Pairs | None, pairs: _Pairs, config: Config) -> _Pairs:
    """The pairs with the larger sum of eigenvalues, or the smaller residual where they are level."""
    if best is None or len(pairs.values) == 0:
        return pairs if best is None else best
    k = config.n_components
    gain = pairs.values[:k].sum() - best.values[:k].sum()
    if abs(gain) > 1e-3:
        return pairs if gain > 0 else best
    smaller = _norms(pairs.errors[:, :k]).max() <= _norms(best.errors[:, :k]).max()
    return pairs if smaller else best


def _batch(
    state: State, normal: Normalisation, best: _Pairs, count: int, config: Config
) -> _Pairs:
    """The last rung: Lanczos on S with the constant deflated, started from the best so far."""
    n = state.graph.n
    constant, scaling = normal.constant, normal.scaling

    def apply(vector: Floats) -> Floats:
        image = _product(state, scaling, vector.reshape(n, -1))
        return view.deflate(image, constant)

    operator = LinearOperator((n, n), matvec=apply, matmat=apply, dtype=np.float64)
    try:
        _, vectors = eigsh(
            operator,
            k=min(count, n - 1),
            v0=best.vectors.sum(axis=1),
            tol=0.1 * float(config.tolerance or 1e-3),
            maxiter=20 * n,
        )
    except ArpackError:
        return best
    image = apply(vectors)
    pairs, _ = _rayleigh(vectors, image, vectors.shape[1], count, "batch")
    return _with_outside(pairs, max(pairs.outside, best.outside))


def _estimated(state: State, config: Config) -> Columns:
    """The plain view: normalisation from the factor, residual from sampled rows, nothing claimed."""
    factor, masses, graph = state.factor, state.support.masses, state.graph
    normal = _estimated_normalisation(state, factor, config)
    root = view.restored(factor.vectors, factor.values, factor.scaling, normal)
    values, vectors = view.leading_pairs(root, normal, config.n_components + 1)
    generator = np.random.default_rng((config.seed, state.position, graph.n))
    shares = normal.scaling**2 * masses / (normal.scaling**2 * masses).sum()
    shares = 0.5 / graph.n + 0.5 * shares
    chosen = np.searchsorted(np.cumsum(shares), generator.random(SAMPLED_ROWS)).clip(max=graph.n - 1)
    rows = normal.scaling[chosen, None] * graph.rows(chosen) * normal.scaling
    norms = certificate.sampled_residual(rows, chosen, shares[chosen], vectors, values)
    errors = np.zeros((graph.n, len(values)))
    errors[0] = norms  # a block with these column norms; its direction is not known
    outside = float(values[config.n_components]) if len(values) > config.n_components else 0.0
    return _framed(state, config, normal, _Pairs(values, vectors, errors, outside, "view"))


def _estimated_normalisation(state: State, factor: Factor, config: Config) -> Normalisation:
    density = view.density_weights(state.degrees, config.alpha)
    masses = state.support.masses
    spread = view.estimated_spread(
        factor.vectors, factor.values, factor.scaling, masses * density
    )
    return view.normalise(density, masses, spread)


def reference(state: State, config: Config, chunks: float, epoch: int | None = None) -> FrameReference:
    """The frame that snapshots after this state keep still against: its view, turned like one.

    Parameters
    ----------
    state
        With the frame so far; ``epoch`` None where there is one to follow.
    chunks
        Chunks since that frame, for the bound on the turn.
    """
    normal = _estimated_normalisation(state, state.factor, config)
    factor = state.factor
    root = view.restored(factor.vectors, factor.values, factor.scaling, normal)
    values, vectors = view.leading_pairs(root, normal, config.n_components + 1)
    psi = vectors / normal.constant[:, None]
    if epoch is not None:
        columns = psi * frame.canonical_signs(psi) if psi.size else psi
        return FrameReference(columns, state.support.births, state.position, epoch)
    rotation = _rotation(state, config, normal, psi, Residuals.none(values), chunks)
    return FrameReference(psi @ rotation, state.support.births, state.position, state.frame.epoch)


def _rotation(
    state: State,
    config: Config,
    normal: Normalisation,
    psi: Floats,
    residuals: Residuals,
    chunks: float,
) -> Floats:
    """The rotation (c, c) of the columns psi towards the state's frame."""
    c = psi.shape[1]
    shared = _shared(state)
    old = state.frame.columns[shared]
    level = min(c, old.shape[1])
    if level == 0 or len(shared) <= level:
        return np.diag(frame.canonical_signs(psi)) if psi.size else np.eye(c)
    overlap = np.eye(c)
    weights = normal.stationary[shared]
    overlap[:level, :level] = (psi[shared, :level] * weights[:, None]).T @ old[:, :level]
    k = min(config.n_components, c)
    norms = np.sqrt(np.maximum(np.diag(residuals.gram), 0.0))[:k]
    largest = float(residuals.values[0])
    if config.tolerance is None:
        spread = FREE_SPREAD * largest
        limit = np.inf
    else:
        limit = max(0.98 * config.tolerance * largest, float(norms.max()))
        spread = max(0.98 * config.tolerance * largest - float(norms.max()), 0.0)
    clusters = certificate.near_equal(residuals.values, spread)
    turn = frame.align(overlap, residuals, clusters, k, limit, TURN_PER_CHUNK * max(chunks, 1.0))
    return turn.rotation


def _shared(state: State) -> Floats:
    """Slots that hold the same event as when the frame was taken."""
    births = state.frame.births
    same = births == state.support.births[: len(births)]
    return np.flatnonzero(same)


def _framed(state: State, config: Config, normal: Normalisation, pairs: _Pairs) -> Columns:
    """Turn the pairs towards the frame, certify what is published, fill missing ranks with zeros."""
    k = config.n_components
    values, vectors, errors = pairs.values, pairs.vectors, pairs.errors
    n, c = vectors.shape
    have = min(k, c)
    psi = vectors / normal.constant[:, None]
    residuals = Residuals(values, vectors.T @ errors, errors.T @ errors)
    chunks = (state.position - state.frame.position) / config.chunk_size
    rotation = _rotation(state, config, normal, psi, residuals, chunks)[:, :have]
    shown, norms, gram = frame.turned_residuals(residuals, rotation)
    columns = np.zeros((n, k))
    columns[:, :have] = psi @ rotation
    eigenvalues = np.zeros(k)
    eigenvalues[:have] = np.clip(shown, 0.0, 1.0)
    all_norms = np.zeros(k)
    all_norms[:have] = norms
    following = float(values[k]) if c > k else 0.0
    block_norm = float(np.sqrt(max(np.linalg.eigvalsh(gram)[-1], 0.0))) if have else 0.0
    rounding = 4.0 * state.graph.rounding * float(eigenvalues[0])  # of the product itself
    certified = certificate.certify(
        eigenvalues,
        np.hypot(all_norms, rounding),
        block_norm,
        following,
        max(following, pairs.outside),
        config.tolerance,
        "sampled rows" if config.tolerance is None else "exact product",
    )
    displacement, movement = _displacement(state, psi[:, :have], columns[:, :have], have)
    return Columns(columns, eigenvalues, certified, normal, displacement, movement, pairs.rung)


def _displacement(
    state: State, raw: Floats, turned: Floats, have: int
) -> tuple[float, float]:
    """Root mean squares over shared slots: solver's to published, published to the frame's."""
    shared = _shared(state)
    old = state.frame.columns[shared, :have]
    if old.size == 0 or old.shape[1] < have:
        return 0.0, 0.0
    removed = np.sqrt(np.mean((raw[shared] - turned[shared]) ** 2))
    left = np.sqrt(np.mean((turned[shared] - old) ** 2))
    return float(removed), float(left)
