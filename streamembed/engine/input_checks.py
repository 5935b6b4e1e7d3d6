"""Admission: which rows of a call become events, and what is said of those that do not.

Points come checked, distance rows are checked here, one by one. Ids are held against those that the
support and what waits have at that very place of the stream; the rest is for the intake.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamembed.data.batch import Batch, Rejected
from streamembed.data.distance_rows import Reach, RowCall
from streamembed.data.ids import HeldIds, kind_of, read_ids, typed_ids
from streamembed.data.labels import UNKNOWN, Label, Labels, list_labels
from streamembed.data.times import late
from streamembed.engine.buffer import Intake
from streamembed.engine.engine_state import NO_FEATURES, Progress
from streamembed.errors import BadRowError, InputError, shown
from streamembed.methods.chunk import Events
from streamembed.methods.options import POSITION, Config
from streamembed.numeric.arrays import Array, Floats, Ints

# Kernels of inner products, which distances do not tell.
OF_PRODUCTS = ("polynomial", "cosine")
__all__ = ["Labelled", "Learned", "admit_distances", "admit_labels", "admit_points"]


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
    intake: Intake,
    rows: Batch,
    policy: str,
    labels: Sequence[Label | None] | None = None,
    log_offset: int | None = None,
    times: Floats | None = None,
) -> Learned:
    """Take points that are checked already; ``policy`` is for ids that are held, and for times.

    ``labels`` and ``times`` are those of all rows of the call, also of those that were rejected;
    ``log_offset`` is how many rows of their log are taken with these, of one chunk at most.
    """
    before, config = intake.progress, intake.config
    before.must_learn(distances=False)
    n, kept = len(rows.points), rows.kept
    own = None if times is None else times[kept]
    if own is not None and policy == "raise":
        _check_times(own, before, config, kept)
    if n:
        before.check_kind(rows.ids)
    keys = None if rows.ids is None else rows.ids.tolist()
    features, kind = (rows.names, rows.ordered), kind_of(rows.ids)
    now = intake.start(keys, kept, policy, log_offset)
    unusable = [row.index for row in rows.rejected]
    aside: list[int] = []  # rows that are no events, in order
    reasons: list[str] = []  # and why
    start = 0
    while start < n:
        stop = min(n, start + now.next_cut(config) - now.position)
        refused, held = _sift(now, config, keys, own, start, stop)
        if own is not None and refused and stop - start > 1:
            # whether a row is late or its id is held hangs on the rows before it: one at a time
            stop = max(min(refused), start + 1)
            refused, held = _sift(now, config, keys, own, start, stop)
        if refused and policy == "raise":  # times were looked at before
            intake.refuse(before, keys, min(refused), kept)
        chosen: slice | Ints = slice(start, stop)
        count, last = stop - start, stop - 1
        if refused:
            aside += refused
            reasons += refused.values()
            chosen = np.delete(np.arange(start, stop), np.array([*refused]) - start)
            count, last = len(chosen), int(chosen.max(initial=start))
        if count:
            # rows set aside count with the next row that is accepted, so that a call which is
            # broken off can be taken up again at its position
            gone = bisect_left(aside, last if stop < n else n)
            gone += bisect_left(unusable, kept[last]) if stop < n else len(unusable)
            classes, known = _classes(now, config, kept[chosen], labels)
            ids = None if rows.ids is None else rows.ids[chosen].copy()
            # copies, for a view of what waits would hold on to all the rows of the call
            points = rows.points[chosen].copy()
            names = _ids_or_positions(now, ids, count)
            at = None if own is None else own[chosen].copy()
            part = Events(points, names, classes=classes, times=at)
            counted = before.rejected + gone
            now = intake.accept(now.followed_by(part, features, kind, counted, known, held))
        start = stop
    told = zip(aside, reasons, strict=True)
    late_or_held = [Rejected(int(kept[i]), keys and keys[i], why) for i, why in told]
    rejected = tuple(sorted((*rows.rejected, *late_or_held), key=lambda row: row.index))
    intake.end(now, before.rejected + len(rejected))
    return Learned(n - len(aside), rejected)


def _sift(
    now: Progress,
    config: Config,
    keys: list[Any] | None,
    times: Floats | None,
    start: int,
    stop: int,
) -> tuple[dict[int, str], HeldIds | None]:
    """Which rows of a part of one chunk cannot be events and why, in order; and ids held after."""
    refused, held = {}, now.ids
    if keys is not None:
        again, held = now.held_ids(config).sift(keys[start:stop], now.position)
        refused = {start + i: "duplicate id" for i in again}
    if times is not None:
        for i, why in late(times[start:stop], now.newest, config.max_skew):
            refused.setdefault(start + i, why)
    return dict(sorted(refused.items())), held


def _check_times(times: Floats, now: Progress, config: Config, kept: Ints) -> None:
    """Refuse the call where the time of a row is none, or lies beyond what may be."""
    faults = tuple((int(kept[i]), why) for i, why in late(times, now.newest, config.max_skew))
    if faults:
        first = "; ".join(f"row {row}: {why}" for row, why in faults[:3])
        raise BadRowError(
            f"{len(faults)} of {len(times)} rows cannot be learned ({first}); nothing was learned: "
            "fix their times, or reject them with on_bad_row='skip'",
            faults,
        )


def _classes(
    now: Progress, config: Config, kept: Ints, labels: Sequence[Label | None] | None
) -> tuple[Ints | None, Labels]:
    """Class indices of the rows that stay, where metrics learn from them; labels known then."""
    if not config.metrics:
        return None, now.labels
    if labels is None:
        return np.full(len(kept), UNKNOWN, dtype=np.int64), now.labels
    return now.labels.classes([labels[i] for i in kept.tolist()])


def admit_labels(intake: Intake, ids: Any, y: Any) -> Labelled:
    """Take labels of events that are held; of two events of one id, the later is meant."""
    now = intake.progress
    keys = _keys_of(now, ids)
    positions, has = dict(now.held()), set(now.labelled_now().tolist())
    classes: dict[int, int] = {}  # by stream position
    known, repeated, not_held = now.labels, 0, []
    for key, label in zip(keys, list_labels(y, len(keys)), strict=True):
        position = positions.get(key)
        if label is None:
            continue
        if position is None:
            not_held.append(key)
        elif position in has or position in classes:
            repeated += 1
        else:
            found, known = known.classes([label])
            if found[0] != UNKNOWN:  # else it is counted as unlearned
                classes[position] = int(found[0])
    intake.label(replace(now, labels=known), classes)
    return Labelled(len(classes), repeated, tuple(not_held))


def _keys_of(now: Progress, ids: Any) -> list[Hashable]:
    """Ids of the kind that events have; InputError for any other."""
    try:
        n = len(ids)
    except TypeError as error:
        raise InputError(
            f"ids is {shown(ids)}; it must be a list, an array or a series of ids: for one event "
            "pass [id]"
        ) from error
    found = read_ids([] if ids is None else ids, n)
    keys: list[Hashable] = [] if found is None else found.tolist()
    if None in keys:
        raise InputError(f"ids has None in row {keys.index(None)}; it must name an event")
    wanted = "strings" if now.ids_kind == "strings" else "numbers"
    if keys and now.ids_kind is not None and kind_of(found) != wanted:
        raise InputError(
            f"ids are {kind_of(found)} in this call, but events are known by {now.ids_kind}: use "
            f"{'stream positions' if now.ids_kind == 'positions' else 'the ids they came with'}"
        )
    return keys


def admit_distances(
    intake: Intake, rows: Any, ids: Any, policy: str, log_offset: int | None = None
) -> Learned:
    """Take distance rows, checking them; ``policy`` is "raise" or "skip".

    ``log_offset`` is as in `admit_points`.
    """
    config = intake.config
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
    if remedy := config.embedding.instead:
        raise InputError(
            f"method={config.method!r} needs coordinates, which distance rows do not tell: try "
            f"{remedy}"
        )
    call, before = RowCall(rows, ids), intake.progress
    n = len(call)
    if n == 0:
        intake.progress = before.at_row(log_offset)
        return Learned(0, ())
    before.must_learn(distances=True)
    keys = None if call.ids is None else call.ids.tolist()
    given = [] if keys is None else [i for i, key in enumerate(keys) if key is not None]
    if keys is None or given:
        before.check_kind(typed_ids(call.ids, np.array(given, dtype=np.int64)))
    if policy == "raise":
        _check_rows(call, before, config)
    rejected: list[Rejected] = []
    now = intake.start(keys, np.arange(n), policy, log_offset)
    for index in range(n):
        row, fault = call.read(index, _reach(now, config, 0))
        held = now.ids
        if fault is None and keys is not None:
            again, held = now.held_ids(config).sift([keys[index]], now.position)
            fault = "duplicate id" if again else None
        if fault is not None:
            if policy == "raise":
                intake.refuse(before, keys, index, np.arange(n))
            call.aside.append(index)
            rejected.append(Rejected(index, keys and keys[index], fault))
            continue
        one = typed_ids(call.ids, np.array([index], dtype=np.int64))
        held_row = _select_held(now, config, row)
        part = Events(np.zeros((1, 0)), _ids_or_positions(now, one, 1), (held_row,))
        counted, kind = before.rejected + len(rejected), kind_of(one)
        now = intake.accept(now.followed_by(part, NO_FEATURES, kind, counted, now.labels, held))
    intake.end(now, before.rejected + len(rejected))
    return Learned(n - len(rejected), tuple(rejected))


def _check_rows(call: RowCall, now: Progress, config: Config) -> None:
    """Refuse the call where a row cannot be used, whatever becomes of those before it."""
    faults = []
    for index in range(len(call)):
        fault = call.read(index, _reach(now, config, index))[1]
        if fault is not None:
            faults.append((index, fault))
    if faults:
        first = "; ".join(f"{call.name(index)}: {fault}" for index, fault in faults[:3])
        raise BadRowError(
            f"{len(faults)} of {len(call)} distance rows cannot be used ({first}); nothing was "
            "learned: fix them, or reject them with on_bad_row='skip'",
            tuple(faults),
        )


def _reach(now: Progress, config: Config, ahead: int) -> Reach:
    """What the row after the next ``ahead`` ones must contain."""
    position = now.position + ahead
    if config.memory == "window":
        length = min(position, config.size)
        return Reach((length,), f"one to each of the last {length} objects")
    grows = config.memory == "all" or position >= now.next_cut(config)
    if now.state is None or grows:
        return Reach((position,), f"one to each of the {position} objects before it")
    held, waiting = len(now.state.support), now.pending + ahead
    told = (
        f"one to each of the {held} landmarks of support_ids, and to the {waiting} objects after "
        "them"
    )
    return Reach((held + waiting, position), told)


def _select_held(now: Progress, config: Config, row: Floats) -> Floats:
    """Of a row to all objects ever learned, the distances to landmarks and pending events."""
    if config.memory == "landmarks" and len(row) == now.position:
        return np.concatenate([row[now.support_positions], row[now.learned :]])
    return row


def _ids_or_positions(now: Progress, ids: Array | None, count: int) -> Array:
    """The ids, or the stream positions where there are none."""
    if ids is not None:
        return ids
    return np.arange(now.position, now.position + count, dtype=np.int64)
