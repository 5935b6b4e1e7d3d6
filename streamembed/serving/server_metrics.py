"""Counters of a server, and what Prometheus reads of it.

No label comes from a client: calls are those of `CALLS`, codes those of `RefusedError`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from streamembed.errors import ParameterError

prometheus_client: Any = None
with suppress(ImportError):  # an optional extra
    import prometheus_client
    import prometheus_client.core

CALLS = ("transform", "learn", "get", "info", "action")
# Counters by the names of their labels.
COUNTERS = {
    "requests": ("call", "code"),
    "request_seconds": ("call",),
    "rows": ("call",),
    "events_learned": (),
    "rows_rejected": (),
}


class ServerMetrics:
    """Counters of a server, used by its threads.

    Parameters
    ----------
    read_gauges
        Returns the current values of gauges by name.
    """

    def __init__(self, read_gauges: Callable[[], dict[str, float]]) -> None:
        self._read_gauges = read_gauges
        self._lock = threading.Lock()
        self._counts: dict[str, Any] = {name: Counter() for name in COUNTERS}

    def count(self, name: str, *labels: str, value: float = 1) -> None:
        """Add to a counter of `COUNTERS`."""
        with self._lock:
            self._counts[name][labels] += value

    def count_batch(self, call: str, rows: int, seconds: float) -> None:
        """Count an answered batch of a stream."""
        self.count("requests", call, "ok")
        self.count("request_seconds", call, value=seconds)
        self.count("rows", call, value=rows)

    def collect(self) -> Iterator[Any]:
        """All series; called by prometheus_client."""
        with self._lock:
            counts = {name: [*counter.items()] for name, counter in self._counts.items()}
        for name, labels in COUNTERS.items():
            text = name.replace("_", " ")
            family = prometheus_client.core.CounterMetricFamily(
                f"streamembed_{name}", text, labels=labels
            )
            for key, value in counts[name]:
                family.add_metric(key, value)
            yield family
        for name, value in self._read_gauges().items():
            text = name.replace("_", " ")
            yield prometheus_client.core.GaugeMetricFamily(f"streamembed_{name}", text, value)

    def listen(self, host: str, port: int) -> Any:
        """Serve all of it over HTTP, by a thread; returns the server.

        Raises
        ------
        ParameterError
            prometheus_client is missing: it is an extra.
        """
        if prometheus_client is None:
            raise ParameterError(
                "--metrics-port needs prometheus_client: pip install 'streamembed[serve]'"
            )
        registry = prometheus_client.CollectorRegistry()
        registry.register(self)
        return prometheus_client.start_http_server(port, host, registry)[0]
