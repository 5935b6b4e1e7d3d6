"""Batches of producers into a run: each learned once, acknowledged once it is committed."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import astuple
from typing import Any, Self

from streamembed.data.features import Features
from streamembed.engine.call import Learned
from streamembed.errors import (
    InputError,
    ParameterError,
    StoppedError,
    StreamembedError,
    summarise_error,
)
from streamembed.runs.online_run import open_run
from streamembed.serving.latest_snapshot import ServedSnapshot
from streamembed.serving.messages import ID, LABEL, RefusedError

# How the ids of served batches begin: another loop over the run may have ids of its own.
BATCH_PREFIX = "served "


class BatchLearner:
    """Learns batches into a run, one at a time, for any number of threads; a context manager.

    A producer is the name of a token. Its rows are counted: a batch whose offset is not the next
    one is refused, unless it is the batch that was acknowledged there.

    Parameters
    ----------
    folder, checkpoint_every
        As in `streamembed.open_run`.

    Attributes
    ----------
    failure : BaseException or None
        Why the run has stopped to learn; only another process can open it again.

    Raises
    ------
    ParameterError, DamagedFileError, FileError
        As `streamembed.open_run`; or the run learns distances.
    """

    def __init__(self, folder: str, checkpoint_every: str | None) -> None:
        self._run = open_run(folder, checkpoint_every=checkpoint_every)
        if self._run.engine.learns_distances:
            self._run.close()
            raise ParameterError(
                f"RUN={folder} learns distances, which --learn does not support; serve it without"
            )
        self.failure: BaseException | None = None
        self.learns_labels = bool(self._run.engine.config.metrics)
        self._lock = threading.Lock()
        self._waiting = deque[str]()  # producers; threads append and pop without a lock
        self._next_offsets = self._load_offsets()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Commit and close the run, after the batch that is being learned."""
        with self._lock:
            try:
                self._run.close()
            except StreamembedError as error:
                self.failure = self.failure or error

    def _load_offsets(self) -> dict[str, int]:
        """The number of rows that each producer has sent, from the ids of the batches."""
        last: dict[str, int] = {}
        for name in self._run.batch_ids(BATCH_PREFIX):
            producer, _, at = name.removeprefix(BATCH_PREFIX).partition(" ")
            last[producer] = max(last.get(producer, 0), int(at))
        offsets = {}
        for producer, offset in last.items():
            learned = self._run.acknowledged(_format_batch_id(producer, offset))
            assert learned is not None
            offsets[producer] = offset + learned.accepted + len(learned.rejected)
        return offsets

    @property
    def features(self) -> Features | None:
        """Features of the run; None before its first event."""
        return self._run.engine.features

    @property
    def waiting(self) -> int:
        """Number of batches received and not yet acknowledged."""
        return len(self._waiting)

    def get_offset(self, producer: str) -> int:
        """The offset of a producer's next batch."""
        return self._next_offsets.get(producer, 0)

    def compute_snapshot(self, previous: ServedSnapshot | None) -> ServedSnapshot | None:
        """The snapshot of all committed events; ``previous`` where nothing was learned since."""
        with self._lock:
            if not self._run.ready:
                return previous
            snapshot = self._run.snapshot()
        if previous is not None and snapshot is previous.snapshot:
            return previous
        return ServedSnapshot(snapshot, time.time())

    def learn(
        self, producer: str, offset: int, batch: Any, features: Features
    ) -> tuple[Learned, dict[str, Any]]:
        """Learn and commit a checked batch, or acknowledge it again if it is learned already.

        Returns
        -------
        learned
            What was learned now: nothing of a batch that is acknowledged again.
        acknowledgement
            What the producer is told.

        Raises
        ------
        RefusedError
            The offset is not the next one, or the rows are not valid; nothing was learned.
        StoppedError
            The run has stopped to learn, see ``failure``.
        """
        self._waiting.append(producer)
        try:
            with self._lock:
                return self._learn(producer, offset, batch, features)
        finally:
            self._waiting.pop()

    def _learn(
        self, producer: str, offset: int, batch: Any, features: Features
    ) -> tuple[Learned, dict[str, Any]]:
        expected = self.get_offset(producer)
        name = _format_batch_id(producer, offset)
        is_repeated = offset < expected
        if offset > expected:
            raise RefusedError(
                "offset",
                f"offset {offset} leaves a gap: the run has {expected} rows of {producer!r}, so "
                f"the next batch must have offset {expected}",
            )
        if is_repeated and self._run.acknowledged(name) is None:
            raise _build_conflict_error(
                f"offset {offset} is inside a batch that was learned", producer, expected
            )
        if not batch.num_rows:
            raise RefusedError("invalid", "empty batch")
        columns = {column: batch.column(column) for column in batch.schema.names}
        ids, labels = columns.pop(ID, None), columns.pop(LABEL, None)
        points = batch.select(list(columns))
        chosen = None if self.features or features.ordered else features.names
        try:
            learned = self._run.learn(points, labels, ids, chosen, batch_id=name)
        except (InputError, ParameterError) as error:  # such as labels in a run without metrics
            if is_repeated:  # the acknowledged batch was valid: this is another
                raise _build_conflict_error(
                    f"offset {offset} was learned with other rows", producer, expected
                ) from None
            raise RefusedError("invalid", summarise_error(error)) from None
        except BaseException as error:
            self.failure = error
            raise StoppedError(f"the run has stopped to learn: {summarise_error(error)}") from error
        end = offset + batch.num_rows  # of this batch; a repeated one is not the producer's last
        acknowledgement = {
            "offset": offset,
            "next": end,
            "accepted": learned.accepted,
            "rejected": [astuple(row) for row in learned.rejected],
            "position": self._run.position,
            "repeated": is_repeated,
        }
        if is_repeated:
            return Learned(0, ()), acknowledgement
        self._next_offsets[producer] = end
        return learned, acknowledgement


def _build_conflict_error(fault: str, producer: str, expected: int) -> RefusedError:
    return RefusedError(
        "offset",
        f"{fault}: another producer with a token named {producer!r}, or an interrupted call, has "
        f"learned since; the run has {expected} rows of {producer!r}. Read client.offset, learn "
        "the missing rows, and give each producer its own token name",
    )


def _format_batch_id(producer: str, offset: int) -> str:
    return f"{BATCH_PREFIX}{producer} {offset}"
