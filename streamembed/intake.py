"""The intake: events are accepted, wait for their chunk to be whole, and become state with it.

Chunks are cut at multiples of ``chunk_size`` of the stream position, whatever the calls. A call
that is refused, and a chunk that fails, change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamembed import batch, flow, learners
from streamembed.batch import Batch, Rejected
from streamembed.chunk import Events
from streamembed.config import Config
from streamembed.core.arrays import Array, Bools, Floats, Ints
from streamembed.distances import Reach, RowCall
from streamembed.errors import BadRowError, DuplicateIdError, InputError
from streamembed.ids import HeldIds, kind_of
from streamembed.labels import UNKNOWN, Label, Labels
from streamembed.state import State
from streamembed.threads import one_blas_thread

__all__ = ["NO_FEATURES", "Intake", "Learned"]

# Of an engine that learns distances: no names, in their order.
NO_FEATURES: tuple[tuple[str, ...], bool] = ((), True)


@dataclass(frozen=True, slots=True)
class Learned:
    """What became of the rows of one `Engine.learn`.

    Attributes
    ----------
    accepted : int
        Rows that are part of the stream now.
    rejected : tuple of Rejected
        The others (only with ``on_bad_row="skip"``): index in the call, id, reason.
    """

    accepted: int
    rejected: tuple[Rejected, ...]


class Intake:
    """Everything of an engine that changes.

    Attributes
    ----------
    config : Config
    state : State or None
        After the last whole chunk; None before the warm-up ends.
    pending : int
        Accepted events that wait for their chunk.
    features : (tuple of str, bool) or None
        Names, and whether they are places; `NO_FEATURES` where distances are learned; None before
        the first call.
    ids_kind : str or None
        See `streamembed.ids.kind_of`.
    rejected : int
        Rows set aside since the first event.
    labels : Labels
        Those seen so far.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.state: State | None = None
        self.pending = 0
        self.features: tuple[tuple[str, ...], bool] | None = None
        self.ids_kind: str | None = None
        self.rejected = 0
        self.labels = Labels()
        self._waiting: tuple[Events, ...] = ()
        self._held: HeldIds | None = None
        # raw differences of given pairs, and what they are, until the scale is known
        self._early: tuple[Floats, Floats, Bools] | None = None

    @property
    def position(self) -> int:
        """Events accepted so far."""
        return self.learned + self.pending

    @property
    def feature_names(self) -> tuple[str, ...]:
        """In the engine's order; empty before the first batch, and for distances."""
        return () if self.features is None else self.features[0]

    @property
    def learns_distances(self) -> bool | None:
        """Whether the first call brought distances, or points; None before it."""
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

    @property
    def row_ids(self) -> Array:
        """What the next distance row must hold, shape (L,)."""
        waiting = [part.ids for part in self._waiting]
        held = [self.support_ids] if self.state is not None or not waiting else []
        ids = np.concatenate([*held, *waiting])
        return ids if self.config.window is None else ids[-self.config.window :]

    def admit_distances(self, rows: Any, ids: Any, policy: str) -> Learned:
        """Take distance rows, checking them; ``policy`` is "raise" or "skip"."""
        if self.config.metrics:
            raise InputError(
                f"metrics={self.config.metrics!r} learn from points, and distance rows were given: "
                "start the engine without metrics"
            )
        call = RowCall(rows, ids)
        if len(call) == 0:
            return Learned(0, ())
        self.must_learn(distances=True)
        keys = None if call.ids is None else call.ids.tolist()
        given = [] if keys is None else [i for i, key in enumerate(keys) if key is not None]
        if keys is None or given:
            self._check_kind(batch.typed_ids(call.ids, np.array(given, dtype=np.int64)))
        if policy == "raise":
            self._check_rows(call)
        rejected: list[Rejected] = []
        with self._whole(keys, np.arange(len(call)), policy):
            for index in range(len(call)):
                row, fault = call.read(index, self._reach(0))
                if fault is None and keys and self._ids_held().sift([keys[index]], self.position):
                    fault = "duplicate id"
                if fault is not None:
                    if policy == "raise":
                        raise DuplicateIdError(_duplicate(keys, index, index))
                    call.aside.append(index)
                    rejected.append(Rejected(index, keys and keys[index], fault))
                    continue
                one = batch.typed_ids(call.ids, np.array([index], dtype=np.int64))
                self.features = self.features or NO_FEATURES
                self.ids_kind = self.ids_kind or kind_of(one)
                row = self._held_part(row)
                self._accept(Events(np.zeros((1, 0)), self._named(one, 1), (row,)))
        self.rejected += len(rejected)
        return Learned(len(call) - len(rejected), tuple(rejected))

    def must_learn(self, distances: bool) -> None:
        """Refuse points where distances are learned, and the other way round."""
        if distances and self.learns_distances is False:
            raise InputError(
                f"distance rows were given, and this engine learns points with the features "
                f"{list(self.feature_names)}: start another engine for them"
            )
        if not distances and self.learns_distances:
            raise InputError(
                "points were given, and this engine learns distances: use learn_distances, or "
                "start another engine for them"
            )

    def _check_rows(self, call: RowCall) -> None:
        """Refuse the call where a row cannot be used, whatever becomes of those before it."""
        faults = []
        for index in range(len(call)):
            fault = call.read(index, self._reach(index))[1]
            if fault is not None:
                faults.append((index, fault))
        if faults:
            first = "; ".join(f"{call.name(index)}: {fault}" for index, fault in faults[:3])
            raise BadRowError(
                f"{len(faults)} of {len(call)} distance rows cannot be used ({first}); nothing was "
                "learned: mend them, or set them aside with on_bad_row='skip'",
                tuple(faults),
            )

    def _reach(self, ahead: int) -> Reach:
        """What the row after the next ``ahead`` ones must hold."""
        position = self.position + ahead
        if self.config.memory == "window":
            length = min(position, self.config.size)
            return Reach((length,), f"one to each of the last {length} things")
        if self.state is None or self.config.memory == "all" or position >= self.next_cut:
            return Reach((position,), f"one to each of the {position} things before it")
        held, waiting = len(self.state.support), self.pending + ahead
        told = f"one to each of the {held} landmarks of support_ids, and to {waiting} after them"
        return Reach((held + waiting, position), told)

    def _held_part(self, row: Floats) -> Floats:
        """Of a row to all things ever learned, the distances to landmarks and to what waits."""
        if self.config.memory == "landmarks" and len(row) == self.position:
            return np.concatenate([row[self.support_positions], row[self.learned :]])
        return row

    def admit(
        self, rows: Batch, policy: str, labels: Sequence[Label | None] | None = None
    ) -> Learned:
        """Take points that are checked already; ``policy`` is for ids that are held.

        ``labels`` are those of all rows of the call, also of those that were rejected.
        """
        self.must_learn(distances=False)
        n = len(rows.points)
        if n:
            self._check_kind(rows.ids)
        keys = None if rows.ids is None else rows.ids.tolist()
        repeated: list[int] = []
        with self._whole(keys, rows.kept, policy):
            start = 0
            while start < n:
                stop = min(n, start + self.next_cut - self.position)
                chosen = np.arange(start, stop)
                if keys is not None:
                    again = self._ids_held().sift(keys[start:stop], self.position)
                    if again and policy == "raise":
                        index = start + again[0]
                        raise DuplicateIdError(_duplicate(keys, index, int(rows.kept[index])))
                    repeated += [start + i for i in again]
                    chosen = np.delete(chosen, again)
                if len(chosen):
                    self.features = self.features or (rows.names, rows.ordered)
                    self.ids_kind = self.ids_kind or kind_of(rows.ids)
                    ids = None if rows.ids is None else rows.ids[chosen]
                    names = self._named(ids, len(chosen))
                    classes = self._classes(rows.kept[chosen], labels)
                    self._accept(Events(rows.points[chosen], names, classes=classes))
                start = stop
        reasons = [Rejected(int(rows.kept[i]), keys and keys[i], "duplicate id") for i in repeated]
        rejected = tuple(sorted((*rows.rejected, *reasons), key=lambda row: row.index))
        self.rejected += len(rejected)
        return Learned(n - len(repeated), rejected)

    @property
    def learned(self) -> int:
        return 0 if self.state is None else self.state.position

    @property
    def next_cut(self) -> int:
        """The stream position at which the chunk that is filling now ends."""
        if self.state is None:
            return self.config.warm_up_events
        return (self.state.position // self.config.chunk_size + 1) * self.config.chunk_size

    def _classes(self, kept: Ints, labels: Sequence[Label | None] | None) -> Ints | None:
        """Class indices of the rows that stay, where metrics learn from them."""
        if not self.config.metrics:
            return None
        if labels is None:
            return np.full(len(kept), UNKNOWN, dtype=np.int64)
        return self.labels.classes([labels[i] for i in kept.tolist()])

    def learn_pairs(self, left: Floats, right: Floats, similar: Bools) -> None:
        """Take pairs that somebody knows: raw points (p, d) twice, and what they are (p,)."""
        if self.state is None:
            early = self._early or (left[:0], right[:0], similar[:0])
            self._early = (
                np.concatenate([early[0], left]),
                np.concatenate([early[1], right]),
                np.concatenate([early[2], similar]),
            )
            return
        assert self.state.metrics is not None
        with one_blas_thread():
            seed = self.config.seed
            metrics = learners.given(self.state.metrics, left, right, similar, seed)
        self.state = replace(self.state, metrics=metrics)

    def _named(self, ids: Array | None, count: int) -> Array:
        """The ids, or the stream positions where there are none."""
        if ids is not None:
            return ids
        return np.arange(self.position, self.position + count, dtype=np.int64)

    def _check_kind(self, ids: Array | None) -> None:
        kind = kind_of(ids)
        if self.ids_kind is not None and kind != self.ids_kind:
            raise DuplicateIdError(
                f"ids are {kind} in this call and were {self.ids_kind} in the first: they cannot "
                "be told apart from one another; keep to one kind"
            )

    def _ids_held(self) -> HeldIds:
        """Ids of every event that the support holds or that waits."""
        if self._held is None:
            held: list[tuple[Any, int]] = []
            if self.state is not None:
                support = self.state.support
                held = list(zip(support.ids.tolist(), support.births.tolist(), strict=True))
            waiting = [key for part in self._waiting for key in part.ids.tolist()]
            held += zip(waiting, range(self.learned, self.position), strict=True)
            self._held = HeldIds(held, self.config.window)
        return self._held

    @contextmanager
    def _whole(self, keys: list[Any] | None, rows: Ints, policy: str) -> Iterator[None]:
        """Under "raise", a call with an id that is held already changes nothing.

        Which ids a window will hold can be told beforehand. Landmarks come and go as the call is
        learned: where an id might come twice, a copy of the state is kept to go back to.
        """
        if keys is None or policy != "raise":
            yield
            return
        again = self._ids_held().copy().sift(keys, self.position)
        if not again:
            yield
        elif self.config.memory != "landmarks":
            raise DuplicateIdError(_duplicate(keys, again[0], int(rows[again[0]])))
        else:
            before = vars(self).copy()
            before["_held"] = self._ids_held().copy()
            before["labels"] = Labels(self.labels.known)
            put_back = self._rings_kept()
            try:
                yield
            except DuplicateIdError:
                vars(self).update(before)
                put_back()
                raise

    def _rings_kept(self) -> Callable[[], None]:
        """A copy of what chunks write in place; returns what puts it back."""
        rings = [] if self.state is None else [self.state.graph, self.state.distances]
        slots = np.arange(0 if self.state is None else len(self.state.support), dtype=np.int64)
        kept = [(ring, (ring.n, ring.rows(slots))) for ring in rings if ring is not None]

        def put_back() -> None:
            for ring, old in kept:
                ring.restore(slots, old)

        return put_back

    def _accept(self, part: Events) -> None:
        """Events of one chunk join the stream; a chunk that is whole is learned."""
        pending = (*self._waiting, part)
        if self.position + len(part) == self.next_cut:
            self._learn_chunk(pending)
        else:
            self._waiting = pending
            self.pending += len(part)

    def _learn_chunk(self, parts: tuple[Events, ...]) -> None:
        """Learn whole: the state, the pending events and the cached snapshot change together."""
        events = Events.joined(parts)
        with one_blas_thread():
            if self.state is None:
                state = flow.first(events.chunk(0), self.config)
            else:
                state = flow.push(self.state, events.chunk(len(self.state.support)), self.config)
        early, self._early = self._early, None
        self.state, self._waiting, self.pending = state, (), 0
        if early is not None:
            self.learn_pairs(*early)
        if self.config.memory == "landmarks":
            self._held = None  # of the chunk, only the new landmarks are held

    def flush(self) -> None:
        """Learn what waits, as a short chunk; so do the metrics with what waits for theirs."""
        if self._waiting:
            self._learn_chunk(self._waiting)
        if self.state is not None and self.state.metrics is not None:
            with one_blas_thread():
                metrics = learners.flushed(self.state.metrics, self.config.seed)
            if metrics is not self.state.metrics:
                self.state = replace(self.state, metrics=metrics)

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Every array and every number, by name; `restore` is the inverse."""
        header: dict[str, Any] = {
            "features": self.features,
            "ids_kind": self.ids_kind,
            "rejected": self.rejected,
            "labels": self.labels.known,
            "state": None,
        }
        arrays: dict[str, Array] = {}
        if self._early is not None:
            arrays["early.left"], arrays["early.right"], arrays["early.similar"] = self._early
        if self.state is not None:
            arrays, header["state"] = self.state.to_arrays()
        if self._waiting:
            waiting = Events.joined(self._waiting).to_arrays()
            arrays.update({"pending." + name: array for name, array in waiting.items()})
        return arrays, header

    def restore(self, arrays: dict[str, Array], header: dict[str, Any]) -> None:
        """Become what `to_arrays` took apart."""
        if header["features"] is not None:
            self.features = (tuple(header["features"][0]), bool(header["features"][1]))
        self.ids_kind = header["ids_kind"]
        self.rejected = header["rejected"]
        self.labels = Labels(header.get("labels", ()))
        if "early.similar" in arrays:
            self._early = (arrays["early.left"], arrays["early.right"], arrays["early.similar"])
        if header["state"] is not None:
            self.state = State.from_arrays(arrays, header["state"])
        waiting = {
            name.removeprefix("pending."): array
            for name, array in arrays.items()
            if name.startswith("pending.")
        }
        if waiting:
            self._waiting = (Events.from_arrays(waiting),)
            self.pending = len(self._waiting[0])


def _duplicate(keys: list[Any] | None, index: int, row: int) -> str:
    key = None if keys is None else keys[index]
    return (
        f"id {key!r} (row {row}) is held already: ids must be unique within the support; nothing "
        "was learned"
    )
