"""The engine: the one mutable thing. What a chunk does is in `streamembed.flow`, on one page."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from streamembed import archive, batch, flow, publish
from streamembed.batch import Batch, Rejected
from streamembed.chunk import Events
from streamembed.config import Config
from streamembed.core.arrays import Array, Floats, Ints
from streamembed.distances import Reach, RowCall
from streamembed.errors import (
    BadRowError,
    DuplicateIdError,
    FeatureError,
    InputError,
    NotReadyError,
    ParameterError,
    ResolutionWarning,
)
from streamembed.ids import HeldIds, kind_of
from streamembed.snapshot import Snapshot
from streamembed.state import State
from streamembed.threads import one_blas_thread

__all__ = ["Engine", "Learned"]

# Landmarks farther apart than this share of the bandwidth leave the kernel between them unseen:
# eigenvalues then move by more than two batch samples differ (docs/algorithms/landmarks.md).
COARSE = 0.5


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


class Engine:
    """A diffusion map that is kept up to date, chunk by chunk, in bounded memory.

    Parameters
    ----------
    method
        "diffusion_map".
    n_components
        Coordinates of the embedding, at least 1; the constant eigenvector is never one of them.
    memory
        "window": the last ``size`` events are the support; "landmarks": ``size`` points with masses
        that cover every event ever seen; "all": every event (small data).
    size
        Slots of the window, or landmarks.
    half_life
        Events after which a landmark's mass has halved, with memory "landmarks"; None: it stays.
    kernel
        "gaussian": exp(-d2 / bandwidth**2).
    bandwidth
        In scaled units, positive; "auto": the median distance to the 7th neighbour among the
        warm-up events (`streamembed.core.kernel.choose_bandwidth`).
    alpha
        Density correction in [0, 2]; 1 takes the sampling density out of the map, 0 leaves it in.
    diffusion_time
        t >= 0 of the coordinates lambda**t psi.
    rank
        Columns of the tracked factor, more than ``n_components``; "auto": 60, or more where
        ``n_components`` asks for it.
    tolerance
        Largest residual of a certified snapshot, relative to lambda_1; None: the plain view,
        fastest, with an estimated certificate that claims nothing.
    chunk_size
        Events per update. Chunks are cut at multiples of it in the stream, never by the call.
    warm_up
        Events before the first snapshot; None: max(50, 5 n_components, chunk_size), or ``size``
        if that is smaller.
    scaling
        "standard": centre and scale features by mean and deviation of the warm-up, then fixed;
        None: the kernel sees the features as they are. Distances are never scaled.
    on_bad_row
        "raise": a call with a bad row is refused whole; "skip": the row is set aside and reported.
    seed
        Of everything random, together with the stream position.

    Raises
    ------
    ParameterError
        A parameter cannot have that value, alone or beside the others.

    Examples
    --------
    >>> import numpy as np
    >>> engine = Engine(n_components=2, size=100, seed=0)
    >>> angle = np.linspace(0, 6.28, 120)
    >>> engine.learn(np.column_stack([np.cos(angle), np.sin(angle)])).accepted
    120
    >>> snapshot = engine.snapshot()
    >>> snapshot.coordinates.shape, snapshot.certificate.met
    ((100, 2), True)
    """

    def __init__(
        self,
        method: str = "diffusion_map",
        n_components: int = 2,
        memory: str = "window",
        size: int = 2000,
        half_life: float | None = None,
        kernel: str = "gaussian",
        bandwidth: float | str = "auto",
        alpha: float = 1.0,
        diffusion_time: float = 1.0,
        rank: int | str = "auto",
        tolerance: float | None = 3e-3,
        chunk_size: int = 10,
        warm_up: int | None = None,
        scaling: str | None = "standard",
        on_bad_row: str = "raise",
        seed: int = 0,
    ) -> None:
        self.config = Config(
            method=method,
            n_components=n_components,
            memory=memory,
            size=size,
            half_life=half_life,
            kernel=kernel,
            bandwidth=bandwidth,
            alpha=alpha,
            diffusion_time=diffusion_time,
            rank=rank,
            tolerance=tolerance,
            chunk_size=chunk_size,
            warm_up=warm_up,
            scaling=scaling,
            on_bad_row=on_bad_row,
            seed=seed,
        )
        self._state: State | None = None
        self._pending: tuple[Events, ...] = ()
        self._n_pending = 0
        # names, and whether they are places; no names where distances are learned
        self._features: tuple[tuple[str, ...], bool] | None = None
        self._ids_kind: str | None = None
        self._n_rejected = 0
        self._snapshot: Snapshot | None = None
        self._held: HeldIds | None = None
        self._warned = False

    # ------------------------------------------------------------------ reading

    @property
    def ready(self) -> bool:
        """True from the end of the warm-up on: `snapshot` then works."""
        return self._state is not None

    @property
    def position(self) -> int:
        """Events accepted so far: the learned ones and those that wait for a whole chunk."""
        return self._learned + self._n_pending

    @property
    def pending(self) -> int:
        """Accepted events that wait for their chunk to be whole."""
        return self._n_pending

    @property
    def rejected(self) -> int:
        """Rows set aside since the first event."""
        return self._n_rejected

    @property
    def refreshes(self) -> int:
        """Refreshes of the factor that the stream asked for, since the first event."""
        return 0 if self._state is None else self._state.counts.refreshes

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features in the engine's order; empty before the first batch, and for distances."""
        return () if self._features is None else self._features[0]

    @property
    def learns_distances(self) -> bool | None:
        """Whether the first call brought distances, or points; None before it."""
        return None if self._features is None else self._features == _NO_FEATURES

    @property
    def names_things(self) -> bool | None:
        """Whether events came with ids of their own; None before the first."""
        return None if self._ids_kind is None else self._ids_kind != "positions"

    @property
    def support_ids(self) -> Array:
        """Ids of the support, oldest first, shape (N,); empty before the warm-up ends."""
        if self._state is None:
            return np.zeros(0, dtype=np.int64)
        return self._state.support.ids[self._state.support.oldest_first]

    @property
    def support_positions(self) -> Ints:
        """Stream positions of the support, in the order of ``support_ids``, shape (N,)."""
        if self._state is None:
            return np.zeros(0, dtype=np.int64)
        return np.sort(self._state.support.births)

    @property
    def row_ids(self) -> Array:
        """Ids of the things that the next distance row must hold, in its order, shape (L,)."""
        parts = [self.support_ids, *(part.ids for part in self._pending)]
        ids = (
            np.concatenate(parts) if self._state is not None else np.concatenate(parts[1:] or parts)
        )
        return ids if self.config.window is None else ids[-self.config.window :]

    def snapshot(self) -> Snapshot:
        """The embedding of the support as of the last whole chunk, with its certificate.

        The same object until the state changes. Asking changes nothing.

        Raises
        ------
        NotReadyError
            Before the warm-up ends.

        Warns
        -----
        ResolutionWarning
            Once, where landmarks are more than half a bandwidth apart.
        """
        if self._state is None:
            raise NotReadyError(
                f"the warm-up takes {self.config.warm_up_events} events and {self.position} have "
                "come: learn more of them, or start the engine with a smaller warm_up"
            )
        if self._snapshot is None:
            with one_blas_thread():
                columns = publish.published(self._state, self.config)
                self._snapshot = Snapshot.of(
                    self._state, columns, self.config, *(self._features or _NO_FEATURES)
                )
            self._warn(self._snapshot.resolution)
        return self._snapshot

    def _warn(self, resolution: float) -> None:
        if resolution > COARSE and not self._warned:
            self._warned = True
            warnings.warn(
                f"the {self.config.size} landmarks are {resolution:.2f} bandwidths apart, more "
                f"than {COARSE}: the map is coarser than its kernel; take more landmarks (size=) "
                "or a larger bandwidth",
                ResolutionWarning,
                stacklevel=3,
            )

    # ------------------------------------------------------------------ learning

    def learn(self, X: Any, y: Any = None, ids: Any = None) -> Learned:
        """Take more events of the stream; every whole chunk is learned at once.

        Parameters
        ----------
        X
            Points, shape (n, d): ndarray, Arrow record batch or table, RecordBatchReader or any
            object with an Arrow capsule, any eager frame that narwhals knows, list of dicts. A
            reader is consumed batch by batch, each batch a call of its own.
        y
            Labels serve metrics that learn from them; this engine has none, so it must be None.
        ids
            One whole number or string a row; default: the stream positions. Given or not is
            settled by the first call.

        Returns
        -------
        Learned

        Raises
        ------
        FeatureError
            The features are not those of the first call, or not numeric.
        BadRowError, DuplicateIdError
            With ``on_bad_row="raise"``; nothing of the call was learned.
        """
        if y is not None:
            raise ParameterError(
                "y was given, but no metric of this engine learns from labels; leave it out"
            )
        if isinstance(X, pa.RecordBatchReader):
            if ids is not None:
                raise ParameterError(
                    "ids cannot be given for a reader: learn its batches one by one"
                )
            parts = [self.learn(part) for part in X]
            rejected = tuple(row for part in parts for row in part.rejected)
            return Learned(sum(part.accepted for part in parts), rejected)
        if isinstance(X, list) and not X:
            return Learned(0, ())
        self._must_learn(distances=False)
        names, ordered = self._features or (None, False)
        read = batch.read(X, ids, names, ordered, self.config.on_bad_row)
        if read.ordered and names is not None and not ordered:
            raise FeatureError(
                f"X has no feature names, and this engine was started with {list(names)}: pass a "
                "frame or dicts, so that columns cannot be mixed up"
            )
        return self.admit(read)

    def learn_distances(self, rows: Any, ids: Any = None) -> Learned:
        """Take more things of which only the distances to those before them are known.

        Parameters
        ----------
        rows
            One row a thing: unsquared distances, oldest first, to the previous min(t, ``size``)
            things of a window, t the things before it; to all t with memory "all". With memory
            "landmarks": to ``support_ids`` and then those that came after the last whole chunk, or
            to all t. Row 0 is empty. Rows are ragged sequences, an Arrow column of lists, or one
            matrix (n, m + n) of distances to the m things before and to one another. A row counts
            every earlier row of its call; it may end with its own distance, 0.
        ids
            As in `learn`.

        Returns
        -------
        Learned

        Raises
        ------
        InputError
            This engine learns points; rows are not rows.
        BadRowError
            With ``on_bad_row="raise"``: a wrong length, a distance that is negative, NaN, infinite
            or not symmetric, a distance to itself that is not 0; nothing of the call was learned.
        DuplicateIdError
            With ``on_bad_row="raise"``; nothing of the call was learned.

        Examples
        --------
        >>> import numpy as np
        >>> words = np.array([[0.0, 1, 2], [1, 0, 1], [2, 1, 0]])
        >>> engine = Engine(n_components=1, size=10, warm_up=3)
        >>> engine.learn_distances(words, ids=["cat", "cut", "cup"]).accepted
        3
        >>> engine.learn_distances([[2, 1, 1]], ids=["cap"]).accepted
        1
        """
        return self.admit_distances(rows, ids)

    def admit_distances(self, rows: Any, ids: Any = None, on_bad_row: str | None = None) -> Learned:
        """`learn_distances` with a choice of what becomes of rows that cannot be learned."""
        policy = on_bad_row or self.config.on_bad_row
        call = RowCall(rows, ids)
        if len(call) == 0:
            return Learned(0, ())
        self._must_learn(distances=True)
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
                self._features = self._features or _NO_FEATURES
                self._ids_kind = self._ids_kind or kind_of(one)
                row = self._held_part(row)
                self._accept(Events(np.zeros((1, 0)), self._named(one, 1), (row,)))
        self._n_rejected += len(rejected)
        return Learned(len(call) - len(rejected), tuple(rejected))

    def _must_learn(self, distances: bool) -> None:
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
        if self._state is None or self.config.memory == "all" or position >= self._next_cut:
            return Reach((position,), f"one to each of the {position} things before it")
        held, waiting = len(self._state.support), self._n_pending + ahead
        told = f"one to each of the {held} landmarks of support_ids, and to {waiting} after them"
        return Reach((held + waiting, position), told)

    def _held_part(self, row: Floats) -> Floats:
        """Of a row to all things ever learned, the distances to landmarks and to what waits."""
        if self.config.memory == "landmarks" and len(row) == self.position:
            return np.concatenate([row[self.support_positions], row[self._learned :]])
        return row

    def admit(self, rows: Batch, on_bad_row: str | None = None) -> Learned:
        """Take a batch that `streamembed.batch` has checked; `learn` is this after reading.

        Parameters
        ----------
        on_bad_row
            What becomes of ids that are held already; default: the engine's own parameter.
        """
        policy = on_bad_row or self.config.on_bad_row
        self._must_learn(distances=False)
        n = len(rows.points)
        if n:
            self._check_kind(rows.ids)
        keys = None if rows.ids is None else rows.ids.tolist()
        repeated: list[int] = []
        with self._whole(keys, rows.kept, policy):
            start = 0
            while start < n:
                stop = min(n, start + self._next_cut - self.position)
                chosen = np.arange(start, stop)
                if keys is not None:
                    again = self._ids_held().sift(keys[start:stop], self.position)
                    if again and policy == "raise":
                        index = start + again[0]
                        raise DuplicateIdError(_duplicate(keys, index, int(rows.kept[index])))
                    repeated += [start + i for i in again]
                    chosen = np.delete(chosen, again)
                if len(chosen):
                    self._features = self._features or (rows.names, rows.ordered)
                    self._ids_kind = self._ids_kind or kind_of(rows.ids)
                    ids = None if rows.ids is None else rows.ids[chosen]
                    self._accept(Events(rows.points[chosen], self._named(ids, len(chosen))))
                start = stop
        reasons = [Rejected(int(rows.kept[i]), keys and keys[i], "duplicate id") for i in repeated]
        rejected = tuple(sorted((*rows.rejected, *reasons), key=lambda row: row.index))
        self._n_rejected += len(rejected)
        return Learned(n - len(repeated), rejected)

    def flush(self) -> None:
        """Learn the events that wait, as a short chunk; this is an event of the stream itself.

        Raises
        ------
        NotReadyError
            Before the warm-up ends: a warm-up is never cut short.
        """
        if self._state is None:
            raise NotReadyError(
                f"the warm-up takes {self.config.warm_up_events} events and {self.position} have "
                "come: there is nothing to flush into"
            )
        if self._pending:
            self._learn_chunk(self._pending)

    def rescale(self) -> None:
        """Estimate scaling and bandwidth anew from the support, and start the map and axes again.

        An event of the stream: kernel rows, factor and frame are rebuilt, and the frame's epoch
        goes up by one. Scaling and bandwidth are otherwise those of the warm-up, for ever.

        Raises
        ------
        NotReadyError
            Before the warm-up ends.
        """
        if self._state is None:
            raise NotReadyError("the warm-up is not over: there is nothing to rescale")
        with one_blas_thread():
            rebuilt = flow.rescaled(self._state, self.config)
        self._state, self._snapshot = rebuilt, None

    @property
    def _learned(self) -> int:
        return 0 if self._state is None else self._state.position

    @property
    def _next_cut(self) -> int:
        """The stream position at which the chunk that is filling now ends."""
        if self._state is None:
            return self.config.warm_up_events
        return (self._state.position // self.config.chunk_size + 1) * self.config.chunk_size

    def _named(self, ids: Array | None, count: int) -> Array:
        """The ids, or the stream positions where there are none."""
        if ids is not None:
            return ids
        return np.arange(self.position, self.position + count, dtype=np.int64)

    def _check_kind(self, ids: Array | None) -> None:
        kind = kind_of(ids)
        if self._ids_kind is not None and kind != self._ids_kind:
            raise DuplicateIdError(
                f"ids are {kind} in this call and were {self._ids_kind} in the first: they cannot "
                "be told apart from one another; keep to one kind"
            )

    def _ids_held(self) -> HeldIds:
        """Ids of every event that the support holds or that waits."""
        if self._held is None:
            held: list[tuple[Any, int]] = []
            if self._state is not None:
                support = self._state.support
                held = list(zip(support.ids.tolist(), support.births.tolist(), strict=True))
            waiting = [key for part in self._pending for key in part.ids.tolist()]
            held += zip(waiting, range(self._learned, self.position), strict=True)
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
            before = {**vars(self), "_state": copy.deepcopy(self._state)}
            before["_held"] = self._ids_held().copy()
            try:
                yield
            except DuplicateIdError:
                vars(self).update(before)
                raise

    def _accept(self, part: Events) -> None:
        """Events of one chunk join the stream; a chunk that is whole is learned."""
        pending = (*self._pending, part)
        if self.position + len(part) == self._next_cut:
            self._learn_chunk(pending)
        else:
            self._pending = pending
            self._n_pending += len(part)

    def _learn_chunk(self, parts: tuple[Events, ...]) -> None:
        """Learn whole: the state, the pending events and the cached snapshot change together."""
        events = Events.joined(parts)
        with one_blas_thread():
            if self._state is None:
                state = flow.first(events.chunk(0), self.config)
            else:
                state = flow.push(self._state, events.chunk(len(self._state.support)), self.config)
        self._state, self._pending, self._n_pending, self._snapshot = state, (), 0, None
        if self.config.memory == "landmarks":
            self._held = None  # of the chunk, only the new landmarks are held

    # ------------------------------------------------------------------ saving

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything that learning needs to go on exactly where it stopped: Arrow IPC."""
        arrays, header = self._dump()
        archive.write_table(path, archive.table_of(arrays), "engine", header)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The engine that `save` wrote, bit for bit.

        Raises
        ------
        DamagedFileError
            The bytes are not what was written.
        """
        table, header = archive.read_table(path, "engine")
        engine = cls(**header["config"])
        engine._restore(archive.unpacked(table), header)
        return engine

    def __getstate__(self) -> dict[str, Any]:
        arrays, header = self._dump()
        return {"arrays": arrays, "header": header}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__init__(**saved["header"]["config"])  # type: ignore[misc]
        self._restore(saved["arrays"], saved["header"])

    def _dump(self) -> tuple[dict[str, Array], dict[str, Any]]:
        header: dict[str, Any] = {
            "config": self.config.as_dict(),
            "features": self._features,
            "ids_kind": self._ids_kind,
            "rejected": self._n_rejected,
            "state": None,
        }
        arrays: dict[str, Array] = {}
        if self._state is not None:
            arrays, header["state"] = self._state.to_arrays()
        if self._pending:
            waiting = Events.joined(self._pending).to_arrays()
            arrays.update({"pending." + name: array for name, array in waiting.items()})
        return arrays, header

    def _restore(self, arrays: dict[str, Array], header: dict[str, Any]) -> None:
        if header["features"] is not None:
            self._features = (tuple(header["features"][0]), bool(header["features"][1]))
        self._ids_kind = header["ids_kind"]
        self._n_rejected = header["rejected"]
        if header["state"] is not None:
            self._state = State.from_arrays(arrays, header["state"])
        waiting = {
            name.removeprefix("pending."): array
            for name, array in arrays.items()
            if name.startswith("pending.")
        }
        if waiting:
            self._pending = (Events.from_arrays(waiting),)
            self._n_pending = len(self._pending[0])


_NO_FEATURES: tuple[tuple[str, ...], bool] = ((), True)


def _duplicate(keys: list[Any] | None, index: int, row: int) -> str:
    key = None if keys is None else keys[index]
    return (
        f"id {key!r} (row {row}) is held already: ids must be unique within the support; nothing "
        "was learned"
    )
