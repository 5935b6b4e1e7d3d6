"""Monitoring: whether a stream has left its reference, since when, and in what."""

from streamembed.monitoring.alarm import Alarm
from streamembed.monitoring.monitor import Monitor

__all__ = ["Alarm", "Monitor"]
