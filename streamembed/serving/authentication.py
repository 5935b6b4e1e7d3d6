"""Authentication of calls: token, role, size of headers, number of open calls.

All checks run before a call reaches the service, and before anything of it is parsed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow.flight as fl

from streamembed.serving.messages import RefusedError, build_flight_error, convert_error
from streamembed.serving.tokens import Token, find_token

# Bytes of all headers of a call.
MAX_HEADERS = 1 << 12
# The token of every call where the server has no tokens.
ANONYMOUS = Token("anybody", "write", "")
SCHEME = "Bearer "
# Calls that the service has; to others pyarrow would answer with a traceback.
CALL_KINDS = {
    fl.FlightMethod.DO_EXCHANGE: "transform",
    fl.FlightMethod.DO_PUT: "learn",
    fl.FlightMethod.DO_GET: "get",
    fl.FlightMethod.DO_ACTION: "action",
    fl.FlightMethod.GET_FLIGHT_INFO: "info",
}


class OpenCall(fl.ServerMiddleware):  # type: ignore[misc]
    """One accepted call, until it ends: its kind, one of `server_metrics.CALLS`, and its token."""

    def __init__(self, kind: str, token: Token, end: Callable[[OpenCall], None]) -> None:
        self.kind, self.token = kind, token
        self._end = end

    def call_completed(self, exception: Any) -> None:
        """Called by Flight when the call ends, with or without an error."""
        self._end(self)


class Authentication(fl.ServerMiddlewareFactory):  # type: ignore[misc]
    """Accepts or refuses calls, and keeps the open ones.

    Parameters
    ----------
    max_streams
        Largest number of open calls.
    tokens
        Tokens that are accepted; None: no token is needed. May be replaced at any time.
    count_refused
        Called with the kind and the code of each refused call.

    Attributes
    ----------
    draining : bool
        True while the server shuts down: only actions are accepted.
    """

    def __init__(
        self,
        max_streams: int,
        tokens: Sequence[Token] | None,
        count_refused: Callable[[str, str], None],
    ) -> None:
        self.tokens = tokens
        self.draining = False
        self._max_streams, self._count_refused = max_streams, count_refused
        self._lock = threading.Lock()
        self._calls: set[OpenCall] = set()

    @property
    def n_open(self) -> int:
        """Number of open calls."""
        return len(self._calls)

    def start_call(self, info: Any, headers: dict[str, list[str | bytes]]) -> OpenCall:
        """Called by Flight before every call."""
        kind = CALL_KINDS.get(info.method, "")
        try:
            token = self._authenticate(headers)
            if not kind:
                raise RefusedError("not_found", "this call is not supported; use GetFlightInfo")
            if kind == "learn" and token.role != "write":
                raise RefusedError(
                    "unauthorized",
                    "this token may only read; learning needs a token with role write",
                )
            call = OpenCall(kind, token, self._end)
            with self._lock:
                if kind != "action":  # actions are short, and tell why other calls are refused
                    self._check_capacity()
                self._calls.add(call)
            return call
        except Exception as error:
            refused = convert_error(error)
            self._count_refused(kind or "info", refused.code)
            raise build_flight_error(refused) from None

    def _authenticate(self, headers: dict[str, list[str | bytes]]) -> Token:
        size = sum(len(name) + len(value) for name, values in headers.items() for value in values)
        if size > MAX_HEADERS:
            raise RefusedError("unauthenticated", f"headers must have at most {MAX_HEADERS} bytes")
        if (tokens := self.tokens) is None:
            return ANONYMOUS
        presented = headers.get("authorization", [])
        token = None
        if len(presented) == 1 and isinstance(presented[0], str):
            scheme, secret = presented[0][: len(SCHEME)], presented[0][len(SCHEME) :]
            token = find_token(secret, tokens) if scheme == SCHEME else None
        if token is None:
            raise RefusedError("unauthenticated", "invalid or missing token")
        return token

    def _check_capacity(self) -> None:
        if self.draining:
            raise RefusedError("unavailable", "the server is shutting down")
        if len(self._calls) >= self._max_streams:
            raise RefusedError(
                "unavailable",
                f"too many open calls: the server has {len(self._calls)} of at most "
                f"{self._max_streams}; end some, or try again later",
            )

    def _end(self, call: OpenCall) -> None:
        with self._lock:
            self._calls.discard(call)
