"""Counters: exact, never a word of a client, fewer than 200 series."""

from __future__ import annotations

import urllib.request

from streamembed.serving.server_metrics import CALLS, ServerMetrics

LARGEST = 200
CODES = ("ok", "invalid", "offset", "not_found", "not_ready", "unavailable", "internal")
CODES += ("unauthenticated", "unauthorized")


def read(metrics: ServerMetrics) -> dict[str, float]:
    """The series that Prometheus reads."""
    server = metrics.listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.server_port}/metrics"
    with urllib.request.urlopen(url, timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    server.shutdown()
    server.server_close()
    pairs = [line.rpartition(" ") for line in lines if not line.startswith("#")]
    return {name: float(value) for name, _, value in pairs}


def test_there_are_never_more_than_200_series() -> None:
    """Even where every call has ended in every way."""
    metrics = ServerMetrics(lambda: {f"gauge_{i}": 1.0 for i in range(20)})
    for kind in CALLS:
        metrics.count_batch(kind, 1, 0.001)
        for code in CODES:
            metrics.count("requests", kind, code)
    found = read(metrics)
    assert len(CALLS) * len(CODES) < len(found) < LARGEST
    assert all(name.startswith("streamembed_") for name in found)


def test_counters_count() -> None:
    """Each by its labels."""
    metrics = ServerMetrics(lambda: {"ready": 0.0})
    for seconds in (0.25, 0.5):
        metrics.count_batch("transform", 10, seconds)
    metrics.count("requests", "transform", "invalid")
    metrics.count("events_learned", value=7)
    assert read(metrics) == {
        'streamembed_requests_total{call="transform",code="ok"}': 2,
        'streamembed_requests_total{call="transform",code="invalid"}': 1,
        'streamembed_request_seconds_total{call="transform"}': 0.75,
        'streamembed_rows_total{call="transform"}': 20,
        "streamembed_events_learned_total": 7,
        "streamembed_ready": 0,
    }
