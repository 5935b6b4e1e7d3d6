"""A page that follows a run: served to this machine, read only, whatever the browser does.

The run is read as `streamembed.read_run` reads it: no writer waits for this, and nothing is written
to its folder. A browser asks again every few seconds; what it is given is made anew only where
something was committed, and not so often that making it takes more than a tenth of the time.
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

from streamembed.addresses import LOOPBACK, is_own, names_of
from streamembed.errors import FileError, StreamembedError, path_text, said
from streamembed.report.figures import need_bokeh
from streamembed.report.json_values import as_json
from streamembed.report.page import page_of
from streamembed.report.report_contents import contents_of
from streamembed.runs.run_events import token
from streamembed.runs.run_reader import read_run
from streamembed.storage.database import NAME

__all__ = ["Followed", "serve"]

# Seconds between two questions of a page, and after which nothing new is called stale.
EVERY, STALE = 2.0, 90.0
# Making a page takes at most this share of the time.
SHARE = 0.1
# Seconds that a browser may take to ask.
PATIENCE = 30.0


class Followed:
    """What is known of a run, made anew where something was committed; used by many threads."""

    def __init__(self, run: str | os.PathLike[str]) -> None:
        """MissingFileError or DamagedFileError where there is none to follow."""
        self.folder = Path(path_text(run, "run"))
        self._lock = threading.Lock()
        self._token = ""
        self._next = 0.0  # when it may be made again
        self._contents: dict[str, Any] = {}
        self._told, self._etag = b"", ""
        self._renew()

    def state(self) -> tuple[dict[str, Any], bytes, str]:
        """What a page says, the same as JSON, and a tag of that; an older one while one is made.

        Raises
        ------
        StreamembedError
            The run cannot be read now.
        """
        if self._lock.acquire(blocking=False):
            try:
                if time.monotonic() >= self._next:
                    self._renew()
            finally:
                self._lock.release()
        return self._contents, self._told, self._etag

    def _renew(self) -> None:
        began = time.monotonic()
        with read_run(self.folder) as reader:
            now = token(reader)
            if now != self._token:
                contents = contents_of(reader)
                told = as_json(contents).encode()
                etag = f'"{hashlib.sha256(told).hexdigest()[:20]}"'
                self._contents, self._told, self._etag = contents, told, etag
                self._token = now
        took = time.monotonic() - began
        self._next = time.monotonic() + took / SHARE

    def age(self) -> float:
        """Seconds since something was written to the run."""
        last = 0.0
        for name in (NAME, f"{NAME}-wal"):
            try:
                found = (self.folder / name).stat()
            except OSError:
                continue
            if found.st_size:  # readers leave an empty one
                last = max(last, found.st_mtime)
        return max(0.0, time.time() - last)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = os.name != "nt"  # there it would let two listen

    def __init__(self, address: tuple[str, int], followed: Followed) -> None:
        self.followed = followed
        self.names = names_of(address[0])
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is no error; anything else is, and the server goes on."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "streamembed", ""
    protocol_version = "HTTP/1.0"  # an idle browser holds no thread
    timeout = PATIENCE

    def do_GET(self) -> None:
        """The page, or its state; nothing else is here."""
        port = self.server.server_address[1]
        if not is_own(self.headers.get("Host", ""), self.server.names, port):
            refusal = b"this page is served under another name: ask by address, or see --host\n"
            self._answer(403, "text/plain", refusal)
            return
        path = self.path.partition("?")[0]
        if path not in ("/", "/state.json"):
            self._answer(404, "text/plain", b"there is nothing of that name\n")
            return
        try:
            contents, told, etag = self.server.followed.state()
        except StreamembedError as error:
            self._answer(503, "text/plain", (said(error) + "\n").encode())
            return
        if path == "/":
            live = {"etag": etag, "every": EVERY, "stale": STALE}
            self._answer(200, "text/html", page_of(contents, live).encode())
        elif self.headers.get("If-None-Match") == etag:
            self._answer(304, "application/json", b"", etag)
        else:
            self._answer(200, "application/json", told, etag)

    def _answer(self, status: int, kind: str, body: bytes, etag: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        if etag:
            self.send_header("ETag", etag)
            self.send_header("X-Run-Age", f"{self.server.followed.age():.1f}")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal is its reader's."""


def serve(run: str | os.PathLike[str], host: str = LOOPBACK, port: int = 0) -> ThreadingHTTPServer:
    """A server that is ready, to be run by its ``serve_forever``.

    Parameters
    ----------
    run
        A run of any kind.
    host
        Address to listen at; of another one than the loopback's, anyone who reaches it reads the
        run.
    port
        0: any that is free; ``server_address`` tells which.

    Raises
    ------
    ParameterError
        Bokeh is not installed.
    MissingFileError, DamagedFileError
        There is no run, or it is damaged.
    FileError
        The port is in use, or the address is not one of this machine.
    """
    need_bokeh()
    followed = Followed(run)
    try:
        return _Server((host, port), followed)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise FileError(
            f"{host}:{port} cannot be listened at ({why}): choose another with --port, or --port 0 "
            "for any that is free"
        ) from error
