"""Calls applied to the state of an engine: a pure function from state to state.

Accepted events wait until their chunk is whole, then become state with it;
`streamembed.numeric.chunks` says where chunks end. `apply` yields the state after every whole chunk
and at the end of the call. A refused call and a failed chunk yield nothing that they have changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from streamembed.data.batch import Rejected
from streamembed.data.distance_rows import DistanceRows
from streamembed.data.features import NO_FEATURES
from streamembed.data.ids import classify_ids, read_ids, select_ids
from streamembed.data.labels import UNKNOWN
from streamembed.engine.call import (
    Call,
    Command,
    Distances,
    Labelled,
    Labels,
    Learned,
    Pairs,
    Points,
    check_ids_known,
)
from streamembed.engine.engine_state import EngineState
from streamembed.errors import DuplicateIdError
from streamembed.methods import update
from streamembed.methods.chunk import AcceptedEvents
from streamembed.methods.options import Config
from streamembed.methods.state import State
from streamembed.metrics import engine_metrics as learners
from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.numeric.chunks import PendingParts
from streamembed.threads import one_blas_thread

# States of an engine, and what the call returns.
Steps = Generator[EngineState, None, Any]


def apply(before: EngineState, call: Call[Any], config: Config) -> Steps:
    """The states that a checked call leads to, one after another; returns its result.

    Each is to be kept before the next is computed. To write its chunks the call uses the rings of
    ``before``, unless it must be able to take chunks back.

    Raises
    ------
    DuplicateIdError, BadRowError
        As the method of the call, before anything is yielded or after ``before`` is yielded again.
    FeatureError, InputError
        The call is of an engine of other features, or of another kind.
    NotReadyError
        A command before the warm-up ends.
    """
    call._check(config)
    match call:
        case Points():
            return (yield from _learn_points(before, call, config))
        case Distances():
            return (yield from _learn_distances(before, call, config))
        case Pairs():
            yield _learn_pairs(before, call, config)
        case Labels():
            after, result = _label(before, call, config)
            yield after
            return result
        case Command():
            yield _execute(before, call, config)
    return None


def _learn_points(before: EngineState, call: Points, config: Config) -> Steps:
    n, kept, times = len(call.points), call.kept, call.times
    policy = call.on_bad_row or config.on_bad_row
    before.check_input(distances=False, features=call.features if n else None)
    kind = before.check_ids_kind(call.ids) if n else None
    if times is not None and policy == "raise":
        before.check_times(times, config, kept)
    keys: list[int | str] | None = None if call.ids is None else call.ids.tolist()
    state = before if keys is None else _choose_start_state(before, keys, kept, policy, config)
    unusable = [row.index for row in call.rejected]
    faults: dict[int, str] = {}  # rows that are not events, in order, and why
    offsets = np.full(n, state.log_offset) if call.log_offsets is None else call.log_offsets
    start = 0
    while start < n:
        stop = min(n, start + config.chunks.next_cut(state.learned) - state.position)
        found, ids = state.find_rejected(config, keys, times, start, stop)
        if times is not None and found and stop - start > 1:
            # whether a row is late or a duplicate depends on the rows before it: one at a time
            stop = max(min(found), start + 1)
            found, ids = state.find_rejected(config, keys, times, start, stop)
        if found and policy == "raise":  # times were looked at before
            yield before
            _raise_duplicate_id(keys, min(found), kept)
        faults |= found
        rows = np.array([row for row in range(start, stop) if row not in found], dtype=np.int64)
        if len(rows):
            # rejected rows count with the next accepted row, so that an interrupted call can be
            # resumed at its position
            n_rejected = len(faults) + bisect_left(unusable, kept[stop - 1])
            classes, labels = None, state.labels
            if config.metrics:
                classes, labels = state.index_classes(call.labels, rows)
            part = AcceptedEvents(
                call.points[rows],
                state.position + np.arange(len(rows)) if call.ids is None else call.ids[rows],
                classes=classes,
                times=None if times is None else times[rows],
            )
            state = replace(
                state,
                waiting=state.waiting.followed_by(part),
                features=state.features or call.features,
                ids_kind=state.ids_kind or kind,
                labels=labels,
                ids=ids,
                rejected=before.rejected + n_rejected,
                log_offset=int(offsets[stop - 1]),
            )
            if state.position == config.chunks.next_cut(state.learned):
                state = _learn_pending(state, config)
                yield state
        start = stop
    return (yield from _finish_call(state, before, call, kept, keys, faults, call.rejected))


def _learn_distances(before: EngineState, call: Distances, config: Config) -> Steps:
    n, policy = call.rows, call.on_bad_row or config.on_bad_row
    if n == 0:
        return Learned(0, ())
    rows = DistanceRows([*call.distances], read_ids(call.ids, n), call.is_square)
    before.check_input(distances=True)
    keys, every = call.ids, np.arange(n)
    present = [] if keys is None else [i for i, key in enumerate(keys) if key is not None]
    if keys is None or present:
        before.check_ids_kind(select_ids(rows.ids, np.array(present, dtype=np.int64)))
    if policy == "raise":
        before.check_rows(rows, config)
    faults: dict[int, str] = {}
    state = before if keys is None else _choose_start_state(before, keys, every, policy, config)
    offsets = np.full(n, state.log_offset) if call.log_offsets is None else call.log_offsets
    for index in range(n):
        row, fault = rows.read(index, state.required_length(config))
        ids = state.ids
        if fault is None and keys is not None:
            repeated, ids = state.retained_ids(config).add([keys[index]], state.position)
            fault = "duplicate id" if repeated else None
        if fault is not None:
            if policy == "raise":
                yield before
                _raise_duplicate_id(keys, index, every)
            rows.rejected_rows.append(index)
            faults[index] = fault
            continue
        own_id = select_ids(rows.ids, every[index : index + 1])
        names = state.position + every[:1] if own_id is None else own_id
        distances = state.select_retained_distances(config, row)
        part = AcceptedEvents(np.zeros((1, 0)), names, (distances,))
        state = replace(
            state,
            waiting=state.waiting.followed_by(part),
            features=NO_FEATURES,
            ids_kind=state.ids_kind or classify_ids(own_id),
            ids=ids,
            rejected=before.rejected + len(faults),
            log_offset=int(offsets[index]),
        )
        if state.position == config.chunks.next_cut(state.learned):
            state = _learn_pending(state, config)
            yield state
    return (yield from _finish_call(state, before, call, every, keys, faults))


def _finish_call(
    state: EngineState,
    before: EngineState,
    call: Points | Distances,
    rows: Ints,
    keys: Sequence[Any] | None,
    faults: Mapping[int, str],
    unusable: tuple[Rejected, ...] = (),
) -> Steps:
    """Count all rejected rows of a call; ``rows``, ``keys`` as for `_choose_start_state`."""
    others = [
        Rejected(int(rows[i]), None if keys is None else keys[i], why) for i, why in faults.items()
    ]
    rejected = tuple(sorted((*unusable, *others), key=lambda row: row.index))
    count = before.rejected + len(rejected)
    log_offset = state.log_offset
    if call.log_offsets is not None and len(rows):
        log_offset = int(call.log_offsets[-1])
    yield replace(state, rejected=count, log_offset=log_offset)
    return Learned(len(rows) - len(others), rejected)


def _choose_start_state(
    before: EngineState, keys: Any, rows: Ints, policy: str, config: Config
) -> EngineState:
    """The state that a call starts from, or a copy; under "raise", repeated ids are refused.

    The ids that a window will retain are known beforehand. Landmarks change while the call is
    learned: where an id may be a duplicate, the call starts from a copy, so that it can be taken
    back. ``rows`` are the indices of the ids in the input.
    """
    if policy != "raise":
        return before
    again = before.retained_ids(config).add(keys, before.position)[0]
    if again and config.memory != "landmarks":
        _raise_duplicate_id(keys, again[0], rows)
    return before.copy() if again else before


def _raise_duplicate_id(keys: Any, index: int, rows: Ints) -> NoReturn:
    """Raise an error that names the refused id; ``keys``, ``rows`` as for `_choose_start_state`."""
    key, row = None if keys is None else keys[index], int(rows[index])
    fault = f"id {key!r} (row {row}) is already in the support"
    if keys is not None and key in keys[:index]:
        earlier = index - 1 - keys[:index][::-1].index(key)
        fault = f"id {key!r} is repeated in this call (row {int(rows[earlier])} and row {row})"
    raise DuplicateIdError(f"{fault}: ids must be unique within the support; nothing was learned")


def _learn_pending(full: EngineState, config: Config, flush: bool = False) -> EngineState:
    """Learn the pending events."""
    chunk = AcceptedEvents.joined(full.waiting.parts)
    divisors = (full.features or NO_FEATURES).divisors
    if chunk.rows is not None:
        chunk = chunk.with_distances(0 if full.state is None else len(full.state.support))
    with one_blas_thread():
        if full.state is None:
            state = update.start(chunk, config, divisors)
        else:
            state = update.push(full.state, chunk, config, divisors)
        if full.early is not None:
            state = _with_pairs(state, *full.early, config)
        if flush:
            state = _with_flushed_metrics(state, config)
    after = replace(full, state=state, waiting=PendingParts(), early=None)
    if config.memory == "landmarks":  # of a chunk, only the new landmarks are retained
        after = replace(after, ids=None)
    if config.metrics:
        after = replace(after, labelled=full.select_labelled_positions(state, config))
    return after


# ------------------------------------------------------------------ other events of the stream


def _learn_pairs(now: EngineState, call: Pairs, config: Config) -> EngineState:
    """Learn given pairs, until the warm-up ends with its last chunk."""
    now.check_input(distances=False, features=call.features)
    now = replace(now, features=now.features or call.features)
    new = (call.left, call.right, call.similar)
    if now.state is not None:
        with one_blas_thread():
            return replace(now, state=_with_pairs(now.state, *new, config))
    early = now.early or tuple(part[:0] for part in new)
    left, right, similar = (np.concatenate(both) for both in zip(early, new, strict=True))
    return replace(now, early=(left, right, similar))


def _with_pairs(state: State, left: Floats, right: Floats, similar: Bools, config: Config) -> State:
    assert state.metrics is not None
    metrics = learners.learn_pairs(state.metrics, left, right, similar, config.seed)
    return replace(state, metrics=metrics)


def _label(now: EngineState, call: Labels, config: Config) -> tuple[EngineState, Labelled]:
    """Learn labels of retained events; of two events of one id, the later counts."""
    positions = dict(now.list_retained())
    labelled = set(now.list_labelled_positions().tolist())
    classes: dict[int, int] = {}  # by stream position
    check_ids_known(now, read_ids([key for key, _ in call.labels], call.rows))
    label_index, repeated, not_held = now.labels, 0, []
    for key, label in call.labels:
        position = positions.get(key)
        if label is None:
            continue
        if position is None:
            not_held.append(key)
        elif position in labelled or position in classes:
            repeated += 1
        else:
            codes, label_index = label_index.encode_labels([label])
            if codes[0] != UNKNOWN:  # else it is counted as unlearned
                classes[position] = int(codes[0])
    after = _learn_classes(replace(now, labels=label_index), classes, config)
    return after, Labelled(len(classes), repeated, tuple(not_held))


def _learn_classes(now: EngineState, classes: Mapping[int, int], config: Config) -> EngineState:
    """The state with classes of events, by stream position, in order of arrival.

    Metrics learn those of the support now, and those of pending events with their chunk.
    """
    late = {place: code for place, code in classes.items() if place >= now.learned}
    now = now.with_classes(late) if late else now
    early = [place for place in classes if place < now.learned]
    if not early or now.state is None or now.state.metrics is None:
        return now
    support, metrics = now.state.support, now.state.metrics
    slots = {birth: slot for slot, birth in enumerate(support.births.tolist())}
    points = support.points[[slots[place] for place in early]]
    codes = np.array([classes[place] for place in early], dtype=np.int64)
    with one_blas_thread():
        metrics = learners.learn_labels(metrics, points, codes, config.seed)
    labelled = np.union1d(now.labelled, early)
    return replace(now, state=replace(now.state, metrics=metrics), labelled=labelled)


def _execute(now: EngineState, call: Command, config: Config) -> EngineState:
    """The state after a command."""
    state = now.need_state(config, f"there is nothing to {call.name}")
    if call.name == "flush" and now.pending:
        return _learn_pending(now, config, flush=True)
    with one_blas_thread():
        if call.name == "rescale":
            following = update.rescale(state, config, (now.features or NO_FEATURES).divisors)
        else:
            change = {"flush": _with_flushed_metrics, "relayout": update.relayout}
            following = change[call.name](state, config)
    return now if following is state else replace(now, state=following)


def _with_flushed_metrics(state: State, config: Config) -> State:
    """The pending rows of the metrics are learned."""
    metrics = None if state.metrics is None else learners.flush(state.metrics, config.seed)
    return state if metrics is state.metrics else replace(state, metrics=metrics)
