"""What the drift monitor of a run has found, as the report shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.drift.alarm import Alarm
from streamembed.numeric.arrays import Floats
from streamembed.runs.run_reader import RunReader

__all__ = ["CHANNELS", "Monitored", "Reference", "monitored"]

CHANNELS = ("coverage", "coordinates", "features", "spread", "labels", "spectrum", "metric")


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """The events that others are compared with.

    Attributes
    ----------
    points : (n, d)
        In the caller's units, columns in the order of the run's features.
    ids : list of int or str
    coverage : (n,)
    """

    points: Floats
    ids: list[Any]
    coverage: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Monitored:
    """What a monitor has found.

    Attributes
    ----------
    ert : float
        Events between false alarms that were asked for.
    state : str
        "collecting", "watching" or "relearning".
    timeline : pyarrow.Table
        ``position`` (end of a segment), ``channel``, ``memory``, ``statistic``, ``run_length``,
        ``state``.
    threshold : float
        The run length at which it alarms.
    alarms : tuple of Alarm
    reference : Reference
    calibration : dict
    components : pyarrow.Table
        ``name``, ``channel``, ``reference_mean``, ``reference_sd``, ``now_mean``, ``now_sd``,
        ``ks``, ``p_adjusted``, ``share``, ``verdict``.
    position : int
        Events that it has seen.
    notes : tuple of str
        What limits the rate of false alarms.
    """

    ert: float
    state: str
    timeline: pa.Table
    threshold: float
    alarms: tuple[Alarm, ...]
    reference: Reference
    calibration: Mapping[str, Any] = field(default_factory=dict)
    components: pa.Table | None = None
    position: int = 0
    notes: tuple[str, ...] = ()


def monitored(reader: RunReader) -> Monitored | None:
    """What the monitor of a run has found; None where it has none."""
    monitor = reader.monitor()
    if monitor is None:
        return None
    if monitor.state == "collecting":
        none = Reference(np.zeros((0, 0)), [], np.zeros(0))
        told = monitor.ert, monitor.state, monitor.timeline(), monitor.ert, (), none
        return Monitored(*told, position=monitor.position, notes=monitor.notes)
    points, ids = monitor.reference
    return Monitored(
        monitor.ert,
        monitor.state,
        monitor.timeline(),
        monitor.threshold,
        monitor.alarms,
        Reference(points, ids.tolist(), monitor.reference_coverage),
        monitor.calibration,
        monitor.components() if monitor.is_compared else None,
        monitor.position,
        monitor.notes,
    )
