"""Runs that are learned into, and runs of any kind that are read, checked and handed on."""

from streamembed.online.exporting import export
from streamembed.online.reader import RunReader, read_run
from streamembed.online.run import Run, open_run
from streamembed.online.verifying import Trouble, Verified, verify

__all__ = ["Run", "RunReader", "Trouble", "Verified", "export", "open_run", "read_run", "verify"]
