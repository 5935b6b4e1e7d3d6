"""Counters: exact, added up, never a word of a client, fewer than 200 series."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scenarios.fuzz import hostile
from streamembed.serving import http_endpoints
from streamembed.serving.counters import (
    BUCKETS,
    CALLS,
    CODES,
    REASONS,
    RequestCounters,
    classify_reason,
    share_counters,
)

LARGEST = 200


def status(**more: Any) -> dict[str, Any]:
    told = dict.fromkeys(("epoch", "position", "age", "residual", "met", "resolution", "mass"), 1)
    return {"ready": True, "open": 0, "waiting": 0, "restarts": 0, "snapshot": told, **more}


def series(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_there_are_never_more_than_200_series(folder: str) -> None:
    """Even where every call has ended in every way."""
    counts = RequestCounters()
    for kind in CALLS:
        for code in CODES:
            counts.count_request(kind, code, 0.001, rows=1)
    counts.count_rejected(REASONS.values())
    found = series(http_endpoints.render_metrics(status(), folder))
    assert len(CALLS) * len(CODES) < len(found) < LARGEST
    names = {re.split(r"[{]", name)[0] for name in found}
    assert all(name.startswith("streamembed_") for name in names)


def test_counters_count(folder: str) -> None:
    """Buckets are cumulative, and end with all."""
    counts = RequestCounters()
    for seconds in (0.0001, 0.0003, 0.003, 100.0):
        counts.count_request("transform", "ok", seconds, rows=10)
    counts.count_request("transform", "invalid")
    counts.count_learned(7)
    found = series(http_endpoints.render_metrics(status(), folder))
    assert found['streamembed_requests_total{call="transform",code="ok"}'] == 4
    assert found['streamembed_requests_total{call="transform",code="invalid"}'] == 1
    assert found['streamembed_rows_total{call="transform"}'] == 40
    assert found["streamembed_events_learned_total"] == 7
    bucket = 'streamembed_request_seconds_bucket{{call="transform",le="{}"}}'.format
    assert [found[bucket(end)] for end in (0.00025, 0.0005, 0.0025, 0.005, 10.0, "+Inf")] == [
        *(1, 2, 2, 3, 3, 4)
    ]
    assert len(BUCKETS) + 1 == sum("_bucket{" in name for name in found)


def test_counts_of_processes_add_up(folder: str) -> None:
    """A reader that replaces another one goes on with its counters: they never go back."""
    for name in ("reader 0", "reader 1", "reader 0"):
        share_counters(folder, name)
        RequestCounters().count_request("learn", "ok", 0.1, rows=5)
    RequestCounters().count_request("get", "ok", 0.1)
    found = series(http_endpoints.render_metrics(status(), folder))
    assert found['streamembed_requests_total{call="learn",code="ok"}'] == 3
    assert found['streamembed_requests_total{call="get",code="ok"}'] == 1
    assert found['streamembed_rows_total{call="learn"}'] == 15
    assert found['streamembed_request_seconds_count{call="learn"}'] == 3
    assert len([*Path(folder).iterdir()]) == 4  # two files a name, however often it is started


def test_without_the_extra_nothing_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And nothing else fails."""
    monkeypatch.setattr("streamembed.serving.counters.MISSING", "no module")
    counts = RequestCounters()
    counts.count_request("learn", "ok", 0.1, rows=5)
    counts.count_rejected(["nan"])
    counts.count_learned(3)


@pytest.mark.parametrize("text", ["", "a name that a client chose", "null in 'x'", "duplicate id"])
def test_a_reason_is_one_of_few(text: str) -> None:
    """For any message of a rejected row."""
    assert classify_reason(text) in set(REASONS.values())


def test_without_the_extra_it_is_said(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Health needs none."""
    monkeypatch.setattr(http_endpoints, "MISSING", "no module")
    with http_endpoints.HttpEndpoints("127.0.0.1", 0, status, folder) as health:
        for path, code in (("/healthz", 200), ("/readyz", 200), ("/metrics", 501), ("/x", 404)):
            connection = http.client.HTTPConnection("127.0.0.1", health.port, timeout=30)
            connection.request("GET", path)
            assert connection.getresponse().status == code
            connection.close()


pytestmark = pytest.mark.usefixtures("folder")


@contextlib.contextmanager
def health(host: str) -> Iterator[int]:
    """Port of a server of counters."""
    with http_endpoints.HttpEndpoints(
        host, 0, status, os.environ["PROMETHEUS_MULTIPROC_DIR"]
    ) as server:
        yield server.port


def ask(port: int, host: bytes, path: bytes = b"/metrics") -> int:
    """Status of a request with such a header ``Host``."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        with connection.makefile("rb") as answer:
            return int(answer.readline().split()[1])


def test_counters_are_not_for_another_name(capfd: pytest.CaptureFixture[str]) -> None:
    """A site whose name leads here (DNS rebinding) reads none; health and readiness tell no more
    than that the server is there.
    """
    with health("127.0.0.1") as port:
        for host in hostile.hosts(np.random.default_rng(0), port, 150):
            assert ask(port, host) == 403, host
        assert ask(port, b"evil.example", b"/healthz") == ask(port, b"", b"/readyz") == 200
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("host", "asked"),
    [
        ("127.0.0.1", b"127.0.0.1:%d"),
        ("127.0.0.1", b"LocalHost:%d"),
        ("127.0.0.1", b"127.0.0.1"),  # a port that a container maps to another
        ("0.0.0.0", b"10.1.2.3:%d"),
        ("0.0.0.0", b"[fe80::1]:%d"),
        ("0.0.0.0", socket.gethostname().encode() + b":%d"),
        ("localhost", b"localhost:%d"),
    ],
)
def test_counters_are_for_addresses_and_own_names(host: str, asked: bytes) -> None:
    """As Prometheus asks for them."""
    with health(host) as port:
        assert ask(port, asked.replace(b"%d", b"%d" % port)) == 200
