"""Counters of a process as plain numbers; its parent adds and publishes them.

No label comes from a client: calls, codes and reasons are those of the lists here.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from typing import Any

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


class RequestCounters:
    """Counters of one process, shared by its threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests, self._rows = Counter[str](), Counter[str]()
        self._rejected = Counter[str]()
        self._buckets: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}
        self._learned = 0

    def count_request(
        self, call: str, code: str, seconds: float | None = None, rows: int = 0
    ) -> None:
        """Count a request and, where it was accepted, its time."""
        with self._lock:
            self._requests[f"{call} {code}"] += 1
            if rows:
                self._rows[call] += rows
            if seconds is not None:
                buckets = self._buckets.setdefault(call, [0] * (len(BUCKETS) + 1))
                buckets[bisect_left(BUCKETS, seconds)] += 1
                self._seconds[call] = self._seconds.get(call, 0.0) + seconds

    def count_rejected(self, reasons: Iterable[str]) -> None:
        """Count rejected rows by the reasons of `classify_reason`."""
        with self._lock:
            self._rejected.update(reasons)

    def count_learned(self, events: int) -> None:
        """Count acknowledged events."""
        with self._lock:
            self._learned += events

    def to_dict(self) -> dict[str, Any]:
        """All counters, JSON-ready."""
        with self._lock:
            return {
                "requests": dict(self._requests),
                "rows": dict(self._rows),
                "rejected": dict(self._rejected),
                "buckets": {call: list(numbers) for call, numbers in self._buckets.items()},
                "seconds": dict(self._seconds),
                "learned": self._learned,
            }


def add_counters(left: Any, right: Any) -> Any:
    """The sum of two results of `RequestCounters.to_dict`.

    Examples
    --------
    >>> add_counters({"rows": {"transform": 1}}, {"rows": {"transform": 2, "learn": 5}})
    {'rows': {'transform': 3, 'learn': 5}}
    """
    if isinstance(left, dict):
        return {
            **left,
            **{
                key: add_counters(left[key], value) if key in left else value
                for key, value in right.items()
            },
        }
    if isinstance(left, list):
        return [a + b for a, b in zip(left, right, strict=True)]
    return left + right
