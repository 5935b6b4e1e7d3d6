"""The requests of a reader process to the writer process, over a Unix socket.

The writer answers each message before the next is sent.
"""

from __future__ import annotations

from multiprocessing.connection import Client
from typing import Any

import numpy as np

from streamembed.data.features import Features
from streamembed.serving.channel import receive_message, send_message
from streamembed.serving.messages import EventBatch, RefusedError

# Seconds that a batch may wait for the writer and for the disk.
TIMEOUT = 120.0


class IngestClient:
    """A connection of a reader process to the writer process; a context manager.

    Raises
    ------
    RefusedError
        The writer cannot be reached, or refuses a request.
    """

    def __init__(self, path: str) -> None:
        try:
            self._connection = Client(path, "AF_UNIX")
        except OSError:
            raise _build_unavailable_error() from None

    def fetch_features(self) -> tuple[Features | None, bool]:
        """The features of the run, None before its first event; whether it learns from labels."""
        header = self._request({"do": "features"})
        names = tuple(header["names"])
        return Features(names, header["ordered"]) if names else None, header["labels"]

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
        return self._request(header, np.ascontiguousarray(events.points).tobytes())

    def _request(self, header: dict[str, Any], data: bytes = b"") -> dict[str, Any]:
        try:
            send_message(self._connection, header, data)
            if not self._connection.poll(TIMEOUT):
                raise _build_unavailable_error()
            answer, _ = receive_message(self._connection)
        except (OSError, EOFError):
            raise _build_unavailable_error() from None
        if "code" in answer:
            raise RefusedError(answer["code"], answer["message"])
        return answer

    def __enter__(self) -> IngestClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


def _build_unavailable_error() -> RefusedError:
    return RefusedError(
        "unavailable", "the writer is not available now; acknowledged events are safe: try again"
    )
