"""Runs: a log or calls through an engine into a folder, in one process or several; reading them."""

from streamembed.runs.log_replay import Replayed, replay
from streamembed.runs.log_transform import transform_log
from streamembed.runs.online_run import Run, open_run
from streamembed.runs.run_export import export
from streamembed.runs.run_reader import RunReader, read_run
from streamembed.runs.verification import Trouble, Verified, verify

__all__ = [
    "Replayed",
    "Run",
    "RunReader",
    "Trouble",
    "Verified",
    "export",
    "open_run",
    "read_run",
    "replay",
    "transform_log",
    "verify",
]
