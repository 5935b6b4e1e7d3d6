"""Runs: a log through an engine into a folder, or through a snapshot into a file."""

from streamembed.runs.run import Replayed, replay
from streamembed.runs.transform import transform_log

__all__ = ["Replayed", "replay", "transform_log"]
