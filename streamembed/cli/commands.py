"""The commands of `streamembed`, by name: a module each.

Data goes to standard output, progress and errors to standard error. ``--json`` prints one object
and nothing else on standard output. A command is imported when it is called: asking for the
version, the list of commands or a completion of them does not wait for numba.
"""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from typing import Any

import click

from streamembed.cli.exit_codes import exit_codes
from streamembed.cli.terminal_text import echo
from streamembed.version import __version__

__all__ = ["main"]

COMMANDS = {
    "config": "Show what a replay would run with, and where each value comes from.",
    "demo": "Follow a real stream through a change: map, picture, coverage, certificates.",
    "export": "Write what a run holds as Arrow and Parquet files.",
    "inspect": "Show what a log, a snapshot, a saved engine or a run folder contains.",
    "merge": "Merge runs of landmarks into one.",
    "replay": "Replay Arrow logs into a run folder.",
    "report": "Write a page about a run: drift, clouds, geometry, metrics.",
    "serve": "Serve a run by Arrow Flight: transform, learn, snapshots, timeline.",
    "transform": "Embed the events of logs with a saved snapshot.",
    "verify": "Check every checksum of a run.",
    "watch": "Serve a page that follows a run while it is written.",
}


class Later(click.Command):
    """A command of which only name and purpose are known until it is called.

    The command itself is ``command`` in the module of its name.
    """

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """That of the command itself, which is imported now."""
        command: click.Command = import_module(f"streamembed.cli.{self.name}").command
        return command.make_context(info_name, args, parent, **extra)


class Commands(click.Group):
    """All commands; whatever goes wrong in one ends in one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Import the command that was named, and run it."""
        with exit_codes(), warnings.catch_warnings():
            told: set[str] = set()

            def show(message: Warning | str, *_: Any, **__: Any) -> None:
                if str(message) not in told:
                    told.add(str(message))
                    echo(f"warning: {message}", err=True)

            warnings.showwarning = show
            try:
                return super().invoke(ctx)
            except click.BadParameter as error:
                source = _source_of(error)
                if not source:
                    raise
                raise click.BadParameter(
                    error.message + source, error.ctx, error.param, error.param_hint
                ) from error


def _source_of(error: click.BadParameter) -> str:
    """Where a value came from that nobody typed."""
    parameter, context = error.param, error.ctx
    if parameter is None or context is None:
        return ""
    name = parameter.envvar
    if isinstance(name, str) and name in os.environ:
        return f" (it is the environment's {name})"
    if parameter.name in (context.default_map or {}):
        return " (it is in the file of --config)"
    return ""


@click.group(
    cls=Commands,
    commands=[Later(name, short_help=purpose) for name, purpose in COMMANDS.items()],
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="streamembed")
def main() -> None:
    """Streaming embeddings: certified, stable, bounded, replayable.

    Exit codes: 0 done; 2 wrong usage, parameters or input, or a log of which every row is rejected;
    3 damaged data; 4 input or output failed (a missing file, no permission, a full disk); 5 drift
    was found, with --fail-on-alarm; 130 interrupted, 143 terminated.
    """
