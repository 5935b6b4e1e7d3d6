"""From a state to published columns, certified as published. The state is not touched.

The levels of `streamembed.methods.refinement` are tried one by one; each is turned towards the
frame and certified as it would be published, and the first that meets the tolerance is. If none
does, the best is. Without a tolerance only the view is taken, under an estimated normalisation, and
its certificate is a sample of rows: it claims nothing.
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
from streamembed.spectral import alignment, certificate
from streamembed.spectral.alignment import Residuals
from streamembed.spectral.certificate import Certificate, Outside
from streamembed.spectral.operator import Normalisation

SAMPLED_ROWS = 64
# A plain view is off by less than this: it counts components where its first eigenvalue, and
# its estimate of the rest, come this near to 1.
NEAR_ONE = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class PublishedColumns:
    """The published columns of a snapshot, by slot."""

    # (n, k): right eigenvectors of P, sum(pi psi^2) = 1; columns beyond the operator's rank are
    # zero.
    psi: Floats
    eigenvalues: Floats  # (k,): descending, of P
    certificate: Certificate
    normal: Normalisation
    # See `frame_reference.FrameAlignment`.
    displacement: float
    movement: float
    # ``view``, ``polish``, ``refresh``, ``batch`` or ``exact``: the refinement level.
    refinement: str
    n_connected: int  # components of the kernel's graph
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
        if counted:
            missed = neighbor_graph.count_missed(state, columns.eigenvalues, columns.psi, config)
        isolated = len(graph.parts.isolated)
        described = replace(columns.certificate, missed=missed, isolated=isolated)
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


def _certify(state: State, config: Config, pairs: Eigenpairs) -> PublishedColumns:
    """The pairs turned towards the frame as far as the tolerance allows, certified as they are."""
    psi, residuals = pairs.normal.eigenfunctions(pairs.vectors), pairs.residuals
    aligned = _align(state, config, psi, residuals, pairs, "exact product")
    if aligned.certificate.met or config.tolerance is None or not pairs.meets_tolerance(config):
        return aligned
    return _align(state, config, psi, residuals, pairs, "exact product", mix=False)


def _estimate_columns(state: State, config: Config) -> PublishedColumns:
    """The plain view: normalisation by the factor, residual from sampled rows, no claim.

    Where the frame was renewed with the last chunk, its columns are that view already.
    """
    graph, k = state.kernel_matrix, config.n_components
    normal = frame_reference.estimate_normalisation(state, config)
    if state.frame.position == state.position:
        psi, values = state.frame.columns, state.frame.eigenvalues
        vectors = psi * normal.constant[:, None]
    else:
        values, psi = frame_reference.view(state, normal, k + 1)
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
    residuals = Residuals(values, np.zeros((len(values),) * 2), np.diag(norms**2))
    return _align(state, config, psi, residuals, pairs, "sampled rows")


def _align(
    state: State,
    config: Config,
    psi: Floats,
    residuals: Residuals,
    pairs: Eigenpairs,
    method: str,
    mix: bool = True,
) -> PublishedColumns:
    """Turn the columns towards the frame (without ``mix`` only their signs), and certify them.

    Components beyond the operator's rank are zero columns with eigenvalue 0.
    """
    k = config.n_components
    n, c = psi.shape
    n_real = min(k, c)
    columns, eigenvalues, norms = np.zeros((n, k)), np.zeros(k), np.zeros(k)
    displacement = movement = block_norm = 0.0
    if n_real:
        aligned = frame_reference.align(state, config, pairs.normal, psi, residuals, mix)
        displacement, movement = aligned.displacement, aligned.movement
        rotation = aligned.rotation[:, :n_real]
        eigenvalues[:n_real], norms[:n_real], products = alignment.rotate_residuals(
            residuals, rotation
        )
        columns[:, :n_real] = psi @ rotation
        columns[:, eigenvalues == 0.0] = 0.0
        norms[eigenvalues == 0.0] = 0.0
        block_norm = float(np.sqrt(max(np.linalg.eigvalsh(products)[-1], 0.0)))
    certified = certificate.certify(
        values=eigenvalues,
        norms=norms,
        block_norm=block_norm,
        outside=pairs.outside,
        rounding=pairs.rounding,
        tolerance=config.tolerance,
        method=method,
        floor=pairs.floor,
    )
    masses, stationary = state.support.masses, pairs.normal.stationary
    if state.is_centred:
        certified = certificate.scale_certificate(certified, pairs.unit)
        eigenvalues = eigenvalues * pairs.unit
    if state.rebuilt is not None:
        certified = certificate.invert_certificate(certified, pairs.unit)
        mu = certificate.invert_values(eigenvalues, pairs.unit)
        eigenvalues = np.where(eigenvalues > 0.0, mu, 0.0)  # columns of zeros
    return PublishedColumns(
        psi=columns,
        eigenvalues=eigenvalues,
        certificate=certificate.describe(certified, columns, masses, stationary),
        normal=pairs.normal,
        displacement=displacement,
        movement=movement,
        refinement=pairs.refinement,
        n_connected=_count_components(state, config, residuals, pairs),
        negative_mass=pairs.negative_mass,
    )


def _count_components(state: State, config: Config, residuals: Residuals, pairs: Eigenpairs) -> int:
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
    largest = float(residuals.values.max(initial=0.0))
    bound = 0.0 if config.tolerance is None else pairs.outside.bound
    if max(largest + margin, bound) + pairs.rounding < 1.0:
        return 1
    return int(components.label_components(state.kernel_matrix.weights).max()) + 1
