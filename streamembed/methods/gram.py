"""The centred room: classical scaling and kernel PCA, from a tracked matrix to certified pairs.

It shares ring, degrees and factor with the dense room (`state.Dense`); the factor is of the matrix
itself, and the mean is taken out in the view (`streamembed.manifold.centering`). The rungs are
those of the dense ladder in the order of their cost; the spectrum has both signs, so that steps
which need a positive operator are Rayleigh-Ritz steps here.

Everything is measured in units of a norm that is twice the largest value which the factor knows:
the certificate's inequalities are about operators with a spectrum below 1, and an eigenvalue that
the factor missed by so much is never within a tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from streamembed.geometry.kernel_matrix import Graph
from streamembed.manifold import centering
from streamembed.manifold.centering import View
from streamembed.methods.eigenpairs import LARGEST_EXACT, SMALLEST_FACTORED, Pairs, bound_following
from streamembed.methods.options import Config
from streamembed.methods.state import State
from streamembed.numeric.arrays import Floats
from streamembed.numeric.linalg import descending_eigh, orthonormal_basis
from streamembed.spectral import probes, tracker
from streamembed.spectral.certificate import Outside
from streamembed.spectral.operator import Normalisation
from streamembed.spectral.quadrature import negative_trace
from streamembed.spectral.tracker import Factor

__all__ = [
    "Known",
    "climb",
    "decompose",
    "is_tracked",
    "known_of",
    "negative_mass",
    "normalisation",
    "row_of_means",
    "unit_of",
    "view",
]

REFRESHES = 3
# Further pairs of the factor in a block: those above this share of the last wanted one, so that
# what is left is well below it, and no more than so many.
NEARLY, GUARDS = 0.85, 12
# Of the norm of H: sums of a thousand products in doubles.
ROUNDING = 1e-13
# A whole solve for large supports: its tolerance is this share of the one asked for.
BATCH_SHARE = 0.2
# Eigenvalues below this share of the norm are rounding of the centring.
NOTHING = 1e-11
TINY = float(np.finfo(np.float64).tiny)
# Entries of H above this have squares of which a sum is not finite.
LARGEST_TRACKED = 1e150
# Columns of the factor whose part of the trace is taken as it is; columns and steps of the
# quadrature of all others (docs/algorithms/classical-mds.md has its errors).
LEADING, COLUMNS, STEPS = 24, 8, 6


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """What the rungs climb on: H, what is known of it, and who counts.

    Attributes
    ----------
    graph : Graph
        H.
    factor : Factor
        Of H, with a scaling of 1.
    masses : (n,)
        m; 0 where a slot has no part in the map.
    position : int
        Of the stream: with the seed it decides all draws.
    """

    graph: Graph
    factor: Factor
    masses: Floats
    position: int

    @property
    def normal(self) -> Normalisation:
        """Every event weighs the same: pi = m / sum(m)."""
        masses = self.masses
        return Normalisation(np.ones_like(masses), np.sqrt(masses), masses / masses.sum())


def known_of(state: State) -> Known:
    """That of a state with a ring."""
    return Known(state.graph, state.factor, state.counting, state.position)


def normalisation(state: State) -> Normalisation:
    """Every event that has a part in the map weighs the same."""
    masses = state.counting
    return Normalisation(np.ones_like(masses), np.sqrt(masses), masses / masses.sum())


def view(state: State, count: int) -> tuple[Floats, Floats]:
    """Values and psi, shape (n, c), of the first ``count`` pairs as the factor has them."""
    factor = state.factor
    seen = centering.view(factor.vectors, factor.values, state.counting, count)
    kept = seen.vectors.shape[1]
    kept = int(np.count_nonzero(seen.values[:kept] > NOTHING * _norm_of(seen)))
    return seen.values[:kept], normalisation(state).eigenfunctions(seen.vectors[:, :kept])


def row_of_means(state: State) -> Floats:
    """v_0^T diag(sqrt(m)) H, shape (n,): what a row of S has less, times its entry of v_0."""
    row: Floats = state.degrees / np.sqrt(state.counting.sum())
    return row


def unit_of(values: Floats) -> float:
    """What values are measured in, so that none that is missing can be above 1."""
    return 2.0 * max(float(np.abs(values).max(initial=0.0)), TINY)


def is_tracked(at: Known) -> bool:
    """Whether the factor can be relied on: squares of the entries of H must be finite."""
    weights = at.graph.weights
    ends = weights.diagonal(), weights[0]  # of a kernel the largest; of distances a quarter of it
    return max(float(np.abs(entries).max()) for entries in ends) < LARGEST_TRACKED


def negative_mass(at: Known, seed: int) -> float:
    """Share of negative eigenvalues in the sum of all sizes: N / (trace + 2 N).

    N is that of the leading columns of the factor, and an estimate of all others; the trace is
    exact. Of few points, or without a factor, all eigenvalues are computed.
    """
    if at.graph.n <= SMALLEST_FACTORED or not is_tracked(at):
        dense: Floats = _dense(at) / max(_largest_entry(at), TINY)
        return _negative_share(np.linalg.eigvalsh(dense).astype(np.float64))
    masses, normal, constant = at.masses, at.normal, at.normal.constant
    row = at.graph.product(masses[:, None])[:, 0]
    unit = float(np.abs(row).max())  # of entries of one sign, as here, a bound on the norm
    operator = _Centred(at.graph, normal, unit)
    leading = normal.scaling[:, None] * at.factor.vectors[:, :LEADING]
    known = orthonormal_basis(centering.deflate(leading, constant))
    basis = np.column_stack([constant, known])
    inside = known.T @ operator.apply(known)
    negative = float(np.maximum(-np.linalg.eigvalsh(0.5 * (inside + inside.T)), 0.0).sum())

    def rest_of(block: Floats) -> Floats:
        rest: Floats = block - basis @ (basis.T @ block)
        return rest

    draw = np.random.default_rng((seed, at.position, len(masses)))
    starts = rest_of(draw.standard_normal((len(masses), COLUMNS)) * (masses > 0)[:, None])
    dimension = int(np.count_nonzero(masses)) - basis.shape[1]
    negative += negative_trace(
        lambda block: rest_of(operator.apply(block)), starts, dimension, STEPS
    )
    diagonal = at.graph.weights.diagonal()
    trace = float(masses @ (diagonal / unit - row / unit / masses.sum()))
    return negative / (trace + 2.0 * negative) if trace > 0.0 else 0.0


def _negative_share(values: Floats) -> float:
    """Of the sum of all sizes."""
    total = float(np.abs(values).sum())
    return float(np.maximum(-values, 0.0).sum()) / total if total > 0.0 else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Centred:
    """S in units of ``unit``."""

    graph: Graph
    normal: Normalisation
    unit: float

    def apply(self, block: Floats) -> Floats:
        """S @ block / unit, for any (n, c)."""
        constant, root = self.normal.constant, self.normal.scaling[:, None]
        image = self.graph.product(root * centering.deflate(block, constant)).astype(np.float64)
        return centering.deflate(root * image, constant) / self.unit


def climb(at: Known, config: Config) -> Iterator[Pairs]:
    """The results of the ladder, rung by rung, computed only when the next one is requested."""
    graph, normal, n = at.graph, at.normal, at.graph.n
    if n <= SMALLEST_FACTORED or not is_tracked(at):
        yield decompose(at, config)
        return
    factor, masses, rung = at.factor, at.masses, "view"
    seen = centering.view(factor.vectors, factor.values, masses, factor.rank)
    norm = _norm_of(seen)
    lost = ROUNDING * float(factor.largest * masses.max())
    if norm <= max(lost, TINY):  # nothing differs
        yield decompose(at, config)
        return
    operator = _Centred(graph, normal, 2.0 * norm)
    rounding = lost / operator.unit
    for attempt in range(REFRESHES + 1):
        width = _width(seen, config)
        pairs, found = _look(operator, seen, width, at.position, config, rung, rounding, attempt)
        yield pairs
        if config.tolerance is None:
            return
        if not pairs.fits(config):
            pairs, found = _polish(operator, pairs, found, config, rounding)
            yield pairs
        if attempt == REFRESHES:
            break
        root = normal.scaling[:, None]  # directions of S, as such of H
        beyond = np.divide(found, root, out=np.zeros_like(found), where=root > 0)
        factor = tracker.refresh(
            factor, factor.scaling, graph.product, config.rank_cut, 0.0, probes=beyond
        )
        rung = "refresh"
        seen = centering.view(factor.vectors, factor.values, masses, factor.rank)
    if n <= LARGEST_EXACT:
        yield decompose(at, config)
    else:
        yield _solve(operator, pairs, at.position, config, rounding)


def _norm_of(seen: View) -> float:
    return float(np.abs(seen.values).max(initial=0.0))


def _width(seen: View, config: Config) -> int:
    """How many vectors of a view go into its block."""
    k = config.n_components
    most = min(int(seen.vectors.shape[1]), k + 1 + GUARDS)
    last = float(seen.values[k - 1]) if len(seen.values) >= k else 0.0
    near = int(np.count_nonzero(seen.values > NEARLY * max(last, 0.0)))
    return min(most, max(k + 1, near))


def _look(
    operator: _Centred,
    seen: View,
    width: int,
    position: int,
    config: Config,
    rung: str,
    rounding: float,
    attempt: int,
) -> tuple[Pairs, Floats]:
    """A view's pairs, and what probes heard beside the first ``width``; also where they heard it.

    Where the tolerance is None, nothing is probed.
    """
    k, values = config.n_components, seen.values / operator.unit
    vectors = seen.vectors[:, :width]
    remaining = max(float(values[width]), 0.0) if len(values) > width else 0.0
    known = np.concatenate([operator.normal.constant[:, None], vectors], axis=1)
    weights = seen.weights / operator.unit

    def unknown(block: Floats, image: Floats) -> Floats:
        missed: Floats = image - seen.root @ (weights[:, None] * (seen.root.T @ block))
        missed -= known @ (known.T @ missed)
        return missed

    if config.tolerance is None:
        image = operator.apply(vectors)
        pairs = _measure(operator, vectors, image, config, rung, rounding)
        return pairs, vectors[:, :0]
    drawn = probes.starts(len(vectors), config.seed + attempt, position)
    both = operator.apply(np.concatenate([vectors, drawn], axis=1))
    pairs = _measure(operator, vectors, both[:, :width], config, rung, rounding)
    missed, level = unknown(drawn, both[:, width:]), pairs.level(config)
    beyond = remaining + probes.reach(missed)
    if pairs.fits(config) and beyond < level:  # the factor knows all that matters
        outside = bound_following(vectors, both[:, :width], min(beyond, 1.0), k, rounding)
        return replace(pairs, outside=outside), vectors[:, :0]
    silence = probes.first(missed, 1.0, known)
    image = operator.apply(silence.directions)
    silence = probes.listen(silence, unknown(silence.directions, image))
    block = np.concatenate([vectors, silence.directions], axis=1)
    image = np.concatenate([both[:, :width], image], axis=1)
    if pairs.fits(config) and remaining < level < remaining + silence.bound:
        silence = probes.sharpen(
            silence,
            lambda block: unknown(block, operator.apply(block)),
            max(0.9 * (level - remaining), TINY),
        )
    outside = bound_following(block, image, min(remaining + silence.bound, 1.0), k, rounding)
    return replace(pairs, outside=outside), silence.directions


def _measure(
    operator: _Centred,
    vectors: Floats,
    image: Floats,
    config: Config,
    rung: str,
    rounding: float,
) -> Pairs:
    """The first k + 1 of orthonormal columns as pairs, by their Rayleigh quotients."""
    quotients = np.einsum("ij,ij->j", vectors, image)
    order = np.argsort(-quotients, kind="stable")[: config.n_components + 1]
    order = order[quotients[order] > NOTHING]
    values, vectors, image = quotients[order], vectors[:, order], image[:, order]
    errors = image - vectors * values
    k = config.n_components
    outside = Outside(float(values[k]) if len(values) > k else 0.0, 1.0, values[:k])
    # what the unit is taken from may be rounding: zeros are certified by `decompose` alone
    normal, unit = operator.normal, operator.unit
    return Pairs(values, vectors, errors, outside, normal, rounding, rung, unit, floor=0.0)


def _polish(
    operator: _Centred, pairs: Pairs, found: Floats, config: Config, rounding: float
) -> tuple[Pairs, Floats]:
    """The Ritz pairs of the block, its errors and what the probes heard: one step more."""
    whole = np.concatenate([pairs.vectors, pairs.errors, found], axis=1)
    basis = orthonormal_basis(centering.deflate(whole, operator.normal.constant))
    image = operator.apply(basis)
    values, mix = descending_eigh(basis.T @ image)
    keep = min(config.n_components + 1, int(np.count_nonzero(values > NOTHING)))
    vectors, image = basis @ mix[:, :keep], image @ mix[:, :keep]
    rung = "polish" if pairs.rung == "view" else pairs.rung
    better = _measure(operator, vectors, image, config, rung, rounding)
    return replace(better, outside=pairs.outside), basis @ mix


def decompose(at: Known, config: Config) -> Pairs:
    """Every pair at once. O(n^3)."""
    normal, dense = at.normal, _dense(at)
    values, vectors = descending_eigh(dense)
    lost = ROUNDING * len(values) * _largest_entry(at)
    unit = max(unit_of(values), 2.0 * lost)
    values, dense, rounding = values / unit, dense / unit, lost / unit
    floor = max(NOTHING, rounding)
    real = values > floor
    kept = min(config.n_components + 1, int(np.count_nonzero(real)))
    chosen = centering.deflate(vectors[:, :kept], normal.constant)
    errors = dense @ chosen - chosen * values[:kept]
    shown = min(kept, config.n_components)
    following = float(values[shown]) if shown < len(values) else 0.0
    following = following if following > rounding else 0.0
    outside = Outside(following, following, values[:shown])
    mass, found = _negative_share(values), values[:kept]
    return Pairs(found, chosen, errors, outside, normal, rounding, "exact", unit, floor, mass)


def _dense(at: Known) -> Floats:
    """S, shape (n, n)."""
    root, constant = at.normal.scaling, at.normal.constant
    dense: Floats = at.graph.weights.astype(np.float64) * np.outer(root, root)
    dense -= np.outer(constant, constant @ dense)
    dense -= np.outer(dense @ constant, constant)
    return dense


def _largest_entry(at: Known) -> float:
    """A bound on the entries of diag(sqrt(m)) H diag(sqrt(m))."""
    return float(np.abs(at.graph.weights).max() * at.masses.max())


def _solve(
    operator: _Centred, pairs: Pairs, position: int, config: Config, rounding: float
) -> Pairs:
    """The last rung of large supports: Lanczos on the whole operator, and probes beside it."""
    assert config.tolerance is not None
    n, k = len(operator.normal.scaling), config.n_components
    start = pairs.vectors.sum(axis=1)
    try:
        _, vectors = eigsh(
            LinearOperator((n, n), lambda x: operator.apply(x.reshape(-1, 1))[:, 0], dtype=float),
            k=min(k + 1 + GUARDS, n - 1),
            which="LA",
            v0=start if start.any() else np.ones(n),
            tol=BATCH_SHARE * config.tolerance,
        )
    except ArpackError:
        return pairs
    basis = orthonormal_basis(centering.deflate(vectors, operator.normal.constant))
    image = operator.apply(basis)
    values, mix = descending_eigh(basis.T @ image)
    # nothing is taken for known but the block itself
    seen = View(values * operator.unit, basis @ mix, basis, np.zeros(basis.shape[1]))
    width = seen.vectors.shape[1]
    return _look(operator, seen, width, position, config, "batch", rounding, REFRESHES + 1)[0]
