"""Classical scaling and kernel PCA, from a tracked matrix to certified pairs.

Ring, degrees and factor are those of `ring_map.RingMap`. The factor is of
the matrix itself, and the mean is taken out in the view (`streamembed.manifold.centering`). The
levels are those of `streamembed.methods.refinement`, in the order of their cost. The spectrum has
both signs, so that steps which need a positive operator are Rayleigh-Ritz steps here.

Everything is measured in units of a norm that is twice the largest value of the factor:
the certificate's inequalities are about operators with a spectrum below 1, and an eigenvalue that
the factor missed by so much is never within a tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from streamembed.geometry.kernel_matrix import KernelMatrix
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.support import Support
from streamembed.manifold import centering
from streamembed.manifold.centering import CenteredView
from streamembed.methods import publish
from streamembed.methods.eigenpairs import (
    LARGEST_EXACT,
    SMALLEST_FACTORED,
    Eigenpairs,
    PublishedColumns,
    bound_following,
)
from streamembed.methods.options import Config
from streamembed.methods.placement import measure_neighbor_distance
from streamembed.methods.registry import KernelInput
from streamembed.methods.ring_map import RingMap, build_ring
from streamembed.methods.state import BuildInput, KernelWidths, State, UpdateInput
from streamembed.numeric.arrays import Floats
from streamembed.numeric.linalg import descending_eigh, orthonormal_basis
from streamembed.spectral import certificate, probes, tracker
from streamembed.spectral.certificate import Certificate, Outside
from streamembed.spectral.operator import Normalisation, deflate
from streamembed.spectral.quadrature import estimate_negative_trace
from streamembed.spectral.tracker import Factor

# Refilled slots after which the factor is refreshed, as a share of n: a cut of a matrix that is
# not positive loses more, and is paid for less.
REFRESH_SHARE = 0.05
REFRESHES = 3
# Further pairs of the factor in a block: those above this share of the last wanted one, so that
# the rest is well below it, and at most this many.
NEARLY, GUARDS = 0.85, 12
# Of the norm of H: sums of a thousand products in doubles.
ROUNDING = 1e-13
# A whole solve for large supports: its tolerance is this share of the one asked for.
BATCH_SHARE = 0.2
# Eigenvalues below this share of the norm are rounding of the centring.
NEGLIGIBLE = 1e-11
TINY = float(np.finfo(np.float64).tiny)
# Entries of H above this have squares of which a sum is not finite.
LARGEST_TRACKED = 1e150
# Columns of the factor whose part of the trace is taken as it is; random columns that show what it
# lacks, and of the quadrature of all else; its steps (docs/algorithms/classical-mds.md has errors).
LEADING, COLUMNS, STEPS = 24, 8, 6


@dataclass(frozen=True, slots=True, eq=False)
class GramInput:
    """The input of the refinement: H, its factor, and the masses."""

    matrix: KernelMatrix  # H
    factor: Factor  # of H, with a scaling of 1
    masses: Floats  # (n,): m; 0 where a slot has no part in the map
    position: int  # of the stream: with the seed it decides all draws

    @property
    def normal(self) -> Normalisation:
        """Every event weighs the same: pi = m / sum(m)."""
        return _weigh_equally(self.masses)


@dataclass(frozen=True, eq=False)
class GramMap(RingMap):
    """The map of a centred method: a ring of W itself, and a factor of it."""

    has_resolution = False
    refresh_share = REFRESH_SHARE

    @classmethod
    def of(cls, graph: KernelMatrix, degrees: Floats, factor: Factor) -> Self:
        """Of a ring alone."""
        return cls(graph, degrees, factor)

    @classmethod
    def build(cls, inputs: BuildInput, config: Config) -> tuple[Self, Scaling]:
        """From scratch, in double precision."""
        scaling = inputs.scaling
        kernel = KernelInput(inputs.support, inputs.read_distances, scaling, None, None)
        return cls.of(*build_ring(kernel, config, exact=True)), scaling

    def update(self, inputs: UpdateInput, config: Config) -> tuple[Self, int]:
        """After a chunk: rows of its slots."""
        scaling, slots = inputs.state.scaling, inputs.slots
        kernel = KernelInput(inputs.support, inputs.read_distances, scaling, None, None)
        return self.border(inputs, kernel, slots, config), len(slots)

    def correct_degrees(self, support: Support) -> Floats:
        """Made anew: sums of signed rows lose digits where they are added and taken away."""
        return self.graph.product(support.masses[:, None])[:, 0].astype(np.float64)

    def normalise(self, state: State, config: Config) -> Normalisation:
        """Every event weighs the same."""
        return compute_normalisation(state)

    def view(self, state: State, normal: Normalisation, count: int) -> tuple[Floats, Floats]:
        """The factor's leading pairs, centred."""
        return view(self.factor, state, count)

    def publish(self, state: State, config: Config, counted: bool) -> PublishedColumns:
        """Refined, where a tolerance was asked for; of learned distances with their sign."""
        inputs = GramInput(self.graph, self.factor, state.active_masses, state.position)
        if config.tolerance is None and is_tracked(inputs):
            normal = compute_normalisation(state)
            values, psi = view(self.factor, state, config.n_pairs)
            mean_row: Floats = self.degrees / np.sqrt(state.active_masses.sum())
            columns = publish.estimate_columns(
                *(state, config, self.graph, normal, values, psi),
                mean_row=mean_row,
                unit=choose_unit(values),
            )
        else:
            columns = publish.select_best(refine(inputs, config), state, config)
        if state.distances is None:  # a kernel of points
            return columns
        certified = add_negative_mass(columns.certificate, columns, inputs, config)
        return replace(columns, certificate=certified)

    def scale_certificate(
        self, certified: Certificate, values: Floats, unit: float
    ) -> tuple[Certificate, Floats]:
        """In the units of the data."""
        return certificate.scale_certificate(certified, unit), values * unit

    def count_components(self, state: State, config: Config, pairs: Eigenpairs) -> int:
        """1: such a matrix has no parts."""
        return 1

    def describe_weights(self, state: State, config: Config) -> KernelWidths:
        """The kernel, or distances."""
        return describe_weights(state, config)

    def measure_coverage(self, d2: Floats, masses: Floats, config: Config) -> float:
        """The median distance to the last neighbour."""
        return measure_neighbor_distance(d2, config.n_neighbors)


def describe_weights(state: State, config: Config) -> KernelWidths:
    """Of methods without widths."""
    n, bandwidth = len(state.support), state.scaling.bandwidth
    name = config.kernel if config.embedding.kernels else "distance"
    return KernelWidths(name, np.full(n, bandwidth), np.zeros(n), least=bandwidth)


def compute_normalisation(state: State) -> Normalisation:
    """Every event that has a part in the map weighs the same."""
    return _weigh_equally(state.active_masses)


def _weigh_equally(masses: Floats) -> Normalisation:
    return Normalisation(np.ones_like(masses), np.sqrt(masses), masses / masses.sum())


def view(factor: Factor, state: State, count: int) -> tuple[Floats, Floats]:
    """Values and psi, shape (n, c), of the first ``count`` pairs as the factor has them."""
    spectrum = centering.view(factor.vectors, factor.values, state.active_masses, count)
    values = spectrum.values[: spectrum.vectors.shape[1]]
    n_kept = int(np.count_nonzero(values > NEGLIGIBLE * _compute_norm(spectrum)))
    normal = compute_normalisation(state)
    return values[:n_kept], normal.eigenfunctions(spectrum.vectors[:, :n_kept])


def add_negative_mass(
    described: Certificate, columns: PublishedColumns, inputs: GramInput, config: Config
) -> Certificate:
    """The certificate with the share of negative eigenvalues."""
    mass = columns.negative_mass
    if mass is None:
        mass = estimate_negative_mass(inputs, config.seed)
    return replace(described, negative_mass=mass)


def choose_unit(values: Floats) -> float:
    """The unit of the values, so that no missing one can be above 1."""
    return 2.0 * max(float(np.abs(values).max(initial=0.0)), TINY)


def is_tracked(inputs: GramInput) -> bool:
    """Whether the factor can be relied on: squares of the entries of H must be finite."""
    weights = inputs.matrix.weights
    ends = weights.diagonal(), weights[0]  # of a kernel the largest; of distances a quarter of it
    return max(float(np.abs(entries).max()) for entries in ends) < LARGEST_TRACKED


def estimate_negative_mass(inputs: GramInput, seed: int) -> float:
    """Share of negative eigenvalues in the sum of all sizes: N / (trace + 2 N).

    N is that of the leading columns of the factor, and an estimate of all others; the trace is
    exact. Of few points, or without a factor, all eigenvalues are computed.
    """
    if inputs.matrix.n <= SMALLEST_FACTORED or not is_tracked(inputs):
        dense: Floats = _build_dense(inputs) / max(_bound_entries(inputs), TINY)
        return _compute_negative_share(np.linalg.eigvalsh(dense).astype(np.float64))
    masses, normal, constant = inputs.masses, inputs.normal, inputs.normal.constant
    row = inputs.matrix.product(masses[:, None])[:, 0]
    unit = float(np.abs(row).max())  # of entries of one sign, as here, a bound on the norm
    operator = _CentredOperator(inputs.matrix, normal, unit)
    generator = np.random.default_rng((seed, inputs.position, len(masses)))
    here = (masses > 0)[:, None]
    # what the factor lacks shows in a product with random columns (Meyer et al., 2021, Hutch++)
    missing = operator.apply(generator.standard_normal((len(masses), COLUMNS)) * here)
    leading = normal.scaling[:, None] * inputs.factor.vectors[:, :LEADING]
    leading_basis = orthonormal_basis(deflate(np.column_stack([leading, missing]), constant))
    basis = np.column_stack([constant, leading_basis])
    inside = leading_basis.T @ operator.apply(leading_basis)
    negative = float(np.maximum(-np.linalg.eigvalsh(0.5 * (inside + inside.T)), 0.0).sum())

    def project_out(block: Floats) -> Floats:
        return block - basis @ (basis.T @ block)

    starts = project_out(generator.standard_normal((len(masses), COLUMNS)) * here)
    dimension = int(np.count_nonzero(masses)) - basis.shape[1]
    negative += estimate_negative_trace(
        lambda block: project_out(operator.apply(block)), starts, dimension, STEPS
    )
    diagonal = inputs.matrix.weights.diagonal()
    trace = float(masses @ (diagonal / unit - row / unit / masses.sum()))
    return negative / (trace + 2.0 * negative) if trace > 0.0 else 0.0


def _compute_negative_share(values: Floats) -> float:
    """Of the sum of all sizes."""
    total = float(np.abs(values).sum())
    return float(np.maximum(-values, 0.0).sum()) / total if total > 0.0 else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _CentredOperator:
    """S in units of ``unit``, known to ``rounding`` of them."""

    matrix: KernelMatrix
    normal: Normalisation
    unit: float
    rounding: float = 0.0

    def apply(self, block: Floats) -> Floats:
        """S @ block / unit, for any (n, c)."""
        constant, root = self.normal.constant, self.normal.scaling[:, None]
        image = self.matrix.product(root * deflate(block, constant)).astype(np.float64)
        return deflate(root * image, constant) / self.unit


def refine(inputs: GramInput, config: Config) -> Iterator[Eigenpairs]:
    """Leading pairs, level by level, each computed only when you ask for the next one."""
    graph, normal, n = inputs.matrix, inputs.normal, inputs.matrix.n
    if n <= SMALLEST_FACTORED or not is_tracked(inputs):
        yield decompose(inputs, config)
        return
    factor, masses, refinement = inputs.factor, inputs.masses, "view"
    spectrum = centering.view(factor.vectors, factor.values, masses, factor.rank)
    norm = _compute_norm(spectrum)
    loss = ROUNDING * float(factor.largest * masses.max())
    if norm <= max(loss, TINY):  # nothing differs
        yield decompose(inputs, config)
        return
    operator = _CentredOperator(graph, normal, 2.0 * norm, loss / (2.0 * norm))
    for attempt in range(REFRESHES + 1):
        width = _choose_width(spectrum, config)
        pairs, directions = _measure_view(
            operator, spectrum, width, inputs.position, config, refinement, attempt
        )
        yield pairs
        if config.tolerance is None:
            return
        if not pairs.meets_tolerance(config):
            pairs, directions = _polish(operator, pairs, directions, config)
            yield pairs
        if attempt == REFRESHES:
            break
        root = normal.scaling[:, None]  # directions of S, as such of H
        beyond = np.divide(directions, root, out=np.zeros_like(directions), where=root > 0)
        factor = tracker.refresh(
            factor, factor.scaling, graph.product, config.rank_cut, 0.0, probes=beyond
        )
        refinement = "refresh"
        spectrum = centering.view(factor.vectors, factor.values, masses, factor.rank)
    if n <= LARGEST_EXACT:
        yield decompose(inputs, config)
    else:
        yield _solve(operator, pairs, inputs.position, config)


def _compute_norm(spectrum: CenteredView) -> float:
    return float(np.abs(spectrum.values).max(initial=0.0))


def _choose_width(spectrum: CenteredView, config: Config) -> int:
    """How many vectors of a view go into its block."""
    k = config.n_components
    limit = min(int(spectrum.vectors.shape[1]), k + 1 + GUARDS)
    last = float(spectrum.values[k - 1]) if len(spectrum.values) >= k else 0.0
    n_close = int(np.count_nonzero(spectrum.values > NEARLY * max(last, 0.0)))
    return min(limit, max(k + 1, n_close))


def _measure_view(
    operator: _CentredOperator,
    spectrum: CenteredView,
    width: int,
    position: int,
    config: Config,
    refinement: str,
    attempt: int,
) -> tuple[Eigenpairs, Floats]:
    """A view's pairs, a bound beyond the first ``width`` by probes, and the probes' directions.

    Where the tolerance is None, nothing is probed.
    """
    k, rounding, values = config.n_components, operator.rounding, spectrum.values / operator.unit
    vectors = spectrum.vectors[:, :width]
    remaining = max(float(values[width]), 0.0) if len(values) > width else 0.0
    basis = np.concatenate([operator.normal.constant[:, None], vectors], axis=1)
    weights = spectrum.weights / operator.unit

    def apply_residual(block: Floats, image: Floats) -> Floats:
        residual: Floats = image - spectrum.root @ (weights[:, None] * (spectrum.root.T @ block))
        residual -= basis @ (basis.T @ residual)
        return residual

    if config.tolerance is None:
        image = operator.apply(vectors)
        return _measure(operator, vectors, image, config, refinement), vectors[:, :0]
    draws = probes.draw_probes(len(vectors), config.seed + attempt, position)
    images = operator.apply(np.concatenate([vectors, draws], axis=1))
    pairs = _measure(operator, vectors, images[:, :width], config, refinement)
    residual, level = apply_residual(draws, images[:, width:]), pairs.outside_limit(config)
    beyond = remaining + probes.bound_by_one_product(residual)
    if pairs.meets_tolerance(config) and beyond < level:  # the factor has all that matters
        outside = bound_following(vectors, images[:, :width], min(beyond, 1.0), k, rounding)
        return replace(pairs, outside=outside), vectors[:, :0]
    residual_bound = probes.find_directions(residual, 1.0, basis)
    image = operator.apply(residual_bound.directions)
    residual_bound = probes.estimate_bound(
        residual_bound, apply_residual(residual_bound.directions, image)
    )
    block = np.concatenate([vectors, residual_bound.directions], axis=1)
    image = np.concatenate([images[:, :width], image], axis=1)
    if pairs.meets_tolerance(config) and remaining < level < remaining + residual_bound.bound:
        residual_bound = probes.tighten_bound(
            residual_bound,
            lambda block: apply_residual(block, operator.apply(block)),
            max(0.9 * (level - remaining), TINY),
        )
    outside = bound_following(block, image, min(remaining + residual_bound.bound, 1.0), k, rounding)
    return replace(pairs, outside=outside), residual_bound.directions


def _measure(
    operator: _CentredOperator,
    vectors: Floats,
    image: Floats,
    config: Config,
    refinement: str,
) -> Eigenpairs:
    """The first k + 1 of orthonormal columns as pairs, by their Rayleigh quotients."""
    quotients = np.einsum("ij,ij->j", vectors, image)
    order = np.argsort(-quotients, kind="stable")[: config.n_components + 1]
    order = order[quotients[order] > NEGLIGIBLE]
    values, vectors, image = quotients[order], vectors[:, order], image[:, order]
    errors = image - vectors * values
    k = config.n_components
    outside = Outside(float(values[k]) if len(values) > k else 0.0, 1.0, values[:k])
    # the unit may be of rounding alone: zeros are certified by `decompose` alone
    normal, rounding = operator.normal, operator.rounding
    leading = values, vectors, errors, outside
    return Eigenpairs(*leading, normal, rounding, refinement, unit=operator.unit, floor=0.0)


def _polish(
    operator: _CentredOperator,
    pairs: Eigenpairs,
    directions: Floats,
    config: Config,
) -> tuple[Eigenpairs, Floats]:
    """The Ritz pairs of the block, its errors and the probes' directions: one more step."""
    whole = np.concatenate([pairs.vectors, pairs.errors, directions], axis=1)
    basis = orthonormal_basis(deflate(whole, operator.normal.constant))
    image = operator.apply(basis)
    values, mix = descending_eigh(basis.T @ image)
    n_kept = min(config.n_components + 1, int(np.count_nonzero(values > NEGLIGIBLE)))
    vectors, image = basis @ mix[:, :n_kept], image @ mix[:, :n_kept]
    refinement = "polish" if pairs.refinement == "view" else pairs.refinement
    polished = _measure(operator, vectors, image, config, refinement)
    return replace(polished, outside=pairs.outside), basis @ mix


def decompose(inputs: GramInput, config: Config) -> Eigenpairs:
    """Every pair at once. O(n^3)."""
    normal, dense = inputs.normal, _build_dense(inputs)
    values, vectors = descending_eigh(dense)
    loss = ROUNDING * len(values) * _bound_entries(inputs)
    unit = max(choose_unit(values), 2.0 * loss)
    values, dense, rounding = values / unit, dense / unit, loss / unit
    floor = max(NEGLIGIBLE, rounding)
    is_real = values > floor
    n_kept = min(config.n_components + 1, int(np.count_nonzero(is_real)))
    leading = deflate(vectors[:, :n_kept], normal.constant)
    errors = dense @ leading - leading * values[:n_kept]
    n_shown = min(n_kept, config.n_components)
    following = float(values[n_shown]) if n_shown < len(values) else 0.0
    following = following if following > rounding else 0.0
    outside = Outside(following, following, values[:n_shown])
    pairs = Eigenpairs(values[:n_kept], leading, errors, outside, normal, rounding, "exact")
    share = _compute_negative_share(values)
    return replace(pairs, unit=unit, floor=floor, negative_mass=share)


def _build_dense(inputs: GramInput) -> Floats:
    """S, shape (n, n)."""
    root, constant = inputs.normal.scaling, inputs.normal.constant
    dense: Floats = inputs.matrix.weights.astype(np.float64) * np.outer(root, root)
    dense -= np.outer(constant, constant @ dense)
    dense -= np.outer(dense @ constant, constant)
    return dense


def _bound_entries(inputs: GramInput) -> float:
    """A bound on the entries of diag(sqrt(m)) H diag(sqrt(m))."""
    return float(np.abs(inputs.matrix.weights).max() * inputs.masses.max())


def _solve(
    operator: _CentredOperator, pairs: Eigenpairs, position: int, config: Config
) -> Eigenpairs:
    """The last level of large supports: Lanczos on the whole operator, and probes beside it."""
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
    basis = orthonormal_basis(deflate(vectors, operator.normal.constant))
    image = operator.apply(basis)
    values, mix = descending_eigh(basis.T @ image)
    # only the block itself counts as known
    spectrum = CenteredView(values * operator.unit, basis @ mix, basis, np.zeros(basis.shape[1]))
    width = spectrum.vectors.shape[1]
    return _measure_view(operator, spectrum, width, position, config, "batch", REFRESHES + 1)[0]
