"""The parts of a snapshot, made of an engine's state and its published columns.

Arrays by slot are put in order when they are first asked for: a snapshot costs what is read of it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from streamembed.data.features import Features
from streamembed.layout.layout import select_neighbors
from streamembed.methods import frame_reference, picture_updates
from streamembed.methods.eigenpairs import Paths, PublishedColumns
from streamembed.methods.isomap_map import extend_from_landmarks
from streamembed.methods.kernel_map import KernelMap
from streamembed.methods.options import Config
from streamembed.methods.snapshot_contents import Frame, PictureContents, PictureNeighbours
from streamembed.methods.state import FrameReference, State
from streamembed.metrics import engine_metrics as metrics
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.spectral.alignment import FrameMovement
from streamembed.spectral.operator import Normalisation


def collect_parts(
    state: State, columns: PublishedColumns, config: Config, features: Features
) -> dict[str, Any]:
    """The fields of `streamembed.methods.snapshot_contents.SnapshotContents` by name."""
    order, k = state.support.oldest_first, config.n_components
    kernel = state.map.describe_weights(state, config)
    learned = {} if state.metrics is None else metrics.publish(state.metrics, state.scaling.scale)
    masses = state.support.masses
    coordinates, lengths = columns.coordinates, np.zeros((len(order), 0))
    if columns.paths is None:
        degrees = state.map.compute_degrees(masses)
    else:
        counting = state.map.select_active(masses)
        shown = frame_reference.embed(columns.psi, columns.eigenvalues, state, config)
        extended = extend_from_landmarks(shown, columns.eigenvalues, counting, columns.paths)
        coordinates = extended @ columns.rotation
        degrees, lengths = _select_paths(columns.paths, counting, order)
    by_slot: dict[str, Array] = {
        "ids": state.support.ids,
        "masses": masses,
        "coordinates": coordinates,
        "psi": columns.psi[:, :k],
        "spare_psi": columns.psi[:, k:],
        "stationary": columns.normal.stationary,
        "density_weights": columns.normal.density,
        "degrees": degrees,
        "widths": kernel.widths,
        "reaches": kernel.reaches,
        "points": state.support.points,
    }
    parts: dict[str, Any] = {
        # None of these is ever written to, so they can be shared until they are needed; `take` is
        # three times as fast as an index.
        **{name: partial(array.take, order, axis=0) for name, array in by_slot.items()},
        "lengths": lengths,
        "eigenvalues": columns.eigenvalues[:k].copy(),
        "spare_eigenvalues": columns.eigenvalues[k:].copy(),
        "rotation": columns.rotation.copy(),
        "feature_loadings": columns.loadings,
        "center": state.scaling.center.copy(),
        "scale": state.scaling.scale.copy(),
        "method": config.method,
        "position": state.position,
        "feature_names": features.names,
        "ordered": features.ordered,
        "metric": features.metric,
        "kernel": kernel.name,
        "bandwidth": state.scaling.bandwidth,
        "radius": config.radius or 0.0,
        "n_neighbors": config.n_neighbors,
        "width": kernel.width,
        # where no two points differed, nothing is least
        "least_width": kernel.least or float(kernel.widths.min()),
        "typical_coverage": state.typical_coverage(config),
        "alpha": config.correction,
        "diffusion_time": config.time,
        "degree": config.degree,
        "coef0": config.coef0,
        "gamma": config.kernel_function.gamma_of(state.support.points.shape[1]),
        "reg": config.reg,
        "certificate": columns.certificate,
        "frame": partial(_build_frame, state.frame, state.position, columns.measure),
        "refinement": columns.refinement,
        "resolution": state.resolution(config.size),
        "n_connected": columns.n_connected,
        "metrics": {name: one.named(features.given_names) for name, one in learned.items()},
        "picture_contents": None if state.picture is None else _build_picture(state, order, config),
    }
    parts["tracked"] = parts["coordinates"]
    if isinstance(state.map, KernelMap):
        tracked = partial(_track_pairs, state, columns.normal, order, config)
        # learned distances are overwritten by the next chunk
        parts["tracked"] = tracked if state.distances is None else tracked()
    return parts


def _build_frame(
    frame: FrameReference, position: int, measure: Callable[[], FrameMovement]
) -> Frame:
    moved = measure()
    fidelity, correlations = moved.fidelity, tuple(moved.correlations.tolist())
    if frame.position == position and frame.fidelity is not None:
        # it has just been renewed, from these columns: what counts is the one before
        fidelity, correlations = frame.fidelity, frame.correlations
    kept = frame.epoch, frame.since, frame.lost, frame.kept_since
    return Frame(*kept, fidelity, moved.price, correlations)


def _track_pairs(state: State, normal: Normalisation, order: Ints, config: Config) -> Floats:
    values, psi = state.map.view(state, normal, len(order), config)
    tracked: Floats = (psi * np.clip(values, 0.0, 1.0) ** config.time)[order]
    return tracked


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


def _select_paths(paths: Paths, counting: Floats, order: Ints) -> tuple[Floats, Floats]:
    """Sums of rows of -G^2 / 2 by slot, weighted by mass, without what there is no path to; and G.

    Rows of G, and its columns too, come oldest first.
    """
    finite = np.where(np.isfinite(paths.lengths), paths.lengths, 0.0)
    sums: Floats = -0.5 * (finite**2 @ counting[paths.ends])
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    # rows, then columns: twice as fast as an index of both
    return sums, paths.lengths.take(order, axis=0).take(np.argsort(rank[paths.ends]), axis=1)
