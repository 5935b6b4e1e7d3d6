"""From a state to published columns: view, polish, certificate, frame. The state is not touched.

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

from streamembed import axes
from streamembed.config import Config
from streamembed.core import certificate, frame, tracker, view
from streamembed.core.arrays import Array, Floats
from streamembed.core.certificate import Certificate
from streamembed.core.frame import Residuals
from streamembed.core.linalg import nystrom_pairs
from streamembed.core.view import Normalisation
from streamembed.state import State

__all__ = ["Columns", "published"]

# Sign vectors sent through what the factor does not know: one finds a lost mode, the others keep
# equal lost modes from hiding one another. With the degrees they make a product of 4 columns,
# which costs less than one of 3 (docs/benchmarks.md).
PROBES = 3
# Columns beyond the published ones in a polish, at least; then up to a multiple of 8 in all.
GUARDS = 2
REFRESHES = 4
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
    displacement, movement : float
        See `axes.Turned`.
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


def published(state: State, config: Config) -> Columns:
    """The columns of a snapshot of ``state``: certified where a tolerance was asked for."""
    if config.tolerance is None:
        return _estimated(state, config)
    normal, starts, images = _exact_normalisation(state, config)
    pairs = _climb(state, config, normal, starts, images)
    errors = pairs.errors
    residuals = Residuals(pairs.values, pairs.vectors.T @ errors, errors.T @ errors)
    psi = pairs.vectors / normal.constant[:, None]
    return _framed(state, config, normal, psi, residuals, pairs.outside, pairs.rung)


def _exact_normalisation(state: State, config: Config) -> tuple[Normalisation, Floats, Floats]:
    """The normalisation from one product with W, and W's image of the probes, for free."""
    graph, masses = state.graph, state.support.masses
    density = view.density_weights(state.degrees, config.alpha)
    starts = certificate.probe_starts(graph.n, PROBES, config.seed, state.position)
    images = graph.product(np.column_stack([masses * density, starts])).astype(np.float64)
    return view.normalise(density, masses, images[:, 0]), starts, images[:, 1:]


def _climb(
    state: State, config: Config, normal: Normalisation, starts: Floats, images: Floats
) -> _Pairs:
    """The first pairs on the ladder that meet the tolerance; the best of all if none does."""
    assert config.tolerance is not None
    count = config.n_components + 1
    width = -(-(count + GUARDS + PROBES) // 8) * 8 - PROBES
    floor = view.rounding_floor(state.graph.rounding)
    scaling = normal.scaling
    factor = state.factor
    best: _Pairs | None = None
    for attempt in range(REFRESHES + 1):
        root = view.restored(factor.vectors, factor.values, factor.scaling, normal)
        values, vectors = view.leading_pairs(root, normal, width)
        probes = _probes(
            scaling[:, None] * images, root, starts / scaling[:, None], vectors, normal
        )
        block = np.concatenate([vectors, probes], axis=1)
        image = _product(state, normal, block)
        pairs, found = _rayleigh(block, image, len(values), count, "refresh" if attempt else "view")
        best = _better(best, pairs, config)
        if not found:
            if _meets(pairs, config):
                return pairs
            polished = _polished(state, normal, block, image, count, pairs)
            best = _better(best, polished, config)
            if _meets(polished, config):
                return polished
        factor = tracker.refresh(
            factor,
            scaling,
            state.graph.product,
            config.rank_cut,
            floor,
            probes,
            view.LARGEST_EIGENVALUE,
        )
        starts = certificate.probe_starts(
            state.graph.n, PROBES, config.seed + attempt + 1, state.position
        )
        images = state.graph.product(starts).astype(np.float64)
    assert best is not None
    return _better(best, _batch(state, normal, best, count, config), config)


def _polished(
    state: State, normal: Normalisation, block: Floats, image: Floats, count: int, pairs: _Pairs
) -> _Pairs:
    """The Nystrom pairs of the block's own product, with their exact residual."""
    floor = view.rounding_floor(state.graph.rounding)
    vectors = nystrom_pairs(block, image, floor, view.LARGEST_EIGENVALUE)[1][:, :count]
    vectors = view.deflate(vectors, normal.constant)
    rung = "polish" if pairs.rung == "view" else pairs.rung
    polished, _ = _rayleigh(
        vectors, _product(state, normal, vectors), vectors.shape[1], count, rung
    )
    return _with_outside(polished, pairs.outside)


def _product(state: State, normal: Normalisation, block: Floats) -> Floats:
    """(S - v_0 v_0^T) @ block through the ring."""
    scale = normal.scaling.astype(state.graph.buffer.dtype)[:, None]
    image = scale * state.graph.product(scale * block.astype(scale.dtype))
    return view.deflate(image.astype(np.float64), normal.constant)


def _probes(
    images: Floats, root: Array, starts: Floats, vectors: Floats, normal: Normalisation
) -> Floats:
    """Unit directions of (S - F F^T) x: what the factor does not know, outside ``vectors``.

    Shape (n, p); directions that are nothing but rounding are left out.
    """
    missed = images - (root @ (root.T @ starts.astype(root.dtype))).astype(np.float64)
    for _ in range(2):
        missed = view.deflate(missed, normal.constant)
        missed -= vectors @ (vectors.T @ missed)
    basis, triangle = np.linalg.qr(missed)
    sizes = np.abs(np.diag(triangle))
    # of a single slot there are fewer directions than probes
    return basis[:, sizes > 1e-6 * np.linalg.norm(starts, axis=0)[: len(sizes)]]


def _rayleigh(
    block: Floats, image: Floats, known: int, count: int, rung: str
) -> tuple[_Pairs, bool]:
    """The first ``count`` of the ``known`` columns as pairs, and whether a probe beats lambda_k."""
    quotients = np.einsum("ij,ij->j", block, image)
    order = np.argsort(-quotients[:known], kind="stable")
    chosen, rest = order[:count], order[count:]
    values, vectors = quotients[chosen], block[:, chosen]
    following = float(quotients[rest].max(initial=0.0))
    lost = float(quotients[known:].max(initial=0.0))
    errors = image[:, chosen] - vectors * values
    last = values[count - 2] if len(values) >= count - 1 else 0.0  # lambda_k
    found = lost > max(last, 1e-6)
    return _Pairs(values, vectors, errors, max(following, lost), rung), found


def _with_outside(pairs: _Pairs, outside: float) -> _Pairs:
    return _Pairs(pairs.values, pairs.vectors, pairs.errors, outside, pairs.rung)


def _norms(errors: Floats) -> Floats:
    norms: Floats = np.sqrt(np.einsum("ij,ij->j", errors, errors))
    return norms


def _meets(pairs: _Pairs, config: Config) -> bool:
    """True where the k published columns are within the tolerance, before any turning."""
    assert config.tolerance is not None
    k = config.n_components
    if len(pairs.values) == 0:
        return True
    return bool(_norms(pairs.errors[:, :k]).max() <= config.tolerance * pairs.values[0])


def _better(best: _Pairs | None, pairs: _Pairs, config: Config) -> _Pairs:
    """The pairs with the larger eigenvalues; where they are level, with the smaller residual."""
    if best is None or len(pairs.values) == 0:
        return pairs if best is None else best
    k = config.n_components
    gain = pairs.values[:k].sum() - best.values[:k].sum()
    if abs(gain) > 1e-3:
        return pairs if gain > 0 else best
    smaller = _norms(pairs.errors[:, :k]).max() <= _norms(best.errors[:, :k]).max()
    return pairs if smaller else best


def _batch(state: State, normal: Normalisation, best: _Pairs, count: int, config: Config) -> _Pairs:
    """The last rung: Lanczos on S with the constant deflated, started from the best so far."""
    n = state.graph.n

    def apply(vector: Floats) -> Floats:
        return _product(state, normal, vector.reshape(n, -1))

    operator = LinearOperator((n, n), matvec=apply, matmat=apply, dtype=np.float64)
    try:
        _, vectors = eigsh(
            operator,
            k=min(count, n - 1),
            which="LA",
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
    outside = float(values[k]) if len(values) > k else 0.0
    residuals = Residuals(values, np.zeros((len(values),) * 2), np.diag(norms**2))
    return _framed(state, config, normal, psi, residuals, outside, "view")


def _framed(
    state: State,
    config: Config,
    normal: Normalisation,
    psi: Floats,
    residuals: Residuals,
    outside: float,
    rung: str,
) -> Columns:
    """Turn the columns towards the frame and certify what is published.

    Components beyond the operator's rank are zero columns with eigenvalue 0.
    """
    k = config.n_components
    n, c = psi.shape
    have = min(k, c)
    columns, eigenvalues, norms = np.zeros((n, k)), np.zeros(k), np.zeros(k)
    displacement = movement = block_norm = 0.0
    if have:
        turn = axes.turned(state, config, normal, psi, residuals)
        rotation = turn.rotation[:, :have]
        displacement, movement = turn.displacement, turn.movement
        shown, norms[:have], gram = frame.turned_residuals(residuals, rotation)
        columns[:, :have] = psi @ rotation
        eigenvalues[:have] = np.clip(shown, 0.0, 1.0)
        block_norm = float(np.sqrt(max(np.linalg.eigvalsh(gram)[-1], 0.0)))
    following = float(residuals.values[k]) if c > k else 0.0
    rounding = 4.0 * state.graph.rounding * float(eigenvalues[0])  # of the product itself
    certified = certificate.certify(
        eigenvalues,
        np.hypot(norms, rounding),
        block_norm,
        following,
        max(following, outside),
        config.tolerance,
        "sampled rows" if config.tolerance is None else "exact product",
    )
    return Columns(columns, eigenvalues, certified, normal, displacement, movement, rung)
