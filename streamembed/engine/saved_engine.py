"""What is kept of an engine, and what it must hold before an engine is made of it.

The checksum of a file finds what was damaged. The codec checks that everything is there, of its
declared type and shape. This module checks what later code indexes by: parts that must exist, their
sizes, and ranges of indices. No number is computed again: an engine may have rounded it. While a
file is read, all of it runs within `streamembed.storage.archive.raise_damaged`, which makes any
error a `DamagedFileError`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamembed.engine.engine_state import EngineState
from streamembed.geometry.kernel_matrix import choose_capacity
from streamembed.geometry.support import choose_slots
from streamembed.layout.layout import Layout
from streamembed.methods.chunk import AcceptedEvents
from streamembed.methods.maps import MAPS
from streamembed.methods.options import POSITION, Config
from streamembed.methods.state import State
from streamembed.metrics import engine_metrics as metrics
from streamembed.numeric.arrays import Array
from streamembed.numeric.chunks import PendingParts
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
    must(type(state.map) is MAPS[config.method], "the map")
    if state.distances is not None:
        must(state.distances.capacity <= choose_capacity(n, config.slots or 0), "capacity")
    for what, holds in state.map.check(state, config).items():
        must(holds, what)
    if state.picture is not None:
        _check_picture(state, state.picture, config)
    if state.metrics is not None:
        course = metrics.init(config.metrics, 1, config.seed).course
        must(state.metrics.names == config.metrics, "names of the metrics")
        must(state.metrics.course.progress.keys() == course.progress.keys(), "learners")


def _check_picture(state: State, picture: Layout, config: Config) -> None:
    """Places in the plane, and lists where the method has none."""
    must(picture.laid_out <= len(picture), "laid_out")
    must((picture.lists is None) == (state.lists is not None), "lists of the picture")
    if picture.lists is not None:
        must(picture.lists.n_neighbors == config.n_neighbors, "lists of other lengths")


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
