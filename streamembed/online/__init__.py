"""Runs that are learned into, and runs of any kind that are read, checked and handed on."""

from streamembed.online.reader import RunReader, read_run
from streamembed.online.run import Run, open_run

__all__ = ["Run", "RunReader", "open_run", "read_run"]
