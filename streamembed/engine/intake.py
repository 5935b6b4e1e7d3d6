"""The intake: events are accepted, wait until their chunk is complete, and become state with it.

Chunks are cut at multiples of ``chunk_size`` of the stream position, whatever the calls. A call
that is refused, and a chunk that fails, change nothing; a call that is broken off at whatever line
has changed nothing, or as much as the whole chunks of it that it came to.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar

import numpy as np

from streamembed.data import batch
from streamembed.data.batch import Batch, Rejected
from streamembed.data.distances import Reach, RowCall
from streamembed.data.ids import kind_of
from streamembed.data.labels import UNKNOWN, Label
from streamembed.engine import metrics as learners
from streamembed.engine import update
from streamembed.engine.chunk import Events, Waiting
from streamembed.engine.config import Config
from streamembed.engine.progress import NO_FEATURES, Progress
from streamembed.engine.state import State
from streamembed.errors import BadRowError, ConcurrentUseError, DuplicateIdError, InputError
from streamembed.numeric.arrays import Array, Bools, Floats, Ints
from streamembed.threads import Turns, one_blas_thread

__all__ = ["Intake", "Learned"]

P = ParamSpec("P")
T = TypeVar("T")


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


class Intake:
    """Takes an engine from one `Progress` to the next, one at a time.

    Attributes
    ----------
    config : Config
    progress : Progress
        Replaced whole, by one assignment, with every chunk and at the end of a call.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.progress = Progress()
        self._learning = Turns()
        self._rings = Turns()

    @property
    def state(self) -> State | None:
        """The state after the last complete chunk; None during the warm-up."""
        return self.progress.state

    # ------------------------------------------------------------------ turns

    def alone(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do work that changes the engine; ConcurrentUseError if another thread does."""
        self._refuse_callers_back()
        return self._learning.now(work, *args, **kwargs)

    def between_chunks(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do work that reads the rings, after the chunk that another thread is learning."""
        self._refuse_callers_back()
        return self._rings.wait(work, *args, **kwargs)

    def _refuse_callers_back(self) -> None:
        if self._learning.taken_here() or self._rings.taken_here():
            raise ConcurrentUseError(
                "this engine is at work in this very thread, and was called back from a signal "
                "handler or a callback: nothing of this call was done; make it when the first call "
                "has returned"
            )

    # ------------------------------------------------------------------ points

    def admit(
        self, rows: Batch, policy: str, labels: Sequence[Label | None] | None = None
    ) -> Learned:
        """Take points that are checked already; ``policy`` is for ids that are held.

        ``labels`` are those of all rows of the call, also of those that were rejected.
        """
        before = self.progress
        before.must_learn(distances=False)
        n, kept = len(rows.points), rows.kept
        if n:
            before.check_kind(rows.ids)
        keys = None if rows.ids is None else rows.ids.tolist()
        now = self._start(keys, kept, policy)
        unusable = [row.index for row in rows.rejected]
        repeated: list[int] = []
        start = 0
        while start < n:
            stop = min(n, start + now.next_cut(self.config) - now.position)
            chosen: slice | Ints = slice(start, stop)
            count, last, held = stop - start, stop - 1, now.ids
            if keys is not None:
                again, held = now.held_ids(self.config).sift(keys[start:stop], now.position)
                if again and policy == "raise":
                    self.progress = before
                    index = start + again[0]
                    raise DuplicateIdError(_duplicate(keys, index, kept))
                if again:
                    repeated += [start + i for i in again]
                    chosen = np.delete(np.arange(start, stop), again)
                    count, last = len(chosen), int(chosen.max(initial=start))
            if count:
                # rows set aside count with the next row that is accepted, so that a call which is
                # broken off can be taken up again at its position
                gone = bisect_left(repeated, last if stop < n else n)
                gone += bisect_left(unusable, kept[last]) if stop < n else len(unusable)
                classes, known = self._classes(now, kept[chosen], labels)
                ids = None if rows.ids is None else rows.ids[chosen].copy()
                # copies, for a view of what waits would hold on to all the rows of the call
                points = rows.points[chosen].copy()
                part = Events(points, _named(now, ids, count), classes=classes)
                features, kind = (rows.names, rows.ordered), kind_of(rows.ids)
                counted = before.rejected + gone
                now = self._accept(now.followed_by(part, features, kind, counted, known, held))
            start = stop
        reasons = [Rejected(int(kept[i]), keys and keys[i], "duplicate id") for i in repeated]
        rejected = tuple(sorted((*rows.rejected, *reasons), key=lambda row: row.index))
        self._end(now, before.rejected + len(rejected))
        return Learned(n - len(repeated), rejected)

    def _classes(
        self, now: Progress, kept: Ints, labels: Sequence[Label | None] | None
    ) -> tuple[Ints | None, Any]:
        """Class indices of the rows that stay, where metrics learn from them; labels known then."""
        if not self.config.metrics:
            return None, now.labels
        if labels is None:
            return np.full(len(kept), UNKNOWN, dtype=np.int64), now.labels
        return now.labels.classes([labels[i] for i in kept.tolist()])

    # ------------------------------------------------------------------ distances

    def admit_distances(self, rows: Any, ids: Any, policy: str) -> Learned:
        """Take distance rows, checking them; ``policy`` is "raise" or "skip"."""
        if self.config.metrics:
            raise InputError(
                f"metrics={self.config.metrics!r} learn from points, and distance rows were given: "
                "start the engine without metrics"
            )
        call, before = RowCall(rows, ids), self.progress
        if len(call) == 0:
            return Learned(0, ())
        before.must_learn(distances=True)
        keys = None if call.ids is None else call.ids.tolist()
        given = [] if keys is None else [i for i, key in enumerate(keys) if key is not None]
        if keys is None or given:
            before.check_kind(batch.typed_ids(call.ids, np.array(given, dtype=np.int64)))
        if policy == "raise":
            self._check_rows(call)
        rejected: list[Rejected] = []
        now = self._start(keys, np.arange(len(call)), policy)
        for index in range(len(call)):
            row, fault = call.read(index, self._reach(now, 0))
            held = now.ids
            if fault is None and keys is not None:
                again, held = now.held_ids(self.config).sift([keys[index]], now.position)
                fault = "duplicate id" if again else None
            if fault is not None:
                if policy == "raise":
                    self.progress = before
                    raise DuplicateIdError(_duplicate(keys, index, np.arange(len(call))))
                call.aside.append(index)
                rejected.append(Rejected(index, keys and keys[index], fault))
                continue
            one = batch.typed_ids(call.ids, np.array([index], dtype=np.int64))
            part = Events(np.zeros((1, 0)), _named(now, one, 1), (self._held_part(now, row),))
            counted = before.rejected + len(rejected)
            now = self._accept(
                now.followed_by(part, NO_FEATURES, kind_of(one), counted, now.labels, held)
            )
        self._end(now, before.rejected + len(rejected))
        return Learned(len(call) - len(rejected), tuple(rejected))

    def _check_rows(self, call: RowCall) -> None:
        """Refuse the call where a row cannot be used, whatever becomes of those before it."""
        faults = []
        for index in range(len(call)):
            fault = call.read(index, self._reach(self.progress, index))[1]
            if fault is not None:
                faults.append((index, fault))
        if faults:
            first = "; ".join(f"{call.name(index)}: {fault}" for index, fault in faults[:3])
            raise BadRowError(
                f"{len(faults)} of {len(call)} distance rows cannot be used ({first}); nothing was "
                "learned: mend them, or set them aside with on_bad_row='skip'",
                tuple(faults),
            )

    def _reach(self, now: Progress, ahead: int) -> Reach:
        """What the row after the next ``ahead`` ones must hold."""
        position = now.position + ahead
        if self.config.memory == "window":
            length = min(position, self.config.size)
            return Reach((length,), f"one to each of the last {length} things")
        grows = self.config.memory == "all" or position >= now.next_cut(self.config)
        if now.state is None or grows:
            return Reach((position,), f"one to each of the {position} things before it")
        held, waiting = len(now.state.support), now.pending + ahead
        told = f"one to each of the {held} landmarks of support_ids, and to {waiting} after them"
        return Reach((held + waiting, position), told)

    def _held_part(self, now: Progress, row: Floats) -> Floats:
        """Of a row to all things ever learned, the distances to landmarks and to what waits."""
        if self.config.memory == "landmarks" and len(row) == now.position:
            return np.concatenate([row[now.support_positions], row[now.learned :]])
        return row

    # ------------------------------------------------------------------ both

    def _start(self, keys: list[Any] | None, rows: Ints, policy: str) -> Progress:
        """What a call goes on from. Under "raise", an id that is held already refuses it here.

        Which ids a window will hold can be told beforehand. Landmarks come and go as the call is
        learned: where an id might come twice, the call goes on from a copy, to leave something to
        go back to.
        """
        now = self.progress
        if keys is None or policy != "raise":
            return now
        again = now.held_ids(self.config).sift(keys, now.position)[0]
        if not again:
            return now
        if self.config.memory != "landmarks":
            raise DuplicateIdError(_duplicate(keys, again[0], rows))
        return self._rings.wait(now.on_its_own)

    def _accept(self, after: Progress) -> Progress:
        """Learn a chunk that is whole with the last part; what waits is taken as the call ends."""
        if after.position == after.next_cut(self.config):
            return self._learn_chunk(after)
        return after

    def _end(self, now: Progress, rejected: int) -> None:
        """Take what waits, and count the rows that were set aside behind the last accepted one."""
        self.progress = now if now.rejected == rejected else replace(now, rejected=rejected)

    def _learn_chunk(self, full: Progress) -> Progress:
        """What waits becomes state."""
        return self._rings.wait(self._push, full)

    def _push(self, full: Progress, flush: bool = False) -> Progress:
        events = Events.joined(full.waiting.parts)
        with one_blas_thread():
            if full.state is None:
                state = update.first(events.chunk(0), self.config)
            else:
                state = update.push(full.state, events.chunk(len(full.state.support)), self.config)
            if full.early is not None:
                state = self._with_pairs(state, *full.early)
            if flush:
                state = self._with_flushed_metrics(state)
        # of a chunk, only the new landmarks are held
        ids = None if self.config.memory == "landmarks" else full.ids
        after = replace(full, state=state, waiting=Waiting(), early=None, ids=ids)
        self.progress = after
        state.settle()
        return after

    # ------------------------------------------------------------------ other events of the stream

    def learn_pairs(
        self,
        features: tuple[tuple[str, ...], bool],
        left: Floats,
        right: Floats,
        similar: Bools,
    ) -> None:
        """Take pairs that somebody knows: raw points (p, d) twice, and what they are (p,)."""
        now = replace(self.progress, features=self.progress.features or features)
        if now.state is not None:
            with one_blas_thread():
                state = self._with_pairs(now.state, left, right, similar)
            self.progress = replace(now, state=state)
            return
        early = now.early or (left[:0], right[:0], similar[:0])
        given = (left, right, similar)
        together = [np.concatenate(both) for both in zip(early, given, strict=True)]
        self.progress = replace(now, early=(together[0], together[1], together[2]))

    def _with_pairs(self, state: State, left: Floats, right: Floats, similar: Bools) -> State:
        assert state.metrics is not None
        metrics = learners.given(state.metrics, left, right, similar, self.config.seed)
        return replace(state, metrics=metrics)

    def flush(self) -> None:
        """Learn what waits, as a short chunk; so do the metrics with what waits for theirs."""
        if self.progress.pending:
            self._rings.wait(self._push, self.progress, flush=True)
        else:
            now = self.progress
            assert now.state is not None
            with one_blas_thread():
                state = self._with_flushed_metrics(now.state)
            self.progress = replace(now, state=state)

    def _with_flushed_metrics(self, state: State) -> State:
        if state.metrics is None:
            return state
        metrics = learners.flushed(state.metrics, self.config.seed)
        return state if metrics is state.metrics else replace(state, metrics=metrics)

    def rescale(self) -> None:
        """Make the state anew from its support."""
        self._rings.wait(self._rescale, self.progress)

    def _rescale(self, now: Progress) -> None:
        assert now.state is not None
        with one_blas_thread():
            state = update.rescaled(now.state, self.config)
        self.progress = replace(now, state=state)
        state.settle()


def _named(now: Progress, ids: Array | None, count: int) -> Array:
    """The ids, or the stream positions where there are none."""
    if ids is not None:
        return ids
    return np.arange(now.position, now.position + count, dtype=np.int64)


def _duplicate(keys: list[Any] | None, index: int, rows: Ints) -> str:
    """What is said of an id that may not come; ``rows`` are the indices in the call."""
    key, row = None if keys is None else keys[index], int(rows[index])
    fault = f"id {key!r} (row {row}) is held already"
    if keys is not None and key in keys[:index]:
        earlier = index - 1 - keys[:index][::-1].index(key)
        fault = f"id {key!r} comes twice in this call (row {int(rows[earlier])} and row {row})"
    return f"{fault}: ids must be unique within the support; nothing was learned"
