"""Which calls are accepted, and how many, without a network."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pyarrow.flight as fl
import pytest

from streamembed.serving.authentication import Authentication
from streamembed.serving.server import repeat
from streamembed.serving.tokens import Token, hash_token

TOKENS = [Token(name, role, hash_token(name)) for name, role in (("ann", "read"), ("ben", "write"))]


def start(
    authentication: Authentication, name: str, method: Any = fl.FlightMethod.DO_EXCHANGE
) -> Any:
    return authentication.start_call(
        SimpleNamespace(method=method), {"authorization": [f"Bearer {name}"]}
    )


def test_open_calls_are_limited() -> None:
    """A refused call is counted by its code, and another one may begin once one has ended."""
    refused: list[tuple[str, str]] = []
    authentication = Authentication(4, TOKENS, lambda *call: refused.append(call))
    calls = [start(authentication, name) for name in ("ann", "ben", "ann", "ben")]
    with pytest.raises(fl.FlightUnavailableError, match="the server has 4 of at most 4"):
        start(authentication, "ann")
    assert refused == [("transform", "unavailable")]
    start(authentication, "ann", fl.FlightMethod.DO_ACTION)  # actions are always accepted
    assert authentication.n_open == 5
    for _ in range(2):  # whatever ends twice has ended once
        calls[0].call_completed(None)
    assert authentication.n_open == 4
    calls[1].call_completed(None)
    start(authentication, "ann")


def test_a_server_that_shuts_down_refuses_calls() -> None:
    """Except actions, such as health."""
    authentication = Authentication(4, None, lambda *_: None)
    authentication.draining = True
    with pytest.raises(fl.FlightUnavailableError, match="shutting down"):
        start(authentication, "")
    assert start(authentication, "", fl.FlightMethod.DO_ACTION).kind == "action"


def test_a_task_is_repeated_after_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Such as too many open files: printed once."""
    tried, stop = [], threading.Event()

    def refresh() -> None:
        tried.append(1)
        if len(tried) == 4:
            stop.set()
        raise OSError(24, "Too many open files")

    repeat(refresh, 0.001, stop)
    assert len(tried) == 4
    assert capsys.readouterr().err.count("Too many open files") == 1
