"""Input checks: which rows of a checked call become events, and why the others are rejected.

Ids are compared with those of the support and of pending events at that stream position, times with
the newest, and the lengths of distance rows with the objects that the engine then holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamembed.data.distance_rows import DistanceRows, RowLength
from streamembed.data.ids import RetainedIds
from streamembed.data.labels import UNKNOWN, Label, LabelIndex
from streamembed.data.times import find_late
from streamembed.engine.engine_state import EngineState
from streamembed.errors import BadRowError
from streamembed.methods.options import Config
from streamembed.numeric.arrays import Array, Floats, Ints


def find_rejected(
    state: EngineState,
    config: Config,
    keys: list[Any] | None,
    times: Floats | None,
    start: int,
    stop: int,
) -> tuple[dict[int, str], RetainedIds | None]:
    """Rows of a part of a chunk that cannot be events, with reasons; and the ids retained after."""
    faults, retained = {}, state.ids
    if keys is not None:
        repeated, retained = state.retained_ids(config).add(keys[start:stop], state.position)
        faults = {start + i: "duplicate id" for i in repeated}
    if times is not None:
        for i, why in find_late(times[start:stop], state.newest, config.max_skew):
            faults.setdefault(start + i, why)
    return dict(sorted(faults.items())), retained


def check_times(times: Floats, state: EngineState, config: Config, kept: Ints) -> None:
    """Refuse the call where the time of a row is none, or lies beyond what may be."""
    faults = tuple(
        (int(kept[i]), why) for i, why in find_late(times, state.newest, config.max_skew)
    )
    if faults:
        first = "; ".join(f"row {row}: {why}" for row, why in faults[:3])
        raise BadRowError(
            f"{len(faults)} of {len(times)} rows cannot be learned ({first}); nothing was learned: "
            "fix their times, or reject them with on_bad_row='skip'",
            faults,
        )


def index_classes(
    state: EngineState, config: Config, labels: Sequence[Label | None] | None, rows: Ints
) -> tuple[Ints | None, LabelIndex]:
    """Class indices of some rows, where metrics learn from them; labels known then."""
    if not config.metrics:
        return None, state.labels
    if labels is None:
        return np.full(len(rows), UNKNOWN, dtype=np.int64), state.labels
    return state.labels.classes([labels[row] for row in rows.tolist()])


def check_rows(rows: DistanceRows, state: EngineState, config: Config) -> None:
    """Refuse the call where a row cannot be used, whatever becomes of those before it."""
    faults = []
    for index in range(len(rows)):
        fault = rows.read(index, required_length(state, config, index))[1]
        if fault is not None:
            faults.append((index, fault))
    if faults:
        first = "; ".join(f"{rows.name(index)}: {fault}" for index, fault in faults[:3])
        raise BadRowError(
            f"{len(faults)} of {len(rows)} distance rows cannot be used ({first}); nothing was "
            "learned: fix them, or reject them with on_bad_row='skip'",
            tuple(faults),
        )


def required_length(state: EngineState, config: Config, ahead: int) -> RowLength:
    """What the row after the next ``ahead`` ones must contain."""
    position = state.position + ahead
    if config.memory == "window":
        length = min(position, config.size)
        return RowLength((length,), f"one to each of the last {length} objects")
    grows = config.memory == "all" or position >= config.chunks.next_cut(state.learned)
    if state.state is None or grows:
        return RowLength((position,), f"one to each of the {position} objects before it")
    n_support, waiting = len(state.state.support), state.pending + ahead
    description = (
        f"one to each of the {n_support} landmarks of support_ids, and to the {waiting} objects "
        "after them"
    )
    return RowLength((n_support + waiting, position), description)


def select_retained(state: EngineState, config: Config, row: Floats) -> Floats:
    """Of a row to all objects ever learned, the distances to landmarks and pending events."""
    if config.memory == "landmarks" and len(row) == state.position:
        return np.concatenate([row[state.support_positions], row[state.learned :]])
    return row


def ids_or_positions(state: EngineState, ids: Array | None, rows: Ints) -> Array:
    """The ids of some rows, or their stream positions where there are none."""
    return ids[rows] if ids is not None else state.position + np.arange(len(rows))
