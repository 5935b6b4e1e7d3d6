"""``replay --help``: the options of a replay, which are quick to import."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import click

from streamembed.cli import settings_file
from streamembed.cli.command_options import add_columns_options, add_engine_options

MONITOR_OPTIONS: dict[str, dict[str, Any]] = {
    "--monitor": {
        "is_flag": True,
        "help": "Monitor drift: write alarms.jsonl and drift.parquet.",
    },
    "--ert": {
        "type": float,
        "help": "Mean number of events between false alarms.  [default: 10000]",
    },
    "--reference": {
        "metavar": "SNAPSHOT",
        "help": "Compare with a saved snapshot.  [default: with the first events]",
    },
    "--n-reference": {
        "type": int,
        "help": "Number of the first events that are compared with.  [default: 1000]",
    },
    "--policy": {
        "type": click.Choice(["renew", "hold", "stop"]),
        "help": "After an alarm: renew the reference, hold it as home, or stop.  [default: renew]",
    },
    "--watch-labels": {
        "is_flag": True,
        "help": "Also monitor the association of features and labels.",
    },
    "--period": {
        "type": int,
        "help": "Events of a season, which is subtracted.",
    },
    "--on-alarm": {
        "metavar": "COMMAND",
        "help": "Run a command for each alarm, with its JSON on standard input.",
    },
    "--fail-on-alarm": {"is_flag": True, "help": "Exit with 5 if this call raises an alarm."},
}


def add_monitor_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the drift monitor."""
    for flag, settings in reversed(MONITOR_OPTIONS.items()):
        command = click.option(flag, **settings)(command)
    return command


@click.command("replay", context_settings={"auto_envvar_prefix": settings_file.PREFIX})
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option("--run", "run", required=True, metavar="DIR", help="Run folder to create.")
@add_engine_options
@add_columns_options
@click.option(
    "--snapshot-every",
    type=int,
    help="Events between snapshots, with --workers those of each partition; rounded up to whole "
    "chunks.  [default: 100; with --workers 262144]",
)
@click.option(
    "--embed",
    type=click.Choice(["final", "causal"]),
    default="final",
    show_default=True,
    help="Embed all events by the last snapshot, or each by the first that includes it.",
)
@click.option(
    "--checkpoint-every",
    metavar="EVENTS|<n>s",
    help="How often to commit the run, so that it can be resumed: 5000 or 10s.  [default: 30s]",
)
@click.option(
    "--max-rejected",
    metavar="ROWS|SHARE%",
    help="Stop when more rows are rejected: 100 or 1%.  [default: no limit]",
)
@click.option(
    "--fork",
    metavar="RUN|FILE",
    help="Start from the last committed engine of another run, or from a saved engine.",
)
@click.option(
    "--follow",
    is_flag=True,
    help="Wait for the files that come to LOG, a folder, until a signal or --idle-exit ends it.",
)
@click.option(
    "--idle-exit",
    type=float,
    metavar="SECONDS",
    help="With --follow: end when no new file is complete for so long.  [default: never]",
)
@add_monitor_options
@click.option(
    "--workers",
    type=int,
    help="Learn the log in partitions with this many processes, and merge their landmarks; "
    "--memory then defaults to landmarks.  [default: one process, one map]",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing run in DIR.")
@settings_file.add_config_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    allow_from_autoenv=False,
    help="One JSON object on standard output.",
)
def command(**options: Any) -> None:
    """Replay Arrow logs into a run folder.

    A LOG is an Arrow IPC stream or file, Parquet, or a folder of them. A log
    with a list column distances is a log of distances to earlier rows. Writes
    snapshot.arrow, embedding.parquet, timeline.parquet and rejected.parquet, and run.db. Run
    the same command again to resume an interrupted replay, or to add the new rows of a log.
    With --follow it waits for more files, and Ctrl-C or SIGTERM while it waits ends the log there.
    """
    import_module("streamembed.cli.replay_run").run(**options)
