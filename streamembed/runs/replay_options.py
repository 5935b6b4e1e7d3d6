"""The options of a replay that its driver and its recorder share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from streamembed.drift.alarm import Alarm
from streamembed.drift.monitor import Monitor
from streamembed.runs.reject_limit import RejectLimit


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Checked arguments of `streamembed.replay`.

    Attributes
    ----------
    every : int
        Events between snapshots, a multiple of the chunk size.
    on_bad_row : str
        "skip" or "raise".
    causal : bool
        Whether events are embedded as of when each was learned, or all by the last snapshot.
    reject_limit : RejectLimit
    monitor : Monitor or None
        Watches the events that the engine accepts.
    on_alarm, progress, stop : callable or None
    """

    every: int
    on_bad_row: str = "skip"
    causal: bool = True
    reject_limit: RejectLimit = field(default_factory=RejectLimit)
    monitor: Monitor | None = None
    on_alarm: Callable[[Alarm], None] | None = None
    progress: Callable[[int], None] | None = None
    stop: Callable[[], bool] | None = None
