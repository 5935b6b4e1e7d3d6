"""The page that follows a run: who may ask, and that it grows."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import streamembed as se
from scenarios.fuzz import hostile
from streamembed.report.watch_server import create_server
from tests.cli.test_cli import call
from tests.report import runs


@contextlib.contextmanager
def served(run: Path) -> Iterator[int]:
    """Port of a server that follows the run."""
    server = create_server(run)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.unfinished(tmp_path_factory.mktemp("unfinished"))


@pytest.fixture(scope="module")
def port(run: Path) -> Iterator[int]:
    with served(run) as found:
        yield found


def ask(
    port: int, path: str = "/state.json", method: str = "GET", **headers: str
) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    answer.body = answer.read()  # type: ignore[attr-defined]
    connection.close()
    return answer


def test_the_page_and_its_state(port: int) -> None:
    """Once in full, then only what is new; nobody else may frame, keep or sniff it."""
    page = ask(port, "/")
    assert page.status == 200
    assert b"connect-src &#x27;self&#x27;" in page.body  # type: ignore[attr-defined]
    answer = ask(port)
    state = json.loads(answer.body)  # type: ignore[attr-defined]
    assert state["run"]["state"] == "unfinished"
    assert float(answer.headers["X-Run-Age"]) >= 0
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    again = ask(port, If_None_Match=answer.headers["ETag"])
    assert (again.status, again.body) == (304, b"")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "host", ["evil.example:{}", "evil.example", "127.0.0.1:1", "", "a@localhost:{}"]
)
def test_other_names_are_refused(port: int, host: str) -> None:
    """A site whose name leads here (DNS rebinding) reads nothing."""
    assert ask(port, Host=host.format(port)).status == 403
    assert ask(port, "/", Host=host.format(port)).status == 403


def ask_as(port: int, host: bytes, path: bytes = b"/state.json") -> int:
    """Status of a request whose header ``Host`` has these bytes; 0 for no answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        with connection.makefile("rb") as answer:
            return int((answer.readline().split() or [b"", b"0"])[1])


@pytest.mark.parametrize("count", [150, pytest.param(3000, marks=pytest.mark.long)])
def test_no_host_header_raises(port: int, count: int, capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever its bytes are, such as a superscript for a port, or 5,000 digits: it is refused."""
    for host in hostile.hosts(np.random.default_rng(count), port, count):
        assert ask_as(port, host) == 403, host
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("path", ["/run.db", "/../run.db", "/parts/", "/%2e%2e/", "/state.json/x"])
def test_there_is_nothing_else(port: int, path: str) -> None:
    """No listing, no file of the run."""
    assert ask(port, path).status == 404


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_has_its_exit_code(
    run: Path, number: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes while the server waits."""

    def wait(_: object) -> None:
        os.kill(os.getpid(), number)
        time.sleep(30)

    monkeypatch.setattr("http.server.ThreadingHTTPServer.serve_forever", wait)
    done = call("watch", run, "--port", 0)
    assert done.exit_code == code
    assert "interrupted" in done.stderr


def test_what_cannot_be_served_is_an_error(run: Path, port: int, tmp_path: Path) -> None:
    """A run that is not there, a port that is in use, or is none."""
    assert call("watch", tmp_path / "none").exit_code == 4
    done = call("watch", run, "--port", port)
    assert done.exit_code == 2
    assert f"--port {port} cannot be used" in done.stderr
    assert call("watch", run, "--port", 70000).exit_code == 2


def test_watching_changes_nothing(run: Path, port: int) -> None:
    """The run goes on to the same bytes as one that nobody watched."""
    ask(port)
    before = (run / "run.db").read_bytes()
    ask(port, "/")
    assert (run / "run.db").read_bytes() == before
    with se.read_run(run) as reader:
        assert reader.positions


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_it_is_only_asked(port: int, method: str) -> None:
    """Nothing is taken."""
    assert ask(port, "/", method).status == 501


def test_it_listens_on_this_machine_only(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others come by a tunnel."""
    seen = []

    def stop(self: object) -> None:
        seen.append(self.server_address[0])  # type: ignore[attr-defined]
        raise SystemExit

    monkeypatch.setattr("http.server.ThreadingHTTPServer.serve_forever", stop)
    call("watch", run, "--port", 0)
    assert seen == ["127.0.0.1"]
