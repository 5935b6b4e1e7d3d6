"""Messages between the processes of a server: JSON and bytes, nothing pickled.

`multiprocessing.connection` frames them. What a process receives can only be data, so that a
reader that a client has taken over cannot run code in another process.
"""

from __future__ import annotations

import json
from multiprocessing.connection import Connection
from typing import Any

# Bytes of a header, which holds the ids and labels of a batch.
MAX_HEADER = 1 << 28


def send_message(connection: Connection, header: dict[str, Any], data: bytes = b"") -> None:
    """Send one message; OSError where the other side is closed."""
    connection.send_bytes(json.dumps(header).encode())
    connection.send_bytes(data)


def receive_message(connection: Connection) -> tuple[dict[str, Any], bytes]:
    """Receive one message; EOFError where the other side has closed the connection."""
    header: dict[str, Any] = json.loads(connection.recv_bytes(MAX_HEADER))
    return header, connection.recv_bytes()
