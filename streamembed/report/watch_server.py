"""A server for a page that follows a run: by default for this machine, always read-only.

The run is read as `streamembed.read_run` reads it: no writer waits for it, and nothing is written
to its folder. A browser asks again every few seconds. The page is rendered again only after a
commit, and rendering takes at most a tenth of the time.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from streamembed.addresses import LOOPBACK, is_own_host, list_host_names
from streamembed.errors import FileError, StreamembedError, check_path, summarise_error
from streamembed.report.figures import require_bokeh
from streamembed.report.json_values import encode_json
from streamembed.report.page import render_page
from streamembed.report.report_contents import collect_contents
from streamembed.runs.run_events import read_change_token
from streamembed.runs.run_reader import read_run
from streamembed.storage.database import find_write_time, stat_files

# Seconds between two requests of a page, and without a commit after which it is stale.
POLL_SECONDS, STALE = 2.0, 90.0
# Rendering takes at most this share of the time.
RENDER_SHARE = 0.1
# Seconds that a browser may take to send a request.
REQUEST_TIMEOUT = 30.0


class FollowedRun:
    """The contents of a run, read again after a commit; thread-safe."""

    def __init__(self, run: str | os.PathLike[str]) -> None:
        """MissingFileError or DamagedFileError if there is no run to follow."""
        self.folder = Path(check_path(run, "run"))
        self._lock = threading.Lock()
        self._token = ""
        self._next = 0.0  # when it may be read again
        self._contents: dict[str, Any] = {}
        self._body, self._etag = b"", ""
        self._refresh()

    def read_state(self) -> tuple[dict[str, Any], bytes, str]:
        """Contents, the same as JSON, its ETag; the previous ones while another thread reads.

        Raises
        ------
        StreamembedError
            The run cannot be read now.
        """
        if self._lock.acquire(blocking=False):
            try:
                if time.monotonic() >= self._next:
                    self._refresh()
            finally:
                self._lock.release()
        return self._contents, self._body, self._etag

    def _refresh(self) -> None:
        start = time.monotonic()
        with read_run(self.folder) as reader:
            commit = read_change_token(reader)
            if commit != self._token:
                contents = collect_contents(reader)
                body = encode_json(contents).encode()
                etag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
                self._contents, self._body, self._etag = contents, body, etag
                self._token = commit
        duration = time.monotonic() - start
        self._next = time.monotonic() + duration / RENDER_SHARE

    def compute_age(self) -> float:
        """Seconds since the last write to the run."""
        return max(0.0, time.time() - find_write_time(stat_files(self.folder)))


class _WatchServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = os.name != "nt"  # there, two servers could listen

    def __init__(self, address: tuple[str, int], followed: FollowedRun) -> None:
        self.followed = followed
        self.names = list_host_names(address[0])
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _WatchHandler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a closed connection; report any other error, and continue."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _WatchHandler(BaseHTTPRequestHandler):
    server: _WatchServer
    server_version, sys_version = "streamembed", ""
    protocol_version = "HTTP/1.0"  # an idle browser keeps no thread
    timeout = REQUEST_TIMEOUT

    def do_GET(self) -> None:
        """Serve the page, or its state."""
        port = self.server.server_address[1]
        if not is_own_host(self.headers.get("Host", ""), self.server.names, port):
            message = b"this host name is not allowed: use the address, or set --host\n"
            self._respond(403, "text/plain", message)
            return
        path = self.path.partition("?")[0]
        if path not in ("/", "/state.json"):
            self._respond(404, "text/plain", b"not found\n")
            return
        try:
            contents, body, etag = self.server.followed.read_state()
        except StreamembedError as error:
            self._respond(503, "text/plain", (summarise_error(error) + "\n").encode())
            return
        if path == "/":
            live = {"etag": etag, "every": POLL_SECONDS, "stale": STALE}
            self._respond(200, "text/html", render_page(contents, live).encode())
        elif self.headers.get("If-None-Match") == etag:
            self._respond(304, "application/json", b"", etag)
        else:
            self._respond(200, "application/json", body, etag)

    def _respond(self, status: int, content_type: str, body: bytes, etag: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{content_type}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        if etag:
            self.send_header("ETag", etag)
            self.send_header("X-Run-Age", f"{self.server.followed.compute_age():.1f}")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the terminal shows the address only."""


def create_server(
    run: str | os.PathLike[str], host: str = LOOPBACK, port: int = 0
) -> ThreadingHTTPServer:
    """Create a server that listens; its ``serve_forever`` runs it.

    Parameters
    ----------
    run
        A run of any kind.
    host
        Address to listen on; anyone who can reach an address other than the loopback can read the
        run.
    port
        0: any free port; ``server_address`` has it.

    Raises
    ------
    ParameterError
        Bokeh is not installed.
    MissingFileError, DamagedFileError
        There is no run, or it is damaged.
    FileError
        The port is in use, or the address is not one of this machine.
    """
    require_bokeh()
    followed = FollowedRun(run)
    try:
        return _WatchServer((host, port), followed)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(
            f"cannot listen on {host}:{port} ({reason}): choose another port with --port, or "
            "--port 0 for any free port"
        ) from error
