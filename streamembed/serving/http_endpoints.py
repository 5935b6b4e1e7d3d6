"""Health, readiness and counters over plain HTTP, for monitoring systems."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from streamembed.addresses import is_own_host, list_host_names
from streamembed.serving.counters import BUCKETS, CALLS, CODES, REASONS
from streamembed.serving.server_settings import build_listen_error

try:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    MISSING = ""
except ImportError as error:  # an extra: /metrics answers how to install it
    MISSING = str(error)

# Seconds that a client may take to send its request.
TIMEOUT = 10.0
GAUGES = {
    "snapshot_epoch": ("epoch", "Epoch of the served snapshot's axes; they are kept within it."),
    "snapshot_position": ("position", "Events that the served snapshot has learned."),
    "snapshot_age_seconds": (
        "age",
        "Seconds since the last write to the run before it was published.",
    ),
    "certificate_residual": ("residual", "Residual of its certificate."),
    "certificate_met": ("met", "1 if its certificate meets the tolerance."),
    "resolution": ("resolution", "Resolution of its landmarks."),
    "mass_total": ("mass", "Total mass of its points, in events."),
}


class HttpEndpoints:
    """The HTTP server of a `Supervisor`; a context manager.

    Parameters
    ----------
    host, port
        Where it listens; port 0: any free port.
    status
        Returns what is published: `Supervisor.status`.

    Raises
    ------
    ParameterError
        The port is in use, or the address is not one of this machine.
    """

    def __init__(self, host: str, port: int, status: Callable[[], dict[str, Any]]) -> None:
        try:
            self._server = _EndpointServer((host, port), status)
        except OSError as error:
            raise build_listen_error(error, host, port, "metrics-port") from error
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> HttpEndpoints:
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _EndpointServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], status: Callable[[], dict[str, Any]]) -> None:
        self.status = status
        self.names = list_host_names(address[0])
        super().__init__(address, _EndpointHandler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore it: a client that disconnects is no error."""


class _EndpointHandler(BaseHTTPRequestHandler):
    server: _EndpointServer
    server_version, sys_version = "streamembed", ""
    timeout = TIMEOUT

    def do_GET(self) -> None:
        """Answer one of three paths."""
        if self.path == "/healthz":
            self._respond(200, "ok")
        elif self.path == "/readyz":
            is_ready = self.server.status()["ready"]
            self._respond(200 if is_ready else 503, "ready" if is_ready else "not ready")
        elif self.path == "/metrics":
            self._respond(*self._render_metrics())
        else:
            self._respond(404, "not found; the paths are /healthz, /readyz and /metrics")

    def _render_metrics(self) -> tuple[int, str]:
        """Status code and text of /metrics; 403 where ``Host`` does not name this server.

        Otherwise another web site could read them through a browser (DNS rebinding).
        """
        if not is_own_host(self.headers.get("Host", ""), self.server.names):
            return (
                403,
                "/metrics is not served under this host name; use the address or --metrics-host",
            )
        if MISSING:
            return 501, "/metrics needs prometheus_client: pip install 'streamembed[serve]'"
        return 200, render_metrics(self.server.status())

    def _respond(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests do not belong in the terminal."""


def render_metrics(status: dict[str, Any]) -> str:
    """The status of a server in the text format of Prometheus: fewer than 200 series."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_MetricsCollector(status))
    return str(generate_latest(registry).decode())


class _MetricsCollector:
    def __init__(self, status: dict[str, Any]) -> None:
        self._status = status

    def collect(self) -> Iterator[Any]:
        """All metric families of the status; called by prometheus_client."""
        return _list_metrics(self._status)


def _list_metrics(status: dict[str, Any]) -> Iterator[Any]:
    counts = status["counts"]
    requests = {tuple(key.split(" ")): number for key, number in counts.get("requests", {}).items()}
    assert all(call in CALLS and code in CODES for call, code in requests)
    yield _build_counter("requests", "Calls, or batches of a stream.", ["call", "code"], requests)
    rows = {(call,): number for call, number in counts.get("rows", {}).items()}
    yield _build_counter("rows", "Answered or learned rows.", ["call"], rows)
    by_reason = counts.get("rejected", {})
    rejected = {(reason,): by_reason.get(reason, 0) for reason in REASONS.values()}
    yield _build_counter("rows_rejected", "Rejected rows.", ["reason"], rejected)
    learned = {(): counts.get("learned", 0)}
    yield _build_counter("events_learned", "Acknowledged events.", [], learned)
    yield _build_counter("restarts", "Restarted processes.", [], {(): status["restarts"]})
    seconds = HistogramMetricFamily(
        "streamembed_request_seconds",
        "Seconds per call, or per batch of a stream.",
        labels=["call"],
    )
    for call, buckets in sorted(counts.get("buckets", {}).items()):
        seconds.add_metric([call], _accumulate(buckets), counts["seconds"][call])
    yield seconds
    yield _build_gauge("streams_open", "Open calls.", status["open"])
    yield _build_gauge("queue_batches", "Batches that wait to be learned.", status["waiting"])
    if summary := status["snapshot"]:
        for name, (key, text) in GAUGES.items():
            yield _build_gauge(name, text, summary[key])


def _build_counter(name: str, text: str, labels: list[str], values: Mapping[Any, int]) -> Any:
    family = CounterMetricFamily(f"streamembed_{name}", text, labels=labels)
    for key, number in sorted(values.items()):
        family.add_metric(key, number)
    return family


def _build_gauge(name: str, text: str, value: float) -> Any:
    return GaugeMetricFamily(f"streamembed_{name}", text, value)


def _accumulate(buckets: list[int]) -> list[tuple[str, int]]:
    cumulated, total = [], 0
    for end, number in zip([*map(str, BUCKETS), "+Inf"], buckets, strict=True):
        total += number
        cumulated.append((end, total))
    return cumulated
