"""The engine: the one mutable thing. What a chunk does is in `streamembed.flow`, on one page."""

from __future__ import annotations

import os
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from streamembed import archive, batch, flow, publish
from streamembed.batch import Batch, Rejected
from streamembed.config import Config
from streamembed.core.arrays import Array, Floats
from streamembed.errors import (
    DuplicateIdError,
    FeatureError,
    NotReadyError,
    ParameterError,
)
from streamembed.snapshot import Snapshot
from streamembed.state import State
from streamembed.threads import one_blas_thread

__all__ = ["Engine", "Learned"]


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
        "window": the last ``size`` events are the support; "all": every event (small data).
    size
        Slots of the window.
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
        Events before the first snapshot; None: max(50, 5 n_components, chunk_size), or the window
        if that is smaller.
    scaling
        "standard": centre and scale features by mean and deviation of the warm-up, then fixed;
        None: the kernel sees the features as they are.
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
        self._pending: tuple[tuple[Floats, Array], ...] = ()
        self._n_pending = 0
        self._features: tuple[tuple[str, ...], bool] | None = None
        self._ids_kind: str | None = None
        self._n_rejected = 0
        self._snapshot: Snapshot | None = None
        self._seen: dict[Hashable, int] | None = None

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
        """The features in the engine's order; empty before the first batch."""
        return () if self._features is None else self._features[0]

    @property
    def support_ids(self) -> Array:
        """Ids of the support, oldest first, shape (N,); empty before the warm-up ends."""
        if self._state is None:
            return np.zeros(0, dtype=np.int64)
        return self._state.support.ids[self._state.support.oldest_first]

    def snapshot(self) -> Snapshot:
        """The embedding of the support as of the last whole chunk, with its certificate.

        The same object until the state changes. Asking changes nothing.

        Raises
        ------
        NotReadyError
            Before the warm-up ends.
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
                    self._state, columns, self.config, *(self._features or ((), True))
                )
        return self._snapshot

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
        names, ordered = self._features or (None, False)
        read = batch.read(X, ids, names, ordered, self.config.on_bad_row)
        if read.ordered and names is not None and not ordered:
            raise FeatureError(
                f"X has no feature names, and this engine was started with {list(names)}: pass a "
                "frame or dicts, so that columns cannot be mixed up"
            )
        return self.admit(read)

    def admit(self, rows: Batch, on_bad_row: str | None = None) -> Learned:
        """Take a batch that `streamembed.batch` has checked; `learn` is this after reading.

        Parameters
        ----------
        on_bad_row
            What becomes of ids that are held already; default: the engine's own parameter.
        """
        rows = self._without_duplicates(rows, on_bad_row or self.config.on_bad_row)
        self._n_rejected += len(rows.rejected)
        if len(rows.points) == 0:
            return Learned(0, rows.rejected)
        self._features = self._features or (rows.names, rows.ordered)
        first = self.position
        if rows.ids is None:
            ids: Array = np.arange(first, first + len(rows.points), dtype=np.int64)
        else:
            ids = rows.ids
        self._ids_kind = self._ids_kind or _kind(rows.ids)
        start = 0
        while start < len(rows.points):
            stop = min(len(rows.points), start + self._next_cut - self.position)
            part = (rows.points[start:stop].copy(), ids[start:stop].copy())
            pending = (*self._pending, part)
            if self.position + stop - start == self._next_cut:
                self._learn_chunk(pending)
            else:
                self._pending = pending
                self._n_pending += stop - start
            start = stop
        return Learned(len(rows.points), rows.rejected)

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

    def _without_duplicates(self, rows: Batch, on_bad_row: str) -> Batch:
        """Refuse, or set aside, ids that one of the last N accepted events has."""
        kind = _kind(rows.ids)
        if self._ids_kind is not None and len(rows.points) and kind != self._ids_kind:
            raise DuplicateIdError(
                f"ids are {kind} in this call and were {self._ids_kind} in the first: they cannot "
                "be told apart from one another; keep to one kind"
            )
        if rows.ids is None:
            return rows
        if self._seen is None:
            self._seen = self._held_ids()
        keys = rows.ids.tolist()
        repeated = _repeated(keys, dict(self._seen), self.position, self.config.window)
        if repeated and on_bad_row == "raise":
            raise DuplicateIdError(
                f"id {keys[repeated[0]]!r} (row {int(rows.kept[repeated[0]])}) is held already: "
                "ids must be unique within the support; nothing was learned"
            )
        _repeated(keys, self._seen, self.position, self.config.window)
        if not repeated:
            return rows
        stay = np.setdiff1d(np.arange(len(keys)), repeated)
        reasons = [Rejected(int(rows.kept[i]), keys[i], "duplicate id") for i in repeated]
        rejected = tuple(sorted((*rows.rejected, *reasons), key=lambda row: row.index))
        return Batch(
            rows.points[stay], rows.names, rows.ordered, rows.ids[stay], rows.kept[stay], rejected
        )

    def _held_ids(self) -> dict[Hashable, int]:
        """Id and stream position of every event that the support holds or that waits."""
        held: dict[Hashable, int] = {}
        if self._state is not None:
            births = self._state.support.births.tolist()
            held.update(zip(self._state.support.ids.tolist(), births, strict=True))
        waiting = [key for _, ids in self._pending for key in ids.tolist()]
        held.update(zip(waiting, range(self._learned, self.position), strict=True))
        return held

    def _learn_chunk(self, parts: tuple[tuple[Floats, Array], ...]) -> None:
        """Learn whole: the state, the pending events and the cached snapshot change together."""
        points = np.concatenate([part for part, _ in parts])
        ids = np.concatenate([part for _, part in parts])
        with one_blas_thread():
            if self._state is None:
                state = flow.first(points, ids, self.config)
            else:
                state = flow.push(self._state, points, ids, self.config)
        self._state, self._pending, self._n_pending, self._snapshot = state, (), 0, None

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
            arrays["pending.points"] = np.concatenate([part for part, _ in self._pending])
            arrays["pending.ids"] = np.concatenate([part for _, part in self._pending])
        return arrays, header

    def _restore(self, arrays: dict[str, Array], header: dict[str, Any]) -> None:
        if header["features"] is not None:
            self._features = (tuple(header["features"][0]), bool(header["features"][1]))
        self._ids_kind = header["ids_kind"]
        self._n_rejected = header["rejected"]
        if header["state"] is not None:
            self._state = State.from_arrays(arrays, header["state"])
        if "pending.points" in arrays:
            self._pending = ((arrays["pending.points"], arrays["pending.ids"]),)
            self._n_pending = len(arrays["pending.points"])


def _kind(ids: Array | None) -> str:
    """How events are told apart: "positions", "numbers" or "strings"."""
    if ids is None:
        return "positions"
    return "numbers" if ids.dtype.kind == "i" else "strings"


def _repeated(
    keys: list[Hashable], seen: dict[Hashable, int], position: int, window: int | None
) -> list[int]:
    """Rows whose id is among the last ``window`` accepted; ``seen`` is brought up to date."""
    repeated = []
    for i, key in enumerate(keys):
        last = seen.get(key)
        if last is not None and (window is None or position - last < window):
            repeated.append(i)
            continue
        seen[key] = position
        position += 1
    if window is not None and len(seen) > 4 * window + 64:
        for key in [key for key, last in seen.items() if position - last >= window]:
            del seen[key]
    return repeated
