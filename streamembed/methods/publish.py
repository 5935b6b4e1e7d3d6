"""From a state to the fields of a snapshot, certified as published. The state is not touched.

The levels of `streamembed.methods.refinement` are tried one by one, and the first whose certificate
meets the tolerance is published. If none does, the best is. Only then are coordinates turned onto
the frame, which changes no eigenpair. Without a tolerance only the view is taken, and its
certificate claims nothing.

Arrays by slot are put in order when they are first asked for: a snapshot costs what is read of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from streamembed.layout.layout import select_neighbors
from streamembed.methods import frame_reference, picture_updates
from streamembed.methods.eigenpairs import Eigenpairs, Paths
from streamembed.methods.isomap_map import extend_from_landmarks
from streamembed.methods.kernel_map import KernelMap
from streamembed.methods.options import Config
from streamembed.methods.snapshot_contents import Frame, PictureContents, PictureNeighbours
from streamembed.methods.state import FrameReference, State, WeightSummary
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.spectral import certificate
from streamembed.spectral.alignment import FrameMovement
from streamembed.spectral.certificate import Certificate
from streamembed.spectral.operator import Normalisation


def renew_eigenvalue_bound(state: State, config: Config) -> State:
    """The state with a bound of now on unpublished eigenvalues; itself, where it is of now."""
    renewed = state.map.renew_eigenvalue_bound(state, config)
    return state if renewed is state.map else replace(state, map=renewed)


def publish(state: State, config: Config) -> dict[str, Any]:
    """The fields of `SnapshotContents` by name, but those of features and metrics.

    Components beyond the operator's rank are zero columns with eigenvalue 0.
    """
    k, masses, order = config.n_components, state.support.masses, state.support.oldest_first
    pairs, certified = _choose_level(state, config)
    normal = pairs.normal
    values, psi = _clip_values(pairs, config.n_carried), np.zeros((config.n_carried, len(order))).T
    m = min(config.n_carried, len(pairs.values))
    psi[:, :m] = normal.eigenfunctions(pairs.vectors[:, :m])
    psi[:, values == 0.0] = 0.0
    certified, values = state.map.complete_certificate(certified, values, pairs, state, config)
    columns = frame_reference.embed(psi, values, state, config)
    aligned = frame_reference.align(state, config, normal.stationary, columns)
    rotation, loadings = aligned.rotation[:, :k], np.zeros((0, k))
    if config.method_row.is_linear:
        loadings = _compute_loadings(state, config, pairs, psi, values)
        loadings = (loadings * aligned.signs) @ rotation / state.scaling.scale[:, None]
    psi *= aligned.signs
    certified = certificate.add_map_figures(certified, psi[:, :k], masses, normal.stationary)
    coordinates, lengths = aligned.columns[:, :k], np.zeros((len(order), 0))
    weights = state.map.summarise_weights(state, config, pairs)
    degrees = weights.degrees
    if pairs.paths is not None:
        counting = state.map.zero_inactive_masses(masses)
        shown = frame_reference.embed(psi, values, state, config)
        coordinates = extend_from_landmarks(shown, values, counting, pairs.paths) @ rotation
        degrees, lengths = _sum_and_order_paths(pairs.paths, counting, order)
    tracked: Any = partial(coordinates.take, order, axis=0)
    if isinstance(state.map, KernelMap):
        tracked = partial(_compute_tracked, state, normal, order, config)
        if state.distances is not None:  # the next chunk writes over learned distances
            tracked = tracked()
    by_slot = {
        "ids": state.support.ids,
        "masses": masses,
        "coordinates": coordinates,
        "psi": psi[:, :k],
        "spare_psi": psi[:, k:],
        "stationary": normal.stationary,
        "density_weights": normal.density,
        "degrees": degrees,
        "points": state.support.points,
    }
    return {
        **_describe_state(state, config, weights, by_slot, order),
        "lengths": lengths,
        "tracked": tracked,
        "eigenvalues": values[:k].copy(),
        "spare_eigenvalues": values[k:].copy(),
        "rotation": rotation.copy(),
        "feature_loadings": loadings,
        "certificate": certified,
        "frame": partial(_build_frame, state.frame, state.position, aligned.measure),
        "refinement": pairs.refinement,
    }


def _choose_level(state: State, config: Config) -> tuple[Eigenpairs, Certificate]:
    """The first level that meets the tolerance, or the best of all; and its certificate."""
    best: tuple[Eigenpairs, Certificate] | None = None
    for pairs in state.map.refine_eigenpairs(state, config):
        certified = _certify(state, config, pairs)
        if best is None or certified.met or _is_better(pairs, best[0], config):
            best = pairs, certified
        if certified.met:
            break
    assert best is not None
    return best


def _is_better(pairs: Eigenpairs, best: Eigenpairs, config: Config) -> bool:
    """Whether the pairs have larger eigenvalues; where they are level, a smaller residual.

    Of an eigenvalue counts what its residual leaves of it. Pairs are better than none.
    """
    if not (len(best.values) and len(pairs.values)):
        return not len(best.values)
    k = config.n_components
    gain = _sum_certain_values(pairs, k) - _sum_certain_values(best, k)
    if abs(gain) > best.unit * best.tolerated_residual(config):
        return gain > 0
    residuals = [each.unit * each.largest_residual(k) for each in (pairs, best)]
    return residuals[0] <= residuals[1]


def _sum_certain_values(pairs: Eigenpairs, k: int) -> float:
    norms = np.linalg.norm(pairs.errors[:, :k], axis=0)
    return pairs.unit * float(np.maximum(pairs.values[:k] - norms, 0.0).sum())


def _clip_values(pairs: Eigenpairs, count: int) -> Floats:
    """The first eigenvalues, (count,), within the spectrum of a Markov operator; then zeros.

    Other operators are in units of twice their norm, or more.
    """
    values, m = np.zeros(count), min(count, len(pairs.values))
    values[:m] = np.clip(pairs.values[:m], 0.0, 1.0)
    return values


def _certify(state: State, config: Config, pairs: Eigenpairs) -> Certificate:
    """Certify the first k pairs as they are published."""
    k = config.n_components
    values, shown = _clip_values(pairs, k), min(k, len(pairs.values))
    # not 0 where the norm was not known: it is an error, too
    shift = pairs.values - np.clip(pairs.values, 0.0, 1.0)
    products = pairs.errors.T @ pairs.errors + np.diag(shift**2)
    norms = np.zeros(k)
    norms[:shown] = np.sqrt(np.maximum(np.diag(products)[:shown], 0.0))
    norms[values == 0.0] = 0.0
    block = np.linalg.eigvalsh(products[:shown, :shown]) if shown else np.zeros(1)
    return certificate.certify(
        values=values,
        norms=norms,
        block_norm=float(np.sqrt(max(block[-1], 0.0))),
        outside=pairs.outside,
        rounding=pairs.rounding + state.map.bound_operator_rounding(state, config, pairs.unit),
        tolerance=config.tolerance,
        method=pairs.method,
        floor=pairs.floor,
    )


def _compute_loadings(
    state: State, config: Config, pairs: Eigenpairs, psi: Floats, values: Floats
) -> Floats:
    """Coordinates of a linear map by eigenpairs are (x - mean) times these, (d, n_carried).

    In scaled units.
    """
    if pairs.loadings is None:  # of inner products
        points, masses = state.support.scaled, state.support.masses
        safe = np.where(values > 0.0, values, np.inf)
        loadings = (points - masses @ points / masses.sum()).T @ (masses[:, None] * psi / safe)
    else:
        loadings = np.zeros((len(pairs.loadings), len(values)))
        loadings[:, : pairs.loadings.shape[1]] = pairs.loadings[:, : len(values)]
    return frame_reference.embed(loadings, values, state, config)


def _describe_state(
    state: State, config: Config, weights: WeightSummary, by_slot: dict[str, Array], order: Ints
) -> dict[str, Any]:
    """The fields that follow from the state alone, and arrays by slot, which are to be ordered."""
    by_slot |= {"widths": weights.widths, "reaches": weights.reaches}
    return {
        # None of these is ever written to, so they can be shared until they are needed; `take` is
        # three times as fast as an index.
        **{name: partial(array.take, order, axis=0) for name, array in by_slot.items()},
        "center": state.scaling.center.copy(),
        "scale": state.scaling.scale.copy(),
        "method": config.method,
        "position": state.position,
        "kernel": weights.kernel,
        "n_connected": weights.n_connected,
        "bandwidth": state.scaling.bandwidth,
        "radius": config.radius or 0.0,
        "n_neighbors": config.n_neighbors,
        "width": weights.width,
        # where no two points differed, nothing is least
        "least_width": weights.least or float(weights.widths.min()),
        "typical_coverage": 0.0 if state.distances is None else state.typical_coverage(config),
        "alpha": config.resolved_alpha,
        "diffusion_time": config.resolved_diffusion_time,
        "degree": config.degree,
        "coef0": config.coef0,
        "gamma": partial(config.kernel_function.gamma_of, state.support.points.shape[1]),
        "reg": config.reg,
        "resolution": 0.0 if state.cover is None else state.resolution(config.size),
        "picture_contents": None if state.picture is None else _build_picture(state, order, config),
    }


def _build_frame(
    frame: FrameReference, position: int, measure: Callable[[], FrameMovement]
) -> Frame:
    moved, lost, since = measure(), frame.lost, frame.kept_since
    fidelity, correlations = moved.fidelity, tuple(moved.correlations.tolist())
    if frame.position == position and frame.fidelity is not None:
        # it has just been renewed, from these columns: what counts is the one before
        fidelity, correlations = frame.fidelity, frame.correlations
    else:
        turned = frame_reference.find_lost_axes(moved.correlations)
        lost = tuple(sorted({*lost, *turned}))
        since = tuple(position if j in turned else since[j] for j in range(len(since)))
    return Frame(frame.epoch, frame.since, lost, since, fidelity, moved.price, correlations)


def _compute_tracked(state: State, normal: Normalisation, order: Ints, config: Config) -> Floats:
    """lambda**t psi of all tracked pairs of a kernel map, (n, r)."""
    values, psi = state.map.estimate_eigenpairs(state, normal, len(order), config)
    return (psi * np.clip(values, 0.0, 1.0) ** config.resolved_diffusion_time)[order]


def _build_picture(state: State, order: Ints, config: Config) -> PictureContents:
    """What the picture is made of, oldest first."""
    assert state.picture is not None
    layout, lists = state.picture, picture_updates.select_lists(state)
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    near, d2 = select_neighbors(lists)
    # points can be compared later, should anybody ask
    duplicates = None if state.distances is None else picture_updates.label_duplicates(state)
    return PictureContents(
        coordinates=layout.places[order],
        moved=layout.moved[order],
        kept=None,
        balance=None,
        neighbours=PictureNeighbours(
            np.where(near >= 0, rank[near], -1)[order],
            d2[order],
        ),
        duplicates=None if duplicates is None else duplicates[order],
        gamma=layout.gamma,
        spread=config.spread,
        kept_then=layout.kept_then,
        n_neighbors=near.shape[1],
        age=layout.age,
        epoch=layout.epoch,
    )


def _sum_and_order_paths(paths: Paths, counting: Floats, order: Ints) -> tuple[Floats, Floats]:
    """Sums of rows of -G^2 / 2 by slot, weighted by mass, without what there is no path to; and G.

    Rows of G, and its columns too, come oldest first.
    """
    finite = np.where(np.isfinite(paths.lengths), paths.lengths, 0.0)
    sums: Floats = -0.5 * (finite**2 @ counting[paths.ends])
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    # rows, then columns: twice as fast as an index of both
    return sums, paths.lengths.take(order, axis=0).take(np.argsort(rank[paths.ends]), axis=1)
