"""How far an engine has come: everything in it that changes, as one value.

Nothing in here is ever written to, apart from the rings beneath the state, which know to which
state they belong. An engine goes on by taking the next such value in place of this one, which is
one step that no interrupt can divide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streamembed.data.ids import HeldIds, kind_of
from streamembed.data.labels import UNKNOWN, Labels
from streamembed.errors import DuplicateIdError, InputError
from streamembed.methods.chunk import Events
from streamembed.methods.options import Config
from streamembed.methods.state import State
from streamembed.numeric.arrays import Array, Bools, Floats, Ints
from streamembed.numeric.chunks import Waiting
from streamembed.numeric.codec import NOT_KEPT

__all__ = ["NO_FEATURES", "Progress"]

# Of an engine that learns distances: no names, in their order.
NO_FEATURES: tuple[tuple[str, ...], bool] = ((), True)
NOTHING: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """Everything in an engine that changes.

    Attributes
    ----------
    state : State or None
        After the last whole chunk; None before the warm-up ends.
    waiting : Waiting of Events
        Accepted events whose chunk is not whole.
    features : (tuple of str, bool) or None
        Names, and whether they are places; `NO_FEATURES` where distances are learned; None before
        the first call.
    ids_kind : str or None
        See `streamembed.data.ids.kind_of`.
    rejected : int
        Rows set aside since the first event.
    labels : Labels
        Those seen so far.
    early : (Floats, Floats, Bools) or None
        Raw points of given pairs, and what they are, until the warm-up ends.
    ids : HeldIds or None
        Those of the support and of what waits; None where nobody has asked since the last chunk.
    log_offset : int
        Rows of the log that is being read which were taken, accepted or set aside; 0 without one.
    labelled : (m,)
        Stream positions, ascending, of the events of the support that metrics have learned with a
        label; empty without metrics. What waits has its labels with it.
    """

    state: State | None = None
    waiting: Waiting[Events] = field(default_factory=Waiting)
    features: tuple[tuple[str, ...], bool] | None = None
    ids_kind: str | None = None
    rejected: int = 0
    labels: Labels = field(default_factory=Labels)
    early: tuple[Floats, Floats, Bools] | None = None
    ids: HeldIds | None = field(default=None, metadata=NOT_KEPT)
    log_offset: int = 0
    labelled: Ints = field(default_factory=lambda: NOTHING)

    @property
    def learned(self) -> int:
        """Events that are part of the state."""
        return 0 if self.state is None else self.state.position

    @property
    def pending(self) -> int:
        """Accepted events whose chunk is not complete yet."""
        return self.waiting.count

    @property
    def newest(self) -> float | None:
        """With a clock of event times: that of the newest event; None before the first."""
        found = [float(part.times.max()) for part in self.waiting.parts if part.times is not None]
        if self.state is not None and self.state.time is not None:
            found.append(self.state.time)
        return max(found, default=None)

    @property
    def position(self) -> int:
        """Events accepted so far."""
        return self.learned + self.waiting.count

    def next_cut(self, config: Config) -> int:
        """The stream position at which the current chunk ends."""
        return config.chunks.next_cut(self.learned)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """In the engine's order; empty before the first batch, and for distances."""
        return () if self.features is None else self.features[0]

    @property
    def learns_distances(self) -> bool | None:
        """True if the first call brought distances, False for points; None before it."""
        return None if self.features is None else self.features == NO_FEATURES

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
        held = [self.support_ids] if self.state is not None or not waiting else []
        ids = np.concatenate([*held, *waiting])
        return ids if config.window is None else ids[-config.window :]

    def held_ids(self, config: Config) -> HeldIds:
        """Ids of every event in the support or pending."""
        return self.ids if self.ids is not None else HeldIds.of(self.held(), config.window)

    def held(self) -> list[tuple[Any, int]]:
        """Id and stream position of every event in the support, and then of those that wait."""
        held: list[tuple[Any, int]] = []
        if self.state is not None:
            support = self.state.support
            held = list(zip(support.ids.tolist(), support.births.tolist(), strict=True))
        waiting = [key for part in self.waiting.parts for key in part.ids.tolist()]
        held += zip(waiting, range(self.learned, self.position), strict=True)
        return held

    def must_learn(self, distances: bool) -> None:
        """Refuse points where distances are learned, and the other way round."""
        if distances and self.learns_distances is False:
            raise InputError(
                "distance rows were given, but this engine learns points with the features "
                f"{list(self.feature_names)}: create another engine for them"
            )
        if not distances and self.learns_distances:
            raise InputError(
                "points were given, but this engine learns distances: use learn_distances, or "
                "create another engine for them"
            )

    def check_kind(self, ids: Array | None) -> None:
        """Refuse ids of another kind than the first."""
        kind = kind_of(ids)
        if self.ids_kind is not None and kind != self.ids_kind:
            raise DuplicateIdError(
                f"ids are {kind} in this call and were {self.ids_kind} in the first, so they could "
                "be confused; use one kind"
            )

    def followed_by(
        self,
        part: Events,
        features: tuple[tuple[str, ...], bool],
        ids_kind: str,
        rejected: int,
        labels: Labels,
        ids: HeldIds | None,
    ) -> Progress:
        """This, and one more part that waits; features and kind of ids are those of the first."""
        return Progress(
            self.state,
            self.waiting.followed_by(part),
            self.features or features,
            self.ids_kind or ids_kind,
            rejected,
            labels,
            self.early,
            ids,
            self.log_offset,
            self.labelled,
        )

    def labelled_now(self) -> Ints:
        """Stream positions of all events with a label, those that wait at the end, ascending."""
        places, start = [self.labelled], self.learned
        for part in self.waiting.parts:
            if part.classes is not None:
                places.append(start + np.flatnonzero(part.classes != UNKNOWN))
            start += len(part)
        found: Ints = np.concatenate(places)
        return found

    def labelled_in(self, state: State, config: Config) -> Ints:
        """`labelled`, once what waits has become that state."""
        if not config.metrics:
            return self.labelled
        found, births = self.labelled_now(), state.support.births
        held: Ints = found[found >= births.min()]
        return held[np.isin(held, births)] if config.memory == "landmarks" else held

    def with_classes(self, classes: Mapping[int, int]) -> Progress:
        """This, with these classes of events that wait, by stream position."""
        events = self.waiting.joined()
        known = np.full(len(events), UNKNOWN) if events.classes is None else events.classes.copy()
        for position, code in classes.items():
            known[position - self.learned] = code
        return replace(self, waiting=Waiting((replace(events, classes=known),), len(events)))

    def at_row(self, log_offset: int | None) -> Progress:
        """This, with that many rows of its log taken; None for what comes from no log."""
        return self if log_offset is None else replace(self, log_offset=log_offset)

    def on_its_own(self) -> Progress:
        """The same on copies of the rings, so that learning from it leaves this one unchanged."""
        return self if self.state is None else replace(self, state=self.state.on_its_own())
