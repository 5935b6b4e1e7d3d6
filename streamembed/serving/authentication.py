"""Authentication of calls: token, role, size of headers, open calls; and the end of idle ones.

All checks run before a call reaches the service. A Flight server in Python cannot set a deadline
for the next message of a client, nor end a stream that waits for one. It can close the connection
of the stream.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow.flight as fl

from streamembed.serving.counters import RequestCounters
from streamembed.serving.messages import RefusedError, build_flight_error, convert_error
from streamembed.serving.tokens import Token, find_token

# Bytes of all headers of a call.
MAX_HEADERS = 1 << 12
# The token of every call where the server has no tokens.
ANONYMOUS = Token("anybody", "write", "")
# Open calls that every token may have, however many tokens share a server.
MIN_SHARE = 8
SCHEME = "Bearer "
CALL_KINDS = {
    fl.FlightMethod.DO_EXCHANGE: "transform",
    fl.FlightMethod.DO_PUT: "learn",
    fl.FlightMethod.DO_GET: "get",
    fl.FlightMethod.DO_ACTION: "action",
}
Peer = tuple[Any, int]


class OpenCall(fl.ServerMiddleware):  # type: ignore[misc]
    """One accepted call, until it ends.

    Attributes
    ----------
    kind : str
        One of `counters.CALLS`.
    peer : (address, port) or None
        Address of the client; None before its first message.
    last_active : float
        When the last message was received or sent, in seconds of `time.monotonic`.
    busy : bool
        True while the client waits for the server.
    """

    def __init__(self, kind: str, token: Token, end: Callable[[OpenCall], None]) -> None:
        self.kind, self.token = kind, token
        self.peer: Peer | None = None
        self.last_active = time.monotonic()
        self.busy = False
        self._end = end

    def touch(self, busy: bool) -> None:
        """Note that a message was received or sent."""
        self.last_active, self.busy = time.monotonic(), busy

    def call_completed(self, exception: Any) -> None:
        """Called by Flight when the call ends, with or without an error."""
        self._end(self)


class Authentication(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    """Accepts or refuses calls, and keeps the open ones.

    Parameters
    ----------
    counters
        Counts the refused calls.
    max_streams
        Largest number of open calls.
    idle
        Seconds without a message before a connection is closed.
    tokens
        Tokens that are accepted; None: no token is needed. May be replaced at any time.

    Attributes
    ----------
    draining : bool
        True while the server shuts down: only actions, such as health, are accepted.
    """

    def __init__(
        self,
        counters: RequestCounters,
        max_streams: int,
        idle: float,
        tokens: Sequence[Token] | None,
    ) -> None:
        self.tokens = tokens
        self.draining = False
        self._counters = counters
        self._max_streams, self._idle = max_streams, idle
        self._lock = threading.Lock()
        self._calls: set[OpenCall] = set()

    @property
    def n_open(self) -> int:
        """Number of open calls."""
        return len(self._calls)

    def start_call(self, info: Any, headers: dict[str, list[str | bytes]]) -> OpenCall:
        """Called by Flight before every call."""
        kind = CALL_KINDS.get(info.method, "info")
        try:
            return self._authorize(kind, headers, info.method)
        except Exception as error:
            refused = convert_error(error)
            self._counters.count_request(kind, refused.code)
            raise build_flight_error(refused) from None

    def _authorize(self, kind: str, headers: dict[str, list[str | bytes]], method: Any) -> OpenCall:
        size = sum(len(name) + len(value) for name, values in headers.items() for value in values)
        if size > MAX_HEADERS:
            raise RefusedError("unauthenticated", f"headers must have at most {MAX_HEADERS} bytes")
        token = self._authenticate(headers.get("authorization", []))
        # pyarrow sends a traceback with each of its errors
        if method == fl.FlightMethod.GET_SCHEMA:
            raise RefusedError("not_found", "GetSchema is not supported; use GetFlightInfo")
        if kind == "learn" and token.role != "write":
            raise RefusedError(
                "unauthorized", "this token may only read; learning needs a token with role write"
            )
        with self._lock:
            if kind != "action":  # actions are short, and tell why other calls are refused
                self._check_capacity(token)
            call = OpenCall(kind, token, self._end)
            self._calls.add(call)
        return call

    def _authenticate(self, presented: Sequence[str | bytes]) -> Token:
        if (tokens := self.tokens) is None:
            return ANONYMOUS
        token = None
        if len(presented) == 1 and isinstance(presented[0], str):
            scheme, secret = presented[0][: len(SCHEME)], presented[0][len(SCHEME) :]
            token = find_token(secret, tokens) if scheme == SCHEME else None
        if token is None:
            raise RefusedError("unauthenticated", "invalid or missing token")
        return token

    def _check_capacity(self, token: Token) -> None:
        if self.draining:
            raise RefusedError("unavailable", "the server is shutting down")
        names = {other.name for other in self.tokens or [token]}
        share = min(self._max_streams, max(MIN_SHARE, self._max_streams // len(names)))
        streams = Counter(call.token.name for call in self._calls if call.kind != "action")
        n_own = streams[token.name]
        if streams.total() >= self._max_streams or n_own >= share:
            raise RefusedError(
                "unavailable",
                f"too many open calls: this token has {n_own} of at most {share}, the server "
                f"{streams.total()} of at most {self._max_streams}; end some, or try again later",
            )

    def _end(self, call: OpenCall) -> None:
        with self._lock:
            self._calls.discard(call)

    # ------------------------------------------------------------------ idle connections

    def close_idle(self, port: int) -> None:
        """Close the connections of calls whose client has neither sent nor read anything.

        A call without a first message has no address. Then all connections to this port are closed
        except those of active calls.
        """
        late = time.monotonic() - self._idle
        with self._lock:
            calls = set(self._calls)
        idle = {call for call in calls if not call.busy and call.last_active < late}
        if not idle:
            return
        if all(call.peer is not None for call in idle):
            idle_peers = {call.peer for call in idle}
            _close_connections(port, lambda peer: peer in idle_peers)
        else:
            active_peers = {call.peer for call in calls - idle}
            _close_connections(port, lambda peer: peer not in active_peers)


def parse_peer(text: str) -> Peer | None:
    """The address in gRPC's notation as (IP address, port); None where it is no IP address.

    Examples
    --------
    >>> parse_peer("ipv4:127.0.0.1:4000") == parse_peer("ipv6:%5B::ffff:127.0.0.1%5D:4000")
    True
    >>> parse_peer("unix:") is None
    True
    """
    host, _, port = unquote(text).partition(":")[2].rpartition(":")
    return _resolve_peer(host.strip("[]"), int(port)) if port.isdigit() else None


def _resolve_peer(host: str, port: int) -> Peer | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address, port


def _close_connections(port: int, is_chosen: Callable[[Peer], bool]) -> None:
    for connection in _list_connections():
        with connection, contextlib.suppress(OSError, ValueError):
            if connection.getsockname()[1] != port:
                continue
            peer = _resolve_peer(*connection.getpeername()[:2])
            if peer is not None and is_chosen(peer):
                connection.shutdown(socket.SHUT_RDWR)


def _list_connections() -> Iterable[socket.socket]:
    """The internet sockets of this process, each as a duplicate to be closed by the caller."""
    for name in os.listdir("/dev/fd"):
        try:
            duplicate = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        if duplicate.family in (socket.AF_INET, socket.AF_INET6):
            yield duplicate
        else:
            duplicate.close()
