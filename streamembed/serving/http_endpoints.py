"""Health, readiness and counters over plain HTTP, for what watches servers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from streamembed.addresses import is_own, names_of
from streamembed.serving.counters import BUCKETS, CALLS, CODES, REASONS
from streamembed.serving.server_settings import cannot_listen

try:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    MISSING = ""
except ImportError as error:  # an extra: whoever asks for counters is told how to install it
    MISSING = str(error)

__all__ = ["Health"]

# Seconds that a client may take to ask.
PATIENCE = 10.0
GAUGES = {
    "snapshot_epoch": ("epoch", "Epoch of the snapshot that is served."),
    "snapshot_position": ("position", "Events that it has learned."),
    "snapshot_age_seconds": ("age", "Since the run was written to when it was published."),
    "certificate_residual": ("residual", "Of its certificate."),
    "certificate_met": ("met", "1 where it meets the tolerance."),
    "resolution": ("resolution", "Of its landmarks."),
    "mass_total": ("mass", "Events that its points stand for."),
}


class Health:
    """An HTTP server beside a `Supervisor`; a context manager.

    Parameters
    ----------
    host, port
        Where it listens; 0: any port that is free.
    status
        What there is to tell: that of `Supervisor.status`.

    Raises
    ------
    ParameterError
        The port is in use, or the address is not one of this machine.
    """

    def __init__(self, host: str, port: int, status: Callable[[], dict[str, Any]]) -> None:
        try:
            self._server = _Server((host, port), status)
        except OSError as error:
            raise cannot_listen(error, host, port, "metrics-port") from error
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Health:
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], status: Callable[[], dict[str, Any]]) -> None:
        self.status = status
        self.names = names_of(address[0])
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who asks and goes away is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "streamembed", ""
    timeout = PATIENCE

    def do_GET(self) -> None:
        """One of three pages."""
        if self.path == "/healthz":
            self._answer(200, "ok")
        elif self.path == "/readyz":
            is_ready = self.server.status()["ready"]
            self._answer(200 if is_ready else 503, "ready" if is_ready else "not ready")
        elif self.path == "/metrics":
            self._answer(*self._metrics())
        else:
            self._answer(404, "there are /healthz, /readyz and /metrics")

    def _metrics(self) -> tuple[int, str]:
        """Status and counters, of a request that names this server: no other site may read them."""
        if not is_own(self.headers.get("Host", ""), self.server.names):
            return 403, "/metrics is served under another name: ask by address, see --metrics-host"
        if MISSING:
            return 501, "counters need: pip install 'streamembed[serve]'"
        return 200, metrics_of(self.server.status())

    def _answer(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal is its reader's."""


def metrics_of(status: dict[str, Any]) -> str:
    """What a server counted, as Prometheus reads it: fewer than 200 series, whoever calls."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Told(status))
    return str(generate_latest(registry).decode())


class _Told:
    """All metrics of one moment."""

    def __init__(self, status: dict[str, Any]) -> None:
        self._status = status

    def collect(self) -> Iterator[Any]:
        """What prometheus_client asks for."""
        status, counts = self._status, self._status["counts"]
        requests = _counter("requests", "Calls, or batches of a stream.", ["call", "code"])
        for key, number in sorted(counts.get("requests", {}).items()):
            call, code = key.split(" ")
            assert call in CALLS
            assert code in CODES
            requests.add_metric([call, code], number)
        yield requests
        rows = _counter("rows", "Rows that were answered or learned.", ["call"])
        for call, number in sorted(counts.get("rows", {}).items()):
            rows.add_metric([call], number)
        yield rows
        rejected = _counter("rows_rejected", "Rows that could not be used.", ["reason"])
        for reason in REASONS.values():
            rejected.add_metric([reason], counts.get("rejected", {}).get(reason, 0))
        yield rejected
        learned = _counter("events_learned", "Events that were acknowledged.")
        learned.add_metric([], counts.get("learned", 0))
        yield learned
        restarts = _counter("restarts", "Processes that were started again.")
        restarts.add_metric([], status["restarts"])
        yield restarts
        seconds = HistogramMetricFamily(
            "streamembed_request_seconds", "Of a call, or of a batch.", labels=["call"]
        )
        for call, buckets in sorted(counts.get("buckets", {}).items()):
            seconds.add_metric([call], _summed(buckets), counts["seconds"][call])
        yield seconds
        yield _gauge("streams_open", "Calls that are open.", status["open"])
        yield _gauge("queue_batches", "Batches that wait to be learned.", status["waiting"])
        if told := status["snapshot"]:
            for name, (key, text) in GAUGES.items():
                yield _gauge(name, text, told[key])


def _counter(name: str, text: str, labels: list[str] | None = None) -> Any:
    return CounterMetricFamily(f"streamembed_{name}", text, labels=labels or [])


def _gauge(name: str, text: str, value: float) -> Any:
    return GaugeMetricFamily(f"streamembed_{name}", text, value)


def _summed(buckets: list[int]) -> list[tuple[str, int]]:
    """Numbers of requests that took at most so long."""
    found, total = [], 0
    for end, number in zip([*map(str, BUCKETS), "+Inf"], buckets, strict=True):
        total += number
        found.append((end, total))
    return found
