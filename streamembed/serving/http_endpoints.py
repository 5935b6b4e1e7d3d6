"""Health, readiness and counters over plain HTTP, for monitoring systems."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from streamembed.http_server import HttpHandler, HttpServer
from streamembed.serving.counters import MISSING
from streamembed.serving.server_settings import build_listen_error

if not MISSING:
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.multiprocess import MultiProcessCollector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
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
    folder
        Files of the counters of all processes: `Supervisor.folder`.

    Raises
    ------
    ParameterError
        The port is in use, or the address is not one of this machine.
    """

    def __init__(
        self, host: str, port: int, status: Callable[[], dict[str, Any]], folder: str
    ) -> None:
        try:
            self._server = _EndpointServer((host, port), _EndpointHandler)
        except OSError as error:
            raise build_listen_error(error, host, port, "metrics-port") from error
        self._server.status, self._server.folder = status, folder
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> HttpEndpoints:
        threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _EndpointServer(HttpServer):
    status: Callable[[], dict[str, Any]]
    folder: str


class _EndpointHandler(HttpHandler):
    server: _EndpointServer

    def answer(self) -> None:
        """Answer one of three paths."""
        status, text = self._choose_answer()
        self.respond(status, CONTENT_TYPE, text.encode())

    def _choose_answer(self) -> tuple[int, str]:
        if self.path == "/healthz":
            return 200, "ok"
        if self.path == "/readyz":
            return (200, "ready") if self.server.status()["ready"] else (503, "not ready")
        if self.path != "/metrics":
            return 404, "not found; the paths are /healthz, /readyz and /metrics"
        if not self.is_own_host():
            return (
                403,
                "/metrics is not served under this host name; use the address or --metrics-host",
            )
        if MISSING:
            return 501, "/metrics needs prometheus_client: pip install 'streamembed[serve]'"
        return 200, render_metrics(self.server.status(), self.server.folder)


def render_metrics(status: dict[str, Any], folder: str) -> str:
    """The status and the counters of a server in the text format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
    registry.register(_StatusCollector(status))
    return str(generate_latest(registry).decode())


class _StatusCollector:
    def __init__(self, status: dict[str, Any]) -> None:
        self._status = status

    def collect(self) -> Iterator[Any]:
        """What is no counter of a process; called by prometheus_client."""
        status = self._status
        restarts = status["restarts"]
        yield CounterMetricFamily("streamembed_restarts", "Restarted processes.", restarts)
        gauges = [
            ("streams_open", "Open calls.", status["open"]),
            ("queue_batches", "Batches that wait to be learned.", status["waiting"]),
        ]
        if summary := status["snapshot"]:
            gauges += [(name, text, summary[key]) for name, (key, text) in GAUGES.items()]
        for name, text, value in gauges:
            yield GaugeMetricFamily(f"streamembed_{name}", text, value)
