"""The event buffer: accepted events wait until their chunk is whole, then become state with it.

`streamembed.numeric.chunks` says where chunks end. A refused call and a failed chunk change
nothing. A call that is interrupted, at any line, has learned none or some of its whole chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn, ParamSpec, TypeVar

import numpy as np

from streamembed.engine.engine_state import EngineState
from streamembed.errors import ConcurrentUseError, DuplicateIdError
from streamembed.methods import update
from streamembed.methods.options import Config
from streamembed.methods.state import State
from streamembed.metric_learners import metrics as learners
from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.numeric.chunks import PendingParts
from streamembed.threads import FairQueue, one_blas_thread

P = ParamSpec("P")
T = TypeVar("T")


class EventBuffer:
    """Advances an engine from one `EngineState` to the next, one at a time.

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

    # ------------------------------------------------------------------ turns

    def run_exclusively(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do work that changes the engine; ConcurrentUseError if another thread does."""
        self._refuse_callers_back()
        return self._learning.run_or_fail(work, *args, **kwargs)

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

    # ------------------------------------------------------------------ one call

    def start(
        self, keys: list[Any] | None, rows: Ints, policy: str, log_offset: int | None = None
    ) -> EngineState:
        """The state that a call starts from. Under "raise", a duplicate id refuses the call here.

        The ids that a window will retain are known beforehand. Landmarks change while the call is
        learned: where an id may be a duplicate, the call starts from a copy, so that it can be
        rolled back.

        Parameters
        ----------
        keys
            The ids of the call, or None.
        rows
            Their indices in the input.
        policy
            "raise" or "skip".
        log_offset
            How many rows of their log are taken with these, of one chunk at most; None without a
            log.
        """
        now = self.progress.with_log_offset(log_offset)
        if keys is None or policy != "raise":
            return now
        again = now.retained_ids(self.config).add(keys, now.position)[0]
        if not again:
            return now
        if self.config.memory != "landmarks":
            self.refuse(now, keys, again[0], rows)
        return self._rings.run(now.copy)

    def accept(self, after: EngineState) -> EngineState:
        """Learn the chunk if the last part completes it; `end` takes pending events."""
        if after.position == after.next_cut(self.config):
            return self._rings.run(self._push, after)
        return after

    def end(self, now: EngineState, rejected: int) -> None:
        """Keep the pending events, and count the rows rejected after the last accepted one."""
        self.progress = now if now.rejected == rejected else replace(now, rejected=rejected)

    def refuse(
        self, before: EngineState, keys: list[Any] | None, index: int, rows: Ints
    ) -> NoReturn:
        """Roll back to the start of the call, and raise an error that names the refused id.

        ``keys`` and ``rows`` are those of `start`.
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

    def learn_pairs(
        self,
        features: tuple[tuple[str, ...], bool],
        left: Floats,
        right: Floats,
        similar: Bools,
    ) -> None:
        """Take given pairs: raw points (p, d) twice, and whether each is similar (p,)."""
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

    def label(self, now: EngineState, classes: Mapping[int, int]) -> None:
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

    def flush(self) -> None:
        """Learn pending events as a short chunk; metrics learn their pending rows, too."""
        if self.progress.pending:
            self._rings.run(self._push, self.progress, flush=True)
        else:
            now = self.progress
            assert now.state is not None
            with one_blas_thread():
                state = self._with_flushed_metrics(now.state)
            self.progress = replace(now, state=state)

    def _with_flushed_metrics(self, state: State) -> State:
        if state.metrics is None:
            return state
        metrics = learners.flush(state.metrics, self.config.seed)
        return state if metrics is state.metrics else replace(state, metrics=metrics)

    def rescale(self) -> None:
        """Rebuild the state from its support."""
        self._rings.run(self._remake, update.rescale, self.progress)

    def relayout(self) -> None:
        """Lay the picture out from scratch."""
        self._rings.run(self._remake, update.relayout, self.progress)

    def _remake(self, remake: Callable[[State, Config], State], now: EngineState) -> None:
        assert now.state is not None
        with one_blas_thread():
            state = remake(now.state, self.config)
        self.progress = replace(now, state=state)
        state.commit()
