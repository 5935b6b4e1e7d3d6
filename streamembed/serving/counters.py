"""Counters of all processes of a server: prometheus_client keeps them in files of one folder.

No label comes from a client: calls, codes and reasons are those of the lists here. A process that
is started again continues the counters of the one before it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

try:
    from prometheus_client import CollectorRegistry, Counter, Histogram, values

    MISSING = ""
except ImportError as error:  # an extra: without it nothing is counted
    MISSING = str(error)

CALLS = ("transform", "learn", "get", "info", "action")
CODES = (
    "ok",
    "invalid",
    "offset",
    "not_found",
    "not_ready",
    "unauthenticated",
    "unauthorized",
    "unavailable",
    "internal",
)
# Why a row was rejected, by how the message of `streamembed.data` begins.
REASONS = {
    "null": "null",
    "NaN": "nan",
    "infinite": "infinite",
    "value": "too_large",
    "the id": "null_id",
    "duplicate": "duplicate_id",
    "": "other",
}
# Upper bounds of the histogram of request times, in seconds.
BUCKETS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0)


def classify_reason(text: str) -> str:
    """The message of a rejected row as one of the values of `REASONS`.

    Examples
    --------
    >>> classify_reason("NaN in 'x'"), classify_reason("value 1e+200 in 'x' is beyond 1e150")
    ('nan', 'too_large')
    >>> classify_reason("?")
    'other'
    """
    return next(reason for start, reason in REASONS.items() if text.startswith(start))


def share_counters(folder: str, name: str) -> None:
    """Keep the counters of this process in a folder, in files of this name.

    Call it once, before `RequestCounters`; no two processes may have the same name at a time.
    """
    if not MISSING:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        values.ValueClass = values.MultiProcessValue(lambda: name)  # type: ignore[no-untyped-call]


class RequestCounters:
    """Counters of one process, used by its threads; without prometheus_client they do nothing."""

    def __init__(self) -> None:
        if MISSING:
            return
        options: dict[str, Any] = {"namespace": "streamembed", "registry": CollectorRegistry()}
        text = "Calls, or batches of a stream."
        self._requests = Counter("requests", text, ["call", "code"], **options)
        self._rows = Counter("rows", "Answered or learned rows.", ["call"], **options)
        self._rejected = Counter("rows_rejected", "Rejected rows.", ["reason"], **options)
        self._learned = Counter("events_learned", "Acknowledged events.", **options)
        text = "Seconds per call, or per batch of a stream."
        self._seconds = Histogram("request_seconds", text, ["call"], buckets=BUCKETS, **options)
        for reason in REASONS.values():
            self._rejected.labels(reason)

    def count_request(
        self, call: str, code: str, seconds: float | None = None, rows: int = 0
    ) -> None:
        """Count a request and, where it was accepted, its time."""
        assert call in CALLS
        assert code in CODES
        if MISSING:
            return
        self._requests.labels(call, code).inc()
        if rows:
            self._rows.labels(call).inc(rows)
        if seconds is not None:
            self._seconds.labels(call).observe(seconds)

    def count_rejected(self, reasons: Iterable[str]) -> None:
        """Count rejected rows by the reasons of `classify_reason`."""
        if MISSING:
            return
        for reason in reasons:
            self._rejected.labels(reason).inc()

    def count_learned(self, events: int) -> None:
        """Count acknowledged events."""
        if not MISSING:
            self._learned.inc(events)
