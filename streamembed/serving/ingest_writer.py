"""The writer: the one process that learns. What it is given was checked by another process."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.errors import InputError, ParameterError, said
from streamembed.runs.calls import plain
from streamembed.runs.session import Run, open_run
from streamembed.serving.counters import Counts, reason_of
from streamembed.serving.ingest import receive, send
from streamembed.serving.messages import RefusedError, as_refused

__all__ = ["Learning"]

# Before the name of every batch that was served: another loop over the run may have its own.
BEGINS = "served "


class Learning:
    """A run that is learned into, by whoever connects to a socket.

    Parameters
    ----------
    folder
        Of the run, which `streamembed.open_run` made.
    path
        Of the socket.
    checkpoint_every
        As of `streamembed.open_run`.
    fail
        Called when the run refuses to go on, with why: this process is to end then.

    Raises
    ------
    ParameterError, DamagedFileError, FileError
        As `streamembed.open_run`.
    """

    def __init__(
        self, folder: str, path: str, checkpoint_every: str | None, fail: Callable[[str], None]
    ) -> None:
        self.counts = Counts()
        self._fail = fail
        self._lock = threading.Lock()
        self._waiting = 0
        self._draining = False
        self._stack = ExitStack()
        if not os.path.exists(os.path.join(folder, "run.db")):
            raise ParameterError(
                f"RUN={folder} holds no run: make one with streamembed.open_run, which says how it "
                "learns"
            )
        self._run: Run = self._stack.enter_context(
            open_run(folder, checkpoint_every=checkpoint_every)
        )
        if self._run.engine.learns_distances:
            raise ParameterError(
                f"RUN={folder} learns distances, which cannot be put: serve it without --learn"
            )
        self._next = self._offsets()
        self._door = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(FileNotFoundError):  # of a writer that died
            os.unlink(path)
        self._door.bind(path)
        self._door.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def _offsets(self) -> dict[str, int]:
        """Rows that each producer has put."""
        last: dict[str, int] = {}
        for name in self._run.batch_ids():
            if name.startswith(BEGINS):
                who, _, at = name.removeprefix(BEGINS).partition(" ")
                last[who] = max(last.get(who, 0), int(at))
        found = {}
        for who, offset in last.items():
            learned = self._run.acknowledged(_name(who, offset))
            assert learned is not None
            found[who] = offset + learned.accepted + len(learned.rejected)
        return found

    @property
    def waiting(self) -> int:
        """Batches that have come and are not acknowledged."""
        return self._waiting

    @property
    def position(self) -> int:
        """Events that were acknowledged."""
        return self._run.position

    def drain(self) -> None:
        """Learn what has come, commit, and end."""
        with self._lock:
            self._draining = True
            self._stack.close()

    # ------------------------------------------------------------------ asked

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Answer one reader's stream until it ends."""
        with connection, contextlib.suppress(OSError, EOFError):
            while True:
                told, data = receive(connection)
                try:
                    answer = self._answer(told, data)
                except RefusedError as refused:
                    answer = {"code": refused.code, "message": str(refused)}
                send(connection, answer)

    def _answer(self, told: dict[str, Any], data: bytearray) -> dict[str, Any]:
        if told["do"] == "next":
            return {"next": self._next.get(told["who"], 0)}
        if told["do"] == "features":
            engine = self._run.engine
            ordered = True
            if engine.feature_names:
                ordered = engine._features_of_points()[1]
            return {"names": engine.feature_names, "ordered": ordered}
        self._waiting += 1
        try:
            with self._lock:
                return self._learn(told, data)
        finally:
            self._waiting -= 1

    def _learn(self, told: dict[str, Any], data: bytearray) -> dict[str, Any]:
        """One batch: learned and committed, or known already, or refused."""
        if self._draining:
            raise RefusedError("unavailable", "this server is about to end")
        who, offset, rows = told["who"], told["offset"], told["rows"]
        expected, name = self._next.get(who, 0), _name(told["who"], told["offset"])
        repeated = offset < expected
        if offset > expected:
            raise RefusedError(
                "offset",
                f"offset {offset} leaves a gap: {expected} rows of {who!r} are here, so the next "
                f"batch must have offset {expected}",
            )
        if repeated and self._run.acknowledged(name) is None:
            raise _overtaken(f"offset {offset} is amid a batch that was learned", who, expected)
        if not rows:
            raise RefusedError("invalid", "a batch must have rows")
        points = np.frombuffer(data, dtype=np.float64).reshape(rows, len(told["names"]))
        X: Any = points
        if not told["ordered"]:
            X = pa.table({feature: points[:, j] for j, feature in enumerate(told["names"])})
        first = None if self._run.engine.feature_names else told["names"]
        try:
            learned = self._run.learn(
                X,
                told["labels"],
                told["ids"],
                None if told["ordered"] else first,
                batch_id=name,
            )
        except (InputError, ParameterError) as error:  # such as labels that no metric learns from
            if repeated:  # the batch that was acknowledged there was in order: this is another
                raise _overtaken(
                    f"other rows were learned at offset {offset}", who, expected
                ) from None
            raise RefusedError("invalid", said(error)) from None
        except BaseException as error:
            print(f"streamembed: {said(error)}", file=sys.stderr, flush=True)
            self._fail(type(error).__name__)
            raise as_refused(error) from None
        behind = offset + rows  # of this batch: another producer may be further on
        if not repeated:
            self._next[who] = behind
            self.counts.learned(learned.accepted)
            self.counts.rejected([reason_of(row.reason) for row in learned.rejected])
        return {
            "offset": offset,
            "next": behind,
            "accepted": learned.accepted,
            "rejected": [[row.index, plain(row.id), row.reason] for row in learned.rejected],
            "position": self._run.position,
            "repeated": repeated,
        }


def _overtaken(what: str, who: str, expected: int) -> RefusedError:
    return RefusedError(
        "offset",
        f"{what}: another producer with a token of {who!r} has learned meanwhile, or a call that "
        f"broke off; {expected} rows of {who!r} are here. Read the offset again (client.offset), "
        "learn what is not in yet, and give every producer a name of its own",
    )


def _name(who: str, offset: int) -> str:
    """What a run calls a producer's batch."""
    return f"{BEGINS}{who} {offset}"
