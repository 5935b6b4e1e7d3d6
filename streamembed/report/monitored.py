"""What the drift monitor of a run has found, as the report shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamembed.numeric.arrays import Floats
from streamembed.online.reader import RunReader

__all__ = ["CHANNELS", "Alarm", "Monitored", "Reference", "monitored"]

CHANNELS = ("coverage", "coordinates", "features", "spread", "labels", "spectrum", "metric")


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alarm, explained.

    Attributes
    ----------
    position, onset : int
        Where it was raised, and since when things have changed, as far as can be told.
    channel : str
        One of `CHANNELS`.
    memory : int
        Events that it remembers; 0 of a channel of snapshots.
    run_length : float
        Events between values as high, without drift.
    components : tuple of (name, share)
    features : tuple of (name, size, p)
        Sizes in standard deviations of the reference.
    events : tuple of (id, position, contribution)
        That speak loudest, first.
    sentence : str
        All of it in words.
    """

    position: int
    onset: int
    channel: str
    memory: int
    run_length: float
    components: tuple[tuple[str, float], ...] = ()
    features: tuple[tuple[str, float, float], ...] = ()
    events: tuple[tuple[Any, int, float], ...] = ()
    sentence: str = ""


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
    """

    ert: float
    state: str
    timeline: pa.Table
    threshold: float
    alarms: tuple[Alarm, ...]
    reference: Reference
    calibration: Mapping[str, Any] = field(default_factory=dict)
    components: pa.Table | None = None


def monitored(reader: RunReader) -> Monitored | None:
    """What the monitor of a run has found; None where it has none."""
    del reader  # runs have no monitor yet
    return None
