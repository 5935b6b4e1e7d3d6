"""The stream learner: applies checked calls to the state of an engine, one at a time.

Accepted events wait until their chunk is whole, then become state with it;
`streamembed.numeric.chunks` says where chunks end. A refused call and a failed chunk change
nothing. A call that is interrupted, at any line, has learned none or some of its whole chunks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NoReturn, ParamSpec, TypeVar

import numpy as np

from streamembed.data.batch import Batch, Rejected
from streamembed.data.distance_rows import DistanceRows
from streamembed.data.features import NO_FEATURES, Features
from streamembed.data.ids import classify_ids, read_ids, select_ids
from streamembed.data.labels import UNKNOWN, Label
from streamembed.engine import input_checks
from streamembed.engine.call import (
    Call,
    Labelled,
    Learned,
    check_accepted,
    check_ids_known,
)
from streamembed.engine.engine_state import EngineState
from streamembed.errors import (
    ConcurrentUseError,
    DuplicateIdError,
    FeatureError,
    InputError,
    NotReadyError,
    ParameterError,
    quote,
)
from streamembed.methods import update
from streamembed.methods.chunk import AcceptedEvents
from streamembed.methods.options import POSITION, Config
from streamembed.methods.state import State
from streamembed.metrics import engine_metrics as learners
from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.numeric.chunks import PendingParts
from streamembed.threads import FairQueue, one_blas_thread

P = ParamSpec("P")
T = TypeVar("T")


class StreamLearner:
    """Takes an engine from one `EngineState` to the next.

    Attributes
    ----------
    config : Config
    progress : EngineState
        Replaced as a whole, by one assignment, with every chunk and at the end of a call.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.progress = EngineState()
        self._learning = FairQueue()
        self._rings = FairQueue()

    @property
    def state(self) -> State | None:
        """The state after the last complete chunk; None during the warm-up."""
        return self.progress.state

    def need_state(self, remedy: str) -> State:
        """The state, or NotReadyError before the warm-up ends."""
        if self.progress.state is None:
            raise NotReadyError(
                f"the warm-up takes {self.config.warm_up_events} events and "
                f"{self.progress.position} have arrived: {remedy}"
            )
        return self.progress.state

    # ------------------------------------------------------------------ turns

    def run_exclusively(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do work that changes the engine; ConcurrentUseError if another thread does."""
        self._refuse_callers_back()
        try:
            return self._learning.run_or_fail(work, *args, **kwargs)
        except SystemError as error:
            if was_interrupted(error):
                raise KeyboardInterrupt from error
            raise

    def run_between_chunks(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do work that reads the rings, after the chunk that another thread is learning."""
        self._refuse_callers_back()
        return self._rings.run(work, *args, **kwargs)

    def _refuse_callers_back(self) -> None:
        if self._learning.is_own_turn() or self._rings.is_own_turn():
            raise ConcurrentUseError(
                "this engine is already at work in this thread, and was called again from a signal "
                "handler or a callback: this call had no effect; repeat it when the first call has "
                "returned"
            )

    # ------------------------------------------------------------------ calls

    def apply(self, call: Call[T]) -> T:
        """Learn a call that `streamembed.engine.call` has checked."""
        check_accepted(call.name, self.config)
        result: T = self._METHODS[call.name](self, call)
        return result

    def _learn(self, call: Call[Any]) -> Learned:
        arrays, metadata = call.arrays, call.metadata
        rejected = tuple(Rejected(*row) for row in metadata["rejected"])
        rows = Batch(arrays["points"], call.features, arrays.get("ids"), arrays["kept"], rejected)
        labels, times = metadata["labels"], arrays.get("times")
        known = self.progress.features
        if known is not None and call.features == replace(known, ordered=True) != known:
            raise FeatureError("the call has columns by place, and this engine knows them by name")
        if labels is not None and not self.config.metrics:
            raise ParameterError("the call has labels, and this engine learns no metrics")
        if times is not None and self.config.clock == POSITION:
            raise ParameterError("the call has times, and here masses fade by positions")
        if rejected and self.config.on_bad_row == "raise":
            raise ParameterError(
                f"the call left out {len(rejected)} bad rows, and here on_bad_row is 'raise'"
            )
        return self.learn_points(rows, self.config.on_bad_row, labels, times=times)

    def _learn_distances(self, call: Call[Any]) -> Learned:
        lengths, flat = call.arrays["lengths"], call.arrays["distances"]
        ends = np.cumsum(np.maximum(lengths, 0))
        rows = [
            None if length < 0 else flat[end - length : end]
            for length, end in zip(lengths.tolist(), ends.tolist(), strict=True)
        ]
        ids, is_square = read_ids(call.metadata["ids"], len(rows)), call.metadata["square"]
        return self.learn_distances(DistanceRows(rows, ids, is_square), self.config.on_bad_row)

    def learn_points(
        self,
        rows: Batch,
        policy: str,
        labels: Sequence[Label | None] | None = None,
        log_offsets: Ints | None = None,
        times: Floats | None = None,
    ) -> Learned:
        """Learn checked points; ``policy``, "raise" or "skip", is for duplicate ids and for times.

        ``labels`` and ``times`` are those of all rows of the call, also of those that were
        rejected; ``log_offsets`` (n,) is how many rows of their log are taken with each point.
        """
        before, config = self.progress, self.config
        before.check_input_kind(distances=False)
        n, kept = len(rows.points), rows.kept
        if n:
            _check_features(rows.features, before)
            before.check_ids_kind(rows.ids)
        if n and times is None and config.clock != POSITION:
            raise InputError("masses fade by event times, and the rows of this call have none")
        row_times = None if times is None else times[kept]
        if row_times is not None and policy == "raise":
            input_checks.check_times(row_times, before, config, kept)
        keys = None if rows.ids is None else rows.ids.tolist()
        kind = classify_ids(rows.ids)
        state = self._start(keys, kept, policy)
        unusable = [row.index for row in rows.rejected]
        rejected_indices: list[int] = []  # rows that are not events, in order
        reasons: list[str] = []  # and why
        start = 0
        while start < n:
            stop = min(n, start + state.next_cut(config) - state.position)
            faults, retained = input_checks.find_rejected(
                state, config, keys, row_times, start, stop
            )
            if row_times is not None and faults and stop - start > 1:
                # whether a row is late or a duplicate depends on the rows before it: one at a time
                stop = max(min(faults), start + 1)
                faults, retained = input_checks.find_rejected(
                    state, config, keys, row_times, start, stop
                )
            if faults and policy == "raise":  # times were looked at before
                self._refuse(before, keys, min(faults), kept)
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
                classes, label_index = input_checks.index_classes(
                    state, config, kept[chosen], labels
                )
                ids = None if rows.ids is None else rows.ids[chosen].copy()
                # copies: a view of pending rows would keep all rows of the call in memory
                points = rows.points[chosen].copy()
                names = input_checks.ids_or_positions(state, ids, count)
                part_times = None if row_times is None else row_times[chosen].copy()
                part = AcceptedEvents(points, names, classes=classes, times=part_times)
                counted = before.rejected + n_rejected
                after = state.with_events(part, rows.features, kind, counted, label_index, retained)
                state = self._accept(after.with_log_offset(log_offsets, last))
            start = stop
        pairs = zip(rejected_indices, reasons, strict=True)
        late_or_duplicate = [Rejected(int(kept[i]), keys and keys[i], why) for i, why in pairs]
        rejected = tuple(sorted((*rows.rejected, *late_or_duplicate), key=lambda row: row.index))
        self._end(state.with_log_offset(log_offsets, n - 1), before.rejected + len(rejected))
        return Learned(n - len(rejected_indices), rejected)

    def learn_distances(
        self, rows: DistanceRows, policy: str, log_offsets: Ints | None = None
    ) -> Learned:
        """Learn distance rows, checking them; ``policy`` and ``log_offsets`` see `learn_points`."""
        before, config, n = self.progress, self.config, len(rows)
        if n == 0:
            return Learned(0, ())
        before.check_input_kind(distances=True)
        keys = None if rows.ids is None else rows.ids.tolist()
        present = [] if keys is None else [i for i, key in enumerate(keys) if key is not None]
        if keys is None or present:
            before.check_ids_kind(select_ids(rows.ids, np.array(present, dtype=np.int64)))
        if policy == "raise":
            input_checks.check_rows(rows, before, config)
        rejected: list[Rejected] = []
        state = self._start(keys, np.arange(n), policy)
        for index in range(n):
            row, fault = rows.read(index, input_checks.required_length(state, config, 0))
            retained = state.ids
            if fault is None and keys is not None:
                repeated, retained = state.retained_ids(config).add([keys[index]], state.position)
                fault = "duplicate id" if repeated else None
            if fault is not None:
                if policy == "raise":
                    self._refuse(before, keys, index, np.arange(n))
                rows.rejected_rows.append(index)
                rejected.append(Rejected(index, keys and keys[index], fault))
                continue
            own_id = select_ids(rows.ids, np.array([index], dtype=np.int64))
            distances = input_checks.select_retained(state, config, row)
            names = input_checks.ids_or_positions(state, own_id, 1)
            part = AcceptedEvents(np.zeros((1, 0)), names, (distances,))
            counted, kind = before.rejected + len(rejected), classify_ids(own_id)
            after = state.with_events(part, NO_FEATURES, kind, counted, state.labels, retained)
            state = self._accept(after.with_log_offset(log_offsets, index))
        self._end(state.with_log_offset(log_offsets, n - 1), before.rejected + len(rejected))
        return Learned(n - len(rejected), tuple(rejected))

    def _start(self, keys: list[Any] | None, rows: Ints, policy: str) -> EngineState:
        """The state that a call starts from. Under "raise", a duplicate id refuses the call here.

        The ids that a window will retain are known beforehand. Landmarks change while the call is
        learned: where an id may be a duplicate, the call starts from a copy, so that it can be
        rolled back. ``rows`` are the indices of the ids in the input.
        """
        now = self.progress
        if keys is None or policy != "raise":
            return now
        again = now.retained_ids(self.config).add(keys, now.position)[0]
        if not again:
            return now
        if self.config.memory != "landmarks":
            self._refuse(now, keys, again[0], rows)
        return self._rings.run(now.copy)

    def _accept(self, after: EngineState) -> EngineState:
        """Learn the chunk if the last part completes it; `_end` takes pending events."""
        if after.position == after.next_cut(self.config):
            return self._rings.run(self._push, after)
        return after

    def _end(self, now: EngineState, rejected: int) -> None:
        """Keep the pending events, and count the rows rejected after the last accepted one."""
        self.progress = now if now.rejected == rejected else replace(now, rejected=rejected)

    def _refuse(
        self, before: EngineState, keys: list[Any] | None, index: int, rows: Ints
    ) -> NoReturn:
        """Roll back to the start of the call, and raise an error that names the refused id.

        ``keys`` and ``rows`` are those of `_start`.
        """
        self.progress = before
        key, row = None if keys is None else keys[index], int(rows[index])
        fault = f"id {key!r} (row {row}) is already in the support"
        if keys is not None and key in keys[:index]:
            earlier = index - 1 - keys[:index][::-1].index(key)
            fault = f"id {key!r} is repeated in this call (row {int(rows[earlier])} and row {row})"
        raise DuplicateIdError(
            f"{fault}: ids must be unique within the support; nothing was learned"
        )

    def _push(self, full: EngineState, flush: bool = False) -> EngineState:
        """Learn the pending events."""
        events = full.waiting.joined()
        with one_blas_thread():
            if full.state is None:
                state = update.start(events.chunk(0), self.config)
            else:
                state = update.push(full.state, events.chunk(len(full.state.support)), self.config)
            if full.early is not None:
                state = self._with_pairs(state, *full.early)
            if flush:
                state = self._with_flushed_metrics(state)
        # of a chunk, only the new landmarks are retained
        ids = None if self.config.memory == "landmarks" else full.ids
        labelled = full.select_labelled_positions(state, self.config)
        after = replace(
            full, state=state, waiting=PendingParts(), early=None, ids=ids, labelled=labelled
        )
        self.progress = after
        state.commit()
        return after

    # ------------------------------------------------------------------ other events of the stream

    def _learn_pairs(self, call: Call[Any]) -> None:
        """Learn given pairs, until the warm-up ends with its last chunk."""
        features = call.features
        left, right, similar = (call.arrays[name] for name in ("left", "right", "similar"))
        self.progress.check_input_kind(distances=False)
        _check_features(features, self.progress)
        now = replace(self.progress, features=self.progress.features or features)
        if now.state is not None:
            with one_blas_thread():
                state = self._with_pairs(now.state, left, right, similar)
            self.progress = replace(now, state=state)
            return
        early = now.early or (left[:0], right[:0], similar[:0])
        new = (left, right, similar)
        joined = [np.concatenate(both) for both in zip(early, new, strict=True)]
        self.progress = replace(now, early=(joined[0], joined[1], joined[2]))

    def _with_pairs(self, state: State, left: Floats, right: Floats, similar: Bools) -> State:
        assert state.metrics is not None
        metrics = learners.learn_pairs(state.metrics, left, right, similar, self.config.seed)
        return replace(state, metrics=metrics)

    def _label(self, call: Call[Any]) -> Labelled:
        """Learn labels of retained events; of two events of one id, the later counts."""
        now = self.progress
        positions = dict(now.list_retained())
        labelled = set(now.list_labelled_positions().tolist())
        classes: dict[int, int] = {}  # by stream position
        check_ids_known(now, read_ids(call.metadata["ids"], call.rows))
        label_index, repeated, not_held = now.labels, 0, []
        for key, label in zip(call.metadata["ids"], call.metadata["labels"], strict=True):
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
        self._learn_classes(replace(now, labels=label_index), classes)
        return Labelled(len(classes), repeated, tuple(not_held))

    def _learn_classes(self, now: EngineState, classes: Mapping[int, int]) -> None:
        """Continue from that state with classes of events, by stream position, in order of arrival.

        Metrics learn those of the support now, and those of pending events with their chunk.
        """
        late = {place: code for place, code in classes.items() if place >= now.learned}
        now = now.with_classes(late) if late else now
        early = [place for place in classes if place < now.learned]
        if early and now.state is not None and now.state.metrics is not None:
            support, metrics = now.state.support, now.state.metrics
            slots = {birth: slot for slot, birth in enumerate(support.births.tolist())}
            points = support.points[[slots[place] for place in early]]
            codes = np.array([classes[place] for place in early], dtype=np.int64)
            with one_blas_thread():
                metrics = learners.learn_labels(metrics, points, codes, self.config.seed)
            labelled = np.union1d(now.labelled, early)
            now = replace(now, state=replace(now.state, metrics=metrics), labelled=labelled)
        self.progress = now

    def _flush(self, _: Call[Any]) -> None:
        """Learn pending events as a short chunk; metrics learn their pending rows, too."""
        before = self.need_state("there is nothing to flush into")
        if self.progress.pending:
            self._rings.run(self._push, self.progress, flush=True)
            return
        with one_blas_thread():
            state = self._with_flushed_metrics(before)
        self.progress = replace(self.progress, state=state)

    def _with_flushed_metrics(self, state: State) -> State:
        if state.metrics is None:
            return state
        metrics = learners.flush(state.metrics, self.config.seed)
        return state if metrics is state.metrics else replace(state, metrics=metrics)

    def _rescale(self, _: Call[Any]) -> None:
        self.need_state("there is nothing to rescale")
        self._rings.run(self._rebuild, update.rescale, self.progress)

    def _relayout(self, _: Call[Any]) -> None:
        self.need_state("there is nothing to lay out")
        self._rings.run(self._rebuild, update.relayout, self.progress)

    def _rebuild(self, rebuild: Callable[[State, Config], State], now: EngineState) -> None:
        """Replace the state by what is computed from its support."""
        assert now.state is not None
        with one_blas_thread():
            state = rebuild(now.state, self.config)
        self.progress = replace(now, state=state)
        state.commit()

    _METHODS: ClassVar[Mapping[str, Callable[[StreamLearner, Call[Any]], Any]]] = {
        "learn": _learn,
        "learn_distances": _learn_distances,
        "learn_pairs": _learn_pairs,
        "label": _label,
        "flush": _flush,
        "rescale": _rescale,
        "relayout": _relayout,
    }


def _check_features(features: Features, now: EngineState) -> None:
    """Refuse a call that was checked before another one chose other features."""
    if now.features is not None and features.names != now.feature_names:
        raise FeatureError(
            f"the call has the features {quote(list(features.names))}; expected "
            f"{quote(list(now.feature_names))}"
        )


def was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is among the causes: a compiled function makes an error of its own of it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
