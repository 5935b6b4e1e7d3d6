"""How a reader hands events to the writer: one socket of the system, numbers and JSON, no pickle.

A message is a length of four bytes, a header of JSON of that length, and as many bytes as the
header's ``size`` says. The writer answers each with one of the same kind, before the next is sent.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

import numpy as np

from streamembed.numeric.arrays import Array, Floats
from streamembed.serving.messages import Features, Put, RefusedError

__all__ = ["LARGEST", "Writer", "receive", "send"]

LENGTH = struct.Struct(">I")
# Bytes of a header, which has the ids and labels of a batch.
LARGEST = 1 << 28
# Seconds that a batch may wait for its turn, and for the disk.
PATIENCE = 120.0


def send(connection: socket.socket, told: dict[str, Any], data: Array | bytes = b"") -> None:
    """One message; OSError where nobody listens."""
    body = data.tobytes() if isinstance(data, np.ndarray) else data
    header = json.dumps({**told, "size": len(body)}).encode()
    connection.sendall(LENGTH.pack(len(header)) + header)
    if len(body):
        connection.sendall(body)


def receive(connection: socket.socket) -> tuple[dict[str, Any], bytearray]:
    """One message; EOFError where none comes any more."""
    (length,) = LENGTH.unpack(_exactly(connection, LENGTH.size))
    if length > LARGEST:
        raise EOFError("a header is too long")
    told: dict[str, Any] = json.loads(_exactly(connection, length))
    return told, _exactly(connection, int(told["size"]))


def _exactly(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        if not (got := connection.recv_into(view[done:])):
            raise EOFError("the other side has gone")
        done += got
    return data


class Writer:
    """The writer, as a reader knows it: a connection of its own, closed when the block ends.

    Raises
    ------
    RefusedError
        It is not there now, or says no.
    """

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(PATIENCE)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise _gone() from None

    def features(self) -> Features | None:
        """Those of the run; None before its first event."""
        told = self._ask({"do": "features"})
        return Features(tuple(told["names"]), told["ordered"]) if told["names"] else None

    def next(self, who: str) -> int:
        """The offset of the next batch of a producer."""
        return int(self._ask({"do": "next", "who": who})["next"])

    def learn(self, who: str, offset: int, put: Put, features: Features) -> dict[str, Any]:
        """What came of it, once it is committed."""
        told = {
            "do": "learn",
            "who": who,
            "offset": offset,
            "rows": len(put.points),
            "names": features.names,
            "ordered": features.ordered,
            "ids": put.ids,
            "labels": put.labels,
        }
        return self._ask(told, np.ascontiguousarray(put.points))

    def _ask(self, told: dict[str, Any], data: Floats | bytes = b"") -> dict[str, Any]:
        try:
            send(self._socket, told, data)
            answer, _ = receive(self._socket)
        except (OSError, EOFError):
            raise _gone() from None
        if "code" in answer:
            raise RefusedError(answer["code"], answer["message"])
        return answer

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def _gone() -> RefusedError:
    return RefusedError(
        "unavailable", "nothing is learned now; what was acknowledged is safe: try again"
    )
