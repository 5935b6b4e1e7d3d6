"""What a process counts, as plain numbers: its parent adds them up, and shows them.

Never a word of a client: calls, codes and reasons are those of the lists here.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any

__all__ = ["BUCKETS", "CALLS", "CODES", "REASONS", "Counts", "added", "reason_of"]

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
# Why a row was rejected, by how `streamembed.data` begins to say it.
REASONS = {
    "null": "null",
    "NaN": "nan",
    "infinite": "infinite",
    "value": "too_large",
    "the id": "null_id",
    "duplicate": "duplicate_id",
    "": "other",
}
# Seconds, of a request.
BUCKETS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0)


def reason_of(text: str) -> str:
    """The reason of a rejected row as one of few words.

    Examples
    --------
    >>> reason_of("NaN in 'x'"), reason_of("value 1e+200 in 'x' is beyond 1e150"), reason_of("?")
    ('nan', 'too_large', 'other')
    """
    return next(word for begins, word in REASONS.items() if text.startswith(begins))


class Counts:
    """Counters of one process, used by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[str, int] = {}
        self._rows: dict[str, int] = {}
        self._rejected: dict[str, int] = {}
        self._buckets: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = {}
        self._learned = 0

    def request(self, call: str, code: str, seconds: float | None = None, rows: int = 0) -> None:
        """One request, and how long it took, where it was let in."""
        with self._lock:
            key = f"{call} {code}"
            self._requests[key] = self._requests.get(key, 0) + 1
            if rows:
                self._rows[call] = self._rows.get(call, 0) + rows
            if seconds is not None:
                buckets = self._buckets.setdefault(call, [0] * (len(BUCKETS) + 1))
                buckets[bisect_left(BUCKETS, seconds)] += 1
                self._seconds[call] = self._seconds.get(call, 0.0) + seconds

    def rejected(self, reasons: Iterable[str]) -> None:
        """Rows that could not be used, by `reason_of`."""
        with self._lock:
            for reason in reasons:
                self._rejected[reason] = self._rejected.get(reason, 0) + 1

    def learned(self, events: int) -> None:
        """Events that were acknowledged."""
        with self._lock:
            self._learned += events

    def told(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        with self._lock:
            return {
                "requests": dict(self._requests),
                "rows": dict(self._rows),
                "rejected": dict(self._rejected),
                "buckets": {call: list(each) for call, each in self._buckets.items()},
                "seconds": dict(self._seconds),
                "learned": self._learned,
            }


def added(one: Any, other: Any) -> Any:
    """Two of what `Counts.told` gave, as one.

    Examples
    --------
    >>> added({"rows": {"transform": 1}}, {"rows": {"transform": 2, "learn": 5}})
    {'rows': {'transform': 3, 'learn': 5}}
    """
    if isinstance(one, dict):
        return {
            **one,
            **{
                key: added(one[key], value) if key in one else value for key, value in other.items()
            },
        }
    if isinstance(one, list):
        return [a + b for a, b in zip(one, other, strict=True)]
    return one + other
