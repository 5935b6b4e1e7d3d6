"""The intake: events that were admitted wait for their chunk to be whole, and become state with it.

Where chunks end is the rule of `streamembed.numeric.chunks`. A call that is refused, and a chunk
that fails, change nothing; a call that is broken off at whatever line has changed nothing, or as
much as the whole chunks of it that it came to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NoReturn, ParamSpec, TypeVar

import numpy as np

from streamembed.engine.engine_state import Progress
from streamembed.errors import ConcurrentUseError, DuplicateIdError
from streamembed.methods import update
from streamembed.methods.options import Config
from streamembed.methods.state import State
from streamembed.metric_learners import metrics as learners
from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.numeric.chunks import Waiting
from streamembed.threads import Turns, one_blas_thread

__all__ = ["Intake"]

P = ParamSpec("P")
T = TypeVar("T")


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
                "this engine is already at work in this thread, and was called again from a signal "
                "handler or a callback: this call had no effect; repeat it when the first call has "
                "returned"
            )

    # ------------------------------------------------------------------ one call

    def start(
        self, keys: list[Any] | None, rows: Ints, policy: str, log_offset: int | None = None
    ) -> Progress:
        """What a call goes on from. Under "raise", an id that is held already refuses it here.

        Which ids a window will hold can be told beforehand. Landmarks come and go as the call is
        learned: where an id might come twice, the call goes on from a copy, to leave something to
        go back to.

        Parameters
        ----------
        keys
            The ids of the call, None where it has none.
        rows
            Their indices in what the caller gave.
        policy
            "raise" or "skip".
        log_offset
            How many rows of their log are taken with these, of one chunk at most; None for what
            comes from no log.
        """
        now = self.progress.at_row(log_offset)
        if keys is None or policy != "raise":
            return now
        again = now.held_ids(self.config).sift(keys, now.position)[0]
        if not again:
            return now
        if self.config.memory != "landmarks":
            self.refuse(now, keys, again[0], rows)
        return self._rings.wait(now.on_its_own)

    def accept(self, after: Progress) -> Progress:
        """Learn a chunk that is whole with the last part; what waits is taken as the call ends."""
        if after.position == after.next_cut(self.config):
            return self._rings.wait(self._push, after)
        return after

    def end(self, now: Progress, rejected: int) -> None:
        """Take the pending events, and count the rows rejected after the last accepted one."""
        self.progress = now if now.rejected == rejected else replace(now, rejected=rejected)

    def refuse(self, before: Progress, keys: list[Any] | None, index: int, rows: Ints) -> NoReturn:
        """Go back to where the call began, and say which of its ids is refused.

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

    def _push(self, full: Progress, flush: bool = False) -> Progress:
        """What waits becomes state."""
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
        # of a chunk, only the new landmarks are held
        ids = None if self.config.memory == "landmarks" else full.ids
        labelled = full.labelled_in(state, self.config)
        after = replace(
            full, state=state, waiting=Waiting(), early=None, ids=ids, labelled=labelled
        )
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
        metrics = learners.learn_pairs(state.metrics, left, right, similar, self.config.seed)
        return replace(state, metrics=metrics)

    def label(self, now: Progress, classes: Mapping[int, int]) -> None:
        """Go on from there, with classes of events, by stream position, in the order they came.

        Metrics learn those of the support now, and those that wait with their chunk.
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
        metrics = learners.flush(state.metrics, self.config.seed)
        return state if metrics is state.metrics else replace(state, metrics=metrics)

    def rescale(self) -> None:
        """Make the state anew from its support."""
        self._rings.wait(self._remake, update.rescale, self.progress)

    def relayout(self) -> None:
        """Make the picture anew."""
        self._rings.wait(self._remake, update.lay_out_again, self.progress)

    def _remake(self, remake: Callable[[State, Config], State], now: Progress) -> None:
        assert now.state is not None
        with one_blas_thread():
            state = remake(now.state, self.config)
        self.progress = replace(now, state=state)
        state.settle()
