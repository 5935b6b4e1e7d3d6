"""The results of the drift monitor of a run, for the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.drift.alarm import Alarm
from streamembed.numeric.arrays import Floats
from streamembed.runs.run_reader import RunReader

CHANNELS = ("coverage", "coordinates", "features", "spread", "labels", "spectrum", "metric")


@dataclass(frozen=True, slots=True, eq=False)
class MonitorReference:
    """The events that the monitor compares others with.

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
class MonitorSection:
    """The results of a monitor.

    Attributes
    ----------
    ert : float
        Requested number of events between false alarms.
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
        Number of observed events.
    notes : tuple of str
        What limits the rate of false alarms.
    """

    ert: float
    state: str
    timeline: pa.Table
    threshold: float
    alarms: tuple[Alarm, ...]
    reference: MonitorReference
    calibration: Mapping[str, Any] = field(default_factory=dict)
    components: pa.Table | None = None
    position: int = 0
    notes: tuple[str, ...] = ()


def read_monitor_section(reader: RunReader) -> MonitorSection | None:
    """Read the results of the monitor of a run; None without a monitor."""
    monitor = reader.monitor()
    if monitor is None:
        return None
    if monitor.state == "collecting":
        no_reference = MonitorReference(np.zeros((0, 0)), [], np.zeros(0))
        facts = monitor.ert, monitor.state, monitor.timeline(), monitor.ert, (), no_reference
        return MonitorSection(*facts, position=monitor.position, notes=monitor.notes)
    points, ids = monitor.reference
    return MonitorSection(
        monitor.ert,
        monitor.state,
        monitor.timeline(),
        monitor.threshold,
        monitor.alarms,
        MonitorReference(points, ids.tolist(), monitor.reference_coverage),
        monitor.calibration,
        monitor.components() if monitor.is_compared else None,
        monitor.position,
        monitor.notes,
    )
