"""What is kept of an engine, and what it must hold before an engine is made of it.

The checksum of a file finds what was damaged. The codec checks that everything is there, of its
declared type, shape and range. This module checks that the parts are those that the parameters ask
for, and of one size: later code indexes by them. No number is computed again. While a file is read,
all of it runs within `streamembed.storage.archive.unseal`, which makes any error a
`DamagedFileError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from streamembed.engine.engine_state import EngineState
from streamembed.geometry.lists import RadiusEdges
from streamembed.methods.chunk import AcceptedEvents
from streamembed.methods.maps import MAPS
from streamembed.methods.options import POSITION, Config
from streamembed.methods.state import State
from streamembed.numeric.arrays import Array
from streamembed.storage.archive import require


@dataclass(frozen=True, slots=True, eq=False)
class SavedEngine:
    """All that is kept of an engine."""

    config: Config
    progress: EngineState


def check(saved: SavedEngine) -> None:
    """Refuse a state whose parts do not fit together: ValueError."""
    config, progress, state = saved.config, saved.progress, saved.progress.state
    d, is_text = len(progress.feature_names), progress.ids_kind == "strings"
    has = {"times": config.clock != POSITION, "rows": d == 0, "classes": bool(config.metrics)}
    for part in progress.waiting.parts:
        _check_parts(part, has)
        _check_rows(part.points, part.ids, d, is_text)
        known = len(progress.labels.known)
        require(part.classes is None or part.classes.max(initial=-1) < known, "unknown classes")
        require(
            progress.position < config.chunks.next_cut(progress.learned),
            "more events wait than a chunk has",
        )
    require(progress.early is None or progress.early[0].shape[1] == d, "pairs of other features")
    births = np.zeros(0) if state is None else state.support.births
    require(np.isin(progress.labelled, births).all(), "labelled events: not in the support")
    if state is not None:
        _check_rows(state.support.points, state.support.ids, d, is_text)
        _check_state(state, d, config)


def _check_state(state: State, d: int, config: Config) -> None:
    births, n, position = state.support.births, len(state.support), state.position
    require(1 <= n <= (config.max_slots or n), f"the support has {n} points")
    require((births < position).all(), "births lie outside of the stream")
    if config.memory != "landmarks":
        require(n == min(position, config.window or position), f"{n} points of {position} events")
        positions = np.arange(position - n, position)
        slots = positions % (config.window or position)
        require((births[slots] == positions).all(), "births and slots differ")
    has = {
        "distances": d == 0,
        "cover": config.memory == "landmarks",
        "picture": config.picture,
        "time": config.clock != POSITION,
        "metrics": bool(config.metrics),
    }
    _check_parts(state, has)
    require(type(state.map) is MAPS[config.method], "the map")
    require(state.metrics is None or state.metrics.names == config.metrics, "names of the metrics")
    edges: RadiusEdges | None = getattr(state.map, "edges", None)
    if edges is not None:
        require(((edges.i >= 0) & (edges.i < edges.j) & (edges.j < n)).all(), "edges")
    for lists in (state.lists, None if state.picture is None else state.picture.lists):
        require(lists is None or lists.n_neighbors == config.n_neighbors, "lists of other lengths")


def _check_parts(owner: State | AcceptedEvents, expected: Mapping[str, bool]) -> None:
    """Which of the parts that may be None are there."""
    for name, exists in expected.items():
        require((getattr(owner, name) is not None) == exists, name)


def _check_rows(points: Array, ids: Array, d: int, is_text: bool) -> None:
    require(points.shape[1] == d, "points of other features")
    require(ids.dtype == (np.dtype(object) if is_text else np.dtype(np.int64)), "ids: wrong kind")
