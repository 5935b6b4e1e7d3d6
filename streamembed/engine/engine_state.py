"""The state of an engine: everything in it that changes, as one immutable value.

Only the rings beneath `EngineState.state` are written to, and they know to which state they belong.
An engine advances by replacing this value with the next one: a single step that no interrupt can
divide. Here is also what of a call can become events, given those that came before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np

from streamembed.data.batch import LEARNING
from streamembed.data.distance_rows import DistanceRows, RowLength
from streamembed.data.features import Features
from streamembed.data.ids import IdsKind, RetainedIds, classify_ids
from streamembed.data.labels import UNKNOWN, Label, LabelIndex
from streamembed.data.times import find_late
from streamembed.errors import (
    BadRowError,
    DuplicateIdError,
    FeatureError,
    InputError,
    NotReadyError,
    quote,
)
from streamembed.methods.chunk import AcceptedEvents
from streamembed.methods.options import Config
from streamembed.methods.state import State
from streamembed.numeric.arrays import Array, Bools, Floats, Ints
from streamembed.numeric.chunks import PendingParts
from streamembed.numeric.codec import NOT_SAVED, Count

NOTHING: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class EngineState:
    """Everything in an engine that changes."""

    state: State | None = None  # after the last whole chunk; None before the warm-up ends
    # Accepted events whose chunk is not whole.
    waiting: PendingParts[AcceptedEvents] = field(default_factory=PendingParts)
    # `NO_FEATURES` where distances are learned; None before the first call.
    features: Features | None = None
    # See `streamembed.data.ids.classify_ids`.
    ids_kind: IdsKind | None = None
    rejected: Count = 0  # rows rejected since the first event
    labels: LabelIndex = field(default_factory=LabelIndex)  # the labels observed so far
    # (Floats, Floats, Bools) or None: raw points of given pairs, and what they are, until the warm-
    # up ends.
    early: (
        tuple[
            Annotated[Floats, "m d"],
            Annotated[Floats, "m d"],
            Annotated[Bools, "m"],
        ]
        | None
    ) = None
    # Ids of the support and of pending events; None if not computed since the last chunk.
    ids: RetainedIds | None = field(default=None, metadata=NOT_SAVED)
    log_offset: Count = 0  # rows taken from the log, accepted or rejected; 0 without a log
    # (m,): stream positions, ascending, of the events of the support that metrics have learned with
    # a label; empty without metrics. Pending events carry their own labels.
    labelled: Annotated[Ints, "m", "ascending"] = field(default_factory=lambda: NOTHING)

    def need_state(self, config: Config, remedy: str) -> State:
        """The state, or NotReadyError before the warm-up ends."""
        if self.state is None:
            raise NotReadyError(
                f"the warm-up takes {config.warm_up_events} events and {self.position} have "
                f"arrived: {remedy}"
            )
        return self.state

    @property
    def learned(self) -> int:
        """Events that are part of the state."""
        return 0 if self.state is None else self.state.position

    @property
    def pending(self) -> int:
        """Accepted events whose chunk is not complete yet."""
        return self.waiting.count

    @property
    def newest_time(self) -> float | None:
        """The newest event time, with a clock of event times; None before the first."""
        times = [float(part.times.max()) for part in self.waiting.parts if part.times is not None]
        if self.state is not None and self.state.time is not None:
            times.append(self.state.time)
        return max(times, default=None)

    @property
    def position(self) -> int:
        """Events accepted so far."""
        return self.learned + self.waiting.count

    @property
    def feature_names(self) -> tuple[str, ...]:
        """In the engine's order; empty before the first batch, and for distances."""
        return () if self.features is None else self.features.names

    @property
    def support_ids(self) -> Array:
        """Oldest first, shape (N,)."""
        if self.state is None:
            return np.zeros(0, dtype=np.int64)
        return self.state.support.ids[self.state.support.oldest_first]

    @property
    def support_positions(self) -> Ints:
        """Stream positions of the support, in the order of ``support_ids``, shape (N,)."""
        if self.state is None:
            return np.zeros(0, dtype=np.int64)
        return np.sort(self.state.support.births)

    def distance_row_ids(self, config: Config) -> Array:
        """What the next distance row must hold, shape (L,)."""
        waiting = [part.ids for part in self.waiting.parts]
        support = [self.support_ids] if self.state is not None or not waiting else []
        ids = np.concatenate([*support, *waiting])
        return ids if config.window is None else ids[-config.window :]

    def retained_ids(self, config: Config) -> RetainedIds:
        """Ids of every event in the support or pending."""
        if self.ids is not None:
            return self.ids
        return RetainedIds(config.window, dict(self.list_retained()), {})

    def list_retained(self) -> list[tuple[Any, int]]:
        """Id and stream position of every event in the support, then of pending events."""
        entries: list[tuple[Any, int]] = []
        if self.state is not None:
            support = self.state.support
            entries = list(zip(support.ids.tolist(), support.births.tolist(), strict=True))
        waiting = [key for part in self.waiting.parts for key in part.ids.tolist()]
        entries += zip(waiting, range(self.learned, self.position), strict=True)
        return entries

    def check_input(self, distances: bool, features: Features | None = None) -> None:
        """Refuse points where distances are learned, the other way round, and other features."""
        known = self.features
        if known is None:
            return
        if bool(known.names) == distances:
            given, learned = ("distance rows", "points") if distances else ("points", "distances")
            raise InputError(
                f"{given} were given, but this engine learns {learned}: use "
                f"{'learn' if distances else 'learn_distances'}, or create another engine for them"
            )
        if features is not None and features.names != known.names:
            raise FeatureError(
                f"the call has the features {quote(list(features.names))}; expected "
                f"{quote(list(known.names))}"
            )
        if features is not None and features.ordered and not known.ordered:
            raise FeatureError("the call has columns by place, and this engine knows them by name")

    def check_ids_kind(self, ids: Array | None) -> IdsKind:
        """The kind of ids; refuse another one than that of the first."""
        kind = classify_ids(ids)
        if self.ids_kind is not None and kind != self.ids_kind:
            raise DuplicateIdError(
                f"ids are {kind} in this call and were {self.ids_kind} in the first, so they could "
                "be confused; use one kind"
            )
        return kind

    def find_rejected(
        self, config: Config, keys: list[Any] | None, times: Floats | None, start: int, stop: int
    ) -> tuple[dict[int, str], RetainedIds | None]:
        """Rows of a part of a chunk that cannot be events, and why; and the ids retained after it.

        Ids are compared with those of the support and of pending events, times with the newest.
        """
        faults, retained = {}, self.ids
        if keys is not None:
            repeated, retained = self.retained_ids(config).add(keys[start:stop], self.position)
            faults = {start + i: "duplicate id" for i in repeated}
        if times is not None:
            for i, why in find_late(times[start:stop], self.newest_time, config.max_skew):
                faults.setdefault(start + i, why)
        return dict(sorted(faults.items())), retained

    def check_times(self, times: Floats, config: Config, kept: Ints) -> None:
        """Refuse the call where the time of a row is none, or lies beyond what may be."""
        late = find_late(times, self.newest_time, config.max_skew)
        if late:
            raise BadRowError.of(
                [(int(kept[i]), why) for i, why in late],
                f"{len(times)} rows cannot be learned",
                "nothing was learned: fix their times, or reject them with on_bad_row='skip'",
            )

    def index_classes(
        self, labels: Sequence[Label | None] | None, rows: Ints
    ) -> tuple[Ints, LabelIndex]:
        """Class indices of some rows, and the labels known then."""
        if labels is None:
            return np.full(len(rows), UNKNOWN, dtype=np.int64), self.labels
        return self.labels.encode_labels([labels[row] for row in rows.tolist()])

    def check_rows(self, rows: DistanceRows, config: Config) -> None:
        """Refuse the call where a row cannot be used, whatever becomes of those before it."""
        read = (rows.read(i, self.required_length(config, i)) for i in range(len(rows)))
        faults = [(i, fault) for i, (_, fault) in enumerate(read) if fault is not None]
        if faults:
            fault = f"{len(rows)} distance rows cannot be used"
            raise BadRowError.of(faults, fault, LEARNING, rows.name)

    def required_length(self, config: Config, ahead: int = 0) -> RowLength:
        """What the distance row after the next ``ahead`` ones must contain."""
        position = self.position + ahead
        if config.memory == "window":
            length = min(position, config.size)
            return RowLength((length,), f"one to each of the last {length} objects")
        grows = config.memory == "all" or position >= config.chunks.next_cut(self.learned)
        if self.state is None or grows:
            return RowLength((position,), f"one to each of the {position} objects before it")
        n_support, waiting = len(self.state.support), self.pending + ahead
        description = (
            f"one to each of the {n_support} landmarks of support_ids, and to the {waiting} "
            "objects after them"
        )
        return RowLength((n_support + waiting, position), description)

    def select_retained_distances(self, config: Config, row: Floats) -> Floats:
        """Distances to landmarks and pending events, of a row to all objects ever learned."""
        if config.memory == "landmarks" and len(row) == self.position:
            return np.concatenate([row[self.support_positions], row[self.learned :]])
        return row

    def list_labelled_positions(self) -> Ints:
        """Stream positions of all labelled events, pending ones last, ascending."""
        places, start = [self.labelled], self.learned
        for part in self.waiting.parts:
            if part.classes is not None:
                places.append(start + np.flatnonzero(part.classes != UNKNOWN))
            start += len(part)
        return np.concatenate(places)

    def select_labelled_positions(self, state: State, config: Config) -> Ints:
        """`labelled` after the pending events have become that state."""
        positions, births = self.list_labelled_positions(), state.support.births
        retained: Ints = positions[positions >= births.min()]
        return retained[np.isin(retained, births)] if config.memory == "landmarks" else retained

    def with_classes(self, classes: Mapping[int, int]) -> EngineState:
        """The state with classes of pending events, given by stream position."""
        events = AcceptedEvents.joined(self.waiting.parts)
        codes = np.full(len(events), UNKNOWN) if events.classes is None else events.classes.copy()
        for position, code in classes.items():
            codes[position - self.learned] = code
        return replace(self, waiting=PendingParts((replace(events, classes=codes),), len(events)))

    def copy(self) -> EngineState:
        """The same on copies of the rings, so that learning from it leaves this one unchanged."""
        return self if self.state is None else replace(self, state=self.state.copy())
