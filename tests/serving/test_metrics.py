"""Counters: exact, never a word of a client, fewer than 200 series."""

from __future__ import annotations

import urllib.request

import pytest

from streamembed.data.batch import Rejected
from streamembed.engine.call import Learned
from streamembed.serving.server_metrics import BUCKETS, CALLS, GAUGES, ServerMetrics

LARGEST = 200
CODES = ("ok", "invalid", "offset", "not_found", "not_ready", "unavailable", "internal")
CODES += ("unauthenticated", "unauthorized")


def read(metrics: ServerMetrics) -> dict[str, float]:
    """The series that Prometheus reads."""
    port, close = metrics.listen("127.0.0.1", 0)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    close()
    pairs = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in pairs}


def test_there_are_never_more_than_200_series() -> None:
    """Even where every call has ended in every way."""
    metrics = ServerMetrics(lambda: dict.fromkeys(GAUGES, 1.0))
    for kind in CALLS:
        for code in CODES:
            metrics.count_request(kind, code, 0.001, rows=1)
    found = read(metrics)
    assert len(CALLS) * len(CODES) < len(found) < LARGEST
    assert all(name.startswith("streamembed_") for name in found)


def test_counters_count() -> None:
    """Buckets are cumulative, and end with all."""
    metrics = ServerMetrics(lambda: {"ready": 0.0})
    for seconds in (0.0001, 0.0003, 0.003, 100.0):
        metrics.count_request("transform", "ok", seconds, rows=10)
    metrics.count_request("transform", "invalid")
    metrics.count_learned(Learned(7, (Rejected(0, None, "NaN in 'x'"),)))
    found = read(metrics)
    assert found['streamembed_requests_total{call="transform",code="ok"}'] == 4
    assert found['streamembed_requests_total{call="transform",code="invalid"}'] == 1
    assert found['streamembed_rows_total{call="transform"}'] == 40
    assert found["streamembed_events_learned_total"] == 7
    assert found["streamembed_rows_rejected_total"] == 1
    assert found["streamembed_ready"] == 0
    bucket = 'streamembed_request_seconds_bucket{{call="transform",le="{}"}}'.format
    assert [found[bucket(end)] for end in (0.00025, 0.0005, 0.0025, 0.005, 10.0, "+Inf")] == [
        *(1, 2, 2, 3, 3, 4)
    ]
    assert len(BUCKETS) + 1 == sum("_bucket{" in name for name in found)


def test_without_the_extra_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing else fails."""
    monkeypatch.setattr("streamembed.serving.server_metrics.MISSING", "no module")
    metrics = ServerMetrics(dict)
    metrics.count_request("learn", "ok", 0.1, rows=5)
    metrics.count_learned(Learned(3, ()))
