"""The writer: the one process that learns. A reader process has checked its input."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import astuple
from multiprocessing.connection import Connection, Listener
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.data.features import NO_FEATURES
from streamembed.errors import InputError, ParameterError, summarise_error
from streamembed.runs.online_run import Run, open_run
from streamembed.serving.channel import receive_message, send_message
from streamembed.serving.counters import RequestCounters, classify_reason
from streamembed.serving.messages import RefusedError, convert_error

# How the ids of served batches begin: another loop over the run may have ids of its own.
BATCH_PREFIX = "served "


class IngestWriter:
    """Learns the batches that reader processes send over a socket into a run.

    Parameters
    ----------
    folder, checkpoint_every
        As in `streamembed.open_run`.
    path
        Path of the socket.
    fail
        Called with the reason when the run stops after an error: this process must end then.

    Raises
    ------
    ParameterError, DamagedFileError, FileError
        As `streamembed.open_run`.
    """

    def __init__(
        self, folder: str, path: str, checkpoint_every: str | None, fail: Callable[[str], None]
    ) -> None:
        self.counters = RequestCounters()
        self._fail = fail
        self._lock = threading.Lock()
        self._waiting = 0
        self._draining = False
        self._stack = ExitStack()
        if not os.path.exists(os.path.join(folder, "run.db")):
            raise ParameterError(
                f"RUN={folder} has no run; --learn needs one made with streamembed.open_run"
            )
        self._run: Run = self._stack.enter_context(
            open_run(folder, checkpoint_every=checkpoint_every)
        )
        if self._run.engine.learns_distances:
            raise ParameterError(
                f"RUN={folder} learns distances, which --learn does not support; serve it without"
            )
        self._next_offsets = self._load_offsets()
        with contextlib.suppress(FileNotFoundError):  # left by a writer that was killed
            os.unlink(path)
        self._listener = Listener(path, "AF_UNIX", backlog=64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _load_offsets(self) -> dict[str, int]:
        """The number of rows that each producer has sent, from the ids of the batches."""
        last: dict[str, int] = {}
        for name in self._run.batch_ids():
            if name.startswith(BATCH_PREFIX):
                producer, _, at = name.removeprefix(BATCH_PREFIX).partition(" ")
                last[producer] = max(last.get(producer, 0), int(at))
        offsets = {}
        for producer, offset in last.items():
            learned = self._run.acknowledged(_format_batch_id(producer, offset))
            assert learned is not None
            offsets[producer] = offset + learned.accepted + len(learned.rejected)
        return offsets

    @property
    def waiting(self) -> int:
        """Number of batches received and not yet acknowledged."""
        return self._waiting

    @property
    def position(self) -> int:
        """Number of acknowledged events."""
        return self._run.position

    def drain(self) -> None:
        """Learn the received batches, commit, and close the run."""
        with self._lock:
            self._draining = True
            self._stack.close()

    # ------------------------------------------------------------------ requests

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with connection, contextlib.suppress(OSError, EOFError):
            while True:
                header, data = receive_message(connection)
                try:
                    answer = self._answer_request(header, data)
                except RefusedError as refused:
                    answer = {"code": refused.code, "message": str(refused)}
                send_message(connection, answer)

    def _answer_request(self, header: dict[str, Any], data: bytes) -> dict[str, Any]:
        if header["do"] == "next":
            return {"next": self._next_offsets.get(header["who"], 0)}
        if header["do"] == "features":
            engine = self._run.engine
            features, labels = engine.features or NO_FEATURES, bool(engine.config.metrics)
            return {"names": features.names, "ordered": features.ordered, "labels": labels}
        self._waiting += 1
        try:
            with self._lock:
                return self._learn(header, data)
        finally:
            self._waiting -= 1

    def _learn(self, header: dict[str, Any], data: bytes) -> dict[str, Any]:
        """Learn and commit a batch, or acknowledge it again if it is learned already."""
        if self._draining:
            raise RefusedError("unavailable", "the server is shutting down")
        producer, offset, rows = header["who"], header["offset"], header["rows"]
        expected = self._next_offsets.get(producer, 0)
        name = _format_batch_id(producer, offset)
        repeated = offset < expected
        if offset > expected:
            raise RefusedError(
                "offset",
                f"offset {offset} leaves a gap: the run has {expected} rows of {producer!r}, so "
                f"the next batch must have offset {expected}",
            )
        if repeated and self._run.acknowledged(name) is None:
            raise _build_conflict_error(
                f"offset {offset} is inside a batch that was learned", producer, expected
            )
        if not rows:
            raise RefusedError("invalid", "empty batch")
        points = np.frombuffer(data, dtype=np.float64).reshape(rows, len(header["names"]))
        X: Any = points
        if not header["ordered"]:
            X = pa.table({feature: points[:, j] for j, feature in enumerate(header["names"])})
        first = None if self._run.engine.feature_names else header["names"]
        try:
            learned = self._run.learn(
                X,
                header["labels"],
                header["ids"],
                None if header["ordered"] else first,
                batch_id=name,
            )
        except (InputError, ParameterError) as error:  # such as labels in a run without metrics
            if repeated:  # the acknowledged batch was valid: this is another
                raise _build_conflict_error(
                    f"offset {offset} was learned with other rows", producer, expected
                ) from None
            raise RefusedError("invalid", summarise_error(error)) from None
        except BaseException as error:
            print(f"streamembed: {summarise_error(error)}", file=sys.stderr, flush=True)
            self._fail(type(error).__name__)
            raise convert_error(error) from None
        end = offset + rows  # of this batch; a repeated one is not the producer's last
        if not repeated:
            self._next_offsets[producer] = end
            self.counters.count_learned(learned.accepted)
            self.counters.count_rejected([classify_reason(row.reason) for row in learned.rejected])
        return {
            "offset": offset,
            "next": end,
            "accepted": learned.accepted,
            "rejected": [astuple(row) for row in learned.rejected],
            "position": self._run.position,
            "repeated": repeated,
        }


def _build_conflict_error(fault: str, producer: str, expected: int) -> RefusedError:
    return RefusedError(
        "offset",
        f"{fault}: another producer with a token named {producer!r}, or an interrupted call, has "
        f"learned since; the run has {expected} rows of {producer!r}. Read client.offset, learn "
        "the missing rows, and give each producer its own token name",
    )


def _format_batch_id(producer: str, offset: int) -> str:
    return f"{BATCH_PREFIX}{producer} {offset}"
