"""Who is let in: token, role, size of headers, number of open calls; and who has fallen silent.

All of it happens before a call reaches the service. A Python server of Flight cannot set a deadline
for the next message of a client, nor end a stream that waits for one: what can be closed is the
connection that the stream came by.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow.flight as fl

from streamembed.errors import said
from streamembed.serving.counters import Counts
from streamembed.serving.messages import RefusedError, as_refused, flight_error
from streamembed.serving.tokens import Token, who_has

__all__ = ["ANYBODY", "Call", "Gate"]

# Bytes of all headers of a call.
LARGEST_HEADERS = 1 << 12
# Who calls where there are no tokens.
ANYBODY = Token("anybody", "write", "")
# Calls of one token that are always let in, however many tokens share a server.
LEAST_SHARE = 8
SCHEME = "Bearer "
KINDS = {
    fl.FlightMethod.DO_EXCHANGE: "transform",
    fl.FlightMethod.DO_PUT: "learn",
    fl.FlightMethod.DO_GET: "get",
    fl.FlightMethod.DO_ACTION: "action",
}
Peer = tuple[Any, int]


class Call(fl.ServerMiddleware):  # type: ignore[misc]
    """One call that was let in, until it ends.

    Attributes
    ----------
    kind : str
        One of `counts.CALLS`.
    who : Token
    peer : (address, port) or None
        Where it comes from, once its first message has come.
    touched : float
        When something came from its client, or went to it.
    busy : bool
        True while it waits for this server and not for its client.
    """

    def __init__(self, kind: str, who: Token, end: Callable[[Call], None]) -> None:
        self.kind, self.who = kind, who
        self.peer: Peer | None = None
        self.touched = time.monotonic()
        self.busy = False
        self._end = end

    def touch(self, busy: bool) -> None:
        """Something came or went."""
        self.touched, self.busy = time.monotonic(), busy

    def call_completed(self, exception: Any) -> None:
        """Flight says so, whatever way it ended."""
        self._end(self)


class Gate(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets calls in, and knows which are open.

    Parameters
    ----------
    counts
        Where refusals are counted.
    max_streams
        Open calls, at most.
    idle
        Seconds of silence before a connection is closed.
    tokens
        Who may; None: everybody. May be assigned anew at any time.

    Attributes
    ----------
    draining : bool
        True once nobody but those who ask for health is let in.
    """

    def __init__(
        self, counts: Counts, max_streams: int, idle: float, tokens: Sequence[Token] | None
    ) -> None:
        self.tokens = tokens
        self.draining = False
        self._counts = counts
        self._max, self._idle = max_streams, idle
        self._lock = threading.Lock()
        self._open: set[Call] = set()

    @property
    def n_open(self) -> int:
        """Calls that have not ended."""
        return len(self._open)

    def start_call(self, info: Any, headers: dict[str, list[str | bytes]]) -> Call:
        """Flight asks this before every call."""
        kind = KINDS.get(info.method, "info")
        try:
            return self._admit(kind, headers, info.method)
        except Exception as error:
            refused = as_refused(error)
            self._counts.request(kind, refused.code)
            raise flight_error(refused) from None

    def _admit(self, kind: str, headers: dict[str, list[str | bytes]], method: Any) -> Call:
        size = sum(len(name) + len(value) for name, all_ in headers.items() for value in all_)
        if size > LARGEST_HEADERS:
            raise RefusedError(
                "unauthenticated", f"headers must have at most {LARGEST_HEADERS} bytes"
            )
        who = self._who(headers.get("authorization", []))
        if method == fl.FlightMethod.GET_SCHEMA:  # its errors would bring tracebacks, whatever kind
            raise RefusedError("not_found", "GetSchema is not answered: GetFlightInfo has it")
        if kind == "learn" and who.role != "write":
            raise RefusedError(
                "unauthorized", "this token may read; to learn takes one that may write"
            )
        with self._lock:
            if kind != "action":  # which are short, and say why others are refused
                self._must_have_room(who)
            call = Call(kind, who, self._end)
            self._open.add(call)
        return call

    def _who(self, presented: Sequence[str | bytes]) -> Token:
        if (tokens := self.tokens) is None:
            return ANYBODY
        found = None
        if len(presented) == 1 and isinstance(presented[0], str):
            scheme, secret = presented[0][: len(SCHEME)], presented[0][len(SCHEME) :]
            found = who_has(secret, tokens) if scheme == SCHEME else None
        if found is None:
            raise RefusedError("unauthenticated", "a token is needed that this server knows")
        return found

    def _must_have_room(self, who: Token) -> None:
        if self.draining:
            raise RefusedError("unavailable", "this server is about to end")
        names = {token.name for token in self.tokens or [who]}
        share = min(self._max, max(LEAST_SHARE, self._max // len(names)))
        streams = Counter(call.who.name for call in self._open if call.kind != "action")
        own = streams[who.name]
        if streams.total() >= self._max or own >= share:
            raise RefusedError(
                "unavailable",
                f"too many calls are open (of this token {own}; at most {share}, and {self._max} "
                "of all): end some, or try again",
            )

    def _end(self, call: Call) -> None:
        with self._lock:
            self._open.discard(call)

    # ------------------------------------------------------------------ silence

    def watch(self, port: int, stop: threading.Event) -> None:
        """Close connections of clients that are silent, until it is to stop.

        What goes wrong, such as no file being left to open, is said once, and tried again.
        """
        told = ""
        while not stop.wait(min(self._idle / 4, 5.0)):
            try:
                self.close_silent(port)
                told = ""
            except Exception as error:
                if said(error) != told:
                    told = said(error)
                    print(f"streamembed: {told}", file=sys.stderr, flush=True)

    def close_silent(self, port: int) -> None:
        """Close the connections of calls whose client has neither sent nor taken anything.

        A call that has not even said what it wants has no address: all connections to this port
        are closed but those of calls that are alive.
        """
        late = time.monotonic() - self._idle
        with self._lock:
            calls = set(self._open)
        silent = {call for call in calls if not call.busy and call.touched < late}
        if not silent:
            return
        if all(call.peer is not None for call in silent):
            gone = {call.peer for call in silent}
            _close(port, lambda peer: peer in gone)
        else:
            alive = {call.peer for call in calls - silent}
            _close(port, lambda peer: peer not in alive)


def peer_of(text: str) -> Peer | None:
    """An address as gRPC writes it.

    Examples
    --------
    >>> peer_of("ipv4:127.0.0.1:4000") == peer_of("ipv6:%5B::ffff:127.0.0.1%5D:4000")
    True
    >>> peer_of("unix:") is None
    True
    """
    host, _, port = unquote(text).partition(":")[2].rpartition(":")
    return _plain(host.strip("[]"), int(port)) if port.isdigit() else None


def _plain(host: str, port: int) -> Peer | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address, port


def _close(port: int, chosen: Callable[[Peer], bool]) -> None:
    """Shut connections down that came to a port of this process."""
    for connection in _connections():
        with connection, contextlib.suppress(OSError, ValueError):
            if connection.getsockname()[1] != port:
                continue
            peer = _plain(*connection.getpeername()[:2])
            if peer is not None and chosen(peer):
                connection.shutdown(socket.SHUT_RDWR)


def _connections() -> Iterable[socket.socket]:
    """The internet sockets of this process, each by a handle of its own."""
    for name in os.listdir("/dev/fd"):
        try:
            made = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        if made.family in (socket.AF_INET, socket.AF_INET6):
            yield made
        else:
            made.close()
