"""Where alarms go: to a command, or to a web address, from a thread that never holds up the stream.

What is waiting is bounded, and so are the attempts. An alarm that finds the queue full, or that is
not accepted, is counted.
"""

from __future__ import annotations

import abc
import json
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from queue import Empty, Full, Queue

from streamembed.drift.alarm import Alarm
from streamembed.errors import ParameterError, quote

MAX_WAITING = 100  # alarms
ATTEMPTS = 3
PAUSE = 1.0  # seconds before the second attempt; then twice as many
TIMEOUT = 10.0  # seconds of a request
COMMAND_TIMEOUT = 60.0
CLOSING_TIMEOUT = 30.0


class Delivery(abc.ABC):
    """A function of an alarm that hands it to a thread of its own.

    Attributes
    ----------
    delivered, failed, dropped : int
        Alarms that were accepted; that were not, after all attempts; that found the queue full.
    """

    attempts = ATTEMPTS

    def __init__(self) -> None:
        self.delivered = self.failed = self.dropped = 0
        self._error = ""
        self._waiting: Queue[bytes] = Queue(MAX_WAITING)
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @abc.abstractmethod
    def _send(self, line: bytes) -> None:
        """Deliver one line of JSON; an error as `_try` catches if it is not accepted."""

    def __call__(self, alarm: Alarm) -> None:
        """Put an alarm in the queue; count it where there is no room."""
        try:
            self._waiting.put_nowait(json.dumps(alarm.as_dict()).encode() + b"\n")
        except Full:
            self.dropped += 1

    def close(self, timeout: float = CLOSING_TIMEOUT) -> str | None:
        """Wait for what is in the queue, so many seconds at most.

        Returns
        -------
        How many records did not arrive, and the last error, in words; None if all did.
        """
        self._is_closing.set()
        self._thread.join(timeout)
        left = self._waiting.qsize() + self._thread.is_alive()
        missing = self.failed + self.dropped + left
        if not missing:
            return None
        why = f" (last error: {self._error})" if self._error else ""
        return (
            f"{missing} of {missing + self.delivered} records did not reach {self}: {self.failed} "
            f"not accepted{why}, {self.dropped} dropped, {left} still waiting; all are in "
            "alarms.jsonl"
        )

    def _run(self) -> None:
        while True:
            try:
                line = self._waiting.get(timeout=0.05)
            except Empty:
                if self._is_closing.is_set():
                    return
                continue
            if self._try(line):
                self.delivered += 1
            else:
                self.failed += 1

    def _try(self, line: bytes) -> bool:
        for attempt in range(self.attempts):
            if attempt:
                time.sleep(PAUSE * 2 ** (attempt - 1))
            try:
                self._send(line)
            except (OSError, ValueError, HTTPException, subprocess.SubprocessError) as error:
                self._error = str(error) or type(error).__name__
                continue
            return True
        return False


class CommandDelivery(Delivery):
    """Runs a command of the shell for each alarm, with one line of JSON on its standard input."""

    attempts = 1  # it may have done half of what it does

    def __init__(self, command: str) -> None:
        if not command.strip():
            raise ParameterError("on_alarm='' must be a command of the shell")
        self._command = command
        super().__init__()

    def __str__(self) -> str:
        return f"the command {quote(self._command)}"

    def _send(self, line: bytes) -> None:
        subprocess.run(self._command, shell=True, input=line, check=True, timeout=COMMAND_TIMEOUT)


class WebhookDelivery(Delivery):
    """Posts each alarm, as JSON, to a web address; tries three times."""

    def __init__(self, url: str) -> None:
        if not _is_address(url):
            raise ParameterError(
                f"webhook={quote(url)} must be an http or https address, without spaces: "
                "'https://hooks.example.org/drift'"
            )
        self._url = url
        self._opener = urllib.request.build_opener(_RedirectRefusal)
        super().__init__()

    def __str__(self) -> str:
        return urllib.parse.urlsplit(self._url).hostname or ""

    def _send(self, line: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url, line, headers)
        with self._opener.open(request, timeout=TIMEOUT):
            pass


class _RedirectRefusal(urllib.request.HTTPRedirectHandler):
    """An address that is elsewhere is an error: the request there would be a GET, without body."""

    def redirect_request(self, *_: object) -> None:
        return None


def _is_address(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number
        return False
    return bool(is_whole) and not any(c.isspace() for c in url)
