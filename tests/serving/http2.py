"""Messages that no client of Flight would send: changed on their way, or never sent."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
# Of a message of gRPC within a frame: whether it is compressed, and its length.
PREFIX = 5


@contextlib.contextmanager
def changing(url: str, change: Callable[[bytearray], None], kind: int = DATA) -> Iterator[str]:
    """Address of a server that hands on to another what clients send, but for what is changed.

    ``change`` is given the payload of each frame of that kind that is sent to the server, in place:
    of data, messages of gRPC, their first ``PREFIX`` bytes beside them.
    """
    target = urlsplit(url)
    listener = socket.create_server(("127.0.0.1", 0))
    open_: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection((target.hostname, target.port))
            open_.extend((client, server))
            threading.Thread(target=_hand_on, args=(server, client), daemon=True).start()
            arguments = (client, server, change, kind)
            threading.Thread(target=_change, args=arguments, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"grpc://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for one in (listener, *open_):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def _hand_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_RDWR)


def _change(
    source: socket.socket, sink: socket.socket, change: Callable[[bytearray], None], kind: int
) -> None:
    with contextlib.suppress(OSError), source.makefile("rb") as stream:
        sink.sendall(stream.read(len(PREFACE)))
        while len(head := stream.read(9)) == 9:
            payload = bytearray(stream.read(int.from_bytes(head[:3])))
            if head[3] == kind and len(payload) > PREFIX:
                change(payload)
            sink.sendall(head + payload)
        sink.shutdown(socket.SHUT_RDWR)


def idle_call(url: str, method: str, token: str) -> socket.socket:
    """A connection by which a call was begun and not a message of it sent."""
    target = urlsplit(url)
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": f"/arrow.flight.protocol.FlightService/{method}",
        ":authority": target.netloc,
        "te": "trailers",
        "content-type": "application/grpc",
        "authorization": f"Bearer {token}",
    }
    block = b"".join(
        b"\x10" + b"".join(bytes([len(text)]) + text.encode() for text in pair)  # never indexed
        for pair in headers.items()
    )
    connection = socket.create_connection((target.hostname, target.port), timeout=30)
    connection.sendall(PREFACE + _frame(SETTINGS, 0, 0) + _frame(HEADERS, 4, 1, block))
    return connection


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return (
        struct.pack(">I", len(payload))[1:]
        + bytes([kind, flags])
        + struct.pack(">I", stream)
        + payload
    )
