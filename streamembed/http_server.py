"""A small HTTP server that knows its own host names, answers GET alone, and logs no requests."""

from __future__ import annotations

import os
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from streamembed.addresses import is_own_host, list_host_names

# Seconds that a client may take to send its request.
REQUEST_TIMEOUT = 30.0


class HttpServer(ThreadingHTTPServer):
    """Listens at an address, of IPv4 or IPv6; ``names`` are the host names that it answers to."""

    daemon_threads = True
    allow_reuse_address = os.name != "nt"  # there, two servers could listen

    def __init__(self, address: tuple[str, int], handler: type[HttpHandler]) -> None:
        self.names = list_host_names(address[0])
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a closed connection; report any other error, and continue."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class HttpHandler(BaseHTTPRequestHandler):
    """Answers one request; an idle client keeps no thread, because connections are not reused."""

    server: HttpServer
    server_version, sys_version = "streamembed", ""
    timeout = REQUEST_TIMEOUT

    def do_GET(self) -> None:
        """Called by the standard library for a request by GET; any other is refused with 501."""
        self.answer()

    def answer(self) -> None:
        """Answer the request: `respond`, once."""
        raise NotImplementedError

    def is_own_host(self, port: int | None = None) -> bool:
        """Whether the header ``Host`` names this server, and this port if it has one.

        Otherwise another web site could read the answer through a browser (DNS rebinding).
        """
        return is_own_host(self.headers.get("Host", ""), self.server.names, port)

    def respond(
        self, status: int, kind: str, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        """Send an answer of a content type."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests do not belong in the terminal."""
