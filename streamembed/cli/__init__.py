"""The command line."""

from streamembed.cli.commands import main

__all__ = ["main"]
