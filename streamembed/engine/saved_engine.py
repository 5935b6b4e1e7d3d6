"""What is kept of an engine, and what it must hold before an engine is made of it.

The checksum of a file finds what was damaged. The codec checks that everything is there, of its
declared type and shape. This module checks what later code indexes by: parts that must exist, their
sizes, and ranges of indices. No number is computed again: an engine may have rounded it. While a
file is read, all of it runs within `streamembed.storage.archive.raise_damaged`, which makes any
error a `DamagedFileError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from streamembed.engine.engine_state import EngineState
from streamembed.geometry.kernel_matrix import choose_capacity
from streamembed.geometry.lists import RadiusEdges
from streamembed.geometry.support import choose_slots
from streamembed.layout.layout import Layout
from streamembed.methods import isomap_map
from streamembed.methods.alignment_matrix import AlignmentMap
from streamembed.methods.chunk import AcceptedEvents
from streamembed.methods.gram import LARGEST_TRACKED, GramMap
from streamembed.methods.isomap_map import IsomapMap
from streamembed.methods.kernel_map import KernelMap
from streamembed.methods.maps import MAPS
from streamembed.methods.neighbor_graph import GraphMap, WalkMap
from streamembed.methods.options import POSITION, Config
from streamembed.methods.state import State
from streamembed.methods.trial_map import LARGEST_WHOLE, TrialMap
from streamembed.metrics import engine_metrics as metrics
from streamembed.numeric.arrays import Array
from streamembed.numeric.chunks import PendingParts
from streamembed.spectral.trial_space import PROBES
from streamembed.storage.archive import must


@dataclass(frozen=True, slots=True, eq=False)
class SavedEngine:
    """All that is kept of an engine."""

    config: Config
    progress: EngineState


def check(saved: SavedEngine) -> None:
    """Refuse a state whose parts do not fit together: ValueError."""
    config, progress = saved.config, saved.progress
    labels, state, d = progress.labels, progress.state, len(progress.feature_names)
    must(progress.ids_kind in (None, "positions", "numbers", "strings"), "ids_kind")
    is_text = progress.ids_kind == "strings"
    if state is not None:
        _check_state(state, d, is_text, config)
    n_support = 0 if state is None else len(state.support)
    _check_waiting(progress.waiting, d, is_text, n_support, config.window)
    for part in progress.waiting.parts:
        must((part.classes is not None) == bool(config.metrics), "classes of pending events")
        known = len(labels.known)
        must(part.classes is None or part.classes.max(initial=-1) < known, "unknown classes")
        must((part.times is not None) == (config.clock != POSITION), "times of pending events")
        must(progress.position < progress.next_cut(config), "more events wait than a chunk has")
    must(progress.early is None or progress.early[0].shape[1] == d, "pairs of other features")
    labelled = progress.labelled
    has_learners = state is not None and state.metrics is not None
    must(not len(labelled) or has_learners, "labelled events without metrics")
    if state is not None:
        must(np.isin(labelled, state.support.births).all(), "labelled events: not in the support")


def _check_state(state: State, d: int, is_text: bool, config: Config) -> None:
    support, births = state.support, state.support.births
    n, position = len(births), state.position
    must(support.points.shape[1] == d, f"the support has {support.points.shape[1]} features")
    _check_ids(support.ids, is_text)
    must(1 <= n <= (config.slots or n), f"the support has {n} points")
    must((births < position).all(), "births lie outside of the stream")
    if config.memory != "landmarks":
        must(n == min(position, config.window or position), f"{n} points of {position} events")
        slots = choose_slots(position - n, n, config.window)
        must((births[slots] == np.arange(position - n, position)).all(), "births and slots differ")
    has = {
        "distances": d == 0,
        "cover": config.memory == "landmarks",
        "picture": config.picture,
        "time": config.clock != POSITION,
        "metrics": bool(config.metrics),
    }
    for name, expected in has.items():
        must((getattr(state, name) is not None) == expected, name)
    must(type(state.map) is MAPS[config.family], "the map")
    if state.distances is not None:
        must(state.distances.capacity <= choose_capacity(n, config.slots or 0), "capacity")
    _check_map(state.map, state, config)
    if state.picture is not None:
        _check_picture(state, state.picture, config)
    if state.metrics is not None:
        course = metrics.init(config.metrics, 1, config.seed).course
        must(state.metrics.names == config.metrics, "names of the metrics")
        must(state.metrics.course.progress.keys() == course.progress.keys(), "learners")


@singledispatch
def _check_map(built: Any, state: State, config: Config) -> None:
    """Refuse a map that does not belong to the rest of the state."""
    raise NotImplementedError


def _check_products(built: TrialMap, n: int, whole: bool) -> None:
    """The matrix, or products of trial functions."""
    must((built.matrix is not None) == whole, "matrix")
    must((built.space is None) == whole, "space")
    if (space := built.space) is not None:
        must(space.functions.dtype == space.images.dtype, "precision")
        must(len(space.functions) == 1 + len(space.inner) + PROBES, "functions")
        must(space.cursor < n, "cursor")


@_check_map.register
def _(built: GramMap, state: State, config: Config) -> None:
    """Products."""
    is_huge = not built.largest <= LARGEST_TRACKED
    n = len(state.support)
    _check_products(built, n, is_huge or n <= LARGEST_WHOLE)
    must(built.space is None or built.space.is_centred, "space")


@_check_map.register
def _(built: KernelMap, state: State, config: Config) -> None:
    """Products, and widths."""
    n = len(state.support)
    _check_products(built, n, n <= LARGEST_WHOLE)
    must(built.space is None or not built.space.is_centred, "space")
    must((built.local_widths is not None) == (config.rule is not None), "widths")
    must((built.counts is not None) == (config.rule is not None), "counts of neighbours")


@_check_map.register
def _(built: WalkMap, state: State, config: Config) -> None:
    """Lists or edges of a graph."""
    must(built.weights == config.weights, "weights")
    _check_neighbours(state, built.edges, config)


@_check_map.register
def _(built: GraphMap, state: State, config: Config) -> None:
    """And its block."""
    must(built.weights == config.weights, "weights")
    _check_neighbours(state, built.edges, config)


@_check_map.register
def _(built: AlignmentMap, state: State, config: Config) -> None:
    """Weights of the lists."""
    _check_neighbours(state, None, config)
    must(built.weights.shape == (len(state.support), config.n_neighbors), "weights")


@_check_map.register
def _(built: IsomapMap, state: State, config: Config) -> None:
    """The graph of Isomap."""
    must(built.step == isomap_map.choose_step(len(state.support), config), "landmarks")
    _check_neighbours(state, built.edges, config)


def _check_picture(state: State, picture: Layout, config: Config) -> None:
    """Places in the plane, and lists where the method has none."""
    must(picture.laid_out <= len(picture), "laid_out")
    must((picture.lists is None) == (state.lists is not None), "lists of the picture")
    if picture.lists is not None:
        must(picture.lists.n_neighbors == config.n_neighbors, "lists of other lengths")


def _check_neighbours(state: State, edges: RadiusEdges | None, config: Config) -> None:
    """Lists, or edges where there is a radius."""
    n = len(state.support)
    must((edges is not None) == (config.radius is not None), "edges")
    must((state.lists is None) == (config.radius is not None), "lists")
    if edges is not None:
        ends = np.concatenate([edges.i, edges.j])
        must(((ends >= 0) & (ends < n)).all() and (edges.i < edges.j).all(), "edges")
    if state.lists is not None:
        must(state.lists.n_neighbors == config.n_neighbors, "lists of other lengths")


def _check_waiting(
    waiting: PendingParts[AcceptedEvents], d: int, is_text: bool, n_support: int, window: int | None
) -> None:
    """Where events wait, for a support of ``n_support`` items."""
    for part in waiting.parts:
        must(part.points.shape[1] == d, "pending points of other features")
        _check_ids(part.ids, is_text)
        must((part.rows is not None) == (d == 0), "pending rows")
        if part.rows is not None:
            must(len(part.rows) == len(part), "pending rows")
            for i, row in enumerate(part.rows):
                must(len(row) == min(n_support + i, window or n_support + i), "a pending row")


def _check_ids(ids: Array, is_text: bool) -> None:
    must(ids.dtype == (np.dtype(object) if is_text else np.dtype(np.int64)), "ids: wrong kind")
