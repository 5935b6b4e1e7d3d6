"""Input checks: which rows of a call become events, and why the others are rejected.

Points come checked, distance rows are checked here, one by one. Ids are compared with those of
the support and of pending events at that stream position; the event buffer does the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamembed.data.batch import Batch, Rejected
from streamembed.data.distance_rows import DistanceRows, RowLength
from streamembed.data.ids import RetainedIds, classify_ids, read_ids, select_ids
from streamembed.data.labels import UNKNOWN, Label, LabelIndex, list_labels
from streamembed.data.times import find_late
from streamembed.engine.buffer import EventBuffer
from streamembed.engine.engine_state import NO_FEATURES, EngineState
from streamembed.errors import BadRowError, InputError, quote
from streamembed.methods.chunk import AcceptedEvents
from streamembed.methods.options import POSITION, Config
from streamembed.numeric.arrays import Array, Floats, Ints

# Kernels of inner products, which distances do not tell.
OF_PRODUCTS = ("polynomial", "cosine")


@dataclass(frozen=True, slots=True)
class Learned:
    """What became of the rows of one `Engine.learn`.

    Attributes
    ----------
    accepted : int
        Rows that have become events of the stream.
    rejected : tuple of Rejected
        The others, as index in the call, id and reason (only with ``on_bad_row="skip"``).
    """

    accepted: int
    rejected: tuple[Rejected, ...]


@dataclass(frozen=True, slots=True)
class Labelled:
    """What became of the labels of one `Engine.label`; those that are null are in none of these.

    Attributes
    ----------
    taught : int
        Events that had no label, and have this one now.
    repeated : int
        Labels of events that had one already, which stays.
    not_held : tuple
        Ids of no event in the support or pending, in the order of the call: their events have left,
        were merged into a landmark, or never came.
    """

    taught: int
    repeated: int
    not_held: tuple[Hashable, ...]


def admit_points(
    buffer: EventBuffer,
    rows: Batch,
    policy: str,
    labels: Sequence[Label | None] | None = None,
    log_offset: int | None = None,
    times: Floats | None = None,
) -> Learned:
    """Take checked points; ``policy`` is for duplicate ids and for times.

    ``labels`` and ``times`` are those of all rows of the call, also of those that were rejected;
    ``log_offset`` is how many rows of their log are taken with these, of one chunk at most.
    """
    before, config = buffer.progress, buffer.config
    before.check_input_kind(distances=False)
    n, kept = len(rows.points), rows.kept
    row_times = None if times is None else times[kept]
    if row_times is not None and policy == "raise":
        _check_times(row_times, before, config, kept)
    if n:
        before.check_ids_kind(rows.ids)
    keys = None if rows.ids is None else rows.ids.tolist()
    features, kind = (rows.names, rows.ordered), classify_ids(rows.ids)
    state = buffer.start(keys, kept, policy, log_offset)
    unusable = [row.index for row in rows.rejected]
    rejected_indices: list[int] = []  # rows that are not events, in order
    reasons: list[str] = []  # and why
    start = 0
    while start < n:
        stop = min(n, start + state.next_cut(config) - state.position)
        faults, retained = _find_rejected(state, config, keys, row_times, start, stop)
        if row_times is not None and faults and stop - start > 1:
            # whether a row is late or a duplicate depends on the rows before it: one at a time
            stop = max(min(faults), start + 1)
            faults, retained = _find_rejected(state, config, keys, row_times, start, stop)
        if faults and policy == "raise":  # times were looked at before
            buffer.refuse(before, keys, min(faults), kept)
        chosen: slice | Ints = slice(start, stop)
        count, last = stop - start, stop - 1
        if faults:
            rejected_indices += faults
            reasons += faults.values()
            chosen = np.delete(np.arange(start, stop), np.array([*faults]) - start)
            count, last = len(chosen), int(chosen.max(initial=start))
        if count:
            # rejected rows count with the next accepted row, so that an interrupted call can be
            # resumed at its position
            n_rejected = bisect_left(rejected_indices, last if stop < n else n)
            n_rejected += bisect_left(unusable, kept[last]) if stop < n else len(unusable)
            classes, label_index = _index_classes(state, config, kept[chosen], labels)
            ids = None if rows.ids is None else rows.ids[chosen].copy()
            # copies: a view of pending rows would keep all rows of the call in memory
            points = rows.points[chosen].copy()
            names = _ids_or_positions(state, ids, count)
            part_times = None if row_times is None else row_times[chosen].copy()
            part = AcceptedEvents(points, names, classes=classes, times=part_times)
            counted = before.rejected + n_rejected
            state = buffer.accept(
                state.with_events(part, features, kind, counted, label_index, retained)
            )
        start = stop
    pairs = zip(rejected_indices, reasons, strict=True)
    late_or_duplicate = [Rejected(int(kept[i]), keys and keys[i], why) for i, why in pairs]
    rejected = tuple(sorted((*rows.rejected, *late_or_duplicate), key=lambda row: row.index))
    buffer.end(state, before.rejected + len(rejected))
    return Learned(n - len(rejected_indices), rejected)


def _find_rejected(
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


def _check_times(times: Floats, state: EngineState, config: Config, kept: Ints) -> None:
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


def _index_classes(
    state: EngineState, config: Config, kept: Ints, labels: Sequence[Label | None] | None
) -> tuple[Ints | None, LabelIndex]:
    """Class indices of the rows that stay, where metrics learn from them; labels known then."""
    if not config.metrics:
        return None, state.labels
    if labels is None:
        return np.full(len(kept), UNKNOWN, dtype=np.int64), state.labels
    return state.labels.classes([labels[i] for i in kept.tolist()])


def admit_labels(buffer: EventBuffer, ids: Any, y: Any) -> Labelled:
    """Take labels of retained events; of two events of one id, the later counts."""
    state = buffer.progress
    keys = _read_keys(state, ids)
    positions, labelled = dict(state.list_retained()), set(state.list_labelled_positions().tolist())
    classes: dict[int, int] = {}  # by stream position
    label_index, repeated, not_held = state.labels, 0, []
    for key, label in zip(keys, list_labels(y, len(keys)), strict=True):
        position = positions.get(key)
        if label is None:
            continue
        if position is None:
            not_held.append(key)
        elif position in labelled or position in classes:
            repeated += 1
        else:
            codes, label_index = label_index.classes([label])
            if codes[0] != UNKNOWN:  # else it is counted as unlearned
                classes[position] = int(codes[0])
    buffer.label(replace(state, labels=label_index), classes)
    return Labelled(len(classes), repeated, tuple(not_held))


def _read_keys(state: EngineState, ids: Any) -> list[Hashable]:
    """Ids of the kind that events have; InputError for any other."""
    try:
        n = len(ids)
    except TypeError as error:
        raise InputError(
            f"ids is {quote(ids)}; it must be a list, an array or a series of ids: for one event "
            "pass [id]"
        ) from error
    read = read_ids([] if ids is None else ids, n)
    keys: list[Hashable] = [] if read is None else read.tolist()
    if None in keys:
        raise InputError(f"ids has None in row {keys.index(None)}; it must name an event")
    wanted = "strings" if state.ids_kind == "strings" else "numbers"
    if keys and state.ids_kind is not None and classify_ids(read) != wanted:
        raise InputError(
            f"ids are {classify_ids(read)} in this call, but events are known by {state.ids_kind}: "
            "use "
            f"{'stream positions' if state.ids_kind == 'positions' else 'the ids they came with'}"
        )
    return keys


def admit_distances(
    buffer: EventBuffer, rows: Any, ids: Any, policy: str, log_offset: int | None = None
) -> Learned:
    """Take distance rows, checking them; ``policy`` is "raise" or "skip".

    ``log_offset`` is as in `admit_points`.
    """
    config = buffer.config
    if config.clock != POSITION:
        raise InputError(
            f"clock={config.clock!r} needs points with times, but distance rows were given: create "
            "the engine with clock='position'"
        )
    if config.metrics:
        raise InputError(
            f"metrics={config.metrics!r} learn from points, but distance rows were given: create "
            "the engine without metrics"
        )
    if config.kernel in OF_PRODUCTS:
        raise InputError(
            f"kernel={config.kernel!r} is of points, but distance rows were given: try "
            "kernel='gaussian'"
        )
    if remedy := config.embedding.alternative:
        raise InputError(
            f"method={config.method!r} needs coordinates, which distance rows do not tell: try "
            f"{remedy}"
        )
    call, before = DistanceRows(rows, ids), buffer.progress
    n = len(call)
    if n == 0:
        buffer.progress = before.with_log_offset(log_offset)
        return Learned(0, ())
    before.check_input_kind(distances=True)
    keys = None if call.ids is None else call.ids.tolist()
    present = [] if keys is None else [i for i, key in enumerate(keys) if key is not None]
    if keys is None or present:
        before.check_ids_kind(select_ids(call.ids, np.array(present, dtype=np.int64)))
    if policy == "raise":
        _check_rows(call, before, config)
    rejected: list[Rejected] = []
    state = buffer.start(keys, np.arange(n), policy, log_offset)
    for index in range(n):
        row, fault = call.read(index, _required_length(state, config, 0))
        retained = state.ids
        if fault is None and keys is not None:
            repeated, retained = state.retained_ids(config).add([keys[index]], state.position)
            fault = "duplicate id" if repeated else None
        if fault is not None:
            if policy == "raise":
                buffer.refuse(before, keys, index, np.arange(n))
            call.rejected_rows.append(index)
            rejected.append(Rejected(index, keys and keys[index], fault))
            continue
        own_id = select_ids(call.ids, np.array([index], dtype=np.int64))
        distances = _select_retained(state, config, row)
        part = AcceptedEvents(np.zeros((1, 0)), _ids_or_positions(state, own_id, 1), (distances,))
        counted, kind = before.rejected + len(rejected), classify_ids(own_id)
        state = buffer.accept(
            state.with_events(part, NO_FEATURES, kind, counted, state.labels, retained)
        )
    buffer.end(state, before.rejected + len(rejected))
    return Learned(n - len(rejected), tuple(rejected))


def _check_rows(call: DistanceRows, state: EngineState, config: Config) -> None:
    """Refuse the call where a row cannot be used, whatever becomes of those before it."""
    faults = []
    for index in range(len(call)):
        fault = call.read(index, _required_length(state, config, index))[1]
        if fault is not None:
            faults.append((index, fault))
    if faults:
        first = "; ".join(f"{call.name(index)}: {fault}" for index, fault in faults[:3])
        raise BadRowError(
            f"{len(faults)} of {len(call)} distance rows cannot be used ({first}); nothing was "
            "learned: fix them, or reject them with on_bad_row='skip'",
            tuple(faults),
        )


def _required_length(state: EngineState, config: Config, ahead: int) -> RowLength:
    """What the row after the next ``ahead`` ones must contain."""
    position = state.position + ahead
    if config.memory == "window":
        length = min(position, config.size)
        return RowLength((length,), f"one to each of the last {length} objects")
    grows = config.memory == "all" or position >= state.next_cut(config)
    if state.state is None or grows:
        return RowLength((position,), f"one to each of the {position} objects before it")
    n_support, waiting = len(state.state.support), state.pending + ahead
    description = (
        f"one to each of the {n_support} landmarks of support_ids, and to the {waiting} objects "
        "after them"
    )
    return RowLength((n_support + waiting, position), description)


def _select_retained(state: EngineState, config: Config, row: Floats) -> Floats:
    """Of a row to all objects ever learned, the distances to landmarks and pending events."""
    if config.memory == "landmarks" and len(row) == state.position:
        return np.concatenate([row[state.support_positions], row[state.learned :]])
    return row


def _ids_or_positions(state: EngineState, ids: Array | None, count: int) -> Array:
    """The ids, or the stream positions where there are none."""
    if ids is not None:
        return ids
    return np.arange(state.position, state.position + count, dtype=np.int64)
