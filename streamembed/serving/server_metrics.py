"""Counters of a server, and what Prometheus reads of it.

No label comes from a client: calls are those of `CALLS`, codes those of `RefusedError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from streamembed.engine.call import Learned

try:
    from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
    from prometheus_client.core import GaugeMetricFamily

    MISSING = ""
except ImportError as error:  # an extra: without it nothing is counted
    MISSING = str(error)

CALLS = ("transform", "learn", "get", "info", "action")
# Upper bounds of the histogram of request times, in seconds.
BUCKETS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0)
GAUGES = {
    "ready": "1 if points can be transformed.",
    "streams_open": "Open calls.",
    "queue_batches": "Batches that wait to be learned.",
    "snapshot_epoch": "Epoch of the served snapshot's axes; they are kept within it.",
    "snapshot_position": "Events that the served snapshot has learned.",
    "snapshot_age_seconds": "Seconds since the run was written before it was published.",
    "certificate_residual": "Residual of its certificate.",
    "certificate_met": "1 if its certificate meets the tolerance.",
    "resolution": "Resolution of its landmarks.",
    "mass_total": "Total mass of its points, in events.",
}


class ServerMetrics:
    """Counters of a server, used by its threads; without prometheus_client they do nothing.

    Parameters
    ----------
    read_gauges
        Returns the current values of gauges, by names of `GAUGES`.
    """

    def __init__(self, read_gauges: Callable[[], dict[str, float]]) -> None:
        self._read_gauges = read_gauges
        if MISSING:
            return
        self.registry = CollectorRegistry()
        self.registry.register(self)
        options: dict[str, Any] = {"namespace": "streamembed", "registry": self.registry}
        text = "Calls, or batches of a stream."
        self._requests = Counter("requests", text, ["call", "code"], **options)
        self._rows = Counter("rows", "Answered or learned rows.", ["call"], **options)
        self._rejected = Counter("rows_rejected", "Rejected rows.", **options)
        self._learned = Counter("events_learned", "Acknowledged events.", **options)
        text = "Seconds per call, or per batch of a stream."
        self._seconds = Histogram("request_seconds", text, ["call"], buckets=BUCKETS, **options)

    def count_request(
        self, call: str, code: str, seconds: float | None = None, rows: int = 0
    ) -> None:
        """Count a request and, where it was accepted, its time."""
        if MISSING:
            return
        self._requests.labels(call, code).inc()
        if rows:
            self._rows.labels(call).inc(rows)
        if seconds is not None:
            self._seconds.labels(call).observe(seconds)

    def count_learned(self, learned: Learned) -> None:
        """Count acknowledged events and rejected rows."""
        if not MISSING:
            self._learned.inc(learned.accepted)
            self._rejected.inc(len(learned.rejected))

    def collect(self) -> Iterator[Any]:
        """The gauges; called by prometheus_client."""
        for name, value in self._read_gauges().items():
            yield GaugeMetricFamily(f"streamembed_{name}", GAUGES[name], value)

    def listen(self, host: str, port: int) -> tuple[int, Callable[[], None]]:
        """Serve all of it over HTTP; returns the port, and a function that ends it."""
        server, thread = start_http_server(port, host, self.registry)

        def close() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        return server.server_port, close
