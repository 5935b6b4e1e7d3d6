"""Where alarms go: to a command, from a thread that never holds up the stream.

What is waiting is bounded. An alarm that finds the queue full, or that the command does not accept,
is counted.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from queue import Full, Queue

from streamembed.drift.alarm import Alarm
from streamembed.errors import ParameterError, quote

MAX_WAITING = 100  # alarms
COMMAND_TIMEOUT = 60.0  # seconds
CLOSING_TIMEOUT = 30.0


class CommandDelivery:
    """Runs a command of the shell for each record, with one line of JSON on its standard input.

    Attributes
    ----------
    delivered, failed, dropped : int
        Alarms that the command accepted (exit code 0); that it did not; that found the queue full.
    """

    def __init__(self, command: str) -> None:
        if not command.strip():
            raise ParameterError("on_alarm='' must be a command of the shell")
        self.delivered = self.failed = self.dropped = 0
        self._command, self._error = command, ""
        self._waiting: Queue[bytes | None] = Queue(MAX_WAITING + 1)  # None ends it
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __call__(self, alarm: Alarm) -> None:
        """Put an alarm in the queue; count it where there is no room."""
        if self._waiting.qsize() >= MAX_WAITING:
            self.dropped += 1
        else:
            self._waiting.put(json.dumps(alarm.as_dict()).encode() + b"\n")

    def close(self, timeout: float = CLOSING_TIMEOUT) -> str | None:
        """Wait for what is in the queue, so many seconds at most.

        Returns
        -------
        How many records did not arrive, and the last error, in words; None if all did.
        """
        with contextlib.suppress(Full):  # closed a second time
            self._waiting.put_nowait(None)
        self._thread.join(timeout)
        left = self._waiting.qsize() if self._thread.is_alive() else 0
        missing = self.failed + self.dropped + left
        if not missing:
            return None
        why = f" (last error: {self._error})" if self._error else ""
        return (
            f"{missing} of {missing + self.delivered} records did not reach the command "
            f"{quote(self._command)}: {self.failed} not accepted{why}, {self.dropped} dropped, "
            f"{left} still waiting; all are in alarms.jsonl"
        )

    def _run(self) -> None:
        while (line := self._waiting.get()) is not None:
            try:
                subprocess.run(
                    self._command, shell=True, input=line, check=True, timeout=COMMAND_TIMEOUT
                )
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                self._error = str(error) or type(error).__name__
                self.failed += 1
            else:
                self.delivered += 1
