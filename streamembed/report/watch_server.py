"""A server for a page that follows a run: for this machine, and read-only.

The run is read as `streamembed.read_run` reads it: no writer waits for it, and nothing is written
to its folder. A browser asks again every few seconds. The page is rendered again only after a
commit, and rendering takes at most a tenth of the time.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from streamembed.errors import StreamembedError, summarise_error
from streamembed.report.figures import require_bokeh
from streamembed.report.json_values import encode_json
from streamembed.report.page import render_page
from streamembed.report.report_contents import collect_contents
from streamembed.runs.run_reader import RunFollower, RunReader

HOST = "127.0.0.1"
# Seconds that a browser may take to send its request.
REQUEST_TIMEOUT = 30.0
# Seconds between two requests of a page, and without a commit after which it is stale.
POLL_SECONDS, STALE = 2.0, 90.0
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class PageState:
    """The contents of a page, the same as JSON, and its ETag."""

    contents: dict[str, Any]
    body: str
    etag: str


def _read_state(reader: RunReader, _: PageState | None) -> PageState:
    contents = collect_contents(reader)
    body = encode_json(contents)
    return PageState(contents, body, f'"{hashlib.sha256(body.encode()).hexdigest()[:20]}"')


class WatchServer(ThreadingHTTPServer):
    """Serves the page of one run; see `create_server`."""

    daemon_threads = True
    allow_reuse_address = os.name != "nt"  # there, two servers could listen

    def __init__(self, port: int, follower: RunFollower[PageState]) -> None:
        self.follower = follower
        super().__init__((HOST, port), _WatchHandler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a closed connection; report any other error, and continue."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _WatchHandler(BaseHTTPRequestHandler):
    server: WatchServer
    server_version, sys_version = "streamembed", ""
    timeout = REQUEST_TIMEOUT

    def do_GET(self) -> None:
        """Serve the page, or its state; the standard library refuses other methods with 501."""
        port = self.server.server_address[1]
        # another web site could read the answer through a browser (DNS rebinding)
        if self.headers.get("Host", "").lower() not in (f"{HOST}:{port}", f"localhost:{port}"):
            message = f"this host name is not allowed: use http://{HOST}:{port}/\n"
            self._respond(403, "text/plain", message)
            return
        path = self.path.partition("?")[0]
        if path not in ("/", "/state.json"):
            self._respond(404, "text/plain", "not found\n")
            return
        try:
            self.server.follower.refresh()
        except StreamembedError as error:
            self._respond(503, "text/plain", f"{summarise_error(error)}\n")
            return
        state = self.server.follower.current
        assert state is not None  # `create_server` has read it
        if path == "/":
            live = {"etag": state.etag, "every": POLL_SECONDS, "stale": STALE}
            self._respond(200, "text/html", render_page(state.contents, live))
        elif self.headers.get("If-None-Match") == state.etag:
            self._respond(304, "application/json", "", state.etag)
        else:
            self._respond(200, "application/json", state.body, state.etag)

    def _respond(self, status: int, kind: str, text: str, etag: str = "") -> None:
        headers = dict(HEADERS)
        if etag:
            age = max(0.0, time.time() - self.server.follower.find_write_time())
            headers |= {"ETag": etag, "X-Run-Age": f"{age:.1f}"}
        body = text.encode()
        headers |= {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests do not belong in the terminal."""


def create_server(run: str | os.PathLike[str], port: int = 0) -> WatchServer:
    """Create a server that listens; its ``serve_forever`` runs it.

    Parameters
    ----------
    run
        A run of any kind.
    port
        0: any free port; ``server_address`` has it.

    Raises
    ------
    ParameterError
        Bokeh is not installed.
    MissingFileError, DamagedFileError
        There is no run, or it is damaged.
    OSError
        The port is in use.
    """
    require_bokeh()
    follower = RunFollower(run, _read_state)
    follower.refresh()
    return WatchServer(port, follower)
