"""From a state to published columns, certified as published. The state is not touched.

The levels of `streamembed.methods.refinement` are tried one by one; each is certified as it would
be published, and the first that meets the tolerance is. If none does, the best is. Only then are
coordinates turned onto the frame, which changes no eigenpair. Without a tolerance only the view is
taken, and its certificate claims nothing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamembed.methods import frame_reference
from streamembed.methods.eigenpairs import Eigenpairs, PublishedColumns
from streamembed.methods.options import Config
from streamembed.methods.state import State
from streamembed.numeric.arrays import Floats
from streamembed.spectral import certificate


def renew_bound(state: State, config: Config) -> State:
    """The state with a bound of now on unpublished eigenvalues; itself, where it is of now."""
    renewed = state.map.renew_bound(state, config)
    return state if renewed is state.map else replace(state, map=renewed)


def publish(state: State, config: Config) -> PublishedColumns:
    """The first level that meets the tolerance, or the best of all, certified."""
    best: Eigenpairs | None = None
    for pairs in state.map.iterate_eigenpairs(state, config):
        if config.tolerance is not None and pairs.meets_tolerance(config):
            columns = _certify_pairs(state, config, pairs)
            if columns.certificate.met:
                return columns
        best = pairs if best is None else _choose_better(best, pairs, config)
    assert best is not None
    return _certify_pairs(state, config, best)


def _choose_better(best: Eigenpairs, pairs: Eigenpairs, config: Config) -> Eigenpairs:
    """The pairs with the larger eigenvalues; where they are level, with the smaller residual.

    Of an eigenvalue counts what its residual leaves of it. Pairs are better than none.
    """
    if not (len(best.values) and len(pairs.values)):
        return best if len(best.values) else pairs
    k = config.n_components
    gain = _sum_sure(pairs, k) - _sum_sure(best, k)
    if abs(gain) > best.unit * best.tolerated_residual(config):
        return pairs if gain > 0 else best
    residuals = [each.unit * each.largest_residual(k) for each in (pairs, best)]
    return pairs if residuals[0] <= residuals[1] else best


def _sum_sure(pairs: Eigenpairs, k: int) -> float:
    norms = np.linalg.norm(pairs.errors[:, :k], axis=0)
    return pairs.unit * float(np.maximum(pairs.values[:k] - norms, 0.0).sum())


def _certify_pairs(state: State, config: Config, pairs: Eigenpairs) -> PublishedColumns:
    """Certify the first k pairs as they are, and turn the coordinates of all carried ones.

    Components beyond the operator's rank are zero columns with eigenvalue 0.
    """
    k, c, n = config.n_components, config.n_carried, len(state.support)
    # within the spectrum of a Markov operator, or of one in units of twice its norm
    clipped = np.clip(pairs.values, 0.0, 1.0)
    shift = pairs.values - clipped  # not 0 where that norm was not known: it is an error, too
    products = pairs.errors.T @ pairs.errors + np.diag(shift**2)
    m = min(c, len(pairs.values))
    psi, values, norms = np.zeros((c, n)).T, np.zeros(c), np.zeros(c)
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
        rounding=pairs.rounding + state.map.bound_rounding(state, config, pairs.unit),
        tolerance=config.tolerance,
        method=pairs.method,
        floor=pairs.floor,
    )
    masses, stationary = state.support.masses, pairs.normal.stationary
    certified, values = state.map.complete_certificate(certified, values, pairs, state, config)
    columns = frame_reference.embed(psi, values, state, config)
    aligned = frame_reference.align(state, config, stationary, columns)
    loadings = np.zeros((0, k))
    if config.row.is_linear:
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
        measure=aligned.measure,
        refinement=pairs.refinement,
        n_connected=state.map.count_components(state, config, pairs),
        loadings=loadings / state.scaling.scale[: len(loadings), None],
        paths=pairs.paths,
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
