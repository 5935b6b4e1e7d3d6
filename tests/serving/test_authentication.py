"""Which calls are accepted, and how many, without a network."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pyarrow.flight as fl
import pytest

from streamembed.serving.authentication import Authentication
from streamembed.serving.counters import RequestCounters
from streamembed.serving.http_endpoints import render_metrics
from streamembed.serving.tokens import Token, hash_token
from streamembed.serving.worker import repeat
from tests.serving.test_http_endpoints import series, status

TOKENS = [Token(name, "write", hash_token(name)) for name in ("ann", "ben", "cy", "di")]


def start(
    authentication: Authentication, name: str, method: Any = fl.FlightMethod.DO_EXCHANGE
) -> Any:
    return authentication.start_call(
        SimpleNamespace(method=method), {"authorization": [f"Bearer {name}"]}
    )


@pytest.mark.parametrize(("most", "share"), [(64, 16), (40, 10), (16, 8), (4, 4)])
def test_each_name_has_its_share(most: int, share: int, folder: str) -> None:
    """A token cannot use up the share of another."""
    counts = RequestCounters()
    authentication = Authentication(counts, most, 60.0, TOKENS)
    calls = [start(authentication, "ann") for _ in range(share)]
    with pytest.raises(fl.FlightUnavailableError, match="too many open calls"):
        start(authentication, "ann")
    refused = 'streamembed_requests_total{call="transform",code="unavailable"}'
    assert series(render_metrics(status(), folder))[refused] == 1
    if most > share:
        start(authentication, "ben")
    start(authentication, "ann", fl.FlightMethod.DO_ACTION)  # actions are always accepted
    assert authentication.n_open == share + 1 + (most > share)
    calls[0].call_completed(None)
    calls[0].call_completed(None)  # whatever ends twice has ended once
    start(authentication, "ann")
    with pytest.raises(fl.FlightUnavailableError):
        start(authentication, "ann")


def test_two_tokens_of_one_name_have_one_share() -> None:
    """The share is the name's, not the token's."""
    both = [Token("ann", "read", hash_token(one)) for one in ("old", "new")]
    authentication = Authentication(RequestCounters(), 32, 60.0, [*both, TOKENS[1]])
    for _ in range(8):
        start(authentication, "old")
        start(authentication, "new")
    with pytest.raises(fl.FlightUnavailableError):
        start(authentication, "old")
    start(authentication, "ben")


def test_a_server_that_shuts_down_refuses_calls() -> None:
    """Except actions, such as health."""
    authentication = Authentication(RequestCounters(), 4, 60.0, None)
    authentication.draining = True
    with pytest.raises(fl.FlightUnavailableError, match="shutting down"):
        start(authentication, "")
    assert start(authentication, "", fl.FlightMethod.DO_ACTION).kind == "action"


def test_a_call_that_the_server_works_on_is_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes; one that is waited for is."""
    closed: list[Any] = []
    monkeypatch.setattr(
        "streamembed.serving.authentication._close_connections",
        lambda port, chosen: closed.append(chosen),
    )
    authentication = Authentication(RequestCounters(), 4, 0.01, None)
    busy, waited = start(authentication, ""), start(authentication, "")
    busy.peer, waited.peer = ("a", 1), ("a", 2)
    busy.touch(busy=True)
    waited.touch(busy=True)
    time.sleep(0.03)
    authentication.close_idle(1)
    assert not closed
    waited.busy = False
    authentication.close_idle(1)
    (chosen,) = closed
    assert chosen(("a", 2))
    assert not chosen(("a", 1))
    waited.peer = None  # its first message never came
    authentication.close_idle(1)
    assert closed[1](("b", 3))
    assert not closed[1](("a", 1))


def test_a_task_is_repeated_after_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Such as too many open files, of what closes idle connections: printed once."""
    tried, stop = [], threading.Event()

    def close_idle() -> None:
        tried.append(1)
        if len(tried) == 4:
            stop.set()
        raise OSError(24, "Too many open files")

    repeat(close_idle, 0.001, stop)
    assert len(tried) == 4
    assert capsys.readouterr().err.count("Too many open files") == 1
