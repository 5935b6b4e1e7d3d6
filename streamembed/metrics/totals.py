"""What became of the updates of a metric's learner, chunk by chunk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamembed.numeric.codec import Count


@dataclass(frozen=True, slots=True)
class Totals:
    """What became of a learner's updates since the first event."""

    updates: Count = 0  # chunks that it received
    # Those that would have left the range of floating point numbers: nothing of them was learned.
    refused: Count = 0
    refused_events: Count = 0  # labelled points and pairs in these
    # How many updates ended with which status; refused ones count under ``refused``.
    by_status: Mapping[str, int] = field(default_factory=dict)

    def count(self, status: str, refused_events: int = 0) -> Totals:
        """With one more update."""
        by_status = {**self.by_status, status: self.by_status.get(status, 0) + 1}
        return Totals(
            self.updates + 1,
            self.refused + (status == "refused"),
            self.refused_events + refused_events,
            by_status,
        )

    def merge(self, other: Totals) -> Totals:
        """Of two streams."""
        statuses = sorted({*self.by_status, *other.by_status})
        return Totals(
            self.updates + other.updates,
            self.refused + other.refused,
            self.refused_events + other.refused_events,
            {
                status: self.by_status.get(status, 0) + other.by_status.get(status, 0)
                for status in statuses
            },
        )


NO_UPDATES = Totals()
