"""From a state to published columns, certified as published. The state is not touched.

The rungs of `ladder` are tried one by one; each is turned towards the frame and
certified as it would be handed out, and the first that meets the tolerance is. If none does, the
best is. Without a tolerance only the view is taken, under an estimated normalisation, and its
certificate is a sample of rows: it claims nothing.
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
from streamembed.methods.eigenpairs import Pairs
from streamembed.methods.geodesic_gram import Paths
from streamembed.methods.gram import Known
from streamembed.methods.options import Config
from streamembed.methods.state import State
from streamembed.numeric.arrays import Floats
from streamembed.spectral import alignment, certificate
from streamembed.spectral.alignment import Residuals
from streamembed.spectral.certificate import Certificate, Outside
from streamembed.spectral.operator import Normalisation

__all__ = ["Columns", "publish"]

SAMPLED_ROWS = 64
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
        See `frames.Turned`.
    rung : str
        ``view``, ``polish``, ``refresh``, ``batch`` or ``exact``: how far up the ladder it went.
    n_connected : int
        Components of the kernel's graph.
    paths : Paths or None
        Of Isomap: the shortest paths that were used.
    negative_mass : float or None
        See `Certificate`, where all eigenvalues are known.
    """

    psi: Floats
    eigenvalues: Floats
    certificate: Certificate
    normal: Normalisation
    displacement: float
    movement: float
    rung: str
    n_connected: int
    paths: Paths | None = None
    negative_mass: float | None = None


def publish(state: State, config: Config, counted: bool = False) -> Columns:
    """The columns of a snapshot of ``state``: certified where a tolerance was asked for.

    With ``counted`` the eigenvalues of a graph are counted, too; see `Certificate.missed`.
    """
    if state.curved is not None:
        reading = geodesic_gram.read(state, config)
        columns = _best(geodesic_gram.climb(reading, state, config), state, config)
        described, paths = geodesic_gram.describe(columns.certificate, reading, state)
        described = _with_negative_mass(described, columns, reading.at, config)
        return replace(columns, certificate=described, paths=paths)
    if state.sparse is not None:
        columns = _best(neighbor_graph.climb(state, config), state, config)
        room = state.sparse
        missed = room.missed if room.counted == state.position else None
        if counted:
            missed = neighbor_graph.count_missed(state, columns.eigenvalues, columns.psi, config)
        isolated = len(room.parts.isolated)
        described = replace(columns.certificate, missed=missed, isolated=isolated)
        return replace(columns, certificate=described)
    if state.rebuilt is not None:
        return _best(alignment_matrix.climb(state, config), state, config)
    if not state.is_centred:
        if config.tolerance is None:
            return _estimate(state, config)
        return _best(refinement.climb(state, config), state, config)
    at = gram.known_of(state)
    if config.tolerance is None and gram.is_tracked(at):
        columns = _estimate(state, config)
    else:
        columns = _best(gram.climb(at, config), state, config)
    if state.distances is None:  # a kernel of points
        return columns
    described = _with_negative_mass(columns.certificate, columns, at, config)
    return replace(columns, certificate=described)


def _with_negative_mass(
    described: Certificate, columns: Columns, at: Known, config: Config
) -> Certificate:
    mass = columns.negative_mass
    if mass is None:
        mass = gram.negative_mass(at, config.seed)
    return replace(described, negative_mass=mass)


def _best(rungs: Iterator[Pairs], state: State, config: Config) -> Columns:
    """The first rung that meets the tolerance, or the best of all, certified."""
    best: Pairs | None = None
    for pairs in rungs:
        if config.tolerance is not None and pairs.fits(config):
            columns = _certify(state, config, pairs)
            if columns.certificate.met:
                return columns
        best = pairs if best is None else _choose(best, pairs, config)
    assert best is not None
    return _certify(state, config, best)


def _choose(best: Pairs, pairs: Pairs, config: Config) -> Pairs:
    """The pairs with the larger eigenvalues; where they are level, with the smaller residual."""
    k = config.n_components
    gain = float(pairs.values[:k].sum() - best.values[:k].sum())
    if abs(gain) > best.room(config):
        return pairs if gain > 0 else best
    return pairs if pairs.worst(k) <= best.worst(k) else best


def _certify(state: State, config: Config, pairs: Pairs) -> Columns:
    """The pairs turned towards the frame as far as the tolerance allows, certified as they are."""
    psi, residuals = pairs.normal.eigenfunctions(pairs.vectors), pairs.residuals
    turned = _turn(state, config, psi, residuals, pairs, "exact product")
    if turned.certificate.met or config.tolerance is None or not pairs.fits(config):
        return turned
    return _turn(state, config, psi, residuals, pairs, "exact product", hold=False)


def _estimate(state: State, config: Config) -> Columns:
    """The plain view: normalisation by the factor, residual from sampled rows, no claim.

    Where the frame was renewed with the last chunk, its columns are that view already.
    """
    graph, k = state.graph, config.n_components
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
    chosen = np.searchsorted(np.cumsum(shares), draws).clip(max=graph.n - 1)
    scaled = (normal.scaling[:, None] * vectors).astype(graph.buffer.dtype)
    images = normal.scaling[chosen, None] * (graph.rows(chosen) @ scaled)
    unit = 1.0
    if state.is_centred:
        images -= np.outer(normal.constant[chosen], gram.row_of_means(state) @ scaled)
        unit = gram.unit_of(values)
        images, values = images / unit, values / unit
    norms = certificate.sampled_residual(images, vectors[chosen], shares[chosen], values)
    known = float(values[k]) if len(values) > k else 0.0
    outside = Outside(known, 1.0, np.zeros(0))
    pairs = Pairs(values, vectors, vectors[:, :0], outside, normal, 0.0, "view", unit)
    residuals = Residuals(values, np.zeros((len(values),) * 2), np.diag(norms**2))
    return _turn(state, config, psi, residuals, pairs, "sampled rows")


def _turn(
    state: State,
    config: Config,
    psi: Floats,
    residuals: Residuals,
    pairs: Pairs,
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
    if have:
        turn = frame_reference.turn(state, config, pairs.normal, psi, residuals, hold)
        displacement, movement = turn.displacement, turn.movement
        rotation = turn.rotation[:, :have]
        eigenvalues[:have], norms[:have], products = alignment.turned_residuals(residuals, rotation)
        columns[:, :have] = psi @ rotation
        columns[:, eigenvalues == 0.0] = 0.0
        norms[eigenvalues == 0.0] = 0.0
        block_norm = float(np.sqrt(max(np.linalg.eigvalsh(products)[-1], 0.0)))
    certified = certificate.certify(
        eigenvalues,
        norms,
        block_norm,
        pairs.outside,
        pairs.rounding,
        config.tolerance,
        method,
        pairs.floor,
    )
    masses, stationary = state.support.masses, pairs.normal.stationary
    if state.is_centred:
        certified = certificate.in_units_of(certified, pairs.unit)
        eigenvalues = eigenvalues * pairs.unit
    if state.rebuilt is not None:
        certified = certificate.of_inverses(certified, pairs.unit)
        mu = certificate.inverse(eigenvalues, pairs.unit)
        eigenvalues = np.where(eigenvalues > 0.0, mu, 0.0)  # columns of zeros
    return Columns(
        columns,
        eigenvalues,
        certificate.describe(certified, columns, masses, stationary),
        pairs.normal,
        displacement,
        movement,
        pairs.rung,
        _count_components(state, config, residuals, pairs),
        negative_mass=pairs.negative_mass,
    )


def _count_components(state: State, config: Config, residuals: Residuals, pairs: Pairs) -> int:
    """Components of the graph: looked at only where a second eigenvalue 1 is not ruled out."""
    if state.sparse is not None:
        return state.sparse.parts.count + len(state.sparse.parts.isolated)
    if state.curved is not None:
        return int(state.curved.labels.max()) + 1
    if state.rebuilt is not None:
        return alignment_matrix.count_parts(state)
    if state.is_centred:
        return 1
    room = NEAR_ONE if config.tolerance is None else pairs.room(config)
    largest = float(residuals.values.max(initial=0.0))
    bound = 0.0 if config.tolerance is None else pairs.outside.bound
    if max(largest + room, bound) + pairs.rounding < 1.0:
        return 1
    return int(components.label(state.graph.weights).max()) + 1
