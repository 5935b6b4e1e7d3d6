"""The options of a replay that its driver and its recorder share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from streamembed.drift.alarm import Alarm
from streamembed.drift.monitor import Monitor
from streamembed.runs.reject_limit import RejectLimit


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Checked arguments of `streamembed.replay`."""

    every: int  # events between snapshots, a multiple of the chunk size
    on_bad_row: str = "skip"  # "skip" or "raise"
    # Whether events are embedded as of when each was learned, or all by the last snapshot.
    causal: bool = True
    reject_limit: RejectLimit = field(default_factory=RejectLimit)
    monitor: Monitor | None = None  # watches the events that the engine accepts
    on_alarm: Callable[[Alarm], None] | None = None
    progress: Callable[[int], None] | None = None
    stop: Callable[[], bool] | None = None
