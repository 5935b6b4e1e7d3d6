"""Drift detection: whether a stream has left its reference, since when, and in what."""

from streamembed.drift.alarm import Alarm
from streamembed.drift.monitor import Monitor

__all__ = ["Alarm", "Monitor"]
