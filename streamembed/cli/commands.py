"""The commands of `streamembed`, one module each.

Data goes to standard output, progress and errors to standard error. ``--json`` prints one object
and nothing else on standard output. A command is imported when it is called: the version, the list
of commands and shell completion do not wait for numba.
"""

from __future__ import annotations

import os
import warnings
from importlib import import_module
from typing import Any

import click

from streamembed.cli.exit_codes import handle_errors
from streamembed.cli.terminal_text import echo
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
# Commands whose options are in a module of their own, so that --help does not wait for the rest.
OPTION_MODULES = {"replay": "replay_command"}


class LazyCommand(click.Command):
    """A command whose module is imported when it is called.

    Before, it has a name and a purpose only. The command is ``command`` in the module of its name,
    or in that of its options alone.
    """

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Import the command, and return its context."""
        return load_command(str(self.name)).make_context(info_name, args, parent, **extra)


def load_command(name: str) -> click.Command:
    """The command with its options, imported now."""
    module = import_module(f"streamembed.cli.{OPTION_MODULES.get(name, name)}")
    command: click.Command = module.command
    return command


def run_command(name: str, **options: Any) -> None:
    """Import the module of a command whose options are in another, and call its ``run``."""
    import_module(f"streamembed.cli.{name}").run(**options)


class CommandGroup(click.Group):
    """All commands; every error ends in one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Import the requested command, and run it."""

        def name_flags(message: str) -> str:
            name, module = ctx.invoked_subcommand, import_module("streamembed.cli.flag_names")
            named: str = module.name_flags(message, None if name is None else load_command(name))
            return named

        with handle_errors(name_flags), warnings.catch_warnings():
            shown: set[str] = set()

            def show(message: Warning | str, *_: Any, **__: Any) -> None:
                if str(message) not in shown:
                    shown.add(str(message))
                    echo(f"warning: {name_flags(str(message))}", err=True)

            warnings.showwarning = show
            try:
                return super().invoke(ctx)
            except click.NoSuchOption as error:
                raise _suggest_option(error) from error
            except click.BadParameter as error:
                source = _describe_source(error)
                if not source:
                    raise
                raise click.BadParameter(
                    error.message + source, error.ctx, error.param, error.param_hint
                ) from error


def _suggest_option(error: click.NoSuchOption) -> click.UsageError:
    """The error with the hint that the Python parameter of that name has, if it has one."""
    name = error.option_name.lstrip("-").replace("-", "_")
    own = [] if error.ctx is None else [each.name for each in error.ctx.command.params if each.name]
    hint = import_module("streamembed.parameters").suggest_synonym(name, own)
    if not hint:
        return error
    option = f"did you mean --{hint.replace('_', '-')}?" if hint in own else hint
    return click.UsageError(f"No such option {error.option_name}: {option}", error.ctx)


def _describe_source(error: click.BadParameter) -> str:
    """The source of a value that is not from the command line; empty for one that is."""
    parameter, context = error.param, error.ctx
    if parameter is None or context is None:
        return ""
    name = parameter.envvar
    if isinstance(name, str) and name in os.environ:
        return f" (from the environment variable {name})"
    if parameter.name in (context.default_map or {}):
        return " (from the file of --config)"
    return ""


@click.group(
    cls=CommandGroup,
    commands=[LazyCommand(name, short_help=purpose) for name, purpose in COMMANDS.items()],
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="streamembed")
def main() -> None:
    """Streaming embeddings: certified, stable, bounded, replayable.

    Exit codes: 0 success; 2 wrong usage, parameters or input, or every row of the log rejected; 3
    damaged data; 4 input or output failed (a missing file, no permission, a full disk); 5 drift
    detected, with --fail-on-alarm; 130 interrupted, 143 terminated.
    """
