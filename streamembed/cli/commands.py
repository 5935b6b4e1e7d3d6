"""The commands of `streamembed`, one module each.

Data goes to standard output, progress and errors to standard error. ``--json`` prints one object
and nothing else on standard output. A command is imported when it is called: the version, the list
of commands and shell completion do not wait for numba.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from streamembed.cli.exit_codes import handle_errors
from streamembed.cli.terminal_text import echo, name_options
from streamembed.version import __version__

COMMANDS = {
    "demo": "Replay a real stream with a change: map, picture, certificates, alarms, report.",
    "export": "Export a run as Arrow and Parquet files.",
    "inspect": "Show what a log, a snapshot, a saved engine or a run folder contains.",
    "merge": "Merge runs of landmarks into one.",
    "replay": "Replay Arrow logs into a run folder.",
    "report": "Write a page about a run: drift, scatter plots, geometry, metrics.",
    "serve": "Serve a run by Arrow Flight: transform, learn, snapshots, timeline.",
    "transform": "Embed the events of logs with a saved snapshot.",
    "verify": "Check every checksum of a run.",
    "watch": "Serve a page that follows a run while it is written.",
}
SOURCES: dict[ParameterSource | None, str] = {
    ParameterSource.ENVIRONMENT: " (from the environment)",
    ParameterSource.DEFAULT_MAP: " (from the file of --config)",
}


def load_command(name: str) -> click.Command:
    """Import a command with its options."""
    command: click.Command = import_module(f"streamembed.cli.{name}").command
    return command


class LazyGroup(click.Group):
    """Commands that are imported when they are called; every error is one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        items = [CompletionItem(name, help=COMMANDS[name]) for name in names]
        return [*items, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a warning is one line, once."""
        shown: set[str] = set()

        def show(message: Warning | str, *_: Any, **__: Any) -> None:
            if str(message) not in shown:
                shown.add(str(message))
                echo(f"warning: {name_options(str(message))}", err=True)

        with handle_errors(), warnings.catch_warnings():
            warnings.showwarning = show
            try:
                return super().invoke(ctx)
            except click.NoSuchOption as error:
                raise _suggest_option(error) from error
            except click.BadParameter as error:
                source = _describe_source(error)
                if not source:
                    raise
                raise click.BadParameter(error.message + source, error.ctx, error.param) from error


def _describe_source(error: click.BadParameter) -> str:
    """The source of a value that is not from the command line; empty for one that is."""
    if error.ctx is None or error.param is None:
        return ""
    return SOURCES.get(error.ctx.get_parameter_source(str(error.param.name)), "")


def _suggest_option(error: click.NoSuchOption) -> click.UsageError:
    """The error with the name that a parameter of other libraries has here, if it has one."""
    own = [] if error.ctx is None else [str(each.name) for each in error.ctx.command.params]
    name = error.option_name.lstrip("-").replace("-", "_")
    hint = import_module("streamembed.parameters").suggest_synonym(name, own)
    if not hint:
        return error
    option = f"did you mean --{hint.replace('_', '-')}?" if hint in own else hint
    return click.UsageError(f"No such option {error.option_name}: {option}", error.ctx)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="streamembed")
def main() -> None:
    """Streaming embeddings: certified, stable, bounded, replayable.

    Exit codes: 0 success; 2 wrong usage, parameters or input, or every row of the log rejected; 3
    damaged data; 4 input or output failed (a missing file, no permission, a full disk); 5 drift
    detected, with --fail-on-alarm; 130 interrupted, 143 terminated.
    """
