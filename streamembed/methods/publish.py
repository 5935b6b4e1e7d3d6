"""From a state to published columns, certified as published. The state is not touched.

The levels of `streamembed.methods.refinement` are tried one by one; each is certified as it would
be published, and the first that meets the tolerance is. If none does, the best is. Only then are
coordinates turned onto the frame, which changes no eigenpair. Without a tolerance only the view is
taken, under an estimated normalisation, and its certificate is a sample of rows: it claims nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from streamembed.geometry import components
from streamembed.methods import (
    alignment_matrix,
    frame_reference,
    geodesic_gram,
    gram,
    neighbor_graph,
    refinement,
)
from streamembed.methods.eigenpairs import Eigenpairs
from streamembed.methods.geodesic_gram import Paths
from streamembed.methods.gram import GramInput
from streamembed.methods.options import Config
from streamembed.methods.state import State
from streamembed.numeric.arrays import Floats
from streamembed.spectral import certificate
from streamembed.spectral.certificate import Certificate, Outside
from streamembed.spectral.operator import Normalisation

SAMPLED_ROWS = 64
# A plain view is off by less than this: it counts components where its first eigenvalue, and
# its estimate of the rest, come this near to 1.
NEAR_ONE = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class PublishedColumns:
    """The published columns of a snapshot, by slot."""

    # (n, k): those of the eigenpairs, turned onto the state's frame.
    coordinates: Floats
    # (n, n_carried): right eigenvectors of P, sum(pi psi^2) = 1, of which the first k are
    # certified; columns beyond the operator's rank are zero.
    psi: Floats
    eigenvalues: Floats  # (n_carried,): descending, of P
    rotation: Floats  # (n_carried, k): coordinates = (lambda^t psi) rotation
    certificate: Certificate
    normal: Normalisation
    # See `frame_reference.FrameAlignment`.
    fidelity: float
    price: float
    correlations: Floats
    # ``view``, ``polish``, ``refresh``, ``batch`` or ``exact``: the refinement level.
    refinement: str
    n_connected: int  # components of the kernel's graph
    # (d, k): of linear maps, coordinates = (x - mean) loadings, in the caller's units.
    loadings: Floats
    paths: Paths | None = None  # of Isomap: the shortest paths that were used
    negative_mass: float | None = None  # see `Certificate`, where all eigenvalues are known


def publish(state: State, config: Config, counted: bool = False) -> PublishedColumns:
    """The columns of a snapshot of ``state``: certified where a tolerance was asked for.

    With ``counted`` the eigenvalues of a graph are counted, too; see `Certificate.missed`.
    """
    if state.curved is not None:
        inputs = geodesic_gram.read_input(state, config)
        columns = _select_best(geodesic_gram.refine(inputs, state, config), state, config)
        described, paths = geodesic_gram.describe(columns.certificate, inputs, state)
        described = _add_negative_mass(described, columns, inputs.gram, config)
        return replace(columns, certificate=described, paths=paths)
    if state.sparse is not None:
        columns = _select_best(neighbor_graph.refine(state, config), state, config)
        graph = state.sparse
        missed = graph.missed if graph.counted == state.position else None
        if counted and graph.axes is None:
            k = config.n_components
            values, psi = columns.eigenvalues[:k], columns.psi[:, :k]
            missed = neighbor_graph.count_missed(state, values, psi, config)
        isolated = len(graph.parts.isolated)
        certified = columns.certificate
        values = columns.eigenvalues[: config.n_components]
        rate, error = 1.0 - float(values[-1]), certified.residual * float(values[0])
        described = replace(
            certified,
            missed=missed,
            isolated=isolated,
            residual_rate=min(error / rate, 1.0) if rate > 0.0 else 1.0,
        )
        return replace(columns, certificate=described)
    if state.rebuilt is not None:
        return _select_best(alignment_matrix.refine(state, config), state, config)
    if not state.is_centred:
        if config.tolerance is None:
            return _estimate_columns(state, config)
        return _select_best(refinement.refine(state, config), state, config)
    gram_input = gram.read_input(state)
    if config.tolerance is None and gram.is_tracked(gram_input):
        columns = _estimate_columns(state, config)
    else:
        columns = _select_best(gram.refine(gram_input, config), state, config)
    if state.distances is None:  # a kernel of points
        return columns
    described = _add_negative_mass(columns.certificate, columns, gram_input, config)
    return replace(columns, certificate=described)


def _add_negative_mass(
    described: Certificate, columns: PublishedColumns, inputs: GramInput, config: Config
) -> Certificate:
    mass = columns.negative_mass
    if mass is None:
        mass = gram.estimate_negative_mass(inputs, config.seed)
    return replace(described, negative_mass=mass)


def _select_best(levels: Iterator[Eigenpairs], state: State, config: Config) -> PublishedColumns:
    """The first level that meets the tolerance, or the best of all, certified."""
    best: Eigenpairs | None = None
    for pairs in levels:
        if config.tolerance is not None and pairs.meets_tolerance(config):
            columns = _certify(state, config, pairs)
            if columns.certificate.met:
                return columns
        best = pairs if best is None else _choose_better(best, pairs, config)
    assert best is not None
    return _certify(state, config, best)


def _choose_better(best: Eigenpairs, pairs: Eigenpairs, config: Config) -> Eigenpairs:
    """The pairs with the larger eigenvalues; where they are level, with the smaller residual."""
    k = config.n_components
    gain = float(pairs.values[:k].sum() - best.values[:k].sum())
    if abs(gain) > best.tolerated_residual(config):
        return pairs if gain > 0 else best
    return pairs if pairs.largest_residual(k) <= best.largest_residual(k) else best


def _estimate_columns(state: State, config: Config) -> PublishedColumns:
    """The plain view: normalisation by the factor, residual from sampled rows, no claim."""
    graph, k = state.kernel_matrix, config.n_components
    normal = frame_reference.estimate_normalisation(state, config)
    values, psi = frame_reference.view(state, normal, config.n_pairs)
    vectors = psi * normal.constant[:, None]
    # Half of the rows uniform, half where S has its weight: the residual sits on a few rows.
    diagonal = normal.scaling**2
    shares = 0.5 / graph.n + 0.5 * diagonal / diagonal.sum()
    draws = np.random.default_rng((config.seed, state.position, graph.n)).random(SAMPLED_ROWS)
    sample = np.searchsorted(np.cumsum(shares), draws).clip(max=graph.n - 1)
    scaled = (normal.scaling[:, None] * vectors).astype(graph.buffer.dtype)
    images = normal.scaling[sample, None] * (graph.rows(sample) @ scaled)
    unit = 1.0
    if state.is_centred:
        images -= np.outer(normal.constant[sample], gram.compute_mean_row(state) @ scaled)
        unit = gram.choose_unit(values)
        images, values = images / unit, values / unit
    norms = certificate.estimate_residuals(images, vectors[sample], shares[sample], values)
    following = float(values[k]) if len(values) > k else 0.0
    outside = Outside(following, 1.0, np.zeros(0))
    pairs = Eigenpairs(values, vectors, vectors[:, :0], outside, normal, 0.0, "view", unit=unit)
    return _certify(state, config, pairs, np.diag(norms**2), "sampled rows")


def _certify(
    state: State,
    config: Config,
    pairs: Eigenpairs,
    products: Floats | None = None,
    method: str = "exact product",
) -> PublishedColumns:
    """Certify the first k pairs as they are, and turn the coordinates of all carried ones.

    ``products`` are of the residual columns, (c, c), by default the exact ones. Components beyond
    the operator's rank are zero columns with eigenvalue 0.
    """
    k, c, n = config.n_components, config.n_carried, len(state.support)
    # within the spectrum of a Markov operator, or of one in units of twice its norm
    clipped = np.clip(pairs.values, 0.0, 1.0)
    shift = pairs.values - clipped  # not 0 where that norm was not known: it is an error, too
    if products is None:
        errors = pairs.errors + pairs.vectors * shift
        products = errors.T @ errors
    else:
        products = products + np.diag(shift**2)
    m = min(c, len(pairs.values))
    psi, values, norms = np.zeros((n, c)), np.zeros(c), np.zeros(c)
    values[:m] = clipped[:m]
    psi[:, :m] = pairs.normal.eigenfunctions(pairs.vectors[:, :m])
    norms[:m] = np.sqrt(np.maximum(np.diag(products)[:m], 0.0))
    psi[:, values == 0.0] = 0.0
    norms[values == 0.0] = 0.0
    shown = min(k, m)
    block = np.linalg.eigvalsh(products[:shown, :shown]) if shown else np.zeros(1)
    certified = certificate.certify(
        values=values[:k],
        norms=norms[:k],
        block_norm=float(np.sqrt(max(block[-1], 0.0))),
        outside=pairs.outside,
        rounding=pairs.rounding,
        tolerance=config.tolerance,
        method=method,
        floor=pairs.floor,
    )
    masses, stationary = state.support.masses, pairs.normal.stationary
    if state.is_centred:
        certified = certificate.scale_certificate(certified, pairs.unit)
        values = values * pairs.unit
    if state.rebuilt is not None:
        certified = certificate.invert_certificate(certified, pairs.unit)
        mu = certificate.invert_values(values, pairs.unit)
        values = np.where(values > 0.0, mu, 0.0)  # columns of zeros
    columns = frame_reference.embed(psi, values, state, config)
    aligned = frame_reference.align(state, config, stationary, columns)
    loadings = np.zeros((0, k))
    if config.embedding.linear:
        unturned = _compute_loadings(state, config, pairs, psi, values)
        unturned = frame_reference.embed(unturned, values, state, config)
        loadings = (unturned * aligned.signs) @ aligned.rotation[:, :k]
    psi *= aligned.signs
    return PublishedColumns(
        coordinates=aligned.columns[:, :k],
        psi=psi,
        eigenvalues=values,
        rotation=aligned.rotation[:, :k],
        certificate=certificate.describe(certified, psi[:, :k], masses, stationary),
        normal=pairs.normal,
        fidelity=aligned.fidelity,
        price=aligned.price,
        correlations=aligned.correlations,
        refinement=pairs.refinement,
        n_connected=_count_components(state, config, pairs),
        loadings=loadings / state.scaling.scale[: len(loadings), None],
        negative_mass=pairs.negative_mass,
    )


def _compute_loadings(
    state: State, config: Config, pairs: Eigenpairs, psi: Floats, values: Floats
) -> Floats:
    """psi of a linear map is (x - mean) times these, shape (d, n_carried), in scaled units."""
    if pairs.loadings is None:  # of inner products
        points, masses = state.support.scaled, state.support.masses
        safe = np.where(values > 0.0, values, np.inf)
        loadings: Floats = (points - masses @ points / masses.sum()).T @ (
            masses[:, None] * psi / safe
        )
        return loadings
    loadings = np.zeros((len(pairs.loadings), len(values)))
    loadings[:, : pairs.loadings.shape[1]] = pairs.loadings[:, : len(values)]
    return loadings


def _count_components(state: State, config: Config, pairs: Eigenpairs) -> int:
    """Components of the graph: looked at only where a second eigenvalue 1 is not ruled out."""
    if state.sparse is not None:
        return state.sparse.parts.count + len(state.sparse.parts.isolated)
    if state.curved is not None:
        return int(state.curved.labels.max()) + 1
    if state.rebuilt is not None:
        return alignment_matrix.count_components(state)
    if state.is_centred:
        return 1
    margin = NEAR_ONE if config.tolerance is None else pairs.tolerated_residual(config)
    largest = float(pairs.values.max(initial=0.0))
    bound = 0.0 if config.tolerance is None else pairs.outside.bound
    if max(largest + margin, bound) + pairs.rounding < 1.0:
        return 1
    return int(components.label_components(state.kernel_matrix.weights).max()) + 1
