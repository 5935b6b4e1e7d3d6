"""The channel from a reader process to the writer process: a Unix socket, numbers and JSON.

A message is a length of four bytes, a JSON header of that length, and the bytes that the header's
``size`` counts. The writer answers each message with one of the same form before the next is sent.
"""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

import numpy as np

from streamembed.data.features import Features
from streamembed.numeric.arrays import Array, Floats
from streamembed.serving.messages import EventBatch, RefusedError

LENGTH_FORMAT = struct.Struct(">I")
# Bytes of a header, which holds the ids and labels of a batch.
MAX_HEADER = 1 << 28
# Seconds that a batch may wait for the writer and for the disk.
TIMEOUT = 120.0


def send_message(
    connection: socket.socket, header: dict[str, Any], data: Array | bytes = b""
) -> None:
    """Send one message; OSError where the other side is closed."""
    body = data.tobytes() if isinstance(data, np.ndarray) else data
    encoded = json.dumps({**header, "size": len(body)}).encode()
    connection.sendall(LENGTH_FORMAT.pack(len(encoded)) + encoded)
    if len(body):
        connection.sendall(body)


def receive_message(connection: socket.socket) -> tuple[dict[str, Any], bytearray]:
    """Receive one message; EOFError where the other side has closed the connection."""
    (length,) = LENGTH_FORMAT.unpack(_receive_exactly(connection, LENGTH_FORMAT.size))
    if length > MAX_HEADER:
        raise EOFError("the header is too long")
    header: dict[str, Any] = json.loads(_receive_exactly(connection, length))
    return header, _receive_exactly(connection, int(header["size"]))


def _receive_exactly(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, n_received = memoryview(data), 0
    while n_received < size:
        if not (received := connection.recv_into(view[n_received:])):
            raise EOFError("the connection was closed")
        n_received += received
    return data


class IngestClient:
    """A connection of a reader process to the writer process; a context manager.

    Raises
    ------
    RefusedError
        The writer cannot be reached, or refuses a request.
    """

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(TIMEOUT)
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise _build_unavailable_error() from None

    def fetch_features(self) -> Features | None:
        """The features of the run; None before its first event."""
        header = self._request({"do": "features"})
        return Features(tuple(header["names"]), header["ordered"]) if header["names"] else None

    def fetch_offset(self, producer: str) -> int:
        """The offset of a producer's next batch."""
        return int(self._request({"do": "next", "who": producer})["next"])

    def learn(
        self, producer: str, offset: int, events: EventBatch, features: Features
    ) -> dict[str, Any]:
        """Learn a batch; returns the acknowledgement, once it is committed."""
        header = {
            "do": "learn",
            "who": producer,
            "offset": offset,
            "rows": len(events.points),
            "names": features.names,
            "ordered": features.ordered,
            "ids": events.ids,
            "labels": events.labels,
        }
        return self._request(header, np.ascontiguousarray(events.points))

    def _request(self, header: dict[str, Any], data: Floats | bytes = b"") -> dict[str, Any]:
        try:
            send_message(self._socket, header, data)
            answer, _ = receive_message(self._socket)
        except (OSError, EOFError):
            raise _build_unavailable_error() from None
        if "code" in answer:
            raise RefusedError(answer["code"], answer["message"])
        return answer

    def __enter__(self) -> IngestClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def _build_unavailable_error() -> RefusedError:
    return RefusedError(
        "unavailable", "the writer is not available now; acknowledged events are safe: try again"
    )
