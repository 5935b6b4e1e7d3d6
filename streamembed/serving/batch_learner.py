"""Batches of producers into a run: each learned once, acknowledged once it is committed."""

from __future__ import annotations

import threading
import time
from dataclasses import astuple
from typing import Any, Self

from streamembed.errors import (
    InputError,
    ParameterError,
    StoppedError,
    StreamembedError,
    summarise_error,
)
from streamembed.runs.online_run import open_run
from streamembed.serving.latest_snapshot import ServedSnapshot
from streamembed.serving.messages import RefusedError

# How the ids of served batches begin: another loop over the run may have ids of its own. Behind it
# come the name of the producer, and the offsets of the batch and of the next one.
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
        self.engine, self.kept_columns = self._run.engine, self._run.kept_columns
        if self.engine.learns_distances:
            self._run.close()
            raise ParameterError(
                f"RUN={folder} learns distances, which --learn does not support; serve it without"
            )
        self.failure: BaseException | None = None
        self._lock = threading.Lock()
        self._offsets: dict[str, int] = {}
        for name in self._run.batch_ids(BATCH_PREFIX):
            producer, _, end = name.removeprefix(BATCH_PREFIX).split()
            self._offsets[producer] = max(int(end), self.get_offset(producer))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Commit and close the run, after the batch that is being learned."""
        with self._lock:
            try:
                self._run.close()
            except StreamembedError as error:
                self.failure = self.failure or error

    def get_offset(self, producer: str) -> int:
        """The offset of a producer's next batch: the number of rows that it has sent."""
        return self._offsets.get(producer, 0)

    def compute_snapshot(self, previous: ServedSnapshot | None) -> ServedSnapshot | None:
        """The snapshot of all committed events; ``previous`` where nothing was learned since."""
        with self._lock:
            if not self._run.ready:
                return previous
            snapshot = self._run.snapshot()
        if previous is not None and snapshot is previous.snapshot:
            return previous
        return ServedSnapshot(snapshot, time.time())

    def learn(self, producer: str, offset: int, batch: Any) -> dict[str, Any]:
        """Learn and commit a checked batch, or acknowledge it again if it is learned already.

        Returns
        -------
        The acknowledgement.

        Raises
        ------
        RefusedError
            The offset is not the next one, or the rows are not valid; nothing was learned.
        StoppedError
            The run has stopped to learn, see ``failure``.
        """
        if not batch.num_rows:
            raise RefusedError("invalid", "empty batch")
        end = offset + batch.num_rows
        name = f"{BATCH_PREFIX}{producer} {offset} {end}"
        with self._lock:
            expected = self.get_offset(producer)
            if offset != expected and self._run.acknowledged(name) is None:
                raise _build_conflict_error(producer, offset, expected)
            try:
                learned = self._run.learn(batch, batch_id=name)
            except (InputError, ParameterError) as error:
                if offset != expected:  # other rows than those that were acknowledged
                    raise _build_conflict_error(producer, offset, expected) from None
                raise RefusedError("invalid", summarise_error(error)) from None
            except BaseException as error:
                self.failure = error
                raise StoppedError(
                    f"the run has stopped to learn: {summarise_error(error)}"
                ) from error
            self._offsets[producer] = max(end, expected)
            return {
                "offset": offset,
                "next": end,  # of a repeated batch this is not the producer's next offset
                "accepted": learned.accepted,
                "rejected": [astuple(row) for row in learned.rejected],
                "position": self._run.position,
                "repeated": offset < expected,
            }


def _build_conflict_error(producer: str, offset: int, expected: int) -> RefusedError:
    return RefusedError(
        "offset",
        f"no batch of these rows was learned at offset {offset}, and the run has {expected} rows "
        f"of {producer!r}: another producer with a token of that name, or an interrupted call, has "
        "learned since. Read client.offset, learn the missing rows, and give each producer its "
        "own token name",
    )
